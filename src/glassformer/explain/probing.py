"""Whether a property of tokens can be read off one neuron, or only off many: a threshold on the best neuron against a
linear probe on all, and a control that tells what a probe reads from what it learns by heart (Hewitt and Liang 2019).

All accuracies are balanced: the mean of those on the tokens that have the property and on those that have not, so that
1/2 is chance however rare it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

RIDGES = (1e-3, 1e-2, 1e-1, 1.0, 10.0)  # of the mean square of a neuron; that which does best on tokens kept aside
DRAWS = 1000  # of a control's labels, at most
ASIDE = 5  # of so many tokens that are learnt from one is kept aside to choose by


@dataclass(frozen=True)
class Threshold:
    """Of each neuron, `f`: the value that parts the tokens best, on which side those with the property lie (1: above,
    −1: below), and the balanced accuracy on the tokens that it was chosen by."""

    at: Tensor
    side: Tensor
    accuracy: Tensor


def balanced(guess: Tensor, has: Tensor) -> Tensor:
    """Balanced accuracy of guesses, bool `n` or `n f`, where `has`, bool `n`, is the truth."""
    has = has if guess.ndim == 1 else has[:, None]
    right = (guess == has).double()
    yes, no = has.double(), (~has).double()
    return ((right * yes).sum(0) / yes.sum(0).clamp(min=1) + (right * no).sum(0) / no.sum(0).clamp(min=1)) / 2


def thresholds(x: Tensor, has: Tensor) -> Threshold:
    """The best threshold of every neuron of x `n f`."""
    values, order = x.sort(0)
    yes = has[order].double()  # n f, in the order of each neuron
    below_yes, below_no = yes.cumsum(0) / yes.sum(0), (1 - yes).cumsum(0) / (1 - yes).sum(0)
    above = (1 - below_yes + below_no) / 2  # balanced accuracy where the property is said of all behind this place
    apart = torch.cat((values[1:] > values[:-1], torch.zeros_like(values[:1], dtype=torch.bool)))
    gain = (above - 0.5).where(apart, 0.0)  # between equal values there is no threshold
    k = gain.abs().argmax(0, keepdim=True)
    at = (values.gather(0, k) + values.gather(0, (k + 1).clamp(max=len(x) - 1))) / 2
    best = gain.gather(0, k)[0]
    return Threshold(at[0], torch.where(best >= 0, 1.0, -1.0).to(x), 0.5 + best.abs())


def told(x: Tensor, by: Threshold, neuron: int) -> Tensor:
    """What the threshold of one neuron says of tokens x `n f`, bool `n`."""
    return (x[:, neuron] > by.at[neuron]) == (by.side[neuron] > 0)


def probe(x: Tensor, has: Tensor) -> tuple[Tensor, Tensor]:
    """w `f` and b of the linear probe x w + b > 0: regression on ±1 in which both kinds of token count alike, with the
    ridge that does best on tokens kept aside."""
    aside = torch.arange(len(x)) % ASIDE == ASIDE - 1
    found = regressions(x[~aside], has[~aside], RIDGES)
    scores = [balanced(x[aside] @ w + b > 0, has[aside]).item() for w, b in found]
    return regressions(x, has, (RIDGES[scores.index(max(scores))],))[0]


def regressions(x: Tensor, has: Tensor, ridges: Sequence[float]) -> list[tuple[Tensor, Tensor]]:
    """w and b for each ridge: the least Σ c_i (x_i w + b − y_i)² + λ ‖w‖², where both kinds of token weigh 1/2 in all
    and λ is the ridge times the mean square, so weighed, of a neuron about its mean."""
    yes, target = has.double(), torch.where(has, 1.0, -1.0).double()
    weight = yes / yes.sum().clamp(min=1) + (1 - yes) / (1 - yes).sum().clamp(min=1)
    weight = weight / weight.sum()
    middle, level = weight @ x, weight @ target
    away = x - middle
    square, with_target = away.mT @ (weight[:, None] * away), away.mT @ (weight * (target - level))
    size, one = square.diagonal().mean().clamp(min=1e-30), torch.eye(x.shape[1]).double()
    found = [torch.linalg.solve(square + ridge * size * one, with_target) for ridge in ridges]
    return [(w, level - middle @ w) for w in found]


@dataclass(frozen=True)
class Told:
    """How well a property is told: the thresholds of all neurons, which of them does best where it was learnt, and
    what that neuron, a linear probe on all, and such a probe with labels that say nothing reach where it was not; None:
    no such labels part both the tokens that are held and the others."""

    by: Threshold
    best: int
    neuron: float
    whole: float
    control: float | None


def tell(x: Tensor, has: Tensor, held: Tensor, ids: Tensor, seed: int) -> Told:
    """Learnt on the tokens of x `n f` that are not held, bool `n`, and measured on those that are. ids: their kinds,
    by which the control's labels are drawn."""
    by = thresholds(x[~held], has[~held])
    best, reached = int(by.accuracy.argmax()), list[float | None]()
    for truth in (has, _parting(ids, has.double().mean().item(), held, seed)):
        if truth is None:
            reached.append(None)
            continue
        w, b = probe(x[~held], truth[~held])
        reached.append(balanced(x[held] @ w + b > 0, truth[held]).item())
    return Told(by, best, balanced(told(x[held], by, best), has[held]).item(), *reached)


def _parting(ids: Tensor, share: float, held: Tensor, seed: int) -> Tensor | None:
    """A control's labels of which both occur where they are learnt and where they are tried, else no accuracy of them
    is about 1/2 by chance; None where a few draws give none."""
    drawn = (by_heart(ids, share, seed + DRAWS * k) for k in range(DRAWS))
    parting = (one for one in drawn if all(0 < int(one[some].sum()) < int(some.sum()) for some in (held, ~held)))
    return next(parting, None)


def by_heart(ids: Tensor, share: float, seed: int) -> Tensor:
    """A control's labels, bool `n`: each kind of token has one drawn at random, this share of them the property. What a
    probe reaches on them it has learnt by heart, for they say nothing."""
    kinds, at = ids.unique(return_inverse=True)
    order = torch.randperm(len(kinds), generator=torch.Generator().manual_seed(seed))
    return (order < max(1, round(share * len(kinds))))[at]
