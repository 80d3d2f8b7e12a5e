"""Taps: the only way a value leaves a layer, and the probe that listens to them.

A layer taps a value on the line where it is born:

    q = tap("q", heads(self.q(x)), "b t h e")

Without a probe `tap` is the function `off`, which returns its argument. With a probe it records, edits or stops. The
probe travels with the call and is never stored in a layer, so two users of one model do not see each other.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from .errors import InputError, nearest

if TYPE_CHECKING:
    from .edit import Edit

# Axis letters, in the words of both languages. Every tap uses these and is checked against its value's rank.
AXES: Mapping[str, tuple[str, str]] = {
    "b": ("batch", "배치"),
    "t": ("position", "위치"),
    "s": ("source position", "참조 위치"),
    "d": ("model width", "모델 너비"),
    "h": ("head", "헤드"),
    "g": ("key/value head", "키·값 헤드"),
    "e": ("head width", "헤드 너비"),
    "f": ("hidden width", "은닉 너비"),
    "m": ("expert", "전문가"),
    "n": ("state width", "상태 너비"),
    "v": ("vocabulary", "어휘"),
    "k": ("class", "분류"),
    "c": ("channel", "채널"),
    "y": ("row", "행"),
    "x": ("column", "열"),
    "w": ("frame of sound", "소리 프레임"),
    "l": ("layer", "층"),
}


@dataclass(frozen=True, slots=True)
class Card:
    """What a tapped value is: the paper's symbol and formula, one sentence in each language, and the article's
    statements that it makes visible (`../docs/statements.md`)."""

    symbol: str
    formula: str
    en: str
    ko: str
    statements: tuple[str, ...] = ()


def as_built(cards: Mapping[str, Card], **changes: dict[str, str] | None) -> dict[str, Card]:
    """The cards of one module: a kind's, with what differs in this one; None: it has no such value."""
    kept = {name: card for name, card in cards.items() if changes.get(name, {}) is not None}
    return {name: dataclasses.replace(card, **changes.get(name, {})) for name, card in kept.items()}


Tap = Callable[..., Tensor]
# Axis letter -> number `b n` of the document that each of its places belongs to, -1 where no token is; None: all of a
# row is one document without a gap.
Documents = Callable[[str], Tensor | None]


def whole(axis: str) -> None:
    """Every row is one document without a gap."""


def off(name: str, value: Tensor, axes: str = "") -> Tensor:
    """The tap that is off: nobody looks, nothing is done."""
    return value


def address(path: str, name: str) -> str:
    """The full name of a value tapped by the layer at `path`, which is empty for a layer used without a model."""
    return f"{path}.{name}" if path else name


class Stop(Exception):
    """Raised by a probe that has all it was asked for; caught by whoever started the run."""


class Probe:
    """Listens to the taps of one call.

    want    tells for a full name (`blocks.0.mixer.pattern`) whether its value is recorded
    edits   changes applied to tapped values, in order, before they are recorded and used
    last    the run stops (raises Stop) as soon as every name in this set was recorded
    start   how many places of the text come before those of this call, which goes on from them; None: the call is of a
            whole text, so that every place of an edit has to be in it

    A plain class on purpose: FSDP2 rebuilds dataclasses that it finds among forward arguments. A name that is tapped
    twice in one call means activation checkpointing is on; the probe refuses it instead of keeping either value.
    """

    def __init__(
        self,
        want: Callable[[str], bool] | None = None,
        edits: tuple[Edit, ...] = (),
        last: frozenset[str] = frozenset(),
        start: int | None = None,
    ) -> None:
        self.want = want or (lambda name: True)
        self.start = start
        self.given, self.edits = edits, by_name(edits)
        self.cuts = any(edit.kind == "cut" for edit in edits)
        self.last = last
        self.values: dict[str, Tensor] = {}
        self.axes: dict[str, str] = {}
        self.edited: set[str] = set()

    def beside(self, edits: tuple[Edit, ...]) -> Probe | None:
        """The probe of a second reading within this call, with some of its edits; None: nobody looks."""
        return Probe(lambda name: False, edits, start=self.start) if edits else None

    def wants(self, name: str) -> bool:
        """Whether the value must be computed explicitly: it is recorded or edited."""
        return name in self.edits or self.want(name)

    def at(self, path: str, documents: Documents = whole) -> Tap:
        """The tap of the layer at `path`; documents: which places of its axes belong together."""

        def tap(name: str, value: Tensor, axes: str = "") -> Tensor:
            full = address(path, name)
            assert value.ndim == len(axes.split()), f"{full}: axes '{axes}' do not fit shape {tuple(value.shape)}"
            value = self.settled(full, self.changed(full, value, axes, documents))
            self.keep(full, value, axes)
            return value

        return tap

    def changed(self, full: str, value: Tensor, axes: str, documents: Documents = whole) -> Tensor:
        """A value after its edits. One that is born piece by piece comes here once for each piece, among the places of
        all of them, and the piece takes its own."""
        for edit in self.edits.get(full, ()):
            value = edit.apply(value, axes, documents, self.start)
            self.edited.add(full)
        return value

    def settled(self, full: str, value: Tensor) -> Tensor:
        """The value that the layer goes on with; here the value itself."""
        return value

    def keep(self, full: str, value: Tensor, axes: str) -> None:
        """Record a value, edited as it is to be, if it is wanted."""
        if self.want(full):
            assert full not in self.values, f"{full} was tapped twice in one call (activation checkpointing?)"
            self.values[full], self.axes[full] = value, axes
            if self.last and self.last <= self.values.keys():
                raise Stop


def by_name(edits: Iterable[Edit]) -> dict[str, list[Edit]]:
    """Edits by the value that they change, in their order."""
    found: dict[str, list[Edit]] = {}
    for edit in edits:
        found.setdefault(edit.name, []).append(edit)
    return found


def check_edited(probe: Probe, known: Callable[[], list[str]]) -> None:
    """Raise InputError when an edit named a value that no layer tapped; nothing must be silently left undone."""
    missing = probe.edits.keys() - probe.edited
    if missing:
        name = min(missing)
        names = known()
        if name == "positions" and any(one.startswith("decoder.") for one in names):
            raise InputError("positions: of an encoder-decoder name encoder.positions or decoder.positions")
        raise InputError(f"no value named {name!r} in this model; {nearest(name, names)}")
