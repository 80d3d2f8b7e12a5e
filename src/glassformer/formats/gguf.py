"""GGUF files: metadata, then tensors, most of them in blocks of a few bits. Every count, size and place is checked
against the file before anything is allocated; the package `gguf` is only needed to open quantised blocks.

    "GGUF" · version u4 · tensors u8 · entries u8 · entries (name, type u4, value) · tensors (name, rank u4, sizes u8
    each, type u4, offset u8) · zeros up to a multiple of the alignment · the tensors' content

A text is its length u8 and its bytes; a list its type u4, its length u8 and its values. Sizes are written the last
axis first. A large model may lie in several such files, NAME-00001-of-00003.gguf and so on, of which the first has all
entries and each its own tensors.
"""

from __future__ import annotations

import functools
import itertools
import math
import mmap
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import CheckpointError, GlassformerError, InputError, UnsupportedError
from ..machine import give_back
from ..weights import Stored, Weights, mapping, stored

VERSIONS = (2, 3)
MARK = b"GGUF"
NUMBERS = {0: "B", 1: "b", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 7: "?", 10: "<u8", 11: "<i8", 12: "<f8"}
FLOAT, TEXT, LIST = 6, 8, 9
RANK = 4  # ggml's tensors have no more axes
PLAIN = {0: torch.float32, 1: torch.float16, 28: torch.float64, 30: torch.bfloat16}  # kept as PyTorch has them
ALIGNMENT = 32
CHUNK_BYTES = 256 << 10  # of quantised content, opened at a time
PART = re.compile(r"(?P<name>.+)-\d{5}-of-(?P<count>\d{5})\.gguf")


@dataclass(frozen=True)
class Held:
    """A tensor in a file: its type's number, its shape, the bytes [start, end) of its content."""

    path: Path
    type: int
    shape: tuple[int, ...]
    start: int
    end: int


@dataclass
class GGUF:
    """What a file, or the files of one model, hold: metadata by name, and the tensors."""

    path: Path
    metadata: dict[str, Any] = field(default_factory=dict)
    tensors: dict[str, Held] = field(default_factory=dict)

    def weights(self) -> Weights:
        """The tensors as ordinary numbers, none of them read yet."""
        return Weights({name: self._stored(held) for name, held in self.tensors.items()})

    def _stored(self, held: Held) -> Stored:
        if held.type in PLAIN:
            return stored(held.path, held.start, PLAIN[held.type], held.shape)
        read_as = functools.partial(opened, held)
        return Stored(torch.float32, held.shape, read_as, read_as=read_as)


def is_gguf(path: Path) -> Path | None:
    """The file to read where there is one at `path`, or the only one in a folder without a model of another kind; of
    a model in several parts the first."""
    files = [path] if path.is_file() else sorted(path.glob("*.gguf")) if path.is_dir() else []
    if len(files) > 1 and not set(files) <= set(parts_of(files[0])):
        raise InputError(f"{path} holds {len(files)} .gguf files; give one of them, such as {files[0]}")
    for file in files:
        with file.open("rb") as opened_file:
            if opened_file.read(4) == MARK or file.suffix == ".gguf":
                return file
    return None


def parts_of(path: Path) -> list[Path]:
    """By its name, the files of the model of which a file is one part, in their order; else the file alone."""
    named = PART.fullmatch(path.name)
    if not named:
        return [path]
    count = named["count"]
    return [path.with_name(f"{named['name']}-{i + 1:05}-of-{count}.gguf") for i in range(int(count))]


def read_whole(path: Path) -> GGUF:
    """The entries of a model and the places of its tensors, in one file or in several, of which the path is any.

    Raises CheckpointError for a part that is missing or belongs to another model, and as `read_header` does.
    """
    given = read_header(path)
    count = given.metadata.get("split.count", 1)
    if count in (0, 1):
        return given
    files = parts_of(path)
    if count != len(files):
        raise CheckpointError(
            f"{path} is one of {count!r} parts, which are found by their names, as NAME-00001-of-00003.gguf; give it "
            "the name that it had"
        )
    whole = GGUF(files[0])
    for number, file in enumerate(files):
        if not file.is_file():
            raise CheckpointError(f"{file} is missing, one of {count} files of weights; fetch it again")
        part = given if file == path else read_header(file)
        if (part.metadata.get("split.no"), part.metadata.get("split.count")) != (number, count):
            raise CheckpointError(f"{file} is not part {number + 1} of {count}, as its name says; fetch it again")
        for name, held in part.tensors.items():
            if name in whole.tensors:
                raise CheckpointError(f"{whole.tensors[name].path} and {file} both have {name!r}; fetch them again")
            whole.tensors[name] = held
        whole.metadata = whole.metadata or part.metadata
    told = whole.metadata.get("split.tensors.count", len(whole.tensors))
    if told != len(whole.tensors):
        raise CheckpointError(
            f"{whole.path}: the {count} parts hold {len(whole.tensors)} tensors and should hold {told}; fetch them "
            "again"
        )
    return whole


