"""Generation in which every run is edited: through the cache where that gives what reading everything again would give,
else by reading everything again before each token.

An edit at place 7 acts once there is a token 7, in the prompt or written. What depends on the whole text so far (a
mean, a last token, an edge cut from a recurrence) changes with every new token, and a cache holds what was true before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from ..call import at_rest
from ..edit import OVER_TEXT, Edit, listed
from ..errors import InputError, nearest
from ..mixers.alignment import Score
from ..mixers.attention import Attention, CrossAttention
from ..mixers.cuts import acting
from ..model import EncoderDecoder, Model, ModelState
from ..patches import resolved
from ..place import check_letters, indices, single
from ..positions import POSITIONS, relocated
from ..state import State
from ..tap import Probe
from ..trace import Trace
from .sampling import GenerateSpec


@dataclass(frozen=True, eq=False)
class Editing:
    """What is edited while a model writes: the edits as they act, and whether they can act through the cache."""

    model: Model | EncoderDecoder
    edits: tuple[Edit, ...]
    cached: bool

    @classmethod
    def of(cls, model: Model | EncoderDecoder, edits: Edit | Iterable[Edit]) -> Editing:
        """Raises InputError for a value that the model does not have, and for a place that no text can have."""

        def run_of(given: Any) -> Trace:
            if isinstance(given, str):
                raise InputError("this model has no tokenizer; patch from a trace, or from token ids instead of a text")
            return Trace(model, torch.tensor([given], device=next(model.parameters()).device))

        parts = dict(model.named_modules())
        found = acting(parts, resolved(listed(edits), run_of))
        known = _known(model)
        made = tuple(_bounded(edit, known) for edit in found)
        cached = all(goes_on(edit, known, parts) for edit in made)
        return cls(model, made, cached)

    @property
    def stack(self) -> Model:
        """What writes."""
        return self.model.decoder if isinstance(self.model, EncoderDecoder) else self.model

    @property
    def prefix(self) -> str:
        """What its names begin with."""
        return "decoder." if isinstance(self.model, EncoderDecoder) else ""

    def probe(self, edits: tuple[Edit, ...], start: int | None) -> Probe:
        """One that only edits."""
        return Probe(lambda name: False, edits, start=start)

    def read(self, prompt: list[int], spec: GenerateSpec) -> tuple[Tensor, State]:
        """Logits `1 v` of the first new token behind a prompt, and the state there."""
        tokens = torch.tensor([prompt], device=next(self.model.parameters()).device)
        with at_rest(self.model):
            given: dict[str, Any] = {}
            if isinstance(self.model, EncoderDecoder):
                given, tokens = self.memory(tokens), tokens.new_tensor([spec.begin])
            room = tokens.shape[1] + spec.max_new_tokens - 1  # the last token is never read
            logits, state = None, self.start(room, spec.beams, **given)
            for some in [tokens] if isinstance(state, Again) else tokens.split(spec.chunk, 1):
                logits, state = state.after(some)
            return logits, state

    def start(self, room: int, beams: int = 1, **given: Any) -> Cached | Again:
        """The state before the first token, with room for so many. given: what an encoder gives (`memory`)."""
        drawn = beams > 1 and any(edit.kind == "noise" for edit in self.edits)  # anew in each hypothesis
        if not self.cached or drawn:
            device = next(self.model.parameters()).device
            return Again(self, torch.zeros(1, 0, dtype=torch.long, device=device), **given)
        with at_rest(self.model):
            return Cached(self, self.stack.empty(1, room, probe=self.probe(self.edits, None), **given), 0)

    def memory(self, source: Tensor) -> dict[str, Any]:
        """What the encoder, edited, gives the decoder of a source `1 s`, or of a sound `1 n`."""
        encoder, ends = self.model.encoder, list[Tensor]()
        call = relocated(f"encoder.{POSITIONS}", encoder, encoder.call(source), 1, self.edits)
        memory = encoder.run(source, replace(call, probe=self.probe(self.edits, None), ends=ends))
        return {"memory": memory, "handed": tuple(ends)}


@dataclass(eq=False)
class Cached(State):
    """Where a generation stands that goes on through the cache `inner`, behind so many places."""

    editing: Editing
    inner: ModelState
    length: int

    @property
    def next_pos(self) -> Tensor:
        """The position `b` of the next token."""
        return self.inner.next_pos

    def after(self, tokens: Tensor) -> tuple[Tensor, Cached]:
        """Logits `b v` behind further tokens `b t`, and the state there."""
        past, editing = self.take(), self.editing
        probe = editing.probe(editing.edits, past.length)
        with at_rest(editing.model):
            logits, inner = editing.stack.step(tokens, past.inner, probe=probe)
        return logits[:, -1], Cached(editing, inner, past.length + tokens.shape[1])


@dataclass(eq=False)
class Again(State):
    """Where a generation stands that reads all of its tokens `b t` again, beside the encoder's `memory` `b s d` and the
    states that were `handed` over."""

    editing: Editing
    tokens: Tensor
    memory: Tensor | None = None
    handed: tuple[Tensor, ...] = ()

    @property
    def next_pos(self) -> Tensor:
        """The position `b` of the next token."""
        return self.tokens.new_full((len(self.tokens),), self.tokens.shape[1])

    def after(self, tokens: Tensor) -> tuple[Tensor, Again]:
        """Logits `b v` behind further tokens `b t`, and the state there."""
        past, editing = self.take(), self.editing
        every = torch.cat((past.tokens, tokens), 1)
        edits = tuple(_reached(editing.edits, every.shape[1]))
        with at_rest(editing.model):
            rows = [self._read(every[i : i + 1], i, edits) for i in range(len(every))]  # each as a run by itself
        return torch.cat(rows), replace(past, tokens=every)

    def _read(self, tokens: Tensor, row: int, edits: tuple[Edit, ...]) -> Tensor:
        """Logits `1 v` behind one row's tokens."""
        editing, stack, here = self.editing, self.editing.stack, slice(row, row + 1)
        memory = None if self.memory is None else self.memory[here]
        call = stack.call(tokens, memory=memory, handed=tuple(end[here] for end in self.handed))
        call = relocated(f"{editing.prefix}{POSITIONS}", stack, call, 1, edits, 0)
        return stack.run(tokens, replace(call, probe=editing.probe(edits, 0)))[:, -1]


