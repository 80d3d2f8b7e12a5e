"""Two relations at once: one head of attention fails where two of half its width succeed.

    python -m glassformer.bench.heads [--seeds 3]

One layer of attention and nothing else reads 12 letters; at a sign behind them it is to tell the letter 2 places before
the sign and the letter 5 places before it, both at once. Positions are rotary: they say how much, and the values do not
know their place. So one head gives one weighted mean of letters, and of two letters in one mean a linear map can tell
the heavier one, but not also the lighter. Two heads look at one each. Both have the same number of parameters, for a
head is as wide as the model is, divided by their number.

Control: one of the two letters is asked for, and one head suffices. Training is that of bench.longlag; each score is
the share of letters that are told, on rows that training has not drawn, and medians are over the seeds. Leaves with
status 1 where a bound of BOUNDS is broken.
"""

from __future__ import annotations

import argparse
import statistics
import sys

from torch import Generator

from ..block import BlockSpec
from ..data.tasks import Batch, looking_back
from ..mixers.attention import AttentionSpec
from ..nn.position import RopeSpec
from .longlag import Bounds, Contestant, Reader, Task, broken, run

LENGTH, LETTERS, DIM = 12, 16, 32
RATE, UPDATES = 1e-2, 1000


def asking(*distances: int) -> Task:
    """The letters at these distances before the sign are to be told."""

    def draw(batch: int, generator: Generator) -> Batch:
        return looking_back(batch, LENGTH, LETTERS + 1, distances, generator)

    return Task(draw, LETTERS + 1, LETTERS, False, 64, UPDATES, "accuracy", 0.999, 1 / LETTERS, answers=len(distances))


def looking(heads: int) -> Contestant:
    """One layer of attention with so many heads. The base is small because the rows are short."""
    mixer = AttentionSpec(heads=heads, position=RopeSpec(base=30.0))
    return Contestant((BlockSpec(mixer=mixer, channel=None),), DIM, RATE)


TASKS = {"two letters": asking(2, 5), "one letter": asking(5)}
CONTESTANTS = {"one head": looking(1), "two heads": looking(2)}
BOUNDS: Bounds = {
    ("two letters", "one head"): (None, 0.75),
    ("two letters", "two heads"): (0.95, None),
    ("one letter", "one head"): (0.95, None),
    ("one letter", "two heads"): (0.95, None),
}


def parameters(task: str, who: str) -> int:
    """How many a contestant has."""
    return sum(one.numel() for one in Reader(TASKS[task], CONTESTANTS[who]).parameters())


def main(arguments: list[str] | None = None) -> int:
    """Train and print; 1 where a bound is broken."""
    parser = argparse.ArgumentParser(prog="python -m glassformer.bench.heads", description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    seeds = parser.parse_args(arguments).seeds
    medians = {}
    for task, who in BOUNDS:
        found = [run(TASKS[task], CONTESTANTS[who], seed) for seed in range(seeds)]
        medians[task, who] = statistics.median(one.score for one in found)
        scores = ", ".join(f"{one.score:.3f} ({one.updates} updates)" for one in found)
        print(f"{task}, {who} ({parameters(task, who):,} parameters): median {medians[task, who]:.3f} of {scores}")
    wrong = broken(medians, BOUNDS)
    print("\n".join(wrong), end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
