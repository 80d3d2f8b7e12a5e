"""From a number that a run ended in back to all that was added on the way, block by block.

Every block is run again from what entered it, held still (`frozen`), and the gradient of the number goes back through
it once. What a part of it gave is either an end of the way (`cut`), so that the number is a sum of what parts wrote
into the residual stream, or passed as well, down to the embeddings and biases.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..block import Block
from ..call import Call
from ..errors import MemoryLimitError
from ..mixers.cuts import mixed
from ..mixers.matrix import MatrixMixer
from ..mixers.multihead import SoftmaxAttention
from ..rerun import Stack
from ..state import Last, before
from ..tap import address
from ..trace import Trace
from .acting import acting_in, looks_ahead
from .explainer import length_of
from .frozen import GATING, Frozen, FrozenProbe, gradients, written_out
from .quantity import exact

CLASS_TOKENS = ("embed.first", "embed.second")  # of an image: learned vectors before its patches
ROWS = 64  # of weights that are worked on at once
Kind = Literal["embedding", "position", "head", "mixer", "cross", "channel", "start", "bias", "edit", "constant"]
Of = Literal["text", "source"]
EMBEDDED = {"token": "embedding", "previous": "embedding", "types": "embedding", "position": "position"}
EMBEDDED |= {"second": "embedding", "patch": "embedding"}  # of a sound and of an image


@dataclass(frozen=True, eq=False)
class Part:
    """Something that was added on the way, and how much of the number it is.

    kind    embedding, position; head (of attention or of a layer like it) and mixer, by the token that it was read
            from; cross: the same from the source's tokens; channel; start: a state that an encoder handed over; bias;
            edit: what an edit put there; constant: what belongs to the number itself
    name    of the traced value or parameter
    layer   the block's number; None: before the first or behind the last
    prefix  of the stack whose block it is
    axes    of `values`: t, the token at which it was added; s, the token that it was read from; h, the head
    of      whose places s are: those of the stack's own text or of its source
    values  in fp64; their sum is the part
    vectors what it adds to the explained vector, with an axis `d` behind those of `values`; None: not asked for, or it
            is added behind that vector
    """

    kind: Kind
    name: str
    layer: int | None
    prefix: str
    axes: str
    values: Tensor
    of: Of = "text"
    vectors: Tensor | None = None

    @property
    def total(self) -> float:
        """The part as one number."""
        return self.values.sum().item()


@dataclass(eq=False)
class _Inner:
    """One part of a block as it was run: what it gave, as the wiring got it, and the leaves of its graph by what they
    are: ("bias", name) and such, or how a gradient is asked for."""

    part: nn.Module
    out: Tensor
    given: Tensor
    probe: FrozenProbe
    leaves: dict[Any, Tensor]


class Walk:
    """The way back through one stack, of one row of the batch. A gradient may be those of several numbers, with an axis
    `k` before all others; then so have the values of the parts.

    rows   the places whose vectors the number depends on; all where edits acted or the way goes on through the parts
    cut    whether it ends at what the parts gave
    parts  what was found on the way so far
    memory, handed  where it went on: the gradients of what the encoder gave and of the states that it handed over
    """

    def __init__(self, trace: Trace, stack: Stack, row: int, rows: Sequence[int], cut: bool) -> None:
        self.trace, self.stack, self.row, self.cut = trace, stack, row, cut
        self.length = length_of(stack)
        self.rows = list(rows) if cut and not trace.edits else list(range(self.length))
        self.parts: list[Part] = []
        self.call = of_row(stack.call, row)
        self.acting, self.opened = acting_in(trace, row), looks_ahead(trace)
        self.memory: Tensor | None = None
        self.handed: dict[int, Tensor] = {}

    @property
    def few(self) -> bool:
        """Whether only some rows are worked out."""
        return len(self.rows) < self.length

    def after(self, blocks: int) -> Tensor:
        """What leaves so many blocks, `1 t d`."""
        return self.trace[self.stack.entry(blocks)][self.row : self.row + 1].detach()

    # ------------------------------------------------------------ the way

    def from_end(self, number: Callable[[Tensor], Tensor], late: bool = True) -> Tensor:
        """The gradient `1 r d` at the rows of what leaves the last block, of a number of what the stack ends in. late:
        whether a row of the end needs that row alone."""
        u = self._ended(lambda x, call: number(self.stack.model.finish(x, call)), late=late)
        if not late and self.cut and not self.trace.edits:
            self.rows = u[0].any(-1).nonzero()[:, 0].tolist()
        return u if late else u[:, self.rows]

    def from_norm(self, towards: Tensor) -> Tensor:
        """The same, of a gradient `1 t d` behind the last norm."""
        return self._ended(self.stack.model.normed, towards)

    def _ended(
        self, ending: Callable[[Tensor, Call], Tensor], towards: Tensor | None = None, late: bool = True
    ) -> Tensor:
        model, x = self.stack.model, self.after(len(self.stack.model.blocks))
        x = (x[:, self.rows] if late else x).clone().requires_grad_()
        probe = FrozenProbe(self.acting)
        call = replace(self.call, probe=probe, shared={})
        with torch.enable_grad(), Frozen([model.norm, model.head]) as mode:
            y = ending(x, call)
        return self._collected(None, y, {"x": x} | _constants(mode, probe), towards)["x"]

    def through(self, i: int, u: Tensor, at: str = "resid_out", ended: Tensor | None = None) -> Tensor:
        """The gradient `1 r d` at the rows of what enters block i, where u is that of its value `at`; ended: that of
        the last state of its recurrence."""
        block, entered = self.stack.model.blocks[i], self.after(i)
        x = (entered[:, self.rows] if self.few else entered).clone().requires_grad_()
        probe, inner, ends = FrozenProbe(self.acting, record={at}), {}, []
        call = replace(self.call, probe=probe, shared={}, ends=ends)

        def run(which: str) -> Callable[[Tensor], Tensor]:
            def given(read: Tensor) -> Tensor:
                if which == "mixer" and self.few:  # which reads all places
                    read = block.reads(entered, replace(call, probe=None))
                inner[which] = self._run(which, getattr(block, which), read, call, mode)
                return inner[which].given

            return given

        with torch.enable_grad(), Frozen([block]) as mode:
            block.wired(x, run("mixer"), run("cross"), run("channel"), call)
            y, towards = probe.values[f"{block.path}.{at}"], u
            if ended is not None:
                y = torch.cat((y.flatten(), ends[0].flatten()))
                towards = torch.cat((u.flatten(-3), ended.flatten(-ends[0].ndim)), -1)
        leaves = {"x": x} | _constants(mode, probe)
        for which, one in inner.items():
            leaves |= {which: one.given} if self.cut else one.leaves
        found = self._collected(i, y, leaves, towards)
        end = self._end(block, u)
        found["x"][..., [place >= end for place in self.rows], :] = 0
        for which, one in inner.items():
            if not self.cut:
                self._passed(one, found)
            elif found[which].any():  # otherwise it comes behind what is explained
                self._split(i, which, one, found[which], mode, end)
        return found["x"]

    def embedded(self, u: Tensor) -> None:
        """The parts of the embedding, where u is the gradient at the rows of what it gives."""
        embed = self.stack.model.embed
        probe = FrozenProbe(self.acting, {address(embed.path, name) for name in EMBEDDED})
        call = replace(self.call, probe=probe, shared={})
        with torch.enable_grad(), Frozen([embed]) as mode:
            y = embed(self.stack.tokens[self.row : self.row + 1], call)[0][:, self.rows]
        leaves = probe.leaves | _constants(mode, probe)
        found = self._collected(None, y, leaves, u)
        for place, name in enumerate(CLASS_TOKENS):
            if ("bias", name) in found:
                share = _dot(found["bias", name], leaves["bias", name])[..., None]
                self._add("embedding", name, None, "t", F.one_hot(torch.tensor(place), self.length) * share)
        for full, leaf in probe.leaves.items():
            values = F.pad(_share(found[full], leaf), (self.length - leaf.shape[1], 0))  # behind an image's class token
            short = full.rpartition(".")[2]
            if short == "previous":
                self._add("embedding", full, None, "s", torch.zeros_like(values).index_add(-1, self._earlier(), values))
            else:
                self._add(EMBEDDED[short], full, None, "t", values)

    def _earlier(self) -> Tensor:
        """The place of the token before each token, `t`; of one that has none its own."""
        places = torch.arange(self.length, device=self.call.pos.device)[None]
        earlier, exists, _ = before(places, Last.none(places[:, 0]), self.call.pos, self.call.segments)
        return torch.where(exists, earlier, places)[0].cpu()

    # ------------------------------------------------------------ parts of a block

    def _run(self, which: str, part: nn.Module, read: Tensor, call: Call, mode: Frozen) -> _Inner:
        """One part of a block over what it reads, held still."""
        path, heads = part.path, self.cut and isinstance(part, BY_HEADS)
        heads = heads and not self._read_again(path)
        read = read.detach().requires_grad_(not heads and which != "channel") if self.cut else read
        record = {"pattern", "weights", "v"} if heads else written_out(part)
        if heads:
            self._check_room(part)
        probe = FrozenProbe(self.acting, {f"{path}.z"} if heads else (), record)
        leaves: dict[Any, Tensor] = {"read": read} if self.cut and read.requires_grad else {}
        few = self.few and which == "mixer"
        rows = torch.tensor(self.rows, device=read.device) if few and part.in_parts else None
        how: dict[str, Any] = {"probe": probe, "shared": {}, "rows": rows}
        if call.memory is not None and not heads and which != "channel":
            leaves["memory", path] = how["memory"] = call.memory.detach().requires_grad_()
            how["handed"] = tuple(one.detach().requires_grad_() for one in call.handed)
            leaves |= {("handed", path, j): one for j, one in enumerate(how["handed"])}
        call, before = replace(call, **how), len(mode.offsets)
        mode.gating = isinstance(part, GATING)
        out = part(read, call) if which == "channel" else mixed(part, read, call)[0]
        mode.gating = False
        out = out[:, self.rows] if few and rows is None else out
        leaves |= probe.leaves
        leaves |= {("bias", f"{path} f(0) {j}"): one for j, one in enumerate(mode.offsets[before:])}
        leaves |= {("edit", name): one for name, one in probe.constants.items()}
        return _Inner(part, out, out.detach().requires_grad_() if self.cut else out, probe, leaves)

    def _read_again(self, path: str) -> bool:
        """Whether an edge of this mixer is cut by reading the text without a token: then no weight says so."""
        return any(edit.kind == "cut" and edit.name == f"{path}.out" for edit in self.acting)

    def _check_room(self, part: nn.Module) -> None:
        """Raise MemoryLimitError where the weights of all rows that are needed do not fit at once."""
        name = f"{part.path}.{weights_of(part)}"
        if self.trace.rows_at_once(name) < len(self.rows):
            raise MemoryLimitError(
                f"the weights of {len(self.rows)} tokens, {name}, do not fit into the limit of "
                f"{self.trace.limit_bytes:,} bytes; give a shorter text, or raise the limit (--memory)"
            )

    def _split(self, i: int, which: str, one: _Inner, towards: Tensor, mode: Frozen, end: int) -> None:
        """What a part of block i gave, by the tokens that it read; towards: the gradient at what it gave; end: the
        first place that it cannot see."""
        path = one.part.path
        if which == "channel":
            self._add("channel", f"{path}.out", i, "t", self._placed(_share(towards, one.out)))
            return
        found = self._collected(i, one.out, one.leaves | _constants(mode), towards)
        if f"{path}.z" in one.leaves:
            values = _by_heads(found[f"{path}.z"][..., 0, :, :, :], one)
            self._add("head" if which == "mixer" else "cross", f"{path}.head_out", i, "h s", values)
            return
        values = _share(found["read"], one.leaves["read"])
        values[..., end:] = 0
        self._add("mixer", f"{path}.out", i, "s", values)
        for key in one.leaves:
            if key[0] == "memory" and one.part.reads_memory:
                self._add("cross", f"{path}.out", i, "s", _share(found[key], one.leaves[key]))
            elif key[0] == "handed" and getattr(one.part, "start", None) is not None:
                self._add("start", f"{path}.start.{key[2]}", i, "", _dot(found[key], one.leaves[key]))

    def _end(self, block: Block, u: Tensor) -> int:
        """The first place that the number cannot depend on: behind those of u, in a causal block, where the way back
        through a Fourier transform leaves rounding errors."""
        last = u.flatten(0, -3).any(-1).any(0).nonzero()
        ends = block.mixer.causal and len(last) and not self.opened
        return self.rows[int(last.max())] + 1 if ends else self.length

    def _passed(self, one: _Inner, found: dict[Any, Tensor]) -> None:
        """Add up what goes on into the encoder."""
        for key in one.leaves:
            if key[0] == "memory":
                self.memory = found[key] if self.memory is None else self.memory + found[key]
            elif key[0] == "handed":
                before = self.handed.get(key[2])
                self.handed[key[2]] = found[key] if before is None else before + found[key]

    # ------------------------------------------------------------ what was found

    def _collected(
        self, i: int | None, y: Tensor, leaves: dict[Any, Tensor], towards: Tensor | None = None
    ) -> dict[Any, Tensor]:
        """The gradient of y at each leaf; of biases and of what edits have put there the parts are kept."""
        found = gradients(y, leaves, towards)
        for key, leaf in leaves.items():
            if key[0] in ("bias", "edit") and found[key].any() and key[1] not in CLASS_TOKENS:
                self._add(key[0], key[1], i, "", _dot(found[key], leaf))
        return found

    def _add(self, kind: Kind, name: str, layer: int | None, axes: str, values: Tensor) -> None:
        of = "source" if kind == "cross" else "text"
        self.parts.append(Part(kind, name, layer, self.stack.prefix, axes, values, of))

    def _placed(self, values: Tensor) -> Tensor:
        """Numbers of the rows, `r`, at their places among all, `t`."""
        whole = values.new_zeros(*values.shape[:-1], self.length)
        whole[..., self.rows] = values
        return whole


BY_HEADS = (SoftmaxAttention, MatrixMixer)


def weights_of(part: nn.Module) -> str:
    """The name of the weights by which such a part sums up its values."""
    return "pattern" if isinstance(part, SoftmaxAttention) else "weights"


def _share(grad: Tensor, leaf: Tensor) -> Tensor:
    """⟨∂y/∂p_t, p_t⟩ of each place of `1 t d`, in fp64: `t`."""
    return (exact(grad) * exact(leaf)).sum(-1)[..., 0, :]


def _dot(grad: Tensor, leaf: Tensor) -> Tensor:
    """⟨∂y/∂p, p⟩ of all of p, in fp64: one number for each of those of grad."""
    return (exact(grad) * exact(leaf)).reshape(*grad.shape[: grad.ndim - leaf.ndim], -1).sum(-1)


def _constants(mode: Frozen, probe: FrozenProbe | None = None) -> dict[Any, Tensor]:
    """The leaves that are added by themselves: biases, and what edits have put there."""
    edited = {} if probe is None else {("edit", name): one for name, one in probe.constants.items()}
    return {("bias", name): one for name, one in mode.constants.items()} | edited


def _by_heads(grads: Tensor, one: _Inner) -> Tensor:
    """Σ_t w_hts ⟨∂y/∂z_th, v_s⟩, `h s`, of the gradients at z `t h e`: z_th = Σ_s w_hts v_s."""
    path, values = one.part.path, one.probe.values
    weights = values[f"{path}.{weights_of(one.part)}"][0]  # h t s
    v, grads = exact(values[f"{path}.v"][0]), exact(grads)
    v = v.repeat_interleave(len(weights) // v.shape[1], 1)  # s h e
    total = v.new_zeros(*grads.shape[:-3], len(weights), len(v))
    for t in range(0, weights.shape[1], ROWS):
        some = slice(t, t + ROWS)
        total += (torch.einsum("...the,she->...hts", grads[..., some, :, :], v) * exact(weights[:, some])).sum(-2)
    return total


def of_row(call: Call, row: int) -> Call:
    """The call of one row of a batch."""

    def one(value: Tensor | None) -> Tensor | None:
        return value if value is None or len(value) == 1 else value[row : row + 1]

    per_row = ("pos", "segments", "memory", "memory_pos", "types", "places")
    handed = tuple(one(value) for value in call.handed)
    return replace(call, **{name: one(getattr(call, name)) for name in per_row}, handed=handed)
