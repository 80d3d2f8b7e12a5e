"""A training run in the terminal: a bar with loss, speed and time left, and the samples as they come."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Generator, Iterator
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from ..train import Report
from .words import say


def show(reports: Generator[Report], console: Console, lang: str = "en", folder: Path | None = None) -> Report | None:
    """Run the training that `reports` is and draw it; returns the last report, None where there was none. `folder` is
    named at the end, with what to do next.

    The first interrupt (Ctrl-C) lets the update in progress end, saves and returns; a second one raises.
    """
    last: Report | None = None
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[numbers]}"),
    )
    with _interrupts() as asked, Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task(say("training", lang), total=None, numbers="")
        for last in reports:
            numbers = say("numbers", lang, loss=last.loss, speed=last.tokens_per_s, left=clock(last.seconds_left))
            progress.update(task, total=last.steps, completed=last.step, numbers=numbers)
            _note(last, progress.console, lang)
            if asked.is_set() and last.step < last.steps:
                reports.close()  # saves
                progress.console.print(say("stopped", lang, step=last.step))
                return last
    if asked.is_set() and last is None:
        console.print(say("nothing", lang))
    elif last is not None:
        console.print(say("done", lang, steps=last.steps, seconds=clock(last.seconds), loss=last.loss))
        if folder is not None:
            console.print(say("written", lang, folder=folder), soft_wrap=True, highlight=False)
    return last


def _note(report: Report, console: Console, lang: str) -> None:
    """Print what stays above the bar: validation losses and samples."""
    if report.validation is not None:
        bits = report.bits_per_byte or 0.0
        console.print(say("validation", lang, step=report.step, validation=report.validation, bits=bits))
    if report.sample is not None:
        console.print(f"[dim]{say('sample', lang)}[/dim] {escape(report.sample.strip())}", highlight=False)


def clock(seconds: float) -> str:
    """Seconds as 0:07, 12:34 or 1:02:03."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


@contextlib.contextmanager
def _interrupts() -> Iterator[threading.Event]:
    """An event that the first Ctrl-C sets; the one after it raises KeyboardInterrupt as ever."""
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked  # signals belong to the main thread
        return
    before = signal.getsignal(signal.SIGINT)

    def first(number: int, frame: object) -> None:
        asked.set()
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, first)
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, before)
