"""circuit: the edges between heads and MLPs that an answer needs, and how faithful they alone are."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from ...data.display import By
from ...errors import InputError
from ...trace import Trace
from ..answer import Answer
from ..circuit import Absent, Circuits, Node, Reader, check_parts
from ..explainer import SEEDS, Explainer, Limit, Report, Settings, line, number, numbers
from ..explanation import Check, Edge, Explanation, Graph, Line, Said, Series, Table
from ..explanation import Node as Drawn
from ..faithfulness import spearman
from .attribution import answer_of, answers, second_of

EXACT = 1e-3  # of the total; fp32 runs are nearer to it by far
POINTS = 10  # numbers of edges in the curve


class CircuitSpec(Settings, frozen=True, tag="circuit"):
    """what, token, by, candidate, against: the number f, as in target.Target, with token a group of the text as `by`
    groups it. second: another text of as many tokens, whose run stands in the place of a lost edge; "": `baseline`,
    each node's mean over the places of this text, or what it gives at another place. method: "attribution" and
    "integrated" (over `steps` runs) take the first `edges` edges of the largest scores, or with edges=0 those of at
    least `threshold` of the total; "pruning" loses every edge that moves f less than that. samples: edges whose exact
    effect is measured; orders: random circuits and orders beside it; seed: of these and of resample."""

    what: Literal["logit", "difference", "log-probability"] = "logit"
    token: int = -1
    by: By = "token"
    candidate: str = ""
    against: str = ""
    second: str = ""
    baseline: Absent = "mean"
    method: Literal["attribution", "integrated", "pruning"] = "attribution"
    edges: int = 32
    threshold: float = 0.02
    steps: int = 8
    samples: int = 64
    orders: int = 3
    seed: int = 0

    LIMITS: ClassVar[dict[str, Limit]] = {
        "edges": Limit(0, 1 << 20),
        "threshold": Limit(positive=True),
        "steps": Limit(1, 512),
        "samples": Limit(2, 1 << 14),
        "orders": Limit(1, 100),
        "seed": Limit(0, SEEDS),
    }


@dataclass(frozen=True)
class Found:
    """A circuit `c n`, the scores of all edges, and f of the circuit, of all other edges, and of random circuits, which
    are connected as it is, of as many edges or the next more that there are; drawn: the mean of these numbers."""

    circuits: Circuits
    scores: Tensor
    kept: Tensor
    f: float
    complement: float
    random: Tensor
    drawn: float


def made(trace: Trace, settings: CircuitSpec, report: Report) -> Explanation:
    """The figures "circuit" (its nodes and edges), "edges", "faithfulness" (by how many edges are kept, in the order of
    the scores and in random ones) and "runs", f of each; with the checks "faithfulness" beside a random circuit and
    the complement, "closure" and "agreement"."""
    answer = answer_of(trace, settings)
    absent = answer.rows_of(second_of(trace, settings.second, "text")) if settings.second else settings.baseline
    circuits = Circuits(answer, absent, settings.seed)
    scores = circuits.scores(settings.steps if settings.method == "integrated" else 0, report)
    kept = circuits.connected(_chosen(circuits, scores, settings, report), bool(settings.second))
    if not kept.any():
        raise InputError("threshold: no edge is left of the circuit; use a smaller one, or more edges")
    drawn = torch.Generator().manual_seed(settings.seed)
    rooted = bool(settings.second)
    beside = [circuits.random(int(kept.sum()), drawn, rooted) for _ in range(settings.orders)]
    f = circuits.runs(torch.stack([kept, circuits.exists & ~kept, *beside]))
    count = torch.stack(beside).sum().item() / len(beside)
    found = Found(circuits, scores, kept, f[0].item(), f[1].item(), f[2:], count)
    sampled = _sampled(circuits, scores, settings.samples, drawn)
    exact = circuits.exact(sampled, report)
    agreement = spearman(scores[sampled[:, 0], sampled[:, 1]].numpy(), exact.numpy())
    figures = (_graph(found), _edges(found, report), _curve(found, settings.orders, drawn, report), _runs(found))
    checks = (*_faithful(found), _closure(answer, found, absent), Check("agreement", AGREEMENT, number(agreement)))
    return Explanation("circuit", TITLE, _claim(answer, settings), figures, checks, line("circuit", settings))


def _chosen(circuits: Circuits, scores: Tensor, settings: CircuitSpec, report: Report) -> Tensor:
    if settings.method == "pruning":
        return circuits.pruned(scores, settings.threshold, report)
    if settings.edges:
        return circuits.first(scores, settings.edges)
    return circuits.exists & (scores.abs() >= settings.threshold * abs(circuits.total))


def _sampled(circuits: Circuits, scores: Tensor, samples: int, drawn: torch.Generator) -> Tensor:
    """Edges `k 2`: half of them those of the largest scores, half drawn from the others."""
    order = scores[circuits.exists].abs().argsort(descending=True, stable=True)
    half = -(-samples // 2)
    others = order[half:]
    others = others[torch.randperm(len(others), generator=drawn)[: samples - half]]
    return circuits.edges[torch.cat([order[:half], others])]


# ---------------------------------------------------------------- figures


def _called(reader: Reader) -> str:
    """What reads: 2.q3 of a head, 2.k1 of a group, 2.mlp, logits."""
    if reader.entry == "logits":
        return "logits"
    return f"{reader.layer}.mlp" if reader.entry == "channel" else f"{reader.layer}.{reader.entry}{reader.index}"


def _edges(found: Found, report: Report) -> Table:
    """The edges of the circuit, the largest score first; of so many that are sampled also the exact effect."""
    circuits, scores = found.circuits, found.scores
    edges = found.kept.nonzero()
    edges = edges[scores[edges[:, 0], edges[:, 1]].abs().argsort(descending=True, stable=True)]
    exact = numbers(circuits.exact(edges[:MEASURED], report))
    effects = [*exact, *[None] * (len(edges) - len(exact))]
    rows: list[list[str | float | int | None]] = [
        [circuits.nodes[n].name, _called(circuits.readers[c]), number(scores[c, n].item()), effect]
        for (c, n), effect in zip(edges.tolist(), effects, strict=True)
    ]
    return Table("edges", EDGES, (FROM, INTO, SCORE, EFFECT), rows)


def _graph(found: Found) -> Graph:
    """The circuit by nodes: edges into q, k and v of a head are one ribbon, as wide as the sum of the sizes of their
    scores; one into the keys or values of a group is parted among those of its heads that the circuit has."""
    circuits, wide = found.circuits, defaultdict[tuple[int, int], float](float)
    gives, last = found.kept.any(0).tolist(), len(circuits.nodes)
    for c, n in found.kept.nonzero().tolist():
        makes = circuits.readers[c].makes
        into = [one for one in makes if gives[one]] or list(makes) or [last]
        for one in into:
            wide[n, one] += abs(found.scores[c, n].item()) / len(into)
    used, columns = sorted({one for pair in wide for one in pair}), _columns(circuits)
    lines = {one: 0 if one == last else _line(circuits.nodes[one]) for one in used}
    rows = sorted(set(lines.values()))
    drawn = []
    for one in used:
        name = "logits" if one == last else circuits.nodes[one].name
        column = len(columns) if one == last else columns.index(_column(circuits.nodes[one]))
        drawn.append(Drawn(name, name, column, rows.index(lines[one])))
    names = [*(one.name for one in circuits.nodes), "logits"]
    edges = tuple(Edge(names[n], names[m], number(value)) for (n, m), value in sorted(wide.items()))
    return Graph("circuit", TITLE, tuple(drawn), edges, (*columns, "logits"), SIZE)


def _column(node: Node) -> str:
    if node.layer is None:
        return node.name
    return f"{node.layer}" if node.head is not None else f"{node.layer}.mlp"


def _line(node: Node) -> int:
    """The line on which a node is drawn: the embedding above, heads below it in their order, then channel mixers, those
    of neighbours apart, so that a ribbon past one is told from two through it."""
    if node.layer is None:
        return 0
    return 1 + node.head if node.head is not None else MLPS + node.layer % 2


def _columns(circuits: Circuits) -> list[str]:
    return list(dict.fromkeys(map(_column, circuits.nodes)))


def _curve(found: Found, orders: int, drawn: torch.Generator, report: Report) -> Series:
    """The faithfulness of the first edges of the scores' order, and of as many at random."""
    circuits, count = found.circuits, len(found.circuits.edges)
    counts = sorted({round(count ** (k / (POINTS - 1))) for k in range(POINTS)})
    own = [circuits.first(found.scores, k) for k in counts]
    several = [circuits.random(k, drawn) for _ in range(orders) for k in counts]
    values = circuits.faithfulness(circuits.runs(torch.stack([*own, *several]), report=report))
    values = values.reshape(orders + 1, len(counts))
    deviation = values[1:].std(0) if orders > 1 else torch.zeros(len(counts))
    lines = (Line(BY_SCORE, numbers(values[0])), Line(RANDOM, numbers(values[1:].mean(0)), numbers(deviation)))
    return Series("faithfulness", CURVE, tuple(map(str, counts)), KEPT, SHARE, lines)


