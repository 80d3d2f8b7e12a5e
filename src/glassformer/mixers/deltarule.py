"""The delta rule: a token first takes out of the state what it finds at its key, then writes its value there.

    S_i = α_i (I - β_i k_i k_iᵀ) S_{i-1} + β_i k_i v_iᵀ        y_i = S_iᵀ q_i

(Schlag et al. 2021, equation 24; with α Yang et al. 2025, equation 10, both with S transposed.) With what is really
written, u_i = β_i (v_i - α_i S_{i-1}ᵀ k_i), this is the gated sum of `chunk`, S_i = α_i S_{i-1} + k_i u_iᵀ. Each u
depends on those before it, and inside a chunk all of them solve one triangular system:

    u_i + β_i Σ_{j<i} (α_i … α_{j+1}) (k_i·k_j) u_j = β_i (v_i - (α_i … α_1) S_0ᵀ k_i)

Shapes, types and places as in `chunk`; β and log_decay `b t h`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .chunk import CHUNK, Chunks, in_spans, prepared, read_state, span_of, sum_weights


def delta_sum(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beta: Tensor,
    log_decay: Tensor | None = None,
    state: Tensor | None = None,
    *,
    valid: Tensor | None = None,
    first: Tensor | None = None,
    chunk: int = CHUNK,
) -> tuple[Tensor, Tensor]:
    """The chunked form (Yang et al. 2024, section 3.2): (y `b t h f`, the state after the last token)."""
    if (span := span_of(q)) < q.shape[1]:
        return in_spans(delta_sum, span, (q, k, v, beta, log_decay), state, (valid, first), chunk)
    with torch.autocast(q.device.type, enabled=False):
        if q.shape[1] == 1:  # nothing to do at once
            return recurrent_delta(q, k, v, beta, log_decay, state, valid=valid, first=first)
        parts = Chunks(q, k, log_decay, valid, first, chunk)
        v, beta = parts.cut(v.to(parts.wide)), parts.cut(beta.to(parts.wide))[..., None]
        if state is None:
            state = v.new_zeros(*v.shape[:2], q.shape[-1], v.shape[-1])
        # Without the state u would be `plain`; the state S_0 takes `taken` · S_0 from it.
        known = beta * torch.cat((v, parts.k * parts.start), -1)
        plain, taken = _solved(beta * parts.pairs(parts.k, parts.k), known).split((v.shape[-1], k.shape[-1]), -1)
        late, before, written = (parts.k * parts.end).mT, [], []
        for i in range(v.shape[2]):
            before.append(state)
            written.append(plain[:, :, i] - taken[:, :, i] @ state)
            state = parts.keep[:, :, i, :, None] * state + late[:, :, i] @ written[-1]
        y = parts.pairs(parts.q, parts.k) @ torch.stack(written, 2)
        return parts.joined(y + (parts.q * parts.start) @ torch.stack(before, 2)), state


def recurrent_delta(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beta: Tensor,
    log_decay: Tensor | None = None,
    state: Tensor | None = None,
    *,
    valid: Tensor | None = None,
    first: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The recurrent form, token after token: slow, clear, and what the others are tested against."""
    q, k, v, decay = prepared(q, k, v, log_decay, valid)
    beta = beta.to(v.dtype)
    if state is None:
        state = v.new_zeros(q.shape[0], q.shape[2], q.shape[3], v.shape[3])
    y = []
    for i in range(q.shape[1]):
        if first is not None:
            state = torch.where(first[:, i, None, None, None], 0.0, state)
        if decay is not None:
            state = decay[:, i, :, :, None].exp() * state
        found = (k[:, i, :, None, :] @ state)[:, :, 0]
        written = beta[:, i, :, None] * (v[:, i] - found)
        state = state + k[:, i, :, :, None] @ written[:, :, None, :]
        y.append((q[:, i, :, None, :] @ state)[:, :, 0])
    return torch.stack(y, 1), state


def delta_weights(
    q: Tensor,
    k: Tensor,
    beta: Tensor,
    log_decay: Tensor | None = None,
    *,
    rows: Tensor | None = None,
    valid: Tensor | None = None,
    first: Tensor | None = None,
) -> Tensor:
    """What token i takes from the value of token j after all that was taken out between them, `b h t s`; rows: only
    these i. With the weights g of the gated sum it is w β where w (I + M) = g, M the system above of the whole text.
    It is solved from the last chunk to the first: what later tokens take out is a matrix per row, which fades from
    chunk to chunk as the state does."""
    with torch.autocast(q.device.type, enabled=False):
        taken = sum_weights(q, k, log_decay, rows=rows, valid=valid, first=first)
        parts = Chunks(k, k, log_decay, valid, first)
        beta = parts.cut(beta.to(parts.wide))[..., None]
        below, late, early = beta * parts.pairs(parts.k, parts.k), beta * parts.k * parts.start, parts.k * parts.end
        later = late.new_zeros(*taken.shape[:3], late.shape[-1])
        for i in reversed(range(late.shape[2])):
            here = taken[..., i * parts.size : (i + 1) * parts.size]
            n = here.shape[-1]
            found = _solved(below[:, :, i, :n, :n], here - later @ early[:, :, i, :n].mT, left=False)
            later = later * parts.keep[:, :, i, None] + found @ late[:, :, i, :n]
            here[:] = found * beta[:, :, i, None, :n, 0]
        return taken


def read_before(
    q: Tensor,
    k: Tensor,
    weights: Tensor,
    log_decay: Tensor | None,
    state: Tensor,
    *,
    rows: Tensor | None = None,
    valid: Tensor | None = None,
    first: Tensor | None = None,
) -> Tensor:
    """What each token takes from the state before the first of them, `b t h f`: all that is there, less what the
    tokens since then have taken out, each what it found at its key. weights: of `delta_weights`, of these `rows`."""
    whole, found = (read_state(x, log_decay, state, valid=valid, first=first) for x in (q, k))
    whole = whole if rows is None else whole[:, rows]
    return whole - torch.einsum("bhts,bshf->bthf", weights, found)


def _solved(below: Tensor, known: Tensor, left: bool = True) -> Tensor:
    """x with (I + what of `below` lies under the diagonal) x = known; left False: with x before it."""
    return torch.linalg.solve_triangular(below.tril(-1), known, upper=False, left=left, unitriangular=True)
