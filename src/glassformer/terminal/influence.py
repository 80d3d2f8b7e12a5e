"""What moved a token's vector, in the terminal: one row a word, one column a model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.text import Text

from ..data.display import fit, visible, width
from ..explain.moved import Moved, Mover, aligned
from .sheet import HEADING, INDENT, LEAST, MOST, bar, flow, named, printed
from .words import say

SHARE = 8  # columns of a share in per cent
BARE = 4  # the narrowest bar


def show_moved(tables: Sequence[Moved], console: Console, lang: str, closed: bool = False) -> None:
    """Print the tables of several models on one text side by side. closed: words of several tokens stay one row."""
    printed(lines(tables, lang, closed, console.width), console)


def lines(tables: Sequence[Moved], lang: str, closed: bool = False, columns: int = 80) -> Iterator[Text]:
    """The lines of the view, none wider than `columns`; models that do not fit beside one another follow below."""
    columns, opened = max(LEAST, min(columns, MOST)), len(tables) == 1 and not closed
    tables = aligned(tables) if len(tables) > 1 else tables
    first = tables[0]
    own = first.of == "text"
    yield Text(fit(f"{first.source} → {first.text.strip()}" if first.source else first.text, columns), "italic")
    token = visible(named(first.token, first.special, first.position, lang))
    token = fit(token, 24).rstrip() if width(token) > 24 else token
    heading = ("moved" if first.what == "influence" else "moved_weights") + ("" if own else "_source")
    yield from flow([(say(heading, lang, token=token), HEADING)], columns)
    names = [named(row.label, row.special, row.tokens[0], lang) for row in first.rows]
    parts = [INDENT + width(part.label) for row in first.rows for part in row.parts if opened]
    labels = min(max([*map(width, names), *parts, width(say("token", lang))]), columns // 2)
    at_once = max(1, min(len(tables), (columns - 2 - labels) // (2 + BARE + SHARE)))
    for start in range(0, len(tables), at_once):
        yield Text()
        yield from _block(tables[start : start + at_once], lang, labels, columns, opened)
    yield Text()
    for table in tables:
        yield from flow([(_made(table, lang), "dim")], columns, hang=2)
    yield from flow([(say("moved_caution" if first.what == "influence" else "weights_caution", lang), "dim")], columns)


def _block(tables: Sequence[Moved], lang: str, labels: int, columns: int, opened: bool) -> Iterator[Text]:
    each = (columns - 2 - labels) // len(tables)
    cells = min(24, each - 2 - SHARE)
    heads = "".join("  " + fit(visible(table.model), cells + SHARE) for table in tables)
    yield Text(f"  {fit(say('token', lang), labels)}{heads}", "dim")
    for place, row in enumerate(tables[0].rows):
        asks = tables[0].of == "text" and place == tables[0].row
        line = Text("▶ " if asks else "  ", "yellow")
        line.append(fit(named(row.label, row.special, row.tokens[0], lang), labels), "bold" if asks else "")
        for table in tables:
            line.append(_cell(table.rows[place], cells))
        yield line
        for part in row.parts if opened else ():
            label = " " * INDENT + part.label
            yield Text("  ").append(fit(label, labels), "dim").append(_cell(part, cells, "dim"))


def _cell(row: Mover, cells: int, style: str = "") -> Text:
    text = Text("  ").append(bar(row.share, cells), style or "green")
    return text.append(f"{row.share:{SHARE}.1%}", style)


def _made(table: Moved, lang: str) -> str:
    """How the numbers of one model were made, and how exact they are."""
    if table.what == "weights":
        word = "weights_mean" if table.head is None else "weights_head"
        return say(word, lang, model=visible(table.model), name=table.name, head=table.head)
    if table.exact:
        return say("moved_exact", lang, model=visible(table.model), passes=table.passes)
    most = max(row.norm for row in table.rows) or 1.0
    error = max(row.error or 0.0 for row in table.rows) / most
    return say("moved_estimate", lang, model=visible(table.model), passes=table.passes, error=error)
