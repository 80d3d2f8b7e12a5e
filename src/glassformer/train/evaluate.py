"""The loss of a language model over a split, and short samples of its text."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..call import at_rest
from ..data.packed import blocks
from ..data.text import pieces, text_files
from ..data.tokenizer import Tokenizer
from ..errors import InputError, not_finite

TEMPERATURE = 0.8  # of samples: the model's own distribution, a little sharpened, reads better than it does at 1


@dataclass(frozen=True)
class Score:
    """How well a text is predicted: loss in nats per token, perplexity per token, bits per byte of UTF-8 text; and how
    many tokens, of how many bytes, were predicted."""

    loss: float
    perplexity: float
    bits_per_byte: float
    tokens: int
    bytes: int


def token_loss(logits: Tensor, targets: Tensor, reduction: str = "mean", uncounted: int = -100) -> Tensor:
    """Cross entropy in nats of logits `b t v` for targets `b t`, in fp32 whatever the logits' dtype; a target of
    `uncounted` counts as nothing."""
    flat = logits.float().flatten(0, 1)
    return F.cross_entropy(flat, targets.flatten(), reduction=reduction, ignore_index=uncounted)


def evaluate(
    model: nn.Module,
    tokens: np.ndarray,
    block: int,
    batch: int = 32,
    most: int | None = None,
    end_id: int = -100,
) -> float:
    """Mean loss in nats per token over a whole split cut into blocks, each seen without the ones before it.

    Every token but the first is predicted exactly once. most: look at so many blocks only, spread evenly. end_id: the
    end token, which stands for no text, so that what its own prediction costs is left out.
    """
    device = next(model.parameters()).device
    total, count = 0.0, 0
    with at_rest(model):
        for inputs, targets in _windows(tokens, block, batch, most):
            x, y = torch.from_numpy(inputs).to(device), torch.from_numpy(targets).to(device)
            total += token_loss(model(x), y, "sum", end_id).item()
            count += int((y != end_id).sum())
    return total / count


def _windows(tokens: np.ndarray, block: int, batch: int, most: int | None) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Inputs and targets `b t` of the whole split, or of `most` blocks spread evenly over it."""
    rows = (len(tokens) - 1) // block
    if most is None or rows <= most:
        yield from blocks(tokens, block, batch)
        return
    starts = np.linspace(0, rows - 1, most).astype(np.int64) * block
    for first in range(0, most, batch):
        places = starts[first : first + batch, None] + np.arange(block + 1)  # b t+1
        window = np.asarray(tokens[places], dtype=np.int64)
        yield window[:, :-1], window[:, 1:]


def bits_per_byte(loss: float, tokens: int, text_bytes: int) -> float:
    """A loss in nats per token as bits per byte of UTF-8 text, which compares across tokenizers."""
    return loss * tokens / text_bytes / math.log(2)


def sample(model: nn.Module, tokenizer: Tokenizer, prompt: list[int], length: int, seed: int) -> str:
    """The prompt and up to `length` tokens drawn from the model, the same for the same seed.

    `generate` has every way of choosing a token; it lies beside training, not below, and a glance needs only this.
    """
    device, ids = next(model.parameters()).device, list(prompt)
    length = max(min(length, model.spec.context - len(ids)), 0)
    generator = torch.Generator().manual_seed(seed)
    with at_rest(model):
        logits, state = model.step(torch.tensor([ids], device=device), model.empty(1, len(ids) + length))
        for left in reversed(range(length)):
            known = logits[0, -1, : tokenizer.vocab_size].float().cpu()  # a model may have more rows than tokens
            drawn = torch.multinomial((known / TEMPERATURE).softmax(-1), 1, generator=generator)
            ids.append(int(drawn))
            if left:
                logits, state = model.step(drawn[None].to(device), state)
    return tokenizer.decode(ids)


