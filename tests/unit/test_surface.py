"""The public surface of the package: light, and with names that no import can take away."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import glassformer as gf


def test_every_public_name_is_there_and_none_is_also_a_module():
    """Importing a submodule puts it into the package under its name, over a function of the same name."""
    folder = Path(gf.__file__).parent
    for name in gf.__all__:
        assert getattr(gf, name) is not None
        if name == "explain":  # the package is the function
            continue
        assert not (folder / f"{name}.py").exists() and not (folder / name).exists(), name


def test_explain_can_be_called_before_and_after_a_part_of_its_package_is_imported():
    code = """
import glassformer as gf
run = gf.load("transformer").trace("별이")
one = gf.explain("flow", run)
import glassformer.explain.sight
assert gf.explain("flow", run) == one and gf.explain.sight.sight
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_presets_can_be_listed_before_and_after_one_is_built():
    before = gf.presets()
    gf.build("gpt2", vocab=65, dim=32, heads=2, blocks=1, context=16)
    assert gf.presets() == before and "t5" in before


def test_the_exact_versions_are_nothing_but_versions():
    """pip refuses constraints with -e lines, paths or addresses; one slipped in from a freeze once."""
    lines = (Path(__file__).parents[2] / "constraints.txt").read_text(encoding="utf-8").split()
    assert "torch==2.13.0" in lines
    assert [line for line in lines if not re.fullmatch(r"[\w.-]+==[\w.]+", line)] == []


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
@pytest.mark.parametrize("text", ['a "b" `date` $HOME $$x it\'s 고양이', "-n 3", "$(shell date)"])
def test_make_run_hands_the_sentence_on_as_it_is(text, tmp_path):
    """Neither make nor the shell may read what is in it, whether it comes as a variable or by the environment."""
    command = tmp_path / "bin" / "glassformer"
    command.parent.mkdir()
    command.write_text('#!/bin/sh\nprintf "%s|" "$@"\n')
    command.chmod(0o755)
    (tmp_path / "bin" / "python").write_text("#!/bin/sh\n")  # by which the page is found to be built
    (tmp_path / "bin" / "python").chmod(0o755)
    (tmp_path / "installed").touch()
    for given, environment in (([f"TEXT={text}"], {}), ([], {"TEXT": text})):
        made = subprocess.run(
            ["make", "-s", "run", f"VENV={tmp_path}", *given],
            cwd=Path(__file__).parents[2], env=os.environ | environment, capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert made.stdout == f"explore|--no-serve|--|{text}|"


@pytest.mark.skipif(shutil.which("make") is None or os.name != "posix", reason="needs make and a terminal")
def test_make_run_shows_the_page_in_a_terminal_and_ends_elsewhere(tmp_path):
    import pty

    command = tmp_path / "bin" / "glassformer"
    command.parent.mkdir()
    command.write_text('#!/bin/sh\nprintf "%s|" "$@" >&2\n')
    command.chmod(0o755)
    (tmp_path / "bin" / "python").symlink_to("/bin/true")
    (tmp_path / "installed").touch()
    ours, theirs = pty.openpty()
    for out, serve in ((theirs, "--serve"), (subprocess.PIPE, "--no-serve")):
        made = subprocess.run(
            ["make", "-s", "run", f"VENV={tmp_path}", "TEXT=a"],
            cwd=Path(__file__).parents[2], stdout=out, stderr=subprocess.PIPE, text=True, check=True,
        )  # fmt: skip
        assert made.stderr == f"explore|{serve}|--|a|"
    os.close(ours), os.close(theirs)


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
@pytest.mark.parametrize("target", ["installed", "installed-dev"])
def test_make_says_what_it_installs_before_pip_works(target, tmp_path):
    """In both languages; pip is silent, and a first installation takes minutes."""
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text("#!/bin/sh\necho pip: $2\n")
    python.chmod(0o755)
    made = subprocess.run(
        ["make", "-s", f"{tmp_path}/{target}", f"VENV={tmp_path}"],
        cwd=Path(__file__).parents[2], capture_output=True, text=True, check=True,
    )  # fmt: skip
    english, korean, page, page_korean, pip = made.stdout.splitlines()
    assert "Installing PyTorch" in english and "minutes" in english and str(tmp_path) in english
    assert "PyTorch" in korean and "설치합니다" in korean and "분" in korean and pip == "pip: pip"
    assert "page" in page and "Node.js" in page and "화면을 만듭니다" in page_korean


def test_every_file_that_the_package_reads_is_installed_with_it():
    folder = Path(gf.__file__).parent
    settings = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))
    globs = settings["tool"]["setuptools"]["package-data"]["glassformer"]
    installed = {path for glob in globs for path in folder.glob(glob)}
    others = {path for path in folder.rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc")}
    assert others and others <= installed
