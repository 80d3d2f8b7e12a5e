"""What models cost, on the command line: which rows there are, and that they stand in one table."""

import json

import pytest

import glassformer as gf
from glassformer.cli import main
from glassformer.data.display import width
from glassformer.explain.cost import costs
from glassformer.mixers import MIXERS
from glassformer.named import preset
from glassformer.named.layers import LAYERS, gpt2_with
from glassformer.terminal.cost import lines


def _kinds(spec) -> set[type]:
    parts = [getattr(spec, one) for one in ("encoder", "decoder") if hasattr(spec, one)] or [spec]
    return {type(block.mixer) for part in parts for block in part.blocks if hasattr(block, "mixer")}


def test_every_kind_of_mixer_has_its_price():
    found = costs(64)
    assert set(found) == {*gf.presets(), *LAYERS}
    specs = [preset(name) for name in gf.presets()] + [gpt2_with(name) for name in LAYERS]
    assert set.union(*map(_kinds, specs)) == set(MIXERS)
    assert found["s4d"].state_bytes < found["gpt2"].state_bytes * 2 and found["gated-deltanet"].scan_flops


@pytest.mark.parametrize("lang", ["en", "ko"])
def test_each_table_stands_in_80_columns_at_once(lang):
    shown = [str(line) for line in lines(costs(1024), lang)]
    assert max(map(width, shown)) <= 80
    assert sum(line.startswith("  gpt2 ") for line in shown) == 1
    assert sum(line.startswith("  linear-attention") for line in shown) == 1


def test_a_name_gives_its_row_alone(capsys):
    def keys(*given: str) -> list[str]:
        assert main(["models", *given, "--cost", "--json"]) == 0
        return list(json.loads(capsys.readouterr().out))

    assert keys("gru") == ["gru"] and keys("s4d") == ["s4d"]
    assert keys("small") == ["small"]
    assert keys("lstm") == ["lstm", "lstm (model)"]  # a preset and a shipped model
    assert main(["models", "korean-g2p", "--cost", "--length", "30", "--json"]) == 0
    spec = gf.load("korean-g2p").spec
    assert json.loads(capsys.readouterr().out)["korean-g2p"]["flops"] == gf.cost(spec, 30).flops


@pytest.mark.parametrize("given", [["small", "--length", "3"], ["gru", "--cost", "--save", "out/copy"]])
def test_what_would_be_passed_over_is_refused(given, capsys):
    assert main(["models", *given]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_text_that_a_model_has_no_positions_for_is_marked():
    assert gf.cost("bert", 3000).longest == 512 and gf.cost("mlp-mixer", 10).longest == preset("mlp-mixer").context
    assert (
        gf.cost("llama", 10).longest is gf.cost("lstm", 10).longest is gf.cost("transformer-base", 10).longest is None
    )
    shown = "\n".join(map(str, lines(costs(3000, ["bert", "llama", "gpt2"]), "en")))
    assert "bert*" in shown and "gpt2*" in shown and "llama*" not in shown and "\n* it has" in shown
    assert "*" not in "\n".join(map(str, lines(costs(512, ["bert", "gpt2"]), "en")))
    with pytest.raises(gf.GlassformerError, match="learned positions"):
        gf.build("bert", vocab=9, dim=8, blocks=1, heads=1, context=4)([[1] * 5])


def test_how_far_back_is_none_wherever_it_has_no_end():
    endless = ("rnn", "gru", "lstm", "rmt", "gpt2", "mamba", "gla")
    assert [gf.cost(name, 500).reach for name in endless] == [None] * len(endless)
    assert gf.cost("mlp", 500).reach == 4
