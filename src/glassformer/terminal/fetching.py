"""What is being fetched, in the terminal: a bar with bytes and time left; without a terminal a line a file."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from .words import say

DOING = ("check", "convert")


@contextlib.contextmanager
def fetching(console: Console, lang: str) -> Iterator[Callable[[str, int, int], None]]:
    """Where to tell what is being done, how much of it and of how much, in bytes (0: not known)."""
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=console, disable=not console.is_terminal)
    task, doing = None, ""

    def told(what: str, done: int, total: int) -> None:
        nonlocal task, doing
        text = say(what, lang) if what in DOING else say("fetch", lang, what=what)
        if what != doing and not console.is_terminal:
            console.print(Text(text), soft_wrap=True)
        if what != doing:
            task = bar.add_task(text, total=None)
        doing = what
        bar.update(task, completed=done, total=total or None)

    with bar:
        yield told
