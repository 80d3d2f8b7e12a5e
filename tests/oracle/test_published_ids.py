"""What a published folder says of its ids is said again by the folder that is written of it, of every family: and so
transformers writes the same text with both."""

from __future__ import annotations

import json

import pytest
import torch
from published import lively, tokens, transformers

import glassformer as gf
from glassformer.errors import UnsupportedError
from glassformer.hf import FAMILIES
from unit.sound_models import tokenizer

VOCAB = 96
SIZES = {"vocab_size": VOCAB, "hidden_size": 32, "num_hidden_layers": 2}
DECODER = {**SIZES, "intermediate_size": 40, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}
ENCODER = {**SIZES, "intermediate_size": 40, "num_attention_heads": 4}
PICTURES = {name: value for name, value in ENCODER.items() if name != "vocab_size"} | {"image_size": 16}
T5 = {"vocab_size": VOCAB, "d_model": 32, "d_kv": 8, "d_ff": 40, "num_layers": 2, "num_heads": 4}
STACKS = {f"{one}_{what}": size for one in ("encoder", "decoder") for what, size in (("layers", 2), ("ffn_dim", 40))}
BART = {"vocab_size": VOCAB, "d_model": 32, "max_position_embeddings": 64, **STACKS}
BART |= {"encoder_attention_heads": 4, "decoder_attention_heads": 4}
HEARS = {name: value for name, value in BART.items() if name != "max_position_embeddings"} | {"vocab_size": 300}
MAMBA2 = {"num_heads": 8, "head_dim": 8, "n_groups": 1, "state_size": 8}
GEMMA = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 4}
# family -> (the class, its sizes)
CASES = {
    **{"llama": ("LlamaForCausalLM", DECODER), "mistral": ("MistralForCausalLM", DECODER)},
    **{"qwen2": ("Qwen2ForCausalLM", ENCODER | {"num_key_value_heads": 2}), "qwen3": ("Qwen3ForCausalLM", DECODER)},
    **{"olmo2": ("Olmo2ForCausalLM", ENCODER), "gpt_neox": ("GPTNeoXForCausalLM", ENCODER)},
    **{"gemma2": ("Gemma2ForCausalLM", DECODER | GEMMA), "gemma3_text": ("Gemma3ForCausalLM", DECODER | GEMMA)},
    "gpt2": ("GPT2LMHeadModel", {"vocab_size": VOCAB, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}),
    **{"t5": ("T5ForConditionalGeneration", T5), "mt5": ("MT5ForConditionalGeneration", T5)},
    **{"bart": ("BartForConditionalGeneration", BART), "mbart": ("MBartForConditionalGeneration", BART)},
    "marian": ("MarianMTModel", BART),
    **{"mamba": ("MambaForCausalLM", SIZES), "mamba2": ("Mamba2ForCausalLM", SIZES | MAMBA2)},
    **{"bert": ("BertForMaskedLM", ENCODER), "roberta": ("RobertaForMaskedLM", ENCODER)},
    **{"xlm-roberta": ("XLMRobertaForMaskedLM", ENCODER), "modernbert": ("ModernBertForMaskedLM", ENCODER)},
    "distilbert": (
        "DistilBertForMaskedLM",
        {"vocab_size": VOCAB, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 40},
    ),
    "vit": ("ViTForImageClassification", PICTURES | {"patch_size": 8}),
    "deit": ("DeiTForImageClassification", PICTURES | {"patch_size": 8}),
    "whisper": ("WhisperForConditionalGeneration", HEARS | {"max_target_positions": 64, "max_source_positions": 1500}),
}
WRITES = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration", "MTModel")
# In config.json, and other ones in generation_config.json.
SAID = {
    **{"bos_token_id": 11, "eos_token_id": [12, 13], "pad_token_id": 14, "decoder_start_token_id": 15},
    **{"forced_bos_token_id": 16, "forced_eos_token_id": 17, "suppress_tokens": [18, 19]},
    **{"begin_suppress_tokens": [20], "bad_words_ids": [[21], [22]]},
}
OTHERS = {"sep_token_id": 23, "cls_token_id": 24, "mask_token_id": 25, "unk_token_id": 26}
LATER = {
    **{"bos_token_id": 31, "eos_token_id": 32, "pad_token_id": 33, "decoder_start_token_id": 34},
    **{"forced_bos_token_id": 35, "forced_eos_token_id": [36], "suppress_tokens": [38, 37]},
    **{"begin_suppress_tokens": [39, 40], "bad_words_ids": [[41]]},
}
FILES = ("config.json", "generation_config.json")


@pytest.fixture(params=CASES)
def family(request):
    return request.param


def published(name, later, place):
    """A random model in a folder with unusual ids; later: also a generation_config.json, with other ones."""
    kind, fields = CASES[name]
    config = transformers.CONFIG_MAPPING[name](**fields, pad_token_id=14)
    model = lively(getattr(transformers, kind)(config))
    model.save_pretrained(place)
    (place / "generation_config.json").unlink(missing_ok=True)
    if later:
        (place / "generation_config.json").write_text(json.dumps(LATER))
    held = json.loads((place / "config.json").read_text())
    (place / "config.json").write_text(json.dumps(held | SAID | OTHERS))
    if name == "whisper":
        tokenizer().library.save(str(place / "tokenizer.json"))
    return place


