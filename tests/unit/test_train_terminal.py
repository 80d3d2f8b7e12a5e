"""The terminal's view of a training run."""

import io
import os
import signal

import pytest
from rich.console import Console

from glassformer.terminal.training import clock, show
from glassformer.train import Report


def reports(steps, closed):
    try:
        for step in range(1, steps + 1):
            due = step == 2
            yield Report(
                step, steps, 3.0 / step, 1e-3, 1.0, step * 64, 1234.5, step, steps - step,
                2.5 if due else None, 1.8 if due else None, "the [bold] cat" if due else None,
            )  # fmt: skip
    except GeneratorExit:
        closed.append(step)
        raise


def drawn(lang, steps=3, terminal=True, before=lambda report: report):
    console, closed = Console(file=io.StringIO(), force_terminal=terminal, width=100, color_system=None), []
    last = show((before(r) for r in reports(steps, closed)), console, lang)
    return last, console.file.getvalue()


@pytest.mark.parametrize(
    ("lang", "words"), [("en", "loss 1.000 · 1,234 tokens/s"), ("ko", "손실 1.000 · 초당 토큰 1,234개")]
)
def test_bar_losses_and_samples(lang, words):
    last, text = drawn(lang)
    assert last.step == 3 and words in text and "2.5000" in text and "1.800" in text
    assert "the [bold] cat" in text  # a sample is text, not markup


def test_without_a_terminal_there_is_no_bar():
    _, text = drawn("en", terminal=False)
    assert "2.5000" in text and "tokens/s" not in text


def test_the_first_interrupt_ends_the_update_and_saves():
    console, closed = Console(file=io.StringIO(), width=100), []
    handler = signal.getsignal(signal.SIGINT)

    def interrupting():
        inner = reports(5, closed)
        try:
            for report in inner:
                if report.step == 2:
                    os.kill(os.getpid(), signal.SIGINT)
                yield report
        except GeneratorExit:
            inner.close()
            raise

    last = show(interrupting(), console, "en")
    assert last.step == 2 and closed == [2] and "saved after step 2" in console.file.getvalue()
    assert signal.getsignal(signal.SIGINT) is handler


def test_times():
    assert [clock(7), clock(754), clock(3723)] == ["0:07", "12:34", "1:02:03"]
