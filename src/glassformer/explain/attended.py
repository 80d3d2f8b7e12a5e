"""Attributions by what attention did: its weights, what they carry, and how both go on through all layers.

pattern     α_ts of one layer (the mean over its heads, or one head): by itself not an explanation
value norm  ‖Σ_h α_ts v_s W_O‖, what the weights carry (Kobayashi et al. 2020, equation 6)
rollout     the product of ½ (A + I) over the layers (Abnar and Zuidema 2020, equation 1)
flow        the most that can flow from the answer to a token through these, as through pipes (the same, section 3)
ALTI        the product over the layers of c_ts ∝ max(0, ‖y_t‖₁ − ‖y_t − T_t(x_s)‖₁), where y_t = Σ_s T_t(x_s) + b is
            what attention makes of the residual, with the norm's scale frozen (Ferrando et al. 2022, equations 4 and 8)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from ..errors import UnsupportedError
from ..mixers.multihead import SoftmaxAttention
from ..nn.classes import Classes
from ..nn.pool import Pooled
from ..trace import Trace
from .contributions import contributions, left_of, out_norm
from .explainer import Report, cells_of, length_of, quiet
from .flowing import most_flowing
from .mixing import check_layer, readers
from .quantity import exact
from .sheet import check_choice

ROOM_BYTES = 1 << 26  # of vectors that exist at once
INSTEAD = "use gradient, integrated or removal, which exist for every model"


def asking(trace: Trace, place: int | None) -> Tensor:
    """How much each position of the last stack is asked, `t`: the target's place alone; of a text or an image that is
    pooled the places that its head reads. Raises UnsupportedError for an image whose last layer gives no tokens."""
    head, asked = trace.stacks[-1].model.head, torch.zeros(length_of(trace.stacks[-1]), dtype=torch.float64)
    if isinstance(head, Classes):
        if head.axes != "t d":
            raise UnsupportedError(f"the classes of this model are read from no tokens; {INSTEAD}")
        read = head.reads(len(asked))
        return asked.index_fill(0, torch.tensor(read), 1 / len(read))
    if isinstance(head, Pooled):
        pool = head.spec.pool
        return (
            asked + 1 / len(asked)
            if pool == "mean"
            else asked.index_fill(0, torch.tensor(0 if pool == "first" else len(asked) - 1), 1.0)
        )
    asked[place] = 1.0
    return asked


def attention_of(trace: Trace, layer: int | None, source: bool) -> str:
    """The path of the attention of a layer of the last stack (None: of the last that has any); source: of that which
    looks at the source. Raises UnsupportedError where there is none."""
    stack = trace.stacks[-1]
    blocks, known = stack.model.blocks, trace.names()
    if source:
        found = readers(trace)
    else:
        found = {i: part.path for i, part in enumerate(map(_mixer, blocks)) if part is not None}
    found = {i: path for i, path in found.items() if f"{path}.pattern" in known}
    if not found:
        raise UnsupportedError(f"no layer of this model has attention weights; {INSTEAD}")
    if source:
        check_layer(layer, found, len(blocks))
    else:
        check_choice("layer", layer, len(blocks))
    if layer is not None and layer not in found:
        raise UnsupportedError(f"layer {layer} has no attention weights; those that do: {', '.join(map(str, found))}")
    return found[max(found) if layer is None else layer]


def by_pattern(trace: Trace, asked: Tensor, path: str, head: int | None) -> Tensor:
    """Σ_t asked_t α_ts of one attention, `s`; head None: the mean over all."""
    check_choice(
        "head", head, trace.model.get_submodule(path).heads if hasattr(trace.model.get_submodule(path), "heads") else 1
    )
    rows = asked.nonzero()[:, 0].tolist()
    pattern = exact(trace.part(f"{path}.pattern", b=0, t=rows))  # h t s
    pattern = pattern.mean(0) if head is None else pattern[head]
    return asked[rows] @ pattern


def by_value_norm(trace: Trace, asked: Tensor, path: str, head: int | None) -> Tensor:
    """Σ_t asked_t ‖Σ_h α_ts v_s W_O‖ of one attention, `s`; head: of this one alone."""
    part, rows = trace.model.get_submodule(path), asked.nonzero()[:, 0].tolist()
    stack = trace.stacks[-1]
    if head is None:
        read = trace.stacks[0] if path.endswith("cross") and len(trace.stacks) == 2 else stack
        return asked[rows] @ contributions(trace, stack, path, cells_of(trace, read), rows=rows).norms
    if not isinstance(part, SoftmaxAttention):
        raise UnsupportedError("head: this alignment has a single one; leave it out")
    check_choice("head", head, part.heads)
    carried, norm = _carried(trace, path, [head])[:, 0], out_norm(trace, path)
    taken = exact(trace.part(f"{path}.pattern", b=0, h=head, t=rows)) * _left(trace, path)[rows, head, None]  # t s
    if norm is None:
        return asked[rows] @ taken.abs() * carried.norm(dim=-1)
    carried = norm.centred(carried) * (1 if norm.gain is None else exact(norm.gain))
    scale = norm.scale(exact(trace.part(f"{path}.out", b=0))[rows])
    return ((asked[rows] * scale) @ taken.abs()) * carried.norm(dim=-1)


def by_rollout(trace: Trace, asked: Tensor, layer: int | None, report: Report = quiet) -> Tensor:
    """The row `s` of the product of ½ (A + I) over the layers up to `layer` (None: all) that is asked."""
    for path, done, of in _downwards(trace, layer):
        report(done, of)
        asked = _with_residual(trace, path, asked)
    return asked


def by_flow(trace: Trace, asked: Tensor, layer: int | None, report: Report = quiet) -> Tensor:
    """The most that can flow from the asked positions to each token `s` through ½ (A + I) of the layers."""
    n = len(asked)
    pipes = [
        _with_residual(trace, path, torch.eye(n, dtype=torch.float64)).numpy() for path, *_ in _downwards(trace, layer)
    ]
    return torch.from_numpy(most_flowing(asked.numpy(), pipes, report))


def by_alti(trace: Trace, asked: Tensor, layer: int | None, report: Report = quiet) -> Tensor:
    """The row `s` of the product of ALTI's contributions over the layers up to `layer` (None: all) that is asked."""
    for path, done, of in _downwards(trace, layer):
        report(done, of)
        went = torch.zeros_like(asked)
        for rows, shares in _alti(trace, path):
            went += asked[rows] @ shares
        asked = went
    return asked


