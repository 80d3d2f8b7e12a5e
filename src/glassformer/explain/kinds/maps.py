"""maps: all heads of a layer as small maps, for a text too long to be drawn pair by pair."""

from __future__ import annotations

from itertools import pairwise
from typing import ClassVar

import torch
from torch import Tensor

from ...errors import UnsupportedError
from ...rerun import Stack
from ...trace import Trace
from ..explainer import (
    WRITTEN_OUT,
    Explainer,
    Limit,
    Report,
    Settings,
    block_of,
    has_tokens,
    length_of,
    line,
    seen_only,
    stack_of,
)
from ..explanation import Explanation, HeatMap, Said
from ..looking import headed, rows_at_once
from ..quantity import exact
from ..sight import through
from .weights import scale_of

LONG = 128  # tokens; the maps of a shorter text can be drawn whole
MOST = 128  # fields on a side


class MapsSpec(Settings, frozen=True, tag="maps"):
    """layer: of the stack (-1 the last), None for the first whose heads have weights of their own; size: fields on a
    side; stack: -1 the last."""

    layer: int | None = None
    size: int = 48
    stack: int = -1

    LIMITS: ClassVar[dict[str, Limit]] = {"size": Limit(1, MOST)}


def made(trace: Trace, settings: MapsSpec, report: Report) -> Explanation:
    """Figures "head_0", "head_1" …: values[i][j] the weight of largest magnitude among the rows of field i and the
    columns of field j, None where no row of the field sees any of its columns."""
    stack = stack_of(trace, settings.stack)
    name, layer = _chosen(trace, stack, settings.layer)
    n = length_of(stack)
    size = min(settings.size, n)
    ends = [i * n // size for i in range(size + 1)]
    fields = list(pairwise(ends))
    names = tuple(f"{a}–{b - 1}" if b - a > 1 else str(a) for a, b in fields)
    found, mixer = pooled(trace, name, ends, report), block_of(stack, layer).mixer
    ways = torch.stack([through(mixer, n, rows=range(a, b)).any(0) for a, b in fields])
    seen = _most(ways.float(), ends) > 0
    figures = tuple(
        HeatMap(f"head_{h}", _head(h), names, names, seen_only(one, seen), ROWS, COLUMNS, UNIT, scale_of(name, found))
        for h, one in enumerate(found)
    )
    return Explanation("maps", TITLE, CLAIM, figures, (WRITTEN_OUT,), line("maps", settings))


def _chosen(trace: Trace, stack: Stack, layer: int | None) -> tuple[str, int]:
    """The name of the weights of a layer whose heads have their own, and the layer. Raises UnsupportedError."""
    for one in range(len(stack.model.blocks)) if layer is None else [layer]:
        name = headed(trace, stack, one)
        if name:
            return name, one
    if layer is None:
        raise UnsupportedError("no layer of this stack has weights of its own; influence exists for every layer")
    raise UnsupportedError(f"layer {layer} has no weights of its own; influence exists for every layer")


def pooled(trace: Trace, name: str, ends: list[int], report: Report) -> Tensor:
    """`h i j`: of all weights in a field the one of largest magnitude, with its sign. ends: where fields begin, and the
    end of the last."""
    at_once, rows = rows_at_once(trace, name), []
    for first, end in pairwise(ends):
        report(first, ends[-1])
        most = None
        for start in range(first, end, at_once):
            part = trace.part(name, b=0, t=list(range(start, min(end, start + at_once))))  # h t s
            one = exact(torch.stack((part.amax(1), part.amin(1))))
            most = one if most is None else torch.stack((most[0].maximum(one[0]), most[1].minimum(one[1])))
        high, low = _most(most[0], ends), -_most(-most[1], ends)
        rows.append(torch.where(-low > high, low, high))
    return torch.stack(rows, 1)


def _most(values: Tensor, ends: list[int]) -> Tensor:
    """`… s` to `… j`: the largest of each field."""
    return torch.stack([values[..., a:b].amax(-1) for a, b in pairwise(ends)], -1)


def _head(h: int) -> Said:
    return Said(f"Head {h}", f"{h}번 헤드")


TITLE = Said("The heads of a layer in a long text", "긴 텍스트에서 본 한 층의 헤드")
ROWS = Said("tokens that look", "보는 토큰")
COLUMNS = Said("tokens that are looked at", "보이는 토큰")
UNIT = Said("largest weight of a field", "칸에서 가장 큰 가중치")
CLAIM = Said(
    "The text is cut into equal pieces. A field shows the largest weight that any token of the row's piece gives to "
    "any token of the column's piece; where weights have a sign, the one of largest magnitude. Nothing is averaged, so "
    "a single strong look is seen however long the text is.",
    "텍스트를 같은 길이의 조각으로 나눕니다. 한 칸은 행 조각의 토큰이 열 조각의 토큰에 둔 가중치 가운데 가장 큰 "
    "값이며, 가중치에 부호가 있으면 크기가 가장 큰 값입니다. 평균을 내지 않으므로 텍스트가 아무리 길어도 한 번의 강한 "
    "어텐션이 드러납니다.",
)


def _applies(trace: Trace) -> bool:
    stack = trace.stacks[-1]
    if len(stack.tokens) != 1 or not has_tokens(trace) or length_of(stack) <= LONG:
        return False
    return any(headed(trace, stack, i) for i in range(len(stack.model.blocks)))


MAPS = Explainer("maps", TITLE, MapsSpec, made, _applies, ("written_out",))
