"""Gemma 2 (Gemma Team 2024) and the text models of Gemma 3 (Gemma Team 2025)."""

from __future__ import annotations

import math
from typing import Any

from ..block import BlockSpec
from ..errors import UnsupportedError
from ..mask import Mask
from ..mixers.attention import AttentionSpec
from ..model import ModelSpec
from ..nn.channel import GatedSpec
from ..nn.head import HeadSpec
from ..nn.init import InitSpec
from ..nn.norm import RMSNormSpec
from ..nn.position import RopeSpec
from ..spec import from_data, to_data
from .llama import ALIASES, BIASES, DEFAULTS, SIZES, SKIPPED, WEIGHTS
from .rope import flat, older, position, rope, written
from .rules import ACTIVATIONS, Config, Family, Rule, named, same, through
from .tensors import weight
from .windows import PLACE, every, only, types, windows
from .windows import named as layer_types

NORM = RMSNormSpec(offset=1.0)
GEMMA2_BASE = ModelSpec(
    vocab=1,
    dim=64,
    blocks=(
        BlockSpec(
            mixer=AttentionSpec(heads=1, position=RopeSpec()),
            channel=GatedSpec(hidden=1, activation="gelu_tanh"),
            norm=NORM,
            wiring="sandwich",
        ),
    ),
    norm=NORM,
    head=HeadSpec(),
    init=InitSpec(outputs="same"),
)
[BLOCK] = GEMMA2_BASE.blocks
GEMMA3_BASE = GEMMA2_BASE.changed(blocks=(BLOCK.changed(mixer=BLOCK.mixer.changed(qk_norm=NORM)),))

GEMMA_SIZES = (
    *(rule for rule in SIZES if rule.fields != ("hidden_act",)),
    named("hidden_activation", {"gelu_pytorch_tanh": "gelu_tanh", **ACTIVATIONS}, "blocks.*.channel.activation"),
    # The vectors of the table are multiplied with √d, and so does the model whatever its width is.
    Rule(("hidden_size",), ("embed.scale",), lambda config: math.sqrt(config["hidden_size"]), lambda value: {}),
    through("query_pre_attn_scalar", lambda n: n**-0.5, lambda scale: round(scale**-2), "blocks.*.mixer.scale"),
    same("final_logit_softcapping", "head.softcap"),
    BIASES,
)
LAYER = "model.layers.{}."
GEMMA2_WEIGHTS = (
    *(one for one in WEIGHTS if not one.theirs[0].endswith("layernorm")),
    weight(LAYER + "input_layernorm", "blocks.{}.mixer_norm"),
    weight(LAYER + "post_attention_layernorm", "blocks.{}.mixer_out_norm"),
    weight(LAYER + "pre_feedforward_layernorm", "blocks.{}.channel_norm"),
    weight(LAYER + "post_feedforward_layernorm", "blocks.{}.channel_out_norm"),
)
SHARED = {
    "stacks": {"blocks": "num_hidden_layers"},
    "free": frozenset({"attention_dropout", "cache_implementation", "hidden_act", "_sliding_window_pattern"}),
    "prefix": "model.",
    "aliases": ALIASES,
    "skipped": SKIPPED,
}
GEMMA_DEFAULTS = {
    **DEFAULTS,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "hidden_activation": "gelu_pytorch_tanh",
    "query_pre_attn_scalar": 256,
    "sliding_window": 4096,
    "layer_types": None,
    "tie_word_embeddings": True,
}

# ---------------------------------------------------------------- which blocks have the window


def _read_windows(config: Config) -> list[int | None]:
    by_default = every(config["num_hidden_layers"], 2)
    return windows(config, types(config, by_default), config["sliding_window"])


def _write_windows(found: list[int | None]) -> Config:
    window = only([one for one in found if one is not None], GEMMA_DEFAULTS["sliding_window"])
    return {"sliding_window": window, "layer_types": layer_types(found)}


def _read_local(config: Config) -> list[dict[str, Any]]:
    """The masks and positions of Gemma 3, whose blocks with a window have another base and never a scaling."""
    local = types(config, every(config["num_hidden_layers"], config["sliding_window_pattern"]))
    context = config["max_position_embeddings"]
    wide = position(config["rope_theta"], config["rope_scaling"], context)
    near = position(config["rope_local_base_freq"], None, context)
    found = windows(config, local, config["sliding_window"])
    return [
        {"mask": to_data(Mask(window=window)), "position": near if one else wide}
        for one, window in zip(local, found, strict=True)
    ]


