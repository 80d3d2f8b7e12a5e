"""The variables of CTranslate2's `model.bin`, binary versions 2 to 6, read without its library.

    version u4 · spec name · revision u4 · count u4, then that many variables:
    name · rank u1 · sizes u4 each · type u1 · bytes u4 · content
    and from version 3 on: count u4 of aliases, each a name and the name of the variable that it stands for

A name is its length u2, the text and a zero byte. Before version 4 the type is the size of an item, and the number
behind it counts items. Weights of whole numbers are divided by the variable `…_scale`: one of each row in int8, a
single one in int16.
"""

from __future__ import annotations

import math
import mmap
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..errors import CheckpointError, InputError
from ..hf.tensors import split
from ..weights import mapping

MODEL = "model.bin"  # the file's name in a folder
VERSIONS = range(2, 7)
TYPES = (torch.float32, torch.int8, torch.int16, torch.int32, torch.float16, torch.bfloat16)
OF_SIZE = {4: torch.float32, 2: torch.int16, 1: torch.int8}  # before version 4
OLD_SCALE = 1000.0  # of int16 weights that were saved without one
ACTIVATIONS = ("relu", "gelu_tanh", "silu", "gelu", None, "tanh", "sigmoid")  # by number; None: not known here
RANK = 8  # no tensor of these models has more axes


def spec_of(path: Path) -> str | None:
    """The kind of model in a folder's model.bin or in a file of that name, as it calls itself; None where it is none of
    CTranslate2."""
    path = path / MODEL if path.is_dir() else path
    if path.name != MODEL or not path.is_file():
        return None
    with path.open("rb") as file:
        head = file.read(6)
        if len(head) < 6:
            return None
        version, size = struct.unpack("<IH", head)
        name = file.read(min(size, 64))
    plain = len(name) == size and name[:-1].isalnum() and name[-1:] == b"\0"
    return name[:-1].decode() if version in VERSIONS and plain else None


def activation_of(code: float) -> str | None:
    """The activation of a number; None where there is none of it here."""
    return ACTIVATIONS[int(code)] if 0 <= code < len(ACTIVATIONS) else None


