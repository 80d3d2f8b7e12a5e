"""Published config.json files of decoders, at full size and without memory: what they mean, and what is refused."""

from __future__ import annotations

import copy

import pytest
import torch
from published import check_export, check_same, meaning, pair, tokens, transformers
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from glassformer.checkpoint import unique_tensors
from glassformer.errors import CheckpointError, SettingError, UnsupportedError
from glassformer.hf import FAMILIES, export, family_of, read_model
from glassformer.hf.rules import FREE
from glassformer.hf.tensors import write_tensors
from glassformer.model import build_model, without_memory
from glassformer.named import preset
from glassformer.nn.position import rope_frequencies

BEYOND = {"initializer_range": 0.02, "use_cache": True, "torch_dtype": "bfloat16", "transformers_version": "4.40.1"}
LLAMA = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_act": "silu", **BEYOND}
# As they lie in the repositories of these models.
PUBLISHED: dict[str, dict] = {
    "llama-2-7b": {
        **LLAMA,
        **{"hidden_size": 4096, "intermediate_size": 11_008, "num_hidden_layers": 32, "num_attention_heads": 32},
        **{"num_key_value_heads": 32, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "vocab_size": 32_000},
        **{"pretraining_tp": 1, "rope_scaling": None, "tie_word_embeddings": False, "bos_token_id": 1},
    },
    "llama-3.1-8b": {
        **LLAMA,
        **{"hidden_size": 4096, "intermediate_size": 14_336, "num_hidden_layers": 32, "num_attention_heads": 32},
        **{"num_key_value_heads": 8, "max_position_embeddings": 131_072, "rms_norm_eps": 1e-5, "vocab_size": 128_256},
        **{"attention_bias": False, "mlp_bias": False, "rope_theta": 500_000.0, "tie_word_embeddings": False},
        "eos_token_id": [128_001, 128_008, 128_009],
        "rope_scaling": {
            **{"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "rope_type": "llama3"},
            "original_max_position_embeddings": 8192,
        },
    },
    "smollm2-135m": {
        **LLAMA,
        **{"hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30, "num_attention_heads": 9},
        **{"num_key_value_heads": 3, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "vocab_size": 49_152},
        **{"is_llama_config": True, "rope_interleaved": False, "rope_theta": 100_000, "tie_word_embeddings": True},
        **{"pad_token_id": 2, "transformers.js_config": {"kv_cache_dtype": {"q4f16": "float16"}}},
    },
    "mistral-7b-v0.1": {
        **BEYOND,
        **{"model_type": "mistral", "architectures": ["MistralForCausalLM"], "hidden_act": "silu"},
        **{"hidden_size": 4096, "intermediate_size": 14_336, "num_hidden_layers": 32, "num_attention_heads": 32},
        **{"num_key_value_heads": 8, "max_position_embeddings": 32_768, "rms_norm_eps": 1e-5, "vocab_size": 32_000},
        **{"rope_theta": 10_000.0, "sliding_window": 4096, "tie_word_embeddings": False},
    },
    "qwen2-0.5b": {
        **BEYOND,
        **{"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "hidden_act": "silu"},
        **{"hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14},
        **{"num_key_value_heads": 2, "max_position_embeddings": 131_072, "rms_norm_eps": 1e-6, "vocab_size": 151_936},
        **{"rope_theta": 1_000_000.0, "use_sliding_window": False, "sliding_window": 131_072, "max_window_layers": 24},
        **{"tie_word_embeddings": True, "attention_dropout": 0.0},
    },
    "qwen2.5-7b-instruct-long": {  # with the YaRN that its card recommends
        **BEYOND,
        **{"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "hidden_act": "silu", "use_mrope": False},
        **{"hidden_size": 3584, "intermediate_size": 18_944, "num_hidden_layers": 28, "num_attention_heads": 28},
        **{"num_key_value_heads": 4, "max_position_embeddings": 32_768, "rms_norm_eps": 1e-6, "vocab_size": 152_064},
        **{"rope_theta": 1_000_000.0, "use_sliding_window": False, "sliding_window": 131_072, "max_window_layers": 28},
        "rope_scaling": {"factor": 4.0, "original_max_position_embeddings": 32_768, "type": "yarn"},
    },
    "qwen2-windows": {
        **BEYOND,
        **{"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "num_hidden_layers": 4, "hidden_size": 128},
        **{"num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 96, "tie_word_embeddings": True},
        **{"use_sliding_window": True, "sliding_window": 4096, "max_window_layers": 3},
    },
    "qwen3-0.6b": {
        **BEYOND,
        **{"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "hidden_act": "silu", "head_dim": 128},
        **{"hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28, "num_attention_heads": 16},
        **{"num_key_value_heads": 8, "max_position_embeddings": 40_960, "rms_norm_eps": 1e-6, "vocab_size": 151_936},
        **{"rope_theta": 1_000_000, "rope_scaling": None, "use_sliding_window": False, "sliding_window": None},
        **{"max_window_layers": 28, "tie_word_embeddings": True, "attention_bias": False, "attention_dropout": 0.0},
    },
    "olmo-2-1124-7b": {
        **BEYOND,
        **{"model_type": "olmo2", "architectures": ["Olmo2ForCausalLM"], "hidden_act": "silu", "rope_theta": 500_000},
        **{"hidden_size": 4096, "intermediate_size": 11_008, "num_hidden_layers": 32, "num_attention_heads": 32},
        **{"num_key_value_heads": 32, "max_position_embeddings": 4096, "rms_norm_eps": 1e-6, "vocab_size": 100_352},
        **{"rope_scaling": None, "tie_word_embeddings": False, "attention_bias": False, "attention_dropout": 0.0},
    },
    "gemma-2-2b": {
        **BEYOND,
        **{"model_type": "gemma2", "architectures": ["Gemma2ForCausalLM"], "hidden_act": "gelu_pytorch_tanh"},
        **{"hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26, "num_attention_heads": 8},
        **{"num_key_value_heads": 4, "head_dim": 256, "max_position_embeddings": 8192, "vocab_size": 256_000},
        **{"rms_norm_eps": 1e-6, "rope_theta": 10_000.0, "query_pre_attn_scalar": 256, "sliding_window": 4096},
        **{"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0, "cache_implementation": "hybrid"},
        **{"hidden_activation": "gelu_pytorch_tanh", "attention_bias": False, "attention_dropout": 0.0},
    },
    "gemma-3-1b-pt": {
        **BEYOND,
        **{"model_type": "gemma3_text", "architectures": ["Gemma3ForCausalLM"], "cache_implementation": "hybrid"},
        **{"hidden_size": 1152, "intermediate_size": 6912, "num_hidden_layers": 26, "num_attention_heads": 4},
        **{"num_key_value_heads": 1, "head_dim": 256, "max_position_embeddings": 32_768, "vocab_size": 262_144},
        **{"rms_norm_eps": 1e-6, "rope_theta": 1_000_000, "rope_local_base_freq": 10_000, "rope_scaling": None},
        **{"query_pre_attn_scalar": 256, "sliding_window": 512, "sliding_window_pattern": 6},
        **{"attn_logit_softcapping": None, "final_logit_softcapping": None, "eos_token_id": [1, 106]},
        **{"hidden_activation": "gelu_pytorch_tanh", "attention_bias": False, "attention_dropout": 0.0},
    },
    "pythia-160m": {
        **BEYOND,
        **{"model_type": "gpt_neox", "architectures": ["GPTNeoXForCausalLM"], "hidden_act": "gelu"},
        **{"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12},
        **{"max_position_embeddings": 2048, "layer_norm_eps": 1e-5, "vocab_size": 50_304, "rotary_pct": 0.25},
        **{"rotary_emb_base": 10_000, "tie_word_embeddings": False, "use_parallel_residual": True},
    },
    "gpt2": {
        **{"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "activation_function": "gelu_new"},
        **{"attn_pdrop": 0.1, "embd_pdrop": 0.1, "resid_pdrop": 0.1, "layer_norm_epsilon": 1e-5, "n_ctx": 1024},
        **{"n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 1024, "vocab_size": 50_257},
        **{"summary_type": "cls_index", "summary_use_proj": True, "initializer_range": 0.02},
        "task_specific_params": {"text-generation": {"do_sample": True, "max_length": 50}},
    },
}


def theirs(config: dict):
    """What transformers makes of a configuration."""
    kind = transformers.AutoConfig.for_model(config["model_type"]).__class__
    given = copy.deepcopy(config)  # since it is changed on the way
    return kind.from_dict({name: value for name, value in given.items() if name != "torch_dtype"})


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_configuration_has_the_tensors_of_transformers(name):
    config = PUBLISHED[name]
    family = family_of(config)
    ours = without_memory(family.spec(config))
    with torch.device("meta"):
        model = getattr(transformers, config["architectures"][0])(theirs(config))
    wanted = {name.replace("lm_head", "embed_out") if family.name == "gpt_neox" else name: tuple(x.shape)
              for name, x in model.named_parameters()}  # fmt: skip
    found = write_tensors(family, ours.spec, unique_tensors(ours), bare=False)
    assert {name: tuple(x.shape) for name, x in found.items()} == wanted


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_configuration_means_the_same_after_export_and_in_the_form_of_transformers_5(name):
    config = PUBLISHED[name]
    family = family_of(config)
    spec = family.spec(config)
    assert meaning(family.spec(theirs(config).to_dict())) == meaning(spec)
    again, before = (theirs(one).to_dict() for one in (family.config(spec), config))
    # max_window_layers says nothing without a window, and n_inner is null for four times the width.
    ignored = FREE | family.free | family.fixed.keys() | {"max_window_layers", "n_inner"}
    assert meaning(family.spec(again)) == meaning(spec)
    if "type" in before.get("rope_parameters", ()):  # an older word, without the defaults of YaRN
        ignored |= {"rope_parameters"}
    different = {n for n in before if n not in ignored and again.get(n) != before[n]}
    assert not different


CHANGES = {
    "dynamic": (
        "llama",
        {"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}},
        r"^rope_scaling: the type 'dynamic'",
    ),
    "longrope": ("llama", {"rope_scaling": {"type": "longrope", "short_factor": [1.0]}}, r"type 'longrope'"),
    "unknown scaling field": (
        "llama",
        {"rope_scaling": {"rope_type": "linear", "factor": 2.0, "finetuned": True}},
        r"^rope_scaling: finetuned is not known for the type linear",
    ),
    "no factor": ("llama", {"rope_scaling": {"rope_type": "linear"}}, r"rope_scaling=.*this is not what"),
    "half turned": ("llama", {"partial_rotary_factor": 0.5}, r"^partial_rotary_factor: 0\.5 is not supported"),
    "parameters without a type": ("llama", {"rope_parameters": {"factor": 2.0}}, r"^rope_parameters: factor without"),
    "split": ("llama", {"pretraining_tp": 2}, r"^pretraining_tp: 2 is not supported"),
    "activation": ("llama", {"hidden_act": "xielu"}, r"^hidden_act: 'xielu' is not known"),
    "quantized": ("llama", {"quantization_config": {"bits": 4}}, r"^quantization_config: "),
    "layer types of Mistral": ("mistral", {"layer_types": ["full_attention"]}, r"^layer_types: this field"),
    "mrope": ("qwen2", {"use_mrope": True}, r"^use_mrope: True is not supported"),
    "chunks": ("qwen2", {"layer_types": ["chunked_attention"]}, r"^layer_types: 'chunked_attention' is not known"),
    "no window": ("qwen3", {"layer_types": ["sliding_attention"] * 2}, r"^layer_types: sliding_attention needs a"),
    "too few types": ("gemma2", {"layer_types": ["full_attention"]}, r"there are 1 values for 2 blocks"),
    "two windows": ("gemma2", {"sliding_window": 8, "sliding_window_size": 9}, r"^sliding_window_size: it differs"),
    "two-sided": ("gemma2", {"use_bidirectional_attention": True}, r"^use_bidirectional_attention: True"),
    "embedding model": ("gemma3_text", {"use_bidirectional_attention": True}, r"^use_bidirectional_attention: True"),
    "ignored cap": ("gemma3_text", {"attn_logit_softcapping": 50.0}, r"^attn_logit_softcapping: 50\.0 is not"),
    "local scaling": (
        "gemma3_text",
        {"rope_parameters": {"sliding_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e4}}},
        r"^rope_parameters: sliding_attention can only",
    ),
    "cross": ("gpt2", {"add_cross_attention": True}, r"^add_cross_attention: True is not supported"),
    "wiring": ("gpt_neox", {"use_parallel_residual": "yes"}, r"^use_parallel_residual='yes'"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_the_rules_do_not_cover_is_refused_by_name(name):
    model_type, changes, message = CHANGES[name]
    layers = "n_layer" if model_type == "gpt2" else "num_hidden_layers"
    FAMILIES[model_type].spec({"model_type": model_type, layers: 2})
    with pytest.raises((UnsupportedError, SettingError), match=message):
        FAMILIES[model_type].spec({"model_type": model_type, layers: 2, **changes})


# ---------------------------------------------------------------- RoPE

SCALINGS = {
    "plain": {"rope_type": "default"},
    "linear": {"rope_type": "linear", "factor": 8.0},
    "llama3": {
        **{"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
        "original_max_position_embeddings": 8192,
    },
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32_768},
    "yarn of the context": {"rope_type": "yarn", "factor": 4.0},
    "yarn, gpt-oss": {
        **{"rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 4096, "truncate": False},
        **{"beta_fast": 32.0, "beta_slow": 1.0},
    },
    "yarn, deepseek": {
        **{"rope_type": "yarn", "factor": 40.0, "original_max_position_embeddings": 4096, "mscale": 1.0},
        **{"mscale_all_dim": 0.707, "beta_fast": 32, "beta_slow": 1},
    },
    "yarn, one mscale": {"rope_type": "yarn", "factor": 40.0, "original_max_position_embeddings": 4096, "mscale": 0.7},
    "yarn, ratio": {"rope_type": "yarn", "factor": None, "original_max_position_embeddings": 4096},
    "yarn, attention": {
        **{"rope_type": "yarn", "factor": 16.0, "original_max_position_embeddings": 512, "attention_factor": 1.3},
        **{"beta_fast": 20.0, "beta_slow": 2.0, "mscale": 1.0, "mscale_all_dim": 2.0},
    },
}


@pytest.mark.parametrize("theta", [10_000.0, 500_000.0])
@pytest.mark.parametrize("name", SCALINGS)
def test_frequencies_are_those_of_transformers(name, theta):
    sizes = {"hidden_size": 512, "num_attention_heads": 4, "max_position_embeddings": 131_072}
    config = transformers.LlamaConfig(**sizes, rope_parameters={**SCALINGS[name], "rope_theta": theta})
    rope = transformers.models.llama.modeling_llama.LlamaRotaryEmbedding
    kind = SCALINGS[name]["rope_type"]
    wanted, factor = (
        rope.compute_default_rope_parameters(config) if kind == "default" else ROPE_INIT_FUNCTIONS[kind](config)
    )
    given = {"model_type": "llama", **sizes, "rope_theta": theta, "rope_scaling": SCALINGS[name]}
    spec = FAMILIES["llama"].spec(given)
    found, ours = rope_frequencies(spec.blocks[0].mixer.position, 128)
    torch.testing.assert_close(found, wanted, rtol=2.5e-7, atol=0)  # two units in the last place
    assert ours == pytest.approx(factor, rel=1e-12)
    assert meaning(FAMILIES["llama"].spec(FAMILIES["llama"].config(spec))) == meaning(spec)


# ---------------------------------------------------------------- without a head, old checkpoints, our own models


SMALL = {"hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 2, "vocab_size": 64, "num_attention_heads": 4}
BARE = {
    "LlamaModel": transformers.LlamaConfig(**SMALL),
    "Gemma3TextModel": transformers.Gemma3TextConfig(
        **SMALL,
        num_key_value_heads=2,
        head_dim=8,
        sliding_window=4,
        layer_types=["sliding_attention", "full_attention"],
    ),
    "GPTNeoXModel": transformers.GPTNeoXConfig(**SMALL),
    "GPT2Model": transformers.GPT2Config(n_embd=32, n_layer=2, n_head=4, vocab_size=64, n_positions=32),
}


@pytest.mark.parametrize("name", BARE)
def test_a_model_without_a_head_gives_the_same_vectors(name, tmp_path):
    ids = tokens(64, 12)
    ids[ids == 0] = 1  # the padding token, from whose row transformers keeps gradients
    both = pair(BARE[name], name, lambda model: model(ids, use_cache=False).last_hidden_state, lambda model: model(ids))
    assert both.ours.head is None
    check_same(both)
    check_export(both, tmp_path)


def test_the_published_checkpoint_of_gpt2_has_no_prefix_and_holds_masks():
    ids = tokens(64, 12)
    config = transformers.GPT2Config(n_embd=32, n_layer=2, n_head=4, vocab_size=64, n_positions=32)
    both = pair(config, "GPT2LMHeadModel", lambda model: model(ids).logits, lambda model: model(ids))
    stored = {name.removeprefix("transformer."): x for name, x in both.theirs.state_dict().items()}
    stored |= {f"h.{i}.attn.bias": torch.ones(1, 1, 32, 32).tril() for i in range(2)}
    del stored["lm_head.weight"]
    again = read_model(both.config, stored, "memory")
    with torch.no_grad():
        assert torch.equal(again(ids), both.ours(ids))
    for extra in ("h.2.attn.c_attn.bias", "h.0.attn.bias.more"):
        with pytest.raises(CheckpointError, match=f"^memory: the tensors hold '{extra}', which has no place"):
            read_model(both.config, stored | {extra: torch.zeros(96)}, "memory")


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_transformers_runs_a_model_that_was_built_here(name, tmp_path):
    spec = preset(name, vocab=64, dim=32, blocks=2, heads=4, context=32)
    model, ids = build_model(spec).eval(), tokens(64, 12)
    config, tensors = export(model)
    assert config["model_type"] == name
    kind = getattr(transformers, config["architectures"][0])
    loaded = kind(theirs(config)).eval()
    missing, unexpected = loaded.load_state_dict(tensors, strict=False)
    assert not unexpected and set(missing) <= {"lm_head.weight"}
    loaded.tie_weights()
    with torch.no_grad():
        assert (loaded(ids).logits - model(ids)).abs().max() < 5e-6


def test_a_model_that_no_family_can_be_is_refused_with_the_first_difference():
    spec = preset("gpt2", vocab=64, dim=32, blocks=2, heads=4, context=32)
    [block, _] = spec.blocks

    def refused(family: str, message: str, **changes) -> None:
        with pytest.raises(UnsupportedError, match=message):
            FAMILIES[family].config(spec.changed(**changes))

    scaled = block.changed(mixer=block.mixer.changed(scale=0.3))
    refused("gpt2", r"blocks\.0\.mixer\.scale: it can only have .*, not 0\.3", blocks=(scaled, scaled))
    refused(
        "gpt2", r"blocks\.1\.wiring: it can only have 'pre', not 'post'", blocks=(block, block.changed(wiring="post"))
    )
    refused("llama", r"a llama model cannot be this one")
    gemma = FAMILIES["gemma3_text"].spec({"num_hidden_layers": 2, "layer_types": ["sliding_attention"] * 2})
    with pytest.raises(UnsupportedError, match=r"embed\.scale: it can only have 48\.0, not 1\.0"):
        FAMILIES["gemma3_text"].config(gemma.changed(embed=gemma.embed.changed(scale=1.0)))
    one = gemma.blocks[0]
    other = one.changed(mixer=one.mixer.changed(mask=one.mixer.mask.changed(window=9)))
    with pytest.raises(UnsupportedError, match=r"blocks\.\*\.mixer: attention cannot be said in sliding_window"):
        FAMILIES["gemma3_text"].config(gemma.changed(blocks=(one, other)))
    assert meaning(FAMILIES["gemma3_text"].spec(FAMILIES["gemma3_text"].config(gemma))) == meaning(gemma)
