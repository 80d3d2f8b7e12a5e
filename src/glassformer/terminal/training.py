"""A training run in the terminal: what is being done, a bar with loss, speed and time left, and samples as they come.

Without a terminal (in a pipe or a file) the same as plain lines, with a line on the loss now and then.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from pathlib import Path

import wcwidth
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.text import Text

from ..data.display import visible
from ..train import ImageRunSpec, Report, RunSpec
from .stopping import Stopping
from .words import WORDS, say

Start = Callable[[Callable[[str, int, int], None]], Generator[Report]]  # given where to tell what it prepares

OVERFITTED = 1.02  # a last loss so many times the lowest over the same windows is worth a word


def show(
    start: Start, run: RunSpec | ImageRunSpec, folder: Path, console: Console, stop: Stopping, lang: str = "en"
) -> Report:
    """Train and draw it; returns the last report. start: `fit` but for its `progress`. Raises Stopped."""
    view = _View(run, console, lang)
    view.line("reading", data=Path(run.data).name)
    with view.bar:
        try:
            reports = start(view.preparing)
        except KeyboardInterrupt:
            view.line("nothing")
            raise
        if not view.complete:
            view.line("training_on", data=Path(run.data).name, steps=run.steps, folder=folder)
        last = stop.follow(reports, view.report, lambda step: view.line("stopped", step=step))
    view.line("done", steps=last.steps, seconds=clock(last.seconds), loss=last.loss)
    if (
        isinstance(run, RunSpec)
        and last.best_validation is not None
        and (last.watched or 0.0) > OVERFITTED * last.best_validation
    ):
        view.line("overfitted", step=last.best_step, best=last.best_validation)
    view.line("written", folder=folder)
    return last


class _View:
    """The bar and the lines above it."""

    def __init__(self, run: RunSpec | ImageRunSpec, console: Console, lang: str) -> None:
        self.run, self.console, self.lang = run, console, lang
        columns = (TextColumn("{task.description}", markup=False), BarColumn(), TextColumn("{task.fields[numbers]}"))
        self.bar = Progress(*columns, console=console, disable=not console.is_terminal)
        self.task: TaskID = self.bar.add_task("", total=None, numbers="")
        self.doing, self.complete = "", False

    def line(self, word: str, **values: object) -> None:
        """Print one line of words."""
        self.console.print(Text(self.say(word, **values)), soft_wrap=True)

    def say(self, word: str, **values: object) -> str:
        """A text of the table; where a training on images has one of its own, that."""
        of_images = f"{word}_images"
        return say(
            of_images if isinstance(self.run, ImageRunSpec) and of_images in WORDS else word, self.lang, **values
        )

    def preparing(self, what: str, done: int, total: int) -> None:
        """What `fit` does before the first update."""
        first, self.doing = what != self.doing, what
        if what == "resume":
            self.complete = done >= total
            self.line("complete" if self.complete else "resume", step=done, steps=total)
        elif what == "tokenizer" and first and self.run.tokenizer.method not in ("byte", "file"):
            self.line("tokenizer", method=self.run.tokenizer.method)
        elif what == "text":
            if first:
                self.line("encoding", size=size(total))
            self._move("encode", done, total, f"{size(done)} / {size(total)}")

    def report(self, report: Report) -> None:
        """The bar after an update; above it, validation losses and samples."""
        numbers = self.say("numbers", loss=report.loss, speed=report.tokens_per_s, left=clock(report.seconds_left))
        count = f"{report.step:,}/{report.steps:,}"
        self._move("training", report.step, report.steps, f"{count} · {numbers}")
        if not self.console.is_terminal and report.step % max(report.steps // 10, 1) == 0:
            self.console.print(Text(f"{count} · {numbers}"), soft_wrap=True)
        if report.validation is not None:
            more = {"bits": report.bits_per_byte or 0.0, "error": report.error or 0.0}
            self.line("validation", step=report.step, validation=report.validation, **more)
        if report.sample is not None:
            columns = self.console.width - 2 if self.console.is_terminal else None
            lines = [f"\n  {line}" for line in sample_lines(report.sample, columns)]
            self.console.print(Text.assemble((say("sample", self.lang), "dim"), *lines), soft_wrap=True)

    def _move(self, word: str, done: int, total: int, numbers: str) -> None:
        description = say(word, self.lang)
        self.bar.update(self.task, description=description, completed=done, total=total, numbers=numbers)


def sample_lines(text: str, columns: int | None) -> list[str]:
    """A generated text as lines of at most so many columns (None: any), control characters visible and no character
    parted."""
    lines = []
    for line in text.strip().split("\n"):
        made = ""
        for cluster in wcwidth.iter_graphemes(visible(line)):
            if columns and made and wcwidth.wcswidth(made + cluster) > columns:
                lines.append(made)
                made = ""
            made += cluster
        lines.append(made)
    return lines


def size(count: int) -> str:
    """Bytes as 834 bytes, 20.5 kB or 1,234.5 MB."""
    if count < 1000:
        return f"{count} bytes"
    return f"{count / 1e3:.1f} kB" if count < 999_950 else f"{count / 1e6:,.1f} MB"


def clock(seconds: float) -> str:
    """Seconds as 0:07, 12:34 or 1:02:03."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
