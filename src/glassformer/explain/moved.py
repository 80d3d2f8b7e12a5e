"""What moved one token's vector: the influence of every word of a text on it, or its weight in one layer's sum."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate

import msgspec
import torch
from torch import Tensor

from ..data.display import Cell
from ..errors import InputError, not_finite
from .influence import Influence
from .quantity import parted
from .weights import Weights


class Mover(msgspec.Struct, frozen=True):
    """One token, or one word of several, as far as it moves the chosen token's vector.

    norm: ‖∂y/∂x‖_F, for a word that of all its tokens together, the root of their squares' sum; of weights their
    magnitude, for a word the sum. error: the norm's standard error, None where it is exact. share: of the sum over all
    rows; a word's parts share the word's.
    """

    label: str
    text: str
    tokens: tuple[int, ...]
    special: bool
    norm: float
    error: float | None
    share: float
    parts: tuple[Mover, ...] = ()


class Moved(msgspec.Struct, frozen=True):
    """How strongly each word of a text moves the last vector of one token, by one model.

    row, position: the chosen word among `rows`, and its last token, whose vector it is. passes: rows of the Jacobian
    that were worked out. exact: all of them, so that the norms have no error. what: "influence", or "weights" of the
    value `name` in one layer, of one `head` or on average over all heads or channels (None). of: "source" where the
    rows are those of a pair's `source`: then row counts in the target, and position is the step that wrote the word.
    """

    text: str
    model: str
    token: str
    special: bool
    row: int
    position: int
    width: int
    exact: bool
    passes: int
    rows: tuple[Mover, ...]
    what: str = "influence"
    name: str = ""
    head: int | None = None
    of: str = "text"
    source: str = ""


def moved(
    found: Influence | Weights,
    cells: Sequence[Cell],
    groups: Sequence[Cell],
    chosen: int,
    *,
    text: str,
    model: str,
    position: int,
    width: int,
    of: str = "text",
    source: str = "",
) -> Moved:
    """The table of how `cells` moved the group `chosen`, from the influence on the token at `position` (the only row of
    `found`); cells: the groups themselves, or those of the source.

    Raises InputError where the numbers of the run are not finite.
    """
    check_finite(found.norms)
    whole = found.what == "weights"
    norms = found.norms[0].double().tolist()
    errors = None if found.errors is None else found.errors[0].double().tolist()
    total = sum(_norm(norms, cell.tokens, whole) for cell in cells) or 1.0
    return Moved(
        text=text,
        model=model,
        token=groups[chosen].text,
        special=not groups[chosen].source,
        row=chosen,
        position=position,
        width=width,
        exact=found.errors is None,
        passes=found.passes,
        rows=tuple(_mover(cell, norms, errors, total, whole) for cell in cells),
        what=found.what,
        name=found.name,
        head=found.head,
        of=of,
        source=source,
    )


def check_finite(norms: Tensor) -> None:
    """Raise InputError where the numbers of the run are not finite."""
    if not torch.isfinite(norms).all():
        raise InputError(not_finite("in its derivatives"))


def aligned(tables: Sequence[Moved]) -> list[Moved]:
    """The tables of several models on one text with the same rows in each, whose words stay closed: where one model's
    token reaches over the end of a word, the words it lies in become one row for all."""
    common = sorted(set.intersection(*(set(_ends(table.rows)) for table in tables)))
    return [_merged(table, common) for table in tables]


def _ends(rows: Sequence[Mover]) -> list[tuple[int, int]]:
    """Behind each row: how many characters there were, and how many special tokens."""
    characters = accumulate(len(row.text) for row in rows)
    return list(zip(characters, accumulate(int(row.special) for row in rows), strict=True))


def _merged(table: Moved, ends: list[tuple[int, int]]) -> Moved:
    groups: list[list[Mover]] = [[]]
    chosen = 0
    for i, (row, end) in enumerate(zip(table.rows, _ends(table.rows), strict=True)):
        chosen = len(groups) - 1 if i == table.row else chosen
        groups[-1].append(row)
        if end in ends:
            groups.append([])
    rows = [group[0] if len(group) == 1 else _joined(group, table.what == "weights") for group in groups if group]
    total = sum(row.norm for row in rows) or 1.0
    rows = [msgspec.structs.replace(row, share=row.norm / total, parts=()) for row in rows]
    if table.of == "source":  # the word is none of the rows
        return msgspec.structs.replace(table, rows=tuple(rows))
    return msgspec.structs.replace(table, rows=tuple(rows), row=chosen, token=rows[chosen].label)


def _joined(rows: list[Mover], whole: bool) -> Mover:
    norm = _norm([row.norm for row in rows], range(len(rows)), whole)
    error = None
    if rows[0].error is not None:
        error = sum(row.norm * row.error for row in rows) / norm if norm else 0.0
    return Mover(
        label="".join(row.label for row in rows),
        text="".join(row.text for row in rows),
        tokens=tuple(token for row in rows for token in row.tokens),
        special=False,
        norm=norm,
        error=error,
        share=0.0,
    )


def _mover(cell: Cell, norms: list[float], errors: list[float] | None, total: float, whole: bool) -> Mover:
    norm = _norm(norms, cell.tokens, whole)
    error = None
    if errors is not None:  # the tokens' errors come from the same directions, so at worst they add up
        error = sum(norms[i] * errors[i] for i in cell.tokens) / norm if norm else 0.0
    parts = tuple(_mover(part, norms, errors, total, whole) for part in cell.parts)
    parts = parted(parts, norm / total, whole)
    return Mover(cell.text, cell.source, tuple(cell.tokens), not cell.source, norm, error, norm / total, parts)


def _norm(norms: list[float], tokens: Sequence[int], whole: bool) -> float:
    """Of several tokens together: the root of their squares' sum; `whole`: the sum, of weights."""
    return sum(norms[i] for i in tokens) if whole else math.sqrt(sum(norms[i] ** 2 for i in tokens))
