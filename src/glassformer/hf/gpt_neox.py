"""GPT-NeoX (Black et al. 2022) and Pythia (Biderman et al. 2023)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..block import BlockSpec
from ..mixers.attention import AttentionSpec
from ..model import ModelSpec
from ..nn.channel import MlpSpec
from ..nn.head import HeadSpec
from ..nn.norm import LayerNormSpec
from ..nn.position import RopeSpec
from .rope import older, rope
from .rules import ACTIVATIONS, Config, Family, named, same, through
from .tensors import Shapes, Weight, weight

BASE = ModelSpec(
    vocab=1,
    dim=64,
    blocks=(
        BlockSpec(
            mixer=AttentionSpec(heads=1, position=RopeSpec(), bias=True, out_bias=True),
            channel=MlpSpec(hidden=1),
            wiring="parallel",
        ),
    ),
    norm=LayerNormSpec(),
    head=HeadSpec(tied=False),
)
WIRINGS = {True: "parallel", False: "pre"}
LAYER = "gpt_neox.layers.{}."


def by_head(theirs: str, *ours: str) -> Weight:
    """One matrix whose rows are q, k and v of the first head, then those of the second …"""

    def read(given: list[Tensor], shapes: Shapes, spec: Any) -> list[Tensor]:
        each = given[0].unflatten(0, (spec.blocks[0].mixer.heads, len(ours), -1))  # h 3 e …
        return [part.flatten(0, 1) for part in each.unbind(1)]

    def write(given: list[Tensor], spec: Any) -> list[Tensor]:
        heads = spec.blocks[0].mixer.heads
        return [torch.stack([one.unflatten(0, (heads, -1)) for one in given], 1).flatten(0, 2)]

    return Weight((theirs,), ours, read, write)


def _ready(config: Config) -> Config:
    """The older names of RoPE's base and share."""
    config = older(config)
    for new, old in (("rope_theta", "rotary_emb_base"), ("partial_rotary_factor", "rotary_pct")):
        if new in config:
            config[old] = config.pop(new)
    return config


GPT_NEOX = Family(
    name="gpt_neox",
    base=BASE,
    stacks={"blocks": "num_hidden_layers"},
    architectures={"GPTNeoXForCausalLM": {}, "GPTNeoXModel": {"head": None}},
    defaults={
        "vocab_size": 50_432,
        "hidden_size": 6144,
        "intermediate_size": 24_576,
        "num_hidden_layers": 44,
        "num_attention_heads": 64,
        "hidden_act": "gelu",
        "max_position_embeddings": 2048,
        "layer_norm_eps": 1e-5,
        "tie_word_embeddings": False,
        "use_parallel_residual": True,
        "attention_bias": True,
        "rotary_emb_base": 10_000.0,
        "rotary_pct": 0.25,
        "rope_scaling": None,
    },
    rules=(
        same("vocab_size", "vocab"),
        same("hidden_size", "dim"),
        same("max_position_embeddings", "context"),
        same("num_attention_heads", "blocks.*.mixer.heads"),
        same("intermediate_size", "blocks.*.channel.hidden"),
        same("layer_norm_eps", "norm.eps", "blocks.*.norm.eps"),
        same("tie_word_embeddings", "head.tied"),
        same("attention_bias", "blocks.*.mixer.bias", "blocks.*.mixer.out_bias"),
        named("hidden_act", ACTIVATIONS, "blocks.*.channel.activation"),
        through(
            "use_parallel_residual",
            lambda value: WIRINGS[value],
            lambda wiring: next(word for word, ours in WIRINGS.items() if ours == wiring),
            "blocks.*.wiring",
        ),
        rope("blocks.*.mixer.position", theta="rotary_emb_base", share="rotary_pct"),
    ),
    free=frozenset({"attention_dropout", "hidden_dropout", "classifier_dropout", "is_decoder"}),
    weights=(
        weight("gpt_neox.embed_in", "embed.token"),
        by_head(LAYER + "attention.query_key_value", *(f"blocks.{{}}.mixer.{one}" for one in "qkv")),
        weight(LAYER + "attention.dense", "blocks.{}.mixer.out"),
        weight(LAYER + "mlp.dense_h_to_4h", "blocks.{}.channel.up"),
        weight(LAYER + "mlp.dense_4h_to_h", "blocks.{}.channel.down"),
        weight(LAYER + "input_layernorm", "blocks.{}.mixer_norm"),
        weight(LAYER + "post_attention_layernorm", "blocks.{}.channel_norm"),
        weight("gpt_neox.final_layer_norm", "norm"),
        weight("embed_out", "head"),
    ),
    prefix="gpt_neox.",
    aliases={"embed_out.weight": "gpt_neox.embed_in.weight"},
    legacy=((r"^lm_head\.", "embed_out."),),  # as transformers 5 calls it in memory, and no file does
    skipped=(r"\.attention\.(masked_)?bias$", r"rotary_emb\.inv_freq$"),
    ready=_ready,
)
