"""ModernBERT (Warner et al. 2024): pre-norm blocks without biases, gated MLPs, and RoPE with two bases, every third
block looking everywhere and the others at a window."""

from __future__ import annotations

from typing import Any

from ..block import BlockSpec
from ..mask import Mask
from ..mixers.attention import AttentionSpec
from ..model import ModelSpec
from ..nn.channel import GatedSpec
from ..nn.embed import EmbedSpec
from ..nn.head import HeadSpec
from ..nn.norm import LayerNormSpec
from ..nn.pool import PooledSpec
from ..nn.position import RopeSpec
from ..nn.rework import ReworkSpec
from ..spec import to_data
from . import labels
from .rope import flat
from .rules import ACTIVATIONS, Config, Family, Rule, named, same
from .tensors import fused, weight
from .windows import named as layer_types
from .windows import only, types

NORM = LayerNormSpec(bias=False)
HEAD = ReworkSpec(bias=False, norm=NORM)
NORMS = ("norm", "blocks.*.norm", "embed.norm", "head.rework.norm", "head.pooler.norm")


def _near(config: Config) -> list[bool]:
    """Which blocks look at a window."""
    period = config["global_attn_every_n_layers"]
    return types(config, [i % period != 0 for i in range(config["num_hidden_layers"])])


def _read_mixers(config: Config) -> list[dict[str, Any]]:
    """The masks and positions; a window of 128 is the token's own place and 64 to each side."""
    window, wide = config["local_attention"] // 2 + 1, config["global_rope_theta"]
    bases = {False: wide, True: config["local_rope_theta"] or wide}
    return [
        {
            "mask": to_data(Mask(causal=False, window=window if near else None)),
            "position": to_data(RopeSpec(base=bases[near])),
        }
        for near in _near(config)
    ]


def _write_mixers(mixers: list[dict[str, Any]]) -> Config:
    found = [one["mask"]["window"] for one in mixers]
    near = [window is not None for window in found]
    window = only([one for one in found if one is not None], 65)
    local, wide = (
        only([one["position"]["base"] for one, is_near in zip(mixers, near, strict=True) if is_near is which], default)
        for which, default in ((True, 10_000.0), (False, 160_000.0))
    )
    periods = [n for n in range(1, len(near) + 1) if near == [i % n != 0 for i in range(len(near))]]
    return {
        "layer_types": layer_types(found),
        **({"global_attn_every_n_layers": periods[0]} if periods else {}),  # for versions that know no layer_types
        "local_attention": 2 * (window - 1),
        "global_rope_theta": wide,
        "local_rope_theta": local,
    }


def _older(config: Config) -> Config:
    """The two RoPEs in the older fields."""
    both = config.pop("rope_parameters", None) or {}
    for kind, theta in (("full_attention", "global_rope_theta"), ("sliding_attention", "local_rope_theta")):
        config |= flat(both[kind], theta) if both.get(kind) else {}
    return config


def _ids(config: Config) -> Config:
    """The ids that stand for no text are beyond a small vocabulary, where transformers fails on its own default."""
    special = ("pad_token_id", "bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id")
    return config if config["vocab_size"] > 50_283 else config | dict.fromkeys(special)


