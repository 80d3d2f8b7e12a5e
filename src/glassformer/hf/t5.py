"""T5 (Raffel et al. 2020), T5 v1.1 and Flan-T5, and mT5 (Xue et al. 2021): a relative bias in the scores, which are not
scaled; no biases; norms without a mean."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..block import BlockSpec
from ..mask import Mask
from ..mixers.attention import AttentionSpec, CrossSpec
from ..model import EncoderDecoderSpec, ModelSpec
from ..nn.channel import MlpSpec
from ..nn.head import HeadSpec
from ..nn.norm import RMSNormSpec
from ..nn.position import RelativeBiasSpec
from .rules import ACTIVATIONS, Config, Family, Rule, same
from .tensors import Weight, weight

STACKS = ("encoder", "decoder")
ATTENTIONS = ("encoder.blocks.*.mixer", "decoder.blocks.*.mixer", "decoder.blocks.*.cross")


def _stack(causal: bool) -> ModelSpec:
    scores = {"heads": 1, "head_dim": 1, "scale": 1.0}
    block = BlockSpec(
        mixer=AttentionSpec(mask=Mask(causal=causal), position=RelativeBiasSpec(shared=True), **scores),
        cross=CrossSpec(**scores) if causal else None,
        channel=MlpSpec(hidden=1, bias=False),
        norm=RMSNormSpec(),
    )
    head = HeadSpec() if causal else None
    return ModelSpec(vocab=1, dim=64, blocks=(block,), context=512, norm=RMSNormSpec(), head=head)


def everywhere(place: str, stacks: tuple[str, ...] = STACKS) -> tuple[str, ...]:
    """A place in both stacks."""
    return tuple(f"{stack}.{place}" for stack in stacks)


def _channel() -> Rule:
    """`feed_forward_proj`: the activation, with "gated-" before it where there is a gate; its gelu is tanh's then.
    `dense_act_fn` and `is_gated_act` say the same once more, and count where they are given."""
    places = everywhere("blocks.*.channel")

    def read(config: Config) -> Any:
        gated, _, name = config["feed_forward_proj"].rpartition("-")
        if gated not in ("", "gated"):
            raise ValueError
        word = "gelu_new" if gated and name == "gelu" else name
        activation = ACTIVATIONS[word if config["dense_act_fn"] is None else config["dense_act_fn"]]
        gated = gated if config["is_gated_act"] is None else config["is_gated_act"]
        return {"kind": "gated" if gated else "mlp", "hidden": config["d_ff"], "activation": activation, "bias": False}

    def write(value: dict[str, Any]) -> Config:
        gated = value["kind"] == "gated"
        name = next(word for word, own in ACTIVATIONS.items() if own == value["activation"])
        word = "gated-" + ("gelu" if name == "gelu_new" else name) if gated else name
        return {"feed_forward_proj": word, "d_ff": value["hidden"], "dense_act_fn": name, "is_gated_act": gated}

    return Rule(("feed_forward_proj", "d_ff", "dense_act_fn", "is_gated_act"), places, read, write)


def _head() -> Rule:
    """A head that is the table is scaled by 1/√d. transformers 5 writes both settings, and true for the first even
    where the head is a table of its own, as the tensors then show (`Family.apart`)."""

    def read(config: Config) -> Any:
        tied, scaled = config["tie_word_embeddings"], config["scale_decoder_outputs"]
        scaled = tied if scaled is None else scaled
        return {"tied": tied, "scale": config["d_model"] ** -0.5 if scaled else 1.0}

    def write(value: dict[str, Any]) -> Config:
        return {"tie_word_embeddings": value["tied"], "scale_decoder_outputs": value["scale"] != 1.0}

    return Rule(("tie_word_embeddings", "scale_decoder_outputs", "d_model"), ("decoder.head",), read, write)


def _ready(config: Config) -> Config:
    """A decoder is as deep as the encoder unless it is said."""
    if config.get("num_decoder_layers") is None and "num_layers" in config:
        config["num_decoder_layers"] = config["num_layers"]
    return config


def _weights() -> tuple[Weight, ...]:
    found = [weight("shared", "encoder.embed.token"), weight("lm_head", "decoder.head")]
    for stack in STACKS:
        theirs, ours = f"{stack}.block.{{}}.layer.", f"{stack}.blocks.{{}}."
        sublayers = [("mixer", "SelfAttention"), ("cross", "EncDecAttention")][: 1 + (stack == "decoder")]
        for i, (part, name) in enumerate(sublayers):
            for one, other in (("q", "q"), ("k", "k"), ("v", "v"), ("out", "o")):
                found.append(weight(f"{theirs}{i}.{name}.{other}", f"{ours}{part}.{one}"))
            found.append(weight(f"{theirs}{i}.layer_norm", f"{ours}{part}_norm"))
        last = f"{theirs}{len(sublayers)}."
        bias = f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        found += [
            weight(bias, f"{stack}.blocks.0.mixer.relative.table", whole=True),
            together(
                (f"{last}DenseReluDense.wi_0", f"{last}DenseReluDense.wi_1"),
                (f"{ours}channel.gate", f"{ours}channel.up"),
            ),
            weight(f"{last}DenseReluDense.wi", f"{ours}channel.up"),
            weight(f"{last}DenseReluDense.wo", f"{ours}channel.down"),
            weight(f"{last}layer_norm", f"{ours}channel_norm"),
            weight(f"{stack}.final_layer_norm", f"{stack}.norm"),
        ]
    return tuple(found)


def together(theirs: tuple[str, ...], ours: tuple[str, ...]) -> Weight:
    """Several tensors that are alike on both sides, in a model that has all of them."""
    return Weight(theirs, ours, lambda given, shapes, spec: given, lambda given, spec: given)


T5 = Family(
    name="t5",
    base=EncoderDecoderSpec(encoder=_stack(False), decoder=_stack(True), share=True),
    stacks={"encoder.blocks": "num_layers", "decoder.blocks": "num_decoder_layers"},
    architectures={"T5ForConditionalGeneration": {}, "T5Model": {}, "T5WithLMHeadModel": {}},
    defaults={
        "vocab_size": 32_128,
        "d_model": 512,
        "d_kv": 64,
        "d_ff": 2048,
        "num_layers": 6,
        "num_decoder_layers": 6,
        "num_heads": 8,
        "n_positions": 512,
        "relative_attention_num_buckets": 32,
        "relative_attention_max_distance": 128,
        "layer_norm_epsilon": 1e-6,
        "feed_forward_proj": "relu",
        "dense_act_fn": None,
        "is_gated_act": None,
        "tie_word_embeddings": True,
        "scale_decoder_outputs": None,
    },
    rules=(
        _head(),
        same("vocab_size", *everywhere("vocab")),
        same("d_model", *everywhere("dim")),
        same("n_positions", *everywhere("context")),
        same("d_kv", *(f"{one}.head_dim" for one in ATTENTIONS)),
        same("num_heads", *(f"{one}.heads" for one in ATTENTIONS)),
        same("relative_attention_num_buckets", *everywhere("blocks.*.mixer.position.buckets")),
        same("relative_attention_max_distance", *everywhere("blocks.*.mixer.position.max_distance")),
        same("layer_norm_epsilon", *everywhere("norm.eps"), *everywhere("blocks.*.norm.eps")),
        _channel(),
    ),
    fixed={"is_decoder": (False,)},
    free=frozenset({"dropout_rate", "classifier_dropout", "output_past"}),
    headed=("T5WithLMHeadModel",),
    weights=_weights(),
    aliases=dict.fromkeys((*(f"{one}.embed_tokens.weight" for one in STACKS), "lm_head.weight"), "shared.weight"),
    skipped=(r"EncDecAttention\.relative_attention_bias",),  # in old files, and never used
    apart=("lm_head.weight", "shared.weight", "decoder.head.tied"),
    ready=_ready,
)

MT5 = replace(
    T5,
    name="mt5",
    architectures={"MT5ForConditionalGeneration": {}, "MT5Model": {}},
    defaults={
        **T5.defaults,
        **{"vocab_size": 250_112, "d_ff": 1024, "num_layers": 8, "num_decoder_layers": 8, "num_heads": 6},
        **{"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
    },
    rules=(same("tie_word_embeddings", "decoder.head.tied"), *T5.rules[1:]),  # never scaled
)
