"""One stack's run, kept so that any value inside can be worked out again by the same code with a probe."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from .block import Block
from .call import Call
from .edit import Edit
from .errors import InputError
from .given import check_tokens
from .image import ImageModel, check_images
from .mixers.multihead import SoftmaxAttention
from .mixers.softmax import QUADRATIC
from .model import Model
from .nn.pool import Pooled
from .nn.sound import STRIDE
from .positions import POSITIONS, relocated
from .tap import Probe, Stop

if TYPE_CHECKING:
    from .trace import Trace

# How many arrays of its size exist at once while a value is made: of n² numbers q·k, scores, pattern, bias and a
# working copy; and of whatever an edit acts on, with the edit's own copies (measured: 4.6, 1.3 and 5.6).
EXPLICIT_COPIES, HEAD_COPIES, EDITED_COPIES = 5, 2, 6


def in_parts(part: nn.Module) -> tuple[str, ...]:
    """What a part of the model works out for some rows and heads alone; nothing of a mixer that lies inside another."""
    return () if getattr(part, "inside", False) else getattr(part, "in_parts", ())


def head_axis(axes: str) -> str:
    """The letter of the heads, or channels, that have weights of their own; "" where a value has none."""
    letters = axes.split()
    return "h" if "h" in letters else next((one for one in letters if one not in "bts"), "")


@dataclass
class Stack:
    """One stack of the traced model: `prefix` is "" or "encoder." / "decoder.", `tokens` the ids `b t` that it
    read, `call` what its layers knew, and `kept` what left some blocks (at 0 the embedding), by the number of blocks
    before it."""

    prefix: str
    model: Model | ImageModel
    tokens: Tensor
    call: Call
    kept: dict[int, Tensor]
    edits: tuple[Edit, ...]
    units = "tokens"

    # ------------------------------------------------------------ what was read

    @property
    def sizes(self) -> dict[str, int]:
        """The axes whose size differs from that in a run of `example`."""
        return {"b": self.tokens.shape[0], "t": self.length}

    @property
    def length(self) -> int:
        """How many places the text has."""
        return self.tokens.shape[1]

    @property
    def dim(self) -> int:
        """The width of a token's vector, where it is widest."""
        return max(self.model.spec.widths)

    @property
    def numbers(self) -> int:
        """How many numbers enter a block."""
        return self.tokens.shape[0] * self.length * self.dim

    @property
    def item(self) -> int:
        """Bytes of one number."""
        return next(self.model.parameters()).element_size()

    @property
    def block_bytes(self) -> int:
        """Bytes of what enters a block."""
        return self.numbers * self.item

    @property
    def logits_bytes(self) -> int:
        """Bytes that the logits take while they are made; 0 without a head."""
        head = self.model.head
        return 0 if head is None else head.numbers(*self.tokens.shape) * self.item

    def example(self) -> Tensor:
        """The shortest input there is."""
        return torch.zeros(1, 1, dtype=torch.long, device=self.tokens.device)

    def labels(self, letter: str, row: int) -> list[str]:
        """What the places of axis t or s are called in a row of the batch, or the classes."""
        if letter == "k" and isinstance(self.model.head, Pooled):
            spec = self.model.head.spec
            return list(spec.labels) or [str(i) for i in range(spec.classes or 0)]
        return [str(token) for token in self.tokens[row].tolist()] if letter in "ts" else []

    def entry(self, block: int) -> str:
        """The name of what enters a block."""
        return f"{self.prefix}blocks.{block - 1}.resid_out" if block else f"{self.prefix}embed.out"

    @property
    def relocated(self) -> set[str]:
        """The name under which edits moved its positions, as they have in `call` already."""
        return {edit.name for edit in self.edits if edit.name == f"{self.prefix}{POSITIONS}"}

    # ------------------------------------------------------------ its values

    @property
    def output(self) -> str:
        """The name of the value that the stack ends in."""
        head = self.model.head
        last = f"head.{head.output}" if head is not None else "norm.out" if self.model.norm is not None else None
        return self.entry(len(self.model.blocks)) if last is None else self.prefix + last

    def is_late(self, name: str) -> bool:
        """Whether a value comes after the last block, so that each of its rows needs only that row."""
        late = ("norm.",) if isinstance(self.model.head, Pooled) else ("norm.", "head.")
        return name.startswith(tuple(self.prefix + one for one in late))

    @property
    def edited_late(self) -> bool:
        """Whether an edit acts after the last block."""
        return any(self.is_late(edit.name) for edit in self.edits)

    def block_of(self, name: str) -> int | None:
        """The block that a value belongs to; None: embedding, last norm or head."""
        parts = name[len(self.prefix) :].split(".")
        return int(parts[1]) if parts[0] == "blocks" else None

    @property
    def item_bytes(self) -> int:
        """Bytes of one number; a pattern is fp32 at least."""
        return max(4, self.item)

    def sources(self, name: str) -> int:
        """How many keys there are for the attention that `name` belongs to."""
        cross = ".cross." in name and self.call.memory is not None
        return self.call.memory.shape[1] if cross else self.call.pos.shape[1]

    def working_bytes(self, name: str, sizes: Mapping[str, int]) -> int:
        """Bytes needed at once to compute so many places of a value, by axis letter."""
        layer, _, short = name.rpartition(".")
        mixer = self.model.get_submodule(layer.removeprefix(self.prefix))
        quadratic, focused = {"t", "s"} <= sizes.keys(), getattr(mixer, "in_parts", ())
        copies = EXPLICIT_COPIES if quadratic else HEAD_COPIES if short == "head_out" else 1
        if short in focused and any(edit.name in {f"{layer}.{one}" for one in focused} for edit in self.edits):
            copies = EDITED_COPIES
        needed = copies * self.item_bytes * math.prod(sizes.values())
        if short in QUADRATIC and isinstance(mixer, SoftmaxAttention):
            needed += mixer.distance_bytes * sizes["b"] * sizes["t"] * sizes["s"]
        return needed

    def again(
        self,
        name: str,
        rows: Tensor | None = None,
        heads: Tensor | None = None,
        written_out: tuple[str, ...] = (),
        shared: dict | None = None,
    ) -> Tensor:
        """One value by running its part of the model again from the nearest kept input, with a probe that stops at it.

        rows and heads: only these of a mixer's weights; rows alone: of a channel mixer, or of what follows the
        last block.
        written_out: values that are computed as well, which makes their layer write its mathematics out.
        shared: kept by a caller that asks for the same value in several pieces, so that keys are projected once."""
        wanted = frozenset((name, *written_out))
        probe = Probe(lambda asked: asked in wanted, self.edits, last=wanted)
        call = replace(self.call, probe=probe, rows=rows, heads=heads, shared={} if shared is None else shared)
        block = self.block_of(name)
        with torch.no_grad():
            try:
                if block is None and name.startswith(f"{self.prefix}embed."):
                    self.model.embed(self.tokens, call)
                elif block is None:
                    x = self.kept[len(self.model.blocks)]
                    self.model.finish(x if rows is None else x[:, rows], call)
                elif rows is None and heads is None:
                    self.model.blocks[block](self._input(block), call)
                else:
                    self._run_part(self.model.blocks[block], name[len(self.prefix) :].split(".")[2], call)
            except Stop:
                pass
        return probe.values[name]

    def _run_part(self, block: Block, which: str, call: Call) -> None:
        """Run one part of a block alone (mixer, cross or channel), on what it read in this run: normed vectors, or bare
        ones in post-norm."""
        part, norm = getattr(block, which), getattr(block, f"{which}_norm")
        if norm is not None and block.spec.wiring != "post":
            read = f"{norm.path}.out"
        elif which == "mixer" or block.spec.wiring == "parallel":
            read = f"{block.path}.resid_in"
        else:
            read = f"{block.path}.{'resid_cross' if which == 'channel' and block.cross is not None else 'resid_mid'}"
        x = call.once(read, lambda: self.again(read))
        if which == "channel":
            part(x[:, call.rows], call)
        else:
            part.parallel(x, call)

    def _input(self, block: int) -> Tensor:
        """What entered a block, run forward from the nearest kept input before it."""
        start = max(i for i in self.kept if i <= block)
        x = self.kept[start]
        for i in range(start, block):
            x, _ = self.model.blocks[i](x, replace(self.call, probe=Probe(lambda name: False, self.edits), shared={}))
        return x


