"""Identity 8 for S4D: the convolution by Fourier, the loop and the effective weights are one; and the continuous system
that it stands for."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from contract.cases import assert_same, call_of, drawn
from glassformer.errors import SettingError
from glassformer.mixers.s4 import S4D, S4DSpec, as_complex, convolved, kernel, recurrent
from glassformer.tap import Probe

F64 = torch.float64


def layer_of(dim=5, **settings):
    settings = {"state": 6, "delta_min": 0.1, "delta_max": 1.0} | settings
    return drawn(S4D(S4DSpec(**settings), dim)).double()


def normal(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=F64)


@given(t=st.integers(1, 60), seed=st.integers(0, 9))
def test_identity_8_convolution_and_loop_are_one(t, seed):
    with torch.no_grad():
        system, u, state = layer_of().system(), normal(2, t, 5, seed=seed), normal(2, 5, 6, seed=seed + 1)
        wanted, last = recurrent(u, system, state)
        found, after = convolved(u, system, state, True)
        assert_same(found, wanted, 1e-12)
        assert_same(after, last, 1e-12)
        alone, _ = recurrent(u, system, torch.zeros_like(state))
        assert_same(convolved(u, system, None, False)[0], alone, 1e-12)


def test_gradients_of_the_convolution_are_those_of_the_loop():
    layer, u, state = layer_of(), normal(2, 30, 5), normal(2, 5, 6, seed=1).requires_grad_()
    # D and what comes after it take no part in the systems.
    inputs = [u.requires_grad_(), state, layer.log_delta, layer.a_log, layer.a_imag, layer.c]
    grads = []
    for y, last in (recurrent(u, layer.system(), state), convolved(u, layer.system(), state, True)):
        grads.append(torch.autograd.grad((y * normal(*y.shape, seed=2)).sum() + last.square().sum(), inputs))
    for a, b in zip(*grads, strict=True):
        assert_same(b, a, 1e-12)


def test_the_weights_times_the_input_are_what_is_read_and_shift_with_the_token():
    layer, u, probe = layer_of(), normal(2, 9, 5), Probe()
    with torch.no_grad():
        layer.parallel(u, call_of(9, probe))
        w = probe.values["weights"]
        assert_same(torch.einsum("bdts,bsd->btd", w, u) + layer.skip * u, probe.values["y"], 1e-12)
        assert torch.equal(w[:, :, 1:, 1:], w[:, :, :-1, :-1]) and torch.equal(w[0, :, :, 0], kernel(layer.system(), 9))
        assert w.triu(1).abs().max() == 0


def test_the_kernel_by_its_formula():
    layer = layer_of(2, state=4)
    with torch.no_grad():
        found = kernel(layer.system(), 7)
        for feature in range(2):
            step = math.exp(layer.log_delta[feature])
            for j in range(7):
                total = 0.0
                for n in range(2):
                    a = complex(-math.exp(layer.a_log[feature, n]), float(layer.a_imag[feature, n]))
                    keep = complex(torch.exp(torch.tensor(step * a)))
                    total += 2 * (complex(*layer.c[feature, n].tolist()) * keep**j * (keep - 1) / a).real
                assert found[feature, j].item() == pytest.approx(total, rel=1e-6)


def test_the_step_is_that_of_the_continuous_system_with_the_input_held():
    """h' = A h + u over one step Δ in many small ones (midpoint rule), u constant in it."""
    with torch.no_grad():
        layer, u, state, small = layer_of(), normal(1, 1, 5), normal(1, 5, 6, seed=1), 4000
        h = as_complex(state[0])
        a = torch.complex(-layer.a_log.exp(), layer.a_imag)
        step = layer.log_delta.exp()[:, None] / small
        for _ in range(small):
            middle = h + step / 2 * (a * h + u[0, 0, :, None])
            h = h + step * (a * middle + u[0, 0, :, None])
        found = as_complex(recurrent(u, layer.system(), state)[1][0])
        assert (found - h).abs().max() < 1e-6 * h.abs().max()
        y = 2 * (torch.view_as_complex(layer.c) * h).real.sum(-1)
        assert_same(recurrent(u, layer.system(), state)[0][0, 0], y, 1e-6)


def test_it_starts_as_published():
    torch.manual_seed(0)
    lin, inv = S4D(S4DSpec(state=8), 256), S4D(S4DSpec(state=8, start="inv"), 4)
    for layer in (lin, inv):
        layer.draw(None)
        assert torch.allclose(layer.a_log.exp(), torch.tensor(0.5))
    assert lin.a_imag[0].tolist() == pytest.approx([0, math.pi, 2 * math.pi, 3 * math.pi])
    wanted = [8 / math.pi * (8 / k - 1) for k in (1, 3, 5, 7)]
    assert inv.a_imag[2].tolist() == pytest.approx(wanted)
    step = lin.log_delta.exp()
    assert 0.001 <= step.min() < 0.0015 and 0.08 < step.max() <= 0.1
    assert lin.c.square().sum(-1).mean().item() == pytest.approx(1, rel=0.1)


def test_an_odd_state_is_refused():
    with pytest.raises(SettingError, match=r"^state: 7 is odd; use an even number"):
        S4DSpec(state=7)
    with pytest.raises(SettingError, match=r"^delta_min: 0.2 is above delta_max=0.1"):
        S4DSpec(delta_min=0.2)
