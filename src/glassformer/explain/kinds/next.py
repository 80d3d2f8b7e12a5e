"""next, surprise, classes: what the model says at the end: the next token, how sure it was of each, the class."""

from __future__ import annotations

from typing import ClassVar

from ...data.display import By
from ...nn.head import Head
from ...nn.pool import Pooled, Scores, shares
from ...trace import Trace
from ..explainer import Explainer, Limit, Report, Settings, cells_of, last_of, line, names_of, number, numbers, of_text
from ..explanation import Check, Explanation, Said, Table, TokenScores
from ..quantity import exact
from ..rest import candidates, check_finite, one_way, surprises
from ..sheet import counted


class NextSpec(Settings, frozen=True, tag="next"):
    """token: the position whose distribution is asked for, -1 the last; temperature: what logits are divided by; top:
    how many candidates."""

    token: int = -1
    temperature: float = 1.0
    top: int = 12

    LIMITS: ClassVar[dict[str, Limit]] = {"temperature": Limit(positive=True), "top": Limit(1)}


def made(trace: Trace, settings: NextSpec, report: Report) -> Explanation:
    """The figure "candidates": token id, label, exact text, logit, probability; and the check "shown", their sum."""
    stack = trace.stacks[-1]
    t = counted("token", settings.token, stack.length)
    check_finite(trace, t)
    found = candidates(trace, t, trace.loaded.cell, settings.top, settings.temperature)
    rows: list[list[str | float | int | None]] = [
        [one.token, one.label, one.text, number(one.logit), number(one.probability)] for one in found
    ]
    figure = Table("candidates", TITLE if one_way(trace) else HERE, COLUMNS, rows)
    checks = (Check("shown", SHOWN, number(sum(one.probability for one in found))),)
    return Explanation("next", TITLE, CLAIM, (figure,), checks, line("next", settings))


TITLE = Said("The next token", "다음 토큰")
HERE = Said("The token in this place", "이 자리의 토큰")
COLUMNS = (
    Said("id", "번호"),
    Said("token", "토큰"),
    Said("text", "텍스트"),
    Said("logit", "로짓"),
    Said("probability", "확률"),
)
CLAIM = Said(
    "p(v) = exp(logit_v / T) / Σ_u exp(logit_u / T) over the whole vocabulary: what the model expects after this "
    "token.",
    "p(v) = exp(logit_v / T) / Σ_u exp(logit_u / T): 어휘 전체에 걸친 확률로, 이 토큰 다음에 모델이 예상하는 것입니다.",
)
SHOWN = Said("Probability of all candidates shown together", "보여 준 후보의 확률을 모두 더한 값")


def predicts(trace: Trace) -> bool:
    """Whether a run ends in the distribution of a token at each place."""
    return of_text(trace) and isinstance(trace.stacks[-1].model.head, Head)


NEXT = Explainer("next", TITLE, NextSpec, made, predicts, ("shown",))


# ---------------------------------------------------------------- surprise


class SurpriseSpec(Settings, frozen=True, tag="surprise"):
    """by: how tokens are grouped. A group's surprise is the sum of its tokens', since its probability is the product of
    theirs; the entropy is that behind its last token."""

    by: By = "token"


def surprised(trace: Trace, settings: SurpriseSpec, report: Report) -> Explanation:
    """Figures "surprise", −log₂ of the probability that each token was given, None for the first, and "entropy" of the
    distribution behind each token."""
    cells = cells_of(trace, trace.stacks[-1], settings.by)
    found, spread = surprises(trace, report)
    entropy, names = spread[last_of(cells)], names_of(cells)
    # Nothing stands before the first token, so that nobody expected it: of its group the others are counted.
    told = [[t - 1 for t in cell.tokens if t] for cell in cells]
    figures = (
        TokenScores("surprise", SURPRISE, names, [number(found[at].sum().item()) if at else None for at in told], BITS),
        TokenScores("entropy", ENTROPY, names, numbers(entropy), BITS),
    )
    checks = (Check("mean", MEAN, number(found.mean().item()) if len(found) else None),)
    return Explanation("surprise", SURPRISE, SURPRISED, figures, checks, line("surprise", settings))


