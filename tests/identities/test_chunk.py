"""Identity 8 at its core: the chunked gated sum, the loop and the effective weights are one function, also where decays
are strong, documents begin and places are empty."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from contract.cases import assert_same
from glassformer.bench.memory import peak_bytes
from glassformer.mixers import chunk as chunks
from glassformer.mixers.chunk import gated_sum, read_state, recurrent_sum, sum_weights

KINDS = ("none", "head", "channel")
F64 = torch.float64


def inputs(kind, seed=0, *, b=2, t=50, h=2, e=5, f=3, strength=1.0, dtype=torch.float32):
    """q, k, v, log_decay and a state, drawn."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(shape, generator=generator, dtype=F64)

    shape = {"none": None, "head": (b, t, h), "channel": (b, t, h, e)}[kind]
    # Some decays are next to 1 and some next to 0, side by side.
    decay = None if shape is None else -strength * normal(*shape).exp() * (normal(*shape) > 0)
    drawn = normal(b, t, h, e), normal(b, t, h, e), normal(b, t, h, f), decay, normal(b, h, e, f)
    return [x if x is None else x.to(dtype) for x in drawn]


def as_defined(q, k, v, log_decay, state, valid=None, first=None):
    """The definition by itself, in fp64 and with single numbers only: no part of the code under test."""
    q, k, v, s = (x.double().clone() for x in (q, k, v, state))
    (b, t, h, e), y = q.shape, torch.zeros_like(v)
    decay = torch.ones(b, t, h, e, dtype=F64)
    if log_decay is not None:
        g = log_decay.double()
        decay = (g if g.ndim == 4 else g[..., None].expand(b, t, h, e)).exp()
    for n in range(b):
        for i in range(t):
            there = valid is None or bool(valid[n, i])
            if first is not None and first[n, i]:
                s[n] = 0
            for head in range(h):
                if there:
                    s[n, head] = decay[n, i, head][:, None] * s[n, head] + torch.outer(k[n, i, head], v[n, i, head])
                y[n, i, head] = s[n, head].T @ q[n, i, head]
    return y, s


def edges_of(b, t, seed):
    """Where a token is and where one begins a document, at random."""
    generator = torch.Generator().manual_seed(seed)
    valid = torch.rand(b, t, generator=generator) < 0.8
    return valid, valid & (torch.rand(b, t, generator=generator) < 0.1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("edges", [False, True])
def test_the_loop_is_the_definition(kind, edges):
    given_ = inputs(kind, t=20, dtype=F64)
    valid, first = edges_of(2, 20, 1) if edges else (None, None)
    found = recurrent_sum(*given_, valid=valid, first=first)
    for a, b in zip(found, as_defined(*given_, valid, first), strict=True):
        assert_same(a, b, 1e-12)


@pytest.mark.parametrize("kind", KINDS)
@given(
    chunk=st.integers(1, 70),
    t=st.integers(1, 70),
    strength=st.sampled_from([1e-4, 0.1, 3.0, 1e3, 1e8]),
    edges=st.booleans(),
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.float64]),
    seed=st.integers(0, 5),
)
def test_chunked_equals_recurrent_for_any_chunk_type_and_decay(kind, chunk, t, strength, edges, dtype, seed):
    given_ = inputs(kind, seed, t=t, strength=strength, dtype=dtype)
    wide = torch.promote_types(dtype, torch.float32)
    given_[-1] = given_[-1].to(wide)
    valid, first = edges_of(2, t, seed) if edges else (None, None)
    found = gated_sum(*given_, valid=valid, first=first, chunk=chunk)
    wanted = recurrent_sum(*[x if x is None else x.double() for x in given_], valid=valid, first=first)
    for a, b in zip(found, wanted, strict=True):
        assert a.dtype == wide
        assert_same(a.double(), b, 1e-12 if dtype == F64 else 2e-6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("strength", [0.1, 1e3])
def test_weights_times_values_and_what_the_state_gives_are_the_sum(kind, strength):
    q, k, v, decay, state = inputs(kind, 3, strength=strength, t=45)
    valid, first = edges_of(2, 45, 3)
    for places in ({}, {"valid": valid, "first": first}):
        weights = sum_weights(q, k, decay, **places)
        assert weights.shape == (2, 2, 45, 45) and not weights.triu(1).any()
        found = torch.einsum("bhts,bshf->bthf", weights, v) + read_state(q, decay, state, **places)
        assert_same(found, recurrent_sum(q, k, v, decay, state, **places)[0], 3e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_a_text_in_pieces_is_the_text(kind):
    q, k, v, decay, state = inputs(kind, 4, t=40)
    wanted = gated_sum(q, k, v, decay, state, chunk=8)
    parts = []
    for a, b in ((0, 1), (1, 22), (22, 40)):
        part, state = gated_sum(*(x if x is None else x[:, a:b] for x in (q, k, v, decay)), state, chunk=8)
        parts.append(part)
    assert_same(torch.cat(parts, 1), wanted[0], 2e-6)
    assert_same(state, wanted[1], 2e-6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("strength", [0.1, 1e4])
def test_gradients_of_the_chunked_form_are_those_of_the_loop(kind, strength):
    valid, first = edges_of(2, 30, 5)
    grads = []
    for form in (lambda *x, **y: gated_sum(*x, **y, chunk=7), recurrent_sum):
        given_ = [x if x is None else x.requires_grad_() for x in inputs(kind, 5, t=30, strength=strength, dtype=F64)]
        y, state = form(*given_, valid=valid, first=first)
        loss = (y * y.detach().sin()).sum() + state.square().sum()
        grads.append(torch.autograd.grad(loss, [x for x in given_ if x is not None]))
    for a, b in zip(*grads, strict=True):
        assert_same(a, b, 1e-11)


def test_strong_and_weak_decays_side_by_side_lose_no_digits():
    """A weight next to 1 behind a thousand decays of e^-100, where a difference of the sums would be off by 1e-2."""
    t, q = 1000, torch.ones(1, 1000, 1, 2)
    decay = torch.full((1, t, 1), -100.0)
    decay[:, -1] = -1e-3
    for log_decay in (decay, decay[..., None].expand_as(q)):
        weight = sum_weights(q, q, log_decay)[0, 0, -1, -2].double()
        assert abs(weight / (2 * math.exp(-1e-3)) - 1) < 1e-6


@pytest.mark.parametrize("kind", KINDS)
def test_a_text_of_several_spans_is_the_loop_there_and_back(kind, monkeypatch):
    monkeypatch.setattr(chunks, "SPAN", 1)  # spans of one chunk
    valid, first = edges_of(2, 150, 6)
    found = []
    for form in (gated_sum, recurrent_sum):
        given_ = [x if x is None else x.requires_grad_() for x in inputs(kind, 6, t=150, dtype=F64)]
        y, state = form(*given_, valid=valid, first=first)
        loss = (y * y.detach().sin()).sum() + state.square().sum()
        found.append((y, state, *torch.autograd.grad(loss, [x for x in given_ if x is not None])))
    for a, b in zip(*found, strict=True):
        assert_same(a, b, 1e-11)


def test_beside_its_result_a_long_text_takes_no_more_memory_than_a_span():
    def beside(t):
        given_ = inputs("channel", b=1, t=t, h=4, e=16, f=16)
        return peak_bytes(gated_sum, *given_) - 2 * given_[2].nbytes  # each span's result, and all of them joined

    assert beside(8192) < 1.2 * beside(2048)
