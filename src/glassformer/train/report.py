"""What training tells after each update."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Report:
    """What happened in one update.

    step, steps       updates made so far and in all
    loss              of this update's windows or images before it, in nats per token or image
    rate              factor of the schedule times the optimizer's rate
    gradient_norm     of the whole gradient, before clipping
    tokens            seen so far; of a classifier, images
    tokens_per_s      in the last updates, without evaluations, samples and checkpoints
    seconds           since the run began, all sessions together
    seconds_left      until its end at the pace of this session's updates, evaluations included
    validation        loss in nats per token of the validation text (end tokens are seen but not counted), or per image,
                      where it was measured after this update
    bits_per_byte     the same per byte of text, which compares across tokenizers
    sample            a text from the model, where one was drawn
    saved             whether a checkpoint was written
    watched           the loss over the windows that are looked at on the way (evaluate_blocks), with `validation`;
                      only these are the same windows at every step
    best_step         the step of the lowest `watched` so far, best_validation that loss
    error             of a classifier: the share of the validation images that it puts into a wrong class
    """

    step: int
    steps: int
    loss: float
    rate: float
    gradient_norm: float
    tokens: int
    tokens_per_s: float
    seconds: float
    seconds_left: float
    validation: float | None = None
    bits_per_byte: float | None = None
    sample: str | None = None
    saved: bool = False
    watched: float | None = None
    best_step: int | None = None
    best_validation: float | None = None
    error: float | None = None
