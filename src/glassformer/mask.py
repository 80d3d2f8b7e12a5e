"""Who may look at whom: a function of positions, kept as data so that a view can say why a cell is dark."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from .errors import SettingError
from .spec import Spec

Reason = Literal["", "padding", "other document", "future", "outside the window"]


class Mask(Spec, frozen=True, tag="mask"):
    """What attention may see by construction.

    causal  position i sees j only where j <= i
    window  position i sees j only where |i - j| < window
    prefix  the first `prefix` positions see one another in both directions (a prefix language model)
    sinks   the first `sinks` positions stay visible outside the window (after StreamingLLM, Xiao et al. 2023; there
            positions count places in the cache, here a sink keeps its position in the text, so that its distance
            grows without end and, with RoPE, ALiBi or a relative bias, beyond what training saw)
    """

    causal: bool = True
    window: int | None = None
    prefix: int = 0
    sinks: int = 0

    def __post_init__(self) -> None:
        if self.window is not None and self.window < 1:
            raise SettingError(f"window: {self.window} is not allowed; use 1 or more, or null for no window")
        for name in ("prefix", "sinks"):
            if getattr(self, name) < 0:
                raise SettingError(f"{name}: {getattr(self, name)} is not allowed; use 0 or more")
        if self.sinks and self.window is None:
            raise SettingError("sinks: they only have a meaning beside a window; set window as well, or sinks=0")
        if self.prefix and not self.causal:
            raise SettingError("prefix: it only has a meaning in a causal mask; set causal=true, or prefix=0")

    @property
    def streams(self) -> bool:
        """Whether no position depends on a later one, so that tokens can be given one after the other."""
        return self.causal and not self.prefix


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
    if mask.window is not None:
        near = (q - k).abs() < mask.window
        if mask.sinks:
            near = near | (k < mask.sinks)
        ok = ok & near
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
    if mask.window is not None and abs(query_pos - key_pos) >= mask.window and key_pos >= mask.sinks:
        return "outside the window"
    return ""


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
