"""All attributions of one model side by side by how faithful they are, over the sentences of a file, with bootstrap
intervals: python -m glassformer.bench.faithfulness sentences.txt --model smollm2-135m."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np

from ..errors import GlassformerError, InputError
from ..explain.answer import Answer, Baseline
from ..explain.attribution import Method, attribution
from ..explain.faithfulness import compared
from ..explain.target import Target, What

MEASURES = ("comprehensiveness", "sufficiency", "deletion", "insertion", "spearman", "kendall")
METHODS: tuple[Method, ...] = tuple(one for one in get_args(Method) if one != "patching")  # needs a second text each
DRAWS = 2000  # of the bootstrap

# Measure -> method, "random" or "reversed gradient" … -> the number of one sentence, or of each.
Row = dict[str, dict[str, float]]
Rows = dict[str, dict[str, list[float]]]


def of_sentence(
    model: Any,
    sentence: str,
    methods: Sequence[Method] = METHODS,
    baseline: Baseline = "delete",
    what: What = "log-probability",
    orders: int = 5,
) -> Row:
    """The measures of each method for the most probable next token of a sentence. model: what `gf.load` returns.

    Of a sentence of fewer than two tokens that can be taken out there are none, and none of a method that this model
    has not what it takes for."""
    row: Row = {measure: {} for measure in MEASURES}
    answer = Answer(model.trace(sentence), Target(what))
    if len(answer.removable) < 2:
        return row
    scores = {}
    for method in methods:
        try:
            scores[method] = attribution(answer, method, baseline=baseline).scores
        except GlassformerError:
            continue
    for method, found in compared(answer, scores, baseline, orders=orders).items():
        for measure, own, random, _, reverse in found.table():
            for name, value in ((method, own), ("random", random), (f"reversed {method}", reverse)):
                if value is not None:
                    row[measure][name] = value
    return row


def measured(model: Any, sentences: Iterable[str], *how: Any, **more: Any) -> Rows:
    """The measures of each method for each sentence, as `of_sentence` takes them."""
    return gathered(of_sentence(model, sentence, *how, **more) for sentence in sentences)


def gathered(found: Iterable[Row]) -> Rows:
    """The numbers of all sentences by measure and method."""
    rows: Rows = {measure: {} for measure in MEASURES}
    for row in found:
        for measure, values in row.items():
            for name, value in values.items():
                rows[measure].setdefault(name, []).append(value)
    return rows


def kept(path: Path | None, about: Mapping[str, Any], sentences: Sequence[str]) -> list[Row]:
    """What a file holds of an earlier call over the same sentences; a new file gets what it is about.

    Raises InputError for a file of other sentences, another model or other settings."""
    if path is None:
        return []
    told = json.dumps({**about, "sentences": list(sentences)}, ensure_ascii=False)
    if not path.exists():
        path.write_text(f"{told}\n", encoding="utf-8")
        return []
    whole, *lines = path.read_text(encoding="utf-8").split("\n")
    if whole != told:
        raise InputError(f"{path}: it holds numbers of other sentences, methods or another model; give another file")
    path.write_text("\n".join((whole, *lines[:-1], "")), encoding="utf-8")  # without a line that was not finished
    return [json.loads(line) for line in lines[:-1]]


def going(model: Any, sentences: Sequence[str], about: Mapping[str, Any], path: Path | None) -> Iterator[Row]:
    """The measures of each sentence as they come, those first that a file holds; it gets the others.

    Raises as `kept`."""
    done = kept(path, about, sentences)
    yield from done
    begun = time.perf_counter()
    for i, sentence in enumerate(sentences[len(done) :], len(done)):
        row = of_sentence(model, sentence, about["methods"], about["baseline"])
        if path:
            with path.open("a", encoding="utf-8") as file:
                file.write(f"{json.dumps(row)}\n")
        each = (time.perf_counter() - begun) / (i + 1 - len(done))
        print(f"{i + 1}/{len(sentences)}  {each:.1f} s a sentence", file=sys.stderr, flush=True)
        yield row


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


def beside(found: Sequence[Row], other: str = "pattern") -> list[str]:
    """How far each method is from another one on the same sentences: the mean of the differences with its interval."""
    made = []
    for measure in MEASURES:
        rows = [row[measure] for row in found if other in row[measure]]
        for name in sorted({name for row in rows for name in row} - {other}):
            if not name.startswith("reversed "):
                apart = [row[name] - row[other] for row in rows if name in row]
                mean, low, high = interval(apart)
                made.append(f"{measure:18} {name:22} {mean:+9.4f}  [{low:+.4f}, {high:+.4f}]  n={len(apart)}")
    return made


def main(arguments: list[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m glassformer.bench.faithfulness", description=__doc__.split(":")[0])
    parser.add_argument("sentences", type=Path, help="a text file with a sentence in each line")
    parser.add_argument("--model", default="", help="a shipped name, a folder, or a pulled model")
    parser.add_argument("--baseline", default="delete", choices=get_args(Baseline))
    parser.add_argument("--methods", nargs="+", default=METHODS, choices=METHODS)
    parser.add_argument("--most", type=int, default=200)
    parser.add_argument("--keep", type=Path, metavar="FILE", help="keep what is measured, and go on from there")
    options: Any = parser.parse_args(arguments)
    from .. import load  # by its public name, which stands above this file

    model = load(options.model) if options.model else load()
    lined = [one.strip() for one in options.sentences.read_text(encoding="utf-8").splitlines() if one.strip()]
    about = {"model": options.model, "baseline": options.baseline, "methods": list(options.methods)}
    try:
        found = [*going(model, lined[: options.most], about, options.keep)]
    except InputError as error:
        parser.error(str(error))
    print("\n".join(lines(gathered(found))))
    if "pattern" in options.methods:
        print("\n".join(("", "minus pattern, on the same sentences:", *beside(found))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
