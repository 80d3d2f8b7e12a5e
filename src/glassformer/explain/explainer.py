"""What an explanation is made by: its settings, the runs that it applies to, and what all of them share."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from ..data.display import By, Cell
from ..errors import InputError
from ..rerun import Stack
from ..spec import Spec, check_between, check_least, check_positive, to_data
from ..trace import Trace
from .explanation import Check, Explanation, Number, Said

Report = Callable[[int, int], None]  # so much is done, of so much; what it raises ends the work
MOST = 1 << 21  # numbers of a map
BYTES = re.compile("⟨[0-9A-F]{2}⟩")  # as display.visible shows those that are no character
DIGITS = 8  # significant ones of a number in a figure: more than fp32 has
SEEDS = 2**53 - 1  # the largest whole number that a page holds exactly


@dataclass(frozen=True)
class Limit:
    """What a setting may be that is a number: `least` to `most` (None: or more), positive: above 0."""

    least: float = 0
    most: float | None = None
    positive: bool = False


class Settings(Spec, frozen=True):
    """The settings of an explanation.

    LIMITS   of its numbers, by name, for its own checks and for the page's fields
    OF_TEXT  what an image has no use for: by a setting's name its choices, () for all of it
    """

    LIMITS: ClassVar[dict[str, Limit]] = {}
    OF_TEXT: ClassVar[dict[str, tuple[str, ...]]] = {}

    def __post_init__(self) -> None:
        for name, limit in self.LIMITS.items():
            if limit.positive:
                check_positive(self, name)
            elif limit.most is None:
                check_least(self, limit.least, name)
            else:
                check_between(self, limit.least, limit.most, name)


@dataclass(frozen=True)
class Explainer:
    """One kind of explanation: `make(trace, settings, report)`, for the runs to which it `applies`. proves: the names
    of the checks without which none of this kind is made; each is measured, or says that it is not."""

    name: str
    title: Said
    settings: type[Settings]
    make: Callable[[Trace, Any, Report], Explanation]
    applies: Callable[[Trace], bool]
    proves: tuple[str, ...]


# Of what is read off a run as it is: the check is another explanation, made when it is asked for.
WRITTEN_OUT = Check(
    "written_out",
    Said(
        "How far what was written out is from the fast run; `difference` measures it",
        "풀어 쓴 계산이 빠른 실행과 다른 정도(`difference`로 측정)",
    ),
)


def quiet(done: int, of: int) -> None:
    """Nobody waits to hear how far the work is."""


def line(name: str, settings: Spec) -> str:
    """The Python line that gives the same explanation of the same trace."""
    usual = to_data(type(settings)())
    changed = [f", {key}={value!r}" for key, value in to_data(settings).items() if value != usual[key]]
    return f"gf.explain({name!r}, trace{''.join(changed)})"


def number(value: float | None) -> Any:
    """A number as a figure has it; None: there is none."""
    return None if value is None else float(f"{value:.{DIGITS}g}")


def known(values: Tensor) -> list[Any]:
    """The numbers of a tensor as a figure has them, None where there is none (NaN)."""

    def told(value: Any, there: Any) -> Any:
        if isinstance(value, list):
            return [told(*pair) for pair in zip(value, there, strict=True)]
        return value if there else None

    return told(numbers(values.nan_to_num(0.0)), (~values.isnan()).tolist())


def numbers(values: Tensor) -> list[Any]:
    """The numbers of a tensor as a figure has them."""
    wide = values.detach().cpu().double().numpy()
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        size = np.floor(np.log10(np.abs(wide)))  # the power of ten of the first digit
        steps = np.where(np.isfinite(size), DIGITS - 1 - size, 0).clip(-300, 300)
        scale = 10.0 ** np.abs(steps)
        rounded = np.where(steps < 0, np.round(wide / scale) * scale, np.round(wide * scale) / scale)
    return np.where(np.isfinite(rounded), rounded, wide).tolist()


def seen_only(values: Tensor, seen: Tensor) -> list[list[Number]]:
    """A table `t s`, None where there is no way from s to t."""
    pairs = zip(numbers(values), seen.cpu().tolist(), strict=True)
    return [[value if there else None for value, there in zip(*rows, strict=True)] for rows in pairs]


def any_seen(ways: Tensor, groups: Sequence[Cell]) -> Tensor:
    """bool `t s` to `t g`: whether any token of a group is seen."""
    return torch.stack([ways[:, list(cell.tokens)].any(1) for cell in groups], 1)


# ---------------------------------------------------------------- the places of a run


def stack_of(trace: Trace, stack: int) -> Stack:
    """The stack of a run by its number, -1 the last. Raises InputError for one that does not exist."""
    if not -len(trace.stacks) <= stack < len(trace.stacks):
        raise InputError(
            f"there is no stack {stack}; this model has {len(trace.stacks)} (0 to {len(trace.stacks) - 1})"
        )
    return trace.stacks[stack]


def length_of(stack: Stack) -> int:
    """How many places the blocks of a stack work on: tokens, patches, moments of a sound."""
    return stack.kept[max(stack.kept)].shape[1]


def block_of(stack: Stack, layer: int) -> Any:
    """A block of a stack, the last one for -1. Raises InputError for one that does not exist."""
    count = len(stack.model.blocks)
    if not -count <= layer < count:
        raise InputError(f"there is no layer {layer}; this model has {count} (0 to {count - 1})")
    return stack.model.blocks[layer]


def cells_of(trace: Trace, stack: Stack, by: By = "token") -> list[Cell]:
    """The places of a stack as a person reads them: the text's tokens grouped, patches and moments by name. A token
    that is no more than some bytes of a character is called by that character and its part of it, 龜 1/3."""
    if hasattr(trace, "source_cells") and not (stack.model.spec.reads_sound and by != "token"):
        first = len(trace.stacks) == 2 and stack is trace.stacks[0]
        cells = trace.source_cells if first else trace.cells
        return cells(by) if by != "token" or stack.model.spec.reads_sound else _called(cells("token"), cells)
    names = trace.labels("t", next(name for name in trace.names() if name.startswith(f"{stack.prefix}blocks.0.")))
    return [Cell(name, (i,), 0, 0, name) for i, name in enumerate(names)]


def _called(tokens: list[Cell], cells: Callable[[By], list[Cell]]) -> list[Cell]:
    """Cells of single tokens, none of them called by bytes that are a part of a character."""
    if not any(BYTES.search(one.text) for one in tokens):
        return tokens
    whole = {t: (cell, k) for cell in cells("character") for k, t in enumerate(cell.tokens, 1) if len(cell.tokens) > 1}

    def called(one: Cell) -> Cell:
        cell, k = whole.get(one.tokens[0], (one, 0))
        parted = k and BYTES.search(one.text) and not BYTES.search(cell.text)
        return replace(one, text=f"{cell.text} {k}/{len(cell.tokens)}") if parted else one

    return [called(one) for one in tokens]


def names_of(cells: Sequence[Cell]) -> tuple[str, ...]:
    """What places are called."""
    return tuple(cell.text for cell in cells)


def last_of(cells: Sequence[Cell]) -> list[int]:
    """The place that speaks for each group: its last token, the first one that has seen all of it."""
    return [cell.tokens[-1] for cell in cells]


def places_of(name: str, text: str, count: int) -> list[int]:
    """The places that a setting lists, "3,7" (-1 the last); of an empty text all of them. Raises InputError."""
    if not text.strip():
        return list(range(count))
    try:
        found = [int(one) for one in text.split(",")]
    except ValueError:
        raise InputError(f"{name}: {text[:40]!r} is not allowed; use whole numbers with commas between") from None
    for one in found:
        if not -count <= one < count:
            raise InputError(f"{name}: there is no place {one}; there are {count} (0 to {count - 1})")
    return [one % count for one in found]


def has_tokens(trace: Trace) -> bool:
    """Whether the last stack's blocks work on a row of tokens or patches, so that a vector belongs to each of them."""
    return bool(len(trace.stacks[-1].model.blocks)) and all(
        hasattr(block, "mixer") for stack in trace.stacks for block in stack.model.blocks
    )


def of_text(trace: Trace) -> bool:
    """Whether what was read is a text, of one row."""
    return hasattr(trace, "loaded") and len(trace.stacks[-1].tokens) == 1
