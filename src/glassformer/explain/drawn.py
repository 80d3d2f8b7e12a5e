"""An explanation as plain HTML tables for a notebook: without scripts and style sheets, so that they also show where a
kept notebook is read by a program that allows neither."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

from .explanation import Explanation, Figure, Graph, HeatMap, Number, Points, Said, Series, Table, TokenScores

MOST = 32  # rows, columns or edges that are written out; Python has the rest
INK, LESS = "31,79,209", "180,84,10"  # of numbers above and below nothing


def html_of(explanation: Explanation) -> str:
    """The claim of an explanation, its figures and its checks, in both languages."""
    parts = [f"<p><b>{both(explanation.title)}</b></p>"]
    for lang in ("en", "ko"):
        parts.append(f'<p lang="{lang}">{html.escape(getattr(explanation.claim, lang))}</p>')
    parts += [_figure(one) for one in explanation.figures]
    for check in explanation.checks:
        value = "not measured · 재지 않음" if check.value is None else number(check.value)
        parts.append(f"<p>{both(check.said)}: {value}</p>")
    return f"<div>{''.join(parts)}</div>"


def both(said: Said) -> str:
    """A short text in both languages."""
    return html.escape(said.en if said.en == said.ko else f"{said.en} · {said.ko}")


def number(value: Number) -> str:
    """A number as it is written in a table; nothing where there is none."""
    return "" if value is None else f"{value:.4g}"


def _figure(figure: Figure) -> str:
    rows, columns, left = _table(figure)
    head = "".join(f"<th>{html.escape(one)}</th>" for one in columns)
    body = "".join(f"<tr>{''.join(row)}</tr>" for row in rows)
    more = f"<p>+ {left} … <code>explanation.figure({html.escape(repr(figure.name))})</code></p>" if left else ""
    unit = "" if isinstance(figure, Table | Points) or not figure.unit.en else f" ({both(figure.unit)})"
    return f"<table><caption>{both(figure.title)}{unit}</caption><tr>{head}</tr>{body}</table>{more}"


def _table(figure: Figure) -> tuple[list[list[str]], list[str], int]:
    """Cells by row, the heads of the columns, and how many rows or columns are left out."""
    if isinstance(figure, HeatMap):
        most = _largest(v for row in figure.values for v in row)
        rows = [
            [_head(name), *(_cell(v, most) for v in row[:MOST])]
            for name, row in zip(figure.rows[:MOST], figure.values, strict=False)
        ]
        return rows, ["", *figure.columns[:MOST]], _left(figure.rows) + _left(figure.columns)
    if isinstance(figure, Series):
        rows = [[_head(x), *(_cell(line.values[i]) for line in figure.lines)] for i, x in enumerate(figure.x[:MOST])]
        return rows, [figure.x_title.en, *(line.label.en for line in figure.lines)], _left(figure.x)
    if isinstance(figure, TokenScores):
        most = _largest(figure.values)
        pairs = zip(figure.tokens[:MOST], figure.values, strict=False)
        return [[_head(name), _cell(value, most)] for name, value in pairs], [], _left(figure.tokens)
    if isinstance(figure, Graph):
        labels = {node.id: node.label for node in figure.nodes}
        edges = sorted(figure.edges, key=lambda one: -abs(one.value))
        rows = [[_head(labels[e.source]), _head(labels[e.target]), _cell(e.value)] for e in edges[:MOST]]
        return rows, [], _left(edges)
    if isinstance(figure, Points):
        points = [[_head(p.label), _cell(p.group), _cell(p.x), _cell(p.y)] for p in figure.points[:MOST]]
        return points, ["", "", both(figure.x_title), both(figure.y_title)], _left(figure.points)
    rows = [[_cell(one) for one in row] for row in figure.rows[:MOST]]
    return rows, [one.en if one.en == one.ko else f"{one.en} · {one.ko}" for one in figure.columns], _left(figure.rows)


def _left(all: Sequence[object]) -> int:
    return max(0, len(all) - MOST)


def _largest(values: Iterable[Number]) -> float:
    return max((abs(v) for v in values if v is not None), default=0.0)


def _head(text: str) -> str:
    return f"<th>{html.escape(text)}</th>"


def _cell(value: Number | str, most: float = 0.0) -> str:
    """A cell, coloured as far as its number is large."""
    if not isinstance(value, int | float):
        return f"<td>{html.escape(value or '')}</td>"
    colour = LESS if value < 0 else INK
    style = f' style="background:rgba({colour},{0.6 * abs(value) / most:.2f})"' if most else ""
    return f"<td{style}>{number(value)}</td>"
