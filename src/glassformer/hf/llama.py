"""Llama, and what has its shape: SmolLM, TinyLlama, Yi … (Touvron et al. 2023; Grattafiori et al. 2024)."""

from __future__ import annotations

from ..block import BlockSpec
from ..mixers.attention import AttentionSpec
from ..model import ModelSpec
from ..nn.channel import GatedSpec
from ..nn.head import HeadSpec
from ..nn.init import InitSpec
from ..nn.norm import RMSNormSpec
from ..nn.position import RopeSpec
from .rope import older, rope
from .rules import ACTIVATIONS, Family, Rule, named, same
from .tensors import Weight, weight

BASE = ModelSpec(
    vocab=1,
    dim=64,
    blocks=(
        BlockSpec(mixer=AttentionSpec(heads=1, position=RopeSpec()), channel=GatedSpec(hidden=1), norm=RMSNormSpec()),
    ),
    norm=RMSNormSpec(),
    head=HeadSpec(tied=False),
    init=InitSpec(outputs="same"),
)

# What nearly all decoders of this shape name alike.
SIZES: tuple[Rule, ...] = (
    same("vocab_size", "vocab"),
    same("hidden_size", "dim"),
    same("max_position_embeddings", "context"),
    same("num_attention_heads", "blocks.*.mixer.heads"),
    same("num_key_value_heads", "blocks.*.mixer.kv_heads"),
    same("head_dim", "blocks.*.mixer.head_dim"),
    same("intermediate_size", "blocks.*.channel.hidden"),
    same("rms_norm_eps", "norm.eps", "blocks.*.norm.eps"),
    same("tie_word_embeddings", "head.tied"),
    named("hidden_act", ACTIVATIONS, "blocks.*.channel.activation"),
)
WEIGHTS: tuple[Weight, ...] = (
    weight("model.embed_tokens", "embed.token"),
    weight("model.layers.{}.self_attn.q_proj", "blocks.{}.mixer.q"),
    weight("model.layers.{}.self_attn.k_proj", "blocks.{}.mixer.k"),
    weight("model.layers.{}.self_attn.v_proj", "blocks.{}.mixer.v"),
    weight("model.layers.{}.self_attn.o_proj", "blocks.{}.mixer.out"),
    weight("model.layers.{}.mlp.gate_proj", "blocks.{}.channel.gate"),
    weight("model.layers.{}.mlp.up_proj", "blocks.{}.channel.up"),
    weight("model.layers.{}.mlp.down_proj", "blocks.{}.channel.down"),
    weight("model.layers.{}.input_layernorm", "blocks.{}.mixer_norm"),
    weight("model.layers.{}.post_attention_layernorm", "blocks.{}.channel_norm"),
    weight("model.norm", "norm"),
    weight("lm_head", "head"),
)
ALIASES = {"lm_head.weight": "model.embed_tokens.weight"}
SKIPPED = (r"rotary_emb\.inv_freq$",)
FIXED = {"partial_rotary_factor": (1.0, None)}
DEFAULTS = {
    "num_key_value_heads": None,
    "head_dim": None,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
    "rope_theta": 10_000.0,
    "rope_scaling": None,
    "attention_bias": False,
}
BIASES = same("attention_bias", "blocks.*.mixer.bias", "blocks.*.mixer.out_bias")

LLAMA = Family(
    name="llama",
    base=BASE,
    stacks={"blocks": "num_hidden_layers"},
    architectures={"LlamaForCausalLM": {}, "LlamaModel": {"head": None}},
    defaults={
        **DEFAULTS,
        "vocab_size": 32_000,
        "hidden_size": 4096,
        "intermediate_size": 11_008,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "max_position_embeddings": 2048,
        "mlp_bias": False,
    },
    rules=(
        *SIZES,
        BIASES,
        same("mlp_bias", "blocks.*.channel.bias"),
        rope("blocks.*.mixer.position"),
    ),
    fixed={**FIXED, "pretraining_tp": (1, None)},
    free=frozenset({"attention_dropout", "rope_interleaved", "is_llama_config"}),
    weights=WEIGHTS,
    prefix="model.",
    aliases=ALIASES,
    skipped=SKIPPED,
    ready=older,
)
