"""The settings of a run's explanations, as the page offers them: read from their specs, so that those of a new
explanation appear by themselves."""

from __future__ import annotations

from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import msgspec

from ..explain.explained import EXPLANATIONS, available
from ..explain.explainer import Settings, cells_of, has_tokens, length_of
from ..explain.explanation import Said
from ..explain.kinds.film import FilmSpec, snapshots
from ..image import ImageModel
from ..rerun import Stack
from ..trace import Trace
from .documents import PageSetting
from .outline import GROUPINGS

MOST_PLACES = 64  # so many layers, heads or tokens are offered as a list; of more the number is asked for


def settings(trace: Trace) -> dict[str, tuple[PageSetting, ...]]:
    """The settings of each explanation that exists for this run, by its name, in the order of its spec."""
    return {
        name: tuple(
            found
            for field in msgspec.structs.fields(EXPLANATIONS[name].settings)
            if (found := _setting(trace, EXPLANATIONS[name].settings, field)) is not None
        )
        for name, _ in available(trace)
    }


def _setting(trace: Trace, of: type[Settings], field: msgspec.structs.FieldInfo) -> PageSetting | None:
    """One setting; None where this run leaves no choice, as of the stack of a model of one."""
    name, title = field.name, TITLES.get(field.name, Said(field.name, field.name))
    kinds = get_args(field.type) if get_origin(field.type) in (Union, UnionType) else (field.type,)
    kind = next(one for one in kinds if one is not NoneType)
    without = of.OF_TEXT.get(name) if isinstance(trace.model, ImageModel) else None
    if without == ():
        return None
    if get_origin(kind) is Literal:
        offered = [str(one) for one in get_args(kind) if one not in (without or ())]
        called = CALLED | (OF_IMAGE if isinstance(trace.model, ImageModel) else {})
        choices = tuple((one, called.get(one, Said(one, one))) for one in offered)
        if name == "of" and len(trace.stacks) == 1:
            return None
        return PageSetting(name, title, "choice", field.default, choices)
    if name in ("stack", "layer", "head"):
        return _place(trace, of, name, title, field.default)
    if name == "step":
        return _step(trace, title, field.default)
    limit = of.LIMITS.get(name)
    least, above = (None, 0) if limit and limit.positive else (limit and limit.least, None)
    places = _places(trace, of, name) if name in ("token", "row") else {}
    shown = "lines" if name in LINES else KINDS.get(kind, "text")
    return PageSetting(name, title, shown, field.default, (), least, limit and limit.most, above, places)


def _stacks(trace: Trace, of: type[Settings]) -> list[Stack]:
    """The stacks that can be chosen."""
    return list(trace.stacks if "stack" in of.__struct_fields__ else trace.stacks[-1:])


def _places(trace: Trace, of: type[Settings], name: str) -> dict[str, tuple[int, ...]]:
    """How many places there are to choose from, by the grouping of tokens, in each stack that can be chosen."""
    stacks = _stacks(trace, of)
    if name == "row" and isinstance(trace.model, ImageModel):  # of the answer, not of the picture
        return {"token": (len(stacks[0].labels("k", 0)),)} if trace.model.spec.classes else {}
    if not has_tokens(trace):
        return {}
    if "by" not in of.__struct_fields__:
        return {"token": tuple(map(length_of, stacks))}
    return {by: tuple(len(cells_of(trace, stack, by)) for stack in stacks) for by in GROUPINGS}


def _step(trace: Trace, title: Said, usual: Any) -> PageSetting:
    """The step of a training: one of those that were kept."""
    kept = list(snapshots(trace))
    if len(kept) > MOST_PLACES:
        return PageSetting("step", title, "whole", usual, (), FilmSpec.LIMITS["step"].least, kept[-1])
    return PageSetting("step", title, "choice", usual, tuple((str(one), Said(str(one), str(one))) for one in kept))


