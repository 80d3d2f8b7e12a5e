"""What a mixer's output is made of: for each token what each other token hands to it, as vectors that add up.

Where a layer sums up values with weights of its own, the output is linear in the values once the weights are fixed:

    out_t = Σ_s Σ_h α_hts v_hs W_O^h + b        so that source s hands over  Σ_h α_hts v_hs W_O^h

exactly, for attention, linear attention and its kin, and state spaces, with the scale of a norm and the gates on the
way frozen at what they were in this run. Any other layer is held still as in the ledger (`frozen`): with its gates and
the slopes of its nonlinearities as they were it is linear, J_ts x_s is what source s hands over, and the rest are
biases.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from ..data.display import Cell
from ..errors import UnsupportedError
from ..mixers.alignment import Score
from ..mixers.attention import CrossAttention
from ..mixers.cuts import mixed
from ..mixers.fixed import Bag, Fourier
from ..mixers.mamba import Mamba
from ..mixers.mamba2 import Mamba2
from ..mixers.matrix import MatrixMixer
from ..mixers.multihead import SoftmaxAttention
from ..rerun import Stack
from ..trace import Trace
from .acting import acting_in
from .explainer import Report, length_of, quiet
from .frozen import GATING, Frozen, FrozenProbe, written_out
from .mixing import widened
from .quantity import exact
from .sheet import read_by
from .walk import of_row

ROOM_BYTES = 1 << 26  # of vectors that exist at once
COPIES, KEPT = 64, 54  # of the text through a layer together; numbers that are kept for each of a copy (measured, LSTM)

# The rows that are asked for, and what reaches each of them from each source in each head, `t s k f`, to what the layer
# makes of it, `t s d`.
Finish = Callable[[list[int], Tensor], Tensor]


@dataclass(frozen=True)
class Contributions:
    """What each group of source tokens hands to each position `t` that was asked for, and what that comes to.

    norms   `t g`, the length of what group g hands to position t
    total   `t d`, the sum of all parts, with the biases
    given   `t d`, what the mixer gave
    biases  `t d`, what comes from no token
    way     "weights": by the layer's own weights; "slopes": with gates and the slopes of nonlinearities held still
    """

    norms: Tensor
    total: Tensor
    given: Tensor
    biases: Tensor
    way: str

    @property
    def error(self) -> float:
        """How far the sum of the parts is from what the mixer gave, relative to it: the largest over the positions."""
        apart, size = (self.total - self.given).norm(dim=-1), self.given.norm(dim=-1)
        return (apart / size.clamp(min=torch.finfo(size.dtype).tiny)).max().item()


def contributions(
    trace: Trace,
    stack: Stack,
    path: str,
    groups: Sequence[Cell],
    report: Report = quiet,
    rows: Sequence[int] | None = None,
) -> Contributions:
    """What the mixer at `path` of a stack, or what it looks at a source with, writes into each position. groups: of the
    source, those of a text or of the pair's source; rows: the positions of the stack that are written, None for all."""
    part = trace.model.get_submodule(path)
    rows = list(range(length_of(stack)) if rows is None else rows)
    if isinstance(part, SoftmaxAttention):
        if left_of(trace, path) is not None:
            return _of_attention(trace, path, groups, rows, report)
        if isinstance(part, CrossAttention):
            raise UnsupportedError(f"{path}: what an edit puts behind the weights comes from no token; leave it out")
    if isinstance(part, Score):
        return _of_context(trace, path, groups, rows)
    ways: dict[type, Callable[..., tuple[str, Tensor, Finish, Tensor | None]]] = {
        MatrixMixer: _of_matrix, Mamba: _of_mamba, Mamba2: _of_mamba2, Fourier: _of_fixed, Bag: _of_fixed,
    }  # fmt: skip
    way = next((found for kind, found in ways.items() if isinstance(part, kind)), None)
    edited = any(edit.name.startswith(f"{path}.") for edit in trace.acting)  # perhaps behind the weights
    if way is not None and not edited:
        return _of_weights(trace, path, groups, way(trace, path), rows, report)
    return _of_held(trace, stack, path, groups, rows, report)


