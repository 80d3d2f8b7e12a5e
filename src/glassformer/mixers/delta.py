"""DeltaNet: linear attention whose state can be rewritten, by the delta rule (`deltarule`).

    q, k, v = silu(conv(x W)), q and k of length 1        β = σ(x W_β)        (Yang et al. 2024, section 3.3)

With `decay` the gated delta rule, α = exp(-A · softplus(x W_α + b))          (Yang et al. 2025, section 3.2)
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..call import Call
from ..nn.init import InitSpec, Linear
from ..nn.norm import NormSpec, RMSNormSpec
from ..spec import check_least
from ..state import Nothing, State
from ..tap import Card, as_built
from .base import Cost
from .deltarule import delta_sum, delta_weights, read_before
from .matrix import MatrixMixer, MatrixSpec, MatrixState
from .shortconv import ShortConv
from .window import edges


class DeltaSpec(MatrixSpec, frozen=True, tag="delta"):
    """The delta rule; the defaults are those of DeltaNet.

    norm   of what each head has read
    conv   how many tokens the convolution of each channel of q, k and v weighs; None: there is none
    decay  whether a gate per head lets the whole state fade as well
    """

    norm: NormSpec | None = RMSNormSpec()
    conv: int | None = 4
    decay: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_least(self, 1, "conv")


@dataclass(eq=False)
class DeltaState(MatrixState):
    """The matrices, and the newest tokens before the convolution."""

    tail: State


class DeltaRule(MatrixMixer):
    """The layer of DeltaSpec, `b t d` to `b t d`."""

    symbol, called = "DeltaRule", ("the delta rule", "델타 규칙")
    cards = MatrixMixer.cards | {
        "beta": Card(
            "β_i",
            "σ(x_i W_β)",
            "How much of what the state holds at this token's key is replaced: 1 is all of it.",
            "상태에서 이 토큰의 키가 가리키는 내용을 얼마나 바꿔 쓸지 나타내며, 1이면 모두 바꿉니다.",
            ("S8", "S30"),
        ),
    }

    def __init__(self, spec: DeltaSpec, dim: int) -> None:
        super().__init__(spec, dim)
        self.widths = (self.heads * self.key, self.heads * self.key, self.heads * self.value)
        self.conv = ShortConv(sum(self.widths), spec.conv, bias=False) if spec.conv else None
        self.beta = Linear(dim, self.heads, bias=False)
        self.step_size = Linear(dim, self.heads) if spec.decay else None
        self.log_rate = nn.Parameter(torch.full((self.heads,), float("nan"))) if spec.decay else None
        self.cards = _cards(spec)

    # ------------------------------------------------------------ the contract

    def empty(self, batch: int, room: int, call: Call) -> DeltaState:
        """An empty matrix per head and no token before, whatever the room."""
        start = super().empty(batch, room, call)
        return DeltaState(start.matrix, start.document, self.conv.empty(batch) if self.conv else Nothing())

    def step(self, x: Tensor, state: DeltaState, call: Call) -> tuple[Tensor, DeltaState]:
        """`b t d` after the past."""
        past = state.take()
        valid, first, document = edges(call, past.document)
        qkv, tail = torch.cat((self.q(x), self.k(x), self.v(x)), -1), past.tail
        if self.conv is not None:
            qkv, tail = self.conv.after(qkv, tail, call)
        z, matrix = self.mix(x, F.silu(qkv), past.matrix, {"valid": valid, "first": first}, call)
        return self.finish(x, z, call), DeltaState(matrix, document, tail)

    def mix(
        self, x: Tensor, qkv: Tensor, matrix: Tensor, places: dict[str, Tensor | None], call: Call
    ) -> tuple[Tensor, Tensor]:
        """What each token of x `b t d` reads, `b t h f`, and the matrix `b h e f` after the last. qkv: the three of
        them side by side; places: where a token is and where one begins a document, for the sums of `deltarule`."""
        tap, wide = call.tap(self), torch.promote_types(x.dtype, torch.float32)
        q, k, v = (x.unflatten(-1, (self.heads, -1)) for x in qkv.split(self.widths, -1))
        q = tap("q", F.normalize(q.to(wide), dim=-1), "b t h e")
        k, v = tap("k", F.normalize(k.to(wide), dim=-1), "b s h e"), tap("v", v, "b s h f")
        beta, log_decay = tap("beta", torch.sigmoid(self.beta(x).to(wide)), "b t h"), self.log_decay(x, call)
        z, after = delta_sum(q, k, v, beta, log_decay, matrix, **places)
        if not call.wants(self, "weights"):
            return call.of_rows(z), after
        places["rows"] = call.rows
        weights = delta_weights(*(call.of_heads(one) for one in (q, k, beta, log_decay)), **places)
        weights = tap("weights", weights, "b h t s")
        z = torch.einsum("bhts,bshf->bthf", weights, v.to(wide))
        return z + read_before(q, k, weights, log_decay, matrix, **places), after

    def log_decay(self, x: Tensor, call: Call) -> Tensor | None:
        """ln α per head, `b t h`; None: 1. An edit cannot lift α above 1."""
        if self.step_size is None:
            return None
        wide = torch.promote_types(x.dtype, torch.float32)
        decay = -self.log_rate.to(wide).exp() * F.softplus(self.step_size(x).to(wide))
        return call.tap(self)("log_decay", decay, "b t h").clamp(max=0)

    @torch.no_grad()
    def draw(self, init: InitSpec) -> None:
        """As Mamba-2 does: A uniform within 1 to 16, step sizes softplus(b) log-uniform within 0.001 to 0.1."""
        if self.step_size is not None:
            self.log_rate.uniform_(1, 16).log_()
            size = self.step_size.bias.uniform_(math.log(0.001), math.log(0.1)).exp_()
            size.copy_(size + (-(-size).expm1()).log())  # the inverse of softplus

    # ------------------------------------------------------------ cost

    def project_flops(self, n: int) -> int:
        """FLOPs of everything but the state."""
        more = (self.conv, self.beta, self.step_size)
        return super().project_flops(n) + sum(part.flops(n) for part in more if part is not None)

    def cost(self, n: int, number_bytes: int = 4) -> Cost:
        """A look at everything before through the matrix, which a token reads twice and writes once."""
        tail_bytes = self.conv.state_bytes(number_bytes) if self.conv else 0
        return self.cost_of(n, number_bytes, 3, tail_bytes)


def _cards(spec: DeltaSpec) -> dict[str, Card]:
    """What this layer computes: its convolution, decay, norm and gate."""
    plus = " + b" if spec.bias else ""

    def projected(short: str, place: str) -> str:
        formula = f"x_{place} W_{short}{plus}"
        return f"silu(conv({formula}))" if spec.conv else f"silu({formula})"

    step, said = "A = α(I − β k kᵀ)" if spec.decay else "A = I − β k kᵀ", "norm(z)" if spec.norm else "z"
    said = f"g ⊙ {said}" if spec.gate else said
    return as_built(
        DeltaRule.cards,
        q={"formula": f"u/|u|, u = {projected('Q', 'i')}"},
        k={"formula": f"u/|u|, u = {projected('K', 'j')}"},
        v={"formula": projected("V", "j")},
        log_decay={"formula": "−A softplus(x_i W_α + b)"} if spec.decay else None,
        weights={"formula": f"q_iᵀ A_i … A_{{j+1}} β_j k_j, {step}"},
        gate={"formula": f"swish(x_i W_G{plus})"} if spec.gate else None,
        out={"symbol": DeltaRule.symbol, "formula": f"Concat({said}) W_O{' + b_O' if spec.out_bias else ''}"},
    )
