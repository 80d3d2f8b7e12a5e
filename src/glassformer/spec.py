"""Settings as data: frozen, tagged, strict, and the same thing in Python, in JSON and after `--set`.

A concrete Spec lives beside the module it configures, so that one file shows a part's settings, state and
mathematics. This file holds what they share; it imports no torch.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Callable, Iterator
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import msgspec

from .errors import SettingError, nearest

S = TypeVar("S", bound="Spec")


class Spec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind"):
    """The base of every settings class. A subclass gives its `tag=`; the tag is written as the field `kind`."""

    def changed(self: S, **fields: Any) -> S:
        """A copy with some fields replaced, checked again as strictly as when it was first written."""
        return from_data({**to_data(self), **_plain(fields)}, type(self))


def to_data(spec: Spec) -> dict[str, Any]:
    """The spec as plain dictionaries, lists and numbers."""
    return _plain(spec)


def _plain(value: Any) -> Any:
    """Through JSON, so that tuples are lists as in a file."""
    try:
        return msgspec.json.decode(msgspec.json.encode(value))
    except (TypeError, ValueError, OverflowError) as error:
        raise SettingError(f"a setting holds what no file can hold: {error}; use numbers, texts and specs") from None


def checked(spec: S, kind: type[S] | Any = None) -> S:
    """The spec, checked as strictly as one that is read from a file: Python looks at no types when it builds one.

    kind: what it shall be (None: its own class). Raises SettingError as `from_data` does.
    """
    return from_data(to_data(spec), kind or type(spec))


def to_json(spec: Spec, indent: int | None = 2) -> str:
    """The spec as JSON text; `from_json` of it gives an equal spec."""
    return json.dumps(to_data(spec), indent=indent, ensure_ascii=False)


def from_data(data: Any, kind: type[S] | Any) -> S:
    """Plain data to a spec of type `kind` (a Spec class or a union of them). A part that does not say its `kind` is of
    that which its field has by default, so that a recipe stays readable when there are more kinds.

    Raises SettingError with the dotted path of the first offending field.
    """
    for path, value in _numbers(data):
        if not math.isfinite(value):
            raise SettingError(f"{path}: {value} is not allowed; use a finite number")
    with contextlib.suppress(msgspec.ValidationError):
        return msgspec.convert(data, kind)
    data = _of_default_kinds(data, kind)
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        raise SettingError(_explain(str(error), data, kind)) from None


def _of_default_kinds(data: Any, kind: Any) -> Any:
    """The same data with the `kind` of each part that is of its field's default kind and does not say so."""
    if isinstance(data, list | tuple):
        return [_of_default_kinds(value, _type_inside(kind, list(data), i)) for i, value in enumerate(data)]
    own = _class_of(kind, data)
    if own is None or not isinstance(data, dict):
        return data
    usual = {field.encode_name: field.default for field in msgspec.structs.fields(own)}
    made = {}
    for name, value in data.items():
        if isinstance(value, dict) and "kind" not in value and isinstance(usual.get(name), Spec):
            value = {"kind": _tag(type(usual[name])), **value}
        made[name] = _of_default_kinds(value, _type_inside(kind, data, name))
    return made


