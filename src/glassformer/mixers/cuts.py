"""Cut edges: what a mixer gives a token as though another token were not there.

In attention an edge is a score. Cut, it is -∞, and what is left of the row is normalised anew; or the weight becomes 0
and the others stay. With weight a, value u and output o that moves the output by o' − o = a/(1−a)·(o − u).

In every other mixer the edge from token j to token i is what the mixer makes of j for i, on whatever way: the mixer
reads the text once more with no token at the place of j (position -1, as padding has it), and i is given that output.
It is slow and exact, and it is the same law for a recurrence, a convolution, a scan, a memory or a Fourier transform.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import torch
from torch import Tensor, nn

from ..call import Call
from ..edit import Edit
from ..errors import InputError, UnsupportedError, nearest
from ..mask import rows
from ..place import check_letters, indices
from ..state import State
from ..tap import by_name
from .base import TokenMixer

FOUR_STEPS = {"scores", "pattern"}


def mixed(mixer: nn.Module, x: Tensor, call: Call, state: State | None = None) -> tuple[Tensor, State | None]:
    """What a mixer gives for x `b t d`, a whole text or, with a state, what follows it, and the state after it; without
    the edges that the edits of the call cut."""
    if call.probe is not None and getattr(call.probe, "cuts", False):
        _prepare(mixer, x, call, state)
    return (mixer.parallel(x, call), None) if state is None else mixer.step(x, state, call)


def acting(parts: Mapping[str, nn.Module], edits: tuple[Edit, ...], whole: bool = True) -> tuple[Edit, ...]:
    """The edits with each cut as a change of the values that it changes. A cut comes before all other edits of a score
    or an output, and behind those of a weight, so that it holds whatever else is done to them.

    parts: the modules by path. Raises InputError for a cut of what is no mixer; whole False: it is left as it is."""
    edited = {edit.name for edit in edits}
    first: list[Edit] = []
    between: list[Edit] = []
    last: list[Edit] = []
    for edit in edits:
        part = parts.get(edit.name)
        if edit.kind != "cut" or (part is None and not whole) or edit.name.endswith((".out", ".pattern")):
            between.append(edit)
            continue
        for one in _changes(edit, part, parts, edited):
            (first if one.name.endswith((".scores", ".out")) else last).append(one)
    return (*first, *between, *last)


def _changes(edit: Edit, part: nn.Module | None, parts: Mapping[str, nn.Module], edited: set[str]) -> Iterator[Edit]:
    """What one cut of a part of the model changes."""
    path, where, cards = edit.name, edit.where, getattr(part, "cards", {})
    if _looks(part):
        if edit.renormalise:
            yield Edit(f"{path}.scores", "replace", where, -torch.inf)
        if not edit.renormalise or f"{path}.pattern" in edited:  # a pattern that was put there knows of no score
            yield replace(edit, name=f"{path}.pattern")
    elif not isinstance(part, TokenMixer):
        mixers = [name for name, one in parts.items() if isinstance(one, TokenMixer) or _looks(one)]
        raise InputError(f"{path}: only what tokens reach through a mixer can be cut; {nearest(path, mixers)}")
    elif edit.renormalise:
        check_letters(where, "b t s", path)
        yield replace(edit, name=f"{path}.out")
    elif "weights" in cards:
        yield Edit(f"{path}.weights", "zero", where)
    else:
        raise UnsupportedError(
            f"{path}: this mixer has no weights of which one could be 0 while the others stay; leave renormalise out"
        )


def _looks(part: nn.Module | None) -> bool:
    """Whether it weighs tokens by scores, as attention and the alignment of a decoder do."""
    return getattr(part, "cards", {}).keys() >= FOUR_STEPS


def _prepare(mixer: nn.Module, x: Tensor, call: Call, state: State | None) -> None:
    """Work out what the cuts of this mixer change, before it runs."""
    probe, out = call.probe, f"{mixer.path}.out"
    own = {part.path: part for part in mixer.modules() if isinstance(getattr(part, "path", None), str)}
    probe.edited |= {edit.name for edit in probe.given if edit.kind == "cut" and edit.name in own}
    probe.given = acting(own, probe.given, whole=False)
    probe.edits = by_name(probe.given)
    cuts = [edit for edit in probe.edits.get(out, ()) if edit.kind == "cut"]
    if not cuts:
        return
    if state is not None:
        raise UnsupportedError(f"{mixer.path}: a cut needs the whole text, which a state has not kept; read it at once")
    made = list(_without(mixer, x, call, cuts))
    probe.edits[out] = [*made, *(edit for edit in probe.edits[out] if edit.kind != "cut")]


def _without(mixer: nn.Module, x: Tensor, call: Call, cuts: list[Edit]) -> Iterator[Edit]:
    """For each set of sources that some queries lose, the outputs of these queries."""
    (batch, t, _), out = x.shape, f"{mixer.path}.out"
    lost: dict[tuple[int | None, int], set[int]] = {}
    each_row = any("b" in cut.where for cut in cuts)
    for cut in cuts:
        sources = set(indices(cut.where.get("s"), t, mixer.path, "s"))
        rows_of = indices(cut.where.get("b"), batch, mixer.path, "b") if each_row else [None]
        for query in indices(cut.where.get("t"), t, mixer.path, "t"):
            if query in sources and "t" in cut.where:
                raise InputError(
                    f"{mixer.path}: token {query} is cut from itself, and without its own vector this mixer gives it "
                    "nothing; cut other sources, or zero its output"
                )
            for row in rows_of:
                lost.setdefault((row, query), set()).update(sources - {query})
    alike: dict[frozenset[int], list[tuple[int | None, int]]] = {}
    for place, sources in lost.items():
        alike.setdefault(frozenset(sources), []).append(place)
    for sources, places in alike.items():
        found = _read_again(mixer, x, call, sorted(sources))
        for row in dict.fromkeys(row for row, _ in places):
            queries = [query for one, query in places if one == row]
            where = {"t": queries} if row is None else {"b": [row], "t": queries}
            some = found if row is None else found[row : row + 1]
            yield Edit(out, "replace", where, some[:, queries])


def _read_again(mixer: nn.Module, x: Tensor, call: Call, sources: list[int]) -> Tensor:
    """What the mixer gives, `b t d`, where no token stands at some places; with the other edits inside it."""
    pos = rows(call.pos, len(x)).clone()
    pos[:, sources] = -1
    inside = [edit for edit in call.probe.given if edit.name.startswith(f"{mixer.path}.")]
    inside = [edit for edit in inside if edit.name != f"{mixer.path}.out"]
    probe = call.probe.beside(tuple(inside))
    more = {"rows": None, "heads": None, "losses": None, "ends": None, "shared": {}}
    return mixer.parallel(x, replace(call, pos=pos, plain=False, end=None, probe=probe, **more))
