"""The training of a classifier of images, and how often a classifier is wrong."""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..call import at_rest
from ..data.images import Labelled, check_labelled, read_labelled
from ..errors import InputError, SettingError, under
from ..model import build_model, without_memory
from .memory import check_image_memory
from .prepare import Progress, check_place, new_place
from .run import ImageRunSpec
from .store import STATE, Facts, check_run, read_facts


@dataclass(frozen=True)
class Errors:
    """How a classifier does on labelled images: the share that it puts into a wrong class, the mean loss in nats, and
    how many images there are of each class (rows) that it puts into each (columns)."""

    error: float
    loss: float
    images: int
    confusion: list[list[int]]


def errors(model: nn.Module, given: Labelled, batch: int = 500) -> Errors:
    """A classifier on labelled images, each seen once. Raises InputError where the model's numbers are not finite."""
    first = next(model.parameters())
    count, loss = model.spec.classes, 0.0
    confusion = torch.zeros(count, count, dtype=torch.long)
    with at_rest(model):
        for start in range(0, len(given), batch):
            images, labels = as_tensors(given, np.arange(start, min(start + batch, len(given))))
            logits = model(images.to(first.device, first.dtype)).cpu()
            loss += F.cross_entropy(logits.double(), labels, reduction="sum").item()
            confusion.view(-1).index_add_(0, labels * count + logits.argmax(1), torch.ones_like(labels))
    if not np.isfinite(loss):
        raise InputError("the model's loss on these images is not finite: its weights are broken; train it again")
    wrong = len(given) - int(confusion.diagonal().sum())
    return Errors(wrong / len(given), loss / len(given), len(given), confusion.tolist())


def as_tensors(given: Labelled, places: np.ndarray) -> tuple[Tensor, Tensor]:
    """Some of the images, as floats `b c y x` from 0 to 1, and their labels `b`."""
    return torch.from_numpy(given.images[places]).float() / 255, torch.from_numpy(given.labels[places])


class ImageTask:
    """A classifier on a labelled set of images. Each epoch takes every image once, in an order of its own."""

    unit, windows = "image", None

    def __init__(self, run: ImageRunSpec, folder: Path, fresh: bool, progress: Progress | None, device: str) -> None:
        self.run, (self.facts, given, self.fingerprint) = run, _ready(run, folder, fresh, device)
        kept = len(given) - round(run.validation * len(given))
        self.train, self.held = (Labelled(given.images[s], given.labels[s]) for s in (slice(kept), slice(kept, None)))
        self.per_update, self.watches = run.batch * run.accumulate, len(self.held) > 0
        self.one_pass = f"{run.batch} images"
        if self.facts is None:
            with new_place(run, folder):
                pass
        elif progress is not None:
            progress("resume", self.facts.step, run.steps)

    @staticmethod
    def check(run: ImageRunSpec, folder: Path, fresh: bool, device: str) -> None:
        """Raise what the run is refused for, before anything in the folder changes."""
        _ready(run, folder, fresh, device)

    def fresh_model(self) -> nn.Module:
        """The model before its first step."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.run.seed)
            return build_model(self.run.model)

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """Images `b c y x` and labels `b` of an update."""
        count = len(self.train)
        numbers = step * self.per_update + np.arange(self.per_update)
        places = np.array([_order(count, self.run.seed, int(n // count))[n % count] for n in numbers])
        return as_tensors(self.train, places)

    def loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Cross entropy in nats per image, in fp32 whatever the logits' dtype."""
        return F.cross_entropy(logits.float(), targets)

    def measure(self, model: nn.Module, windows: int | None) -> dict[str, float]:
        """The loss and the share of errors over all held-out images."""
        found = errors(model, self.held)
        return {"validation": found.loss, "error": found.error}

    def sample(self, model: nn.Module) -> str | None:
        """A classifier makes nothing."""
        return None

    def about(self) -> dict[str, Any]:
        """The images of both parts."""
        return {"training_images": len(self.train), "validation_images": len(self.held)}


def _ready(run: ImageRunSpec, folder: Path, fresh: bool, device: str) -> tuple[Facts | None, Labelled, str]:
    """What is stored of the run, if it goes on, its images as the model sees them, and their fingerprint."""
    facts, spec = None if fresh else read_facts(folder / STATE), run.model
    with under("model"):
        without_memory(spec)
    check_image_memory(run, device)
    if facts is None:
        check_place(folder, fresh)
    else:
        check_run(run, facts, folder)
    given = read_labelled(run.data, "train")
    check_labelled(run.data, given, spec.classes, spec.channels, spec.size)
    given = given.seen(run.view)
    fingerprint = hashlib.sha256(np.ascontiguousarray(given.images)).hexdigest()[:16]
    fingerprint += hashlib.sha256(given.labels.tobytes()).hexdigest()[:16]
    if len(given) == round(run.validation * len(given)):
        raise InputError(f"{run.data}: {len(given)} images leave none to train on; give a smaller validation share")
    if facts is not None and facts.fingerprint != fingerprint:
        raise SettingError(
            f"data: {folder} holds a run at step {facts.step} on other images; give the same ones to go "
            "on, choose another folder, or give --fresh to start anew"
        )
    return facts, given, fingerprint


@functools.lru_cache(maxsize=2)
def _order(count: int, seed: int, epoch: int) -> np.ndarray:
    """The order in which an epoch takes the images."""
    return np.random.default_rng([seed, epoch]).permutation(count)