BITS = Said("bits", "비트")
SURPRISE = Said("How surprising each token was", "토큰마다의 놀람도")
ENTROPY = Said("How unsure the model is about what follows", "다음에 올 토큰에 대한 불확실성")
MEAN = Said("Mean surprise of this text, bits a token", "이 텍스트의 평균 놀람도(토큰당 비트)")
SURPRISED = Said(
    "−log₂ p(token | what stands before it): 0 bits for what was certain, 1 for a coin's toss; beside it the "
    "entropy −Σ p log₂ p of the distribution behind each token.",
    "−log₂ p(토큰 | 앞의 토큰들): 확실했던 토큰은 0비트, 반반이었던 토큰은 1비트입니다. 토큰마다 그 뒤 분포의 "
    "엔트로피 −Σ p log₂ p도 함께 나타냅니다.",
)


def writes(trace: Trace) -> bool:
    """Whether a run's model tells the next token."""
    return predicts(trace) and one_way(trace)


SURPRISES = Explainer("surprise", SURPRISE, SurpriseSpec, surprised, writes, ("mean",))


# ---------------------------------------------------------------- classes


class ClassesSpec(Settings, frozen=True, tag="classes"):
    """top: how many classes."""

    top: int = 1000

    LIMITS: ClassVar[dict[str, Limit]] = {"top": Limit(1)}


def classified(trace: Trace, settings: ClassesSpec, report: Report) -> Explanation:
    """The figure "classes": number, name, logit, probability."""
    logits, scores = exact(trace.logits[0]), scores_of(trace)
    best = shares(logits, scores).topk(min(settings.top, len(logits)))
    labels = trace.stacks[-1].labels("k", 0)
    rows: list[list[str | float | int | None]] = [
        [i, labels[i], number(logits[i].item()), number(share)]
        for i, share in zip(best.indices.tolist(), best.values.tolist(), strict=True)
    ]
    columns = (Said("number", "번호"), Said("class", "분류"), Said("logit", "로짓"), Said("probability", "확률"))
    if scores == "number":
        rows, columns = [row[:3] for row in rows], (*columns[:1], Said("name", "이름"), Said("estimate", "추정한 값"))
    figures = (Table("classes", CLASSES, columns, rows),)
    return Explanation("classes", CLASSES, OF_CLASSES[scores], figures, (CALIBRATED,), line("classes", settings))


def scores_of(trace: Trace) -> Scores:
    """What the numbers of a run's classes are."""
    head = trace.stacks[-1].model.head
    return head.scores if isinstance(head, Pooled) else "softmax"


def scored(trace: Trace) -> Scores | None:
    """What the numbers are that a run ends in, of tokens or classes; None where it ends in vectors."""
    return scores_of(trace) if isinstance(trace.stacks[-1].model.head, Head) or in_classes(trace) else None


def in_classes(trace: Trace) -> bool:
    """Whether a run ends in classes, or in numbers that are estimated."""
    return trace.axes(trace.stacks[-1].output).endswith("k")


CALIBRATED = Check(
    "calibration",
    Said(
        "How often a class of such a probability is right; one run does not tell, `glassformer evaluate` counts errors",
        "이만한 확률의 분류가 맞는 비율. 한 번의 실행으로는 알 수 없으며, 오류율은 `glassformer evaluate`로 셉니다",
    ),
)
CLASSES = Said("The classes", "분류 결과")
OF_CLASSES: dict[Scores, Said] = {
    "softmax": Said(
        "p(k) = exp(logit_k) / Σ_j exp(logit_j) over all classes.",
        "p(k) = exp(logit_k) / Σ_j exp(logit_j): 모든 분류에 걸친 확률입니다.",
    ),
    "sigmoid": Said(
        "p(k) = 1 / (1 + exp(−logit_k)): each class holds or not by itself, so that these do not add to 1.",
        "p(k) = 1 / (1 + exp(−logit_k)): 분류마다 따로 해당 여부를 판단하므로 더해도 1이 되지 않습니다.",
    ),
    "number": Said(
        "The numbers that the model estimates; they are no probabilities.",
        "모델이 추정한 수이며, 확률이 아닙니다.",
    ),
}


def _classifies(trace: Trace) -> bool:
    return len(trace.stacks[-1].tokens) == 1 and in_classes(trace)


CLASSIFIED = Explainer("classes", CLASSES, ClassesSpec, classified, _classifies, ("calibration",))
