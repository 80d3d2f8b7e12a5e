"""Causal tracing beside a run for each cell, and the effects of single edges beside a forward pass, in the shape of
SmolLM2-135M."""

import time
from functools import partial

import pytest
import torch

import glassformer as gf
from glassformer.explain.answer import Answer
from glassformer.explain.edges import edges
from glassformer.explain.target import Target
from glassformer.explain.tracing import spoilt_by_noise, traced

SHAPE = {"dim": 576, "blocks": 30, "heads": 9, "kv_heads": 3, "hidden": 1536, "context": 2048}


def seconds(work, times=3):
    """Of the processor, the least of some: what else runs on the machine takes none of them."""
    found = []
    for _ in range(times):
        start = time.process_time()
        work()
        found.append(time.process_time() - start)
    return min(found)


@pytest.fixture(scope="module")
def model():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return gf.build("llama", vocab=49152, **SHAPE)


def ids(n):
    return torch.randint(49152, (1, n), generator=torch.Generator().manual_seed(0))


@torch.no_grad()
def forward(model, n):
    return seconds(partial(model.model, ids(n)), 5)


@pytest.mark.slow
def test_causal_tracing_is_four_times_as_fast_as_a_run_for_each_cell(model):
    answer = Answer(model.trace(ids(32)[0].tolist(), start=False), Target(candidate="#5"))
    spoilt = spoilt_by_noise(answer, [1, 2], 3.0, 1, 0)
    taken, one = seconds(partial(traced, answer, spoilt), 1), forward(model, 32)
    print(f"\n30 × 32 cells: {taken:.1f} s, {960 * one / taken:.2f} times as fast as one run of {one:.3f} s for each")
    assert taken < 960 * one / 4


@pytest.mark.slow
def test_all_edges_of_a_layer_take_at_most_two_forward_passes(model):
    run, whole = model.trace(ids(512)[0].tolist(), start=False), forward(model, 512)
    for layer in (0, 29):
        taken = seconds(partial(edges, run, f"blocks.{layer}.mixer", list(range(512))))
        print(f"\nlayer {layer}: {taken / whole:.2f} forward passes of {whole:.2f} s")
        assert taken < 2 * whole
