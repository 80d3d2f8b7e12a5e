"""Controls of a change: the same change at another place, or one of the same size in a random direction.

A change that moves the output no more than its control does says little about its own place.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor

from ..edit import Edit, add, listed
from ..errors import InputError
from ..mixers.alignment import Score
from ..mixers.attention import CrossAttention
from ..place import Index, indices, single
from ..positions import POSITIONS
from ..trace import Trace
from .explainer import length_of
from .sight import seen_together

By = Literal["place", "norm"]
SAME = ("h", "g", "m", "c", "f", "d", "e")  # axes whose places are of one kind: heads, experts, channels, numbers
MOST_STEPS = 65  # so far another place for the control is looked for


def control(edits: Edit | Iterable[Edit], trace: Trace, seed: int = 0, by: By = "place") -> Edit | tuple[Edit, ...]:
    """The control of an edit, or of several together, for the run of `trace`, which does not have them.

    by "place": the same at a place drawn from `seed`: another head (channel, class of numbers) of its layer where it
    names one, another source of a cut, else another layer. by "norm": what is added to the same value, to each token's
    vector as much as its edits together move it, in a direction drawn from `seed`; one for each value.

    Raises InputError where there is no such place, and for a norm of weights between tokens, which have none.
    """
    given = listed(edits)
    if type(seed) is not int:
        raise InputError(f"seed: {seed!r} is not allowed; use a whole number")
    if by not in ("place", "norm"):
        raise InputError(f"by: {by!r} is not allowed; use place, norm")
    drawn = torch.Generator().manual_seed(seed)
    if by == "norm":
        found: Sequence[Edit] | None = _of_norm(given, trace, drawn)
    else:
        found = elsewhere(trace, given, _steps(drawn))
    if found is None:
        raise InputError(
            f"{given[0].name if given else 'edits'}: there is no other place of its kind for a control; use by='norm'"
        )
    return found[0] if isinstance(edits, Edit) else tuple(found)


def steps_of(seed: int) -> Iterable[int]:
    """How far another place is looked for: of seed 0 the nearest first, else in an order drawn from it."""
    return _steps(torch.Generator().manual_seed(seed)) if seed else range(1, MOST_STEPS)


def _steps(drawn: torch.Generator) -> list[int]:
    return (1 + torch.randperm(MOST_STEPS - 1, generator=drawn)).tolist()


def again(trace: Trace, edits: Sequence[Edit]) -> Trace:
    """The same input with other edits."""
    loaded, stacks = getattr(trace, "loaded", None), trace.stacks
    if loaded is not None and len(stacks[0].tokens) == 1:
        ids = [stack.tokens[0].tolist() for stack in stacks]
        given = ids[0] if len(ids) == 1 else tuple(ids)
        return loaded.trace(given, edits=edits, limit_bytes=trace.limit_bytes, start=False)
    tokens, calls = [stack.tokens for stack in stacks], [stack.call for stack in stacks]
    pos = [None if call.plain else call.pos for call in calls]
    how: dict[str, Any] = {"edits": edits, "limit_bytes": trace.limit_bytes}
    if len(stacks) == 2:
        return Trace(trace.model, tuple(tokens), pos=tuple(pos), **how)
    return Trace(trace.model, tokens[0], pos=pos[0], segments=calls[0].segments, types=calls[0].types, **how)


def elsewhere(
    trace: Trace, edits: Sequence[Edit], steps: Iterable[int] = range(1, MOST_STEPS)
) -> tuple[Edit, ...] | None:
    """The edits, each at another head (channel, class of numbers) of its layer or, where it names none, in another
    layer, a cut at another source; what has no other place stays. None where nothing could be moved to a place that the
    edits do not touch. steps: how far they are moved, the first that does."""
    own = {_key(edit) for edit in edits}
    for step in steps:
        moved = [_moved(trace, edit, step) for edit in edits]
        others = {_key(one) for one in moved if one is not None}
        if others and not others & own:
            return tuple(one or edit for one, edit in zip(moved, edits, strict=True))
    return None


def _moved(trace: Trace, edit: Edit, step: int) -> Edit | None:
    """An edit so many heads, sources or layers further; None where there is no other."""
    known = trace.names()
    if edit.kind == "cut" and "h" not in edit.where:
        return _from_other_sources(trace, edit, step)
    if edit.kind == "cut":
        return _shifted(edit, "h", step, trace.model.get_submodule(edit.name).heads)
    if edit.name not in known:
        return None
    sizes = dict(trace.sizes(edit.name))
    axis = next((one for one in SAME if one in edit.where and not isinstance(edit.where[one], slice)), None)
    if axis is not None:
        return _shifted(edit, axis, step, sizes[axis])
    found = re.fullmatch(r"((?:encoder\.|decoder\.)?blocks\.)(\d+)(\..+)", edit.name)
    if found is None:
        return None
    start, layer, rest = found.groups()
    layers = sorted(int(one[len(start) : -len(rest)]) for one in known if re.fullmatch(f"{start}\\d+{rest}", one))
    name = f"{start}{layers[(layers.index(int(layer)) + step) % len(layers)]}{rest}"  # not every layer has one
    alike = name != edit.name and trace.sizes(name) == trace.sizes(edit.name)
    return _changed(edit, name=name) if alike else None


def _shifted(edit: Edit, axis: str, step: int, size: int) -> Edit | None:
    """The edit so many places further along an axis, at none of its own."""
    own = indices(edit.where[axis], size, edit.name, axis)
    others = [(place + step) % size for place in own]
    if step >= size or set(others) & set(own):
        return None
    place: Index = others if single(edit.where[axis]) is None else others[0]
    there = {**edit.there, axis: place} if axis in edit.there else edit.there
    return _changed(edit, where={**edit.where, axis: place}, there=there)


def _changed(edit: Edit, **how: Any) -> Edit:
    """The edit at another place; of a patch what the other run has there."""
    return replace(edit, **how, **({"value": None} if edit.kind == "patch" and edit.run is not None else {}))


def _from_other_sources(trace: Trace, edit: Edit, step: int) -> Edit | None:
    """A cut of as many other tokens that all of its queries can see."""
    part, stack = trace.model.get_submodule(edit.name), _stack(trace, edit.name)
    cross = isinstance(part, CrossAttention | Score)
    n = length_of(trace.stacks[0] if cross else stack)
    queries = indices(edit.where.get("t"), length_of(stack), edit.name, "t")
    own = indices(edit.where["s"], n, edit.name, "s")
    ways = torch.ones(n, dtype=torch.bool) if cross else seen_together(part, n, queries, "t" in edit.where)
    free = [j for j in range(n) if ways[j] and j not in own and (cross or "t" not in edit.where or j not in queries)]
    if step > len(free) or len(free) < len(own):
        return None
    others = sorted(free[(step - 1 + i) % len(free)] for i in range(len(own)))
    return replace(edit, where={**edit.where, "s": others[0] if single(edit.where["s"]) is not None else others})


def _stack(trace: Trace, name: str) -> Any:
    return next(stack for stack in trace.stacks if name.startswith(stack.prefix))


def _of_norm(edits: Sequence[Edit], trace: Trace, drawn: torch.Generator) -> list[Edit]:
    """For each value that is edited what moves it as far as its edits together do, in another direction."""
    of_value: dict[str, list[Edit]] = {}
    for edit in edits:
        of_value.setdefault(f"{edit.name}.out" if edit.kind == "cut" else edit.name, []).append(edit)
    found = []
    for name, mine in of_value.items():
        if name.rpartition(".")[2] == POSITIONS:
            raise InputError(f"{name}: positions are no vectors and have no direction; use by='place'")
        letters = trace.axes(name).split()
        if {"t", "s"} <= set(letters):
            raise InputError(f"{name}: weights between tokens have no direction; use by='place'")
        far = again(trace, [*trace.edits, *mine])[name] - trace[name]
        found.append(add(name, _turned(far, [i for i, one in enumerate(letters) if one not in "btshgm"], drawn)))
    return found


def _turned(far: Tensor, along: list[int], drawn: torch.Generator) -> Tensor:
    """Vectors as long along some axes as those of `far`, in random directions; single numbers with a random sign."""
    noise = torch.randn(far.shape, generator=drawn).to(far)
    if not along:
        return far * noise.sign()
    return noise * (far.norm(dim=along, keepdim=True) / noise.norm(dim=along, keepdim=True).clamp(min=1e-30))


def _key(edit: Edit) -> tuple[str, str]:
    return edit.name, repr(sorted(edit.where.items()))
