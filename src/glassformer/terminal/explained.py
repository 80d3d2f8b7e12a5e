"""Any explanation in the terminal: what it says, its figures as tables, and how far it measured itself to be true."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.text import Text

from ..data.display import visible
from ..explain.explanation import Check, Explanation, Figure, Graph, HeatMap, Number, Said, Series, Table
from .sheet import HEADING, LEAST, MOST, flow, printed
from .table import table
from .words import say

SHOWN = 32  # rows of a figure, and columns of a map; JSON has all


def show_explanation(one: Explanation, console: Console, lang: str) -> None:
    """Print an explanation."""
    printed(lines(one, lang, console.width), console)


def lines(one: Explanation, lang: str, columns: int = 80) -> Iterator[Text]:
    """The lines of the view, none wider than `columns` but for names that are."""
    columns = max(LEAST, min(columns, MOST))
    yield from flow([(_said(one.title, lang), HEADING)], columns)
    yield from flow([(_said(one.claim, lang), "dim")], columns)
    for figure in one.figures:
        yield Text()
        unit = "" if isinstance(figure, Table) or not _said(figure.unit, lang) else f" ({_said(figure.unit, lang)})"
        yield from flow([(f"{_said(figure.title, lang)}{unit}", HEADING)], columns)
        names, cells = _cells(figure, lang)
        if names and cells:
            some = {head: column[:SHOWN] for head, column in list(cells.items())[:SHOWN]}
            yield from table([visible(name) for name in names[:SHOWN]], some, columns)
        left = max(0, len(names) - SHOWN), max(0, len(cells) - SHOWN)
        if any(left):
            yield Text(f"  {say('explained_more', lang, rows=left[0], columns=left[1])}", "dim")
    yield Text()
    for check in one.checks:
        yield from flow([(_checked(check, lang), "red" if check.passed is False else "")], columns, hang=2)
    yield from flow([(one.python, "dim")], columns, hang=2)


def _said(text: Said, lang: str) -> str:
    return text.ko if lang == "ko" else text.en


def _checked(check: Check, lang: str) -> str:
    """A check with its number, and whether that is as it must be."""
    mark = {True: "✓", False: "✗", None: "·"}[check.passed]
    return (
        f"{mark} {_said(check.said, lang)}: {say('not_measured', lang) if check.value is None else _cell(check.value)}"
    )


def _cells(figure: Figure, lang: str) -> tuple[Sequence[str], dict[str, list[str]]]:
    """The names of a figure's rows, and by its heading what stands in each column."""
    if isinstance(figure, HeatMap):
        columns = zip(_told_apart(figure.columns), zip(*figure.values, strict=True), strict=True)
        return figure.rows, {head: list(map(_cell, values)) for head, values in columns}
    if isinstance(figure, Series):
        heads = _told_apart([_said(line.label, lang) for line in figure.lines])
        return figure.x, {h: list(map(_cell, line.values)) for h, line in zip(heads, figure.lines, strict=True)}
    if isinstance(figure, Graph):
        labels = {node.id: node.label for node in figure.nodes}
        names = [f"{labels[edge.source]} → {labels[edge.target]}" for edge in figure.edges]
        return names, {"": [_cell(edge.value) for edge in figure.edges]}
    if isinstance(figure, Table):
        heads = _told_apart([_said(head, lang) for head in figure.columns[1:]])
        names = [str(row[0]) for row in figure.rows]
        return names, {head: [_cell(row[i]) for row in figure.rows] for i, head in enumerate(heads, 1)}
    return figure.tokens, {"": list(map(_cell, figure.values))}


def _told_apart(names: Sequence[str]) -> list[str]:
    """Headings with a number where several are called alike, as two equal tokens are."""
    seen, several = Counter[str](), Counter(names)
    made = []
    for name in names:
        seen[name] += 1
        made.append(visible(f"{name} {seen[name]}" if several[name] > 1 else name))
    return made


def _cell(value: Number | str) -> str:
    """A number with four digits; what is none stays empty."""
    return f"{value:.4g}" if isinstance(value, int | float) else visible(value or "")
