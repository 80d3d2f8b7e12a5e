"""Channel mixers: they transform each token by itself (MLP, gated MLP, mixture of experts)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..call import Call
from ..errors import SettingError
from ..spec import Spec, check_least
from ..tap import Card, as_built
from .init import Linear

Activation = Literal["relu", "gelu", "gelu_tanh", "relu2", "silu", "sigmoid", "tanh"]

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "relu2": lambda x: F.relu(x).square(),
    "silu": F.silu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
}


class MlpSpec(Spec, frozen=True, tag="mlp"):
    """FFN(x) = σ(x W_1 + b_1) W_2 + b_2 (Vaswani et al. 2017, equation 2); bias: whether there are b_1 and b_2.

    `hidden` None: four times the width. `activation` is σ.
    """

    hidden: int | None = None
    activation: Activation = "gelu"
    bias: bool = True

    def __post_init__(self) -> None:
        check_least(self, 1, "hidden")


class GatedSpec(Spec, frozen=True, tag="gated"):
    """(σ(x W_g) ⊙ x W_1) W_2 (Shazeer 2020): SwiGLU with silu, GeGLU with gelu, GLU with sigmoid.

    `hidden` None: 8/3 of the width rounded up to a multiple of 8, as many weights as the MLP of four widths.
    `activation` is σ; `bias` gives all three projections one.
    """

    hidden: int | None = None
    activation: Activation = "silu"
    bias: bool = False

    def __post_init__(self) -> None:
        check_least(self, 1, "hidden")


class ExpertsSpec(Spec, frozen=True, tag="experts"):
    """A mixture of experts (Shazeer et al. 2017; Mixtral): a router sends each token to its `active` best experts,
    whose outputs are summed with the renormalised router weights. With one active expert its router weight is kept as
    it is (Switch Transformer): renormalised it would always be 1 and teach the router nothing.

    balance scales the auxiliary loss m / active · Σ_m (share of tokens · mean router weight) of the Switch Transformer,
    which is 1 when the experts are used evenly; training adds it to the loss.
    """

    expert: MlpSpec | GatedSpec = GatedSpec()
    experts: int = 4
    active: int = 2
    balance: float = 0.01

    def __post_init__(self) -> None:
        check_least(self, 1, "experts")
        check_least(self, 0, "balance")
        if not 1 <= self.active <= self.experts:
            raise SettingError(f"active: {self.active} is not allowed; use 1 to experts={self.experts}")


ChannelSpec = MlpSpec | GatedSpec | ExpertsSpec


def hidden_width(spec: MlpSpec | GatedSpec, dim: int) -> int:
    """The number of hidden units for a model of width `dim`."""
    if spec.hidden is not None:
        return spec.hidden
    return 4 * dim if isinstance(spec, MlpSpec) else -(-8 * dim // 3 // 8) * 8


_OUT = Card(
    "FFN(x)",
    "σ(xW₁+b₁)W₂+b₂",
    "What the MLP adds to this token after reworking it by itself.",
    "MLP가 이 토큰 하나만 보고 변환해 더하는 값입니다.",
    ("S17", "S18"),
)
_PRE = Card(
    "xW₁+b₁",
    "xW₁+b₁",
    "The hidden units before the activation: the vector widened.",
    "활성화 함수를 지나기 전의 은닉 유닛으로, 너비를 넓힌 벡터입니다.",
    ("S17",),
)
_HIDDEN = Card(
    "σ(xW₁+b₁)",
    "σ(xW₁+b₁)",
    "The hidden units after the activation; a single one is rarely one readable feature.",
    "활성화 함수를 지난 은닉 유닛입니다. 유닛 하나가 특징 하나에 대응하는 경우는 드뭅니다.",
    ("S17", "S28"),
)


_OF_EXPERT = {
    "en": "What this expert answers for this token; its router weight, mostly 0, decides how much of it is added.",
    "ko": "이 전문가가 이 토큰에 대해 내놓는 출력입니다. 대부분 0인 라우터 가중치를 곱한 만큼만 더해집니다.",
}


def _cards(cards: dict[str, Card], hidden: str, spec: MlpSpec | GatedSpec) -> dict[str, Card]:
    """With this hidden layer, and without the biases that the spec leaves out."""
    made = as_built(
        cards,
        hidden={"symbol": hidden, "formula": hidden},
        out={"formula": f"{hidden if isinstance(spec, MlpSpec) else f'({hidden})'}W₂+b₂"},
    )
    if spec.bias:
        return made

    def bare(text: str) -> str:
        return (
            text.replace("(xW₁+b₁)", "xW₁" if isinstance(spec, GatedSpec) else "(xW₁)")
            .replace("+b₁", "")
            .replace("+b₂", "")
            .replace("+b_g", "")
        )

    return as_built(made, **{n: {"symbol": bare(c.symbol), "formula": bare(c.formula)} for n, c in made.items()})


class Mlp(nn.Module):
    """The position-wise feed-forward network of MlpSpec."""

    path = ""
    writes_residual = ("down",)
    cards = {"pre": _PRE, "hidden": _HIDDEN, "out": _OUT}

    def __init__(self, spec: MlpSpec, dim: int) -> None:
        super().__init__()
        hidden = hidden_width(spec, dim)
        self.spec = spec
        self.up = Linear(dim, hidden, bias=spec.bias)
        self.down = Linear(hidden, dim, bias=spec.bias)
        self.cards = _cards(Mlp.cards, "σ(xW₁+b₁)", spec)

    def forward(self, x: Tensor, call: Call) -> Tensor:
        """`b t d` to `b t d`, each token alone."""
        tap = call.tap(self)
        pre = tap("pre", self.up(x), "b t f")
        hidden = tap("hidden", ACTIVATIONS[self.spec.activation](pre), "b t f")
        return tap("out", self.down(hidden), "b t d")

    def flops(self, n: int) -> int:
        """Of n tokens."""
        return self.up.flops(n) + self.down.flops(n)


class Gated(nn.Module):
    """The gated feed-forward network of GatedSpec."""

    path = ""
    writes_residual = ("down",)
    cards = {
        "pre": replace(
            _PRE,
            en="The hidden units before the gate: the vector widened.",
            ko="게이트를 곱하기 전의 은닉 유닛으로, 너비를 넓힌 벡터입니다.",
        ),
        "gate": Card(
            "σ(xW_g+b_g)",
            "σ(xW_g+b_g)",
            "How far each hidden unit is let through.",
            "은닉 유닛마다 얼마나 통과시킬지 정하는 게이트입니다.",
            ("S17",),
        ),
        "hidden": replace(
            _HIDDEN,
            en="The hidden units after the gate; a single one is rarely one readable feature.",
            ko="게이트를 곱한 은닉 유닛입니다. 유닛 하나가 특징 하나에 대응하는 경우는 드뭅니다.",
        ),
        "out": _OUT,
    }

    def __init__(self, spec: GatedSpec, dim: int) -> None:
        super().__init__()
        hidden = hidden_width(spec, dim)
        self.spec = spec
        self.cards = _cards(Gated.cards, "σ(xW_g+b_g)⊙(xW₁+b₁)", spec)
        self.gate = Linear(dim, hidden, bias=spec.bias)
        self.up = Linear(dim, hidden, bias=spec.bias)
        self.down = Linear(hidden, dim, bias=spec.bias)

    def forward(self, x: Tensor, call: Call) -> Tensor:
        """`b t d` to `b t d`, each token alone."""
        tap = call.tap(self)
        pre = tap("pre", self.up(x), "b t f")
        gate = tap("gate", ACTIVATIONS[self.spec.activation](self.gate(x)), "b t f")
        hidden = tap("hidden", gate * pre, "b t f")
        return tap("out", self.down(hidden), "b t d")

    def flops(self, n: int) -> int:
        """Of n tokens."""
        return self.gate.flops(n) + self.up.flops(n) + self.down.flops(n)


class Experts(nn.Module):
    """The mixture of experts of ExpertsSpec. Expert i is the channel mixer at `experts.i`."""

    path = ""
    written_out = ("experts.0.out",)
    cards = {
        "router": Card(
            "softmax(xW_r)",
            "softmax(xW_r)",
            "How strongly the router sends this token to each expert.",
            "라우터가 이 토큰을 각 전문가에게 보내는 정도입니다.",
            ("S17",),
        ),
        "weights": Card(
            "w_m",
            "the largest router weights; 0 elsewhere",
            "The weight with which each chosen expert's answer enters the sum.",
            "선택된 전문가의 출력을 더할 때 쓰는 가중치입니다.",
            ("S17",),
        ),
        "out": _OUT,
    }

    def __init__(self, spec: ExpertsSpec, dim: int) -> None:
        super().__init__()
        self.spec = spec
        self.router = Linear(dim, spec.experts, bias=False)
        self.cards = as_built(
            Experts.cards,
            weights={"formula": "the largest router weight; 0 elsewhere"}
            if spec.active == 1
            else {"formula": f"the {spec.active} largest router weights, divided by their sum; 0 elsewhere"},
            out={"formula": "Σ_m w_m · FFN_m(x)"},
        )
        kind = CHANNELS[type(spec.expert)]
        self.experts = nn.ModuleList(kind(spec.expert, dim) for _ in range(spec.experts))
        for expert in self.experts:
            expert.cards = as_built(expert.cards, out=_OF_EXPERT)

    def forward(self, x: Tensor, call: Call) -> Tensor:
        """`b t d` to `b t d`, each token through its own experts."""
        tap = call.tap(self)
        router = tap("router", self.router(x).softmax(-1), "b t m")
        weights = tap("weights", self.chosen(router), "b t m")
        if call.losses is not None:
            self._balance(router, weights, call)
        # Every expert sees every token and is weighted by 0 where it was not chosen: clear, one compiled graph, and
        # the taps of each expert keep the shape `b t f`. Outside of that, only the tokens of an expert are computed.
        inside = (f"experts.{i}.{short}" for i, expert in enumerate(self.experts) for short in expert.cards)
        if torch.compiler.is_compiling() or call.wants(self, *inside):
            out = sum(weights[..., i, None] * expert(x, call) for i, expert in enumerate(self.experts))
        else:
            out = self._routed(x, weights, call)
        return tap("out", out, "b t d")

    def chosen(self, router: Tensor) -> Tensor:
        """The weights of the chosen experts, `b t m`, from the router's `b t m`."""
        best = router.topk(self.spec.active, -1)
        kept = torch.zeros_like(router).scatter(-1, best.indices, best.values)
        if self.spec.active == 1:
            return kept
        total = kept.sum(-1, keepdim=True)
        return kept / total.masked_fill(total == 0, 1)  # an edited router may give all experts nothing

    def _routed(self, x: Tensor, weights: Tensor, call: Call) -> Tensor:
        """The same sum, computing only the tokens that each expert was chosen for."""
        out = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            mine = weights[..., i] != 0  # an edit may have made a weight negative
            part = expert(x[mine][None], call)[0] * weights[mine][:, i, None]
            out = out.masked_scatter(mine[..., None], out[mine] + part)
        return out

    def _balance(self, router: Tensor, weights: Tensor, call: Call) -> None:
        there = (call.pos >= 0).expand(router.shape[:2]).to(router.dtype)  # padding counts for nothing
        there = there / there.sum().clamp(min=1)
        share, mean = (torch.einsum("btm,bt->m", x, there) for x in ((weights != 0).to(router.dtype), router))
        call.losses.append(self.spec.balance * self.spec.experts / self.spec.active * (share * mean).sum())

    def flops(self, n: int) -> int:
        """Of n tokens, each through its chosen experts."""
        return self.router.flops(n) + self.experts[0].flops(n * self.spec.active)


CHANNELS: dict[type, Callable[..., nn.Module]] = {MlpSpec: Mlp, GatedSpec: Gated, ExpertsSpec: Experts}