class SoundStack(Stack):
    """The run of a stack that reads sound: `tokens` are its samples `b n` or their spectrogram `b c w`."""

    units = "samples"

    @property
    def rate(self) -> float:
        """How many samples, or frames, are a second."""
        spec = self.model.spec.embed
        return spec.rate if self.tokens.ndim == 2 else spec.rate / spec.hop

    @property
    def length(self) -> int:
        """How many places the encoder has for it."""
        return self.model.embed.places(self.tokens)

    @property
    def sizes(self) -> dict[str, int]:
        """The axes whose size differs from that in a run of `example`."""
        frames = STRIDE * self.length if self.tokens.ndim == 2 else self.tokens.shape[2]
        return {"b": self.tokens.shape[0], "t": self.length, "w": frames}

    def example(self) -> Tensor:
        """The shortest spectrogram there is."""
        return torch.zeros(1, self.model.spec.embed.bins, 1, device=self.tokens.device)

    def labels(self, letter: str, row: int) -> list[str]:
        """When a place or a frame begins, in seconds."""
        spec, sizes = self.model.spec.embed, self.sizes
        hop = spec.hop / spec.rate * (1 if letter == "w" else STRIDE)
        return [f"{i * hop:.2f}" for i in range(sizes["w" if letter == "w" else "t"])]


