"""Edits as words: "zero blocks.3.mixer.z h=0" is glassformer.zero("blocks.3.mixer.z", h=0)."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

from ..errors import InputError

if TYPE_CHECKING:
    from ..edit import Edit

VALUED = ("scale", "add", "replace", "noise")  # that take a number
KINDS = ("zero", "mean", *VALUED)


def edit_of(text: str) -> Edit:
    """The edit that a text names: what is done, the value's name, for some a number, and places as h=0 or t=2,5 (seed=1
    of noise). Raises InputError."""
    from ..edit import Edit

    kind, name, *rest = [*text.split(), "", ""][: max(2, len(text.split()))]
    if kind not in KINDS or not name:
        raise InputError(
            f"--edit {text!r}: this is no edit; say what is done ({', '.join(KINDS)}), to which value, with which "
            "number, and where, as in 'zero blocks.3.mixer.z h=0' or 'scale blocks.0.mixer.out 0.5'"
        )
    numbers = [one for one in rest if "=" not in one]
    if kind in VALUED and len(numbers) != 1:
        raise InputError(f"--edit {text!r}: {kind} takes one number behind the name; it has {len(numbers)}")
    if kind not in VALUED and numbers:
        raise InputError(f"--edit {text!r}: {kind} takes no number; leave {numbers[0]} out")
    value = _number(text, numbers[0]) if numbers else None
    where = dict(_place(text, one) for one in rest if "=" in one)
    seed = where.pop("seed", 0) if kind == "noise" else 0
    return Edit(name, kind, where, value, seed)


def _number(text: str, given: str) -> float | int:
    try:
        found = float(given)
    except ValueError:
        found = math.nan
    if not math.isfinite(found):
        raise InputError(f"--edit {text!r}: {given!r} is no number; use one such as 0.5")
    return int(found) if re.fullmatch(r"[+-]?\d+", given) else found


def _place(text: str, given: str) -> tuple[str, Any]:
    axis, _, places = given.partition("=")
    if not axis or not re.fullmatch(r"-?\d+(,-?\d+)*", places):
        raise InputError(
            f"--edit {text!r}: {given!r} is no place; use an axis letter and whole numbers, as h=0 or t=2,5"
        )
    found = [int(one) for one in places.split(",")]
    return axis, found if "," in places else found[0]


def words_of(edit: Edit) -> str:
    """The text that names an edit of a number, at places by number."""
    value = [] if edit.value is None else [repr(edit.value)]
    places: dict[str, Any] = {axis: [at] if isinstance(at, int) else at for axis, at in edit.where.items()}
    where = [f"{axis}={','.join(map(str, at))}" for axis, at in places.items()]
    return " ".join([edit.kind, edit.name, *value, *([f"seed={edit.seed}"] if edit.seed else []), *where])
