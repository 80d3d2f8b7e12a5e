"""alignment: the three maps of an encoder-decoder: the source on itself, the target on itself, the one on the other."""

from __future__ import annotations

from typing import ClassVar

import torch

from ...data.display import By
from ...errors import InputError
from ...rerun import Stack
from ...trace import Trace
from ..explainer import (
    MOST,
    Explainer,
    Limit,
    Report,
    Settings,
    any_seen,
    cells_of,
    last_of,
    length_of,
    line,
    names_of,
    numbers,
    seen_only,
)
from ..explanation import Explanation, HeatMap, Said
from ..looking import head_letter, weights_name
from ..sheet import check_choice
from ..sight import through
from .weights import summed, sums, table_of


class AlignmentSpec(Settings, frozen=True, tag="alignment"):
    """layer: of the decoder; None: the one that the model names for it, else the last that looks at the source. head:
    None for the mean over all. by: how tokens are grouped: weights on the tokens of a group are summed. Of a group that
    was written, the mean of its tokens' rows, which still sums to 1; of one that looks at its own text, the row of its
    last token."""

    layer: int | None = None
    head: int | None = None
    by: By = "token"

    LIMITS: ClassVar[dict[str, Limit]] = {"layer": Limit(), "head": Limit()}


def made(trace: Trace, settings: AlignmentSpec, report: Report) -> Explanation:
    """Figures "cross", and where the layers weigh their own text "encoder" and "decoder"."""
    tall, wide = trace.stacks[-1].length, trace.stacks[0].length
    if tall * wide > MOST:
        raise InputError(f"a map of {tall} × {wide} tokens is too large; give a shorter text")
    found = trace.alignment(layer=settings.layer, head=settings.head)
    sound = trace.stacks[0].model.spec.reads_sound  # whose moments are groups of places already
    sources = cells_of(trace, trace.stacks[0], "token" if sound else settings.by)
    targets = cells_of(trace, trace.stacks[-1], settings.by)
    # Row t of the weights is of the token t + 1: nothing was read for the one before the text.
    written = [(cell.text, [t - 1 for t in cell.tokens if t]) for cell in targets if cell.tokens[-1]]
    each = torch.tensor(found.weights, dtype=torch.float64)
    each = each if sound else summed(each, sources)
    weights = torch.stack([each[rows].mean(0) for _, rows in written])
    name = found.card.name if found.card is not None else ""
    direct = bool(name) and found.head is not None and settings.by == "token"
    cross = HeatMap(
        "cross",
        CROSS,
        tuple(label for label, _ in written),
        names_of(sources),
        numbers(weights),
        Said("written", "쓴 토큰"),
        Said("read", "읽은 토큰"),
        Said("weight", "가중치"),
        "share",
        value=name if direct else "",
        where={"b": 0, "h": found.head} if direct else {},
    )
    own = [_own(trace, stack, found.layer, settings, report) for stack in trace.stacks]
    figures = [figure for figure in (own[0], own[1], cross) if figure is not None]
    checks = sums(trace, name, weights)
    return Explanation(
        "alignment", TITLE, CLAIM if name else BY_INFLUENCE, tuple(figures), checks, line("alignment", settings)
    )


def _own(trace: Trace, stack: Stack, layer: int | None, settings: AlignmentSpec, report: Report) -> HeatMap | None:
    """How a stack looks at its own text in that layer, or in its last; None where it has no weights for it."""
    last = len(stack.model.blocks) - 1
    layer = last if layer is None else min(layer, last)
    name = weights_name(trace, stack, layer)
    if not name or stack.model.blocks[layer].mixer.reads_memory:
        return None
    by: By = "token" if stack.model.spec.reads_sound else settings.by
    cells, letter, head = cells_of(trace, stack, by), head_letter(trace, name), settings.head
    if head is not None:
        check_choice("head", head, dict(trace.sizes(name)).get(letter, 1))
    rows = last_of(cells)
    values = summed(table_of(trace, name, rows, head, report), cells)
    seen = any_seen(through(stack.model.blocks[layer].mixer, length_of(stack), rows=rows), cells)
    encoder, names = stack is trace.stacks[0], names_of(cells)
    direct = head is not None and letter and by == "token"
    return HeatMap(
        "encoder" if encoder else "decoder",
        ENCODER if encoder else DECODER,
        names,
        names,
        seen_only(values, seen),
        Said("reads", "읽는 토큰"),
        Said("is read", "읽히는 토큰"),
        Said("weight", "가중치"),
        "share",
        value=name if direct else "",
        where={"b": 0, letter: head} if direct else {},
    )


TITLE = Said("Alignment: what each token was written from", "정렬: 토큰마다 무엇을 보고 썼는가")
CROSS = Said("The target looks at the source", "출력이 원문을 보는 정도")
ENCODER = Said("The source looks at itself", "원문이 자신을 보는 정도")
DECODER = Said("The target looks at itself", "출력이 자신을 보는 정도")
CLAIM = Said(
    "α_ij = softmax_j(e_ij): while token i is written, the share of each source token j in the sum that the "
    "decoder reads. Row i of the target is weighed where the token before it stood.",
    "α_ij = softmax_j(e_ij): 토큰 i를 쓸 때 디코더가 읽는 가중합에서 원문 토큰 j가 차지하는 비중입니다. 행 i의 "
    "가중치는 바로 앞 토큰의 자리에서 계산된 것입니다.",
)
BY_INFLUENCE = Said(
    "This model has no weights over its source; shown are the shares of the influence ‖∂y_t/∂x_s‖ of each source "
    "token.",
    "이 모델에는 원문에 대한 가중치가 없습니다. 원문 토큰마다 영향 ‖∂y_t/∂x_s‖가 차지하는 비중을 보여 줍니다.",
)


def _applies(trace: Trace) -> bool:
    return (
        len(trace.stacks) == 2
        and len(trace.stacks[-1].tokens) == 1
        and trace.stacks[-1].length > 1
        and hasattr(trace, "alignment")
    )


ALIGNMENT = Explainer("alignment", TITLE, AlignmentSpec, made, _applies, ("sum",))
