"""The sheet: how the context vector of one token is computed, in four steps, with the run's own numbers.

q·k  →  divided by √d_k  →  softmax  →  weighted sum of the values        (Vaswani et al. 2017, section 3.2.1)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import msgspec
import torch
from torch import Tensor

from ..data.display import Cell
from ..errors import InputError
from ..mask import reason
from ..mixers.attention import Attention
from ..mixers.multihead import SoftmaxAttention
from ..mixers.softmax import largest, weights
from ..trace import Trace
from .quantity import Quantity, exact, quantity
from .rest import Next, candidates, check_finite, journey, one_way, rest_of_block


class Row(msgspec.Struct, frozen=True):
    """One token, or one word of several, as the chosen token's head sees it.

    For a word (correction 10 of the design): score = logsumexp of its tokens' scores, weight = their sum, value =
    their mean weighted by attention; q·k and its quotient exist for single tokens only. `reason` says why a row is
    dark. `shift` is what a distance bias or a soft-cap adds to q·k/√d_k, None in a layer without either. `share_norm`
    is the length of weight · value. special: not a piece of the text, but the token before it. label: as a reader
    sees it; text: its exact characters, the space before a word included.
    """

    label: str
    text: str
    tokens: tuple[int, ...]
    special: bool
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


class Sheet(msgspec.Struct, frozen=True):
    """Everything the sheet shows; a view draws it and computes nothing.

    moves[l][h] is how far head h of layer l moves this token's vector away from looking at itself only:
    |(z - v_i) W_O| / |x|, behind the norm where one follows. The default head is the largest of these; `chosen` names
    what was given instead.
    steps: the token's vector on its way through the rest of the block. journey: |x - x_0| / |x_0| after each block.
    active: the share of the FFN's hidden units above zero. experts: the router's weights, where there is one.
    row: which of `rows` is the chosen word, the number that a user may give for it; position: its last token.
    length: the text's tokens; those from `context` on stand where training never showed the model any.
    """

    text: str
    token: str
    special: bool
    tokens: tuple[int, ...]
    row: int
    position: int
    length: int
    context: int
    path: str
    layer: int
    layers: int
    head: int
    heads: int
    head_dim: int
    scale: float
    causal: bool
    chosen: tuple[str, ...]
    moves: list[list[float]]
    quantities: tuple[Quantity, ...]
    shifted: bool
    rows: tuple[Row, ...]
    sink_score: float | None
    sink_weight: float
    weight_sum: float
    z: Quantity
    away: float
    steps: tuple[Quantity, ...]
    widths: tuple[int, ...]
    active: float | None
    experts: list[float]
    journey: list[float]
    next: tuple[Next, ...]
    temperature: float
    difference: float
    dtype: str


def sheet(
    trace: Trace,
    groups: Sequence[Cell],
    chosen: int,
    *,
    text: str = "",
    layer: int | None = None,
    head: int | None = None,
    cell: Callable[[int], Cell] = lambda token: Cell(str(token), (), 0, 0, str(token)),
    top: int = 8,
    temperature: float = 1.0,
) -> Sheet:
    """The sheet of the trace's first row for the group `chosen`; layer and head None: where its context moves most.
    cell: a token id as a cell, for the candidates; temperature: what their logits are divided by.

    Raises InputError for a layer, head or group that does not exist and for numbers that are none (NaN, infinity).
    """
    group = groups[chosen]
    t = group.tokens[-1]  # a word asks with its last token, the first one that has seen the whole word
    paths = attention_paths(trace)
    check_finite(trace, t)
    moves, at_layer, at_head = _choose(trace, paths, t, layer, head)
    path = paths[at_layer]
    return Sheet(  # every field once, which is what makes this function long
        text=text,
        token=group.text,
        special=not group.source,
        tokens=tuple(group.tokens),
        row=chosen,
        position=t,
        length=trace.stacks[-1].tokens.shape[1],
        context=trace.stacks[-1].model.spec.context,
        path=path,
        layer=at_layer,
        layers=len(moves),
        head=at_head,
        causal=one_way(trace),
        chosen=tuple(name for name, given in (("layer", layer), ("head", head)) if given is not None),
        moves=moves,
        **_four_steps(trace, path, groups, t, at_head),
        **rest_of_block(trace, path, t, at_head),
        journey=journey(trace, t),
        next=candidates(trace, t, cell, top, temperature),
        temperature=temperature,
        difference=max(trace.difference().values()),
        dtype=str(trace.stacks[-1].kept[0].dtype).removeprefix("torch."),
    )


def heads_of(trace: Trace, groups: Sequence[Cell], one: Sheet) -> list[Sheet]:
    """The sheets of all heads of a sheet's layer; what does not depend on the head is taken from that sheet."""
    made = []
    for head in range(one.heads):
        own = _four_steps(trace, one.path, groups, one.position, head)
        own |= rest_of_block(trace, one.path, one.position, head)
        made.append(msgspec.structs.replace(one, head=head, chosen=("layer", "head"), **own))
    return made


