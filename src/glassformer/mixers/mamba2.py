"""Mamba-2: the state-space layer with one decay per head, so that it is a masked linear attention as well (state-space
duality, SSD; Dao & Gu 2024).

    h_t = exp(Δ_t A) h_{t-1} + B_t (Δ_t x_t)ᵀ        y_t = h_tᵀ C_t + D x_t

with a matrix h of n × e numbers for each head, a number A below 0 and a step size Δ_t of its own. C and B, which heads
of a group share, are what queries and keys are in linear attention; the sum is `chunk.gated_sum`.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..call import Call
from ..errors import SettingError
from ..nn.init import InitSpec, Linear
from ..spec import Spec, check_least, check_positive
from ..tap import Card, as_built
from .base import Cost, TokenMixer
from .chunk import CHUNK, gated_sum, read_state, sum_weights
from .mamba import Mamba, MambaState, check_deltas, draw_deltas, nothing_kept
from .shortconv import ShortConv
from .window import edges


class Mamba2Spec(Spec, frozen=True, tag="mamba2"):
    """The state-space layer with one decay per head (Mamba-2).

    expand                channels for each number of the model's width d
    heads                 the channels in so many heads, each with a step size and a decay of its own
    state                 numbers n that each channel keeps
    groups                how many heads have a B and a C of their own (1: one for all)
    conv                  tokens that the convolution before it sees
    bias                  whether the projections into it and out of it have one
    conv_bias             whether the convolution has one
    eps                   of the norm before the output projection
    norm_first            whether that norm comes before the gate, or as published behind it
    limits                the least and the largest that any step size Δ may be; null: no upper limit
    delta_min, delta_max  between which the step sizes Δ start, evenly in their logarithm
    """

    expand: int = 2
    heads: int = 4
    state: int = 128
    groups: int = 1
    conv: int = 4
    bias: bool = False
    conv_bias: bool = True
    eps: float = 1e-5
    norm_first: bool = False
    limits: tuple[float, float | None] = (0.0, None)
    delta_min: float = 0.001
    delta_max: float = 0.1

    def __post_init__(self) -> None:
        check_least(self, 1, "expand", "heads", "state", "groups", "conv")
        check_deltas(self)
        check_positive(self, "eps")
        check_least(self, 0, "limits")
        least, most = self.limits
        if most is not None and most < least:
            raise SettingError(
                f"limits: {most} is below {least}; give the least step size first, or null for the second"
            )
        if self.heads % self.groups:
            fitting = ", ".join(str(n) for n in range(1, min(self.heads, 64) + 1) if self.heads % n == 0)
            raise SettingError(f"groups: {self.groups} does not divide heads={self.heads}; use {fitting}")


class Mamba2(TokenMixer):
    """The layer of Mamba2Spec, `b t d` to `b t d`."""

    symbol, called = "SSM", ("the state-space layer", "상태 공간 층")
    written_out = in_parts = ("weights",)
    writes_residual = ("out",)
    cards = as_built(
        Mamba.cards,
        delta={"formula": "softplus(u_t W_Δ + b_Δ)"},
        b={"formula": "SiLU(conv(u_t W_B))"},
        c={"formula": "SiLU(conv(u_t W_C))"},
        weights={
            "formula": "C_t · B_s exp(A (Δ_{s+1} + … + Δ_t)) Δ_s",
            "en": "How much each head of this token takes from each earlier one, as an attention pattern has it.",
            "ko": "이 토큰의 각 헤드가 앞의 각 토큰에서 가져오는 양으로, 다른 모델의 어텐션 가중치에 해당합니다.",
        },
        y={"formula": "h_tᵀ C_t + D x_t"},
        state={"formula": "h_t = exp(Δ_t A) h_{t−1} + B_t (Δ_t x_t)ᵀ"},
        out={"formula": "RMSNorm(y_t ⊙ SiLU(z_t)) W_O"},
    )

    def __init__(self, spec: Mamba2Spec, dim: int) -> None:
        super().__init__()
        self.spec, self.channels = spec, spec.expand * dim
        if self.channels % spec.heads:
            divisors = ", ".join(str(n) for n in range(1, min(self.channels, 64) + 1) if self.channels % n == 0)
            raise SettingError(f"heads: {spec.heads} does not divide expand·d={self.channels}; use {divisors}")
        self.width, shared = self.channels // spec.heads, 2 * spec.groups * spec.state
        self.into = Linear(dim, 2 * self.channels + shared + spec.heads, bias=spec.bias)
        self.conv = ShortConv(self.channels + shared, spec.conv, spec.conv_bias)
        for name, size in (("delta_bias", spec.heads), ("a_log", spec.heads), ("skip", spec.heads)):
            setattr(self, name, nn.Parameter(torch.full((size,), float("nan"))))
        self.gain = nn.Parameter(torch.full((self.channels,), float("nan")))  # the norm's weights
        self.out = Linear(self.channels, dim, bias=spec.bias)
        self.cards = _cards(spec)

    @torch.no_grad()
    def draw(self, init: InitSpec) -> None:
        """As published: A evenly within -16 … -1, D and the norm's weights 1, Δ in its range."""
        draw_deltas(self.delta_bias, self.spec.delta_min, self.spec.delta_max)
        self.a_log.uniform_(1, 16).log_()
        self.skip.fill_(1.0)
        self.gain.fill_(1.0)

    def empty(self, batch: int, room: int, call: Call) -> MambaState:
        """An empty state `b h n e` and no token before the first."""
        state = nothing_kept(self.out.weight, batch, self.spec.heads, self.spec.state, self.width)
        return MambaState(self.conv.empty(batch), state, state.new_full((batch,), -1, dtype=torch.long))

    def step(self, x: Tensor, state: MambaState, call: Call) -> tuple[Tensor, MambaState]:
        """`b t d` after the past."""
        past, tap, spec = state.take(), call.tap(self), self.spec
        valid, first, document = edges(call, past.document)
        shared = spec.groups * spec.state
        z, x, delta = self.into(x).split((self.channels, self.channels + 2 * shared, spec.heads), -1)
        x, tail = self.conv.after(x, past.tail, call)
        x, b, c = F.silu(x).split((self.channels, shared, shared), -1)
        x, gate = tap("x", x.unflatten(-1, (spec.heads, -1)), "b t h e"), tap("gate", F.silu(z), "b t f")
        delta = F.softplus(delta.to(past.state.dtype) + self.delta_bias).clamp(*spec.limits)
        delta = tap("delta", delta, "b t h").clamp(min=0)  # as in Mamba, whatever an edit made of it
        b, c = (tap(n, v.unflatten(-1, (spec.groups, -1)), "b t g n") for n, v in (("b", b), ("c", c)))
        y, kept = self.mix(x.to(delta.dtype), delta, b, c, past.state, valid, first, call)
        x = call.of_rows(x)
        y = tap("y", (y + self.skip[:, None] * x).to(x.dtype), "b t h e")
        y, gate = y.flatten(-2), call.of_rows(gate)
        y = self.normed(y) * gate if spec.norm_first else self.normed(y * gate)
        return tap("out", self.out(y), "b t d"), MambaState(tail, tap("state", kept, "b h n e"), document)

    def mix(
        self,
        x: Tensor,
        delta: Tensor,
        b: Tensor,
        c: Tensor,
        state: Tensor,
        valid: Tensor | None,
        first: Tensor | None,
        call: Call,
    ) -> tuple[Tensor, Tensor]:
        """The sum without D: (y `b t h e` of the asked rows, the state after it); by weights where somebody looks."""
        decay, where = -self.a_log.to(delta.dtype).exp() * delta, {"valid": valid, "first": first}
        b, c = (v.repeat_interleave(self.spec.heads // self.spec.groups, 2) for v in (b, c))
        y, kept = gated_sum(c, b, delta[..., None] * x, decay, state, **where)
        if not call.wants(self, "weights"):
            return call.of_rows(y), kept
        taken = sum_weights(*(call.of_heads(one) for one in (c, b, decay)), rows=call.rows, **where)
        taken = call.tap(self)("weights", taken * call.of_heads(delta).mT[:, :, None], "b h t s")
        before = call.of_rows(read_state(c, decay, state, **where))
        return torch.einsum("bhts,bshe->bthe", taken, x) + before, kept

    def normed(self, y: Tensor) -> Tensor:
        """RMSNorm over the channels of each group, `b t f`."""
        parts = y.unflatten(-1, (self.spec.groups, -1))
        return F.rms_norm(parts, parts.shape[-1:], None, self.spec.eps).flatten(-2) * self.gain

    def cost(self, n: int, number_bytes: int = 4) -> Cost:
        """Projections, the convolution, and the state of each head, written and read once a token."""
        kept = self.channels * self.spec.state
        return Cost(
            self.into.flops(n) + self.conv.flops(n) + self.out.flops(n),
            scan_flops=4 * n * kept,
            state_bytes=self.conv.state_bytes(number_bytes) + kept * max(number_bytes, 4) + 8,
            steps=-(-n // CHUNK),
        )


def _cards(spec: Mamba2Spec) -> dict[str, Card]:
    """With its biases, the bounds of its step sizes, and its norm where it stands."""
    plus, cards = " + b", Mamba2.cards
    delta = f"softplus(u_t W_Δ{plus if spec.bias else ''} + b_Δ)"
    least, most = spec.limits
    if spec.limits != (0.0, None):
        delta = f"clip({delta}, {least:g}, {'∞' if most is None else f'{most:g}'})"
    out = "(RMSNorm(y_t) ⊙ SiLU(z_t)) W_O" if spec.norm_first else cards["out"].formula
    said = {"delta": delta, "out": f"{out} + b_O" if spec.bias else out}
    if spec.bias:
        said |= {name: cards[name].formula.replace(")", f"{plus})", 1) for name in ("x", "gate", "b", "c")}
    return as_built(cards, **{name: {"formula": formula} for name, formula in said.items()})
