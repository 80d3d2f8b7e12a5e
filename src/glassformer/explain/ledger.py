"""The ledger: one number of a run as the exact sum of all that was added on the way to it.

    logit = Σ_t embedding + Σ_t position + Σ_{l,h,s} head l.h reading token s + Σ_l MLP + Σ biases

With the scales of the norms, the gates and the patterns as they were in this run every summand is ⟨∂y/∂p, p⟩ of what
was added, p, and none is what the others leave over (Elhage et al. 2021; of whole networks Modarressi et al. 2023).
The same holds for each number of a vector x of the residual stream, so that x is the sum of the vectors (∂x/∂p) p.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from ..errors import InputError, MemoryLimitError
from ..mixers.recurrent import Recurrent
from ..trace import Trace
from .explainer import Report, has_tokens, length_of, quiet
from .quantity import exact
from .target import Found, Target, found
from .walk import ROWS, Part, Walk

Depth = Literal["parts", "tokens"]
EXACT = 1e-4  # the closure error of a run in fp32 is less
SMALL = 1e-2  # of its largest part: a number below that is measured by this part
ROOM_BYTES, KEPT = 1 << 27, 8  # of the gradients of several numbers at once; numbers kept for each that enters a block


@dataclass(frozen=True, eq=False)
class Ledger:
    """A number and its parts.

    whole  the number, of the run itself and not of what was worked out for the parts
    parts  in the order from the embedding to the end
    says   which number it is
    vector `d`, of the run, what the parts' vectors add up to; None: these were not asked for
    """

    whole: float
    parts: tuple[Part, ...]
    says: str
    vector: Tensor | None = None

    @property
    def total(self) -> float:
        """The sum of all parts."""
        return sum(part.total for part in self.parts)

    @property
    def error(self) -> float:
        """The closure error |Σ parts - whole| / |whole|; where |whole| is below 1 % of the largest part, relative to
        that 1 %."""
        largest = max((part.values.abs().max().item() for part in self.parts), default=0.0)
        return abs(self.total - self.whole) / max(abs(self.whole), SMALL * largest, 1e-30)

    @property
    def apart(self) -> float:
        """The closure error of the vectors, ‖Σ (∂x/∂p) p - x‖ / ‖x‖. Raises InputError where there are none."""
        if self.vector is None:
            raise InputError("this ledger has no vectors; ask for them, as ledger(trace, target, vectors=True)")
        parts = (part.vectors.reshape(-1, len(self.vector)).sum(0) for part in self.parts if part.vectors is not None)
        return (sum(parts, -self.vector).norm() / self.vector.norm().clamp(min=1e-30)).item()

    def by_token(self, length: int, of: str = "text", prefix: str | None = None) -> Tensor:
        """What came from each token, `s` in fp64: its own embedding and position and what was read from it, through
        whatever part. The rest belongs to no token. prefix: of the stack whose tokens they are; None: the last one."""
        total = torch.zeros(length, dtype=torch.float64)
        prefix = self.parts[-1].prefix if prefix is None else prefix
        for part in self.parts:
            if part.axes and part.of == of and part.prefix == prefix:
                total += part.values.sum(0) if part.axes == "h s" else part.values
        return total


def ledger(
    trace: Trace,
    target: Target | None = None,
    depth: Depth = "parts",
    row: int = 0,
    direction: Tensor | None = None,
    vectors: bool = False,
    report: Report = quiet,
) -> Ledger:
    """The ledger of one number of a run.

    depth      parts: by what each part of the model wrote into the residual stream of the target's place, of heads and
               other token mixers by the token they read; tokens: through all of them down to the embeddings and biases
               of all places
    row        of the batch
    direction  `d`, along which a vector is measured; None: along itself, so that the number is its length
    vectors    each part also as the vector that it adds, `Part.vectors`, to the target's vector, or of a logit to what
               leaves the last block at its place. What a part is of the number is that vector along the number's
               gradient there; a way back for each number of the vector

    Raises InputError for a target that does not exist, for a model whose layers do not work on tokens, and for vectors
    of what is read from several places; MemoryLimitError where vectors do not fit into the limit of the trace.
    """
    if not has_tokens(trace):
        raise InputError("the layers of this model work on no tokens, so there is no ledger of their vectors")
    target = target or Target()
    one, cut, vector = found(trace, target, row, direction), depth == "parts", None
    if not vectors:
        parts = _walked(trace, one, cut, row, report)
    else:
        parts, vector = _as_vectors(trace, one, target, cut, row, report)
    parts += [
        Part("constant", name, None, one.stack.prefix, "", torch.tensor(value, dtype=torch.float64))
        for name, value in one.constants.items()
    ]
    return Ledger(one.whole, tuple(sorted(parts, key=_order)), one.says, vector)


def _order(part: Part) -> tuple[bool, float]:
    """The place of a part on the way from the embedding to the end, that of an encoder first."""
    embedded = part.name.startswith(f"{part.prefix}embed.")
    return part.prefix != "encoder.", -1 if embedded else math.inf if part.layer is None else part.layer


def _walked(trace: Trace, one: Found, cut: bool, row: int, report: Report) -> list[Part]:
    walk = Walk(trace, one.stack, row, one.rows, cut)
    u = walk.from_end(one.number, one.late) if one.number is not None else _at(walk, one, one.direction)
    return _downwards(walk, one, u, report)


def _at(walk: Walk, one: Found, directions: Tensor) -> Tensor:
    """The gradient `1 r d` or, of several directions, `k 1 r d` of the target's vector along `d` or `k d`."""
    u = directions.new_zeros(*directions.shape[:-1], 1, len(walk.rows), directions.shape[-1])
    u[..., 0, walk.rows.index(one.rows[0]), :] = directions
    return u.to(walk.after(_behind(one)))


