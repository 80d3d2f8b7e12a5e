"""A trace as a widget."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any, Literal

from ..classifier import Classifier
from ..errors import InputError, UnsupportedError
from ..image import ImageModel
from ..trace import Trace

if TYPE_CHECKING:
    from .shown import Shown

NEEDED = "anywidget"


def widget(trace: Trace, *, lang: Literal["", "en", "ko"] = "") -> Shown:
    """The page over a trace, alive in a notebook: all views, computed by its kernel. A trace alone, as the last line of
    a cell, is shown in the same way. lang: the language in which it opens, "" for the browser's.

    Raises UnsupportedError where anywidget is not installed or the page not built, and for a trace of a bare PyTorch
    model; InputError for a trace of several texts.
    """
    if not installed():
        raise UnsupportedError('a live page in a notebook needs anywidget; pip install "glassformer[notebook]"')
    if lang not in ("", "en", "ko"):
        raise InputError(f"lang: {lang!r} is not allowed; use en, ko")
    model: Any = getattr(trace, "loaded", None)
    if model is None and isinstance(trace.model, ImageModel):
        model = Classifier(trace.model)
    if model is None:
        raise UnsupportedError("a trace of a bare model has no page; take the trace with gf.load or gf.build")
    from .shown import Shown  # only here: it imports anywidget

    return Shown(trace, model, lang)


def installed() -> bool:
    """Whether what the widget needs is there."""
    return importlib.util.find_spec(NEEDED) is not None
