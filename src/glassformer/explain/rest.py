"""What the sheet of every mixer shows beside it: the rest of its block, the token's way so far, what is predicted."""

from __future__ import annotations

import math
from collections.abc import Callable

import msgspec
import torch
from torch import Tensor

from ..data.display import Cell, alone
from ..errors import InputError, not_finite
from ..nn.channel import ExpertsSpec, hidden_width
from ..nn.head import Head
from ..trace import Trace
from .explainer import Report, quiet
from .quantity import exact, quantity


class Next(msgspec.Struct, frozen=True):
    """One candidate of the distribution at the token; special: the end of the document.

    text: exactly what it would add (bytes that are no whole character as ⟨EB⟩); label: the same with every blank
    visible, so that ␠고 begins a new word and 고 does not.
    """

    token: int
    label: str
    text: str
    special: bool
    logit: float
    probability: float


def one_way(trace: Trace) -> bool:
    """Whether no token but those of a prefix sees a later one, so that what a token predicts is the next."""
    return all(getattr(block.mixer, "mask", block.mixer).causal for block in trace.stacks[-1].model.blocks)


def check_finite(trace: Trace, t: int) -> None:
    """Raise InputError where there is no token at t, or no number: NaN and infinity would be drawn as nonsense."""
    stack = trace.stacks[-1]
    if stack.call.pos[0, t] < 0:
        raise InputError(f"place {t} is padding, so there is nothing to show; choose a place that holds a token")
    check_run(trace)


def check_run(trace: Trace) -> None:
    """Raise InputError where what entered a block is not finite at a token: whatever is said of such a run would be
    nonsense."""
    for stack in trace.stacks:
        empty = stack.call.pos < 0
        for i, x in sorted(stack.kept.items()):
            finite = torch.isfinite(x)
            if x.ndim == 3 and x.shape[1] == empty.shape[1]:  # tokens, of which some may be padding
                finite = finite | empty[..., None]
            if not finite.all():
                raise InputError(not_finite(f"from block {max(i - 1, 0)} on", trace.edits))


def rest_of_block(trace: Trace, path: str, t: int, head: int) -> dict:
    """The stages after the weighted sum, in the order in which the model computes them; and the FFN's widths."""
    at = path.rpartition(".")[0]
    block = trace.model.get_submodule(at)
    wanted = ["resid_in", "mixer.head_out", "mixer.out", "resid_mid", "cross.out", "resid_cross"]
    wanted += [f"{part}_out_norm.out" for part in ("mixer", "cross", "channel")]
    if block.channel is not None:
        wanted += ["channel.hidden", "channel.weights", "channel.out", "resid_out"]
        wanted += ["channel_norm.out"] if block.spec.wiring != "post" else []  # there it is resid_out itself
    steps = [quantity(trace, name, t, head) for name in trace.names() if name in {f"{at}.{one}" for one in wanted}]
    found = {step.name.removeprefix(f"{at}."): step for step in steps}
    hidden, router = found.get("channel.hidden"), found.pop("channel.weights", None)
    spec = block.spec.channel.expert if isinstance(block.spec.channel, ExpertsSpec) else block.spec.channel
    dim = block.width
    return {
        "steps": tuple(found.values()),
        "widths": () if spec is None else (dim, hidden_width(spec, dim), dim),
        "active": None if hidden is None else sum(value > 0 for value in hidden.values) / len(hidden.values),
        "experts": [] if router is None else router.values,
    }


def journey(trace: Trace, t: int) -> list[float]:
    """|x_l - x_0| / |x_0| after each block: how far the token has left its fixed vector; empty where widths change."""
    stack = trace.stacks[-1]
    if len(set(stack.model.spec.widths)) > 1:
        return []
    start = exact(trace.part(f"{stack.prefix}embed.out", b=0, t=t))
    names = [f"{stack.prefix}blocks.{i}.resid_out" for i in range(len(stack.model.blocks))]
    after = [exact(trace.part(name, b=0, t=t)) for name in names]
    return [((x - start).norm() / start.norm().clamp(min=1e-30)).item() for x in after]


def surprises(trace: Trace, report: Report = quiet) -> tuple[Tensor, Tensor]:
    """How surprising each token but the first was, −log₂ of the probability that it was given, and the entropy of what
    was expected behind each token, in bits: `t-1` and `t`, of a model that writes."""
    stack = trace.stacks[-1]
    ids, bits, spread = stack.tokens[0].cpu(), [], []
    at_once = max(1, trace.rows_at_once(stack.output))
    for start in range(0, stack.length, at_once):
        report(start, stack.length)
        rows = list(range(start, min(start + at_once, stack.length)))
        logs = exact(trace.part(stack.output, b=0, t=rows)).log_softmax(-1) / math.log(2)
        spread.append(-(logs.exp2() * logs).nan_to_num(0.0).sum(-1))
        known = [row for row in rows if row + 1 < stack.length]
        bits.append(-logs[: len(known)].gather(1, ids[1:][known, None])[:, 0])
    return torch.cat(bits), torch.cat(spread)


def candidates(
    trace: Trace, t: int, cell: Callable[[int], Cell], top: int, temperature: float = 1.0
) -> tuple[Next, ...]:
    """The most probable tokens at position t; empty for a model whose head gives none. temperature: as in `ranked`."""
    stack = trace.stacks[-1]
    if not isinstance(stack.model.head, Head):
        return ()
    logits = exact(trace.part(stack.output, b=0, t=t))
    if not torch.isfinite(logits).all():
        raise InputError(not_finite("after the last block", trace.edits))
    return ranked(logits, cell, top, temperature)


def ranked(logits: Tensor, cell: Callable[[int], Cell], top: int, temperature: float = 1.0) -> tuple[Next, ...]:
    """The most probable tokens by their logits `v`; probability: their softmax, divided by the temperature before."""
    best = (logits / temperature).softmax(-1).topk(min(top, logits.shape[0]))
    cells = [(i, cell(i)) for i in best.indices.tolist()]
    return tuple(
        Next(i, alone(shown), shown.source, not shown.source, logits[i].item(), p)
        for p, (i, shown) in zip(best.values.tolist(), cells, strict=True)
    )
