"""effect: what a change of a run moved, beside the same change somewhere else."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from ...data.display import Cell, alone
from ...errors import InputError, not_finite
from ...nn.pool import Scores, shares
from ...positions import POSITIONS
from ...trace import Trace
from ..control import By, again, control, elsewhere, steps_of
from ..explainer import (
    SEEDS,
    Explainer,
    Limit,
    Report,
    Settings,
    cells_of,
    has_tokens,
    length_of,
    line,
    names_of,
    number,
    numbers,
)
from ..explanation import Check, Explanation, Figure, Line, Number, Said, Series, Table, TokenScores
from ..quantity import exact
from ..rest import one_way
from ..sheet import counted
from .journey import called, stations
from .next import in_classes, scored

ROUNDING = 16 * torch.finfo(torch.float32).eps  # of ‖x‖: what the order of sums in fp32 does, 3e-7 in a small model
TURNED = 256  # positions moved so far round as much again: angles of RoPE are fp32 too (2e-6 at 1000, 6e-5 at 10,000)


class EffectSpec(Settings, frozen=True, tag="effect"):
    """token: where it is looked at, -1 the last; temperature: what logits are divided by after the change; before: the
    text as it was, where that was changed, "": the same; top: how many candidates of each run; control: the same change
    at another "place", or one that moves its value as far ("norm"); seed: of what is drawn there, 0: the next place."""

    token: int = -1
    temperature: float = 1.0
    before: str = ""
    top: int = 8
    control: By = "place"
    seed: int = 0

    LIMITS: ClassVar[dict[str, Limit]] = {"temperature": Limit(positive=True), "top": Limit(1), "seed": Limit(0, SEEDS)}


def made(trace: Trace, settings: EffectSpec, report: Report) -> Explanation:
    """The figures "outcome" (of each candidate or class its probability before, after, and with the control; of a model
    that predicts none, of its vector), "tokens", how far each token's last vector moved, "layers", where the chosen
    one's parted, and "runs"; the checks "variation" and "kl", and those of the control."""
    stack = trace.stacks[-1]
    t = 0
    if has_tokens(trace):
        t = counted("token", settings.token, length_of(stack))
    report(0, 3)
    was = _before(trace, settings.before)
    report(1, 3)
    other = _control(trace, was, settings, _aligned(trace, was, t))
    report(2, 3)
    runs = [(was, _aligned(trace, was, t)), (trace, t)]
    if other is not None:
        runs.append((other, _aligned(was, other, runs[0][1])))
    table, checks = _outcome(runs, settings)
    figures: list[Figure] = [table]
    if has_tokens(trace):
        figures += [_tokens(runs, t), _layers(runs)]
    figures.append(_runs([run for run, _ in runs]))
    return Explanation("effect", TITLE, _claim(trace, settings), tuple(figures), checks, line("effect", settings))


# ---------------------------------------------------------------- the other runs


def _before(trace: Trace, before: str) -> Trace:
    """The run as it was: without edits, and of the text before."""
    if not before:
        return again(trace, ()) if trace.edits else trace  # nothing changed is exactly nothing: it is the same run
    if not hasattr(trace, "loaded") or len(trace.stacks) == 2:
        raise InputError("before: only of a model that reads one text can two texts be compared; leave it out")
    return trace.loaded.trace(before, limit_bytes=trace.limit_bytes)


def _control(trace: Trace, was: Trace, settings: EffectSpec, t: int) -> Trace | None:
    """The same change somewhere else: the edits at another head, or in another layer, or as far in another direction;
    what was put into the text in the place of other tokens, which place t of the run before sees. None where there is
    no such place."""
    before, edits = settings.before, None
    if trace.edits and settings.control == "norm":
        edits = control(trace.edits, again(trace, ()), settings.seed, "norm")
    elif trace.edits:
        edits = elsewhere(trace, trace.edits, steps_of(settings.seed))
    text = _put_elsewhere(was, trace.text, t) if before and before != trace.text else None
    if text is not None:
        return trace.loaded.trace(text, edits=edits or trace.edits, limit_bytes=trace.limit_bytes)
    return None if edits is None or before else again(trace, edits)


