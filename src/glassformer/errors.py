"""The exception tree. Every class is a mistake of the person who called, and its message names the way out.

A mistake of the programmer is an `assert`, never one of these.
"""

import contextlib
import difflib
import math
from collections.abc import Iterable, Iterator, Sequence


class GlassformerError(Exception):
    """A mistake a user can mend. The command line prints the message alone and leaves with status 2."""


class SettingError(GlassformerError, ValueError):
    """A setting that does not exist or whose value is not allowed; the message begins with its dotted path."""


class InputError(GlassformerError, ValueError):
    """A text, token, file or position that cannot be used as given."""


class CheckpointError(GlassformerError, ValueError):
    """A model folder that is broken, truncated, or does not fit its spec."""


class WriteError(GlassformerError, OSError):
    """A file that cannot be written, as on a full disk; what it was to replace is still there."""


class UnsupportedError(GlassformerError, NotImplementedError):
    """Something that is deliberately refused by name instead of being approximated."""


class MemoryLimitError(GlassformerError, MemoryError):
    """The memory limit that the user named does not suffice; the message gives the sizes."""


def check_whole(name: str, value: object, least: int, most: int) -> None:
    """Raise InputError for what is no whole number from `least` to `most`."""
    if type(value) is not int or not least <= value <= most:
        raise InputError(f"{name}: {value!r} is not allowed; use a whole number from {least:,} to {most:,}")


def check_above(name: str, value: object) -> None:
    """Raise InputError for what is no finite number above 0."""
    if isinstance(value, bool) or not (isinstance(value, int | float) and 0 < value < math.inf):
        raise InputError(f"{name}: {value!r} is not allowed; use more than 0")


def nearest(given: str, allowed: Iterable[str], most: int = 3, shown: int = 12) -> str:
    """The names in `allowed` closest to `given`, as text for the end of a message ('did you mean heads?'); where none
    is close, the first so many of them, and how many there are."""
    names = sorted(allowed)
    close = difflib.get_close_matches(given, names, n=most, cutoff=0.6)
    if close:
        return f"did you mean {', '.join(close)}?"
    many = f" … ({len(names)})" if len(names) > shown else ""
    return f"allowed: {', '.join(names[:shown])}{many}"


def alike(given: str, others: Iterable[str]) -> str:
    """Of names that were found instead of `given` one that is almost it, as text for a message; where none is, how
    many there are."""
    names = sorted(others)
    close = difflib.get_close_matches(given, names, n=1, cutoff=0.9)
    return f"did you mean {close[0]}?" if close else f"there are {len(names)} others"


def not_finite(where: str, edits: Sequence[object] = ()) -> str:
    """The message for numbers that are none (NaN, infinity), which would be drawn as nonsense. edits: those of the run,
    which may be the cause."""
    found = f"the numbers of this run are not finite {where}"
    if edits:
        return f"{found}: {blamed(edits)}"
    return (
        f"{found}: the model is broken or its training diverged; "
        "try --dtype float32, or train it again with a lower rate"
    )


def blamed(edits: Sequence[object]) -> str:
    """What a message says of edits that may be the cause, and what to do."""
    lines = ", ".join(str(getattr(one, "line", one)) for one in edits)
    return f"an edit may have made them so large; leave out or make smaller what was changed: {lines}"


@contextlib.contextmanager
def under(path: str) -> Iterator[None]:
    """Put `path` before the message of a SettingError raised inside, so that it names its place in the whole spec."""
    try:
        yield
    except SettingError as error:
        raise SettingError(f"{path}.{error}") from None
