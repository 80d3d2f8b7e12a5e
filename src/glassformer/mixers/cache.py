"""The past of softmax attention: a static cache of every key and value, or a window's whose places are reused."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import InputError
from ..mask import Mask, rows
from ..state import Last, State, written


@dataclass(eq=False)
class Keys(State):
    """Keys and values `b s g e` with their positions `b s` (-1: empty place) and, if packed, segments `b s`.

    places: the positions that a position signal is worked out from, where an edit has moved them.
    As a state it is a static cache: the tensors have room for later tokens, `length` places are taken. `last` is the
    newest key before smearing. `ring` says that places are reused (window attention), `full` that every place
    holds a token, so that no mask is needed (an unpadded encoder memory).
    """

    k: Tensor
    v: Tensor
    pos: Tensor
    segments: Tensor | None = None
    length: int = 0
    last: Last | None = None
    ring: bool = False
    full: bool = False
    places: Tensor | None = None

    def part(self, some: slice) -> Keys:
        """Some of the places, to be looked at."""
        segments, places = (None if x is None else x[:, some] for x in (self.segments, self.places))
        how = {"ring": self.ring, "full": self.full, "places": places}
        return Keys(self.k[:, some], self.v[:, some], self.pos[:, some], segments, **how)

    @property
    def signal(self) -> Tensor:
        """The positions that a position signal is worked out from."""
        return self.pos if self.places is None else self.places


@dataclass(eq=False)
class Asked:
    """Queries `b h t e` with their positions `b t`, if packed their segments, and which of the heads they are."""

    q: Tensor
    pos: Tensor
    segments: Tensor | None
    heads: Tensor | None
    places: Tensor | None = None

    def part(self, some: slice) -> Asked:
        """Some of the queries."""
        segments, places = (None if x is None else x[:, some] for x in (self.segments, self.places))
        return Asked(self.q[:, :, some], self.pos[:, some], segments, self.heads, places)

    @property
    def signal(self) -> Tensor:
        """The positions that a position signal is worked out from."""
        return self.pos if self.places is None else self.places


def appended(past: Keys, new: Keys, mask: Mask) -> tuple[Keys, Keys]:
    """(the keys to look at, the new state): new keys behind the old ones in the static cache."""
    start, end = past.length, past.length + new.k.shape[1]
    if end > past.k.shape[1]:
        raise InputError(f"the cache has room for {past.k.shape[1]} tokens and {end} were given; ask for more room")
    assert (past.segments is None) == (new.segments is None), "a packed call needs a state made by a packed call"
    batch = past.k.shape[0]
    state = Keys(
        written(past.k, start, new.k),
        written(past.v, start, new.v),
        written(past.pos, start, rows(new.pos, batch)),
        None if past.segments is None else written(past.segments, start, rows(new.segments, batch)),
        end,
        new.last,
    )
    seen = None if state.segments is None else state.segments[:, :end]
    return Keys(state.k[:, :end], state.v[:, :end], state.pos[:, :end], seen, end), state


def rolled(past: Keys, new: Keys, mask: Mask) -> tuple[Keys, Keys]:
    """The same for a window or for segments: places are reused once their token can no longer be seen, the pinned
    first positions keep theirs.

    Place of position p: p among the pinned, else pinned + (p - pinned) mod near. The chunk's own keys are looked at
    beside the old places, since a chunk may be longer than what is near.
    """
    near, pinned = mask.near, mask.pinned
    assert new.segments is None, "a packed call needs a state made by a packed call"
    pos = rows(new.pos, past.k.shape[0])
    keys = Keys(new.k, new.v, new.pos)
    if past.length:
        keys = Keys(torch.cat((past.k, new.k), 1), torch.cat((past.v, new.v), 1), torch.cat((past.pos, pos), 1))
    newest = pos.amax(1, keepdim=True)
    kept = (pos >= 0) & ((pos > newest - near) | (pos < pinned))
    place = torch.where(pos < pinned, pos, pinned + (pos - pinned) % near).where(kept, near + pinned)

    def put(old: Tensor, values: Tensor) -> Tensor:
        line = torch.cat((old, values[:, :1]), 1)  # one place more, for what is not kept
        at = place.reshape(*place.shape, *[1] * (values.ndim - 2)).expand_as(values)
        return line.scatter(1, at, values)[:, :-1]

    k, v = put(past.k, new.k), put(past.v, new.v)
    return keys, Keys(k, v, put(past.pos, pos), None, past.length + new.k.shape[1], new.last, True)