def sliding_loss(
    model: nn.Module, tokens: np.ndarray | Iterable[np.ndarray], block: int, overlap: float, batch: int = 16
) -> float:
    """Summed loss in nats of all tokens but the first, in windows of `block` that start within the one before.

    tokens: all of them, or piece after piece, of which no more than `batch` windows are held at a time. Of every window
    but the first only the part behind the overlap counts, so that each token is predicted once, from at least
    overlap · block tokens where so many precede it. Raises InputError for an overlap outside [0, 1).
    """
    if not 0 <= overlap < 1:
        raise InputError(f"overlap: {overlap} is not allowed; use a share of the window from 0 to below 1")
    device, total, done = next(model.parameters()).device, 0.0, 0
    fresh = max(1, block - int(block * overlap))  # tokens by which a window goes beyond the one before
    pieces = [tokens] if isinstance(tokens, np.ndarray) else tokens
    with at_rest(model):
        for group in _sliding(pieces, block, fresh, batch):
            windows = torch.from_numpy(group).to(device)  # b t+1
            losses = token_loss(model(windows[:, :-1]), windows[:, 1:], "none").view(len(group), -1)
            for row in losses:
                total += row[block - fresh if done else 0 :].sum().item()
                done += 1
    return total


def _sliding(pieces: Iterable[np.ndarray], block: int, fresh: int, batch: int) -> Iterator[np.ndarray]:
    """Windows of block + 1 tokens `b t`, each beginning `fresh` tokens behind the one before; the last may be shorter
    and comes alone."""
    waiting: list[np.ndarray] = []
    held, first = np.empty(0, np.int64), True  # the tokens from the start of the next window on
    for piece in pieces:
        held = np.concatenate([held, piece])
        start = 0
        while len(held) - start > block:
            waiting.append(held[start : start + block + 1])
            start, first = start + fresh, False
            if len(waiting) == batch:
                yield np.stack(waiting)
                waiting.clear()
        held = held[start:]
    if waiting:
        yield np.stack(waiting)
    if len(held) > (1 if first else block + 1 - fresh):  # else the window before has seen them all
        yield held[None]


def score(model: nn.Module, tokenizer: Tokenizer, source: Path | str, overlap: float) -> Score:
    """How well a model predicts a text file or folder, each file behind the tokens before every text, where the
    tokenizer has such; else the first token of a file is not predicted, and its bytes are not counted.

    The text of a file runs through windows of the model's context, each of which begins with an `overlap` share of the
    one before. Every token is predicted once, from at least overlap · context tokens (from all that precede it in its
    file, where those are fewer) and at most context. Raises InputError for a text that cannot be used, and where the
    model's numbers are not finite.
    """
    loss, tokens, size, held = 0.0, 0, 0, 0

    def ids_of(path: Path) -> Iterator[np.ndarray]:
        nonlocal tokens, size, held
        count = len(tokenizer.start)
        yield np.array(tokenizer.start, dtype=np.int64)
        for piece in pieces(path) if tokenizer.piecewise else pieces(path, sys.maxsize):
            size += len(piece.encode())
            if count:
                ids = tokenizer.ids_array(piece)
            else:  # nothing stands before its first token
                found = tokenizer.encode(piece)
                ids, size = np.array(found.ids, dtype=np.int64), size - (found.byte_offsets[0][1] if found.ids else 0)
            count, held = count + len(ids), held + len(ids)
            yield ids
        tokens += max(0, count - 1)

    for path in text_files(source):
        loss += sliding_loss(model, ids_of(path), model.spec.context, overlap)
    if held and not tokens:
        raise InputError(f"{source}: one token, and the first of a file is not predicted; give a longer text")
    if not tokens:
        raise InputError(f"{source}: empty; there is no text in it")
    if not math.isfinite(loss):
        raise InputError(not_finite("in the loss on this text"))
    perplexity = math.exp(loss / tokens) if loss / tokens < 700 else math.inf
    bits = bits_per_byte(loss / tokens, tokens, size) if size else math.inf  # what is predicted stands for no text
    return Score(loss / tokens, perplexity, bits, tokens, size)
