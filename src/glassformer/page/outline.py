"""A trace as the document that the page is given: its text, its blocks and its values by name, without the numbers."""

from __future__ import annotations

import base64
from typing import Any

import torch

from ..data.display import By, Cell
from ..explain.explained import available
from ..explain.explainer import cells_of, has_tokens, length_of
from ..explain.explanation import Said
from ..explain.kinds.next import scored
from ..explain.mixing import WEIGHTS
from ..explain.rest import Next, one_way
from ..explain.sight import SOURCE, said, through
from ..image import ImageModel
from ..mixers.multihead import SoftmaxAttention
from ..nn.head import Head
from ..nn.pixels import PatchesSpec
from ..positions import signals
from ..rerun import Stack
from ..trace import Trace
from .again import Again, asked
from .documents import (
    PageBlock,
    PageCandidate,
    PageCard,
    PageCell,
    PageMixer,
    PagePicture,
    PageRun,
    PageStack,
    PageValue,
)

GROUPINGS: tuple[By, ...] = ("token", "character", "word")
MOST_SEEN = 4096  # tokens among which it is tried what sees what
FOUR_STEPS = ("q", "k", "v", "dots", "scores", "pattern", "z")


def outline(trace: Trace, ident: str, model: str = "") -> PageRun:
    """The document of a trace. model: its name, where the trace does not know it."""
    reader = getattr(trace, "loaded", getattr(trace, "classifier", None))
    name = model or getattr(reader, "name", "") or "model"
    cards: dict[str, PageCard] = {}
    stack, image = trace.stacks[-1], isinstance(trace.model, ImageModel)
    again = Again(trace, name)
    values = tuple(_value(trace, one, cards) for one in trace.names() if _has_numbers(trace, one))
    known = {value.name for value in values}
    classes = trace.axes(stack.output).endswith("k")
    pair = len(trace.stacks) == 2
    return PageRun(
        id=ident,
        model=name,
        shape=_shape(trace),
        text="" if image else trace.text,
        source=trace.source_text if pair else "",
        python=again.lines(),
        live=again.live(),
        stacks=tuple(_stack(trace, one, known) for one in trace.stacks),
        values=values,
        cards=cards,
        changes=tuple(edit.line for edit in again.edits),
        edits=tuple(filter(None, map(asked, trace.edits))),
        dtype=str(stack.kept[max(stack.kept)].dtype).removeprefix("torch."),
        context=0 if image else stack.model.spec.context,
        parameters=sum(p.numel() for p in trace.model.parameters()),
        next=isinstance(stack.model.head, Head),
        classes=tuple(stack.labels("k", 0)) if classes else (),
        scores=scored(trace),
        explains=tuple(available(trace)),
        picture=_picture(trace) if image else None,
    )


def _shape(trace: Trace) -> Any:
    if isinstance(trace.model, ImageModel):
        return "image"
    if len(trace.stacks) == 2:
        return "pair"
    return "decoder" if isinstance(trace.stacks[0].model.head, Head) and one_way(trace) else "encoder"


# ---------------------------------------------------------------- values and cards


def _has_numbers(trace: Trace, name: str) -> bool:
    return trace._one[name].is_floating_point()


def _value(trace: Trace, name: str, cards: dict[str, PageCard]) -> PageValue:
    """One value, its card put among the cards: many layers share one."""
    sizes, card = trace.sizes(name), trace.card(name)
    made = PageCard(card.symbol, card.formula, Said(card.en, card.ko), card.statements)
    key = name.rpartition(".")[2]
    while cards.setdefault(key, made) != made:
        key += "'"
    return PageValue(name, tuple(axis for axis, _ in sizes), tuple(n for _, n in sizes), key)


# ---------------------------------------------------------------- stacks and blocks


def _stack(trace: Trace, stack: Stack, known: set[str]) -> PageStack:
    model, prefix = stack.model, stack.prefix
    position = f"{prefix}embed.position"
    maps = not has_tokens(trace) and isinstance(model, ImageModel)
    grouped = {} if maps else {by: tuple(map(cell, cells_of(trace, stack, by))) for by in GROUPINGS}
    patches = isinstance(model, ImageModel) and isinstance(model.spec.embed, PatchesSpec)
    return PageStack(
        prefix=prefix,
        units="maps" if maps else "patches" if patches else "frames" if model.spec.reads_sound else "tokens",
        length=0 if maps else length_of(stack),
        labels=() if maps else _labels(trace, stack, grouped["token"]),
        cells=grouped,
        position=position if position in known else "",
        signals=signals(model),
        blocks=() if maps else tuple(_block(trace, stack, i, known) for i in range(len(model.blocks))),
    )


