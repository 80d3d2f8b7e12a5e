"""The sheet: how the context vector of one token is computed, in four steps, with the run's own numbers.

q·k  →  divided by √d_k  →  softmax  →  weighted sum of the values        (Vaswani et al. 2017, section 3.2.1)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec
import torch
from torch import Tensor

from ..errors import InputError, UnsupportedError
from ..mask import reason
from ..mixers.attention import CrossAttention, SoftmaxAttention
from ..nn.channel import hidden_width
from ..trace import Trace


class Group(Protocol):
    """Tokens that are read as one: a word, a character, or a single token."""

    @property
    def text(self) -> str: ...
    @property
    def tokens(self) -> tuple[int, ...]: ...


class Quantity(msgspec.Struct, frozen=True):
    """One tapped value with its card, and its numbers for the chosen token."""

    name: str
    symbol: str
    formula: str
    axes: str
    shape: tuple[int, ...]
    en: str
    ko: str
    statements: tuple[str, ...]
    values: list[float]
    norm: float


class Row(msgspec.Struct, frozen=True):
    """One token, or one word of several, as the chosen token's head sees it.

    For a word (correction 10 of the design): score = logsumexp of its tokens' scores, weight = their sum, value =
    their mean weighted by attention; q·k and its quotient exist for single tokens only. `reason` says why a row is
    dark. `shift` is what a distance bias or a soft-cap adds to q·k/√d_k. `share_norm` is the length of weight · value.
    """

    label: str
    tokens: tuple[int, ...]
    dot: float | None
    scaled: float | None
    shift: float | None
    score: float | None
    weight: float
    value_norm: float
    share_norm: float
    value: list[float]
    reason: str
    parts: tuple[Row, ...] = ()


class Step(msgspec.Struct, frozen=True):
    """One stage of the way through the block: the token's vector there, by name and length (Euclidean norm)."""

    name: str
    symbol: str
    en: str
    ko: str
    norm: float
    values: list[float]
    shape: tuple[int, ...]


class Next(msgspec.Struct, frozen=True):
    """One candidate for the next token."""

    token: int
    label: str
    logit: float
    probability: float


class Sheet(msgspec.Struct, frozen=True):
    """Everything the sheet shows; a view draws it and computes nothing.

    moves[l][h] is how far head h of layer l moves this token's vector away from looking at itself only:
    |(z - v_i) W_O| / |x|. The default head is the largest of these.
    """

    text: str
    token: str
    tokens: tuple[int, ...]
    position: int
    path: str
    layer: int
    layers: int
    head: int
    heads: int
    head_dim: int
    scale: float
    chosen: bool
    moves: list[list[float]]
    quantities: tuple[Quantity, ...]
    rows: tuple[Row, ...]
    sink_weight: float
    weight_sum: float
    z: Quantity
    away: float
    steps: tuple[Step, ...]
    widths: tuple[int, ...]
    active: float | None
    journey: list[float]
    next: tuple[Next, ...]
    difference: float
    dtype: str


