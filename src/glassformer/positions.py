"""Positions that an edit moves: `zero("positions")` takes every position signal away that is worked out from them.

A token's place decides two things: what it may see, and what it is told about where it stands. An edit of "positions"
(of a pair "encoder.positions" and "decoder.positions") changes the second alone, in every layer at once: the vectors
that are added to the embedding, the angles of RoPE, the distances of ALiBi and of relative biases. Where all stand at
the same place, RoPE turns nothing, ALiBi subtracts nothing, and a relative bias adds the same to every score of a row,
which the softmax does not notice: the model then is the one without a position signal. Of vectors that are added, zero
`embed.position` instead: at one place for all they would still add that place's.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from .call import Call
from .edit import Edit
from .errors import InputError
from .mixers.rmt import Rmt
from .nn.embed import Embed
from .nn.position import AlibiSpec, LearnedSpec, RelativeBiasSpec, RelativeSinusoidSpec, RopeSpec

POSITIONS = "positions"
SCORED = (RopeSpec, AlibiSpec, RelativeBiasSpec, RelativeSinusoidSpec)


def signals(model: nn.Module) -> tuple[str, ...]:
    """The tags of the position signals that a stack works out from its positions ("learned", "rope" …), each once."""
    specs: list[Any] = [model.embed.spec.position] if isinstance(model.embed, Embed) else []
    parts = [part for block in model.blocks for part in block.modules()]
    scored = [getattr(getattr(part, "spec", None), "position", None) for part in parts]
    specs += [one for one in scored if isinstance(one, SCORED)]
    return tuple(dict.fromkeys(one.__struct_config__.tag for one in specs if one is not None))


def relocated(
    name: str, model: nn.Module, call: Call, batch: int, edits: tuple[Edit, ...], start: int | None = None
) -> Call:
    """The call whose position signals are worked out from positions that the edits of that name have changed. start: as
    in Edit.apply.

    Raises InputError where there is no such signal, and for what is no position: they are whole numbers from 0, of a
    learned table below its length.
    """
    mine = [edit for edit in edits if edit.name == name]
    if not mine:
        return call
    if not signals(model):
        raise InputError(
            f"{name}: this model has no position signal that is worked out from positions; what is added to its "
            "embedding is embed.position, and where there is none its mixers alone know the order"
        )
    pos = call.pos.expand(batch, -1) if any("b" in edit.where for edit in mine) else call.pos
    moved = pos.double()
    for edit in mine:
        moved = edit.apply(moved, "b t", lambda axis: call.documents(False), start)
    there = pos >= 0
    _check(name, model, moved[there])
    return replace(call, places=torch.where(there, moved.round().long(), pos))


def _check(name: str, model: nn.Module, moved: Tensor) -> None:
    """Raise InputError for what is no position of this model."""
    wrong = moved[(moved != moved.round()) | (moved < 0) | ~moved.isfinite()]
    if len(wrong):
        raise InputError(
            f"{name}: an edit makes a position {wrong[0].item():g}; positions are whole numbers from 0, so scale and "
            "add by whole numbers"
        )
    most = int(moved.max()) if len(moved) else 0
    learned = isinstance(model.embed, Embed) and isinstance(model.embed.spec.position, LearnedSpec)
    if learned and most >= model.embed.context:
        raise InputError(
            f"{name}: an edit makes a position {most} and this model has learned {model.embed.context} (0 to "
            f"{model.embed.context - 1}); shift by less"
        )
    if len(moved) and bool((moved != moved[0]).any()) and any(isinstance(part, Rmt) for part in model.modules()):
        raise InputError(
            f"{name}: the memory Transformer numbers each of its segments anew; there all positions can only be made "
            "the same, as glassformer.zero does"
        )
