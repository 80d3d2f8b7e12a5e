"""Linear attention, retention and gated linear attention against the equations of their papers, identity 8, and the
effective weights, which times the values are the layer's output."""

import math

import pytest
import torch
import torch.nn.functional as F

from contract.cases import DIM, LINEAR, assert_same, call_of, drawn
from glassformer.mixers import MIXERS, linear
from glassformer.mixers.chunk import gated_sum, recurrent_sum
from glassformer.mixers.linear import FixedDecaySpec, GatedDecaySpec, LinearAttention, LinearSpec, log_decays
from glassformer.nn.norm import LayerNormSpec, RMSNormSpec
from glassformer.nn.position import RopeSpec
from glassformer.tap import Probe

BARE = LayerNormSpec(weight=False, bias=False)


def layer_of(spec):
    """The layer alone, in fp64 with random weights, and an input `1 t d`."""
    layer = drawn(MIXERS[type(spec)](spec, DIM)).double()
    return layer, torch.randn(1, 20, DIM, generator=torch.Generator().manual_seed(8)).double()


def heads_of(projection, x, heads):
    """x W of each head, `h t e`."""
    return (x @ projection.weight.T).view(x.shape[0], heads, -1).transpose(0, 1)


@torch.no_grad()
def test_linear_attention_by_equation_12():
    layer, x = layer_of(LinearSpec(heads=2))
    q, k, v = (heads_of(p, x[0], 2) for p in (layer.q, layer.k, layer.v))
    z = torch.zeros_like(v)
    for h in range(2):
        for i in range(20):
            above, below = 0.0, 0.0
            for j in range(i + 1):
                similar = ((F.elu(q[h, i]) + 1) * (F.elu(k[h, j]) + 1)).sum()
                above, below = above + similar * v[h, j], below + similar
            z[h, i] = above / below
    wanted = torch.cat(tuple(z), -1) @ layer.out.weight.T
    assert_same(layer.parallel(x, call_of(20))[0], wanted, 1e-12)


@torch.no_grad()
def test_retention_by_equations_5_and_8():
    """(Q Kᵀ ⊙ D) V with complex rotations, group norm over the heads, swish gate."""
    spec = LinearSpec(
        heads=2, feature="none", normalise=False, decay=FixedDecaySpec(fastest=1 / 4, slowest=1 / 16),
        position=RopeSpec(pairing="neighbours"), norm=BARE, gate=True, value_dim=6,
    )  # fmt: skip
    layer, x = layer_of(spec)
    q, k, v = (heads_of(p, x[0], 2) for p in (layer.q, layer.k, layer.v))
    theta = 10_000.0 ** -(torch.arange(0, 8, 2).double() / 8)
    turn = torch.polar(torch.ones(20, 4).double(), torch.arange(20).double()[:, None] * theta)
    q, k = (torch.view_as_complex(y.reshape(2, 20, 4, 2)) * turn for y in (q, k))
    distance = torch.arange(20)[:, None] - torch.arange(20)
    d = [torch.where(distance >= 0, gamma ** distance.clamp(min=0).double(), 0.0) for gamma in (1 - 1 / 4, 1 - 1 / 16)]
    scores = (q @ k.conj().mT).real / math.sqrt(8) * torch.stack(d)
    y = F.group_norm((scores @ v).transpose(0, 1).reshape(20, 12), 2)
    wanted = (F.silu(x[0] @ layer.gate.weight.T) * y) @ layer.out.weight.T
    assert_same(layer.parallel(x, call_of(20))[0], wanted, 1e-10)


@torch.no_grad()
def test_gated_linear_attention_by_its_recurrence():
    spec = LinearSpec(heads=2, key_dim=4, feature="none", normalise=False, decay=GatedDecaySpec(rank=3, tau=4.0))
    layer, x = layer_of(spec)
    q, k, v = (heads_of(p, x[0], 2) for p in (layer.q, layer.k, layer.v))
    low = x[0] @ layer.decay_in.weight.T @ layer.decay_out.weight.T + layer.decay_out.bias
    alpha = torch.sigmoid(low).pow(1 / 4).view(20, 2, 4)
    z = torch.zeros_like(v)
    for h in range(2):
        s = torch.zeros(4, 8).double()
        for i in range(20):
            s = torch.diag(alpha[i, h]) @ s + torch.outer(k[h, i], v[h, i])
            z[h, i] = q[h, i] @ s / 2  # √d_k
    assert_same(layer.parallel(x, call_of(20))[0], torch.cat(tuple(z), -1) @ layer.out.weight.T, 1e-12)


def test_the_decays_of_retention():
    """γ = 1 - e^linspace(ln 1/32, ln 1/512, h); with five heads that is 1 - 2^(-5-h), the paper's default."""
    found = log_decays(FixedDecaySpec(), 5, torch.device("cpu"), torch.float64).exp()
    assert_same(found, 1 - 2.0 ** (-5 - torch.arange(5).double()), 1e-12)


# ---------------------------------------------------------------- identities


@torch.no_grad()
@pytest.mark.parametrize("name", LINEAR)
def test_identity_8_parallel_is_recurrent_is_chunked(name, monkeypatch):
    layer, x = layer_of(LINEAR[name])
    wanted = layer.parallel(x, call_of(20))
    forms = [recurrent_sum] + [lambda *a, c=c, **b: gated_sum(*a, **b, chunk=c) for c in (1, 4, 16)]
    for form in forms:
        monkeypatch.setattr(linear, "gated_sum", form)
        assert_same(layer.parallel(x, call_of(20)), wanted, 1e-12)


@torch.no_grad()
@pytest.mark.parametrize("name", LINEAR)
def test_effective_weights_times_values_are_the_output(name):
    layer, x = layer_of(LINEAR[name])
    probe = Probe()
    out = layer.parallel(x, call_of(20, probe))
    assert_same(out, layer.parallel(x, call_of(20)), 1e-12)
    weights = probe.values["weights"]
    z = torch.einsum("bhts,bshf->bthf", weights, probe.values["v"])
    assert_same(probe.values["z"], z, 1e-12)
    z = z if layer.norm is None else layer.norm(z)
    z = z if layer.gate is None else z * probe.values["gate"]
    bias = 0 if layer.out.bias is None else layer.out.bias
    assert_same(out, z.flatten(-2) @ layer.out.weight.T + bias, 1e-12)
    assert_same(out, probe.values["head_out"].sum(2) + bias, 1e-12)
    if layer.spec.normalise:
        assert weights.min() >= 0
        assert_same(weights.sum(-1), torch.ones(1, layer.heads, 20).double(), 1e-12)


def test_the_state_of_a_bf16_model_is_fp32():
    layer = drawn(LinearAttention(LINEAR["gla"].changed(norm=RMSNormSpec()), DIM)).bfloat16()
    assert layer.empty(1, 9, call_of(1)).matrix.dtype == torch.float32
