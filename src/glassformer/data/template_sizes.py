"""How long what a template makes may become, worked out before it is made."""

from __future__ import annotations

import re
from collections.abc import Callable, ItemsView, Iterator, KeysView, Sequence, ValuesView
from typing import Any

from jinja2.utils import Namespace

CHARACTERS = 1 << 20  # of any text or list that is made on the way, and of the outcome
STEPS = 1 << 26  # characters that the loops of a template may pass through in all
# The methods of texts, lists and dicts that published templates use.
METHODS = frozenset(
    (
        "capitalize", "count", "endswith", "find", "format", "get", "index", "isalnum", "isalpha", "isdigit", "islower",
        "isspace", "isupper", "items", "join", "keys", "lower", "lstrip", "partition", "removeprefix", "removesuffix",
        "replace", "rfind", "rpartition", "rsplit", "rstrip", "split", "splitlines", "startswith", "strip", "title",
        "upper", "values",
    )
)  # fmt: skip
_VIEWS = KeysView | ItemsView | ValuesView


def sized(value: Any) -> bool:
    """Whether it is a text or a list."""
    return isinstance(value, str | list | tuple)


def weight(value: Any, indent: int = 0) -> int:
    """About how long a value is when it is written out, lists in lists included, each level so much further in; it
    counts little beyond CHARACTERS."""
    total, left = 0, [(value, 1)]
    while left and total <= CHARACTERS:
        one, depth = left.pop()
        total += 1 + depth * indent
        if isinstance(one, str):
            total += len(one)
        elif isinstance(one, int):
            total += one.bit_length() // 3
        else:
            left += [(part, depth + 1) for part in _parts(one)]
    return total


def _parts(value: Any) -> Sequence[Any]:
    if isinstance(value, Namespace):
        value = value._Namespace__attrs
    if isinstance(value, dict):
        return [*value, *value.values()]
    return list(value) if isinstance(value, list | tuple | _VIEWS) else []


def sizes(name: str, given: Sequence[Any], named: dict[str, Any]) -> Iterator[int]:
    """How long what a method or a filter makes may become; one after the other, for each may be too much to work out
    the next. given: for a method, first what it is of."""
    everything = [*given, *named.values()]
    yield from map(weight, everything)
    texts = [one for one in everything if isinstance(one, str)]
    if name in _OF:
        yield _OF[name](texts, everything)


def _replaced(texts: list[str], everything: list[Any]) -> int:
    text, old, new = (*texts, "", "", "")[:3]
    return len(text) + text.count(old) * len(new)


def _joined(texts: list[str], everything: list[Any]) -> int:
    """Every text may be what stands between the parts of any other value."""
    lengths = [len(one) for one in everything if isinstance(one, str | list | tuple | dict | _VIEWS)]
    lists = [len(one) for one in everything if isinstance(one, list | tuple | dict | _VIEWS)]
    longest = max(map(len, texts), default=0)
    return longest * (max(lists) if lists else sorted([*lengths, 1])[-2:][0])


def _indented(texts: list[str], everything: list[Any]) -> int:
    wide = [one for one in everything if isinstance(one, int)] + [len(one) for one in texts[1:]]
    return (1 + len(texts[0].splitlines()) if texts else 1) * max(map(abs, wide), default=0)


def _stripped(texts: list[str], everything: list[Any]) -> int:
    """It makes nothing long, but takes long to look for each of many characters."""
    return len(texts[0]) * len(texts[1]) // 64 if len(texts) > 1 else 0


def _summed(texts: list[str], everything: list[Any]) -> int:
    """Numbers are summed, not lists, of which each would be copied again and again."""
    return CHARACTERS + 1 if sum(map(sized, everything)) > 1 + len(texts) else 0


def _rounded(texts: list[str], everything: list[Any]) -> int:
    return CHARACTERS + 1 if any(isinstance(one, int) and abs(one) > 100 for one in everything[1:]) else 0


def formatted(form: str, values: Sequence[Any]) -> int:
    """How long a text may become into which values are put, each as often as it is named and as wide as is asked; a
    width that is a value itself is too long."""
    fields = form.count("{") + form.count("%")
    if re.search(r"\{[^{}]*\{|%[^a-zA-Z%]*\*", form):
        return CHARACTERS + 1
    wide = sum(int(one[:9]) for one in re.findall(r"\d+", form))
    return len(form) + fields * sum(map(weight, values)) + wide


def _written(texts: list[str], everything: list[Any]) -> int:
    return formatted(everything[0], everything[1:])


def _as_json(texts: list[str], everything: list[Any]) -> int:
    """Separators are short; what stands deep in others is written that much further to the right."""
    step = max((one for one in everything[1:] if isinstance(one, int)), default=0)
    marks = [weight(one) for one in everything[1:] if sized(one)]
    return CHARACTERS + 1 if max(marks, default=0) > 64 else weight(everything[0], step + max(marks, default=0))


_OF: dict[str, Callable[[list[str], list[Any]], int]] = {
    "replace": _replaced, "do_replace": _replaced, "join": _joined, "do_join": _joined, "do_indent": _indented,
    "strip": _stripped, "lstrip": _stripped, "rstrip": _stripped, "do_trim": _stripped, "do_sum": _summed,
    "do_round": _rounded, "format": _written, "_tojson": _as_json,
}  # fmt: skip