# ---------------------------------------------------------------- one layer


def _mixer(block: nn.Module) -> SoftmaxAttention | None:
    """The attention of a block; None for another mixer, and for a layer of maps."""
    mixer = getattr(block, "mixer", None)
    return mixer if isinstance(mixer, SoftmaxAttention) else None


def _downwards(trace: Trace, layer: int | None) -> Iterator[tuple[str, int, int]]:
    """The paths of the attention of a stack's layers from `layer` down, each with how many are done, and of how many.
    Raises UnsupportedError where one of them has none: a product over the layers would then leave it out."""
    blocks = trace.stacks[-1].model.blocks
    check_choice("layer", layer, len(blocks))
    last = len(blocks) - 1 if layer is None else layer
    for i in range(last, -1, -1):
        if _mixer(blocks[i]) is None:
            raise UnsupportedError(
                f"layer {i} has no attention weights, and this method needs those of every layer; {INSTEAD}"
            )
    for i in range(last, -1, -1):
        yield blocks[i].mixer.path, last - i, last + 1


def _with_residual(trace: Trace, path: str, asked: Tensor) -> Tensor:
    """asked `… t` times ½ (A + I), A the mean over heads with rows that sum to 1 (beside a sink they do not), `… s`; a
    row that saw nothing is I."""
    taken = torch.zeros_like(asked)
    n, at_once = asked.shape[-1], max(1, trace.rows_at_once(f"{path}.pattern"))
    for start in range(0, n, at_once):
        rows = list(range(start, min(start + at_once, n)))
        pattern = exact(trace.part(f"{path}.pattern", b=0, t=rows)).mean(0)
        total = pattern.sum(-1, keepdim=True)
        own = torch.eye(n, dtype=pattern.dtype)[rows]
        taken += asked[..., rows] @ torch.where(total > 0, pattern / total.clamp(min=1e-300), own)
    return (asked + taken) / 2


def _left(trace: Trace, path: str) -> Tensor:
    """What edits leave of each head, `t h`. Raises UnsupportedError where they do something else behind the weights."""
    left = left_of(trace, path)
    if left is None:
        raise UnsupportedError(f"{path}: what an edit puts behind the weights comes from no token; {INSTEAD}")
    return left


def _carried(trace: Trace, path: str, heads: Sequence[int] | None = None) -> Tensor:
    """v_s W_O of each head, or of these, `s h d`."""
    part = trace.model.get_submodule(path)
    some = list(range(part.heads) if heads is None else heads)
    values = exact(trace.part(f"{path}.v", b=0)).repeat_interleave(part.heads // part.groups, 1)[:, some]
    maps = exact(part.out.weight).unflatten(1, (part.heads, part.width))[:, some]
    return torch.einsum("she,dhe->shd", values, maps)


def _alti(trace: Trace, path: str) -> Iterator[tuple[list[int], Tensor]]:
    """Rows, and ALTI's contributions of each token to them, `t s`; each row sums to 1."""
    block = trace.model.get_submodule(path.rpartition(".")[0])
    post = block.mixer_norm if block.spec.wiring == "post" else None
    carried, out = _carried(trace, path), exact(trace.part(f"{path}.out", b=0))
    x = exact(trace.part(f"{block.path}.resid_in", b=0)) * (1.0 if block.spec.residual else 0.0)
    n, heads, left = len(x), carried.shape[1], _left(trace, path)
    given = out if block.mixer_out_norm is None else exact(trace.part(f"{block.mixer_out_norm.path}.out", b=0))
    at_once = max(1, min(ROOM_BYTES // (8 * n * x.shape[1]), trace.rows_at_once(f"{path}.pattern")))
    for start in range(0, n, at_once):
        rows = list(range(start, min(start + at_once, n)))
        pattern = exact(trace.part(f"{path}.pattern", b=0, t=rows)) * left[rows].mT[..., None]
        parts = (pattern.permute(1, 2, 0).reshape(len(rows), n, heads)[..., None] * carried).sum(2)
        if block.mixer_out_norm is not None:
            parts = block.mixer_out_norm.share(parts, out[rows, None])
        parts[torch.arange(len(rows)), rows] += x[rows]
        whole = x[rows] + given[rows]
        if post is not None:
            parts = post.share(parts, whole[:, None])
            whole = post.share(whole, whole) + (0 if post.bias is None else exact(post.bias))
        near = (whole.abs().sum(-1, keepdim=True) - (whole[:, None] - parts).abs().sum(-1)).clamp(min=0)
        total, own = near.sum(-1, keepdim=True), torch.eye(n, dtype=near.dtype)[rows]
        yield rows, torch.where(total > 0, near / total.clamp(min=1e-300), own)
