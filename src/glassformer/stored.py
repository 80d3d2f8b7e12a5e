"""The file of a trace: one safetensors file whose metadata holds axes, labels, cards and spec."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from .errors import CheckpointError, InputError, nearest
from .files import replacing
from .place import Index, check_letters, label_key, picked
from .tap import AXES, Card
from .weights import mapping, write_safetensors

FORMAT = "glassformer-trace-1"


def write(
    path: Path,
    values: Mapping[str, tuple[torch.dtype, list[int]]],
    get: Callable[[str], Tensor],
    axes: Mapping[str, str],
    labels: Mapping[str, list[str]],
    cards: Mapping[str, Card],
    spec: str,
) -> None:
    """Write a trace's values, atomically. values: their types and sizes; get: a value by name, asked for one at a time,
    so that no more than one exists."""
    plain = {name: {field: getattr(card, field) for field in Card.__slots__} for name, card in cards.items()}
    metadata = {
        "format": FORMAT,
        "axes": json.dumps(axes),
        "labels": json.dumps(labels, ensure_ascii=False),
        "cards": json.dumps(plain, ensure_ascii=False),
        "spec": spec,
    }
    with replacing(path) as temporary:
        write_safetensors(temporary, values, get, metadata)


class StoredTrace:
    """A trace read back from its file: the same names, axes, labels and values, without the model."""

    def __init__(self, path: Path | str) -> None:
        path = Path(path)
        if not path.is_file():
            what = "is no file" if path.exists() else "does not exist"
            raise InputError(f"{path} {what}; give a file that trace.save wrote")
        try:
            with mapping(path), safe_open(path, "pt") as file:
                metadata = file.metadata() or {}
                self._values = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (SafetensorError, OSError) as error:
            raise CheckpointError(
                f"{path} is no trace, or a broken one ({error}); give a file that trace.save wrote, or save it again"
            ) from None
        if metadata.get("format") != FORMAT:
            raise CheckpointError(f"{path} is not a trace of this version; save it again with trace.save")
        try:
            self._axes, self._labels, cards, self.spec = (
                json.loads(metadata[part]) for part in ("axes", "labels", "cards", "spec")
            )
            self._cards = {
                name: Card(**{**card, "statements": tuple(card["statements"])}) for name, card in cards.items()
            }
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise CheckpointError(f"{path} is broken: its description cannot be read; save the trace again") from None
        if self._axes.keys() != self._values.keys() or self._axes.keys() != self._cards.keys():
            raise CheckpointError(f"{path} is broken: it does not hold the values it lists; save the trace again")
        for name, value in self._values.items():
            letters = self._axes[name].split() if isinstance(self._axes[name], str) else []
            if len(letters) != value.ndim or len(set(letters)) < value.ndim or not set(letters) <= AXES.keys():
                raise CheckpointError(
                    f"{path} is broken: the axes {self._axes[name]!r} of {name!r} do not fit its shape "
                    f"{tuple(value.shape)}; save the trace again"
                )

    def names(self) -> list[str]:
        """The names in the file, in the order in which the model computed them."""
        return list(self._axes)

    def axes(self, name: str) -> str:
        """The axis letters of a value."""
        if name not in self._axes:
            raise InputError(f"no value named {name!r} in this file; {nearest(name, self._axes)}")
        return self._axes[name]

    def labels(self, letter: str, name: str = "") -> list[str]:
        """What the places of an axis are called: tokens for t and s, numbers elsewhere; `name`: in this value."""
        if name:
            check_letters([letter], self.axes(name), name)
        key = label_key(letter, name)
        if key in self._labels:
            return self._labels[key]
        sizes = [
            self._values[one].shape[axes.split().index(letter)]
            for one, axes in self._axes.items()
            if letter in axes.split() and name in ("", one)
        ]
        if not sizes:
            raise InputError(f"no value in this file has an axis {letter!r}")
        return [str(i) for i in range(max(sizes))]

    def card(self, name: str) -> Card:
        """The card of a value."""
        self.axes(name)
        return self._cards[name]

    def __getitem__(self, name: str) -> Tensor:
        self.axes(name)
        return self._values[name]

    def part(self, name: str, **where: Index) -> Tensor:
        """The value at places given by axis letter; an integer drops its axis."""
        check_letters(where, self.axes(name), name)
        return picked(self[name], self.axes(name), where, name)