def from_json(text: str | bytes, kind: type[S] | Any) -> S:
    """JSON text to a spec of type `kind`; raises SettingError for broken JSON and for wrong settings."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SettingError(f"not valid JSON: {error}") from None
    return from_data(data, kind)


def with_settings(spec: S, settings: dict[str, str], kind: type[S] | Any = None) -> S:
    """The spec after `--set path=value` for each pair, for example {"blocks.0.mixer.heads": "8"}.

    A value is read as JSON (numbers, true, null, lists, objects) and, failing that, as a plain word; so it is where
    the setting is a text, as in `prompt=2024`. The part `*` of a path means every element of a list:
    `blocks.*.mixer.heads=2`. A `kind` is set before everything else, and a part that changes its kind keeps those of
    its settings that the new kind has too and that were not the defaults.
    """
    kind = kind or type(spec)
    data = to_data(spec)
    for path in sorted(settings, key=_order):
        _assign(data, path.split("."), settings[path], path, kind)
    return from_data(data, kind)


def _order(path: str) -> int:
    """Kinds first, the outer before the inner; all else in the order given."""
    parts = path.split(".")
    return len(parts) if parts[-1] == "kind" else 1000


def whole_number(text: str) -> int | None:
    """The number that a text of up to nine digits stands for; None for any other."""
    return int(text) if re.fullmatch("[0-9]{1,9}", text) else None


def _value(text: str, kind: Any) -> Any:
    """What a text stands for as a value of type `kind`."""
    try:
        value = json.loads(text)
        if str in _members(kind):
            msgspec.convert(value, kind)
        return value
    except (ValueError, RecursionError):  # no JSON, or none that the type takes
        return text


def _assign(data: Any, parts: list[str], text: str, path: str, kind: Any) -> None:
    """Set the place `parts` inside nested dictionaries and lists of type `kind` to what `text` stands for."""
    head, rest = parts[0], parts[1:]
    if isinstance(data, list):
        number = whole_number(head)
        if head != "*" and not (number is not None and number < len(data)):
            raise SettingError(f"{path}: there is no element {head!r}; use 0 to {len(data) - 1}, or * for all")
        places: list[Any] = list(range(len(data))) if head == "*" else [number]
    elif isinstance(data, dict):
        own = _class_of(kind, data)
        known = {"kind", *data, *(own.__struct_fields__ if own else ())}
        if head not in known:
            raise SettingError(f"{path}: unknown setting {head!r}; {nearest(head, known - {'kind'})}")
        if head == "kind":
            return _become(data, text, path, kind)
        places = [head]
    else:
        shown = "null" if data is None else repr(data)
        raise SettingError(f"{path}: {head!r} cannot be set, since what precedes it is {shown}, which has no parts")
    for place in places:
        inner = _type_inside(kind, data, place)
        if not rest:
            data[place] = _value(text, inner)
            continue
        if data.get(place, "") is None if isinstance(data, dict) else data[place] is None:
            choices = [_tag(one) for one in _classes(inner)]
            if choices and rest != ["kind"]:
                above = path.removesuffix("." + ".".join(rest))
                raise SettingError(f"{path}: {above} is null; set {above}.kind too, to {', '.join(choices)}")
            if choices:
                data[place] = {}
        _assign(data[place], rest, text, path, inner)
    return None


def _become(data: dict[str, Any], tag: str, path: str, kind: Any) -> None:
    """Make the settings `data` those of another kind."""
    old, choices = _class_of(kind, data), {_tag(one): one for one in _classes(kind)}
    if tag not in choices:
        raise SettingError(f"{path}: {tag!r} is not allowed; use {', '.join(choices)}")
    new = choices[tag]
    if old is not new:
        before, after = _defaults(old) if old else {}, _defaults(new)
        changed = {name: value for name, value in data.items() if name not in before or value != before[name]}
        kept = {name: value for name, value in changed.items() if old and name in new.__struct_fields__}
        data.clear()
        data.update({"kind": tag} | after | kept)


def _defaults(kind: type[Spec]) -> dict[str, Any]:
    """The fields of a class that have a default, as plain data."""
    found = {}
    for field in msgspec.structs.fields(kind):
        if field.default is not msgspec.NODEFAULT:
            found[field.encode_name] = field.default
        elif field.default_factory is not msgspec.NODEFAULT:
            found[field.encode_name] = field.default_factory()
    return msgspec.json.decode(msgspec.json.encode(found))


# ---------------------------------------------------------------- which class stands at a path


def _tag(kind: type[Spec]) -> str:
    return str(kind.__struct_config__.tag)


def _members(kind: Any) -> Iterator[Any]:
    """The members of a union, or the type itself."""
    if get_origin(kind) in (Union, UnionType):
        for one in get_args(kind):
            yield from _members(one)
    elif get_origin(kind) is Annotated:
        yield from _members(get_args(kind)[0])
    else:
        yield kind


def _classes(kind: Any) -> list[type[Spec]]:
    """The Spec classes that a value of this type may have."""
    return [one for one in _members(kind) if isinstance(one, type) and issubclass(one, Spec)]


def _class_of(kind: Any, data: Any) -> type[Spec] | None:
    """The Spec class of plain data of a type, by its tag where the type leaves a choice; None where none fits."""
    found, tag = _classes(kind), data.get("kind") if isinstance(data, dict) else None
    if len(found) == 1 and tag is None:
        return found[0]
    return next((one for one in found if _tag(one) == tag), None)


def _type_inside(kind: Any, data: Any, place: str | int) -> Any:
    """The type of a field or of an element of `data`, which is of type `kind`; None where there is none."""
    if isinstance(data, list):
        several = next((get_args(one) for one in _members(kind) if get_origin(one) in (tuple, list)), ())
        return several[0] if several else None
    own = _class_of(kind, data)
    return (
        next((field.type for field in msgspec.structs.fields(own) if field.encode_name == place), None) if own else None
    )


def _at(data: Any, path: str, kind: Any) -> tuple[Any, Any]:
    """The data and the type at a dotted path; (None, None) where it cannot be told."""
    for part in path.split(".") if path else []:
        place = whole_number(part) if isinstance(data, list) else part
        inner = _type_inside(kind, data, place)
        try:
            data, kind = data[place], inner
        except (KeyError, IndexError, TypeError):
            return None, inner
    return data, kind


def _choices(data: Any, path: str, kind: Any) -> list[str]:
    """The values allowed at a path: those of a Literal, or the kinds of the part."""
    above, _, last = path.rpartition(".")
    if last == "kind":
        return [_tag(one) for one in _classes(_at(data, above, kind)[1])]
    found = _at(data, path, kind)[1]
    named = [str(value) for one in _members(found) if get_origin(one) is Literal for value in get_args(one)]
    return ["true", "false", *named] if named and bool in get_args(found) else named


# ---------------------------------------------------------------- messages


def _explain(message: str, data: Any, kind: Any) -> str:
    """msgspec's message as `path: what is wrong; what to do`."""
    found = re.match(r"(?P<what>.*?)(?: - at `\$(?P<path>.*)`)?$", message, re.S)
    assert found
    what, where = found["what"], found["path"] or ""
    path = re.sub(r"\[(\d+)\]", r".\1", where).replace("[...]", ".*").lstrip(".")
    unknown = re.search(r"unknown field `(.+?)`", what)
    if unknown:
        here, type_here = _at(data, path, kind)
        own = _class_of(type_here, here)
        full = f"{path}.{unknown[1]}" if path else unknown[1]
        return (
            f"{full}: unknown setting; {nearest(unknown[1], own.__struct_fields__)}"
            if own
            else f"{full}: unknown setting"
        )
    if re.match(r"[a-z_.]+: ", what):  # one of our own messages, which begins with the field below `path`
        return f"{path}.{what}" if path else what
    type_wrong = re.match(r"Expected `([^`]+)`(?: of length (\d+))?", what)
    value_wrong = re.match(r"Invalid (?:enum )?value ('.*')$", what)
    choices = _choices(data, path, kind) if type_wrong or value_wrong else []
    if type_wrong:
        given, allowed = _shown(_at(data, path, kind)[0]), ", ".join(choices) or _wanted(type_wrong[1], type_wrong[2])
        what = f"{given} is not allowed; use {allowed}"
    elif value_wrong and choices:
        what = f"{value_wrong[1]} is not allowed; use {', '.join(choices)}"
    what = what[:1].lower() + what[1:]
    return f"{path}: {what}" if path else what


