"""What the machine has, asked before anything is allocated."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import torch

from .errors import InputError

GIB = 1 << 30


def free_bytes(device: str | torch.device) -> int | None:
    """The bytes that can still be had; None where the system does not say."""
    device = torch.device(device)
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    found: list[int] = []
    with contextlib.suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/meminfo").read_text().splitlines()
        found.append(int(next(line for line in lines if line.startswith("MemAvailable:")).split()[1]) << 10)
    with contextlib.suppress(OSError, ValueError):
        found.append(int(Path("/sys/fs/cgroup/memory.max").read_text()))  # a container's limit
    if not found:
        with contextlib.suppress(OSError, ValueError, AttributeError):
            found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return min(found, default=None)


def check_room(need_bytes: int, place: Path | str, device: str | torch.device = "cpu") -> None:
    """Raise InputError where the weights of the model at `place` need more memory than is free."""
    free = free_bytes(device)
    if free is not None and need_bytes > free:
        raise InputError(
            f"{place}: the weights need {need_bytes / GIB:,.1f} GiB of memory, and {free / GIB:,.1f} GiB are free; use "
            "a smaller number format (--dtype bfloat16), a smaller model, or another machine"
        )
