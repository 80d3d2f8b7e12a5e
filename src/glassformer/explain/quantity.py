"""One tapped value as it is shown: its card and its numbers for one token."""

from __future__ import annotations

from typing import TypeVar

import msgspec
from torch import Tensor

from ..trace import Trace


class Quantity(msgspec.Struct, frozen=True):
    """One tapped value with its card, and its numbers for the chosen token; norm is their Euclidean length."""

    name: str
    symbol: str
    formula: str
    axes: str
    shape: tuple[int, ...]
    en: str
    ko: str
    statements: tuple[str, ...]
    values: list[float]
    norm: float


def exact(value: Tensor) -> Tensor:
    """The value in fp64 and on the processor: not every accelerator computes in fp64."""
    return value.detach().cpu().double()


def quantity(trace: Trace, name: str, t: int, head: int) -> Quantity:
    """A value of the trace's first row with its card, at position t and, where it has heads, at this head."""
    axes = trace.axes(name)
    layer = trace.model.get_submodule(name.rpartition(".")[0])
    where = {"b": 0, "t": t, "s": t, "h": head}
    if "g" in axes.split():
        heads = getattr(layer, "heads", None) or layer.spec.heads
        where["g"] = head * dict(trace.sizes(name))["g"] // heads
    values = trace.part(name, **{letter: i for letter, i in where.items() if letter in axes.split()})
    return described(trace, name, values)


def described(trace: Trace, name: str, values: Tensor) -> Quantity:
    """Some numbers of a value, with its card."""
    axes, card, values = trace.axes(name), trace.card(name), exact(values).flatten()
    shape = tuple(size for _, size in trace.sizes(name))
    return Quantity(
        name=name,
        symbol=card.symbol,
        formula=card.formula,
        axes=axes,
        shape=shape,
        en=card.en,
        ko=card.ko,
        statements=card.statements,
        values=values.tolist(),
        norm=values.norm().item(),
    )


P = TypeVar("P", bound=msgspec.Struct)  # a row with a norm and a share


def parted(parts: tuple[P, ...], share: float, whole: bool = False) -> tuple[P, ...]:
    """A word's tokens with its share divided among them, by the squares of their norms; `whole`: by these, of
    weights."""
    sizes = [part.norm if whole else part.norm**2 for part in parts]
    total = sum(sizes) or 1.0
    return tuple(
        msgspec.structs.replace(part, share=size / total * share) for part, size in zip(parts, sizes, strict=True)
    )
