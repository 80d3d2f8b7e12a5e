"""Statements S4 and S5 and the identity of shifts: convolutions over tokens by hand, and how far they look."""

import itertools
import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from contract.cases import assert_same, call_of, drawn, stack, tokens_of
from glassformer.call import Call
from glassformer.errors import SettingError
from glassformer.explain.cost import cost, path
from glassformer.mixers.base import Cost
from glassformer.mixers.conv import Convolution, ConvSpec, TcnLevel, TcnSpec
from glassformer.model import BlockSpec, build_model
from glassformer.named import preset
from glassformer.nn.channel import MlpSpec
from glassformer.nn.init import InitSpec, initialise

N, WIDE = 9, 4


def layer(spec) -> Convolution | TcnLevel:
    kind = Convolution if isinstance(spec, ConvSpec) else TcnLevel
    return drawn(kind(spec, WIDE)).double()


def inputs(t: int = N, seed: int = 0) -> torch.Tensor:
    return torch.randn(1, t, WIDE, generator=torch.Generator().manual_seed(seed)).double()


def by_hand(kernel, x, first: int, dilation: int) -> torch.Tensor:
    """The article's formula with four loops: the weight u = 0 is for the token `first` places after the output's."""
    out = torch.zeros(len(x), kernel.out_channels, dtype=torch.float64)
    for t, k in itertools.product(range(len(x)), range(kernel.out_channels)):
        out[t, k] = 0 if kernel.bias is None else kernel.bias[k]
        for u in range(kernel.kernel_size[0]):
            at = t + first + u * dilation
            for c in range(WIDE):
                if 0 <= at < len(x) and (kernel.groups == 1 or c == k):
                    out[t, k] += kernel.filters[k, 0 if kernel.groups > 1 else c, u] * x[at, c]
    return out


FORMULAS = {
    "causal": (ConvSpec(width=3), -2),
    "dilated": (ConvSpec(width=3, dilation=2, bias=False), -4),
    "one token": (ConvSpec(width=1, dilation=2), 0),
    "depthwise": (ConvSpec(width=4, depthwise=True), -3),
    "centred": (ConvSpec(width=3, dilation=2, causal=False), -2),
    "centred depthwise": (ConvSpec(width=5, causal=False, depthwise=True), -2),
}


@pytest.mark.parametrize("name", FORMULAS)
@torch.no_grad()
def test_s4_the_formula_by_hand(name):
    spec, first = FORMULAS[name]
    mixer, x = layer(spec), inputs()
    wanted = by_hand(mixer.conv, x[0], first, spec.dilation)
    plain = mixer.parallel(x, call_of(N))
    gathered = mixer.parallel(x, Call(torch.arange(N)[None]))  # the other form of the same sums
    assert_same(plain[0], wanted, 1e-12)
    assert_same(gathered[0], wanted, 1e-12)


@torch.no_grad()
def test_s4_the_gate_and_the_level_by_hand():
    x = inputs()
    gated = layer(ConvSpec(width=3, gate=True))
    wanted = by_hand(gated.conv, x[0], -2, 1) * torch.sigmoid(by_hand(gated.gate, x[0], -2, 1))
    assert_same(gated.parallel(x, call_of(N))[0], wanted, 1e-12)

    level = layer(TcnSpec(width=2, dilation=2))
    for kernel in (level.first, level.second):  # weight normalisation: the gain is the length of each filter
        assert_same(kernel.filters.flatten(1).norm(dim=1), kernel.gain.abs(), 1e-12)
        direction = F.normalize(kernel.weight.flatten(1), dim=1) * kernel.gain.sign()[:, None]
        assert_same(F.normalize(kernel.filters.flatten(1), dim=1), direction, 1e-12)
    hidden = by_hand(level.first, x[0], -2, 2).relu()
    assert_same(level.parallel(x, call_of(N))[0], by_hand(level.second, hidden, -2, 2).relu(), 1e-12)


def test_weight_normalisation_starts_as_what_was_drawn():
    torch.manual_seed(0)
    level = TcnLevel(TcnSpec(hidden=8), WIDE)
    initialise(level, InitSpec(std=None), 1)
    assert_same(level.first.filters, level.first.weight)
    assert level.first.weight.std().item() == pytest.approx((3 * WIDE) ** -0.5, rel=0.3)
    assert TcnLevel(TcnSpec(weight_norm=False), WIDE).first.gain is None


SHIFTED = [
    (ConvSpec(width=3), ConvSpec(width=2, dilation=2, depthwise=True)),
    (ConvSpec(width=3, causal=False), ConvSpec(width=3, dilation=2, causal=False)),
    (TcnSpec(width=2, dilation=1, weight_norm=False), TcnSpec(width=2, dilation=2, weight_norm=False)),
]


def of_whole_numbers(*mixers):
    """A model whose every sum is exact in double precision, in whatever order a kernel adds."""
    blocks = (BlockSpec(mixer=mixer, channel=MlpSpec(activation="relu"), norm=None) for mixer in mixers)
    model = drawn(build_model(stack(*blocks, norm=None, head=None))).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3).round_()
    return model


@pytest.mark.parametrize("mixers", SHIFTED)
@given(shift=st.integers(1, 6))
def test_s4_a_shift_of_the_input_shifts_the_features(mixers, shift):
    """To the last bit, wherever the receptive field lies inside of both texts."""
    model, tokens = of_whole_numbers(*mixers), tokens_of(1, 30)
    reach = cost(model.spec, 30).reach
    ahead = 0 if model.causal else reach
    with torch.no_grad():
        here, there = model(tokens[:, : 30 - shift]), model(tokens[:, shift:])
    assert 100 < here.abs().max() < 2**50 and torch.equal(here, here.round())
    inside = slice(reach, 30 - 2 * shift - ahead)
    moved = here[:, shift:][:, inside]
    assert moved.shape[1] >= 2
    assert torch.equal(there[:, inside], moved)
    assert not torch.equal(here[:, inside], moved)
    assert not torch.equal(there[:, 0], here[:, shift])  # at the edge the shifted text lacks what lay before


