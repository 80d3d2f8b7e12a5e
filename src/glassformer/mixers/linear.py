"""Linear attention: attention without a softmax, so that the past can be summed up in one matrix per head.

    S_i = α_i ⊙ S_{i-1} + k_i v_iᵀ        z_i = S_iᵀ q_i

linear attention        q, k = elu(·) + 1, α = 1, divided by the sum of all weights   (Katharopoulos et al. 2020)
retention               one fixed α per head, rotary positions, norm and gate         (Sun et al. 2023)
gated linear attention  α computed from each token, one per key channel               (Yang et al. 2024)
"""

from __future__ import annotations

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from ..call import Call
from ..errors import SettingError
from ..nn.init import Linear
from ..nn.position import RopeSpec, rope_angles, rope_width, rotate
from ..spec import Spec, check_least, check_positive, check_share, to_json
from ..tap import Card, as_built
from .base import Cost
from .chunk import gated_sum, read_state, sum_weights
from .matrix import MatrixMixer, MatrixSpec, MatrixState
from .window import edges


class FixedDecaySpec(Spec, frozen=True, tag="fixed"):
    """One decay per head that training leaves as it is: at each token the first head forgets the share `fastest` of
    its state, the last one `slowest`, those between them in equal ratios (Sun et al. 2023, section 3.1)."""

    fastest: float = 1 / 32
    slowest: float = 1 / 512

    def __post_init__(self) -> None:
        check_positive(self, "fastest", "slowest")
        check_share(self, "fastest", "slowest")


class GatedDecaySpec(Spec, frozen=True, tag="gated"):
    """A decay per key channel, computed from each token: α = σ(x W_1 W_2 + b)^(1/τ) (Yang et al. 2024, section 4.4).

    rank  the width between W_1 and W_2
    tau   the larger, the slower is forgotten
    """

    rank: int = 16
    tau: float = 16.0

    def __post_init__(self) -> None:
        check_least(self, 1, "rank")
        check_positive(self, "tau")


class LinearSpec(MatrixSpec, frozen=True, tag="linear-attention"):
    """Linear attention; the defaults are those of Katharopoulos et al. 2020.

    feature    φ of q and k: elu(·) + 1, or none
    normalise  divides by the sum of all weights, so that they sum to 1 (their equation 12); otherwise q is divided by
               √(its width)
    decay      how the state fades from token to token; None: not at all
    position   rotates q and k
    """

    feature: Literal["elu", "none"] = "elu"
    normalise: bool = True
    decay: FixedDecaySpec | GatedDecaySpec | None = None
    position: RopeSpec | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.normalise and (self.feature == "none" or self.position is not None):
            raise SettingError(
                "normalise: weights that may be negative can sum to 0; use feature=elu without a position, or "
                "normalise=false"
            )