def _put_elsewhere(was: Trace, text: str, t: int) -> str | None:
    """The text before with what was put into it in the place of as many other tokens, the nearest that place t can see;
    None where there are none. Tokens that spell one character together are one."""
    old, cells = was.text, [one for one in was.cells("character") if one.source.strip()]
    first, last = _alike(old, text)
    end = len(old) - last
    own = [one for one in cells if one.start < max(end, first + 1) and one.end > first]  # what is inserted: its next
    own = own or cells[-1:]
    if not own:
        return None
    first, end = min(first, own[0].start + _blanks(own[0])), max(end, own[-1].end)
    put = text[first : len(text) - len(old) + end].strip()
    rows = [cells[i : i + len(own)] for i in range(len(cells) - len(own) + 1)]
    rows = [row for row in rows if row[-1].end <= own[0].start or row[0].start >= own[-1].end]
    if one_way(was):
        rows = [row for row in rows if row[-1].tokens[-1] <= t]
    made = [(row, old[: row[0].start + _blanks(row[0])] + put + old[row[-1].end :]) for row in rows]
    made = [(row, found) for row, found in made if put and found not in (old, text)]
    near = [max(own[0].start - row[-1].end, row[0].start - own[-1].end) for row, _ in made]
    return made[near.index(min(near))][1] if made else None


def _blanks(cell: Cell) -> int:
    """How many blanks stand at its beginning."""
    return len(cell.source) - len(cell.source.lstrip())


def _alike(one: Sequence[object], other: Sequence[object]) -> tuple[int, int]:
    """How many items two rows share at their beginning, and how many more at their end."""
    short, first, last = min(len(one), len(other)), 0, 0
    while first < short and one[first] == other[first]:
        first += 1
    while last < short - first and one[-1 - last] == other[-1 - last]:
        last += 1
    return first, last


def _aligned(trace: Trace, other: Trace, t: int) -> int:
    """The place in another run that stands for place t: counted from the beginning before what differs, from the end
    behind it; within it the last that differs there."""
    ids, others = (run.stacks[-1].tokens[0].flatten().tolist() for run in (trace, other))
    if len(trace.stacks) == len(other.stacks) and ids == others:
        return t
    first, last = _alike(ids, others)
    if t < first:
        return t
    return t - len(ids) + len(others) if t >= len(ids) - last else max(0, len(others) - last - 1)


# ---------------------------------------------------------------- figures


Runs = list[tuple[Trace, int]]  # as it was, changed, the control where there is one; each with the place in it


def _outcome(runs: Runs, settings: EffectSpec) -> tuple[Table, tuple[Check, ...]]:
    """What each run ended in at its place, side by side, and how far the changed one and the control are apart."""
    scores, ended = scored(runs[1][0]), [_ended(run, t) for run, t in runs]
    kinds = (BEFORE, AFTER, CONTROL)[: len(runs)]
    if scores not in KL and settings.temperature != 1:
        raise InputError("temperature: this model ends in no logits that it could divide; leave it out")
    if scores is None:
        least = _rounding(runs)
        rows = [
            [name, *(number(measure(ended[0], one, least)) for one in ended[1:])] for name, measure in VECTORS.items()
        ]
        return Table("outcome", VECTOR, (MEASURE, *kinds[1:]), rows), tuple(
            Check(f"variation{name}", _said(said, APART), number(_apart(ended[0], one, least)))
            for (said, name), one in zip(WHOSE, ended[1:], strict=False)
        )
    heat = [1.0, *[settings.temperature] * (len(runs) - 1)]
    ended = [one / each for one, each in zip(ended, heat, strict=True)]
    given = [shares(one, scores) for one in ended]
    best = torch.cat([one.topk(min(settings.top, len(one))).indices for one in given[:2]]).unique()
    best = best[torch.stack([one[best] for one in given[:2]]).amax(0).argsort(descending=True, stable=True)]
    rows = []
    for i in best.tolist():
        each = [one[i].item() for one in given]
        rows.append([i, _named(runs[1][0], i), *map(number, each), number(each[1] - each[0])])
    title = ESTIMATES if scores == "number" else CLASSES if in_classes(runs[1][0]) else NEXT
    table = Table("outcome", title, (ID, WHAT, *kinds, MORE), rows)
    checks = []
    for i, (said, name) in enumerate(WHOSE[: len(runs) - 1], 1):
        moved = variation(given[0], given[i]) if scores == "softmax" else (given[i] - given[0]).abs().max().item()
        checks.append(Check(f"variation{name}", _said(said, VARIATION[scores]), number(moved)))
        if scores in KL:
            bits = divergence(_logs(ended[0], scores), _logs(ended[i], scores))
            checks.append(Check(f"kl{name}", _said(said, KL[scores]), finite(bits)))
    return table, tuple(checks)