def support(model, tokens) -> list[int]:
    """How far behind the last token those lie that its vector depends on."""
    x, _ = model.embed(tokens, call_of(tokens.shape[1]))
    x = x.detach().requires_grad_()
    y = x
    for block in model.blocks:
        y, _ = block(y, call_of(tokens.shape[1]))
    (gradient,) = torch.autograd.grad(y[0, -1].square().sum(), x)
    seen = gradient[0].abs().amax(1) > 0
    return [tokens.shape[1] - 1 - i for i in seen.nonzero().flatten().tolist()]


@pytest.mark.parametrize(("width", "levels"), [(2, 1), (2, 3), (3, 2), (4, 2)])
def test_s5_the_receptive_field_of_a_tcn_is_that_of_the_formula(width, levels):
    """1 + 2(k-1)(2^L - 1), the settings' cost and the support of the Jacobian are one number, without a gap."""
    field = 1 + 2 * (width - 1) * (2**levels - 1)
    model = drawn(build_model(preset("tcn", vocab=23, dim=32, blocks=levels, width=width))).double()
    assert cost(model.spec, 4).reach == field - 1
    assert sorted(support(model, tokens_of(1, field + 5))) == list(range(field))


def test_s5_far_relations_need_depth():
    """Undilated convolutions reach (k-1) further with each layer, so that the layers needed grow with the distance;
    with dilations of 1, 2, 4 … with its logarithm."""
    same = [cost(stack(*[BlockSpec(mixer=ConvSpec(width=3))] * layers), 100).reach for layers in (1, 2, 4, 8)]
    assert same == [2, 4, 8, 16]
    doubled = [cost(preset("tcn", vocab=23, dim=8, blocks=levels), 100).reach for levels in (1, 2, 3, 8)]
    assert doubled == [4, 12, 28, 1020]
    assert cost(preset("tcn", vocab=23, dim=8, blocks=3), 29).path == 3  # 28 places away: through every level
    assert cost(preset("tcn", vocab=23, dim=8, blocks=3), 30).path is None


def recall_loss(levels: int, lag: int = 9, steps: int = 120) -> float:
    """Nats at which a TCN names the token that lay `lag` tokens before, on texts it has not seen."""
    torch.manual_seed(0)
    model = build_model(preset("tcn", vocab=4, dim=24, blocks=levels, width=2, dropout=0))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

    def loss() -> torch.Tensor:
        text = torch.randint(4, (32, 24))
        return F.cross_entropy(model(text)[:, lag:].flatten(0, 1), text[:, :-lag].flatten())

    for _ in range(steps):
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()
    with torch.no_grad():
        return loss().item()


def test_s5_a_tcn_shorter_than_the_lag_fails():
    """Two levels see 7 tokens, three 15; what lay 9 before is a fair guess of one in four for the first."""
    assert recall_loss(levels=2) > 0.95 * math.log(4)
    assert recall_loss(levels=3) < 0.1


@given(
    mixers=st.lists(st.tuples(st.integers(0, 3), st.integers(1, 3), st.booleans()), max_size=4),
    distance=st.integers(0, 14),
)
def test_the_path_is_the_shortest_of_all_ways(mixers, distance):
    """Against trying every way: each mixer carries a token by one of its strides, or not at all."""
    costs = [
        Cost(0, reach=None if far else places * stride, stride=stride, relay=int(far)) for places, stride, far in mixers
    ]
    hops = [[0, *range(one.stride, one.reach + 1, one.stride)] for one in costs if one.reach]
    found = []
    for way in itertools.product(*hops):
        used, left = sum(hop > 0 for hop in way), distance - sum(way)
        if left == 0 or (left > 0 and any(one.relay for one in costs)):
            found.append(used + (left + 1 if left else 0))
    assert path(costs, distance) == min(found, default=None)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"width": 0}, r"^width: 0 is not allowed; use 1 or more"),
        ({"dilation": 0}, r"^dilation: 0 is not allowed"),
        ({"width": 4, "causal": False}, r"^width: 4 has no middle.*use an odd width, or causal=true"),
    ],
)
def test_settings_that_make_no_convolution_are_refused(settings, message):
    with pytest.raises(SettingError, match=message):
        ConvSpec(**settings)


def test_cards_say_what_this_kernel_computes():
    wanted = {
        "b + Σ_u W_u x_{t−2+u}": ConvSpec(),
        "Σ_u W_u x_{t−4+2u}": ConvSpec(dilation=2, bias=False),
        "b + Σ_u W_u ⊙ x_{t−1+u}": ConvSpec(causal=False, depthwise=True),
        "(x∗W+b)⊙σ(x∗V+c)": ConvSpec(gate=True),
    }
    for formula, spec in wanted.items():
        assert layer(spec).cards["out"].formula == formula
    assert layer(TcnSpec(dilation=4)).cards["out"].formula == "ReLU(b₂ + Σ_u W₂_u h_{t−8+4u})"
    block = build_model(stack(BlockSpec(mixer=ConvSpec(), residual=False))).blocks[0]
    assert block.cards["resid_mid"].symbol == "Conv" and "attention" not in block.cards["resid_mid"].en
    assert block.mixer.cards["out"].en == "What the convolution puts in the place of this token's vector."
    assert block.mixer.cards["out"].ko == "이 토큰 벡터를 대신하는, 합성곱의 출력입니다."
