"""Taps of values that are born one position after the other, as in a recurrence.

Each is edited when it is born, so that all that follows reads the edited value, and recorded as one value at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

import torch
from torch import Tensor, nn

from ..call import Call
from ..tap import address

R = TypeVar("R")
# (name, the value at one position, that position) -> the value to go on with
StepTap = Callable[[str, Tensor, int], Tensor]
TapOf = Callable[[nn.Module], StepTap]


def untapped(name: str, value: Tensor, at: int) -> Tensor:
    """The tap that is off."""
    return value


def over_positions(call: Call, axes: Mapping[nn.Module, Mapping[str, str]], run: Callable[[TapOf], R]) -> R:
    """`run(tap_of)`, a loop over positions in which `tap_of(layer)(name, value, at)` taps what a layer makes at each.

    axes: for each layer the axes of its values as a whole, `t` among them; at one position they lack it.
    A mean is taken over the values of a run without edits, and so is what an edit sees of the other positions.
    """
    if not any(call.wants(layer, *named) for layer, named in axes.items()):
        return run(lambda layer: untapped)
    reference: dict[str, Tensor] = {}
    edited = {address(layer.path, name) for layer, named in axes.items() for name in named} & call.probe.edits.keys()
    if edited:
        plain = Steps(call, axes, {})
        run(plain.tap_of)
        reference = {full: plain.whole(full) for full in edited}
    steps = Steps(call, axes, reference)
    result = run(steps.tap_of)
    steps.record()
    return result


class Steps:
    """The values of one loop. reference: of each edited one, the whole of it in a run without edits."""

    def __init__(
        self, call: Call, axes: Mapping[nn.Module, Mapping[str, str]], reference: Mapping[str, Tensor]
    ) -> None:
        self.call, self.reference = call, reference
        self.axes = {address(layer.path, name): one for layer, named in axes.items() for name, one in named.items()}
        self.rows: dict[str, dict[int, Tensor]] = {full: {} for full in self.axes}

    def tap_of(self, layer: nn.Module) -> StepTap:
        """The tap of one layer."""

        def tap(name: str, value: Tensor, at: int) -> Tensor:
            full = address(layer.path, name)
            if full in self.reference:
                value = self._edited(full, value, at)
            self.rows[full][at] = value
            return value

        return tap

    def _edited(self, full: str, value: Tensor, at: int) -> Tensor:
        """What the edits make of the value at one position, among those that the others have without edits."""
        axis = self._axis(full)
        place = torch.tensor([at], device=value.device)
        whole = self.reference[full].index_copy(axis, place, value.unsqueeze(axis))
        whole = self.call.probe.changed(full, whole, self.axes[full], self._documents(full))
        return whole.select(axis, at).contiguous()  # laid out as it was born, so that a kernel sums in the same order

    def _documents(self, full: str) -> Callable[[str], Tensor | None]:
        source = ".cross." in full  # its `s` are the places of the memory
        return lambda axis: self.call.documents(source and axis == "s")

    def _axis(self, full: str) -> int:
        return self.axes[full].split().index("t")

    def whole(self, full: str) -> Tensor:
        """A value at all positions."""
        rows = self.rows[full]
        return torch.stack([rows[at] for at in range(len(rows))], self._axis(full))

    def record(self) -> None:
        """Hand all values to the probe, which keeps those that it wants."""
        for full, axes in self.axes.items():
            if self.rows[full]:
                self.call.probe.keep(full, self.whole(full), axes)
