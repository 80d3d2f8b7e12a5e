"""Every encoder-decoder family against transformers: published configurations, shrunk in width and depth alone."""

from __future__ import annotations

import json

import pytest
import torch
from published import Pair, check_export, check_same, pair, tokens, transformers
from safetensors.torch import load_file

from glassformer.api import Loaded
from glassformer.generate import GenerateSpec, beam
from glassformer.hf import read_model

VOCAB, LENGTH = 96, 20
T5 = {"d_model": 48, "d_kv": 16, "d_ff": 80, "num_layers": 3, "num_heads": 4, "vocab_size": VOCAB, "n_positions": 512}
GATED = {"d_kv": 8, "num_decoder_layers": 2, "feed_forward_proj": "gated-gelu", "relative_attention_max_distance": 128}
BART = {
    "d_model": 48,
    "encoder_layers": 3,
    "decoder_layers": 2,
    "encoder_ffn_dim": 80,
    "decoder_ffn_dim": 96,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 6,
    "max_position_embeddings": 64,
    "vocab_size": VOCAB,
    # Without a padding token: transformers keeps gradients from its row of the table.
    "pad_token_id": None,
}
OPUS = {**BART, "scale_embedding": True, "activation_function": "swish", "decoder_attention_heads": 4}

# name -> (class, the fields of the published configuration, what a target begins with and ends with)
CASES: dict[str, tuple[str, dict, dict]] = {
    "t5-small": ("T5", {**T5, "num_heads": 8}, {"begin": [0], "ends": [1], "no_repeat": 2}),
    "t5-v1_1-small": ("T5", {**T5, **GATED, "tie_word_embeddings": False}, {"begin": [0], "ends": [1]}),
    "flan-t5-small": ("T5", {**T5, **GATED, "num_heads": 6, "tie_word_embeddings": False}, {"begin": [0], "ends": [1]}),
    "mt5-small": ("MT5", {**T5, **GATED, "num_heads": 6, "tie_word_embeddings": False}, {"begin": [0], "ends": [1]}),
    "t5-gated-silu": ("T5", {**T5, "feed_forward_proj": "gated-silu", "num_decoder_layers": 1}, {"begin": [0]}),
    "bart-base": ("Bart", BART, {"begin": [2], "ends": [2], "forced": [5]}),
    "bart-large-cnn": (
        "Bart",
        {**BART, "scale_embedding": True, "activation_function": "relu"},
        {"begin": [2], "ends": [2], "forced": [0], "min_new_tokens": 8, "no_repeat": 3},
    ),
    "mbart-large-50": (
        "MBart",
        {**BART, "scale_embedding": True, "activation_function": "relu"},
        {"begin": [2], "ends": [2], "forced": [90, 7], "no_repeat": 2},
    ),
    "opus-mt": ("Marian", OPUS, {"begin": [95], "ends": [0], "suppressed": [95], "no_repeat": 1}),
    "opus-mt-apart": (
        "Marian",
        {**OPUS, "share_encoder_decoder_embeddings": False, "decoder_vocab_size": 80, "activation_function": "relu"},
        {"begin": [79], "ends": [0], "suppressed": [79], "no_repeat": 2},
    ),
}
KINDS = {"Marian": "MarianMTModel"}


def made(name: str) -> tuple[Pair, torch.Tensor, torch.Tensor]:
    """The pair of a case, run on the same source and target; the logits' bias is random as everything else."""
    kind, fields, _ = CASES[name]
    config = getattr(transformers, f"{kind}Config")(**fields)
    source, target = tokens(VOCAB, LENGTH), tokens(fields.get("decoder_vocab_size", VOCAB), 9, seed=3)
    both = pair(
        config,
        untied(KINDS.get(kind, f"{kind}ForConditionalGeneration"), fields),
        lambda model: model(source, decoder_input_ids=target, use_cache=False).logits,
        lambda model: model(source, target),
    )
    return both, source, target


def untied(name: str, fields: dict):
    """The class, its head a table of its own where the configuration says so: transformers ties T5's all the same."""
    kind = getattr(transformers, name)

    def build(config):
        model = kind(config)
        if fields.get("tie_word_embeddings") is False:
            model.config.tie_word_embeddings = False
            model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())
        if hasattr(model, "final_logits_bias"):
            bias = torch.randn(model.final_logits_bias.shape, generator=torch.Generator().manual_seed(5))
            model.final_logits_bias.copy_(0.3 * bias)
        return model

    build.__name__ = name
    return build


