"""Which number of a run is explained: a logit, a difference of two, a log probability, or a vector inside."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from ..data.display import alone
from ..errors import InputError, nearest, not_finite
from ..nn.head import Head
from ..rerun import Stack
from ..spec import Spec
from ..trace import Trace
from .explainer import length_of
from .quantity import exact
from .sheet import counted

What = Literal["auto", "logit", "difference", "log-probability", "vector"]
RESIDUAL = ("resid_in", "resid_mid", "resid_cross", "resid_out")


class Target(Spec, frozen=True, tag="target"):
    """One number of a run.

    what   logit: of a candidate; difference: of the logits of a candidate and of another, `against`;
           log-probability: its natural logarithm; vector: the length of a vector inside, along itself; auto: logit
           where the model gives logits, else vector
    token  the place in the text, -1 the last; a text's classes have none
    candidate, against  a token's text, or its id as "#17"; of a class its name or number. "": the most probable one;
           as `against` the most probable other one
    vector its name, as "blocks.3.resid_out"; "": what leaves the last block
    """

    what: What = "auto"
    token: int = -1
    candidate: str = ""
    against: str = ""
    vector: str = ""


@dataclass(frozen=True, eq=False)
class Found:
    """A target in its run.

    whole     the number, of the run itself
    rows      the places whose last vectors it depends on
    number    of what the stack ends in, `1 r v` or `1 k`, to the number, apart from `constants`; None: of a vector
    late      whether each row of that end needs only that row
    at, layer where a vector stands: the name within block `layer`, of which `direction` is the unit vector `d`
    says      what it is called, as logit(fish)
    candidate, against  the numbers of the candidates; None: it has none
    """

    stack: Stack
    whole: float
    rows: list[int]
    says: str
    number: Callable[[Tensor], Tensor] | None = None
    late: bool = True
    layer: int | None = None
    at: str = "resid_out"
    direction: Tensor | None = None
    constants: dict[str, float] = field(default_factory=dict)
    candidate: int | None = None
    against: int | None = None


def found(trace: Trace, target: Target, row: int = 0, direction: Tensor | None = None) -> Found:
    """The target in row `row` of this run; direction `d`: along which a vector is measured, None: along itself. Raises
    InputError for a place, candidate, vector or direction that does not exist."""
    stack = trace.stacks[-1]
    head = stack.model.head
    told = head is not None and head.output == "logits"
    if target.vector and target.what not in ("auto", "vector"):
        raise InputError("vector: only what=vector is that of a vector inside; leave vector out, or set what=vector")
    if target.against and target.what != "difference":
        raise InputError("against: only a difference is one to another candidate; leave it out, or set what=difference")
    if target.what == "vector" or (target.what == "auto" and (target.vector or not told)):
        return _vector(trace, target, row, direction)
    if direction is not None:
        raise InputError("direction: only a vector is measured along one; leave it out, or use what=vector")
    if not told:
        raise InputError("what: this model gives no logits; use what=vector")
    late = isinstance(head, Head)
    t = _place(stack, target, row) if late else None
    logits = exact(trace.part(stack.output, b=row, t=t) if late else trace[stack.output][row])
    best = logits.argsort(descending=True).tolist()
    one = _candidate(trace, "candidate", target.candidate, best[0], len(logits))
    other = None
    if target.what == "difference":
        other = _candidate(trace, "against", target.against, next(i for i in best if i != one), len(logits))
        if other == one:
            raise InputError("against: it is the candidate itself; choose another one")
    if not math.isfinite(logits[one].item()):
        raise InputError(not_finite("in the number that is to be explained", trace.edits))
    weights, constants, whole = _weights(logits, target, one, other, getattr(head, "scores", "softmax"))
    rows = [t] if late else list(range(length_of(stack)))

    def number(end: Tensor) -> Tensor:
        own = end[0, rows.index(t) if len(end[0]) == 1 else t] if late else end[0]
        return (own * weights.to(own)).sum()

    said = f"ln p({called(trace, one)})" if target.what == "log-probability" else f"logit({called(trace, one)})"
    said += "" if other is None else f" − logit({called(trace, other)})"
    return Found(stack, whole, rows, said, number, late, constants=constants, candidate=one, against=other)


def _weights(
    logits: Tensor, target: Target, one: int, other: int | None, scores: str
) -> tuple[Tensor, dict[str, float], float]:
    """By what each logit is multiplied, what is added by itself, and what it comes to.

    log p_c = Σ_v (δ_vc - p_v) l_v - H, with the entropy H = -Σ_v p_v log p_v of the distribution: the probabilities are
    held still as an attention pattern is."""
    weights = torch.zeros_like(logits)
    weights[one] = 1
    if other is not None:
        weights[other] = -1
        return weights, {}, (logits[one] - logits[other]).item()
    if target.what != "log-probability":
        return weights, {}, logits[one].item()
    if scores != "softmax":
        raise InputError("what: these scores are not those of one choice among several; use what=logit")
    logs = logits.log_softmax(-1)
    return weights - logs.exp(), {"entropy": (logs.exp() * logs).nan_to_num(0.0).sum().item()}, logs[one].item()


def target_stack(trace: Trace, vector: str = "") -> Stack:
    """The stack in which a target lies: that of its vector, or the last one."""
    return next((one for one in trace.stacks if vector and vector.startswith(one.prefix)), trace.stacks[-1])


def _place(stack: Stack, target: Target, row: int) -> int:
    t = counted("token", target.token, length_of(stack))
    if stack.call.pos[row % len(stack.call.pos), t] < 0:
        raise InputError(f"place {t} is padding, so there is nothing to show; choose a place that holds a token")
    return t


def _candidate(trace: Trace, name: str, text: str, usual: int, count: int) -> int:
    """The number of a candidate that is given by its text, its name or its number."""
    if not text:
        return usual
    labels = trace.stacks[-1].labels("k", 0) if not isinstance(trace.stacks[-1].model.head, Head) else []
    if text in labels:
        return labels.index(text)
    if text[:1] == "#" and text[1:].isdecimal():
        if int(text[1:]) >= count:
            raise InputError(f"{name}: there is no {text}; there are {count} (#0 to #{count - 1})")
        return int(text[1:])
    if labels:
        raise InputError(f"{name}: there is no class {text!r}; {nearest(text, labels)}")
    loaded = getattr(trace, "loaded", None)
    if loaded is None or getattr(loaded, "tokenizer", None) is None:
        raise InputError(f"{name}: without a tokenizer a token is given by its id, as #17")
    for given in (text, f" {text}"):
        ids = loaded.tokenizer.encode(given, start=False).ids
        if len(ids) == 1:
            return ids[0]
    raise InputError(f"{name}: {text!r} is no single token of this model; give the text of one, or its id, as #17")


def called(trace: Trace, one: int) -> str:
    """What a candidate is called: a token's text, a class's name."""
    if not isinstance(trace.stacks[-1].model.head, Head):
        labels = trace.stacks[-1].labels("k", 0)
        return labels[one] if one < len(labels) else f"#{one}"
    loaded = getattr(trace, "loaded", None)
    return alone(loaded.cell(one)) if loaded is not None and getattr(loaded, "tokenizer", None) else f"#{one}"


def _vector(trace: Trace, target: Target, row: int, direction: Tensor | None) -> Found:
    name = target.vector or trace.stacks[-1].entry(len(trace.stacks[-1].model.blocks))
    stack = target_stack(trace, name)
    t, short = _place(stack, target, row), name.rpartition(".")[2]
    layer = stack.block_of(name) if name in trace.names() else None
    given = (f"{block.path}.{one}" for block in stack.model.blocks for one in RESIDUAL)
    known = [one for one in given if one in trace.names()]
    if name not in known and name != stack.entry(0):
        raise InputError(f"vector: {name!r} is no vector of the residual stream; {nearest(name, known)}")
    x = exact(trace.part(name, b=row, t=t))
    if direction is not None:
        if direction.shape != x.shape:
            raise InputError(f"direction: its shape {tuple(direction.shape)} is not that of {name}, {tuple(x.shape)}")
        u = exact(direction)
        return Found(stack, (x @ u).item(), [t], f"⟨{name}, u⟩, t = {t}", layer=layer, at=short, direction=u)
    length = x.norm().item()
    if not math.isfinite(length):
        raise InputError(not_finite(f"in {name}", trace.edits))
    if not length:
        raise InputError(f"vector: {name} is 0 at place {t}, so it has no direction; choose another place or vector")
    return Found(stack, length, [t], f"‖{name}‖, t = {t}", layer=layer, at=short, direction=x / length)
