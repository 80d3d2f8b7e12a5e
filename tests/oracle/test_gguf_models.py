"""GGUF files written as llama.cpp's converter writes them, beside the models of transformers that they hold."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pytest
import torch
from published import lively, tokens, transformers

import glassformer as gf
from glassformer.errors import CheckpointError, UnsupportedError
from glassformer.formats import huggingface
from glassformer.formats.gguf import read_header
from glassformer.formats.gguf_model import configured

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    gguf = pytest.importorskip("gguf", reason='the files are written by the package gguf: pip install "gguf"')

VOCAB, LENGTH = 96, 24
SIZES = {"vocab_size": VOCAB, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2}
LLAMA3 = {"rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
LLAMA3 |= {"original_max_position_embeddings": 8192}
GEMMA = {**SIZES, **HEADS, "num_hidden_layers": 7, "head_dim": 32, "sliding_window": 8, "query_pre_attn_scalar": 32}
CASES = {
    "llama": ("llama", {**SIZES, **HEADS, "tie_word_embeddings": False}),
    "llama-tied": ("llama", {**SIZES, **HEADS, "head_dim": 24, "tie_word_embeddings": True}),
    "llama-biased": ("llama", {**SIZES, **HEADS, "attention_bias": True}),
    "llama-3.1": ("llama", {**SIZES, **HEADS, "head_dim": 32, "rope_parameters": LLAMA3}),
    "qwen2": ("qwen2", {**SIZES, **HEADS, "tie_word_embeddings": True}),
    "qwen3": ("qwen3", {**SIZES, **HEADS, "head_dim": 24}),
    "gemma2": ("gemma2", {**GEMMA, "attn_logit_softcapping": 5.0, "final_logit_softcapping": 3.0}),
    "gemma3": ("gemma3_text", GEMMA),
    "gpt2": ("gpt2", {"vocab_size": VOCAB, "n_embd": 64, "n_layer": 3, "n_head": 4, "n_positions": 64}),
    "gptneox": ("gpt_neox", {**SIZES, "num_attention_heads": 4, "rotary_pct": 0.25}),
    "gptneox-sequential": ("gpt_neox", {**SIZES, "num_attention_heads": 4, "use_parallel_residual": False}),
}
STEMS = [
    (r"(model\.embed_tokens|transformer\.wte|gpt_neox\.embed_in)", "token_embd"),
    (r"transformer\.wpe", "position_embd"),
    (r"(model\.norm|transformer\.ln_f|gpt_neox\.final_layer_norm)", "output_norm"),
    (r"(lm_head|embed_out)", "output"),
    (r"(?:model\.layers|transformer\.h|gpt_neox\.layers)\.(\d+)\.", r"blk.\1."),
    (r"(input_layernorm|ln_1)", "attn_norm"),
    (r"(post_attention_layernorm|ln_2)", "ffn_norm"),
    (r"self_attn\.([qkv])_proj", r"attn_\1"),
    (r"self_attn\.([qk])_norm", r"attn_\1_norm"),
    (r"(self_attn\.o_proj|attn\.c_proj|attention\.dense)", "attn_output"),
    (r"(attn\.c_attn|attention\.query_key_value)", "attn_qkv"),
    (r"mlp\.gate_proj", "ffn_gate"),
    (r"(mlp\.up_proj|mlp\.c_fc|mlp\.dense_h_to_4h)", "ffn_up"),
    (r"(mlp\.down_proj|mlp\.c_proj|mlp\.dense_4h_to_h)", "ffn_down"),
]
OF_GEMMA = [
    (r"post_attention_layernorm", "post_attention_norm"),
    (r"pre_feedforward_layernorm", "ffn_norm"),
    (r"post_feedforward_layernorm", "post_ffw_norm"),
]


def converted(arch, config, name, value):
    """(name, content) of a tensor in the file."""
    for pattern, stem in [*(OF_GEMMA if arch.startswith("gemma") else []), *STEMS]:
        name = re.sub(pattern, stem, name)
    if arch.startswith("gemma") and name.endswith("norm.weight"):
        value = value + 1
    if arch == "llama" and re.search(r"attn_[qk]\.", name):  # halves of a head to neighbours
        heads = config.num_attention_heads if "attn_q." in name else config.num_key_value_heads
        rows = value.reshape(heads, 2, value.shape[0] // heads // 2, *value.shape[1:])
        value = rows.swapaxes(1, 2).reshape(value.shape)
    if arch == "gpt2" and value.ndim == 2 and "embd" not in name and name != "output.weight":
        value = value.T
    if arch == "gptneox" and "attn_qkv" in name:
        heads = config.num_attention_heads
        rows = value.reshape(heads, 3, value.shape[0] // heads // 3, *value.shape[1:])
        value = torch.cat([rows[:, part].flatten(0, 1) for part in range(3)])
    return name, value.contiguous().numpy()


def entries(writer, arch, config, rope):
    """What the converter says of a configuration."""
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(4 * config.hidden_size if arch == "gpt2" else config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_file_type(0)
    if arch in ("gpt2", "gptneox"):
        writer.add_layer_norm_eps(config.layer_norm_epsilon if arch == "gpt2" else config.layer_norm_eps)
        if arch == "gptneox":
            head = config.hidden_size // config.num_attention_heads
            writer.add_rope_dimension_count(int(config.rope_parameters.get("partial_rotary_factor", 0.25) * head))
            writer.add_parallel_residual(config.use_parallel_residual)
        return
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    writer.add_key_length(head)
    writer.add_value_length(head)
    if arch.startswith("gemma"):
        writer.add_sliding_window(config.sliding_window)
    if arch == "gemma2":
        writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
        writer.add_final_logit_softcapping(config.final_logit_softcapping)
    else:
        writer.add_rope_freq_base(rope)


def write(path, arch, model, quantised=None, **split):
    config = model.config
    parameters = config.rope_parameters if hasattr(config, "rope_parameters") else {}
    rope = parameters.get("full_attention", parameters).get("rope_theta", 1e4)
    writer = gguf.GGUFWriter(path, arch, **split)
    entries(writer, arch, config, rope)
    pieces = [f"<{i}>" for i in range(3)] + [chr(0x4E00 + i) for i in range(VOCAB - 3)]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(pieces)
    writer.add_token_types([3] * 3 + [1] * (VOCAB - 3))
    writer.add_token_merges([])
    writer.add_eos_token_id(2)
    writer.add_bos_token_id(1)
    if parameters.get("rope_type") == "llama3":
        writer.add_tensor("rope_freqs.weight", divided(config))
    names = dict(model.named_parameters())
    for name, value in names.items():
        name, value = converted(arch, config, name, value.detach())
        if quantised is not None and value.ndim == 2:
            writer.add_tensor(name, gguf.quantize(value, quantised), raw_dtype=quantised)
        else:
            writer.add_tensor(name, value.astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def divided(config):
    """What llama.cpp divides each frequency by."""
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](config, "cpu")
    head = config.head_dim
    plain = config.rope_parameters["rope_theta"] ** -(torch.arange(0, head, 2) / head)
    return (plain / scaled).float().numpy()


def made(name):
    kind, fields = CASES[name]
    config = transformers.CONFIG_MAPPING[kind](**fields)
    config._attn_implementation = "eager"
    model = lively(transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager"))
    return model, name.split("-")[0]


@torch.no_grad()
@pytest.mark.parametrize("name", CASES)
def test_a_file_gives_the_logits_of_the_model_that_it_was_made_of(tmp_path, name):
    theirs, arch = made(name)
    ours = gf.load(write(tmp_path / "a.gguf", arch, theirs))
    ids = tokens(VOCAB, LENGTH)
    wanted = theirs(ids).logits
    assert wanted.std() > 0.05 and (ours.model(ids) - wanted).abs().max() < 5e-5
    ours.save(tmp_path / "copy")
    assert torch.equal(gf.load(tmp_path / "copy").model(ids), ours.model(ids))
    assert ours.about["config"]["model_type"] == theirs.config.model_type


@torch.no_grad()
@pytest.mark.parametrize("quantised", [None, gguf.GGMLQuantizationType.Q8_0])
def test_a_model_in_several_files_is_the_one_in_one(tmp_path, quantised):
    theirs, arch = made("llama")
    whole = gf.load(write(tmp_path / "whole.gguf", arch, theirs, quantised))
    (tmp_path / "parts").mkdir()
    write(tmp_path / "parts" / "a.gguf", arch, theirs, quantised, split_max_tensors=3)
    files = sorted((tmp_path / "parts").glob("*.gguf"))
    assert len(files) > 3 and files[0].name == f"a-00001-of-{len(files):05}.gguf"
    ids = tokens(VOCAB, 12)
    for given in (files[0], files[-1], tmp_path / "parts"):
        ours = gf.load(given)
        assert torch.equal(ours.model(ids), whole.model(ids)) and ours.tokenizer.ends == whole.tokenizer.ends
    files[2].unlink()
    for given in (files[0], tmp_path / "parts"):
        with pytest.raises(CheckpointError) as raised:
            gf.load(given)
        assert str(raised.value) == f"{files[2]} is missing, one of {len(files)} files of weights; fetch it again"


@torch.no_grad()
@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0", "F16"])
def test_a_quantised_file_gives_those_of_its_rounded_weights(tmp_path, kind):
    theirs, arch = made("llama")
    kind = gguf.GGMLQuantizationType[kind]
    ours = gf.load(write(tmp_path / "a.gguf", arch, theirs, kind))
    for value in theirs.parameters():
        if value.ndim == 2:
            value.copy_(torch.from_numpy(np.array(gguf.dequantize(gguf.quantize(value.numpy(), kind), kind))))
    ids = tokens(VOCAB, LENGTH)
    assert (ours.model(ids) - theirs(ids).logits).abs().max() < 5e-5


def test_a_head_with_the_content_of_the_table_is_tied(tmp_path):
    theirs, arch = made("llama")
    theirs.lm_head.weight.data.copy_(theirs.model.embed_tokens.weight.data)
    assert gf.load(write(tmp_path / "a.gguf", arch, theirs)).spec.head.tied
    theirs.lm_head.weight.data[-1, -1] += 1
    assert not gf.load(write(tmp_path / "b.gguf", arch, theirs)).spec.head.tied


def test_what_the_rules_do_not_cover_is_refused_by_name(tmp_path):
    theirs, arch = made("llama")
    file = read_header(write(tmp_path / "a.gguf", arch, theirs))
    whole = dict(file.metadata)

    def refused(kind, said, **changed):
        file.metadata = whole | {name.replace("__", "."): value for name, value in changed.items()}
        with pytest.raises(kind, match=said):
            configured(file)

    refused(UnsupportedError, r"the architecture 'rwkv7' is not read; allowed: gemma2", general__architecture="rwkv7")
    refused(UnsupportedError, r"the entry llama\.expert_count \(here 8\) is not known", llama__expert_count=8)
    refused(UnsupportedError, r"llama\.feed_forward_length is a list", llama__feed_forward_length=[96, 96, 96])
    refused(UnsupportedError, r"differ in width", llama__attention__value_length=8)
    refused(UnsupportedError, r"llama\.attention\.causal is not true", llama__attention__causal=False)
    refused(CheckpointError, rf"llama\.vocab_size is 7, the table has {VOCAB} rows", llama__vocab_size=7)
    refused(CheckpointError, r"llama\.block_count is missing or no number", llama__block_count="three")
    refused(
        CheckpointError,
        r"does not fit its heads",
        llama__attention__head_count=5,
        llama__attention__key_length=16,
        llama__attention__value_length=16,
        llama__rope__dimension_count=16,
    )
    refused(
        UnsupportedError,
        r"the entries rope\.scaling\.alpha are not known",
        llama__rope__scaling__alpha=3.0,
        llama__rope__scaling__type="linear",
    )
    file.metadata = whole | {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0}
    assert configured(file)[0]["rope_scaling"] == {"rope_type": "linear", "factor": 4.0}


def test_other_frequencies_than_those_of_llama_3_are_refused(tmp_path):
    theirs, arch = made("llama-3.1")
    theirs.config.rope_parameters["low_freq_factor"] = 2.0
    with pytest.raises(UnsupportedError, match=r"the frequencies in 'rope_freqs\.weight' are not those of Llama 3"):
        gf.load(write(tmp_path / "a.gguf", arch, theirs))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("llama.rope.freq_base", "high"),
        ("llama.attention.head_count_kv", "two"),
        ("tokenizer.ggml.merges", [3, 4]),
        ("tokenizer.ggml.tokens", list(range(VOCAB))),
        ("tokenizer.ggml.tokens", "a"),
        ("tokenizer.ggml.token_type", 3),
        ("llama.attention.layer_norm_rms_epsilon", [1e-5]),
    ],
)
def test_an_entry_of_another_type_is_a_mistake_and_no_crash(tmp_path, monkeypatch, name, value):
    theirs, arch = made("llama")
    file = write(tmp_path / "a.gguf", arch, theirs)
    held = read_header(file)
    held.metadata[name] = value
    monkeypatch.setattr(huggingface, "read_whole", lambda path: held)
    with pytest.raises(gf.GlassformerError):
        gf.load(file)
