"""What the command line prints with: the language, the console, texts of the table, JSON and mistakes."""

from __future__ import annotations

import errno
import os
import stat
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from ..data.display import By
    from ..explain.sheet import Sheet
    from ..text_trace import TextTrace


@dataclass
class Spoken:
    """The language of this call of main, for what is printed before a verb has read its --lang."""

    lang: str = "en"


spoken = Spoken()
HUNG_UP = 129  # as a program that SIGHUP ends


def language(lang: str) -> str:
    """The language to print in."""
    return spoken.lang if lang == "auto" else lang


def help_formatter(lang: str) -> Any:
    """What lays out --help in a language."""
    from .korean import Help, KoreanHelp

    return KoreanHelp() if lang == "ko" else Help()


def say(word: str, lang: str, aside: bool = False, **values: Any) -> None:
    """Print a text of the table, folded where a terminal ends; aside: beside the output, not in it."""
    from .words import say as text

    shown = console(aside)
    shown.print(text(word, language(lang), **values), markup=False, soft_wrap=not shown.is_terminal)


def console(stderr: bool = False) -> Console:
    """The terminal, at least 40 columns wide."""
    from rich.console import Console

    class Plain(Console):
        """rich's console, which would end the process with status 1 when a pipe's reader leaves."""

        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    made = Plain(highlight=False, stderr=stderr)
    if made.width < 40:  # also a terminal that does not know its width and says 0
        made.width = 40
    return made


def print_json(value: Any, indent: int | None = 2) -> None:
    """Print a value with all digits; indent None: in one line, at once."""
    import msgspec

    data = msgspec.json.encode(value)
    print((msgspec.json.format(data, indent=indent) if indent else data).decode(), flush=not indent)


def discard_output(*streams: TextIO) -> None:
    """Write no more (to streams, or to the output), not even what Python still holds back when it ends."""
    for stream in streams or (sys.stdout,):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def hung_up(error: OSError) -> bool:
    """Whether a write failed since the terminal is closed: before the kernel's signal arrives, or where none does. A
    terminal that is gone no longer says that it is one, but it still is a device."""
    if error.errno != errno.EIO or error.filename is not None:
        return False
    return any(stat.S_ISCHR(os.fstat(stream.fileno()).st_mode) for stream in (sys.stdout, sys.stderr))


def complain(error: Exception, more: str = "") -> int:
    """Print a mistake as one line; the exit status."""
    from .complaint import complaint

    print(complaint(error, spoken.lang, more), file=sys.stderr)
    return 2


def save_run(run: TextTrace, path: Path, lang: str) -> None:
    """Write every value of a run to a file, or its page, and say so."""
    page = path.suffix == ".html"
    run.save(path, **({"lang": language(lang)} if page else {}))
    size = f"{path.stat().st_size / (1 << 20):.1f}"
    if page:
        say("page_saved", lang, aside=True, size=size, path=path)
        return
    say("saved", lang, aside=True, count=len(run.names()), size=size, path=path, read=repr(str(path)))


def note_several(run: TextTrace, token: str, by: By, sheet: Sheet, lang: str) -> None:
    """Say which row is shown where a word occurs more than once, or where several words were named."""
    places, cells = run.rows(token, by), run.cells(by)
    if len(places) > 1:
        word = "repeated" if len({cells[place].text for place in places}) == 1 else "several"
        values = {"places": ", ".join(map(str, places)), "shown": sheet.row, "taken": sheet.token, "example": places[0]}
        say(word, lang, True, token=token, n=len(places), **values)
