"""Why a model has no published form, in one line that names the place of its spec."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NoReturn

from ..errors import UnsupportedError
from ..model import AnySpec
from .rules import Difference, Family

MIXER = re.compile(r"^blocks(\.\d+(\.mixer)?)?$")  # the path of a difference where a family mixes tokens in another way
MOST = 4  # of the places that are named


def refuse(spec: AnySpec, family: str | None, families: Mapping[str, Family]) -> NoReturn:
    """Raise UnsupportedError: why the family asked for cannot be this model, and which could; or why none can."""
    kind = spec.__struct_config__.tag
    alike = [one for one in families.values() if one.base.__struct_config__.tag == kind]
    found = {one.name: one.nearest(spec)[1] for one in alike}
    if family is not None:
        first, able = families[family].nearest(spec)[1][0], [name for name, places in found.items() if not places]
        if able:
            raise UnsupportedError(f"a {family} model cannot be this one: {first}; {', '.join(able)} can")
        raise UnsupportedError(f"a {family} model cannot be this one: {first}")
    told = [places for places in found.values() if all(one.path for one in places)]
    near = [places for places in told if not any(MIXER.search(one.path) for one in places)]
    lacking = _unsaid(near or told)
    if lacking:
        shown = ", ".join(f"{place}={value}" for place, value in [*lacking.items()][:MOST])
        raise UnsupportedError(f"no published family can be this model: none has {shown}")
    name, places = min(found.items(), key=lambda one: (one[1] not in told, len(one[1])), default=("", []))
    if not places:
        raise UnsupportedError(f"no published family can be this model: none that is known here is of kind {kind}")
    raise UnsupportedError(f"no published family can be this model; the nearest is {name}: {places[0]}")


def _unsaid(found: list[list[Difference]]) -> dict[str, str]:
    """The places where every family has something else, there or in a part that holds them, each with its value; those
    of all blocks as one, whole parts first."""
    paths = [{_general(one.path) for one in places} for places in found]
    every: dict[str, str] = {}
    for one in (one for places in sorted(found, key=len) for one in places):
        every.setdefault(_general(one.path), one.value)
    common = [one for one in every if all(any(f"{one}.".startswith(f"{path}.") for path in other) for other in paths)]
    return {one: every[one] for one in sorted(common, key=lambda place: place.count("."))}


def _general(path: str) -> str:
    return re.sub(r"\.\d+(?=\.|$)", ".*", path)
