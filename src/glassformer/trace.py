"""A run of a model, looked at afterwards: fast first, exact where someone looks.

The model runs once with its fused kernels, keeping only the inputs of its blocks. Any value inside is recomputed from
there when it is asked for, by the same code with a probe: the whole of it, or only some heads and rows. What is kept
and what is recomputed follows from one number, the memory limit.
"""

from __future__ import annotations

import contextlib
import copy
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn

from .difference import difference_of
from .edit import Edit, listed
from .errors import InputError, MemoryLimitError, nearest
from .mixers.cuts import acting
from .mixers.multihead import SoftmaxAttention
from .model import EncoderDecoder
from .patches import resolved
from .place import Index, check_letters, indices, label_key, picked, single
from .rerun import Stack, begun, check_pair, check_settled, head_axis, in_parts, stamp
from .spec import to_json
from .stored import write
from .tap import AXES, Card, Probe, Stop, check_edited

# An edit of one of these needs all rows and heads, as in the run.
ON_THE_WAY = ("q", "dots", "scores", "pattern", "shares", "weights", "z", "y", "gate", "head_out", "out")
DEFAULT_LIMIT_BYTES = 1 << 30


class Trace:
    """The values of one run, by name (`blocks.0.mixer.pattern`).

    trace[name]                  the whole value, recomputed from the nearest kept block input and then cached
    trace.part(name, h=0, t=5)   only these heads and rows, without ever computing the others
    trace.difference()           how far the fused run and the written-out mathematics are apart

    The tensors are the trace's own: copy before changing one in place.
    """

    def __init__(
        self,
        model: nn.Module,
        tokens: Tensor | tuple[Tensor, Tensor],
        *,
        pos: Tensor | tuple[Tensor | None, Tensor | None] | None = None,
        segments: Tensor | None = None,
        types: Tensor | None = None,
        edits: Edit | Iterable[Edit] = (),
        limit_bytes: int = DEFAULT_LIMIT_BYTES,
        labels: Mapping[str, list[str]] | None = None,
    ) -> None:
        """tokens `b t`, or the pair (source `b s`, target `b t`) of an encoder-decoder; pos, segments and types as in
        Model.forward (of a pair the positions alone). limit_bytes bounds what the trace stores together with what
        attention and head take in the run (n² numbers and logits are worked out in pieces) or with what is computed to
        look at. Beside it a run or a recomputation needs what one block makes of the text, which grows with n.
        labels: the tokens as text, under "t" and "s", the source's under "encoder.t" and "encoder.s"."""
        if not isinstance(model, nn.Module):
            raise InputError(f"{model!r} is no model that was built; give the model of what glassformer.load returns")
        self.edits = listed(edits)
        if isinstance(limit_bytes, bool) or not isinstance(limit_bytes, int) or limit_bytes < 1:
            raise InputError(f"limit_bytes: {limit_bytes!r} is not allowed; use a whole number from 1")
        self.model, self.limit_bytes = model, limit_bytes
        self._labels = dict(labels or {})
        self._cache: OrderedDict[str, Tensor] = OrderedDict()
        self._axes: dict[str, str] | None = None
        self._difference: dict[str, float] | None = None
        self._edited: set[str] = set()
        self.acting = acting(dict(model.named_modules()), resolved(self.edits, self._other))
        check_settled(model)
        self._stamp = stamp(model)
        self.stacks: list[Stack] = []
        with torch.no_grad():
            output = self._run(tokens, pos, segments, types)
        probe = Probe(edits=self.acting)
        probe.edited = self._edited
        check_edited(probe, self.names)
        if output is not None:
            self._remember(self.stacks[-1].output, output)

    def _other(self, given: Any) -> Trace:
        """The run of other token ids by the same model, whose values are patched into this one."""
        if isinstance(given, str):
            raise InputError("this model has no tokenizer; patch from a trace, or from token ids instead of a text")
        return Trace(self.model, torch.tensor([given]), limit_bytes=self.limit_bytes)

    # ------------------------------------------------------------ the fast run

    def _run(self, tokens: Any, pos: Any, segments: Tensor | None, types: Tensor | None) -> Tensor | None:
        if not isinstance(self.model, EncoderDecoder):
            more = {} if types is None else {"types": types}
            return self._run_stack("", self.model, tokens, pos=pos, segments=segments, **more)
        check_pair(tokens, pos, segments, types)
        source_pos, pos = pos if pos is not None else (None, None)
        memory = self._run_stack("encoder.", self.model.encoder, tokens[0], pos=source_pos, ends=(ends := []))
        more = {"memory": memory, "memory_pos": source_pos, "handed": tuple(ends)}
        return self._run_stack("decoder.", self.model.decoder, tokens[1], pos=pos, **more)

    def _run_stack(
        self,
        prefix: str,
        model: nn.Module,
        given: Tensor,
        pos: Tensor | None,
        segments: Tensor | None = None,
        ends: list[Tensor] | None = None,
        **more: Any,
    ) -> Tensor | None:
        """One stack's run and what it ended in; None where its logits alone are more than the limit leaves, which then
        are worked out by rows when somebody asks for them."""
        stack = begun(prefix, model, given, pos, segments, self.acting, room_bytes=self.limit_bytes // 4, **more)
        self.stacks.append(stack)
        self._edited |= stack.relocated
        # What leaves a block is kept, not what its successor taps as its input, since an edit there comes afterwards.
        names = {i: stack.entry(i) for i in [*self._kept_blocks(stack), len(model.blocks)]}
        self._check_edits(stack)
        last = frozenset() if self._logits_fit(stack, len(names)) else frozenset(names.values())
        probe, out = Probe(lambda name: name in names.values(), self.acting, last), None
        with contextlib.suppress(Stop):
            out = model.run(given, replace(stack.call, probe=probe, ends=ends))
        self._edited |= probe.edited
        stack.kept |= {i: probe.values[name] for i, name in names.items()}
        return out

    def _check_edits(self, stack: Stack) -> None:
        """Raise MemoryLimitError for an edit of n² numbers or heads' outputs that do not fit at once."""
        for edit in self.acting:
            layer, _, short = edit.name.rpartition(".")
            mixer = dict(stack.model.named_modules()).get(layer[len(stack.prefix) :])
            if not layer.startswith(stack.prefix) or short not in getattr(mixer, "in_parts", ()):
                continue
            if isinstance(mixer, SoftmaxAttention):
                last = {"d": stack.dim} if short == "head_out" else {"s": stack.sources(edit.name)}
                sizes = {"b": len(stack.tokens), "t": stack.call.pos.shape[1], "h": mixer.heads} | last
            elif isinstance(self.model, EncoderDecoder):  # whose other stack has not run
                continue
            else:
                sizes = dict(self.sizes(edit.name))
            needed = stack.working_bytes(edit.name, sizes) + self._most_held()
            if needed > self.limit_bytes:
                raise MemoryLimitError(
                    f"the edit of {edit.name} needs {needed:,} bytes at once and the limit is {self.limit_bytes:,}; "
                    "give a shorter text, or raise the limit (--memory)"
                )

    def _logits_fit(self, stack: Stack, kept: int) -> bool:
        """Whether the limit has room for all logits beside what is kept; an edit of them needs all at once."""
        needed = stack.logits_bytes
        if needed + stack.block_bytes * kept <= self.limit_bytes:
            return True
        late = [edit.name for edit in self.acting if stack.is_late(edit.name)]
        if late:
            raise MemoryLimitError(
                f"the edit of {late[0]} needs all logits, {needed:,} bytes, and the limit is {self.limit_bytes:,}; "
                "give a shorter text, or raise the limit (--memory)"
            )
        return False

    def _kept_blocks(self, stack: Stack) -> list[int]:
        """The blocks whose inputs are kept: all, or evenly spaced ones so that half of the limit stays free."""
        one, blocks = stack.block_bytes, len(stack.model.blocks)
        stacks = 2 if isinstance(self.model, EncoderDecoder) else 1
        room = self.limit_bytes // (2 * stacks * one) - 1  # the last block's output is kept in any case
        if room < 1:
            raise MemoryLimitError(
                f"the limit of {self.limit_bytes:,} bytes cannot hold two block inputs of {one:,} bytes; "
                f"allow at least {4 * stacks * one:,}, or give a shorter text"
            )
        return list(range(0, blocks, -(-blocks // min(room, blocks)))) if blocks else []

    # ------------------------------------------------------------ reading

    def __repr__(self) -> str:
        given = " and ".join("×".join(map(str, stack.tokens.shape)) for stack in self.stacks)
        layers = "+".join(str(len(stack.model.blocks)) for stack in self.stacks)
        return f"<Trace of {given} {self.stacks[0].units} through {layers} layers, {len(self.edits)} edits>"

    @property
    def logits(self) -> Tensor:
        """What the run ended in: logits `b t v`, or vectors `b t d` of a model without a head; of a pooled head one
        vector `b d` or the classes `b k`."""
        return self[self.stacks[-1].output]

    def names(self) -> list[str]:
        """All names that can be asked for, in the order in which the model computes them."""
        return list(self._known())

    def axes(self, name: str) -> str:
        """The axis letters of a value, for example "b h t s"."""
        if name not in self._known():
            raise InputError(f"no value named {name!r} in this trace; {nearest(name, self._known())}")
        return self._known()[name]

    def labels(self, letter: str, name: str = "", b: int = 0) -> list[str]:
        """What the places of an axis are called: tokens for t and s, numbers elsewhere; `name`: in this value, `b`: in
        this row of a batch (labels given to the trace are those of every row)."""
        if letter not in AXES:
            raise InputError(f"no axis {letter!r}; {nearest(letter, AXES)}")
        if name:
            check_letters([letter], self.axes(name), name)
        if letter in ("t", "s", "k", "w"):
            return self._token_labels(label_key(letter, name), b)
        chosen = [name] if name else self.names()
        return [str(i) for i in range(max((dict(self.sizes(one)).get(letter, 0) for one in chosen), default=0))]

    def _token_labels(self, key: str, b: int = 0) -> list[str]:
        stack = self.stacks[0] if key.startswith("encoder.") else self.stacks[-1]
        [row] = indices([b], len(stack.tokens), key, "b")
        return self._labels.get(key) or stack.labels(key[-1], row)

    def card(self, name: str) -> Card:
        """The card of a value: symbol, formula and a sentence in both languages."""
        self.axes(name)
        layer, _, short = name.rpartition(".")
        return self.model.get_submodule(layer).cards[short]

    def sizes(self, name: str) -> list[tuple[str, int]]:
        """(axis letter, size) of a value in this run."""
        letters = self.axes(name).split()
        stack, _ = self._place(name)
        run = stack.sizes
        run |= {"s": stack.sources(name)} if "t" in run else {}
        return [(letter, run.get(letter, size)) for letter, size in zip(letters, self._one[name].shape, strict=True)]

    def __getitem__(self, name: str) -> Tensor:
        if name in self._cache:
            self._cache.move_to_end(name)
            return self._cache[name]
        stack, _ = self._place(name)
        for i, value in stack.kept.items():
            if name == stack.entry(i):
                return value
        self._make_room(name, self._working_bytes(name))
        value = self._again(stack, name)
        self._remember(name, value)
        return value

    def part(self, name: str, **where: Index) -> Tensor:
        """The value at places given by axis letter; an integer drops its axis. Of a mixer's n² weights only the asked
        rows `t` and heads `h` (or channels `f`, `d`) are computed, and of what follows the last block only the rows."""
        axes = self.axes(name)
        check_letters(where, axes, name)
        stack, _ = self._place(name)
        letters = self._part_axes(name)
        if name in self._cache or not any(letter in where for letter in letters):
            return picked(self[name], axes, where, name)
        sizes = dict(self.sizes(name))
        places = {axis: indices(where.get(axis), sizes[axis], name, axis) for axis in letters}
        self._make_room(name, self._working_bytes(name, **{axis: len(found) for axis, found in places.items()}))
        rows, heads = (
            torch.tensor(places[axis], dtype=torch.long, device=stack.tokens.device) if axis in places else None
            for axis in ("t", head_axis(axes))
        )
        value = self._again(stack, name, rows, heads)
        kept = {one: slice(None) if single(where[one]) is None else 0 for one in letters if one in where}
        return picked(value, axes, {**where, **kept}, name)

    def _part_axes(self, name: str) -> tuple[str, ...]:
        """Along which axes some places of a value are worked out without the others."""
        layer, _, short = name.rpartition(".")
        axes = self.axes(name)
        if short in in_parts(self.model.get_submodule(layer)) and not self._edits_of(layer):
            return tuple(letter for letter in ("t", head_axis(axes)) if letter)
        late = self._place(name)[0].is_late(name) and "t" in axes.split()
        return ("t",) if late and not any(stack.edited_late for stack in self.stacks) else ()

    def rows_at_once(self, name: str, **some: int) -> int:
        """How many rows of a value `part` can work out within the memory limit, of other axes so many places (h=1); all
        where it works out the whole in any case."""
        whole = dict(self.sizes(name))["t"]
        if "t" not in self._part_axes(name):
            return whole
        room = max(0, self.limit_bytes - self._held_bytes())
        return min(whole, room // self._working_bytes(name, **some, t=1))

    def beside(self) -> Self:
        """The same run with a cache of its own, to be looked at by another thread at the same time."""
        other = copy.copy(self)
        other._cache = OrderedDict()
        return other

    def difference(self) -> dict[str, float]:
        """The largest difference between the fast path and the written-out one, of the output of each part that has two
        (its `written_out` names what makes it write) from the same input, relative to that output's largest number."""
        if self._difference is None:
            tapped = {name.rpartition(".")[0] for name in self.names()}  # a QK-norm has no tap of its own
            parts = [m for m in self.model.modules() if getattr(m, "written_out", ()) and m.path in tapped]
            self._difference = {f"{part.path}.out": difference_of(self, part) for part in parts}
        return self._difference

    # ------------------------------------------------------------ saving

    def save(self, path: Path | str, names: Iterable[str] | None = None) -> None:
        """Write values (None: all) one by one into a safetensors file with axes, labels (of row 0), cards and spec."""
        chosen = self.names() if names is None else [names] if isinstance(names, str) else list(names)
        for name in chosen:  # all of them before anything is written
            self._make_room(name, self._working_bytes(name))
        keys = ("t", "s") if len(self.stacks) == 1 else ("t", "s", "encoder.t", "encoder.s")
        keys = (*keys, "k") if self.axes(self.stacks[-1].output).endswith("k") else keys
        keys += ("encoder.w",) if "w" in self.stacks[0].sizes else ()
        write(
            Path(path),
            {name: (self._one[name].dtype, [size for _, size in self.sizes(name)]) for name in chosen},
            self.__getitem__,
            axes={name: self.axes(name) for name in chosen},
            labels={key: self._token_labels(key) for key in keys},
            cards={name: self.card(name) for name in chosen},
            spec=to_json(self.model.spec, None),
        )

    # ------------------------------------------------------------ recomputation

    def _again(self, stack: Stack, name: str, *where: Tensor | None, **how: Any) -> Tensor:
        """Stack.again, for a model that is still the same."""
        if stamp(self.model) != self._stamp:
            raise InputError("the model's parameters have changed since this run; trace it again")
        return stack.again(name, *where, **how)

    def _place(self, name: str) -> tuple[Stack, int | None]:
        """The stack and the block that a name belongs to; block None: embedding, last norm or head."""
        self.axes(name)
        stack = next(s for s in self.stacks if name.startswith(s.prefix))
        return stack, stack.block_of(name)

    def _edits_of(self, layer: str) -> bool:
        """Whether an edit acts within this mixer, at places that a recomputation of some rows would miss."""
        return any(edit.name in {f"{layer}.{short}" for short in ON_THE_WAY} for edit in self.acting)

    # ------------------------------------------------------------ memory

    @property
    def stored_bytes(self) -> int:
        """Bytes the trace holds now: kept block inputs, the encoder's output and cached values."""
        return self._held_bytes() + sum(v.nbytes for v in self._cache.values())

    def _held_bytes(self) -> int:
        """Bytes of what the trace needs in order to recompute anything at all."""
        memories = [stack.call.memory for stack in self.stacks if stack.call.memory is not None]
        return sum(v.nbytes for stack in self.stacks for v in stack.kept.values()) + sum(v.nbytes for v in memories)

    def _remember(self, name: str, value: Tensor) -> None:
        """Cache a value, dropping the ones asked for longest ago; a value larger than the room left is not cached."""
        if value.nbytes <= self.limit_bytes - self._held_bytes():
            self._drop(value.nbytes)
            self._cache[name] = value

    def _drop(self, needed: int) -> None:
        """Drop cached values, those asked for longest ago first, until the limit has room for as many bytes."""
        while self._cache and self.stored_bytes + needed > self.limit_bytes:
            self._cache.popitem(last=False)

    def _most_held(self) -> int:
        """Bytes that the inputs of all blocks and a memory take: a larger limit keeps more of them, up to these."""
        return sum(s.numbers * s.item_bytes * (len(s.model.blocks) + 1 + (s.prefix == "encoder.")) for s in self.stacks)

    def _working_bytes(self, name: str, **some: int) -> int:
        """Bytes needed at once to compute a value, or of some axes only so many places (t=64, h=1)."""
        stack, _ = self._place(name)
        return stack.working_bytes(name, dict(self.sizes(name)) | some)

    def _make_room(self, name: str, working: int) -> None:
        """Drop cached values that do not fit beside `working` bytes; MemoryLimitError where even these do not fit."""
        if working + self._held_bytes() > self.limit_bytes:
            needed = working + self._most_held()
            fewer = self._fewer(name)
            raise MemoryLimitError(
                f"{name} needs {needed:,} bytes and the limit is {self.limit_bytes:,}; "
                f"{fewer}raise the limit (--memory)"
            )
        self._drop(working)

    def _fewer(self, name: str) -> str:
        """How to ask for a part of a value that fits, as far as there is one."""
        letters = self._part_axes(name)
        if not letters:
            return ""
        rows = min(64, self.rows_at_once(name, **dict.fromkeys(letters[1:], 1)))
        example = ", ".join([repr(name), *(f"{axis}=0" for axis in letters[1:]), f"t=slice(0, {rows})"])
        return f"ask for a part, trace.part({example}), or " if rows else ""

    # ------------------------------------------------------------ names

    def _known(self) -> dict[str, str]:
        """Axes by name, found by running the model over one token, or one image, with everything looked at."""
        if self._axes is None:
            probe = Probe()
            with torch.no_grad():
                self.model(*[stack.example() for stack in self.stacks], probe=probe)
            self._axes = probe.axes
            self._one = probe.values
        return self._axes
