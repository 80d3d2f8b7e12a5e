"""The most memory a piece of work takes at once, as PyTorch's allocator counts it."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler's library prints a line at each start and stop

from torch.profiler import ProfilerActivity, profile


def peak_bytes(work: Callable[..., Any], *given: Any, **more: Any) -> int:
    """The most bytes of tensors on the processor that `work` held at once beyond those that were there before."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        work(*given, **more)
    held = peak = 0
    for event in record.profiler.kineto_results.events():
        if event.name() == "[memory]":
            held += event.nbytes()
            peak = max(peak, held)
    return peak
