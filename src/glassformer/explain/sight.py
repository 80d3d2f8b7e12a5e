"""What a position can see by construction: whatever lies outside moves it by nothing, for any weights and any text."""

from __future__ import annotations

import torch
from torch import Tensor

from ..mixers.base import Cost, TokenMixer
from ..model import Model


def seen(one: Cost, rows: Tensor, places: Tensor, causal: bool = True) -> Tensor:
    """bool `t s`: which of `places` the positions `rows` can see through one mixer of this cost."""
    if one.sees is not None:
        return one.sees(rows, places)
    back = rows[:, None] - places
    ahead = torch.ones_like(back, dtype=torch.bool) if not causal else back >= 0
    near = torch.ones_like(ahead) if one.reach is None else back.abs() <= one.reach
    return ahead & near & (back % one.stride == 0)


def through(mixer: TokenMixer, n: int, sources: int | None = None) -> Tensor:
    """bool `t s`: which of n positions see which through one mixer, of a text about so many sources."""
    places = torch.arange(n)
    more = [sources or n] if mixer.reads_memory else []
    return seen(mixer.cost(n, 4, *more), places, places, mixer.causal)


def sight(model: Model, n: int, sources: int | None = None) -> Tensor:
    """bool `t s`: from which of n tokens there is a way to which position, over the embedding and all blocks."""
    ways = torch.eye(n)
    if model.embed.previous is not None:  # a token's row in that table enters one place later
        ways += torch.eye(n + 1)[:-1, 1:]
    for block in model.blocks:
        ways = (through(block.mixer, n, sources).float() @ ways > 0).float()  # a residual adds none: all see themselves
    return ways > 0
