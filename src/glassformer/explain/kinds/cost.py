"""cost, fields: what this run costs, and how far back a vector can look layer by layer."""

from __future__ import annotations

from dataclasses import astuple

import torch

from ...data.display import By
from ...image import ImageModel
from ...trace import Trace
from ..cost import cost
from ..explainer import (
    Explainer,
    Report,
    Settings,
    cells_of,
    has_tokens,
    length_of,
    line,
    names_of,
    seen_only,
    stack_of,
)
from ..explanation import Check, Explanation, HeatMap, Said, Table, TokenScores
from ..sheet import counted
from ..sight import fields
from .sight import SUPPORT


class CostSpec(Settings, frozen=True, tag="cost"):
    """It has no settings."""


def made(trace: Trace, settings: CostSpec, report: Report) -> Explanation:
    """The figure "cost": a row for this text, and for such of twice, four and eight times the length."""
    writer, image = trace.stacks[-1], isinstance(trace.model, ImageModel)
    rows: list[list[str | float | int | None]] = []
    for times in (1,) if image else (1, 2, 4, 8):
        n = 1 if image else times * length_of(writer)
        sources = times * length_of(trace.stacks[0]) if len(trace.stacks) == 2 else None
        found = cost(trace.model.spec, n, sources)
        rows.append([n, *astuple(found)[1:8]])
    return Explanation("cost", TITLE, CLAIM, (Table("cost", TITLE, COLUMNS, rows),), (COUNTED,), line("cost", settings))


COUNTED = Check(
    "counted",
    Said(
        "How far the operations are from those that PyTorch counts in such a run; it is not counted here, since that "
        "takes a run of its own",
        "이 연산량과 PyTorch가 그런 실행에서 직접 센 연산량의 차이(한 번 더 실행해야 하므로 여기서는 세지 않음)",
    ),
)
TITLE = Said("What it costs", "비용")
COLUMNS = (
    Said("tokens (images)", "토큰(이미지) 수"),
    Said("parameters", "매개변수"),
    Said("FLOPs", "연산량(FLOPs)"),
    Said("FLOPs of scans", "스캔 연산량(FLOPs)"),
    Said("bytes of state", "상태(바이트)"),
    Said("steps in a row", "순차 단계"),
    Said("reach in tokens", "볼 수 있는 거리(토큰)"),
    Said("path", "경로 길이"),
)
CLAIM = Said(
    "Counted from the model's settings, for this text and for texts twice, four and eight times as long: how the "
    "cost grows with the text is what tells the families apart.",
    "모델의 설정에서 센 값으로, 이 텍스트와 그 2배, 4배, 8배 길이의 텍스트에 대한 것입니다. 텍스트가 길어질 때 "
    "비용이 느는 방식이 모델 계열을 가르는 차이입니다.",
)
COST = Explainer("cost", TITLE, CostSpec, made, lambda trace: len(trace.stacks[-1].tokens) == 1, ("counted",))


# ---------------------------------------------------------------- fields


class FieldsSpec(Settings, frozen=True, tag="fields"):
    """token: whose receptive field is drawn, -1 the last; by: how tokens are grouped; stack: -1 the last."""

    token: int = -1
    by: By = "token"
    stack: int = -1


def grown(trace: Trace, settings: FieldsSpec, report: Report) -> Explanation:
    """Figures "field", a row for each number of layers, 1 where the token sees so far, and "count", how many; of an
    image model that reads pixels the table "fields": layer, width in pixels, step, start."""
    if not has_tokens(trace):
        return _of_image(trace, settings)
    stack = stack_of(trace, settings.stack)
    cells = cells_of(trace, stack, settings.by)
    chosen = counted("token", settings.token, len(cells))
    layers = len(stack.model.blocks)
    row, sources = cells[chosen].tokens[-1], length_of(trace.stacks[0])
    ways = fields(stack.model, length_of(stack), row, sources)
    seen = torch.stack([ways[:, list(cell.tokens)].any(1) for cell in cells], 1)
    after = tuple(map(str, range(layers + 1)))
    figures = (
        HeatMap("field", FIELD, after, names_of(cells), seen_only(seen.double(), seen), LAYERS, TOKEN, WAY),
        TokenScores("count", COUNT, after, seen.sum(1).double().tolist(), Said("tokens", "개")),
    )
    return Explanation("fields", FIELD, FIELDS_CLAIM, figures, (SUPPORT,), line("fields", settings))


def _of_image(trace: Trace, settings: FieldsSpec) -> Explanation:
    size = trace.model.spec.size
    rows = [
        [i, *((size, None, None) if field is None else astuple(field))]
        for i, field in enumerate(cost(trace.model.spec, 1).fields)
    ]
    columns = (
        Said("layers", "층 수"),
        Said("pixels wide", "너비(픽셀)"),
        Said("step", "간격"),
        Said("first pixel", "첫 픽셀"),
    )
    figures = (Table("fields", FIELD, columns, rows),)
    return Explanation("fields", FIELD, IMAGE_CLAIM, figures, (SUPPORT,), line("fields", settings))


FIELD = Said("The receptive field, layer by layer", "층마다 넓어지는 수용 영역")
LAYERS, TOKEN = Said("layers", "층 수"), Said("token", "토큰")
WAY = Said("1: it can be seen", "1: 볼 수 있음")
COUNT = Said("How many tokens it holds", "수용 영역에 든 토큰 수")
FIELDS_CLAIM = Said(
    "What can move this token's vector after so many layers, by construction: a window or a convolution widens "
    "with every layer, attention and recurrence hold everything from the first one on.",
    "층을 그만큼 지났을 때 구조상 이 토큰의 벡터를 움직일 수 있는 토큰입니다. 윈도와 합성곱은 층마다 조금씩 "
    "넓어지고, 어텐션과 순환은 첫 층부터 전체를 봅니다.",
)
IMAGE_CLAIM = Said(
    "How many pixels across one place of each layer's map can see, how far apart two neighbours look, and where "
    "the first begins (below 0: outside the image); without a step: the whole image.",
    "층마다 지도의 한 자리가 볼 수 있는 너비(픽셀), 이웃한 두 자리의 간격, 첫 자리가 시작하는 픽셀(0보다 작으면 "
    "이미지 밖)입니다. 간격이 없으면 이미지 전체를 봅니다.",
)


def _has_fields(trace: Trace) -> bool:
    return isinstance(trace.model, ImageModel) or has_tokens(trace)


FIELDS = Explainer("fields", FIELD, FieldsSpec, grown, _has_fields, ("support",))
