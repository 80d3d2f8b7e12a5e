"""Beam search against transformers: where it ends and which hypothesis wins, on models that often end a text."""

from __future__ import annotations

import functools
import itertools
import json

import pytest
import torch
from published import lively, transformers, written

import glassformer as gf
from glassformer.generate import GenerateSpec, beam
from glassformer.hf import read_model

END, NEW = 3, 12
ENDINGS = (False, True, "never")
GRID = list(itertools.product(ENDINGS, (2, 3, 4, 5), (0.6, 1.0, 2.0)))
SIZES = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16}
SIZES |= {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "max_position_embeddings": 32, "vocab_size": 11}
IDS = {"eos_token_id": END, "pad_token_id": 0, "bos_token_id": 1}


@functools.cache
@torch.no_grad()
def made(seed, pair, sharp=1.0):
    """A random model that ends a text more often than not, and ours. sharp: times its logits, of a decoder."""
    if pair:
        config = transformers.BartConfig(**SIZES, **IDS, decoder_start_token_id=2, forced_eos_token_id=None)
        theirs = transformers.BartForConditionalGeneration(config)
        lively(theirs, seed).final_logits_bias[0, END] = 0.8 + 0.1 * (seed % 7)
    else:
        config = transformers.GPT2Config(n_embd=16, n_layer=1, n_head=2, n_positions=32, vocab_size=11, **IDS)
        theirs = lively(transformers.GPT2LMHeadModel(config), seed)
        theirs.transformer.ln_f.weight *= sharp
    return theirs, read_model(written(theirs), theirs.state_dict(), "memory")


@torch.no_grad()
def compared(seed, pair, ending, width, penalty, sharp=1.0):
    """Our hypotheses, which must be theirs."""
    theirs, ours = made(seed, pair, sharp)
    given = torch.randint(4, 11, (1, 4), generator=torch.Generator().manual_seed(seed))
    how = {"num_beams": width, "length_penalty": penalty, "early_stopping": ending, "max_new_tokens": NEW}
    told = theirs.generate(
        given, attention_mask=torch.ones_like(given), do_sample=False, num_return_sequences=width, output_scores=True,
        return_dict_in_generate=True, **how,
    )  # fmt: skip
    spec = GenerateSpec(max_new_tokens=NEW, beams=width, length_penalty=penalty, early_stopping=ending)
    begun = 1 if pair else given.shape[1]
    found = beam(ours, given[0].tolist(), spec.changed(begin=(2,), ends=(END,)), END)
    assert len(found) == width
    for one, wanted, score in zip(found, told.sequences.tolist(), told.sequences_scores.tolist(), strict=True):
        ids = [*one.ids, *([END] if one.ended else [])]
        assert ids == wanted[begun : begun + len(ids)] and set(wanted[begun + len(ids) :]) <= {0, END}
        assert one.score == pytest.approx(score, abs=1e-4, rel=1e-6)
    return found


@pytest.mark.parametrize("seed", range(30))
def test_the_hypotheses_and_their_scores_are_those_of_transformers(seed):
    for i, (ending, width, penalty) in enumerate(GRID):
        if i % 6 == seed % 6:  # each combination with five models; all with all: below
            compared(seed, seed % 2 == 0, ending, width, penalty)


@pytest.mark.parametrize("ending", ENDINGS)
def test_what_favours_short_texts_ends_as_theirs(ending):
    for seed, penalty in itertools.product(range(4), (0.0, -1.0, -2.5)):
        compared(seed, seed % 2 == 0, ending, 3, penalty)
    for sharp, penalty in ((2.0, -0.5), (4.0, -2.0)):  # where one that goes on is better now, not at max_new_tokens
        compared(11, False, ending, 5, penalty, sharp)


@pytest.mark.slow
@pytest.mark.parametrize("pair", [False, True], ids=["decoder", "encoder-decoder"])
@pytest.mark.parametrize("seed", range(30))
def test_so_they_are_in_every_combination(seed, pair):
    for ending, width, penalty in GRID:
        compared(seed, pair, ending, width, penalty)


def test_the_three_endings_are_told_apart():
    """So the comparison above shows something: each pair of them differs with some model."""
    found = {ending: [compared(seed, True, ending, 3, 2.0)[0] for seed in range(0, 30, 2)] for ending in ENDINGS}
    for one, other in itertools.combinations(ENDINGS, 2):
        assert any(a.ids != b.ids for a, b in zip(found[one], found[other], strict=True)), (one, other)
    assert any(one.ended for one in found[True])


@torch.no_grad()
@pytest.mark.parametrize("ending", ENDINGS)
def test_a_folder_says_how_its_beams_end_and_are_weighed(ending, tmp_path):
    """Such as BART's, which ends early and favours long texts: followed as soon as there are beams."""
    theirs, _ = made(4, True)
    theirs.save_pretrained(tmp_path / "model")
    said = IDS | {"early_stopping": ending, "length_penalty": 2.0, "decoder_start_token_id": 2}
    (tmp_path / "model" / "generation_config.json").write_text(json.dumps(said))
    loaded = gf.load(tmp_path / "model")
    loaded.export(tmp_path / "out")
    for place in ("model", "out"):
        theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / place)
        for seed in range(8):
            given = torch.randint(4, 11, (1, 4), generator=torch.Generator().manual_seed(seed))
            (wanted,) = theirs.generate(given, num_beams=3, max_new_tokens=NEW, do_sample=False).tolist()
            found = [event.token for event in loaded.generate(given.tolist(), beams=3, max_new_tokens=NEW)]
            assert [2, *found] == wanted
    assert list(loaded.generate(given.tolist(), max_new_tokens=3))  # where there are none, it says nothing
