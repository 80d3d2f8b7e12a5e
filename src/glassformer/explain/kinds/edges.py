"""edges: what each weight of an attention does, beside the weight itself."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor

from ...errors import InputError
from ...mixers.multihead import SoftmaxAttention
from ...trace import Trace
from ..answer import Answer
from ..attended import attention_of
from ..edges import Edges, Sampled, edges, sampled
from ..explainer import (
    MOST,
    SEEDS,
    Explainer,
    Limit,
    Report,
    Settings,
    cells_of,
    known,
    length_of,
    line,
    names_of,
    number,
    places_of,
)
from ..explanation import Check, Explanation, Figure, HeatMap, Said, Table
from ..sheet import check_choice, counted
from ..target import Target, What
from .attribution import answers

EXACT = 1e-6  # relative, in fp64


class EdgesSpec(Settings, frozen=True, tag="edges"):
    """layer: with attention (None: the last); head: None, the mean over all. of: "source", the edges from a pair's
    source. rows: those that take, alone and in this order, as "3,7"; "" for all. what, token, candidate, against: the
    number f that an edge is to change, as in target.Target. measure: "sampled" cuts some edges and runs the rest of the
    model; samples: how many, seed: which."""

    layer: int | None = None
    head: int | None = None
    of: Literal["text", "source"] = "text"
    rows: str = ""
    what: What = "auto"
    token: int = -1
    candidate: str = ""
    against: str = ""
    measure: Literal["off", "sampled"] = "off"
    samples: int = 256
    seed: int = 0

    LIMITS: ClassVar[dict[str, Limit]] = {"samples": Limit(16, 4096), "seed": Limit(0, SEEDS)}


def made(trace: Trace, settings: EdgesSpec, report: Report) -> Explanation:
    """The figures "weights", "effects" and, of a run that ends in logits, "directed"; where it is measured "cut"."""
    path = attention_of(trace, settings.layer, settings.of == "source")
    stack = trace.stacks[-1]
    part = trace.model.get_submodule(path)
    check_choice("head", settings.head, getattr(part, "heads", 1))
    cells = cells_of(trace, stack)
    sources = cells_of(trace, trace.stacks[0]) if settings.of == "source" else cells
    rows = places_of("rows", settings.rows, length_of(stack))
    if len(rows) * len(sources) > MOST:
        raise InputError(f"a map of {len(rows)} × {len(sources)} tokens is too large; say which rows, as rows=3,7")
    answer = None
    if answers(trace):
        t = counted("token", settings.token, len(cells))
        answer = Answer(trace, Target(settings.what, t, settings.candidate, settings.against))
    found = edges(trace, path, rows, answer, report)
    takers = [cells[i] for i in rows]
    figures = _maps(found, settings.head, names_of(takers), names_of(sources), path, rows == list(range(len(cells))))
    heads = list(range(len(found.weights))) if settings.head is None else [settings.head]
    measured = None
    if settings.measure == "sampled" and answer is not None:
        measured = sampled(answer, path, found, heads, settings.samples, settings.seed, report)
    if measured is not None:
        figures.append(_cut(measured, names_of(takers), names_of(sources)))
    return Explanation("edges", TITLE, _claim(answer), tuple(figures), _checks(measured), line("edges", settings))


def _maps(found: Edges, head: int | None, rows: tuple, columns: tuple, path: str, all_rows: bool) -> list[Figure]:
    layer = path.split(".")[path.split(".").index("blocks") + 1]
    whose = Said(f"head {layer}.{head}", f"{layer}.{head} 헤드")
    if head is None:
        several = len(found.weights) > 1
        whose = Said(f"layer {layer}{', mean over its heads' * several}", f"{layer}층{' 헤드들의 평균' * several}")

    def map(name: str, title: Said, values: Tensor, unit: Said, scale: Literal["share", "plain", "signed"]) -> HeatMap:
        title = Said(f"{title.en} · {whose.en}", f"{title.ko} · {whose.ko}")
        own = values.nanmean(0) if head is None else values[head]
        own = own.masked_fill(unseen, torch.nan) if name == "weights" else own
        value, where = "", {}
        if name == "weights" and head is not None and all_rows:
            value, where = f"{path}.pattern", {"b": 0, "h": head}
        return HeatMap(name, title, rows, columns, known(own), INTO, FROM, unit, scale=scale, value=value, where=where)

    shown = found.weights if head is None else found.weights[[head]]
    unseen = (shown == 0).all(0)  # by any of the heads that are shown
    made: list[Figure] = [
        map("weights", WEIGHTS, found.weights, SHARE, "share"),
        map("effects", EFFECTS, found.effects, LENGTH, "plain"),
    ]
    if found.directed is not None:
        made.append(map("directed", DIRECTED, found.directed, F, "signed"))
    return made


def _cut(found: Sampled, rows: tuple[str, ...], columns: tuple[str, ...]) -> Table:
    """The edges that were cut, those that changed f most first."""
    order = found.changes.abs().argsort(descending=True).tolist()
    table: list[list[str | float | int | None]] = []
    for i in order:
        head, row, source = found.edges[i].tolist()
        values = (found.weights[i], found.directed[i], found.changes[i])
        table.append([head, rows[row], columns[source], *(number(value.item()) for value in values)])
    return Table("cut", CUT, (HEAD, INTO, FROM, WEIGHT, ROUGHLY, TRULY), table)


def _checks(found: Sampled | None) -> tuple[Check, ...]:
    formula = None if found is None else found.formula
    return (
        Check("formula", FORMULA, number(formula), None if formula is None else formula < EXACT),
        Check("agreement", AGREEMENT, number(None if found is None else found.agreement)),
        Check("agreement_weights", OF_WEIGHTS, number(None if found is None else found.agreement_of_weights)),
    )


def _claim(answer: Answer | None) -> Said:
    if answer is None:
        return CLAIM
    return Said(f"{CLAIM.en} {ALONG.en} f is {answer.said.en}.", f"{CLAIM.ko} {ALONG.ko} f는 {answer.said.ko}입니다.")


TITLE = Said("What each attention weight does", "어텐션 가중치 하나하나가 하는 일")
WEIGHTS = Said("The weights α_ts", "가중치 α_ts")
EFFECTS = Said("How far the output moves without the edge", "그 연결이 없으면 출력이 움직이는 거리")
DIRECTED = Said("What f gains without the edge, to first order", "그 연결이 없으면 늘어나는 f(1차 근사)")
CUT = Said("Edges that were cut", "실제로 끊어 본 연결")
INTO, FROM, HEAD = Said("into", "받는 토큰"), Said("from", "보내는 토큰"), Said("head", "헤드")
SHARE, LENGTH, F = Said("share", "비율"), Said("length of the vector", "벡터의 길이"), Said("of f", "f의 단위")
WEIGHT, ROUGHLY = Said("weight", "가중치"), Said("first order", "1차 근사")
TRULY = Said("measured change of f", "측정한 f의 변화")
CLAIM = Said(
    "Without the edge from s to t the other weights grow to sum to 1, and the head gives "
    "o'_t = o_t + α/(1 − α)·(o_t − v_s): exactly, and beside each weight stands how far that moves what attention "
    "gives, ‖(o'_t − o_t) W_O‖. A large weight on a value that the others give anyway does nothing. Where s is all "
    "that t may see, there is no such effect.",
    "s에서 t로 가는 연결을 끊으면 나머지 가중치가 합이 1이 되도록 커지고, 헤드의 출력은 "
    "o'_t = o_t + α/(1 − α)·(o_t − v_s)가 됩니다. 근사가 아닌 정확한 식이며, 어텐션의 출력이 그만큼 움직이는 거리 "
    "‖(o'_t − o_t) W_O‖를 가중치 옆에 보입니다. 다른 토큰들이 이미 주는 값이라면 가중치가 커도 아무 일도 하지 "
    "않습니다. t가 s밖에 볼 수 없는 곳에는 이 효과가 정의되지 않습니다.",
)
ALONG = Said(
    "Along ∂f/∂out this says to first order what f gains without the edge.",
    "이 변화를 ∂f/∂out 방향으로 재면 연결이 없을 때 늘어나는 f의 1차 근사가 됩니다.",
)
FORMULA = Said(
    "Largest relative difference between the formula and the softmax without the edge, over the edges that were cut",
    "끊어 본 연결에서 식과 연결을 뺀 softmax 사이의 상대 차이 중 가장 큰 값",
)
AGREEMENT = Said(
    "Rank correlation (Spearman) of the first-order effects on f with what cutting the edge does",
    "f에 대한 1차 근사와 연결을 실제로 끊었을 때의 변화 사이의 순위 상관(스피어만)",
)
OF_WEIGHTS = Said(
    "The same of the weights alone with how much cutting does",
    "가중치 자체와 연결을 끊었을 때의 변화량 사이의 순위 상관",
)


def _applies(trace: Trace) -> bool:
    if not hasattr(trace, "loaded") or len(trace.stacks[-1].tokens) != 1:
        return False
    parts = [block.mixer for block in trace.stacks[-1].model.blocks if hasattr(block, "mixer")]
    own = [part for part in parts if isinstance(part, SoftmaxAttention)]
    return any(part.spec.top_k is None for part in own) and own[-1].spec.top_k is None


EDGES = Explainer("edges", TITLE, EdgesSpec, made, _applies, ("formula", "agreement", "agreement_weights"))
