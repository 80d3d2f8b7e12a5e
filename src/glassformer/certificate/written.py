"""Checks of what a model writes: the same text with its cache and without."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor

from ..model import EncoderDecoder, Model
from .line import Line, judged, without
from .paths import BOUNDS, apart
from .subject import Subject, Text

TOKENS, PROMPT = 64, 12
PROMPTS = (1, 3)  # rows of the subject: one begins in English, one in Korean


def greedy(subject: Subject) -> Line:
    """The most probable token each time, for 64 tokens: how many differ from those that the whole text, read at once,
    makes most probable. Where both logits are equal up to rounding, either token is right (`ties`)."""
    refusal = writes_not(subject)
    if refusal:
        return without("greedy", refusal)
    wrong = ties = count = 0
    for prompt, room in prompts(subject):
        tokens = subject.written(prompt, room)
        scores = subject.alone(subject.changed(prompt, [*subject.ids(prompt), *tokens[:-1]]))[-room:]
        for token, one in zip(tokens, scores, strict=True):
            count += 1
            if one.argmax().item() != token:
                equal = is_tie(one, token, subject)
                ties, wrong = ties + equal, wrong + (not equal)
    return judged("greedy", wrong, 0, "count", of=count, ties=ties)


def writes_not(subject: Subject) -> str:
    """Why a model writes no text; "" where it does."""
    if subject.waits:
        return subject.waits
    return "" if stack_of(subject).head is not None else "this model ends in vectors, so it writes no tokens"


def stack_of(subject: Subject) -> Model:
    """The stack that writes."""
    return subject.model.decoder if isinstance(subject.model, EncoderDecoder) else subject.model


def prompts(subject: Text) -> Iterator[tuple[Any, int]]:
    """What is gone on from, the beginnings of two rows, and for how many tokens there is room; of an encoder-decoder
    the first token of its target."""
    for row in (subject.rows[i] for i in PROMPTS if i < len(subject.rows)):
        ids = subject.ids(row)[: 1 if isinstance(subject.model, EncoderDecoder) else PROMPT]
        yield subject.changed(row, ids), min(TOKENS, stack_of(subject).spec.context - len(ids))


def is_tie(scores: Tensor, token: int, subject: Subject) -> bool:
    """Whether rounding alone may have put the logit of a token below the largest: whether both are as near as the
    format's bound, or as twice what rounding is measured to do in this model."""
    gap = ((scores.max() - scores[token]) / scores.abs().max().clamp(min=1e-30)).item()
    if gap <= 2 * BOUNDS.get(subject.dtype, 0.0) or subject.may_choose_otherwise:
        return True
    return subject.wide is not None and gap <= 2 * apart(subject.fast, subject.wide)[0]
