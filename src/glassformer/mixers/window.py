"""The tokens around a token, as far as a layer with a fixed reach looks; and where documents begin.

All skip places without a token (position -1), so that a padded row is what it would be alone, and none looks past
the beginning of a document: where its packed segment does, and at position 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
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
        line, tail = joined(x, tail)
        back = torch.arange(count - 1, -1, -1, device=x.device) * dilation
        return line[:, places + torch.arange(t, device=x.device)[:, None] - back], tail
    valid, own = (call.pos >= 0).expand(batch, t), documents(call, batch)
    compact, owner = _tokens_first(x, own, valid)
    line, owner = torch.cat((tail.value, compact), 1), torch.cat((tail.document, owner), 1)
    rank = places + (valid.long().cumsum(1) - 1).clamp(min=0)  # b t: where each token stands in that line
    back = torch.arange(count - 1, -1, -1, device=x.device) * dilation
    at = (rank[..., None] - back).flatten(1)
    there = (owner.gather(1, at).view(batch, t, count) == own[..., None]) & (call.pos[..., None] >= back)
    seen = line.gather(1, at[..., None].expand(-1, -1, x.shape[2])).view(batch, t, count, -1)
    newest = valid.sum(1, keepdim=True) + torch.arange(places, device=x.device)
    tail = Tail(line.gather(1, newest[..., None].expand(-1, -1, x.shape[2])), owner.gather(1, newest))
    return seen * there[..., None].to(x.dtype), tail


def joined(x: Tensor, tail: Tail) -> tuple[Tensor, Tail]:
    """The tokens `b t d` of a plain call behind the r of the tail, `b r+t d`, and the new tail."""
    batch, t, _ = x.shape
    line = torch.cat((tail.value, x), 1)
    document = torch.cat((tail.document, tail.document.new_zeros(batch, t)), 1)
    return line, Tail(line[:, t:], document[:, t:])


def around(x: Tensor, call: Call, count: int, dilation: int = 1) -> Tensor:
    """The token itself in the middle of the `count` (odd) ones that lie dilation, 2·dilation … tokens before and after
    it, zeros beyond both ends of its document: x `b t d` to `b t k d`, the oldest of the k = count first."""
    (batch, t, _), reach = x.shape, count // 2 * dilation
    number = numbers(call, batch)
    valid = number >= 0
    line, owner = _tokens_first(x, number, valid)
    line, owner = F.pad(line, (0, 0, reach, reach)), F.pad(owner, (reach, reach), value=-1)
    rank = (valid.long().cumsum(1) - 1).clamp(min=0)
    at = (rank[..., None] + torch.arange(count, device=x.device) * dilation).flatten(1)
    there = owner.gather(1, at).view(batch, t, count) == number[..., None]
    seen = line.gather(1, at[..., None].expand(-1, -1, x.shape[2])).view(batch, t, count, -1)
    return seen * there[..., None].to(x.dtype)


def _tokens_first(x: Tensor, owner: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
    """`b t d` and `b t` with the places that hold a token first, in their order."""
    order = (~valid).long().sort(dim=1, stable=True).indices
    return x.gather(1, order[..., None].expand_as(x)), owner.gather(1, order)


def numbers(call: Call, batch: int) -> Tensor:
    """Which document of its row each place `b t` belongs to, counted from 0 in their order; -1 where no token is."""
    valid = (call.pos >= 0).expand(batch, call.pos.shape[1])
    if call.segments is None:
        return torch.where(valid, 0, -1)
    _, first, _ = edges(call, torch.full((batch,), -1, device=call.pos.device))
    return torch.where(valid, first.cumsum(1) - 1, -1)


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
