"""influence: how strongly each token moves the last vector of each other, from end to end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch

from ...data.display import By
from ...errors import InputError, UnsupportedError
from ...image import ImageModel
from ...place import indices
from ...trace import Trace
from ..explainer import (
    MOST,
    SEEDS,
    Explainer,
    Limit,
    Report,
    Settings,
    cells_of,
    last_of,
    line,
    names_of,
    number,
    numbers,
    seen_only,
)
from ..explanation import Check, Explanation, HeatMap, Said, TokenScores
from ..grid import grid
from ..influence import LEAST_DIRECTIONS, Influence, influence
from ..sight import sight


class InfluenceSpec(Settings, frozen=True, tag="influence"):
    """by: how tokens are grouped. of: "source", what a pair's source moves. row: of one row alone, such as a class of
    an image model; None: of all (of an image the most probable class). method, directions, seed: as in
    explain.influence."""

    by: By = "token"
    of: Literal["text", "source"] = "text"
    row: int | None = None
    method: Literal["auto", "exact", "estimate"] = "auto"
    directions: int = 32
    seed: int = 0

    LIMITS: ClassVar[dict[str, Limit]] = {
        "row": Limit(),
        "directions": Limit(LEAST_DIRECTIONS),
        "seed": Limit(0, SEEDS),
    }


def made(trace: Trace, settings: InfluenceSpec, report: Report) -> Explanation:
    """The explanation; figures "influence" (a row for each output, a column for each input) and "given", how much
    each token moves all others."""
    if trace.edits:
        raise UnsupportedError("influence is that of a model as it is; trace the text without edits")
    how = {"method": settings.method, "directions": settings.directions, "seed": settings.seed, "report": report}
    made = _of_image(trace, settings, how) if isinstance(trace.model, ImageModel) else _of_text(trace, settings, how)
    check = Check("error", ERROR, number(made.error), None)
    return Explanation("influence", TITLE, made.claim, made.figures, (check,), line("influence", settings))


@dataclass(frozen=True)
class _Made:
    figures: tuple[Any, ...]
    claim: Said
    error: float


def _of_text(trace: Trace, settings: InfluenceSpec, how: dict[str, Any]) -> _Made:
    own, last = settings.of == "text", trace.stacks[-1]
    cells = cells_of(trace, last, settings.by)
    sources = cells if own else cells_of(trace, trace.stacks[0], settings.by)
    asked = indices(None if settings.row is None else [settings.row], len(cells), "influence", "t")
    tokens = [stack.tokens for stack in trace.stacks]
    given = tokens[0] if len(tokens) == 1 else tuple(tokens)
    if len(asked) * last.length > MOST:
        raise InputError(
            f"a map of {len(asked)} × {last.length} tokens is too large; give a shorter text, or one row, as row=3"
        )
    rows = [last_of(cells)[i] for i in asked]
    found = influence(trace.model, given, rows=rows, of=settings.of, **how)
    if not own and found.norms.shape[1] != last.length and trace.stacks[0].model.spec.reads_sound:
        sources = trace._moments(found.norms.shape[1])
    return _maps(found, trace, [cells[i] for i in asked], sources, own)


def _maps(found: Influence, trace: Trace, cells: list, sources: list, own: bool) -> _Made:
    last, seen = trace.stacks[-1], torch.ones(len(cells), found.norms.shape[1]) > 0
    if own:
        seen = sight(last.model, last.length, trace.stacks[0].length, last_of(cells))
    made = grid(found, cells, seen, text="", model="", mixers=(), sources=sources)
    errors = None
    if made.errors is not None:
        errors = seen_only(torch.tensor(made.errors), torch.tensor(made.seen))
    values, ways = torch.tensor(made.values, dtype=torch.float64), torch.tensor(made.seen)
    heat = HeatMap(
        "influence",
        TITLE,
        names_of(cells),
        names_of(sources),
        seen_only(values, ways),
        Said("what is moved", "영향을 받는 토큰"),
        Said("what moves it", "영향을 주는 토큰"),
        NORM,
        errors=errors,
    )
    given = TokenScores("given", GIVEN, names_of(sources), numbers(values.sum(0)), NORM)
    claim = CLAIM if found.errors is None else ESTIMATED
    if trace.stacks[-1 if own else 0].model.embed.previous is not None:
        claim = Said(f"{claim.en} {TWICE.en}", f"{claim.ko} {TWICE.ko}")
    return _Made((heat, given), claim, made.error)


def _of_image(trace: Trace, settings: InfluenceSpec, how: dict[str, Any]) -> _Made:
    """Each pixel's on the logit of one class, laid out as the image is."""
    stack, spec = trace.stacks[0], trace.model.spec
    row = settings.row
    if row is None:
        row = int(trace.logits[0].argmax()) if spec.classes else 0
    how = how | {"directions": max(how["directions"], LEAST_DIRECTIONS)}
    found = influence(trace.model, stack.tokens[:1], rows=[row], **how)
    names = tuple(map(str, range(spec.size)))
    labels = stack.labels("k", 0) if spec.classes else [str(row)]
    called = labels[row] if spec.classes else str(row)
    heat = HeatMap(
        "influence",
        Said(f"How strongly each pixel moves “{called}”", f"픽셀마다 분류 ‘{called}’의 점수를 움직이는 정도"),
        names,
        names,
        numbers(found.norms[0].unflatten(0, (spec.size, spec.size))),
        Said("row", "행"),
        Said("column", "열"),
        NORM,
    )
    return _Made((heat,), OF_IMAGE, found.error)