MODERNBERT = Family(
    name="modernbert",
    base=ModelSpec(
        vocab=1,
        dim=64,
        blocks=(
            BlockSpec(
                mixer=AttentionSpec(heads=1, mask=Mask(causal=False), position=RopeSpec()),
                channel=GatedSpec(hidden=1, activation="gelu"),
                norm=NORM,
            ),
        ),
        embed=EmbedSpec(norm=NORM),
        norm=NORM,
        head=HeadSpec(rework=HEAD),
    ),
    stacks={"blocks": "num_hidden_layers"},
    architectures={
        "ModernBertForMaskedLM": {},
        "ModernBertModel": {"head": None},
        "ModernBertForSequenceClassification": {"head": to_data(PooledSpec(pooler=HEAD))},
    },
    defaults={
        "vocab_size": 50_368,
        "hidden_size": 768,
        "intermediate_size": 1152,
        "num_hidden_layers": 22,
        "num_attention_heads": 12,
        "hidden_activation": "gelu",
        "max_position_embeddings": 8192,
        "norm_eps": 1e-5,
        "norm_bias": False,
        "attention_bias": False,
        "mlp_bias": False,
        "layer_types": None,
        "global_attn_every_n_layers": 3,
        "local_attention": 128,
        "global_rope_theta": 160_000.0,
        "local_rope_theta": 10_000.0,
        "decoder_bias": True,
        "classifier_pooling": "cls",
        "classifier_bias": False,
        "classifier_activation": "gelu",
        **labels.DEFAULTS,
    },
    rules=(
        same("vocab_size", "vocab"),
        same("hidden_size", "dim"),
        same("max_position_embeddings", "context"),
        same("num_attention_heads", "blocks.*.mixer.heads"),
        same("intermediate_size", "blocks.*.channel.hidden"),
        named("hidden_activation", ACTIVATIONS, "blocks.*.channel.activation"),
        same("norm_eps", *(f"{place}.eps" for place in NORMS)),
        same("norm_bias", *(f"{place}.bias" for place in NORMS)),
        same("attention_bias", "blocks.*.mixer.bias", "blocks.*.mixer.out_bias"),
        same("mlp_bias", "blocks.*.channel.bias"),
        same("decoder_bias", "head.bias"),
        same("classifier_bias", "head.rework.bias", "head.pooler.bias"),
        named("classifier_activation", ACTIVATIONS, "head.rework.activation", "head.pooler.activation"),
        named("classifier_pooling", {"cls": "first", "mean": "mean"}, "head.pool"),
        Rule(
            (
                *("layer_types", "global_attn_every_n_layers", "num_hidden_layers", "local_attention"),
                *("global_rope_theta", "local_rope_theta"),
            ),
            ("blocks.*.mixer",),
            _read_mixers,
            _write_mixers,
            each=True,
        ),
        # The first block reads what the embedding has normed.
        Rule(
            ("num_hidden_layers",),
            ("blocks.*.first_norm",),
            lambda config: [i > 0 for i in range(config["num_hidden_layers"])],
            lambda _: {},
            each=True,
        ),
        *labels.classes("ForSequenceClassification", "head.classes", "head.labels", None),
        labels.scores("head.scores"),
    ),
    fixed={"tie_word_embeddings": (True,), "rope_scaling": (None,), "position_embedding_type": ("absolute", None)},
    free=frozenset(
        """
        attention_dropout embedding_dropout mlp_dropout classifier_dropout initializer_cutoff_factor layer_norm_eps
        deterministic_flash_attn sparse_prediction sparse_pred_ignore_index reference_compile
        repad_logits_with_grad
        """.split()  # noqa: SIM905
    ),
    weights=(
        weight("model.embeddings.tok_embeddings", "embed.token"),
        weight("model.embeddings.norm", "embed.norm"),
        weight("model.layers.{}.attn_norm", "blocks.{}.mixer_norm"),
        fused("model.layers.{}.attn.Wqkv", "blocks.{}.mixer.q", "blocks.{}.mixer.k", "blocks.{}.mixer.v"),
        weight("model.layers.{}.attn.Wo", "blocks.{}.mixer.out"),
        weight("model.layers.{}.mlp_norm", "blocks.{}.channel_norm"),
        fused("model.layers.{}.mlp.Wi", "blocks.{}.channel.gate", "blocks.{}.channel.up"),
        weight("model.layers.{}.mlp.Wo", "blocks.{}.channel.down"),
        weight("model.final_norm", "norm"),
        weight("head.dense", "head.rework.linear"),
        weight("head.norm", "head.rework.norm"),
        weight("head.dense", "head.pooler.linear"),
        weight("head.norm", "head.pooler.norm"),
        weight("decoder.bias", "head.bias", whole=True),
        weight("classifier", "head.linear"),
    ),
    prefix="model.",
    aliases={"decoder.weight": "model.embeddings.tok_embeddings.weight"},
    ready=_older,
    complete=_ids,
)
