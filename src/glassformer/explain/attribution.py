"""Attributions: how much of one number of a run each token that was read accounts for.

gradient     ⟨∂f/∂x_s, x_s⟩, to first order what f loses when the token's row of the table becomes 0
integrated   (x_s − x'_s)·∫ ∂f/∂x_s(x' + a(x − x')) da along the straight way from x' (Sundararajan et al. 2017,
             equation 1); the sum over all tokens is f(x) − f(x'), which is measured
patching     ⟨∂f/∂x_s, x_s − x'_s⟩ with x' of another text: to first order what f loses when the token becomes that of
             the other text (attribution patching, Nanda 2022)
decompx      ⟨∂f/∂x_s, x_s⟩ of the network held still, norms, gates and patterns as they were and nonlinearities as the
             slopes of this run: an exact sum over the tokens and the biases (ledger; Modarressi et al. 2023)
removal      f(x) − f(x without the token), by running the model without it: no approximation, and no other token's part
pattern, value-norm, rollout, flow, alti   what attention did (attended)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from ..errors import InputError, UnsupportedError
from .answer import Answer, Baseline
from .attended import INSTEAD, asking, attention_of, by_alti, by_flow, by_pattern, by_rollout, by_value_norm
from .entry import fixed
from .explainer import Report, has_tokens, length_of, quiet
from .ledger import ledger

Method = Literal[
    "gradient", "integrated", "patching", "decompx", "removal", "pattern", "value-norm", "rollout", "flow", "alti"
]  # fmt: skip
Origin = Literal["mean", "zero", "pad"]
OVER_LAYERS = {"rollout": by_rollout, "flow": by_flow, "alti": by_alti}
IN_LAYER = {"pattern": by_pattern, "value-norm": by_value_norm}


@dataclass(frozen=True)
class Attribution:
    """Scores of the tokens `s`, in fp64; signed: whether one below 0 speaks against the answer.

    completeness  |Σ_s score_s − (f(x) − f(x'))| as a share of f(x) − f(x'), where the method promises that sum; of
                  decompx the closure error of all its parts
    """

    scores: Tensor
    signed: bool
    completeness: float | None = None


def attribution(
    answer: Answer,
    method: Method = "gradient",
    *,
    layer: int | None = None,
    head: int | None = None,
    steps: int = 32,
    origin: Origin = "mean",
    baseline: Baseline = "delete",
    second: Tensor | None = None,
    report: Report = quiet,
) -> Attribution:
    """The attribution of an answer to the tokens that it reads.

    layer   of pattern and value-norm (None: the last with attention); rollout, flow and alti go down from it (None:
            from the last)
    head    of pattern and value-norm alone; None: the mean of all weights, the sum of all vectors
    steps, origin    of integrated: places on the way (Gauss-Legendre), and where it begins: the mean row of the table,
                     zeros, or the tokenizer's token for none
    baseline         of removal: what stands in a token's place
    second           of patching: the ids `1 s` of another text with as many tokens

    Raises UnsupportedError where the model has no attention that the method needs, InputError for what does not fit.
    """
    if method in OVER_LAYERS or method in IN_LAYER:
        return Attribution(answer.own(_attended(answer, method, layer, head, report)), signed=False)
    if method == "removal":
        return Attribution(removal(answer, baseline, report), signed=True)
    if method == "decompx":
        return _held_still(answer, report)
    if method == "integrated":
        return integrated(answer, steps, origin, report)
    x = answer.rows
    if method == "patching" and second is None:
        raise InputError("second: it is empty; give another text of as many tokens")
    apart = x if second is None or method == "gradient" else x - answer.rows_of(second)
    return Attribution(_dot(gradients(answer, x), apart)[0], signed=True)


def gradients(answer: Answer, x: Tensor) -> Tensor:
    """∂f/∂x at vectors of the tokens `b s d`, each row by itself."""
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        return torch.autograd.grad(answer.of_rows(x).sum(), x)[0]


def integrated(answer: Answer, steps: int, origin: Origin = "mean", report: Report = quiet) -> Attribution:
    """Integrated gradients with their completeness error, by Gauss-Legendre quadrature with so many places."""
    x, start = answer.rows, _origin(answer, origin)
    nodes, weights = np.polynomial.legendre.leggauss(steps)
    shares, weights = torch.from_numpy((nodes + 1) / 2), torch.from_numpy(weights / 2)
    total, done = torch.zeros(x.shape, dtype=torch.float64), 0
    for some, heavy in zip(shares.split(answer.at_once()), weights.split(answer.at_once()), strict=True):
        report(done, steps)
        on_the_way = start + some.to(x)[:, None, None] * (x - start)
        total += (gradients(answer, on_the_way).cpu().double() * heavy[:, None, None]).sum(0)
        done += len(some)
    scores = _dot(total, (x - start).cpu())[0]
    with torch.no_grad():
        whole, empty = answer.of_rows(torch.cat((x, start.expand_as(x)))).tolist()
    error = abs(scores.sum().item() - (whole - empty)) / max(abs(whole - empty), 1e-30)
    return Attribution(scores, signed=True, completeness=error)


def removal(answer: Answer, baseline: Baseline, report: Report = quiet) -> Tensor:
    """What the answer loses without each token by itself, `s`; 0 for those that cannot be taken out."""
    places = answer.removable
    gone = answer.nothing_gone(1 + len(places))
    gone[torch.arange(1, 1 + len(places)), places] = True
    whole, *without = answer.without(gone, baseline, report)
    scores = torch.zeros(answer.length, dtype=torch.float64)
    if places:
        scores[places] = whole - torch.stack(without)
    return scores


def _held_still(answer: Answer, report: Report) -> Attribution:
    """What came from each token through the network held still; completeness: how far its parts, the biases with them,
    are from f."""
    if not has_tokens(answer.trace):
        raise UnsupportedError(f"decompx: the layers of this model work on no tokens; {INSTEAD}")
    found = ledger(answer.trace, answer.target, "tokens", report=report)
    scores = found.by_token(length_of(answer.stack), "text", answer.stack.prefix)
    return Attribution(answer.own(scores), signed=True, completeness=found.error)


def _attended(answer: Answer, method: Method, layer: int | None, head: int | None, report: Report) -> Tensor:
    asked = asking(answer.trace, answer.place)
    if method in IN_LAYER:
        path = attention_of(answer.trace, layer, answer.of == "source")
        return IN_LAYER[method](answer.trace, asked, path, head)
    if answer.of == "source":
        raise UnsupportedError(
            f"{method} goes through one text's own layers; of a source use pattern, value-norm or gradient"
        )
    if head is not None:
        raise InputError(f"head: {method} takes the mean over all heads; leave it out")
    return OVER_LAYERS[method](answer.trace, asked, layer, report)


def _origin(answer: Answer, origin: Origin) -> Tensor:
    """Where the way of integrated gradients begins, `1 s d` or `1 1 d`."""
    if origin == "pad":
        return fixed(answer.stack.model, torch.full_like(answer.tokens, answer.padding()))
    return torch.zeros_like(answer.rows) if origin == "zero" else answer.mean_row[None, None]


def _dot(one: Tensor, other: Tensor) -> Tensor:
    """⟨one_s, other_s⟩ of vectors `b s d`, `b s` in fp64."""
    return (one.detach().cpu().double() * other.detach().cpu().double()).sum(-1)