def _behind(one: Found) -> int:
    """How many blocks the target's vector has behind it."""
    if one.number is not None:
        return len(one.stack.model.blocks)
    return 0 if one.layer is None else one.layer + 1


def _downwards(walk: Walk, one: Found, u: Tensor, report: Report) -> list[Part]:
    """All that was added before the target's vector, where u is the gradient at it."""
    blocks, at = len(one.stack.model.blocks), "resid_out" if one.number is not None else one.at
    for i in reversed(range(_behind(one))):
        report(blocks - 1 - i, blocks)
        u = walk.through(i, u, at)
        at = "resid_out"
    walk.embedded(u)
    return ([] if walk.cut or walk.memory is None else _through_encoder(walk)) + walk.parts


def _through_encoder(decoder: Walk) -> list[Part]:
    """The parts of the encoder, of what its output and the states that it handed over were read for."""
    stack = decoder.trace.stacks[0]
    walk = Walk(decoder.trace, stack, decoder.row, [], False)
    u = walk.from_norm(decoder.memory)
    recurrent = [i for i, block in enumerate(stack.model.blocks) if isinstance(block.mixer, Recurrent)]
    handed = {i: decoder.handed[j] for j, i in enumerate(recurrent) if j in decoder.handed}
    for i in reversed(range(len(stack.model.blocks))):
        u = walk.through(i, u, ended=handed.get(i))
    walk.embedded(u)
    return walk.parts


# ---------------------------------------------------------------- parts as vectors


def _as_vectors(
    trace: Trace, one: Found, target: Target, cut: bool, row: int, report: Report
) -> tuple[list[Part], Tensor]:
    """The parts with their vectors, one way back for some of the vector's numbers at a time; and the vector itself."""
    if not one.late:
        raise InputError("vectors: what says a class is read from several places; use what=vector with a token")
    name = target.vector if one.number is None and target.vector else one.stack.entry(len(one.stack.model.blocks))
    whole, after = exact(trace.part(name, b=row, t=one.rows[0])), list[Part]()
    toward = one.direction
    if one.number is not None:
        walk = Walk(trace, one.stack, row, one.rows, cut)
        toward, after = exact(walk.from_end(one.number)[0, walk.rows.index(one.rows[0])]), walk.parts
    some = torch.eye(len(whole), dtype=torch.float64).split(_at_once(one))
    found: list[list[Part]] = []
    for i, directions in enumerate(some):

        def told(done: int, of: int, i: int = i) -> None:
            report(i * of + done, len(some) * of)

        walk = Walk(trace, one.stack, row, one.rows, cut)
        found.append(_downwards(walk, one, _at(walk, one, directions), told))
        _check_room(trace, sum(part.values.numel() for part in found[0]) * 8 // len(some[0]) * len(whole))
    return _joined(found, [len(directions) for directions in some], toward) + after, whole


def _joined(found: list[list[Part]], counts: list[int], toward: Tensor) -> list[Part]:
    """Parts of some numbers of the vector each, as parts of all; a part that none of some depends on is 0 there."""
    known: dict[tuple, list[Tensor | None]] = {}
    for i, parts in enumerate(found):
        for part in parts:
            known.setdefault(_key(part), [None] * len(found))[i] = part.values
    like = {_key(part): part for parts in found for part in parts}
    made = []
    for key, values in known.items():
        shape = like[key].values.shape[1:]
        whole = [
            one if one is not None else torch.zeros(count, *shape, dtype=torch.float64)
            for one, count in zip(values, counts, strict=True)
        ]
        vectors = torch.cat(whole).movedim(0, -1)
        made.append(replace(like[key], values=vectors @ toward, vectors=vectors))
    return made


def _key(part: Part) -> tuple:
    return part.prefix, part.kind, part.name, part.layer, part.axes, part.of


def _at_once(one: Found) -> int:
    """Of how many numbers the gradients are worked out together."""
    n = length_of(one.stack)
    heads = max(getattr(block.mixer, "heads", 1) for block in one.stack.model.blocks)
    return max(1, ROOM_BYTES // (8 * n * (heads * min(n, ROWS) + KEPT * one.stack.dim)))


def _check_room(trace: Trace, size: int) -> None:
    if size > trace.limit_bytes:
        raise MemoryLimitError(
            f"the vectors of all parts take {size:,} bytes, more than the limit of {trace.limit_bytes:,} bytes; leave "
            "vectors out, give a shorter text, or raise the limit (--memory)"
        )
