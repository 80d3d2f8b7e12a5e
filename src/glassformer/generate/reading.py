"""What a model reads while it writes: the prompts, and one token a row at a time."""

from __future__ import annotations

from torch import Tensor, nn

from ..call import at_rest
from ..errors import InputError, UnsupportedError
from ..machine import sized, total_bytes
from ..mask import pad_left
from ..model import EncoderDecoder, Model
from ..nn.position import LearnedSpec
from ..state import State
from .edited import Again, Cached, Editing
from .sampling import GenerateSpec


def check_prompts(model: nn.Module, prompts: list[list[int]], spec: GenerateSpec) -> None:
    """Raise what `generate` raises, for prompts as token ids and a spec that names the tokenizer's tokens."""
    if not isinstance(model, Model | EncoderDecoder):
        raise UnsupportedError(f"a {type(model).__name__} does not write tokens, so it cannot generate")
    stack = model.decoder if isinstance(model, EncoderDecoder) else model
    if stack.head is None:
        raise UnsupportedError("this model has no head: it ends in vectors, so it cannot generate tokens")
    stack.check_streams()
    if isinstance(model, EncoderDecoder) and not spec.begin:
        raise InputError(
            "an encoder-decoder starts its target with the end token, and without a tokenizer none is known; load the "
            "model from a folder with its tokenizer.json"
        )
    _check_tokens(spec, stack.spec.vocab)
    reader = model.encoder.spec if isinstance(model, EncoderDecoder) else model.spec
    for row, prompt in enumerate(prompts):
        if not prompt:
            raise InputError(f"prompt {row} is empty and there is no end token to start from; give at least one token")
        if min(prompt) < 0 or max(prompt) >= reader.vocab:
            wrong = next(token for token in prompt if not 0 <= token < reader.vocab)
            raise InputError(f"prompt {row}: token id {wrong} is outside the vocabulary (0 to {reader.vocab - 1})")
        _check_length(row, prompt, model, spec)
    _check_memory(stack, 1 if isinstance(model, EncoderDecoder) else max(map(len, prompts)), len(prompts), spec)


def _check_tokens(spec: GenerateSpec, vocab: int) -> None:
    """Raise InputError where the spec names a token that the model does not have."""
    for name in ("begin", "forced", "ends", "suppressed", "suppressed_first"):
        wrong = next((token for token in getattr(spec, name) if not 0 <= token < vocab), None)
        if wrong is not None:
            raise InputError(f"{name}: token id {wrong} is outside the vocabulary (0 to {vocab - 1})")


def longest(stack: Model) -> int | None:
    """How many tokens a stack may read and write in all: its context; None where a text may go on, since no position is
    learned and nothing that the mixers keep grows with the text."""
    context = stack.spec.context

    learned = isinstance(stack.spec.embed.position, LearnedSpec)
    return context if learned or _kept_bytes(stack, context) != _kept_bytes(stack, 2 * context) else None


def _kept_bytes(stack: Model, n: int, number_bytes: int = 4) -> int:
    """What the mixers of a stack keep of n tokens."""
    mixers = [block.mixer for block in stack.blocks]
    costs = [one.cost(n, number_bytes, **({"sources": 1} if one.reads_memory else {})) for one in mixers]
    return sum(one.state_bytes for one in costs)


def _check_memory(stack: Model, read: int, rows: int, spec: GenerateSpec) -> None:
    """Raise InputError where what is kept of so long texts is more than the machine's memory holds."""
    first = next(stack.parameters())
    rows = spec.beams if spec.beams > 1 else rows  # with beams one prompt after the other
    need_bytes = rows * _kept_bytes(stack, read + spec.max_new_tokens, first.element_size())
    total = total_bytes(first.device)
    if total is not None and need_bytes > total:
        raise InputError(
            f"max_new_tokens: {spec.max_new_tokens} new tokens need {sized(need_bytes)} of memory beside the "
            f"weights, and this machine has {sized(total)}; use fewer"
        )


def _check_length(row: int, prompt: list[int], model: Model | EncoderDecoder, spec: GenerateSpec) -> None:
    new, read = spec.max_new_tokens, len(prompt)
    if isinstance(model, EncoderDecoder):
        context = model.encoder.spec.context
        if read > context:
            raise InputError(
                f"prompt {row} has {read} tokens and the encoder's context is {context}; "
                f"shorten it to at most {context}"
            )
        read = len(spec.begin)
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


def read(
    model: Model | EncoderDecoder, prompts: list[list[int]], spec: GenerateSpec, editing: Editing | None = None
) -> tuple[Tensor, State]:
    """Logits `b v` of the first new token of each prompt, and the state behind the prompts; editing: of one alone."""
    if editing is not None:
        return editing.read(prompts[0], spec)
    tokens, pos = (x.to(next(model.parameters()).device) for x in pad_left(prompts))
    if len({len(prompt) for prompt in prompts}) == 1:
        pos = None  # nothing is padded, so attention needs no mask
    new = spec.max_new_tokens - 1  # the last token is never read
    with at_rest(model):
        if isinstance(model, EncoderDecoder):
            state = model.empty(tokens, len(spec.begin) + new, source_pos=pos)
            tokens, pos = tokens.new_tensor(spec.begin).expand(len(prompts), -1), None
        else:
            state = model.empty(len(prompts), tokens.shape[1] + new)
        for start in range(0, tokens.shape[1], spec.chunk):
            part = slice(start, start + spec.chunk)
            logits, state = model.step(tokens[:, part], state, pos=None if pos is None else pos[:, part])
        return logits[:, -1], state


def step(model: nn.Module, tokens: Tensor, state: State) -> tuple[Tensor, State]:
    """Logits `b v` after one more token `b` in each row, and the state."""
    if isinstance(state, Cached | Again):
        return state.after(tokens[:, None])
    with at_rest(model):
        logits, state = model.step(tokens[:, None], state)
        return logits[:, -1], state
