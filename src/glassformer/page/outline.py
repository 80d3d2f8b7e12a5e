"""A trace as the document that the page is given: its text, its blocks and its values by name, without the numbers."""

from __future__ import annotations

import base64
import math
import shlex
from typing import Any

import torch

from ..block import Block
from ..data.display import By, Cell
from ..explain.cost import fields_of
from ..explain.explained import available
from ..explain.explainer import cells_of, has_tokens, length_of
from ..explain.explanation import Said
from ..explain.kinds.states import kept_names
from ..explain.mixing import WEIGHTS
from ..explain.rest import Next, one_way
from ..explain.sight import SOURCE, said, through
from ..image import ImageModel
from ..mixers.multihead import SoftmaxAttention
from ..nn.head import Head
from ..nn.pixels import PatchesSpec
from ..positions import signals
from ..rerun import Stack
from ..tap import Edit
from ..terminal.edits import words_of
from ..trace import Trace
from .documents import (
    PageBlock,
    PageCandidate,
    PageCard,
    PageCell,
    PageEdit,
    PageLayer,
    PageMixer,
    PagePicture,
    PageRun,
    PageStack,
    PageValue,
)

GROUPINGS: tuple[By, ...] = ("token", "character", "word")
MOST_SEEN = 4096  # tokens among which it is tried what sees what
FOUR_STEPS = ("q", "k", "v", "dots", "scores", "pattern", "z")


def outline(
    trace: Trace, ident: str, edits: tuple[PageEdit, ...] = (), model: str = "", picture: str = "picture.png"
) -> PageRun:
    """The document of a trace. model: its name, where the trace does not know it; picture: what the file of an image is
    called in the lines that make the same trace."""
    reader = getattr(trace, "loaded", getattr(trace, "classifier", None))
    name = model or getattr(reader, "name", "") or "model"
    cards: dict[str, PageCard] = {}
    stack, image = trace.stacks[-1], isinstance(trace.model, ImageModel)
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
        python=_image_lines(name, edits, picture) if image else lines(trace, name, edits),
        command=_command(trace, name, edits, picture),
        stacks=tuple(_stack(trace, one, known) for one in trace.stacks),
        values=values,
        cards=cards,
        edits=edits,
        dtype=str(stack.kept[max(stack.kept)].dtype).removeprefix("torch."),
        context=0 if image else stack.model.spec.context,
        parameters=sum(p.numel() for p in trace.model.parameters()),
        next=isinstance(stack.model.head, Head),
        classes=tuple(stack.labels("k", 0)) if classes else (),
        explains=tuple(available(trace)),
        picture=_picture(trace) if image else None,
    )


def _shape(trace: Trace) -> Any:
    if isinstance(trace.model, ImageModel):
        return "image"
    if len(trace.stacks) == 2:
        return "pair"
    return "decoder" if isinstance(trace.stacks[0].model.head, Head) and one_way(trace) else "encoder"


# ---------------------------------------------------------------- how to make the same


def lines(trace: Any, model: str, edits: tuple[PageEdit, ...]) -> tuple[str, ...]:
    """The Python lines that make the same trace: from the text where that gives these tokens, else from their ids."""
    given = (trace.source_text, trace.text) if len(trace.stacks) == 2 else trace.text
    ids = [stack.tokens[0].tolist() for stack in trace.stacks]
    how = _with_edits(edits)
    if trace.loaded.hears:
        return _written(model, f'("speech.wav", {trace.text!r})', how)
    for start in (True, False):
        if trace.loaded.tokenizer is not None and _ids(trace, given, start) == ids:
            return _written(model, repr(given), how + ("" if start else ", start=False"))
    return _written(model, repr(ids[0] if len(ids) == 1 else tuple(ids)), f"{how}, start=False")


def _ids(trace: Any, given: Any, start: bool) -> list[list[int]] | None:
    try:
        return [one[0].tolist() for one in trace.loaded.inputs(given, start)]
    except ValueError:  # of a text that the tokenizer does not read, as what stands for a special token
        return None


def _written(model: str, given: str, how: str) -> tuple[str, ...]:
    return ("import glassformer as gf", f"model = gf.load({model!r})", f"trace = model.trace({given}{how})")


def _image_lines(model: str, edits: tuple[PageEdit, ...], picture: str) -> tuple[str, ...]:
    return _written(model, repr(picture), _with_edits(edits))


def _with_edits(edits: tuple[PageEdit, ...]) -> str:
    return f", edits=[{', '.join(edited(one).line for one in edits)}]" if edits else ""


def _command(trace: Any, model: str, edits: tuple[PageEdit, ...], picture: str) -> str:
    """The command line that shows the same; "" where there is none, as of a picture with edits."""
    image = isinstance(trace.model, ImageModel)
    if image or (len(trace.stacks) == 2 and trace.loaded.hears):
        what = ("classify", picture) if image else ("transcribe", "speech.wav")
        return "" if edits else shlex.join(["glassformer", *what, "-m", model])
    text = trace.source_text if len(trace.stacks) == 2 else trace.text
    changes = [word for one in edits for word in ("--edit", words_of(one))]
    return shlex.join(["glassformer", "trace", text, "-m", model, *changes])


def edited(one: PageEdit) -> Edit:
    """The edit that a page asks for."""
    return Edit(one.name, one.kind, one.where, one.value)


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
    return PageValue(
        name, tuple(axis for axis, _ in sizes), tuple(n for _, n in sizes), key, 4 * math.prod(n for _, n in sizes)
    )


