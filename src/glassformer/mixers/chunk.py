"""The gated sum that linear attention, retention, gated linear attention and Mamba-2 share, in three forms that tests
tie together:

    S_i = decay_i ⊙ S_{i-1} + k_i v_iᵀ        y_i = q_i · S_i

recurrent  token after token, as it is written above
chunked    inside a chunk all tokens at once, from chunk to chunk through the state (Hua et al. 2022; Sun et al. 2023;
           Yang et al. 2024; Dao & Gu 2024): few large matrix products in the place of many small ones
weights    what each token takes from each earlier one, y = weights · v, as an attention pattern has it

Shapes: q and k `b t h e`, v `b t h f`, log_decay None, per head `b t h` or per key channel `b t h e`, never above 0;
the state `b h e f`. All work in fp32 at least, and give that. A decay is taken between two tokens, as a sum of the
logarithms between them: never a quotient, which a strong decay would overflow, nor a difference of large sums.

`valid` and `first` `b t` (`window.edges`) tell where a token is and where one begins a document. Without a token the
state stays as it is; a document begins with an empty one.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import repeat

import torch
from torch import Tensor

CHUNK = 64  # tokens that are worked out at once, a power of two
SPAN = 8192  # tokens of all rows and heads whose chunks are worked on side by side


def gated_sum(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_decay: Tensor | None = None,
    state: Tensor | None = None,
    *,
    valid: Tensor | None = None,
    first: Tensor | None = None,
    chunk: int = CHUNK,
) -> tuple[Tensor, Tensor]:
    """The chunked form: (y `b t h f`, the state after the last token). state None: nothing before. chunk: how many
    tokens at once, rounded up to a power of two."""
    if (span := span_of(q)) < q.shape[1]:
        return in_spans(gated_sum, span, (q, k, v, log_decay), state, (valid, first), chunk)
    with torch.autocast(q.device.type, enabled=False):
        if q.shape[1] == 1:  # nothing to do at once
            return recurrent_sum(q, k, v, log_decay, state, valid=valid, first=first)
        parts = Chunks(q, k, log_decay, valid, first, chunk)
        v = parts.cut(v.to(parts.wide))
        if state is None:
            state = v.new_zeros(*v.shape[:2], q.shape[-1], v.shape[-1])
        added, before = (parts.k * parts.end).mT @ v, []
        for i in range(added.shape[2]):
            before.append(state)
            state = parts.keep[:, :, i, :, None] * state + added[:, :, i]
        y = parts.pairs(parts.q, parts.k) @ v + (parts.q * parts.start) @ torch.stack(before, 2)
        return parts.joined(y), state


def span_of(q: Tensor) -> int:
    """How many tokens of q `b t h e` go through all of a chunked form together: on a processor as many as stay in its
    cache, so that twice as many take twice as long."""
    if q.device.type != "cpu":
        return q.shape[1]
    return max(CHUNK, SPAN // (q.shape[0] * q.shape[2]) // CHUNK * CHUNK)


def in_spans(
    form: Callable[..., tuple[Tensor, Tensor]],
    span: int,
    given: tuple[Tensor | None, ...],
    state: Tensor | None,
    places: tuple[Tensor | None, Tensor | None],
    chunk: int,
) -> tuple[Tensor, Tensor]:
    """A chunked form of `given`, each `b t …`, one span of tokens after the other."""
    cut, ys = [repeat(None) if x is None else x.split(span, 1) for x in (*given, *places)], []
    for *some, valid, first in zip(*cut, strict=False):  # what is None has no end
        y, state = form(*some, state, valid=valid, first=first, chunk=chunk)
        ys.append(y)
    return torch.cat(ys, 1), state


def recurrent_sum(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_decay: Tensor | None = None,
    state: Tensor | None = None,
    *,
    valid: Tensor | None = None,
    first: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The recurrent form, token after token: slow, clear, and what the others are tested against."""
    q, k, v, decay = prepared(q, k, v, log_decay, valid)
    if state is None:
        state = v.new_zeros(q.shape[0], q.shape[2], q.shape[3], v.shape[3])
    y = []
    for i in range(q.shape[1]):
        if first is not None:
            state = torch.where(first[:, i, None, None, None], 0.0, state)
        if decay is not None:
            state = decay[:, i, :, :, None].exp() * state
        state = state + k[:, i, :, :, None] @ v[:, i, :, None, :]
        y.append((q[:, i, :, None, :] @ state)[:, :, 0])
    return torch.stack(y, 1), state


