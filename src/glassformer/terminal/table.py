"""A table with one line a thing: columns that do not fit beside the others follow below."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.text import Text

from ..data.display import fit, visible, width


def table(names: Sequence[str], cells: Mapping[str, Sequence[str]], columns: int) -> Iterator[Text]:
    """The lines of a table, none wider than `columns`: the names, and by its heading each column's cells."""
    widths = {head: max(map(width, (head, *column))) + 2 for head, column in cells.items()}
    room = min(max(map(width, names)), columns - 2 - max(widths.values()))
    at_once: list[list[str]] = [[]]
    for head in cells:
        if sum(widths[other] for other in at_once[-1]) + widths[head] > columns - 2 - room and at_once[-1]:
            at_once.append([])
        at_once[-1].append(head)
    for block in at_once:
        yield Text()
        yield Text("  " + " " * room + "".join(fit(head, widths[head], "right") for head in block), "dim")
        for i, name in enumerate(names):
            shown = "".join(fit(cells[head][i], widths[head], "right") for head in block)
            yield Text(f"  {fit(visible(name), room)}{shown}")
