"""OLMo 2 (OLMo et al. 2024): what a block adds is normed, and so are q and k over all heads together."""

from __future__ import annotations

from ..nn.norm import RMSNormSpec
from .llama import ALIASES, BASE, BIASES, DEFAULTS, FIXED, SIZES, SKIPPED, WEIGHTS
from .rope import older, rope
from .rules import Family, same
from .tensors import weight

[BLOCK] = BASE.blocks
ATTENTION = BLOCK.mixer.changed(qk_norm=RMSNormSpec(), qk_norm_over="all")
LAYER = "model.layers.{}."

OLMO2 = Family(
    name="olmo2",
    base=BASE.changed(blocks=(BLOCK.changed(mixer=ATTENTION, wiring="after"),)),
    stacks={"blocks": "num_hidden_layers"},
    architectures={"Olmo2ForCausalLM": {}, "Olmo2Model": {"head": None}},
    defaults={
        **DEFAULTS,
        "vocab_size": 50_304,
        "hidden_size": 4096,
        "intermediate_size": 11_008,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-5,
    },
    rules=(
        *SIZES,
        same("rms_norm_eps", "blocks.*.mixer.qk_norm.eps"),
        BIASES,
        rope("blocks.*.mixer.position"),
    ),
    fixed=FIXED,
    free=frozenset({"attention_dropout"}),
    weights=(
        *(one for one in WEIGHTS if not one.theirs[0].endswith("layernorm")),
        weight(LAYER + "self_attn.q_norm", "blocks.{}.mixer.q_norm"),
        weight(LAYER + "self_attn.k_norm", "blocks.{}.mixer.k_norm"),
        weight(LAYER + "post_attention_layernorm", "blocks.{}.mixer_out_norm"),
        weight(LAYER + "post_feedforward_layernorm", "blocks.{}.channel_out_norm"),
    ),
    prefix="model.",
    aliases=ALIASES,
    skipped=SKIPPED,
    ready=older,
)
