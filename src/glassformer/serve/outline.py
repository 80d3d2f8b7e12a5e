"""A trace as the document that the page is given: its text, its blocks and its values by name, without the numbers."""

from __future__ import annotations

import math
import shlex
from typing import TYPE_CHECKING

import torch

from ..data.display import By, Cell
from ..explain.explained import available
from ..explain.explanation import Said
from ..explain.mixing import WEIGHTS
from ..mixers.multihead import SoftmaxAttention
from ..nn.head import Head
from ..tap import Edit
from .documents import PageBlock, PageCard, PageCell, PageEdit, PageMixer, PageRun, PageStack, PageValue

if TYPE_CHECKING:
    from ..rerun import Stack
    from ..text_trace import TextTrace

GROUPINGS: tuple[By, ...] = ("token", "character", "word")
FOUR_STEPS = ("q", "k", "v", "dots", "scores", "pattern", "z")


def outline(trace: TextTrace, ident: str, edits: tuple[PageEdit, ...] = ()) -> PageRun:
    """The document of a text's trace."""
    names, model = trace.names(), trace.loaded.name or "model"
    pair = len(trace.stacks) == 2
    cards: dict[str, PageCard] = {}
    stack = trace.stacks[-1].model
    return PageRun(
        id=ident,
        model=model,
        shape="pair" if pair else "decoder" if isinstance(stack.head, Head) else "encoder",
        text=trace.text,
        source=trace.source_text if pair else "",
        python=lines(trace, model, edits),
        command=f"glassformer trace {shlex.quote(trace.source_text if pair else trace.text)} --model {model}",
        stacks=tuple(_stack(trace, one, names) for one in trace.stacks),
        values=tuple(_value(trace, name, cards) for name in names),
        cards=cards,
        edits=edits,
        dtype=str(trace.stacks[-1].kept[0].dtype).removeprefix("torch."),
        context=stack.spec.context,
        parameters=sum(p.numel() for p in trace.model.parameters()),
        next=isinstance(stack.head, Head),
        classes=(),
        explains=tuple(available(trace)),
    )


def lines(trace: TextTrace, model: str, edits: tuple[PageEdit, ...]) -> tuple[str, ...]:
    """The Python lines that make the same trace."""
    given = f"({trace.source_text!r}, {trace.text!r})" if len(trace.stacks) == 2 else repr(trace.text)
    how = f", edits=[{', '.join(_edit(one) for one in edits)}]" if edits else ""
    return ("import glassformer as gf", f"model = gf.load({model!r})", f"trace = model.trace({given}{how})")


def _edit(one: PageEdit) -> str:
    value = "" if one.value is None else f", {one.value!r}"
    where = "".join(f", {axis}={place!r}" for axis, place in one.where.items())
    return f"gf.{one.kind}({one.name!r}{value}{where})"


def edited(one: PageEdit) -> Edit:
    """The edit that a page asks for."""
    return Edit(one.name, one.kind, one.where, one.value)


# ---------------------------------------------------------------- values and cards


def _value(trace: TextTrace, name: str, cards: dict[str, PageCard]) -> PageValue:
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


def _stack(trace: TextTrace, stack: Stack, names: list[str]) -> PageStack:
    known, model, prefix = set(names), stack.model, stack.prefix
    source = prefix == "encoder."
    embed = f"{prefix}embed.token" if f"{prefix}embed.token" in known else ""
    position = next((n for n in (f"{prefix}embed.position", f"{prefix}embed.previous") if n in known), "")
    return PageStack(
        prefix=prefix,
        units="frames" if model.spec.reads_sound else "tokens",
        length=stack.length,
        dim=stack.dim,
        labels=tuple(trace.labels("t", f"{prefix}blocks.0.resid_in")),
        cells={by: tuple(map(cell, trace.source_cells(by) if source else trace.cells(by))) for by in GROUPINGS},
        embed=embed,
        position=position,
        entry=stack.entry(0),
        blocks=tuple(_block(block, i, known) for i, block in enumerate(model.blocks)),
        norm=f"{prefix}norm.out" if f"{prefix}norm.out" in known else "",
        output=stack.output,
    )


def cell(one: Cell) -> PageCell:
    """A cell of the display as the page has it."""
    parts = tuple(map(cell, one.parts))
    return PageCell(one.text, one.source, one.tokens, one.start, one.end, not one.source, one.form, parts)


def _block(block: torch.nn.Module, index: int, known: set[str]) -> PageBlock:
    path = block.mixer.path.rpartition(".")[0]
    channel = f"{path}.channel" if block.channel is not None else ""
    middle = f"{path}.resid_mid" if f"{path}.resid_mid" in known else ""
    return PageBlock(
        path=path,
        index=index,
        mixer=_mixer(block.mixer, known),
        cross=None if block.cross is None else _mixer(block.cross, known),
        channel=channel,
        resid_in=f"{path}.resid_in",
        resid_mid=middle,
        resid_out=f"{path}.resid_out",
        wiring=block.spec.wiring,
    )


def _mixer(mixer: torch.nn.Module, known: set[str]) -> PageMixer:
    own = [name.removeprefix(f"{mixer.path}.") for name in known if name.startswith(f"{mixer.path}.")]
    weights = next((short for short in WEIGHTS if short in own), "")
    return PageMixer(
        path=mixer.path,
        kind=type(mixer.spec).__struct_config__.tag,
        called=Said(*mixer.called),
        softmax=isinstance(mixer, SoftmaxAttention) and set(FOUR_STEPS) <= set(own),
        weights=weights,
        gates=tuple(sorted(set(own) - set(FOUR_STEPS) - {"out", "head_out", "weights"})),
        heads=getattr(mixer, "heads", 1),
        groups=getattr(mixer, "groups", getattr(mixer, "heads", 1)),
        width=getattr(mixer, "width", 0),
        scale=float(getattr(mixer, "scale", 1.0)),
        causal=getattr(mixer, "mask", mixer).causal,
        mask=mask_said(mixer),
        sink=getattr(mixer, "sink", None) is not None,
    )


def mask_said(mixer: torch.nn.Module) -> Said:
    """What a position may see by construction, in a sentence."""
    mask = getattr(mixer, "mask", None)
    if mask is None:
        return EARLIER if mixer.causal else BOTH
    if mask.window is not None:
        return Said(f"only the nearest {mask.window} positions", f"가까운 위치 {mask.window}개만 봅니다")
    return EARLIER if mask.causal else BOTH


EARLIER = Said("itself and what stands before it", "자신과 그 앞의 위치만 봅니다")
BOTH = Said("every position, before it and behind it", "앞과 뒤의 모든 위치를 봅니다")
