"""Edits as data: a list in JSON, as a file, a page or another program holds it.

[{"kind": "zero", "name": "blocks.2.mixer.z", "where": {"h": 3}},
 {"kind": "cut", "name": "blocks.0.mixer", "where": {"t": 5, "s": [1, 2]}},
 {"kind": "patch", "name": "blocks.2.resid_out", "where": {"t": 3}, "run": "The cat ate the fish"}]
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import msgspec
import torch

from .edit import NUMBERED, Edit, Kind, cut, listed, noise
from .errors import InputError
from .patches import patch
from .place import plain
from .tap import AXES

MOST_NUMBERS = 4096  # of a tensor that is written out
INFINITE = ("inf", "-inf", "nan")  # as texts
Where = dict[str, int | list[int] | str]


class EditData(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One edit (edit.Edit), its places as whole numbers, lists of them, or a slice as "2:5".

    value   a number ("inf" and "-inf" as texts), or a tensor as lists of numbers
    run     of a patch: the text of the other run, or its token ids; model: what its model is called
    """

    kind: Kind
    name: str
    where: Where = {}
    value: int | float | str | list[Any] | None = None
    seed: int = 0
    renormalise: bool = True
    run: str | list[int] | None = None
    there: Where = {}
    model: str = ""


def edits_to_json(edits: Edit | Iterable[Edit]) -> str:
    """One edit or several as JSON. Raises InputError for what no text can hold: a large tensor, or what was patched
    from a run that has edits of its own."""
    return msgspec.json.format(msgspec.json.encode([_data(edit) for edit in listed(edits)]), indent=2).decode()


def edits_from_json(text: str | bytes) -> tuple[Edit, ...]:
    """The edits that JSON holds, one or a list. Raises InputError for anything else."""
    try:
        found = msgspec.json.decode(text, type=EditData | list[EditData])
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise InputError(
            f'these are no edits in JSON: {error}; write a list such as [{{"kind": "zero", "name": '
            '"blocks.2.mixer.z", "where": {"h": 3}}]'
        ) from None
    return tuple(map(made, found if isinstance(found, list) else [found]))


def _data(edit: Edit) -> EditData:
    value = edit.value
    if edit.kind == "patch":
        if not isinstance(edit.run, str | list):
            raise InputError(
                f"{edit.name}: what is patched comes from a run that no text gives, since it has edits, several rows "
                "or a pair of texts; patch from one that has none"
            )
        value = None
    elif value is not None and not isinstance(value, int | float):
        value = torch.as_tensor(value)
        if value.numel() > MOST_NUMBERS:
            raise InputError(
                f"{edit.name}: a tensor of {value.numel():,} numbers is too large for JSON, which takes "
                f"{MOST_NUMBERS:,}; patch it from the run that it comes from"
            )
        value = value.tolist()
    value = _in_json(value)
    how = {"seed": edit.seed, "renormalise": edit.renormalise, "run": edit.run, "model": edit.model}
    return EditData(edit.kind, edit.name, written(edit.where), value, **how, there=written(edit.there))


def _in_json(value: Any) -> Any:
    """Numbers as JSON has them, which knows no infinities."""
    if isinstance(value, list):
        return [_in_json(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _from_json(name: str, value: Any) -> Any:
    """Numbers of what JSON has. Raises InputError for a text that is none."""
    if isinstance(value, list):
        return [_from_json(name, one) for one in value]
    if not isinstance(value, str):
        return value
    if value not in INFINITE:
        raise InputError(f"{name}: {value!r} is no number; use one such as 0.5, or {', '.join(INFINITE)}")
    return float(value)


def written(where: Mapping[str, Any]) -> Where:
    """Places as JSON has them."""
    found = {axis: plain(place) for axis, place in where.items()}
    return {axis: as_text(place) if isinstance(place, slice) else place for axis, place in found.items()}


def as_text(place: slice) -> str:
    """A slice as text, such as 2:5."""
    parts = (place.start, place.stop) if place.step is None else (place.start, place.stop, place.step)
    return ":".join("" if part is None else str(int(part)) for part in parts)


def made(data: EditData) -> Edit:
    """The edit of its data; mistakes are told as by the functions that make one."""
    for axis in (*data.where, *data.there):
        if axis not in AXES:
            raise InputError(f"{data.name}: {axis!r} is no axis; use a letter such as h or t")
    where, there = (
        {axis: sliced(place) if isinstance(place, str) else place for axis, place in one.items()}
        for one in (data.where, data.there)
    )
    if data.kind == "patch":
        return replace(patch(data.name, data.run, there=there, **where), model=data.model)
    value = _from_json(data.name, data.value)
    if data.kind == "cut":
        return cut(data.name, renormalise=data.renormalise, **where)
    if data.kind == "noise":
        return noise(data.name, value, data.seed, **where)
    if data.kind not in NUMBERED and data.value is not None:
        raise InputError(f"{data.name}: {data.kind} takes no number; leave {data.value} out")
    return Edit(data.name, data.kind, where, value, data.seed)


def sliced(text: str) -> slice:
    """The slice that a text such as "2:5" means. Raises InputError for any other text."""
    parts = text.split(":")
    try:
        numbers = [int(part) if part else None for part in parts]
    except ValueError:
        numbers = []
    if len(numbers) not in (2, 3):
        raise InputError(f"{text!r} is no place; use a whole number, several, or a slice such as 2:5")
    return slice(*numbers)
