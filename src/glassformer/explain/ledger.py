"""The ledger: one number of a run as the exact sum of all that was added on the way to it.

    logit = Σ_t embedding + Σ_t position + Σ_{l,h,s} head l.h reading token s + Σ_l MLP + Σ biases

With the scales of the norms, the gates and the patterns as they were in this run every summand is ⟨∂y/∂p, p⟩ of what
was added, p, and none is what the others leave over (Elhage et al. 2021; of whole networks Modarressi et al. 2023).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ..errors import InputError
from ..mixers.recurrent import Recurrent
from ..trace import Trace
from .explainer import Report, has_tokens, quiet
from .target import Found, Target, found
from .walk import Part, Walk

Depth = Literal["parts", "tokens"]
EXACT = 1e-4  # the closure error of a run in fp32 is less
SMALL = 1e-2  # of its largest part: a number below that is measured by this part


@dataclass(frozen=True, eq=False)
class Ledger:
    """A number and its parts.

    whole  the number, of the run itself and not of what was worked out for the parts
    parts  in the order from the embedding to the end
    says   which number it is
    """

    whole: float
    parts: tuple[Part, ...]
    says: str

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
    report: Report = quiet,
) -> Ledger:
    """The ledger of one number of a run.

    depth      parts: by what each part of the model wrote into the residual stream of the target's place, of heads and
               other token mixers by the token they read; tokens: through all of them down to the embeddings and biases
               of all places
    row        of the batch
    direction  `d`, along which a vector is measured; None: along itself, so that the number is its length

    Raises InputError for a target that does not exist, and for a model whose layers do not work on tokens.
    """
    if not has_tokens(trace):
        raise InputError("the layers of this model work on no tokens, so there is no ledger of their vectors")
    one = found(trace, target or Target(), row, direction)
    parts = _walked(trace, one, depth == "parts", row, report)
    parts += [
        Part("constant", name, None, one.stack.prefix, "", torch.tensor(value, dtype=torch.float64))
        for name, value in one.constants.items()
    ]
    return Ledger(one.whole, tuple(sorted(parts, key=_order)), one.says)


def _order(part: Part) -> tuple[bool, float]:
    """The place of a part on the way from the embedding to the end, that of an encoder first."""
    embedded = part.name.startswith(f"{part.prefix}embed.")
    return part.prefix != "encoder.", -1 if embedded else math.inf if part.layer is None else part.layer


def _walked(trace: Trace, one: Found, cut: bool, row: int, report: Report) -> list[Part]:
    walk = Walk(trace, one.stack, row, one.rows, cut)
    blocks = len(one.stack.model.blocks)
    if one.number is not None:
        u, start = walk.from_end(one.number, one.late), blocks
    else:
        start = 0 if one.layer is None else one.layer + 1
        u = torch.zeros(1, len(walk.rows), len(one.direction), dtype=torch.float64)
        u[0, walk.rows.index(one.rows[0])] = one.direction
        u = u.to(walk.after(start))
    at = one.at if one.number is None else "resid_out"
    for i in reversed(range(start)):
        report(blocks - 1 - i, blocks)
        u = walk.through(i, u, at)
        at = "resid_out"
    walk.embedded(u)
    before = [] if cut or walk.memory is None else _through_encoder(trace, walk, row)
    return before + walk.parts


def _through_encoder(trace: Trace, decoder: Walk, row: int) -> list[Part]:
    """The parts of the encoder, of what its output and the states that it handed over were read for."""
    stack, memory = trace.stacks[0], decoder.memory
    walk = Walk(trace, stack, row, [], False)
    u = walk.from_end(lambda end: (end * memory).sum(), head=False)
    recurrent = [i for i, block in enumerate(stack.model.blocks) if isinstance(block.mixer, Recurrent)]
    handed = {i: decoder.handed[j] for j, i in enumerate(recurrent) if j in decoder.handed}
    for i in reversed(range(len(stack.model.blocks))):
        u = walk.through(i, u, ended=handed.get(i))
    walk.embedded(u)
    return walk.parts
