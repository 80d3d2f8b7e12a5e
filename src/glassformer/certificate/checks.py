"""The checks of a certificate, in the order in which they are made and shown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import paths, tokens, weights, written
from .line import Line
from .subject import Subject

if TYPE_CHECKING:
    from ..api import Loaded
    from ..classifier import Classifier


@dataclass(frozen=True)
class Case:
    """What is checked: a model with its tokenizer, and what is run of it."""

    loaded: Loaded | Classifier
    subject: Subject


@dataclass(frozen=True)
class Check:
    """One check: its name, what measures it, and whether the quick half leaves it out."""

    name: str
    measure: Callable[[Case], Line]
    slow: bool = False


CHECKS = (
    Check("finite", lambda case: weights.finite(case.subject)),
    Check("exact", lambda case: weights.exact(case.loaded, case.subject)),
    Check("names", lambda case: paths.names(case.subject)),
    Check("round_trip", lambda case: tokens.round_trip(case.loaded)),
    Check("offsets", lambda case: tokens.offsets(case.loaded)),
    Check("glass", lambda case: paths.glass(case.subject)),
    Check("future", lambda case: paths.future(case.subject)),
    Check("batch", lambda case: paths.batch(case.subject)),
    Check("padding", lambda case: paths.padding(case.subject)),
    Check("chunks", lambda case: paths.chunks(case.subject)),
    Check("cache", lambda case: paths.cache(case.subject)),
    Check("greedy", lambda case: written.greedy(case.loaded, case.subject), slow=True),
)
