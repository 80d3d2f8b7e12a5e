"""Tensors in files: names, shapes and number formats known before a number is read, and numbers mapped, not copied.

The safetensors files that are written here begin every tensor at a multiple of 64 bytes, where PyTorch would have put
it: a product with few rows is summed in another order, and so differs in its last bits, where the weights begin at
another place within a line of memory. So what is loaded can stay in the file and give the very numbers of before.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from .catalogue import way_back
from .errors import CheckpointError, InputError
from .machine import sized, total_bytes

LINE = 64  # bytes of a line of memory, at which PyTorch begins what it allocates
NAMES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.complex64: "C64",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
TYPES = {name: dtype for dtype, name in NAMES.items()}


@dataclass(frozen=True)
class Stored:
    """A tensor that is not read yet: its number format and shape, and what reads it. mapped: that takes no memory.
    read_as: what reads it in another number format at once, where there is such a way."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    read: Callable[[], Tensor]
    mapped: bool = False
    read_as: Callable[[torch.dtype], Tensor] | None = None

    def is_floating_point(self) -> bool:
        """Whether it holds weights, and not counts or codes."""
        return self.dtype.is_floating_point

    @property
    def need_bytes(self) -> int:
        """The memory that reading it takes."""
        return 0 if self.mapped else self.dtype.itemsize * math.prod(self.shape)


class Weights(Mapping[str, Tensor]):
    """The tensors of a checkpoint by name, each read when it is asked for and kept by nobody but who asked.

    stored: what is known of each before it is read.
    """

    def __init__(self, stored: Mapping[str, Stored]) -> None:
        self.stored = dict(stored)

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor]) -> Weights:
        """The same of tensors that lie in memory."""
        if isinstance(tensors, Weights):
            return tensors
        return cls({name: Stored(x.dtype, tuple(x.shape), lambda x=x: x, True) for name, x in tensors.items()})

    def __getitem__(self, name: str) -> Tensor:
        return self.stored[name].read()

    def __iter__(self) -> Iterator[str]:
        return iter(self.stored)

    def __len__(self) -> int:
        return len(self.stored)

    def cast(self, dtype: torch.dtype | None, device: str | torch.device = "cpu") -> Weights:
        """The same with every weight turned into `dtype` (None: as it is) on a device when it is read, so that no more
        than one lies in memory twice."""

        def turned(one: Stored) -> Stored:
            wanted = dtype if dtype is not None and one.is_floating_point() else one.dtype
            stays = one.mapped and wanted == one.dtype and torch.device(device).type == "cpu"
            read = one.read if one.read_as is None else lambda: one.read_as(wanted)
            return replace(one, dtype=wanted, read=lambda: read().to(device, wanted), mapped=stays, read_as=None)

        return Weights({name: turned(one) for name, one in self.stored.items()})

    @property
    def need_bytes(self) -> int:
        """The memory that reading all of them takes."""
        return sum(one.need_bytes for one in self.stored.values())


@contextlib.contextmanager
def mapping(path: Path) -> Iterator[None]:
    """Raise InputError, with both sizes, where the system cannot map a file because it is larger than its memory."""
    try:
        yield
    except (RuntimeError, OSError, SafetensorError) as error:
        full = isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM
        if not (full or os.strerror(errno.ENOMEM) in str(error)):
            raise
        size, total = sized(path.stat().st_size), sized(total_bytes("cpu") or 0)
        raise InputError(
            f"{path} holds {size}, which do not fit the memory of this machine ({total}); use a "
            "smaller model, or another machine"
        ) from None


def mapped(path: Path, start: int, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    """The numbers in a file from a byte on, mapped: they are read as they are used, and what is changed of them stays
    in memory. Copied where they begin at no multiple of their size."""
    size = dtype.itemsize * math.prod(shape)
    if not size:
        return torch.empty(shape, dtype=dtype)
    if start % dtype.itemsize or sys.byteorder != "little":
        raw = np.fromfile(path, np.uint8, size, offset=start)
        if sys.byteorder != "little":
            raw = raw.reshape(-1, dtype.itemsize)[:, ::-1].reshape(-1)
        return torch.from_numpy(raw.copy()).view(dtype).view(shape)
    # A mapping of its own for each tensor: when one was turned into another format, its pages go.
    with mapping(path):
        storage = torch.UntypedStorage.from_file(os.fspath(path), False, start + size)[start:]
    return torch.empty(0, dtype=dtype).set_(storage, 0, shape)


def stored(path: Path, start: int, dtype: torch.dtype, shape: tuple[int, ...]) -> Stored:
    """The same, not read yet."""
    return Stored(dtype, shape, lambda: mapped(path, start, dtype, shape), mapped=start % dtype.itemsize == 0)


def read_safetensors(path: Path) -> tuple[Weights, dict[str, str]]:
    """The tensors of a safetensors file and the texts that it says about them.

    Raises CheckpointError for a file that is missing, broken, truncated, or in a number format not known here, and
    InputError for one that is larger than the memory of the machine can map.
    """
    if not path.is_file():
        raise CheckpointError(f"{path} is missing; the folder holds a spec but no weights")
    try:
        with mapping(path), safe_open(path, "pt") as file:  # checks that sizes and places fit each other and the file
            metadata = file.metadata() or {}
        with path.open("rb") as opened:
            length = int.from_bytes(opened.read(8), "little")
            header = json.loads(opened.read(length))
    except (SafetensorError, OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise CheckpointError(f"{path} is broken or truncated ({error}); {way_back(path)}") from None
    header.pop("__metadata__", None)
    found = {}
    for name, about in header.items():
        if about["dtype"] not in TYPES:
            raise CheckpointError(f"{path}: {name!r} is of {about['dtype']}, a number format that is not read here")
        dtype, shape, start = TYPES[about["dtype"]], tuple(about["shape"]), 8 + length + about["data_offsets"][0]
        found[name] = stored(path, start, dtype, shape)
    return Weights(found), metadata


def write_safetensors(
    path: Path,
    values: Mapping[str, tuple[torch.dtype, tuple[int, ...]]],
    get: Callable[[str], Tensor],
    metadata: Mapping[str, str],
) -> None:
    """Write tensors to a file that need not be there. values: their types and sizes; get: a tensor by name, asked for
    one at a time, so that no more than one exists beside those that the caller keeps."""
    # Whole lines first, so that as many as can be begin at one; then wide numbers first, so that all are aligned.
    sizes = {name: dtype.itemsize * math.prod(shape) for name, (dtype, shape) in values.items()}
    order = sorted(values, key=lambda name: (sizes[name] % LINE > 0, -values[name][0].itemsize))
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    end = 0
    for name in order:
        start, end = end, end + sizes[name]
        dtype, shape = values[name]
        header[name] = {"dtype": NAMES[dtype], "shape": list(shape), "data_offsets": [start, end]}
    head = json.dumps(header, ensure_ascii=False).encode()
    head += b" " * (-(len(head) + 8) % LINE)
    with path.open("wb") as file:
        file.write(len(head).to_bytes(8, "little") + head)
        for name in order:
            value = get(name)
            assert (value.dtype, tuple(value.shape)) == (values[name][0], tuple(values[name][1])), name
            file.write(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
