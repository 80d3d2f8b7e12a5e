"""Channel mixers: widths, gates, and the routing of experts."""

import pytest
import torch

from contract.cases import assert_same, call_of, drawn, stack
from glassformer.call import Call
from glassformer.mixers.attention import AttentionSpec
from glassformer.model import BlockSpec, build_model
from glassformer.nn.channel import ACTIVATIONS, Experts, ExpertsSpec, Gated, GatedSpec, Mlp, MlpSpec, hidden_width
from glassformer.tap import Probe


def test_hidden_widths():
    assert hidden_width(MlpSpec(), 768) == 3072 and hidden_width(MlpSpec(hidden=5), 768) == 5
    assert hidden_width(GatedSpec(), 384) == 1024
    assert hidden_width(GatedSpec(), 64) == 176  # 170.7, up to a multiple of 8
    assert hidden_width(GatedSpec(), 3) == 8


@torch.no_grad()
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_a_gate_multiplies(activation):
    layer, x = drawn(Gated(GatedSpec(hidden=5, activation=activation, bias=True), 6)), torch.randn(1, 3, 6)
    gate = ACTIVATIONS[activation](x @ layer.gate.weight.T + layer.gate.bias)
    wanted = (gate * (x @ layer.up.weight.T + layer.up.bias)) @ layer.down.weight.T + layer.down.bias
    assert_same(layer(x, call_of(3)), wanted)


def experts(active: int, count: int = 4) -> Experts:
    return drawn(Experts(ExpertsSpec(expert=MlpSpec(hidden=6), experts=count, active=active), 8))


@torch.no_grad()
@pytest.mark.parametrize("active", [1, 2, 4])
def test_each_token_goes_through_its_best_experts(active):
    layer, x = experts(active), torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(0))
    found = layer(x, call_of(5))
    for b in range(2):
        for t in range(5):
            router = (layer.router.weight @ x[b, t]).softmax(0).tolist()
            best = sorted(range(4), key=lambda m: -router[m])[:active]
            total = 1 if active == 1 else sum(router[m] for m in best)
            wanted = sum(router[m] / total * layer.experts[m](x[b, t][None, None], call_of(1))[0, 0] for m in best)
            assert_same(found[b, t], wanted)


def test_the_routed_form_equals_the_traced_one_in_value_and_gradient():
    model = drawn(build_model(stack(BlockSpec(mixer=AttentionSpec(), channel=ExpertsSpec()), dim=8)))
    layer, x = model.blocks[0].channel, torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(0))
    found, glass = layer(x, call_of(5)), layer(x, call_of(5, Probe()))
    assert_same(found.detach(), glass.detach())
    parameters = list(layer.parameters())
    for a, b in zip(*(torch.autograd.grad(out.square().sum(), parameters) for out in (found, glass)), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("active", [1, 2])
def test_the_router_learns_whatever_the_number_of_active_experts(active):
    layer, x = experts(active), torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(0))
    (gradient,) = torch.autograd.grad(layer(x, call_of(5)).square().sum(), [layer.router.weight])
    assert gradient.abs().max() > 1e-3


@torch.no_grad()
@pytest.mark.parametrize("active", [1, 2])
def test_balance_is_one_when_experts_are_used_evenly_and_larger_when_not(active):
    """Fedus et al. 2021, equation 4, times `balance`: 1 at best, experts/active where all tokens choose alike."""
    layer = Experts(ExpertsSpec(expert=MlpSpec(hidden=2), experts=4, active=active, balance=0.5), 4)
    layer.router.weight.copy_(20 * torch.eye(4) + (10 * torch.eye(4).roll(1, 0) if active == 2 else 0))

    def loss(x, pos=None) -> float:
        losses: list[torch.Tensor] = []
        layer(x, Call(torch.arange(x.shape[1])[None] if pos is None else pos, losses=losses))
        return losses[0].item()

    even = torch.eye(4)[None]
    assert loss(even) == pytest.approx(0.5, rel=0.01)
    uneven = torch.eye(4)[[0, 0, 0, 0]][None]
    assert loss(uneven) == pytest.approx(0.5 * 4 / active, rel=0.01)
    # Padding counts for nothing: four even tokens and four places without a token that all prefer expert 0.
    padded, pos = torch.cat((even, uneven), 1), torch.tensor([[0, 1, 2, 3, -1, -1, -1, -1]])
    assert loss(padded, pos) == pytest.approx(0.5, rel=0.01)


def test_no_loss_is_made_where_none_is_wanted():
    layer = Mlp(MlpSpec(), 4)
    assert experts(2)(torch.randn(1, 2, 8), call_of(2)).shape == (1, 2, 8)
    assert call_of(2).losses is None and layer(torch.randn(1, 2, 4), call_of(2)).shape == (1, 2, 4)
