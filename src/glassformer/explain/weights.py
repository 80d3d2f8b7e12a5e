"""The weights of one layer's sum: attention's pattern, or the effective weights of a layer whose past is a sum.

z_t = Σ_s w_ts v_s: softmax(QKᵀ/√d_k) in attention (Vaswani et al. 2017, equation 1), q_tᵀ (Π decay) k_s in linear
attention and its kin, C_t (Π Ā) B̄_s in state-space models (Dao and Gu 2024, equation 3).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import InputError, UnsupportedError
from ..place import indices
from ..trace import Trace
from .mixing import WEIGHTS, check_layer, readers


@dataclass(frozen=True)
class Weights:
    """The weights' magnitude from each token to the asked ones.

    norms  `t s`, |w_ts| of one head, or its mean over all heads or channels
    name   of the value in the trace, which has every head with its sign; head: which one, None: all
    """

    norms: Tensor
    rows: tuple[int, ...]
    name: str
    head: int | None
    what = "weights"
    errors = None
    error = 0.0
    passes = 0
    directions = 0


def weights(
    trace: Trace, rows: Sequence[int], layer: int | None = None, head: int | None = None, of: str = "text"
) -> Weights:
    """The weights with which the tokens `rows` sum up the text in one layer; layer None: the first that has weights.
    of: "source", those with which a pair's target sums up its source; layer None: the last that looks there.

    Raises InputError for a layer or head that does not exist, UnsupportedError where a layer has no such weights.
    """
    name = _aligning(trace, layer) if of == "source" else _name(trace, layer)
    sizes = dict(trace.sizes(name))
    if head is None:
        return Weights(_mean(trace, name, list(rows)), tuple(rows), name, None)
    if "h" not in sizes:
        raise InputError(f"{name} has channels instead of heads; leave head out (--head) for their mean")
    [head] = indices([head], sizes["h"], name, "h")
    return Weights(trace.part(name, b=0, h=head, t=list(rows)).abs(), tuple(rows), name, head)


def _mean(trace: Trace, name: str, rows: list[int]) -> Tensor:
    """|w| `t s`, its mean over heads or channels, of as many rows at a time as the memory limit allows."""
    at_once, means = max(1, trace.rows_at_once(name)), []
    for i in range(0, max(1, len(rows)), at_once):
        value = trace.part(name, b=0, t=rows[i : i + at_once]).abs()
        means.append(value.mean(0) if value.ndim == 3 else value)
    return torch.cat(means)


def _aligning(trace: Trace, layer: int | None) -> str:
    found = readers(trace)
    if not found:
        raise UnsupportedError(
            "no layer of this model looks at a source with weights; influence exists for every model (--what influence)"
        )
    check_layer(layer, found, len(trace.stacks[-1].model.blocks))
    return f"{found[max(found) if layer is None else layer]}.pattern"


def _name(trace: Trace, layer: int | None) -> str:
    stack = trace.stacks[-1]
    blocks, known = stack.model.blocks, set(trace.names())
    named = {
        i: f"{block.mixer.path}.{short}"
        for i, block in enumerate(blocks)
        for short in WEIGHTS
        if f"{block.mixer.path}.{short}" in known and not block.mixer.reads_memory
    }
    if layer is not None:
        [layer] = indices([layer], len(blocks), "layer", "l")
    if not named or (layer is not None and layer not in named):
        if layer is None and any(block.reads_memory for block in stack.model.spec.blocks):
            raise UnsupportedError(
                "this model's weights lie over its source, and no layer weighs what it wrote; leave of (--of) out, or "
                'give "source"'
            )
        if layer is None:
            raise UnsupportedError(
                "this model has no layer that sums up its past with weights (attention, linear attention, a "
                "state-space model); influence exists for every layer (--what influence)"
            )
        raise UnsupportedError(
            f"layer {layer} does not sum up its past with weights (as attention, linear attention and state-space "
            "models do); influence exists for every layer (--what influence)"
        )
    return named[min(named) if layer is None else layer]
