"""Checks of what a model writes: the same text with its cache and without."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..call import at_rest
from ..errors import GlassformerError
from ..model import EncoderDecoder
from .line import Line, judged, without
from .paths import BOUNDS, apart
from .subject import Subject

if TYPE_CHECKING:
    from ..api import Loaded

PROMPTS = ("Once upon a time there was a small", "옛날 옛적 어느 마을에")
TOKENS = 64


def greedy(loaded: Loaded, subject: Subject) -> Line:
    """The most probable token each time, for 64 tokens: how many differ from those that the whole text, read at once,
    makes most probable. Where both logits are equal up to rounding, either token is right (`ties`)."""
    refusal = writes_not(subject)
    if refusal:
        return without("greedy", refusal)
    wrong = ties = count = 0
    for prompt in prompts(loaded, subject):
        tokens = written(loaded, prompt)
        for token, scores in zip(tokens, at_once(loaded, subject, prompt, tokens), strict=True):
            count += 1
            if scores.argmax().item() != token:
                equal = is_tie(scores, token, subject)
                ties, wrong = ties + equal, wrong + (not equal)
    return judged("greedy", wrong, 0, "count", of=count, ties=ties)


def writes_not(subject: Subject) -> str:
    """Why a model writes no text; "" where it does."""
    if subject.waits:
        return subject.waits
    stack = subject.model.decoder if isinstance(subject.model, EncoderDecoder) else subject.model
    return "" if stack.head is not None else "this model ends in vectors, so it writes no tokens"


def is_tie(scores: Tensor, token: int, subject: Subject) -> bool:
    """Whether rounding alone may have put the logit of a token below the largest: whether both are as near as the
    format's bound, or as twice what rounding is measured to do in this model."""
    gap = ((scores.max() - scores[token]) / scores.abs().max().clamp(min=1e-30)).item()
    if gap <= 2 * BOUNDS.get(subject.dtype, 0.0) or subject.may_choose_otherwise:
        return True
    return subject.wide is not None and gap <= 2 * apart(subject.fast, subject.wide)[0]


def prompts(loaded: Loaded, subject: Subject) -> list[list[int]]:
    """An English and a Korean prompt as token ids, of what the tokenizer takes; else the beginnings of two rows."""
    found = []
    for text in PROMPTS:
        try:
            parts = [loaded.read(part) for part in loaded.parts(text)]
            found += [loaded.encode(part) if isinstance(part, str) else part for part in parts]
        except GlassformerError:
            continue
    return found or [(row[0] if isinstance(row, tuple) else row)[:8] for row in subject.rows[:2]]


def written(loaded: Loaded, prompt: list[int], most: int = TOKENS) -> list[int]:
    """The most probable continuation of a prompt, with the cache."""
    return [event.token for event in loaded.generate([prompt], max_new_tokens=min(most, loaded.room([prompt])))]


def at_once(loaded: Loaded, subject: Subject, prompt: list[int], tokens: list[int]) -> Tensor:
    """Logits `t v` from which each of these tokens was to be chosen, from one call that reads all of them."""
    if isinstance(subject.model, EncoderDecoder):
        start = [loaded.tokenizer.end_id]
        inputs = [prompt, [*start, *tokens[:-1]]]
    else:
        inputs = [[*prompt, *tokens[:-1]]]
    with at_rest(subject.model):
        logits = subject.model(*(torch.tensor([ids], device=subject.device) for ids in inputs))[0]
    return logits[-len(tokens) :].float()
