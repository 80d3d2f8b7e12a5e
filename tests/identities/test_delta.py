"""The delta rule: chunked form, loop, definition and effective weights are one function; and what the rule does."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from contract.cases import DELTA, DIM, assert_same, call_of, drawn
from glassformer.mixers import chunk as chunks
from glassformer.mixers import delta
from glassformer.mixers.chunk import gated_sum
from glassformer.mixers.delta import DeltaRule, DeltaSpec
from glassformer.mixers.deltarule import delta_sum, delta_weights, read_before, recurrent_delta
from glassformer.tap import Probe
from identities.test_chunk import edges_of

F64 = torch.float64


def inputs(seed=0, *, gated=True, b=2, t=50, h=2, e=5, f=3, strength=1.0, dtype=F64):
    """q, k (of length 1), v, β, log_decay and a state, drawn."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(shape, generator=generator, dtype=F64)

    decay = -strength * normal(b, t, h).exp() * (normal(b, t, h) > 0) if gated else None
    beta = torch.sigmoid(2 * normal(b, t, h))
    drawn_ = normal(b, t, h, e), F.normalize(normal(b, t, h, e), dim=-1), normal(b, t, h, f), beta, decay
    return [x if x is None else x.to(dtype) for x in (*drawn_, normal(b, h, e, f))]


def as_defined(q, k, v, beta, log_decay, state, valid=None, first=None):
    """S_i = α_i (I - β_i k_i k_iᵀ) S_{i-1} + β_i k_i v_iᵀ, with the matrix written out."""
    s, y = state.clone(), torch.zeros_like(v)
    b, t, h, e = q.shape
    for n in range(b):
        for i in range(t):
            if first is not None and first[n, i]:
                s[n] = 0
            for head in range(h):
                if valid is None or valid[n, i]:
                    key, rate = k[n, i, head], beta[n, i, head]
                    alpha = 1.0 if log_decay is None else log_decay[n, i, head].exp()
                    kept = alpha * (torch.eye(e, dtype=F64) - rate * torch.outer(key, key))
                    s[n, head] = kept @ s[n, head] + rate * torch.outer(key, v[n, i, head])
                y[n, i, head] = s[n, head].T @ q[n, i, head]
    return y, s


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("edges", [False, True])
def test_the_loop_is_the_definition(gated, edges):
    drawn_ = inputs(gated=gated, t=20)
    valid, first = edges_of(2, 20, 1) if edges else (None, None)
    for a, b in zip(recurrent_delta(*drawn_, valid=valid, first=first), as_defined(*drawn_, valid, first), strict=True):
        assert_same(a, b, 1e-12)


@given(
    chunk=st.integers(1, 70),
    t=st.integers(1, 70),
    gated=st.booleans(),
    strength=st.sampled_from([1e-4, 0.1, 3.0, 1e3, 1e8]),
    edges=st.booleans(),
    dtype=st.sampled_from([torch.float32, torch.bfloat16, F64]),
    seed=st.integers(0, 5),
)
def test_chunked_equals_recurrent_for_any_chunk_type_and_decay(chunk, t, gated, strength, edges, dtype, seed):
    drawn_ = inputs(seed, gated=gated, t=t, strength=strength, dtype=dtype)
    wide = torch.promote_types(dtype, torch.float32)
    drawn_[-1] = drawn_[-1].to(wide)
    valid, first = edges_of(2, t, seed) if edges else (None, None)
    found = delta_sum(*drawn_, valid=valid, first=first, chunk=chunk)
    wanted = recurrent_delta(*[x if x is None else x.to(F64) for x in drawn_], valid=valid, first=first)
    for a, b in zip(found, wanted, strict=True):
        assert a.dtype == wide
        assert_same(a.to(F64), b, 1e-12 if dtype == F64 else 3e-6)


@pytest.mark.parametrize("gated", [False, True])
def test_weights_times_values_and_what_the_state_gives_are_the_sum(gated):
    q, k, v, beta, decay, state = inputs(3, gated=gated, t=45)
    valid, first = edges_of(2, 45, 3)
    for places in ({}, {"valid": valid, "first": first}):
        weights = delta_weights(q, k, beta, decay, **places)
        assert weights.shape == (2, 2, 45, 45) and not weights.triu(1).any()
        found = torch.einsum("bhts,bshf->bthf", weights, v) + read_before(q, k, weights, decay, state, **places)
        assert_same(found, recurrent_delta(q, k, v, beta, decay, state, **places)[0], 1e-12)


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("t", [30, 150])
def test_gradients_of_the_chunked_form_are_those_of_the_loop(gated, t, monkeypatch):
    monkeypatch.setattr(chunks, "SPAN", 1)  # the longer one in spans of one chunk
    valid, first = edges_of(2, t, 5)
    grads = []
    for form in (lambda *x, **y: delta_sum(*x, **y, chunk=8), recurrent_delta):
        drawn_ = [x if x is None else x.requires_grad_() for x in inputs(5, gated=gated, t=t)]
        y, state = form(*drawn_, valid=valid, first=first)
        loss = (y * y.detach().sin()).sum() + state.square().sum()
        grads.append(torch.autograd.grad(loss, [x for x in drawn_ if x is not None]))
    for a, b in zip(*grads, strict=True):
        assert_same(a, b, 1e-11)


# ---------------------------------------------------------------- what the rule does


