"""Edits: changes of what a run computes, at places by axis letter.

    model.trace(text, edits=[zero("blocks.2.mixer.z", h=3), cut("blocks.0.mixer", t=5, s=2)])

An edit acts on the line where its value is tapped, so that everything after it follows, gradients pass through it, and
several act one after the other.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from .errors import InputError
from .place import Index, check_letters, indices, shown
from .tap import Documents, whole

Kind = Literal["zero", "scale", "add", "replace", "patch", "mean", "resample", "noise", "cut"]
KINDS: tuple[Kind, ...] = get_args(Kind)
NUMBERED = ("scale", "add", "replace", "noise")  # that take a number
SEEDED = ("resample", "noise")
OVER_TEXT = ("mean", "resample")  # what they put in one place depends on the others
SEEDS = -(2**63), 2**64 - 1  # that torch takes
NO_END = 1 << 62  # places of a text that has not ended


@dataclass(frozen=True, slots=True)
class Places:
    """The places of one axis that an edit changes in a value.

    at      their indices in the value
    among   which of all that the edit names they are, of so many (`count`): a text that is read in pieces has not all
    """

    at: list[int]
    among: list[int]
    count: int

    def of(self, value: Tensor, axis: int) -> Tensor:
        """What belongs to these of a value that has all that the edit names."""
        if len(self.at) == self.count:
            return value
        return value.index_select(axis, torch.tensor(self.among, dtype=torch.long, device=value.device))


@dataclass(frozen=True, eq=False)
class Edit:
    """A change of one tapped value, at the places that `where` gives by axis letter (all of an axis left out).

    A score of -∞ stays -∞, so that no edit opens what the mask forbids; an edited pattern is used as it is.

    kind    zero · scale (by `value`) · add (`value`) · replace (by `value`) · patch (by what another run had there) ·
            mean (over the places of axis `t`, or `s` where there is no `t`, that hold a token of the same document) ·
            resample (what another of these places has, by a permutation drawn from `seed` that leaves none as it is) ·
            noise (Gaussian of standard deviation `value`, from `seed`) · cut (of a mixer, `name`: query `t` is worked
            out as though the token at `s` were not there; `renormalise` False: its weight is 0, the others stay)
    run     of a patch: the text, or the token ids, of the other run, or its trace where nothing else says what it was
    there   of a patch: the places in the other run; where it is left out, those in this one
    model   of a patch: the name of the model whose run it is, where that is known
    """

    name: str
    kind: Kind
    where: Mapping[str, Index]
    value: Any = None
    seed: int = 0
    renormalise: bool = True
    run: Any = None
    there: Mapping[str, Index] = field(default_factory=dict)
    model: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise InputError(f"{self.name!r} names no value of a model; give a text, as blocks.0.mixer.out")
        if type(self.seed) is not int:
            raise InputError(f"{self.name}: the seed {self.seed!r} is not allowed; use a whole number")
        if not SEEDS[0] <= self.seed <= SEEDS[1]:
            raise InputError(f"{self.name}: the seed {self.seed} has more than 64 bits; use a smaller one")
        if self.kind in NUMBERED:
            single = _ndim(self.value)
            if single is None or (self.kind == "noise" and single):
                allowed = "a number" if self.kind == "noise" else "a number or a tensor"
                raise InputError(f"{self.name}: {self.kind} does not take {self.value!r}; give {allowed}")

    @property
    def line(self) -> str:
        """The Python call that makes it; a tensor, or a run that has no text, as "…"."""
        value = "" if self.value is None else f", {_written(self.value)}"
        if self.kind == "patch":
            value = f", {self.run!r}" if isinstance(self.run, str | list) else ", …"
        more = [f"{axis}={place!r}" for axis, place in self.where.items()]
        more += [f"renormalise={self.renormalise}"] if self.kind == "cut" and not self.renormalise else []
        more += [f"there={dict(self.there)!r}"] if self.there else []
        more = [f"seed={self.seed}"] * bool(self.seed) + more
        return f"gf.{self.kind}({self.name!r}{value}{''.join(f', {one}' for one in more)})"

    # ------------------------------------------------------------ how it acts

    def apply(self, value: Tensor, axes: str, documents: Documents = whole, start: int | None = None) -> Tensor:
        """The value after this edit; the given one stays as it is. documents: over what a mean is taken.

        start: how many places of the text come before those of a value that goes on from there; what the edit names
        beyond these is then left alone. None: the value is of a whole text, and has to have every place."""
        letters = axes.split()
        check_letters(self.where, axes, self.name)
        chosen = [self._places(letter, size, letters, start) for letter, size in zip(letters, value.shape, strict=True)]
        if not all(one.at for one in chosen):
            return value
        place = _outer([one.at for one in chosen], value.device)
        old = value[place]
        if self.kind in OVER_TEXT:
            new = (self._mean if self.kind == "mean" else self._resampled)(value, letters, documents)[place]
        else:
            new = self._changed(old, chosen)
        new = new.masked_fill_(old.isneginf(), -torch.inf)
        if self.kind == "cut" and self.renormalise:
            return self._normalised(value.index_put(place, new), old, chosen, letters)
        del old  # a score's n² numbers, of which no more than needed should exist at a time
        return value.index_put(place, new)

    def _normalised(self, value: Tensor, lost: Tensor, chosen: list[Places], letters: list[str]) -> Tensor:
        """A pattern without what it has lost, the rest of each row grown to what the row had in all."""
        axis = letters.index("s")
        rows = [one.at if i != axis else list(range(value.shape[axis])) for i, one in enumerate(chosen)]
        place = _outer(rows, value.device)
        left = 1 - lost.sum(axis, keepdim=True)
        return value.index_put(place, value[place] / left.masked_fill(left <= 0, 1.0))

    def _places(self, letter: str, size: int, letters: list[str], start: int | None) -> Places:
        """The edited places of one axis; none in a whole text is a mistake."""
        index = self.where.get(letter)
        if start is None or letter not in "ts":
            at = indices(index, size, self.name, letter)
            if not at:
                raise InputError(
                    f"{self.name}: axis {letter!r} has no place in {shown(index)}; it has {size} (0 to {size - 1})"
                )
            return Places(at, at, len(at))
        before = 0 if letter == "s" and "t" in letters else start  # a query sees all keys so far
        if index is None:
            at = list(range(size))
            return Places(at, at, size)
        named = indices(index, before + size if isinstance(index, slice) else NO_END, self.name, letter)
        here = [(place - before, i) for i, place in enumerate(named) if before <= place < before + size]
        return Places([place for place, _ in here], [i for _, i in here], len(named))

    def _changed(self, old: Tensor, chosen: list[Places]) -> Tensor:
        """The new content of the edited places, in memory of its own."""
        if self.kind in ("zero", "cut"):
            return torch.zeros_like(old)
        shape = [one.count for one in chosen]  # of all places that the edit names
        if self.kind == "noise":
            drawn = torch.randn(shape, generator=torch.Generator().manual_seed(self.seed))
            return _here(drawn, chosen).to(old, copy=True).mul_(self.value).add_(old)
        given = torch.as_tensor(self.value, dtype=old.dtype, device=old.device)
        try:
            given = _here(given.expand(shape), chosen)
        except RuntimeError:
            if self.kind == "patch":
                sizes = [(x, y) for x, y in zip(given.shape, shape, strict=False) if x != y]
                other, here = sizes[0] if sizes else (given.numel(), math.prod(shape))
                raise InputError(
                    f"{self.name}: the other run has {other} places where this one is patched at {here}; give a text "
                    "of as many tokens, or places of one size in both (as t=3 and there={'t': 4})"
                ) from None
            raise InputError(
                f"{self.name}: a value of shape {tuple(given.shape)} does not fit the edited place {tuple(shape)}"
            ) from None
        if self.kind == "scale":
            # A factor that learns would take 0 · (−∞) on the way back from what the mask forbids.
            return (old.masked_fill(old.isneginf(), 0.0) if given.requires_grad else old) * given
        return old + given if self.kind == "add" else given.clone()

    def _along(self, letters: list[str]) -> str:
        """The letter of the axis whose places are those of tokens."""
        letter = next((letter for letter in ("t", "s") if letter in letters), None)
        if letter is None:
            raise InputError(f"{self.name} has no position axis along which tokens stand; its axes are: {letters}")
        return letter

    def _mean(self, value: Tensor, letters: list[str], documents: Documents) -> Tensor:
        """The mean over the position axis within each document, in the value's shape; unchanged where no token is."""
        letter = self._along(letters)
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

    def _resampled(self, value: Tensor, letters: list[str], documents: Documents) -> Tensor:
        """At each token's place what another token of its document has, `b … n …`; unchanged where no token is."""
        letter = self._along(letters)
        axis, number = letters.index(letter), documents(letter)
        size = value.shape[axis]
        if number is None:
            return value.index_select(axis, torch.tensor(circle(size, self.seed), device=value.device))
        order = torch.arange(size).repeat(len(number), 1)
        for row, of_row in enumerate(number.tolist()):
            for one in {one for one in of_row if one >= 0}:
                mine = torch.tensor([i for i in range(size) if of_row[i] == one])
                order[row, mine] = mine[circle(len(mine), self.seed)]
        order = order.to(value.device).reshape(len(order), *[1] * (axis - 1), -1, *[1] * (value.ndim - axis - 1))
        return value.gather(axis, order.expand_as(value))