def _logs(logits: Tensor, scores: Scores) -> Tensor:
    """Natural log probabilities of logits; of classes each by itself, those that it holds and that it does not."""
    if scores == "softmax":
        return logits.log_softmax(-1)
    return torch.cat((F.logsigmoid(logits), F.logsigmoid(-logits)))


def variation(one: Tensor, other: Tensor) -> float:
    """½ Σ |p − q| of two rows of probabilities."""
    return 0.5 * (one - other).abs().sum().item()


def divergence(one: Tensor, other: Tensor) -> float:
    """Σ p log₂(p/q) in bits, of two rows of natural log probabilities, which may be of any size."""
    there = one > -math.inf
    return (one.exp()[there] * (one - other)[there]).sum().item() / math.log(2)


def finite(value: float) -> Number:
    """The number; None where it is infinite, as where a probability became 0."""
    return number(value) if math.isfinite(value) else None


def _ended(trace: Trace, t: int) -> Tensor:
    """What a run ended in at a place, in fp64: logits, classes, or a vector."""
    stack = trace.stacks[-1]
    at = {"t": t} if "t" in trace.axes(stack.output).split() else {}
    found = exact(trace.part(stack.output, b=0, **at))
    if found.isnan().any() or found.isposinf().any():
        raise InputError(not_finite("at the end of a run", trace.edits))
    return found


def _named(trace: Trace, i: int) -> str:
    if in_classes(trace):
        return trace.stacks[-1].labels("k", 0)[i]
    cell = trace.loaded.cell(i)
    return alone(cell)


def _rounding(runs: Runs) -> float:
    """How far rounding alone moves a vector, of its length: more where edits move positions far."""
    moved = [
        edit.value for run, _ in runs for edit in run.edits if edit.kind == "add" and edit.name.endswith(POSITIONS)
    ]
    far = max((abs(one) for one in moved if isinstance(one, int | float)), default=0)
    return ROUNDING * (1 + far / TURNED)


def _parted(one: Tensor, other: Tensor, least: float) -> Tensor:
    """How far vectors `… d` are from what they were, of their length; exactly 0 where only rounding parts them."""
    far = (other - one).norm(dim=-1) / one.norm(dim=-1).clamp(min=1e-30)
    return far.where(far > least, 0.0)


def _apart(one: Tensor, other: Tensor, least: float) -> float:
    return _parted(one, other, least).item()


def _cosine(one: Tensor, other: Tensor, least: float) -> float:
    return torch.cosine_similarity(one, other, dim=-1).item()


VECTORS = {"‖y′ − y‖ / ‖y‖": _apart, "cos(y, y′)": _cosine}


