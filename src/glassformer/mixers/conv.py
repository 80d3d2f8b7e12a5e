"""Convolutions over tokens: each token is a weighted sum of its neighbours, with the same weights at every position.

y[t, k] = b[k] + Σ_u Σ_c W[u, c, k] · x[t + u, c]              (cross-correlation, as LeCun et al. 1998 apply it)

A causal one looks at the tokens up to its own, so u counts from the oldest of them; one that is not causal has its own
token in the middle.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..call import Call
from ..errors import SettingError
from ..nn.init import Conv, InitSpec
from ..spec import Spec, check_least, check_share
from ..state import State
from ..tap import Card, as_built
from .base import Cost, TokenMixer
from .window import Tail, around, joined, previous


class ConvSpec(Spec, frozen=True, tag="conv"):
    """One convolution over tokens.

    width      how many tokens it weighs
    dilation   the distance between two of them
    depthwise  each feature is summed by itself, without the others
    causal     it looks back only; otherwise as far ahead, with the token itself in the middle of an odd width
    gate       (x∗W + b) ⊙ σ(x∗V + c), a second convolution that decides what passes (Dauphin et al. 2017, equation 1)
    bias       whether there are b and c
    """

    width: int = 3
    dilation: int = 1
    depthwise: bool = False
    causal: bool = True
    gate: bool = False
    bias: bool = True

    def __post_init__(self) -> None:
        check_least(self, 1, "width", "dilation")
        if not self.causal and self.width % 2 == 0:
            raise SettingError(
                f"width: {self.width} has no middle, where the token would stand; use an odd width, or causal=true"
            )


class TcnSpec(Spec, frozen=True, tag="tcn"):
    """One level of a temporal convolutional network (Bai, Kolter & Koltun 2018, figure 1b): two causal convolutions,
    each followed by ReLU and dropout. The block adds the result to what came in.

    width, dilation  of both convolutions
    hidden           the width between them (None: the model's)
    weight_norm      each filter is a direction and a length, W = g·V/|V| (Salimans & Kingma 2016, equation 2)
    dropout          share of the activations that is dropped in training
    """

    width: int = 3
    dilation: int = 1
    hidden: int | None = None
    weight_norm: bool = True
    dropout: float = 0.0

    def __post_init__(self) -> None:
        check_least(self, 1, "width", "dilation", "hidden")
        check_share(self, "dropout")


class Kernel(Conv):
    """The weights of one convolution, with a learned length `gain` of each filter where it is `normed`."""

    def __init__(self, inputs: int, outputs: int, spec: ConvSpec | TcnSpec, bias: bool = True, normed: bool = False):
        groups = inputs if getattr(spec, "depthwise", False) else 1
        super().__init__(inputs, outputs, spec.width, dilation=spec.dilation, groups=groups, bias=bias)
        self.gain = nn.Parameter(torch.full((outputs,), float("nan"))) if normed else None

    @torch.no_grad()
    def draw(self, init: InitSpec) -> None:
        """Every filter starts with the length that was drawn, as it would without the gain."""
        if self.gain is not None:
            self.gain.copy_(self.weight.flatten(1).norm(dim=1))

    @property
    def filters(self) -> Tensor:
        """The weights as they act, `f d k`."""
        if self.gain is None:
            return self.weight
        return self.weight * (self.gain / self.weight.flatten(1).norm(dim=1).clamp(min=1e-12))[:, None, None]

    def forward(self, line: Tensor) -> Tensor:
        """`b r+t d`, in which the first output covers the first r+1 tokens, to `b t f`."""
        return F.conv1d(line.mT, self.filters, self.bias, dilation=self.dilation, groups=self.groups).mT

    def over(self, seen: Tensor) -> Tensor:
        """The same where the tokens that each output covers are laid out: `b t k d` to `b t f`."""
        if self.groups == 1:
            return F.linear(seen.flatten(2), self.filters.transpose(1, 2).flatten(1), self.bias)
        wide = torch.promote_types(seen.dtype, torch.float32)  # rounded once, as the kernel does it
        out = (seen.to(wide) * self.filters[:, 0].T).sum(2)
        return (out if self.bias is None else out + self.bias).to(seen.dtype)

    @property
    def reach(self) -> int:
        """How many places its first and its last weight are apart."""
        return (self.kernel_size[0] - 1) * self.dilation[0]


def before_each(x: Tensor, tail: Tail, call: Call, kernel: Kernel) -> tuple[Callable[[Kernel], Tensor], Tail]:
    """What applies a causal kernel of this shape to the tokens in x `b t d`, and the new tail."""
    if call.plain:
        line, tail = joined(x, tail)
        return lambda one: one(line), tail
    seen, tail = previous(x, tail, call, kernel.kernel_size[0], kernel.dilation[0])
    return lambda one: one.over(seen), tail


class Convolution(TokenMixer):
    """The convolution of ConvSpec; its past is the tokens that it still reaches."""

    symbol, called = "Conv", ("the convolution", "합성곱")
    writes_residual = ("conv",)
    cards = {
        "pre": Card(
            "x∗W+b",
            "x∗W+b",
            "The weighted sum of the neighbouring tokens, before the gate.",
            "이웃한 토큰들의 가중합으로, 게이트를 곱하기 전의 값입니다.",
            ("S4",),
        ),
        "gate": Card(
            "σ(x∗V+c)",
            "σ(x∗V+c)",
            "How far each feature of the sum is let through.",
            "가중합의 특징마다 얼마나 통과시킬지 정하는 게이트입니다.",
            ("S4",),
        ),
        "out": Card(
            "x∗W+b",
            "b + Σ_u W_u x_{t+u}",
            "What the convolution adds to this token's vector: a weighted sum of its neighbours, the same weights at "
            "every position.",
            "모든 위치에서 같은 가중치로 이웃한 토큰들을 합해 이 토큰 벡터에 더하는 값입니다.",
            ("S4", "S5"),
        ),
    }

    def __init__(self, spec: ConvSpec, dim: int) -> None:
        super().__init__()
        self.spec, self.dim, self.causal = spec, dim, spec.causal
        self.conv = Kernel(dim, dim, spec, spec.bias)
        self.gate = Kernel(dim, dim, spec, spec.bias) if spec.gate else None
        self.cards = _cards(spec)

    def empty(self, batch: int, room: int, call: Call) -> Tail:
        """Nothing before."""
        return Tail.none(batch, self.conv.reach, self.conv.weight, self.dim)

    def step(self, x: Tensor, state: Tail, call: Call) -> tuple[Tensor, Tail]:
        """`b t d` after the past."""
        apply, tail = before_each(x, state.take(), call, self.conv)
        return self._gated(apply, call), tail

    def parallel(self, x: Tensor, call: Call) -> Tensor:
        """`b t d` to `b t d`, the whole sequence."""
        if self.causal:
            return super().parallel(x, call)
        if call.plain:
            line = F.pad(x, (0, 0, self.conv.reach // 2, self.conv.reach // 2))
            return self._gated(lambda one: one(line), call)
        seen = around(x, call, self.spec.width, self.spec.dilation)
        return self._gated(lambda one: one.over(seen), call)

    def _gated(self, apply: Callable[[Kernel], Tensor], call: Call) -> Tensor:
        tap, out = call.tap(self), apply(self.conv)
        if self.gate is not None:
            out = tap("pre", out, "b t d") * tap("gate", torch.sigmoid(apply(self.gate)), "b t d")
        return tap("out", out, "b t d")

    def cost(self, n: int, number_bytes: int = 4) -> Cost:
        """One or two convolutions; the tokens within reach are kept."""
        flops = self.conv.flops(n) + (0 if self.gate is None else self.gate.flops(n))
        if not self.causal:
            return Cost(flops, reach=self.conv.reach // 2, stride=self.spec.dilation)
        state_bytes = tail_bytes(self.conv, number_bytes)
        return Cost(flops, state_bytes=state_bytes, reach=self.conv.reach, stride=self.spec.dilation)


@dataclass(eq=False)
class Tails(State):
    """The newest inputs of both convolutions of a level."""

    first: Tail
    second: Tail


class TcnLevel(TokenMixer):
    """The level of TcnSpec; its past is what both convolutions still reach."""

    symbol, called = "TCN", ("the convolutions", "합성곱 두 층")
    # No projection is said to write to the residual: with a ReLU behind it, one that starts at zero would never learn.
    cards = {
        "pre": Card(
            "x∗W₁+b₁",
            "b₁ + Σ_u W₁_u x_{t+u}",
            "The first convolution: a weighted sum of this token and those before it.",
            "첫째 합성곱: 이 토큰과 그 앞 토큰들의 가중합입니다.",
            ("S4",),
        ),
        "hidden": Card(
            "h",
            "ReLU(x∗W₁+b₁)",
            "What the second convolution reads.",
            "둘째 합성곱이 읽는 값입니다.",
            ("S4",),
        ),
        "out": Card(
            "F(x)",
            "ReLU(b₂ + Σ_u W₂_u h_{t+u})",
            "What this level adds to this token's vector; it looks twice as far back as one convolution.",
            "이 층이 토큰 벡터에 더하는 값으로, 합성곱 하나보다 두 배 먼 앞까지 봅니다.",
            ("S4", "S5"),
        ),
    }

    def __init__(self, spec: TcnSpec, dim: int) -> None:
        super().__init__()
        hidden = dim if spec.hidden is None else spec.hidden
        self.spec = spec
        self.first = Kernel(dim, hidden, spec, normed=spec.weight_norm)
        self.second = Kernel(hidden, dim, spec, normed=spec.weight_norm)
        place = _place(spec, self.first.reach)
        self.cards = as_built(
            self.cards,
            pre={"formula": f"b₁ + Σ_u W₁_u x_{place}"},
            out={"formula": f"ReLU(b₂ + Σ_u W₂_u h_{place})"},
        )

    def empty(self, batch: int, room: int, call: Call) -> Tails:
        """Nothing before either of them."""
        return Tails(*(Tail.none(batch, k.reach, k.weight, k.in_channels) for k in (self.first, self.second)))

    def step(self, x: Tensor, state: Tails, call: Call) -> tuple[Tensor, Tails]:
        """`b t d` after the past."""
        past, tap = state.take(), call.tap(self)
        apply, first = before_each(x, past.first, call, self.first)
        hidden = tap("hidden", self._active(tap("pre", apply(self.first), "b t f")), "b t f")
        apply, second = before_each(hidden, past.second, call, self.second)
        return tap("out", self._active(apply(self.second)), "b t d"), Tails(first, second)

    def _active(self, x: Tensor) -> Tensor:
        x = F.relu(x)
        return F.dropout(x, self.spec.dropout, self.training) if self.spec.dropout else x

    def cost(self, n: int, number_bytes: int = 4) -> Cost:
        """Two convolutions, and what both still reach."""
        kernels = (self.first, self.second)
        return Cost(
            sum(one.flops(n) for one in kernels),
            state_bytes=sum(tail_bytes(one, number_bytes) for one in kernels),
            reach=sum(one.reach for one in kernels),
            stride=self.spec.dilation,
        )


def tail_bytes(kernel: Kernel, number_bytes: int) -> int:
    """Of the tokens that a causal kernel reaches: each with the document that it belongs to."""
    return kernel.reach * (kernel.in_channels * number_bytes + 8)


def _place(spec: ConvSpec | TcnSpec, back: int) -> str:
    """Which token the weight u is for, where the oldest lies so far back."""
    return "{t" + (f"−{back}" if back else "") + ("+u" if spec.dilation == 1 else f"+{spec.dilation}u") + "}"


def _cards(spec: ConvSpec) -> dict[str, Card]:
    """The formulas of this kernel: how far it looks, its biases, its gate."""
    reach = (spec.width - 1) * spec.dilation
    place, times = _place(spec, reach if spec.causal else reach // 2), " ⊙ " if spec.depthwise else " "

    def of(weight: str, bias: str) -> str:
        return (f"{bias} + " if spec.bias else "") + f"Σ_u {weight}_u{times}x_{place}"

    pre, gate = ("x∗W+b", "σ(x∗V+c)") if spec.bias else ("x∗W", "σ(x∗V)")
    if not spec.gate:
        return as_built(Convolution.cards, pre=None, gate=None, out={"symbol": pre, "formula": of("W", "b")})
    gated = f"({pre})⊙{gate}" if spec.bias else f"{pre}⊙{gate}"
    return as_built(
        Convolution.cards,
        pre={"symbol": pre, "formula": of("W", "b")},
        gate={"symbol": gate, "formula": f"σ({of('V', 'c')})"},
        out={
            "symbol": gated,
            "formula": gated,
            "en": "What the gated convolution adds to this token's vector: of the weighted sum of its neighbours what "
            "the gate lets through.",
            "ko": "이웃한 토큰들의 가중합 가운데 게이트를 통과해 이 토큰 벡터에 더해지는 값입니다.",
        },
    )
