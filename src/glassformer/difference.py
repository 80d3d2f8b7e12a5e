"""How far the fast form of a mixer and the written-out one are apart in a run, within its memory limit."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from .mixers.multihead import SoftmaxAttention
from .mixers.softmax import cell_bytes
from .nn.channel import Experts
from .rerun import Stack, in_parts

if TYPE_CHECKING:
    from .trace import Trace

EXPERT_COPIES = 4  # as many numbers as a router and one expert tap exist at once, at most so many times


def difference_of(trace: Trace, part: nn.Module) -> float:
    """The largest difference of one part's output between its two forms, relative to that output."""
    name = f"{part.path}.out"
    stack, beside = trace._place(name)[0], tuple(f"{part.path}.{one}" for one in part.written_out)
    t = dict(trace.sizes(name))["t"]
    in_pieces = bool(in_parts(part)) or isinstance(part, Experts)
    chunk = _rows_at_once(trace, part, stack, beside) if in_pieces else t
    fast = trace._again(stack, name)
    worst = torch.zeros((), dtype=fast.dtype, device=fast.device)
    shared: dict[str, Any] = {}
    for rows in torch.arange(t, device=fast.device).split(chunk):
        glass = trace._again(stack, name, rows if chunk < t else None, written_out=beside, shared=shared)
        worst = torch.maximum(worst, (glass - fast[:, rows]).abs().max())  # keeps a NaN, unlike max()
    found = worst.item() / max(fast.abs().max().item(), 1e-30)
    return math.inf if math.isnan(found) else found


def _rows_at_once(trace: Trace, part: nn.Module, stack: Stack, beside: tuple[str, ...]) -> int:
    """How many rows of a part are written out at a time within the limit, all where an edit acts within it."""
    t = stack.call.pos.shape[1]
    if not isinstance(part, Experts):
        row_bytes = sum(trace._working_bytes(one, t=1) for one in beside)
        if isinstance(part, SoftmaxAttention):
            sizes = dict(trace.sizes(beside[0]))
            row_bytes = sizes["s"] * cell_bytes(sizes["b"], sizes["h"], stack.item_bytes)
            row_bytes += trace._working_bytes(beside[1], t=1)
        chunk = t if trace._edits_of(part.path) else max(1, min(t, stack.call.room_bytes // row_bytes))
        trace._make_room(beside[0], max(trace._working_bytes(one, t=chunk) for one in beside))
        return chunk
    inside = f"{part.path}.experts."
    if any(edit.name.startswith(inside) for edit in trace.acting):
        return t  # as in the run, which was written out as well
    # Of one expert at a time what it taps and as much again while that is made, beside it the sums.
    tapped = [n for n in trace.names() if n.startswith(f"{part.path}.") and not n.startswith(inside)]
    tapped += [n for n in trace.names() if n.startswith(f"{inside}0.")]
    row_bytes = EXPERT_COPIES * sum(trace._working_bytes(one, t=1) for one in tapped)
    if any(edit.name in tapped for edit in trace.acting):
        trace._make_room(f"{part.path}.out", t * row_bytes)
        return t
    chunk = max(1, min(t, stack.call.room_bytes // row_bytes))
    trace._drop(chunk * row_bytes)
    return chunk
