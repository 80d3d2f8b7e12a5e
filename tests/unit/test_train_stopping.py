"""A training that a signal ends: saved, with the status of that signal, and nothing of it left behind."""

import os
import signal
import subprocess
import sys
import threading

import pytest
import torch
from safetensors.torch import load_file
from test_train_resume import SMALL

from glassformer.cli import main
from glassformer.terminal.stopping import SIGNALS, Stopped, Stopping
from glassformer.train import fit, read_run
from glassformer.train.loop import Trainer
from glassformer.train.store import STATE, read_facts

SETTINGS = [part for key, value in (SMALL | {"steps": "5"}).items() for part in ("--set", f"{key}={value}")]


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "my.txt"
    path.write_text("the cat saw a dog and the dog ran to a tree. " * 60, encoding="utf-8")
    return path


@pytest.fixture
def handlers():
    """Ones that raise, so that a signal that is not heeded fails the test and does not end it."""

    def unheeded(number, frame):
        raise AssertionError(f"nobody heeded {number}")

    before = {number: signal.signal(number, unheeded) for number in SIGNALS}
    yield unheeded
    for number, old in before.items():
        signal.signal(number, old)


def signalled(monkeypatch, method, *numbers, step=2):
    """Send signals to this process in the middle of a method of the trainer."""
    inner = getattr(Trainer, method)

    def outer(self, *given):
        if getattr(self, "step", step) == step:
            for number in numbers:
                os.kill(os.getpid(), number)
        return inner(self, *given)

    monkeypatch.setattr(Trainer, method, outer)


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("more", [[], ["--json"]])
def test_the_update_in_progress_ends_and_is_saved(text, tmp_path, monkeypatch, capsys, handlers, number, more):
    folder = tmp_path / "out"
    command = ["train", str(text), "--out", str(folder), *more]
    with monkeypatch.context() as patch:
        signalled(patch, "update", number)
        assert main([*command, *SETTINGS]) == 128 + number
    assert {signal.getsignal(one) for one in SIGNALS} == {handlers}
    assert read_facts(folder / STATE).step == 3
    said = capsys.readouterr()
    assert not said.err and (len(said.out.splitlines()) == 3 if more else "saved after step 3" in said.out)
    list(fit(read_run(text, SMALL | {"steps": "5"}), tmp_path / "whole"))
    assert main(command) == 0, "without a setting"
    ends = [load_file(place / "model.safetensors") for place in (folder, tmp_path / "whole")]
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[0] | ends[1])


@pytest.mark.parametrize("number", SIGNALS)
def test_before_the_first_step_it_ends_at_once(text, tmp_path, monkeypatch, capsys, handlers, number):
    signalled(monkeypatch, "_begin", number)
    assert main(["train", str(text), "--out", str(tmp_path / "out"), *SETTINGS]) == 128 + number
    assert "nothing is lost" in capsys.readouterr().out and signal.getsignal(number) is handlers


def test_signals_that_come_again_change_nothing_but_a_second_interrupt_does(text, tmp_path, monkeypatch, handlers):
    command = ["train", str(text), *SETTINGS, "--out"]
    with monkeypatch.context() as patch:
        signalled(patch, "update", signal.SIGTERM, signal.SIGTERM, signal.SIGHUP)
        assert main([*command, str(tmp_path / "a")]) == 128 + signal.SIGTERM
    assert read_facts(tmp_path / "a" / STATE).step == 3
    signalled(monkeypatch, "update", signal.SIGINT, signal.SIGINT)
    assert main([*command, str(tmp_path / "b")]) == 130
    assert read_facts(tmp_path / "b" / STATE).step == 2, "the third was not waited for"


def test_in_the_last_update_a_signal_finds_the_run_complete(text, tmp_path, monkeypatch, handlers):
    signalled(monkeypatch, "update", signal.SIGTERM, step=4)
    assert main(["train", str(text), "--out", str(tmp_path / "out"), *SETTINGS]) == 0
    assert read_facts(tmp_path / "out" / STATE).step == 5


def test_what_is_ignored_stays_ignored_as_under_nohup(text, tmp_path, monkeypatch, handlers):
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signalled(monkeypatch, "update", signal.SIGHUP)
    assert main(["train", str(text), "--out", str(tmp_path / "out"), *SETTINGS]) == 0
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


def test_fit_itself_touches_no_signal(text, tmp_path, handlers):
    for _ in fit(read_run(text, SMALL), tmp_path / "out"):
        assert {signal.getsignal(one) for one in SIGNALS} == {handlers}


def test_in_another_thread_signals_are_left_alone(handlers):
    seen = []

    def run():
        with Stopping():
            seen.extend(signal.getsignal(one) for one in SIGNALS)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert set(seen) == {handlers}


def test_an_output_that_is_gone_with_the_signal_is_no_mistake(handlers):
    with pytest.raises(Stopped) as stopped, Stopping() as stop:
        stop.waits = True
        os.kill(os.getpid(), signal.SIGHUP)
        raise OSError(5, "Input/output error")
    assert stopped.value.status == 128 + signal.SIGHUP
    with pytest.raises(OSError, match="full"), Stopping():
        raise OSError(28, "full")


def test_a_terminal_that_is_closed(text, tmp_path):
    """A process of its own, whose terminal goes away with the signal."""
    folder, (outside, inside) = tmp_path / "out", os.openpty()
    command = [sys.executable, "-m", "glassformer", "train", str(text), "--out", str(folder), *SETTINGS]
    command += ["--set", "steps=100000"]
    with subprocess.Popen(command, stdin=inside, stdout=inside, stderr=inside) as process:
        os.close(inside)
        said = b""
        while b"tokens/s" not in said:
            said += os.read(outside, 4096)
        process.send_signal(signal.SIGHUP)  # as the kernel does it: the signal, then a terminal that is gone
        os.close(outside)
        assert process.wait(60) == 128 + signal.SIGHUP
    assert read_facts(folder / STATE).step >= 1 and (folder / "model.safetensors").is_file()
