"""What a training is about: where its batches come from, what is learnt from them and what is watched on the way.

The loop is the same for all. `TextTask` trains a language model on a text; `classify.ImageTask`, a classifier of
images.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from ..data.packed import Beginnings, batch_at
from .evaluate import bits_per_byte, evaluate, sample, token_loss
from .prepare import Progress, check, fresh_model, prepare
from .run import RunSpec
from .store import Facts


class Task(Protocol):
    """One kind of training, made ready for a run.

    facts        of the training state to go on from; None for a new run
    fingerprint  of the data, which a run that goes on must find again
    unit         what one example is: token or image
    per_update   so many in one update
    one_pass     the same of one pass, in words
    windows      how many windows of the validation data are looked at on the way; None: all of it
    watches      whether there is validation data
    """

    facts: Facts | None
    fingerprint: str
    unit: str
    per_update: int
    one_pass: str
    windows: int | None
    watches: bool

    @staticmethod
    def check(run: Any, folder: Path, fresh: bool, device: str) -> object:
        """Raise what the run is refused for, as far as that takes no long reading, before anything changes."""

    def fresh_model(self) -> nn.Module:
        """The model before its first step."""

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """Inputs and targets of an update, of all its passes."""

    def loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        """The mean loss of a pass in nats."""

    def measure(self, model: nn.Module, windows: int | None) -> dict[str, float]:
        """`validation` and what else a report says of so many windows of the validation data."""

    def sample(self, model: nn.Module) -> str | None:
        """What the model makes by itself, where that can be shown."""

    def about(self) -> dict[str, Any]:
        """What about.json says of the data."""


class TextTask:
    """A language model on a packed text."""

    unit, check = "token", staticmethod(check)

    def __init__(self, run: RunSpec, folder: Path, fresh: bool, progress: Progress | None, device: str) -> None:
        ready = prepare(run, folder, fresh, progress, device)
        self.run, self.facts = run, ready.facts
        self.tokenizer, self.packed, self.prompt = ready.tokenizer, ready.packed, ready.prompt
        self.fingerprint = self.packed.fingerprint
        self.per_update = run.accumulate * run.batch * run.block
        self.one_pass = f"{run.batch} × {run.block} tokens"
        rows, most = (len(self.packed.validation) - 1) // run.block, run.evaluate_blocks
        self.windows = most if most and most < rows else None
        self.watches = len(self.packed.validation) >= 2
        rare = self.packed.train_documents < run.begin * len(self.packed.train) / run.block
        self.begin = Beginnings.of(self.tokenizer, run.begin) if rare else None

    def fresh_model(self) -> nn.Module:
        """The model before its first step."""
        return fresh_model(self.run, self.tokenizer)

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """Inputs and targets `b t` of an update."""
        run = self.run
        windows = run.batch * run.accumulate
        inputs, targets = batch_at(self.packed.train, step, windows, run.block, run.seed, self.begin)
        return torch.from_numpy(inputs), torch.from_numpy(targets)

    def loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Nats per token."""
        return token_loss(logits, targets)

    def measure(self, model: nn.Module, windows: int | None) -> dict[str, float]:
        """The loss, and the same per byte of the text."""
        block, end_id = self.run.block, self.tokenizer.end_id
        loss = evaluate(model, self.packed.validation, block, max(1, 4096 // block), windows, end_id)
        tokens = len(self.packed.validation) - self.packed.validation_documents
        size = bits_per_byte(loss, tokens, self.packed.validation_bytes)
        return {"validation": loss, "bits_per_byte": size}

    def sample(self, model: nn.Module) -> str | None:
        """A text from the model, where one is wanted."""
        if not self.run.sample_tokens:
            return None
        return sample(model, self.tokenizer, self.prompt, self.run.sample_tokens, self.run.seed)

    def about(self) -> dict[str, Any]:
        """The tokens of both splits."""
        return {"training_tokens": len(self.packed.train), "validation_tokens": len(self.packed.validation)}