def _tokens(runs: Runs, t: int) -> TokenScores:
    """How far each place's vector behind the last block moved."""
    (was, _), (trace, _) = runs[:2]
    stack, cells = trace.stacks[-1], cells_of(trace, trace.stacks[-1])
    name = stack.entry(len(stack.model.blocks))
    first, last = _alike(*(run.stacks[-1].tokens[0].flatten().tolist() for run in (trace, was)))
    new, old = (exact(run.part(name, b=0)) for run in (trace, was))
    same = [i for i in range(len(new)) if i < first or i >= len(new) - last or len(new) == len(old)]
    values: list[Number] = [None] * len(new)
    least = _rounding(runs)
    there = [i if len(new) == len(old) else _aligned(trace, was, i) for i in same]
    for i, value in zip(same, numbers(_parted(old[there], new[same], least)), strict=True):
        values[i] = value
    return TokenScores("tokens", TOKENS, names_of(cells), values, OF_LENGTH, t)


def _layers(runs: Runs) -> Series:
    """How far the chosen place's vector is from what it was, behind every block."""
    names = stations(runs[1][0], runs[1][0].stacks[-1])
    ways = [[exact(run.part(name, b=0, t=t)) for name in names] for run, t in runs]
    lines, least = [], _rounding(runs)
    for said, mine in zip((AFTER, CONTROL), ways[1:], strict=False):
        lines.append(Line(said, [number(_apart(old, new, least)) for old, new in zip(ways[0], mine, strict=True)]))
    return Series("layers", LAYERS, tuple(map(called, names)), BEHIND, OF_LENGTH, tuple(lines))


def _runs(runs: list[Trace]) -> Table:
    """The text and the edits of each run."""
    rows: list[list[str | float | int | None]] = [
        [getattr(run, "text", ""), ", ".join(edit.line for edit in run.edits), len(run.edits)] for run in runs
    ]
    return Table("runs", RUNS, (Said("text", "텍스트"), Said("edits", "바꾼 것"), Said("how many", "개수")), rows)


def _said(run: Said, what: Said) -> Said:
    return Said(f"{run.en}: {what.en}", f"{run.ko}: {what.ko}")