def sum_weights(
    q: Tensor,
    k: Tensor,
    log_decay: Tensor | None = None,
    *,
    rows: Tensor | None = None,
    valid: Tensor | None = None,
    first: Tensor | None = None,
) -> Tensor:
    """What token i takes from token j, q_i · (decays of j+1 … i ⊙ k_j): `b h t s`, 0 after i and in other documents.
    rows: only these i."""
    with torch.autocast(q.device.type, enabled=False):
        parts = Chunks(q, k, log_decay, valid, first)
        rows = torch.arange(parts.t, device=q.device) if rows is None else rows
        inside, late, early = parts.pairs(parts.q, parts.k), parts.q * parts.start, parts.k * parts.end
        taken = late.new_zeros(*late.shape[:2], len(rows), parts.t)
        before = early[:, :, 0, :0]  # keys of all chunks before, with their decay up to this one
        for i in range(late.shape[2]):
            here = (rows // parts.size == i).nonzero()[:, 0]
            place, begin = rows[here] % parts.size, i * parts.size
            taken[:, :, here, :begin] = late[:, :, i, place] @ before.mT
            taken[:, :, here, begin : begin + parts.size] = inside[:, :, i, place, : parts.t - begin]
            before = torch.cat((before * parts.keep[:, :, i, None], early[:, :, i]), -2)
        return taken


def read_state(
    q: Tensor,
    log_decay: Tensor | None,
    state: Tensor,
    *,
    valid: Tensor | None = None,
    first: Tensor | None = None,
) -> Tensor:
    """What each token takes from the state before the first of them, `b t h f`."""
    with torch.autocast(q.device.type, enabled=False):
        parts, taken = Chunks(q, q, log_decay, valid, first), []
        for i in range(parts.q.shape[2]):
            taken.append((parts.q * parts.start)[:, :, i] @ state)
            state = parts.keep[:, :, i, :, None] * state
        return parts.joined(torch.stack(taken, 2))


def prepared(
    q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor | None, valid: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """All in fp32 at least, log_decay with a channel axis `b t h 1` or `b t h e`; where no token is the key is 0 and
    nothing decays."""
    wide = torch.promote_types(q.dtype, torch.float32)
    q, k, v = (x.to(wide) for x in (q, k, v))
    if log_decay is not None:
        log_decay = log_decay.to(wide)
        log_decay = log_decay if log_decay.ndim == 4 else log_decay[..., None]
    if valid is not None:
        here = valid[:, :, None, None]
        k = torch.where(here, k, 0.0)
        log_decay = None if log_decay is None else torch.where(here, log_decay, 0.0)
    return q, k, v, log_decay


class Chunks:
    """Tokens in m chunks of c places, `b h m c …`, and the decays inside a chunk.

    start  from before the chunk to each place, `b h m c e` (or with 1 in the place of e, of h, or of b); 0 where a
           document has begun in between
    end    from behind each place to the end of the chunk; 0 where a document begins in between
    keep   over the whole chunk, `b h m e`; 0 where a document begins in it
    """

    def __init__(
        self,
        q: Tensor,
        k: Tensor,
        log_decay: Tensor | None,
        valid: Tensor | None,
        first: Tensor | None,
        chunk: int = CHUNK,
    ) -> None:
        self.t, self.size = q.shape[1], 1
        while self.size < min(chunk, self.t):
            self.size *= 2
        q, k, _, decay = prepared(q, k, k, log_decay, valid)
        self.wide = q.dtype
        self.q, self.k = self.cut(q), self.cut(k)
        self.decay = None if decay is None else self.cut(decay)
        self.document = None if first is None else self._documents(first)
        one = q.new_ones(1, 1, 1, 1, 1)
        if self.decay is None:
            start = end = one.expand(1, 1, 1, self.size, 1)
            keep = one[..., 0, :]
        else:
            until = self.decay.cumsum(-2)
            start, keep = until.exp(), until[..., -1, :].exp()
            end = _behind(self.decay).exp()
        if self.document is not None:
            document, before = self.document  # b 1 m c, b 1 m 1
            start = torch.where((document == before)[..., None], start, 0.0)
            end = torch.where((document == document[..., -1:])[..., None], end, 0.0)
            keep = torch.where(document[..., -1:] == before, keep, 0.0)
        self.start, self.end = start, end
        self.keep = keep.expand(-1, -1, self.q.shape[2], -1)

    def cut(self, x: Tensor) -> Tensor:
        """`b t h …` to `b h m c …`, filled up with zeros: keys that add nothing, and no decay."""
        x = x.transpose(1, 2)
        missing = -self.t % self.size
        if missing:
            x = torch.cat((x, x.new_zeros(*x.shape[:2], missing, *x.shape[3:])), 2)
        return x.unflatten(2, (-1, self.size))

    def joined(self, y: Tensor) -> Tensor:
        """`b h m c f` to `b t h f`, without what was filled up."""
        return y.flatten(2, 3)[:, :, : self.t].transpose(1, 2)

    def _documents(self, first: Tensor) -> tuple[Tensor, Tensor]:
        """(the number of each place's document `b 1 m c`, that of the place before each chunk `b 1 m 1`)."""
        number = self.cut(first[:, :, None]).flatten(2).cumsum(2).unflatten(2, (-1, self.size))
        last = number[..., -1:]
        return number, torch.cat((torch.zeros_like(last[:, :, :1]), last[:, :, :-1]), 2)

    def pairs(self, q: Tensor, k: Tensor) -> Tensor:
        """What each place takes from each, q_i · (decays of j+1 … i ⊙ k_j), `b h m c c`; 0 where j > i, and where a
        document begins in between. q, k `b h m c e`."""
        if self.decay is None:
            places = torch.arange(self.size, device=q.device)
            taken = torch.where(places[:, None] >= places, q @ k.mT, 0.0)
        else:
            taken = _by_halves(q, k, self.decay)
        if self.document is None:
            return taken
        number = self.document[0]
        return torch.where(number[..., None] == number[..., None, :], taken, 0.0)


def _by_halves(q: Tensor, k: Tensor, decay: Tensor) -> Tensor:
    """The pairs of 2, 4, 8 … places from those of half as many: what the later half takes from the earlier one comes
    past the border between them, up to which the keys carry their decay, and from which the queries carry theirs."""
    taken = (q * k).sum(-1)[..., None, None]  # a place from itself: … c 1 1
    while taken.shape[-1] < q.shape[-2]:
        half = (-1, 2, taken.shape[-1])
        (_, late), (early, _), (before, after) = (x.unflatten(-2, half).unbind(-3) for x in (q, k, decay))
        across = (late * after.cumsum(-2).exp()) @ (early * _behind(before).exp()).mT
        first, second = taken.unflatten(-3, (-1, 2)).unbind(-3)
        upper = torch.cat((first, torch.zeros_like(across)), -1)
        taken = torch.cat((upper, torch.cat((across, second), -1)), -2)
    return taken[..., 0, :, :]


def _behind(decay: Tensor) -> Tensor:
    """The sum of the logarithms of all places behind each one, along the axis before the last."""
    after = torch.cat((decay[..., 1:, :], torch.zeros_like(decay[..., :1, :])), -2)
    return after.flip(-2).cumsum(-2).flip(-2)
