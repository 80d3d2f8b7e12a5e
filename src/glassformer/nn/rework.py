"""What a head does to a vector before it reads it: norm(σ(x W + b))."""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

from ..call import Call
from ..spec import Spec, check_least
from ..tap import Card, as_built
from .channel import ACTIVATIONS
from .init import Linear
from .norm import Norm, NormSpec


class ReworkSpec(Spec, frozen=True, tag="rework"):
    """norm(σ(x W + b)), as BERT's heads rework a vector (Devlin et al. 2019): σ is `activation`, `bias` whether there
    is a b, `norm` None leaves the norm out. `width` numbers come out (None: as many as go in)."""

    width: int | None = None
    activation: Literal["none", "relu", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh"] = "gelu"
    bias: bool = True
    norm: NormSpec | None = None

    def __post_init__(self) -> None:
        check_least(self, 1, "width")


class Rework(nn.Module):
    """The rework of ReworkSpec: `… d` to `… d`, of its own width."""

    path = ""
    cards = {
        "out": Card(
            "σ(xW + b)",
            "σ(xW + b)",
            "The vector reworked once more, in the form that the head reads.",
            "헤드가 읽는 형태로 한 번 더 변환한 벡터입니다.",
            ("S21",),
        )
    }

    def __init__(self, spec: ReworkSpec, dim: int) -> None:
        super().__init__()
        self.spec, self.width = spec, spec.width or dim
        self.axis = "d" if self.width == dim else "f"
        self.linear = Linear(dim, self.width, bias=spec.bias)
        self.norm = Norm(spec.norm, self.width) if spec.norm else None  # its result is what is tapped here
        formula = "xW + b" if spec.bias else "xW"
        formula = formula if spec.activation == "none" else f"{spec.activation}({formula})"
        formula = f"norm({formula})" if spec.norm else formula
        self.cards = as_built(Rework.cards, out={"symbol": formula, "formula": formula})

    def forward(self, x: Tensor, call: Call, places: str) -> Tensor:
        """x `… d`, where places names the axes before."""
        x = self.linear(x)
        x = x if self.spec.activation == "none" else ACTIVATIONS[self.spec.activation](x)
        return call.tap(self)("out", x if self.norm is None else self.norm(x), f"{places} {self.axis}")

    def flops(self, n: int) -> int:
        """Of n vectors."""
        return self.linear.flops(n)
