"""Which of two came first? What a signal of position lets attention learn, and what it does not do by itself.

    python -m glassformer.bench.order [--seeds 3] [--only rope …]

Rows of 6 to 24 letters hold one X and one Y; a sign at the end is to tell which came first. Each row stands beside the
one in which the two have changed places (data.tasks), so that guessing is worth 0.5 and nothing but their order helps.
One layer, attention over the whole row with an MLP behind it, is trained by bench.longlag with each way to tell
positions: none, sinusoids or learned vectors added to the letters, rotary, ALiBi.

Printed, on rows that training has not drawn: how far the answer moves when X and Y change places, and how often it is
right, before training; how often it is right afterwards, at the longest trained length and at 2 and 4 times it.
Controls: without a signal of position, and before training. Medians are over the seeds. Leaves with status 1 where a
bound of BOUNDS is broken.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from ..block import BlockSpec
from ..data.tasks import Batch, first_of_two
from ..mask import Mask
from ..mixers.attention import AttentionSpec
from ..nn.position import AlibiSpec, LearnedSpec, RopeSpec, SinusoidalSpec
from .longlag import Bounds, Contestant, Reader, Task, broken, score, trained

SYMBOLS, SHORTEST, LONGEST, DIM, RATE, UPDATES = 11, 6, 24, 32, 4e-3, 400
LENGTHS = (LONGEST, 2 * LONGEST, 4 * LONGEST)
ROWS = 2000  # on which is measured


def telling(length: int | None = None) -> Task:
    """The task at one length; None: at those of training, another one for each batch."""

    def draw(batch: int, generator: Generator) -> Batch:
        n = int(torch.randint(SHORTEST, LONGEST + 1, (), generator=generator)) if length is None else length
        return first_of_two(batch, n, SYMBOLS, generator)

    return Task(draw, SYMBOLS, 2, False, 64, UPDATES, "accuracy", 1.1, 0.5)  # never good enough to end sooner


def reading(
    inside: AlibiSpec | RopeSpec | None = None, added: LearnedSpec | SinusoidalSpec | None = None
) -> Contestant:
    """One block that sees the whole row; with a causal mask, order would enter without a signal."""
    mixer = AttentionSpec(heads=4, mask=Mask(causal=False), position=inside)
    return Contestant((BlockSpec(mixer=mixer),), DIM, RATE, added)


CONTESTANTS = {
    "none": reading(),
    "sinusoidal": reading(added=SinusoidalSpec()),
    "learned": reading(added=LearnedSpec()),
    "rope": reading(RopeSpec()),
    "alibi": reading(AlibiSpec()),
}
# (what, contestant): "untrained" and the lengths are shares of right answers, "moves" is of logits.
BOUNDS: Bounds = {
    ("moves", "none"): (None, 1e-4),
    **{("moves", who): (1e-3, None) for who in CONTESTANTS if who != "none"},
    **{("untrained", who): (0.35, 0.65) for who in CONTESTANTS},
    **{(str(length), "none"): (0.45, 0.55) for length in LENGTHS},
    **{(str(LONGEST), who): (0.95, None) for who in CONTESTANTS if who != "none"},
    **{(str(4 * LONGEST), who): (None, 0.75) for who in ("sinusoidal", "learned", "rope")},
    (str(2 * LONGEST), "alibi"): (0.9, None),
}


@dataclass(frozen=True)
class Found:
    """What one contestant with one seed comes to: how far its answer moves untrained, the shares of right answers."""

    moves: float
    untrained: float
    trained: dict[int, float]

    @property
    def numbers(self) -> dict[str, float]:
        """By the names of BOUNDS."""
        return {"moves": self.moves, "untrained": self.untrained} | {str(n): one for n, one in self.trained.items()}


def found(who: str, seed: int) -> Found:
    """Train one contestant once; before that, the same one as it begins."""
    torch.manual_seed(seed)
    contestant, task = CONTESTANTS[who], telling(LONGEST)
    fresh = Reader(task, contestant, max(LENGTHS)).eval()
    rows = task.draw(ROWS, torch.Generator().manual_seed(20_000 + seed))
    moves, before = moved(fresh, rows), score(task, fresh, rows)
    model, unseen, _ = trained(telling(), contestant, seed, max(LENGTHS))
    after = {n: score(telling(n), model, telling(n).draw(ROWS, unseen)) for n in LENGTHS}
    return Found(moves, before, after)


@torch.no_grad()
def moved(model: Reader, rows: Batch) -> float:
    """How far the difference of both logits moves when X and Y change places, in the mean; the rows' second half is
    the first with both exchanged."""
    told: Tensor = model(rows).diff(dim=-1)[:, 0]
    one, other = told.chunk(2)
    return (one - other).abs().mean().item()


def main(arguments: list[str] | None = None) -> int:
    """Train and print; 1 where a bound is broken."""
    parser = argparse.ArgumentParser(prog="python -m glassformer.bench.order", description=__doc__)
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=list(CONTESTANTS), default=list(CONTESTANTS))
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args(arguments)
    medians: dict[tuple[str, str], float] = {}
    for who in given.only:
        several = [found(who, seed).numbers for seed in range(given.seeds)]
        for what in several[0]:
            medians[what, who] = statistics.median(one[what] for one in several)
            each = ", ".join(f"{one[what]:.4f}" for one in several)
            print(f"{who:10} {what:9} median {medians[what, who]:.4f} of {each}", flush=True)
    wrong = broken(medians, BOUNDS)
    print("\n".join(wrong), end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
