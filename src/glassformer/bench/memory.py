"""The most memory that work takes at once, as PyTorch's allocator counts it; and what writing a long text takes of it.

    python -m glassformer.bench.memory [--families gla …] [--tokens 4096]

A model of one token mixer (bench/families.py) writes a short text and a long one. Where the state has a fixed size, by
the family's own formula, both take the same. Leaves with status 1 where they do not.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler's library prints a line at each start and stop

import torch
from torch._C._profiler import _EventType
from torch.profiler import ProfilerActivity, profile

from ..explain.cost import cost
from ..generate import GenerateSpec, WithoutText, generate
from ..model import EncoderDecoder, build_model
from .families import FAMILIES, VOCAB, family

DIM, SOURCES = 16, 16
WATCHED = 32  # tokens at the beginning and at the end of a text during which memory is watched
SHORT = 4 * WATCHED


def peak_bytes(work: Callable[..., Any], *given: Any, **more: Any) -> int:
    """The most bytes of tensors on the processor that `work` held at once beyond those that were there before; such as
    it gives up count as held."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        work(*given, **more)
    pending, changes = list(record.profiler.kineto_results.experimental_event_tree()), []
    while pending:
        event = pending.pop()
        pending += event.children
        if event.tag == _EventType.Allocation:
            changes.append((event.start_time_ns, event.extra_fields.ptr, event.extra_fields.alloc_size))
    sizes: dict[int, int] = {}
    held = peak = 0
    for _, place, size in sorted(changes, key=lambda change: change[0]):
        if size > 0:
            sizes[place] = size
            held += size
            peak = max(peak, held)
        else:
            held -= sizes.pop(place, 0)
    return peak


@dataclass(frozen=True)
class Written:
    """What a text took while it was written. state_bytes: every size that the state had; told_bytes: its size by
    `gf.cost`; first_bytes, last_bytes: the most held at once during the first and the last tokens, beyond what was
    there before them."""

    state_bytes: tuple[int, ...]
    told_bytes: int
    first_bytes: int
    last_bytes: int


def fixed(tokens: int) -> tuple[str, ...]:
    """The families that can write and whose state is, by `gf.cost`, as large after a short text as after this one."""
    found = []
    for name in FAMILIES:
        spec = family(name, DIM, tokens + 1, writes=True)
        sizes = [cost(spec, n, SOURCES).state_bytes for n in (SHORT, tokens)]
        if sizes[0] == sizes[1] > 0:
            found.append(name)
    return tuple(found)


def written(name: str, tokens: int) -> Written:
    """Let a family write so many tokens, at least SHORT, by `generate`; a pair does it about a source."""
    spec = family(name, DIM, max(tokens + 1, SOURCES), writes=True)
    model, sizes = build_model(spec).eval(), set()
    pair = isinstance(model, EncoderDecoder)
    step = model.step

    def counted(*given: Any, **more: Any) -> Any:
        logits, state = step(*given, **more)
        sizes.add(state.nbytes)
        return logits, state

    model.step = counted
    known = WithoutText(VOCAB - 1)
    known.begin = [VOCAB - 1]  # one that is never chosen
    prompt = [[1] * SOURCES] if pair else [[1]]

    def text(count: int) -> Iterator[object]:
        return generate(model, known, prompt, GenerateSpec(max_new_tokens=count))

    list(text(WATCHED))  # what is set up once
    sizes.clear()
    writer = text(tokens)
    first = peak_bytes(_take, writer, WATCHED)
    _take(writer, tokens - 2 * WATCHED)
    last = peak_bytes(_take, writer, WATCHED)
    told = cost(spec, tokens, SOURCES).state_bytes
    return Written(tuple(sorted(sizes)), told, first, last)


def _take(writer: Iterator[object], count: int) -> None:
    taken = sum(1 for _ in islice(writer, count))
    assert taken == count, f"{taken} tokens in the place of {count}"


def main(arguments: list[str] | None = None) -> int:
    """Measure and print; 1 where a state of fixed size takes more memory for a long text."""
    parser = argparse.ArgumentParser(prog="python -m glassformer.bench.memory", description=__doc__)
    parser.add_argument("--families", nargs="+", choices=FAMILIES, metavar="NAME")
    parser.add_argument("--tokens", type=int, default=4096)
    given = parser.parse_args(arguments)
    same, wrong = fixed(given.tokens), 0
    heads = ("state", "first", "last")
    print(f"{'family':18}" + "".join(f"{f'{head} {n}':>14}" for n in (SHORT, given.tokens) for head in heads))
    for name in given.families or same:
        both = [written(name, n) for n in (SHORT, given.tokens)]
        print(f"{name:18}" + "".join(f"{n:14,}" for one in both for n in _shown(one)), end="")
        more = grows(*both)
        print("  grows" if more else "", flush=True)
        wrong += more and name in same
    return int(wrong > 0)


def _shown(one: Written) -> tuple[int, int, int]:
    return max(one.state_bytes), one.first_bytes, one.last_bytes


def grows(short: Written, long: Written) -> bool:
    """Whether a long text took more than a short one, in its state or at all."""
    pairs = ((short.first_bytes, long.first_bytes), (short.last_bytes, long.last_bytes))
    return short.state_bytes != long.state_bytes or any(after > before for before, after in pairs)


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(main())
