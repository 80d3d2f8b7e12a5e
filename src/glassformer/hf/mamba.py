"""Mamba (Gu & Dao 2023) and Mamba-2 (Dao & Gu 2024)."""

from __future__ import annotations

from typing import Any

from ..block import BlockSpec
from ..errors import UnsupportedError
from ..mixers.mamba import MambaSpec
from ..mixers.mamba2 import Mamba2Spec
from ..model import ModelSpec
from ..nn.head import HeadSpec
from ..nn.norm import RMSNormSpec
from .rules import Config, Family, Rule, same, through
from .tensors import Weight, weight

NORM = RMSNormSpec(eps=1e-5)


def _base(mixer: MambaSpec | Mamba2Spec, tied: bool) -> ModelSpec:
    block = BlockSpec(mixer=mixer, channel=None, norm=NORM)
    return ModelSpec(vocab=1, dim=2, blocks=(block,), context=2048, norm=NORM, head=HeadSpec(tied=tied))


DEFAULTS: Config = {
    "layer_norm_epsilon": 1e-5,
    "expand": 2,
    "conv_kernel": 4,
    "use_bias": False,
    "use_conv_bias": True,
    "time_step_min": 0.001,
    "time_step_max": 0.1,
    "max_position_embeddings": 2048,  # not published, and read by nobody else: these models have no positions
}
SIZES: tuple[Rule, ...] = (
    same("vocab_size", "vocab"),
    same("hidden_size", "dim"),
    same("max_position_embeddings", "context"),
    same("state_size", "blocks.*.mixer.state"),
    same("expand", "blocks.*.mixer.expand"),
    same("conv_kernel", "blocks.*.mixer.conv"),
    same("use_bias", "blocks.*.mixer.bias"),
    same("use_conv_bias", "blocks.*.mixer.conv_bias"),
    same("time_step_min", "blocks.*.mixer.delta_min"),
    same("time_step_max", "blocks.*.mixer.delta_max"),
    same("tie_word_embeddings", "head.tied"),
)
# How weights start, in which form the scan runs, what transformers works out from other fields and never reads, and
# the residual's number format, which is that of the model here.
FREE = frozenset(
    {"time_step_floor", "time_step_scale", "time_step_init_scheme", "rescale_prenorm_residual", "residual_in_fp32"}
    | {"A_initializer_range", "emb_initializer_range"}
    | {"use_mambapy", "use_associative_scan", "chunk_size", "fused_add_norm", "pad_vocab_size_multiple"}
    | {"intermediate_size", "d_inner", "d_model", "n_layer", "norm_before_gate"}
)
FIXED = {"hidden_act": ("silu", "swish"), "rms_norm": (True,), "ssm_cfg": ({}, {"layer": "Mamba2"}, None)}


def _whole(theirs: str, ours: str) -> Weight:
    return weight(f"backbone.layers.{{}}.mixer.{theirs}", f"blocks.{{}}.mixer.{ours}", whole=True)


WEIGHTS: tuple[Weight, ...] = (
    weight("backbone.embeddings", "embed.token"),
    weight("backbone.layers.{}.norm", "blocks.{}.mixer_norm"),
    weight("backbone.layers.{}.mixer.in_proj", "blocks.{}.mixer.into"),
    weight("backbone.layers.{}.mixer.conv1d", "blocks.{}.mixer.conv"),
    weight("backbone.layers.{}.mixer.out_proj", "blocks.{}.mixer.out"),
    _whole("A_log", "a_log"),
    _whole("D", "skip"),
    weight("backbone.norm_f", "norm"),
    weight("lm_head", "head"),
)
SHARED: dict[str, Any] = {
    "stacks": {"blocks": "num_hidden_layers"},
    "free": FREE,
    "fixed": FIXED,
    "prefix": "backbone.",
    "aliases": {"lm_head.weight": "backbone.embeddings.weight"},
    "legacy": ((r"(^|\.)embedding\.weight$", r"\1embeddings.weight"),),
}

MAMBA = Family(
    name="mamba",
    base=_base(MambaSpec(), tied=True),
    architectures={"MambaForCausalLM": {}, "MambaModel": {"head": None}},
    defaults={
        **DEFAULTS,
        "vocab_size": 50_280,
        "hidden_size": 768,
        "state_size": 16,
        "num_hidden_layers": 32,
        "time_step_rank": "auto",
        "tie_word_embeddings": True,
    },
    rules=(
        *SIZES,
        same("layer_norm_epsilon", "norm.eps", "blocks.*.norm.eps"),
        through(
            *("time_step_rank", lambda value: None if value == "auto" else value),
            *(lambda value: "auto" if value is None else value, "blocks.*.mixer.rank"),
        ),
    ),
    weights=(
        *WEIGHTS,
        weight("backbone.layers.{}.mixer.x_proj", "blocks.{}.mixer.select"),
        _whole("dt_proj.weight", "delta_weight"),
        _whole("dt_proj.bias", "delta_bias"),
    ),
    **SHARED,
)


def _limits(given: list[Any]) -> list[float | None]:
    """The bounds of the step sizes; transformers 5 writes infinity as a table of its own."""
    plain = [float(one["__float__"]) if isinstance(one, dict) else float(one) for one in given]
    return [plain[0], None if plain[1] == float("inf") else plain[1]]


def _heads(config: Config) -> int:
    """As many heads as there are; they must take up all channels."""
    heads, channels = config["num_heads"], config["expand"] * config["hidden_size"]
    if heads * config["head_dim"] != channels:
        raise UnsupportedError(
            f"head_dim: {heads} heads of {config['head_dim']} numbers are not expand·hidden_size={channels}"
        )
    return heads


def _complete(config: Config) -> Config:
    config["head_dim"] = config["expand"] * config["hidden_size"] // config["num_heads"]
    return config


MAMBA2 = Family(
    name="mamba2",
    base=_base(Mamba2Spec(), tied=False),
    architectures={"Mamba2ForCausalLM": {}, "Mamba2Model": {"head": None}},
    defaults={
        **DEFAULTS,
        "vocab_size": 32_768,
        "hidden_size": 4096,
        "state_size": 128,
        "num_hidden_layers": 64,
        "num_heads": 128,
        "head_dim": 64,
        "n_groups": 8,
        "time_step_limit": [0.0, float("inf")],
        "tie_word_embeddings": False,
    },
    rules=(
        *SIZES,
        same("layer_norm_epsilon", "norm.eps", "blocks.*.norm.eps", "blocks.*.mixer.eps"),
        same("n_groups", "blocks.*.mixer.groups"),
        Rule(
            *(("num_heads", "head_dim", "expand", "hidden_size"), ("blocks.*.mixer.heads",), _heads),
            lambda value: {"num_heads": value},
        ),
        through(
            *("time_step_limit", _limits),
            *(lambda value: [value[0], float("inf") if value[1] is None else value[1]], "blocks.*.mixer.limits"),
        ),
    ),
    weights=(
        *WEIGHTS,
        _whole("dt_bias", "delta_bias"),
        _whole("norm.weight", "gain"),
    ),
    complete=_complete,
    **(SHARED | {"free": FREE | {"time_step_rank"}}),
)
