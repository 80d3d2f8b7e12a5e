"""The number that is explained, as a function of what the model reads and of what goes on inside it.

An attribution says what one number of a run comes from; whether that is so, other runs tell: of the same text with some
tokens taken out, or with another vector somewhere. All of these runs are made here, many at once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from ..block import BlockState
from ..call import Call
from ..data.published import Published
from ..edit import Edit
from ..errors import InputError, MemoryLimitError, UnsupportedError
from ..positions import POSITIONS, relocated
from ..tap import Documents, Probe, Tap, address, whole
from ..trace import Trace
from .acting import acting_in, looks_ahead
from .entry import entered, fixed, tables
from .explainer import Report, cells_of, quiet
from .explanation import Said
from .mixing import widened
from .quantity import exact
from .target import Target, called, found

Baseline = Literal["delete", "mask", "pad", "mean"]
COPIES, KEPT = 64, 48  # of the text in one run; numbers that are alive for each of what enters a block
ROLES = ("mask", "unk", "pad")  # the special token that stands for one that is taken out, the best first


class Changing(Probe):
    """Changes tapped values on the way, by their full names, as the edits of the run have left them."""

    def __init__(self, changes: Mapping[str, Callable[[Tensor], Tensor]], edits: tuple[Edit, ...] = ()) -> None:
        super().__init__(lambda name: False, edits)
        self.changes = changes

    def wants(self, name: str) -> bool:
        """Whether the value must be computed explicitly."""
        return name in self.changes or super().wants(name)

    def at(self, path: str, documents: Documents = whole) -> Tap:
        """The tap of the layer at `path`."""
        edited = super().at(path, documents)

        def tap(name: str, value: Tensor, axes: str = "") -> Tensor:
            value, change = edited(name, value, axes), self.changes.get(address(path, name))
            return value if change is None else change(value)

        return tap


WHAT = {
    "logit": ("the logit of", "의 로짓"),
    "difference": ("the difference of the logits of", "의 로짓 차이"),
    "log-probability": ("the log probability of", "의 로그 확률"),
}


ALONG = Said(
    "along its own direction in this run the last vector of", "마지막 벡터가 이 실행에서의 제 방향으로 뻗은 길이"
)


class Answer:
    """The number that `target` picks, of runs that differ from a trace's in what one stack reads: the text's, or with
    of="source" that of a pair's source. Every way to ask gives numbers `b`, one for each run. The edits of the trace
    act in all of them, at the same tokens.

    kind     what is read: "tokens", of an image its "patches" or "pixels"
    side     of an image so many of them stand in a row, and in a column; None: they stand in one row
    usual    how they are taken out where nothing else is asked for
    """

    kind: Literal["tokens", "patches", "pixels"] = "tokens"
    side: int | None = None
    usual: Baseline = "delete"

    def __init__(self, trace: Trace, target: Target, of: Literal["text", "source"] = "text") -> None:
        """Raises UnsupportedError for what has no tokens, InputError for a target that does not exist in this run."""
        if of == "source" and len(trace.stacks) == 1:
            raise InputError("of: only an encoder-decoder has a source; use text")
        picked = found(trace, target)
        if picked.number is None and target.vector:
            raise UnsupportedError(
                "vector: what is explained by other runs is the vector that leaves the last block; leave vector out"
            )
        self.direction = picked.direction
        self.trace, self.target, self.of = trace, target, of
        self.place = picked.rows[0] if picked.late else None  # of a text's classes there is none
        self.candidate, self.against = picked.candidate, picked.against
        self.last = trace.stacks[-1]
        self.stack = trace.stacks[0] if of == "source" else self.last
        if self.stack.units == "samples":
            raise UnsupportedError("a sound has no tokens that could be taken out; explain the written text (of=text)")
        self.edits = acting_in(trace, 0)
        self.late = any(self.last.is_late(one.name) for one in self.edits)
        self.tokens = self.stack.tokens[:1]
        self.length = self.tokens.shape[1]

    @property
    def said(self) -> Said:
        """What the number is called."""
        if self.direction is not None:
            token = cells_of(self.trace, self.last)[self.place].text
            return Said(f"how far {ALONG.en} “{token}” reaches", f"‘{token}’ 자리에서 {ALONG.ko}")
        names = [called(self.trace, one) for one in (self.candidate, self.against) if one is not None]
        en, ko = WHAT.get(self.target.what, WHAT["logit"])
        return Said(f"{en} “{'” and “'.join(names)}”", f"‘{'’와 ‘'.join(names)}’{ko}")

    @property
    def value(self) -> float:
        """The number of the run itself."""
        return self.of_tokens(self.tokens).item()

    @property
    def end(self) -> int | None:
        """Where what the target's place can see ends; None: it sees the whole text."""
        seen = self.place is not None and self.of == "text" and self.stack.model.causal and not looks_ahead(self.trace)
        return self.place + 1 if seen else None

    @property
    def removable(self) -> list[int]:
        """The places whose tokens can be taken out: those of the text that the target's place can see, without special
        tokens and without that place itself, at which the number is read."""
        source = len(self.trace.stacks) == 2 and self.stack is self.trace.stacks[0]
        cells = self.trace.source_cells("token") if source else self.trace.cells("token")
        place, end = None if self.of == "source" else self.place, self.end or self.length
        spoken = [t for t in range(end) if t != place and cells[t].source]
        return spoken or [t for t in range(end) if t != place]

    def own(self, scores: Tensor) -> Tensor:
        """Of scores of what the blocks work on those of what is read."""
        return scores

    def at_once(self) -> int:
        """How many runs are made together."""
        return max(
            1, min(COPIES, self.trace.limit_bytes // (4 * KEPT * max(one.block_bytes for one in self.trace.stacks)))
        )

    # ------------------------------------------------------------ runs of another text

    def of_tokens(self, tokens: Tensor, pos: Tensor | None = None) -> Tensor:
        """Of other token ids `b s`, at positions pos `b s` (-1: no token there; None: as they were)."""
        return self._run(len(tokens), pos, lambda call: self.stack.model.embed(tokens, call)[0])

    def of_rows(self, x: Tensor, probe: Probe | None = None) -> Tensor:
        """Of other vectors of the tokens `b s d`, in the place of their rows of the tables."""
        return self._run(len(x), None, lambda call: entered(self.stack.model, x, call), probe)

    @property
    def rows(self) -> Tensor:
        """The tokens' rows of the tables, `1 s d`."""
        return fixed(self.stack.model, self.tokens)

    def rows_of(self, second: Tensor) -> Tensor:
        """The rows of another text's tokens, `1 s d`. Raises InputError where it has more of them, or fewer."""
        if second.shape != self.tokens.shape:
            raise InputError(
                f"second: it has {second.shape[1]} tokens and this text has {self.length}; give one of as many"
            )
        return fixed(self.stack.model, second.to(self.tokens.device))

    @property
    def mean_row(self) -> Tensor:
        """The mean of all rows of the tables, `d`."""
        return torch.cat([table.mean(0) for table in tables(self.stack.model).values()])

    def padding(self) -> int:
        """The id of the token that stands for none. Raises InputError for a tokenizer that has no such token."""
        loaded = self.trace.loaded
        tokenizer = (loaded.source if self.of == "source" else None) or loaded.tokenizer
        if isinstance(tokenizer, Published):
            found = [tokenizer.role(role) for role in ROLES]
            known = [one for one in found if one is not None and one < self.stack.model.spec.vocab]
            if known:
                return known[0]
        raise InputError(
            "this tokenizer has no token for a mask, for the unknown or for padding; use delete, mask or mean"
        )

    def nothing_gone(self, runs: int) -> Tensor:
        """False for every place of so many runs, `b s`, in which what is taken out can be marked. Raises
        MemoryLimitError where these marks take more than the limit of the trace."""
        if runs * self.length > self.trace.limit_bytes:
            raise MemoryLimitError(
                f"taking out so many places one by one takes {runs * self.length:,} bytes, more than the limit of "
                f"{self.trace.limit_bytes:,} bytes; use gradient or integrated, or raise the limit (--memory)"
            )
        return torch.zeros(runs, self.length, dtype=torch.bool)

    @torch.no_grad()
    def without(self, gone: Tensor, baseline: Baseline, report: Report = quiet) -> Tensor:
        """Of the text without the tokens at which gone `b s` is true, in fp64.

        delete  they are not there, and what stands behind them moves up
        mask    nothing stands in their place: nobody can look there, and all others keep their positions
        pad     the tokenizer's mask, unknown or padding token stands there
        mean    the mean row of the embedding table stands there
        """
        found, parts = [], gone.split(self.at_once())
        for i, part in enumerate(parts):
            report(i, len(parts))
            found.append(self._without(part, baseline).cpu().double())
        return torch.cat(found)

    def _without(self, gone: Tensor, baseline: Baseline) -> Tensor:
        gone = gone.to(self.tokens.device)
        tokens = self.tokens.expand(len(gone), -1)
        if baseline == "pad":
            return self.of_tokens(torch.where(gone, self.padding(), tokens))
        if baseline == "mean":
            return self.of_rows(torch.where(gone[..., None], self.mean_row, self.rows))
        pos = self.stack.call.pos
        pos = pos if baseline == "mask" else (~gone).long().cumsum(1) - 1
        return self.of_tokens(tokens, pos.masked_fill(gone, -1))

    # ------------------------------------------------------------ runs with something else inside

    @torch.no_grad()
    def after(self, block: int, x: Tensor, probe: Probe | None = None) -> Tensor:
        """Of other vectors `b t d` that enter a block (behind the last: that leave it), with what a probe changes on
        the way from there."""
        assert not block or not self.hands, "the last states of the blocks before are missing"
        return self._run(len(x), None, lambda call: x, probe, block)

    def of_last(self, x: Tensor) -> Tensor:
        """Of other vectors `b t d` that leave the last block of the stack that writes; gradients can pass."""
        return self._run(len(x), None, lambda call: x, None, len(self.last.model.blocks))

    @property
    def streams(self) -> bool:
        """Whether what stands before a place can be read once, for all runs that differ from there on."""
        return self.of == "text" and self.place is not None and self.stack.model.causal and not self.edits

    @torch.no_grad()
    def past(self, entering: Sequence[Tensor]) -> list[BlockState]:
        """What each block keeps of the first places, from the vectors `1 p d` that entered it there."""
        p = entering[0].shape[1]
        call = replace(self.stack.call, pos=self.stack.call.pos[:, :p], end=p, shared={})
        blocks = self.stack.model.blocks
        return [block(x, call, block.empty(1, self.length, call))[1] for block, x in zip(blocks, entering, strict=True)]

    @torch.no_grad()
    def behind(self, past: Sequence[BlockState], block: int, x: Tensor, probe: Probe | None = None) -> Tensor:
        """The same as `after` of vectors `b t d` that stand behind a past, up to the answer's place."""
        start = self.place + 1 - x.shape[1]
        pos, row = (
            self.stack.call.pos[:, start : self.place + 1],
            torch.zeros(len(x), dtype=torch.long, device=x.device),
        )
        call = replace(widened(self.stack.call, len(x)), pos=pos, end=self.place + 1, probe=probe, shared={})
        for one, state in list(zip(self.stack.model.blocks, past, strict=True))[block:]:
            x, _ = one(x, call, state.reorder(row))
        return self._read(x, call, -1)

    @torch.no_grad()
    def gradient(self, name: str) -> Tensor:
        """∂f/∂x of a value `t d` tapped in a block of the stack that writes, in fp64."""
        probe, block = self.recording({name}), self.last.block_of(name)
        x = self.trace[self.last.entry(block)][:1]
        with torch.enable_grad():
            f = self._run(1, None, lambda call: x.detach().requires_grad_(), probe, block)
            return exact(torch.autograd.grad(f.sum(), probe.values[name])[0][0])

    def recording(self, names: Collection[str]) -> Probe:
        """What keeps values by their full names, as the edits have left them."""
        return Probe(lambda name: name in names, self.edits)

    def changing(self, changes: Mapping[str, Callable[[Tensor], Tensor]]) -> Changing:
        """What changes values by their full names, as the edits have left them."""
        return Changing(changes, self.edits)

    @property
    def hands(self) -> bool:
        """Whether this is of an encoder whose recurrences hand their last states to the decoder."""
        return self.of == "source" and bool(self.last.call.handed)

    def _run(
        self,
        batch: int,
        pos: Tensor | None,
        begin: Callable[[Call], Tensor],
        probe: Probe | None = None,
        block: int = 0,
    ) -> Tensor:
        """The number `b` of a run whose varied stack begins at a block with `begin(call)`."""
        source, states = self.of == "source", []
        probe = self.recording(()) if probe is None and self.edits else probe
        call = replace(widened(self.stack.call, batch), probe=probe, shared={}, ends=states if source else None)
        if pos is not None:
            call = replace(call, pos=pos, plain=False, end=None)
            name = f"{self.stack.prefix}{POSITIONS}"
            call = relocated(name, self.stack.model, call, batch, self.edits)
        x = begin(call)
        for one in list(self.stack.model.blocks)[block:]:
            x, _ = one(x, call)
        if not source:
            return self._read(x, call, self.place)
        memory = self.stack.model.normed(x, call)
        more = {"memory": memory, "memory_pos": pos, "handed": tuple(states)}
        call = replace(self.last.call, **more, probe=probe, shared={})
        y = self.last.model.embed(self.last.tokens[:1].expand(batch, -1), call)[0]
        for one in self.last.model.blocks:
            y, _ = one(y, call)
        return self._read(y, call, self.place)

    def _read(self, x: Tensor, call: Call, at: int | None) -> Tensor:
        """The number of what left the last block: at the target's place `at`, or of a text that is pooled; or the
        vector itself along what it was in the run."""
        if self.direction is not None:
            vector = x[:, at].to(torch.promote_types(x.dtype, torch.float32))
            return vector @ self.direction.to(vector)
        if at is not None and not self.late:  # an edit behind the blocks names places of the whole text
            x, at = x[:, [at]], 0
        out = self.last.model.finish(x, call)
        out = out if at is None else out[:, at]
        out = out.to(torch.promote_types(out.dtype, torch.float32))
        if self.target.what == "log-probability":
            return out.log_softmax(-1)[:, self.candidate]
        return out[:, self.candidate] - (0 if self.against is None else out[:, self.against])
