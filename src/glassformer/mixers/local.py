"""Attention to what is near, in blocks: work and memory grow with the length of a text, not with its square.

Queries are cut into blocks as long as the window. A block sees itself, the block before it and, where later tokens may
be seen, the one behind it; the pinned first positions stand before these. The blocks become rows of the batch, so that
whatever works out one piece of attention works out all of them at once.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from ..mask import Mask
from .cache import Asked, Keys

AT_ONCE = 1 << 18  # scores


def fits_in_blocks(t: int, mask: Mask, each_bytes: int, room_bytes: int | None) -> bool:
    """Whether t tokens are worth cutting, and their cells of `each_bytes` fit `room_bytes` (None: any do)."""
    if mask.near is None or mask.prefix or t <= 2 * mask.near:
        return False
    cells = (t + mask.near) * ((2 if mask.causal else 3) * mask.near + mask.pinned)
    return room_bytes is None or cells * each_bytes <= room_bytes


def few_rows(asked: Asked, keys: Keys, k: Tensor, v: Tensor) -> Iterator[tuple[Asked, Keys, Tensor, Tensor]]:
    """Blocks so many at a time that their scores stay where a processor finds them quickly."""
    cells = asked.q.shape[1] * asked.q.shape[2] * k.shape[2]
    for start in range(0, len(k), max(1, AT_ONCE // cells)):
        some = slice(start, start + max(1, AT_ONCE // cells))
        mine = Asked(asked.q[some], asked.pos[some], None, asked.heads)
        yield mine, Keys(k[some], v[some], keys.pos[some]), k[some], v[some]


def in_blocks(asked: Asked, keys: Keys, k: Tensor, v: Tensor, mask: Mask) -> tuple[Asked, Keys, Tensor, Tensor]:
    """The queries, their keys' places, keys and values of m blocks, `b·m` rows each.

    For a plain call, whose query i stands at the position of key i. asked.q `b h t e`, k and v `b g s e`; a block's
    filled-up places hold no token (-1).
    """
    size, batch, t = mask.near, k.shape[0], k.shape[2]
    missing = -t % size
    pos = F.pad(keys.pos[0], (0, missing), value=-1).view(-1, size)  # m c

    def cut(x: Tensor) -> Tensor:
        """`b h t e` to `b m h c e`."""
        return F.pad(x, (0, 0, 0, missing)).unflatten(2, (-1, size)).transpose(1, 2)

    def beside(x: Tensor, axis: int, by: int, fill: float) -> Tensor:
        """The block before each (by 1) or behind it (by -1)."""
        other = x.roll(by, axis)
        edge = torch.arange(x.shape[axis], device=x.device) == (0 if by == 1 else x.shape[axis] - 1)
        return other.masked_fill(edge.view(-1, *[1] * (x.ndim - axis - 1)), fill)

    def seen(x: Tensor) -> Tensor:
        """`b g t e` to `(b m) g s e`."""
        own = cut(x)
        parts = [beside(own, 1, 1, 0.0), own] + ([] if mask.causal else [beside(own, 1, -1, 0.0)])
        if mask.pinned:
            first = x[:, None, :, : mask.pinned].expand(-1, own.shape[1], -1, -1, -1)
            parts.insert(0, first)
        return torch.cat(parts, 3).flatten(0, 1)

    places = [beside(pos, 0, 1, -1), pos] + ([] if mask.causal else [beside(pos, 0, -1, -1)])
    if mask.pinned:  # unless a block has them already
        first, begin = keys.pos[0, : mask.pinned], size * torch.arange(-1, len(pos) - 1, device=pos.device)
        places.insert(0, torch.where(first < begin[:, None], first, -1))

    def each(x: Tensor) -> Tensor:
        """`m s` for all rows of the batch."""
        return x.expand(batch, *x.shape).flatten(0, 1)

    folded = Asked(cut(asked.q).flatten(0, 1), each(pos), None, asked.heads)
    k, v = seen(k), seen(v)
    return folded, Keys(k, v, each(torch.cat(places, 1))), k, v