def test_what_is_written_at_a_key_replaces_what_was_there_and_a_sum_keeps_both():
    """β = 1: reading at a key gives the newest value written there, whatever else was written at right angles to it."""
    keys = torch.linalg.qr(torch.randn(5, 5, dtype=F64, generator=torch.Generator().manual_seed(1)))[0]
    order = torch.tensor([0, 1, 2, 0, 3, 1, 0])
    k, v = keys[order][None, :, None], torch.randn(1, 7, 1, 3, dtype=F64, generator=torch.Generator().manual_seed(2))
    _, state = delta_sum(k, k, v, torch.ones(1, 7, 1, dtype=F64))
    newest = {0: 6, 1: 5, 2: 2, 3: 4}
    for key, place in newest.items():
        assert_same(keys[key] @ state[0, 0], v[0, place, 0], 1e-12)
    assert (keys[4] @ state[0, 0]).abs().max() < 1e-12
    _, both = gated_sum(k, k, v)
    assert_same(keys[1] @ both[0, 0], v[0, 1, 0] + v[0, 5, 0], 1e-12)


def test_at_keys_at_right_angles_the_delta_rule_with_decay_is_the_gated_sum():
    k = torch.eye(6, dtype=F64)[None, :, None]
    v, q = torch.randn(1, 6, 1, 3, dtype=F64), torch.randn(1, 6, 1, 6, dtype=F64)
    decay = -torch.rand(1, 6, 1, dtype=F64)
    for a, b in zip(delta_sum(q, k, v, torch.ones(1, 6, 1), decay), gated_sum(q, k, v, decay), strict=True):
        assert_same(a, b, 1e-12)


# ---------------------------------------------------------------- the layer


def layer_of(spec):
    layer = drawn(DeltaRule(spec, DIM)).double()
    return layer, torch.randn(1, 20, DIM, generator=torch.Generator().manual_seed(8)).double()


@torch.no_grad()
def test_deltanet_and_gated_deltanet_by_their_equations():
    for decay in (False, True):
        layer, x = layer_of(DeltaSpec(heads=2, conv=3, decay=decay, gate=decay))
        columns = torch.cat([x[0] @ p.weight.T for p in (layer.q, layer.k, layer.v)], -1)
        kernel, mixed = layer.conv.weight[:, 0], torch.zeros_like(columns)
        for i in range(20):
            for back in range(min(3, i + 1)):
                mixed[i] += kernel[:, 2 - back] * columns[i - back]
        q, k, v = F.silu(mixed).view(20, 3, 2, 8).unbind(1)
        q, k = q / q.norm(dim=-1, keepdim=True), k / k.norm(dim=-1, keepdim=True)
        beta, log_decay = torch.sigmoid(x[0] @ layer.beta.weight.T), None
        if decay:
            size = torch.log(1 + torch.exp(x[0] @ layer.step_size.weight.T + layer.step_size.bias))
            log_decay = (-layer.log_rate.exp() * size)[None]
        zero = torch.zeros(1, 2, 8, 8, dtype=F64)
        z, _ = as_defined(q[None], k[None], v[None], beta[None], log_decay, zero)
        z = z / (z.square().mean(-1, keepdim=True) + 1e-6).sqrt() * layer.norm.weight
        if decay:
            z = z * F.silu(x @ layer.gate.weight.T).view(1, 20, 2, 8)
        assert_same(layer.parallel(x, call_of(20)), z.flatten(2) @ layer.out.weight.T, 1e-10)


@torch.no_grad()
@pytest.mark.parametrize("name", DELTA)
def test_identity_8_parallel_is_recurrent_is_chunked(name, monkeypatch):
    layer, x = layer_of(DELTA[name])
    wanted = layer.parallel(x, call_of(20))
    forms = [recurrent_delta] + [lambda *a, c=c, **b: delta_sum(*a, **b, chunk=c) for c in (1, 4, 16)]
    for form in forms:
        monkeypatch.setattr(delta, "delta_sum", form)
        assert_same(layer.parallel(x, call_of(20)), wanted, 1e-11)


@torch.no_grad()
@pytest.mark.parametrize("name", DELTA)
def test_effective_weights_times_values_are_the_output(name):
    layer, x = layer_of(DELTA[name])
    probe = Probe()
    out = layer.parallel(x, call_of(20, probe))
    assert_same(out, layer.parallel(x, call_of(20)), 1e-11)
    z = torch.einsum("bhts,bshf->bthf", probe.values["weights"], probe.values["v"])
    assert_same(probe.values["z"], z, 1e-11)
    z = z if layer.norm is None else layer.norm(z)
    z = z if layer.gate is None else z * probe.values["gate"]
    bias = 0 if layer.out.bias is None else layer.out.bias
    assert_same(out, z.flatten(-2) @ layer.out.weight.T + bias, 1e-11)
    assert_same(out, probe.values["head_out"].sum(2) + bias, 1e-12)
    for short in ("q", "k"):
        assert_same(probe.values[short].norm(dim=-1), torch.ones(1, 20, layer.heads).double(), 1e-12)


def test_how_decays_start():
    """α at a token that says nothing: between e^(-16·0.1) and e^(-1·0.001)."""
    torch.manual_seed(0)
    layer = DeltaRule(DeltaSpec(heads=64, decay=True, key_dim=2, value_dim=2), DIM)
    layer.draw(None)
    rate, size = layer.log_rate.exp(), F.softplus(layer.step_size.bias)
    assert 1 <= rate.min() < 2 and 15 < rate.max() <= 16
    assert 0.001 <= size.min() < 0.0015 and 0.07 < size.max() <= 0.1001
