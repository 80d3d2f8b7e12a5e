"""Who may look at whom: a function of positions, kept as data so that a view can say why a cell is dark."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from .errors import SettingError
from .spec import Spec, check_least

Places = int | Tensor  # a position, or many
Reason = Literal[
    "",
    "padding",
    "other document",
    "future",
    "outside the window",
    "off the stride",
    "before the memory",
    "not among the largest",
]


class Mask(Spec, frozen=True, tag="mask"):
    """What attention may see by construction, as a function of positions.

    causal   position i sees j only where j <= i
    window   position i sees j only where |i - j| < window
    prefix   the first `prefix` positions see one another in both directions (a prefix language model)
    sinks    the first `sinks` positions stay visible outside the window (after StreamingLLM, Xiao et al. 2023; there
             positions count places in the cache, here a sink keeps its position in the text, so that its distance
             grows without end and, with RoPE, ALiBi or a relative bias, beyond what training saw)

    What opens more than the window (without one: what alone is open):
    globals  the first `globals` positions see all and are seen by all (Longformer, Beltagy et al. 2020)
    stride   i sees j where |i - j| is a multiple of it (Sparse Transformer, Child et al. 2019, the strided form)
    random   each block of `block` positions sees so many earlier blocks, drawn from `seed`, and without `causal` is
             seen by them (after BigBird, Zaheer et al. 2020; there all blocks of one length of text are drawn from)

    segment  i sees only its own segment of so many positions, and the `memory` positions before it (Transformer-XL,
             Dai et al. 2019)
    """

    causal: bool = True
    window: int | None = None
    prefix: int = 0
    sinks: int = 0
    globals: int = 0
    stride: int | None = None
    random: int = 0
    block: int = 64
    seed: int = 0
    segment: int | None = None
    memory: int = 0

    def __post_init__(self) -> None:
        for name in ("window", "stride", "segment"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise SettingError(f"{name}: {value} is not allowed; use 1 or more, or null for none")
        check_least(self, 0, "prefix", "sinks", "globals", "random", "seed", "memory")
        check_least(self, 1, "block")
        for name in ("sinks", "random"):
            if getattr(self, name) and self.window is None:
                raise SettingError(f"{name}: only has a meaning beside a window; set window as well, or {name}=0")
        if self.globals and self.window is None and self.stride is None:
            raise SettingError("globals: only has a meaning beside a window or a stride; set one, or globals=0")
        if self.memory and self.segment is None:
            raise SettingError("memory: it lies before a segment; set segment as well, or memory=0")
        for name in ("prefix", "segment"):
            if getattr(self, name) and not self.causal:
                way_out = "0" if name == "prefix" else "null"
                raise SettingError(f"{name}: only has a meaning in a causal mask; set causal=true, or {name}={way_out}")
        if self.segment is not None and (self.prefix or self.sparse):
            raise SettingError("segment: it stands alone; leave out prefix, window, stride and what belongs to them")

    @property
    def streams(self) -> bool:
        """Whether no position depends on a later one, so that tokens can be given one after the other."""
        return self.causal and not self.prefix

    @property
    def sparse(self) -> bool:
        """Whether a window or a stride leaves most of the positions dark."""
        return self.window is not None or self.stride is not None

    @property
    def bare(self) -> bool:
        """Whether it is a triangle, or nothing."""
        return not (self.sparse or self.prefix or self.segment)

    @property
    def near(self) -> int | None:
        """How many positions back, itself included, a token sees at most, besides the `pinned`; None: all."""
        if self.segment is not None:
            return self.segment + self.memory
        return self.window if self.stride is None and not self.random else None

    @property
    def pinned(self) -> int:
        """How many of the first positions stay visible to all."""
        return max(self.sinks, self.globals)


def allowed(
    mask: Mask,
    query_pos: Tensor,
    key_pos: Tensor,
    query_segments: Tensor | None = None,
    key_segments: Tensor | None = None,
) -> Tensor:
    """True where a query position may look at a key position.

    Args: query_pos `b t`, key_pos `b s` (either batch may be 1), -1 meaning "no token here"; segments alike, the
    number of the packed document that a token belongs to.
    Returns: bool `b t s`. A query without a token sees nothing.
    """
    q, k = query_pos[:, :, None], key_pos[:, None, :]
    ok = (k >= 0) & (q >= 0)
    if mask.causal:
        before = k <= q
        if mask.prefix:
            before = before | ((q < mask.prefix) & (k < mask.prefix))
        ok = ok & before
    if mask.sparse:
        ok = ok & _opened(mask, q, k)
    if mask.segment is not None:
        ok = ok & (k >= q // mask.segment * mask.segment - mask.memory)
    if query_segments is not None and key_segments is not None:
        ok = ok & (query_segments[:, :, None] == key_segments[:, None, :])
    return ok


def reason(mask: Mask, query_pos: int, key_pos: int, same_segment: bool = True) -> Reason:
    """Why the cell (query_pos, key_pos) is dark; the empty string where it is not. Agrees with `allowed`."""
    if query_pos < 0 or key_pos < 0:
        return "padding"
    if not same_segment:
        return "other document"
    if mask.causal and key_pos > query_pos and not max(query_pos, key_pos) < mask.prefix:
        return "future"
    if mask.sparse and not _opened(mask, query_pos, key_pos):
        return "off the stride" if mask.window is None else "outside the window"
    if mask.segment is not None and key_pos < query_pos // mask.segment * mask.segment - mask.memory:
        return "before the memory"
    return ""


def _opened(mask: Mask, q: Places, k: Places) -> Any:
    """Where a sparse mask lets q see k, both numbers or tensors that broadcast."""
    seen = abs(q - k) < (mask.window or 0)
    if mask.stride is not None:
        seen = seen | ((q - k) % mask.stride == 0)
    if mask.pinned:
        seen = seen | (k < mask.pinned)
    if mask.globals:
        seen = seen | (q < mask.globals)
    for i in range(mask.random):
        for late, early in ((q // mask.block, k // mask.block), (k // mask.block, q // mask.block)):
            seen = seen | ((early < late) & (_drawn(late, i, mask.seed) == early))
    return seen


def _drawn(block: Places, number: int, seed: int) -> Any:
    """The number-th block that is drawn for a block from those before it: hashed, so that it does not depend on how
    long the text is."""
    x = (block * 7919 + number * 104_729 + seed * 1_299_709 + 1) & 0x7FFFFFFF
    for _ in range(2):  # below 2^58, so that int64 holds it
        x = ((x ^ (x >> 16)) * 0x45D9F3B) & 0x7FFFFFFF
    return x % (block + (block == 0))


def rows(pos: Tensor, batch: int) -> Tensor:
    """Positions `b t` whose batch axis may be a broadcast 1, with that axis written out."""
    return pos.expand(batch, -1) if pos.shape[0] != batch else pos


def pad_left(sequences: list[list[int]], fill: int = 0) -> tuple[Tensor, Tensor]:
    """Sequences of different length as one batch that ends together: (tokens `b t`, positions `b t`, -1 on padding)."""
    longest = max(len(sequence) for sequence in sequences)
    tokens = torch.full((len(sequences), longest), fill, dtype=torch.long)
    pos = torch.full((len(sequences), longest), -1, dtype=torch.long)
    for row, sequence in enumerate(sequences):
        start = longest - len(sequence)
        tokens[row, start:] = torch.tensor(sequence, dtype=torch.long)
        pos[row, start:] = torch.arange(len(sequence))
    return tokens, pos
