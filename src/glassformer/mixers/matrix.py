"""What layers share whose past is one matrix per head: projections, the state, what is done with what is read from it.

A token writes its value into the matrix at the place that its key names and reads it with its query; linear attention
(`linear`) and the delta rule (`delta`) differ in what happens to the matrix before.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from ..call import Call
from ..errors import SettingError
from ..nn.init import Linear
from ..nn.norm import Norm, NormSpec
from ..spec import Spec, check_least
from ..state import State
from ..tap import Card
from .base import Cost, TokenMixer
from .chunk import CHUNK


class MatrixSpec(Spec, frozen=True):
    """What these layers share.

    heads               each has a matrix of its own
    key_dim, value_dim  width of a head's queries and keys, and of its values (None: width / heads)
    norm                normalises what each head has read
    gate                multiplies it, after the norm, with swish(x W_G)
    bias, out_bias      biases of the q, k, v and gate projections, and of the output projection
    """

    heads: int = 4
    key_dim: int | None = None
    value_dim: int | None = None
    norm: NormSpec | None = None
    gate: bool = False
    bias: bool = False
    out_bias: bool = False

    def __post_init__(self) -> None:
        check_least(self, 1, "heads", "key_dim", "value_dim")


@dataclass(eq=False)
class MatrixState(State):
    """One matrix per head `b h e f`, in fp32 at least since all that follows adds to it, and the packed document `b` of
    the newest token, -1 where there was none."""

    matrix: Tensor
    document: Tensor


class MatrixMixer(TokenMixer):
    """A layer whose past is one matrix per head. A subclass gives `step` and `cost`."""

    columns = 0  # of the matrix beside those of the values' width
    written_out = in_parts = ("weights", "head_out")
    writes_residual = ("out",)
    cards = {
        "q": Card(
            "q_i",
            "x_i W_Q",
            "Query: where in the state this token reads.",
            "쿼리: 이 토큰이 상태의 어디를 읽을지 나타냅니다.",
            ("S10",),
        ),
        "k": Card(
            "k_j",
            "x_j W_K",
            "Key: where in the state this token writes.",
            "키: 이 토큰이 상태의 어디에 쓸지 나타냅니다.",
            ("S10",),
        ),
        "v": Card(
            "v_j",
            "x_j W_V",
            "Value: what this token writes into the state.",
            "값: 이 토큰이 상태에 쓰는 내용입니다.",
            ("S10", "S13"),
        ),
        "log_decay": Card(
            "ln α_i",
            "ln α_i",
            "How much of the state this token leaves standing, as a logarithm: 0 is all of it.",
            "이 토큰이 상태를 얼마나 남기는지 나타내는 로그값이며, 0이면 모두 남깁니다.",
            ("S6", "S8"),
        ),
        "weights": Card(
            "w_ij",
            "q_iᵀ (α_i … α_{j+1}) k_j",
            "The exact weight with which an earlier token's value comes to this one through the state.",
            "앞선 토큰의 값이 상태를 거쳐 이 토큰에 더해질 때의 정확한 가중치입니다.",
            ("S9", "S24", "S30"),
        ),
        "z": Card(
            "z_i",
            "S_iᵀ q_i",
            "What this head reads out of the state for this token.",
            "이 헤드가 이 토큰을 위해 상태에서 읽어 낸 값입니다.",
            ("S8", "S24"),
        ),
        "gate": Card(
            "g_i",
            "swish(x_i W_G)",
            "How far each number that was read is let through.",
            "읽어 낸 값을 성분마다 얼마나 통과시킬지 정하는 게이트입니다.",
            ("S30",),
        ),
        "head_out": Card(
            "y_i W_O",
            "y_i W_O (the head's rows)",
            "What one head gives to the token's vector; all heads together give the output.",
            "헤드 하나가 토큰 벡터에 보태는 값이며, 모든 헤드를 합하면 출력이 됩니다.",
            ("S14",),
        ),
        "out": Card(
            "Mix",
            "Concat(y) W_O",
            "What the layer adds to this token's vector.",
            "이 층이 이 토큰 벡터에 더하는 값입니다.",
            ("S14", "S24"),
        ),
    }

    def __init__(self, spec: MatrixSpec, dim: int) -> None:
        super().__init__()
        self.spec, self.heads = spec, spec.heads
        self.key, self.value = (_width(spec, name, dim) for name in ("key_dim", "value_dim"))
        keys, values = self.heads * self.key, self.heads * self.value
        self.q, self.k = Linear(dim, keys, bias=spec.bias), Linear(dim, keys, bias=spec.bias)
        self.v = Linear(dim, values, bias=spec.bias)
        self.out = Linear(values, dim, bias=spec.out_bias)
        self.gate = Linear(dim, values, bias=spec.bias) if spec.gate else None
        self.norm = Norm(spec.norm, self.value) if spec.norm else None
        if self.norm is not None:
            self.norm.cards = {}  # it has no taps of its own: z and the output are tapped around it

    def empty(self, batch: int, room: int, call: Call) -> MatrixState:
        """An empty matrix per head, whatever the room."""
        like = self.q.weight
        wide = torch.promote_types(like.dtype, torch.float32)
        shape = (batch, self.heads, self.key, self.value + self.columns)
        document = torch.full((batch,), -1, dtype=torch.long, device=like.device)
        return MatrixState(like.new_zeros(shape, dtype=wide), document)

    def finish(self, x: Tensor, z: Tensor, call: Call) -> Tensor:
        """What was read `b t h f` through norm, gate and W_O, to `b t d`: of the asked rows, which z has already."""
        tap, x = call.tap(self), call.of_rows(x)
        y = tap("z", z.to(x.dtype), "b t h f")
        y = y if self.norm is None else self.norm(y)
        if self.gate is not None:
            y = y * tap("gate", self.split(F.silu(self.gate(x)), self.value), "b t h f")
        if call.wants(self, "head_out"):
            w = call.of_heads(self.out.weight.unflatten(1, (self.heads, self.value)), 1)  # d h f
            out = tap("head_out", torch.einsum("bthf,dhf->bthd", call.of_heads(y), w), "b t h d").sum(2)
            out = out if self.out.bias is None else out + self.out.bias
        else:
            out = self.out(y.flatten(-2))
        return tap("out", out, "b t d")

    def split(self, x: Tensor, width: int) -> Tensor:
        """`b t (h e)` to `b t h e`."""
        return x.unflatten(-1, (self.heads, width))

    # ------------------------------------------------------------ cost

    def project_flops(self, n: int) -> int:
        """FLOPs of everything that works on each token by itself."""
        parts = (self.q, self.k, self.v, self.gate, self.out)
        return sum(part.flops(n) for part in parts if part is not None)

    def cost_of(self, n: int, number_bytes: int, products: int, beside_bytes: int = 0) -> Cost:
        """Of n tokens that each go that often through the matrix of every head, by a product with it. beside_bytes:
        of what is kept besides the matrices."""
        size = self.heads * (self.key) * (self.value + self.columns)
        return Cost(
            self.project_flops(n),
            scan_flops=2 * products * n * size,
            state_bytes=size * max(4, number_bytes) + 8 + beside_bytes,
            steps=-(-n // CHUNK),
        )


def _width(spec: MatrixSpec, name: str, dim: int) -> int:
    given = getattr(spec, name)
    if given is not None:
        return given
    if dim % spec.heads:
        divisors = ", ".join(str(n) for n in range(1, min(dim, 64) + 1) if dim % n == 0)
        raise SettingError(f"heads: {spec.heads} does not divide d={dim}; use {divisors}, or set {name}")
    return dim // spec.heads