def sheet(
    trace: Trace,
    groups: Sequence[Group],
    chosen: int,
    *,
    text: str = "",
    layer: int | None = None,
    head: int | None = None,
    label: Callable[[int], str] = str,
    top: int = 8,
) -> Sheet:
    """The sheet of the trace's first row for the group `chosen`; layer and head None: where its context moves most.

    Raises InputError for a layer, head or group that does not exist, UnsupportedError where there is no attention.
    """
    group = groups[chosen]
    t = group.tokens[-1]  # a word asks with its last token, the first one that has seen the whole word
    paths = attention_paths(trace)
    _check_choice("layer", layer, len(paths))
    heads = [trace.model.get_submodule(path).heads for path in paths]
    if head is not None:
        _check_choice("head", head, max(heads) if layer is None else heads[layer])
    moves = [_moves(trace, path, t) for path in paths]
    at_layer, at_head = _furthest(moves, layer, head)
    path = paths[at_layer]
    mixer = trace.model.get_submodule(path)
    rows, sink_weight = _rows(trace, path, groups, t, at_head)
    z = _quantity(trace, f"{path}.z", t, at_head)
    own = trace.part(f"{path}.v", b=0, s=t, g=at_head * mixer.groups // mixer.heads)
    widths, active, steps = _rest_of_block(trace, path, t, at_head)
    return Sheet(
        text=text,
        token=group.text,
        tokens=tuple(group.tokens),
        position=t,
        path=path,
        layer=at_layer,
        layers=len(paths),
        head=at_head,
        heads=mixer.heads,
        head_dim=mixer.width,
        scale=mixer.scale,
        chosen=layer is not None or head is not None,
        moves=moves,
        quantities=_quantities(trace, path, t, at_head),
        rows=rows,
        sink_weight=sink_weight,
        weight_sum=sum(row.weight for row in rows) + sink_weight,
        z=z,
        away=(torch.tensor(z.values) - own.float().cpu()).norm().item(),
        steps=steps,
        widths=widths,
        active=active,
        journey=_journey(trace, t),
        next=_next(trace, t, label, top),
        difference=max(trace.difference().values()),
        dtype=str(trace.logits.dtype).removeprefix("torch."),
    )


def attention_paths(trace: Trace) -> list[str]:
    """The self-attention layers of the model (of the decoder, where there are two stacks), first to last."""
    stack = trace.stacks[-1]
    paths = [
        block.mixer.path
        for block in stack.model.blocks
        if isinstance(block.mixer, SoftmaxAttention) and not isinstance(block.mixer, CrossAttention)
    ]
    if not paths:
        raise UnsupportedError("this model has no softmax attention, so there is no four-step sheet of it")
    return paths


def _check_choice(what: str, given: int | None, count: int) -> None:
    if given is not None and not 0 <= given < count:
        raise InputError(f"there is no {what} {given}; this model has {count} (0 to {count - 1})")


def _furthest(moves: list[list[float]], layer: int | None, head: int | None) -> tuple[int, int]:
    """The (layer, head) that moves most, among those allowed."""
    open_places = [
        (value, i, j)
        for i, row in enumerate(moves)
        for j, value in enumerate(row)
        if layer in (None, i) and head in (None, j)
    ]
    _, i, j = max(open_places)
    return i, j


def _moves(trace: Trace, path: str, t: int) -> list[float]:
    """|(z_h - v_i) W_O| / |x| of each head h, at position t."""
    mixer = trace.model.get_submodule(path)
    z = trace.part(f"{path}.z", b=0, t=t)
    v = trace.part(f"{path}.v", b=0, s=t).repeat_interleave(mixer.heads // mixer.groups, 0)
    w = mixer.out.weight.detach().unflatten(1, (mixer.heads, mixer.width))
    x = trace.part(f"{path.rpartition('.')[0]}.resid_in", b=0, t=t)
    return (torch.einsum("he,dhe->hd", z - v, w).norm(dim=-1) / x.norm()).tolist()


def _quantity(trace: Trace, name: str, t: int, head: int) -> Quantity:
    """A value with its card, at position t and, where it has heads, at this head."""
    axes, card = trace.axes(name), trace.card(name)
    layer = trace.model.get_submodule(name.rpartition(".")[0])
    where = {"b": 0, "t": t, "s": t, "h": head}
    if "g" in axes.split():
        where["g"] = head * layer.groups // layer.heads
    values = trace.part(name, **{letter: i for letter, i in where.items() if letter in axes.split()}).float()
    shape = tuple(size for _, size in trace.sizes(name))
    return Quantity(
        name,
        card.symbol,
        card.formula,
        axes,
        shape,
        card.en,
        card.ko,
        card.statements,
        values.tolist(),
        values.norm().item(),
    )


def _quantities(trace: Trace, path: str, t: int, head: int) -> tuple[Quantity, ...]:
    """X (what attention reads), Q, K and V."""
    block = path.rpartition(".")[0]
    norm = trace.model.get_submodule(block).mixer_norm
    post = trace.model.get_submodule(block).spec.wiring == "post"
    read = f"{block}.resid_in" if norm is None or post else f"{block}.mixer_norm.out"
    return tuple(_quantity(trace, name, t, head) for name in (read, f"{path}.q", f"{path}.k", f"{path}.v"))


def _rows(trace: Trace, path: str, groups: Sequence[Group], t: int, head: int) -> tuple[tuple[Row, ...], float]:
    """One row per group, each with the rows of its tokens; and the weight that a learned sink took."""
    mixer = trace.model.get_submodule(path)
    at = {"b": 0, "h": head, "t": t}
    dots, scores, pattern = (
        trace.part(f"{path}.{name}", **at).double().cpu() for name in ("dots", "scores", "pattern")
    )
    values = trace.part(f"{path}.v", b=0, g=head * mixer.groups // mixer.heads).double().cpu()
    pos = trace.stacks[-1].call.pos[0].tolist()

    def single(j: int, label: str) -> Row:
        seen = math.isfinite(scores[j].item())
        scaled = dots[j].item() * mixer.scale
        return Row(
            label=label,
            tokens=(j,),
            dot=dots[j].item() if seen else None,
            scaled=scaled if seen else None,
            shift=scores[j].item() - scaled if seen else None,
            score=scores[j].item() if seen else None,
            weight=pattern[j].item(),
            value_norm=values[j].norm().item(),
            share_norm=(pattern[j] * values[j]).norm().item(),
            value=values[j].tolist(),
            reason=reason(mixer.mask, pos[t], pos[j]),
        )

    rows = []
    for group in groups:
        labels = [part.text for part in getattr(group, "parts", ())] or [group.text] * len(group.tokens)
        parts = tuple(single(j, label) for j, label in zip(group.tokens, labels, strict=True))
        rows.append(parts[0] if len(parts) == 1 else _joined(group.text, parts, scores, pattern, values))
    return tuple(rows), max(0.0, 1 - pattern.sum().item()) if mixer.sink is not None else 0.0


def _joined(label: str, parts: tuple[Row, ...], scores: Tensor, pattern: Tensor, values: Tensor) -> Row:
    """The row of a word: logsumexp of scores, sum of weights, weighted mean of values."""
    tokens = [part.tokens[0] for part in parts]
    seen = [part for part in parts if part.score is not None]
    share = (pattern[tokens, None] * values[tokens]).sum(0)
    weight = pattern[tokens].sum().item()
    value = share / weight if weight > 0 else values[tokens].mean(0)
    return Row(
        label=label,
        tokens=tuple(tokens),
        dot=None,
        scaled=None,
        shift=None,
        score=torch.logsumexp(scores[tokens], 0).item() if seen else None,
        weight=weight,
        value_norm=value.norm().item(),
        share_norm=share.norm().item(),
        value=value.tolist(),
        reason="" if seen else parts[0].reason,
        parts=parts,
    )


def _rest_of_block(
    trace: Trace, path: str, t: int, head: int
) -> tuple[tuple[int, ...], float | None, tuple[Step, ...]]:
    """(widths of the FFN, share of its hidden units that are above zero, the stages after the weighted sum)."""
    at = path.rpartition(".")[0]
    block = trace.model.get_submodule(at)
    names = [f"{at}.resid_in", f"{path}.head_out", f"{path}.out", f"{at}.resid_mid"]
    if block.channel_norm is not None:
        names.append(f"{at}.channel_norm.out")
    widths: tuple[int, ...] = ()
    active = None
    known = trace.names()
    if block.channel is not None:
        dim = block.mixer.out.out_features
        hidden = f"{at}.channel.hidden"
        if hidden in known:
            names.append(hidden)
            widths = (dim, hidden_width(block.spec.channel, dim), dim)
            active = (trace.part(hidden, b=0, t=t) > 0).float().mean().item()
        names.append(f"{at}.channel.out")
    names.append(f"{at}.resid_out")
    return widths, active, tuple(_step(trace, name, t, head) for name in names if name in known)


def _step(trace: Trace, name: str, t: int, head: int) -> Step:
    q = _quantity(trace, name, t, head)
    return Step(q.name, q.symbol, q.en, q.ko, q.norm, q.values, q.shape)


def _journey(trace: Trace, t: int) -> list[float]:
    """|x_l - x_0| / |x_0| after each block: how far the token has left its fixed vector."""
    stack = trace.stacks[-1]
    start = trace.part(f"{stack.prefix}embed.out", b=0, t=t)
    after = [trace.part(f"{stack.prefix}blocks.{i}.resid_out", b=0, t=t) for i in range(len(stack.model.blocks))]
    return [((x - start).norm() / start.norm()).item() for x in after]


def _next(trace: Trace, t: int, label: Callable[[int], str], top: int) -> tuple[Next, ...]:
    """The most probable next tokens after position t; empty for a model without a head."""
    if trace.stacks[-1].model.head is None:
        return ()
    logits = trace.logits[0, t].float()
    best = logits.softmax(-1).topk(min(top, logits.shape[0]))
    return tuple(
        Next(i, label(i), logits[i].item(), p) for p, i in zip(best.values.tolist(), best.indices.tolist(), strict=True)
    )
