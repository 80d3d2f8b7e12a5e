#!/usr/bin/env bash
# The first steps of a new user, timed: `git clone` and `make run` in an empty folder, with nothing installed before.
#
#     dev/fresh.sh [SECONDS]
#
# Leaves with status 1 where the sheet is not there after SECONDS (300). The clone is of this checkout's last commit; pip
# fetches everything anew, without its cache, so the network's speed is part of what is measured.
set -euo pipefail

most=${1:-300}
source=$(cd "$(dirname "$0")/.." && pwd)
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
unset VIRTUAL_ENV PYTHONPATH
export PIP_NO_CACHE_DIR=1

began=$SECONDS
git clone --quiet "file://$source" "$place/glassformer"
status=0
(cd "$place/glassformer" && timeout "$most" make run) >"$place/said" 2>&1 || status=$?
took=$((SECONDS - began))
if [ "$status" -ne 0 ] || ! grep -q "softmax" "$place/said"; then
    tail -n 20 "$place/said" >&2
    echo "missed: no sheet after $took s (asked: $most s; make left with status $status)" >&2
    exit 1
fi
echo "git clone and make run: $took s (asked: $most s)"
[ "$took" -le "$most" ]