TITLE = Said("What a change does", "바꾸면 달라지는 것")
NEXT = Said("The next token, before and after", "다음 토큰의 확률: 바꾸기 전과 후")
CLASSES = Said("The classes, before and after", "분류별 확률: 바꾸기 전과 후")
ESTIMATES = Said("The estimates, before and after", "추정한 값: 바꾸기 전과 후")
VECTOR = Said("The vector in which the run ends", "실행 끝에 나온 벡터")
TOKENS = Said("How far the last vector of each token moved", "토큰마다 마지막 벡터가 움직인 거리")
LAYERS = Said("Where the chosen token's vector parts from what it was", "고른 토큰의 벡터가 층마다 달라진 정도")
RUNS = Said("The runs: before, after, and the control", "견준 실행: 바꾸기 전, 바꾼 뒤, 대조")
BEFORE, AFTER, CONTROL = Said("before", "바꾸기 전"), Said("after", "바꾼 뒤"), Said("control", "대조")
ID, WHAT, MORE = Said("id", "번호"), Said("what", "이름"), Said("difference", "차이")
MEASURE, BEHIND, OF_LENGTH = Said("measure", "측도"), Said("after", "지난 곳"), Said("of ‖x‖", "‖x‖에 대한 비율")
CHANGED, OF_CONTROL = Said("The change", "바꾼 실행"), Said("The control", "대조 실행")
UNCHANGED = Said(
    "Nothing was changed in this run: change a value of it (edits, --edit), or compare it with another text (before).",
    "이 실행에서는 아무것도 바꾸지 않았습니다. 값을 바꾸거나(edits, --edit) 다른 텍스트와 견주십시오(before).",
)
WHOSE = (CHANGED, ""), (OF_CONTROL, "_control")
APART = Said("how far the vector moved, of its length", "벡터가 움직인 거리(길이에 대한 비율)")
VARIATION: dict[Scores, Said] = {
    "softmax": Said("total variation ½ Σ|p − q|", "전체 변동 거리 ½ Σ|p − q|"),
    "sigmoid": Said("the largest |p − q| of a class", "분류별 |p − q| 가운데 가장 큰 값"),
    "number": Said("the largest |y′ − y|", "|y′ − y| 가운데 가장 큰 값"),
}
_KL = Said("Σ p log₂(p/q), bits", "쿨백–라이블러 발산 Σ p log₂(p/q), 비트")
KL: dict[Scores, Said] = {
    "softmax": _KL,
    "sigmoid": Said(
        f"{_KL.en}, of whether each class holds",
        "분류마다 해당 여부로 구해 더한 쿨백–라이블러 발산 Σ p log₂(p/q), 비트",
    ),
}
CLAIMS: dict[Scores | None, Said] = {
    None: Said(
        "y is the vector in which the run ended before the change and y′ that after it.",
        "y는 바꾸기 전, y′는 바꾼 뒤 실행 끝에 나온 벡터입니다.",
    ),
    "softmax": Said(
        "p is what the run gave before the change and q what it gives after it, at the same place: ½ Σ|p − q| is the "
        "share of the probability that moved, Σ p log₂(p/q) what it costs to expect q where p holds.",
        "p는 바꾸기 전, q는 바꾼 뒤 같은 자리에서 나온 확률입니다. ½ Σ|p − q|는 옮겨 간 확률의 몫이고, "
        "Σ p log₂(p/q)는 p인데 q로 예상했을 때 치르는 비용입니다.",
    ),
    "sigmoid": Said(
        "p is the probability of each class by itself before the change and q that after it: the largest |p − q| says "
        "how far one of them moved, Σ p log₂(p/q) over whether each holds what it costs to expect q where p holds.",
        "p는 바꾸기 전, q는 바꾼 뒤 분류마다 따로 나온 확률입니다. |p − q|의 최댓값은 가장 많이 움직인 분류의 "
        "변화이고, 분류마다 해당 여부에 대해 더한 Σ p log₂(p/q)는 p인데 q로 예상했을 때 치르는 비용입니다.",
    ),
    "number": Said(
        "y is what the model estimated before the change and y′ after it.",
        "y는 바꾸기 전, y′는 바꾼 뒤 모델이 추정한 수입니다.",
    ),
}
FAR = Said(
    "a change that does no more than its control says little about its place. A vector that moved by less than "
    "rounding does, 2·10⁻⁶ of its length (1 + p/256 times that where positions are moved by p), counts as unmoved.",
    "대조보다 크지 않은 변화는 그 자리에 대해 알려 주는 것이 거의 없습니다. 반올림 오차(길이의 2·10⁻⁶, 위치를 "
    "p만큼 밀었으면 그 1 + p/256배)보다 적게 움직인 벡터는 움직이지 않은 것으로 봅니다.",
)
CONTROLLED: dict[By, Said] = {
    "place": Said(
        f"The control is the same change at another head, in another layer or at another token: {FAR.en}",
        f"대조는 같은 변화를 다른 헤드, 다른 층, 다른 토큰에 준 실행입니다. {FAR.ko}",
    ),
    "norm": Said(
        f"The control moves the same value of each token as far, in a random direction: {FAR.en}",
        f"대조는 같은 값을 토큰마다 같은 거리만큼 무작위 방향으로 움직인 실행입니다. {FAR.ko}",
    ),
}


def _claim(trace: Trace, settings: EffectSpec) -> Said:
    said, more = CLAIMS[scored(trace)], CONTROLLED[settings.control]
    more = more if trace.edits or settings.before else UNCHANGED
    return Said(f"{said.en} {more.en}", f"{said.ko} {more.ko}")


def _applies(trace: Trace) -> bool:
    stack = trace.stacks[-1]
    return len(stack.tokens) == 1 and not any(getattr(one.model.spec, "reads_sound", False) for one in trace.stacks)


EFFECT = Explainer("effect", TITLE, EffectSpec, made, _applies, ("variation",))