class ImageStack(Stack):
    """The run of a model of images: `tokens` are their pixels `b c y x`, of which only the batch is free."""

    units = "pixels"

    @property
    def sizes(self) -> dict[str, int]:
        """The axes whose size differs from that in a run of `example`."""
        return {"b": len(self.tokens)}

    @property
    def dim(self) -> int:
        """The width of a patch's vector, where it is widest."""
        return max(shape.sizes[-1] for shape in self.model.shapes)

    @property
    def numbers(self) -> int:
        """How many numbers enter a block or layer at most."""
        return len(self.tokens) * max(shape.numbers for shape in self.model.shapes)

    @property
    def logits_bytes(self) -> int:
        """Bytes of the logits of all classes, or of the vectors that a model without classes gives."""
        return (len(self.tokens) * self.model.spec.classes or self.numbers) * self.item

    def is_late(self, name: str) -> bool:
        """The classes are read from all places together."""
        return False

    def example(self) -> Tensor:
        """One black image."""
        return torch.zeros_like(self.tokens[:1])

    def labels(self, letter: str, row: int) -> list[str]:
        """The names of the classes, or of the patches, which are the same in every image."""
        spec, embed = self.model.spec, self.model.embed
        if letter == "k":
            return list(spec.labels) or [str(i) for i in range(spec.classes)]
        return embed.names() if self.model.shapes[0].axes == "t d" else []

    def entry(self, block: int) -> str:
        """The name of what enters a block or layer."""
        tokens = block and isinstance(self.model.blocks[block - 1], Block)
        return f"blocks.{block - 1}.{'resid_out' if tokens else 'out'}" if block else "embed.out"


def begun(
    prefix: str,
    model: Model | ImageModel,
    given: Tensor,
    pos: Tensor | None,
    segments: Tensor | None,
    edits: tuple[Edit, ...],
    **more: Any,
) -> Stack:
    """The stack of a run that is to be made. Raises InputError for what the model cannot read."""
    if isinstance(model, ImageModel):
        if pos is not None or segments is not None:
            raise InputError("pos and segments: an image has a pixel at every place; leave them out")
        check_images(given, model.spec)
        call = relocated(f"{prefix}{POSITIONS}", model, model.call(given, **more), len(given), edits)
        return ImageStack(prefix, model, given, call, {}, edits)
    call = relocated(f"{prefix}{POSITIONS}", model, model.call(given, pos, segments, **more), len(given), edits)
    if model.spec.reads_sound:
        return SoundStack(prefix, model, given, call, {}, edits)
    check_tokens(given, model.spec.vocab)
    return Stack(prefix, model, given, call, {}, edits)


def differentiable(run: Trace) -> Tensor:
    """What a run ends in, as `run.logits`, worked out again so that gradients pass: to the weights of the model, and
    through its edits to the tensors that they put in or multiply with."""

    def again(stack: Stack, **more: Any) -> Tensor:
        probe = Probe(lambda name: False, run.acting)
        return stack.model.run(stack.tokens, replace(stack.call, probe=probe, shared={}, **more))

    with torch.enable_grad():
        if len(run.stacks) == 1:
            return again(run.stacks[0])
        ends: list[Tensor] = []
        memory = again(run.stacks[0], ends=ends)
        return again(run.stacks[1], memory=memory, handed=tuple(ends))


def check_pair(tokens: Any, pos: Any, segments: Tensor | None, types: Tensor | None) -> None:
    """Raise InputError for what an encoder-decoder cannot read."""
    for what, given in (("tokens", tokens), ("pos", pos)):
        if isinstance(given, Tensor) or (given is not None and len(given) != 2):
            raise InputError(f"{what}: this is an encoder-decoder; give a pair (source, target)")
    if types is not None:
        raise InputError("types: an encoder-decoder does not tell the parts of a text apart; leave them out")
    if segments is not None:
        raise InputError("segments: an encoder-decoder takes no packed documents; give each pair a row of its own")


def stamp(model: nn.Module) -> list[tuple[int, int]]:
    """Tells whether parameters and buffers were replaced, or changed in place where PyTorch counts it. It does not
    count what is written through `.data` or in inference mode: whoever changes weights so has to trace anew."""
    tensors = (*model.parameters(), *model.buffers())
    return [(x.data_ptr(), 0 if x.is_inference() else x._version) for x in tensors]


def check_settled(model: nn.Module) -> None:
    """Raise InputError for a model whose dropout is on: what was drawn in the run cannot be recomputed."""
    if any(part.training and getattr(getattr(part, "spec", None), "dropout", 0.0) for part in model.modules()):
        raise InputError("the model is in training mode, so its dropout draws anew at every call; call model.eval()")
