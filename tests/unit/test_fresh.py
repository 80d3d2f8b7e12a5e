"""The timing of a new user's first steps, with another `make` in the place of the real one."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="needs a checkout to clone")
@pytest.mark.parametrize(
    ("make", "status", "said"),
    [
        ('test -f Makefile && test "$1" = run && echo "token softmax"', 0, "git clone and make run: "),
        ("echo nothing", 1, "missed: no sheet"),
        ("echo softmax; exit 2", 1, "make left with status 2"),
        ("sleep 20; echo softmax", 1, "missed: no sheet"),
    ],
)
def test_the_first_steps_are_judged(tmp_path, make, status, said):
    program = tmp_path / "make"
    program.write_text(f"#!/bin/sh\n{make}\n")
    program.chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "TMPDIR": str(tmp_path)}
    most = "2" if make.startswith("sleep") else "60"
    done = subprocess.run([ROOT / "dev/fresh.sh", most], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == status and said in done.stdout + done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["make"], "nothing is left behind"
