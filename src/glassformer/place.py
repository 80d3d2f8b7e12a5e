"""Places in a tapped value: by axis letter and index, and what they are called."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, SupportsIndex

import torch
from torch import Tensor

from .errors import InputError

Index = SupportsIndex | slice | Sequence[int]


def single(index: Any) -> int | None:
    """The index as one whole number (also numpy's or torch's), None where it is something else, as a list of one."""
    if getattr(index, "ndim", 0):  # torch takes a tensor of one number for that number
        return None
    try:
        return operator.index(index)
    except TypeError:
        return None


def shown(index: Any) -> str:
    """An index as it is written: a slice as 2:5."""
    if not isinstance(index, slice):
        return repr(index)
    parts = ["" if one is None else str(one) for one in (index.start, index.stop, index.step)]
    return ":".join(parts if index.step is not None else parts[:2])


def plain(index: Index) -> int | list[int] | slice:
    """The index as a whole number, a list of them, or the slice that it is, whatever library it came from."""
    one = single(index)
    return one if one is not None else index if isinstance(index, slice) else [*map(int, index)]


def indices(index: Index | None, size: int, name: str, axis: str) -> list[int]:
    """An index of an axis of `size` as a list of places (None: all). Raises InputError for one that does not exist."""
    if index is None:
        return list(range(size))
    one = single(index)
    try:
        if isinstance(index, slice):
            return list(range(size))[index]
        chosen = [operator.index(i) for i in (getattr(index, "tolist", lambda: index)() if one is None else [one])]
    except (TypeError, ValueError):
        raise InputError(
            f"{name}: axis {axis!r} has no place {shown(index)}; give a whole number, a list of them, or a slice"
        ) from None
    for i in chosen:
        if not -size <= i < size:
            raise InputError(f"{name}: axis {axis!r} has no index {i}; it has {size} (0 to {size - 1})")
    return [i % size for i in chosen]


def check_letters(where: Iterable[str], axes: str, name: str) -> None:
    """Raise InputError for an axis letter that the value `name` does not have."""
    for letter in where:
        if letter not in axes.split():
            raise InputError(f"{name} has no axis {letter!r}; its axes are: {axes}")


def picked(value: Tensor, axes: str, where: Mapping[str, Index], name: str) -> Tensor:
    """`value` at places given by axis letter; an integer drops its axis."""
    letters = axes.split()
    for axis in reversed(range(len(letters))):  # the last first, so that a dropped axis does not move the others
        index = where.get(letters[axis])
        if index is None:
            continue
        places = indices(index, value.shape[axis], name, letters[axis])
        if single(index) is not None:
            value = value.select(axis, places[0])
        elif len(places) < value.shape[axis] or places != sorted(places):
            value = value.index_select(axis, torch.tensor(places, dtype=torch.long, device=value.device))
    return value


def label_key(letter: str, name: str) -> str:
    """Whose tokens the places of axis `letter` in the value `name` are: "t" and "s" of the only stack or the decoder,
    "encoder.t" and "encoder.s" of the encoder, to which the keys of cross-attention belong as well; "w" its frames."""
    source = name.startswith("encoder.") or (letter == "s" and ".cross." in name)
    return f"encoder.{letter}" if source and letter in ("t", "s", "w") else letter
