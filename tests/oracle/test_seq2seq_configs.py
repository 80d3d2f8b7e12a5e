"""Published config.json files of encoder-decoders, at full size and without memory: what they mean, what is refused."""

from __future__ import annotations

import pytest
import torch
from published import transformers
from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

from glassformer.checkpoint import unique_tensors
from glassformer.errors import SettingError, UnsupportedError
from glassformer.hf import FAMILIES, family_of
from glassformer.hf.generation import NOT_FOLLOWED, own_generation, published_generation
from glassformer.hf.rules import ACTIVATIONS
from glassformer.hf.tensors import write_tensors
from glassformer.model import without_memory
from glassformer.nn.channel import GatedSpec

T5 = {
    "architectures": ["T5ForConditionalGeneration"],
    "model_type": "t5",
    "d_kv": 64,
    "decoder_start_token_id": 0,
    "dropout_rate": 0.1,
    "eos_token_id": 1,
    "initializer_factor": 1.0,
    "is_encoder_decoder": True,
    "layer_norm_epsilon": 1e-06,
    "n_positions": 512,
    "output_past": True,
    "pad_token_id": 0,
    "relative_attention_num_buckets": 32,
    "vocab_size": 32_128,
}
BART = {
    "_num_labels": 3,
    "activation_dropout": 0.0,
    "activation_function": "gelu",
    "add_bias_logits": False,
    "add_final_layer_norm": False,
    "attention_dropout": 0.0,
    "bos_token_id": 0,
    "classif_dropout": 0.0,
    "classifier_dropout": 0.0,
    "d_model": 1024,
    "decoder_attention_heads": 16,
    "decoder_ffn_dim": 4096,
    "decoder_layerdrop": 0.0,
    "decoder_layers": 12,
    "decoder_start_token_id": 2,
    "dropout": 0.1,
    "encoder_attention_heads": 16,
    "encoder_ffn_dim": 4096,
    "encoder_layerdrop": 0.0,
    "encoder_layers": 12,
    "eos_token_id": 2,
    "forced_eos_token_id": 2,
    "gradient_checkpointing": False,
    "id2label": {"0": "LABEL_0", "1": "LABEL_1", "2": "LABEL_2"},
    "init_std": 0.02,
    "is_encoder_decoder": True,
    "label2id": {"LABEL_0": 0, "LABEL_1": 1, "LABEL_2": 2},
    "max_position_embeddings": 1024,
    "model_type": "bart",
    "normalize_before": False,
    "num_hidden_layers": 12,
    "output_past": True,
    "pad_token_id": 1,
    "scale_embedding": False,
    "use_cache": True,
}
MARIAN = {
    **{name: value for name, value in BART.items() if "label" not in name},
    "architectures": ["MarianMTModel"],
    "activation_function": "swish",
    "bad_words_ids": [[58_100]],
    "bos_token_id": 0,
    "d_model": 512,
    "decoder_attention_heads": 8,
    "decoder_ffn_dim": 2048,
    "decoder_layers": 6,
    "decoder_start_token_id": 58_100,
    "decoder_vocab_size": 58_101,
    "encoder_attention_heads": 8,
    "encoder_ffn_dim": 2048,
    "encoder_layers": 6,
    "eos_token_id": 0,
    "forced_eos_token_id": 0,
    "max_length": 512,
    "max_position_embeddings": 512,
    "model_type": "marian",
    "normalize_embedding": False,
    "num_beams": 6,
    "num_hidden_layers": 6,
    "pad_token_id": 58_100,
    "scale_embedding": True,
    "share_encoder_decoder_embeddings": True,
    "static_position_embeddings": True,
    "vocab_size": 58_101,
}
PUBLISHED: dict[str, dict] = {
    "t5-small": {**T5, "d_ff": 2048, "d_model": 512, "num_heads": 8, "num_layers": 6, "task_specific_params": {}},
    "flan-t5-base": {
        **{**T5, "d_ff": 2048, "d_model": 768, "num_heads": 12, "num_layers": 12, "num_decoder_layers": 12},
        **{"feed_forward_proj": "gated-gelu", "relative_attention_max_distance": 128, "tie_word_embeddings": False},
    },
    "mt5-small": {
        **{**T5, "d_ff": 1024, "d_model": 512, "num_heads": 6, "num_layers": 8, "num_decoder_layers": 8},
        **{"model_type": "mt5", "architectures": ["MT5ForConditionalGeneration"], "feed_forward_proj": "gated-gelu"},
        **{"tie_word_embeddings": False, "vocab_size": 250_112, "tokenizer_class": "T5Tokenizer"},
    },
    "bart-base": {
        **{**BART, "architectures": ["BartModel"], "d_model": 768, "encoder_layers": 6, "decoder_layers": 6},
        **{"encoder_attention_heads": 12, "decoder_attention_heads": 12, "encoder_ffn_dim": 3072},
        **{"decoder_ffn_dim": 3072, "vocab_size": 50_265, "normalize_embedding": True, "num_hidden_layers": 6},
        **{"early_stopping": True, "no_repeat_ngram_size": 3, "num_beams": 4, "forced_bos_token_id": 0},
    },
    "bart-large-cnn": {
        **{**BART, "architectures": ["BartForConditionalGeneration"], "vocab_size": 50_264, "prefix": " "},
        **{"force_bos_token_to_be_generated": True, "forced_bos_token_id": 0, "length_penalty": 2.0, "min_length": 56},
        **{"max_length": 142, "no_repeat_ngram_size": 3, "num_beams": 4, "early_stopping": True},
    },
    "mbart-large-50": {
        **{**BART, "model_type": "mbart", "architectures": ["MBartForConditionalGeneration"], "vocab_size": 250_054},
        **{"normalize_before": True, "add_final_layer_norm": True, "normalize_embedding": True},
        **{"scale_embedding": True, "static_position_embeddings": False, "activation_function": "relu"},
        **{"max_length": 200, "num_beams": 5, "early_stopping": True, "tokenizer_class": "MBart50Tokenizer"},
    },
    "opus-mt-en-de": MARIAN,
}
GENERATION = {
    "t5-small": {"begin": [0], "ends": [1]},
    "bart-large-cnn": {"begin": [2], "ends": [2], "forced": [0], "min_new_tokens": 55, "no_repeat": 3}
    | {"early_stopping": True, "length_penalty": 2.0},
    "mbart-large-50": {"begin": [2], "ends": [2], "early_stopping": True},
    "opus-mt-en-de": {"begin": [58_100], "ends": [0], "suppressed": [58_100]},
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_configuration_has_the_tensors_that_transformers_has(name):
    config = {**PUBLISHED[name], "transformers_version": "4.30.0", "torch_dtype": "float32"}
    family = family_of(config)
    spec = family.spec(config)
    made = write_tensors(family, spec, unique_tensors(without_memory(spec)), bare=False)
    kept = {key: value for key, value in config.items() if key not in ("model_type", "architectures")}
    with torch.device("meta"):
        theirs = transformers.AutoModelForSeq2SeqLM.from_config(
            transformers.AutoConfig.for_model(config["model_type"], **kept)
        )
    shapes = {name: value.shape for name, value in theirs.state_dict().items()}
    assert {name: value.shape for name, value in made.items()}.items() <= shapes.items()
    tied = {"lm_head.weight"} if spec.decoder.head.tied else set()
    rest = {one for one in shapes.keys() - made.keys() - tied if "embed_tokens" not in one}
    assert all("embed_positions" in one for one in rest), rest  # Marian's, worked out anew
    assert family.config(spec).items() >= {"d_model": config["d_model"]}.items()


@pytest.mark.parametrize(
    "fields",
    [
        {"feed_forward_proj": "gated-gelu"},
        {"feed_forward_proj": "gated-gelu", "dense_act_fn": "gelu", "is_gated_act": True},
        {"feed_forward_proj": "relu", "dense_act_fn": "silu"},
        {"feed_forward_proj": "relu", "is_gated_act": True},
    ],
)
def test_what_t5_says_twice_of_its_activation_is_read_as_transformers_reads_it(fields):
    config = PUBLISHED["t5-small"] | fields
    theirs = transformers.T5Config(**{k: v for k, v in config.items() if k not in ("model_type", "architectures")})
    spec = family_of(config).spec(config)
    channel = spec.encoder.blocks[0].channel
    assert channel.activation == ACTIVATIONS[theirs.dense_act_fn]
    assert isinstance(channel, GatedSpec) == theirs.is_gated_act
    assert family_of(config).spec(family_of(config).config(spec)) == spec


def test_a_class_whose_name_ends_in_model_keeps_its_prefix_where_it_has_a_head():
    without_head = set(MODEL_MAPPING_NAMES.values())
    for family in FAMILIES.values():
        for name in (one for one in family.architectures if one.endswith("Model")):
            assert (name in family.headed) == (name not in without_head), name


@pytest.mark.parametrize("name", GENERATION)
def test_what_it_says_of_writing(name):
    assert own_generation(PUBLISHED[name], {}) == GENERATION[name]


def test_repetitions_are_as_probable_as_published():
    config = PUBLISHED["t5-small"]
    plain, own = own_generation(config, {}), own_generation(config, {"repetition_penalty": 1.2})
    assert own == plain | {"repetition_penalty": 1.2} == own_generation(config | {"repetition_penalty": 1.2}, {})
    assert own_generation(config, {"repetition_penalty": 1.0}) == plain
    assert published_generation(own)["repetition_penalty"] == 1.2
    for wrong in ("much", 0, -1.0, [1.2]):
        with pytest.raises(SettingError, match=r"^repetition_penalty: .* is no such number"):
            own_generation(config, {"repetition_penalty": wrong})


@pytest.mark.parametrize("name", NOT_FOLLOWED)
def test_what_would_change_the_most_probable_text_is_refused_by_name(name):
    assert all(own_generation(PUBLISHED["t5-small"], {name: one}) is not None for one in NOT_FOLLOWED[name])
    with pytest.raises(UnsupportedError, match=rf"^{name}: 3 is not followed when a text is written here"):
        own_generation(PUBLISHED["t5-small"], {name: 3})


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("bart-base", {"normalize_before": True}),
        ("bart-base", {"static_position_embeddings": True}),
        ("mbart-large-50", {"add_final_layer_norm": False}),
        ("opus-mt-en-de", {"normalize_embedding": True}),
        ("bart-base", {"tie_word_embeddings": False}),
        ("t5-small", {"is_decoder": True}),
        ("t5-small", {"sparsity": 0.5}),
        ("bart-base", {"architectures": ["BartForSequenceClassification"]}),
        ("bart-base", {"activation_function": "quick_gelu"}),
    ],
)
def test_what_the_rules_do_not_cover_is_refused_by_name(name, wrong):
    config = PUBLISHED[name] | wrong
    with pytest.raises(UnsupportedError, match=rf"^{next(iter(wrong))}: "):
        family_of(config).spec(config)