class LinearAttention(MatrixMixer):
    """The layer of LinearSpec, `b t d` to `b t d`."""

    symbol, called = "LinearAttention", ("linear attention", "선형 어텐션")

    def __init__(self, spec: LinearSpec, dim: int) -> None:
        super().__init__(spec, dim)
        self.columns = int(spec.normalise)  # the sum of the weights is read as the value 1 of every token would be
        gated = spec.decay if isinstance(spec.decay, GatedDecaySpec) else None
        self.decay_in = Linear(dim, gated.rank, bias=False) if gated else None
        self.decay_out = Linear(gated.rank, self.heads * self.key) if gated else None
        if spec.position is not None:
            rope_width(spec.position, self.key)  # refuse an odd width now, not at the first call
            self.angles_key = f"rope {self.key} {to_json(spec.position, None)}"
        self.cards = _cards(spec)

    def step(self, x: Tensor, state: MatrixState, call: Call) -> tuple[Tensor, MatrixState]:
        """`b t d` after the past."""
        past = state.take()
        valid, first, document = edges(call, past.document)
        z, matrix = self.mix(x, past.matrix, {"valid": valid, "first": first}, call)
        return self.finish(x, z, call), MatrixState(matrix, document)

    def mix(self, x: Tensor, matrix: Tensor, places: dict[str, Tensor | None], call: Call) -> tuple[Tensor, Tensor]:
        """What each token of x `b t d` reads, `b t h f`, and the matrix `b h e f` after the last. places: where a
        token is and where one begins a document, for the sums of `chunk`."""
        tap = call.tap(self)
        q, k = self.turned(self.featured(self.q(x)), call), self.turned(self.featured(self.k(x)), call)
        q = tap("q", q if self.spec.normalise else q * self.key**-0.5, "b t h e")
        k, v = tap("k", k, "b s h e"), tap("v", self.split(self.v(x), self.value), "b s h f")
        log_decay = self.log_decay(x, call)
        if self.spec.normalise:
            v = torch.cat((v, v.new_ones(*v.shape[:-1], 1)), -1)
        z, after = gated_sum(q, k, v, log_decay, matrix, **places)
        z = call.of_rows(z)
        total = z[..., -1:] if self.spec.normalise else None
        total = None if total is None else total.masked_fill(total == 0, 1.0)  # where no token is yet
        if call.wants(self, "weights"):
            weights = sum_weights(*(call.of_heads(one) for one in (q, k, log_decay)), rows=call.rows, **places)
            weights = weights if total is None else weights / call.of_heads(total).transpose(1, 2)
            weights = tap("weights", weights, "b h t s")
            rest = call.of_rows(read_state(q, log_decay, matrix, **places))
            rest = rest if total is None else rest / total
            z = torch.einsum("bhts,bshf->bthf", weights, v.to(weights.dtype)) + rest
        elif total is not None:
            z = z / total
        return z[..., : self.value], after

    def featured(self, x: Tensor) -> Tensor:
        """φ of each head's vector, `b t (h e)` to `b t h e`."""
        x = self.split(x, self.key)
        return F.elu(x) + 1 if self.spec.feature == "elu" else x

    def turned(self, x: Tensor, call: Call) -> Tensor:
        """q or k after RoPE, unchanged where the spec has none."""
        rope = self.spec.position
        if rope is None:
            return x
        angles = call.once(self.angles_key, lambda: rope_angles(rope, self.key, call.signal, x.dtype))
        return rotate(x, angles, rope.pairing)

    def log_decay(self, x: Tensor, call: Call) -> Tensor | None:
        """ln α, per head `b t h` or per key channel `b t h e`; None: 1. An edit cannot lift α above 1."""
        tap, decay = call.tap(self), self.spec.decay
        if decay is None:
            return None
        wide = torch.promote_types(x.dtype, torch.float32)
        if isinstance(decay, FixedDecaySpec):
            fixed = tap("log_decay", log_decays(decay, self.heads, x.device, wide), "h")
            return fixed.clamp(max=0).expand(*x.shape[:2], self.heads)
        logit = self.split(self.decay_out(self.decay_in(x)), self.key).to(wide)
        return tap("log_decay", F.logsigmoid(logit) / decay.tau, "b t h e").clamp(max=0)

    def project_flops(self, n: int) -> int:
        """FLOPs of everything that works on each token by itself."""
        decay = (self.decay_in, self.decay_out)
        return super().project_flops(n) + sum(part.flops(n) for part in decay if part is not None)

    def cost(self, n: int, number_bytes: int = 4) -> Cost:
        """A look at everything before through the matrix, which is written and read once a token."""
        return self.cost_of(n, number_bytes, 2)


def log_decays(spec: FixedDecaySpec, heads: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """ln(1 - share) of each head, `h`."""
    ends = math.log(spec.fastest), math.log(spec.slowest)
    return torch.log1p(-torch.linspace(*ends, heads, device=device, dtype=dtype).exp())


def _cards(spec: LinearSpec) -> dict[str, Card]:
    """What this layer computes: its feature map, positions, decay, normaliser, norm and gate."""
    plus, gated = " + b" if spec.bias else "", isinstance(spec.decay, GatedDecaySpec)

    def projected(short: str, place: str, scale: str) -> str:
        formula = f"x_{place} W_{short.upper()}{plus}"
        formula = f"elu({formula}) + 1" if spec.feature == "elu" else formula
        formula = f"R_{place} ({formula})" if spec.position else formula
        return f"({formula}){scale}" if scale else formula

    weight = "q_i·k_j" if spec.decay is None else "q_iᵀ (α_i ⊙ … ⊙ α_{j+1} ⊙ k_j)" if gated else "α_h^{i−j} q_i·k_j"
    share = f" / Σ_j {weight}" if spec.normalise else ""
    decay = f"ln σ(x W_1 W_2 + b) / {spec.decay.tau:g}" if gated else "ln α_h, fixed for each head"
    said = f"{'g ⊙ ' if spec.gate else ''}{'norm(z)' if spec.norm else 'z'}"
    return as_built(
        MatrixMixer.cards,
        q={"formula": projected("q", "i", "" if spec.normalise else " / √d_k")},
        k={"formula": projected("k", "j", "")},
        v={"formula": f"x_j W_V{plus}"},
        log_decay=None if spec.decay is None else {"symbol": "ln α_i" if gated else "ln α_h", "formula": decay},
        weights={"formula": weight + share},
        z={"formula": "S_iᵀ q_i" + share},
        gate={"formula": f"swish(x_i W_G{plus})"} if spec.gate else None,
        out={"symbol": LinearAttention.symbol, "formula": f"Concat({said}) W_O{' + b_O' if spec.out_bias else ''}"},
    )
