"""Taps: the only way a value leaves a layer, and the probe that listens to them.

A layer taps a value on the line where it is born:

    q = tap("q", heads(self.q(x)), "b t h e")

Without a probe `tap` is the function `off`, which returns its argument. With a probe it records, edits or stops. The
probe travels with the call and is never stored in a layer, so two users of one model do not see each other.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from .errors import InputError, nearest
from .place import Index, check_letters, indices

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
    "k": ("class", "분류"),
    "c": ("channel", "채널"),
    "y": ("row", "행"),
    "x": ("column", "열"),
    "w": ("frame of sound", "소리 프레임"),
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


def as_built(cards: Mapping[str, Card], **changes: dict[str, str] | None) -> dict[str, Card]:
    """The cards of one module: a kind's, with what differs in this one; None: it has no such value."""
    kept = {name: card for name, card in cards.items() if changes.get(name, {}) is not None}
    return {name: dataclasses.replace(card, **changes.get(name, {})) for name, card in kept.items()}


Tap = Callable[..., Tensor]
# Axis letter -> number `b n` of the document that each of its places belongs to, -1 where no token is; None: all of a
# row is one document without a gap.
Documents = Callable[[str], Tensor | None]


def whole(axis: str) -> None:
    """Every row is one document without a gap."""


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

    def at(self, path: str, documents: Documents = whole) -> Tap:
        """The tap of the layer at `path`; documents: which places of its axes belong together."""

        def tap(name: str, value: Tensor, axes: str = "") -> Tensor:
            full = address(path, name)
            assert value.ndim == len(axes.split()), f"{full}: axes '{axes}' do not fit shape {tuple(value.shape)}"
            for edit in self.edits.get(full, ()):
                value = edit.apply(value, axes, documents)
                self.edited.add(full)
            self.keep(full, value, axes)
            return value

        return tap

    def keep(self, full: str, value: Tensor, axes: str) -> None:
        """Record a value, edited as it is to be, if it is wanted."""
        if self.want(full):
            assert full not in self.values, f"{full} was tapped twice in one call (activation checkpointing?)"
            self.values[full], self.axes[full] = value, axes
            if self.last and self.last <= self.values.keys():
                raise Stop


