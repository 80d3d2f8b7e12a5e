"""The decoding loop: read the prompts in chunks, then choose and read one token a row at a time."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import torch
from msgspec import structs
from torch import Tensor, nn

from ..edit import Edit
from ..edit import listed as listed_edits
from ..errors import InputError, SettingError, blamed
from ..model import EncoderDecoder
from ..spec import checked
from .beams import beam
from .edited import Editing
from .reading import check_prompts, read, step
from .sampling import GenerateSpec, StopStrings, allowed, drawn, filtered, penalised

if TYPE_CHECKING:
    from ..data.tokenizer import Tokenizer

Finished = Literal["end", "length", "stop"]
Watch = Callable[[Tensor], None]


@dataclass(frozen=True, slots=True)
class Event:
    """One new token of one prompt.

    row          which prompt, from 0
    token        its id; the end token too is an event, the last of its row
    text         the characters that this token completed, none where it ends within a character or where they may
                 still become a stop string; the texts of a row, joined, are its continuation
    probability  of the token in the model's own distribution, before temperature, filters and penalty
    finished     None while the row goes on; "end": the model ended it, "stop": a stop string, "length": max_new_tokens
    """

    row: int
    token: int
    text: str
    probability: float
    finished: Finished | None = None


class WithoutText:
    """Stands for the tokenizer of a model that has none: it knows every id, ends at none, shows nothing."""

    end_id, begin, ends, empty = -1, (), (), ()

    def __init__(self, vocab: int) -> None:
        self.vocab_size = vocab

    def stream(self, after: Sequence[int] = ()) -> WithoutText:
        """A decoder of one text: itself, since it keeps nothing."""
        return self

    def push(self, id: int) -> str:
        """The text that a token completes: none."""
        return ""

    def close(self) -> str:
        """The text left at the end: none."""
        return ""


def generate(
    model: nn.Module,
    tokenizer: Tokenizer,
    prompts: str | Sequence[str | Sequence[int]],
    spec: GenerateSpec | None = None,
    watch: Watch | None = None,
    edits: Edit | Iterable[Edit] = (),
) -> Iterator[Event]:
    """Continue each prompt (a text or token ids); with an encoder-decoder, write the target of each source.

    Rows advance together, in order; a finished row costs nothing any more. An empty prompt starts from the end token,
    as a new document does. Closing the iterator early leaves nothing behind. With spec.beams > 1 the best hypothesis
    of each prompt is given, one prompt after the other, once it is found. watch: given the logits `b v` of the rows
    that go on, before each choice; beam search gives none. edits: changes of every run, as if all were read again
    before each token; the prompts then are written one after another.

    Raises at once, before any token: InputError for prompts that do not fit (an empty list, ids outside the
    vocabulary, more tokens than `longest` allows), UnsupportedError for a model that cannot continue text.
    """
    spec = checked(spec or GenerateSpec())
    for name, usual in (("length_penalty", 1), ("early_stopping", False)):
        if spec.beams == 1 and getattr(spec, name) != usual:
            raise SettingError(f"{name}: only beam search uses it; leave it out, or set beams above 1")
    begin = spec.begin or (tuple(tokenizer.begin) if isinstance(model, EncoderDecoder) else ())
    spec = structs.replace(spec, begin=begin, ends=spec.ends or tuple(tokenizer.ends))
    ids = [_ids(prompt, tokenizer, spec.start) for prompt in listed(prompts)]
    check_prompts(model, ids, spec)
    edits = listed_edits(edits)
    editing = Editing.of(model, edits) if edits else None
    if spec.beams > 1:
        return _beamed(model, tokenizer, ids, spec, editing)
    if editing is None:
        return _stepped(model, tokenizer, ids, spec, watch)
    each = (_stepped(model, tokenizer, [one], spec, watch, editing, i) for i, one in enumerate(ids))
    return itertools.chain.from_iterable(each)


def listed(prompts: str | Iterable[str | Iterable[int]]) -> list[str | list[int]]:
    """The prompts as texts and lists of ids. Arrays and tensors of whole numbers are taken too.

    Raises InputError where there are none, or where they are anything else.
    """
    if isinstance(prompts, str):
        return [prompts]
    try:
        made = [one if isinstance(one, str) else list(map(operator.index, one)) for one in prompts]
    except TypeError:
        raise InputError(
            "prompts are a list of texts or of lists of token ids; put a single prompt into a list"
        ) from None
    if not made:
        raise InputError("no prompts were given; give at least one text or list of token ids")
    return made


def in_parts(
    write: Callable[[list[str | list[int]]], Iterator[Event]], prompts: list[list[str | list[int]]]
) -> Iterator[Event]:
    """The events of prompts that are read in parts, such as words: the parts of one prompt after another, in its row, a
    blank between their texts. Prompts of one part each run as one batch. write: the events of a batch of parts."""
    if all(len(parts) == 1 for parts in prompts):
        return write([parts[0] for parts in prompts])

    def begun(row: int, part: str | list[int]) -> Iterator[Event]:
        try:
            return write([part])
        except InputError as error:  # there it is the only prompt
            raise InputError(f"{str(part)[:20]}: {str(error).replace('prompt 0', f'prompt {row}', 1)}") from None

    runs = [(row, at, begun(row, part)) for row, parts in enumerate(prompts) for at, part in enumerate(parts)]

    def joined() -> Iterator[Event]:
        for row, at, events in runs:
            blank, last = " " if at else "", at == len(prompts[row]) - 1
            for event in events:
                yield replace(event, row=row, text=blank + event.text, finished=event.finished if last else None)
                blank = ""

    return joined()


def _ids(prompt: str | list[int], tokenizer: Tokenizer, start: bool) -> list[int]:
    return (tokenizer.encode(prompt, start).ids if isinstance(prompt, str) else prompt) or list(tokenizer.empty)


# ---------------------------------------------------------------- the loop


class _Row:
    """What one prompt's continuation needs besides the model's state: its tokens and its text so far, its random
    numbers. written: the tokens that it begins with. editing: what is changed while it is written."""

    def __init__(
        self, number: int, tokenizer: Tokenizer, spec: GenerateSpec, written: list[int], editing: Editing | None
    ) -> None:
        self.edits = editing.edits if editing else ()
        self.number, self.left, self.ends, self.written = number, spec.max_new_tokens, spec.ends, written
        self.stream, self.stops = tokenizer.stream(written), StopStrings(spec.stop)
        self.source = torch.Generator().manual_seed(spec.seed + number)  # on the CPU: the same draw on every device

    def took(self, token: int, probability: float) -> Event:
        """The event of the token that was chosen."""
        if not probability >= 0:
            cause = blamed(self.edits) if self.edits else "its weights are broken; load or train it again"
            raise InputError(f"the model's logits are not numbers (NaN): {cause}")
        self.left -= 1
        self.written.append(token)
        ended = token in self.ends
        last = ended or self.left == 0
        text = self.stops.push(("" if ended else self.stream.push(token)) + (self.stream.close() if last else ""))
        if self.stops.found:
            return Event(self.number, token, text, probability, "stop")
        if last:
            return Event(self.number, token, text + self.stops.rest(), probability, "end" if ended else "length")
        return Event(self.number, token, text, probability)


def _stepped(
    model: nn.Module,
    tokenizer: Tokenizer,
    prompts: list[list[int]],
    spec: GenerateSpec,
    watch: Watch | None,
    editing: Editing | None = None,
    first: int = 0,
) -> Iterator[Event]:
    """Greedy decoding and sampling, one token a row at a time. first: the number of the first prompt."""
    pair = isinstance(model, EncoderDecoder)
    starts = [list(spec.begin if pair else prompt) for prompt in prompts]
    rows = [_Row(i, tokenizer, spec, start, editing) for i, start in enumerate(starts, first)]
    logits, state = read(model, prompts, spec, editing)
    seen = None
    if spec.repetition_penalty != 1:
        seen = torch.zeros(logits.shape, dtype=torch.bool, device=logits.device)
        for row, prompt in enumerate([] if pair else prompts):
            begun = {*tokenizer.empty, *spec.ends}  # a start is no repetition
            seen[row, [token for token in prompt if token not in begun]] = True
    while True:
        if watch is not None:
            watch(logits)
        tokens, probability = _choose(logits, rows, seen, spec, tokenizer.vocab_size)
        live = []
        for i, (token, p) in enumerate(zip(tokens.tolist(), probability.tolist(), strict=True)):
            event = rows[i].took(token, p)
            if event.finished is None:
                live.append(i)
            yield event
        if not live:
            return
        if len(live) < len(rows):  # one copy of the cache, about what a single step reads of it
            kept = torch.tensor(live, device=tokens.device)
            rows, tokens, state = [rows[i] for i in live], tokens[kept], state.reorder(kept)
            seen = None if seen is None else seen[kept]
        logits, state = step(model, tokens, state)


def _choose(
    logits: Tensor, rows: list[_Row], seen: Tensor | None, spec: GenerateSpec, size: int
) -> tuple[Tensor, Tensor]:
    """The chosen tokens `b` and their probabilities `b`; marks the tokens in `seen`. Ids from `size` up are padding
    of the table that no tokenizer knows: never chosen."""
    with torch.inference_mode():
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        scores = logits[:, :size]
        if seen is not None:
            scores = penalised(scores, seen[:, :size], spec.repetition_penalty)
        scores = allowed(scores, [row.written for row in rows], spec.max_new_tokens - rows[0].left, spec)
        if spec.temperature == 0:
            tokens = scores.argmax(-1)
        else:
            uniform = torch.stack([torch.rand(scores.shape[1], generator=row.source) for row in rows])
            tokens = drawn(filtered(scores, spec), uniform.to(scores.device))
        chosen = tokens[:, None]
        if seen is not None:
            seen.scatter_(1, chosen, True)
        return tokens, (logits.gather(1, chosen)[:, 0] - logits.logsumexp(1)).exp()


def _beamed(
    model: nn.Module,
    tokenizer: Tokenizer,
    prompts: list[list[int]],
    spec: GenerateSpec,
    editing: Editing | None = None,
) -> Iterator[Event]:
    """The best hypothesis of each prompt as events."""
    for number, prompt in enumerate(prompts):
        row = _Row(number, tokenizer, spec, [], editing)
        best = beam(model, prompt, spec, vocab=tokenizer.vocab_size, editing=editing)[0]
        ids = (*best.ids, best.end) if best.end is not None else best.ids
        for token, log in zip(ids, best.log_probabilities, strict=True):
            yield row.took(token, torch.tensor(log).exp().item())