def out_norm(trace: Trace, path: str) -> Any:
    """The norm that acts on what a mixer gives before it is added; None: none does."""
    at, _, which = path.rpartition(".")
    return getattr(trace.model.get_submodule(at), f"{which}_out_norm", None)


def _ended(
    trace: Trace, path: str, rows: list[int], norms: Tensor, total: Tensor, bias: Tensor | None, way: str
) -> Contributions:
    """With the biases (`d`, or `t d` of all positions), and what the mixer gave beside it, for parts before a norm that
    may follow."""
    given = exact(trace.part(f"{path}.out", b=0))[rows]
    biases = torch.zeros_like(given)
    if bias is not None:
        biases = exact(bias).expand_as(given) if bias.ndim == 1 else exact(bias)[rows]
    norm = out_norm(trace, path)
    if norm is not None:
        whole, given = given, exact(trace.part(f"{norm.path}.out", b=0, t=rows))
        biases = norm.share(biases, whole) + (0 if norm.bias is None else exact(norm.bias))
    return Contributions(norms.double(), total.double() + biases, given, biases, way)


# ---------------------------------------------------------------- softmax attention


def _of_attention(trace: Trace, path: str, groups: Sequence[Cell], rows: list[int], report: Report) -> Contributions:
    """By Gram matrices of the heads' vectors, so that no vector of a pair of tokens is ever written down. Those of a
    group of many tokens would be larger than a quarter of the limit, or slower than its vectors, which are made."""
    part, norm = trace.model.get_submodule(path), out_norm(trace, path)
    values = exact(trace.part(f"{path}.v", b=0)).repeat_interleave(part.heads // part.groups, 1)  # s h e
    weight = exact(part.out.weight).unflatten(1, (part.heads, part.width)).permute(1, 2, 0)  # h e d
    scale = None
    if norm is not None:
        weight = norm.centred(weight) * (1 if norm.gain is None else exact(norm.gain))
        scale = norm.scale(exact(trace.part(f"{path}.out", b=0)))  # t
    left = left_of(trace, path)
    side = min(weight.shape[-1], trace.limit_bytes // (4 * 8 * len(values) * part.heads))  # of one, at most
    grams = [_gram(values[list(group.tokens)], weight, side) for group in groups]
    found, at_once = [], max(1, trace.rows_at_once(f"{path}.pattern"))
    for start in range(0, len(rows), at_once):
        report(start, len(rows))
        some = torch.tensor(rows[start : start + at_once])
        pattern = exact(trace.part(f"{path}.pattern", b=0, t=some.tolist())).permute(1, 2, 0)  # t s h
        pattern = pattern * left[some, None]
        pattern = pattern if scale is None else pattern * scale[some, None, None]
        norms = [
            _handed(pattern[:, own], values[own], weight).square().sum(1)
            if gram is None
            else ((weights := pattern[:, own].flatten(1)) @ gram * weights).sum(1)
            for own, gram in zip((list(group.tokens) for group in groups), grams, strict=True)
        ]
        norms = torch.stack(norms, 1).clamp(min=0).sqrt()
        found.append((norms, _handed(pattern, values, weight)))
    norms, total = (torch.cat(parts) for parts in zip(*found, strict=True))
    return _ended(trace, path, rows, norms, total, part.out.bias, "weights")


def left_of(trace: Trace, path: str) -> Tensor | None:
    """`t h`: how much edits leave of what each head gave at each position, as where one is switched off. None: an edit
    behind the weights does something else than to leave a share of whole vectors."""
    left = torch.ones([size for letter, size in trace.sizes(f"{path}.z") if letter in "th"], dtype=torch.float64)
    for edit in trace.acting:
        if edit.name not in (f"{path}.z", f"{path}.head_out", f"{path}.out"):
            continue
        if edit.kind not in ("zero", "scale") or edit.name == f"{path}.out":  # which has the bias in it
            return None
        whole = torch.ones([size for _, size in trace.sizes(edit.name)], dtype=torch.float64)
        share = edit.apply(whole, trace.axes(edit.name))[0]  # t h e or t h d
        if (share != share[..., :1]).any():
            return None
        left = left * share[..., 0]
    return left


def _gram(values: Tensor, weight: Tensor, side: int) -> Tensor | None:
    """The products of all v W of some tokens' values `s h e` with each other, `s·h s·h`; None beyond such a side."""
    if len(values) * len(weight) > side:
        return None
    vectors = torch.einsum("she,hed->shd", values, weight).flatten(0, 1)
    return vectors @ vectors.mT


def _handed(pattern: Tensor, values: Tensor, weight: Tensor) -> Tensor:
    """What some tokens hand over together, `t d`."""
    return torch.einsum("the,hed->td", torch.einsum("tsh,she->the", pattern, values), weight)


def _of_context(trace: Trace, path: str, groups: Sequence[Cell], rows: list[int]) -> Contributions:
    """What each source token hands to the context vector c_t = Σ_s α_ts h_s of an aligned decoder."""
    memory, given = exact(trace.stacks[-1].call.memory[0]), exact(trace.part(f"{path}.context", b=0, t=rows))
    pattern = exact(trace.part(f"{path}.pattern", b=0, t=rows)).sum(0)  # it has one head
    parts = [pattern[:, list(group.tokens)] @ memory[list(group.tokens)] for group in groups]
    norms = torch.stack([part.norm(dim=1) for part in parts], 1)
    return Contributions(norms, pattern @ memory, given, torch.zeros_like(given), "weights")


# ---------------------------------------------------------------- other layers with weights of their own


def _of_weights(
    trace: Trace,
    path: str,
    groups: Sequence[Cell],
    made: tuple[str, Tensor, Finish, Tensor | None],
    rows: list[int],
    report: Report,
) -> Contributions:
    """Vector by vector, for as many rows at once as there is room: gates differ from row to row."""
    name, values, finish, bias = made
    norm, width = out_norm(trace, path), trace.model.get_submodule(path.rpartition(".")[0]).width
    owner = torch.zeros(len(values), dtype=torch.long)
    for i, group in enumerate(groups):
        owner[list(group.tokens)] = i
    whole = exact(trace.part(f"{path}.out", b=0))
    at_once = max(1, ROOM_BYTES // (8 * len(values) * max(values[0].numel(), width)))
    at_once = min(at_once, max(1, trace.rows_at_once(name)))
    lengths, totals = [], []
    for start in range(0, len(rows), at_once):
        report(start, len(rows))
        some = rows[start : start + at_once]
        taken = exact(trace.part(name, b=0, t=some))
        taken = taken[None] if taken.ndim == 2 else taken  # k t s
        vectors = finish(some, taken.permute(1, 2, 0)[..., None] * values)
        vectors = vectors if norm is None else norm.share(vectors, whole[some, None])
        together = vectors.new_zeros(len(some), len(groups), width).index_add_(1, owner, vectors)
        lengths.append(together.norm(dim=-1))
        totals.append(vectors.sum(1))
    return _ended(trace, path, rows, torch.cat(lengths), torch.cat(totals), bias, "weights")


def _of_matrix(trace: Trace, path: str) -> tuple[str, Tensor, Finish, Tensor | None]:
    """Linear attention and its kin: norm and gate frozen."""
    part = trace.model.get_submodule(path)
    z, norm = exact(trace.part(f"{path}.z", b=0)), part.norm  # t h f
    factor = torch.ones_like(z)
    if norm is not None:
        factor = norm.scale(z)[..., None] * (1 if norm.gain is None else exact(norm.gain))
        factor = factor.expand_as(z)
    gate = exact(trace.part(f"{path}.gate", b=0)) if part.gate is not None else torch.ones_like(z)
    out = exact(part.out.weight)

    def finish(rows: list[int], parts: Tensor) -> Tensor:
        parts = parts if norm is None else norm.centred(parts)
        return (parts * (factor * gate)[rows, None]).flatten(2) @ out.mT

    bias = part.out.bias
    if norm is not None and norm.bias is not None:
        bias = (exact(norm.bias) * gate).flatten(1) @ out.mT + (0 if bias is None else exact(bias))
    return f"{path}.weights", exact(trace.part(f"{path}.v", b=0)), finish, bias


def _with_skip(parts: Tensor, rows: list[int], past: Tensor) -> Tensor:
    """Parts `t s k f` with what a token hands to itself past the state, `s k f`."""
    parts = parts.clone()
    parts[torch.arange(len(rows)), rows] += past[rows]
    return parts


def _of_mamba(trace: Trace, path: str) -> tuple[str, Tensor, Finish, Tensor | None]:
    """A selective scan: each channel has weights of its own; its gate frozen."""
    part = trace.model.get_submodule(path)
    values = exact(trace.part(f"{path}.x", b=0))[..., None]  # s f 1
    gate, out = exact(trace.part(f"{path}.gate", b=0)), exact(part.out.weight)

    def finish(rows: list[int], parts: Tensor) -> Tensor:
        parts = _with_skip(parts, rows, exact(part.skip)[:, None] * values)
        return (parts[..., 0] * gate[rows, None]) @ out.mT

    return f"{path}.weights", values, finish, part.out.bias


def _of_mamba2(trace: Trace, path: str) -> tuple[str, Tensor, Finish, Tensor | None]:
    """A scan with one decay per head; its gate and the scale of its norm frozen."""
    part, spec = trace.model.get_submodule(path), trace.model.get_submodule(path).spec
    values = exact(trace.part(f"{path}.x", b=0))  # s h e
    gate, out = exact(trace.part(f"{path}.gate", b=0)), exact(part.out.weight)  # t f, d f
    y = exact(trace.part(f"{path}.y", b=0)).flatten(1)
    groups = (y if spec.norm_first else y * gate).unflatten(-1, (spec.groups, -1))
    scale = (groups.square().mean(-1, keepdim=True) + spec.eps).rsqrt().expand_as(groups).flatten(1)
    factor = gate * scale * exact(part.gain)

    def finish(rows: list[int], parts: Tensor) -> Tensor:
        parts = _with_skip(parts, rows, exact(part.skip)[:, None] * values)
        return (parts.flatten(2) * factor[rows, None]) @ out.mT

    return f"{path}.weights", values, finish, part.out.bias


def _of_fixed(trace: Trace, path: str) -> tuple[str, Tensor, Finish, Tensor | None]:
    """Weights that act on vectors themselves: a Fourier transform's cosines and sines, the mean of a bag."""
    known = f"{path}.values" in trace.names()
    values = exact(trace.part(f"{path}.values", b=0) if known else trace.part(read_by(trace, path), b=0)[:, None])
    return f"{path}.weights", values, lambda rows, parts: parts.sum(2), None


# ---------------------------------------------------------------- any other layer


# What a layer gives for copies of what it read, and the leaves of all that is added there by itself.
Held = Callable[[Tensor], tuple[Tensor, list[Tensor]]]


def _held(trace: Trace, stack: Stack, path: str) -> Held:
    """One mixer of the run, with its edits, held still (`frozen`), over copies of what it read, in fp64."""
    mixer, call = deepcopy(trace.model.get_submodule(path)).double(), of_row(stack.call, 0)
    given = [one for one in (call.memory, *call.handed) if one is not None]

    def forward(x: Tensor) -> tuple[Tensor, list[Tensor]]:
        probe = FrozenProbe(acting_in(trace, 0), record=written_out(mixer))
        leaves = [exact(one).requires_grad_() for one in given]
        memory, handed = (None, leaves) if call.memory is None else (leaves[0], leaves[1:])
        with Frozen([mixer]) as mode:
            mode.gating = isinstance(mixer, GATING)
            of_all = replace(call, probe=probe, shared={}, memory=memory, handed=tuple(handed))
            y, _ = mixed(mixer, x, widened(of_all, len(x)))
        return y, [*leaves, *mode.constants.values(), *mode.offsets, *probe.constants.values()]

    return forward


def _of_held(
    trace: Trace, stack: Stack, path: str, groups: Sequence[Cell], rows: list[int], report: Report
) -> Contributions:
    """J x for each source, forward through the layer held still: as many runs of it as there are groups. Of a layer
    that looks only so far, sources whose outputs cannot meet go through together."""
    forward, norm = _held(trace, stack, path), out_norm(trace, path)
    mixer, n = trace.model.get_submodule(path), length_of(stack)
    one = mixer.cost(n, 4, *([length_of(trace.stacks[0])] if mixer.reads_memory else []))
    before = one.reach if one.reach is not None and one.sees is None else n
    period = before + (0 if mixer.causal else before) + 1
    packed = period < len(groups)
    together = [list(range(i, n, period)) for i in range(period)] if packed else [list(one.tokens) for one in groups]
    x, whole = exact(trace[read_by(trace, path)][:1]), exact(trace.part(f"{path}.out", b=0))
    found, total = [], torch.zeros_like(whole)
    copies = max(1, min(COPIES, 2 * ROOM_BYTES // (KEPT * 8 * max(x.numel(), whole.numel()))))
    for start in range(0, len(together), copies):
        report(start, len(together))
        some = together[start : start + copies]
        moved = x.new_zeros(len(some), *x.shape[1:])
        for row, places in zip(moved, some, strict=True):
            row[places] = x[0, places]
        vectors = _pushed(forward, x.repeat(len(some), 1, 1), moved)  # k t d
        vectors = vectors if norm is None else norm.share(vectors, whole)
        total += vectors.sum(0)
        found.append(vectors if packed else vectors[:, rows].norm(dim=-1))
    norms = torch.cat(found)
    if packed:
        norms = torch.stack([_lengths(norms, group, before, mixer.causal)[rows] for group in groups])
    return _ended(trace, path, rows, norms.mT, total[rows], _pushed(forward, x, None)[0], "slopes")


def _lengths(vectors: Tensor, group: Cell, reach: int, causal: bool) -> Tensor:
    """`t`, the length of what one group hands over, found again among vectors `k t d` of sources k, k + period, …"""
    own = torch.zeros_like(vectors[0])
    for s in group.tokens:
        near = slice(s if causal else max(0, s - reach), s + reach + 1)
        own[near] += vectors[s % len(vectors), near]
    return own.norm(dim=1)


class _Written(TorchFunctionMode):
    """Attention by matrix products, in this thread alone: sdpa_kernel would change it for every thread of a server."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function is not F.scaled_dot_product_attention:
            return function(*args, **kwargs)
        mask = kwargs.get("attn_mask")
        if mask is not None and mask.dtype == torch.bool:  # which this function would add as 0 and 1
            kwargs["attn_mask"] = torch.zeros_like(mask, dtype=args[0].dtype).masked_fill_(~mask, -torch.inf)
        return torch._scaled_dot_product_attention_math(*args, **kwargs)[0]


def _pushed(forward: Held, x: Tensor, moved: Tensor | None) -> Tensor:
    """J(x) · moved, or with None what is added by itself: as the derivative of uᵀJ by u, since PyTorch's own forward
    mode takes seconds to load, with warnings."""
    # Fused attention and oneDNN's recurrences, which fp64 avoids, cannot be differentiated twice.
    with torch.enable_grad(), _Written():
        x = x.requires_grad_()
        y, added = forward(x)
        u = torch.zeros_like(y, requires_grad=True)
        wanted = [x] if moved is not None else added
        if not wanted:
            return torch.zeros_like(y).detach()
        backs = torch.autograd.grad(y, wanted, u, create_graph=True, allow_unused=True)
        given = [moved] if moved is not None else [one.detach() for one in added]
        pairs = [(back, one) for back, one in zip(backs, given, strict=True) if back is not None and back.requires_grad]
        if not pairs:
            return torch.zeros_like(y).detach()
        return torch.autograd.grad([back for back, _ in pairs], u, [one for _, one in pairs])[0].detach()