def _write_local(mixers: list[dict[str, Any]]) -> Config:
    found = [one["mask"]["window"] for one in mixers]
    near = only([one["position"] for one in mixers if one["mask"]["window"] is not None], to_data(RopeSpec()))
    wide = only([one["position"] for one in mixers if one["mask"]["window"] is None], to_data(RopeSpec(base=1e6)))
    spec, count = from_data(wide, RopeSpec), len(found)
    periods = [n for n in range(1, count + 2) if every(count, n) == [one is not None for one in found]]
    return {
        **_write_windows(found),
        **({"sliding_window_pattern": periods[0]} if periods else {}),  # for versions that know no layer_types
        "rope_theta": spec.base,
        "rope_scaling": written(spec.scaling),
        "rope_local_base_freq": near["base"],
    }


def _older2(config: Config) -> Config:
    """Gemma 2's configuration with one name for the window."""
    if "sliding_window_size" in config:
        size = config.pop("sliding_window_size")
        if config.setdefault("sliding_window", size) != size:
            raise UnsupportedError("sliding_window_size: it differs from sliding_window, and both mean the same")
    return older(config)


def _older3(config: Config) -> Config:
    """Gemma 3's configuration with the two RoPEs in the older fields."""
    both = config.pop("rope_parameters", None)
    if both is None:
        return config
    wide, near = (both.get(name) or {} for name in ("full_attention", "sliding_attention"))
    made = flat(near, "rope_local_base_freq", "scaling")
    if made.pop("scaling") is not None:
        raise UnsupportedError("rope_parameters: sliding_attention can only be of the type default here")
    return config | made | flat(wide)


GEMMA2 = Family(
    name="gemma2",
    base=GEMMA2_BASE,
    architectures={"Gemma2ForCausalLM": {}, "Gemma2Model": {"head": None}},
    defaults={
        **GEMMA_DEFAULTS,
        "vocab_size": 256_000,
        "max_position_embeddings": 8192,
        "final_logit_softcapping": 30.0,
        "attn_logit_softcapping": 50.0,
    },
    rules=(
        *GEMMA_SIZES,
        same("attn_logit_softcapping", "blocks.*.mixer.softcap"),
        Rule(
            ("sliding_window", "layer_types", "num_hidden_layers"), (PLACE,), _read_windows, _write_windows, each=True
        ),
        rope("blocks.*.mixer.position"),
    ),
    fixed={"partial_rotary_factor": (1.0, None), "use_bidirectional_attention": (None, False)},
    weights=GEMMA2_WEIGHTS,
    ready=_older2,
    **SHARED,
)
GEMMA3 = Family(
    name="gemma3_text",
    base=GEMMA3_BASE,
    architectures={"Gemma3ForCausalLM": {}, "Gemma3TextModel": {"head": None}},
    defaults={
        **GEMMA_DEFAULTS,
        "vocab_size": 262_208,
        "max_position_embeddings": 131_072,
        "final_logit_softcapping": None,
        "sliding_window_pattern": 6,
        "rope_theta": 1_000_000.0,
        "rope_local_base_freq": 10_000.0,
    },
    rules=(
        *GEMMA_SIZES,
        same("rms_norm_eps", "blocks.*.mixer.qk_norm.eps"),
        Rule(
            (
                *("sliding_window", "layer_types", "sliding_window_pattern", "num_hidden_layers"),
                *("rope_theta", "rope_scaling", "rope_local_base_freq", "max_position_embeddings"),
            ),
            ("blocks.*.mixer",),
            _read_local,
            _write_local,
            each=True,
        ),
    ),
    # The published code reads no cap of the scores in Gemma 3.
    fixed={
        "partial_rotary_factor": (1.0, None),
        "use_bidirectional_attention": (False, None),
        "attn_logit_softcapping": (None,),
    },
    weights=(
        *GEMMA2_WEIGHTS,
        weight(LAYER + "self_attn.q_norm", "blocks.{}.mixer.q_norm"),
        weight(LAYER + "self_attn.k_norm", "blocks.{}.mixer.k_norm"),
    ),
    ready=_older3,
    **SHARED,
)
