"""Mistral: Llama with a sliding window in every block (Jiang et al. 2023)."""

from __future__ import annotations

from .llama import ALIASES, BASE, DEFAULTS, FIXED, SIZES, SKIPPED, WEIGHTS
from .rope import older, rope
from .rules import Family, same
from .windows import PLACE

MISTRAL = Family(
    name="mistral",
    base=BASE,
    stacks={"blocks": "num_hidden_layers"},
    architectures={"MistralForCausalLM": {}, "MistralModel": {"head": None}},
    defaults={
        **DEFAULTS,
        "vocab_size": 32_000,
        "hidden_size": 4096,
        "intermediate_size": 14_336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "max_position_embeddings": 131_072,
        "sliding_window": 4096,
    },
    rules=(*SIZES, same("sliding_window", PLACE), rope("blocks.*.mixer.position")),
    fixed=FIXED,
    free=frozenset({"attention_dropout"}),
    weights=WEIGHTS,
    prefix="model.",
    aliases=ALIASES,
    skipped=SKIPPED,
    ready=older,
)