def _written(value: Any) -> str:
    """A number as Python reads it; anything else as "…"."""
    if not isinstance(value, int | float):
        return "…"
    return repr(value) if math.isfinite(value) else f"float({str(value)!r})"


def _ndim(value: Any) -> int | None:
    """How many axes a number or a tensor has; None for anything else."""
    if isinstance(value, Tensor):
        return value.ndim
    try:
        return torch.as_tensor(value, dtype=torch.float64).ndim
    except (TypeError, ValueError, RuntimeError):
        return None


def _outer(places: list[list[int]], device: torch.device) -> tuple[Tensor, ...]:
    """Every axis by the list of its places, shaped so that several lists mean every combination of theirs."""
    shapes = [[-1 if i == axis else 1 for i in range(len(places))] for axis in range(len(places))]
    return tuple(torch.tensor(one, device=device).reshape(shape) for one, shape in zip(places, shapes, strict=True))


def _here(value: Tensor, chosen: list[Places]) -> Tensor:
    """What belongs to the places that are there, of a value for all that an edit names."""
    for axis, one in enumerate(chosen):
        value = one.of(value, axis)
    return value


def circle(size: int, seed: int) -> list[int]:
    """A permutation of so many places that leaves none where it is, unless it is the only one: one circle through all
    (Sattolo 1986)."""
    order, drawn = list(range(size)), torch.Generator().manual_seed(seed)
    for i in range(size - 1, 0, -1):
        j = int(torch.randint(i, (), generator=drawn))
        order[i], order[j] = order[j], order[i]
    return order


