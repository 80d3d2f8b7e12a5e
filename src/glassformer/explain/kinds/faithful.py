"""The checks and figures of faithfulness, the same for every attribution."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ..answer import Answer, Baseline
from ..explainer import cells_of, names_of, number
from ..explanation import Check, Figure, HeatMap, Line, Number, Said, Scale, Series, Table, TokenScores
from ..faithfulness import Faithfulness, Measured

CONTROLS = ("", "_random", "_reversed")
CHECKS = (*(f"{one}{control}" for one in ("comprehensiveness", "sufficiency") for control in CONTROLS), "spearman")


def checks_of(found: Faithfulness | None, answer: Answer) -> tuple[Check, ...]:
    """The checks that every attribution carries: AOPC of its order, of random ones and of the reversed one, and the
    rank correlation with true removal; found None: they are not measured yet."""

    def check(name: str, what: Said, order: Said, value: float | None) -> Check:
        said = Said(f"{what.en}: {order.en}", f"{what.ko}: {order.ko}")
        said = spoken(said, answer)
        return Check(name, said if found is None else _named(said, found.baseline, answer), _number(value))

    rows = {} if found is None else {name: rest for name, *rest in found.table()}
    made = []
    for name in ("comprehensiveness", "sufficiency"):
        own, mean, _, reverse = rows.get(name, [None] * 4)
        for control, value, said in zip(CONTROLS, (own, mean, reverse), ORDERS, strict=True):
            made.append(check(f"{name}{control}", AOPC[name], said, value))
    return (*made, check("spearman", SPEARMAN, OWN, rows.get("spearman", [None])[0]))


def figures_of(found: Faithfulness, answer: Answer) -> tuple[Figure, ...]:
    """The curves of deletion and insertion, what removing each token alone does, and all measures."""

    def titled(title: Said) -> Said:
        return _named(spoken(title, answer), found.baseline, answer)

    single: list[Number] = [None] * answer.length
    for place, value in zip(found.places, found.single, strict=True):
        single[place] = number(value)
    many = spoken(HOW_MANY, answer)
    return (
        _curve(found, "deletion", titled(DELETION), many, lambda one: one.deletion),
        _curve(found, "insertion", titled(INSERTION), many, lambda one: one.insertion),
        by_place("removed", titled(SINGLE), answer, single, F_UNIT, scale="signed"),
        Table(
            "faithfulness",
            TITLE,
            (MEASURE, OWN, RANDOM, DEVIATION, REVERSED),
            [[name, *map(_number, values)] for name, *values in found.table()],
        ),
    )


def by_place(
    name: str,
    title: Said,
    answer: Answer,
    values: Sequence[Number],
    unit: Said,
    names: Sequence[str] | None = None,
    chosen: int | None = None,
    scale: Scale = "plain",
) -> TokenScores | HeatMap:
    """A number for each token that an answer reads, or each group that has one of `names`; of an image a map."""
    if (side := answer.side) is not None:
        lines, rows = tuple(map(str, range(side))), [list(values[i * side : (i + 1) * side]) for i in range(side)]
        return HeatMap(name, title, lines, lines, rows, ROW, COLUMN, unit, scale)
    names = names_of(cells_of(answer.trace, answer.stack)) if names is None else names
    return TokenScores(name, title, tuple(names), list(values), unit, chosen, scale)


def spoken(said: Said, answer: Answer) -> Said:
    """A text about the {tokens} that an answer reads, of an image about its patches or pixels."""
    one, many, ko = PLACES[answer.kind]
    return Said(said.en.format(token=one, tokens=many), said.ko.format(token=ko))


def _curve(
    found: Faithfulness, name: str, title: Said, many: Said, of: Callable[[Measured], Sequence[float]]
) -> Series:
    """f after so many tokens, in the attribution's order, in random ones with their deviation, and reversed."""
    random = np.array([of(one) for one in found.random])
    errors = None if len(random) < 2 else [number(one) for one in random.std(0, ddof=1).tolist()]
    lines = [Line(OWN, [number(one) for one in of(found.own)])]
    if len(random):
        lines.append(Line(RANDOM, [number(one) for one in random.mean(0).tolist()], errors))
    lines.append(Line(REVERSED, [number(one) for one in of(found.reverse)]))
    x = tuple(f"{count}/{len(found.places)}" for count in found.counts)
    return Series(name, title, x, many, F_UNIT, tuple(lines))


def _named(title: Said, baseline: Baseline, answer: Answer) -> Said:
    way = (BASELINES if answer.kind == "tokens" else OF_IMAGE)[baseline]
    return Said(f"{title.en} ({way.en})", f"{title.ko}({way.ko})")


def _number(value: float | None) -> Number:
    return None if value is None else number(value)


TITLE = Said("How faithful this attribution is", "이 귀속의 충실도")
MEASURE, HOW_MANY, F_UNIT = Said("measure", "측도"), Said("{tokens}", "{token} 수"), Said("f", "f")
OWN, RANDOM, REVERSED = Said("this order", "이 순서"), Said("random orders", "무작위 순서"), Said("reversed", "거꾸로")
DEVIATION = Said("their deviation", "무작위 순서의 표준편차")
ROW, COLUMN = Said("row", "행"), Said("column", "열")
PLACES = {
    "tokens": ("token", "tokens", "토큰"),
    "patches": ("patch", "patches", "조각"),
    "pixels": ("pixel", "pixels", "픽셀"),
}
ORDERS = (OWN, RANDOM, REVERSED)
AOPC = {
    "comprehensiveness": Said(
        "Comprehensiveness, f(x) − f(x without the first 1 to 50 % of the {tokens}), the larger the better",
        "포괄성: f(x) − f(앞 순위 {token} 1~50 %를 뺀 x)의 평균으로, 클수록 좋음",
    ),
    "sufficiency": Said(
        "Sufficiency, f(x) − f(the first 1 to 50 % of the {tokens} alone), the smaller the better",
        "충분성: f(x) − f(앞 순위 {token} 1~50 %만 남긴 x)의 평균으로, 작을수록 좋음",
    ),
}
SPEARMAN = Said(
    "Rank correlation (Spearman) of the scores with what removing each {token} alone does",
    "점수와 {token}을 하나씩 뺐을 때의 변화 사이의 순위 상관(스피어만)",
)
DELETION = Said("f as the {tokens} are taken out one after the other", "{token}을 차례로 뺄 때의 f")
INSERTION = Said("f of the first {tokens} alone", "앞 순위 {token}만 남겼을 때의 f")
SINGLE = Said("What f loses without each {token} alone", "{token}을 하나만 뺐을 때 줄어드는 f")
BASELINES: dict[Baseline, Said] = {
    "delete": Said("deleted, what follows moves up", "삭제하고 뒤의 토큰을 당김"),
    "mask": Said("masked, nobody can look there", "자리를 두고 아무도 보지 못하게 함"),
    "pad": Said(
        "replaced by the tokenizer's mask, unknown or padding token", "토크나이저의 마스크·미등록·패딩 토큰으로 바꿈"
    ),
    "mean": Said("replaced by the mean row of the embedding table", "임베딩 표의 평균 벡터로 바꿈"),
}
OF_IMAGE: dict[Baseline, Said] = {
    "mean": Said("replaced by the image's mean colour", "이미지의 평균 색으로 바꿈"),
    "pad": Said("replaced by black", "검은색으로 바꿈"),
}
