"""A figure as a table, for those who read it as text: a notebook that is kept, a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .explanation import Figure, Graph, HeatMap, Number, Points, Said, Series, Table, TokenScores

Cell = Number | str
NOTHING = Said("", "")


@dataclass(frozen=True)
class Tabled:
    """heads: what the columns are called, that of the names first; () where they need none; names: of the rows, () for
    a figure whose rows have none; rows: texts and numbers; most: by which numbers are coloured, 0: not at all; left:
    how many rows and columns were left out."""

    heads: tuple[Said, ...]
    names: tuple[str, ...]
    rows: list[list[Cell]]
    most: float = 0.0
    left: int = 0


def tabled(figure: Figure, most: int) -> Tabled:
    """The first rows and columns of a figure, of each at most so many; of a graph the widest ribbons."""
    match figure:
        case HeatMap():
            rows = [list(row[:most]) for row in figure.values[:most]]
            left = _left(figure.rows, most) + _left(figure.columns, most)
            heads = (NOTHING, *(Said(one, one) for one in figure.columns[:most]))
            return Tabled(heads, figure.rows[:most], rows, _largest(v for row in figure.values for v in row), left)
        case Series():
            rows = [[line.values[i] for line in figure.lines] for i in range(len(figure.x[:most]))]
            heads = (figure.x_title, *(line.label for line in figure.lines))
            return Tabled(heads, figure.x[:most], rows, 0.0, _left(figure.x, most))
        case TokenScores():
            rows = [[value] for value in figure.values[:most]]
            return Tabled((), figure.tokens[:most], rows, _largest(figure.values), _left(figure.tokens, most))
        case Points():
            rows = [[one.group, one.x, one.y] for one in figure.points[:most]]
            names = tuple(one.label for one in figure.points[:most])
            heads = (NOTHING, NOTHING, figure.x_title, figure.y_title)
            return Tabled(heads, names, rows, 0.0, _left(figure.points, most))
        case Graph():
            labels = {node.id: node.label for node in figure.nodes}
            edges = sorted(figure.edges, key=lambda one: -abs(one.value))
            rows = [[labels[one.target], one.value] for one in edges[:most]]
            return Tabled((), tuple(labels[one.source] for one in edges[:most]), rows, 0.0, _left(edges, most))
        case Table():
            rows = [list(row) for row in figure.rows[:most]]
            return Tabled(figure.columns, (), rows, 0.0, _left(figure.rows, most))


def _left(all: Sequence[object], most: int) -> int:
    return max(0, len(all) - most)


def _largest(values: Iterable[Number]) -> float:
    return max((abs(v) for v in values if v is not None), default=0.0)
