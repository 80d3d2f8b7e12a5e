"""Statement S3 by hand: an MLP over a window knows no order of its inputs but the one that it learns."""

import pytest
import torch
import torch.nn.functional as F

from contract.cases import VOCAB, assert_same, call_of, drawn, relative_error, stack, tokens_of
from glassformer.call import Call
from glassformer.errors import InputError, SettingError
from glassformer.explain.cost import cost
from glassformer.mixers.dense import MixingMlp, MixingSpec, WindowMlp, WindowSpec
from glassformer.model import BlockSpec, build_model
from glassformer.named import preset
from glassformer.nn.init import InitSpec, initialise

N, WIDE = 9, 4


def inputs(t: int = N, seed: int = 0) -> torch.Tensor:
    return torch.randn(1, t, WIDE, generator=torch.Generator().manual_seed(seed)).double()


@torch.no_grad()
def test_s3_the_window_by_hand():
    mixer, x = drawn(WindowMlp(WindowSpec(window=3, hidden=5), WIDE)).double(), inputs()
    found = mixer.parallel(x, call_of(N))[0]
    for t in range(N):
        window = torch.cat([x[0, i] if i >= 0 else torch.zeros(WIDE).double() for i in (t - 2, t - 1, t)])
        wanted = mixer.down.weight @ torch.tanh(mixer.up.weight @ window + mixer.up.bias) + mixer.down.bias
        assert_same(found[t], wanted, 1e-12)


@torch.no_grad()
def test_the_mixing_by_hand():
    """Each feature alone, over all positions; a shorter text is one that zeros fill up to the length."""
    mixer, x = drawn(MixingMlp(MixingSpec(length=12, hidden=5), WIDE)).double(), inputs()
    found = mixer.parallel(x, call_of(N))[0]
    for feature in range(WIDE):
        line = torch.zeros(12).double()
        line[:N] = x[0, :, feature]
        wanted = mixer.down.weight @ F.gelu(mixer.up.weight @ line + mixer.up.bias) + mixer.down.bias
        assert_same(found[:, feature], wanted[:N], 1e-12)


WINDOW = 4
ORDERS = {"window": [2, 0, 3, 1], "mixing": [5, 1, 7, 0, 3, 6, 2, 4]}


def trained(mixer, weights, order: list[int], steps: int = 5) -> tuple[list[float], torch.Tensor]:
    """The losses and the first layer's weights of a training on texts whose places were put in another order."""
    first, width = mixer.up.weight, mixer.up.weight.shape[1] // len(order)
    mixer.load_state_dict(weights)
    with torch.no_grad():
        first.copy_(first.unflatten(1, (-1, width))[:, order].flatten(1))
    optimizer, losses = torch.optim.Adam(mixer.parameters(), lr=0.03), []
    for step in range(steps):
        x, wanted = inputs(len(order), step), inputs(len(order), 100 + step)
        given = x[:, order]
        call = call_of(len(order))
        if isinstance(mixer, WindowMlp):  # the last place sees all of the window
            loss = (mixer.parallel(given, call)[0, -1] - wanted[0, -1]).square().mean()
        else:
            loss = (mixer.parallel(given, call).mean(1) - wanted.mean(1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    back = torch.tensor(order).argsort()
    return losses, first.detach().unflatten(1, (-1, width))[:, back].flatten(1)


@pytest.mark.parametrize("name", ORDERS)
def test_s3_inputs_permuted_together_with_the_weights_change_nothing(name):
    """Neither the function nor the whole trajectory of its training: no order of the inputs is preferred."""
    order = ORDERS[name]
    spec = WindowSpec(window=WINDOW) if name == "window" else MixingSpec(length=len(order), hidden=6)
    mixer = drawn((WindowMlp if name == "window" else MixingMlp)(spec, WIDE)).double()
    if name == "mixing":  # read as one vector for the text, so that only the order of the inputs differs
        torch.nn.init.constant_(mixer.down.weight, 0.3)
    weights = {key: value.clone() for key, value in mixer.state_dict().items()}
    losses, first = trained(mixer, weights, list(range(len(order))))
    permuted, back = trained(mixer, weights, order)
    assert permuted == pytest.approx(losses, rel=1e-9)
    assert_same(back, first, 1e-9)
    assert relative_error(first, weights["up.weight"]) > 0.01  # it did learn


@torch.no_grad()
def test_s3_without_the_weights_the_order_matters():
    mixer, x = drawn(WindowMlp(WindowSpec(window=WINDOW), WIDE)), inputs(WINDOW).float()
    found, other = (mixer.parallel(x[:, order], call_of(WINDOW))[0, -1] for order in ([0, 1, 2, 3], ORDERS["window"]))
    assert relative_error(other, found) > 0.1


@torch.no_grad()
def test_longer_texts_than_it_has_weights_for_are_refused_by_name():
    model = build_model(stack(BlockSpec(mixer=MixingSpec(length=6)))).eval()
    model(tokens_of(1, 6))
    with pytest.raises(InputError, match=r"^blocks\.0\.mixer: position 6 is beyond the 6 that it has weights for"):
        model(tokens_of(1, 7))
    pos = torch.tensor([[0, 1, 2, 6, -1]])
    with pytest.raises(InputError, match=r"give at most 6 tokens, or build the model with a larger length"):
        model(tokens_of(1, 5), pos=pos)
    with pytest.raises(SettingError, match=r"^length: 0 is not allowed; use 1 or more"):
        MixingSpec(length=0)
    with pytest.raises(SettingError, match=r"^window: 0 is not allowed; use 1 or more"):
        WindowSpec(window=0)


@torch.no_grad()
def test_a_token_is_mixed_by_its_position_wherever_it_lies_in_the_row():
    mixer, x = drawn(MixingMlp(MixingSpec(length=6), WIDE)).double(), inputs(3)
    wanted = mixer.parallel(x, call_of(3))
    order = torch.tensor([2, 0, 1])
    found = mixer.parallel(x[:, order], Call(order[None]))
    assert_same(found, wanted[:, order], 1e-12)


def test_s3_costs_are_those_of_the_formula():
    """2wdh + 2hd a token and the rest of the window kept; nothing is seen beyond it, one hop within."""
    model = preset("mlp", vocab=VOCAB, dim=10, hidden=7, window=4)
    found = cost(model, 5)
    assert found.flops == 5 * (2 * 4 * 10 * 7 + 2 * 7 * 10) + 5 * 2 * 10 * VOCAB
    assert (found.reach, found.path) == (3, None) and cost(model, 4).path == 1


def test_projections_start_as_asked_for():
    torch.manual_seed(0)
    mixer = WindowMlp(WindowSpec(window=8), 16)
    initialise(mixer, InitSpec(std=None, outputs="zero"), 1)
    assert mixer.up.weight.std().item() == pytest.approx((8 * 16) ** -0.5, rel=0.1)
    assert not mixer.down.weight.any()


def test_cards_say_what_this_mlp_computes():
    def card(mixer, name):
        return mixer.cards[name].formula

    window = WindowMlp(WindowSpec(window=6), WIDE)
    assert card(window, "pre") == "H [x_{t−5} … x_t] + d" and card(window, "out") == "U tanh(Hx+d) + b"
    bare = WindowMlp(WindowSpec(window=1, bias=False, activation="silu"), WIDE)
    assert card(bare, "pre") == "H [x_t]" and card(bare, "out") == "U σ(Hx)"
    assert card(MixingMlp(MixingSpec(bias=False), WIDE), "out") == "W₂σ(W₁X)"
