"""Mixers without parameters, to compare the others with: a Fourier transform over positions, and a running mean."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ..call import Call
from ..spec import Spec
from ..state import State
from ..tap import Card, as_built
from .base import Cost, TokenMixer
from .window import edges, numbers


class FourierSpec(Spec, frozen=True, tag="fourier"):
    """The real part of the discrete Fourier transform over features and positions, Re F(F(x)) (Lee-Thorp et al. 2021,
    equation 3). Every document is transformed by itself, over as many positions as it has.

    unitary  divide by √(n d), which keeps the length of what is transformed; the paper does not, since a norm follows
    """

    unitary: bool = False


class BagSpec(Spec, frozen=True, tag="bag"):
    """The mean of the vectors of the document so far: a bag, which keeps no order."""


class Fourier(TokenMixer):
    """The transform of FourierSpec: the fast one for each document. Whoever looks at its weights gets the sum itself,
    with n² numbers for each row, and so does a compiled graph of documents that differ in length."""

    causal = False
    symbol, called = "F(x)", ("the Fourier transform", "푸리에 변환")
    written_out = in_parts = ("weights",)
    cards = {
        "values": Card(
            "F_d(x)",
            "Re F_d(x), Im F_d(x)",
            "The transform over features: its real part (h = 0) and its imaginary part (h = 1).",
            "특징 방향의 푸리에 변환으로, h = 0은 실수부, h = 1은 허수부입니다.",
            ("S23",),
        ),
        "weights": Card(
            "e^{−2πi·ts/n}",
            "cos(2π·ts/n), sin(2π·ts/n)",
            "How much of each token enters each position: a cosine (h = 0) and a sine (h = 1), whatever it is.",
            "각 토큰이 각 위치에 들어가는 가중치입니다. 토큰과 상관없이 정해진 코사인(h = 0)과 사인(h = 1)입니다.",
            ("S23",),
        ),
        "out": Card(
            "Re F(x)",
            "Σ_h Σ_s weights · values",
            "What the Fourier transform adds to this token's vector.",
            "푸리에 변환이 이 토큰 벡터에 더하는 값입니다.",
            ("S23",),
        ),
    }

    def __init__(self, spec: FourierSpec, dim: int) -> None:
        super().__init__()
        self.spec, self.dim = spec, dim
        if spec.unitary:
            self.cards = as_built(
                self.cards,
                values={"formula": "Re F_d(x)/√d, Im F_d(x)/√d"},
                weights={"formula": "cos(2π·ts/n)/√n, sin(2π·ts/n)/√n"},
            )

    def parallel(self, x: Tensor, call: Call) -> Tensor:
        """`b t d` to `b t d`."""
        wide = x.to(torch.promote_types(x.dtype, torch.float32))  # no transform knows half precision
        norm = "ortho" if self.spec.unitary else "backward"
        with torch.autocast(x.device.type, enabled=False):
            across = torch.fft.fft(wide, dim=2, norm=norm)
            looked_at = call.wants(self, "weights", "values")
            if call.plain and not looked_at:
                out = call.of_rows(torch.fft.fft(across, dim=1, norm=norm).real)
            elif not looked_at and not torch.compiler.is_compiling():
                out = call.of_rows(self._by_document(across, call, norm))
            else:
                tap = call.tap(self)
                values = tap("values", torch.stack((across.real, across.imag), 2), "b s h d")
                weights = tap("weights", call.of_heads(self._weights(call, wide), 1), "b h t s")
                out = (weights @ values.transpose(1, 2)).sum(1)  # b h t d
        return call.tap(self)("out", out.to(x.dtype), "b t d")

    def _by_document(self, across: Tensor, call: Call, norm: str) -> Tensor:
        """The fast transform over positions of each document, `b t d`; their lengths are found in the data."""
        (batch, t, _), flat = across.shape, across.flatten(0, 1)
        number = numbers(call, batch)
        places = (number >= 0).flatten().nonzero()[:, 0]  # those of a document follow one another
        owner = (number + t * torch.arange(batch, device=number.device)[:, None]).flatten()[places]
        lengths = owner.unique_consecutive(return_counts=True)[1].tolist()
        parts = [torch.fft.fft(part, dim=0, norm=norm).real for part in flat[places].split(lengths)]
        made = torch.cat((flat[:0].real, *parts))
        return torch.zeros_like(flat.real).index_copy(0, places, made).unflatten(0, (batch, t))

    def _weights(self, call: Call, x: Tensor) -> Tensor:
        """The cosines and sines `b h t s` of each document, of x's type; 0 between two documents and off the tokens."""
        number = numbers(call, x.shape[0])
        so_far, document = (number >= 0).cumsum(1), number.cummax(1).values  # tokens and documents
        begun = document > torch.nn.functional.pad(document[:, :-1], (1, 0), value=-1)
        place = (so_far - torch.where(begun, so_far, 1).cummax(1).values).clamp(min=0)
        asked = call.of_rows(number)
        same = (asked[:, :, None] == number[:, None, :]) & (asked >= 0)[:, :, None]
        count = same.sum(2, keepdim=True).clamp(min=1)
        turns = call.of_rows(place)[:, :, None] * place[:, None, :]
        turns %= count  # in whole numbers, so that no angle is large
        count = count.to(x.dtype)
        angle = turns.to(x.dtype).mul_(2 * math.pi / count)
        del turns  # twice as large as what it became
        weights = torch.stack((angle.cos(), angle.sin()), 1).mul_(same[:, None])
        return weights.div_(count.sqrt()[:, None]) if self.spec.unitary else weights

    def cost(self, n: int, number_bytes: int = 4) -> Cost:
        """5 N log₂ N of the fast transform of N = n·d numbers."""
        size = n * self.dim
        return Cost(0, scan_flops=round(5 * size * math.log2(size)))


