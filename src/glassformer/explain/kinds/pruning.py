"""pruning: what a model loses as heads are switched off, in the order of a score and at random (Michel et al. 2019)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

import torch
from torch import Tensor

from ...edit import Edit, zero
from ...errors import InputError
from ...trace import Trace
from ..explainer import Explainer, Limit, Report, Settings, line, number, numbers
from ..explanation import Check, Explanation, Line, Said, Series, Table
from ..rest import surprises
from ..roles import Role, roles, runs
from ..texts import runs_of
from .next import BITS, writes
from .roles import scored

if TYPE_CHECKING:
    from ...text_trace import TextTrace


class PruningSpec(Settings, frozen=True, tag="pruning"):
    """texts: those whose tokens are told, a line each; "" for the run's own alone. score: what heads are ordered by
    (roles; "alone": bits that a text costs more where that head alone is off). steps: into how many the heads are
    divided; orders: how many random ones stand beside it; seed: of these, and of the scores' random tokens."""

    texts: str = ""
    score: Literal["induction", "previous", "duplicate", "sink", "offset", "alone"] = "induction"
    steps: int = 8
    orders: int = 3
    seed: int = 0

    LIMITS: ClassVar[dict[str, Limit]] = {
        "steps": Limit(1, 64),
        "orders": Limit(1, 32),
        "seed": Limit(most=2**31),
    }


Head = tuple[str, int]  # the name of its output, and its number


class Texts:
    """Texts whose mean surprise is measured with heads switched off; told of each measurement."""

    def __init__(self, texts: Sequence[TextTrace], most: int, report: Report) -> None:
        self.texts, self.most, self.report, self.done = texts, most, report, 0

    def bits(self, off: Sequence[Head]) -> float:
        """Bits a token, in the mean over all tokens of all texts, without these heads."""
        edits = [zero(name, h=[h for other, h in off if other == name]) for name in dict.fromkeys(n for n, _ in off)]
        self.report(self.done, self.most)
        self.done += 1
        return torch.cat([surprises(self._again(one, edits))[0] for one in self.texts]).mean().item()

    def _again(self, one: TextTrace, edits: list[Edit]) -> Trace:
        if not edits:
            return one
        ids = one.stacks[-1].tokens[0].tolist()
        return one.loaded.trace(ids, limit_bytes=one.limit_bytes, edits=[*one.edits, *edits])


def made(trace: Trace, settings: PruningSpec, report: Report) -> Explanation:
    """Figures "curve", the mean surprise by how many heads are off, and "heads", their order with the score of each;
    the check "above_random": how much more the first heads of the order cost than random ones."""
    texts = [one for one in runs_of(trace, settings.texts, own=not settings.texts.strip()) if one.stacks[-1].length > 1]
    if not texts:
        raise InputError("texts: no text has a second token, which could be told from the first; give longer ones")
    drawn = runs(trace.loaded, None, 4, 4, settings.seed).ids
    found = roles([trace.loaded.trace(ids, limit_bytes=trace.limit_bytes, edits=trace.edits) for ids in drawn])
    counts = torch.linspace(0, len(found), min(settings.steps, len(found)) + 1).round().long().tolist()
    alone = len(found) if settings.score == "alone" else 0
    measure = Texts(texts, alone + len(counts) * (2 + settings.orders), report)
    heads = [(_output(trace, one), one.head) for one in found]
    scores = _scores(measure, heads, found, settings.score)
    order = sorted(range(len(heads)), key=lambda i: -scores[i])

    def curve(order: Sequence[int]) -> Tensor:
        return torch.tensor([measure.bits([heads[i] for i in order[:count]]) for count in counts], dtype=torch.float64)

    generator = torch.Generator().manual_seed(settings.seed)
    first, last = curve(order), curve(order[::-1])
    several = torch.stack(
        [curve(torch.randperm(len(heads), generator=generator).tolist()) for _ in range(settings.orders)]
    )
    deviation = several.std(0) if settings.orders > 1 else torch.zeros_like(first)
    lines = (
        Line(FIRST, numbers(first)),
        Line(LAST, numbers(last)),
        Line(RANDOM, numbers(several.mean(0)), numbers(deviation)),
    )
    rows = [[found[i].layer, found[i].head, number(scores[i])] for i in order]
    figures = (
        Series("curve", TITLE, tuple(map(str, counts)), OFF, BITS, lines),
        Table("heads", ORDER, (LAYER, NUMBER, Said(settings.score, SCORE[settings.score])), rows),
    )
    above = (first - several.mean(0))[1:-1].mean().item() if len(counts) > 2 else None
    checks = (Check("above_random", ABOVE, None if above is None else number(above)),)
    return Explanation("pruning", TITLE, CLAIM, figures, checks, line("pruning", settings))


def _output(trace: Trace, one: Role) -> str:
    """The name of what a head hands on before it is projected."""
    path = trace.stacks[0].model.blocks[one.layer].mixer.path
    return next(name for name in (f"{path}.z", f"{path}.y") if name in trace.names())


def _scores(measure: Texts, heads: list[Head], found: list[Role], score: str) -> list[float]:
    if score == "alone":
        whole = measure.bits([])
        return [measure.bits([head]) - whole for head in heads]
    return [one.scores[score] or 0.0 for one in found]


TITLE = Said("What the model loses as heads are switched off", "헤드를 끌수록 모델이 잃는 것")
ORDER = Said("The order", "순서")
LAYER, NUMBER = Said("layer", "층"), Said("head", "헤드")
SCORE = {
    "induction": "귀납",
    "previous": "바로 앞 토큰",
    "duplicate": "같은 토큰",
    "sink": "첫 토큰",
    "offset": "고정된 거리",
    "alone": "홀로 껐을 때",
}
OFF = Said("heads that are off", "끈 헤드 수")
FIRST = Said("highest score first", "점수가 높은 것부터")
LAST = Said("lowest score first", "점수가 낮은 것부터")
RANDOM = Said("at random (control)", "무작위로(대조)")
ABOVE = Said(
    "Bits a token by which the highest scores cost more than random heads, in the mean over the curve",
    "점수가 높은 헤드를 끌 때 무작위 헤드보다 더 잃는 정도(곡선 평균, 토큰당 비트)",
)
CLAIM = Said(
    "The mean of −log₂ p(token | what stands before it) over the tokens of the texts, with more and more heads set to "
    "zero (z_h = 0) in all layers: in the order of a score, in reverse, and at random. Where the order by score lies "
    "above the random one, the heads of that score are those that these texts need.",
    "모든 층의 헤드를 점점 더 많이 0으로 만들며(z_h = 0) 잰, 텍스트의 토큰에 걸친 −log₂ p(토큰 | 앞의 토큰들)의 "
    "평균입니다. 점수 순서, 그 반대 순서, 무작위 순서로 끕니다. 점수 순서의 선이 무작위보다 위에 있으면 그 점수가 "
    "높은 헤드가 이 텍스트들에 필요한 헤드입니다.",
)


def _applies(trace: Trace) -> bool:
    return scored(trace) and writes(trace)


PRUNING = Explainer("pruning", TITLE, PruningSpec, made, _applies, ("above_random",))
