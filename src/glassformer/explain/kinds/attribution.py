"""attribution: what one number of a run comes from, token by token, and how faithful that is."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, cast

import torch
from torch import Tensor

from ...data.display import By
from ...errors import InputError, UnsupportedError
from ...image import ImageModel
from ...nn.head import Head
from ...trace import Trace
from ..answer import Answer, Baseline
from ..attribution import Attribution, Method, Origin, attribution
from ..explainer import (
    SEEDS,
    Explainer,
    Limit,
    Report,
    Settings,
    cells_of,
    has_tokens,
    last_of,
    line,
    names_of,
    number,
    of_text,
)
from ..explanation import Check, Explanation, Figure, Number, Said, Scale
from ..faithfulness import faithfulness
from ..image_answer import ImageAnswer
from ..sheet import counted
from ..target import Target, What
from .faithful import CHECKS, by_place, checks_of, figures_of, spoken
from .next import in_classes


class AttributionSpec(Settings, frozen=True, tag="attribution"):
    """method: how scores are found. what, token, candidate, against: the number that is explained, as in target.Target,
    with token a group of the text. by: how tokens are grouped; a group's score is the sum of its tokens'. of: "source",
    what a pair's source accounts for. layer, head: of the methods by attention. steps, origin: of integrated. second:
    the other text of patching. measure: how tokens are taken out to measure how faithful it is, "off": not measured;
    of removal also how its scores are found, there "off" deletes, and of an image puts its mean colour. orders, seed:
    random orders beside it. Of an image's classes token and by say nothing: its patches, or pixels, have scores."""

    method: Method = "gradient"
    what: What = "auto"
    token: int = -1
    by: By = "token"
    candidate: str = ""
    against: str = ""
    of: Literal["text", "source"] = "text"
    layer: int | None = None
    head: int | None = None
    steps: int = 32
    origin: Origin = "mean"
    second: str = ""
    measure: Literal["off", "delete", "mask", "pad", "mean"] = "off"
    orders: int = 5
    seed: int = 0

    LIMITS: ClassVar[dict[str, Limit]] = {
        "steps": Limit(1, 512),
        "orders": Limit(2, 100),
        "seed": Limit(0, SEEDS),
    }
    OF_TEXT: ClassVar[dict[str, tuple[str, ...]]] = {
        "method": ("patching",),
        "what": ("vector",),
        "token": (),
        "by": (),
        "origin": ("pad",),
        "second": (),
        "measure": ("delete", "mask"),
    }


def made(trace: Trace, settings: AttributionSpec, report: Report) -> Explanation:
    """The figure "scores", and where it is measured "deletion", "insertion", "removed" and "faithfulness"."""
    answer = answer_of(trace, settings)
    if answer.kind != "tokens" and (settings.second or settings.method == "patching"):
        raise UnsupportedError("second: an image is compared with no text; use gradient, integrated or removal")
    baseline: Baseline = answer.usual if settings.measure == "off" else settings.measure
    found = attribution(
        answer,
        settings.method,
        layer=settings.layer,
        head=settings.head,
        steps=settings.steps,
        origin=settings.origin,
        baseline=baseline,
        second=second_of(trace, settings.second, settings.of) if settings.second else None,
        report=report,
    )
    measured = None
    if settings.measure != "off":
        how = {"orders": settings.orders, "seed": settings.seed, "report": report}
        measured = faithfulness(answer, found.scores, baseline, **how)
    figures: list[Figure] = [_scores(answer, found, settings)]
    if measured is not None:
        figures += figures_of(measured, answer)
    checks = checks_of(measured, answer)
    if found.completeness is not None:
        said = CLOSED if settings.method == "decompx" else COMPLETE
        far = found.completeness > FAR  # too few steps, or a function that jumps on the way
        checks = (Check("completeness", said, number(found.completeness), False if far else None), *checks)
    python = line("attribution", settings)
    return Explanation("attribution", TITLE, _claim(answer, settings.method), tuple(figures), checks, python)


def answer_of(trace: Trace, settings: Any) -> Answer:
    """The number that settings name, as a function of what is read: of the text where they name no other."""
    if isinstance(trace.model, ImageModel):
        if settings.of == "source":
            raise InputError("of: only an encoder-decoder has a source; use text")
        if settings.what == "vector":
            raise InputError("what: of an image it is a class that is explained; use logit")
        return ImageAnswer(trace, Target(settings.what, -1, settings.candidate, settings.against))
    groups = cells_of(trace, trace.stacks[-1], settings.by)
    chosen = counted("token", settings.token, len(groups))
    target = Target(settings.what, last_of(groups)[chosen], settings.candidate, settings.against)
    return Answer(trace, target, getattr(settings, "of", "text"))


def second_of(trace: Trace, second: str, of: str) -> Tensor:
    """The ids `1 s` of another text that the same stack reads."""
    if len(trace.stacks) == 1:
        return trace.loaded.inputs(second)[0]
    if of == "source":
        return torch.tensor([trace.loaded.read(second)])
    raise InputError("second: of a pair only the source can be compared with another; use of=source")


