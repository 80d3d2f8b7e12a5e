"""All attributions of one model side by side by how faithful they are, over the sentences of a file, with bootstrap
intervals: python -m glassformer.bench.faithfulness sentences.txt --model smollm2-135m."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np

from ..errors import GlassformerError
from ..explain.answer import Answer, Baseline
from ..explain.attribution import Method, attribution
from ..explain.faithfulness import compared
from ..explain.target import Target, What

MEASURES = ("comprehensiveness", "sufficiency", "deletion", "insertion", "spearman", "kendall")
METHODS: tuple[Method, ...] = tuple(one for one in get_args(Method) if one != "patching")  # needs a second text each
DRAWS = 2000  # of the bootstrap

# Measure -> method, "random" or "reversed gradient" … -> a number for each sentence.
Rows = dict[str, dict[str, list[float]]]


def measured(
    model: Any,
    sentences: Iterable[str],
    methods: Sequence[Method] = METHODS,
    baseline: Baseline = "delete",
    what: What = "log-probability",
    orders: int = 5,
) -> Rows:
    """The measures of each method for the most probable next token of each sentence. model: what `gf.load` returns.

    Sentences of fewer than two tokens that can be taken out are left out, and so is a method that this model has not
    what it takes for."""
    rows: Rows = {measure: {} for measure in MEASURES}
    for sentence in sentences:
        answer = Answer(model.trace(sentence), Target(what))
        scores = {}
        for method in methods:
            try:
                scores[method] = attribution(answer, method, baseline=baseline).scores
            except GlassformerError:
                continue
        if len(answer.removable) < 2 or not scores:
            continue
        for method, found in compared(answer, scores, baseline, orders=orders).items():
            for measure, own, random, _, reverse in found.table():
                for name, value in ((method, own), ("random", random), (f"reversed {method}", reverse)):
                    if value is not None and not (name == "random" and method != next(iter(scores))):
                        rows[measure].setdefault(name, []).append(value)
    return rows


def interval(values: Sequence[float], seed: int = 0) -> tuple[float, float, float]:
    """The mean, and the 95 % interval of the mean by the bootstrap over the sentences (Efron 1979)."""
    own = np.array(values)
    drawn = np.random.default_rng(seed).integers(len(own), size=(DRAWS, len(own)))
    low, high = np.quantile(own[drawn].mean(1), [0.025, 0.975])
    return float(own.mean()), float(low), float(high)


def lines(rows: Mapping[str, Mapping[str, Sequence[float]]]) -> list[str]:
    """The table as text: a line for each method and each measure, the best first where more is better."""
    made = []
    for measure, methods in rows.items():
        found = {name: interval(values) for name, values in methods.items()}
        for name, (mean, low, high) in sorted(found.items(), key=lambda one: -one[1][0]):
            made.append(f"{measure:18} {name:22} {mean:9.4f}  [{low:.4f}, {high:.4f}]  n={len(methods[name])}")
    return made


def main(arguments: list[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split(":")[0])
    parser.add_argument("sentences", type=Path, help="a text file with a sentence in each line")
    parser.add_argument("--model", default="", help="a shipped name, a folder, or a pulled model")
    parser.add_argument("--baseline", default="delete", choices=get_args(Baseline))
    parser.add_argument("--methods", nargs="+", default=METHODS, choices=METHODS)
    parser.add_argument("--most", type=int, default=200)
    options: Any = parser.parse_args(arguments)
    from .. import load  # by its public name, which stands above this file

    model = load(options.model) if options.model else load()
    given = [one.strip() for one in options.sentences.read_text(encoding="utf-8").splitlines() if one.strip()]
    print("\n".join(lines(measured(model, given[: options.most], options.methods, options.baseline))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
