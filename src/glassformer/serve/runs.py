"""The runs that are kept for the page: made, found again by an id that nobody guesses, dropped when memory asks."""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ..api import Loaded, load
from ..classifier import Classifier
from ..errors import GlassformerError, InputError
from ..text_trace import TextTrace
from .documents import Asked, PageRun
from .outline import edited, outline

RUN_BYTES = 256 << 20  # what one run may store and work with
ALL_BYTES = 1 << 30  # of all runs together
MOST_RUNS = 64
LONGEST_TEXT = 20_000  # characters


class Gone(GlassformerError):
    """A run that was dropped, or never was."""


class Cancelled(Exception):
    """The page does not wait any more."""


@dataclass
class Kept:
    """A run with what belongs to it; `lock`: a trace works out one value at a time."""

    trace: TextTrace
    document: PageRun
    lock: threading.Lock = field(default_factory=threading.Lock)


class Runs:
    """The runs of all pages; each is found by its id alone, so that people do not see each other's."""

    def __init__(self, report: Callable[[str, int, int], None] | None = None) -> None:
        self._models: OrderedDict[str, Loaded | Classifier] = OrderedDict()
        self._runs: OrderedDict[str, Kept] = OrderedDict()
        self._lock = threading.RLock()

    def model(self, name: str) -> Loaded | Classifier:
        """A model by name, loaded once."""
        with self._lock:
            if name not in self._models:
                self._models[name] = load(name)
            self._models.move_to_end(name)
            return self._models[name]

    def make(self, asked: Asked) -> PageRun:
        """A run of what was asked for. Raises InputError as load and trace do."""
        if len(asked.text) > LONGEST_TEXT:
            raise InputError(
                f"the text has {len(asked.text):,} characters and the page takes {LONGEST_TEXT:,}; give a shorter one"
            )
        model = self.model(asked.model)
        if isinstance(model, Classifier):
            raise InputError(f"{asked.model} reads images; choose a picture")
        given: Any = asked.ids if asked.ids is not None else asked.text
        if asked.target is not None:
            given = (asked.text, asked.target)
        edits = [edited(one) for one in asked.edits]
        trace = model.trace(given, edits=edits, limit_bytes=RUN_BYTES, start=asked.start)
        ident = secrets.token_urlsafe(18)
        kept = Kept(trace, outline(trace, ident, asked.edits))
        with self._lock:
            self._runs[ident] = kept
            while len(self._runs) > MOST_RUNS or sum(one.trace.stored_bytes for one in self._runs.values()) > ALL_BYTES:
                if len(self._runs) == 1:
                    break
                self._runs.popitem(last=False)
        return kept.document

    def kept(self, ident: str) -> Kept:
        """A run by its id. Raises Gone."""
        with self._lock:
            if ident not in self._runs:
                raise Gone("this run is not kept any more; run the sentence again")
            self._runs.move_to_end(ident)
            return self._runs[ident]
