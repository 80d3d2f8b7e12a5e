"""What a layer may know besides its input, in one small object that is made for the call and never stored."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from .tap import Probe, Tap, address, off


@dataclass(frozen=True, eq=False)
class Call:
    """One call of a model.

    pos         `b t` positions, -1 where there is no token; the batch axis may be a broadcast 1
    plain       no padding and no packing: every row is 0 … t-1, or in a step the t positions behind the past's, so a
                fused causal kernel needs no mask
    end         the position after the last one, where it is known without looking at them (plain calls)
    places      `b t` the positions that a position signal is worked out from, where an edit has moved them; None: pos.
                What a token may see follows from pos alone
    types       `b t` the part of its text that a token stands in, as sentence A or B; None: all in the first
    segments    `b t` number of the packed document that a token belongs to; None: one document a row
    memory      `b s d` the encoder's output, for cross-attention
    memory_pos  `b s` its positions, -1 on padding
    probe       listens to taps; None: nobody looks
    rows        query positions of which a mixer works out its weights and what follows them, None for all (used when a
                trace recomputes a part)
    heads       the same for query heads, or for the channels that have weights of their own
    room_bytes  what masks, biases and scores of attention may take at once; None: as much as they need
    losses      auxiliary losses of a training call (mixture-of-experts balance) are appended here; None: not wanted
    ends        an encoder's recurrent mixers append their last states `b n` here; None: nobody reads them
    handed      those last states, for the decoder
    shared      values worked out once for all layers of this call (rotary angles), or for all pieces of one value
    """

    pos: Tensor
    plain: bool = False
    segments: Tensor | None = None
    memory: Tensor | None = None
    memory_pos: Tensor | None = None
    probe: Probe | None = None
    rows: Tensor | None = None
    heads: Tensor | None = None
    room_bytes: int | None = None
    end: int | None = None
    losses: list[Tensor] | None = None
    ends: list[Tensor] | None = None
    handed: tuple[Tensor, ...] = ()
    types: Tensor | None = None
    places: Tensor | None = None
    shared: dict[Any, Any] = field(default_factory=dict)

    def tap(self, layer: nn.Module, source: bool = False) -> Tap:
        """The tap of a layer, whose `path` is its module path in the model. source: it reads the memory's places."""
        if self.probe is None:
            return off
        return self.probe.at(layer.path, lambda axis: self.documents(source and axis == "s"))

    @property
    def signal(self) -> Tensor:
        """The positions `b t` that a position signal is worked out from."""
        return self.pos if self.places is None else self.places

    def documents(self, source: bool) -> Tensor | None:
        """tap.Documents of the call's own places, or of the memory's."""
        pos, segments = (self.memory_pos, None) if source else (self.pos, self.segments)
        if pos is None or (self.plain and not source):
            return None
        return torch.where(pos >= 0, 0 if segments is None else segments - segments.min(), -1)

    def wants(self, layer: nn.Module, *names: str) -> bool:
        """Whether somebody looks at any of the layer's values `names`, so that the mathematics is written out."""
        return self.probe is not None and any(self.probe.wants(address(layer.path, name)) for name in names)

    def of_rows(self, x: Tensor, axis: int = 1) -> Tensor:
        """The asked rows of what has all of them."""
        return x if self.rows is None else x.index_select(axis, self.rows)

    def of_heads(self, x: Tensor | None, axis: int = 2) -> Tensor | None:
        """The asked heads or channels of what has all of them; None stays None."""
        return x if self.heads is None or x is None else x.index_select(axis, self.heads)

    def once(self, key: Any, make: Callable[[], Any]) -> Any:
        """The value of `make()`, worked out the first time `key` is asked for in this call."""
        if key not in self.shared:
            self.shared[key] = make()
        return self.shared[key]


@contextlib.contextmanager
def at_rest(model: nn.Module) -> Iterator[None]:
    """The model without dropout and gradients, for one piece of work; afterwards it is as it was before."""
    training = [module for module in model.modules() if module.training]
    for module in training:
        module.training = False
    try:
        with torch.inference_mode():
            yield
    finally:
        for module in training:
            module.training = True
