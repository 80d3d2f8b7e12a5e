"""Identity 8 for Mamba-2: as published, as Mamba's scan, and as attention without a softmax."""

import pytest
import torch
import torch.nn.functional as F

from contract.cases import assert_same, call_of, drawn
from glassformer.errors import SettingError
from glassformer.mixers.mamba import Mamba, MambaSpec
from glassformer.mixers.mamba2 import Mamba2, Mamba2Spec
from glassformer.mixers.scan import recurrent
from glassformer.tap import Probe

F64 = torch.float64


def layer_and_input(spec, dim=8, t=70, batch=2):
    u = torch.randn(batch, t, dim, generator=torch.Generator().manual_seed(1), dtype=F64)
    return drawn(Mamba2(spec, dim)).double(), u


def tapped(layer, u) -> dict[str, torch.Tensor]:
    probe = Probe()
    with torch.no_grad():
        layer.parallel(u, call_of(u.shape[1], probe))
    return probe.values


@pytest.mark.parametrize("groups", [1, 2])
def test_identity_8_a_head_is_mambas_scan_with_one_decay(groups):
    """Each channel of a head by the loop of Mamba, over more than one chunk of this one."""
    layer, u = layer_and_input(Mamba2Spec(state=3, groups=groups))
    seen = tapped(layer, u)
    for head in range(4):
        x, delta = seen["x"][:, :, head], seen["delta"][:, :, head, None]
        b, c = (seen[name][:, :, head * groups // 4] for name in ("b", "c"))
        a = -layer.a_log[head].exp().expand(x.shape[-1], 3)
        y, last = recurrent(delta * x, delta.expand_as(x), a, b, c, torch.zeros(2, x.shape[-1], 3, dtype=F64))
        assert_same(seen["y"][:, :, head] - layer.skip[head] * x, y, 1e-12)
        assert_same(seen["state"][:, head].mT, last, 1e-12)


@pytest.mark.parametrize(("kind", "spec"), [(Mamba, MambaSpec(state=3)), (Mamba2, Mamba2Spec(state=3, groups=2))])
def test_the_weights_times_what_enters_are_what_is_read(kind, spec):
    layer = drawn(kind(spec, 8)).double()
    seen = tapped(layer, torch.randn(2, 9, 8, generator=torch.Generator().manual_seed(3), dtype=F64))
    x, w = seen["x"], seen["weights"]
    if kind is Mamba:
        assert_same(torch.einsum("bfts,bsf->btf", w, x) + layer.skip * x, seen["y"], 1e-12)
    else:
        assert_same(torch.einsum("bhts,bshe->bthe", w, x) + layer.skip[:, None] * x, seen["y"], 1e-12)
    assert w.triu(1).abs().max() == 0


def test_mamba2_by_hand():
    """Two tokens from the weights: what is projected, convolved, summed, gated, normalised and projected."""
    layer, u = layer_and_input(Mamba2Spec(expand=1, heads=2, state=2, conv=2), dim=4, t=2, batch=1)
    w = {name: value.detach() for name, value in layer.named_parameters()}
    h, before, outs = torch.zeros(2, 2, 2, dtype=F64), torch.zeros(8, dtype=F64), []
    for token in u[0]:
        z, xbc, delta = (w["into.weight"] @ token).split((4, 8, 2))
        conv = w["conv.bias"] + w["conv.weight"][:, 0, 0] * before + w["conv.weight"][:, 0, 1] * xbc
        before = xbc
        x, b, c = (conv * torch.sigmoid(conv)).split((4, 2, 2))
        delta = torch.log1p(torch.exp(delta + w["delta_bias"]))
        y = []
        for head in range(2):
            part = x[2 * head : 2 * head + 2]
            decay = torch.exp(-delta[head] * torch.exp(w["a_log"][head]))
            h[head] = decay * h[head] + torch.outer(b, delta[head] * part)
            y.append(h[head].T @ c + w["skip"][head] * part)
        y = torch.cat(y) * z * torch.sigmoid(z)
        outs.append(w["out.weight"] @ (y / (y.square().mean() + 1e-5).sqrt() * w["gain"]))
    with torch.no_grad():
        assert_same(layer.parallel(u, call_of(2))[0], torch.stack(outs), 1e-12)


def test_it_starts_as_published():
    torch.manual_seed(0)
    layer = Mamba2(Mamba2Spec(heads=64, delta_min=0.01, delta_max=0.2), 32)
    layer.draw(None)
    delta, a = F.softplus(layer.delta_bias), layer.a_log.exp()
    assert 0.01 <= delta.min() < 0.015 and 0.15 < delta.max() <= 0.2
    assert 1 <= a.min() < 2 and 15 < a.max() <= 16 and 7.5 < a.mean() < 9.5
    assert (layer.skip == 1).all() and (layer.gain == 1).all()


def test_heads_and_groups_that_do_not_fit_are_refused():
    with pytest.raises(SettingError, match=r"^heads: 3 does not divide expand·d=32; use 1, 2, 4, 8, 16, 32"):
        Mamba2(Mamba2Spec(heads=3), 16)
    with pytest.raises(SettingError, match=r"^groups: 3 does not divide heads=4; use 1, 2, 4"):
        Mamba2Spec(groups=3)
