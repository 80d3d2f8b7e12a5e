"""What a model costs for a text of n tokens, or for n images: counted from its settings, without running it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from ..block import Block
from ..errors import check_whole
from ..image import ImageModel, ImageModelSpec
from ..mixers.base import Cost
from ..mixers.dense import MixingSpec
from ..model import AnySpec, EncoderDecoder, Model, without_memory
from ..named import preset, presets, spec_of
from ..named.layers import LAYERS, gpt2_with
from .sight import seen

LONGEST = 1 << 24  # tokens of a text
CELLS = 1 << 24  # pairs of a token and one that it may see, looked at together


@dataclass(frozen=True)
class Field:
    """The square of the image that one place of a map, or one patch, can see: `size` pixels wide, that of the first
    place beginning at row and column `start` (below 0: outside), each next one `step` pixels further."""

    size: int
    step: int
    start: int


@dataclass(frozen=True)
class ModelCost:
    """A model's cost for one text of n tokens, or for n images.

    parameters   numbers that training changes, one used in two places counted once
    flops        of matrix products, convolutions and attention written out (a causal one counted as if it were full),
                 two for each multiplication with its addition
    scan_flops   of recurrences and scans besides
    state_bytes  what is kept of n tokens in order to go on with the next
    steps        how many token mixers' computations must wait for one another while a whole text is read
    reach        how many tokens back the last vector can look; None: as far as there are any
    path         over how many token mixers and states the first token's vector comes to the last (of images: over how
                 many layers the first pixel and the last come together); None: it never does
    longest      how many tokens of a text it takes: as many as it has learnt positions for; None: any number
    fields       of images: what a place can see after the embedding and after each block; None: the whole image
    """

    n: int
    parameters: int
    flops: int
    scan_flops: int
    state_bytes: int
    steps: int
    reach: int | None
    path: int | None
    longest: int | None = None
    fields: tuple[Field | None, ...] = ()


def cost(spec: str | AnySpec, n: int, sources: int | None = None, *, number_bytes: int = 4) -> ModelCost:
    """The cost of a model (its spec, or a preset's name) for one text of n tokens; an encoder-decoder's for n tokens
    written about so many sources (None: n); an image model's for n images. number_bytes: of a parameter and of a number
    in a state, 4 in fp32.

    Raises InputError for a length that is not from 1 to LONGEST, SettingError for a spec that builds no model.
    """
    for name, value in (("n", n), ("sources", sources)):
        if name == "n" or value is not None:
            check_whole(name, value, 1, LONGEST)
    check_whole("number_bytes", number_bytes, 1, 8)
    model = without_memory(spec_of(spec))
    if isinstance(model, ImageModel):
        return _of_images(model, n)
    stacks = [(model, n)]
    if isinstance(model, EncoderDecoder):
        stacks = [(model.encoder, n if sources is None else sources), (model.decoder, n)]
    source = stacks[0][1]
    read = [
        block.mixer.cost(length, number_bytes, *([source] if block.mixer.reads_memory else []))
        for stack, length in stacks
        for block in stack.blocks
    ]
    writer = stacks[-1][0]
    own = read[-len(writer.blocks) :] if writer.blocks else []
    looks = [block.cross.cost(n, number_bytes, source) for block in writer.blocks if block.cross is not None]
    kept = state_bytes(writer, n, number_bytes, source) if writer.causal else 0
    before = int(writer.embed.previous is not None)
    reach, way = _reach_and_path(own, [block.spec.residual for block in writer.blocks], n)
    return ModelCost(
        n,
        parameters=sum(p.numel() for p in model.parameters()),
        flops=sum(one.flops for one in (*read, *looks)) + sum(_alone(stack, length) for stack, length in stacks),
        scan_flops=sum(one.scan_flops for one in read),
        state_bytes=kept,
        steps=sum(one.steps for one in (*read, *looks)),
        reach=None if reach is None else reach + before,
        path=way,
        longest=_longest(*(stack for stack, length in stacks if length == n or stack is writer)),
    )


def state_bytes(writer: Model, n: int, number_bytes: int = 4, sources: int = 1) -> int:
    """Bytes of what a stack keeps of n tokens, and of as many sources where it reads them, to go on with the next."""
    own = [
        block.mixer.cost(n, number_bytes, *([sources] if block.mixer.reads_memory else [])) for block in writer.blocks
    ]
    looks = [block.cross.cost(n, number_bytes, sources) for block in writer.blocks if block.cross is not None]
    return sum(one.state_bytes for one in (*own, *looks)) + _beside(writer)


def costs(n: int, names: Iterable[str] | None = None) -> dict[str, ModelCost]:
    """What each preset costs for one text of n tokens, or for one image, and each of named.layers in gpt2; or those of
    such names alone. Raises InputError for a length below 1."""
    names = (*presets(), *LAYERS) if names is None else names
    specs = {name: gpt2_with(name) if name in LAYERS else preset(name) for name in names}
    return {name: cost(spec, 1 if isinstance(spec, ImageModelSpec) else n) for name, spec in specs.items()}


def path(mixers: list[Cost], distance: int) -> int | None:
    """Over how many token mixers, and states between them, a token comes so far; None: never. For mixers that do the
    same at every place: without holes, and of those with nonlinear states only such as have one for each token.

    A block's residual carries a token past a mixer for nothing, so only those count that bring it nearer.
    """
    if distance and any(one.reach is None and not one.relay for one in mixers):
        return 1
    far, room = [1], (1 << distance + 1) - 1  # bit i of far[used]: so many mixers can bring it i tokens further
    for one in mixers:
        if one.reach:
            further = [_hops(places, one.stride, one.reach // one.stride) & room for places in far]
            far = [stay | go for stay, go in zip([*far, 0], [0, *further], strict=True)]
    found = [used for used, places in enumerate(far) if places >> distance]
    if any(one.relay for one in mixers):  # what is left, over every state between
        lefts = [distance + 1 - places.bit_length() for places in far]
        found += [used + left + 1 for used, left in enumerate(lefts) if left]
    return min(found, default=None)


def _hops(places: int, stride: int, count: int) -> int:
    """The bits of places moved by one, two … or `count` strides."""
    out, hops = places << stride, 1
    while hops < count:
        more = min(hops, count - hops)
        out, hops = out | out << stride * more, hops + more
    return out


def _of_images(model: ImageModel, n: int) -> ModelCost:
    """The cost of n images; nothing is kept of one for the next."""
    tokens = model.shapes[0].sizes[0]
    blocks = [block for block in model.blocks if isinstance(block, Block)]
    layers = [block for block in model.blocks if not isinstance(block, Block)]
    mixers = [block.mixer.cost(tokens) for block in blocks]
    flops = sum(one.flops for one in mixers) + sum(block.flops(tokens) for block in blocks)
    fields = fields_of(model)
    whole = [i for i, field in enumerate(fields) if field is None or field.size >= model.spec.size]
    pasts = [block.spec.residual for block in blocks]
    together = _reach_and_path(mixers, pasts, tokens)[1] if mixers else min([*whole, len(fields)])
    return ModelCost(
        n,
        parameters=sum(p.numel() for p in model.parameters()),
        flops=n * flops + sum(part.flops(n) for part in (model.embed, *layers, model.head) if part is not None),
        scan_flops=n * sum(one.scan_flops for one in mixers),
        state_bytes=0,
        steps=sum(one.steps for one in mixers) + len(layers),
        reach=None,
        path=len(fields) if together is None else together,
        fields=fields,
    )


def fields_of(model: ImageModel) -> tuple[Field | None, ...]:
    """What a place can see of the image after the embedding and after each block; None: all of it."""
    if model.shapes[0].axes == "c y x":
        fields: list[Field | None] = [Field(1, 1, -model.spec.embed.pad)]
    else:
        fields = [Field(model.spec.embed.patch, model.spec.embed.patch, 0)]
    for block, shape in zip(model.blocks, model.shapes[1:], strict=True):
        before = fields[-1]
        if before is None or shape.axes != "c y x":
            fields.append(None)
            continue
        kernel, stride, pad = block.field
        size, start = before.size + (kernel - 1) * before.step, before.start - pad * before.step
        fields.append(Field(size, before.step * stride, start))
    return tuple(fields)


def _reach_and_path(mixers: list[Cost], residuals: list[bool], n: int) -> tuple[int | None, int | None]:
    """How many tokens back the last of n can look (None: as far as there are any), and the path to the first."""
    if all(residuals) and all(one.sees is None and one.relay <= 1 for one in mixers):
        reach = None if any(one.reach is None for one in mixers) else sum(one.reach for one in mixers)
        return reach, path(mixers, n - 1)
    steps = _steps_from_the_last(mixers, residuals, n)
    if steps[0].isfinite():
        return None if any(one.reach is None for one in mixers) else n - 1, int(steps[0])
    return n - 1 - int(steps.isfinite().nonzero().min()), None


def _steps_from_the_last(mixers: list[Cost], residuals: list[bool], n: int) -> Tensor:
    """`n`: over how many token mixers and states the last token sees each one, infinite where it never does; counted
    block by block from the last one down, for masks with holes, states of whole segments, and blocks that no residual
    leads past."""
    place = torch.arange(n)
    steps = torch.full((n,), torch.inf)
    steps[-1] = 0
    for one, residual in zip(reversed(mixers), reversed(residuals), strict=True):
        nearest = steps if residual else torch.full((n,), torch.inf)
        if one.relay:  # over the states between a token and any that comes after it
            state = place // one.relay
            along = 1 - state + (steps + state).flip(0).cummin(0).values.flip(0)
            nearest = torch.minimum(nearest, along)
        else:
            for rows in steps.isfinite().nonzero()[:, 0].split(max(1, CELLS // n)):
                further = torch.where(seen(one, rows, place), steps[rows, None] + 1, torch.inf)
                nearest = torch.minimum(nearest, further.amin(0))
        if all(residuals) and nearest[0] <= 1:
            return nearest
        steps = nearest
    return steps


def _alone(model: Model, n: int) -> int:
    """FLOPs of what works on each token by itself: channel mixers, projections past a mixer, and the head; and of what
    makes a sound's vectors."""
    embed = model.embed.flops(n) if model.spec.reads_sound else 0
    return embed + sum(block.flops(n) for block in model.blocks) + (0 if model.head is None else model.head.flops(n))


def _longest(*stacks: Model) -> int | None:
    """How many positions all of these stacks have weights for, None where none has any that are a position's own."""
    found = [stack.spec.context for stack in stacks if getattr(stack.embed, "position", None) is not None]
    mixers = [block.spec.mixer for stack in stacks for block in stack.blocks]
    return min([*found, *(one.length for one in mixers if isinstance(one, MixingSpec))], default=None)


def _beside(model: Model) -> int:
    """Bytes of a model's state beside its mixers': the next position, and the token before where its table is read."""
    return 8 + (16 if model.embed.previous is not None else 0)