_KINDS = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "str": "a text",
    "array": "a list",
    "object": "a table of settings",
}


def _wanted(types: str, length: str | None) -> str:
    """What msgspec expects, in words: `int | null` as 'a whole number, or null'."""
    words = [_KINDS.get(one, one) for one in types.split(" | ")]
    return ", or ".join(f"{word} of {length}" if length and word == "a list" else word for word in words)


def _shown(value: Any) -> str:
    """A value as in a recipe, shortened; a text in quotes."""
    text = repr(value) if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=repr)
    return text if len(text) <= 60 else f"{text[:59]}…"


def _numbers(data: Any, path: str = "") -> Iterator[tuple[str, float]]:
    """Every float inside plain data with its dotted path."""
    if isinstance(data, float):
        yield path, data
        return
    pairs = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list | tuple) else ()
    for key, value in pairs:
        yield from _numbers(value, f"{path}.{key}" if path else str(key))


# ---------------------------------------------------------------- checks that settings share


def check_least(spec: Spec, least: float, *names: str) -> None:
    """Raise SettingError where a field is a number below `least`, infinite or NaN; None passes."""
    _check(spec, names, lambda value: value >= least, f"{least} or more")


def check_between(spec: Spec, least: float, most: float, *names: str) -> None:
    """Raise SettingError where a field is a number outside [least, most] or NaN; None passes."""
    _check(spec, names, lambda value: least <= value <= most, f"a number from {least} to {most}")


LENGTH_POWER = 10  # the largest |α| of length^α, with which the score of no text overflows


def check_positive(spec: Spec, *names: str) -> None:
    """Raise SettingError where a field is 0, negative, infinite or NaN; None passes."""
    _check(spec, names, lambda value: value > 0, "more than 0")


def check_share(spec: Spec, *names: str) -> None:
    """Raise SettingError where a field is outside [0, 1), as a share that is dropped may not be; None passes."""
    _check(spec, names, lambda value: 0 <= value < 1, "0 to below 1")


def check_finite(spec: Spec, *names: str) -> None:
    """Raise SettingError where a field is infinite or NaN; None passes."""
    _check(spec, names, lambda value: True, "a finite number")


def _check(spec: Spec, names: tuple[str, ...], fits: Callable[[float], bool], allowed: str) -> None:
    """Every number of the fields (also inside a tuple) must be finite and fit."""
    for name in names:
        given = getattr(spec, name)
        for value in given if isinstance(given, tuple) else (given,):
            number = isinstance(value, int | float)  # Python itself looks at no types
            if value is not None and not (number and (isinstance(value, int) or math.isfinite(value)) and fits(value)):
                optional, shown = _defaults(type(spec)).get(name, 0) is None, value if number else _shown(value)
                raise SettingError(f"{name}: {shown} is not allowed; use {allowed}{', or null' if optional else ''}")
