"""How fast a model writes: with its static cache, and recomputing the whole text for every token.

    python -m glassformer.bench.generation [--tokens 512] [--threads 1] [--repeats 3]

Leaves with status 1 where the cache is less than 5 times as fast.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from ..checkpoint import read_spec
from ..generate import GenerateSpec, WithoutText, generate
from ..model import ModelSpec, build_model

LEAST_RATIO = 5.0

SHIPPED = Path(__file__).parents[1] / "shipped" / "small"


def shipped(context: int) -> ModelSpec:
    """The shipped model's settings, more than 5 million parameters, with room for so many tokens."""
    return read_spec(SHIPPED).changed(context=context)


@dataclass(frozen=True)
class Speed:
    """What was measured on this machine. The rates are tokens per second, each the best of the repeats; cached_gb_s
    is the rate at which the cached run read weights, in 10^9 bytes per second (small models are bound by it)."""

    parameters: int
    tokens: int
    threads: int
    cached: float
    sampled: float
    batch_of_8: float
    recomputed: float
    cached_gb_s: float

    @property
    def ratio(self) -> float:
        """How many times as fast the cache is."""
        return self.cached / self.recomputed


def measure(spec: ModelSpec | None = None, tokens: int = 512, repeats: int = 3, stride: int = 8) -> Speed:
    """Write `tokens` tokens after a one-token prompt. Recomputing is timed at every stride-th length and summed up.
    spec: None: the shipped model's."""
    torch.manual_seed(0)
    spec = spec or shipped(tokens + 1)
    model = build_model(spec).eval()
    count = sum(value.numel() for value in model.parameters())
    greedy = GenerateSpec(max_new_tokens=tokens)
    sampling = greedy.changed(temperature=0.8, top_k=50, top_p=0.95)
    cached = max(_written(model, 1, greedy) for _ in range(repeats))
    return Speed(
        count,
        tokens,
        torch.get_num_threads(),
        cached,
        max(_written(model, 1, sampling) for _ in range(repeats)),
        max(_written(model, 8, greedy) for _ in range(repeats)),
        max(_recomputed(model, tokens, stride) for _ in range(repeats)),
        cached * sum(value.nbytes for value in model.parameters()) / 1e9,
    )


def _written(model: nn.Module, batch: int, spec: GenerateSpec) -> float:
    """Tokens per second, all rows together, the reading of the prompt included."""
    start = time.perf_counter()
    events = sum(1 for _ in generate(model, WithoutText(model.spec.vocab), [[1]] * batch, spec))
    return events / (time.perf_counter() - start)


def _recomputed(model: nn.Module, tokens: int, stride: int) -> float:
    """Tokens per second of greedy decoding without a cache: one run over the whole text for each token."""
    text = torch.ones(1, tokens, dtype=torch.long)
    lengths = range(stride // 2 or 1, tokens + 1, stride)
    start = time.perf_counter()
    with torch.inference_mode():
        for length in lengths:
            int(model(text[:, :length])[0, -1].argmax())
    return len(lengths) / (time.perf_counter() - start)


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, and give the exit status."""
    parser = argparse.ArgumentParser(prog="python -m glassformer.bench.generation", description=__doc__.split("\n")[0])
    parser.add_argument("--tokens", type=int, default=512, help="tokens to write")
    parser.add_argument("--threads", type=int, default=None, help="processor threads; none: PyTorch's choice")
    parser.add_argument("--repeats", type=int, default=3, help="the best of so many runs counts")
    given = parser.parse_args(arguments)
    if given.threads is not None:
        torch.set_num_threads(given.threads)
    speed = measure(tokens=given.tokens, repeats=given.repeats)
    print(f"{speed.parameters / 1e6:.1f} M parameters, fp32, {speed.tokens} tokens, {speed.threads} threads")
    print(f"cached, greedy         {speed.cached:8.1f} tokens/s   {speed.cached_gb_s:.1f} GB/s of weights")
    print(f"cached, top-k, top-p   {speed.sampled:8.1f} tokens/s")
    print(f"cached, batch of 8     {speed.batch_of_8:8.1f} tokens/s")
    print(f"recomputed             {speed.recomputed:8.1f} tokens/s")
    print(f"the cache is {speed.ratio:.1f} times as fast; at least {LEAST_RATIO:g} is asked for")
    return 0 if speed.ratio >= LEAST_RATIO else 1


if __name__ == "__main__":
    sys.exit(main())
