"""Time and memory against length: how each family grows, beside what its formula says.

    python -m glassformer.bench.scaling [--families attention …] [--longest 8192] [--repeats 5]

One token mixer of width 64 reads one text in fp32 without gradients; lengths double from 256. The exponents are the
slopes of straight lines through the logarithms of the last four points: time by the median of the repeats, memory by
the allocator's peak, work by the family's own formula. Leaves with status 1 where a bound of BOUNDS is broken.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from ..block import BlockSpec
from ..explain.cost import cost
from ..mask import Mask
from ..mixers import MixerSpec
from ..mixers.attention import AttentionSpec
from ..model import Model, ModelSpec, build_model
from ..nn.position import RopeSpec
from ..tap import Probe
from .memory import peak_bytes

DIM, SHORTEST = 64, 256

# Family -> its mixer. A family that is written out where somebody looks has a second line for that.
FAMILIES: dict[str, MixerSpec] = {
    "attention": AttentionSpec(position=RopeSpec()),
    "window": AttentionSpec(mask=Mask(window=64), position=RopeSpec()),
}
WRITTEN_OUT = {"attention, written out": ("attention", "pattern")}
# (family, what) -> the exponent that must not be reached.
BOUNDS: dict[tuple[str, str], float] = {("attention", "memory"): 1.2}


@dataclass(frozen=True)
class Growth:
    """One family: seconds and peak bytes at each length, and the FLOPs and state bytes of its formula."""

    lengths: tuple[int, ...]
    seconds: tuple[float, ...]
    memory_bytes: tuple[int, ...]
    flops: tuple[int, ...]
    state_bytes: tuple[int, ...]

    def exponent(self, what: str) -> float:
        """How `seconds`, `memory_bytes`, `flops` or `state_bytes` grow with the length; 0: not at all."""
        return slope(self.lengths[-4:], getattr(self, what)[-4:])


def slope(lengths: Sequence[float], values: Sequence[float]) -> float:
    """The slope of the straight line nearest to the points (log length, log value)."""
    x, y = ([math.log(max(v, 1e-12)) for v in column] for column in (lengths, values))
    mean_x, mean_y = statistics.fmean(x), statistics.fmean(y)
    over = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True))
    return over / sum((a - mean_x) ** 2 for a in x)


def measure(family: str, lengths: Sequence[int], repeats: int = 5) -> Growth:
    """The growth of one family of FAMILIES or WRITTEN_OUT over these lengths."""
    name, seen = WRITTEN_OUT.get(family, (family, ""))
    spec = ModelSpec(
        vocab=256,
        dim=DIM,
        context=max(lengths),
        blocks=(BlockSpec(mixer=FAMILIES[name], channel=None),),
        head=None,
    )
    model = build_model(spec).eval()
    works = [_work(model, n, seen) for n in lengths]
    for work in works:
        work()  # the first run of a kernel takes longer
    seconds = [[_seconds(work) for work in works] for _ in range(repeats)]
    costs = [cost(spec, n) for n in lengths]
    return Growth(
        tuple(lengths),
        tuple(statistics.median(column) for column in zip(*seconds, strict=True)),
        tuple(peak_bytes(work) for work in works),
        tuple(one.flops + one.scan_flops for one in costs),
        tuple(one.state_bytes for one in costs),
    )


def _work(model: Model, n: int, seen: str) -> Callable[[], None]:
    tokens = torch.arange(n)[None] % model.spec.vocab
    want = f"blocks.0.mixer.{seen}"

    def work() -> None:
        with torch.no_grad():
            model(tokens, probe=Probe(lambda name: name == want) if seen else None)

    return work


def _seconds(work: Callable[[], None]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def broken(grown: dict[str, Growth]) -> list[str]:
    """What of BOUNDS does not hold, in words."""
    found = []
    for (family, what), most in BOUNDS.items():
        if family in grown:
            slope = grown[family].exponent({"memory": "memory_bytes", "time": "seconds"}[what])
            if slope >= most:
                found.append(f"{family}: {what} grows as n^{slope:.2f}; below n^{most} is asked")
    return found


def main(arguments: list[str] | None = None) -> int:
    """Measure and print; 1 where a bound is broken."""
    parser = argparse.ArgumentParser(prog="python -m glassformer.bench.scaling", description=__doc__)
    known = [*FAMILIES, *WRITTEN_OUT]
    parser.add_argument("--families", nargs="+", choices=known, default=known, metavar="NAME")
    parser.add_argument("--longest", type=int, default=8192)
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args(arguments)
    lengths = [SHORTEST * 2**i for i in range(int(math.log2(given.longest / SHORTEST)) + 1)]
    heads = (f"ms at {lengths[-1]}", "MiB", "time n^", "memory n^", "formula n^", "state n^")
    print(f"{'family':24}" + "".join(f"{head:>12}" for head in heads))
    grown = {}
    for family in given.families:
        grown[family] = one = measure(family, lengths, given.repeats)
        exponents = (one.exponent(what) for what in ("seconds", "memory_bytes", "flops", "state_bytes"))
        print(
            f"{family:24}{one.seconds[-1] * 1e3:12.1f}{one.memory_bytes[-1] / (1 << 20):12.1f}"
            + "".join(f"{slope:12.2f}" for slope in exponents),
            flush=True,
        )
    wrong = broken(grown)
    for line in wrong:
        print(line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
