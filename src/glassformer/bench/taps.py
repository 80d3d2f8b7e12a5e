"""What taps cost when nobody looks: the time of all tap calls of a forward, as a share of that forward.

    python -m glassformer.bench.taps [--tokens 64] [--repeats 9]

A tap that is off is one function call that returns its argument; the forward is that of the shipped model's settings
in fp32. Leaves with status 1 where the share is 2 % or more.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from ..call import Call
from ..model import Model, ModelSpec, build_model
from ..tap import off
from .generation import shipped

MOST_SHARE = 0.02


@dataclass(frozen=True)
class TapCost:
    """taps and asks: calls of `tap` and of `call.tap` or `call.wants` in one forward; share: of the forward's time."""

    taps: int
    asks: int
    taps_s: float
    forward_s: float

    @property
    def share(self) -> float:
        """The part of the forward that is spent in taps."""
        return self.taps_s / self.forward_s


def measure(spec: ModelSpec | None = None, tokens: int = 64, repeats: int = 9) -> TapCost:
    """Medians of `repeats` alternating measurements of the forward and of as many tap calls as it makes.
    spec: None: the shipped model's."""
    spec = spec or shipped(tokens)
    model = build_model(spec).eval()
    ids = torch.arange(tokens)[None] % spec.vocab
    taps, asks = _counted(model, ids)
    call = Call(ids)
    layer, value = model.blocks[0], torch.zeros(1, tokens, spec.dim)

    def only_taps() -> None:
        for _ in range(asks):
            tap = call.tap(layer)
        for _ in range(taps):
            tap("resid_in", value, "b t d")

    with torch.no_grad():
        pairs = [(_seconds(only_taps, 20), _seconds(lambda: model(ids), 3)) for _ in range(repeats)]
    return TapCost(taps, asks, *(statistics.median(column) for column in zip(*pairs, strict=True)))


def _counted(model: Model, ids: torch.Tensor) -> tuple[int, int]:
    """How often one forward calls a tap, and how often it asks the call for one."""
    counts = {"tap": 0, "ask": 0}
    given_tap, given_wants = Call.tap, Call.wants

    def counting(name: str, value: torch.Tensor, axes: str = "") -> torch.Tensor:
        counts["tap"] += 1
        return off(name, value, axes)

    def tap(self: Call, layer: torch.nn.Module) -> Callable[..., torch.Tensor]:
        counts["ask"] += 1
        return counting

    def wants(self: Call, layer: torch.nn.Module, *names: str) -> bool:
        counts["ask"] += 1
        return False

    try:
        Call.tap, Call.wants = tap, wants
        with torch.no_grad():
            model(ids)
    finally:
        Call.tap, Call.wants = given_tap, given_wants
    return counts["tap"], counts["ask"]


def _seconds(work: Callable[[], object], times: int) -> float:
    started = time.perf_counter()
    for _ in range(times):
        work()
    return (time.perf_counter() - started) / times


def main(arguments: list[str] | None = None) -> int:
    """Measure and print; 1 where taps cost too much."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=9)
    options = parser.parse_args(arguments)
    cost = measure(tokens=options.tokens, repeats=options.repeats)
    print(
        f"{cost.taps} taps and {cost.asks} questions: {cost.taps_s * 1e6:.1f} µs of {cost.forward_s * 1e3:.2f} ms, "
        f"{cost.share:.2%}"
    )
    return int(cost.share >= MOST_SHARE)


if __name__ == "__main__":
    sys.exit(main())