@dataclass(frozen=True)
class Place:
    """Where the content of a variable lies in the file."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    start: int
    end: int


class Variables(Mapping[str, Tensor]):
    """The variables of a model.bin by name, each read when it is asked for and brought to floats where it is a weight
    of whole numbers. Names and sizes are all checked against the file before any content is read.

    spec, revision: the kind of model and of its layout, for example "TransformerSpec" and 7
    shapes: of every name, an alias too
    Raises CheckpointError for a file that is missing, broken, truncated, or of another version.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.places, self.aliases = path, {}, {}
        self.read: set[str] = set()
        try:
            with path.open("rb") as file, mapping(path):
                self.raw = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except FileNotFoundError:
            raise CheckpointError(f"{path} is missing") from None
        except InputError:
            raise
        except (ValueError, OSError) as error:  # an empty file cannot be mapped
            raise CheckpointError(f"{path} is broken or truncated ({error}); restore it from a copy") from None
        self._head()

    # ------------------------------------------------------------ the mapping

    def __getitem__(self, name: str) -> Tensor:
        whole = self.aliases.get(name, name)
        if whole not in self.places:
            raise self._missing(name)
        self.read |= {whole, f"{whole}_scale"}
        value, place = self._content(self.places[whole]), self.places[whole]
        if value.is_floating_point() or not self._is_weight(whole):
            return value
        return value.float() / self._scale(whole, place)

    def __iter__(self) -> Iterator[str]:
        scales = {f"{name}_scale" for name in (*self.places, *self.aliases) if self._is_weight(name)}
        return (name for name in (*self.places, *self.aliases) if name not in scales)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def get(self, name: str, default: Any = None) -> Any:
        """The variable, or `default` where there is none."""
        return self[name] if name in self else default  # noqa: SIM401 - this is that method

    def __contains__(self, name: object) -> bool:
        return name in self.places or name in self.aliases

    def shape(self, name: str) -> tuple[int, ...]:
        """The sizes of a variable, which is not read for it."""
        if name not in self:
            raise self._missing(name)
        return self.places[self.aliases.get(name, name)].shape

    def number(self, name: str, default: float) -> float:
        """A setting that is kept as a variable of one item; `default` where there is none."""
        return self[name].item() if name in self else default

    def check_all_read(self) -> None:
        """Raise CheckpointError where a variable has no place in the model that was made."""
        for name in sorted(self.places.keys() - self.read):
            raise CheckpointError(
                f"{self.path}: the variable {name!r} has no place in the models that this reader knows"
            )

    # ------------------------------------------------------------ the file

    def _head(self) -> None:
        """Find the place of every variable."""
        self.at = 0
        self.version = self._number("I")
        if self.version not in VERSIONS:
            raise CheckpointError(
                f"{self.path}: its version is {self.version}, and {VERSIONS[0]} to {VERSIONS[-1]} are read"
            )
        self.spec, self.revision = self._name(), self._number("I")
        for _ in range(self._count(least=9)):
            name = self._name()
            if name in self.places:
                raise self._broken(f"the variable {name!r} occurs twice")
            self.places[name] = self._place(name)
        for _ in range(self._count(least=6) if self.version >= 3 else 0):
            alias, name = self._name(), self._name()
            name = self.aliases.get(name, name)
            if name not in self.places or alias in self:
                raise self._broken(f"{alias!r} stands for {name!r}, which is not there, or is a name itself")
            self.aliases[alias] = name
        if self.at != len(self.raw):
            raise self._broken(f"{len(self.raw) - self.at} bytes follow where it should end")

    def _place(self, name: str) -> Place:
        rank = self._number("B")
        if rank > RANK:
            raise self._broken(f"the variable {name!r} has {rank} axes")
        shape = tuple(self._number("I") for _ in range(rank))
        code, size = self._number("B"), self._number("I")
        types = dict(enumerate(TYPES)) if self.version >= 4 else OF_SIZE
        if code not in types:
            raise self._broken(f"the variable {name!r} is of the unknown type {code}")
        size = size if self.version >= 4 else size * code
        start, self.at = self.at, self.at + size
        if self.at > len(self.raw):
            raise self._broken(f"the variable {name!r} reaches beyond the end")
        if size != math.prod(shape) * types[code].itemsize:
            raise self._broken(f"the variable {name!r} of shape {shape} has {size} bytes")
        return Place(types[code], shape, start, self.at)

    def _content(self, place: Place) -> Tensor:
        if place.start == place.end:
            return torch.empty(place.shape, dtype=place.dtype)
        return torch.frombuffer(bytearray(self.raw[place.start : place.end]), dtype=place.dtype).view(place.shape)

    def _is_weight(self, name: str) -> bool:
        place = self.places[self.aliases.get(name, name)]
        return name.endswith("weight") and bool(place.shape) and not place.dtype.is_floating_point

    def _scale(self, name: str, place: Place) -> Tensor:
        """By what whole numbers are divided, of a shape that fits them."""
        if place.dtype == torch.int16 and f"{name}_scale" not in self.places:
            return torch.tensor(OLD_SCALE)
        found = self.places.get(f"{name}_scale")
        if place.dtype == torch.int32 or found is None or found.dtype != torch.float32:
            raise CheckpointError(f"{self.path}: the weight {name!r} is quantised in a way that is not read here")
        if found.shape not in ((), (1,), place.shape[:1]):
            raise self._broken(f"the scales of {name!r} have the shape {found.shape}")
        return self._content(found).view(-1, *[1] * (len(place.shape) - 1))

    def _number(self, kind: str) -> int:
        try:
            (value,) = struct.unpack_from(f"<{kind}", self.raw, self.at)
        except struct.error:
            raise self._broken("it ends within a number") from None
        self.at += struct.calcsize(kind)
        return value

    def _count(self, least: int) -> int:
        """How many parts follow, of at least so many bytes each."""
        count = self._number("I")
        if count * least > len(self.raw) - self.at:
            raise self._broken(f"it announces {count} parts")
        return count

    def _name(self) -> str:
        size = self._number("H")
        text, self.at = self.raw[self.at : self.at + size], self.at + size
        try:
            if len(text) < size or text.find(0) != size - 1:
                raise ValueError
            return text[:-1].decode()
        except ValueError:
            raise self._broken("what should be a name is none") from None

    def _missing(self, name: str) -> CheckpointError:
        return CheckpointError(f"{self.path}: the variable {name!r} is missing; fetch it again")

    def _broken(self, what: str) -> CheckpointError:
        return CheckpointError(f"{self.path} is broken or truncated ({what}); restore it from a copy")


