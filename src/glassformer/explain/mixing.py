"""The sheet of a token mixer of any family: what it reads for one token, by which numbers of its own.

One rule for all, by the values that a mixer taps. Where it has weights of its own (`pattern` or `weights`, over axes t
and s) a row shows them: an alignment, the exact effective weights of linear attention and of state spaces, the fixed
ones of a Fourier mixing. Beside them, and alone where there are none (recurrences, convolutions, windows), it shows the
layer's own Jacobian, ‖∂y_t/∂x_s‖_F from what this layer reads to what it gives: exact, and zero where it reads nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import msgspec
import torch
from torch import Tensor

from ..call import Call
from ..data.display import Cell
from ..errors import InputError, UnsupportedError
from ..mixers.cuts import mixed
from ..patches import WEIGHTS
from ..tap import Probe
from ..trace import Trace
from .acting import acting_in
from .influence import squared
from .quantity import Quantity, described, exact, parted, quantity
from .rest import Next, candidates, check_finite, journey, one_way, rest_of_block
from .sheet import check_choice, read_by
from .sight import looks_back, through


class Source(msgspec.Struct, frozen=True):
    """One token, or one word of several, as far as the mixer reads it for the chosen token.

    score: what the weight is the softmax of, for a word the logsumexp of its tokens'. weight: the mixer's own, for a
    word its tokens' sum, the length of all channels' where each has one of its own; None: it has none. norm: of the
    layer's Jacobian, of a source the length of weight · value; for a word the root of its tokens' squares' sum. share:
    of the sum over all rows; a word's parts share the word's. reason: why a row is dark.
    """

    label: str
    text: str
    tokens: tuple[int, ...]
    special: bool
    score: float | None
    weight: float | None
    norm: float
    share: float
    reason: str
    parts: tuple[Source, ...] = ()


class MixerSheet(msgspec.Struct, frozen=True):
    """What the sheet of a mixer shows; the fields that explain.sheet.Sheet has too mean the same.

    kind, called: the mixer's tag, and its name in English and Korean. of: "text", or "source" where it looks from a
    target at its source. moves: |what the mixer gives| / |x| in each layer. read: the vector it reads. taps: the values
    inside it at this token, and changes how far each of them is from that of the token before, relative to it (None:
    there is none before). scores, weights: the cards of its own; None: it has none.
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
    kind: str
    called: tuple[str, str]
    of: str
    layer: int
    layers: int
    head: int
    heads: int
    causal: bool
    chosen: tuple[str, ...]
    moves: list[float]
    read: Quantity
    taps: tuple[Quantity, ...]
    changes: tuple[float | None, ...]
    scores: Quantity | None
    weights: Quantity | None
    rows: tuple[Source, ...]
    steps: tuple[Quantity, ...]
    widths: tuple[int, ...]
    active: float | None
    experts: list[float]
    journey: list[float]
    next: tuple[Next, ...]
    temperature: float
    difference: float
    dtype: str


def readers(trace: Trace) -> dict[int, str]:
    """The decoder's blocks that weigh the source's tokens, with the paths of what weighs them."""
    found = {}
    for i, block in enumerate(trace.stacks[-1].model.blocks):
        part = block.cross if block.cross is not None else getattr(block.mixer, "cross", None)
        if part is not None:
            found[i] = part.path
    return found


def written_at(group: Cell) -> int:
    """The place of the target whose vector gave a word's first token; of the first token, which was given, its own."""
    return max(0, group.tokens[0] - 1)


def mixer_sheet(
    trace: Trace,
    groups: Sequence[Cell],
    chosen: int,
    *,
    source: Sequence[Cell] | None = None,
    text: str = "",
    layer: int | None = None,
    head: int | None = None,
    cell: Callable[[int], Cell] = lambda token: Cell(str(token), (), 0, 0, str(token)),
    top: int = 8,
    temperature: float = 1.0,
) -> MixerSheet:
    """The sheet of the trace's first row for the group `chosen`; layer and head None: where most is given. source: the
    source's tokens, for the sheet that shows how the chosen token of the target came to be written. temperature: what
    the candidates' logits are divided by.

    Raises InputError for a layer, head or group that does not exist and for numbers that are none (NaN, infinity).
    """
    group, stack, own = groups[chosen], trace.stacks[-1], source is None
    t = group.tokens[-1] if own else written_at(group)
    check_finite(trace, t)
    moves, at_layer, path = _choose(trace, t, layer, own)
    block = stack.model.blocks[at_layer]
    given = tuple(name for name, one in (("layer", layer), ("head", head)) if one is not None)
    return MixerSheet(  # every field once, which is what makes this function long
        text=text,
        token=group.text,
        special=not group.source,
        tokens=tuple(group.tokens),
        row=chosen,
        position=group.tokens[-1],
        length=stack.tokens.shape[1],
        context=stack.model.spec.context,
        path=path,
        kind=(block.spec.mixer if own or block.cross is None else block.spec.cross).__struct_config__.tag,
        called=(block.mixer if own or block.cross is None else block.cross).called,
        of="text" if own else "source",
        layer=at_layer,
        layers=len(moves),
        causal=one_way(trace) and own,
        chosen=given,
        moves=moves,
        **_inside(trace, path, groups if own else source, t, head, own),
        journey=journey(trace, t),
        next=candidates(trace, t, cell, top, temperature),
        temperature=temperature,
        difference=max(trace.difference().values(), default=0.0),
        dtype=str(stack.kept[0].dtype).removeprefix("torch."),
    )


