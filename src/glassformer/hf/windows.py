"""Sliding windows that only some blocks have: `layer_types`, and the older fields that counted them off."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import UnsupportedError
from .rules import Config, Rule

SLIDING, FULL = "sliding_attention", "full_attention"
PLACE = "blocks.*.mixer.mask.window"


def types(config: Config, by_default: Sequence[bool]) -> list[bool]:
    """Whether each block has the window: as `layer_types` says, or else as it is by default."""
    given = config["layer_types"]
    if given is None:
        return list(by_default)
    for one in given:
        if one not in (SLIDING, FULL):
            raise UnsupportedError(f"layer_types: {one!r} is not known here; known are {SLIDING}, {FULL}")
    return [one == SLIDING for one in given]


def windows(config: Config, local: Sequence[bool], window: int | None) -> list[int | None]:
    """The window of each block."""
    if window is None and any(local):
        raise UnsupportedError(f"layer_types: {SLIDING} needs a sliding_window, and there is none")
    return [window if one else None for one in local]


def named(found: Sequence[int | None]) -> list[str]:
    """`layer_types` of blocks with these windows."""
    return [FULL if window is None else SLIDING for window in found]


def only(found: Sequence[Any], default: Any) -> Any:
    """The one value that all have, of several equal ones; ValueError where they differ."""
    distinct = [one for i, one in enumerate(found) if one not in found[:i]]
    [value] = distinct or [default]
    return value


def every(number: int, period: int) -> list[bool]:
    """Of so many blocks every period-th sees all, and the others have the window."""
    return [(i + 1) % period != 0 for i in range(number)]


def _read_late(config: Config) -> list[int | None]:
    window = config["sliding_window"] if config["use_sliding_window"] else None
    first = config["max_window_layers"]
    late = [window is not None and i >= first for i in range(config["num_hidden_layers"])]
    return windows(config, types(config, late), window)


def _write_late(found: list[int | None]) -> Config:
    window = only([one for one in found if one is not None], None)
    first = next((i for i, one in enumerate(found) if one is not None), len(found))
    made = {"use_sliding_window": window is not None, "sliding_window": window, "max_window_layers": first}
    return made if all(found[first:]) else made | {"layer_types": named(found)}


# Qwen: the blocks from `max_window_layers` on.
LATE = Rule(
    ("use_sliding_window", "sliding_window", "max_window_layers", "layer_types", "num_hidden_layers"),
    (PLACE,),
    _read_late,
    _write_late,
    each=True,
)
LATE_DEFAULTS = {
    "use_sliding_window": False,
    "sliding_window": 4096,
    "max_window_layers": 28,
    "layer_types": None,
}
