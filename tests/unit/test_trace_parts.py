"""Weights of n² numbers in parts: of every mixer that has them, for some rows, heads or channels, within the limit."""

import re

import pytest
import torch
from quick import quick_share
from sheet_models import model_of, of, stack, tokens_of
from trace_runs import close

from glassformer.bench.memory import peak_bytes
from glassformer.edit import scale
from glassformer.errors import MemoryLimitError
from glassformer.explain.weights import weights
from glassformer.mixers import MIXERS as TABLE
from glassformer.mixers.alignment import Alignment
from glassformer.mixers.delta import DeltaSpec
from glassformer.mixers.fixed import BagSpec, FourierSpec
from glassformer.mixers.linear import FixedDecaySpec, GatedDecaySpec, LinearSpec
from glassformer.mixers.mamba import MambaSpec
from glassformer.mixers.mamba2 import Mamba2Spec
from glassformer.mixers.memory import MemoryCachingSpec
from glassformer.mixers.rmt import Rmt
from glassformer.mixers.s4 import S4DSpec
from glassformer.model import BlockSpec
from glassformer.tap import Probe
from glassformer.trace import Trace

MIXERS = {
    "linear": LinearSpec(),
    "retention": LinearSpec(feature="none", normalise=False, decay=FixedDecaySpec(), gate=True),
    "gla": LinearSpec(feature="none", normalise=False, decay=GatedDecaySpec()),
    "delta": DeltaSpec(),
    "delta-gated": DeltaSpec(decay=True, gate=True),
    "memory-residual": MemoryCachingSpec(form="residual", segment=16),
    "memory-gated": MemoryCachingSpec(segment=16, normalise=True),
    "memory-soup": MemoryCachingSpec(form="soup", segment=16, normalise=True),
    "memory-sparse": MemoryCachingSpec(form="sparse", segment=16, top_k=1),
    "mamba": MambaSpec(state=3),
    "mamba2": Mamba2Spec(heads=4, state=8),
    "s4d": S4DSpec(state=4),
    "fourier": FourierSpec(),
    "bag": BagSpec(),
}
T = 150
PLACES = {
    "plain": {},
    "packed": {
        "pos": torch.cat((torch.arange(90), torch.arange(T - 100), torch.full((10,), -1)))[None].expand(2, -1),
        "segments": torch.cat((torch.zeros(90), torch.ones(T - 90))).long()[None].expand(2, -1),
    },
}


def wide(trace):
    """The names of all values of n² numbers."""
    return [name for name in trace.names() if {"t", "s"} <= set(trace.axes(name).split())]


@pytest.mark.parametrize("places", PLACES)
@pytest.mark.parametrize("name", MIXERS)
def test_a_part_of_the_weights_is_that_part(name, places):
    model = model_of(stack(BlockSpec(mixer=MIXERS[name]), context=T))
    whole, some = (Trace(model, tokens_of(2, T), **PLACES[places]) for _ in range(2))
    for value in wide(whole):
        assert whole[value].abs().max() > 0
        heads = [one for one in whole.axes(value).split() if one not in "bts"]
        for where in ({"t": [141, 3, 70]}, {"t": 5}, *({"t": slice(60, 131), one: [1, 0]} for one in heads)):
            wanted, letters = whole[value], whole.axes(value).split()
            for axis, index in sorted(((letters.index(one), index) for one, index in where.items()), reverse=True):
                wanted = wanted[(slice(None),) * axis + (index,)]
            assert close(some.part(value, **where), wanted), (value, where)
    assert not set(wide(some)) & set(some._cache)  # nothing was taken from all of it


