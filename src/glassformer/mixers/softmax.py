"""Attention(Q, K, V) = softmax(QKᵀ/√d_k + bias) V in three forms that tests tie together.

explicit  the mathematics written out; every number can be looked at
fused     PyTorch's kernel: the same result, no pattern is ever stored
tiled     the online softmax, key tile by key tile: what the fused kernel does inside, readable, and the fast path of
          variants that the kernel does not know (soft-capping, sinks)

Shapes: q `b h t e`, k and v `b g s e` where the g key/value heads are shared by h/g query heads each.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from ..mask import Mask
from ..tap import Tap, off

# Scores of all queries against the keys in a range: (start, end, tap) -> masked scores `b h t s`; q·k is tapped inside.
ScoreOf = Callable[[int, int, Tap], Tensor]

QUADRATIC = ("dots", "scores", "pattern")  # what is tapped of n² numbers, in the order of computation
TILE = 128  # keys at a time in the online softmax


def shared_out(x: Tensor, heads: int) -> Tensor:
    """Key/value heads `b g s e` written out for every query head, `b h s e`."""
    return x if x.shape[1] == heads else x.repeat_interleave(heads // x.shape[1], 1)


def explicit(
    score: ScoreOf,
    v: Tensor,
    sink: Tensor | None,
    tap: Tap,
    top_k: int | None = None,
    flows: Tensor | None = None,
) -> Tensor:
    """The four steps; the first, q·k, and the scaling lie in `score`. v `b h s e`; returns `b h t e`. top_k: only so
    many scores of a query, the largest, enter the softmax. flows `b 1 t s`: where gradients reach the values."""
    scores = tap("scores", score(0, v.shape[2], tap), "b h t s")
    pattern = tap("pattern", weights(largest(scores, top_k), sink), "b h t s")
    if flows is None:
        return pattern.to(v.dtype) @ v
    return pattern.where(flows, 0.0).to(v.dtype) @ v + pattern.where(~flows, 0.0).to(v.dtype) @ v.detach()


def largest(scores: Tensor, top_k: int | None) -> Tensor:
    """The top_k largest scores of each query, -∞ in the place of all others; None: as they are."""
    if top_k is None or top_k >= scores.shape[-1]:
        return scores
    kept = torch.zeros_like(scores, dtype=torch.bool).scatter(-1, scores.topk(top_k, -1).indices, True)
    return scores.masked_fill(~kept, -torch.inf)


def weights(scores: Tensor, sink: Tensor | None = None) -> Tensor:
    """softmax over the keys, in fp32 at least; a row that may see nothing is all zero.

    sink `h`: a learned score that takes part in the normalisation but carries no value, so a row sums to less than 1.
    """
    wide = torch.promote_types(scores.dtype, torch.float32)
    scores = scores.to(wide)
    if sink is not None:
        column = sink.to(wide)[:, None, None].expand(*scores.shape[:-1], 1)
        return torch.cat((scores, column), -1).softmax(-1)[..., :-1]
    blind = scores.isneginf().all(-1, keepdim=True)
    return scores.masked_fill(blind, 0.0).softmax(-1).masked_fill(blind, 0.0)


def fused(q: Tensor, k: Tensor, v: Tensor, scale: float, mask: Tensor | None, causal: bool) -> Tensor:
    """PyTorch's kernel. mask: bool (True = may look) or an additive bias, broadcastable to `b h t s`."""
    gqa, narrow = q.shape[1] != k.shape[1], v.dtype
    if mask is not None and mask.dtype != torch.bool and (q.device.type != "cpu" or narrow == torch.float64):
        # On a processor the kernel adds a bias in fp32 to bf16, which is more exact; in fp64 it would misread one.
        mask = mask.to(narrow)
    if q.device.type == "cpu" and torch.is_grad_enabled():
        # On a processor the kernel's backward takes three times as long in bf16 as in fp32 (torch 2.13; dev/LOG.md).
        wide = torch.promote_types(narrow, torch.float32)
        q, k, v = (x.to(wide) for x in (q, k, v))
        mask = mask if mask is None or mask.dtype == torch.bool else mask.to(wide)
        with torch.autocast("cpu", enabled=False):
            z = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal, scale=scale, enable_gqa=gqa)
        return z.to(narrow)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal, scale=scale, enable_gqa=gqa)


def cell_bytes(batch: int, heads: int, item_bytes: int = 4) -> int:
    """The most that a query and a key take together: distances and masks once for all heads, biases and scores (of
    item_bytes each) for each head, with all that is alive while they are made."""
    return batch * (40 + 6 * item_bytes * heads)


def pieces(
    t: int, s: int, each_bytes: int, width: int, aligned: bool, mask: Mask, room_bytes: int | None
) -> list[tuple[slice, slice]]:
    """(queries, the keys that they may see): so few queries each that queries × keys cells of `each_bytes`, of at most
    `width` keys at once, stay within `room_bytes` (None: everything at once). aligned: query i stands at the position
    of key i, and all are in order; otherwise every key may be seen."""
    if room_bytes is None:
        return [(slice(0, t), slice(0, s))]
    near = mask.near if aligned and not mask.pinned else None

    def keys(a: int, b: int) -> slice:
        last = max(b, mask.prefix) if aligned and mask.causal else s if near is None else b + near - 1
        return slice(0 if near is None else max(0, a - near + 1), min(s, last))

    def split(size: int) -> list[tuple[slice, slice]]:
        starts = range(0, max(t, 1), size)  # no query at all is one piece as well
        return [(slice(a, min(a + size, t)), keys(a, min(a + size, t))) for a in starts]

    cells, size = room_bytes // each_bytes, max(t, 1)
    while size > 1 and any(size * min(width, seen.stop - seen.start) > cells for _, seen in split(size)):
        size = -(-size // 2)
    return split(size)


def tiled(score: ScoreOf, v: Tensor, sink: Tensor | None, tile: int = TILE) -> Tensor:
    """The online softmax (Milakov & Gimelshein 2018; Dao et al. 2022): only `b h t tile` scores exist at a time.

    For each query it carries the largest score so far m, the sum l of exp(score - m), and the weighted sum z of the
    values; a larger score in a later tile rescales l and z by exp(m_old - m_new). v `b h s e`; returns `b h t e`.
    """
    m = l = z = None
    wide = torch.promote_types(v.dtype, torch.float32)
    for start in range(0, v.shape[2], tile):
        end = min(start + tile, v.shape[2])
        scores = score(start, end, off).to(wide)
        top = scores.amax(-1, keepdim=True)
        m_new = top if m is None else torch.maximum(m, top)
        # A row that has seen nothing yet has m = -inf; any finite stand-in keeps exp(-inf - m) = 0 instead of NaN.
        base = m_new.masked_fill(m_new.isneginf(), 0.0)
        p = (scores - base).exp()
        part = p @ v[:, :, start:end].to(wide)
        if z is None:
            l, z = p.sum(-1, keepdim=True), part
        else:
            shrink = (m - base).exp()
            l, z = l * shrink + p.sum(-1, keepdim=True), z * shrink + part
        m = m_new
    if sink is not None:
        base = m.masked_fill(m.isneginf(), 0.0)
        l = l + (sink.to(wide)[:, None, None] - base).exp()
    return (z / l.masked_fill(l == 0, 1.0)).to(v.dtype)