def ids_of(place):
    """All that the files of a folder say of ids."""
    names = [*SAID, *OTHERS]
    held = {file: json.loads((place / file).read_text()) for file in FILES if (place / file).is_file()}
    return {(file, name): fields[name] for file, fields in held.items() for name in names if name in fields}


def text_of(name, place):
    """What transformers writes with the model of a folder."""
    model = getattr(transformers, CASES[name][0]).from_pretrained(place).eval()
    given = tokens(VOCAB, 6) if name != "whisper" else torch.randn(1, 80, 3000, generator=torch.Generator())
    return transformers.GenerationMixin.generate(model, given, max_new_tokens=9, do_sample=False, num_beams=2).tolist()


def test_every_family_is_here():
    assert CASES.keys() == FAMILIES.keys()


@torch.no_grad()
@pytest.mark.parametrize(
    "later", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["config.json", "generation_config.json"]
)
def test_what_is_written_says_the_ids_that_were_read(family, later, tmp_path):
    place = published(family, later, tmp_path / "model")
    loaded = gf.load(place)
    loaded.export(tmp_path / "out")
    loaded.save(tmp_path / "own")
    gf.load(tmp_path / "own").export(tmp_path / "again")
    wanted = ids_of(place)
    assert len(wanted) == len(SAID) + len(OTHERS) + (len(LATER) if later else 0)
    for other in ("out", "again"):
        found = ids_of(tmp_path / other)
        assert {one: found.get(one) for one in wanted} == wanted
        if family != "whisper":  # which tells there in any case what its tokens mean
            assert found == wanted
    assert json.loads((tmp_path / "out" / "config.json").read_text())["model_type"] == family
    if CASES[family][0].endswith(WRITES):
        assert text_of(family, place) == text_of(family, tmp_path / "out") == text_of(family, tmp_path / "again")


@torch.no_grad()
@pytest.mark.parametrize("later", [False, True], ids=["config.json", "generation_config.json"])
@pytest.mark.parametrize(("family", "other"), [("llama", "mistral"), ("mt5", "t5")])
def test_so_does_a_folder_of_another_family(family, other, later, tmp_path):
    place = published(family, later, tmp_path / "model")
    gf.load(place).export(tmp_path / "out", family=other)
    wanted = {one: value for one, value in ids_of(place).items() if one[0] == "config.json"}
    assert wanted.items() <= ids_of(tmp_path / "out").items()
    assert text_of(family, place) == text_of(other, tmp_path / "out")


@torch.no_grad()
def test_what_was_changed_since_is_written_as_it_is_now(tmp_path):
    loaded = gf.load(published("marian", True, tmp_path / "model"))
    loaded.about["generation"] |= {"begin": [50], "suppressed": [51], "no_repeat": 2}
    del loaded.about["generation"]["forced"]
    loaded.export(tmp_path / "out")
    said = json.loads((tmp_path / "out" / "generation_config.json").read_text())
    assert said["decoder_start_token_id"] == 50 and said["suppress_tokens"] == [51] and said["pad_token_id"] == 33
    assert "bad_words_ids" not in said and "forced_bos_token_id" not in said
    assert gf.load(tmp_path / "out").about["generation"] == loaded.about["generation"]


@torch.no_grad()
@pytest.mark.parametrize("later", [False, True], ids=["config.json", "generation_config.json"])
@pytest.mark.parametrize("family", ["llama", "marian"])
def test_what_was_deleted_since_stays_so(family, later, tmp_path):
    loaded = gf.load(published(family, later, tmp_path / "model"))
    assert loaded.about["generation"]
    loaded.about["generation"].clear()
    loaded.export(tmp_path / "out")
    assert gf.load(tmp_path / "out").about["generation"] == {}
    theirs = getattr(transformers, CASES[family][0]).from_pretrained(tmp_path / "out")
    assert theirs.generation_config.eos_token_id == -1, "which they take for none too"


@torch.no_grad()
@pytest.mark.parametrize("later", [False, True], ids=["config.json", "generation_config.json"])
@pytest.mark.parametrize("family", ["llama", "bart", "bert"])
def test_ids_that_a_vocabulary_cut_since_does_not_hold_are_left_out(family, later, tmp_path):
    loaded, size = gf.load(published(family, later, tmp_path / "model")), 20
    loaded.about["config"] |= {"suppress_tokens": [3, size], "bad_words_ids": [[4], [size]], "eos_token_id": [12, size]}
    loaded.about["config"] |= {"bos_token_id": size}
    spec = loaded.spec
    if family == "bart":
        stacks = {name: getattr(spec, name).changed(vocab=size) for name in ("encoder", "decoder")}
        loaded.model = gf.build(spec.changed(**stacks)).model
        if later:
            with pytest.raises(UnsupportedError, match="begins with token id 34 cannot be written with a voca"):
                loaded.export(tmp_path / "refused")
            loaded.about["generation"] |= {"begin": [1], "forced": []}
    else:
        loaded.model = gf.build(spec.changed(vocab=size)).model
    loaded.export(tmp_path / "out")
    found = ids_of(tmp_path / "out")
    flat = [id for values in found.values() for id in torch.tensor(values).flatten().tolist()]
    assert flat and max(flat) < size and ("config.json", "bos_token_id") not in found
    assert found["config.json", "eos_token_id"] == [12] and found["config.json", "bad_words_ids"] == [[4]]
    assert found["config.json", "suppress_tokens"] == [3]
    again = gf.load(tmp_path / "out")
    if family != "bert":
        assert next(again.generate([[5, 6]], max_new_tokens=4)).token < size