TITLE = Said("Influence: which input moved which output", "영향: 어떤 입력이 어떤 출력을 움직였는가")
GIVEN = Said("How strongly each token moves all outputs together", "토큰마다 모든 출력을 움직인 정도의 합")
NORM = Said("‖∂y_t/∂x_s‖", "‖∂y_t/∂x_s‖")
CLAIM = Said(
    "I_ts = ‖∂y_t/∂x_s‖_F: how far the last vector y_t of a token moves when the fixed vector x_s of another is "
    "moved a little. It exists for every model, counts all ways through all layers, and is exact here: one "
    "backward pass for each number of y_t.",
    "I_ts = ‖∂y_t/∂x_s‖_F: 토큰 s의 고정된 벡터 x_s를 조금 움직였을 때 토큰 t의 마지막 벡터 y_t가 움직이는 "
    "정도입니다. 모든 모델에 정의되고, 모든 층을 지나는 모든 경로를 셉니다. 여기서는 y_t의 수마다 한 번씩 "
    "역전파하여 구한 정확한 값입니다.",
)
ESTIMATED = Said(
    "I_ts = ‖∂y_t/∂x_s‖_F: how far the last vector y_t of a token moves when the fixed vector x_s of another is "
    "moved a little, over all ways through all layers. Estimated here from random directions u: E‖uᵀ ∂y_t/∂x_s‖² = "
    "I_ts²; each number has its standard error.",
    "I_ts = ‖∂y_t/∂x_s‖_F: 토큰 s의 고정된 벡터 x_s를 조금 움직였을 때 토큰 t의 마지막 벡터 y_t가 움직이는 정도를 "
    "모든 층의 모든 경로에 걸쳐 잰 값입니다. 여기서는 무작위 방향 u로 추정했습니다(E‖uᵀ ∂y_t/∂x_s‖² = I_ts²). "
    "값마다 표준오차가 있습니다.",
)
TWICE = Said(
    "This model looks each token up in two tables: x_s is its row of embed.token, which enters at s, and its row of "
    "embed.previous, which enters one place later; both are moved.",
    "이 모델은 토큰마다 표 두 개를 찾아봅니다. x_s는 s 자리에 들어가는 embed.token의 행과 한 자리 뒤에 들어가는 "
    "embed.previous의 행을 합친 것이며, 둘을 함께 움직입니다.",
)
OF_IMAGE = Said(
    "I_s = ‖∂logit/∂x_s‖: how far the logit of one class moves when pixel s is made a little lighter or darker; exact.",
    "I_s = ‖∂logit/∂x_s‖: 픽셀 s를 조금 밝게 하거나 어둡게 했을 때 한 분류의 로짓이 움직이는 정도를 나타내는 "
    "정확한 값입니다.",
)
ERROR = Said(
    "Largest standard error as a share of the largest influence; 0: exact",
    "가장 큰 표준오차를 가장 큰 영향에 대한 비율로 나타낸 값(0이면 정확한 값)",
)
INFLUENCE = Explainer(
    "influence", TITLE, InfluenceSpec, made, lambda trace: not trace.edits and _single(trace), ("error",)
)


def _single(trace: Trace) -> bool:
    return len(trace.stacks[-1].tokens) == 1
