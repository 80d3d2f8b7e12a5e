"""Mamba: a state-space layer whose step size, input and read-out depend on the token (Gu & Dao 2023).

    h_t = exp(Δ_t A) ⊙ h_{t-1} + Δ_t x_t B_t        y_t = h_t · C_t + D ⊙ x_t        (equation 2 and algorithm 2)

for each channel of x with a state of n numbers. Δ decides how much of the past is kept and of the token taken in.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..call import Call
from ..errors import SettingError
from ..nn.init import InitSpec, Linear
from ..spec import Spec, check_least, check_positive
from ..state import State
from ..tap import Card, as_built
from .base import Cost, TokenMixer
from .scan import scan, scan_flops, steps, weights
from .shortconv import ShortConv
from .window import Tail, edges


class MambaSpec(Spec, frozen=True, tag="mamba"):
    """The selective state-space layer (Mamba).

    expand                channels f for each number of the model's width d
    state                 numbers n that each channel keeps
    conv                  tokens that the convolution before it sees
    rank                  width through which Δ is read from the token (None: d / 16, rounded up)
    bias                  whether the projections into it and out of it have one
    conv_bias             whether the convolution has one
    delta_min, delta_max  between which the step sizes Δ start, evenly in their logarithm
    """

    expand: int = 2
    state: int = 16
    conv: int = 4
    rank: int | None = None
    bias: bool = False
    conv_bias: bool = True
    delta_min: float = 0.001
    delta_max: float = 0.1

    def __post_init__(self) -> None:
        check_least(self, 1, "expand", "state", "conv", "rank")
        check_deltas(self)


def check_deltas(spec: Spec) -> None:
    """Raise SettingError where the step sizes do not start within two positive numbers in their order."""
    check_positive(spec, "delta_min", "delta_max")
    if spec.delta_min > spec.delta_max:
        raise SettingError(f"delta_min: {spec.delta_min} is above delta_max={spec.delta_max}; use at most that")


@dataclass(eq=False)
class MambaState(State):
    """The newest tokens before the convolution, the state `b f n` of each channel (fp32 at least), and the document `b`
    of the newest token, as `window.edges` has it."""

    tail: Tail
    state: Tensor
    document: Tensor


class Mamba(TokenMixer):
    """The layer of MambaSpec, `b t d` to `b t d`: widened to x and a gate z, x convolved, scanned, gated, projected."""

    symbol, called = "SSM", ("the state-space layer", "상태 공간 층")
    written_out = in_parts = ("weights",)
    writes_residual = ("out",)
    cards = {
        "x": Card(
            "x_t",
            "SiLU(conv(u_t W_x))",
            "What enters the state: the widened token together with the few before it.",
            "상태에 들어가는 값: 너비를 넓힌 토큰을 바로 앞의 토큰 몇 개와 합성곱한 것입니다.",
            ("S8", "S30"),
        ),
        "gate": Card(
            "SiLU(z_t)",
            "SiLU(u_t W_z)",
            "The gate: how much of each channel is let out for this token.",
            "게이트: 이 토큰에서 채널마다 얼마나 내보낼지 정합니다.",
            ("S30",),
        ),
        "delta": Card(
            "Δ_t",
            "softplus(x_t W_Δ + b_Δ)",
            "The step size: a large one lets the past fade and takes this token in, a small one passes it over.",
            "스텝 크기: 크면 과거를 잊고 이 토큰을 받아들이며, 작으면 이 토큰을 지나칩니다.",
            ("S8", "S30"),
        ),
        "b": Card(
            "B_t",
            "x_t W_B",
            "Where in the state this token is written.",
            "이 토큰을 상태의 어느 곳에 쓸지 나타냅니다.",
            ("S8", "S30"),
        ),
        "c": Card(
            "C_t",
            "x_t W_C",
            "What is read from the state for this token.",
            "이 토큰을 위해 상태에서 무엇을 읽을지 나타냅니다.",
            ("S8", "S30"),
        ),
        "weights": Card(
            "M_ts",
            "Σ_n C_t exp(A (Δ_{s+1} + … + Δ_t)) Δ_s B_s",
            "How much each channel of this token takes from each earlier one, as an attention pattern has it.",
            "이 토큰의 각 채널이 앞의 각 토큰에서 가져오는 양으로, 다른 모델의 어텐션 가중치에 해당합니다.",
            ("S8", "S30"),
        ),
        "y": Card(
            "y_t",
            "C_t h_t + D x_t",
            "What is read from the state, together with the token itself.",
            "상태에서 읽은 값에 토큰 자신의 값을 더한 것입니다.",
            ("S8", "S30"),
        ),
        "state": Card(
            "h_n",
            "h_t = exp(Δ_t A) h_{t−1} + Δ_t x_t B_t",
            "The state after the last token: all that is kept of the text.",
            "마지막 토큰 뒤의 상태: 지금까지의 글에서 남겨 둔 전부입니다.",
            ("S8", "S30"),
        ),
        "out": Card(
            "out_t",
            "(y_t ⊙ SiLU(z_t)) W_O",
            "What this layer adds to the token's vector.",
            "이 층이 토큰 벡터에 더하는 값입니다.",
            ("S30",),
        ),
    }

    def __init__(self, spec: MambaSpec, dim: int) -> None:
        super().__init__()
        self.spec, self.channels = spec, spec.expand * dim
        self.rank = math.ceil(dim / 16) if spec.rank is None else spec.rank
        self.into = Linear(dim, 2 * self.channels, bias=spec.bias)
        self.conv = ShortConv(self.channels, spec.conv, spec.conv_bias)
        self.select = Linear(self.channels, self.rank + 2 * spec.state, bias=False)
        nan = float("nan")
        self.delta_weight = nn.Parameter(torch.full((self.channels, self.rank), nan))
        self.delta_bias = nn.Parameter(torch.full((self.channels,), nan))
        self.a_log = nn.Parameter(torch.full((self.channels, spec.state), nan))  # A = -exp(a_log)
        self.skip = nn.Parameter(torch.full((self.channels,), nan))  # D
        self.out = Linear(self.channels, dim, bias=spec.bias)
        if spec.bias:
            into, gate, out = "SiLU(conv(u_t W_x + b_x))", "SiLU(u_t W_z + b_z)", f"{Mamba.cards['out'].formula} + b_O"
            self.cards = as_built(Mamba.cards, x={"formula": into}, gate={"formula": gate}, out={"formula": out})

    def draw(self, init: InitSpec) -> None:
        """As published: A = -1 … -n in every channel (S4D-Real), D = 1, Δ in its range."""
        nn.init.uniform_(self.delta_weight, -(self.rank**-0.5), self.rank**-0.5)
        draw_deltas(self.delta_bias, self.spec.delta_min, self.spec.delta_max)
        with torch.no_grad():
            self.a_log.copy_(torch.arange(1, self.spec.state + 1).log())
        nn.init.ones_(self.skip)

    def empty(self, batch: int, room: int, call: Call) -> MambaState:
        """An empty state and no token before the first."""
        state = nothing_kept(self.out.weight, batch, self.channels, self.spec.state)
        return MambaState(self.conv.empty(batch), state, state.new_full((batch,), -1, dtype=torch.long))

    def step(self, x: Tensor, state: MambaState, call: Call) -> tuple[Tensor, MambaState]:
        """`b t d` after the past."""
        past, tap = state.take(), call.tap(self)
        valid, first, document = edges(call, past.document)
        x, z = self.into(x).chunk(2, -1)
        x, tail = self.conv.after(x, past.tail, call)
        x, gate = tap("x", F.silu(x), "b t f"), tap("gate", F.silu(z), "b t f")
        low, b, c = self.select(x).split((self.rank, self.spec.state, self.spec.state), -1)
        delta = F.linear(low, self.delta_weight).to(past.state.dtype) + self.delta_bias
        delta, b, c = tap("delta", F.softplus(delta), "b t f"), tap("b", b, "b t n"), tap("c", c, "b t n")
        delta = delta.clamp(min=0)  # whatever an edit made of it: backwards in time a state grows without end
        delta = delta if valid is None else torch.where(valid[..., None], delta, 0.0)
        y, kept = self.mix(x.to(delta.dtype), delta, b, c, past.state, first, call)
        x = call.of_rows(x)
        y = tap("y", (y + self.skip * x).to(x.dtype), "b t f")
        out = tap("out", self.out(y * call.of_rows(gate)), "b t d")
        return out, MambaState(tail, tap("state", kept, "b f n"), document)

    def mix(
        self, x: Tensor, delta: Tensor, b: Tensor, c: Tensor, state: Tensor, first: Tensor | None, call: Call
    ) -> tuple[Tensor, Tensor]:
        """The scan without D: (y `b t f` of the asked rows, the state after it); by its weights where somebody looks at
        them."""
        a = -self.a_log.to(delta.dtype).exp()
        y, kept = scan(delta * x, delta, a, b, c, state, first)
        if not call.wants(self, "weights"):
            return call.of_rows(y), kept
        some = call.of_heads(delta)
        taken = weights(some, call.of_heads(a, 0), b, c, first, call.rows) * some.mT[:, :, None]
        taken = call.tap(self)("weights", taken, "b f t s")
        before, _ = scan(torch.zeros_like(x), delta, a, b, c, state, first)
        return (taken @ x.mT[..., None])[..., 0].mT + call.of_rows(before), kept

    def cost(self, n: int, number_bytes: int = 4) -> Cost:
        """Projections, the convolution and the scan."""
        flops = self.into.flops(n) + self.conv.flops(n) + self.select.flops(n) + self.out.flops(n)
        kept = self.a_log.numel()
        return Cost(
            flops + 2 * n * self.delta_weight.numel(),
            scan_flops=scan_flops(n, kept),
            state_bytes=self.conv.state_bytes(number_bytes) + kept * max(number_bytes, 4) + 8,
            steps=steps(n),
        )


def nothing_kept(like: Tensor, *shape: int) -> Tensor:
    """A state of zeros, in fp32 at least: what is added to it over a long text would be lost in fewer digits."""
    return like.new_zeros(shape, dtype=torch.promote_types(like.dtype, torch.float32))


@torch.no_grad()
def draw_deltas(bias: Tensor, least: float, most: float) -> None:
    """Biases of which softplus is a step size between least and most, evenly drawn in its logarithm."""
    delta = torch.empty_like(bias).uniform_(math.log(least), math.log(most)).exp()
    bias.copy_(delta + torch.log(-torch.expm1(-delta)))  # the inverse of softplus
