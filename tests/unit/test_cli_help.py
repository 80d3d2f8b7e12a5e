"""The help, the language it speaks, and what importing and calling the command line does to the process."""

import io
import itertools
import re
import subprocess
import sys

import pytest
import wcwidth
from cli_runs import KOREAN, VERBS, run, write

from glassformer.cli import app, main

pytestmark = pytest.mark.usefixtures("english_locale")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write(tmp_path_factory.mktemp("tiny"))


def test_the_language_follows_the_arguments_and_the_locale(capsys, folder, monkeypatch):
    def korean(*arguments):
        return "니다" in "".join(run(capsys, *arguments)[1:])

    assert korean("trace", "고양이", "--token", "강아지") and not korean("trace", "cat", "--token", "dog")
    assert not korean("trace", "고양이", "--token", "강아지", "--lang=en")
    assert korean("trace", "--help", "--lang", "ko") and not korean("trace", "--help")
    monkeypatch.setenv("LANG", "ko_KR.UTF-8")
    assert korean("trace", "cat", "-m", folder) and korean("bogus") and korean("--help")
    assert not korean("trace", "cat", "-m", folder, "--lang", "en")
    assert korean("--lang", "ko", "trace", "cat", "-m", folder) and korean("--lang=ko", "trace", "--help")
    assert korean("--lang", "ko", "--help") and korean("--lang", "ko")
    assert not korean("--lang", "en", "trace", "고양이", "-m", folder)
    monkeypatch.setenv("LC_ALL", "C")
    assert not korean("--help")


@pytest.mark.parametrize("verb", ["", *VERBS])
def test_the_help_is_korean_where_asked(capsys, verb):
    status, out, _ = run(capsys, *([verb] if verb else []), "--help", "--lang", "ko")
    english = re.sub(r"예:.*|사용법:.*|/[\w.]+", "", out)
    assert status == 0 and "사용법: glassformer" in out and "InlineText" not in out
    assert not re.search(r"\b[a-z]+ [a-z]+ [a-z]+\b", english), english


@pytest.mark.parametrize("columns", ["0", "1", "40", "57"])
def test_a_terminal_of_any_width_gets_all_of_it(capsys, folder, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    for arguments in (["trace", KOREAN, "-m", folder], ["--help"], ["trace", "--help", "--lang", "ko"]):
        status, out, _ = run(capsys, *arguments)
        widths = [wcwidth.wcswidth(line) for line in out.splitlines() if "예:" not in line and "Example" not in line]
        assert status == 0 and len(widths) > 8 and max(widths) <= max(40, int(columns))


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_an_example_and_the_common_options(capsys, verb):
    status, out, _ = run(capsys, verb, "--help")
    assert status == 0 and f"Example:  glassformer {verb}" in out
    assert all(option in out for option in ("--json", "--lang", "--device", "--dtype", "--seed"))
    assert "False]" not in out, "a switch that was not given is off, which goes without saying"


@pytest.mark.parametrize(
    ("verb", "usage", "said"),
    [
        ("generate", "PROMPT...", "more of them for a batch"),
        ("train", "TEXT|RECIPE", "a folder of them, or a recipe (.toml, .json)"),
        ("evaluate", "FILE", "a folder of them"),
        ("trace", "TEXT", "in quotes"),
    ],
)
def test_the_help_says_what_a_verb_is_given(capsys, monkeypatch, verb, usage, said):
    monkeypatch.setenv("COLUMNS", "120")
    out = run(capsys, verb, "--help")[1]
    assert f"Usage: glassformer {verb} [OPTIONS] {usage}\n" in out and said in out
    assert "a folder that is not there is made" in " ".join(run(capsys, "trace", "--help")[1].replace("│", "").split())


@pytest.mark.parametrize("lang", ["en", "ko"])
def test_a_paragraph_of_the_help_is_folded_at_the_terminal(capsys, monkeypatch, lang):
    """Not where the line of the source ends."""
    monkeypatch.setenv("COLUMNS", "100")
    head = run(capsys, "evaluate", "--help", "--lang", lang)[1].split("╭")[0]
    _usage, *about, example, rest = head.split("\n\n")
    assert rest == "" and "glassformer evaluate notes.txt" in example and len(about) == 2
    for paragraph in about:
        lines = paragraph.splitlines()
        for line, after in itertools.pairwise(lines):
            assert wcwidth.wcswidth(f"{line.rstrip()} {after.split()[0]}") > 100, line


def test_the_verbs_are_these(capsys):
    status, out, _ = run(capsys, "--help")
    assert status == 0 and "Example:  glassformer trace" in out and all(f" {verb} " in out for verb in VERBS)
    assert {name for name in app if not name.startswith("-")} == set(VERBS)
    assert run(capsys, "--version")[1].strip()


def process(*arguments, code=None, **more):
    command = [sys.executable, "-c", code] if code else [sys.executable, "-m", "glassformer", *arguments]
    return subprocess.run(command, capture_output=True, timeout=240, **more)


def test_help_and_import_are_light():
    """torch stays outside; nothing is printed and no global setting touched."""
    code = """
import sys, time
start = time.process_time()
import glassformer
seconds = time.process_time() - start
assert "torch" not in sys.modules and "numpy" not in sys.modules, "a light import"
from glassformer.cli import main
main(["--help"]); main(["trace", "--help"])
assert "torch" not in sys.modules and "rich.console" in sys.modules
print("seconds", seconds, file=sys.stderr)
"""
    found = process(code=code)
    assert found.returncode == 0, found.stderr.decode()
    assert float(found.stderr.split()[-1]) < 0.3
    assert process(code="import glassformer").stdout == b""


def test_importing_everything_changes_no_global_setting():
    code = """
import torch, warnings
before = (torch.get_default_dtype(), torch.is_grad_enabled(), torch.get_num_threads(), torch.initial_seed(),
          torch.get_float32_matmul_precision(), torch.are_deterministic_algorithms_enabled(), list(warnings.filters))
import glassformer.api, glassformer.train, glassformer.terminal.sheet, glassformer.cli
after = (torch.get_default_dtype(), torch.is_grad_enabled(), torch.get_num_threads(), torch.initial_seed(),
         torch.get_float32_matmul_precision(), torch.are_deterministic_algorithms_enabled(), list(warnings.filters))
assert before[:-1] == after[:-1], (before, after)
"""
    found = process(code=code)
    assert found.returncode == 0 and found.stdout == b"" and found.stderr == b"", found.stderr.decode()


def test_a_reader_that_leaves_is_no_mistake(folder):
    command = f"{sys.executable} -m glassformer trace '{KOREAN}' -m {folder} | head -1; echo ${{PIPESTATUS[0]}}"
    found = subprocess.run(["bash", "-c", command], capture_output=True, timeout=240)
    assert found.stdout.decode().splitlines() == [KOREAN, "0"] and found.stderr == b""


def test_a_terminal_that_is_not_utf8_gets_no_traceback(monkeypatch, folder):
    out = io.TextIOWrapper(io.BytesIO(), "ascii")
    monkeypatch.setattr(sys, "stdout", out)
    assert main(["trace", KOREAN, "-m", folder]) == 0
    assert b"\\u" in out.buffer.getvalue()


@pytest.mark.parametrize(
    ("verb", "told"),
    [("evaluate", ("UTF-8", "x_test", "t10k-images-idx3-ubyte")), ("influence", ("from 8",))],
)
def test_help_says_what_may_be_given(verb, told, capsys):
    assert main([verb, "--help", "--lang", "en"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert all(one in said for one in told)
