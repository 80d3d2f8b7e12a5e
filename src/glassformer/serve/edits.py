"""The edits of a request: within its limits, and with what other runs had, within the memory of one run."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ..edit import Edit
from ..errors import InputError
from ..page.again import edited
from ..page.documents import PageEdit
from ..patches import resolved
from ..place import check_letters, indices
from ..trace import Trace
from .answers import TooLargeError

MOST_EDITS, MOST_PLACES = 64, 4096
MOST_OTHERS = 4  # other runs from which is patched
LONGEST_TEXT = 20_000  # characters
MOST_IDS = 8192


def check_length(text: str) -> None:
    """Raise InputError for a text that is longer than the page takes."""
    if len(text) > LONGEST_TEXT:
        raise InputError(
            f"the text has {len(text):,} characters and the page takes {LONGEST_TEXT:,}; give a shorter one"
        )


def check_ids(ids: Sequence[int]) -> None:
    """Raise InputError for more token ids than the page takes."""
    if len(ids) > MOST_IDS:
        raise InputError(f"there are {len(ids):,} token ids and the page takes {MOST_IDS:,}; give fewer")


def check_edits(asked: Sequence[PageEdit]) -> None:
    """Raise InputError for more than a page may ask for."""
    places = [at for one in asked for at in (*one.where.values(), *one.there.values()) if isinstance(at, list)]
    if len(asked) > MOST_EDITS or sum(map(len, places)) > MOST_PLACES:
        raise InputError(f"more than {MOST_EDITS} edits, or {MOST_PLACES} places in them; give fewer")
    others = {one.run if isinstance(one.run, str) else tuple(one.run) for one in asked if one.run is not None}
    if len(others) > MOST_OTHERS:
        raise InputError(f"values of {len(others)} other runs are put in and the page takes {MOST_OTHERS}; give fewer")
    for other in others:
        check_length(other) if isinstance(other, str) else check_ids(other)


def edits_of(asked: Sequence[PageEdit], run_of: Callable[[Any], Trace], most_bytes: int) -> tuple[Edit, ...]:
    """The edits, each patch with its value. run_of: the trace of another text, or of token ids. Raises InputError for
    what is no edit, and TooLargeError for values of other runs that have more than `most_bytes` together."""
    edits, runs, room = tuple(map(edited, asked)), dict[Any, Trace](), most_bytes

    def run(given: Any) -> Trace:
        key = given if isinstance(given, str) else tuple(given)
        if key not in runs:
            runs[key] = run_of(given)
        return runs[key]

    for edit in edits:
        if edit.kind == "patch":
            other, where = run(edit.run), {**edit.where, **edit.there}
            check_letters(where, other.axes(edit.name), edit.name)
            sizes = other.sizes(edit.name)
            room -= 4 * math.prod(len(indices(where.get(axis), size, edit.name, axis)) for axis, size in sizes)
            if room < 0:
                raise TooLargeError(
                    f"{edit.name}: what is put in from other runs has more than {most_bytes:,} bytes; put in fewer "
                    "values, or give a shorter text"
                )
    return resolved(edits, run)


def without_others(asked: Sequence[PageEdit], model: str) -> tuple[Edit, ...]:
    """The edits of a model that reads no text. Raises InputError for what another text should give."""
    if any(one.kind == "patch" for one in asked):
        raise InputError(f"{model} reads images, and the page puts in values of another text alone; leave patch out")
    return tuple(map(edited, asked))
