"""The edits of a run, as an explanation of one of its rows has to have them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..edit import OVER_TEXT, Edit
from ..place import indices
from ..positions import POSITIONS
from ..trace import Trace

BEFORE_SOFTMAX = ("dots", "scores")  # of which what a mask forbids stays forbidden


def looks_ahead(trace: Trace) -> bool:
    """Whether an edit may let a place of a causal stack depend on what stands behind it: a mean and a resample read
    all places, a weight that is put in opens an edge, and a token that is cut off is read without by another run."""
    return any(_opens(trace, edit) for edit in trace.acting)


def _opens(trace: Trace, edit: Edit) -> bool:
    short = edit.name.rpartition(".")[2]
    if short == POSITIONS:
        return False
    if edit.kind in OVER_TEXT or edit.kind == "cut":
        return True
    weighs = {"t", "s"} <= set(trace.axes(edit.name).split()) and short not in BEFORE_SOFTMAX
    return weighs and edit.kind not in ("zero", "scale")


def acting_in(trace: Trace, row: int) -> tuple[Edit, ...]:
    """The edits of a run as they act in one row of its batch, alone: those of other rows are gone, no place names a
    row, and noise is what was drawn for this one."""
    return tuple(one for edit in trace.acting for one in _in_row(trace, edit, row))


def _in_row(trace: Trace, edit: Edit, row: int) -> Iterator[Edit]:
    if edit.name.rpartition(".")[2] == POSITIONS:
        stack = next(one for one in trace.stacks if edit.name == f"{one.prefix}{POSITIONS}")
        letters, sizes = ["b", "t"], list(stack.call.pos.expand(len(stack.tokens), -1).shape)
    else:
        letters, sizes = trace.axes(edit.name).split(), [size for _, size in trace.sizes(edit.name)]
    if letters[0] != "b":  # the same in every row
        yield edit
        return
    rows = list(range(sizes[0]))
    if "b" in edit.where:
        rows = indices(edit.where["b"], sizes[0], edit.name, "b")
    if row not in rows:
        return
    if edit.kind == "noise":
        drawn = edit.apply(torch.zeros(sizes), " ".join(letters))
        yield Edit(edit.name, "add", {}, drawn[row : row + 1])
        return
    where = {letter: place for letter, place in edit.where.items() if letter != "b"}
    yield replace(edit, where=where, value=_of_row(edit.value, len(letters), rows.index(row)))


def _of_row(value: Any, axes: int, at: int) -> Any:
    """What belongs to one row of what an edit puts in several."""
    if not isinstance(value, Tensor) or value.ndim < axes or len(value) == 1:
        return value
    return value[at : at + 1]
