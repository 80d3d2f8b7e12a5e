"""An explanation in the terminal: what it claims, its figures as tables, and how far it measured itself to be true."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.text import Text

from ..explain.explanation import Explanation, Figure, Points, Said, Table
from ..explain.tables import Cell, tabled
from .sheet import HEADING, LEAST, MOST, flow, printed
from .table import table
from .words import say

CODED = ("kind", "part", "run", "measure")  # columns whose words stand in English in every language of the data
KOREAN = {
    **{"embedding": "임베딩", "position": "위치", "head": "헤드", "mixer": "토큰 믹서", "cross": "원문"},
    **{"channel": "채널 믹서", "start": "첫 상태", "bias": "편향", "edit": "편집", "constant": "상수"},
    **{"previous": "바로 앞 토큰", "first": "첫 토큰", "self": "자기 자신", "equal": "같은 토큰"},
    **{"behind": "같은 토큰의 다음", "spread": "여러 곳", "none": "없음", "induction": "귀납"},
    **{"duplicate": "같은 토큰", "sink": "첫 토큰", "offset": "고정된 거리"},
    **{"clean": "원래", "spoilt": "망가뜨림", "difference": "차이", "all edges": "모든 연결", "the circuit": "회로"},
    **{"comprehensiveness": "포괄성", "sufficiency": "충분성", "deletion": "삭제", "insertion": "삽입"},
    **{"spearman": "스피어만 순위 상관", "kendall": "켄달 순위 상관"},
    **{"all but the circuit": "회로를 뺀 나머지", "random circuits": "무작위 회로", "no edge": "연결 없음"},
}
ROWS = 40  # and columns that are printed; --json has all


def show_explanation(one: Explanation, console: Console, lang: str) -> None:
    """Print it."""
    printed(lines(one, lang, console.width), console)


def lines(one: Explanation, lang: str, columns: int = 80) -> Iterator[Text]:
    """Its lines, none wider than `columns`."""
    columns = max(LEAST, min(columns, MOST))

    def said(text: Said) -> str:
        return text.ko if lang == "ko" else text.en

    yield from flow([(said(one.title), HEADING)], columns)
    yield from flow([(said(one.claim), "dim")], columns)
    for figure in one.figures:
        unit = "" if isinstance(figure, Table | Points) or not said(figure.unit) else f" ({said(figure.unit)})"
        yield Text()
        yield from flow([(said(figure.title) + unit, HEADING)], columns)
        yield from _figure(figure, lang, columns)
    if one.checks:
        yield Text()
    for check in one.checks:
        mark = {True: "✓", False: "✗", None: "·"}[check.passed]
        value = say("not_measured", lang) if check.value is None else _written(check.value)
        yield from flow([(f"{said(check.said)}: {value}", "red" if check.passed is False else "")], columns, f"{mark} ")
    yield Text()
    yield from flow([(one.python, "dim")], columns)


def _figure(figure: Figure, lang: str, columns: int) -> Iterator[Text]:
    """A figure as a table; of a long one its first rows."""
    made = tabled(figure, ROWS)
    if isinstance(figure, Table) and lang == "ko":
        coded = [i for i, column in enumerate(figure.columns) if column.en in CODED]
        made.rows[:] = [[_in_korean(one) if i in coded else one for i, one in enumerate(row)] for row in made.rows]
    heads = [one.ko if lang == "ko" else one.en for one in made.heads]
    names, rows = list(made.names), made.rows
    if not names:  # the first column of a table names its rows
        names, rows, heads = [_written(row[0]) for row in rows], [row[1:] for row in rows], heads[1:]
    else:
        heads = heads[1:] or [""] * len(rows[0])
    yield from table(names, _columns(heads, rows), columns)
    if made.left:
        yield Text(f"  + {made.left} … (--json)", "dim")


def _columns(heads: Sequence[str], rows: Sequence[Sequence[Cell]]) -> dict[str, list[str]]:
    """The cells of each column by its heading, of which no two may be alike."""
    found: dict[str, list[str]] = {}
    for c, head in enumerate(heads):
        while head in found:
            head += " "
        found[head] = [_written(row[c]) for row in rows]
    return found


def _in_korean(value: Cell) -> Cell:
    return KOREAN.get(value, value) if isinstance(value, str) else value


def _written(value: Cell) -> str:
    if value is None:
        return "–"
    return value if isinstance(value, str) else str(value) if isinstance(value, int) else f"{value:.4g}"
