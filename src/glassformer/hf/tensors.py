"""Where each tensor of a published checkpoint lies in a model of ours, in both directions."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..errors import CheckpointError, alike

if TYPE_CHECKING:
    from .rules import Config, Family

Shapes = list[torch.Size]


@dataclass(frozen=True)
class Weight:
    """Tensors of theirs and the tensors of ours that hold the same numbers.

    theirs, ours  names without their last part ("weight" or "bias"), {} for the number of a block; `whole`: full names
    read          ours from theirs, given the shapes of ours and the spec of the model
    write         theirs from ours
    zeros         a checkpoint may lack it: then ours are zero
    """

    theirs: tuple[str, ...]
    ours: tuple[str, ...]
    read: Callable[[list[Tensor], Shapes, Any], list[Tensor]]
    write: Callable[[list[Tensor], Any], list[Tensor]]
    whole: bool = False
    zeros: bool = False

    @functools.cached_property
    def patterns(self) -> tuple[re.Pattern[str], ...]:
        """What a name of ours looks like, for each of them."""
        ends = "" if self.whole else r"\.(?P<leaf>weight|bias)"
        return tuple(re.compile(re.escape(one).replace(r"\{\}", r"(?P<number>\d+)", 1) + ends) for one in self.ours)

    def group(self, name: str) -> tuple[list[str], list[str]] | None:
        """(theirs, ours) that belong together with a tensor of ours; None where this is not about it."""
        for pattern in self.patterns:
            found = pattern.fullmatch(name)
            if found:
                parts = found.groupdict()
                number, leaf = parts.get("number", ""), f".{parts['leaf']}" if parts.get("leaf") else ""
                return tuple([one.replace("{}", number) + leaf for one in side] for side in (self.theirs, self.ours))
        return None


def weight(theirs: str, ours: str, *, whole: bool = False) -> Weight:
    """One tensor that both have alike; whole: the names are full, nothing is appended."""
    return Weight((theirs,), (ours,), lambda given, shapes, spec: given, lambda given, spec: given, whole)


def turned(theirs: str, *ours: str) -> Weight:
    """Matrices that multiply from the right, `in out`, as GPT-2 has them; of several ours the outputs side by side."""

    def flip(x: Tensor) -> Tensor:
        return x.T if x.ndim == 2 else x

    return Weight(
        (theirs,),
        ours,
        lambda given, shapes, spec: split([flip(given[0])], shapes),
        lambda given, spec: [flip(torch.cat(given))],
    )


def fused(theirs: str, *ours: str) -> Weight:
    """One matrix whose rows are those of several, one after the other."""
    return Weight(
        (theirs,), ours, lambda given, shapes, spec: split(given, shapes), lambda given, spec: [torch.cat(given)]
    )


def split(given: list[Tensor], shapes: Shapes) -> list[Tensor]:
    """Rows side by side taken apart; raises RuntimeError where they are not as many as asked for."""
    return list(given[0].split([shape[0] for shape in shapes]))


def read_tensors(
    family: Family, spec: Any, shapes: Mapping[str, torch.Size], weights: Mapping[str, Tensor], place: Path | str
) -> dict[str, Tensor]:
    """Our tensors, for the names and shapes of a model, from those of a checkpoint.

    Raises CheckpointError for a tensor that is missing, has no place, or is stored twice with other numbers.
    """
    stored = _Stored(family, weights, place)
    found: dict[str, Tensor] = {}
    for name in shapes:
        if name in found:
            continue
        rule, theirs, ours = _rule(family, name, shapes)
        wanted = [shapes[one] for one in ours if one in shapes]
        if len(wanted) < len(ours):
            raise CheckpointError(f"{place}: {theirs[0]!r} stands for {', '.join(ours)}, of which some have no place")
        if rule.zeros and not any(map(stored.name, theirs)):
            found.update((one, torch.zeros(shapes[one])) for one in ours)
            continue
        given = [stored.take(one) for one in theirs]
        try:
            found.update(zip(ours, rule.read(given, wanted, spec), strict=True))
        except (RuntimeError, ValueError, IndexError):
            shape = tuple(given[0].shape)
            raise CheckpointError(f"{place}: {theirs[0]!r} has shape {shape}, which fits nothing") from None
    stored.check_rest()
    return found


def write_tensors(family: Family, spec: Any, tensors: Mapping[str, Tensor], bare: bool) -> dict[str, Tensor]:
    """Their tensors from ours; bare: without the prefix, as the class without a head has them."""
    done: set[str] = set()
    made: dict[str, Tensor] = {}
    for name in tensors:
        if name in done:
            continue
        rule, theirs, ours = _rule(family, name, tensors)
        made.update(zip(theirs, rule.write([tensors[one] for one in ours], spec), strict=True))
        done.update(ours)
    if bare:
        made = {name.removeprefix(family.prefix): value for name, value in made.items()}
    return {name: value.contiguous() for name, value in made.items()}


def _rule(family: Family, name: str, known: Collection[str] = ()) -> tuple[Weight, list[str], list[str]]:
    """The rule for a tensor of ours: the first all of whose tensors are among the known, else the first."""
    groups = [(rule, *group) for rule in family.weights if (group := rule.group(name)) is not None]
    for found in groups:
        if all(one in known for one in found[2]):
            return found
    if groups:
        return groups[0]
    raise AssertionError(f"no rule of the family {family.name} says where {name} lies")


class _Stored:
    """The tensors of a checkpoint by their newest names, and which of them were taken."""

    def __init__(self, family: Family, weights: Mapping[str, Tensor], place: Path | str) -> None:
        self.family, self.weights, self.place = family, weights, place
        self.names = {self._newest(name): name for name in weights}
        self.taken: set[str] = set()

    def _newest(self, name: str) -> str:
        for old, new in self.family.legacy:
            name = re.sub(old, new, name)
        return name

    def name(self, wanted: str) -> str | None:
        """The name under which a tensor is stored, with its prefix or without."""
        prefix = self.family.prefix
        for one in (wanted, wanted.removeprefix(prefix)):
            if one in self.names:
                return one
        return None

    def firsts(self, alias: str) -> tuple[str, ...]:
        """Of which tensors one of that name may be a second copy."""
        found = self.family.aliases.get(alias, ())
        return (found,) if isinstance(found, str) else found

    def take(self, wanted: str) -> Tensor:
        """The tensor of that name, or of one that the family may store in its place."""
        stored = self.name(wanted)
        if stored is None:
            others = (alias for alias in self.family.aliases if wanted in self.firsts(alias))
            stored = next((self.name(alias) for alias in others if self.name(alias)), None)
        if stored is None:
            raise CheckpointError(
                f"{self.place}: the tensors lack {wanted!r} ({alike(wanted, self.names)}); fetch them again"
            )
        self.taken.add(stored)
        return self.weights[self.names[stored]]

    def check_rest(self) -> None:
        """Raise CheckpointError for a tensor without a place, or stored twice with different numbers."""
        for name in self.names.keys() - self.taken:
            if any(re.search(pattern, name) for pattern in self.family.skipped):
                continue
            full = name if name in self.family.aliases else self.family.prefix + name
            first = next((found for one in self.firsts(full) if (found := self.name(one))), None)
            if first is None:
                raise CheckpointError(
                    f"{self.place}: the tensors hold {name!r}, which has no place in this model; it belongs to another "
                    "configuration"
                )
            if not torch.equal(self.weights[self.names[name]], self.weights[self.names[first]]):
                raise CheckpointError(
                    f"{self.place}: {name!r} and {first!r} shall be one table and differ; set tie_word_embeddings to "
                    "false in config.json if the model has two"
                )


def check_counts(family: Family, config: Config, weights: Mapping[str, Tensor], place: Path | str) -> None:
    """Raise CheckpointError where a configuration counts more blocks than are stored, before any of them is built."""
    names = _Stored(family, weights, place).names
    for stack, field in family.stacks.items():
        rules = [rule for rule in family.weights if rule.ours[0].startswith(f"{stack}.{{}}.")]
        stems = {name.partition("{}")[0] for rule in rules for name in rule.theirs if "{}" in name}
        stems |= {stem.removeprefix(family.prefix) for stem in stems}
        pattern = re.compile(rf"(?:{'|'.join(map(re.escape, stems))})(\d+)\.")
        found = [int(match[1]) for match in map(pattern.match, names) if match]
        count, most = config.get(field), max(found, default=-1) + 1
        if isinstance(count, int) and count > most:
            raise CheckpointError(
                f"{place}: {field} is {count}, and the tensors of {most} blocks are stored; restore the config.json"
            )


def is_stored(family: Family, name: str, weights: Mapping[str, Tensor], place: Path | str) -> bool:
    """Whether a checkpoint has a tensor of that name, with its prefix or without."""
    return _Stored(family, weights, place).name(name) is not None


def are_apart(family: Family, weights: Mapping[str, Tensor], place: Path | str) -> bool:
    """Whether a checkpoint has two tensors with different numbers that its family may have as one."""
    stored = _Stored(family, weights, place)
    names = [stored.name(one) for one in (family.apart or ())[:2]]
    if not names or None in names:
        return False
    first, second = (weights[stored.names[one]] for one in names)
    return not torch.equal(first, second)


def shapes_of(tensors: Mapping[str, Tensor]) -> dict[str, torch.Size]:
    """Name and shape of each."""
    return {name: value.shape for name, value in tensors.items()}
