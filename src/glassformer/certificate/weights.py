"""Checks of the weights: every one a number, and the one that the file holds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from safetensors import SafetensorError, safe_open

from ..weights import mapping
from .line import Line, failed, judged, without
from .subject import Subject

if TYPE_CHECKING:
    from ..api import Loaded
    from ..classifier import Classifier


def finite(subject: Subject) -> Line:
    """How many numbers of the weights are NaN or infinite."""
    counts = {name: int(value.numel() - value.isfinite().sum()) for name, value in subject.model.named_parameters()}
    first = next((name for name, count in counts.items() if count), "")
    numbers = sum(value.numel() for value in subject.model.parameters())
    return judged("finite", sum(counts.values()), 0, "count", f"the first is in {first}" if first else "", of=numbers)


def exact(loaded: Loaded | Classifier, subject: Subject) -> Line:
    """How many tensors are not, bit by bit, what the model's file holds, brought to its number format."""
    file = None if loaded.place is None else loaded.place / "model.safetensors"
    if file is None or not (loaded.place / "model.json").is_file():
        return without("exact", "only the weights of a folder with a model.json are compared with their file")
    try:
        wrong, count = _different(file, subject)
    except (SafetensorError, OSError):
        return failed("exact", "model.safetensors cannot be read any more")
    return judged("exact", len(wrong), 0, "count", f"the first is {wrong[0]}" if wrong else "", of=count)


def _different(file: Path, subject: Subject) -> tuple[list[str], int]:
    """The names of the tensors that differ, and how many there are."""
    with mapping(file), safe_open(file, "pt") as stored:
        there, wrong = set(stored.keys()), []
        for name, value in subject.model.named_parameters():
            same = name in there
            if same:
                kept = stored.get_tensor(name)
                kept = kept.to(value.dtype) if kept.is_floating_point() else kept
                same = kept.shape == value.shape and bool((kept.to(value.device) == value).all())
            wrong += [] if same else [name]
        return wrong, len(there)