def _choose(trace: Trace, t: int, layer: int | None, own: bool) -> tuple[list[float], int, str]:
    """(|what each layer's mixer gives| / |x|, the layer, the path of what is shown): the largest, or the one given."""
    blocks = trace.stacks[-1].model.blocks
    paths = {i: block.mixer.path for i, block in enumerate(blocks)} if own else readers(trace)
    if not paths:
        raise UnsupportedError("no layer of this model weighs the source; give of=text, or look at the alignment")
    check_layer(layer, paths, len(blocks))
    moves = []
    for i, block in enumerate(blocks):
        given, x = _length(trace, _output(trace, i, own), t), _length(trace, f"{block.path}.resid_in", t)
        moves.append(given / max(x, 1e-30))
    chosen = max(paths, key=lambda i: moves[i]) if layer is None else layer
    return moves, chosen, paths[chosen]


def check_layer(layer: int | None, paths: dict[int, str], blocks: int) -> None:
    """Raise InputError for a layer that does not exist or does not look at the source."""
    check_choice("layer", layer, blocks)
    if layer is not None and layer not in paths:
        raise InputError(f"layer {layer} does not look at the source; those that do: {', '.join(map(str, paths))}")


def _output(trace: Trace, layer: int, own: bool) -> str:
    """The name of what a block's mixer gives, or its cross-attention; of a mixer without such a tap what follows it."""
    block = trace.stacks[-1].model.blocks[layer]
    part, at = "mixer" if own or block.cross is None else "cross", block.path
    names = (f"{at}.{part}_out_norm.out", f"{at}.{part}.out", f"{at}.resid_mid", f"{at}.resid_out")
    return next(name for name in names if name in trace.names())


def _length(trace: Trace, name: str, t: int) -> float:
    return exact(trace.part(name, b=0, t=t)).norm().item()


# ---------------------------------------------------------------- inside the mixer


def _inside(trace: Trace, path: str, groups: Sequence[Cell], t: int, head: int | None, own: bool) -> dict[str, object]:
    """The head, what the mixer reads, its values inside, the rows, and the rest of the block."""
    part, mixer = trace.model.get_submodule(path), _mixer_of(path)
    weighed = next((f"{path}.{name}" for name in WEIGHTS if f"{path}.{name}" in trace.names()), None)
    heads = dict(trace.sizes(weighed)).get("h", 1) if weighed else getattr(part, "heads", 1)
    check_choice("head", head, heads)
    head = _head(trace, path, weighed, t, own) if head is None else head
    taps = _taps(trace, path if path.endswith(".cross") and ".mixer" not in path else mixer, t, head, own)
    return {
        "head": head,
        "heads": heads,
        "read": quantity(trace, read_by(trace, mixer), t, 0),
        "taps": tuple(one for one, _ in taps),
        "changes": tuple(change for _, change in taps),
        **_rows(trace, path, weighed, groups, t, head, own),
        **rest_of_block(trace, mixer, t, head),
    }


def _mixer_of(path: str) -> str:
    """The path of the token mixer in the block that a part belongs to."""
    before, _, rest = path.rpartition("blocks.")
    return f"{before}blocks.{rest.split('.')[0]}.mixer"


def _head(trace: Trace, path: str, weighed: str | None, t: int, own: bool) -> int:
    """The head that gives most, where that is tapped; else that which takes most from other tokens, or is sharpest."""
    if f"{path}.head_out" in trace.names():
        return int(exact(trace.part(f"{path}.head_out", b=0, t=t)).norm(dim=-1).argmax())
    if weighed is None or "h" not in trace.axes(weighed).split():
        return 0
    weights = exact(trace.part(weighed, b=0, t=t)).abs()
    if own:
        weights = weights / weights.sum(-1, keepdim=True).clamp(min=1e-30)
        weights[:, t] = 0
        return int(weights.sum(-1).argmax())
    return int(weights.amax(-1).argmax())


