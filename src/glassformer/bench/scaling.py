"""Time and memory against length: how each family grows, beside what its formula says.

    python -m glassformer.bench.scaling [--families attention …] [--longest 8192] [--repeats 5] [--train]

One token mixer of width 64 (bench/families.py) reads one text in fp32, without gradients or, with --train, there and
back; lengths double from 256. The exponents are the slopes of straight lines through the logarithms of the last four
points: time by the median of the repeats, in seconds of the processor, so that what else runs beside it counts little;
memory by the allocator's peak; work and state by the family's own formula, which is printed as well. A mask's work is
that of all pairs, as it is written out (`gf.cost`). Leaves with status 1 where a bound of BOUNDS is broken.
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

from ..explain.cost import ModelCost, cost
from ..model import EncoderDecoder, Model, build_model
from ..tap import Probe
from .families import FAMILIES, family, formula
from .memory import peak_bytes

DIM, SHORTEST = 64, 256

# A family that is written out where somebody looks has a second line for that.
WRITTEN_OUT = {"attention, written out": ("attention", "pattern")}
# Linear attention and state spaces.
LINEAR = ("linear", "retention", "gla", "delta", "gated-delta", "s4d", "mamba", "mamba2")
# (family, what) -> the exponent that must not be reached.
BOUNDS: dict[tuple[str, str], float] = {("attention", "memory"): 1.2, **{(name, "time"): 1.2 for name in LINEAR}}


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


def measure(name: str, lengths: Sequence[int], repeats: int = 5, train: bool = False) -> Growth:
    """The growth of one family of FAMILIES or WRITTEN_OUT over these lengths; train: with the way back."""
    name, seen = WRITTEN_OUT.get(name, (name, ""))
    spec = family(name, DIM, max(lengths))
    model = build_model(spec).train(train)
    works = [_work(model, n, seen, train) for n in lengths]
    for work in works:
        work()  # the first run of a kernel takes longer
    seconds = [[_seconds(work) for work in works] for _ in range(repeats)]
    costs = [cost(spec, n) for n in lengths]
    return Growth(
        tuple(lengths),
        tuple(statistics.median(column) for column in zip(*seconds, strict=True)),
        tuple(peak_bytes(work) for work in works),
        tuple(_flops(one) for one in costs),
        tuple(one.state_bytes for one in costs),
    )


def _work(model: Model | EncoderDecoder, n: int, seen: str, train: bool) -> Callable[[], None]:
    pair = isinstance(model, EncoderDecoder)
    tokens = torch.arange(n)[None] % (model.decoder if pair else model).spec.vocab
    want = f"blocks.0.mixer.{seen}"

    def work() -> None:
        with torch.set_grad_enabled(train):
            probe = Probe(lambda name: name == want) if seen else None
            out = model(tokens, tokens, probe=probe) if pair else model(tokens, probe=probe)
            if train:
                out.sum().backward()
                model.zero_grad()

    return work


def _seconds(work: Callable[[], None]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def _flops(one: ModelCost) -> int:
    return one.flops + one.scan_flops


def broken(grown: dict[str, Growth]) -> list[str]:
    """What of BOUNDS does not hold, in words."""
    found = []
    for (name, what), most in BOUNDS.items():
        if name in grown:
            slope = grown[name].exponent({"memory": "memory_bytes", "time": "seconds"}[what])
            if slope >= most:
                found.append(f"{name}: {what} grows as n^{slope:.2f}; below n^{most} is asked")
    return found


def formulas(name: str) -> tuple[str, str]:
    """What a family costs for n tokens in width d, in FLOPs and in bytes of its state."""
    name = WRITTEN_OUT.get(name, (name, ""))[0]

    def of(n: int, d: int) -> ModelCost:
        return cost(family(name, d, n), n)

    return formula(lambda n, d: _flops(of(n, d))), formula(lambda n, d: of(n, d).state_bytes)


def main(arguments: list[str] | None = None) -> int:
    """Measure and print; 1 where a bound is broken."""
    parser = argparse.ArgumentParser(prog="python -m glassformer.bench.scaling", description=__doc__)
    known = [*FAMILIES, *WRITTEN_OUT]
    parser.add_argument("--families", nargs="+", choices=known, default=known, metavar="NAME")
    parser.add_argument("--longest", type=int, default=8192)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--train", action="store_true")
    given = parser.parse_args(arguments)
    lengths = [SHORTEST * 2**i for i in range(int(math.log2(given.longest / SHORTEST)) + 1)]
    heads = (f"ms at {lengths[-1]}", "MiB", "time n^", "memory n^", "FLOPs n^", "state n^")
    print(f"{'family':24}" + "".join(f"{head:>12}" for head in heads) + "  FLOPs; bytes of state")
    grown = {}
    for name in given.families:
        grown[name] = one = measure(name, lengths, given.repeats, given.train)
        exponents = (one.exponent(what) for what in ("seconds", "memory_bytes", "flops", "state_bytes"))
        print(
            f"{name:24}{one.seconds[-1] * 1e3:12.1f}{one.memory_bytes[-1] / (1 << 20):12.1f}"
            + "".join(f"{slope:12.2f}" for slope in exponents)
            + f"  {'; '.join(formulas(name))}",
            flush=True,
        )
    wrong = broken(grown)
    for line in wrong:
        print(line)
    return 1 if wrong else 0


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(main())
