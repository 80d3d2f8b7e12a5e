"""neurons: what makes one neuron of a channel mixer high in many texts, and whether a property of tokens is one
neuron's affair or that of many."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import torch
from torch import Tensor

from ...data.display import Cell
from ...errors import InputError
from ...trace import Trace
from ..explainer import Explainer, Limit, Report, Settings, block_of, line, number, numbers, of_text
from ..explanation import Check, Explanation, Line, Said, Series, Table
from ..probing import balanced, tell, told
from ..quantity import exact
from ..sheet import check_choice
from ..texts import runs_of

if TYPE_CHECKING:
    from ...text_trace import TextTrace

NEAR = 18  # characters of a context to either side
HELD = 4  # of so many texts the last is what is told, of the others it is learnt
BEST = 10  # neurons that are listed
MOST_BYTES = 1 << 28  # of the neurons of one layer


class NeuronsSpec(Settings, frozen=True, tag="neurons"):
    """texts: in which a neuron is looked for, a line each, beside the run's own; four at least. feature: what a token
    has or has not: it begins a word ("begins"), is Hangul ("hangul"), or stood in the text before ("repeated"). layer:
    whose neurons are listed (-1 the last); neuron: which one, None for the one that tells the feature best. top: how
    many contexts. seed: of the control."""

    texts: str = ""
    feature: Literal["begins", "hangul", "repeated"] = "begins"
    layer: int = -1
    neuron: int | None = None
    top: int = 12
    seed: int = 0

    LIMITS: ClassVar[dict[str, Limit]] = {"neuron": Limit(), "top": Limit(1, 1000), "seed": Limit(most=2**31)}


@dataclass(frozen=True)
class Tokens:
    """The tokens of several texts that stand for some text: their ids `n`, what is around each, whether each has the
    feature, and whether it is of a text that is told, bool `n`; and of each text the places of its own."""

    ids: Tensor
    around: list[str]
    has: Tensor
    held: Tensor
    places: list[list[int]]


def made(trace: TextTrace, settings: NeuronsSpec, report: Report) -> Explanation:
    """Figures "probe", how well the feature is told in each layer, "neurons", the best of the chosen one, and
    "contexts", where one of them is highest; checks "distributed" and "selectivity"."""
    texts = list(runs_of(trace, settings.texts, own=True))
    if len(texts) < HELD:
        raise InputError(f"texts: of some a probe learns, others it is tested on; give {HELD} at least, a line each")
    tokens = _tokens(texts, settings.feature)
    found = {}
    for i in range(len(trace.stacks[-1].model.blocks)):
        report(i, len(trace.stacks[-1].model.blocks))
        if _name(trace, i):
            found[i] = _Layer(_values(texts, _name(trace, i), tokens), tokens, settings.seed)
    block_of(trace.stacks[-1], settings.layer)  # refuses one that there is not
    layer = settings.layer % len(trace.stacks[-1].model.blocks)
    if layer not in found:
        raise InputError(f"layer: {layer} has no neurons; those that have: {', '.join(map(str, found))}")
    chosen = found[layer]
    check_choice("neuron", settings.neuron, chosen.x.shape[1])
    neuron = chosen.best if settings.neuron is None else settings.neuron
    lines = [Line(said, [number(one.accuracy[k]) for one in found.values()]) for k, said in enumerate(LINES)]
    figures = (
        Series("probe", PROBE, tuple(map(str, found)), LAYER, ACCURACY, tuple(lines)),
        Table("neurons", NEURONS, COLUMNS, chosen.rows()),
        Table(
            "contexts",
            Said(f"{HIGHEST.en}: {neuron}", f"{HIGHEST.ko}: {neuron}"),
            CONTEXT,
            chosen.highest(neuron, settings.top),
        ),
    )
    best, whole, control = chosen.accuracy
    checks = (
        Check("distributed", DISTRIBUTED, number(whole - best)),
        Check("selectivity", SELECTIVITY, number(None if control is None else whole - control)),
    )
    return Explanation("neurons", TITLE, CLAIM, figures, checks, line("neurons", settings))


class _Layer:
    """One layer's neurons x `n f`, and how well the feature is told: accuracy, of the best neuron, of a probe on all,
    and of such a probe with labels that say nothing; each learnt on some texts and measured on the others."""

    def __init__(self, x: Tensor, tokens: Tokens, seed: int) -> None:
        self.x, self.tokens = x, tokens
        found = tell(x, tokens.has, tokens.held, tokens.ids, seed)
        self.by, self.best = found.by, found.best
        self.accuracy = (found.neuron, found.whole, found.control)

    def rows(self) -> list[list[str | float | int | None]]:
        """The neurons that tell the feature best."""
        held, best = self.tokens.held, self.by.accuracy.topk(min(BEST, self.x.shape[1]))
        found = []
        for neuron, learnt in zip(best.indices.tolist(), best.values.tolist(), strict=True):
            there = balanced(told(self.x[held], self.by, neuron), self.tokens.has[held]).item()
            found.append([neuron, number(learnt), number(there)])
        return found

    def highest(self, neuron: int, top: int) -> list[list[str | float | int | None]]:
        """Where a neuron is highest."""
        best = self.x[:, neuron].topk(min(top, len(self.x)))
        values = zip(best.indices.tolist(), numbers(best.values), strict=True)
        return [[self.tokens.around[i], value, "✓" if self.tokens.has[i] else "–"] for i, value in values]


def _name(trace: Trace, layer: int) -> str:
    """The name of a layer's neurons, "" where it has none for each token."""
    name = f"{trace.stacks[-1].prefix}blocks.{layer}.channel.hidden"
    return name if name in trace.names() and trace.axes(name) == "b t f" else ""


