"""GPT-2 (Radford et al. 2019), whose matrices multiply from the right and whose q, k and v are one."""

from __future__ import annotations

from typing import Any

from ..block import BlockSpec
from ..mixers.attention import AttentionSpec
from ..model import ModelSpec
from ..nn.channel import MlpSpec
from ..nn.embed import EmbedSpec
from ..nn.norm import LayerNormSpec
from ..nn.position import LearnedSpec
from .rules import ACTIVATIONS, Config, Family, Rule, named, same
from .tensors import turned, weight

BASE = ModelSpec(
    vocab=1,
    dim=64,
    blocks=(
        BlockSpec(
            mixer=AttentionSpec(heads=1, bias=True, out_bias=True),
            channel=MlpSpec(activation="gelu_tanh"),
        ),
    ),
    embed=EmbedSpec(position=LearnedSpec()),
    norm=LayerNormSpec(),
)
LAYER = "transformer.h.{}."


def _read_scales(config: Config) -> list[float]:
    """The factor on q·k: 1/√e or 1, divided by the number of the block where the configuration says so."""
    scale = (config["n_embd"] // config["n_head"]) ** -0.5 if config["scale_attn_weights"] else 1.0
    inverse = config["scale_attn_by_inverse_layer_idx"]
    return [scale / (i + 1) if inverse else scale for i in range(config["n_layer"])]


def _write_scales(scales: list[Any]) -> Config:
    falling = len(scales) > 1 and scales[1] < scales[0]
    return {"scale_attn_weights": scales[0] != 1.0, "scale_attn_by_inverse_layer_idx": falling}


GPT2 = Family(
    name="gpt2",
    base=BASE,
    stacks={"blocks": "n_layer"},
    architectures={"GPT2LMHeadModel": {}, "GPT2Model": {"head": None}},
    defaults={
        "vocab_size": 50_257,
        "n_positions": 1024,
        "n_embd": 768,
        "n_layer": 12,
        "n_head": 12,
        "n_inner": None,
        "activation_function": "gelu_new",
        "layer_norm_epsilon": 1e-5,
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
        "tie_word_embeddings": True,
    },
    rules=(
        same("vocab_size", "vocab"),
        same("n_embd", "dim"),
        same("n_positions", "context"),
        same("n_head", "blocks.*.mixer.heads"),
        same("n_inner", "blocks.*.channel.hidden"),
        same("layer_norm_epsilon", "norm.eps", "blocks.*.norm.eps"),
        same("tie_word_embeddings", "head.tied"),
        named("activation_function", ACTIVATIONS, "blocks.*.channel.activation"),
        Rule(
            ("scale_attn_weights", "scale_attn_by_inverse_layer_idx", "n_embd", "n_head", "n_layer"),
            ("blocks.*.mixer.scale",),
            _read_scales,
            _write_scales,
            each=True,
        ),
    ),
    fixed={"add_cross_attention": (False, None)},
    # reorder_and_upcast_attn only says in which precision the scores are worked out; here it is fp32 always.
    free=frozenset(
        """
        n_ctx reorder_and_upcast_attn resid_pdrop embd_pdrop attn_pdrop summary_type summary_use_proj summary_activation
        summary_proj_to_labels summary_first_dropout predict_special_tokens
        """.split()  # noqa: SIM905 (so many words read best as one text)
    ),
    weights=(
        weight("transformer.wte", "embed.token"),
        weight("transformer.wpe", "embed.position"),
        turned(LAYER + "attn.c_attn", *(f"blocks.{{}}.mixer.{one}" for one in "qkv")),
        turned(LAYER + "attn.c_proj", "blocks.{}.mixer.out"),
        turned(LAYER + "mlp.c_fc", "blocks.{}.channel.up"),
        turned(LAYER + "mlp.c_proj", "blocks.{}.channel.down"),
        weight(LAYER + "ln_1", "blocks.{}.mixer_norm"),
        weight(LAYER + "ln_2", "blocks.{}.channel_norm"),
        weight("transformer.ln_f", "norm"),
        weight("lm_head", "head"),
    ),
    prefix="transformer.",
    headed=("GPT2LMHeadModel",),
    aliases={"lm_head.weight": "transformer.wte.weight"},
    skipped=(r"\.attn\.(masked_)?bias$",),
)
