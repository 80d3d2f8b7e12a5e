"""Identities 8 and 12 for the selective scan and for Mamba's layer."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from contract.cases import assert_same, call_of, drawn
from glassformer.edit import replace
from glassformer.errors import SettingError
from glassformer.mixers import scan as scans
from glassformer.mixers.mamba import Mamba, MambaSpec
from glassformer.mixers.scan import recurrent, scan, weights
from glassformer.tap import Probe

F64 = torch.float64


def inputs(b=2, t=30, f=5, n=3, seed=0, dtype=F64):
    """x, delta, a, b, c and a state, drawn; some steps are so long that nothing of the past is left."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(shape, generator=generator, dtype=F64)

    delta = normal(b, t, f).exp() * torch.where(normal(b, t, f) > 2, 1000.0, 1.0)
    drawn = normal(b, t, f), delta, -normal(f, n).exp(), normal(b, t, n), normal(b, t, n), normal(b, f, n)
    return [value.to(dtype) for value in drawn]


def begins(b, t, seed):
    return torch.rand(b, t, generator=torch.Generator().manual_seed(seed)) < 0.2


@given(t=st.integers(1, 40), b=st.integers(1, 3), seed=st.integers(0, 9), packed=st.booleans())
def test_identity_8_scan_recurrence_and_weights_are_one(t, b, seed, packed):
    x, delta, a, write, read, state = inputs(b, t, seed=seed)
    first = begins(b, t, seed) if packed else None
    wanted, last = recurrent(x, delta, a, write, read, state, first)
    found, after = scan(x, delta, a, write, read, state, first)
    assert_same(found, wanted, 1e-12)
    assert_same(after, last, 1e-12)
    nothing = torch.zeros_like(state)
    alone, _ = recurrent(x, delta, a, write, read, nothing, first)
    taken = weights(delta, a, write, read, first)
    assert_same((taken @ x.mT[..., None])[..., 0].mT, alone, 1e-12)
    assert taken.triu(1).abs().max() == 0


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("blocks", [False, True])
def test_gradients_of_the_scan_are_those_of_the_recurrence(packed, blocks, monkeypatch):
    if blocks:  # the channels in blocks of two, as they are in a wide layer
        monkeypatch.setattr(scans, "NUMBERS", 1)
        monkeypatch.setattr(scans, "CHANNELS", 2)
    given_ = [value.requires_grad_() for value in inputs()]
    first = begins(2, 30, 1) if packed else None
    outs = [form(*given_, first) for form in (recurrent, scan)]
    sums = [(y * torch.sin(torch.arange(y.numel(), dtype=F64)).view_as(y)).sum() + h.square().sum() for y, h in outs]
    wanted, found = (torch.autograd.grad(one, given_) for one in sums)
    for a, b in zip(found, wanted, strict=True):
        assert_same(a, b, 1e-12)


def test_the_jacobian_of_the_scan_can_be_taken_all_at_once():
    x, *rest = inputs(1, 7)
    wanted = torch.autograd.functional.jacobian(lambda x: recurrent(x, *rest)[0], x)
    assert_same(torch.func.jacrev(lambda x: scan(x, *rest)[0])(x), wanted, 1e-12)
    assert_same(torch.autograd.functional.jacobian(lambda x: scan(x, *rest)[0], x, vectorize=True), wanted, 1e-12)


@pytest.mark.parametrize("packed", [False, True])
def test_second_derivatives_of_the_scan_are_those_of_the_recurrence(packed):
    given_ = [value.requires_grad_() for value in inputs(t=7)]
    first = begins(2, 7, 1) if packed else None
    found, wanted = [], []
    for form, kept in ((recurrent, wanted), (scan, found)):
        y, state = form(*given_, first)
        grads = torch.autograd.grad(y.sin().sum() + state.square().sum(), given_, create_graph=True)
        kept += torch.autograd.grad(sum(grad.sin().sum() for grad in grads), given_)
    for a, b in zip(found, wanted, strict=True):
        assert_same(a, b, 1e-12)


def test_derivatives_of_every_order_are_those_of_differences():
    given_ = [value.requires_grad_() for value in inputs(1, 5, f=2, n=2, seed=1)]
    assert torch.autograd.gradcheck(scan, given_)
    assert torch.autograd.gradgradcheck(scan, given_)
    x, *rest = (value.detach() for value in given_)
    jacrev = torch.func.jacrev
    found, wanted = (
        jacrev(jacrev(lambda delta, form=form: form(x, delta, *rest[1:])[0].square().sum()))(rest[0])
        for form in (scan, recurrent)
    )
    assert_same(found, wanted, 1e-12)


@pytest.mark.filterwarnings("ignore:.*should not be instantiated")  # PyTorch's compiler does so itself
def test_a_training_step_compiles_as_one_graph():
    torch._dynamo.reset()
    given_ = [value.requires_grad_() for value in inputs(1, 9)]
    compiled = torch.compile(lambda *v: scan(*v)[0].square().sum(), backend="eager", fullgraph=True)
    found, wanted = (torch.autograd.grad(f(*given_), given_) for f in (compiled, lambda *v: scan(*v)[0].square().sum()))
    for a, b in zip(found, wanted, strict=True):
        assert_same(a, b, 1e-12)
    torch._dynamo.reset()