def _runs(found: Found) -> Table:
    circuits = found.circuits
    own, every = int(found.kept.sum()), len(circuits.edges)
    rows: list[list[str | float | int | None]] = [
        [ALL.en, every, number(circuits.whole)],
        [OWN.en, own, number(found.f)],
        [OTHERS.en, every - own, number(found.complement)],
        [AT_RANDOM.en, number(found.drawn), number(found.random.mean().item())],
        [NONE.en, 0, number(circuits.empty)],
    ]
    return Table("runs", RUNS, (RUN, KEPT, Said("f", "f")), rows)


# ---------------------------------------------------------------- how far it is true


def _faithful(found: Found) -> tuple[Check, ...]:
    def share(f: float) -> float:
        return number(found.circuits.faithfulness(torch.tensor(f, dtype=torch.float64)).item())

    return (
        Check("faithfulness", FAITHFUL, share(found.f)),
        Check("faithfulness_random", FAITHFUL_RANDOM, share(found.random.mean().item())),
        Check("faithfulness_complement", FAITHFUL_OTHERS, share(found.complement)),
    )


def _closure(answer: Answer, found: Found, absent: Absent | Tensor) -> Check:
    """That the parts are the model: with all edges it is the run itself, with none that of the other text."""
    circuits = found.circuits
    apart = abs(circuits.whole - answer.value)
    if isinstance(absent, Tensor):
        with torch.no_grad():
            apart = max(apart, abs(circuits.empty - answer.of_rows(absent).item()))
    apart /= abs(circuits.total)
    sure = abs(circuits.total) > EXACT * abs(circuits.whole) and circuits.clean.element_size() >= 4
    return Check("closure", CLOSURE, number(apart), apart < EXACT if sure else None)


