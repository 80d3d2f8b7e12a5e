"""A GGUF file's metadata and tensors as the configuration and the names with which the same model was published, so
that the rules of its family read it (hf/).

llama.cpp stores a few tensors in another order: the rows of q and k of Llama, so that the two numbers that RoPE turns
lie side by side; the fused q, k and v of GPT-NeoX; Gemma's norms with 1 added.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..errors import CheckpointError, UnsupportedError, nearest
from ..hf.rope import halves, written
from ..nn.position import Llama3Scaling, RopeSpec, rope_frequencies
from ..weights import Stored, Weights
from .gguf import GGUF, Held

Config = dict[str, Any]
Change = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Architecture:
    """How llama.cpp names one family.

    model_type  its published name
    fields      of the configuration, by the entry that says them
    names       of tensors, {} for a block's number, by theirs, both without .weight and .bias
    more        fields that the file does not say, or says otherwise
    changed     how the content of a tensor is brought back, by its name in the file
    """

    model_type: str
    fields: Mapping[str, str]
    names: Mapping[str, str]
    more: Callable[[GGUF, Config], Config] = lambda file, config: {}
    changed: Callable[[str, Config], Change | None] = lambda name, config: None


FIELDS = {
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "block_count": "num_hidden_layers",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "rope.freq_base": "rope_theta",
}
SAID_ELSEWHERE = ("vocab_size", "attention.value_length", "rope.dimension_count", "attention.causal")
SCALING = "rope.scaling."
NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "blk.{}.attn_norm": "model.layers.{}.input_layernorm",
    "blk.{}.attn_q": "model.layers.{}.self_attn.q_proj",
    "blk.{}.attn_k": "model.layers.{}.self_attn.k_proj",
    "blk.{}.attn_v": "model.layers.{}.self_attn.v_proj",
    "blk.{}.attn_output": "model.layers.{}.self_attn.o_proj",
    "blk.{}.attn_q_norm": "model.layers.{}.self_attn.q_norm",
    "blk.{}.attn_k_norm": "model.layers.{}.self_attn.k_norm",
    "blk.{}.ffn_norm": "model.layers.{}.post_attention_layernorm",
    "blk.{}.ffn_gate": "model.layers.{}.mlp.gate_proj",
    "blk.{}.ffn_up": "model.layers.{}.mlp.up_proj",
    "blk.{}.ffn_down": "model.layers.{}.mlp.down_proj",
}
GEMMA_NAMES = NAMES | {
    "blk.{}.post_attention_norm": "model.layers.{}.post_attention_layernorm",
    "blk.{}.ffn_norm": "model.layers.{}.pre_feedforward_layernorm",
    "blk.{}.post_ffw_norm": "model.layers.{}.post_feedforward_layernorm",
}
GPT2_FIELDS = {
    "context_length": "n_positions",
    "embedding_length": "n_embd",
    "block_count": "n_layer",
    "feed_forward_length": "n_inner",
    "attention.head_count": "n_head",
    "attention.layer_norm_epsilon": "layer_norm_epsilon",
}
GPT2_NAMES = {
    "token_embd": "transformer.wte",
    "position_embd": "transformer.wpe",
    "output_norm": "transformer.ln_f",
    "output": "lm_head",
    "blk.{}.attn_norm": "transformer.h.{}.ln_1",
    "blk.{}.attn_qkv": "transformer.h.{}.attn.c_attn",
    "blk.{}.attn_output": "transformer.h.{}.attn.c_proj",
    "blk.{}.ffn_norm": "transformer.h.{}.ln_2",
    "blk.{}.ffn_up": "transformer.h.{}.mlp.c_fc",
    "blk.{}.ffn_down": "transformer.h.{}.mlp.c_proj",
}
NEOX_FIELDS = {name: FIELDS[name] for name in list(FIELDS)[:5]} | {
    "attention.layer_norm_epsilon": "layer_norm_eps",
    "rope.freq_base": "rotary_emb_base",
    "use_parallel_residual": "use_parallel_residual",
}
NEOX_NAMES = {
    "token_embd": "gpt_neox.embed_in",
    "output_norm": "gpt_neox.final_layer_norm",
    "output": "embed_out",
    "blk.{}.attn_norm": "gpt_neox.layers.{}.input_layernorm",
    "blk.{}.attn_qkv": "gpt_neox.layers.{}.attention.query_key_value",
    "blk.{}.attn_output": "gpt_neox.layers.{}.attention.dense",
    "blk.{}.ffn_norm": "gpt_neox.layers.{}.post_attention_layernorm",
    "blk.{}.ffn_up": "gpt_neox.layers.{}.mlp.dense_h_to_4h",
    "blk.{}.ffn_down": "gpt_neox.layers.{}.mlp.dense_4h_to_h",
}


# ---------------------------------------------------------------- what a family does otherwise


def _llama(file: GGUF, config: Config) -> Config:
    return {"attention_bias": "blk.0.attn_q.bias" in file.tensors, "hidden_act": "silu"}


def _halves(name: str, config: Config) -> Change | None:
    """The rows of q and k with the numbers that RoPE turns half a head apart, as they are published."""
    part = re.fullmatch(r"blk\.\d+\.attn_([qk])\.(weight|bias)", name)
    if not part:
        return None
    heads = config["num_attention_heads"]
    heads = heads if part[1] == "q" else config.get("num_key_value_heads") or heads
    return lambda x: halves(x, len(x) // heads, len(x) // heads)


def _gemma(file: GGUF, config: Config) -> Config:
    head, blocks = config["head_dim"], config["num_hidden_layers"]
    of_27b = blocks == (46 if file.metadata["general.architecture"] == "gemma2" else 62)  # as llama.cpp knows it
    scale = config["hidden_size"] // config["num_attention_heads"] if of_27b else head
    found: Config = {"hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": scale}
    if file.metadata["general.architecture"] == "gemma2":
        kinds = ["sliding_attention", "full_attention"]
        return found | {"layer_types": [kinds[i % 2] for i in range(blocks)]}
    kinds = ["full_attention", "sliding_attention"]
    found["layer_types"] = [kinds[(i + 1) % 6 > 0] for i in range(blocks)]
    return {"rope_theta": 1e6, "rope_local_base_freq": 10_000.0} | found


def _less_one(name: str, config: Config) -> Change | None:
    return (lambda x: x - 1) if name.endswith("norm.weight") else None


def _gpt2(file: GGUF, config: Config) -> Config:
    return {"activation_function": "gelu_new"}


def _turned(name: str, config: Config) -> Change | None:
    return (lambda x: x.T) if re.fullmatch(r"blk\.\d+\.(attn_qkv|attn_output|ffn_up|ffn_down)\.weight", name) else None


def _neox(file: GGUF, config: Config) -> Config:
    head = config["hidden_size"] // config["num_attention_heads"]
    share = file.metadata.get("gptneox.rope.dimension_count", head) / head
    return {"hidden_act": "gelu", "rotary_pct": share}


def _interleaved(name: str, config: Config) -> Change | None:
    """q, k and v of a head side by side, as they are published, and not those of all heads."""
    if ".attn_qkv." not in name:
        return None
    heads = config["num_attention_heads"]
    return lambda x: x.unflatten(0, (3, heads, -1)).transpose(0, 1).flatten(0, 2)


_WINDOW = {"attention.sliding_window": "sliding_window"}
_CAPS = {
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
}
_LOCAL = {"rope.freq_base_swa": "rope_local_base_freq"}
ARCHITECTURES = {
    "llama": Architecture("llama", FIELDS, NAMES, _llama, _halves),
    "qwen2": Architecture("qwen2", FIELDS, NAMES),
    "qwen3": Architecture("qwen3", FIELDS, NAMES),
    "gemma2": Architecture("gemma2", FIELDS | _WINDOW | _CAPS, GEMMA_NAMES, _gemma, _less_one),
    "gemma3": Architecture("gemma3_text", FIELDS | _WINDOW | _CAPS | _LOCAL, GEMMA_NAMES, _gemma, _less_one),
    "gpt2": Architecture("gpt2", GPT2_FIELDS, GPT2_NAMES, _gpt2, _turned),
    "gptneox": Architecture("gpt_neox", NEOX_FIELDS, NEOX_NAMES, _neox, _interleaved),
}


# ---------------------------------------------------------------- reading


def configured(file: GGUF) -> tuple[Config, Weights]:
    """The configuration and the weights of a file as they are published.

    Raises UnsupportedError for an architecture or an entry that is not known, CheckpointError for one that is missing.
    """
    name = file.metadata.get("general.architecture")
    if name not in ARCHITECTURES:
        raise UnsupportedError(
            f"{file.path}: the architecture {name!r} is not read; {nearest(str(name), ARCHITECTURES)}"
        )
    architecture = ARCHITECTURES[name]
    config = _config(file, name, architecture)
    return config, Weights(
        {
            _renamed(one, architecture): _changed(file, one, stored, architecture.changed(one, config))
            for one, stored in file.weights().stored.items()
            if one != "rope_freqs.weight" and not (one == "output.weight" and config["tie_word_embeddings"])
        }
    )


def _config(file: GGUF, name: str, architecture: Architecture) -> Config:
    entries = {
        key.removeprefix(f"{name}."): value for key, value in file.metadata.items() if key.startswith(f"{name}.")
    }
    for key, value in entries.items():
        if key not in architecture.fields and key not in SAID_ELSEWHERE and not key.startswith(SCALING):
            raise UnsupportedError(f"{file.path}: the entry {name}.{key} (here {value!r}) is not known")
        if isinstance(value, list):
            raise UnsupportedError(f"{file.path}: the entry {name}.{key} is a list, which is not read")
    if "token_embd.weight" not in file.tensors:
        raise CheckpointError(f"{file.path}: the tensors lack 'token_embd.weight'; fetch it again")
    config: Config = {"model_type": architecture.model_type}
    config |= {field_: entries[key] for key, field_ in architecture.fields.items() if key in entries}
    for key in ("embedding_length", "block_count", "attention.head_count"):
        if not isinstance(entries.get(key), int) or entries[key] < 1:
            raise CheckpointError(f"{file.path}: the entry {name}.{key} is missing or no number; fetch it again")
    rows = file.tensors["token_embd.weight"].shape[0]
    if entries.get("vocab_size", rows) != rows:
        raise CheckpointError(f"{file.path}: {name}.vocab_size is {entries['vocab_size']!r}, the table has {rows} rows")
    if entries.get("attention.causal", True) is not True:
        raise UnsupportedError(f"{file.path}: {name}.attention.causal is not true; only causal models are read")
    config["vocab_size"] = rows
    config["tie_word_embeddings"] = _tied(file)
    head = entries["embedding_length"] // entries["attention.head_count"]
    wide = entries.get("attention.key_length", head)
    value, turned = (entries.get(one, wide) for one in ("attention.value_length", "rope.dimension_count"))
    if value != wide or (turned != wide and name != "gptneox"):
        raise UnsupportedError(f"{file.path}: heads whose keys, values and turned parts differ in width are not read")
    return architecture.more(file, {"head_dim": head} | config) | config | _scaled(file, entries)


def _tied(file: GGUF) -> bool:
    """Whether the head is the table of the tokens: without a tensor of its own, or with the same content."""
    table, head = (file.tensors.get(one) for one in ("token_embd.weight", "output.weight"))
    return head is None or (table.type == head.type and table.shape == head.shape and _alike(table, head))


def _alike(one: Held, other: Held) -> bool:
    """Whether two tensors have the same content."""
    with one.path.open("rb") as first, other.path.open("rb") as second:
        first.seek(one.start)
        second.seek(other.start)
        for place in range(one.start, one.end, 1 << 22):
            size = min(1 << 22, one.end - place)
            if first.read(size) != second.read(size):
                return False
    return True


def _scaled(file: GGUF, entries: Config) -> Config:
    """How RoPE is stretched."""
    if "rope_freqs.weight" in file.tensors:
        return {"rope_scaling": _llama3(file, entries)}
    said = {key.removeprefix(SCALING): value for key, value in entries.items() if key.startswith(SCALING)}
    said.pop("finetuned", None)
    kind = said.pop("type", "none")
    if kind == "none" and set(said) <= {"factor"}:
        return {}
    scaling = {"rope_type": kind, "factor": said.pop("factor", 1.0)}
    if kind == "yarn" and "original_context_length" in said:
        scaling["original_max_position_embeddings"] = said.pop("original_context_length")
    if said:
        raise UnsupportedError(f"{file.path}: the entries {', '.join(SCALING + one for one in said)} are not known")
    return {"rope_scaling": scaling}


def _llama3(file: GGUF, entries: Config) -> Config:
    """The scaling of Llama 3.1 and later, which is only written as what each frequency is divided by."""
    given = file.weights()["rope_freqs.weight"].flatten().double()
    scaling = Llama3Scaling(factor=max(1.0, float(given.max())))  # all of them were published with one original length
    rope = RopeSpec(base=entries.get("rope.freq_base", 10_000.0))
    plain, less = (
        rope_frequencies(one, 2 * len(given), dtype=torch.float64)[0] for one in (rope, rope.changed(scaling=scaling))
    )
    if not torch.allclose(given, plain / less, rtol=1e-4):
        raise UnsupportedError(f"{file.path}: the frequencies in 'rope_freqs.weight' are not those of Llama 3")
    return written(scaling)


def _renamed(name: str, architecture: Architecture) -> str:
    """The published name of a tensor; its own where none is known, so that it is refused by that."""
    stem, _, leaf = name.rpartition(".")
    number = re.search(r"\d+", stem)
    found = architecture.names.get(stem if number is None else f"{stem[: number.start()]}{{}}{stem[number.end() :]}")
    return name if found is None else found.format(number and number[0]) + f".{leaf}"


def _changed(file: GGUF, name: str, one: Stored, change: Change | None) -> Stored:
    if change is None:
        return one
    try:
        shape = tuple(change(torch.empty(one.shape, device="meta")).shape)
    except (RuntimeError, IndexError):
        raise CheckpointError(f"{file.path}: {name!r} has shape {one.shape}, which does not fit its heads") from None
    return replace(one, shape=shape, read=lambda: change(one.read()).contiguous(), mapped=False, read_as=None)
