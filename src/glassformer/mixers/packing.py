"""Rows with gaps and several documents, laid out for kernels that know neither.

Rows are cut into pieces where documents begin, and places without a token are left out. All pieces stand side by side,
the longest first, so that those that are not yet at their end are the first ones at every step (as in PyTorch's
PackedSequence). Steps are taken together in segments, since a kernel needs many at once: a piece that ends within a
segment is filled up with zeros to its end, of which there are at most ROOM in a segment.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

ROOM = 128  # measured with 2,048 tokens in documents of about 40: 64 is as fast, 16 a tenth slower
Parts = tuple[Tensor, ...]
# (x `p i d`, the states before `p n`) -> (hidden states `p i n`, the states after): one segment of p pieces
Kernel = Callable[[Tensor, Parts], tuple[Tensor, Parts]]


@dataclass(frozen=True)
class Packing:
    """Where the tokens of a call stand, once they are laid out.

    segments  (pieces, steps) of each, so that it has pieces × steps places; those of all follow one another
    slot      `(b t)` the place of each token there; beyond the last one, where none is
    owner     `p` the row of each piece, the longest piece first
    fresh     `p` whether it begins with an empty state; otherwise with that of the row
    ended     the rows that have a token, and where the state after their last one is, when those after each segment
              follow one another
    """

    segments: list[tuple[int, int]]
    slot: Tensor
    owner: Tensor
    fresh: Tensor
    ended: tuple[Tensor, Tensor]

    @classmethod
    def of(cls, valid: Tensor, first: Tensor | None) -> Packing:
        """As `window.edges` has them, `b t`: where tokens are, and where they begin a document."""
        batch, t = valid.shape
        place = valid.flatten().nonzero()[:, 0]  # of the N tokens, row after row
        row = place // t
        fresh = torch.zeros_like(row, dtype=torch.bool) if first is None else first.flatten()[place]
        leads = torch.cat((torch.ones_like(fresh[:1]), row[1:] != row[:-1]))
        start = (fresh | leads).nonzero()[:, 0]
        lengths = torch.diff(start, append=start.new_tensor([len(place)]))
        order = lengths.argsort(descending=True, stable=True)
        rank = order.argsort()
        piece = (fresh | leads).long().cumsum(0) - 1
        step = torch.arange(len(place), device=place.device) - start[piece]
        last = torch.cat((leads[1:], torch.ones_like(leads[:1]))).nonzero()[:, 0]  # of each row that has a token
        alive = torch.bincount(step).tolist()  # pieces that are there at each step
        cuts = _cuts(alive, set((step[last] + 1).tolist()))
        segments = [(alive[begin], end - begin) for begin, end in pairwise(cuts)]
        pieces, steps = place.new_tensor(segments).view(-1, 2).unbind(1)
        base, begin, states = (x.cumsum(0) - x for x in (pieces * steps, steps, pieces))
        at = torch.arange(len(steps), device=place.device).repeat_interleave(steps)[step]  # the segment of each token
        slot = torch.full((batch * t,), sum(p * s for p, s in segments), device=place.device)
        slot[place] = base[at] + rank[piece] * steps[at] + step - begin[at]
        ended = row[last], states[at[last]] + rank[piece[last]]
        return cls(segments, slot, row[start][order], fresh[start][order], ended)

    def run(self, kernel: Kernel, x: Tensor, past: Parts) -> tuple[Tensor, Parts]:
        """The kernel over x `b t d`, with the state past `b n` of each row: (hidden states `b t n`, zeros where no
        token is; the state after the last token)."""
        if not self.segments:
            return x.new_zeros(*x.shape[:2], past[0].shape[1]), past
        sizes = [pieces * steps for pieces, steps in self.segments]
        # index_copy, since on its way back it selects; the way back of a selection would add up.
        lines = x.new_zeros(sum(sizes) + 1, x.shape[2]).index_copy(0, self.slot, x.flatten(0, 1)).split([*sizes, 1])
        state = tuple(part[self.owner].masked_fill(self.fresh[:, None], 0) for part in past)
        hidden, states = [], []
        for line, (pieces, steps) in zip(lines, self.segments, strict=False):
            made, state = kernel(line.unflatten(0, (pieces, steps)), tuple(part[:pieces] for part in state))
            hidden.append(made.flatten(0, 1))
            states.append(state)
        places = self.slot.new_full((sum(sizes) + 1,), len(self.slot))
        places[self.slot] = torch.arange(len(self.slot), device=places.device)
        hidden = torch.cat(hidden)
        back = hidden.new_zeros(len(self.slot) + 1, hidden.shape[1]).index_copy(0, places[:-1], hidden)
        (rows, at), every = self.ended, zip(*states, strict=True)
        after = (torch.cat(ones)[at].to(part.dtype) for ones, part in zip(every, past, strict=True))
        parts = tuple(part.index_copy(0, rows, new) for part, new in zip(past, after, strict=True))
        return back[:-1].unflatten(0, x.shape[:2]), parts


def _cuts(alive: list[int], ends: set[int]) -> list[int]:
    """The steps between which segments lie: one ends where it must (a state is wanted after it), at the last step, and
    before more than ROOM places are filled up."""
    cuts, filled = [0], 0
    for step in range(1, len(alive) + 1):
        filled += alive[cuts[-1]] - (alive[step] if step < len(alive) else 0)
        if step in ends or step == len(alive) or filled > ROOM:
            cuts.append(step)
            filled = 0
    return cuts if alive else [0]
