"""Statements S4 and S5 and the identity of shifts: convolutions over tokens by hand, and how far they look."""

import itertools

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
    (ConvSpec(width=3, gate=True),) * 2,
    (ConvSpec(width=3, causal=False), ConvSpec(width=5, causal=False)),
    (TcnSpec(width=2, dilation=1), TcnSpec(width=2, dilation=2)),
]


@pytest.mark.parametrize("mixers", SHIFTED)
@given(shift=st.integers(1, 6))
def test_s4_a_shift_of_the_input_shifts_the_features(mixers, shift):
    """To the last bit, wherever the receptive field lies inside of both texts."""
    model, tokens = drawn(build_model(stack(*(BlockSpec(mixer=m) for m in mixers), head=None))), tokens_of(1, 30)
    reach = cost(model.spec, 30).reach
    ahead = 0 if model.causal else reach
    with torch.no_grad():
        here, there = model(tokens[:, : 30 - shift]), model(tokens[:, shift:])
    inside = slice(reach, 30 - 2 * shift - ahead)
    assert inside.stop - inside.start >= 2
    moved = here[:, shift:][:, inside]
    assert torch.equal(there[:, inside], moved)
    assert not torch.equal(here[:, : 30 - 2 * shift][:, inside], moved)


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


@given(
    mixers=st.lists(st.tuples(st.integers(0, 3), st.integers(1, 3), st.booleans()), max_size=4),
    distance=st.integers(0, 14),
)
def test_the_path_is_the_shortest_of_all_ways(mixers, distance):
    """Against trying every way: each mixer carries a token by one of its strides, or not at all."""
    costs = [
        Cost(0, reach=None if far else places * stride, stride=stride, recurrent=far) for places, stride, far in mixers
    ]
    hops = [[0, *range(one.stride, one.reach + 1, one.stride)] for one in costs if one.reach]
    found = []
    for way in itertools.product(*hops):
        used, left = sum(hop > 0 for hop in way), distance - sum(way)
        if left == 0 or (left > 0 and any(one.recurrent for one in costs)):
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