@pytest.mark.parametrize("name", MIXERS)
def test_parts_stay_within_the_limit_and_the_refusal_names_one(name):
    t, limit = 600, 1 << 20
    model = model_of(stack(BlockSpec(mixer=MIXERS[name], channel=None), context=t))
    beside = peak_bytes(lambda: Trace(model, tokens_of(1, t)))  # with all that one block makes of a text
    trace = Trace(model, tokens_of(1, t), limit_bytes=limit)
    for value in wide(trace):
        with pytest.raises(MemoryLimitError, match=r"ask for a part, trace\.part\(") as error:
            trace[value]
        found = []
        shown = re.search(r"trace\.part\(.*?\)\)", str(error.value))[0]
        peak = peak_bytes(lambda shown=shown, found=found: found.append(eval(shown, {"trace": trace})))
        assert found[0].shape[-2] > 0 and peak < limit + 4 * beside, (peak, beside)


@pytest.mark.parametrize("name", quick_share([one for one in MIXERS if one not in ("mamba", "delta-gated")], 2))
def test_the_difference_is_taken_in_parts(name):
    t, limit = 300, 1 << 19
    model = model_of(stack(BlockSpec(mixer=MIXERS[name], channel=None), context=t))
    beside = peak_bytes(lambda: Trace(model, tokens_of(1, t)))
    trace = Trace(model, tokens_of(1, t), limit_bytes=limit)
    assert 0 < max(trace.difference().values()) < 2e-5
    assert peak_bytes(Trace(model, tokens_of(1, t), limit_bytes=limit).difference) < limit + 4 * beside


@pytest.mark.parametrize("name", MIXERS)
def test_edited_weights_are_the_run_s_and_refused_where_they_do_not_fit(name):
    model = model_of(of(MIXERS[name]).changed(context=600))
    edit = scale("blocks.0.mixer.weights", 2.0, t=3)
    trace, plain = Trace(model, tokens_of(1, 40), edits=[edit]), Trace(model, tokens_of(1, 40))
    found, before = (one.part("blocks.0.mixer.weights", t=[3, 4]) for one in (trace, plain))
    rows = found.ndim - 2
    assert close(found.select(rows, 0), 2 * before.select(rows, 0))
    assert close(found.select(rows, 1), before.select(rows, 1))
    with pytest.raises(MemoryLimitError, match=r"edit of blocks.0.mixer.weights needs [\d,]+ bytes at once"):
        Trace(model, tokens_of(1, 600), edits=[edit], limit_bytes=1 << 20)


def test_every_mixer_with_weights_works_them_out_in_parts():
    """But an alignment, whose `pattern` is born one row after the other, and memory tokens, which see segments."""
    having = {kind for kind in TABLE.values() if {"weights", "pattern"} & set(kind.cards)} - {Alignment, Rmt}
    assert len(having) >= 9 and all(kind.in_parts for kind in having)


@pytest.mark.parametrize("name", MIXERS)
def test_gradients_through_weights_of_several_chunks_are_those_of_the_fast_run(name):
    model = model_of(stack(BlockSpec(mixer=MIXERS[name]), context=T)).double()
    found, wanted = (
        torch.autograd.grad(model(tokens_of(1, T), probe=probe).sin().sum(), list(model.parameters()))
        for probe in (Probe(lambda full: full.endswith("mixer.weights")), None)
    )
    largest = max(g.abs().max() for g in wanted)
    assert max((a - b).abs().max() for a, b in zip(found, wanted, strict=True)) <= 1e-10 * largest


@pytest.mark.parametrize("name", MIXERS)
def test_the_mean_of_all_weights_is_taken_within_the_limit(name):
    t, limit = 300, 1 << 20
    model = model_of(stack(BlockSpec(mixer=MIXERS[name], channel=None), context=t))
    beside, trace = peak_bytes(lambda: Trace(model, tokens_of(1, t))), Trace(model, tokens_of(1, t), limit_bytes=limit)
    rows, found = list(range(t))[::-1], []
    peak = peak_bytes(lambda: found.append(weights(trace, rows)))
    whole = Trace(model, tokens_of(1, t))[found[0].name][0].abs()
    wanted = whole.mean(0) if whole.ndim == 3 else whole
    assert close(found[0].norms, wanted[rows]) and peak < limit + 4 * beside + 2 * found[0].norms.nbytes
