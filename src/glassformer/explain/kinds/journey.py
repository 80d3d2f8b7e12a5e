"""journey: how far a token's vector goes from the fixed one of the table, layer by layer."""

from __future__ import annotations

import torch
from torch import Tensor

from ...data.display import By, Cell
from ...rerun import Stack
from ...trace import Trace
from ..explainer import (
    WRITTEN_OUT,
    Explainer,
    Report,
    Settings,
    cells_of,
    has_tokens,
    line,
    names_of,
    numbers,
    stack_of,
)
from ..explanation import Explanation, HeatMap, Line, Said, Series
from ..quantity import exact
from ..sheet import counted


class JourneySpec(Settings, frozen=True, tag="journey"):
    """token: which group of the text, -1 the last; by: how tokens are grouped; stack: -1 the last."""

    token: int = -1
    by: By = "token"
    stack: int = -1


def stations(trace: Trace, stack: Stack) -> list[str]:
    """The names of a token's vector on its way: from the table, with its position, and behind every block."""
    names = [f"{stack.prefix}embed.token", stack.entry(0)]
    names += [stack.entry(i + 1) for i in range(len(stack.model.blocks))]
    return [name for name in names if name in trace.names()]


def called(name: str) -> str:
    """What a station is called: "0" behind block 0."""
    short = name.rpartition("embed.")[2]
    return {"token": "embed.token", "out": "embed.out"}.get(short) or name.rpartition("blocks.")[2].split(".")[0]


def way(trace: Trace, names: list[str], places: list[list[int]]) -> Tensor:
    """The vectors `l g d` of groups of places at these stations: of several tokens their mean."""
    flat = [place for some in places for place in some]
    out = []
    for name in names:
        vectors = exact(trace.part(name, b=0, t=flat)).split([len(some) for some in places])
        out.append(torch.stack([some.mean(0) for some in vectors]))
    return torch.stack(out)


def distances(vectors: Tensor) -> Tensor:
    """‖x_l - e‖ / ‖e‖ of vectors `l … d`."""
    return (vectors - vectors[0]).norm(dim=-1) / vectors[0].norm(dim=-1).clamp(min=1e-30)


def made(trace: Trace, settings: JourneySpec, report: Report) -> Explanation:
    """Figures "distance" and "cosine" of the chosen token, "length" ‖x_l‖, and "tokens", the distances of all."""
    stack = stack_of(trace, settings.stack)
    cells = cells_of(trace, stack, settings.by)
    chosen = counted("token", settings.token, len(cells))
    names = stations(trace, stack)
    vectors = way(trace, names, [list(cell.tokens) for cell in cells])
    mine, x = vectors[:, chosen], tuple(map(called, names))
    cosines = torch.cosine_similarity(mine, mine[:1].expand_as(mine), dim=-1)
    figures = (
        _series("distance", DISTANCE, x, cells[chosen], distances(mine), Said("of ‖e‖", "‖e‖에 대한 비율")),
        _series("cosine", COSINE, x, cells[chosen], cosines, Said("cosine", "코사인")),
        _series("length", LENGTH, x, cells[chosen], mine.norm(dim=-1), Said("‖x‖", "‖x‖")),
        HeatMap(
            "tokens",
            ALL,
            names_of(cells),
            x,
            numbers(distances(vectors).mT),
            Said("token", "토큰"),
            Said("after", "지난 곳"),
            Said("of ‖e‖", "‖e‖에 대한 비율"),
        ),
    )
    return Explanation("journey", TITLE, CLAIM, figures, (WRITTEN_OUT,), line("journey", settings))


def _series(name: str, title: Said, x: tuple[str, ...], cell: Cell, values: Tensor, unit: Said) -> Series:
    return Series(name, title, x, LAYER, unit, (Line(Said(cell.text, cell.text), numbers(values)),))


LAYER = Said("after", "지난 곳")
TITLE = Said("From the fixed vector to the vector in context", "고정된 벡터에서 문맥을 담은 벡터로")
DISTANCE = Said("How far the vector has gone", "벡터가 떠나온 거리")
COSINE = Said("Its direction against that of the fixed vector", "고정된 벡터와 이루는 방향(코사인)")
LENGTH = Said("How long it is", "벡터의 길이")
ALL = Said("How far every token has gone", "모든 토큰이 떠나온 거리")
CLAIM = Said(
    "‖x_l − e‖ / ‖e‖ and cos(x_l, e): e is the token's row of the embedding table, the same in every text; "
    "x_l is its vector behind block l, which depends on the text around it. Of several tokens the mean of their "
    "vectors.",
    "‖x_l − e‖ / ‖e‖와 cos(x_l, e): e는 어느 텍스트에서나 같은, 임베딩 표의 행이고, x_l은 블록 l을 지난 뒤 "
    "주변 텍스트에 따라 달라진 벡터입니다. 토큰이 여럿이면 벡터의 평균입니다.",
)


def keeps_width(trace: Trace) -> bool:
    """Whether a token's vector has the same width everywhere on its way."""
    return has_tokens(trace) and all(_keeps_width(stack) for stack in trace.stacks)


def _keeps_width(stack: Stack) -> bool:
    widths = {block.width for block in stack.model.blocks} | {block.dim for block in stack.model.blocks}
    return len(widths) == 1


JOURNEY = Explainer("journey", TITLE, JourneySpec, made, keeps_width, ("written_out",))
