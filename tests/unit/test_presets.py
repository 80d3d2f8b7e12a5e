"""Presets: sizes of the published models, exactly, and choices that are checked."""

import inspect

import pytest
import torch

from glassformer.errors import SettingError
from glassformer.image import ImageModelSpec
from glassformer.model import AnySpec, EncoderDecoderSpec, build_model
from glassformer.named import PRESETS, preset, presets
from glassformer.spec import from_json, to_json


def parameters(name: str, **choices) -> int:
    with torch.device("meta"):
        return sum(p.numel() for p in build_model(preset(name, **choices)).parameters())


def test_names():
    assert presets() == (
        *("transformer-base", "bert", "gpt2", "llama", "t5"),
        *("tcn", "mlp", "mlp-mixer"),
        *("rnn", "gru", "lstm", "bahdanau"),
        *("linear-attention", "retention", "gla", "deltanet"),
        *("longformer", "transformer-xl", "memory-caching", "rmt"),
        *("mamba", "mamba2"),
        *("lenet", "mlp-image", "vit"),
    )


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("gpt2", 124_439_808),
        ("llama", 6_738_415_616),
        ("t5", 60_506_624),
        ("vit", 86_567_656),
        ("mamba", 129_135_360),
        ("lenet", 60_000 + 10 * (84 + 1)),  # the paper's layers up to F6, and a linear map to ten classes
    ],
)
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
    count = v * d + context * d + 2 * d + 2 * d + n * block
    # BERT base as published has a pooler on top of this.
    assert parameters("bert") == count == 109_482_240 - (d * d + d)


def test_s2_parameter_count_of_tcn_by_formula():
    v, d, k, levels = 10_000, 600, 3, 4
    convolution = k * d * d + d + d  # directions, biases, gains
    assert parameters("tcn") == v * d + v + levels * 2 * convolution
    assert [block.mixer.dilation for block in preset("tcn", blocks=5).blocks] == [1, 2, 4, 8, 16]


def test_s2_parameter_count_of_mlp_by_formula():
    """That of the paper, |V|(1 + m + h) + h(1 + wm), with U made of two matrices and a bias between them."""
    v, m, h, w = 17_964, 100, 60, 5
    assert parameters("mlp") == v * m + h * (1 + w * m) + (h * m + m) + v * (m + 1)


def test_s2_parameter_count_of_mlp_mixer_is_the_published_one():
    """S/16 for 1,000 classes, with a table of tokens in the place of its patches and its classifier."""
    patches, classifier = 16 * 16 * 3 * 512 + 512, 512 * 1000 + 1000
    assert parameters("mlp-mixer") == 18_528_264 - patches - classifier + 30_522 * 512


def test_s2_parameter_counts_of_recurrent_models_by_formula():
    """Zaremba et al. 2014 give about 20 million for the medium LSTM."""

    def count(vectors: int, d: int, layers: int, more: int = 0) -> int:
        return 10_000 * (2 * d + 1) + layers * (vectors * (2 * d * d + d) + more)

    assert parameters("rnn") == count(1, 200, 1)
    assert parameters("gru") == count(3, 650, 2, 650)
    assert parameters("lstm") == count(4, 650, 2) == 19_775_200


