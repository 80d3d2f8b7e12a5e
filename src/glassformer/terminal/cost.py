"""What models cost, in the terminal: one line a model, columns folded away where there is no room."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rich.console import Console
from rich.text import Text

from ..explain.cost import ModelCost
from ..named.layers import LAYERS
from .sheet import HEADING, LEAST, MOST, flow, printed
from .table import table
from .words import say

COLUMNS = ("parameters", "flops", "scan_flops", "state_bytes", "steps", "path")
UNITS = {"flops": "FLOP", "scan_flops": "FLOP", "state_bytes": "B", "parameters": ""}


def show_costs(costs: Mapping[str, ModelCost], console: Console, lang: str) -> None:
    """Print the cost of each model for a text of the same length, and of those that read images for as many."""
    printed(lines(costs, lang, console.width), console)


def lines(costs: Mapping[str, ModelCost], lang: str, columns: int = 80) -> Iterator[Text]:
    """The lines of both tables, none wider than `columns`; what does not fit beside the rest follows below."""
    columns = max(LEAST, min(columns, MOST))
    for word in ("cost", "cost_layers", "cost_images"):
        some = {name: one for name, one in costs.items() if _kind(name, one) == word}
        if some:
            yield from _table(some, word, lang, columns)
            yield Text()
    yield from flow([(say("cost_words", lang), "dim")], columns)
    if any(map(_beyond, costs.values())):
        yield from flow([(say("cost_beyond", lang), "dim")], columns)


def _kind(name: str, one: ModelCost) -> str:
    """The heading of the table that a cost stands in."""
    return "cost_images" if one.fields else "cost_layers" if name in LAYERS else "cost"


def _beyond(one: ModelCost) -> bool:
    """Whether the text is longer than the model takes."""
    return one.longest is not None and one.n > one.longest


def _table(costs: Mapping[str, ModelCost], word: str, lang: str, columns: int) -> Iterator[Text]:
    yield from flow([(say(word, lang, n=next(iter(costs.values())).n), HEADING)], columns)
    cells = {one: [_shown(one, getattr(cost, one), lang) for cost in costs.values()] for one in COLUMNS}
    names = [name + "*" * _beyond(cost) for name, cost in costs.items()]
    yield from table(names, {say(f"cost_{one}", lang): column for one, column in cells.items()}, columns)


def _shown(column: str, value: int | None, lang: str) -> str:
    if value is None:
        return say("cost_never", lang)
    if column not in UNITS:
        return f"{value:,}"
    unit = UNITS[column]
    if value == 0:
        return "0"
    for factor, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= factor:
            return f"{value / factor:.1f} {prefix}{unit}".rstrip()
    return f"{value} {unit}".rstrip()
