"""The checks and figures of faithfulness, the same for every attribution."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ...data.display import Cell
from ..answer import Baseline
from ..explainer import names_of, number
from ..explanation import Check, Figure, Line, Number, Said, Series, Table, TokenScores
from ..faithfulness import Faithfulness, Measured

CONTROLS = ("", "_random", "_reversed")
CHECKS = (*(f"{one}{control}" for one in ("comprehensiveness", "sufficiency") for control in CONTROLS), "spearman")


def checks_of(found: Faithfulness | None) -> tuple[Check, ...]:
    """The checks that every attribution carries: AOPC of its order, of random ones and of the reversed one, and the
    rank correlation with true removal; found None: they are not measured yet."""
    rows = {} if found is None else {name: rest for name, *rest in found.table()}
    made = []
    for name in ("comprehensiveness", "sufficiency"):
        own, mean, _, reverse = rows.get(name, [None] * 4)
        for control, value, said in zip(CONTROLS, (own, mean, reverse), ORDERS, strict=True):
            made.append(Check(f"{name}{control}", _both(AOPC[name], said, found), _number(value)))
    return (*made, Check("spearman", _both(SPEARMAN, OWN, found), _number(rows.get("spearman", [None])[0])))


def figures_of(found: Faithfulness, cells: Sequence[Cell]) -> tuple[Figure, ...]:
    """The curves of deletion and insertion, what removing each token alone does, and all measures."""
    return (
        _curve(found, "deletion", DELETION, lambda one: one.deletion),
        _curve(found, "insertion", INSERTION, lambda one: one.insertion),
        _single(found, cells),
        Table(
            "faithfulness",
            TITLE,
            (MEASURE, OWN, RANDOM, DEVIATION, REVERSED),
            [[name, *map(_number, values)] for name, *values in found.table()],
        ),
    )


def _curve(found: Faithfulness, name: str, title: Said, of: Callable[[Measured], Sequence[float]]) -> Series:
    """f after so many tokens, in the attribution's order, in random ones with their deviation, and reversed."""
    random = np.array([of(one) for one in found.random])
    errors = None if len(random) < 2 else [number(one) for one in random.std(0, ddof=1).tolist()]
    lines = [Line(OWN, [number(one) for one in of(found.own)])]
    if len(random):
        lines.append(Line(RANDOM, [number(one) for one in random.mean(0).tolist()], errors))
    lines.append(Line(REVERSED, [number(one) for one in of(found.reverse)]))
    x = tuple(f"{count}/{len(found.places)}" for count in found.counts)
    return Series(name, _named(title, found.baseline), x, HOW_MANY, F_UNIT, tuple(lines))


def _single(found: Faithfulness, cells: Sequence[Cell]) -> TokenScores:
    values: list[Number] = [None] * len(cells)
    for place, value in zip(found.places, found.single, strict=True):
        values[place] = number(value)
    return TokenScores("removed", _named(SINGLE, found.baseline), names_of(cells), values, F_UNIT, scale="signed")


def _named(title: Said, baseline: Baseline) -> Said:
    way = BASELINES[baseline]
    return Said(f"{title.en} ({way.en})", f"{title.ko}({way.ko})")


def _both(what: Said, order: Said, found: Faithfulness | None) -> Said:
    said = Said(f"{what.en}: {order.en}", f"{what.ko}: {order.ko}")
    return said if found is None else _named(said, found.baseline)


def _number(value: float | None) -> Number:
    return None if value is None else number(value)


TITLE = Said("How faithful this attribution is", "이 귀속의 충실도")
MEASURE, HOW_MANY, F_UNIT = Said("measure", "측도"), Said("tokens", "토큰 수"), Said("f", "f")
OWN, RANDOM, REVERSED = Said("this order", "이 순서"), Said("random orders", "무작위 순서"), Said("reversed", "거꾸로")
DEVIATION = Said("their deviation", "무작위 순서의 표준편차")
ORDERS = (OWN, RANDOM, REVERSED)
AOPC = {
    "comprehensiveness": Said(
        "Comprehensiveness, f(x) − f(x without the first 1 to 50 % of the tokens), the larger the better",
        "포괄성: f(x) − f(앞 순위 토큰 1~50 %를 뺀 x)의 평균으로, 클수록 좋음",
    ),
    "sufficiency": Said(
        "Sufficiency, f(x) − f(the first 1 to 50 % of the tokens alone), the smaller the better",
        "충분성: f(x) − f(앞 순위 토큰 1~50 %만 남긴 x)의 평균으로, 작을수록 좋음",
    ),
}
SPEARMAN = Said(
    "Rank correlation (Spearman) of the scores with what removing each token alone does",
    "점수와 토큰을 하나씩 뺐을 때의 변화 사이의 순위 상관(스피어만)",
)
DELETION = Said("f as the tokens are taken out one after the other", "토큰을 차례로 뺄 때의 f")
INSERTION = Said("f of the first tokens alone", "앞 순위 토큰만 남겼을 때의 f")
SINGLE = Said("What f loses without each token alone", "토큰을 하나만 뺐을 때 줄어드는 f")
BASELINES: dict[Baseline, Said] = {
    "delete": Said("deleted, what follows moves up", "삭제하고 뒤의 토큰을 당김"),
    "mask": Said("masked, nobody can look there", "자리를 두고 아무도 보지 못하게 함"),
    "pad": Said(
        "replaced by the tokenizer's mask, unknown or padding token", "토크나이저의 마스크·미등록·패딩 토큰으로 바꿈"
    ),
    "mean": Said("replaced by the mean row of the embedding table", "임베딩 표의 평균 벡터로 바꿈"),
}