def _tokens(texts: list[TextTrace], feature: str) -> Tokens:
    ids, around, has, held, places = [], [], [], [], []
    for k, text in enumerate(texts):
        cells = [cell for cell in text.cells("token") if cell.source]
        own = text.stacks[-1].tokens[0].tolist()
        places.append([cell.tokens[0] for cell in cells])
        for cell in cells:
            ids.append(own[cell.tokens[0]])
            around.append(_around(text.text, cell))
            has.append(_has(text.text, cell, own, feature))
            held.append(k % HELD == HELD - 1)
    found = Tokens(torch.tensor(ids), around, torch.tensor(has), torch.tensor(held), places)
    for some in (found.has[found.held], found.has[~found.held]):
        if some.all() or not some.any():
            raise InputError(
                "feature: it is had by all tokens of these texts, or by none; give others, or another feature"
            )
    return found


def _around(text: str, cell: Cell) -> str:
    left, right = text[: cell.start][-NEAR:], text[cell.end :][:NEAR]
    return f"{left}[{text[cell.start : cell.end]}]{right}".replace("\n", " ").strip()


def _has(text: str, cell: Cell, ids: list[int], feature: str) -> bool:
    at = cell.tokens[0]
    if feature == "hangul":
        return bool(re.search("[ㄱ-ㆎ가-힣]", cell.source))
    if feature == "repeated":
        return ids[at] in ids[:at]
    return cell.source[:1].isspace() or cell.start == 0 or text[cell.start - 1].isspace()


def _values(texts: list[TextTrace], name: str, tokens: Tokens) -> Tensor:
    width = dict(texts[0].sizes(name))["f"]
    if 8 * width * len(tokens.ids) > MOST_BYTES:
        raise InputError(f"texts: {len(tokens.ids):,} tokens are too many for {width:,} neurons; give shorter texts")
    pairs = zip(texts, tokens.places, strict=True)
    return torch.cat([exact(text.part(name, b=0))[some] for text, some in pairs if some])


TITLE = Said("One neuron, and all of them", "뉴런 하나와 전체")
PROBE = Said("How well the feature is told", "특징을 알아맞히는 정도")
LAYER = Said("layer", "층")
ACCURACY = Said("balanced accuracy", "균형 정확도")
LINES = (
    Said("the best neuron", "가장 좋은 뉴런"),
    Said("a linear probe on all", "전체에 대한 선형 탐침"),
    Said("a probe on random labels (control)", "무작위 이름표에 대한 탐침(대조)"),
)
NEURONS = Said("The neurons that tell it best", "가장 잘 알아맞히는 뉴런")
COLUMNS = (
    Said("neuron", "뉴런"),
    Said("where it was chosen", "고른 텍스트에서"),
    Said("on other texts", "다른 텍스트에서"),
)
HIGHEST = Said("Where a neuron is highest", "뉴런이 가장 높은 곳")
CONTEXT = (Said("context", "문맥"), Said("activation", "활성값"), Said("has the feature", "특징이 있음"))
DISTRIBUTED = Said(
    "By how much all neurons together tell more than the best", "전체가 가장 좋은 뉴런보다 더 알아맞히는 정도"
)
SELECTIVITY = Said(
    "By how much the probe tells more than one on random labels (selectivity)",
    "탐침이 무작위 이름표의 탐침보다 더 알아맞히는 정도(선택성)",
)
CLAIM = Said(
    "A neuron is one number of the channel mixer's hidden layer, behind its nonlinearity. The best neuron is the one "
    "whose threshold tells best which tokens have the feature; the probe x w + b > 0 reads all neurons of the layer. "
    "Both learn on three texts of four and are measured on the fourth. The control has the same probe learn a random "
    "label for each kind of token (Hewitt and Liang 2019): what it reaches there is learnt by heart. Where the probe "
    "tells much more than the best neuron, the feature is spread over many; where a neuron is high says what it goes "
    "with in these texts, not that it stands for that alone.",
    "뉴런은 채널 믹서의 은닉층에서 비선형 함수를 지난 수 하나입니다. 가장 좋은 뉴런은 문턱값 하나로 특징이 있는 토큰을 "
    "가장 잘 가려내는 뉴런이고, 탐침 x w + b > 0은 그 층의 모든 뉴런을 읽습니다. 둘 다 텍스트 넷 가운데 셋에서 "
    "학습하고 나머지에서 잽니다. 대조는 같은 탐침이 토큰 종류마다 무작위로 붙인 이름표를 학습한 것으로(Hewitt와 Liang "
    "2019), 거기서 맞힌 것은 외운 것입니다. 탐침이 가장 좋은 뉴런보다 훨씬 잘 맞히면 특징은 여러 뉴런에 퍼져 있습니다. "
    "뉴런이 높은 곳은 이 텍스트들에서 함께 나타나는 것을 보여 줄 뿐, 그 뜻만을 나타내지는 않습니다.",
)


def _applies(trace: Trace) -> bool:
    if not (of_text(trace) and len(trace.stacks) == 1 and trace.loaded.tokenizer is not None):
        return False
    return any(_name(trace, i) for i in range(len(trace.stacks[0].model.blocks)))


NEURONS_OF = Explainer("neurons", TITLE, NeuronsSpec, made, _applies, ("distributed", "selectivity"))