@pytest.mark.parametrize("name", CASES)
def test_logits_and_gradients_are_those_of_transformers(name):
    both, _, _ = made(name)
    check_same(both)


@pytest.mark.parametrize("name", CASES)
def test_an_export_is_loaded_by_transformers(name, tmp_path):
    both, _, _ = made(name)
    check_export(both, tmp_path)


@torch.no_grad()
def by_transformers(both: Pair, source: torch.Tensor, own: dict, **how) -> list[list[int]]:
    """What `generate` writes with the same settings, without what every target begins with."""
    config = both.theirs.generation_config
    config.update(eos_token_id=own.get("ends"), pad_token_id=3, bos_token_id=None, forced_bos_token_id=None)
    config.update(forced_eos_token_id=None, decoder_start_token_id=own["begin"][0])
    begin = torch.tensor([[*own["begin"], *own.get("forced", [])]]).expand(len(source), -1)
    given = {"max_new_tokens": 14 - len(own.get("forced", [])), "do_sample": False, "early_stopping": True}
    given |= {"min_new_tokens": own["min_new_tokens"] - len(own["forced"])} if "min_new_tokens" in own else {}
    given |= {"no_repeat_ngram_size": own["no_repeat"]} if "no_repeat" in own else {}
    given |= {"suppress_tokens": own["suppressed"]} if "suppressed" in own else {}
    found = both.theirs.generate(source, decoder_input_ids=begin, length_penalty=0.0, **given, **how)
    return [row[len(own["begin"]) :] for row in found.tolist()]


@pytest.mark.parametrize("name", CASES)
def test_greedy_text_and_that_of_four_beams_are_those_of_transformers(name):
    both, source, _ = made(name)
    own = CASES[name][2]
    ends = own.get("ends", [])
    loaded = Loaded(both.ours, about={"generation": own})
    written = list(loaded.generate(source.tolist(), max_new_tokens=14))
    for row, wanted in enumerate(by_transformers(both, source, own, num_beams=1)):
        found = [event.token for event in written if event.row == row]
        assert found == wanted[: len(found)] and len(found) == length(wanted, ends)
    for row, wanted in enumerate(by_transformers(both, source, own, num_beams=4)):
        spec = GenerateSpec(max_new_tokens=14, beams=4, length_penalty=0.0, early_stopping=True, **own)
        best = beam(both.ours, source[row].tolist(), spec)[0]
        found = [*best.ids, *([] if best.end is None else [best.end])]
        assert found == wanted[: len(found)] and len(found) == length(wanted, ends)
    assert len({event.token for event in written}) > 3, "one token repeated shows nothing"


@torch.no_grad()
@pytest.mark.parametrize("name", ["t5-v1_1-small", "mt5-small"])
def test_two_tables_are_read_as_two_although_transformers_writes_that_they_are_one(name, tmp_path):
    both, source, target = made(name)
    both.theirs.config.tie_word_embeddings = True  # as it is in every configuration that transformers 5 makes
    both.theirs.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["tie_word_embeddings"]
    again = read_model(config, load_file(tmp_path / "model.safetensors"), tmp_path)
    assert not again.spec.decoder.head.tied and again.spec.decoder.head.scale == 1.0
    assert torch.equal(again(source, target), both.ours(source, target))


def length(ids: list[int], ends: list[int]) -> int:
    """Up to the first end, that included."""
    return next((place + 1 for place, id in enumerate(ids) if id in ends), len(ids))


@torch.no_grad()
@pytest.mark.parametrize("name", CASES)
def test_a_padded_source_is_read_as_transformers_reads_it_and_as_it_is_read_alone(name):
    both, source, target = made(name)
    short = 7
    there = torch.ones_like(source)
    there[1, short:] = 0
    pos = torch.arange(LENGTH).where(there.bool(), -1)
    padded = both.ours(source, target, source_pos=pos)
    wanted = both.theirs(source, attention_mask=there, decoder_input_ids=target, use_cache=False).logits
    assert (padded - wanted).abs().max() <= 5e-5
    alone = both.ours(source[1:, :short], target[1:])
    assert (padded[1:] - alone).abs().max() <= 5e-5
    left = torch.cat((source[1:, short:], source[1:, :short]), 1)
    places = torch.cat((torch.full((LENGTH - short,), -1), torch.arange(short)))[None]
    assert (both.ours(left, target[1:], source_pos=places) - alone).abs().max() <= 5e-5
