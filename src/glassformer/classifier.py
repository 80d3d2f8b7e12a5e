"""What people call of a model that reads images: its classes, its errors, and traces."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .checkpoint import save_new
from .data.images import ViewSpec, check_labelled, pictures, read_image, read_labelled
from .errors import InputError, SettingError
from .image import ImageModel, ImageModelSpec
from .spec import from_data
from .tap import Edit
from .trace import DEFAULT_LIMIT_BYTES, Trace
from .train.classify import Errors, errors


@dataclass(frozen=True)
class Guess:
    """One class: its number, what it is called, and the probability that the model gives it."""

    number: int
    label: str
    probability: float


class Classifier:
    """A model of images. Calling it gives logits `b k`.

    An image is an array, a tensor or a list of pixels (`y x` with one channel, `c y x`, or a batch of either; bytes
    from 0 to 255, or numbers from 0 to 1), or the path of a file (.png, .pgm, .ppm, .npy, .npz).
    """

    reads = "images"

    def __init__(self, model: ImageModel, name: str = "", about: dict[str, Any] | None = None) -> None:
        self.model, self.name, self.about = model, name, about or {}

    def __repr__(self) -> str:
        first = next(self.model.parameters())
        kept = f"{str(first.dtype).removeprefix('torch.')} on {first.device}"
        return f"<classifier {self.name or 'without a name'}: {self.model!r}, {self.spec.classes} classes, {kept}>"

    @property
    def spec(self) -> ImageModelSpec:
        """The settings of the model."""
        return self.model.spec

    @property
    def device(self) -> torch.device:
        """Where the model's weights are."""
        return next(self.model.parameters()).device

    @property
    def view(self) -> ViewSpec:
        """How the images were changed that the model learnt from; unchanged where nothing is known of it."""
        run = self.about.get("run")
        try:
            return from_data((run or {}).get("view", {}), ViewSpec)
        except (SettingError, AttributeError):
            return ViewSpec()

    def __call__(self, image: Any) -> Tensor:
        """Logits `b k`."""
        with torch.no_grad():
            return self.model(self.inputs(image))

    def inputs(self, image: Any) -> Tensor:
        """What the model is called with: images `b c y x` of its type, on its device."""
        given = read_image(image) if isinstance(image, str | Path) else image
        return pictures(given, self.spec.channels, self.spec.size).to(next(self.model.parameters()))

    def trace(self, image: Any, *, edits: Edit | Iterable[Edit] = (), limit_bytes: int = DEFAULT_LIMIT_BYTES) -> Trace:
        """A trace of an image or of a batch."""
        return Trace(self.model, self.inputs(image), edits=edits, limit_bytes=limit_bytes)

    def save(self, folder: Path | str, *, dtype: str | torch.dtype | None = None) -> None:
        """Write a folder that `load` reads, as Loaded.save does."""
        save_new(self.model, folder, self.about, dtype)

    def classify(self, image: Any) -> list[Guess]:
        """All classes of one image, the most probable first. Raises InputError for a batch of several."""
        logits = self(image)
        if len(logits) != 1:
            raise InputError(f"there are {len(logits)} images; classify one at a time, or call the model on the batch")
        labels = self.spec.labels or tuple(map(str, range(self.spec.classes)))
        shares = logits[0].double().softmax(0).tolist()
        guesses = [Guess(i, label, share) for i, (label, share) in enumerate(zip(labels, shares, strict=True))]
        return sorted(guesses, key=lambda guess: -guess.probability)

    def evaluate(self, source: Path | str, *, view: ViewSpec | None = None) -> Errors:
        """The errors on the test part of a labelled set (data.images.read_labelled), changed as in training, or as
        another view says. Raises InputError for a set that the model cannot read."""
        given = read_labelled(source, "test")
        check_labelled(source, given, self.spec.classes, self.spec.channels, self.spec.size)
        return errors(self.model, given.seen(self.view if view is None else view))
