"""The decoding loop: read the prompts in chunks, then choose and read one token a row at a time; and beam search."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor, nn

from ..call import at_rest
from ..errors import InputError, SettingError, UnsupportedError
from ..mask import pad_left
from ..model import EncoderDecoder, Model, ModelState
from ..nn.position import LearnedSpec
from ..spec import checked
from .sampling import GenerateSpec, StopStrings, drawn, filtered, penalised

if TYPE_CHECKING:
    from ..data.tokenizer import Tokenizer

Finished = Literal["end", "length", "stop"]


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


@dataclass(frozen=True, slots=True)
class Beam:
    """One hypothesis of beam search.

    ids                the new tokens, without the end token
    log_probabilities  of each of them, and of the end token where `ended`
    log_probability    their sum
    score              log_probability / length^α; the end token counts into the length
    """

    ids: tuple[int, ...]
    log_probabilities: tuple[float, ...]
    log_probability: float
    score: float
    ended: bool


class WithoutText:
    """Stands for the tokenizer of a model that has none: it knows every id, ends at none, shows nothing."""

    end_id = -1

    def __init__(self, vocab: int) -> None:
        self.vocab_size = vocab

    def stream(self) -> WithoutText:
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
) -> Iterator[Event]:
    """Continue each prompt (a text or token ids); with an encoder-decoder, write the target of each source.

    Rows advance together, in order; a finished row costs nothing any more. An empty prompt starts from the end token,
    as a new document does. Closing the iterator early leaves nothing behind. With spec.beams > 1 the best hypothesis
    of each prompt is given, one prompt after the other, once it is found.

    Raises at once, before any token: InputError for prompts that do not fit (an empty list, ids outside the
    vocabulary, more tokens than `longest` allows), UnsupportedError for a model that cannot continue text.
    """
    spec = checked(spec or GenerateSpec())
    if spec.beams == 1 and spec.length_penalty != 1:
        raise SettingError("length_penalty: only beam search uses it; leave it out, or set beams above 1")
    ids = [_ids(prompt, tokenizer, spec.start) for prompt in listed(prompts)]
    check_prompts(model, ids, spec, tokenizer.end_id)
    return (_beamed if spec.beams > 1 else _stepped)(model, tokenizer, ids, spec)


def check_prompts(model: nn.Module, prompts: list[list[int]], spec: GenerateSpec, end_id: int | None) -> None:
    """Raise what `generate` raises, for prompts as token ids."""
    if not isinstance(model, Model | EncoderDecoder):
        raise UnsupportedError(f"a {type(model).__name__} does not write tokens, so it cannot generate")
    stack = model.decoder if isinstance(model, EncoderDecoder) else model
    if stack.head is None:
        raise UnsupportedError("this model has no head: it ends in vectors, so it cannot generate tokens")
    stack.check_streams()
    if isinstance(model, EncoderDecoder) and (end_id is None or end_id < 0):
        raise InputError(
            "an encoder-decoder starts its target with the end token, and without a tokenizer none is known; load the "
            "model from a folder with its tokenizer.json"
        )
    reader = model.encoder.spec if isinstance(model, EncoderDecoder) else model.spec
    for row, prompt in enumerate(prompts):
        if not prompt:
            raise InputError(f"prompt {row} is empty and there is no end token to start from; give at least one token")
        if min(prompt) < 0 or max(prompt) >= reader.vocab:
            wrong = next(token for token in prompt if not 0 <= token < reader.vocab)
            raise InputError(f"prompt {row}: token id {wrong} is outside the vocabulary (0 to {reader.vocab - 1})")
        _check_length(row, prompt, model, spec)


def longest(stack: Model) -> int | None:
    """How many tokens a stack may read and write in all: its context; None where a text may go on, since no position is
    learned and nothing that the mixers keep grows with the text."""
    context = stack.spec.context

    def kept(n: int) -> list[int]:
        mixers = [block.mixer for block in stack.blocks]
        return [one.cost(n, **({"sources": 1} if one.reads_memory else {})).state_bytes for one in mixers]

    learned = isinstance(stack.spec.embed.position, LearnedSpec)
    return context if learned or kept(context) != kept(2 * context) else None


def _check_length(row: int, prompt: list[int], model: Model | EncoderDecoder, spec: GenerateSpec) -> None:
    new, read = spec.max_new_tokens, len(prompt)
    if isinstance(model, EncoderDecoder):
        context = model.encoder.spec.context
        if read > context:
            raise InputError(
                f"prompt {row} has {read} tokens and the encoder's context is {context}; "
                f"shorten it to at most {context}"
            )
        read = 1  # the target begins with the end token
        context = longest(model.decoder)
    else:
        context = longest(model)
    if context is None:
        return
    if read >= context:
        raise InputError(
            f"prompt {row} has {read} tokens and the model's context is {context}, so there is no room for new ones; "
            f"shorten it to at most {context - 1}"
        )
    if read + new > context:
        raise InputError(
            f"prompt {row}: {read} tokens and {new} new ones are {read + new}, beyond the model's context of "
            f"{context}; set max_new_tokens to at most {context - read}, or shorten the prompt"
        )


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
    return (tokenizer.encode(prompt, start).ids if isinstance(prompt, str) else prompt) or [tokenizer.end_id]


# ---------------------------------------------------------------- the loop


class _Row:
    """What one prompt's continuation needs besides the model's state: its text so far and its random numbers."""

    def __init__(self, number: int, tokenizer: Tokenizer, spec: GenerateSpec) -> None:
        self.number, self.left, self.end_id = number, spec.max_new_tokens, tokenizer.end_id
        self.stream, self.stops = tokenizer.stream(), StopStrings(spec.stop)
        self.source = torch.Generator().manual_seed(spec.seed + number)  # on the CPU: the same draw on every device

    def took(self, token: int, probability: float) -> Event:
        """The event of the token that was chosen."""
        if not probability >= 0:
            raise InputError("the model's logits are not numbers (NaN): its weights are broken; load or train it again")
        self.left -= 1
        ended = token == self.end_id
        last = ended or self.left == 0
        text = self.stops.push(("" if ended else self.stream.push(token)) + (self.stream.close() if last else ""))
        if self.stops.found:
            return Event(self.number, token, text, probability, "stop")
        if last:
            return Event(self.number, token, text + self.stops.rest(), probability, "end" if ended else "length")
        return Event(self.number, token, text, probability)


def _stepped(model: nn.Module, tokenizer: Tokenizer, prompts: list[list[int]], spec: GenerateSpec) -> Iterator[Event]:
    """Greedy decoding and sampling, one token a row at a time."""
    rows = [_Row(number, tokenizer, spec) for number in range(len(prompts))]
    logits, state = _read(model, prompts, spec, tokenizer.end_id)
    seen = None
    if spec.repetition_penalty != 1:
        seen = torch.zeros(logits.shape, dtype=torch.bool, device=logits.device)
        for row, prompt in enumerate([] if isinstance(model, EncoderDecoder) else prompts):
            seen[row, [token for token in prompt if token != tokenizer.end_id]] = True  # a start is no repetition
    while True:
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
        logits, state = _step(model, tokens, state)


def _read(
    model: Model | EncoderDecoder, prompts: list[list[int]], spec: GenerateSpec, end_id: int | None
) -> tuple[Tensor, ModelState]:
    """Logits `b v` of the first new token of each prompt, and the state behind the prompts."""
    tokens, pos = (x.to(next(model.parameters()).device) for x in pad_left(prompts))
    if len({len(prompt) for prompt in prompts}) == 1:
        pos = None  # nothing is padded, so attention needs no mask
    new = spec.max_new_tokens - 1  # the last token is never read
    with at_rest(model):
        if isinstance(model, EncoderDecoder):
            state = model.empty(tokens, 1 + new, source_pos=pos)
            tokens, pos = tokens.new_full((len(prompts), 1), end_id), None
        else:
            state = model.empty(len(prompts), tokens.shape[1] + new)
        for start in range(0, tokens.shape[1], spec.chunk):
            part = slice(start, start + spec.chunk)
            logits, state = model.step(tokens[:, part], state, pos=None if pos is None else pos[:, part])
        return logits[:, -1], state


def _step(model: nn.Module, tokens: Tensor, state: ModelState) -> tuple[Tensor, ModelState]:
    """Logits `b v` after one more token `b` in each row, and the state."""
    with at_rest(model):
        logits, state = model.step(tokens[:, None], state)
        return logits[:, -1], state


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
        if spec.temperature == 0:
            tokens = scores.argmax(-1)
        else:
            uniform = torch.stack([torch.rand(scores.shape[1], generator=row.source) for row in rows])
            tokens = drawn(filtered(scores, spec), uniform.to(scores.device))
        chosen = tokens[:, None]
        if seen is not None:
            seen.scatter_(1, chosen, True)
        return tokens, (logits.gather(1, chosen)[:, 0] - logits.logsumexp(1)).exp()


# ---------------------------------------------------------------- beam search


def beam(
    model: nn.Module,
    ids: list[int],
    spec: GenerateSpec,
    end_id: int | None = None,
    vocab: int | None = None,
) -> list[Beam]:
    """The spec.beams best continuations of one prompt (or targets of one source), best first.

    Each round the hypotheses are extended by every token (below `vocab`) and the best `beams` go on; one that takes
    the end token among the best `beams` is complete. The search ends when `beams` are complete or at max_new_tokens,
    where the unfinished count as they are. With one beam this is greedy decoding; with as many beams as there are
    sequences it is exhaustive. score = log p / length^α (Wu et al. 2016 without their constant 5).
    """
    check_prompts(model, [ids], spec, end_id)
    width, done = spec.beams, []
    logits, state = _read(model, [ids], spec, end_id)
    tokens = torch.zeros(1, 0, dtype=torch.long, device=logits.device)
    logs = torch.zeros(1, 0, dtype=_of_sums(logits), device=logits.device)
    for left in range(spec.max_new_tokens - 1, -1, -1):
        parent, token, log = _extended(logits[:, :vocab], logits, logs.sum(1), width)
        tokens = torch.cat((tokens[parent], token[:, None]), 1)
        logs = torch.cat((logs[parent], log[:, None]), 1)
        ended = token == end_id if end_id is not None else torch.zeros_like(token, dtype=torch.bool)
        # An ended hypothesis is complete only where it is among the best `width`, the others are dropped.
        done += [_complete(tokens[i], logs[i], spec, True) for i in ended[:width].nonzero()[:, 0].tolist()]
        live = (~ended).nonzero()[:width, 0]
        tokens, logs, parent = tokens[live], logs[live], parent[live]
        if len(done) >= width or not len(live):
            break
        if left == 0:
            done += [_complete(*pair, spec, False) for pair in zip(tokens, logs, strict=True)]
        else:
            logits, state = _step(model, tokens[:, -1], _forked(state, parent))
    return sorted(done, key=lambda found: -found.score)[:width]


def _extended(scores: Tensor, logits: Tensor, sums: Tensor, width: int) -> tuple[Tensor, Tensor, Tensor]:
    """The best 2·width one-token extensions: (hypothesis extended, token, log-probability of the token).

    Twice the width, since at most one extension of each hypothesis ends: `width` that go on are among them.
    """
    wide = _of_sums(logits)
    logs = scores.to(wide) - logits.to(wide).logsumexp(1, keepdim=True)
    total = (sums[:, None] + logs).flatten()
    best = total.topk(min(2 * width, len(total))).indices
    return best // scores.shape[1], best % scores.shape[1], logs.flatten()[best]


def _of_sums(logits: Tensor) -> torch.dtype:
    """The number format of sums of log-probabilities; Apple's processors have no fp64."""
    return torch.float32 if logits.device.type == "mps" else torch.float64


def _forked(state: ModelState, parent: Tensor) -> ModelState:
    """The state with row i continuing hypothesis parent[i]; most rounds towards the end keep the order."""
    rows = state.next_pos.shape[0]
    same = rows == len(parent) and bool((parent == torch.arange(rows, device=parent.device)).all())
    return state if same else state.reorder(parent)


def _complete(tokens: Tensor, logs: Tensor, spec: GenerateSpec, ended: bool) -> Beam:
    ids, each = tokens.tolist(), logs.tolist()
    total = sum(each)
    return Beam(tuple(ids[:-1] if ended else ids), tuple(each), total, total / len(each) ** spec.length_penalty, ended)


def _beamed(model: nn.Module, tokenizer: Tokenizer, prompts: list[list[int]], spec: GenerateSpec) -> Iterator[Event]:
    """The best hypothesis of each prompt as events."""
    for number, prompt in enumerate(prompts):
        row = _Row(number, tokenizer, spec)
        best = beam(model, prompt, spec, tokenizer.end_id, tokenizer.vocab_size)[0]
        ids = (*best.ids, tokenizer.end_id) if best.ended else best.ids
        for token, log in zip(ids, best.log_probabilities, strict=True):
            yield row.took(token, torch.tensor(log).exp().item())