def _place(trace: Trace, of: type[Settings], name: str, title: Said, usual: Any) -> PageSetting | None:
    """A stack, layer or head: one of those that there are."""
    blocks = [list(stack.model.blocks) for stack in trace.stacks]
    if name == "stack":
        names = (("0", Said("encoder", "인코더")), ("1", Said("decoder", "디코더")))
        return PageSetting(name, title, "choice", usual, names) if len(blocks) == 2 else None
    places = {"token": tuple(len(stack.model.blocks) for stack in _stacks(trace, of))} if name == "layer" else {}
    count = max(map(len, blocks), default=0)
    if name == "head":
        mixers = [block.mixer for some in blocks for block in some if hasattr(block, "mixer")]
        count = max((getattr(mixer, "heads", 1) for mixer in mixers), default=0)
    if count > MOST_PLACES:
        return PageSetting(name, title, "whole", usual, (), 0, count - 1, None, places)
    choices = tuple((str(i), Said(str(i), str(i))) for i in range(count))
    return PageSetting(name, title, "choice", usual, choices, places=places) if count else None


LINES = ("texts",)  # settings of several texts, a line each
KINDS: dict[Any, Literal["whole", "number", "text"]] = {int: "whole", float: "number", str: "text"}
TITLES = {
    "against": Said("against (a token, or #id)", "비교 대상(토큰 또는 #번호)"),
    "at": Said("which occurrence in this text", "이 텍스트에서 몇 번째"),
    "baseline": Said("without another text", "다른 텍스트가 없을 때"),
    "before": Said("the text before it was changed", "바꾸기 전 텍스트"),
    "by": Said("grouped by", "묶는 단위"),
    "candidate": Said("candidate (a token, or #id)", "후보(토큰 또는 #번호)"),
    "control": Said("control", "대조"),
    "depth": Said("down to", "어디까지"),
    "directions": Said("random directions", "무작위 방향 수"),
    "draws": Said("draws of noise", "잡음을 뽑는 횟수"),
    "edges": Said("edges of the circuit", "회로의 연결 수"),
    "feature": Said("feature", "특징"),
    "head": Said("head", "헤드"),
    "how": Said("its settings", "그 설명의 설정"),
    "layer": Said("layer", "층"),
    "length": Said("random tokens of a run", "무작위 토큰열의 길이"),
    "lens": Said("lens", "렌즈"),
    "measure": Said("measure by", "측정 방법"),
    "method": Said("method", "방법"),
    "neuron": Said("neuron", "뉴런"),
    "noise": Said("noise (deviations)", "잡음의 크기(표준편차의 배수)"),
    "of": Said("of", "대상"),
    "orders": Said("random orders", "무작위 순서의 수"),
    "origin": Said("begin at", "출발점"),
    "part": Said("what is put back", "되돌릴 부분"),
    "row": Said("one row alone", "한 행만"),
    "rows": Said("these rows alone (3,7)", "이 행들만(예: 3,7)"),
    "samples": Said("edges that are cut", "끊어 볼 연결의 수"),
    "score": Said("ordered by", "순서를 정하는 점수"),
    "second": Said("the other text", "다른 텍스트"),
    "second_at": Said("which occurrence in the other", "다른 텍스트에서 몇 번째"),
    "seed": Said("seed", "난수 시드"),
    "senses": Said("what each text is about, with commas", "텍스트마다의 뜻(쉼표로 나눔)"),
    "sequences": Said("random texts", "무작위 텍스트의 수"),
    "show": Said("explanation to show", "보일 설명"),
    "size": Said("fields on a side", "한 변의 칸 수"),
    "stack": Said("stack", "스택"),
    "step": Said("training step (−1: the last)", "학습 단계(−1은 마지막)"),
    "steps": Said("steps", "단계 수"),
    "subject": Said("what is spoilt (a word, or 3,7)", "망가뜨릴 대상(단어, 또는 3,7)"),
    "temperature": Said("temperature", "온도"),
    "texts": Said("texts, a line each", "텍스트(한 줄에 하나)"),
    "threshold": Said("threshold (of the total)", "문턱값(전체 효과에 대한 비율)"),
    "times": Said("how often the run comes", "되풀이하는 횟수"),
    "token": Said("token (−1: the last)", "토큰(−1은 마지막)"),
    "top": Said("how many", "개수"),
    "vector": Said("vector (its name)", "벡터(이름)"),
    "way": Said("way", "계산 방법"),
    "what": Said("what is explained", "설명할 수"),
    "window": Said("layers together", "함께 되돌릴 층의 수"),
    "word": Said("common word", "공통 단어"),
}
CALLED = {
    "": Said("as the layer has them", "층에 있는 대로"),
    "alone": Said("what each costs alone", "홀로 껐을 때 잃는 것"),
    "alti": Said("ALTI", "ALTI"),
    "attribution": Said("edge attribution", "연결 귀속"),
    "auto": Said("automatic", "자동"),
    "begins": Said("begins a word", "단어의 시작"),
    "both": Said("both", "둘 다"),
    "channel": Said("channel mixer", "채널 믹서"),
    "character": Said("character", "글자"),
    "decompx": Said("DecompX", "DecompX"),
    "delete": Said("tokens deleted", "토큰 삭제"),
    "difference": Said("difference of two logits", "두 로짓의 차이"),
    "duplicate": Said("equal token", "같은 토큰"),
    "estimate": Said("estimate", "추정"),
    "exact": Said("exact", "정확히 계산"),
    "flow": Said("attention flow", "어텐션 플로"),
    "gradient": Said("gradient × input, to first order", "기울기 × 입력, 1차 근사"),
    "hangul": Said("Hangul", "한글"),
    "induction": Said("induction", "귀납"),
    "integrated": Said("integrated gradients", "적분 기울기"),
    "log-probability": Said("log probability", "로그 확률"),
    "logit": Said("logit", "로짓"),
    "mask": Said("tokens masked", "토큰 가림"),
    "mean": Said("mean vector", "평균 벡터"),
    "mixer": Said("token mixer", "토큰 믹서"),
    "norm": Said("a random direction, as far", "같은 크기, 무작위 방향"),
    "off": Said("not measured", "측정하지 않음"),
    "offset": Said("fixed distance", "고정된 거리"),
    "pad": Said("token for none", "빈자리 토큰"),
    "parts": Said("what each part wrote", "각 부분이 쓴 것"),
    "patching": Said("attribution patching", "귀속 패칭"),
    "pattern": Said("attention weights", "어텐션 가중치"),
    "place": Said("another place", "다른 자리"),
    "previous": Said("previous token", "바로 앞 토큰"),
    "pruning": Said("pruning, edge by edge", "연결을 하나씩 끊기"),
    "removal": Said("removal of each token", "토큰을 하나씩 빼기"),
    "repeated": Said("stood there before", "앞에 나온 토큰"),
    "resample": Said("what stands at another place", "다른 자리의 값"),
    "resid": Said("residual", "잔차"),
    "rollout": Said("attention rollout", "어텐션 롤아웃"),
    "sampled": Said("edges cut, sampled", "표본으로 뽑은 연결 끊기"),
    "sink": Said("first token", "첫 토큰"),
    "source": Said("source", "원문"),
    "text": Said("text", "텍스트"),
    "token": Said("token", "토큰"),
    "tokens": Said("the embeddings of all tokens", "모든 토큰의 임베딩"),
    "tuned": Said("tuned lens", "튜닝된 렌즈"),
    "value-norm": Said("weights × value norm", "가중치 × 값의 길이"),
    "vector": Said("vector", "벡터"),
    "word": Said("word", "어절"),
    "zero": Said("zeros", "영벡터"),
}
OF_IMAGE = {  # of what begins an image, or stands in the place of a part of it
    "mean": Said("mean colour", "평균 색"),
    "pad": Said("black", "검은색"),
    "zero": Said("black", "검은색"),
}
