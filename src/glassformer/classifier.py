"""What people call of a model that reads images: its classes, its errors, and traces."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from .checkpoint import save_new
from .data.fit import Fit, Fitted, fitted
from .data.images import (
    ViewSpec,
    apart,
    as_tensor,
    check_labelled,
    pictures,
    read_image,
    read_images,
    read_labelled,
    seen,
)
from .edit import Edit
from .errors import InputError, SettingError, UnsupportedError, check_above
from .explain.influence import LIMIT_BYTES, Influence, influence
from .files import PAGES, replacing
from .image import ImageModel, ImageModelSpec
from .nn.pixels import PatchesSpec
from .nn.pool import Scores
from .place import Index
from .spec import from_data
from .trace import DEFAULT_LIMIT_BYTES, Trace
from .train.classify import Errors, errors

BATCH = 256  # images that are classified at once


@dataclass(frozen=True)
class Guess:
    """One class: its number, what it is called, and what the model gives it.

    scores: what `value` is (PooledSpec.scores): the "softmax" over all classes, the "sigmoid" of this one's logit, or
    the "number" that is estimated. probability: the value, where it is one; None of a number.
    """

    number: int
    label: str
    probability: float | None
    value: float
    scores: Scores


def ranked(values: Sequence[float], labels: Sequence[str], scores: Scores = "softmax") -> list[Guess]:
    """The classes, the most probable (of numbers the largest) first; without labels they are called by their
    numbers."""
    named = zip(labels or map(str, range(len(values))), values, strict=True)
    found = [
        Guess(i, label, None if scores == "number" else value, value, scores) for i, (label, value) in enumerate(named)
    ]
    return sorted(found, key=lambda guess: -guess.value)


@dataclass(frozen=True)
class Seen:
    """What a model makes of one image of a file: all classes, the most probable first, and how the image was fitted."""

    guesses: list[Guess]
    fitted: Fitted


class ImageTrace(Trace):
    """A trace of images that knows the model which read them."""

    def __init__(self, classifier: Classifier, image: Any, **how: Any) -> None:
        self.classifier = classifier
        super().__init__(classifier.model, classifier.inputs(image), **how)

    def _other(self, given: Any) -> Trace:
        return self.classifier.trace(given, limit_bytes=self.limit_bytes)

    def save(self, path: Path | str, names: Iterable[str] | None = None, *, lang: Literal["en", "ko"] = "en") -> None:
        """Write values (None: all) into FILE.safetensors, as any trace does; or FILE.html, the page of this run of one
        image. lang: the language in which that opens."""
        if Path(path).suffix.lower() not in PAGES:
            return super().save(path, names)
        if names is not None:
            raise InputError("names: the page chooses what it needs; leave it out, or save to FILE.safetensors")
        page = self.classifier.page(self, lang)
        with replacing(Path(path)) as temporary:
            temporary.write_text(page, encoding="utf-8")


class Classifier:
    """A model of images. Calling it gives logits `b k`; a model without classes gives its vectors.

    An image is an array, a tensor or a list of pixels (`y x` with one channel, `c y x`, or a batch of either; bytes
    from 0 to 255, or numbers from 0 to 1), or the path of a file (.png, .pgm, .ppm, .npy, .npz, IDX). It has the size
    and the channels that the model reads; `classify` fits others.
    """

    reads = "images"
    page: Callable[..., str]  # Loaded.page, put here by api: what makes a page lies above
    place: Path | None = None  # the folder that it was read from

    def __init__(self, model: ImageModel, name: str = "", about: dict[str, Any] | None = None) -> None:
        self.model, self.name, self.about = model, name, about or {}

    def __repr__(self) -> str:
        first = next(self.model.parameters())
        kept = f"{str(first.dtype).removeprefix('torch.')} on {first.device}"
        what = f"{self.spec.classes} classes" if self.spec.classes else "no classes"
        return f"<classifier {self.name or 'without a name'}: {self.model!r}, {what}, {kept}>"

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
        """Logits `b k`, or the vectors of a model without classes."""
        with torch.no_grad():
            return self.model(self.inputs(image))

    def inputs(self, image: Any) -> Tensor:
        """What the model is called with: images `b c y x` of its type, on its device, changed as in training."""
        given = read_image(image) if isinstance(image, str | Path) else image
        images = pictures(given, self.spec.channels, self.spec.size)
        if self.view != ViewSpec():
            images = torch.from_numpy(seen(images.numpy(force=True), self.view))
        weights = next(self.model.parameters())
        if not isinstance(self.spec.embed, PatchesSpec):
            return images.to(weights)
        # Patches bring pixels to their scale in fp32 at least, and round once.
        return images.to(weights.device, torch.promote_types(weights.dtype, torch.float32))

    def trace(
        self, image: Any, *, edits: Edit | Iterable[Edit] = (), limit_bytes: int = DEFAULT_LIMIT_BYTES
    ) -> ImageTrace:
        """A trace of an image or of a batch."""
        return ImageTrace(self, image, edits=edits, limit_bytes=limit_bytes)

    def influence(self, image: Any, *, rows: Index | None = None, limit_bytes: int = LIMIT_BYTES) -> Influence:
        """How strongly each pixel of an image moves the logit of each class, exactly: norms `k s`, a row for each class
        (or of `rows`), a column for each pixel, line by line."""
        return influence(self.model, self.inputs(image), rows=rows, limit_bytes=limit_bytes)

    def save(self, folder: Path | str, *, dtype: str | torch.dtype | None = None) -> None:
        """Write a folder that `load` reads, as Loaded.save does."""
        save_new(self.model, folder, self.about, dtype)

    def export(self, folder: Path | str, **settings: Any) -> dict[str, Any]:
        """Write a new folder that transformers loads, as Loaded.export does."""
        from .hf.folder import write_folder  # only here: a trace should not wait for it

        return write_folder(self.model, folder, about=self.about, **settings)

    def classify(self, image: Any, fit: Fit = "auto", **how: Any) -> list[Guess]:
        """All classes of one image, the most probable first. fit: how an image of another size or colour is brought to
        what the model reads (data.fit.fitted); how: edits of the run, and the temperature by which logits are divided.
        Raises InputError for a batch of several."""
        seen = self.see(image, fit, **how)
        if len(seen) != 1:
            raise InputError(f"there are {len(seen)} images; classify one at a time, or call see or the model on them")
        return seen[0].guesses

    def see(
        self, images: Any, fit: Fit = "auto", *, edits: Edit | Iterable[Edit] = (), temperature: float = 1.0
    ) -> list[Seen]:
        """The same of every image of a file or a batch."""
        check_above("temperature", temperature)
        edits = (edits,) if isinstance(edits, Edit) else tuple(edits)
        with within(images):
            self._check_classes()
            made, found = self.fitted(images, fit), []
            for start in range(0, len(made), BATCH):
                some = made[start : start + BATCH]
                logits = self._logits([one.image for one in some], edits).double() / temperature
                for one, shares in zip(some, logits.softmax(1).tolist(), strict=True):
                    found.append(Seen(ranked(shares, self.spec.labels), one))
        return found

    def fitted(self, images: Any, fit: Fit = "auto") -> list[Fitted]:
        """Every image of a file or a batch, brought to what the model reads."""
        spec = self.spec

        def made(given: list[np.ndarray]) -> list[Fitted]:
            return [fitted(image, spec.channels, spec.size, fit, spec.resize) for image in given]

        if isinstance(images, str | Path):
            with within(images):
                return made(read_images(images, spec.channels))
        given = as_tensor(images, spec.channels, spec.size)
        given = given.double() if given.is_floating_point() else given
        return made(apart(given.numpy(force=True), spec.channels))

    def _logits(self, images: list[np.ndarray], edits: tuple[Edit, ...]) -> Tensor:
        """Logits `b k` of images, in a run with edits one by one, since an edit may name a place in the batch."""
        if edits:
            return torch.cat([self.trace(one, edits=edits).logits for one in images])
        with torch.no_grad():
            return self.model(torch.cat([self.inputs(one) for one in images]))

    def _check_classes(self) -> None:
        if not self.spec.classes:
            raise UnsupportedError(
                "this model encodes images and knows no classes; call it on an image for its vectors, or trace it"
            )

    def evaluate(self, source: Path | str, *, view: ViewSpec | None = None) -> Errors:
        """The errors on the test part of a labelled set (data.images.read_labelled), changed as in training, or as
        another view says. Raises InputError for a set that the model cannot read."""
        self._check_classes()
        given = read_labelled(source, "test")
        check_labelled(source, given, self.spec.classes, self.spec.channels, self.spec.size)
        return errors(self.model, given.seen(self.view if view is None else view))


@contextlib.contextmanager
def within(path: Any) -> Iterator[None]:
    """Put the name of a file before the message of an InputError raised inside that does not name it; of what is no
    name of a file nothing."""
    try:
        yield
    except InputError as error:
        if not isinstance(path, str | Path):
            raise
        raise error if str(error).startswith(f"{path}:") else InputError(f"{path}: {error}") from None
