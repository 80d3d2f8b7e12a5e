"""Norms against their formulas, and the written-out form that a probe sees."""

import math

import pytest
import torch

from contract.cases import assert_same, call_of, drawn
from glassformer.edit import scale
from glassformer.nn.init import Embedding, Linear
from glassformer.nn.norm import LayerNormSpec, Norm, RMSNormSpec
from glassformer.tap import Probe

SPECS = [
    LayerNormSpec(),
    LayerNormSpec(weight=False, bias=False, eps=0.1),
    LayerNormSpec(bias=False),
    RMSNormSpec(),
    RMSNormSpec(weight=False, eps=0.1),
    RMSNormSpec(offset=1.0),
]


def by_hand(norm: Norm, x: list[float]) -> tuple[list[float], float]:
    spec, d = norm.spec, len(x)
    mean = sum(x) / d if isinstance(spec, LayerNormSpec) else 0.0
    factor = 1 / math.sqrt(sum((a - mean) ** 2 for a in x) / d + spec.eps)
    weight = [1.0] * d if norm.weight is None else [w + getattr(spec, "offset", 0.0) for w in norm.weight.tolist()]
    bias = [0.0] * d if norm.bias is None else norm.bias.tolist()
    return [(a - mean) * factor * w + b for a, w, b in zip(x, weight, bias, strict=True)], factor


@torch.no_grad()
@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_formula_and_written_out_form(spec):
    norm, x = drawn(Norm(spec, 6)), torch.randn(2, 3, 6, generator=torch.Generator().manual_seed(0)) * 3 + 1
    probe = Probe()
    found, glass = norm(x), norm(x, call_of(3, probe))
    assert_same(glass, found, 1e-6)
    for b in range(2):
        for t in range(3):
            wanted, factor = by_hand(norm, x[b, t].tolist())
            assert found[b, t].tolist() == pytest.approx(wanted, abs=1e-5)
            assert probe.values["scale"][b, t].item() == pytest.approx(factor, rel=1e-5)


@torch.no_grad()
def test_an_edited_scale_scales_the_output():
    norm, x = Norm(RMSNormSpec(), 6), torch.randn(1, 3, 6)
    assert_same(norm(x, call_of(3, Probe(edits=(scale("scale", 2.0, t=1),))))[0, 1], 2 * norm(x)[0, 1])


@torch.no_grad()
@pytest.mark.parametrize("spec", [LayerNormSpec(), RMSNormSpec(), RMSNormSpec(offset=1.0)], ids=str)
def test_a_fresh_norm_multiplies_with_one(spec):
    x = torch.randn(4, 8)
    bare = Norm(spec.changed(weight=False) if isinstance(spec, RMSNormSpec) else LayerNormSpec(weight=False), 8)
    assert_same(Norm(spec, 8)(x), bare(x), 1e-6)
    assert Norm(spec, 8)(x).square().mean(-1).tolist() == pytest.approx([1.0] * 4, rel=1e-3)


@torch.no_grad()
@pytest.mark.parametrize("mean", [0.0, 20.0])
@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_the_written_out_form_is_as_exact_in_bf16_as_the_kernel(spec, mean):
    norm, x = drawn(Norm(spec, 64)).bfloat16(), torch.randn(4, 8, 64, generator=torch.Generator().manual_seed(0)) + mean
    x = x.bfloat16()
    fast, glass = norm(x), norm(x, call_of(8, Probe()))
    wanted = norm.double()(x.double())
    error, plain = ((form.double() - wanted).square().mean().sqrt() for form in (glass, fast))
    assert glass.dtype == torch.bfloat16 and error <= 2 * plain


def test_autocast_needs_no_second_thought():
    """Warnings are errors here: torch warns where the weight of an RMSNorm is not of the input's type."""
    norm, x = drawn(Norm(RMSNormSpec(offset=1.0), 8)), torch.randn(2, 8).bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        assert norm(x).dtype == torch.bfloat16
        norm(x).sum().backward()
    assert norm.weight.grad.isfinite().all()


@pytest.mark.parametrize("layer", [lambda: Linear(3, 2), lambda: Embedding(3, 2)])
def test_a_layer_that_nobody_has_drawn_gives_no_number(layer):
    assert all(parameter.isnan().all() for parameter in layer().parameters())
    with torch.device("meta"):
        assert all(parameter.is_meta for parameter in layer().parameters())