def _labels(trace: Trace, stack: Stack, cells: tuple[PageCell, ...]) -> tuple[str, ...]:
    """What each place is called: as its cell, but for a sound, whose cells are of several places."""
    own = tuple(one.label for one in cells if len(one.tokens) == 1)
    return own if len(own) == length_of(stack) else tuple(trace.labels("t", stack.entry(len(stack.model.blocks))))


def cell(one: Cell) -> PageCell:
    """A cell of the display as the page has it."""
    parts = tuple(map(cell, one.parts))
    return PageCell(one.text, one.tokens, one.start, one.end, not one.source, one.form, parts)


def candidate(one: Next) -> PageCandidate:
    """A candidate for the next token as the page has it."""
    return PageCandidate(one.token, one.label, one.probability)


def _block(trace: Trace, stack: Stack, index: int, known: set[str]) -> PageBlock:
    block = stack.model.blocks[index]
    return PageBlock(
        path=block.path,
        index=index,
        mixer=_mixer(trace, stack, index, block.mixer, known),
        cross=_cross(trace, stack, index, known),
        channel=f"{block.path}.channel" if block.channel is not None else "",
        residual=block.spec.residual,
    )


def _cross(trace: Trace, stack: Stack, index: int, known: set[str]) -> PageMixer | None:
    """What a block reads the source with: cross-attention, or the score inside an aligned decoder."""
    block = stack.model.blocks[index]
    if block.cross is not None:
        return _mixer(trace, stack, index, block.cross, known)
    score = getattr(block.mixer, "cross", None)
    if score is None:
        return None
    return PageMixer(
        path=score.path,
        kind=type(score.spec).__struct_config__.tag,
        called=Said(*block.mixer.called),
        softmax=False,
        weights="pattern",
        axis="h",
        heads=1,
        groups=1,
        causal=False,
        mask=SOURCE,
        plain=True,
    )


def _mixer(trace: Trace, stack: Stack, index: int, mixer: Any, known: set[str]) -> PageMixer:
    own = {name.removeprefix(f"{mixer.path}.") for name in known if name.startswith(f"{mixer.path}.")}
    weights = next((short for short in WEIGHTS if short in own), "")
    sizes = dict(trace.sizes(f"{mixer.path}.{weights}")) if weights else {}
    axis = next((letter for letter in sizes if letter not in "bts"), "")
    heads = getattr(mixer, "heads", 1)
    softmax, crossing = isinstance(mixer, SoftmaxAttention), mixer is stack.model.blocks[index].cross
    return PageMixer(
        path=mixer.path,
        kind=type(mixer.spec).__struct_config__.tag,
        called=Said(*mixer.called),
        softmax=softmax and set(FOUR_STEPS) <= own,
        weights=weights,
        axis=axis,
        heads=sizes.get(axis, heads),
        groups=getattr(mixer, "groups", heads),
        causal=getattr(mixer, "mask", mixer).causal,
        mask=SOURCE if crossing else said(mixer),
        sink=getattr(mixer, "sink", None) is not None,
        plain=bool(weights) and (crossing or _plain(mixer, length_of(stack))),
    )


def _plain(mixer: Any, n: int) -> bool:
    """Whether each of n positions sees all of them, or of a causal mixer itself and all before it."""
    if n > MOST_SEEN:
        return False
    every, causal = torch.ones(n, n, dtype=torch.bool), getattr(mixer, "mask", mixer).causal
    return torch.equal(through(mixer, n), every.tril() if causal else every)


# ---------------------------------------------------------------- images


def _picture(trace: Trace) -> PagePicture:
    """The pixels of the first image, in as many steps as a screen has."""
    stack, embed = trace.stacks[0], trace.model.spec.embed
    pixels = stack.tokens[0].detach().float().cpu().clamp(0, 1).mul(255).round().to(torch.uint8)
    name = "embed.pixels" if isinstance(embed, PatchesSpec) else "embed.out"
    text = base64.b64encode(pixels.contiguous().numpy().tobytes()).decode()
    return PagePicture(len(pixels), text, name)
