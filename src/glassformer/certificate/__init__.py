"""The certificate of a model: whether what is loaded computes what it should, measured line by line.

    certificate = gf.check("small")
    certificate.passed, certificate.line("cache").value

Every way to run the model is held against every other, its tokenizer against the texts of a Korean and English test
set, its weights against their file, and a published model against `transformers` where that is installed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from ..api import Loaded, load
from ..classifier import Classifier
from ..errors import GlassformerError
from .checks import CHECKS, Case, Check
from .kept import digest_of, found, keep, last, versions
from .line import Certificate, Line, failed, numbers
from .subject import subject_of

__all__ = ["CHECKS", "Certificate", "Line", "check", "last", "numbers"]


def check(
    model: Loaded | Classifier | str | Path | None = None,
    *,
    quick: bool = False,
    again: bool = False,
    device: str | torch.device = "cpu",
    dtype: str | torch.dtype = "float32",
    report: Callable[[str], None] = str,
) -> Certificate:
    """The certificate of a model, or of what `load` reads at a name or path (device and dtype as there).

    quick: without the slow half (what the model writes, and `transformers`). again: measured anew, where otherwise a
    certificate that is kept for the same weights, spec, tokenizer, device and versions is given. It is kept in our own
    folder (files.home), and as certificate.json beside a model of our format that may be written to. report: told the
    name of each check before it is made.
    """
    loaded = model if isinstance(model, Loaded | Classifier) else load(model, device=device, dtype=dtype)
    used = versions()
    digest = digest_of(loaded, used)
    kept = None if again else found(digest, quick)
    named = {"model": loaded.name, "source": "" if loaded.place is None else str(loaded.place)}
    if kept is not None:  # perhaps of a copy that lay elsewhere, or the whole where the quick half is asked for
        return _half(keep(replace(kept, **named), loaded.place), quick)
    begun = time.perf_counter()
    case = Case(loaded, subject_of(loaded))
    lines = tuple(_line(one, case, report) for one in CHECKS if not (quick and one.slow))
    subject = case.subject
    made = Certificate(
        **named,
        digest=digest,
        dtype=str(subject.dtype).removeprefix("torch."),
        device=str(subject.device),
        quick=quick,
        lines=lines,
        versions=used,
        wall_s=time.perf_counter() - begun,
    )
    return keep(made, loaded.place)


def _half(made: Certificate, quick: bool) -> Certificate:
    """The certificate, or the quick half of a whole one."""
    if not quick or made.quick:
        return made
    chosen = {one.name for one in CHECKS if not one.slow}
    return replace(made, quick=True, lines=tuple(line for line in made.lines if line.name in chosen))


def _line(one: Check, case: Case, report: Callable[[str], None]) -> Line:
    """The line of a check; where the model itself refuses, the refusal is the line's reason."""
    report(one.name)
    try:
        return one.measure(case)
    except GlassformerError as error:
        return failed(one.name, str(error))
