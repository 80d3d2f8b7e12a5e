"""From the last vectors to the distribution of the next token."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..call import Call
from ..errors import SettingError
from ..spec import Spec, check_finite, check_positive
from ..tap import Card, as_built
from .init import InitSpec
from .rework import Rework, ReworkSpec


class HeadSpec(Spec, frozen=True, tag="head"):
    """logits = cap(scale · (r W_U + b)), where r is x, or with `rework` x reworked, as a masked-word head does it: tied
    uses the embedding table as W_U; softcap c gives c·tanh(logits/c); bias: whether there is a b."""

    tied: bool = True
    bias: bool = False
    scale: float = 1.0
    softcap: float | None = None
    rework: ReworkSpec | None = None

    def __post_init__(self) -> None:
        check_positive(self, "softcap")
        check_finite(self, "scale")


_OWN = {
    "en": "One score for each token of the vocabulary; softmax makes it the distribution of the token at this place.",
    "ko": "어휘의 토큰마다 하나씩 있는 점수로, softmax를 거치면 이 자리에 올 토큰의 확률이 됩니다.",
}


def capped(scores: Tensor, limit: float | None) -> Tensor:
    """limit · tanh(scores / limit): keeps scores within ±limit (Gemma 2); unchanged where there is no limit."""
    return scores if limit is None else limit * torch.tanh(scores / limit)


class Head(nn.Module):
    """Vectors `b t d` to logits `b t v`."""

    path = ""
    output = "logits"
    cards = {
        "logits": Card(
            "logits",
            "x W_U",
            "One score for each token of the vocabulary; softmax makes it the next token's distribution.",
            "어휘의 토큰마다 하나씩 있는 점수로, softmax를 거치면 다음 토큰의 확률이 됩니다.",
            ("S21",),
        ),
    }

    def __init__(
        self, spec: HeadSpec, vocab: int, dim: int, table: nn.Parameter, normed: bool = True, causal: bool = True
    ) -> None:
        """dim: the width of the vectors; normed: whether a norm comes before; causal: whether they look back only."""
        super().__init__()
        self.spec = spec
        self.rework = Rework(spec.rework, dim) if spec.rework else None
        width = dim if self.rework is None else self.rework.width
        if spec.tied and width != table.shape[1]:
            raise SettingError(
                f"tied: the table has rows of {table.shape[1]} numbers and the last vectors have {width}; set it to "
                "false"
            )
        self.weight = table if spec.tied else nn.Parameter(torch.zeros(vocab, width))
        self.bias = nn.Parameter(torch.zeros(vocab)) if spec.bias else None
        read = "r" if spec.rework else "norm(x)" if normed else "x"
        formula = f"{read} W_U" + (" + b" if spec.bias else "")
        if spec.scale != 1.0:
            formula = f"{spec.scale:.4g} · ({formula})" if spec.bias else f"{spec.scale:.4g} · {formula}"
        formula = formula if spec.softcap is None else f"{spec.softcap:g} · tanh(({formula})/{spec.softcap:g})"
        self.cards = as_built(Head.cards, logits={"formula": formula} | ({} if causal else _OWN))

    def numbers(self, batch: int, t: int) -> int:
        """How many numbers exist at once while the logits are made."""
        copies = 3 if self.spec.softcap is not None else 2 if self.spec.scale != 1.0 else 1
        return copies * batch * t * len(self.weight)

    def draw(self, init: InitSpec) -> None:
        """Start an untied table like any other weight; a tied one belongs to the embedding."""
        if not self.spec.tied:
            nn.init.normal_(self.weight, std=self.weight.shape[1] ** -0.5 if init.std is None else init.std)

    def forward(self, x: Tensor, call: Call) -> Tensor:
        """`b t d` to `b t v`."""
        x = x if self.rework is None else self.rework(x, call, "b t")
        logits = F.linear(x, self.weight, self.bias)
        if self.spec.scale != 1.0:
            logits = logits * self.spec.scale
        return call.tap(self)("logits", capped(logits, self.spec.softcap), "b t v")

    def flops(self, n: int) -> int:
        """Of n tokens."""
        return 2 * n * self.weight.numel() + (0 if self.rework is None else self.rework.flops(n))
