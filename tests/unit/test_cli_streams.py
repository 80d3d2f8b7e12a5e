"""The command line and the world around it: readers that leave, full disks, and help that can be followed."""

import json
import os
import signal
import subprocess
import sys

import pytest
from quick import quick_first, quick_share

from glassformer.bench import startup
from glassformer.cli import main
from glassformer.terminal.korean import translated
from glassformer.train import read_run

SMALL = (
    "--set steps=400 --set model.layers=1 --set model.dim=16 --set block=32 --set batch=2 --set accumulate=1 "
    "--set sample_tokens=0 --set snapshots=0"
)


def shell(command):
    """A command's outcome; where it takes too long, all that it started ends with it."""
    started = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "start_new_session": True}
    with subprocess.Popen(["bash", "-c", command], **started) as process:
        try:
            out, err = process.communicate(timeout=240)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess(command, process.returncode, out, err)


@pytest.mark.parametrize("more", quick_first(["--json", "--lang en"], ["--lang en"]))
def test_a_training_whose_reader_leaves_says_so_and_goes_on_later(tmp_path, more):
    (tmp_path / "my.txt").write_text("고양이가 생선을 먹었다\n" * 200, encoding="utf-8")
    out = tmp_path / "out"
    command = f"{sys.executable} -m glassformer train {tmp_path}/my.txt --out {out} {SMALL} {more}"
    found = shell(f"{command} | head -n 1 > {tmp_path}/first; echo ${{PIPESTATUS[0]}}")
    assert found.stdout.split() == ["141"], found
    assert found.stderr.count("\n") == 1 and "the training was stopped" in found.stderr
    assert len((tmp_path / "first").read_text(encoding="utf-8").splitlines()) == 1
    again = shell(f"{command.replace(more, '')} --json | tail -n 1")
    assert json.loads(again.stdout)["step"] == 400 and again.stderr == ""


@pytest.mark.parametrize("verb", quick_share(["models", "models --json", "trace a", "trace a --json", "--help"], 3, 1))
def test_a_full_disk_is_named(verb):
    found = shell(f"{sys.executable} -m glassformer {verb} --lang en > /dev/full; echo $?")
    assert found.stdout == "2\n" and found.stderr == (
        "glassformer: the output cannot be written (No space left on device); send it to another place\n"
    )
    assert "디스크에 남은 공간이 없습니다" in translated(found.stderr.strip().removeprefix("glassformer: "))


def helped(capsys, verb):
    capsys.readouterr()
    assert main([verb, "--help", "--lang", "en"]) == 0
    return " ".join(capsys.readouterr().out.replace("│", " ").split())


def test_every_value_that_the_help_names_is_taken(capsys, tmp_path):
    (tmp_path / "my.txt").write_text("고양이가 생선을 먹었다\n" * 20, encoding="utf-8")
    for verb in ("trace", "generate", "evaluate", "models"):
        assert "Number format: float32, bfloat16, float64." in helped(capsys, verb)
        given = {"trace": ["a"], "generate": ["a", "-n", "1"], "evaluate": [str(tmp_path / "my.txt")], "models": []}
        for dtype in ("float32", "bfloat16", "float64"):
            assert main([verb, *given[verb], "--dtype", dtype, "--device", "cpu", "--seed", "1"]) == 0
    assert "Number format: auto, float32, bfloat16; left out: the recipe's." in helped(capsys, "train")
    for dtype in ("auto", "float32", "bfloat16"):
        assert read_run(str(tmp_path / "my.txt"), {"dtype": dtype}, None).dtype == dtype
    shown = helped(capsys, "generate")
    assert "[default: 0.8]" in shown and "--beams 0" not in shown
    assert main(["generate", "a", "-n", "1", "--temperature", "0"]) == 0
    capsys.readouterr()


@pytest.mark.parametrize(("import_s", "sheet_s", "status"), [(0.1, 1.0, 0), (0.31, 1.0, 1), (0.1, 3.0, 1)])
def test_the_bench_of_the_start_judges(monkeypatch, capsys, import_s, sheet_s, status):
    monkeypatch.setattr(startup, "import_s", lambda: import_s)
    monkeypatch.setattr(startup, "sheet_s", lambda: sheet_s)
    assert startup.main(["--repeats", "1"]) == status
    assert f"{sheet_s:.2f} s" in capsys.readouterr().out


@pytest.mark.slow
def test_the_shipped_model_answers_within_three_seconds(capsys):
    assert startup.main(["--repeats", "5"]) == 0, capsys.readouterr().out


@pytest.mark.parametrize("verb", quick_share(["models", "generate a -n 250 --seed 1", "trace", "train my.txt"], 2, 1))
def test_a_terminal_that_is_closed_without_a_signal_ends_as_with_one(tmp_path, verb):
    """Also where it is a mistake that cannot be told any more. Its own session, so that the kernel signals nobody."""
    (tmp_path / "my.txt").write_text("고양이가 생선을 먹었다\n" * 200, encoding="utf-8")
    more = SMALL.replace("steps=400", "steps=100000") if verb.startswith("train") else ""
    command = [sys.executable, "-m", "glassformer", *verb.split(), *more.split()]
    outside, inside = os.openpty()
    with subprocess.Popen(
        command, cwd=tmp_path, stdin=inside, stdout=inside, stderr=inside, start_new_session=True
    ) as process:
        os.close(inside)
        said, wanted = b"", {"train": b"tokens/s", "generate": b"a"}.get(verb.split()[0], b"")
        while wanted not in said:
            said += os.read(outside, 4096)
        os.close(outside)
        assert process.wait(120) == 129
    if verb.startswith("train"):
        assert (tmp_path / "out" / "my" / "model.safetensors").is_file(), "saved"