def _claim(answer: Answer, settings: CircuitSpec) -> Said:
    absent, method = ABSENT["second" if settings.second else settings.baseline], METHODS[settings.method]
    en = f"f is {answer.said.en}. {CLAIM.en} {absent.en} {method.en}"
    return Said(en, f"f는 {answer.said.ko}입니다. {CLAIM.ko} {absent.ko} {method.ko}")


MLPS = 1 << 20  # a line below those of all heads
MEASURED = 64  # edges of the table whose exact effect is measured
TITLE = Said("The circuit of an answer", "답의 회로")
EDGES = Said("Its edges", "회로의 연결")
FROM, INTO = Said("from", "보내는 곳"), Said("into", "받는 곳")
SCORE, EFFECT = Said("score", "점수"), Said("exact effect", "정확한 효과")
SIZE = Said("size of the score", "점수의 크기")
CURVE = Said("Faithfulness of the first edges", "점수 순서로 남긴 연결의 충실도")
KEPT, SHARE = Said("edges", "연결 수"), Said("share", "비율")
BY_SCORE, RANDOM = Said("largest scores first", "점수가 큰 것부터"), Said("at random (control)", "무작위로(대조)")
RUNS, RUN = Said("The runs", "실행"), Said("run", "실행")
ALL, OWN = Said("all edges", "모든 연결"), Said("the circuit", "회로")
OTHERS, AT_RANDOM = Said("all but the circuit", "회로를 뺀 나머지"), Said("random circuits", "무작위 회로")
NONE = Said("no edge", "연결 없음")
CLAIM = Said(
    "Nodes are the embedding, each head (2.h3) and each MLP; an edge is the share of one in what another reads: as q "
    "(2.q3), k or v (heads of one group share these), or as an MLP's or the logits' input. In the circuit all other "
    "edges are lost.",
    "노드는 임베딩과 각 헤드(2.h3), 각 MLP입니다. 연결은 다른 노드가 읽는 값, 곧 q(2.q3), k, v(한 그룹의 헤드가 "
    "함께 씁니다), 또는 MLP나 로짓의 입력에서 한 노드가 차지하는 몫입니다. 회로에서는 나머지 연결을 모두 끊습니다.",
)
ABSENT = {
    "second": Said(
        "In the place of a lost share stands that of the other text's run.",
        "끊은 몫의 자리에는 다른 텍스트를 실행한 값을 넣습니다.",
    ),
    "mean": Said(
        "In the place of a lost share stands the node's mean over the places of this text.",
        "끊은 몫의 자리에는 이 텍스트의 모든 자리에 걸친 그 노드의 평균을 넣습니다.",
    ),
    "resample": Said(
        "In the place of a lost share stands what the node gives at another place.",
        "끊은 몫의 자리에는 그 노드가 다른 자리에서 내놓은 값을 넣습니다.",
    ),
}
METHODS = {
    "attribution": Said(
        "An edge's score is ⟨∂f/∂x_v, u − û⟩, to first order what f loses without it (edge attribution patching).",
        "연결의 점수는 ⟨∂f/∂x_v, u − û⟩로, 그 연결이 없을 때 줄어드는 f의 1차 근사입니다(연결 귀속 패칭).",
    ),
    "integrated": Said(
        "An edge's score is ⟨mean of ∂f/∂x_v, u − û⟩, with the gradient's mean over runs between the two (EAP-IG).",
        "연결의 점수는 두 실행 사이의 여러 실행에서 평균한 기울기로 구한 ⟨∂f/∂x_v의 평균, u − û⟩입니다(EAP-IG).",
    ),
    "pruning": Said(
        "From the output back every edge was lost for good that moved f by less than the threshold (ACDC). A score is "
        "⟨∂f/∂x_v, u − û⟩.",
        "출력부터 거꾸로 가며 f를 문턱값보다 적게 움직이는 연결을 모두 끊었습니다(ACDC). 점수는 "
        "⟨∂f/∂x_v, u − û⟩입니다.",
    ),
}
FAITHFUL = Said(
    "Faithfulness of the circuit: (f(circuit) − f(no edge)) / (f(all edges) − f(no edge))",
    "회로의 충실도: (f(회로) − f(연결 없음)) / (f(모든 연결) − f(연결 없음))",
)
FAITHFUL_RANDOM = Said(
    "The same of random circuits of as many edges, connected as it is",
    "연결 수가 같고 똑같이 이어진 무작위 회로의 충실도",
)
FAITHFUL_OTHERS = Said("The same of all edges but the circuit's", "회로를 뺀 나머지 연결의 충실도")
CLOSURE = Said(
    "With all edges f is that of the run, with none that of the other text: the difference, of the total",
    "모든 연결이 있을 때와 원래 실행, 연결이 없을 때와 다른 텍스트의 f 차이를 전체 효과에 대한 비율로 나타낸 값",
)
AGREEMENT = Said(
    "Rank correlation (Spearman) of scores and exact effects of sampled edges",
    "표본 연결의 점수와 정확한 효과 사이의 순위 상관(스피어만)",
)


def _applies(trace: Trace) -> bool:
    """Whether this run ends in logits, and its layers add to the residual."""
    head = trace.stacks[-1].model.head if answers(trace) else None
    if head is None or head.output != "logits":
        return False
    try:
        check_parts(trace)
    except InputError:
        return False
    return bool(len(trace.stacks[-1].model.blocks))


CHECKS = ("faithfulness", "faithfulness_random", "faithfulness_complement", "closure", "agreement")
CIRCUIT = Explainer("circuit", TITLE, CircuitSpec, made, _applies, CHECKS)
