"""BART (Lewis et al. 2020), mBART (Liu et al. 2020) and Marian (Junczys-Dowmunt et al. 2018): the encoder-decoder of
Vaswani et al. 2017 with learned or sinusoidal positions, norms behind each sublayer or, in mBART, before it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from ..block import BlockSpec
from ..mask import Mask
from ..mixers.attention import AttentionSpec, CrossSpec
from ..model import EncoderDecoderSpec, ModelSpec
from ..nn.channel import MlpSpec
from ..nn.embed import EmbedSpec
from ..nn.head import HeadSpec
from ..nn.norm import LayerNormSpec
from ..nn.position import LearnedSpec, PositionSpec, SinusoidalSpec
from .rules import ACTIVATIONS, Config, Family, Rule, named, same
from .t5 import STACKS, everywhere, together
from .tensors import Shapes, Weight, weight


def _base(position: PositionSpec, pre: bool, normed: bool) -> EncoderDecoderSpec:
    """The family's structure. pre: norms before each sublayer and one behind the last; normed: a norm behind the
    positions."""

    def stack(causal: bool) -> ModelSpec:
        biases = {"heads": 1, "bias": True, "out_bias": True}
        block = BlockSpec(
            mixer=AttentionSpec(mask=Mask(causal=causal), **biases),
            cross=CrossSpec(**biases) if causal else None,
            channel=MlpSpec(hidden=1),
            wiring="pre" if pre else "post",
        )
        return ModelSpec(
            vocab=1,
            dim=64,
            blocks=(block,),
            embed=EmbedSpec(position=position, norm=LayerNormSpec() if normed else None),
            norm=LayerNormSpec() if pre else None,
            head=HeadSpec(bias=True) if causal else None,
        )

    return EncoderDecoderSpec(encoder=stack(False), decoder=stack(True), share=True)


def _scale() -> Rule:
    """`scale_embedding`: the words' vectors are multiplied by √d."""

    def read(config: Config) -> Any:
        return math.sqrt(config["d_model"]) if config["scale_embedding"] else 1.0

    def write(value: float) -> Config:
        return {"scale_embedding": value != 1.0}

    return Rule(("scale_embedding", "d_model"), everywhere("embed.scale"), read, write)


def _logits_bias() -> Weight:
    """The head's bias, a row of its own; zero where a checkpoint has none."""

    def read(given: list[Tensor], shapes: Shapes, spec: Any) -> list[Tensor]:
        return [given[0].view(shapes[0])]

    return Weight(
        ("final_logits_bias",),
        ("decoder.head.bias",),
        read,
        lambda given, spec: [given[0][None]],
        whole=True,
        zeros=True,
    )


def _weights(positions: bool, pre: bool, normed: bool) -> tuple[Weight, ...]:
    found = [
        together(tuple(f"model.{one}.embed_tokens" for one in STACKS), tuple(f"{one}.embed.token" for one in STACKS)),
        weight("model.shared", "encoder.embed.token"),
        _logits_bias(),
    ]
    for stack in STACKS:
        theirs, ours = f"model.{stack}.layers.{{}}.", f"{stack}.blocks.{{}}."
        parts = [("mixer", "self_attn"), ("cross", "encoder_attn")][: 1 + (stack == "decoder")]
        for part, name in parts:
            for one, other in (("q", "q_proj"), ("k", "k_proj"), ("v", "v_proj"), ("out", "out_proj")):
                found.append(weight(f"{theirs}{name}.{other}", f"{ours}{part}.{one}"))
            found.append(weight(f"{theirs}{name}_layer_norm", f"{ours}{part}_norm"))
        found += [
            weight(f"{theirs}fc1", f"{ours}channel.up"),
            weight(f"{theirs}fc2", f"{ours}channel.down"),
            weight(f"{theirs}final_layer_norm", f"{ours}channel_norm"),
        ]
        found += [weight(f"model.{stack}.embed_positions", f"{stack}.embed.position")] if positions else []
        found += [weight(f"model.{stack}.layernorm_embedding", f"{stack}.embed.norm")] if normed else []
        found += [weight(f"model.{stack}.layer_norm", f"{stack}.norm")] if pre else []
    return tuple(found)


