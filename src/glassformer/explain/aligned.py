"""The alignment of a pair: for each token of the target, which tokens of the source it was written from."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import torch

from ..data.display import Cell
from ..errors import InputError, UnsupportedError, not_finite
from ..trace import Trace
from .influence import influence
from .mixing import check_layer, readers
from .quantity import Quantity, described, exact
from .sheet import check_choice


class Aligned(msgspec.Struct, frozen=True):
    """The alignment of one pair; a view draws it.

    target: the tokens that were written, one for each row of weights; source: those that were read, one for each
    column. weights: each row sums to 1. card: that of the weights, which are the model's own; None: the model has none,
    and the rows are shares of the influence ‖∂y_t/∂x_s‖. layer: the one they are of. head: None where they are the mean
    over all heads.
    """

    model: str
    text: str
    written: str
    target: tuple[str, ...]
    source: tuple[str, ...]
    weights: list[list[float]]
    card: Quantity | None
    layer: int | None
    head: int | None
    heads: int


def alignment(
    trace: Trace,
    source: Sequence[Cell],
    target: Sequence[Cell],
    *,
    text: str = "",
    written: str = "",
    model: str = "",
    layer: int | None = None,
    head: int | None = None,
) -> Aligned:
    """The alignment of a pair's trace. target: a cell for each token; source: cells of one or
    several, whose weights are summed. layer None: the last that looks at
    the source; head None: the mean over all.

    Raises InputError for a target without a token, and a layer or head that does not exist.
    """
    written_from = range(len(target) - 1)  # row t of the decoder writes the token t + 1
    if not written_from:
        raise InputError("the model wrote nothing for this source, so that there is nothing to align")
    found, card, heads = readers(trace), None, 1
    check_layer(layer, found, len(trace.stacks[-1].model.blocks))
    if found:
        layer = max(found) if layer is None else layer
        name = f"{found[layer]}.pattern"
        heads = dict(trace.sizes(name))["h"]
        check_choice("head", head, heads)
        pattern = exact(trace.part(name, b=0, t=slice(0, len(target) - 1)))  # h t s
        weights = pattern.mean(0) if head is None else pattern[head]
        card, head = described(trace, name, torch.zeros(0)), 0 if heads == 1 else head
    else:
        if trace.edits:
            raise UnsupportedError(
                "this model has no weights over its source; what stands for them, how far each token moves it, is of a "
                "run without edits; leave them out"
            )
        tokens = tuple(stack.tokens[:1] for stack in trace.stacks)
        weights = exact(influence(trace.model, tokens, rows=list(written_from), of="source").shares)
    if any(len(cell.tokens) != 1 for cell in source):
        weights = torch.stack([weights[:, list(cell.tokens)].sum(1) for cell in source], 1)
    if not torch.isfinite(weights).all():
        raise InputError(not_finite("in the alignment", trace.edits))
    return Aligned(
        model=model,
        text=text,
        written=written,
        target=tuple(one.text for one in target[1:]),
        source=tuple(one.text for one in source),
        weights=weights.tolist(),
        card=card,
        layer=layer,
        head=head,
        heads=heads,
    )
