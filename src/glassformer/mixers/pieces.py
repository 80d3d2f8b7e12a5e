"""A probe for layers that read a text piece by piece: what they tap in each piece becomes one value over the text."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ..tap import Documents, Probe, Tap, address, whole


class PieceProbe:
    """Gathers what is tapped in each piece at the places of its tokens in the text, and gives it to `probe` at the end.

    place `b t`: where in the text of so many tokens each place of the present piece stands, -1 for what is no token of
    it; keys that come before those of the piece are no tokens of it either. An edit acts at the places of the text; a
    mean is that of each piece.
    """

    def __init__(self, probe: Probe, tokens: int) -> None:
        self.probe, self.tokens = probe, tokens
        self.place = torch.empty(0)
        self.values: dict[str, Tensor] = {}
        self.axes: dict[str, str] = {}

    def wants(self, name: str) -> bool:
        """Whether the value must be computed explicitly."""
        return self.probe.wants(name)

    def at(self, path: str, documents: Documents = whole) -> Tap:
        """The tap of the layer at `path`."""

        def tap(name: str, value: Tensor, axes: str = "") -> Tensor:
            full = address(path, name)
            if full in self.probe.edits:
                value = self._edited(full, value, axes)
            value = self.probe.settled(full, value)
            if self.probe.want(full):
                before = self.values.get(full)
                self.values[full] = self._spread(value, axes, -torch.inf if name == "scores" else 0.0, before)
                self.axes[full] = axes
            return value

        return tap

    def finish(self) -> None:
        """Hand all over, once the last piece was read. Raises Stop where the probe has all it was asked for."""
        for full, value in self.values.items():
            self.probe.keep(full, value, self.axes[full])

    def _at(self, size: int) -> Tensor:
        """`b size`: the places of an axis, which may begin with others than those of the piece."""
        missing = size - self.place.shape[1]
        return F.pad(self.place, (missing, 0), value=-1)

    def _spread(self, value: Tensor, axes: str, fill: float, before: Tensor | None = None) -> Tensor:
        """The value with the text's places in its position axes; before: what earlier pieces gave."""
        letters = axes.split()
        for letter in ("s", "t"):  # what is already there is looked up along the last of these
            if letter not in letters:
                continue
            axis, last = letters.index(letter), letter == "t" or "t" not in letters
            moved = value.movedim(axis, 1)
            at = self._at(moved.shape[1]) % (self.tokens + 1)  # -1 into a place that is cut off
            shape = (moved.shape[0], self.tokens + 1, *moved.shape[2:])
            base = moved.new_full(shape, fill)
            if last and before is not None:
                base = torch.cat((before.movedim(axis, 1), base[:, :1]), 1)
            at = at.reshape(*at.shape, *[1] * (moved.ndim - 2)).expand_as(moved)
            value = base.scatter(1, at, moved)[:, : self.tokens].movedim(1, axis)
        return value

    def _documents(self, axis: str) -> Tensor:
        """tap.Documents of the text: the tokens of the present piece, without all others."""
        there = self.place.new_full((len(self.place), self.tokens + 1), -1)
        return there.scatter(1, self.place % (self.tokens + 1), 0)[:, : self.tokens]

    def _edited(self, full: str, value: Tensor, axes: str) -> Tensor:
        """The piece's value after edits that name places of the text."""
        letters = axes.split()
        found = self.probe.changed(full, self._spread(value, axes, 0.0), axes, self._documents)
        mine = torch.ones_like(value, dtype=torch.bool)
        for letter in ("t", "s"):
            if letter in letters:
                axis = letters.index(letter)
                at = self._at(value.shape[axis])
                shape = [len(at), *(-1 if other == axis else 1 for other in range(1, value.ndim))]
                at = at.reshape(shape)
                into = [value.shape[other] if other == axis else found.shape[other] for other in range(value.ndim)]
                found = found.gather(axis, at.clamp(min=0).expand(into))
                mine = mine & (at >= 0)
        return torch.where(mine & ~value.isneginf(), found, value)


def inside(probe: Probe | None, tokens: int) -> PieceProbe | None:
    """The probe of the layers inside, where somebody looks."""
    return None if probe is None else PieceProbe(probe, tokens)