def attention_paths(trace: Trace) -> dict[int, str]:
    """The blocks (of the decoder, where there are two stacks) that mix by self-attention, with their mixers' paths."""
    blocks = enumerate(trace.stacks[-1].model.blocks)
    return {i: block.mixer.path for i, block in blocks if isinstance(block.mixer, SoftmaxAttention)}


# ---------------------------------------------------------------- the default head


def _choose(
    trace: Trace, paths: dict[int, str], t: int, layer: int | None, head: int | None
) -> tuple[list[list[float]], int, int]:
    """(how far every head moves the token, the layer, the head): the furthest of those allowed, the first of equals."""
    heads = {i: trace.model.get_submodule(path).heads for i, path in paths.items()}
    blocks = len(trace.stacks[-1].model.blocks)
    check_choice("layer", layer, blocks)
    check_choice("head", head, max(heads.values()) if layer is None else heads[layer])
    moves = [_moves(trace, paths[i], t) if i in paths else [] for i in range(blocks)]
    places = [(i, j) for i, row in enumerate(moves) for j in range(len(row))]
    allowed = [(i, j) for i, j in places if layer in (None, i) and head in (None, j)]
    at_layer, at_head = max(allowed, key=lambda place: moves[place[0]][place[1]])
    return moves, at_layer, at_head


def counted(name: str, given: int, count: int) -> int:
    """A place among so many, that is counted from the end where it is below 0. Raises InputError that names the number
    that was given."""
    check_choice(name, given if not -count <= given < count else given % count, count)
    return given % count


def check_choice(what: str, given: int | None, count: int) -> None:
    """Raise InputError for the number of a layer, head or token that does not exist."""
    if given is not None and not 0 <= given < count:
        whose = "text" if what == "token" else "model"
        raise InputError(f"there is no {what} {given}; this {whose} has {count} (0 to {count - 1})")


