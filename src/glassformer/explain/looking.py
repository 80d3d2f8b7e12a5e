"""What the heads of a layer look at: how much of their weight lies on tokens of some kind, and at some distance.

Of each head means over the positions; and the same of a head that weighs all it sees alike, which is chance.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from ..rerun import Stack
from ..trace import Trace
from .explainer import Report, block_of, quiet
from .mixing import WEIGHTS
from .quantity import exact

AT_ONCE = 1 << 22  # weights
Sees = Callable[[list[int]], Tensor]  # of positions the places that each of them sees, bool `t s`
PICKS = ("previous", "first", "self", "equal", "behind")  # what a token's share is measured of


def weights_name(trace: Trace, stack: Stack, layer: int, of: str = "text") -> str:
    """The name of a layer's weights; "" where it has none."""
    block = block_of(stack, layer)
    looks = f"{block.mixer.path}.cross" if block.cross is None else block.cross.path
    path = block.mixer.path if of == "text" else looks
    return next((f"{path}.{short}" for short in WEIGHTS if f"{path}.{short}" in trace.names()), "")


def head_letter(trace: Trace, name: str) -> str:
    """The axis of a value's heads or channels; "" where it has none."""
    return next((one for one in trace.axes(name).split() if one not in "bts"), "")


def headed(trace: Trace, stack: Stack, layer: int) -> str:
    """The name of a layer's weights where each head has its own; "" where not."""
    name = weights_name(trace, stack, layer)
    return name if name and head_letter(trace, name) == "h" else ""


def shares_of(trace: Trace, name: str, rows: list[int]) -> Tensor:
    """The weights `h t s` of these rows by their magnitude, each row brought to a sum of 1: they may have a sign."""
    found = exact(trace.part(name, b=0, t=rows)).abs()
    return found / found.sum(-1, keepdim=True).clamp(min=1e-30)


def even(ways: Tensor) -> Tensor:
    """The weights `t s` of a head that weighs all it sees alike (ways, bool `t s`)."""
    return ways.double() / ways.double().sum(-1, keepdim=True).clamp(min=1)


def measured(
    trace: Trace, stack: Stack, name: str, sees: Sees, report: Report = quiet, alike: bool = False
) -> list[list[float | None]]:
    """For each head: entropy in bits, mean distance, shares on the previous token, the first, itself, equal tokens, and
    those that stand behind an equal one; means over the positions that see such a token. Weights with a sign count by
    their magnitude, and each row is brought to a sum of 1. The first position, which in a causal layer has no choice,
    is left out. alike: of one head instead, which weighs all it sees alike."""
    ids = stack.tokens[0] if stack.tokens.ndim == 2 else None
    heads, n = 1 if alike else dict(trace.sizes(name))["h"], dict(trace.sizes(name))["t"]
    rows = list(range(min(1, n - 1), n))
    at_once, sums = rows_at_once(trace, name), torch.zeros(heads, 7, dtype=torch.float64)
    counts = torch.zeros(7, dtype=torch.float64)
    for start in range(0, len(rows), at_once):
        some, ways = torch.tensor(rows[start : start + at_once]), sees(rows[start : start + at_once])
        report(start, len(rows))
        shares = even(ways)[None] if alike else shares_of(trace, name, some.tolist())  # h t s
        away = (some[:, None] - torch.arange(n)).abs()
        picks = [pick & ways for pick in _picks(some, n, ids)]
        flat = shares.flatten(1)
        found = [flat.mv(one.flatten().double()) for one in (away, *picks)]
        there = [torch.ones(len(some)), torch.ones(len(some)), *(pick.any(-1) for pick in picks)]
        sums += torch.stack([torch.special.entr(flat).sum(1) / math.log(2), *found], 1)
        counts += torch.stack([one.double().sum() for one in there])
    means = sums / counts.clamp(min=1)
    return [
        [value if count else None for value, count in zip(row, counts.tolist(), strict=True)] for row in means.tolist()
    ]


def at_distances(trace: Trace, name: str, sees: Sees, most: int, alike: bool = False) -> Tensor:
    """How much weight each head puts on the token k places away, `h k` for k from -most to most: the mean over the
    positions that see one there, NaN where none does. The first position is left out. alike: as of measured."""
    n = dict(trace.sizes(name))["t"]
    rows = list(range(min(1, n - 1), n))
    at_once, sums, counts = rows_at_once(trace, name), 0.0, torch.zeros(2 * most + 1, dtype=torch.float64)
    for start in range(0, len(rows), at_once):
        some, ways = torch.tensor(rows[start : start + at_once]), sees(rows[start : start + at_once])
        shares = even(ways)[None] if alike else shares_of(trace, name, some.tolist())  # h t s
        columns = some[:, None] + torch.arange(-most, most + 1)  # t k
        inside = (columns >= 0) & (columns < n)
        columns = columns.clamp(0, n - 1)
        there = inside & ways.gather(1, columns)
        taken = shares.gather(2, columns.expand(len(shares), -1, -1))
        sums = sums + (taken * there).sum(1)
        counts += there.sum(0)
    return torch.where(counts > 0, sums / counts.clamp(min=1), torch.nan)


def rows_at_once(trace: Trace, name: str) -> int:
    """How many rows of all heads are worked out at once: as many as there is room for, but few enough that the same
    memory serves again."""
    sizes = dict(trace.sizes(name))
    return max(1, min(trace.rows_at_once(name), AT_ONCE // (sizes["h"] * sizes["s"])))


def _picks(some: Tensor, n: int, ids: Tensor | None) -> list[Tensor]:
    """bool `t s`: the previous token, the first, itself, equal ones, those behind an equal one."""
    places, rows = torch.arange(n), some[:, None]
    previous, first, itself = places == rows - 1, (places == 0).expand(len(some), -1), places == rows
    if ids is None:
        none = torch.zeros_like(itself)
        return [previous, first, itself, none, none]
    ids = ids.cpu()
    equal = (ids[some][:, None] == ids) & ~itself
    before = torch.cat((ids[:1] * 0 - 1, ids[:-1]))
    # The place behind the token itself is behind no other one; a layer that looks ahead would else have it count.
    behind = (ids[some][:, None] == before) & ~itself & (places != rows + 1)
    return [previous, first, itself, equal, behind]