def listed(edits: Edit | Iterable[Edit]) -> tuple[Edit, ...]:
    """One edit, or several. Raises InputError for what is none."""
    found = (edits,) if isinstance(edits, Edit) or not isinstance(edits, Iterable) else tuple(edits)
    for edit in found:
        if not isinstance(edit, Edit):
            raise InputError(f"{edit!r} is no edit; give what glassformer.zero, scale, add … return")
    return found


# ---------------------------------------------------------------- what makes them


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


def resample(name: str, seed: int = 0, **where: Index) -> Edit:
    """Replace what each token has by what another token of its document has, the same for the same seed."""
    return Edit(name, "resample", where, seed=seed)


def noise(name: str, deviation: float, seed: int = 0, **where: Index) -> Edit:
    """Add Gaussian noise of the given standard deviation (in the value's own unit), the same for the same seed."""
    edit = Edit(name, "noise", where, deviation, seed)  # refuses what is no number
    if not 0 <= deviation < math.inf:
        raise InputError(f"deviation: {deviation!r} is not allowed; use a finite number from 0")
    return edit


def cut(name: str, *, renormalise: bool = True, **where: Index) -> Edit:
    """Cut the edges from the tokens at `s` to the queries at `t` (left out: all) in the mixer `name`, for example
    `cut("blocks.0.mixer", t=5, s=2)`: each query is worked out as though those tokens were not there.

    In attention its score is -∞ and the other weights grow, of some heads alone with h; renormalise False: its weight
    is 0 and the others stay. What it is in every other mixer stands in `mixers.cuts`.
    """
    if "s" not in where:
        raise InputError(f"{name}: say which tokens are cut off, as s=2, and from which queries, as t=5")
    return Edit(name, "cut", where, renormalise=renormalise)
