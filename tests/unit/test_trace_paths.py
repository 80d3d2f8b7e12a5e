"""The difference of a trace: how far the fast path and the written-out one are apart."""

import pytest
import torch
from sheet_models import SPECS, model_of, tokens_of

import glassformer.mixers.multihead as multihead
from glassformer.nn.channel import Experts
from glassformer.nn.norm import Norm
from glassformer.trace import Trace


def test_a_broken_fast_path_is_found(monkeypatch):
    model, tokens = model_of(SPECS["rope"]), tokens_of(2, 7)
    right = multihead.fused
    monkeypatch.setattr(multihead, "fused", lambda *given: right(*given) * 1.001)
    found = Trace(model, tokens).difference()
    attention = ["blocks.0.mixer.out", "blocks.1.mixer.out"]
    norms = [f"blocks.{i}.{place}_norm.out" for i in range(2) for place in ("mixer", "channel")]
    assert set(found) == {*attention, *norms, "norm.out"}
    assert all((5e-4 < number < 2e-3) == (name in attention) for name, number in found.items())
    monkeypatch.setattr(multihead, "fused", lambda *given: right(*given) * torch.nan)
    broken = Trace(model, tokens).difference()
    assert {broken[name] for name in attention} == {float("inf")}


@pytest.mark.parametrize(("kind", "method", "end"), [(Norm, "_fused", "norm.out"), (Experts, "_routed", "channel.out")])
def test_a_broken_fast_norm_or_experts_are_found(monkeypatch, kind, method, end):
    model, tokens = model_of(SPECS["experts"]), tokens_of(2, 7)
    right = getattr(kind, method)
    monkeypatch.setattr(kind, method, lambda *given: right(*given) * 1.001)
    found = Trace(model, tokens).difference()
    assert {name for name, number in found.items() if number > 5e-4} == {name for name in found if name.endswith(end)}
    assert sum(name.endswith(end) for name in found) == (5 if kind is Norm else 2)
    assert Trace(model, tokens, limit_bytes=6_000).difference() == pytest.approx(found, abs=5e-7)


def test_the_difference_row_by_row_is_the_same():
    model, tokens = model_of(SPECS["alibi"]), tokens_of(2, 7)
    rows = Trace(model, tokens, limit_bytes=5_000)
    assert 1 <= rows.limit_bytes // rows._working_bytes("blocks.0.mixer.pattern", t=1) < 7
    for name, number in rows.difference().items():
        assert number == pytest.approx(Trace(model, tokens).difference()[name], abs=5e-7)


def test_the_difference_row_by_row_projects_the_keys_once():
    calls = {}
    for limit in (40_000, 1 << 20):
        model = model_of(SPECS["rope"])
        trace, keys = Trace(model, tokens_of(1, 60), limit_bytes=limit), model.blocks[0].mixer.k
        trace.names()
        calls[limit] = []
        keys.register_forward_hook(lambda *_, found=calls[limit]: found.append(1))
        trace.difference()
    assert len(calls[40_000]) == len(calls[1 << 20]) < 60
