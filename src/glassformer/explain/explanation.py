"""An explanation as data: what it claims, its figures, and how far it measured itself to be true.

A view (terminal, notebook, page) draws the six kinds of figure and computes nothing; an explanation that is made of
them appears in every view by itself.
"""

from __future__ import annotations

from typing import Literal

import msgspec

Number = float | None  # None: there is none at this place, as outside what a row can see


Scale = Literal["share", "plain", "signed"]  # of colours, as in HeatMap


class Said(msgspec.Struct, frozen=True):
    """A text that a person reads, in both languages."""

    en: str
    ko: str


class HeatMap(msgspec.Struct, frozen=True, tag="heat_map", tag_field="kind"):
    """A table of numbers drawn as colours.

    name     of the figure within its explanation, by which a number is found again: figure.values[row][column]
    rows, columns   what they are called; row_title, column_title: what they are
    values   None where there is no way from the column to the row by construction
    reasons  for each such place why (mask.Reason), where that is known
    scale    share: from 0 to the row's sum; plain: from 0 to the largest; signed: from blue over nothing to red
    value    name of the traced value whose numbers these are, and where: {"b": 0, "h": 3}; "" where they are derived
    """

    name: str
    title: Said
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: list[list[Number]]
    row_title: Said
    column_title: Said
    unit: Said
    scale: Scale = "plain"
    reasons: list[list[str]] | None = None
    errors: list[list[Number]] | None = None
    value: str = ""
    where: dict[str, int] = {}


class Line(msgspec.Struct, frozen=True):
    """One line of a series: a number for each place of its x axis."""

    label: Said
    values: list[Number]
    errors: list[Number] | None = None


class Series(msgspec.Struct, frozen=True, tag="series", tag_field="kind"):
    """Lines over one axis: figure.lines[i].values[place]."""

    name: str
    title: Said
    x: tuple[str, ...]
    x_title: Said
    unit: Said
    lines: tuple[Line, ...]


class TokenScores(msgspec.Struct, frozen=True, tag="token_scores", tag_field="kind"):
    """A number for each token or word of the text, drawn on the text itself: figure.values[token]."""

    name: str
    title: Said
    tokens: tuple[str, ...]
    values: list[Number]
    unit: Said
    chosen: int | None = None
    scale: Scale = "plain"
    errors: list[Number] | None = None


class Node(msgspec.Struct, frozen=True):
    """A node of a graph: layers are drawn as columns, places within them as rows. value: its own number, such as a
    vector's length."""

    id: str
    label: str
    layer: int
    place: int
    value: Number = None


class Edge(msgspec.Struct, frozen=True):
    """A ribbon from one node to another, as wide as its value is large."""

    source: str
    target: str
    value: float


class Graph(msgspec.Struct, frozen=True, tag="graph", tag_field="kind"):
    """Nodes in layers and weighted edges between them: figure.edges[i].value."""

    name: str
    title: Said
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    layers: tuple[str, ...]
    unit: Said


class Table(msgspec.Struct, frozen=True, tag="table", tag_field="kind"):
    """Rows of texts and numbers: figure.rows[i][column]."""

    name: str
    title: Said
    columns: tuple[Said, ...]
    rows: list[list[str | float | int | None]]


class Point(msgspec.Struct, frozen=True):
    """A point of a map, the group that its colour tells, and what it is called."""

    label: str
    group: str
    x: float
    y: float


class Points(msgspec.Struct, frozen=True, tag="points", tag_field="kind"):
    """A map of points in the plane, coloured by group: figure.points[i].x."""

    name: str
    title: Said
    points: tuple[Point, ...]
    x_title: Said
    y_title: Said


Figure = HeatMap | Series | TokenScores | Graph | Table | Points


class Check(msgspec.Struct, frozen=True):
    """How an explanation measured itself on this very input. value None: not measured yet; passed: whether it is as it
    must be, None where there is nothing that it must be."""

    name: str
    said: Said
    value: Number = None
    passed: bool | None = None


class Explanation(msgspec.Struct, frozen=True):
    """One explanation of one run.

    name, title   how it is asked for, and what it is called
    claim         what its numbers say, in one or two sentences, with the equation
    python        the line that gives the same object, after `model = gf.load(…)` and `trace = model.trace(…)`
    command       the command line that prints the same numbers, beside a run in the page (page.again.commanded)
    """

    name: str
    title: Said
    claim: Said
    figures: tuple[Figure, ...]
    checks: tuple[Check, ...]
    python: str = ""
    command: str = ""

    def __post_init__(self) -> None:
        if not self.checks:
            raise ValueError(f"{self.name} says nothing of how far it is true; give it a check, measured or not")

    def figure(self, name: str) -> Figure:
        """The figure of that name. Raises InputError where there is none."""
        from ..errors import InputError, nearest

        for one in self.figures:
            if one.name == name:
                return one
        raise InputError(f"{self.name} has no figure {name!r}; {nearest(name, [one.name for one in self.figures])}")

    def _repr_html_(self) -> str:
        """Its tables, for a notebook."""
        from .drawn import html_of

        return html_of(self)
