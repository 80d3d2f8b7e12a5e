"""What the machine has, asked before anything is allocated."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
from pathlib import Path

import torch

from .errors import InputError

UNITS = {"GiB": 1 << 30, "MiB": 1 << 20, "KiB": 1 << 10}
NO_MEMORY = re.compile(r"allocate memory|not enough memory|out of memory", re.IGNORECASE)
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float64": torch.float64}


def free_bytes(device: str | torch.device) -> int | None:
    """The bytes that can still be had; None where the system does not say."""
    return _bytes(device, "MemAvailable:")


def total_bytes(device: str | torch.device) -> int | None:
    """The bytes that there are, whoever uses them; None where the system does not say."""
    return _bytes(device, "MemTotal:")


def _bytes(device: str | torch.device, line: str) -> int | None:
    device = torch.device(device)
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[line == "MemTotal:"]
    found: list[int] = []
    with contextlib.suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/meminfo").read_text().splitlines()
        found.append(int(next(one for one in lines if one.startswith(line)).split()[1]) << 10)
    with contextlib.suppress(OSError, ValueError):
        found.append(int(Path("/sys/fs/cgroup/memory.max").read_text()))  # a container's limit
    if not found:
        with contextlib.suppress(OSError, ValueError, AttributeError):
            found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return min(found, default=None)


def sized(count: float) -> str:
    """A number of bytes in the largest unit of which it holds one: "1.5 GiB", "20.0 KiB", "12 B"."""
    for unit, size in UNITS.items():
        if count >= size:
            return f"{count / size:,.1f} {unit}"
    return f"{count:,.0f} B"


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory could not be had. Of the main memory PyTorch tells that by words alone, which
    differ by the system."""
    told = isinstance(error, RuntimeError | OSError) and NO_MEMORY.search(str(error)) is not None
    return told or isinstance(error, MemoryError | torch.OutOfMemoryError)


def give_back() -> None:
    """Let the system have the memory that was freed, which the C library of Linux would keep for this process."""
    with contextlib.suppress(OSError, AttributeError, TypeError):  # another system, another library
        ctypes.CDLL(None).malloc_trim(0)


def check_room(need_bytes: int, place: Path | str, device: str | torch.device = "cpu") -> None:
    """Raise InputError where the weights of the model at `place` need more memory than the machine has."""
    total = total_bytes(device)
    if total is not None and need_bytes > total:
        raise InputError(
            f"{place}: the weights need {sized(need_bytes)} of memory, and this machine has {sized(total)}; use a "
            "smaller number format (--dtype bfloat16), a smaller model, or another machine"
        )


def check_free(need_bytes: int, place: Path | str, device: str | torch.device = "cpu") -> None:
    """Raise InputError where the weights of the model at `place` need more memory than can still be had."""
    free = free_bytes(device)
    if free is not None and need_bytes > free:
        raise InputError(
            f"{place}: the weights need {sized(need_bytes)} of memory, and {sized(free)} are free; close other "
            "programs, or choose a smaller model"
        )


def check_dtype(given: str | torch.dtype) -> torch.dtype:
    """The number format that is meant; raises InputError for one in which no model is run."""
    numbers = DTYPES.get(given) if isinstance(given, str) else given
    if numbers not in DTYPES.values():
        raise InputError(f"dtype: {str(given)!r} is not allowed; use {', '.join(DTYPES)}")
    return numbers


def check_device(given: str | torch.device) -> None:
    """Raise InputError for a device that does not exist here."""
    name = str(given)
    counts = {"cpu": 1, "cuda": torch.cuda.device_count(), "mps": int(torch.backends.mps.is_available())}
    found = re.fullmatch(rf"({'|'.join(counts)})(?::([0-9]{{1,4}}))?", name)
    if not found:
        raise InputError(f"device: {name!r} is not known; use cpu, cuda, cuda:1 or mps")
    if counts[found[1]] <= int(found[2] or 0):
        there = ", ".join(one for one, count in counts.items() if count)
        raise InputError(f"device: {name!r} is not available on this machine; there is: {there}")
