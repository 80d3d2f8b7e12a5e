"""State: how a mixer keeps the past.

A State belongs to the mixer that reads it; everyone else carries it unopened. It is a dataclass whose tensors have the
batch as their first axis, so that `clone`, `reorder` and `nbytes` are written once. `step` consumes its state: using
one twice is a mistake that raises; branch with `clone`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

S = TypeVar("S", bound="State")


@dataclass(eq=False)
class State:
    """The past of one mixer, or a tree of pasts (a block's, a model's)."""

    used: bool = field(default=False, init=False)

    def take(self: S) -> S:
        """This state, marked as consumed. Raises RuntimeError the second time."""
        if self.used:
            raise RuntimeError("this State was already consumed by a step; keep a branch with state.clone() before it")
        self.used = True
        return self

    def give_back(self) -> None:
        """Make this state one that was not consumed: its step failed before anything that it holds was overwritten."""
        self.used = False
        for part in fields(self):
            value = getattr(self, part.name)
            for one in value if isinstance(value, tuple) else (value,):
                if isinstance(one, State):
                    one.give_back()

    def mapped(self: S, change: Callable[[Tensor], Tensor]) -> S:
        """A fresh state with `change` applied to every tensor in it."""
        changed = {f.name: _mapped(getattr(self, f.name), change) for f in fields(self) if f.init}
        return replace(self, **changed)

    def clone(self: S) -> S:
        """An independent copy, from which another continuation can be run."""
        assert not self.used, "a consumed State cannot be cloned: clone it before the step"
        return self.mapped(Tensor.clone)

    def reorder(self: S, rows: Tensor) -> S:
        """The state whose batch rows are `rows` (long, any length) of this one, as beam search needs."""
        assert not self.used, "a consumed State cannot be reordered: its step may have overwritten it"
        return self.mapped(lambda value: value.index_select(0, rows))

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors in it."""
        total = 0

        def count(value: Tensor) -> Tensor:
            nonlocal total
            total += value.numel() * value.element_size()
            return value

        self.mapped(count)
        return total


def _mapped(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, State):
        return value.mapped(change)
    if isinstance(value, tuple):
        return tuple(_mapped(part, change) for part in value)
    return value


@dataclass(eq=False)
class Nothing(State):
    """The past of a layer that keeps none."""


def written(buffer: Tensor, start: int, new: Tensor) -> Tensor:
    """`buffer` (`b s …`) with `new` at start … start + t.

    In place, as a static cache should be; with gradients a copy, since autograd still needs the old content.
    """
    end = start + new.shape[1]
    if torch.is_grad_enabled() and (new.requires_grad or buffer.requires_grad):
        return torch.cat((buffer[:, :start], new, buffer[:, end:]), 1)
    buffer[:, start:end] = new
    return buffer


@dataclass(eq=False)
class Last(State):
    """The newest token so far: its `value` (`b …`) and the packed `document` (`b`) it belongs to, 0 without packing and
    -1 where there was no token yet."""

    value: Tensor
    document: Tensor

    @classmethod
    def none(cls, value: Tensor) -> Last:
        """No token yet; value gives the shape `b …` and the type."""
        return cls(torch.zeros_like(value), torch.full(value.shape[:1], -1, dtype=torch.long, device=value.device))


def before(values: Tensor, last: Last, pos: Tensor, segments: Tensor | None = None) -> tuple[Tensor, Tensor, Last]:
    """The value of the token before each token, skipping places without a token.

    Args: values `b t …`; last: the newest token before this chunk; pos `b t`, -1 where no token is; segments `b t`.
    Returns: (`b t …` the values before; `b t` bool, whether the token has one in its document; the new last one).
    A document begins where its segment does, and at position 0.
    """
    batch, t = values.shape[:2]
    valid = (pos >= 0).expand(batch, t)
    document = torch.zeros_like(valid, dtype=torch.long) if segments is None else segments.expand(batch, t)
    index = torch.where(valid, torch.arange(1, t + 1, device=pos.device), 0).cummax(1).values
    earlier = torch.cat((index.new_zeros(batch, 1), index), 1)  # b t+1: place in `line` of the newest token so far
    line = torch.cat((last.value[:, None], values), 1)
    at = earlier.reshape(batch, t + 1, *[1] * (values.ndim - 2)).expand(batch, t + 1, *values.shape[2:])
    newest, owner = line.gather(1, at), torch.cat((last.document[:, None], document), 1).gather(1, earlier)
    exists = valid & (pos != 0) & (owner[:, :t] == document)
    return newest[:, :t], exists, Last(newest[:, t], owner[:, t])
