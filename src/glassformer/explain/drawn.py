"""An explanation as plain HTML tables for a notebook: without scripts and style sheets, so that they also show where a
kept notebook is read by a program that allows neither."""

from __future__ import annotations

import html

from .explanation import Explanation, Figure, Number, Points, Said, Table
from .tables import tabled

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
    made = tabled(figure, MOST)
    head = "".join(f"<th>{both(one)}</th>" for one in made.heads)
    names = [_head(name) for name in made.names] or [""] * len(made.rows)
    rows = (
        "".join((name, *(_cell(one, made.most) for one in row))) for name, row in zip(names, made.rows, strict=True)
    )
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    asked = f"<code>explanation.figure({html.escape(repr(figure.name))})</code>"
    more = f"<p>+ {made.left} … {asked}</p>" if made.left else ""
    unit = "" if isinstance(figure, Table | Points) or not figure.unit.en else f" ({both(figure.unit)})"
    return f"<table><caption>{both(figure.title)}{unit}</caption><tr>{head}</tr>{body}</table>{more}"


def _head(text: str) -> str:
    return f"<th>{html.escape(text)}</th>"


def _cell(value: Number | str, most: float = 0.0) -> str:
    """A cell, coloured as far as its number is large."""
    if not isinstance(value, int | float):
        return f"<td>{html.escape(value or '')}</td>"
    colour = LESS if value < 0 else INK
    style = f' style="background:rgba({colour},{0.6 * abs(value) / most:.2f})"' if most else ""
    return f"<td{style}>{number(value)}</td>"
