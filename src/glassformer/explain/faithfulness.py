"""How faithful an attribution is to the model: what happens to the answer when tokens are taken out in its order.

Comprehensiveness, f(x) − f(x without the first k tokens), is large and sufficiency, f(x) − f(the first k tokens alone),
small for an attribution that found what the answer came from; each is averaged over k = 1, 5, 10, 20 and 50 % of the
tokens (AOPC; DeYoung et al. 2020, ERASER). The same is measured for random orders and for the reversed one: an
attribution that does no better than these says nothing. How a token is taken out (answer.Baseline) can change which of
two attributions wins, so it is named with every number.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import InputError
from .answer import Answer, Baseline
from .explainer import Report, quiet

SHARES = (0.01, 0.05, 0.1, 0.2, 0.5)  # of the tokens, at least one
POINTS = 16  # steps of a curve at most


@dataclass(frozen=True)
class Measured:
    """What one order of the tokens came to; f is the number that is explained, in its own unit.

    comprehensiveness, sufficiency   for each of SHARES
    deletion   f after the first k tokens were taken out, for each of the curve's counts k; insertion: with these alone
    spearman, kendall   rank correlation (τ_b) of the scores with what taking out each token alone does; None where
                        either does not vary
    """

    comprehensiveness: tuple[float, ...]
    sufficiency: tuple[float, ...]
    deletion: tuple[float, ...]
    insertion: tuple[float, ...]
    spearman: float | None
    kendall: float | None

    def area(self, curve: Sequence[float], counts: Sequence[int]) -> float:
        """The area under a curve over the share of the tokens: the mean of f on the way."""
        return float(np.trapezoid(curve, np.array(counts) / counts[-1]))


@dataclass(frozen=True)
class Faithfulness:
    """The measures of an attribution's order, of random ones and of the reversed one.

    places   the tokens that were taken out; counts: how many of them, at each point of a curve
    whole, empty   f of the text, and without any of these tokens
    single   f(x) − f(x without this token), for each of the places
    """

    baseline: Baseline
    places: tuple[int, ...]
    counts: tuple[int, ...]
    whole: float
    empty: float
    single: tuple[float, ...]
    own: Measured
    random: tuple[Measured, ...]
    reverse: Measured

    def table(self) -> list[tuple[str, float | None, float | None, float | None, float | None]]:
        """For each measure its name, that of the attribution's order, mean and deviation of the random ones, and that
        of the reversed one."""
        return [
            (name, one(self.own), *_spread([one(each) for each in self.random]), one(self.reverse))
            for name, one in {
                "comprehensiveness": lambda m: float(np.mean(m.comprehensiveness)),
                "sufficiency": lambda m: float(np.mean(m.sufficiency)),
                "deletion": lambda m: m.area(m.deletion, self.counts),
                "insertion": lambda m: m.area(m.insertion, self.counts),
                "spearman": lambda m: m.spearman,
                "kendall": lambda m: m.kendall,
            }.items()
        ]


def faithfulness(answer: Answer, scores: Tensor, baseline: Baseline = "delete", **how: Any) -> Faithfulness:
    """How faithful scores `s` of the tokens that an answer reads are to it; how, and what is raised: as `compared`."""
    return compared(answer, {"": scores}, baseline, **how)[""]


def compared(
    answer: Answer,
    scores: Mapping[str, Tensor],
    baseline: Baseline = "delete",
    *,
    orders: int = 5,
    seed: int = 0,
    report: Report = quiet,
) -> dict[str, Faithfulness]:
    """The faithfulness of several attributions of one answer by their names, beside the same random orders; each text
    without some of its tokens is run once. orders: so many random ones, from `seed`.

    Raises InputError for a text of fewer than two tokens that can be taken out, and where a baseline does not exist.
    """
    places = answer.removable
    if len(places) < 2:
        raise InputError("faithfulness: fewer than two tokens can be taken out of this text; give a longer one")
    drawn = torch.Generator().manual_seed(seed)
    random = [torch.randperm(len(places), generator=drawn).double() for _ in range(orders)]
    own = {name: one.detach().cpu().double()[places] for name, one in scores.items()}
    orders_of = {name: one.argsort(descending=True, stable=True).tolist() for name, one in own.items()}
    runs, counts, every = (
        _Runs(answer, places),
        _counts(len(places)),
        [one.argsort(descending=True).tolist() for one in random],
    )
    for order in (*every, *orders_of.values(), *(one[::-1] for one in orders_of.values())):
        runs.ask(order, counts)
    for i in range(len(places)):
        runs.want([i])
    runs.make(baseline, report)
    single = np.array([runs.whole - runs([i]) for i in range(len(places))])
    beside = tuple(
        _measured(runs, order, counts, one.numpy(), single) for order, one in zip(every, random, strict=True)
    )
    ends, shown = (runs.whole, runs(range(len(places)))), (tuple(places), tuple(counts))
    return {
        name: Faithfulness(
            baseline,
            *shown,
            *ends,
            tuple(single.tolist()),
            _measured(runs, order, counts, own[name].numpy(), single),
            beside,
            _measured(runs, order[::-1], counts, -own[name].numpy(), single),
        )
        for name, order in orders_of.items()
    }


class _Runs:
    """The answers to texts without some of their tokens, each worked out once."""

    def __init__(self, answer: Answer, places: list[int]) -> None:
        self.answer, self.places = answer, places
        self.asked: dict[frozenset[int], float] = {frozenset(): 0.0}

    def want(self, gone: Sequence[int]) -> None:
        self.asked[frozenset(gone)] = 0.0

    def ask(self, order: list[int], counts: Sequence[int]) -> None:
        for k in {*counts, *_bins(len(order))}:
            self.want(order[:k])
            self.want(order[k:])

    def make(self, baseline: Baseline, report: Report) -> None:
        masks = self.answer.nothing_gone(len(self.asked))
        for row, gone in zip(masks, self.asked, strict=True):
            row[[self.places[i] for i in gone]] = True
        values = self.answer.without(masks, baseline, report).tolist()
        self.asked = dict(zip(self.asked, values, strict=True))

    def __call__(self, gone: Sequence[int]) -> float:
        return self.asked[frozenset(gone)]

    @property
    def whole(self) -> float:
        return self(())


def _measured(runs: _Runs, order: list[int], counts: list[int], scores: np.ndarray, single: np.ndarray) -> Measured:
    bins = _bins(len(order))
    return Measured(
        comprehensiveness=tuple(runs.whole - runs(order[:k]) for k in bins),
        sufficiency=tuple(runs.whole - runs(order[k:]) for k in bins),
        deletion=tuple(runs(order[:k]) for k in counts),
        insertion=tuple(runs(order[k:]) for k in counts),
        spearman=spearman(scores, single),
        kendall=kendall(scores, single),
    )


def _bins(count: int) -> list[int]:
    """How many tokens each of SHARES is."""
    return [max(1, math.ceil(share * count - 1e-9)) for share in SHARES]


def _counts(count: int) -> list[int]:
    """How many tokens are taken out at each point of a curve."""
    return sorted({round(i * count / min(count, POINTS)) for i in range(min(count, POINTS) + 1)})


def _spread(values: list[float | None]) -> tuple[float | None, float | None]:
    """Mean and standard deviation of the numbers that there are."""
    known = [one for one in values if one is not None]
    if not known:
        return None, None
    return float(np.mean(known)), float(np.std(known, ddof=1)) if len(known) > 1 else None


# ---------------------------------------------------------------- rank correlation


def ranks(values: np.ndarray) -> np.ndarray:
    """The rank of each number from 0; equal ones share the mean of theirs."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return (ends - (counts + 1) / 2)[places]


def spearman(one: np.ndarray, other: np.ndarray) -> float | None:
    """Spearman's ρ: the correlation of the ranks; None where either does not vary."""
    a, b = (ranks(values) - (len(values) - 1) / 2 for values in (one, other))
    size = float(np.sqrt((a * a).sum() * (b * b).sum()))
    return float((a * b).sum()) / size if size > 0 else None


def kendall(one: np.ndarray, other: np.ndarray) -> float | None:
    """Kendall's τ_b: pairs in the same order less those in the other, of all that are not tied; None where either does
    not vary."""
    a, b = (np.sign(values[:, None] - values[None]) for values in (one, other))
    size = float(np.sqrt((a * a).sum() * (b * b).sum()))
    return float((a * b).sum()) / size if size > 0 else None
