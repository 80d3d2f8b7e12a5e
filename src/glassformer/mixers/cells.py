"""Recurrent cells: one step of a tanh RNN, a GRU, an LSTM, and the loop over a text.

h_t = φ(W x_t + U h_{t−1} + b)                                               (Elman 1990)
The past is compressed into one vector (an LSTM: two), read and rewritten at every token.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..call import Call
from ..errors import InputError, SettingError
from ..nn.init import InitSpec, Linear
from ..spec import Spec, check_finite, check_least
from ..tap import Card, as_built
from .stepwise import StepTap

Parts = tuple[Tensor, ...]  # the numbers of a state: (h,) or, of an LSTM, (h, c); each `b n`


class StartSpec(Spec, frozen=True, tag="start"):
    """A decoder's first state made of the encoder's last one, s_0 = tanh(W_s e + b_s) (Cho et al. 2014; Bahdanau et al.
    2015, appendix A.2.2); activation "none" leaves tanh out.

    layer  which of the encoder's recurrent mixers gives e: 0 the first, -1 the last
    width  how many numbers e has (None: the model's width): what the encoder's mixer ends in, of a bidirectional one
           both directions', of an LSTM also its cell
    """

    layer: int = -1
    width: int | None = None
    activation: Literal["tanh", "none"] = "tanh"

    def __post_init__(self) -> None:
        check_least(self, 1, "width")


class RecurrentSpec(Spec, frozen=True):
    """What recurrent mixers share.

    hidden         numbers in a state (None: the model's width)
    bidirectional  a second recurrence reads from the end, so that every token knows both sides; it does not stream
    project        whether the states pass through W_O; otherwise they are the output, and must be as wide as the model
    start          a decoder's: its first state is made of the encoder's last one; None: zeros
    """

    hidden: int | None = None
    bidirectional: bool = False
    project: bool = True
    start: StartSpec | None = None

    def __post_init__(self) -> None:
        check_least(self, 1, "hidden")

    @property
    def reads_memory(self) -> bool:
        """Whether the encoder is looked at: its last state is."""
        return self.start is not None


class RnnSpec(RecurrentSpec, frozen=True, tag="rnn"):
    """h_t = φ(W x_t + U h_{t−1} + b) with `activation` φ (Elman 1990; relu: Le et al. 2015)."""

    activation: Literal["tanh", "relu"] = "tanh"


class GruSpec(RecurrentSpec, frozen=True, tag="gru"):
    """h_t = (1 − z) ⊙ n + z ⊙ h_{t−1} with gates r, z (Cho et al. 2014, equations 5 to 8).

    reset  "before": n = tanh(W x + U (r ⊙ h) + b), as in the paper; "after": n = tanh(W x + b + r ⊙ (U h + b_U)), which
           PyTorch and cuDNN compute
    """

    reset: Literal["after", "before"] = "after"


class LstmSpec(RecurrentSpec, frozen=True, tag="lstm"):
    """c_t = f ⊙ c_{t−1} + i ⊙ g; h_t = o ⊙ tanh(c_t) (Hochreiter & Schmidhuber 1997, with the forget gate of Gers et
    al. 2000).

    forget_bias  where the bias of the forget gate starts; 1 begins by remembering
    chrono       the longest lag, in tokens, that is to be remembered: the biases of the forget gate start as log u, u
                 drawn evenly from 1 … chrono − 1, so that what each number remembers fades within about u tokens, and
                 those of the input gate as −log u (Tallec & Ollivier 2018, chrono initialization); None: forget_bias, 0
    """

    forget_bias: float = 1.0
    chrono: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_finite(self, "forget_bias")
        check_least(self, 2, "chrono")


def _gate(symbol: str, en: str, ko: str) -> Card:
    low = symbol.split("_")[0]
    return Card(symbol, f"σ(W_{low} x_t + U_{low} h_{{t−1}} + b_{low})", en, ko, ("S7",))


_HIDDEN = Card(
    "h_t",
    "φ(W x_t + U h_{t−1} + b)",
    "The hidden state: all that is kept of the tokens so far, in one vector.",
    "은닉 상태: 지금까지 읽은 토큰을 모두 압축해 담은 벡터 하나입니다.",
    ("S6", "S8"),
)


class Cell(nn.Module):
    """One recurrence: W `(k n) d`, U `(k n) n` and b `(k n)`, where k vectors of n numbers are made of a token."""

    path = ""
    vectors = 1  # k
    states = 1  # how many vectors its state has
    has_kernel = True  # whether PyTorch has a kernel for it
    cards: dict[str, Card] = {}

    def __init__(self, spec: RecurrentSpec, dim: int, width: int) -> None:
        super().__init__()
        self.spec, self.width = spec, width
        self.weight = nn.Parameter(torch.empty(self.vectors * width, dim))
        self.recurrent = nn.Parameter(torch.empty(self.vectors * width, width))
        self.bias = nn.Parameter(torch.zeros(self.vectors * width))

    @property
    def axes(self) -> Mapping[str, str]:
        """The axes of what it taps."""
        return dict.fromkeys(self.cards, "b t n")

    def draw(self, init: InitSpec) -> None:
        """W like any other weight, each block of U a random rotation (Bahdanau et al. 2015, appendix B.1), b zero."""
        nn.init.normal_(self.weight, std=self.weight.shape[1] ** -0.5 if init.std is None else init.std)
        for block in self.recurrent.split(self.width):
            nn.init.orthogonal_(block)
        for name, bias in self.named_parameters():
            if "bias" in name:
                nn.init.zeros_(bias)

    def read(self, x: Tensor) -> Tensor:
        """W x + b of all tokens at once, `b t (k n)`: what does not have to wait for the state before."""
        return F.linear(x, self.weight, self.bias)

    def next(self, read: Tensor, past: Parts, tap: StepTap, at: int) -> Parts:
        """The state after one more token. read `b (k n)`, past `b n` each; at: the token's place, for taps."""
        raise NotImplementedError(type(self).__name__)

    def fused(self, x: Tensor, past: Parts) -> tuple[Tensor, Parts]:
        """PyTorch's own kernel over x `b t d`: (hidden states `b t n`, the last state)."""
        raise NotImplementedError(type(self).__name__)

    def kernel(self, function, x: Tensor, past: Parts, hidden_bias: Tensor | None = None) -> tuple[Tensor, Parts]:
        """One of PyTorch's recurrent functions with this cell's weights."""
        hidden_bias = torch.zeros_like(self.bias) if hidden_bias is None else hidden_bias
        weights = [self.weight, self.recurrent, self.bias, hidden_bias]
        first = past[0][None] if len(past) == 1 else tuple(part[None] for part in past)
        hidden, *last = function(x, first, weights, True, 1, 0.0, torch.is_grad_enabled(), False, True)
        return hidden, tuple(part[0] for part in last)

    def flops(self, n: int) -> int:
        """Matrix products of n tokens; two for each multiplication with its addition."""
        return 2 * n * (self.weight.numel() + self.recurrent.numel())


class Rnn(Cell):
    """The plain recurrence of RnnSpec."""

    cards = {"hidden": _HIDDEN}

    def __init__(self, spec: RnnSpec, dim: int, width: int) -> None:
        super().__init__(spec, dim, width)
        self.cards = as_built(Rnn.cards, hidden={"formula": f"{spec.activation}(W x_t + U h_{{t−1}} + b)"})

    def next(self, read: Tensor, past: Parts, tap: StepTap, at: int) -> Parts:
        """h = φ(W x + b + U h)."""
        act = torch.tanh if self.spec.activation == "tanh" else torch.relu
        return (tap("hidden", act(read + F.linear(past[0], self.recurrent)), at),)

    def fused(self, x: Tensor, past: Parts) -> tuple[Tensor, Parts]:
        """torch.rnn_tanh or torch.rnn_relu."""
        return self.kernel(torch.rnn_tanh if self.spec.activation == "tanh" else torch.rnn_relu, x, past)


class Gru(Cell):
    """The gated recurrence of GruSpec. Rows of the weights: r, z, n, as PyTorch has them."""

    vectors = 3
    cards = {
        "reset": _gate(
            "r_t",
            "Reset gate: how much of the past enters the proposal.",
            "리셋 게이트: 새 상태를 제안할 때 과거를 얼마나 반영할지 정합니다.",
        ),
        "update": _gate(
            "z_t",
            "Update gate: how much of the old state stays; 1 keeps it, 0 replaces it.",
            "업데이트 게이트: 이전 상태를 얼마나 남길지 정합니다. 1이면 유지하고 0이면 교체합니다.",
        ),
        "candidate": Card(
            "n_t",
            "tanh(W_n x_t + b_n + r_t ⊙ (U_n h_{t−1} + b_U))",
            "The proposal for the new state.",
            "새 상태의 후보입니다.",
            ("S7",),
        ),
        "hidden": Card("h_t", "(1 − z_t) ⊙ n_t + z_t ⊙ h_{t−1}", _HIDDEN.en, _HIDDEN.ko, ("S6", "S7", "S8")),
    }

    def __init__(self, spec: GruSpec, dim: int, width: int) -> None:
        super().__init__(spec, dim, width)
        self.recurrent_bias = nn.Parameter(torch.zeros(width)) if spec.reset == "after" else None
        self.has_kernel = spec.reset == "after"  # PyTorch resets after the product only
        before = {"formula": "tanh(W_n x_t + U_n (r_t ⊙ h_{t−1}) + b_n)"}
        self.cards = as_built(Gru.cards, candidate={} if spec.reset == "after" else before)

    def next(self, read: Tensor, past: Parts, tap: StepTap, at: int) -> Parts:
        """r and z of the token and the state, the proposal n, and h between the old state and it."""
        h, n = past[0], self.width
        gates = read[:, : 2 * n] + F.linear(h, self.recurrent[: 2 * n])
        r, z = torch.sigmoid(gates).split(n, -1)
        r, z = tap("reset", r, at), tap("update", z, at)
        if self.spec.reset == "after":
            carried = r * F.linear(h, self.recurrent[2 * n :], self.recurrent_bias)
        else:
            carried = F.linear(r * h, self.recurrent[2 * n :])
        proposed = tap("candidate", torch.tanh(read[:, 2 * n :] + carried), at)
        return (tap("hidden", (1 - z) * proposed + z * h, at),)

    def fused(self, x: Tensor, past: Parts) -> tuple[Tensor, Parts]:
        """torch.gru."""
        hidden_bias = torch.cat((torch.zeros_like(self.bias[: 2 * self.width]), self.recurrent_bias))
        return self.kernel(torch.gru, x, past, hidden_bias)


class Lstm(Cell):
    """The recurrence with a cell of LstmSpec. Rows of the weights: i, f, g, o, as PyTorch has them."""

    vectors, states = 4, 2
    cards = {
        "input": _gate(
            "i_t", "Input gate: how much of the proposal is written.", "입력 게이트: 후보를 얼마나 기록할지 정합니다."
        ),
        "forget": _gate(
            "f_t",
            "Forget gate: how much of the cell is kept; 1 remembers, 0 erases.",
            "망각 게이트: 셀을 얼마나 유지할지 정합니다. 1이면 기억하고 0이면 지웁니다.",
        ),
        "candidate": Card(
            "g_t", "tanh(W_g x_t + U_g h_{t−1} + b_g)", "The proposal for the cell.", "셀에 기록할 후보입니다.", ("S7",)
        ),
        "output": _gate(
            "o_t", "Output gate: how much of the cell is shown.", "출력 게이트: 셀을 얼마나 드러낼지 정합니다."
        ),
        "cell": Card(
            "c_t",
            "f_t ⊙ c_{t−1} + i_t ⊙ g_t",
            "The cell: what is remembered, changed only by adding and by the forget gate.",
            "셀: 기억하는 내용으로, 망각 게이트를 곱하고 새 값을 더할 때만 바뀝니다.",
            ("S7", "S8"),
        ),
        "hidden": Card("h_t", "o_t ⊙ tanh(c_t)", _HIDDEN.en, _HIDDEN.ko, ("S6", "S7", "S8")),
    }

    def draw(self, init: InitSpec) -> None:
        """The biases of the input and the forget gates start where the spec says."""
        super().draw(init)
        write, keep, *_ = self.bias.detach().split(self.width)
        if self.spec.chrono is None:
            keep.fill_(self.spec.forget_bias)
        else:
            keep.uniform_(1, self.spec.chrono - 1).log_()
            write.copy_(-keep)

    def next(self, read: Tensor, past: Parts, tap: StepTap, at: int) -> Parts:
        """Four vectors of the token and the state, the cell, and what is shown of it."""
        h, c = past
        i, f, g, o = (read + F.linear(h, self.recurrent)).chunk(4, -1)
        i, f = tap("input", torch.sigmoid(i), at), tap("forget", torch.sigmoid(f), at)
        g, o = tap("candidate", torch.tanh(g), at), tap("output", torch.sigmoid(o), at)
        c = tap("cell", f * c + i * g, at)
        return tap("hidden", o * torch.tanh(c), at), c

    def fused(self, x: Tensor, past: Parts) -> tuple[Tensor, Parts]:
        """torch.lstm."""
        return self.kernel(torch.lstm, x, past)


CELLS: dict[type, type[Cell]] = {RnnSpec: Rnn, GruSpec: Gru, LstmSpec: Lstm}


def end_width(spec: Spec, dim: int) -> int | None:
    """How many numbers a mixer's last state has, in a model of width dim; None: it has no such state."""
    kind = CELLS.get(type(spec))
    return None if kind is None else (spec.hidden or dim) * kind.states * (1 + spec.bidirectional)


def check_start(spec: StartSpec, widths: list[int], dim: int) -> None:
    """Raise SettingError where an encoder whose mixers end in these widths gives a decoder of width dim no start."""
    if not -len(widths) <= spec.layer < len(widths):
        has = f"it has {len(widths)} (0 to {len(widths) - 1})" if widths else "it has none; set start=null"
        raise SettingError(f"mixer.start.layer: {spec.layer} is no recurrent mixer of the encoder; {has}")
    if (spec.width or dim) != widths[spec.layer]:
        raise SettingError(
            f"mixer.start.width: {spec.width or dim} is not what the encoder ends in; use {widths[spec.layer]}"
        )


class Start(nn.Module):
    """A decoder's first state, of StartSpec."""

    path = ""

    def __init__(self, spec: StartSpec, dim: int, cell: Cell) -> None:
        super().__init__()
        self.spec, self.width = spec, cell.width
        self.bridge = Linear(spec.width or dim, cell.states * cell.width)

    def forward(self, call: Call) -> Parts:
        """`b n` each, of the encoder's last states in the call."""
        if not call.handed:
            raise InputError("this model begins with an encoder's last state; give it one (handed=…)")
        made = self.bridge(call.handed[self.spec.layer])
        return (torch.tanh(made) if self.spec.activation == "tanh" else made).split(self.width, -1)
