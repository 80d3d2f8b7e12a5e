"""Dense layers across positions: an MLP over a window of tokens, and an MLP across all positions of a text.

Both give every place of their input weights of its own, so that neither assumes that neighbours belong together or that
a pattern means the same wherever it stands.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..call import Call
from ..errors import InputError
from ..nn.channel import ACTIVATIONS, Activation
from ..nn.init import Linear
from ..spec import Spec, check_least
from ..tap import Card, as_built
from .base import Cost, TokenMixer
from .window import Tail, numbers, previous


class WindowSpec(Spec, frozen=True, tag="window-mlp"):
    """An MLP over the last tokens laid end to end, U tanh(H [x_{t−w+1} … x_t] + d) + b (Bengio et al. 2003, section 2).

    window      how many tokens it sees, its own included
    hidden      hidden units (None: four times the model's width)
    activation  of the hidden units
    bias        whether there are d and b
    """

    window: int = 5
    hidden: int | None = None
    activation: Activation = "tanh"
    bias: bool = True

    def __post_init__(self) -> None:
        check_least(self, 1, "window", "hidden")


class MixingSpec(Spec, frozen=True, tag="mixing-mlp"):
    """An MLP across positions, W₂ σ(W₁ X + b₁) + b₂, the same for each feature (Tolstikhin et al. 2021, equation 1).
    Its weights belong to positions, so that a text may be shorter than `length` but not longer; places without a token
    count as zeros.

    length      how many positions it has weights for
    hidden      hidden units (None: half the model's width, as in the paper)
    activation  σ
    bias        whether there are b₁ and b₂
    """

    length: int = 256
    hidden: int | None = None
    activation: Activation = "gelu"
    bias: bool = True

    def __post_init__(self) -> None:
        check_least(self, 1, "length", "hidden")


class WindowMlp(TokenMixer):
    """The window MLP of WindowSpec; its past is the rest of the window."""

    symbol, called = "MLP", ("the window MLP", "윈도 MLP")
    writes_residual = ("down",)
    cards = {
        "pre": Card(
            "Hx+d",
            "H [x_{t−w+1} … x_t] + d",
            "The hidden units before the activation: every token of the window with weights of its own.",
            "활성화 함수를 지나기 전의 은닉 유닛으로, 윈도 안의 토큰마다 가중치가 따로 있습니다.",
            ("S3",),
        ),
        "hidden": Card(
            "h",
            "tanh(Hx+d)",
            "The hidden units of the window.",
            "윈도 전체에서 계산한 은닉 유닛입니다.",
            ("S3", "S28"),
        ),
        "out": Card(
            "Uh+b",
            "U tanh(Hx+d) + b",
            "What the MLP over the last tokens adds to this token's vector.",
            "마지막 몇 토큰을 이어 붙여 읽은 MLP가 이 토큰 벡터에 더하는 값입니다.",
            ("S3",),
        ),
    }

    def __init__(self, spec: WindowSpec, dim: int) -> None:
        super().__init__()
        hidden = 4 * dim if spec.hidden is None else spec.hidden
        self.spec, self.dim = spec, dim
        self.up = Linear(spec.window * dim, hidden, bias=spec.bias)
        self.down = Linear(hidden, dim, bias=spec.bias)
        oldest = f"x_{{t−{spec.window - 1}}} … " if spec.window > 1 else ""
        act, d, b = _SYMBOLS.get(spec.activation, "σ"), *(("+d", " + b") if spec.bias else ("", ""))
        self.cards = as_built(
            self.cards,
            pre={"symbol": f"Hx{d}", "formula": f"H [{oldest}x_t]" + d.replace("+", " + ")},
            hidden={"formula": f"{act}(Hx{d})"},
            out={"symbol": f"Uh{b.replace(' ', '')}", "formula": f"U {act}(Hx{d}){b}"},
        )

    def empty(self, batch: int, room: int, call: Call) -> Tail:
        """Nothing before."""
        return Tail.none(batch, self.spec.window - 1, self.up.weight, self.dim)

    def step(self, x: Tensor, state: Tail, call: Call) -> tuple[Tensor, Tail]:
        """`b t d` after the past."""
        tap = call.tap(self)
        seen, tail = previous(x, state.take(), call, self.spec.window)
        pre = tap("pre", self.up(seen.flatten(2)), "b t f")  # b t (w d), the oldest token first
        hidden = tap("hidden", ACTIVATIONS[self.spec.activation](pre), "b t f")
        return tap("out", self.down(hidden), "b t d"), tail

    def cost(self, n: int, number_bytes: int = 4) -> Cost:
        """Two linear layers for each token; the rest of the window is kept, each token with its document."""
        reach = self.spec.window - 1
        state_bytes = reach * (self.dim * number_bytes + 8)
        return Cost(self.up.flops(n) + self.down.flops(n), state_bytes=state_bytes, reach=reach)


class MixingMlp(TokenMixer):
    """The token mixing of MixingSpec; every position sees all others of its document."""

    causal = False
    symbol, called = "MLP", ("the token-mixing MLP", "토큰 혼합 MLP")
    writes_residual = ("down",)
    cards = {
        "pre": Card(
            "W₁X+b₁",
            "W₁X+b₁",
            "The hidden units over all positions, for each feature; in a packed row those of one document after the "
            "other's.",
            "특징마다 모든 위치를 합쳐 계산한 은닉 유닛이며, 여러 문서를 이어 붙인 행에서는 문서 순서대로 놓입니다.",
            ("S3",),
        ),
        "hidden": Card(
            "σ(W₁X+b₁)",
            "σ(W₁X+b₁)",
            "The same after the activation.",
            "활성화 함수를 지난 은닉 유닛입니다.",
            ("S3", "S28"),
        ),
        "out": Card(
            "W₂σ(W₁X+b₁)+b₂",
            "W₂σ(W₁X+b₁)+b₂",
            "What the MLP across positions adds to this token's vector, each feature by itself.",
            "위치를 가로지르는 MLP가 특징마다 따로 계산해 이 토큰 벡터에 더하는 값입니다.",
            ("S3",),
        ),
    }

    def __init__(self, spec: MixingSpec, dim: int) -> None:
        super().__init__()
        hidden = max(dim // 2, 1) if spec.hidden is None else spec.hidden
        self.spec, self.dim = spec, dim
        self.up = Linear(spec.length, hidden, bias=spec.bias)
        self.down = Linear(hidden, spec.length, bias=spec.bias)
        if not spec.bias:
            bare = {"pre": "W₁X", "hidden": "σ(W₁X)", "out": "W₂σ(W₁X)"}
            self.cards = as_built(self.cards, **{n: {"symbol": f, "formula": f} for n, f in bare.items()})

    def parallel(self, x: Tensor, call: Call) -> Tensor:
        """`b t d` to `b t d`, each document of a row by itself.

        Raises InputError for a position that has no weights.
        """
        self._check(call, x.shape[1])
        tap, t = call.tap(self), x.shape[1]
        if call.plain:
            grid, place = x[:, None], None
        else:
            grid, place = self._laid_out(x, call)
        places = grid.shape[2]  # b D n d: one grid of positions for each document; zeros add nothing, so n may be t
        pre = self.up.weight[:, :places] @ grid
        pre = pre if self.up.bias is None else pre + self.up.bias[:, None]
        pre = tap("pre", pre.flatten(1, 2), "b f d")  # b (D f) d
        hidden = tap("hidden", ACTIVATIONS[self.spec.activation](pre), "b f d")
        out = self.down.weight[:places] @ hidden.unflatten(1, (grid.shape[1], -1))
        out = (out if self.down.bias is None else out + self.down.bias[:places, None]).flatten(1, 2)
        out = out[:, :t] if place is None else out.gather(1, place[..., None].expand_as(x))
        return tap("out", out, "b t d")

    def _laid_out(self, x: Tensor, call: Call) -> tuple[Tensor, Tensor]:
        """Each document on a grid of all positions, `b D n d`, and the place `b t` of each token among the D·n."""
        (batch, t, d), n = x.shape, self.spec.length
        number = numbers(call, batch)
        if call.segments is None:
            count = 1
        else:  # how many there are is only known from the data, which a compiled graph does not look at
            count = t if torch.compiler.is_compiling() else int(number.max()) + 1
        place = torch.where(number >= 0, number * n + call.pos, count * n)  # the last is for what is no token
        grid = x.new_zeros(batch, count * n + 1, d).scatter(1, place[..., None].expand_as(x), x)
        return grid[:, :-1].unflatten(1, (count, n)), place.clamp(max=count * n - 1)

    def _check(self, call: Call, t: int) -> None:
        end = t if call.plain else None
        if end is None and not torch.compiler.is_compiling():  # beyond it would lie the next document's first place
            end = int(call.pos.max()) + 1
        if end is not None and end > self.spec.length:
            raise InputError(
                f"{self.path or 'mixer'}: position {end - 1} is beyond the {self.spec.length} that it has weights for; "
                f"give at most {self.spec.length} tokens, or build the model with a larger length"
            )

    def cost(self, n: int, number_bytes: int = 4) -> Cost:
        """Two products with the weights of n positions, for each feature."""
        return Cost(4 * n * self.up.out_features * self.dim)


_SYMBOLS = {"tanh": "tanh", "relu": "ReLU", "gelu": "GELU"}
