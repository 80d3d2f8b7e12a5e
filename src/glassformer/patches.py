"""Edits that put what another run computed into this one: activation patching, and attention that stays as it was.

    clean, other = model.trace("The cat ate the fish"), model.trace("The dog ate the fish")
    model.trace(other.text, edits=[patch("blocks.2.resid_out", clean, t=3)])

A clean value in a corrupted run shows where it suffices (denoising), a corrupted one in a clean run where it is needed
(noising; Heimersheim & Nanda 2024, section 2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .edit import Edit
from .errors import InputError, UnsupportedError
from .place import Index, indices, single

if TYPE_CHECKING:
    from .trace import Trace

WEIGHTS = ("pattern", "weights")  # what tells, where it has axes t and s, how much of each token enters another


def patch(name: str, run: Any, *, there: Mapping[str, Index] | None = None, **where: Index) -> Edit:
    """Replace a tapped value by what another run has there.

    run: the trace of the other run; or its text or token ids, which the model that is traced then runs first, without
    edits. there: the places in the other run where they are not those of this one, as there={"t": 4}; an axis that is
    left out has the places of this one.
    """
    there = dict(there or {})
    if not hasattr(run, "part"):
        ids = None if isinstance(run, str) else _ids(run)
        if not run or (ids is None and not isinstance(run, str)):
            raise InputError(f"{name}: {run!r} is no run; give a trace, or the text or the token ids of one")
        return Edit(name, "patch", where, run=run if ids is None else ids, there=there)
    value, model = _of_run(run, name, where, there), _model_of(run)
    return Edit(name, "patch", where, value, run=_given(run) or run, there=there, model=model)


def _ids(run: Any) -> list[int] | None:
    """A list of whole numbers; None for anything else."""
    ids = list(run) if isinstance(run, list | tuple) else []
    return ids if ids and all(type(one) is int for one in ids) else None


def _given(run: Trace) -> str | list[int] | None:
    """The text that gives a run, or its ids; None where it has edits of its own, several rows, a pair of texts
    or an image."""
    stack = run.stacks[0]
    if run.edits or len(run.stacks) != 1 or stack.units != "tokens" or len(stack.tokens) != 1:
        return None
    text = getattr(run, "given", None)  # of a run without the start token only its ids say so
    return text if isinstance(text, str) and run._start else stack.tokens[0].tolist()


def _model_of(run: Trace) -> str:
    """What the model of a run is called; "" where that is not known."""
    return getattr(getattr(run, "loaded", None), "name", "")


def _of_run(run: Trace, name: str, where: Mapping[str, Index], there: Mapping[str, Index]) -> Any:
    """The value at the places of a run, every axis of it; several places as lists."""
    places = {axis: [place] if single(place) is not None else place for axis, place in {**where, **there}.items()}
    for axis, size in run.sizes(name):
        indices(there.get(axis), size, f"there: {name} of the other run", axis)
    return run.part(name, **places)


def resolved(edits: tuple[Edit, ...], run_of: Callable[[Any], Trace]) -> tuple[Edit, ...]:
    """The edits with the values of those that only name a run. run_of: the trace of a text or of token ids."""
    runs: dict[Any, Trace] = {}

    def made(edit: Edit) -> Edit:
        if edit.kind != "patch" or edit.value is not None:
            return edit
        named = isinstance(edit.run, str | list)
        key = (edit.run if isinstance(edit.run, str) else tuple(edit.run)) if named else id(edit.run)
        if key not in runs:
            runs[key] = run_of(edit.run) if named else edit.run
        model = _model_of(runs[key])
        if edit.model and model and edit.model != model:
            raise InputError(
                f"{edit.name}: this patch takes what {edit.model} has, and {model} is run here; patch from a trace of "
                "that model, or leave its model out"
            )
        return replace(edit, value=_of_run(runs[key], edit.name, edit.where, edit.there))

    return tuple(map(made, edits))


def freeze(trace: Trace, names: str | Iterable[str] | None = None) -> tuple[Edit, ...]:
    """Edits under which another text, as long as this trace's, is mixed with the weights of this one: every attention
    pattern, and the effective weights of linear attention, state-space models and the like, stay as they are here.

    names: of these values alone. Raises UnsupportedError for a model whose mixers have no such weights.
    """
    known = [name for name in trace.names() if _weighs(trace, name)]
    chosen = known if names is None else [names] if isinstance(names, str) else list(names)
    for name in chosen:
        trace.axes(name)  # refuses an unknown one with the nearest
        if name not in known:
            raise InputError(f"{name}: these are no weights between tokens; those of this model: {', '.join(known)}")
    if not chosen:
        raise UnsupportedError("this model has no weights between tokens that could be kept; patch its values instead")
    return tuple(patch(name, trace) for name in chosen)


def _weighs(trace: Trace, name: str) -> bool:
    return name.rpartition(".")[2] in WEIGHTS and {"t", "s"} <= set(trace.axes(name).split())
