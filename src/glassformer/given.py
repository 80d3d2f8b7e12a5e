"""What a model is called with: whole numbers in the form of a batch, their places, and an encoder's output."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .call import Call
from .errors import InputError


def call_of_all(tokens: Tensor, pos: Tensor | None, segments: Tensor | None, **more: Any) -> Call:
    """The call of a whole sequence `b t`; pos None: 0, 1, 2 …"""
    plain = pos is None and segments is None
    if pos is None:
        pos = torch.arange(tokens.shape[1], device=tokens.device)[None]
    return Call(pos, plain, segments, end=tokens.shape[1] if plain else None, **more)


def check_form(tokens: Tensor, vocab: int, **places: Tensor | None) -> None:
    """What every call checks: shape and type and, on a processor, the ids. On an accelerator looking at them would wait
    for it at every step; there whoever takes ids from outside calls `check_tokens` once. places: pos and segments, a
    whole number for each token."""
    whole = isinstance(tokens, Tensor) and not (tokens.is_floating_point() or tokens.is_complex())
    if not whole or tokens.dtype == torch.bool or tokens.ndim != 2:
        tensor = isinstance(tokens, Tensor)
        given = f"{tokens.dtype} of shape {tuple(tokens.shape)}" if tensor else type(tokens).__name__
        raise InputError(f"a model takes a batch of token ids, whole numbers of shape (batch, length); not {given}")
    for name, value in places.items():
        check_places(name, value, *tokens.shape)
    if tokens.numel() == 0 or (tokens.device.type == "cpu" and not torch.compiler.is_compiling()):
        check_tokens(tokens, vocab)


def check_places(name: str, value: Tensor | None, batch: int, length: int) -> None:
    """Raise InputError where a value is not a whole number for each place, in each row or in one for all."""
    if value is None:
        return
    shape, kind = (tuple(value.shape), value.dtype) if isinstance(value, Tensor) else ((), type(value).__name__)
    if shape not in ((batch, length), (1, length)) or value.dtype not in (torch.int64, torch.int32):
        raise InputError(f"{name}: give whole numbers of shape ({batch}, {length}); not {kind} of shape {shape}")


def check_memory(tokens: Tensor, memory: Tensor | None, memory_pos: Tensor | None) -> None:
    """Raise InputError where the encoder's output `b s d` and its positions `b s` do not fit the tokens' rows."""
    if memory is None:
        if memory_pos is not None:
            raise InputError("memory_pos: there is no memory whose positions these could be; give memory as well")
        return
    if not isinstance(memory, Tensor) or memory.ndim != 3 or len(memory) != len(tokens):
        given = tuple(memory.shape) if isinstance(memory, Tensor) else type(memory).__name__
        raise InputError(f"memory: give an encoder's output of shape ({len(tokens)}, length, width); not {given}")
    check_places("memory_pos", memory_pos, *memory.shape[:2])


def check_tokens(tokens: Tensor, vocab: int) -> None:
    """Raise InputError for ids outside the vocabulary, which would otherwise read another row or crash a kernel."""
    if tokens.numel() == 0:
        raise InputError("no tokens were given; give at least one")
    low, high = int(tokens.min()), int(tokens.max())
    if low < 0 or high >= vocab:
        raise InputError(f"token id {low if low < 0 else high} is outside the vocabulary of {vocab} (0 to {vocab - 1})")
