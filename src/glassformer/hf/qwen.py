"""Qwen2 and Qwen2.5 (Yang et al. 2024), with biases of q, k and v; Qwen3 (Yang et al. 2025), with normed q and k."""

from __future__ import annotations

from ..nn.norm import RMSNormSpec
from .llama import ALIASES, BASE, BIASES, DEFAULTS, FIXED, SIZES, SKIPPED, WEIGHTS
from .rope import older, rope
from .rules import Family, same
from .tensors import weight
from .windows import LATE, LATE_DEFAULTS

[BLOCK] = BASE.blocks
SHARED = {
    "stacks": {"blocks": "num_hidden_layers"},
    "fixed": {**FIXED, "use_mrope": (False, None)},
    "free": frozenset({"attention_dropout"}),
    "prefix": "model.",
    "aliases": ALIASES,
    "skipped": SKIPPED,
    "ready": older,
}
QWEN_DEFAULTS = {
    **DEFAULTS,
    **LATE_DEFAULTS,
    "vocab_size": 151_936,
    "hidden_size": 4096,
    "intermediate_size": 22_016,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "max_position_embeddings": 32_768,
}

QWEN2 = Family(
    name="qwen2",
    base=BASE.changed(blocks=(BLOCK.changed(mixer=BLOCK.mixer.changed(bias=True)),)),
    architectures={"Qwen2ForCausalLM": {}, "Qwen2Model": {"head": None}},
    defaults=QWEN_DEFAULTS,
    rules=(*SIZES, LATE, rope("blocks.*.mixer.position")),
    weights=WEIGHTS,
    **SHARED,
)
QWEN3 = Family(
    name="qwen3",
    base=BASE.changed(blocks=(BLOCK.changed(mixer=BLOCK.mixer.changed(qk_norm=RMSNormSpec())),)),
    architectures={"Qwen3ForCausalLM": {}, "Qwen3Model": {"head": None}},
    defaults={**QWEN_DEFAULTS, "head_dim": 128},
    rules=(
        *SIZES,
        same("rms_norm_eps", "blocks.*.mixer.qk_norm.eps"),
        BIASES,
        LATE,
        rope("blocks.*.mixer.position"),
    ),
    weights=(
        *WEIGHTS,
        weight("model.layers.{}.self_attn.q_norm", "blocks.{}.mixer.q_norm"),
        weight("model.layers.{}.self_attn.k_norm", "blocks.{}.mixer.k_norm"),
    ),
    **SHARED,
)
