"""The tokens before a token, as far as a layer with a fixed reach looks back; and where documents begin.

Both skip places without a token (position -1), so that a padded row is what it would be alone, and neither looks past
the beginning of a document: where its packed segment does, and at position 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..call import Call
from ..state import State


@dataclass(eq=False)
class Tail(State):
    """The newest tokens: their values `b r d`, the newest last, and the packed document `b r` of each, 0 without
    packing and -1 where there was no token yet."""

    value: Tensor
    document: Tensor

    @classmethod
    def none(cls, batch: int, places: int, like: Tensor, width: int) -> Tail:
        """No token yet."""
        document = torch.full((batch, places), -1, dtype=torch.long, device=like.device)
        return cls(like.new_zeros(batch, places, width), document)


def previous(x: Tensor, tail: Tail, call: Call, count: int, dilation: int = 1) -> tuple[Tensor, Tail]:
    """The token itself and the `count` - 1 ones that lie dilation, 2·dilation … tokens before it, zeros before the
    beginning of its document.

    Args: x `b t d`, the new tokens; tail: at least (count - 1)·dilation tokens before them.
    Returns: (`b t k d`, the oldest of the k = count first and the token itself last; the new tail).
    """
    batch, t, _ = x.shape
    places = tail.value.shape[1]
    if call.plain:
        line = torch.cat((tail.value, x), 1)
        back = torch.arange(count - 1, -1, -1, device=x.device) * dilation
        seen = line[:, places + torch.arange(t, device=x.device)[:, None] - back]
        document = torch.cat((tail.document, tail.document.new_zeros(batch, t)), 1)
        return seen, Tail(line[:, t:], document[:, t:])
    valid, own = (call.pos >= 0).expand(batch, t), documents(call, batch)
    order = (~valid).long().sort(dim=1, stable=True).indices  # the places that hold a token first, in their order
    line = torch.cat((tail.value, x.gather(1, order[..., None].expand_as(x))), 1)
    owner = torch.cat((tail.document, own.gather(1, order)), 1)
    rank = places + (valid.long().cumsum(1) - 1).clamp(min=0)  # b t: where each token stands in that line
    back = torch.arange(count - 1, -1, -1, device=x.device) * dilation
    at = (rank[..., None] - back).flatten(1)
    there = (owner.gather(1, at).view(batch, t, count) == own[..., None]) & (call.pos[..., None] >= back)
    seen = line.gather(1, at[..., None].expand(-1, -1, x.shape[2])).view(batch, t, count, -1)
    newest = valid.sum(1, keepdim=True) + torch.arange(places, device=x.device)
    tail = Tail(line.gather(1, newest[..., None].expand(-1, -1, x.shape[2])), owner.gather(1, newest))
    return seen * there[..., None].to(x.dtype), tail


def documents(call: Call, batch: int) -> Tensor:
    """The packed document `b t` of each place, 0 without packing."""
    return (torch.zeros_like(call.pos) if call.segments is None else call.segments).expand(batch, call.pos.shape[1])


def edges(call: Call, last: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor]:
    """What a recurrence must know of the places: (`b t` where a token is, `b t` where a token begins a document, the
    document `b` of the newest token after them). Both are None in a plain call, which has neither.

    last `b`: the document of the newest token before them, -1 where there was none.
    """
    if call.plain:
        return None, None, torch.zeros_like(last)
    batch = last.shape[0]
    valid, own = (call.pos >= 0).expand(batch, call.pos.shape[1]), documents(call, batch)
    index = torch.where(valid, torch.arange(1, own.shape[1] + 1, device=own.device), 0).cummax(1).values
    line = torch.cat((last[:, None], own), 1)
    newest = torch.cat((last[:, None], line.gather(1, index)), 1)  # b t+1: the document of the newest token so far
    first = valid & ((call.pos == 0) | (newest[:, :-1] != own))
    return valid, first, newest[:, -1]