# ---------------------------------------------------------------- the layers of a Transformer


def layers(variables: Variables, stack: str) -> int:
    """How many layers a stack has."""
    count = 0
    while f"{stack}/layer_{count}/self_attention/linear_0/weight" in variables:
        count += 1
    return count


def layer(variables: Variables, theirs: str, ours: str) -> dict[str, Tensor]:
    """The weights and biases of the layer at a place of the file, by the names of a block here."""
    linears = {"self_attention/linear_1": "mixer.out", "ffn/linear_0": "channel.up", "ffn/linear_1": "channel.down"}
    if f"{theirs}/ffn/linear_0_noact/weight" in variables:
        linears |= {"ffn/linear_0": "channel.gate", "ffn/linear_0_noact": "channel.up"}
    norms = {"self_attention/layer_norm": "mixer_norm", "ffn/layer_norm": "channel_norm"}
    fused = {"self_attention/linear_0": "mixer"}
    if f"{theirs}/attention/linear_0/weight" in variables:
        linears |= {"attention/linear_0": "cross.q", "attention/linear_2": "cross.out"}
        norms["attention/layer_norm"], fused["attention/linear_1"] = "cross_norm", "cross"
    found: dict[str, Tensor] = {}
    for read, names in ((linear, linears), (norm, norms), (_fused, fused)):
        for name, own in names.items():
            found |= read(variables, f"{theirs}/{name}", f"{ours}.{own}")
    return found


def linear(variables: Variables, theirs: str, ours: str) -> dict[str, Tensor]:
    """The weight of a linear layer, and its bias where it has one."""
    bias = {f"{ours}.bias": variables[f"{theirs}/bias"]} if f"{theirs}/bias" in variables else {}
    return {f"{ours}.weight": variables[f"{theirs}/weight"]} | bias


def norm(variables: Variables, theirs: str, ours: str) -> dict[str, Tensor]:
    """The weight and the bias of a norm, as far as it has them."""
    leaves = [(a, b) for a, b in (("weight", "gamma"), ("bias", "beta")) if f"{theirs}/{b}" in variables]
    return {f"{ours}.{leaf}": variables[f"{theirs}/{stored}"] for leaf, stored in leaves}


def _fused(variables: Variables, theirs: str, ours: str) -> dict[str, Tensor]:
    """Projections whose rows lie one after the other: in self-attention the queries, as many as all heads together
    have, and then keys and values, which share the rest."""
    rows, own = variables.shape(f"{theirs}/weight")[0], theirs.endswith("self_attention/linear_0")
    queries = variables.shape(theirs.removesuffix("0") + "1/weight")[1] if own else 0
    sizes = [queries] * own + [(rows - queries) // 2] * 2
    if sum(sizes) != rows or min(sizes) < 1:
        raise CheckpointError(f"{variables.path}: {theirs}/weight has {rows} rows, which are no q, k and v")
    return {
        f"{ours}.{part}{leaf}": value
        for leaf, whole in linear(variables, theirs, "").items()
        for part, value in zip("qkv" if own else "kv", split([whole], [torch.Size([n]) for n in sizes]), strict=True)
    }