def test_s2_parameter_counts_of_linear_attention_by_formula():
    v, d, f, n = 256, 256, 1024, 8
    block = 4 * (d * d + d) + 2 * d * f + f + d + 4 * d
    assert parameters("linear-attention") == 2 * v * d + v + 784 * d + n * block + 2 * d
    v, d, n = 32_000, 2048, 24
    # 8 d² in retention and 4 d² in the MLP, as many as a Transformer's block has.
    assert parameters("retention") == v * d + n * (12 * d * d + 4 * d) + 2 * d
    v, d, n = 32_000, 1024, 24
    decay = 16 * d + 16 * d // 2 + d // 2
    count = v * d + n * (4 * d * d + decay + d // 4 + 3 * d * 2736 + 2 * d) + d
    assert parameters("gla") == count and abs(count / 340e6 - 1) < 0.02


def test_s2_parameter_counts_of_deltanet_by_formula():
    v, d, n, heads, mlp = 32_000, 1024, 24, 8, 3 * 1024 * 2736
    count = v * d + n * (4 * d * d + d * heads + 4 * 3 * d + d // heads + mlp + 2 * d) + d
    assert parameters("deltanet") == count and abs(count / 340e6 - 1) < 0.02
    # Keys 3/4, values 3/2 of the width: 6 d² in all; a gate per head with its bias and its rate.
    mixer = 6 * d * d + 2 * d * heads + 2 * heads + 4 * 3 * d + 3 * d // 2 // heads
    assert parameters("deltanet", gated=True) == v * d + n * (mixer + mlp + 2 * d) + d


def test_s2_parameter_count_of_longformer_by_formula():
    v, d, f, n, places = 50_265, 768, 3072, 12, 4096 + 2
    block = 4 * (d * d + d) + 2 * d * f + f + d + 2 * 2 * d
    count = v * d + places * d + 2 * d + n * block
    # As published it has 148,659,456 numbers: with one more vector for the kind of sentence and a pooler, and in each
    # block three more projections for global tokens.
    assert parameters("longformer") == count == 148_659_456 - d - (d * d + d) - n * 3 * (d * d + d)
    mask = preset("longformer").blocks[11].mixer.mask
    assert (mask.window, mask.globals, mask.causal) == (257, 1, False)


def test_s2_parameter_count_of_transformer_xl_by_formula():
    v, d, f, n = 267_735, 410, 2100, 16
    attention, mlp, norm = 5 * d * d + 2 * d, 2 * d * f + f + d, 2 * d  # W_Q, W_K, W_V, W_O, W_R; u and v
    count = parameters("transformer-xl")
    assert count == v * d + v + n * (attention + mlp + 2 * norm)
    assert round(count / 1e6) == 151  # as in the paper


def test_s2_parameter_count_of_memory_caching_by_formula():
    v, d, n, heads = 32_000, 1536, 24, 16
    hidden = 4096  # 8/3 of the width
    count = v * d + n * (5 * d * d + d // heads + 3 * d * hidden + 2 * d) + d
    assert parameters("memory-caching") == count and abs(count / 760e6 - 1) < 0.06


def test_s2_parameter_count_of_bahdanau_by_formula():
    """RNNsearch with 1000 hidden units and words of 620 numbers, as in the paper's section 4.2 and appendix A."""
    v, d, n = 30_000, 620, 1000

    def gru(width: int) -> int:
        return 3 * (n * width + n * n + n)

    score = n * n + n * 2 * n + n
    read = n // 2 * (n + 2 * n) + n // 2 + n // 2 * d
    writer = score + gru(d + 2 * n) + (2 * n * n + n) + read
    assert parameters("bahdanau") == 2 * v * d + 2 * gru(d) + writer + v * (n // 2) + v


def test_s2_parameter_count_of_mamba2_by_formula():
    v, d, n, blocks = 50_288, 768, 128, 24
    channels, heads = 2 * d, 24
    into, conv = d * (2 * channels + 2 * n + heads), 5 * (channels + 2 * n)
    block = into + conv + 3 * heads + channels + channels * d + d
    assert parameters("mamba2") == v * d + blocks * block + d == 128_989_632


def test_s2_parameter_count_of_rmt_by_formula():
    v, d, f, n = 267_735, 410, 2100, 16
    attention, mlp, norm, bias = 4 * d * d, 2 * d * f + f + d, 2 * d, 32 * 10
    assert parameters("rmt") == v * d + v + n * (attention + bias + mlp + 2 * norm) + norm + 10 * d


def test_settings_of_the_papers():
    base, gpt2, llama, t5, bert = (preset(n) for n in ("transformer-base", "gpt2", "llama", "t5", "bert"))
    assert base.share and base.decoder.head.tied and base.encoder.embed.scale == 512**0.5
    assert {b.wiring for b in base.encoder.blocks + base.decoder.blocks} == {"post"} and base.encoder.norm is None
    assert gpt2.blocks[0].channel.activation == "gelu_tanh" and gpt2.norm.eps == 1e-5
    assert not llama.head.tied and llama.blocks[0].channel.hidden == 11_008 and llama.norm.eps == 1e-6
    assert t5.decoder.head.scale == 512**-0.5 and t5.decoder.blocks[5].mixer.scale == 1.0
    assert t5.decoder.blocks[0].cross.scale == 1.0
    assert bert.norm is None and bert.head is None and bert.blocks[0].norm.eps == bert.embed.norm.eps == 1e-12


def test_s32_settings_of_recurrence_convolution_and_alignment():
    """Zaremba et al. 2014, medium; Bai et al. 2018; Bahdanau et al. 2015, appendix A.2; LeCun et al. 1998, II.B."""
    lstm, tcn, pair, lenet = (preset(n) for n in ("lstm", "tcn", "bahdanau", "lenet"))
    assert lstm.dim == 650 and len(lstm.blocks) == 2 and lstm.dropout == lstm.blocks[0].dropout == 0.5
    assert not any(block.residual or block.channel or block.norm for block in lstm.blocks)
    assert [level.mixer.dilation for level in tcn.blocks] == [1, 2, 4, 8]
    assert all(level.mixer.width == 3 and level.mixer.weight_norm for level in tcn.blocks)
    read, write = pair.encoder.blocks[0].mixer, pair.decoder.blocks[0].mixer
    assert pair.encoder.dim == 620 and read.hidden == write.hidden == 1000 and read.bidirectional
    assert read.reset == write.reset == "before" and write.score == "additive" and write.start.activation == "tanh"
    layers = [(type(layer).__name__, getattr(layer, "maps", None)) for layer in lenet.blocks]
    assert [maps for _, maps in layers if maps] == [6, 16, 120] and lenet.blocks[2].table == "lenet"
    assert {layer.activation for layer in lenet.blocks} == {"scaled_tanh"} and lenet.blocks[-1].width == 84


@pytest.mark.parametrize("name", PRESETS)
def test_choices_reach_the_spec_which_survives_json(name):
    choices = {"vocab": 65, "dim": 32, "blocks": 2, "heads": 2, "context": 16}
    known = inspect.signature(PRESETS[name]).parameters
    spec = preset(name, **{c: v for c, v in choices.items() if c in known})
    assert from_json(to_json(spec), AnySpec) == spec
    if isinstance(spec, ImageModelSpec):
        assert name == "lenet" or len(spec.blocks) == 2
        return
    for stack in (spec.encoder, spec.decoder) if isinstance(spec, EncoderDecoderSpec) else (spec,):
        assert (stack.vocab, stack.dim, stack.context) == (65, 32, 16)
        assert sum(getattr(block.mixer, "layers", 1) for block in stack.blocks) == 2 or "blocks" not in known
        mixers = [getattr(block.mixer, "attention", block.mixer) for block in stack.blocks]
        assert all(mixer.heads == 2 for mixer in mixers if "heads" in known)
    assert preset(name, context=7) != preset(name)
    assert "blocks" not in known or preset(name, blocks=7) != preset(name)


@pytest.mark.parametrize(
    ("name", "choices", "message"),
    [
        ("gtp2", {}, r"^preset: there is none named 'gtp2'; did you mean gpt2"),
        ("gpt2", {"vocabulary": 3}, r"^vocabulary: preset gpt2 has no such choice; did you mean vocab"),
        ("gpt2", {"blocks": 0}, r"^blocks: 0 is not allowed; use a whole number from 1"),
        ("gpt2", {"vocab": "65"}, r"^vocab: '65' is not allowed"),
        ("gpt2", {"heads": True}, r"^heads: True is not allowed"),
        ("deltanet", {"gated": 1}, r"^gated: 1 is not allowed; use true or false"),
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
