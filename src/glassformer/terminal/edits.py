"""Edits as words: "zero blocks.3.mixer.z h=0" is glassformer.zero("blocks.3.mixer.z", h=0)."""

from __future__ import annotations

import codecs
import math
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InputError

if TYPE_CHECKING:
    from ..edit import Edit

VALUED = ("scale", "add", "replace", "noise")  # that take a number
KINDS = ("zero", "mean", *VALUED, "resample", "cut", "patch")
# Beside places, what the words of a kind may say.
SAID = {"noise": ("seed",), "resample": ("seed",), "cut": ("renormalise",), "patch": ("run", "ids")}


def edits_of(words: Sequence[str], file: Path | None = None) -> list[Edit]:
    """The edits of --edit, behind those of a file in JSON (--edits). Raises InputError for what is none."""
    found = [] if file is None else [*_of_file(file)]
    return [*found, *map(edit_of, words)]


def _of_file(file: Path) -> tuple[Edit, ...]:
    from ..edit_json import edits_from_json

    try:
        text = file.read_bytes().removeprefix(codecs.BOM_UTF8)  # which editors of Windows write
    except OSError as error:
        raise InputError(f"{file}: cannot be read: {error.strerror}") from None
    try:
        return edits_from_json(text)
    except InputError as error:
        raise InputError(f"--edits {file}: it holds a mistake: {error}") from None


def edit_of(text: str) -> Edit:
    """The edit that a text names: what is done, the value's name, for some a number, and places as h=0, t=2,5 or t=2:5;
    seed=1 of what is drawn, renormalise=no of a cut, run="another text" and there.t=4 of a patch. Raises InputError."""
    from ..edit import Edit, cut
    from ..patches import patch

    kind, name, *rest = [*_split(text), "", ""][: max(2, len(_split(text)))]
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
    said = dict(one.split("=", 1) for one in rest if one.split("=", 1)[0] in SAID.get(kind, ()))
    others = [one for one in rest if "=" in one and one.split("=", 1)[0] not in said]
    for word in (one.split("=", 1)[0] for one in others):
        if any(word in words for words in SAID.values()):
            raise InputError(f"--edit {text!r}: {kind} takes no {word}; leave it out")
    places = dict(_place(text, one) for one in others)
    if len(places) < len(others):
        raise InputError(f"--edit {text!r}: one axis is given twice; give all of its places at once, as h=1,2")
    if kind == "patch":
        there = {axis.removeprefix("there."): places.pop(axis) for axis in [*places] if axis.startswith("there.")}
        return patch(name, _run(text, said), there=there, **places)
    if kind == "cut":
        return cut(name, renormalise=_yes(text, said.get("renormalise", "yes")), **places)
    return Edit(name, kind, places, value, _seed(text, said.get("seed", "0")))


def _split(text: str) -> list[str]:
    """The words of a text, several in quotes as one."""
    try:
        return shlex.split(text)
    except ValueError:
        raise InputError(
            f"--edit {text!r}: a quotation mark, or a backslash at the end, does not end; close it"
        ) from None


def _seed(text: str, given: str) -> int:
    if not re.fullmatch(r"[+-]?\d+", given):
        raise InputError(f"--edit {text!r}: seed={given} is not allowed; use a whole number")
    return int(given)


def _run(text: str, said: dict[str, str]) -> str | list[int]:
    """The text of the other run, or its token ids."""
    if len(said) != 1 or not all(said.values()):
        raise InputError(f"--edit {text!r}: a patch takes what another run has; give its text, as run='The dog ate'")
    if "run" in said:
        return said["run"]
    found = _place(text, f"ids={said['ids']}")[1]
    return [found] if isinstance(found, int) else found


def _yes(text: str, given: str) -> bool:
    if given not in ("yes", "no"):
        raise InputError(f"--edit {text!r}: renormalise={given} is not allowed; use yes or no")
    return given == "yes"


def _number(text: str, given: str) -> float | int:
    try:
        found = float(given)
    except ValueError:
        found = math.nan
    if not math.isfinite(found):
        raise InputError(f"--edit {text!r}: {given!r} is no number; use one such as 0.5")
    return int(found) if re.fullmatch(r"[+-]?\d+", given) else found


def _place(text: str, given: str) -> tuple[str, Any]:
    from ..edit_json import sliced

    axis, _, places = given.partition("=")
    if axis and ":" in places and re.fullmatch(r"(-?\d+)?(:(-?\d+)?){1,2}", places):
        return axis, sliced(places)
    if not axis or not re.fullmatch(r"-?\d+(,-?\d+)*", places):
        raise InputError(
            f"--edit {text!r}: {given!r} is no place; use an axis letter and whole numbers, as h=0 or t=2,5"
        )
    found = [int(one) for one in places.split(",")]
    return axis, found if "," in places else found[0]


def words_of(edit: Edit) -> str:
    """The text that names an edit of a number, of a cut, or from a run that has a text."""
    words = [edit.kind, edit.name]
    if edit.kind == "patch":
        words.append(f"run={_quoted(edit.run)}" if isinstance(edit.run, str) else f"ids={_written(edit.run)}")
    elif edit.value is not None:
        words.append(repr(edit.value))
    words += [f"seed={edit.seed}"] if edit.seed else []
    words += [f"{axis}={_written(at)}" for axis, at in edit.where.items()]
    words += [f"there.{axis}={_written(at)}" for axis, at in edit.there.items()]
    return " ".join([*words, *(["renormalise=no"] if not edit.renormalise else [])])


def _quoted(text: str) -> str:
    """A text as one word; in quotes that another pair of quotes may stand around."""
    return '"' + re.sub(r'(["\\])', r"\\\1", text) + '"'


def _written(place: Any) -> str:
    from ..edit_json import as_text

    if isinstance(place, slice):
        return as_text(place)
    return ",".join(map(str, [place] if isinstance(place, int) else place))