def test_identity_12_with_constant_steps_mamba_is_a_convolution():
    """Δ, B and C the same for every token: y = x ∗ K + D x with K_j = Σ_n C exp(Δ A)^j Δ B in each channel."""
    layer, t = drawn(Mamba(MambaSpec(state=3), 16)).double(), 12
    u = torch.randn(2, t, 16, generator=torch.Generator().manual_seed(2), dtype=F64)
    delta = torch.rand(layer.channels, generator=torch.Generator().manual_seed(3), dtype=F64)
    write, read = torch.randn(2, 3, generator=torch.Generator().manual_seed(4), dtype=F64)
    probe = Probe(edits=(replace("delta", delta), replace("b", write), replace("c", read)))
    with torch.no_grad():
        layer.parallel(u, call_of(t, probe))
        x, y = probe.values["x"], probe.values["y"]
        powers = (-layer.a_log.exp() * delta[:, None])[..., None] * torch.arange(t, dtype=F64)
        kernel = (read[:, None] * write[:, None] * powers.exp()).sum(1) * delta[:, None]  # f t
        wanted = F.conv1d(F.pad(x.mT, (t - 1, 0)), kernel.flip(1)[:, None], groups=len(kernel)).mT + layer.skip * x
        assert_same(y, wanted, 1e-12)
        toeplitz = probe.values["weights"]
        assert_same(toeplitz[:, :, 1:, 1:], toeplitz[:, :, :-1, :-1], 1e-12)


def test_identity_12_with_one_number_the_scan_is_a_gated_rnn():
    """Theorem 1 of Gu & Dao 2023: n = 1, A = -1, B = 1, Δ = softplus(z), x held over the step (zero-order hold) give
    h_t = (1 - g_t) h_{t-1} + g_t x_t with the gate g_t = σ(z_t). It holds of the scan: the layer, as published, writes
    Δ x B in the place of the held (1 - e^{-Δ}) x, to which it is equal for small steps."""
    b, t, f = 2, 20, 4
    z, x = torch.randn(2, b, t, f, generator=torch.Generator().manual_seed(5), dtype=F64)
    one, delta = torch.ones(b, t, 1, dtype=F64), F.softplus(z)
    found, _ = scan((1 - torch.exp(-delta)) * x, delta, -torch.ones(f, 1, dtype=F64), one, one, one.new_zeros(b, f, 1))
    h, g = torch.zeros(b, f, dtype=F64), torch.sigmoid(z)
    for i in range(t):
        h = (1 - g[:, i]) * h + g[:, i] * x[:, i]
        assert_same(found[:, i], h, 1e-12)


def test_mamba_by_hand():
    """Two tokens, step by step from the weights as the paper writes them (section 3.4 and algorithm 2)."""
    layer = drawn(Mamba(MambaSpec(expand=1, state=2, conv=2, rank=1), 3)).double()
    u = torch.randn(1, 2, 3, generator=torch.Generator().manual_seed(6), dtype=F64)
    w = {name: value.detach() for name, value in layer.named_parameters()}
    h, before, outs = torch.zeros(3, 2, dtype=F64), torch.zeros(3, dtype=F64), []
    for token in u[0]:
        x, z = w["into.weight"][:3] @ token, w["into.weight"][3:] @ token
        conv = w["conv.bias"] + w["conv.weight"][:, 0, 0] * before + w["conv.weight"][:, 0, 1] * x
        before, x = x, conv * torch.sigmoid(conv)
        low, write, read = (w["select.weight"] @ x).split((1, 2, 2))
        delta = torch.log1p(torch.exp(w["delta_weight"] @ low + w["delta_bias"]))
        decay = torch.exp(delta[:, None] * -torch.exp(w["a_log"]))
        h = decay * h + torch.outer(delta * x, write)
        y = h @ read + w["skip"] * x
        outs.append(w["out.weight"] @ (y * z * torch.sigmoid(z)))
    with torch.no_grad():
        assert_same(layer.parallel(u, call_of(2))[0], torch.stack(outs), 1e-12)


def test_step_sizes_start_in_their_range():
    torch.manual_seed(0)
    layer = Mamba(MambaSpec(delta_min=0.01, delta_max=0.2), 64)
    layer.draw(None)
    delta = F.softplus(layer.delta_bias)
    assert 0.01 <= delta.min() < 0.015 and 0.15 < delta.max() <= 0.2
    assert delta.log().std() > 0.5  # spread over the whole range, evenly in the logarithm
    assert torch.equal(layer.a_log[3].exp().round(), torch.arange(1.0, 17))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"state": 0}, r"^state: 0 is not allowed; use 1 or more"),
        ({"delta_min": 0.0}, r"^delta_min: 0.0 is not allowed; use more than 0"),
        ({"delta_min": 0.5}, r"^delta_min: 0.5 is above delta_max=0.1; use at most that"),
    ],
)
def test_settings_that_mean_nothing_are_refused(settings, message):
    with pytest.raises(SettingError, match=message):
        MambaSpec(**settings)