def _moves(trace: Trace, path: str, t: int) -> list[float]:
    """|(z_h - v_i) W_O| / |x| of each head h, at position t; scaled as all heads are where their sum is normed."""
    mixer = trace.model.get_submodule(path)
    z = exact(trace.part(f"{path}.z", b=0, t=t))
    v = exact(trace.part(f"{path}.v", b=0, s=t)).repeat_interleave(mixer.heads // mixer.groups, 0)
    w = exact(mixer.out.weight).unflatten(1, (mixer.heads, mixer.width))
    at = path.rpartition(".")[0]
    x, changes = exact(trace.part(f"{at}.resid_in", b=0, t=t)), torch.einsum("he,dhe->hd", z - v, w)
    norm = trace.model.get_submodule(at).mixer_out_norm
    if norm is not None:
        changes = norm.share(changes, exact(trace.part(f"{path}.out", b=0, t=t)))
    return (changes.norm(dim=-1) / x.norm().clamp(min=1e-30)).tolist()


# ---------------------------------------------------------------- the four steps


def _four_steps(trace: Trace, path: str, groups: Sequence[Cell], t: int, head: int) -> dict:
    """X, Q, K, V of the token, a row for every group, and the weighted sum z."""
    mixer = trace.model.get_submodule(path)
    rows, sink_score, sink_weight = _rows(trace, path, groups, t, head)
    z = quantity(trace, f"{path}.z", t, head)
    own = exact(trace.part(f"{path}.v", b=0, s=t, g=head * mixer.groups // mixer.heads))
    return {
        "heads": mixer.heads,
        "head_dim": mixer.width,
        "scale": mixer.scale,
        "quantities": _quantities(trace, path, t, head),
        "shifted": _shifts(mixer),
        "rows": rows,
        "sink_score": sink_score,
        "sink_weight": sink_weight,
        "weight_sum": sum(row.weight for row in rows) + sink_weight,
        "z": z,
        "away": (torch.tensor(z.values, dtype=torch.float64) - own).norm().item(),
    }


def _quantities(trace: Trace, path: str, t: int, head: int) -> tuple[Quantity, ...]:
    """X (what attention reads), Q, K and V."""
    return tuple(quantity(trace, name, t, head) for name in (read_by(trace, path), *(f"{path}.{v}" for v in "qkv")))


def read_by(trace: Trace, path: str) -> str:
    """The name of what the token mixer at `path` reads."""
    at = path.rpartition(".")[0]
    block = trace.model.get_submodule(at)
    bare = block.mixer_norm is None or block.spec.wiring == "post"
    return f"{at}.resid_in" if bare else f"{at}.mixer_norm.out"


def _shifts(mixer: Attention) -> bool:
    """Whether something stands between q·k/√d_k and the softmax."""
    return mixer.spec.softcap is not None or mixer.biased


def _rows(
    trace: Trace, path: str, groups: Sequence[Cell], t: int, head: int
) -> tuple[tuple[Row, ...], float | None, float]:
    """One row per group, each with the rows of its tokens; and the score and weight of a learned sink."""
    mixer = trace.model.get_submodule(path)
    at = {"b": 0, "h": head, "t": t}
    dots, scores, pattern = (exact(trace.part(f"{path}.{name}", **at)) for name in ("dots", "scores", "pattern"))
    scores = largest(scores, mixer.spec.top_k)
    values = exact(trace.part(f"{path}.v", b=0, g=head * mixer.groups // mixer.heads))
    single = _single_rows(trace, mixer, t, dots, scores, pattern, values)
    rows = []
    for group in groups:
        parts = tuple(single(j, cell) for j, cell in zip(group.tokens, group.parts or (group,), strict=True))
        rows.append(parts[0] if len(parts) == 1 else _joined(group, parts, scores, pattern, values))
    if mixer.sink is None:
        return tuple(rows), None, 0.0
    sink = exact(mixer.sink[head])
    left = 1 - weights(scores[None, None, None], sink[None]).sum()  # what softmax gave to no key
    return tuple(rows), sink.item(), left.item()


def _single_rows(
    trace: Trace, mixer: Attention, t: int, dots: Tensor, scores: Tensor, pattern: Tensor, values: Tensor
) -> Callable[[int, Cell], Row]:
    """A function that makes the row of one token from its place and cell."""
    call = trace.stacks[-1].call
    pos = call.pos[0].tolist()
    documents = [0] * len(pos) if call.segments is None else call.segments[0].tolist()
    shifts, cut = _shifts(mixer), "not among the largest"
    lengths, shares = values.norm(dim=-1), (pattern[:, None] * values).norm(dim=-1)

    def single(j: int, cell: Cell) -> Row:
        score, dot = scores[j].item(), dots[j].item()
        seen = math.isfinite(score)
        scaled = dot * mixer.scale if shifts else score  # without a shift the tapped score is the quotient itself
        return Row(
            label=cell.text,
            text=cell.source,
            tokens=(j,),
            special=not cell.source,
            dot=dot if seen else None,
            scaled=scaled if seen else None,
            shift=score - scaled if seen and shifts else None,
            score=score if seen else None,
            weight=pattern[j].item(),
            value_norm=lengths[j].item(),
            share_norm=shares[j].item(),
            value=values[j].tolist(),
            reason=reason(mixer.mask, pos[t], pos[j], documents[t] == documents[j]) or ("" if seen else cut),
        )

    return single


def _joined(group: Cell, parts: tuple[Row, ...], scores: Tensor, pattern: Tensor, values: Tensor) -> Row:
    """The row of a word: logsumexp of scores, sum of weights, weighted mean of values."""
    tokens = [part.tokens[0] for part in parts]
    seen = [part for part in parts if part.score is not None]
    share = (pattern[tokens, None] * values[tokens]).sum(0)
    weight = pattern[tokens].sum().item()
    value = share / weight if weight > 0 else values[tokens].mean(0)
    return Row(
        label=group.text,
        text=group.source,
        tokens=tuple(tokens),
        special=False,
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
