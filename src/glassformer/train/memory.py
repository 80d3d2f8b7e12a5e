"""Whether a run fits into the memory of its device, asked before anything is allocated."""

from __future__ import annotations

from collections import Counter

import torch

from ..errors import SettingError, under
from ..machine import free_bytes, sized
from ..model import without_memory
from .run import AnyRun, ImageRunSpec, MuonSpec, RunSpec


def check_memory(run: RunSpec, vocab: int, device: str | torch.device) -> None:
    """Raise SettingError where weights, gradients, the optimizer's memory and one pass need more than is free.

    The estimate is a lower bound, so that it refuses nothing that would run.
    """
    _check_text(run, vocab, vocab * run.model.dim, device)  # the table alone, before any code sees an absurd width
    _check_text(run, vocab, parameter_count(run, vocab), device)


def check_image_memory(run: ImageRunSpec, device: str | torch.device) -> None:
    """The same of a classifier: beside its parameters, one number and its gradient of all that flows between layers."""
    model = without_memory(run.model)
    count, flowing = sum(p.numel() for p in model.parameters()), sum(shape.numbers for shape in model.shapes)
    passes, way_out = f"{run.batch} images", "use a smaller model or batch"
    _check(run, count, 4 * run.batch * flowing, passes, way_out, device)


def _check_text(run: RunSpec, vocab: int, count: int, device: str | torch.device) -> None:
    tokens = run.batch * run.block
    # ids and targets of all passes; of one pass the logits, their gradient, and two vectors a block, in 2 or 4 bytes
    one_pass = tokens * (8 * vocab + 4 * run.model.dim * len(run.model.blocks))
    passes, way_out = f"{run.batch} × {run.block} tokens", "use a smaller model.dim, model.layers, batch or block"
    _check(run, count, 24 * tokens * run.accumulate + one_pass, passes, way_out, device)


def _check(run: AnyRun, count: int, passing_bytes: int, passes: str, way_out: str, device: str | torch.device) -> None:
    numbers = 3 if isinstance(run.optimizer, MuonSpec) else 4  # weight, gradient, and one or two means
    need, free = 4 * numbers * count + passing_bytes, free_bytes(device)
    if free is not None and need > free:
        raise SettingError(
            f"model: training {count:,} parameters or more in passes of {passes} needs "
            f"more than {sized(need)} of memory, and {sized(free)} are free; {way_out}"
        )


def parameter_count(run: RunSpec, vocab: int) -> int:
    """The parameters of the run's model, of each kind of block built once and without memory.

    Raises SettingError where they are too many to be counted.
    """
    kinds = Counter(run.model.blocks)
    with under("model"):
        model = without_memory(run.model.changed(vocab=vocab, blocks=tuple(kinds)))
    once = sum(p.numel() for p in model.parameters())
    blocks = zip(model.blocks, kinds.values(), strict=True)
    return once + sum((times - 1) * sum(p.numel() for p in block.parameters()) for block, times in blocks)
