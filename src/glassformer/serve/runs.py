"""The runs that are kept for the page: made, found again by an id that nobody guesses, dropped when memory asks."""

from __future__ import annotations

import base64
import secrets
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from safetensors.torch import save as safetensors_bytes
from torch import Tensor

from ..api import Loaded
from ..classifier import Classifier
from ..data.display import visible
from ..data.fit import fitted
from ..data.picture import picture
from ..errors import InputError
from ..machine import give_back
from ..page.again import PICTURE
from ..page.documents import Asked, AskedValue, PageRun, SeenRun
from ..page.outline import outline
from ..page.saved import Seen
from ..place import Index, check_letters, indices
from ..trace import Trace
from .answers import GoneError, NoPictureError, TooLargeError
from .edits import check_edits, check_ids, check_length, edits_of, without_others
from .models import Models
from .work import Work

RUN_BYTES = 256 << 20  # what one run may store and work with
ALL_BYTES = 1 << 30  # of all runs together
MOST_RUNS = 64
VALUE_BYTES = 64 << 20  # of one answer
MOST_VALUES = 64  # in it
MOST_SEEN = 4096  # of all runs in a saved page
MOST_PIXELS = 4_000_000  # of a picture, of which a PNG packs many into few bytes
LONGEST_CALLED = 100  # characters of a file's name


@dataclass
class Kept:
    """A run with what belongs to it; `lock`: a trace works out one value at a time."""

    trace: Trace
    model: Loaded | Classifier
    document: PageRun
    lock: threading.Lock = field(default_factory=threading.Lock)