# ---------------------------------------------------------------- stacks and blocks


def _stack(trace: Trace, stack: Stack, known: set[str]) -> PageStack:
    model, prefix = stack.model, stack.prefix

    def first(*shorts: str) -> str:
        return next((f"{prefix}{short}" for short in shorts if f"{prefix}{short}" in known), "")

    maps = not has_tokens(trace) and isinstance(model, ImageModel)
    grouped = {} if maps else {by: tuple(map(cell, cells_of(trace, stack, by))) for by in GROUPINGS}
    patches = isinstance(model, ImageModel) and isinstance(model.spec.embed, PatchesSpec)
    return PageStack(
        prefix=prefix,
        units="maps" if maps else "patches" if patches else "frames" if model.spec.reads_sound else "tokens",
        length=0 if maps else length_of(stack),
        dim=stack.dim,
        labels=() if maps else _labels(trace, stack, grouped["token"]),
        cells=grouped,
        embed=first("embed.token", "embed.second", "embed.out"),
        position=first("embed.position"),
        signals=signals(model),
        entry=stack.entry(0),
        blocks=() if maps else tuple(_block(trace, stack, i, known) for i in range(len(model.blocks))),
        norm=first("norm.out"),
        output=stack.output,
        spatial=(model.embed.side, model.embed.side) if patches else None,
        special=len(model.embed.tokens) if patches else 0,
        layers=_layers(model, known) if maps else (),
    )


def _labels(trace: Trace, stack: Stack, cells: tuple[PageCell, ...]) -> tuple[str, ...]:
    """What each place is called: as its cell, but for a sound, whose cells are of several places."""
    own = tuple(one.label for one in cells if len(one.tokens) == 1)
    return own if len(own) == length_of(stack) else tuple(trace.labels("t", stack.entry(len(stack.model.blocks))))


def cell(one: Cell) -> PageCell:
    """A cell of the display as the page has it."""
    parts = tuple(map(cell, one.parts))
    return PageCell(one.text, one.source, one.tokens, one.start, one.end, not one.source, one.form, parts)


def candidate(one: Next) -> PageCandidate:
    """A candidate for the next token as the page has it."""
    return PageCandidate(one.token, one.label, one.text, one.special, one.logit, one.probability)


def _block(trace: Trace, stack: Stack, index: int, known: set[str]) -> PageBlock:
    block = stack.model.blocks[index]
    path = block.path

    def first(*shorts: str) -> str:
        return next((f"{path}.{short}" for short in shorts if f"{path}.{short}" in known), "")

    return PageBlock(
        path=path,
        index=index,
        mixer=_mixer(trace, stack, index, block.mixer, known),
        cross=_cross(trace, stack, index, known),
        channel=f"{path}.channel" if block.channel is not None else "",
        resid_in=first("resid_in"),
        resid_mid=first("resid_mid"),
        resid_out=first("resid_out"),
        wiring=block.spec.wiring,
        width=block.width,
        mixed=first("mixer_out_norm.out", "mixer.out"),
        reworked=first("channel_out_norm.out", "channel.out"),
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
        gates=(),
        states=("context",),
        heads=1,
        groups=1,
        width=block.mixer.memory_dim,
        scale=1.0,
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
    states, gates = ([], []) if softmax else kept_names(trace, stack, index)
    return PageMixer(
        path=mixer.path,
        kind=type(mixer.spec).__struct_config__.tag,
        called=Said(*mixer.called),
        softmax=softmax and set(FOUR_STEPS) <= own,
        weights=weights,
        axis=axis,
        gates=tuple(name.removeprefix(f"{mixer.path}.") for name in gates),
        states=(*(name.removeprefix(f"{mixer.path}.") for name in states), *(["state"] if "state" in own else [])),
        heads=sizes.get(axis, heads),
        groups=getattr(mixer, "groups", heads),
        width=getattr(mixer, "width", 0),
        scale=float(getattr(mixer, "scale", 1.0)),
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


def _layers(model: ImageModel, known: set[str]) -> tuple[PageLayer, ...]:
    made = []
    for i, (layer, shape, field) in enumerate(zip(model.blocks, model.shapes[1:], fields_of(model)[1:], strict=True)):
        assert not isinstance(layer, Block)  # blocks stand over patches alone
        pre = f"{layer.path}.pre"
        made.append(
            PageLayer(
                path=layer.path,
                index=i,
                kind=type(layer.spec).__struct_config__.tag,
                pre=pre if pre in known else "",
                out=f"{layer.path}.out",
                axes=tuple(shape.axes.split()),
                sizes=shape.sizes,
                field=None if field is None else (field.size, field.step, field.start),
            )
        )
    return tuple(made)


def _picture(trace: Trace) -> PagePicture:
    """The pixels of the first image, in as many steps as a screen has."""
    stack, embed = trace.stacks[0], trace.model.spec.embed
    pixels = stack.tokens[0].detach().float().cpu().clamp(0, 1).mul(255).round().to(torch.uint8)
    name = "embed.pixels" if isinstance(embed, PatchesSpec) else "embed.out"
    text = base64.b64encode(pixels.contiguous().numpy().tobytes()).decode()
    return PagePicture(len(pixels), pixels.shape[-1], text, name, getattr(embed, "pad", 0))