SHARED = "model.shared.weight"
RULES: tuple[Rule, ...] = (
    same("d_model", *everywhere("dim")),
    same("max_position_embeddings", *everywhere("context")),
    same("encoder_attention_heads", "encoder.blocks.*.mixer.heads"),
    same("decoder_attention_heads", "decoder.blocks.*.mixer.heads", "decoder.blocks.*.cross.heads"),
    same("encoder_ffn_dim", "encoder.blocks.*.channel.hidden"),
    same("decoder_ffn_dim", "decoder.blocks.*.channel.hidden"),
    named("activation_function", ACTIVATIONS, *everywhere("blocks.*.channel.activation")),
    _scale(),
)
FREE = frozenset(
    """
    dropout attention_dropout activation_dropout classifier_dropout classif_dropout encoder_layerdrop decoder_layerdrop
    init_std num_hidden_layers output_past replacing_rate student_encoder_layers student_decoder_layers
    force_bos_token_to_be_generated
    """.split()  # noqa: SIM905
)
DEFAULTS = {
    "vocab_size": 50_265,
    "d_model": 1024,
    "max_position_embeddings": 1024,
    **{f"{one}_{field}": value for one in STACKS for field, value in (("layers", 12), ("ffn_dim", 4096))},
    **{f"{one}_attention_heads": 16 for one in STACKS},
    "activation_function": "gelu",
    "scale_embedding": False,
}


def _family(
    name: str,
    heads: tuple[str, ...],
    position: PositionSpec,
    *,
    pre: bool = False,
    normed: bool = True,
    rules: tuple[Rule, ...] = (same("vocab_size", *everywhere("vocab")),),
    defaults: Mapping[str, Any] | None = None,
    complete: Callable[[Config], Config] = dict,
) -> Family:
    """What the three have in common. Old configurations name the structure, which each family has in one way."""
    learned = isinstance(position, LearnedSpec)
    fixed = {"normalize_before": pre, "normalize_embedding": normed, "add_final_layer_norm": pre}
    fixed |= {"static_position_embeddings": not learned, "add_bias_logits": False, "is_decoder": False}
    fixed |= {"tie_word_embeddings": True}  # without it transformers 5 takes the two stacks' tables apart as well
    fixed |= {"extra_pos_embeddings": 2} if learned else {}
    tables = tuple(f"model.{stack}.embed_tokens.weight" for stack in STACKS)
    return Family(
        name=name,
        base=_base(position, pre, normed),
        stacks={f"{stack}.blocks": f"{stack}_layers" for stack in STACKS},
        architectures={head: {} for head in heads},
        defaults=DEFAULTS | dict(defaults or {}),
        rules=(*rules, *RULES),
        fixed={name: (value,) for name, value in fixed.items()},
        free=FREE,
        weights=_weights(learned, pre, normed),
        prefix="model.",
        headed=("MarianMTModel",),
        aliases=dict.fromkeys(tables, SHARED) | {"lm_head.weight": (SHARED, tables[1])},
        skipped=() if learned else (r"embed_positions\.weight$",),
        complete=complete,
    )


def _apart() -> Rule:
    """`share_encoder_decoder_embeddings`: one table for both languages."""
    return same("share_encoder_decoder_embeddings", "share")


def _target() -> Rule:
    """`decoder_vocab_size`, where it is another than the encoder's."""

    def read(config: Config) -> Any:
        return config["decoder_vocab_size"] or config["vocab_size"]

    return Rule(
        ("decoder_vocab_size", "vocab_size"), ("decoder.vocab",), read, lambda size: {"decoder_vocab_size": size}
    )


def _last(config: Config) -> Config:
    """The last token pads and begins a target, for which transformers has numbers that only its own vocabulary
    reaches."""
    return config | dict.fromkeys(("pad_token_id", "decoder_start_token_id"), config["decoder_vocab_size"] - 1)


OF_BART = ("BartForConditionalGeneration", "BartModel")
OF_MBART = ("MBartForConditionalGeneration", "MBartModel")
BART = _family("bart", OF_BART, LearnedSpec(offset=2))
MBART = _family("mbart", OF_MBART, LearnedSpec(offset=2), pre=True)
MARIAN = _family(
    "marian",
    ("MarianMTModel", "MarianModel"),
    SinusoidalSpec(layout="halves"),
    normed=False,
    rules=(same("vocab_size", "encoder.vocab"), _target(), _apart()),
    defaults={"vocab_size": 58_101, "decoder_vocab_size": None, "share_encoder_decoder_embeddings": True},
    complete=_last,
)
