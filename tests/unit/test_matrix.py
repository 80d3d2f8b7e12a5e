"""Layers with a matrix per head: settings that are refused, cards that follow the settings, and speed."""

import time

import pytest
import torch

from contract.cases import call_of, drawn, stack
from glassformer.errors import SettingError
from glassformer.mixers import MIXERS, delta, linear
from glassformer.mixers.chunk import recurrent_sum
from glassformer.mixers.delta import DeltaSpec
from glassformer.mixers.deltarule import recurrent_delta
from glassformer.mixers.linear import FixedDecaySpec, GatedDecaySpec, LinearSpec
from glassformer.model import BlockSpec, build_model
from glassformer.nn.norm import RMSNormSpec
from glassformer.nn.position import RopeSpec


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"feature": "none"}, "normalise: weights that may be negative can sum to 0; use feature=elu"),
        ({"position": RopeSpec()}, "normalise: weights that may be negative can sum to 0"),
        ({"heads": 0}, "heads: 0 is not allowed; use 1 or more"),
        ({"value_dim": 0}, "value_dim: 0 is not allowed; use 1 or more, or null"),
    ],
)
def test_settings_that_are_refused(settings, message):
    with pytest.raises(SettingError, match=f"^{message}"):
        LinearSpec(**settings)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FixedDecaySpec(fastest=1.0), "fastest: 1.0 is not allowed; use 0 to below 1"),
        (lambda: FixedDecaySpec(slowest=0.0), "slowest: 0.0 is not allowed; use more than 0"),
        (lambda: GatedDecaySpec(rank=0), "rank: 0 is not allowed"),
        (lambda: GatedDecaySpec(tau=0.0), "tau: 0.0 is not allowed"),
        (lambda: DeltaSpec(conv=0), "conv: 0 is not allowed; use 1 or more"),
    ],
)
def test_parts_that_are_refused(make, message):
    with pytest.raises(SettingError, match=f"^{message}"):
        make()


def test_widths_that_do_not_fit_are_named_when_the_model_is_built():
    def built(**settings):
        return build_model(stack(BlockSpec(mixer=LinearSpec(**settings))))

    with pytest.raises(SettingError, match=r"^blocks\.0\.mixer\.heads: 3 does not divide d=16; use 1, 2, 4.* key_dim"):
        built(heads=3)
    with pytest.raises(SettingError, match=r"^blocks\.0\.mixer\.heads: 3 does not divide d=16; .*or set value_dim"):
        built(heads=3, key_dim=4)
    with pytest.raises(SettingError, match=r"position\.share"):
        built(key_dim=3, normalise=False, position=RopeSpec())
    assert built(heads=3, key_dim=4, value_dim=5).blocks[0].mixer.v.weight.shape == (15, 16)


FORMULAS = {
    "q": {
        "elu(x_i W_Q) + 1": LinearSpec(),
        "(R_i (x_i W_Q + b)) / √d_k": LinearSpec(feature="none", normalise=False, position=RopeSpec(), bias=True),
    },
    "weights": {
        "q_i·k_j / Σ_j q_i·k_j": LinearSpec(),
        "α_h^{i−j} q_i·k_j": LinearSpec(feature="none", normalise=False, decay=FixedDecaySpec()),
        "q_iᵀ (α_i ⊙ … ⊙ α_{j+1} ⊙ k_j)": LinearSpec(feature="none", normalise=False, decay=GatedDecaySpec()),
    },
    "log_decay": {
        "ln α_h, fixed for each head": LinearSpec(decay=FixedDecaySpec()),
        "ln σ(x W_1 W_2 + b) / 8": LinearSpec(decay=GatedDecaySpec(tau=8.0)),
    },
    "out": {
        "Concat(z) W_O": LinearSpec(),
        "Concat(g ⊙ norm(z)) W_O + b_O": LinearSpec(norm=RMSNormSpec(), gate=True, out_bias=True),
    },
}


DELTA_FORMULAS = {
    "k": {
        "u/|u|, u = silu(conv(x_j W_K))": DeltaSpec(),
        "u/|u|, u = silu(x_j W_K + b)": DeltaSpec(conv=None, bias=True),
    },
    "weights": {
        "q_iᵀ A_i … A_{j+1} β_j k_j, A = I − β k kᵀ": DeltaSpec(),
        "q_iᵀ A_i … A_{j+1} β_j k_j, A = α(I − β k kᵀ)": DeltaSpec(decay=True),
    },
    "out": {"Concat(norm(z)) W_O": DeltaSpec(), "Concat(g ⊙ z) W_O": DeltaSpec(norm=None, gate=True)},
}
FORMULAS = {short: FORMULAS.get(short, {}) | DELTA_FORMULAS.get(short, {}) for short in FORMULAS | DELTA_FORMULAS}


@pytest.mark.parametrize("short", FORMULAS)
def test_formulas_are_those_of_the_layer(short):
    for formula, spec in FORMULAS[short].items():
        assert build_model(stack(BlockSpec(mixer=spec))).blocks[0].mixer.cards[short].formula == formula


SPEED = {
    "linear": LinearSpec(),
    "retention": LinearSpec(feature="none", normalise=False, decay=FixedDecaySpec()),
    "gla": LinearSpec(feature="none", normalise=False, decay=GatedDecaySpec(), key_dim=16),
    "delta": DeltaSpec(),
    "delta-gated": DeltaSpec(decay=True),
}


def seconds(work) -> float:
    """Of the processor, in the shorter of two runs after the first."""
    work()
    taken = []
    for _ in range(2):
        start = time.process_time()
        work()
        taken.append(time.process_time() - start)
    return min(taken)


@pytest.mark.slow
@pytest.mark.parametrize("name", SPEED)
def test_the_chunked_form_is_faster_than_the_loop(name, monkeypatch, capsys):
    """A layer of width 128 over 2,048 tokens, forward and back."""
    erases = isinstance(SPEED[name], DeltaSpec)
    loop = (delta, "delta_sum", recurrent_delta) if erases else (linear, "gated_sum", recurrent_sum)
    layer, x = drawn(MIXERS[type(SPEED[name])](SPEED[name], 128)), torch.randn(1, 2048, 128)
    call, taken = call_of(2048), {}
    for kind in ("chunked", "loop"):
        with torch.no_grad():
            taken[kind] = seconds(lambda: layer.parallel(x, call))
        taken[f"{kind} and back"] = seconds(lambda: layer.parallel(x, call).sum().backward())
        monkeypatch.setattr(*loop)
    with capsys.disabled():
        print(f"\n{name}:", ", ".join(f"{kind} {1000 * s:.0f} ms" for kind, s in taken.items()))
    assert taken["loop"] > 2 * taken["chunked"]
    assert taken["loop and back"] > 4 * taken["chunked and back"]
