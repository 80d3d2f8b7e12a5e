"""tracing: in which layer and at which token the answer to a spoilt text can be given back."""

from __future__ import annotations

import re
from typing import ClassVar, Literal

from torch import Tensor

from ...data.display import By
from ...trace import Trace
from ..answer import Answer
from ..explainer import (
    SEEDS,
    Explainer,
    Limit,
    Report,
    Settings,
    cells_of,
    known,
    line,
    names_of,
    number,
    numbers,
    places_of,
)
from ..explanation import Check, Explanation, Figure, HeatMap, Said, Table, TokenScores
from ..faithfulness import spearman
from ..target import What
from ..tracing import Part, Traced, Way, put_back, spoilt_by_noise, traced
from .attribution import answer_of, answers, second_of

EXACT = 1e-3  # of the total effect; fp32 runs are nearer to it by far


class TracingSpec(Settings, frozen=True, tag="tracing"):
    """what, token, candidate, against: the number f, as in target.Target, with token a group of the text as `by` groups
    it. of: "source", the stack that reads a pair's source. subject: what is spoilt, a word of the text or places as
    "3,7"; "": all tokens but special ones and the answer's own. noise: times the deviation of the embedding table's
    numbers; draws: how often, seed: of the first. second: another text of as many tokens in the place of noise. part:
    what is put back; window: in so many layers together. way: "exact", "gradient" (to first order) or "both"."""

    what: What = "auto"
    token: int = -1
    by: By = "token"
    candidate: str = ""
    against: str = ""
    of: Literal["text", "source"] = "text"
    subject: str = ""
    noise: float = 3.0
    draws: int = 3
    seed: int = 0
    second: str = ""
    part: Part = "resid"
    window: int = 1
    way: Way = "exact"

    LIMITS: ClassVar[dict[str, Limit]] = {
        "noise": Limit(positive=True),
        "draws": Limit(1, 64),
        "seed": Limit(0, SEEDS),
        "window": Limit(1, 1000),
    }


def made(trace: Trace, settings: TracingSpec, report: Report) -> Explanation:
    """The figures "effects" and "gradient" (layers by tokens), "best", the largest effect of each token, and "runs", f
    of the clean and of the spoilt text."""
    answer = answer_of(trace, settings)
    cells = cells_of(trace, answer.stack)
    subject = _subject(answer, settings.subject, settings.of)
    if settings.second:
        spoilt = [answer.rows_of(second_of(trace, settings.second, settings.of))]
    else:
        spoilt = spoilt_by_noise(answer, subject, settings.noise, settings.draws, settings.seed)
    found = traced(answer, spoilt, part=settings.part, window=settings.window, way=settings.way, report=report)
    names, layers = names_of(cells), tuple(map(str, found.layers))
    figures: list[Figure] = []
    for name, title, values, errors in (
        ("effects", EFFECTS, found.exact, found.errors),
        ("gradient", GRADIENT, found.gradient, None),
    ):
        if values is not None:
            shown = None if errors is None else known(errors)
            figures.append(HeatMap(name, title, layers, names, known(values), LAYER, TOKEN, F, "signed", None, shown))
    best = found.exact if found.exact is not None else found.gradient
    assert best is not None
    there = best.nan_to_num(0.0)
    largest = there.gather(0, there.abs().argmax(0, keepdim=True))[0]
    figures.append(
        TokenScores("best", BEST, names, numbers(largest), F, answer.place if settings.of == "text" else None, "signed")
    )
    runs = ((CLEAN, found.clean), (SPOILT, found.spoilt), (TOTAL, found.clean - found.spoilt))
    figures.append(Table("runs", RUNS, (RUN, Said("f", "f")), [[said.en, number(value)] for said, value in runs]))
    checks = _checks(answer, spoilt[0], found)
    return Explanation("tracing", TITLE, _claim(answer, settings), tuple(figures), checks, line("tracing", settings))


def _subject(answer: Answer, subject: str, of: str) -> list[int]:
    """The places whose tokens are spoilt."""
    if not subject.strip():
        return answer.removable or list(range(answer.length if answer.end is None else answer.end))
    if re.fullmatch(r"[-\d,\s]+", subject) or of == "source":
        return places_of("subject", subject, answer.length)
    return answer.trace.rows(subject, "token")


def _checks(answer: Answer, spoilt: Tensor, found: Traced) -> tuple[Check, ...]:
    """That putting everything back gives the clean run, and how well the first order does."""
    middle = len(found.layers) // 2
    total = abs(found.clean - found.spoilt)
    apart = abs(put_back(answer, spoilt, middle) - found.clean) / max(total, 1e-30)
    agreement = None
    if found.exact is not None and found.gradient is not None:
        there = ~found.exact.isnan() & ~found.gradient.isnan()
        agreement = spearman(found.exact[there].numpy(), found.gradient[there].numpy())
    return (
        Check("put_back", PUT_BACK, number(apart), apart < EXACT if total > EXACT * abs(found.clean) else None),
        Check("agreement", AGREEMENT, number(agreement)),
    )


def _claim(answer: Answer, settings: TracingSpec) -> Said:
    how = BY_TEXT if settings.second else BY_NOISE
    what = answer.said
    return Said(f"f is {what.en}. {how.en} {CLAIM.en}", f"f는 {what.ko}입니다. {how.ko} {CLAIM.ko}")


TITLE = Said("Where an answer can be given back", "답을 되돌릴 수 있는 층과 토큰")
EFFECTS = Said("What f gains when one vector is put back", "벡터 하나를 되돌릴 때 늘어나는 f")
GRADIENT = Said("The same to first order, from one way back", "같은 값의 1차 근사(한 번의 역전파)")
BEST = Said("The largest effect at each token, of either sign", "토큰마다 크기가 가장 큰 효과(부호 포함)")
RUNS, RUN = Said("The runs", "실행"), Said("run", "실행")
CLEAN, SPOILT = Said("clean", "원래 텍스트"), Said("spoilt", "망가뜨린 텍스트")
TOTAL = Said("difference", "차이")
LAYER, TOKEN, F = Said("layer", "층"), Said("token", "토큰"), Said("of f", "f의 단위")
BY_NOISE = Said(
    "The vectors of the subject's tokens are spoilt by Gaussian noise.",
    "대상 토큰의 벡터를 가우스 잡음으로 망가뜨렸습니다.",
)
BY_TEXT = Said(
    "The tokens are those of the other text.",
    "토큰을 다른 텍스트의 것으로 바꾸었습니다.",
)
CLAIM = Said(
    "Then the vector of one layer at one token is put back as it was in the clean run: a cell is "
    "f(spoilt, with it) − f(spoilt) (causal tracing). To first order it is ⟨∂f/∂x, x_clean − x_spoilt⟩.",
    "그런 다음 한 층, 한 토큰의 벡터를 원래 실행의 값으로 되돌립니다. 각 칸은 f(되돌린 실행) − f(망가뜨린 실행)입니다"
    "(인과 추적). 1차 근사는 ⟨∂f/∂x, x_원래 − x_망가뜨림⟩입니다.",
)
PUT_BACK = Said(
    "With all vectors of a layer put back f is that of the clean run: the difference, of the total effect",
    "한 층의 벡터를 모두 되돌린 f와 원래 f 사이의 차이를 전체 효과에 대한 비율로 나타낸 값",
)
AGREEMENT = Said(
    "Rank correlation (Spearman) of the first-order cells with the exact ones",
    "1차 근사와 정확한 값 사이의 순위 상관(스피어만)",
)
TRACING = Explainer("tracing", TITLE, TracingSpec, made, answers, ("put_back", "agreement"))
