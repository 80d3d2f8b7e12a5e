"""weights: with which weights one layer sums up what it sees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from ...data.display import By, Cell
from ...errors import InputError, UnsupportedError
from ...mixers.softmax import largest, weights
from ...rerun import Stack
from ...trace import Trace
from ..explainer import (
    MOST,
    Explainer,
    Report,
    Settings,
    any_seen,
    block_of,
    cells_of,
    has_tokens,
    last_of,
    length_of,
    line,
    names_of,
    numbers,
    places_of,
    seen_only,
    stack_of,
)
from ..explanation import Check, Explanation, HeatMap, Said, TokenScores
from ..looking import head_letter, weights_name
from ..quantity import exact
from ..sheet import check_choice
from ..sight import reasons, through


class WeightsSpec(Settings, frozen=True, tag="weights"):
    """layer: of the stack (-1 the last), None for the first that has weights. head: None for the mean magnitude over
    all heads or channels. of: "source", the weights with which it looks at the source; "" for the text's, where there
    are none the source's. stack: -1 the last. by: how tokens are grouped. rows: those that
    ask, alone and in this order, as "3,7"; "" for all."""

    layer: int | None = None
    head: int | None = None
    of: Literal["", "text", "source"] = ""
    stack: int = -1
    by: By = "token"
    rows: str = ""


def made(trace: Trace, settings: WeightsSpec, report: Report) -> Explanation:
    """The figure "weights", a row for each token that asks, a column for each that is read; beside a learned sink also
    "sink", what no token gets of each row."""
    stack = stack_of(trace, settings.stack)
    name, layer, own = _chosen(trace, stack, settings)
    cells = cells_of(trace, stack, settings.by)
    sources = cells if own else cells_of(trace, trace.stacks[0], settings.by)
    askers = [cells[i] for i in places_of("rows", settings.rows, len(cells))]
    rows = last_of(askers)
    letter = head_letter(trace, name)
    check_choice("head", settings.head, dict(trace.sizes(name)).get(letter, 1))
    values = table_of(trace, name, rows, settings.head, report)
    together = summed(values, sources)
    mixer, n = block_of(stack, layer).mixer, length_of(stack)
    dark = seen = None
    if own:
        dark = reasons(mixer, stack.call.pos[0].tolist(), rows, [cell.tokens for cell in cells])
        seen = any_seen(through(mixer, n, length_of(trace.stacks[0]), rows), cells)
    seen = torch.ones_like(together) > 0 if seen is None else seen
    direct = settings.by == "token" and not settings.rows and (settings.head is not None or not letter)
    where = {"b": 0} | ({letter: settings.head} if letter and settings.head is not None else {})
    figure = HeatMap(
        "weights",
        TITLE,
        names_of(askers),
        names_of(sources),
        seen_only(together, seen),
        Said("reads", "읽는 토큰"),
        Said("is read", "읽히는 토큰"),
        Said("weight", "가중치"),
        scale_of(name, together),
        dark,
        value=name if direct else "",
        where=where if direct else {},
    )
    figures = (figure, *_sink(trace, name, askers, settings.head))
    checks = sums(trace, name, together)
    return Explanation("weights", TITLE, _claim(trace, name), figures, checks, line("weights", settings))


def _chosen(trace: Trace, stack: Stack, settings: WeightsSpec) -> tuple[str, int, bool]:
    """The name of the weights that are meant, their layer, and whether they are those of the text itself."""
    layers = range(len(stack.model.blocks)) if settings.layer is None else [settings.layer]
    for of in ("text", "source") if not settings.of else (settings.of,):
        for layer in layers:
            name = weights_name(trace, stack, layer, of)
            if name:
                return name, layer, of == "text"
    if settings.layer is None:
        raise UnsupportedError("no layer of this stack has weights of its own; influence exists for every layer")
    raise UnsupportedError(f"layer {settings.layer} has no weights of its own; influence exists for every layer")


def scale_of(name: str, weights: Tensor) -> Literal["share", "plain", "signed"]:
    """How weights of that name are coloured: of a softmax as shares; of others those below 0 in a colour of their
    own."""
    return "share" if name.endswith(".pattern") else "signed" if weights.min() < 0 else "plain"


def table_of(trace: Trace, name: str, rows: list[int], head: int | None, report: Report) -> Tensor:
    """Weights `t s` of one head or channel, or the mean of their magnitudes, as many rows at once as there is room."""
    letter, found = head_letter(trace, name), []
    where = {letter: head} if letter and head is not None else {}
    count = dict(trace.sizes(name))["s"]
    if len(rows) * count > MOST:
        raise InputError(
            f"a map of {len(rows)} × {count} tokens is too large; maps draws those of a long text, in fields"
        )
    at_once = max(1, trace.rows_at_once(name, **dict.fromkeys(where, 1)))
    for start in range(0, len(rows), at_once):
        report(start, len(rows))
        part = exact(trace.part(name, b=0, t=rows[start : start + at_once], **where))
        found.append(part.abs().mean(0) if part.ndim == 3 else part)
    return torch.cat(found)


def _sink(trace: Trace, name: str, askers: list[Cell], head: int | None) -> tuple[TokenScores, ...]:
    """Beside a learned sink, the share exp(sink) / (exp(sink) + Σ_j exp(s_ij)) of each row that it takes, of one head
    or the mean over all; nothing of a layer that has none."""
    path, _, short = name.rpartition(".")
    mixer: Any = trace.model.get_submodule(path)
    if short != "pattern" or getattr(mixer, "sink", None) is None:
        return ()
    heads, rows, found = range(mixer.heads) if head is None else [head], last_of(askers), []
    sink = exact(mixer.sink)[list(heads)]
    at_once = max(1, trace.rows_at_once(f"{path}.scores", h=len(heads)))
    for start in range(0, len(rows), at_once):
        scores = exact(trace.part(f"{path}.scores", b=0, h=list(heads), t=rows[start : start + at_once]))
        found.append(1 - weights(largest(scores, mixer.spec.top_k), sink).sum(-1).mean(0))
    return (
        TokenScores("sink", SINK, names_of(askers), numbers(torch.cat(found)), Said("weight", "가중치"), scale="share"),
    )


def summed(values: Tensor, groups: Sequence[Cell]) -> Tensor:
    """Weights `t s` to `t g`: of several tokens their sum."""
    return torch.stack([values[:, list(cell.tokens)].sum(1) for cell in groups], 1)


def _claim(trace: Trace, name: str) -> Said:
    card = trace.card(name)
    return Said(f"{card.symbol} = {card.formula}: {card.en}", f"{card.symbol} = {card.formula}: {card.ko}")


def sums(trace: Trace, name: str, table: Tensor) -> tuple[Check, ...]:
    """Of a softmax every row sums to 1, or to less beside a sink; as exactly as the numbers of the model are. Other
    weights sum to no number of their own. name: "" for shares that are no weights."""
    if name and not name.endswith(".pattern"):
        return (Check("sum", CARRIED),)
    mixer = trace.model.get_submodule(name.rpartition(".")[0]) if name else None
    sink = getattr(mixer, "sink", None) is not None
    away = table.sum(1) - 1
    most = (away if sink else away.abs()).max().item()
    exactly = max(EXACT, torch.finfo(next(trace.model.parameters()).dtype).eps)
    return (Check("sum", SUM_BESIDE_A_SINK if sink else SUM, float(f"{most:.3g}"), most < exactly),)


EXACT = 1e-5
TITLE = Said("The weights of this layer's sum", "이 층의 가중합에 쓰인 가중치")
SINK = Said(
    "What the learned sink takes of each row, and no token gets",
    "학습한 싱크가 행마다 가져가 어느 토큰에도 가지 않는 가중치",
)
SUM = Said("How far the sum of a row is from 1, at most", "행의 합이 1에서 가장 크게 벗어난 정도")
CARRIED = Said(
    "How far the sum of what the weights carry is from what the layer gives; `flow` measures it",
    "가중치가 실어 나르는 값의 합이 층의 출력과 다른 정도(`flow`로 측정)",
)
SUM_BESIDE_A_SINK = Said(
    "How far the largest sum of a row is above 1 (beside the sink a row may have less)",
    "행의 합 가운데 가장 큰 값이 1을 넘는 정도(싱크가 있어 1보다 작을 수 있음)",
)


def _applies(trace: Trace) -> bool:
    stack = trace.stacks[-1]
    if len(stack.tokens) != 1 or not has_tokens(trace):
        return False
    layers = range(len(stack.model.blocks))
    return any(weights_name(trace, stack, layer, of) for layer in layers for of in ("text", "source"))


WEIGHTS_OF = Explainer("weights", TITLE, WeightsSpec, made, _applies, ("sum",))
