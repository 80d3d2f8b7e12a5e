"""Presets: sizes of the published models, exactly, and choices that are checked."""

import pytest
import torch

from glassformer.errors import SettingError
from glassformer.model import AnySpec, build_model
from glassformer.named import PRESETS, preset, presets
from glassformer.spec import from_json, to_json


def parameters(name: str, **choices) -> int:
    with torch.device("meta"):
        return sum(p.numel() for p in build_model(preset(name, **choices)).parameters())


def test_names():
    assert presets() == ("transformer-base", "bert", "gpt2", "llama", "t5")


@pytest.mark.parametrize(("name", "count"), [("gpt2", 124_439_808), ("llama", 6_738_415_616), ("t5", 60_506_624)])
def test_s2_published_parameter_counts(name, count):
    assert parameters(name) == count


def test_s2_parameter_count_of_transformer_base_by_formula():
    v, d, f, n = 37_000, 512, 2048, 6
    attention, mlp, norm = 4 * d * d, 2 * d * f + f + d, 2 * d
    encoder, decoder = attention + mlp + 2 * norm, 2 * attention + mlp + 3 * norm
    assert parameters("transformer-base") == v * d + n * (encoder + decoder)


def test_s2_parameter_count_of_bert_by_formula():
    v, d, f, n, context = 30_522, 768, 3072, 12, 512
    block = 4 * (d * d + d) + 2 * d * f + f + d + 2 * 2 * d
    count = v * d + context * d + 2 * d + n * block
    # BERT base as published has two sentence vectors and a pooler on top of this.
    assert parameters("bert") == count == 109_482_240 - 2 * d - (d * d + d)


def test_settings_of_the_papers():
    base, gpt2, llama, t5, bert = (preset(n) for n in ("transformer-base", "gpt2", "llama", "t5", "bert"))
    assert base.share and base.decoder.head.tied and base.encoder.embed.scale == 512**0.5
    assert {b.wiring for b in base.encoder.blocks + base.decoder.blocks} == {"post"} and base.encoder.norm is None
    assert gpt2.blocks[0].channel.activation == "gelu_tanh" and gpt2.norm.eps == 1e-5
    assert not llama.head.tied and llama.blocks[0].channel.hidden == 11_008 and llama.norm.eps == 1e-6
    assert t5.decoder.head.scale == 512**-0.5 and t5.decoder.blocks[5].mixer.scale == 1.0
    assert t5.decoder.blocks[0].cross.scale == 1.0
    assert bert.norm is None and bert.head is None and bert.blocks[0].norm.eps == bert.embed.norm.eps == 1e-12


@pytest.mark.parametrize("name", PRESETS)
def test_choices_reach_the_spec_which_survives_json(name):
    spec = preset(name, vocab=65, dim=32, blocks=2, heads=2, context=16)
    assert from_json(to_json(spec), AnySpec) == spec
    for stack in (spec.encoder, spec.decoder) if name in ("transformer-base", "t5") else (spec,):
        assert (stack.vocab, stack.dim, len(stack.blocks), stack.context) == (65, 32, 2, 16)
        assert all(block.mixer.heads == 2 for block in stack.blocks)
    assert preset(name, blocks=1) != preset(name)


@pytest.mark.parametrize(
    ("name", "choices", "message"),
    [
        ("gtp2", {}, r"^preset: there is none named 'gtp2'; did you mean gpt2"),
        ("gpt2", {"vocabulary": 3}, r"^vocabulary: preset gpt2 has no such choice; did you mean vocab"),
        ("gpt2", {"blocks": 0}, r"^blocks: 0 is not allowed; use a whole number from 1"),
        ("gpt2", {"vocab": "65"}, r"^vocab: '65' is not allowed"),
        ("gpt2", {"heads": True}, r"^heads: True is not allowed"),
        ("gpt2", {"dropout": 1.5}, r"dropout: 1\.5 is not allowed"),
    ],
)
def test_what_does_not_exist_or_fit_is_refused(name, choices, message):
    with pytest.raises(SettingError, match=message):
        preset(name, **choices)


def test_heads_that_do_not_fit_another_width_are_named_when_it_is_built():
    with pytest.raises(SettingError, match=r"^blocks\.0\.mixer\.heads: 12 does not divide d=32; use 1, 2, 4, 8"):
        build_model(preset("gpt2", dim=32))


@pytest.mark.parametrize("given", ["x", None, True, -0.1, 1, float("nan")])
def test_a_dropout_that_is_none_is_refused(given):
    with pytest.raises(SettingError, match=r"^dropout: .* is not allowed; use 0 to below 1"):
        preset("gpt2", dropout=given)
