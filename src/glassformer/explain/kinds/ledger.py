"""ledger: one number of a run, such as a logit, as the exact sum of what every part of the model added to it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ...data.display import By, Cell
from ...trace import Trace
from ..explainer import Explainer, Report, Settings, cells_of, has_tokens, line, names_of, number, numbers
from ..explanation import Check, Explanation, Figure, HeatMap, Said, Table, TokenScores
from ..ledger import EXACT, Depth, Ledger, ledger
from ..sheet import counted
from ..target import Target, What, target_stack
from ..walk import Part


class LedgerSpec(Settings, frozen=True, tag="ledger"):
    """what, candidate, against, vector: the number, as in `target.Target`; token: the group of the text whose last
    token it stands at, -1 the last; depth: "parts", what each part of the model wrote, or "tokens", through all of them
    down to the embeddings; by: how tokens are grouped."""

    what: What = "auto"
    token: int = -1
    candidate: str = ""
    against: str = ""
    vector: str = ""
    depth: Depth = "parts"
    by: By = "token"


def made(trace: Trace, settings: LedgerSpec, report: Report) -> Explanation:
    """Figures "parts", a row for each part or head; "tokens", what came from each token through whatever part;
    "layers", the same part by part; "heads"; of a pair "source_tokens" and "source_layers". Checks "closure" and
    "number"."""
    stack = target_stack(trace, settings.vector)
    cells = cells_of(trace, stack, settings.by)
    chosen = counted("token", settings.token, len(cells))
    target = Target(settings.what, cells[chosen].tokens[-1], settings.candidate, settings.against, settings.vector)
    found = ledger(trace, target, settings.depth, report=report)
    own = [part for part in found.parts if part.axes and part.prefix == stack.prefix and part.of == "text"]
    figures: list[Figure] = [_parts(found), *_by_tokens(own, cells, chosen), *_by_heads(found)]
    others = [part for part in found.parts if part.axes and part not in own]
    if others:
        figures += _by_tokens(others, cells_of(trace, trace.stacks[0], settings.by), None, "source_")
    narrow = next(trace.model.parameters()).dtype.itemsize < 4  # whose own rounding is larger
    closed = found.error < EXACT or (None if narrow else False)
    checks = (
        Check("closure", CLOSURE, number(found.error), closed),
        Check("number", Said(f"The number itself: {found.says}", f"설명하는 수: {found.says}"), number(found.whole)),
    )
    claim = WRITTEN if settings.depth == "parts" else THROUGH
    return Explanation("ledger", TITLE, claim, tuple(figures), checks, line("ledger", settings))


def _parts(found: Ledger) -> Table:
    """A row for each part, of layers with heads for each head."""
    rows: list[list[str | float | int | None]] = []
    for part in found.parts:
        heads = enumerate(part.values.sum(1).tolist()) if part.axes == "h s" else [(None, part.total)]
        rows += [[part.kind, part.name, part.layer, head, number(value)] for head, value in heads]
    return Table("parts", PARTS, COLUMNS, rows)


def _by_tokens(parts: Sequence[Part], cells: list[Cell], chosen: int | None, prefix: str = "") -> list[Figure]:
    """What came from each group of tokens, in all and part by part."""
    values = torch.stack([_grouped(part, cells) for part in parts])  # p g
    title = TOKENS if not prefix else SOURCE
    unit = UNIT
    tokens = TokenScores(f"{prefix}tokens", title, names_of(cells), numbers(values.sum(0)), unit, chosen, "signed")
    names = tuple(_short(part) for part in parts)
    layers = HeatMap(
        f"{prefix}layers", LAYERS, names, names_of(cells), numbers(values), PART, Said("from", "온 곳"), unit, "signed"
    )
    return [tokens, layers]


def _grouped(part: Part, cells: list[Cell]) -> Tensor:
    values = part.values.sum(0) if part.axes == "h s" else part.values
    return torch.stack([values[list(cell.tokens)].sum() for cell in cells])


def _short(part: Part) -> str:
    """What a part is called in a map: "embed.token", "3.mixer"."""
    name = part.name.removesuffix(".head_out").removesuffix(".out").removeprefix(part.prefix)
    return name.removeprefix("blocks.")


def _by_heads(found: Ledger) -> list[HeatMap]:
    """Layers by heads, where there are several."""
    parts = [part for part in found.parts if part.axes == "h s"]
    if not parts:
        return []
    most = max(len(part.values) for part in parts)
    values = [numbers(part.values.sum(1)) for part in parts]
    rows = [[*row, *[None] * (most - len(row))] for row in values]
    names, heads = tuple(_short(part) for part in parts), tuple(map(str, range(most)))
    return [HeatMap("heads", HEADS, names, heads, rows, PART, Said("head", "헤드"), UNIT, "signed")]


TITLE = Said("The ledger: what a number is the sum of", "장부: 하나의 수를 이루는 몫")
PARTS = Said("What every part of the model added", "모델의 각 부분이 더한 몫")
TOKENS = Said("What came from each token", "토큰마다 온 몫")
SOURCE = Said("What came from each token of the source", "원문 토큰마다 온 몫")
LAYERS = Said("What each part added, by the token that it was read from", "부분마다 더한 몫을 읽은 토큰별로 나눈 것")
HEADS = Said("What each head added", "헤드마다 더한 몫")
PART, UNIT = Said("part", "부분"), Said("of the number", "설명하는 수에서의 몫")
COLUMNS = (
    Said("kind", "종류"),
    Said("name", "이름"),
    Said("layer", "층"),
    Said("head", "헤드"),
    Said("value", "몫"),
)
WRITTEN = Said(
    "number = Σ ⟨∂number/∂p, p⟩ over everything p that was added to the residual stream of this place: embedding and "
    "position, what each head or other token mixer read from each token, each channel mixer, and the biases. Norm "
    "scales, gates and weights are as they were in this run, so the sum is exact and no part is what the others leave "
    "over. It says what was written, not what would happen without it.",
    "수 = Σ ⟨∂수/∂p, p⟩. p는 이 자리의 잔차 스트림에 더해진 모든 것으로, 임베딩과 위치, 헤드나 다른 토큰 믹서가 각 "
    "토큰에서 읽은 것, 채널 믹서, 편향입니다. 정규화 배율과 게이트, 가중치는 이 실행의 값으로 고정하므로 합은 "
    "정확하고, 나머지를 채우려고 만든 몫은 없습니다. 무엇이 쓰였는지 말할 뿐, 그것이 없었다면 어떻게 되었을지를 "
    "말하지는 않습니다.",
)
THROUGH = Said(
    "number = Σ ⟨∂number/∂p, p⟩ over the embeddings and positions of all tokens and all biases, through every layer: "
    "norm scales, gates and weights, and the slope f(x)/x of each nonlinearity, are as they were in this run, so "
    "that the network is linear in what enters it and the sum is exact. It says what was passed on, not what would "
    "happen without it.",
    "수 = Σ ⟨∂수/∂p, p⟩. p는 모든 토큰의 임베딩과 위치, 그리고 모든 편향이며 모든 층을 거칩니다. 정규화 배율과 "
    "게이트, 가중치, 비선형 함수의 기울기 f(x)/x를 이 실행의 값으로 고정하면 네트워크는 입력에 대해 선형이므로 합이 "
    "정확합니다. 무엇이 전해졌는지 말할 뿐, 그것이 없었다면 어떻게 되었을지를 말하지는 않습니다.",
)
CLOSURE = Said(
    "Distance between the sum of all parts and the number, relative to the number (at least 1 % of the largest part)",
    "모든 몫의 합과 실제 수의 차이를 그 수(작아도 가장 큰 몫의 1 %)에 대한 비율로 나타낸 값",
)


def _applies(trace: Trace) -> bool:
    return has_tokens(trace) and len(trace.stacks[-1].tokens) == 1


LEDGER = Explainer("ledger", TITLE, LedgerSpec, made, _applies, ("closure", "number"))