# ---------------------------------------------------------------- the edits


def _known(model: Model | EncoderDecoder) -> Probe:
    """Every value of a run over one token, with its axes."""
    probe, one = Probe(), torch.zeros(1, 1, dtype=torch.long, device=next(model.parameters()).device)
    source = one
    if isinstance(model, EncoderDecoder) and model.spec.encoder.reads_sound:
        source = torch.zeros(1, model.spec.encoder.embed.bins, 1, device=one.device)
    with at_rest(model):
        model(*([source, one] if isinstance(model, EncoderDecoder) else [one]), probe=probe)
    return probe


def _bounded(edit: Edit, known: Probe) -> Edit:
    """An edit whose tensor has numbers for so many places acts on these, however long the text becomes.

    Raises InputError for what no text has."""
    if edit.name.rpartition(".")[2] == POSITIONS:
        return edit
    if edit.name not in known.values:
        raise InputError(f"no value named {edit.name!r} in this model; {nearest(edit.name, known.values)}")
    axes = known.axes[edit.name]
    check_letters(edit.where, f"{axes} s" if edit.kind == "cut" else axes, edit.name)
    if "b" in edit.where:
        raise InputError(f"{edit.name}: of several prompts each is written by itself; leave b out")
    letters, where = axes.split(), dict(edit.where)
    for axis, letter in enumerate(letters):
        if letter not in ("t", "s", "w"):
            indices(where.get(letter), known.values[edit.name].shape[axis], edit.name, letter)
        elif letter not in where and isinstance(edit.value, Tensor) and edit.value.ndim == len(letters):
            size = edit.value.shape[axis]
            where |= {letter: range(size)} if size > 1 else {}
    return replace(edit, where=where)


def goes_on(edit: Edit, known: Probe, parts: dict[str, nn.Module]) -> bool:
    """Whether an edit can act token after token: on what is read once before the first, or where what it does at a
    place does not depend on the tokens behind it and everything that it changes is at hand when the token is read."""
    if edit.name.rpartition(".")[2] == POSITIONS:
        return False
    letters = known.axes[edit.name].split()
    if edit.name.startswith("encoder.") or (".cross." in edit.name and "t" not in letters):
        return True
    along = [letter for letter in ("t", "s") if letter in letters]
    if edit.kind in OVER_TEXT or (edit.kind == "cut" and edit.name.endswith(".out")) or not along:
        return not along and "b" not in letters
    places = [edit.where.get(letter) for letter in along]
    if not all(_from_the_front(one, ends=edit.kind == "noise") for one in places):
        return False
    part = parts[edit.name.rpartition(".")[0]]
    all_keys = isinstance(part, Attention) and part.mask.near is None and not part.inside
    return len(along) == 1 or all_keys or isinstance(part, CrossAttention | Score)


def _from_the_front(index: Any, ends: bool) -> bool:
    """Whether places are the same however long the text becomes; ends: and so many as they are now."""
    if index is None:
        return not ends
    if isinstance(index, slice):
        numbers = [one for one in (index.start, index.stop, index.step) if one is not None]
        return all(one >= 0 for one in numbers) and (index.stop is not None or not ends)
    one = single(index)
    return all(place >= 0 for place in ([one] if one is not None else list(index)))


def _reached(edits: tuple[Edit, ...], size: int) -> Iterator[Edit]:
    """The edits of a text of so many tokens: what was counted from its end from its beginning; of a cut the tokens that
    are there."""
    for edit in edits:
        where = dict(edit.where)
        for letter in {"t", "s"} & where.keys():
            if not isinstance(where[letter], slice) and not (letter == "s" and ".cross." in edit.name):
                one = single(where[letter])
                places = [one] if one is not None else [int(place) for place in where[letter]]
                where[letter] = [place + size if place < 0 else place for place in places]
                if edit.kind == "cut":
                    where[letter] = [place for place in where[letter] if place < size]
        if edit.kind != "cut" or all(where.get(letter, True) for letter in "ts"):
            yield replace(edit, where=where)