def _scores(answer: Answer, found: Attribution, settings: AttributionSpec) -> Figure:
    text = answer.kind == "tokens"
    cells = cells_of(answer.trace, answer.stack, settings.by) if text else []
    seen = set(range(answer.length if answer.end is None else answer.end))
    if settings.method == "removal":  # of the others there is no run without them
        seen = set(answer.removable)
    values: list[Number] = []
    for tokens in [cell.tokens for cell in cells] if text else [(i,) for i in range(answer.length)]:
        own = [t for t in tokens if t in seen]
        values.append(number(found.scores[own].sum().item()) if own else None)
    chosen = None
    if settings.of == "text" and answer.place is not None:
        chosen = next(i for i, cell in enumerate(cells) if answer.place in cell.tokens)
    of, scale = spoken(SCORES, answer), cast(Scale, "signed" if found.signed else "plain")
    title = Said(f"{of.en}: {answer.said.en}", f"{of.ko}: {answer.said.ko}")
    return by_place("scores", title, answer, values, UNITS[settings.method], names_of(cells), chosen, scale)


def _claim(answer: Answer, method: Method) -> Said:
    claims = CLAIMS if answer.kind == "tokens" else CLAIMS | OF_IMAGE
    said, trust, what = spoken(claims[method], answer), spoken(TRUST, answer), answer.said
    return Said(f"f is {what.en}. {said.en} {trust.en}", f"f는 {what.ko}입니다. {said.ko} {trust.ko}")