@dataclass(frozen=True, eq=False)
class Edit:
    """A change of one tapped value, at the places that `where` gives by axis letter (all of an axis left out).

    A score of -∞ stays -∞, so that no edit opens what the mask forbids; an edited pattern is used as it is.

    kind    zero · scale (by `value`) · add (`value`) · replace (by `value`) · mean (over the places of axis `t`, or `s`
            where there is no `t`, that hold a token of the same document) · noise (Gaussian of standard deviation
            `value`, from `seed`)
    """

    name: str
    kind: Literal["zero", "scale", "add", "replace", "mean", "noise"]
    where: Mapping[str, Index]
    value: Any = None
    seed: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise InputError(f"{self.name!r} names no value of a model; give a text, as blocks.0.mixer.out")
        if type(self.seed) is not int:
            raise InputError(f"{self.name}: the seed {self.seed!r} is not allowed; use a whole number")
        if self.kind in ("scale", "add", "replace", "noise"):
            try:
                single = torch.as_tensor(self.value, dtype=torch.float64).ndim == 0
            except (TypeError, ValueError, RuntimeError):
                single = None
            if single is None or (self.kind == "noise" and not single):
                allowed = "a number" if self.kind == "noise" else "a number or a tensor"
                raise InputError(f"{self.name}: {self.kind} does not take {self.value!r}; give {allowed}")

    @property
    def line(self) -> str:
        """The Python call that makes it; a tensor as "…"."""
        value = "" if self.value is None else f", {self.value!r}" if isinstance(self.value, int | float) else ", …"
        where = "".join(f", {axis}={place!r}" for axis, place in self.where.items())
        return f"gf.{self.kind}({self.name!r}{value}{f', seed={self.seed}' if self.seed else ''}{where})"

    def apply(self, value: Tensor, axes: str, documents: Documents = whole) -> Tensor:
        """The value after this edit; the given one stays as it is. documents: over what a mean is taken."""
        letters = axes.split()
        check_letters(self.where, axes, self.name)
        # Every axis by the list of its places, shaped so that several lists mean every combination of theirs.
        place = tuple(
            torch.tensor(self._places(letter, value.shape[axis]), device=value.device).reshape(
                [-1 if other == axis else 1 for other in range(value.ndim)]
            )
            for axis, letter in enumerate(letters)
        )
        old = value[place]
        new = self._mean(value, letters, documents)[place] if self.kind == "mean" else self._changed(old)
        new.masked_fill_(old.isneginf(), -torch.inf)
        del old  # a score's n² numbers, of which no more than needed should exist at a time
        return value.index_put(place, new)

    def _places(self, letter: str, size: int) -> list[int]:
        """The edited places of one axis; none is a mistake."""
        index = self.where.get(letter)
        chosen = indices(index, size, self.name, letter)
        if not chosen:
            raise InputError(f"{self.name}: axis {letter!r} has no place in {index}; it has {size} (0 to {size - 1})")
        return chosen

    def _changed(self, old: Tensor) -> Tensor:
        """The new content of the edited places, in memory of its own."""
        if self.kind == "zero":
            return torch.zeros_like(old)
        if self.kind == "noise":
            drawn = torch.randn(old.shape, generator=torch.Generator().manual_seed(self.seed)).to(old)
            return drawn.mul_(self.value).add_(old)
        given = torch.as_tensor(self.value, dtype=old.dtype, device=old.device)
        try:
            given = given.expand_as(old)
        except RuntimeError:
            raise InputError(
                f"{self.name}: a value of shape {tuple(given.shape)} does not fit the edited place {tuple(old.shape)}"
            ) from None
        return old * given if self.kind == "scale" else old + given if self.kind == "add" else given.clone()

    def _mean(self, value: Tensor, letters: list[str], documents: Documents) -> Tensor:
        """The mean over the position axis within each document, in the value's shape; unchanged where no token is."""
        letter = next((letter for letter in ("t", "s") if letter in letters), None)
        if letter is None:
            raise InputError(f"{self.name} has no position axis to take a mean over; its axes are: {letters}")
        axis, number = letters.index(letter), documents(letter)

        def mean(there: Tensor) -> Tensor:
            return value.where(there, 0).sum(axis, keepdim=True) / there.sum(axis, keepdim=True).clamp(min=1)

        there = ~value.isneginf()  # a score that the mask forbids has no part in a mean
        if number is None:
            return mean(there).expand_as(value)
        number = number.reshape(len(number), *[1] * (axis - 1), -1, *[1] * (value.ndim - axis - 1))
        out = value
        for one in number[number >= 0].unique():
            out = torch.where(number == one, mean(there & (number == one)), out)
        return out


def zero(name: str, **where: Index) -> Edit:
    """Set a tapped value to zero at the given places, for example `zero("blocks.2.mixer.z", h=3)`."""
    return Edit(name, "zero", where)


def scale(name: str, value: Any, **where: Index) -> Edit:
    """Multiply a tapped value by `value`, a number or a tensor that broadcasts to the place."""
    return Edit(name, "scale", where, value)


def add(name: str, value: Any, **where: Index) -> Edit:
    """Add `value` to a tapped value."""
    return Edit(name, "add", where, value)


def replace(name: str, value: Any, **where: Index) -> Edit:
    """Put `value` in the place of a tapped value."""
    return Edit(name, "replace", where, value)


def mean(name: str, **where: Index) -> Edit:
    """Replace a tapped value by its mean over the positions of this very input: over its own tokens, without padding
    and, in a packed row, without the other documents."""
    return Edit(name, "mean", where)


def noise(name: str, deviation: float, seed: int = 0, **where: Index) -> Edit:
    """Add Gaussian noise of the given standard deviation (in the value's own unit), the same for the same seed."""
    edit = Edit(name, "noise", where, deviation, seed)  # refuses what is no number
    if not 0 <= deviation < math.inf:
        raise InputError(f"deviation: {deviation!r} is not allowed; use a finite number from 0")
    return edit


def check_edited(probe: Probe, known: Callable[[], list[str]]) -> None:
    """Raise InputError when an edit named a value that no layer tapped; nothing must be silently left undone."""
    missing = probe.edits.keys() - probe.edited
    if missing:
        name = min(missing)
        raise InputError(f"no value named {name!r} in this model; {nearest(name, known())}")