class Runs:
    """The runs of all pages; each is found by its id alone, so that people do not see each other's."""

    def __init__(self, models: Models, run_bytes: int = RUN_BYTES, all_bytes: int = ALL_BYTES) -> None:
        self.models, self.run_bytes, self.all_bytes = models, run_bytes, all_bytes
        self._runs: OrderedDict[str, Kept] = OrderedDict()
        self._lock = threading.Lock()
        models.dropped = self._drop

    def make(self, asked: Asked, work: Work) -> PageRun:
        """A run of what was asked for. Raises InputError as load and trace do."""
        _check(asked)
        model = self.models.open(asked.model, work)
        work.report("run")
        if isinstance(model, Classifier):
            changes = without_others(asked.edits, asked.model)
            trace: Trace = model.trace(_picture(model, asked, work), edits=changes, limit_bytes=self.run_bytes)
            return self.keep(trace, model, outline(trace, new_id(), asked.model))
        given: Any = asked.ids if asked.ids is not None else asked.text
        parts = model.parts(given) if isinstance(given, str) else [given]
        if not 0 <= asked.part < len(parts):
            raise InputError(f"part: there is no word {asked.part}; this text has {len(parts)} (from 0)")
        given = parts[asked.part]
        if asked.target is not None:
            given = (given, asked.target)

        def run_of(other: Any) -> Trace:
            return model.trace(other, limit_bytes=self.run_bytes, start=asked.start)

        edits = edits_of(asked.edits, run_of, self.run_bytes)
        trace = model.trace(given, edits=edits, limit_bytes=self.run_bytes, start=asked.start)
        document = outline(trace, new_id())
        if len(parts) > 1:
            document = msgspec.structs.replace(document, parts=tuple(parts), part=asked.part)
        return self.keep(trace, model, document)

    def keep(self, trace: Trace, model: Loaded | Classifier, document: PageRun) -> PageRun:
        """Keep a run under the id in its document, which is returned."""
        with self._lock:
            self._runs[document.id] = Kept(trace, model, document)
        self._drop()
        return document

    def kept(self, ident: str) -> Kept:
        """A run by its id. Raises GoneError."""
        with self._lock:
            if ident not in self._runs:
                raise GoneError("this run is not kept any more; run the sentence again")
            self._runs.move_to_end(ident)
            return self._runs[ident]

    def seen(self, asked: Sequence[SeenRun]) -> tuple[list[Seen], list[str]]:
        """What a person has looked at of runs whose ids they know, and what of it is not kept any more. Raises
        InputError for a value that a run does not have."""
        if len(asked) > MOST_RUNS or sum(len(one.values) for one in asked) > MOST_SEEN:
            raise TooLargeError(f"more than {MOST_RUNS} runs, or {MOST_SEEN} values of them; give fewer")
        found, gone = list[Seen](), list[str]()
        for one in asked:
            try:
                kept = self.kept(one.id)
            except GoneError:
                gone += one.explanations
                continue
            for name in one.values:
                kept.trace.axes(name)
            trace: Any = kept.trace.beside()
            found.append(Seen(trace, kept.document, one.explanations, one.values))
        return found, gone

    def value(self, ident: str, name: str, where: dict[str, Index], work: Work) -> bytes:
        """A value, or a part of it, as the bytes of a safetensors file. Raises TooLargeError for more than is given at
        once."""
        return safetensors_bytes({name: self._parts(ident, [(name, where)], work)[0]})

    def values(self, ident: str, asked: Sequence[AskedValue], work: Work) -> bytes:
        """Several values at once, in one file: "0", "1" … in the order in which they were asked for. Raises as
        `value`."""
        if len(asked) > MOST_VALUES:
            raise TooLargeError(
                f"there are {len(asked)} values and the page takes {MOST_VALUES} at once; ask for fewer"
            )
        parts = self._parts(ident, [(one.name, dict(one.where)) for one in asked], work)
        return safetensors_bytes({str(i): part for i, part in enumerate(parts)})

    def _parts(self, ident: str, asked: list[tuple[str, dict[str, Index]]], work: Work) -> list[Tensor]:
        kept, room = self.kept(ident), VALUE_BYTES
        with work.holding(kept.lock):
            trace, found = kept.trace, []
            for name, where in asked:
                check_letters(where, trace.axes(name), name)  # of a request, which may say anything
                count = 4
                for axis, size in trace.sizes(name):
                    count *= len(indices(where.get(axis), size, name, axis))
                room -= count
                if room < 0:
                    raise TooLargeError(
                        f"{name} has {count:,} bytes here and the page takes {VALUE_BYTES:,} at once; ask for a part "
                        "of it"
                    )
                part = trace.part(name, **where) if where else trace[name]
                found.append(part.detach().to("cpu").float().clone(memory_format=torch.contiguous_format))
        self._drop()
        return found

    def _drop(self) -> None:
        """Drop the runs looked at longest ago, as far as memory asks, and those of models that were dropped."""
        with self._lock:
            before = len(self._runs)
            for ident, one in [*self._runs.items()]:
                if not self.models.is_kept(one.model):
                    del self._runs[ident]
            stored = sum(one.trace.stored_bytes for one in self._runs.values())
            while len(self._runs) > 1 and (len(self._runs) > MOST_RUNS or stored > self.all_bytes):
                _, dropped = self._runs.popitem(last=False)
                stored -= dropped.trace.stored_bytes
                del dropped
            fewer = len(self._runs) < before
        if fewer:
            give_back()


def new_id() -> str:
    """An id for a run, which nobody guesses."""
    return secrets.token_urlsafe(18)


def _picture(model: Classifier, asked: Asked, work: Work) -> np.ndarray:
    """The picture of a request, brought to the size that the model reads."""
    if asked.image is None:
        raise NoPictureError(f"{asked.model} reads images; choose a picture")
    try:
        data = base64.b64decode(asked.image, validate=True)
    except ValueError:
        raise InputError("image: this is no base64; send the bytes of a picture's file") from None
    spec = model.spec
    called = Path(visible(asked.called[:LONGEST_CALLED]) or PICTURE)
    return fitted(picture(data, called, MOST_PIXELS, work.check), spec.channels, spec.size, "auto", spec.resize).image


def _check(asked: Asked) -> None:
    """Raise InputError for more than a page may ask for."""
    check_length(asked.text)
    check_length(asked.target or "")
    check_ids(asked.ids or ())
    check_edits(asked.edits)
