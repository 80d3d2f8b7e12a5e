"""How strongly every token of a text moves every other, as one table for a view."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import msgspec
import torch
from torch import Tensor

from ..data.display import Cell
from .influence import Influence
from .moved import check_finite
from .weights import Weights


class Grid(msgspec.Struct, frozen=True):
    """One model's table: row t is what is moved, column s what moves it, both tokens or characters of several.

    what       "influence", or "weights" of the layer whose value is `name`, of one `head` or on average over all
    values     `t s`, ‖∂y_t/∂x_s‖_F with a character's tokens together as in Moved, or the weights' magnitude
    errors     `t s`, their standard errors; None where they are exact
    shares     `t s`, of each row's sum
    seen       `t s`, whether there is any way from s to t by construction; what is not seen counts as 0
    error      the largest standard error as a share of the largest value; directions: how many were drawn, 0 if exact
    mixers     the model's token mixers, in order: name in English and Korean, and how many of them in a row
    """

    text: str
    model: str
    what: str
    name: str
    head: int | None
    labels: tuple[str, ...]
    values: list[list[float]]
    errors: list[list[float]] | None
    shares: list[list[float]]
    seen: list[list[bool]]
    error: float
    directions: int
    mixers: tuple[tuple[str, str, int], ...]


def grid(
    found: Influence | Weights,
    groups: Sequence[Cell],
    seen: Tensor,
    *,
    text: str,
    model: str,
    mixers: Sequence[tuple[str, str]],
    sources: Sequence[Cell] | None = None,
) -> Grid:
    """The table of what was found for the last token of each group, from each group of `sources` (None: the same).
    seen: bool `g s`, what the last token of each group sees of all tokens.

    Raises InputError where the numbers of the run are not finite.
    """
    check_finite(found.norms)
    sources = groups if sources is None else sources
    ways = torch.stack([seen[:, list(cell.tokens)].any(1) for cell in sources], 1)
    values = torch.stack([_together(found, found.norms, cell) for cell in sources], 1) * ways
    errors = None
    if found.errors is not None:  # of tokens together as in Moved: at worst they add up
        parts = [(found.norms * found.errors)[:, list(cell.tokens)].double().sum(1) for cell in sources]
        errors = torch.stack(parts, 1) / values.clamp(min=torch.finfo(values.dtype).tiny) * ways
    shares = values / values.sum(1, keepdim=True).clamp(min=torch.finfo(values.dtype).tiny)
    return Grid(
        text=text,
        model=model,
        what=found.what,
        name=found.name,
        head=found.head,
        labels=tuple(cell.text for cell in groups),
        values=values.tolist(),
        errors=None if errors is None else errors.tolist(),
        shares=shares.tolist(),
        seen=ways.tolist(),
        error=found.error,
        directions=0 if found.errors is None else found.directions,
        mixers=tuple((*names, len(list(some))) for names, some in groupby(mixers)),
    )


def _together(found: Influence | Weights, norms: Tensor, cell: Cell) -> Tensor:
    part = norms[:, list(cell.tokens)].double()
    return part.square().sum(1).sqrt() if found.what == "influence" else part.sum(1)
