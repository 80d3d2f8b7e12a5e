"""Every decoder family against transformers: published configurations, shrunk in width and depth alone."""

from __future__ import annotations

import pytest
import torch
from published import check_export, check_greedy, check_same, pair, tokens, transformers

from glassformer.model import build_model

VOCAB, WINDOW, LENGTH = 96, 8, 24  # texts are three times as long as a window
LLAMA = {"hidden_size": 64, "intermediate_size": 88, "num_hidden_layers": 3, "vocab_size": VOCAB}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
YARN = {"rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0, "original_max_position_embeddings": 32_768}
GEMMA = {**LLAMA, "num_hidden_layers": 7, "head_dim": 32, "sliding_window": WINDOW, "num_attention_heads": 4}

# name -> (model_type, the fields of the published configuration)
CASES: dict[str, tuple[str, dict]] = {
    "llama-2-7b": ("llama", {**LLAMA, "num_attention_heads": 4, "rms_norm_eps": 1e-5, "max_position_embeddings": 4096}),
    "llama-3.1-8b": (
        "llama",
        {**LLAMA, **HEADS, "rms_norm_eps": 1e-5, "max_position_embeddings": 131_072, "rope_parameters": LLAMA3},
    ),
    "llama-3.2-1b": (
        "llama",
        {**LLAMA, **HEADS, "tie_word_embeddings": True, "head_dim": 16, "rope_parameters": LLAMA3 | {"factor": 32.0}},
    ),
    "llama-biased": ("llama", {**LLAMA, **HEADS, "attention_bias": True, "mlp_bias": True, "head_dim": 24}),
    "smollm2-135m": (
        "llama",
        {
            **{**LLAMA, "hidden_size": 72},
            "num_attention_heads": 9,
            "num_key_value_heads": 3,
            "tie_word_embeddings": True,
            "rms_norm_eps": 1e-5,
            "rope_parameters": {"rope_type": "default", "rope_theta": 100_000.0},
        },
    ),
    "mistral-7b-v0.1": ("mistral", {**LLAMA, **HEADS, "rms_norm_eps": 1e-5, "sliding_window": WINDOW}),
    "mistral-7b-v0.3": (
        "mistral",
        {**LLAMA, **HEADS, "sliding_window": None, "rope_parameters": {"rope_type": "default", "rope_theta": 1e6}},
    ),
    "qwen2-0.5b": ("qwen2", {**LLAMA, **HEADS, "tie_word_embeddings": True, "rope_parameters": YARN}),
    "qwen2-7b": ("qwen2", {**LLAMA, **HEADS, "use_sliding_window": False, "sliding_window": 131_072}),
    "qwen2-windows": (
        "qwen2",
        {**LLAMA, **HEADS, "use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 2},
    ),
    "qwen3-0.6b": (
        "qwen3",
        {**LLAMA, **HEADS, "head_dim": 32, "tie_word_embeddings": True, "max_position_embeddings": 40_960},
    ),
    "qwen3-windows": (
        "qwen3",
        {
            **{**LLAMA, **HEADS, "head_dim": 16, "attention_bias": True, "use_sliding_window": True},
            "sliding_window": WINDOW,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        },
    ),
    "olmo-2-1124-7b": (
        "olmo2",
        {
            **{**LLAMA, "num_attention_heads": 4, "max_position_embeddings": 4096},
            "rope_parameters": {"rope_type": "default", "rope_theta": 500_000.0},
        },
    ),
    "olmo-2-grouped": ("olmo2", {**LLAMA, **HEADS, "attention_bias": True, "rms_norm_eps": 1e-6}),
    "gemma-2-2b": ("gemma2", {**GEMMA, "num_key_value_heads": 2, "query_pre_attn_scalar": 256}),
    "gemma-2-27b": (
        "gemma2",
        {
            **{**GEMMA, "num_key_value_heads": 2, "query_pre_attn_scalar": 144, "attn_logit_softcapping": 5.0},
            "final_logit_softcapping": 3.0,
        },
    ),
    "gemma-3-1b": ("gemma3_text", {**GEMMA, "num_key_value_heads": 1}),
    "gemma-3-27b": (
        "gemma3_text",
        {
            **{**GEMMA, "num_key_value_heads": 2, "query_pre_attn_scalar": 168, "final_logit_softcapping": 4.0},
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
                "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
            },
        },
    ),
    "pythia-160m": ("gpt_neox", {**LLAMA, "num_attention_heads": 4}),
    "gpt-neox-20b": (
        "gpt_neox",
        {
            **{**LLAMA, "num_attention_heads": 4, "hidden_act": "gelu_fast", "use_parallel_residual": True},
            "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0, "partial_rotary_factor": 0.5},
        },
    ),
    "gpt-neox-sequential": (
        "gpt_neox",
        {
            **{**LLAMA, "num_attention_heads": 2, "use_parallel_residual": False, "attention_bias": False},
            **{"tie_word_embeddings": True, "layer_norm_eps": 1e-6},
        },
    ),
    "gpt2": ("gpt2", {"n_embd": 48, "n_layer": 3, "n_head": 4, "vocab_size": VOCAB, "n_positions": 64}),
    "gpt2-inverse-layer": (
        "gpt2",
        {
            **{"n_embd": 48, "n_layer": 3, "n_head": 4, "vocab_size": VOCAB, "n_positions": 64, "n_inner": 100},
            **{"scale_attn_by_inverse_layer_idx": True, "reorder_and_upcast_attn": True},
        },
    ),
    "gpt2-unscaled": (
        "gpt2",
        {
            **{"n_embd": 48, "n_layer": 3, "n_head": 8, "vocab_size": VOCAB, "n_positions": 64},
            **{"scale_attn_weights": False, "tie_word_embeddings": False, "activation_function": "relu"},
        },
    ),
}


def made(name: str, length: int = LENGTH):
    """The pair of a case, with and without a head run on the same text."""
    model_type, fields = CASES[name]
    # Without a padding token, since transformers keeps gradients from its row of the table.
    config = transformers.AutoConfig.for_model(model_type, **fields, pad_token_id=None)
    kind = transformers.AutoModelForCausalLM._model_mapping[type(config)]
    ids = tokens(VOCAB, length)
    return pair(config, kind, lambda model: model(ids, use_cache=False).logits, lambda model: model(ids))


@pytest.mark.parametrize("name", CASES)
def test_logits_and_gradients_are_those_of_transformers(name):
    check_same(made(name))


@pytest.mark.parametrize("name", CASES)
def test_greedy_text_is_that_of_transformers(name):
    check_greedy(made(name), tokens(VOCAB, 5), LENGTH)


@pytest.mark.parametrize("name", CASES)
def test_transformers_loads_what_is_exported(name, tmp_path):
    check_export(made(name), tmp_path)


@pytest.mark.parametrize("name", ["llama-3.1-8b", "qwen2-0.5b", "gemma-3-27b"])
def test_scaled_positions_are_those_of_transformers_in_a_long_text(name):
    """So long that the scaled frequencies turn: without the scaling the logits are others."""
    both = made(name, 600)
    check_same(both)
    ids, blocks = tokens(VOCAB, 600), []
    for block in both.ours.spec.blocks:
        rope = block.mixer.position.changed(scaling=None)
        blocks.append(block.changed(mixer=block.mixer.changed(position=rope)))
    plain = build_model(both.ours.spec.changed(blocks=blocks)).eval()
    plain.load_state_dict(both.ours.state_dict())
    with torch.no_grad():
        assert (plain(ids) - both.ours(ids)).abs().max() > 1e-2