FAR = 0.2  # of f(x) − f(x'), and no longer a sum
TITLE = Said("What an answer comes from", "답이 어디에서 왔는가")
SCORES = Said("What each {token} accounts for", "{token}마다 답에 기여한 정도")
COMPLETE = Said(
    "How far the scores are from adding up to f(x) − f(x'), as a share of it",
    "점수의 합과 f(x) − f(x') 사이의 차이를 f(x) − f(x')에 대한 비율로 나타낸 값",
)
CLOSED = Said(
    "How far all parts, those of the biases with them, are from adding up to f, as a share of it",
    "편향의 몫까지 더한 모든 몫의 합과 f 사이의 차이를 f에 대한 비율로 나타낸 값",
)
F, SHARE, LENGTH = Said("of f", "f의 단위"), Said("share", "비율"), Said("length of the vector", "벡터의 길이")
UNITS: dict[Method, Said] = {
    "gradient": F,
    "integrated": F,
    "patching": F,
    "decompx": F,
    "removal": F,
    "pattern": SHARE,
    "value-norm": LENGTH,
    "rollout": SHARE,
    "flow": SHARE,
    "alti": SHARE,
}
CLAIMS: dict[Method, Said] = {
    "gradient": Said(
        "A {token}'s score is ⟨∂f/∂x_s, x_s⟩, gradient times input: to first order what f loses when the {token}'s "
        "rows of the embedding tables become 0 (of a second one, embed.previous, the row that enters one place later "
        "too).",
        "{token}의 점수는 기울기와 입력의 곱 ⟨∂f/∂x_s, x_s⟩입니다. 임베딩 표에서 가져온 {token}의 벡터가 0이 될 때 "
        "줄어드는 f의 1차 근사입니다(둘째 표 embed.previous가 있으면 한 자리 뒤에서 들어가는 행까지 포함).",
    ),
    "integrated": Said(
        "A {token}'s score is (x_s − x'_s)·∫ ∂f/∂x_s da along the straight way from x' to x (integrated gradients); "
        "the scores add up to f(x) − f(x'), as far as the check below says.",
        "{token}의 점수는 x'에서 x까지 곧은 길을 따라 적분한 (x_s − x'_s)·∫ ∂f/∂x_s da(적분 기울기)입니다. 점수의 합은 "
        "f(x) − f(x')와 같으며, 그 오차를 아래에서 측정했습니다.",
    ),
    "patching": Said(
        "A {token}'s score is ⟨∂f/∂x_s, x_s − x'_s⟩ with x' of the other text (attribution patching): to first order "
        "what f loses when this {token} becomes that of the other text.",
        "{token}의 점수는 다른 텍스트의 x'로 구한 ⟨∂f/∂x_s, x_s − x'_s⟩(귀속 패칭)입니다. 이 {token}을 다른 텍스트의 "
        "{token}으로 바꿀 때 줄어드는 f의 1차 근사입니다.",
    ),
    "decompx": Said(
        "A {token}'s score is ⟨∂f/∂x_s, x_s⟩ of the network held still, with norms, gates and attention patterns as "
        "they were in this run and nonlinearities as slopes (DecompX): with the parts of the biases the scores are f "
        "exactly. What a {token} did to the patterns is not in its score.",
        "{token}의 점수는 정규화, 게이트, 어텐션 패턴을 이 실행의 값으로, 비선형 함수를 기울기로 고정한 신경망의 "
        "⟨∂f/∂x_s, x_s⟩입니다(DecompX). 편향의 몫까지 더하면 정확히 f가 됩니다. {token}이 패턴을 바꾼 효과는 "
        "점수에 들어 있지 않습니다.",
    ),
    "removal": Said(
        "A {token}'s score is f(x) − f(x without it), from a run without the {token}: no approximation, and it counts "
        "what the others no longer get from it.",
        "{token}의 점수는 그 {token} 없이 실행하여 구한 f(x) − f(그 {token}을 뺀 x)입니다. 근사가 아니며, 다른 "
        "{token}이 그 {token}에서 얻지 못하게 된 것까지 셉니다.",
    ),
    "pattern": Said(
        "A {token}'s score is its attention weight α_ts in one layer. By itself it is not an explanation.",
        "{token}의 점수는 한 층의 어텐션 가중치 α_ts입니다. 그 자체가 설명은 아닙니다.",
    ),
    "value-norm": Said(
        "A {token}'s score is ‖Σ_h α_ts v_s W_O‖, the length of what the weights of one layer carry.",
        "{token}의 점수는 한 층의 가중치가 옮기는 벡터의 길이 ‖Σ_h α_ts v_s W_O‖입니다.",
    ),
    "rollout": Said(
        "The scores are a row of the product of ½ (A + I) over the layers, A the mean of the heads' weights (attention "
        "rollout).",
        "점수는 헤드 가중치의 평균 A로 만든 ½ (A + I)를 층마다 곱한 행렬의 한 행입니다(어텐션 롤아웃).",
    ),
    "flow": Said(
        "A {token}'s score is the most that can flow to it from the answer's place when ½ (A + I) of each layer are "
        "the widths of pipes (attention flow).",
        "{token}의 점수는 층마다 ½ (A + I)를 관의 굵기로 볼 때 답의 자리에서 그 {token}까지 흐를 수 있는 "
        "최대량입니다(어텐션 플로).",
    ),
    "alti": Said(
        "The scores are a row of the product over the layers of c_ts ∝ max(0, ‖y_t‖₁ − ‖y_t − T_t(x_s)‖₁): how far "
        "what {token} s contributes makes the vector y_t behind attention what it is (ALTI).",
        "점수는 층마다 c_ts ∝ max(0, ‖y_t‖₁ − ‖y_t − T_t(x_s)‖₁)를 곱한 행렬의 한 행입니다. c_ts는 {token} s의 몫이 "
        "어텐션을 지난 벡터 y_t를 이루는 정도입니다(ALTI).",
    ),
}
OF_IMAGE: dict[Method, Said] = {
    "gradient": Said(
        "A {token}'s score is ⟨∂f/∂x_s, x_s⟩ of its pixels, gradient times input: to first order what f loses when the "
        "{token} becomes black.",
        "{token}의 점수는 픽셀값과 기울기의 곱 ⟨∂f/∂x_s, x_s⟩입니다. {token}을 검게 할 때 줄어드는 f의 1차 근사입니다.",
    ),
    "integrated": Said(
        "A {token}'s score is (x_s − x'_s)·∫ ∂f/∂x_s da along the straight way from x', an image of the mean colour or "
        "a black one, to x (integrated gradients); the scores add up to f(x) − f(x'), as far as the check below says.",
        "{token}의 점수는 평균 색이나 검은색으로만 된 이미지 x'에서 x까지 곧은 길을 따라 적분한 (x_s − x'_s)·∫ ∂f/∂x_s "
        "da(적분 기울기)입니다. 점수의 합은 f(x) − f(x')와 같으며, 그 오차를 아래에서 측정했습니다.",
    ),
    "removal": Said(
        "A {token}'s score is f(x) − f(x without it), from a run in which the image's mean colour, or black, stands in "
        "its place: no approximation.",
        "{token}의 점수는 그 자리에 이미지의 평균 색이나 검은색을 넣고 실행하여 구한 f(x) − f(그 {token}을 뺀 "
        "x)입니다. 근사가 아닙니다.",
    ),
}
TRUST = Said(
    "How far to trust the order of the scores is measured by taking {tokens} out, beside random orders and the "
    "reversed one (set measure).",
    "점수의 순서를 얼마나 믿을 수 있는지는 {token}을 빼면서 무작위 순서, 거꾸로 된 순서와 견주어 측정합니다"
    "(measure 설정).",
)


def answers(trace: Trace) -> bool:
    """Whether a run of a text ends in logits, of tokens or classes, or in its tokens' vectors: a number of it can be
    explained."""
    if not of_text(trace):
        return False
    stack = trace.stacks[-1]
    bare = stack.model.head is None and has_tokens(trace) and hasattr(stack.model.embed, "token")
    return isinstance(stack.model.head, Head) or in_classes(trace) or bare


def pictured(trace: Trace) -> bool:
    """Whether a run of one image ends in the logits of classes."""
    return isinstance(trace.model, ImageModel) and bool(trace.model.spec.classes) and len(trace.stacks[0].tokens) == 1


ATTRIBUTION = Explainer(
    "attribution", TITLE, AttributionSpec, made, lambda trace: answers(trace) or pictured(trace), CHECKS
)
