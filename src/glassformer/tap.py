"""Taps: the only way a value leaves a layer, and the probe that listens to them.

A layer taps a value on the line where it is born:

    q = tap("q", heads(self.q(x)), "b t h e")

Without a probe `tap` is the function `off`, which returns its argument. With a probe it records, edits or stops. The
probe travels with the call and is never stored in a layer, so two users of one model do not see each other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from .errors import InputError, nearest

# Axis letters, in the words of both languages. Every tap uses these and is checked against its value's rank.
AXES: Mapping[str, tuple[str, str]] = {
    "b": ("batch", "배치"),
    "t": ("position", "위치"),
    "s": ("source position", "참조 위치"),
    "d": ("model width", "모델 너비"),
    "h": ("head", "헤드"),
    "g": ("key/value head", "키·값 헤드"),
    "e": ("head width", "헤드 너비"),
    "f": ("hidden width", "은닉 너비"),
    "m": ("expert", "전문가"),
    "n": ("state width", "상태 너비"),
    "v": ("vocabulary", "어휘"),
    "l": ("layer", "층"),
}


@dataclass(frozen=True, slots=True)
class Card:
    """What a tapped value is: the paper's symbol and formula, one sentence in each language, and the article's
    statements that it makes visible (`../docs/statements.md`)."""

    symbol: str
    formula: str
    en: str
    ko: str
    statements: tuple[str, ...] = ()


Tap = Callable[..., Tensor]


def off(name: str, value: Tensor, axes: str = "") -> Tensor:
    """The tap that is off: nobody looks, nothing is done."""
    return value


def address(path: str, name: str) -> str:
    """The full name of a value tapped by the layer at `path`, which is empty for a layer used without a model."""
    return f"{path}.{name}" if path else name


class Stop(Exception):
    """Raised by a probe that has all it was asked for; caught by whoever started the run."""


class Probe:
    """Listens to the taps of one call.

    want    tells for a full name (`blocks.0.mixer.pattern`) whether its value is recorded
    edits   changes applied to tapped values, in order, before they are recorded and used
    last    the run stops (raises Stop) as soon as every name in this set was recorded

    A plain class on purpose: FSDP2 rebuilds dataclasses that it finds among forward arguments. A name that is tapped
    twice in one call means activation checkpointing is on; the probe refuses it instead of keeping either value.
    """

    def __init__(
        self,
        want: Callable[[str], bool] | None = None,
        edits: tuple[Edit, ...] = (),
        last: frozenset[str] = frozenset(),
    ) -> None:
        self.want = want or (lambda name: True)
        self.edits: dict[str, list[Edit]] = {}
        for edit in edits:
            self.edits.setdefault(edit.name, []).append(edit)
        self.last = last
        self.values: dict[str, Tensor] = {}
        self.axes: dict[str, str] = {}
        self.edited: set[str] = set()

    def wants(self, name: str) -> bool:
        """Whether the value must be computed explicitly: it is recorded or edited."""
        return name in self.edits or self.want(name)

    def at(self, path: str) -> Tap:
        """The tap of the layer at `path`."""

        def tap(name: str, value: Tensor, axes: str = "") -> Tensor:
            full = address(path, name)
            assert value.ndim == len(axes.split()), f"{full}: axes '{axes}' do not fit shape {tuple(value.shape)}"
            for edit in self.edits.get(full, ()):
                value = edit.apply(value, axes)
                self.edited.add(full)
            if self.want(full):
                assert full not in self.values, f"{full} was tapped twice in one call (activation checkpointing?)"
                self.values[full], self.axes[full] = value, axes
                if self.last and self.last <= self.values.keys():
                    raise Stop
            return value

        return tap


@dataclass(frozen=True, eq=False)
class Edit:
    """A change of one tapped value, at the places that `where` gives by axis letter (all of an axis left out).

    kind    zero · scale (by `value`) · add (`value`) · replace (by `value`) · mean (over the positions of the edited
            axis `t`, or `s` where there is no `t`) · noise (Gaussian of standard deviation `value`, from `seed`)
    """

    name: str
    kind: Literal["zero", "scale", "add", "replace", "mean", "noise"]
    where: Mapping[str, int | slice | list[int]]
    value: Any = None
    seed: int = 0

    def apply(self, value: Tensor, axes: str) -> Tensor:
        """The value after this edit; the given one stays as it is."""
        letters = axes.split()
        for letter in self.where:
            if letter not in letters:
                raise InputError(f"{self.name} has no axis {letter!r}; its axes are: {axes}")
        # Every axis by the list of its places, shaped so that several lists mean every combination of theirs.
        place = tuple(
            _places(self.name, letter, self.where.get(letter, slice(None)), value.shape[axis])
            .to(value.device)
            .reshape([-1 if other == axis else 1 for other in range(value.ndim)])
            for axis, letter in enumerate(letters)
        )
        new = self._changed(value, place, letters)
        return value.index_put(place, new)

    def _changed(self, value: Tensor, place: tuple[Tensor, ...], letters: list[str]) -> Tensor:
        """The new content of `value[place]`."""
        old = value[place]
        if self.kind == "zero":
            return torch.zeros_like(old)
        if self.kind == "mean":
            axis = next((letters.index(letter) for letter in ("t", "s") if letter in letters), None)
            if axis is None:
                raise InputError(f"{self.name} has no position axis to take a mean over; its axes are: {letters}")
            return value.mean(axis, keepdim=True).expand_as(value)[place]
        if self.kind == "noise":
            generator = torch.Generator().manual_seed(self.seed)
            return old + self.value * torch.randn(old.shape, generator=generator).to(old)
        given = torch.as_tensor(self.value, dtype=old.dtype, device=old.device)
        try:
            given = given.expand_as(old)
        except RuntimeError:
            raise InputError(
                f"{self.name}: a value of shape {tuple(given.shape)} does not fit the edited place {tuple(old.shape)}"
            ) from None
        return {"scale": old * given, "add": old + given, "replace": given}[self.kind]


def _places(name: str, letter: str, index: int | slice | list[int], size: int) -> Tensor:
    """The places that an index of one axis means, as a list of numbers; none is a mistake."""
    for i in [index] if isinstance(index, int) else index if isinstance(index, list) else []:
        if not -size <= i < size:
            raise InputError(f"{name}: axis {letter!r} has no index {i}; it has {size} (0 to {size - 1})")
    # An integer is kept as a slice of one, so that the edited part has the rank of the value whatever is chosen.
    index = slice(index, index + 1 or None) if isinstance(index, int) else index
    chosen = torch.arange(size)[index]
    if not len(chosen):
        raise InputError(f"{name}: axis {letter!r} has no place in {index}; it has {size} (0 to {size - 1})")
    return chosen


def zero(name: str, **where: int | slice | list[int]) -> Edit:
    """Set a tapped value to zero at the given places, for example `zero("blocks.2.mixer.z", h=3)`."""
    return Edit(name, "zero", where)


def scale(name: str, value: Any, **where: int | slice | list[int]) -> Edit:
    """Multiply a tapped value by `value`, a number or a tensor that broadcasts to the place."""
    return Edit(name, "scale", where, value)


def add(name: str, value: Any, **where: int | slice | list[int]) -> Edit:
    """Add `value` to a tapped value."""
    return Edit(name, "add", where, value)


def replace(name: str, value: Any, **where: int | slice | list[int]) -> Edit:
    """Put `value` in the place of a tapped value."""
    return Edit(name, "replace", where, value)


def mean(name: str, **where: int | slice | list[int]) -> Edit:
    """Replace a tapped value by its mean over the positions of this very input."""
    return Edit(name, "mean", where)


def noise(name: str, deviation: float, seed: int = 0, **where: int | slice | list[int]) -> Edit:
    """Add Gaussian noise of the given standard deviation (in the value's own unit), the same for the same seed."""
    return Edit(name, "noise", where, deviation, seed)


def check_edited(probe: Probe, known: Callable[[], list[str]]) -> None:
    """Raise InputError when an edit named a value that no layer tapped; nothing must be silently left undone."""
    missing = probe.edits.keys() - probe.edited
    if missing:
        name = min(missing)
        raise InputError(f"no value named {name!r} in this model; {nearest(name, known())}")
