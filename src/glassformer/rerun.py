"""One stack's run, kept so that any value inside can be worked out again by the same code with a probe."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from .call import Call
from .errors import InputError
from .model import Model
from .tap import Edit, Probe, Stop


@dataclass
class Stack:
    """One stack of the traced model: `prefix` is "" or "encoder." / "decoder.", `call` what its layers knew, and
    `kept` what left some blocks (at 0 the embedding), by the number of blocks before it."""

    prefix: str
    model: Model
    tokens: Tensor
    call: Call
    kept: dict[int, Tensor]
    edits: tuple[Edit, ...]

    @property
    def output(self) -> str:
        """The name of the value that the stack ends in."""
        last = "head.logits" if self.model.head is not None else "norm.out" if self.model.norm is not None else None
        return entry(self.prefix, len(self.model.blocks)) if last is None else self.prefix + last

    def is_late(self, name: str) -> bool:
        """Whether a value comes after the last block, so that each of its rows needs only that row."""
        return name.startswith((f"{self.prefix}norm.", f"{self.prefix}head."))

    def block_of(self, name: str) -> int | None:
        """The block that a value belongs to; None: embedding, last norm or head."""
        parts = name[len(self.prefix) :].split(".")
        return int(parts[1]) if parts[0] == "blocks" else None

    def again(
        self,
        name: str,
        rows: Tensor | None = None,
        heads: Tensor | None = None,
        written_out: tuple[str, ...] = (),
        shared: dict | None = None,
    ) -> Tensor:
        """One value by running its part of the model again from the nearest kept input, with a probe that stops at it.

        rows and heads: only these of an attention's n² values; rows alone: of what follows the last block.
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
                    self._attend(block, name, call)
            except Stop:
                pass
        return probe.values[name]

    def _attend(self, index: int, name: str, call: Call) -> None:
        """Run one attention alone, on what it read in this run: normed vectors, or bare ones in post-norm."""
        block = self.model.blocks[index]
        cross = name.startswith(f"{block.path}.cross.")
        mixer, norm = (block.cross, block.cross_norm) if cross else (block.mixer, block.mixer_norm)
        if norm is not None and block.spec.wiring != "post":
            read = f"{norm.path}.out"
        else:
            read = f"{block.path}.{'resid_mid' if cross else 'resid_in'}"
        mixer.parallel(call.once(read, lambda: self.again(read)), call)

    def _input(self, block: int) -> Tensor:
        """What entered a block, run forward from the nearest kept input before it."""
        start = max(i for i in self.kept if i <= block)
        x = self.kept[start]
        for i in range(start, block):
            x, _ = self.model.blocks[i](x, replace(self.call, probe=Probe(lambda name: False, self.edits), shared={}))
        return x


def entry(prefix: str, block: int) -> str:
    """The name of what enters a block."""
    return f"{prefix}blocks.{block - 1}.resid_out" if block else f"{prefix}embed.out"


def stamp(model: nn.Module) -> list[tuple[int, int]]:
    """Tells whether parameters and buffers were replaced, or changed in place where PyTorch counts it. It does not
    count what is written through `.data` or in inference mode: whoever changes weights so has to trace anew."""
    tensors = (*model.parameters(), *model.buffers())
    return [(x.data_ptr(), 0 if x.is_inference() else x._version) for x in tensors]


def check_settled(model: nn.Module) -> None:
    """Raise InputError for a model whose dropout is on: what was drawn in the run cannot be recomputed."""
    if any(part.training and getattr(getattr(part, "spec", None), "dropout", 0.0) for part in model.modules()):
        raise InputError("the model is in training mode, so its dropout draws anew at every call; call model.eval()")
