"""From the vectors of all tokens to one of the whole text, and from that to the scores of classes."""

from __future__ import annotations

from typing import Literal, get_args

import torch.nn.functional as F
from torch import Tensor, nn

from ..call import Call
from ..errors import SettingError
from ..mask import rows
from ..spec import Spec, check_least
from ..tap import Card, as_built
from .init import Linear
from .rework import Rework, ReworkSpec

Pool = Literal["first", "last", "mean"]
POOLS = get_args(Pool)
Scores = Literal["softmax", "sigmoid", "number"]


class PooledSpec(Spec, frozen=True, tag="pooled"):
    """One vector of the whole text, and perhaps the logits of classes: unit(pooler(pool(x))) W + b.

    pool      the first token's vector (BERT's class token), the last one's, or the mean over all tokens
    pooler    what is done to it before it is read (BERT: a rework with tanh); None: nothing
    unit      whether it is brought to length 1, so that a product of two is their cosine
    classes   how many classes are told apart; None: the model ends in the vector
    labels    what the classes are called; empty: their numbers
    scores    what the logits are: "softmax", of classes of which one holds (a single one: its sigmoid); "sigmoid", of
              classes that hold or not each by itself; "number", the very numbers that are estimated
    """

    pool: Pool = "first"
    pooler: ReworkSpec | None = None
    unit: bool = False
    classes: int | None = None
    labels: tuple[str, ...] = ()
    scores: Scores = "softmax"

    def __post_init__(self) -> None:
        check_least(self, 1, "classes")
        if self.labels and len(self.labels) != self.classes:
            raise SettingError(f"labels: there are {len(self.labels)}; give one for each of classes={self.classes}")


_SCORES = {
    "softmax": {},
    "sigmoid": {
        "en": "One score for each class; its sigmoid is the probability that the class holds, whatever the others do.",
        "ko": "분류마다 하나씩 있는 점수로, sigmoid를 거치면 다른 분류와 상관없이 그 분류에 해당할 확률이 됩니다.",
    },
    "number": {
        "en": "The numbers that the model estimates, one for each name.",
        "ko": "모델이 추정한 수로, 이름마다 하나씩 있습니다.",
    },
}
_FORMULA = {"first": "x_1", "last": "x_n", "mean": "mean_t x_t"}


def shares(logits: Tensor, scores: Scores) -> Tensor:
    """What logits `k` say of each class: the probabilities of one choice among all, of each by itself, or themselves,
    which then are what is estimated."""
    return logits.softmax(-1) if scores == "softmax" else logits.sigmoid() if scores == "sigmoid" else logits


def pooled(x: Tensor, call: Call, pool: Pool) -> Tensor:
    """Vectors `b t d` to one of each row, `b d`; places without a token count for nothing, and a row of none is 0 in
    the mean."""
    if call.plain:
        return x.mean(1) if pool == "mean" else x[:, 0 if pool == "first" else -1]
    there = rows(call.pos, len(x)) >= 0
    if pool == "mean":
        return x.masked_fill(~there[..., None], 0).sum(1) / there.sum(1, keepdim=True).clamp(min=1)
    place = there.int().argmax(1) if pool == "first" else there.shape[1] - 1 - there.int().flip(1).argmax(1)
    return x.gather(1, place[:, None, None].expand(-1, 1, x.shape[-1]))[:, 0]


class Pooled(nn.Module):
    """The head of PooledSpec: vectors `b t d` to `b d`, or to the logits `b k` of the classes."""

    path = ""
    cards = {
        "pooled": Card(
            "x̄",
            "x_1",
            "One vector that stands for the whole text.",
            "글 전체를 대표하는 하나의 벡터입니다.",
            ("S22",),
        ),
        "unit": Card(
            "x̄/|x̄|",
            "x̄ / √(Σ x̄²)",
            "The text's vector brought to length 1: the product of two is the cosine of their angle.",
            "길이를 1로 맞춘 글의 벡터입니다. 두 벡터의 내적이 곧 코사인 유사도입니다.",
            ("S22",),
        ),
        "logits": Card(
            "logits",
            "x̄ W + b",
            "One score for each class; softmax makes it the distribution over the classes.",
            "분류마다 하나씩 있는 점수로, softmax를 거치면 분류의 확률이 됩니다.",
            ("S21",),
        ),
    }

    def __init__(self, spec: PooledSpec, dim: int) -> None:
        super().__init__()
        self.spec = spec
        self.pooler = Rework(spec.pooler, dim) if spec.pooler else None
        self.width = dim if self.pooler is None else self.pooler.width
        self.linear = Linear(self.width, spec.classes) if spec.classes else None
        read = "x̄" if spec.pooler is None and not spec.unit else "r"
        self.cards = as_built(
            Pooled.cards,
            pooled={"formula": _FORMULA[spec.pool]},
            unit=({} if read == "x̄" or spec.pooler is None else {"symbol": "r/|r|", "formula": "r / √(Σ r²)"})
            if spec.unit
            else None,
            logits={"formula": f"{read} W + b"} | _SCORES[spec.scores] if spec.classes else None,
        )

    @property
    def scores(self) -> Scores:
        """What its logits are; a single class has its sigmoid."""
        return "sigmoid" if self.spec.scores == "softmax" and self.spec.classes == 1 else self.spec.scores

    @property
    def output(self) -> str:
        """The name of what it ends in, below its path."""
        if self.linear is not None:
            return "logits"
        return "unit" if self.spec.unit else "pooled" if self.pooler is None else "pooler.out"

    def forward(self, x: Tensor, call: Call) -> Tensor:
        """`b t d` to `b d` or `b k`."""
        tap = call.tap(self)
        x = tap("pooled", pooled(x, call, self.spec.pool), "b d")
        x = x if self.pooler is None else self.pooler(x, call, "b")
        axis = "d" if self.pooler is None else self.pooler.axis
        x = tap("unit", F.normalize(x, dim=-1), f"b {axis}") if self.spec.unit else x
        return x if self.linear is None else tap("logits", self.linear(x), "b k")

    def numbers(self, batch: int, t: int) -> int:
        """How many numbers exist at once while it works."""
        return 3 * batch * max(self.width, self.spec.classes or 0)

    def flops(self, n: int) -> int:
        """Of one text of n tokens."""
        return sum(part.flops(1) for part in (self.pooler, self.linear) if part is not None)
