"""The checks of a certificate, in the order in which they are made and shown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from . import original, paths, tokens, weights, written
from .line import Line
from .original import Original
from .subject import Subject

if TYPE_CHECKING:
    from ..api import Loaded
    from ..classifier import Classifier


@dataclass(eq=False)
class Case:
    """What is checked: a model with its tokenizer, and what is run of it."""

    loaded: Loaded | Classifier
    subject: Subject

    @cached_property
    def original(self) -> Original:
        """What transformers makes of the same model."""
        return Original(self.loaded, original.without_pooling(self.subject))


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
    Check("batch", lambda case: paths.batch(case.subject)),
    Check("padding", lambda case: paths.padding(case.subject)),
    Check("future", lambda case: paths.future(case.subject)),
    Check("chunks", lambda case: paths.chunks(case.subject)),
    Check("cache", lambda case: paths.cache(case.subject)),
    Check("greedy", lambda case: written.greedy(case.subject), slow=True),
    Check("original_ids", lambda case: original.ids(case.loaded), slow=True),
    Check("original_fp32", lambda case: original.fp32(case.original), slow=True),
    Check("original_text", lambda case: original.text(case.original), slow=True),
    Check("original_bf16", lambda case: original.bf16(case.original), slow=True),  # which lets the original go
)
