"""Influence: which input positions moved which output positions, for any model.

I_ts = ‖∂y_t/∂x_s‖_F, the Frobenius norm of one block of the Jacobian, where x_s is the fixed vector of token s (with
its row of `embed.previous`, which enters one place later), or frame s of a sound's log-mel spectrogram, and y_t the
vector of token t as it leaves the last norm. Exact by one backward pass for each number of y_t; or estimated: with
random signs u, E ‖uᵀ ∂y_t/∂x_s‖² = ‖∂y_t/∂x_s‖_F² (Hutchinson 1989).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import InputError, MemoryLimitError
from ..given import check_tokens
from ..image import ImageModel, check_images
from ..model import EncoderDecoder, Model
from ..place import Index, indices
from ..rerun import check_settled
from .entry import entered, fixed

EXACT_PASSES = 8192  # as many rows of the Jacobian are seconds of work for a small model and a short text
EXACT_WORK = 2e12  # rows times tokens times parameters that are
LEAST_DIRECTIONS = 8  # of fewer the spread says too little about the error
MOST_COPIES = 64  # more rows in one backward pass do not make a row cheaper
LIMIT_BYTES = 1 << 28


@dataclass(frozen=True)
class Influence:
    """The influence of input positions on output positions.

    norms   `t s`, ‖∂y_t/∂x_s‖_F, with a row for each of `rows`, the asked output positions
    errors  `t s`, the standard error of each estimated norm; None where they are exact
    passes  how many rows of the Jacobian were worked out
    """

    norms: Tensor
    errors: Tensor | None
    rows: tuple[int, ...]
    passes: int
    what = "influence"
    name = ""
    head = None

    @property
    def directions(self) -> int:
        """How many rows of the Jacobian were worked out for each output position."""
        return self.passes // max(1, len(self.rows))

    @property
    def shares(self) -> Tensor:
        """`t s`: each norm as a share of its row's sum: where an output takes its context from."""
        return self.norms / self.norms.sum(1, keepdim=True).clamp(min=torch.finfo(self.norms.dtype).tiny)

    @property
    def error(self) -> float:
        """The largest standard error as a share of the largest norm; 0 where the norms are exact."""
        if self.errors is None:
            return 0.0
        return (self.errors.max() / self.norms.max().clamp(min=torch.finfo(self.norms.dtype).tiny)).item()


def influence(
    model: Model | EncoderDecoder | ImageModel,
    tokens: Tensor | tuple[Tensor, Tensor],
    *,
    rows: Index | None = None,
    of: Literal["text", "source"] = "text",
    method: Literal["auto", "exact", "estimate"] = "auto",
    directions: int = 32,
    seed: int = 0,
    limit_bytes: int = LIMIT_BYTES,
    report: Callable[[int, int], None] = lambda done, of: None,
) -> Influence:
    """The influence inside a text `1 t`, or inside the target of a pair (source `1 s`, target `1 t`); of an image
    `1 c y x`, that of each pixel s = y·x, its channels together, on the logit of each class t (on each vector t that
    the model gives, where it has no classes).

    rows         the output positions to explain; None: all
    of           "source": how the tokens of a pair's source moved the target's vectors
    method       "exact": a backward pass for each of t·d numbers; "estimate": for each of t·directions; "auto": exact
                 while that is a matter of seconds
    limit_bytes  bounds what is kept for the way back, which is walked in as many pieces as it takes; the result, `t s`
                 numbers (twice as many where it is estimated), is beside it
    report       is told between two pieces how many rows are done, and of how many; what it raises ends the work

    Raises InputError for what does not fit the model, MemoryLimitError where one copy of the text needs more.
    """
    _check(method, directions, limit_bytes, of)
    check_settled(model)
    start, forward, width, length = _run(model, tokens, of)
    chosen = indices(rows, length, "influence", "t")
    if not chosen:
        raise InputError("rows: none are given; name at least one output position")
    last, writer = max(chosen) + 1, getattr(model, "decoder", model)
    if isinstance(writer, Model) and writer.causal and last < length:  # nothing later moves them
        text = tokens[:, :last] if isinstance(tokens, Tensor) else (tokens[0], tokens[1][:, :last])
        start, forward, *_ = _run(model, text, of)
    quick = method == "auto" and _is_quick(model, start, len(chosen) * width)
    exact = directions >= width or method == "exact" or quick
    if exact:  # unit vectors in place of random directions
        signs = torch.eye(width, dtype=start.dtype, device=start.device)
    else:
        drawn = torch.randint(0, 2, (directions, width), generator=torch.Generator().manual_seed(seed))
        signs = (2 * drawn - 1).to(start)
    sums, errors = squared(start, forward, chosen, signs, limit_bytes, report)
    passes = len(chosen) * len(signs)
    if of == "text" and sums.shape[1] < length and not isinstance(model, ImageModel):
        sums, errors = (F.pad(one, (0, length - one.shape[1])) for one in (sums, errors))
    if exact:
        return Influence(sums.sqrt(), None, tuple(chosen), passes)
    norms = (sums / directions).sqrt()
    errors = errors / directions**0.5 / (2 * norms).clamp(min=torch.finfo(norms.dtype).tiny)
    return Influence(norms, errors, tuple(chosen), passes)


