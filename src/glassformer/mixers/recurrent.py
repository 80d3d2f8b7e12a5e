"""Recurrent mixers: a tanh RNN, a GRU or an LSTM, in one direction or in both.

Every token changes one state, which is all that later tokens know of it (S6): its size does not grow with the text, and
the n steps must wait for one another. When nobody looks PyTorch's kernels compute it, over the pieces that gaps and
documents leave; otherwise the loop of `unrolled`, in which every gate can be seen and edited.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from ..call import Call
from ..errors import SettingError
from ..nn.init import Linear
from ..state import State
from ..tap import Card, as_built
from .base import Cost, TokenMixer
from .cells import CELLS, Cell, GruSpec, LstmSpec, Parts, RecurrentSpec, RnnSpec, Start, StartSpec
from .packing import Packing
from .stepwise import StepTap, over_positions
from .window import edges

__all__ = ["GruSpec", "LstmSpec", "Recurrent", "RecurrentState", "RnnSpec", "StartSpec"]


@dataclass(eq=False)
class RecurrentState(State):
    """The state after the newest token, (h,) or (h, c), each `b n`; and the packed document `b` of that token."""

    parts: Parts
    document: Tensor


@dataclass(frozen=True)
class Places:
    """Where tokens are (`valid` `b t`) and where a recurrence forgets what came before (`first` `b t`); None:
    everywhere, and nowhere. backward: it reads from the end."""

    valid: Tensor | None
    first: Tensor | None
    backward: bool = False

    def turned(self) -> Places:
        """For the other direction: a document's last token is its first. `first` is still in the text's order."""
        if self.valid is None or self.first is None:
            return Places(self.valid, None, True)
        # The newest token so far, from the end, and whether a document begins with it: then the next one is another's.
        valid, first = self.valid.flip(1), self.first.flip(1)
        place = torch.where(valid, torch.arange(1, valid.shape[1] + 1, device=valid.device), 0).cummax(1).values
        line = F.pad(first, (1, 0))
        ended = F.pad(line.gather(1, place), (1, 0))[:, :-1]
        return Places(self.valid, (valid & ended).flip(1), True)

    def packing(self) -> Packing:
        """The pieces of the rows, in the order in which they are read."""
        found = (x.flip(1) if self.backward and x is not None else x for x in (self.valid, self.first))
        return Packing.of(*found)


def unrolled(cell: Cell, read: Tensor, past: Parts, places: Places, tap: StepTap) -> tuple[Tensor, Parts]:
    """The recurrence, token by token: (hidden states `b t n`, the last state). read: W x + b, `b t (k n)`.

    A place without a token leaves the state as it is; where a document begins, the state begins at zero.
    """
    hidden: dict[int, Tensor] = {}
    t, line = read.shape[1], read.unbind(1)  # cut once: on the way back each single cut would fill a whole `b t (k n)`
    for at in reversed(range(t)) if places.backward else range(t):
        if places.first is not None:
            past = tuple(part.masked_fill(places.first[:, at, None], 0) for part in past)
        new = cell.next(line[at], past, tap, at)
        hidden[at] = new[0]
        if places.valid is not None:
            there = places.valid[:, at, None]
            hidden[at] = new[0].masked_fill(~there, 0)  # as the packed rows have it
            new = tuple(torch.where(there, a, b) for a, b in zip(new, past, strict=True))
        past = new
    return torch.stack([hidden[at] for at in range(t)], 1), past


class Recurrent(TokenMixer):
    """The mixer of RnnSpec, GruSpec or LstmSpec. `cell` reads from the beginning, `back` from the end."""

    called = ("the recurrence", "순환 신경망")
    written_out = ("cell.hidden",)
    widens = True
    cards = {
        "out": Card(
            "h_t W_O",
            "h_t W_O",
            "What the recurrence adds to this token's vector.",
            "순환 신경망이 이 토큰 벡터에 더하는 값입니다.",
            ("S6",),
        )
    }

    def __init__(self, spec: RecurrentSpec, dim: int, out: int | None = None) -> None:
        super().__init__()
        self.spec, self.causal, self.symbol = spec, not spec.bidirectional, spec.__struct_config__.tag.upper()
        width = spec.hidden or dim
        directions = 1 + spec.bidirectional
        self.cell = CELLS[type(spec)](spec, dim, width)
        self.back = CELLS[type(spec)](spec, dim, width) if spec.bidirectional else None
        out = out or dim
        if not spec.project and directions * width != out:
            fitting = f"hidden={out // directions}, or project=true" if out % directions == 0 else "project=true"
            raise SettingError(
                f"project: states of {directions * width} numbers do not fit d={out} as they are; set {fitting}"
            )
        self.out = Linear(directions * width, out) if spec.project else None
        self.writes_residual = ("out",) if spec.project else ()
        if spec.start is not None and spec.bidirectional:
            raise SettingError("start: a decoder reads in one direction; set bidirectional=false, or start=null")
        self.start = Start(spec.start, dim, self.cell) if spec.start else None
        self.cards = _cards(spec)

    # ------------------------------------------------------------ the contract

    def empty(self, batch: int, room: int, call: Call) -> RecurrentState:
        """Zeros, or what the encoder's last state makes of them."""
        like = self.cell.recurrent
        document = torch.full((batch,), -1, dtype=torch.long, device=like.device)
        if self.start is None:
            parts = tuple(like.new_zeros(batch, self.cell.width) for _ in range(self.cell.states))
        else:
            parts = self.start(call)
        return RecurrentState(parts, document)

    def step(self, x: Tensor, state: RecurrentState, call: Call) -> tuple[Tensor, RecurrentState]:
        """`b t d` after the past."""
        past = state.take()
        valid, first, document = edges(call, past.document)
        first = None if self.start is not None else first  # what the encoder gave is no past to be forgotten
        hidden, parts = self.recur(self.cell, x, past.parts, Places(valid, first), call)
        self._hand_over(parts, call)
        return self._given(hidden, call), RecurrentState(parts, document)

    def parallel(self, x: Tensor, call: Call) -> Tensor:
        """`b t d` to `b t d`, the whole sequence."""
        empty = self.empty(x.shape[0], x.shape[1], call)
        if self.back is None:
            return self.step(x, empty, call)[0]
        valid, first, _ = edges(call, empty.document)
        ahead, last = self.recur(self.cell, x, empty.parts, Places(valid, first), call)
        back, end = self.recur(self.back, x, empty.parts, Places(valid, first).turned(), call)
        self._hand_over(tuple(torch.cat(pair, -1) for pair in zip(last, end, strict=True)), call)
        return self._given(torch.cat((ahead, back), -1), call)

    def cost(self, n: int, number_bytes: int = 4) -> Cost:
        """n steps, each of which waits for the one before; of W x + U h 4 d² FLOPs a token, of a GRU 12 d², of an LSTM
        16 d², where the state is as wide as the model."""
        cells = [cell for cell in (self.cell, self.back) if cell is not None]
        flops = sum(cell.flops(n) for cell in cells) + (self.out.flops(n) if self.out is not None else 0)
        flops += 0 if self.start is None else self.start.bridge.flops(1)
        kept = self.cell.states * self.cell.width * number_bytes + 8
        return Cost(flops, state_bytes=kept if self.causal else 0, steps=n, relay=1)

    # ------------------------------------------------------------ parts

    def recur(self, cell: Cell, x: Tensor, past: Parts, places: Places, call: Call) -> tuple[Tensor, Parts]:
        """Hidden states `b t n` of one direction, and its last state."""

        def turned(x: Tensor) -> Tensor:
            return x.flip(1) if places.backward else x

        if cell.has_kernel and not call.wants(cell, *cell.cards):
            if places.valid is None:
                hidden, parts = cell.fused(turned(x), past)
                return turned(hidden), parts
            if not torch.compiler.is_compiling():  # how long documents are is found in the data
                packing = call.once(("packing", places.backward, places.first is None), places.packing)
                hidden, parts = packing.run(cell.fused, turned(x), past)
                return turned(hidden), parts
        read = cell.read(x)
        return over_positions(call, {cell: cell.axes}, lambda tap_of: unrolled(cell, read, past, places, tap_of(cell)))

    def _given(self, hidden: Tensor, call: Call) -> Tensor:
        return call.tap(self)("out", hidden if self.out is None else self.out(hidden), "b t d")

    def _hand_over(self, parts: Parts, call: Call) -> None:
        if call.ends is not None:
            call.ends.append(torch.cat(parts, -1))


def _cards(spec: RecurrentSpec) -> dict[str, Card]:
    state = "[h→_t; h←_t]" if spec.bidirectional else "h_t"
    formula = f"{state} W_O + b_O" if spec.project else state
    return as_built(Recurrent.cards, out={"symbol": formula, "formula": formula})
