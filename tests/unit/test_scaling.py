"""The bench of growth: its slopes, its bounds, its formulas and what it measures."""

import pytest

from glassformer.bench import scaling
from glassformer.bench.families import FAMILIES, LENGTHS, WIDTHS, family, formula
from glassformer.bench.scaling import Growth, broken, formulas, main, measure, slope
from glassformer.mixers import MIXERS


def test_a_slope_is_the_exponent_of_a_power():
    assert slope([1, 2, 4, 8], [3, 12, 48, 192]) == pytest.approx(2)
    assert slope([256, 512, 1024], [7, 7, 7]) == pytest.approx(0)


def test_written_out_attention_grows_as_the_square_and_the_fused_one_does_not():
    fused, written = (measure(name, (64, 128, 256, 512), repeats=1) for name in ("attention", "attention, written out"))
    assert fused.exponent("memory_bytes") < 1.2 < 1.7 < written.exponent("memory_bytes") < 2.1
    assert fused.exponent("state_bytes") == pytest.approx(1, abs=0.01) and fused.flops == written.flops


def test_every_token_mixer_takes_part():
    assert {type(spec) for spec in FAMILIES.values()} == set(MIXERS)
    assert {name for name, _ in scaling.BOUNDS} <= set(FAMILIES)


@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_is_measured(name, train):
    found = measure(name, (32, 64), repeats=1, train=train)
    assert min(found.seconds) > 0 and found.memory_bytes[0] < found.memory_bytes[1]


# Worked out by hand from the layers of each, in width d with 4 heads: (FLOPs, bytes of the state).
BY_HAND = {
    "attention": ("4n²d + 8nd²", "8nd + 8n + 8"),  # four projections, Q Kᵀ and α V; keys, values, positions
    "lstm": ("18nd²", "8d + 16"),  # eight products of d² and the output's; h and c
    "fourier": ("5nd log₂(nd)", "0"),
    "linear": ("9nd² + 4nd", "d² + 4d + 16"),  # four projections; d/4 · (d/4 + 1) numbers a head, written and read
    "mamba2": ("12nd² + 1560nd + 2048n", "1048d + 3112"),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_a_formula_is_that_of_the_layers(name):
    assert formulas(name) == BY_HAND[name]


def test_a_formula_is_found_from_the_numbers_alone():
    assert formula(lambda n, d: 3 * n * d**2 - d + n * n // 16) == "n²/16 + 3nd² - d"
    assert formula(lambda n, d: n) == "n" and formula(lambda n, d: 1) == "1" and formula(lambda n, d: 0) == "0"
    with pytest.raises(ValueError, match="no sum of powers"):
        formula(lambda n, d: n**3)
    assert len(LENGTHS) * len(WIDTHS) > 10  # more than there are terms, so that a wrong form is found out


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_has_a_formula(name):
    assert all(formulas(name))


@pytest.mark.parametrize(
    ("name", "what", "said"), [("attention", "memory", "memory"), ("gla", "time", "time"), ("s4d", "time", "time")]
)
def test_a_broken_bound_is_said_and_is_the_status(name, what, said, monkeypatch, capsys):
    steep = Growth((1, 2, 4, 8), (1, 4, 16, 64), (1, 4, 16, 64), (1,) * 4, (1,) * 4)
    [line] = broken({name: steep})
    assert line == f"{name}: {said} grows as n^2.00; below n^1.2 is asked" and broken({"window": steep}) == []
    for made, status in ((steep, 1), (Growth((1, 2, 4, 8), (1,) * 4, (1,) * 4, (1,) * 4, (1,) * 4), 0)):
        monkeypatch.setattr(scaling, "measure", lambda name, lengths, repeats, train, made=made: made)
        assert main(["--families", name, "--longest", "512"]) == status
    shown = capsys.readouterr().out
    assert "grows as" in shown and "; ".join(formulas(name)) in shown


def test_what_looks_at_a_source_is_a_pair():
    assert type(family("alignment", 16, 8)).__name__ == "EncoderDecoderSpec"
    assert family("attention", 16, 8).head is None and family("attention", 16, 8, writes=True).head is not None