def _is_quick(model: nn.Module, start: Tensor, passes: int) -> bool:
    work = passes * start.shape[1] * sum(p.numel() for p in model.parameters())
    return passes <= EXACT_PASSES and work <= EXACT_WORK


def squared(
    start: Tensor,
    forward: Callable[[Tensor], Tensor],
    chosen: list[int],
    signs: Tensor,
    limit_bytes: int,
    report: Callable[[int, int], None] = lambda done, of: None,
) -> tuple[Tensor, Tensor]:
    """‖uᵀ ∂y_t/∂x_s‖² summed over the directions u of signs `k d`, and its deviation among them, both `t s`."""
    k = len(signs)
    found = torch.zeros(2, len(chosen), start.shape[1], dtype=torch.float64)  # squares leave the range of fp32
    with torch.enable_grad():
        copies = _copies(start, forward, min(len(chosen) * k, MOST_COPIES), limit_bytes)
        together = max(1, copies // k)  # rows at once; with fewer copies than directions, one row in several turns
        copies = min(copies, together * k)
        x = start.expand(copies, -1, -1).contiguous().requires_grad_()
        y = forward(x)
        for rows in torch.arange(len(chosen), device=start.device).split(together):
            places = torch.tensor(chosen, device=start.device)[rows].repeat_interleave(k)
            squares = []
            for part, turned in zip(places.split(copies), signs.repeat(len(rows), 1).split(copies), strict=True):
                report(int(rows[0]), len(chosen))
                asked = torch.zeros_like(y)
                asked[torch.arange(len(part), device=start.device), part] = turned
                (back,) = torch.autograd.grad(y, x, asked, retain_graph=True)
                squares.append(back[: len(part)].double().square().sum(-1))
            each = torch.cat(squares).view(len(rows), k, -1)
            found[:, rows] = torch.stack((each.sum(1), each.std(1, correction=int(k > 1)))).cpu()
    return found[0], found[1]


def _copies(start: Tensor, forward: Callable[[Tensor], Tensor], wanted: int, limit_bytes: int) -> int:
    """How many copies of the text fit at once, from what autograd keeps of one; as much again is made on the way."""
    kept: dict[int, int] = {}

    def pack(value: Tensor) -> Tensor:
        if not (value if value._base is None else value._base).is_leaf:  # parameters are there anyway, turned too
            kept[value.untyped_storage().data_ptr()] = value.untyped_storage().nbytes()
        return value.detach()  # a node that keeps its own output would keep itself

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda value: value):
        forward(start.clone().requires_grad_() * 1)
    one = 2 * sum(kept.values())
    if one > limit_bytes:
        raise MemoryLimitError(
            f"the influence in this text needs {one:,} bytes at once and the limit is {limit_bytes:,}; "
            "give a shorter text, or raise the limit (--memory)"
        )
    return max(1, min(wanted, limit_bytes // max(one, 1)))


# ---------------------------------------------------------------- the run


def _run(model: Any, tokens: Any, of: str) -> tuple[Tensor, Callable[[Tensor], Tensor], int, int]:
    """(the vectors x `1 s d`, the way from copies of them to y `b t e`, the width of y, its length t)."""
    if not isinstance(model, EncoderDecoder) and of == "source":
        raise InputError("of: only an encoder-decoder has a source; use text")
    if isinstance(model, ImageModel):
        return _of_image(model, tokens)
    if not isinstance(model, EncoderDecoder):
        text = _one(model, tokens)
        start = fixed(model, text)
        return start, lambda x: _through(model, x, text), model.spec.widths[-1], text.shape[1]
    if isinstance(tokens, Tensor) or len(tokens) != 2:
        raise InputError("tokens: this is an encoder-decoder; give a pair (source, target)")
    source, target = _one(model.encoder, tokens[0]), _one(model.decoder, tokens[1])
    begin, written = fixed(model.encoder, source), fixed(model.decoder, target)
    dim, length = model.decoder.spec.widths[-1], target.shape[1]
    if of == "source":

        def read(x: Tensor) -> Tensor:
            ends: list[Tensor] = []
            memory = _through(model.encoder, x, source, ends=ends)
            return _through(model.decoder, written.expand(len(x), -1, -1), target, memory=memory, handed=tuple(ends))

        return begin, read, dim, length

    def write(x: Tensor) -> Tensor:
        ends: list[Tensor] = []
        with torch.no_grad():
            memory = _through(model.encoder, begin.expand(len(x), -1, -1), source, ends=ends)
        return _through(model.decoder, x, target, memory=memory, handed=tuple(ends))

    return written, write, dim, length


def _of_image(model: ImageModel, images: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor], int, int]:
    """The same of an image, whose y are the logits, or the vectors that a model without classes gives."""
    check_images(images, model.spec)
    pixels, square = _single(images).flatten(2).mT, (model.spec.size, model.spec.size)

    def forward(x: Tensor) -> Tensor:
        y = model(x.mT.unflatten(2, square))
        if y.ndim == 2:
            return y[..., None] if model.spec.classes else y[:, None]
        return y if y.ndim == 3 else y.flatten(2).mT

    with torch.no_grad():
        length, width = forward(pixels).shape[1:]
    return pixels, forward, width, length


def _one(model: Model, tokens: Any) -> Tensor:
    model.call(tokens)
    if not model.spec.reads_sound:
        check_tokens(tokens, model.spec.vocab)
    return _single(tokens)


def _single(given: Tensor) -> Tensor:
    if len(given) != 1:
        raise InputError(f"influence is that of one text or image; a batch of {len(given)} was given")
    return given


def _through(model: Model, x: Tensor, tokens: Tensor, **between: Any) -> Tensor:
    """From rows of the tables `b s d` to what leaves the last norm; between: what a pair's stacks hand over."""
    call = model.call(tokens, **between)
    x = entered(model, x, call)
    for block in model.blocks:
        x, _ = block(x, call)
    return x if model.norm is None else model.norm(x, call)


def _check(method: str, directions: int, limit_bytes: int, of: str) -> None:
    for name, value, allowed in (("method", method, ("auto", "exact", "estimate")), ("of", of, ("text", "source"))):
        if value not in allowed:
            raise InputError(f"{name}: {value!r} is not allowed; use {', '.join(allowed)}")
    for name, number, least in (("directions", directions, LEAST_DIRECTIONS), ("limit_bytes", limit_bytes, 1)):
        if isinstance(number, bool) or not isinstance(number, int) or number < least:
            raise InputError(f"{name}: {number!r} is not allowed; use a whole number from {least}")
