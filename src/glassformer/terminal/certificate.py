"""A certificate in the terminal: one line a check, with what was measured and the most it may be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from ..data.display import fit, visible, width
from .korean import translated
from .sheet import HEADING, LEAST, MOST, flow, printed
from .words import say

if TYPE_CHECKING:
    from ..certificate.line import Certificate, Line

STYLES = {"passed": "green", "failed": "bold red", "not applicable": "dim"}
WORD = {"passed": "check_passed", "failed": "check_failed", "not applicable": "check_without"}
NARROW = 16  # columns that a title needs beside its numbers
BLOCKS = 6  # as many are named of those whose paths differ most


def show_certificate(made: Certificate, numbers: Sequence[tuple[str, str]], console: Console, lang: str) -> None:
    """Print a certificate. numbers: of each line what was measured and its bound, as text."""
    printed(lines(made, numbers, lang, console.width), console)


def lines(made: Certificate, numbers: Sequence[tuple[str, str]], lang: str, columns: int = 80) -> Iterator[Text]:
    """The lines of the view, none wider than `columns` but for paths."""
    columns = max(LEAST, min(columns, MOST))
    verdict = say("check_passed" if made.passed else "check_failed", lang)
    words = {"model": visible(made.model), "verdict": verdict, "dtype": made.dtype, "device": made.device}
    quick = [(say("check_quick", lang), "dim")] if made.quick else []
    yield from flow([(say("check_title", lang, **words), HEADING), *quick], columns)
    yield Text()
    yield from _table(made.lines, numbers, lang, columns)
    yield Text()
    yield from flow([(say("check_units", lang), "dim")], columns)
    for word in ["check_again"] * made.again + ["check_kept" if made.kept else "check_unkept"]:
        yield from flow([(say(word, lang), "dim")], columns)
    for path in made.kept:
        yield Text(f"  {visible(path)}", "dim")  # whole, so that it can be copied


def _table(some: Sequence[Line], numbers: Sequence[tuple[str, str]], lang: str, columns: int) -> Iterator[Text]:
    states = [say(WORD[line.status], lang) for line in some]
    titles = [say(f"check_{line.name}", lang) for line in some]
    heads = (say("check_measured", lang), say("check_bound", lang))
    first, second = max(map(width, states)), max(map(width, titles))
    sizes = [max(width(head), *(width(pair[i]) for pair in numbers)) for i, head in enumerate(heads)]
    room = columns - first - sum(sizes) - 8
    below = room < NARROW  # then the numbers stand below the title
    second = min(second, columns - first - 4 if below else room)
    if not below:
        yield Text(" " * (first + second + 4) + _cells(heads, sizes), "dim")
    before = ""
    for line, state, title, pair in zip(some, states, titles, numbers, strict=True):
        head, *more = flow([(title, "")], second)
        made = Text("  ").append(fit(state, first), STYLES[line.status]).append(f"  {fit(head.plain, second)}")
        notes = list(_notes(line, lang, before))
        before = line.reason
        if below and any(pair):
            notes.insert(0, f"{pair[0]} ({heads[1]} {pair[1]})")
        elif any(pair):
            made.append(_cells(pair, sizes))
        elif notes and width(notes[0]) <= columns - first - second - 6:
            made.append(f"  {visible(notes.pop(0))}", "dim")
        yield made
        yield from (Text(" " * (first + 4) + one.plain) for one in more)
        for note in notes:
            yield from flow([(note, "dim")], columns, " " * (first + 4))


def _cells(pair: Sequence[str], sizes: Sequence[int]) -> str:
    return "".join("  " + fit(one, size, "right") for one, size in zip(pair, sizes, strict=True))


def _notes(line: Line, lang: str, before: str) -> Iterator[str]:
    """What there is to say below a line; before: the reason of the line above."""
    if line.reason and line.reason == before:
        yield say("check_same", lang)
    elif line.reason:
        yield translated(line.reason) if lang == "ko" else line.reason
    if line.detail.get("ties"):
        yield say("check_ties", lang, ties=line.detail["ties"])
    if line.status == "failed" and line.detail.get("blocks"):
        worst = sorted(line.detail["blocks"].items(), key=lambda one: -(one[1] or 0))[:BLOCKS]
        yield say("check_blocks", lang, blocks=", ".join(f"{name} {value:.1e}" for name, value in worst))
