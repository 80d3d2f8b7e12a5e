"""A run of a model, looked at afterwards: fast first, exact where someone looks.

The model runs once with its fused kernels, keeping only the inputs of its blocks. Any value inside is recomputed from
there when it is asked for, by the same code with a probe: the whole of it, or only some heads and rows. What is kept
and what is recomputed follows from one number, the memory limit.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from .call import Call
from .errors import InputError, MemoryLimitError, nearest
from .mixers.attention import SoftmaxAttention
from .model import EncoderDecoder, Model, check_tokens
from .spec import to_json
from .stored import write
from .tap import AXES, Card, Edit, Probe, Stop, check_edited

Index = int | slice | list[int]
QUADRATIC = ("dots", "scores", "pattern")  # values of n² numbers; each is computed for the asked rows and heads only
DEFAULT_LIMIT_BYTES = 1 << 30


@dataclass
class Stack:
    """One stack of the traced model: `prefix` is "" or "encoder." / "decoder.", `call` what its layers knew, and
    `kept` the inputs of some blocks (and the last block's output, at the index after the last)."""

    prefix: str
    model: Model
    tokens: Tensor
    call: Call
    kept: dict[int, Tensor]


class Trace:
    """The values of one run, by name (`blocks.0.mixer.pattern`).

    trace[name]                  the whole value, recomputed from the nearest kept block input and then cached
    trace.part(name, h=0, t=5)   only these heads and rows, without ever computing the others
    trace.difference()           how far the fused run and the written-out mathematics are apart
    """

    def __init__(
        self,
        model: nn.Module,
        tokens: Tensor | tuple[Tensor, Tensor],
        *,
        pos: Tensor | tuple[Tensor | None, Tensor | None] | None = None,
        segments: Tensor | None = None,
        edits: Iterable[Edit] = (),
        limit_bytes: int = DEFAULT_LIMIT_BYTES,
        labels: Mapping[str, list[str]] | None = None,
    ) -> None:
        """tokens `b t`, or the pair (source `b s`, target `b t`) of an encoder-decoder; pos and segments as in
        Model.forward. limit_bytes bounds what the trace stores and the largest thing it computes to look at."""
        self.model, self.edits, self.limit_bytes = model, tuple(edits), limit_bytes
        self._labels = dict(labels or {})
        self._cache: OrderedDict[str, Tensor] = OrderedDict()
        self._axes: dict[str, str] | None = None
        self._edited: set[str] = set()
        with torch.no_grad():
            self.stacks, self.logits = self._run(tokens, pos, segments)
        self._check_edits()

    # ------------------------------------------------------------ the fast run

    def _run(self, tokens: Any, pos: Any, segments: Tensor | None) -> tuple[list[Stack], Tensor]:
        if not isinstance(self.model, EncoderDecoder):
            stack, out = self._run_stack("", self.model, tokens, pos, segments, None, None)
            return [stack], out
        source_pos, target_pos = pos if pos is not None else (None, None)
        encoder, memory = self._run_stack("encoder.", self.model.encoder, tokens[0], source_pos, None, None, None)
        decoder, out = self._run_stack(
            "decoder.", self.model.decoder, tokens[1], target_pos, segments, memory, source_pos
        )
        return [encoder, decoder], out

    def _run_stack(
        self,
        prefix: str,
        model: Model,
        tokens: Tensor,
        pos: Tensor | None,
        segments: Tensor | None,
        memory: Tensor | None,
        memory_pos: Tensor | None,
    ) -> tuple[Stack, Tensor]:
        check_tokens(tokens, model.spec.vocab)
        keep = self._kept_blocks(model, tokens)
        last = len(model.blocks) - 1
        wanted = {f"{prefix}blocks.{i}.resid_in" for i in keep} | {f"{prefix}blocks.{last}.resid_out"}
        probe = Probe(lambda name: name in wanted, self.edits)
        out = model(tokens, pos=pos, segments=segments, memory=memory, memory_pos=memory_pos, probe=probe)
        self._edited |= probe.edited
        kept = {i: probe.values[f"{prefix}blocks.{i}.resid_in"] for i in keep}
        kept[last + 1] = probe.values[f"{prefix}blocks.{last}.resid_out"]
        plain = pos is None and segments is None
        pos = torch.arange(tokens.shape[1], device=tokens.device)[None] if pos is None else pos
        return Stack(prefix, model, tokens, Call(pos, plain, segments, memory, memory_pos), kept), out

    def _kept_blocks(self, model: Model, tokens: Tensor) -> list[int]:
        """The blocks whose inputs are kept: all, or evenly spaced ones so that half of the limit stays free."""
        one = tokens.numel() * model.spec.dim * model.embed.token.weight.element_size()
        blocks = len(model.blocks)
        stacks = 2 if isinstance(self.model, EncoderDecoder) else 1
        room = self.limit_bytes // (2 * stacks * one) - 1  # the last block's output is kept in any case
        if room < 1:
            raise MemoryLimitError(
                f"the limit of {self.limit_bytes:,} bytes cannot hold two block inputs of {one:,} bytes; "
                f"allow at least {4 * stacks * one:,}, or give a shorter text"
            )
        every = -(-blocks // min(room, blocks))
        return list(range(0, blocks, every))

    # ------------------------------------------------------------ reading

    def names(self) -> list[str]:
        """All names that can be asked for, in the order in which the model computes them."""
        return list(self._known())

    def axes(self, name: str) -> str:
        """The axis letters of a value, for example "b h t s"."""
        if name not in self._known():
            raise InputError(f"no value named {name!r} in this trace; {nearest(name, self._known())}")
        return self._known()[name]

    def labels(self, letter: str, prefix: str = "") -> list[str]:
        """What the places of an axis are called: tokens for t and s, numbers elsewhere. prefix: "encoder." for its."""
        given = self._labels.get(prefix + letter) or self._labels.get(letter)
        if given is not None:
            return given
        if letter not in AXES:
            raise InputError(f"no axis {letter!r}; {nearest(letter, AXES)}")
        stack = self.stacks[0] if prefix == "encoder." else self.stacks[-1]
        if letter in "ts":
            return [str(token) for token in stack.tokens[0].tolist()]
        sizes = {size for name in self.names() for axis, size in self.sizes(name) if axis == letter}
        return [str(i) for i in range(max(sizes, default=0))]

    def card(self, name: str) -> Card:
        """The card of a value: symbol, formula and a sentence in both languages."""
        self.axes(name)
        layer, _, short = name.rpartition(".")
        return self.model.get_submodule(layer).cards[short]

    def __getitem__(self, name: str) -> Tensor:
        if name in self._cache:
            self._cache.move_to_end(name)
            return self._cache[name]
        self.axes(name)
        stack, block = self._place(name)
        if block is not None and name.endswith(QUADRATIC):
            self._check_square(stack, name, None, None)
        value = self._recompute(stack, block, name)
        self._remember(name, value)
        return value

    def part(self, name: str, **where: Index) -> Tensor:
        """The value at places given by axis letter; an integer drops its axis. Of attention's n² values only the
        asked rows `t` and heads `h` are computed."""
        letters = self.axes(name).split()
        for letter in where:
            if letter not in letters:
                raise InputError(f"{name} has no axis {letter!r}; its axes are: {' '.join(letters)}")
        focus = {letter: where[letter] for letter in ("t", "h") if letter in where}
        stack, block = self._place(name)
        if name in self._cache or block is None or not name.endswith(QUADRATIC) or self._edits_in(stack, block):
            return _picked(self[name], letters, where, name)
        sizes = dict(self.sizes(name))
        rows, heads = (_indices(focus.get(axis), sizes[axis], name, axis) for axis in ("t", "h"))
        self._check_square(stack, name, len(rows), len(heads))
        device = stack.tokens.device
        value = self._recompute(
            stack, block, name, torch.tensor(rows, device=device), torch.tensor(heads, device=device)
        )
        rest = {k: (0 if isinstance(where[k], int) else slice(None)) if k in focus else v for k, v in where.items()}
        return _picked(value, letters, rest, name)

    def difference(self) -> dict[str, float]:
        """The largest difference between the fused path and the written-out one, of each attention's output from the
        same input, relative to that output's largest number; worked out row by row within the memory limit."""
        found = {}
        with torch.no_grad():
            for name in self.names():
                if not name.endswith(".out") or not isinstance(self.model.get_submodule(name[:-4]), SoftmaxAttention):
                    continue
                stack, block = self._place(name)
                fast = self._recompute(stack, block, name)
                worst = 0.0
                for rows in self._row_chunks(stack, name):
                    glass = self._recompute(stack, block, name, rows, None, written_out=True)
                    worst = max(worst, (glass - fast[:, rows]).abs().max().item())
                found[name] = worst / max(fast.abs().max().item(), 1e-30)
        return found

    # ------------------------------------------------------------ saving

    def save(self, path: Path | str, names: Iterable[str] | None = None) -> None:
        """Write values (None: all) as one safetensors file whose metadata holds axes, labels, cards and spec."""
        chosen = list(names) if names is not None else self.names()
        write(
            Path(path),
            values={name: self[name] for name in chosen},
            axes={name: self.axes(name) for name in chosen},
            labels={letter: self.labels(letter) for letter in ("t", "s")},
            cards={name: self.card(name) for name in chosen},
            spec=to_json(self.model.spec, None),
        )

    # ------------------------------------------------------------ recomputation

    def _recompute(
        self,
        stack: Stack,
        block: int | None,
        name: str,
        rows: Tensor | None = None,
        heads: Tensor | None = None,
        written_out: bool = False,
    ) -> Tensor:
        """One value by running its part of the model again from the nearest kept input, with a probe that stops at it.

        written_out makes attention compute its pattern although only `name` is kept."""
        beside = f"{name.rpartition('.')[0]}.pattern"
        probe = Probe(
            lambda asked: asked == name or (written_out and asked == beside), self.edits, last=frozenset((name,))
        )
        with torch.no_grad():
            try:
                if block is None and name.startswith(f"{stack.prefix}embed."):
                    stack.model.embed(stack.tokens, replace(stack.call, probe=probe, shared={}))
                elif block is None:
                    stack.model.finish(stack.kept[len(stack.model.blocks)], replace(stack.call, probe=probe, shared={}))
                elif rows is None and heads is None:
                    stack.model.blocks[block](self._input(stack, block), replace(stack.call, probe=probe, shared={}))
                else:
                    self._attend(
                        stack, block, name, replace(stack.call, probe=probe, rows=rows, heads=heads, shared={})
                    )
            except Stop:
                pass
        return probe.values[name]

    def _attend(self, stack: Stack, index: int, name: str, call: Call) -> None:
        """Run one attention alone, on what it read in this run: normed vectors, or bare ones in post-norm."""
        block = stack.model.blocks[index]
        cross = name.startswith(f"{block.path}.cross.")
        mixer, norm = (block.cross, block.cross_norm) if cross else (block.mixer, block.mixer_norm)
        if norm is not None and block.spec.wiring != "post":
            read = f"{norm.path}.out"
        else:
            read = f"{block.path}.{'resid_mid' if cross else 'resid_in'}"
        mixer.parallel(self._recompute(stack, index, read), call)

    def _input(self, stack: Stack, block: int) -> Tensor:
        """The input of a block, run forward from the nearest kept one before it."""
        start = max(i for i in stack.kept if i <= block)
        x = stack.kept[start]
        for i in range(start, block):
            x, _ = stack.model.blocks[i](x, replace(stack.call, probe=Probe(lambda name: False, self.edits), shared={}))
        return x

    def _place(self, name: str) -> tuple[Stack, int | None]:
        """The stack and the block that a name belongs to; block None: embedding, last norm or head."""
        stack = next(s for s in self.stacks if name.startswith(s.prefix))
        parts = name[len(stack.prefix) :].split(".")
        return stack, int(parts[1]) if parts[0] == "blocks" else None

    def _edits_in(self, stack: Stack, block: int) -> bool:
        return any(edit.name.startswith(f"{stack.prefix}blocks.{block}.") for edit in self.edits)

    # ------------------------------------------------------------ memory

    def _square_bytes(self, stack: Stack, name: str, rows: int | None, heads: int | None) -> int:
        """Bytes that the written-out attention needs at once: q·k, scores, pattern and one working copy."""
        mixer = self.model.get_submodule(name.rpartition(".")[0])
        batch, t = stack.tokens.shape
        cross = ".cross." in name and stack.call.memory is not None
        source = stack.call.memory.shape[1] if cross else t
        item = 4 * mixer.q.weight.element_size()
        return item * batch * (mixer.heads if heads is None else heads) * (t if rows is None else rows) * source

    def _check_square(self, stack: Stack, name: str, rows: int | None, heads: int | None) -> None:
        needed = self._square_bytes(stack, name, rows, heads)
        if needed > self.limit_bytes:
            raise MemoryLimitError(
                f"{name} needs {needed:,} bytes and the limit is {self.limit_bytes:,}; ask for some rows and heads, "
                f"trace.part({name!r}, h=0, t=slice(0, 64)), or raise limit_bytes"
            )

    def _row_chunks(self, stack: Stack, name: str) -> Iterable[Tensor]:
        t = stack.tokens.shape[1]
        size = max(1, min(t, self.limit_bytes // max(self._square_bytes(stack, name, 1, None), 1)))
        return torch.arange(t, device=stack.tokens.device).split(size)

    def _remember(self, name: str, value: Tensor) -> None:
        """Cache a value, dropping the ones asked for longest ago; a value larger than the room left is not cached."""
        room = self.limit_bytes - sum(v.nbytes for stack in self.stacks for v in stack.kept.values())
        if value.nbytes > room:
            return
        self._cache[name] = value
        while sum(v.nbytes for v in self._cache.values()) > room:
            self._cache.popitem(last=False)

    @property
    def stored_bytes(self) -> int:
        """Bytes the trace holds now: kept block inputs and cached values."""
        kept = sum(v.nbytes for stack in self.stacks for v in stack.kept.values())
        return kept + sum(v.nbytes for v in self._cache.values())

    # ------------------------------------------------------------ names

    def _known(self) -> dict[str, str]:
        """Axes by name, found by running the model over two tokens with everything looked at."""
        if self._axes is None:
            probe = Probe()
            with torch.no_grad():
                two = [torch.zeros(1, 2, dtype=torch.long, device=s.tokens.device) for s in self.stacks]
                self.model(*two, probe=probe)
            self._axes = probe.axes
            self._two = {name: tuple(value.shape) for name, value in probe.values.items()}
        return self._axes

    def sizes(self, name: str) -> list[tuple[str, int]]:
        """(axis letter, size) of a value in this run."""
        letters = self.axes(name).split()
        stack, _ = self._place(name)
        batch, t = stack.tokens.shape
        cross = ".cross." in name and stack.call.memory is not None
        run = {"b": batch, "t": t, "s": stack.call.memory.shape[1] if cross else t}
        return [(letter, run.get(letter, size)) for letter, size in zip(letters, self._two[name], strict=True)]

    def _check_edits(self) -> None:
        if self.edits:
            probe = Probe(lambda name: False, self.edits)
            probe.edited = self._edited
            check_edited(probe, self.names)


def _indices(index: Index | None, size: int, name: str, axis: str) -> list[int]:
    """An index as a list of places, checked."""
    if index is None:
        return list(range(size))
    if isinstance(index, slice):
        return list(range(size))[index]
    chosen = [index] if isinstance(index, int) else list(index)
    for i in chosen:
        if not -size <= i < size:
            raise InputError(f"{name}: axis {axis!r} has no index {i}; it has {size} (0 to {size - 1})")
    return [i % size for i in chosen]


def _picked(value: Tensor, letters: list[str], where: Mapping[str, Index], name: str) -> Tensor:
    """`value` at places given by axis letter, last axis first so that a dropped axis does not move the others."""
    for axis in reversed(range(len(letters))):
        index = where.get(letters[axis])
        if index is None or index == slice(None):
            continue
        places = _indices(index, value.shape[axis], name, letters[axis])
        if isinstance(index, int):
            value = value.select(axis, places[0])
        else:
            value = value.index_select(axis, torch.tensor(places, device=value.device))
    return value