def _taps(trace: Trace, path: str, t: int, head: int, own: bool) -> list[tuple[Quantity, float | None]]:
    """The values inside a mixer at position t, each with how far it is from that at the position before; the rows' own
    values and what the rest of the block shows are left out, and so are the layers within a mixer."""
    found, length = [], trace.stacks[-1].tokens.shape[1]
    for name in trace.names():
        inside = name.removeprefix(f"{path}.")
        letters = set(trace.axes(name).split())
        if inside == name or inside.count(".") > 1 or inside.startswith("blocks.") or inside in ("out", "head_out"):
            continue
        placed = letters & {"t", "s"}
        if len(placed) == 2 or not (placed or letters <= {"b", "h"}):
            continue
        if "s" in letters and (not own or ".cross." in name):  # places of the source
            continue
        if placed and dict(trace.sizes(name))[placed.pop()] != length:  # places of its own, such as memory slots
            continue
        one, change = quantity(trace, name, t, head), None
        if t and letters & {"t", "s"}:
            before = torch.tensor(quantity(trace, name, t - 1, head).values, dtype=torch.float64)
            change = ((torch.tensor(one.values, dtype=torch.float64) - before).norm() / before.norm()).item()
        found.append((one, change if change is not None and math.isfinite(change) else None))
    return found


# ---------------------------------------------------------------- the rows


def _rows(
    trace: Trace, path: str, weighed: str | None, groups: Sequence[Cell], t: int, head: int, own: bool
) -> dict[str, object]:
    """A row for every group, and the card of the weights."""
    weights = scores = None
    if weighed is not None:
        weights = _picked(trace, weighed, t, head)
        channels = weights.ndim == 2  # a weight of its own for each channel: their length
        weights = weights.norm(dim=0) if channels else weights
    if weighed == f"{path}.pattern" and f"{path}.scores" in trace.names():
        scores = _picked(trace, f"{path}.scores", t, head)
    norms = _jacobian(trace, path, t) if own else weights.abs() * _values(trace, path, head)
    total = sum(_joined(norms, group.tokens) for group in groups)
    lengths = [stack.length for stack in trace.stacks]
    back = looks_back(trace.model.get_submodule(path)) if own else False
    sees = through(trace.model.get_submodule(path), lengths[-1], lengths[0], [t])[0] if own else None

    def row(group: Cell) -> Source:
        places = list(group.tokens)
        weight = None if weights is None else weights[places].sum().item()
        score = None if scores is None else torch.logsumexp(scores[places], 0).item()
        norm = _joined(norms, places)
        share = norm / total if total else 0.0
        dark = sees is not None and not sees[places].any()
        return Source(
            label=group.text,
            text=group.source,
            tokens=tuple(places),
            special=not group.source,
            score=score if score is not None and math.isfinite(score) else None,
            weight=weight,
            norm=norm,
            share=share,
            reason="" if not dark else "future" if back and places[0] > t else "outside the window",
            parts=parted(tuple(row(part) for part in group.parts), share),
        )

    cards = {
        "scores": None if scores is None else described(trace, f"{path}.scores", scores),
        "weights": None if weighed is None else described(trace, weighed, weights),
    }
    return cards | {"rows": tuple(row(group) for group in groups)}


def _joined(norms: Tensor, places: Sequence[int]) -> float:
    return norms[list(places)].norm().item()


def _picked(trace: Trace, name: str, t: int, head: int) -> Tensor:
    """A value with axes t and s at position t: `s`, or with channels `f s`."""
    where = {"b": 0, "t": t} | ({"h": head} if "h" in trace.axes(name).split() else {})
    return exact(trace.part(name, **where))


def _values(trace: Trace, path: str, head: int) -> Tensor:
    """The length of what is weighed at each source token: its value, or the encoder's output itself."""
    if f"{path}.v" in trace.names():
        part = trace.model.get_submodule(path)
        return exact(trace.part(f"{path}.v", b=0, g=head * part.groups // part.heads)).norm(dim=-1)
    return exact(trace.stacks[-1].call.memory[0]).norm(dim=-1)


def _jacobian(trace: Trace, path: str, t: int) -> Tensor:
    """‖∂y_t/∂x_s‖_F of one mixer, `s`, from what it reads to what it gives, with the run's edits."""
    mixer, stack = trace.model.get_submodule(path), trace.stacks[-1]
    width = trace.model.get_submodule(path.rpartition(".")[0]).width

    edits = acting_in(trace, 0)

    def forward(x: Tensor) -> Tensor:
        probe = Probe(lambda name: False, edits) if edits else None
        return mixed(mixer, x, widened(replace(stack.call, probe=probe, shared={}), len(x)))[0]

    x = trace[read_by(trace, path)][:1]
    signs = torch.eye(width, dtype=x.dtype, device=x.device)
    squares, _ = squared(x, forward, [t], signs, max(1, trace.limit_bytes // 2))
    norms = exact(squares[0].sqrt())
    if mixer.causal:
        norms[t + 1 :] = 0  # a Fourier transform leaves rounding errors there
    return norms


def widened(call: Call, copies: int) -> Call:
    """The call of a text for so many copies of it."""
    memory = None if call.memory is None else call.memory[:1].expand(copies, -1, -1)
    handed = tuple(end[:1].expand(copies, -1) for end in call.handed)
    return replace(call, memory=memory, handed=handed)
