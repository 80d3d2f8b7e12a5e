"""An alignment in the terminal: a row for each token that was written, a column for each that was read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.text import Text

from ..data.display import fit, visible, width
from ..explain.aligned import Aligned
from .sheet import HEADING, LEAST, MOST, flow, printed
from .words import say

SHADES = "·░▒▓█"  # up to a tenth of the weight, 3, 5 and 7 tenths, all of it
EDGES = (0.1, 0.3, 0.5, 0.7)


def show_alignment(found: Aligned, console: Console, lang: str) -> None:
    """Print one alignment."""
    printed(lines(found, lang, console.width), console)


def lines(found: Aligned, lang: str, columns: int = 80) -> Iterator[Text]:
    """The lines of the picture, none wider than `columns`; columns that do not fit follow in a block of their own."""
    columns = max(LEAST, min(columns, MOST))
    yield from flow([(f"{visible(found.text)} → {visible(found.written.strip())}", "bold")], columns)
    yield from flow([(_made(found, lang), "dim")], columns)
    labels = min(max(map(width, found.target)), columns // 4)
    each = min(max(2, *map(width, found.source)), 8) + 1
    best = [max(range(len(row)), key=row.__getitem__) for row in found.weights]
    ends = [f"  {visible(found.source[at])} {row[at]:.2f}" for at, row in zip(best, found.weights, strict=True)]
    room = max(1, (columns - 2 - labels - min(max(map(width, ends)), columns // 3)) // each)
    for start in range(0, len(found.source), room):
        yield from _block(found, range(start, min(start + room, len(found.source))), labels, each, ends, columns)
    yield from flow([(say("shades", lang, shades=SHADES), "dim")], columns)
    yield Text()


def _block(found: Aligned, some: range, labels: int, each: int, ends: Sequence[str], columns: int) -> Iterator[Text]:
    yield Text(" " * (2 + labels) + "".join(f" {fit(found.source[i], each - 1)}" for i in some), HEADING)
    for label, row, end in zip(found.target, found.weights, ends, strict=True):
        line = Text(f"  {fit(label, labels)}")
        for i in some:
            line.append(" " + SHADES[sum(row[i] > edge for edge in EDGES)] * (each - 1), "green")
        yield line.append(fit(end, min(width(end), columns - width(line.plain))), "dim")


def _made(found: Aligned, lang: str) -> str:
    """Where the numbers come from."""
    if found.card is None:
        return say("aligned_influence", lang)
    where = "aligned_mean" if found.head is None else "aligned_head"
    said = found.card.ko if lang == "ko" else found.card.en
    return f"{said} {found.card.formula} · " + say(where, lang, layer=found.layer, head=found.head, heads=found.heads)