def read_header(path: Path) -> GGUF:
    """The metadata and the places of the tensors of a file.

    Raises CheckpointError for what is broken, truncated, or points outside of the file; UnsupportedError for versions
    and types that are not read.
    """
    try:
        with path.open("rb") as file, mapping(path), mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as raw:
            return _Header(path, raw).read()
    except (ValueError, OSError, struct.error, UnicodeDecodeError, IndexError) as error:
        if isinstance(error, GlassformerError):
            raise
        raise CheckpointError(f"{path} is broken or truncated ({error}); fetch it again") from None


class _Header:
    """A reader that never looks behind the end of the file."""

    def __init__(self, path: Path, raw: mmap.mmap) -> None:
        self.path, self.raw, self.at, self.size = path, raw, 0, len(raw)

    def read(self) -> GGUF:
        if self.take(4) != MARK:
            raise CheckpointError(f"{self.path} does not begin as a GGUF file does; fetch it again")
        version = self.number("<I")
        if version not in VERSIONS:
            raise UnsupportedError(
                f"{self.path}: version {version} of GGUF is not read, and neither are files of the other byte order; "
                f"there are: {', '.join(map(str, VERSIONS))}"
            )
        tensors, entries = self.number("<Q"), self.number("<Q")
        self.room(entries, 13, "entries")
        found = GGUF(self.path)
        for _ in range(entries):
            name = self.text()
            if name in found.metadata:
                raise CheckpointError(f"{self.path} is broken: it has {name!r} twice; fetch it again")
            found.metadata[name] = self.value(self.number("<I"))
        self.room(tensors, 33, "tensors")
        listed = [self.tensor() for _ in range(tensors)]
        alignment = found.metadata.get("general.alignment", ALIGNMENT)
        if not isinstance(alignment, int) or not 8 <= alignment <= 1 << 20 or alignment & (alignment - 1):
            raise CheckpointError(f"{self.path} is broken: an alignment of {alignment!r}; fetch it again")
        begin = -(-self.at // alignment) * alignment
        for name, kind, shape, offset in listed:
            if name in found.tensors:
                raise CheckpointError(f"{self.path} is broken: it has {name!r} twice; fetch it again")
            found.tensors[name] = self.held(name, kind, shape, begin + offset, offset % alignment)
        self.check_apart(found.tensors)
        return found

    # ------------------------------------------------------------ pieces

    def take(self, count: int) -> bytes:
        """The next bytes."""
        if count > self.size - self.at:
            raise CheckpointError(f"{self.path} is cut off at byte {self.size}, within its header; fetch it again")
        self.at += count
        return self.raw[self.at - count : self.at]

    def number(self, form: str) -> Any:
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def text(self) -> str:
        return self.take(self.number("<Q")).decode()

    def room(self, count: int, least_bytes: int, what: str) -> None:
        """Raise CheckpointError where the rest of the file cannot hold so many things of a size."""
        if count * least_bytes > self.size - self.at:
            raise CheckpointError(f"{self.path} is broken: it cannot hold {count} {what}; fetch it again")

    def value(self, kind: int) -> Any:
        """The value of an entry."""
        if kind == TEXT:
            return self.text()
        if kind == LIST:
            return self.several(self.number("<I"), self.number("<Q"))
        if kind not in NUMBERS:
            raise CheckpointError(f"{self.path} is broken: an entry of type {kind}; fetch it again")
        value = np.frombuffer(self.take(np.dtype(NUMBERS[kind]).itemsize), NUMBERS[kind])[0]
        return float(str(value)) if kind == FLOAT else value.item()  # of a float the shortest number that it stands for

    def several(self, kind: int, count: int) -> list[Any]:
        if kind == TEXT:
            self.room(count, 8, "texts")
            return [self.text() for _ in range(count)]
        if kind not in NUMBERS:
            raise UnsupportedError(f"{self.path}: a list of values of type {kind} is not read")
        self.room(count, np.dtype(NUMBERS[kind]).itemsize, "numbers")
        return np.frombuffer(self.take(count * np.dtype(NUMBERS[kind]).itemsize), NUMBERS[kind]).tolist()

    def tensor(self) -> tuple[str, int, tuple[int, ...], int]:
        """(name, type, shape, offset) of the next tensor."""
        name, rank = self.text(), self.number("<I")
        if not 1 <= rank <= RANK:
            raise CheckpointError(f"{self.path} is broken: {name!r} has {rank} axes; fetch it again")
        sizes = struct.unpack(f"<{rank}Q", self.take(8 * rank))
        return name, self.number("<I"), sizes[::-1], self.number("<Q")

    def held(self, name: str, kind: int, shape: tuple[int, ...], start: int, beside: int) -> Held:
        """The place of a tensor, which must lie in the file."""
        width, block_bytes = block_of(kind, name)
        if shape[-1] % width:
            raise CheckpointError(
                f"{self.path} is broken: rows of {shape[-1]} in {name!r}, in blocks of {width}; fetch it again"
            )
        end = start + math.prod(shape) // width * block_bytes
        if end > self.size or beside or not math.prod(shape):
            raise CheckpointError(
                f"{self.path} is broken or cut off: {name!r} of shape {shape} lies in bytes {start} to {end} of "
                f"{self.size}; fetch it again"
            )
        return Held(self.path, kind, shape, start, end)

    def check_apart(self, tensors: Mapping[str, Held]) -> None:
        """Raise CheckpointError where two tensors share bytes: few could stand for more than any memory holds."""
        order = sorted(tensors, key=lambda name: tensors[name].start)
        for one, other in itertools.pairwise(order):
            if tensors[other].start < tensors[one].end:
                raise CheckpointError(f"{self.path} is broken: {one!r} and {other!r} overlap; fetch it again")


# ---------------------------------------------------------------- quantised blocks


def block_of(kind: int, name: str) -> tuple[int, int]:
    """(numbers, bytes) of a block of a type."""
    if kind in PLAIN:
        return 1, PLAIN[kind].itemsize
    constants, _ = library(name)
    try:
        type_ = constants.GGMLQuantizationType(kind)
        return constants.GGML_QUANT_SIZES[type_]
    except (ValueError, KeyError):
        raise UnsupportedError(f"{name}: the type number {kind} is not known to the package gguf; update it") from None


def opened(held: Held, dtype: torch.dtype = torch.float32) -> Tensor:
    """The numbers of a quantised tensor, some rows at a time."""
    constants, quants = library(str(held.path))
    kind = constants.GGMLQuantizationType(held.type)
    rows, row_bytes = math.prod(held.shape[:-1]), (held.end - held.start) // math.prod(held.shape[:-1])
    made = torch.empty(rows, held.shape[-1], dtype=dtype)
    step = max(1, CHUNK_BYTES // row_bytes)
    for first in range(0, rows, step):
        count = min(step, rows - first)
        raw = np.fromfile(held.path, np.uint8, count * row_bytes, offset=held.start + first * row_bytes)
        try:
            part = quants.dequantize(raw.reshape(count, row_bytes), kind)
        except NotImplementedError:
            raise UnsupportedError(
                f"{held.path}: tensors of type {kind.name} are not opened by the package gguf"
            ) from None
        made[first : first + count] = torch.from_numpy(np.ascontiguousarray(part, np.float32))
    give_back()  # what opening took, of which the C library would keep holes between the weights
    return made.view(held.shape)


def library(place: str) -> tuple[Any, Any]:
    """The parts of the package gguf: (constants, quants). Raises UnsupportedError where it is not installed."""
    try:
        from gguf import constants, quants
    except ImportError:
        raise UnsupportedError(
            f'{place}: quantised tensors are opened by the package gguf; pip install "glassformer[gguf]"'
        ) from None
    return constants, quants