@dataclass(eq=False)
class Total(State):
    """The sum `b d` and the number `b` of the tokens of the newest document `b` (-1: there was none) so far. The sum is
    kept in double precision, since what is taken from a long sum must not be lost in it."""

    total: Tensor
    count: Tensor
    document: Tensor


class Bag(TokenMixer):
    """The running mean of BagSpec; its past is one sum."""

    symbol, called = "Mean", ("the running mean", "누적 평균")
    written_out = in_parts = ("weights",)
    cards = {
        "weights": Card(
            "1/t",
            "1 / (number of tokens so far)",
            "How much of each token enters the mean: the same of all so far. In a step, of its new tokens.",
            "지금까지 나온 토큰이 모두 같은 몫으로 평균에 들어갑니다. 한 단계씩 계산할 때는 새 토큰만 나옵니다.",
            ("S8", "S23"),
        ),
        "out": Card(
            "x̄_t",
            "Σ_{s≤t} x_s / t",
            "What the mean of the tokens so far adds to this token's vector; their order is gone.",
            "지금까지 나온 토큰들의 평균이 이 토큰 벡터에 더하는 값이며, 순서는 남지 않습니다.",
            ("S8", "S23"),
        ),
    }

    def __init__(self, spec: BagSpec, dim: int) -> None:
        super().__init__()
        self.spec, self.dim = spec, dim

    def empty(self, batch: int, room: int, call: Call) -> Total:
        """Nothing in the bag."""
        none = torch.zeros(batch, dtype=torch.long, device=call.pos.device)
        return Total(none.new_zeros(batch, self.dim, dtype=torch.float64), none, none - 1)

    def step(self, x: Tensor, state: Total, call: Call) -> tuple[Tensor, Total]:
        """`b t d` after the past."""
        past, t = state.take(), x.shape[1]
        valid, first, document = edges(call, past.document)
        valid = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device) if valid is None else valid
        first = torch.zeros_like(valid) if first is None else first
        begin = torch.where(first, torch.arange(t, device=x.device), -1).cummax(1).values  # b t; -1: in the past
        old = begin < 0
        total = self._sums(x.double() * valid[..., None], begin) + past.total[:, None] * old[..., None]
        count = self._sums(valid[..., None].long(), begin)[..., 0] + past.count[:, None] * old
        state = Total(total[:, -1], count[:, -1], document)
        if call.wants(self, "weights"):
            mean = self._looked_at(x, past, begin, count, valid, call)
        else:
            mean = call.of_rows(total / count.clamp(min=1)[..., None])
        return call.tap(self)("out", mean.to(x.dtype), "b t d"), state

    def _sums(self, values: Tensor, begin: Tensor) -> Tensor:
        """The sum of values `b t …` from each place's `begin` `b t` (below 0: from the first) up to it."""
        running = values.cumsum(1)
        until = (running - values).gather(1, begin.clamp(min=0)[..., None].expand_as(values))
        return running - until * (begin >= 0)[..., None]

    def _looked_at(self, x: Tensor, past: Total, begin: Tensor, count: Tensor, valid: Tensor, call: Call) -> Tensor:
        """The mean `b t d` of the asked rows, a weighted sum of the new tokens, with the past's share as one vector."""
        place = torch.arange(x.shape[1], device=x.device)
        row, begin, count = call.of_rows(place, 0), call.of_rows(begin), call.of_rows(count)
        share = 1 / count.clamp(min=1).to(torch.promote_types(x.dtype, torch.float32))
        seen = (place <= row[:, None]) & (place >= begin[..., None]) & valid[:, None]
        weights = call.tap(self)("weights", seen * share[..., None], "b t s")
        with torch.autocast(x.device.type, enabled=False):
            return weights @ x.to(share.dtype) + past.total[:, None] * (share * (begin < 0))[..., None]

    def cost(self, n: int, number_bytes: int = 4) -> Cost:
        """A sum and a division for each number; one sum is kept, in double precision, with two whole numbers."""
        return Cost(0, scan_flops=2 * n * self.dim, state_bytes=8 * self.dim + 16)
