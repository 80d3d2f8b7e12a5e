"""Settings as data: frozen, tagged, strict, and the same thing in Python, in JSON and after `--set`.

A concrete Spec lives beside the module it configures, so that one file shows a part's settings, state and
mathematics. This file holds what they share; it imports no torch.
"""

from __future__ import annotations

import json
import re
from typing import Any, TypeVar

import msgspec

from .errors import SettingError, nearest

S = TypeVar("S", bound="Spec")


class Spec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind"):
    """The base of every settings class. A subclass gives its `tag=`; the tag is written as the field `kind`."""

    def changed(self: S, **fields: Any) -> S:
        """A copy with some fields replaced, checked again as strictly as when it was first written."""
        return from_data({**to_data(self), **msgspec.to_builtins(fields)}, type(self))


def to_data(spec: Spec) -> dict[str, Any]:
    """The spec as plain dictionaries, lists and numbers."""
    return msgspec.json.decode(msgspec.json.encode(spec))  # through JSON, so that tuples are lists as in a file


def to_json(spec: Spec, indent: int | None = 2) -> str:
    """The spec as JSON text; `from_json` of it gives an equal spec."""
    return json.dumps(to_data(spec), indent=indent, ensure_ascii=False)


def from_data(data: Any, kind: type[S] | Any) -> S:
    """Plain data to a spec of type `kind` (a Spec class or a union of them).

    Raises SettingError with the dotted path of the first offending field.
    """
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        raise SettingError(_explain(str(error), data, kind)) from None


def from_json(text: str | bytes, kind: type[S] | Any) -> S:
    """JSON text to a spec of type `kind`; raises SettingError for broken JSON and for wrong settings."""
    try:
        data = json.loads(text)
    except ValueError as error:
        raise SettingError(f"not valid JSON: {error}") from None
    return from_data(data, kind)


def with_settings(spec: S, settings: dict[str, str], kind: type[S] | Any = None) -> S:
    """The spec after `--set path=value` for each pair, for example {"blocks.0.mixer.heads": "8"}.

    A value is read as JSON (numbers, true, null, lists, objects) and, failing that, as a plain word. The part `*`
    of a path means every element of a list: `blocks.*.mixer.heads=2`.
    """
    data = to_data(spec)
    for path, text in settings.items():
        try:
            value = json.loads(text)
        except ValueError:
            value = text
        _assign(data, path.split("."), value, path)
    return from_data(data, kind or type(spec))


def _assign(data: Any, parts: list[str], value: Any, path: str) -> None:
    """Set the place `parts` inside nested dictionaries and lists to `value`."""
    head, rest = parts[0], parts[1:]
    if isinstance(data, list):
        if head != "*" and not (head.isdigit() and int(head) < len(data)):
            raise SettingError(f"{path}: there is no element {head!r}; use 0 to {len(data) - 1}, or * for all")
        places: list[Any] = list(range(len(data))) if head == "*" else [int(head)]
    elif isinstance(data, dict):
        if head not in data:
            raise SettingError(f"{path}: unknown setting {head!r}; {nearest(head, [k for k in data if k != 'kind'])}")
        places = [head]
    else:
        raise SettingError(f"{path}: {head!r} cannot be set, since what precedes it is {data!r}, which has no parts")
    for place in places:
        if rest:
            _assign(data[place], rest, value, path)
        else:
            data[place] = value


def _explain(message: str, data: Any, kind: Any) -> str:
    """msgspec's message as `path: what is wrong; what to do`."""
    found = re.match(r"(?P<what>.*?)(?: - at `\$(?P<path>.*)`)?$", message, re.S)
    assert found
    what, where = found["what"], found["path"] or ""
    path = re.sub(r"\[(\d+)\]", r".\1", where).replace("[...]", ".*").lstrip(".")
    unknown = re.search(r"unknown field `(.+?)`", what)
    if unknown:
        fields = _fields_at(data, path, kind)
        full = f"{path}.{unknown[1]}" if path else unknown[1]
        return f"{full}: unknown setting; {nearest(unknown[1], fields)}" if fields else f"{full}: unknown setting"
    if re.match(r"[a-z_.]+: ", what):  # one of our own messages, which begins with the field below `path`
        return f"{path}.{what}" if path else what
    what = what[0].lower() + what[1:] if what else what
    return f"{path}: {what}" if path else what


def check_least(spec: Spec, least: float, *names: str) -> None:
    """Raise SettingError where a field is a number below `least`; None passes."""
    for name in names:
        value = getattr(spec, name)
        if value is not None and value < least:
            raise SettingError(f"{name}: {value} is not allowed; use {least} or more")


def check_positive(spec: Spec, *names: str) -> None:
    """Raise SettingError where a field is 0 or negative; None passes."""
    for name in names:
        value = getattr(spec, name)
        if value is not None and not value > 0:
            raise SettingError(f"{name}: {value} is not allowed; use more than 0, or null for no limit")


def _fields_at(data: Any, path: str, kind: Any) -> list[str]:
    """The fields that the spec at `path` has, found through its tag; an empty list where it cannot be told."""
    for part in path.split(".") if path else []:
        try:
            data = data[int(part)] if isinstance(data, list) else data[part]
        except (KeyError, ValueError, IndexError, TypeError):
            return []
    tag = data.get("kind") if isinstance(data, dict) else None
    pending, known = [Spec], {}
    while pending:
        for sub in pending.pop().__subclasses__():
            pending.append(sub)
            known[sub.__struct_config__.tag] = sub
    found = known.get(tag) or (kind if not path and isinstance(kind, type) else None)
    return list(found.__struct_fields__) if found is not None else []
