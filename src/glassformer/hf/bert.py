"""BERT (Devlin et al. 2019) and what has its shape: MiniLM, E5 …; RoBERTa (Liu et al. 2019) and XLM-RoBERTa (Conneau et
al. 2020), whose positions are counted from behind the padding's id. With a masked-word head, with classes, or alone."""

from __future__ import annotations

from typing import Any

from ..block import BlockSpec
from ..mask import Mask
from ..mixers.attention import AttentionSpec
from ..model import ModelSpec
from ..nn.channel import MlpSpec
from ..nn.embed import EmbedSpec
from ..nn.head import HeadSpec
from ..nn.init import InitSpec
from ..nn.norm import LayerNormSpec
from ..nn.pool import PooledSpec
from ..nn.position import LearnedSpec
from ..nn.rework import ReworkSpec
from ..spec import to_data
from . import labels
from .rules import ACTIVATIONS, Config, Family, Rule, named, same, through
from .tensors import Weight, weight

NORM = LayerNormSpec(eps=1e-12)
BASE = ModelSpec(
    vocab=1,
    dim=1,
    blocks=(
        BlockSpec(
            mixer=AttentionSpec(heads=1, mask=Mask(causal=False), bias=True, out_bias=True),
            channel=MlpSpec(hidden=1),
            norm=NORM,
            wiring="post",
        ),
    ),
    embed=EmbedSpec(position=LearnedSpec(), norm=NORM),
    norm=None,
    head=HeadSpec(bias=True, rework=ReworkSpec(norm=NORM)),
    init=InitSpec(outputs="same"),
)
POOLED = {"head": to_data(PooledSpec(pooler=ReworkSpec(activation="tanh")))}
HEADS = {"ForMaskedLM": {}, "Model": POOLED, "ForSequenceClassification": POOLED}

RULES: tuple[Rule, ...] = (
    same("vocab_size", "vocab"),
    same("hidden_size", "dim"),
    same("num_attention_heads", "blocks.*.mixer.heads"),
    same("intermediate_size", "blocks.*.channel.hidden"),
    same("type_vocab_size", "embed.types"),
    same("layer_norm_eps", "blocks.*.norm.eps", "embed.norm.eps", "head.rework.norm.eps"),
    *labels.classes("ForSequenceClassification", "head.classes", "head.labels", None),
    labels.scores("head.scores"),
)
DEFAULTS: Config = {
    "vocab_size": 30_522,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "hidden_act": "gelu",
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
    "pad_token_id": 0,
    **labels.DEFAULTS,
}
FIXED: dict[str, tuple[Any, ...]] = {
    "tie_word_embeddings": (True,),
    "position_embedding_type": ("absolute", None),
    "is_decoder": (False,),
    "add_cross_attention": (False,),
    "pruned_heads": ({}, None),
}
FREE = frozenset(
    """
    hidden_dropout_prob attention_probs_dropout_prob classifier_dropout output_past directionality pooler_fc_size
    pooler_num_attention_heads pooler_num_fc_layers pooler_size_per_head pooler_type
    """.split()  # noqa: SIM905
)
OLDER = ((r"\.gamma$", ".weight"), (r"\.beta$", ".bias"))
# Of the pre-training, and of a checkpoint with another head: bert-base has a pooler beside its masked-word head.
SKIPPED = (r"embeddings\.position_ids$", r"^cls\.seq_relationship\.", r"(^|\.)pooler\.dense\.")


def encoder(prefix: str) -> tuple[Weight, ...]:
    """The tensors of the encoder."""
    layer = f"{prefix}encoder.layer.{{}}."
    return (
        weight(f"{prefix}embeddings.word_embeddings", "embed.token"),
        weight(f"{prefix}embeddings.position_embeddings", "embed.position"),
        weight(f"{prefix}embeddings.token_type_embeddings", "embed.types"),
        weight(f"{prefix}embeddings.LayerNorm", "embed.norm"),
        weight(f"{layer}attention.self.query", "blocks.{}.mixer.q"),
        weight(f"{layer}attention.self.key", "blocks.{}.mixer.k"),
        weight(f"{layer}attention.self.value", "blocks.{}.mixer.v"),
        weight(f"{layer}attention.output.dense", "blocks.{}.mixer.out"),
        weight(f"{layer}attention.output.LayerNorm", "blocks.{}.mixer_norm"),
        weight(f"{layer}intermediate.dense", "blocks.{}.channel.up"),
        weight(f"{layer}output.dense", "blocks.{}.channel.down"),
        weight(f"{layer}output.LayerNorm", "blocks.{}.channel_norm"),
    )


BERT = Family(
    name="bert",
    base=BASE,
    stacks={"blocks": "num_hidden_layers"},
    architectures={f"Bert{what}": head for what, head in HEADS.items()},
    lacking={"BertModel": ("bert.pooler.dense.weight", {"head": None})},
    defaults=DEFAULTS,
    rules=(
        *RULES,
        same("max_position_embeddings", "context"),
        named("hidden_act", ACTIVATIONS, "blocks.*.channel.activation", "head.rework.activation"),
    ),
    fixed=FIXED,
    free=FREE,
    weights=(
        *encoder("bert."),
        weight("bert.pooler.dense", "head.pooler.linear"),
        weight("cls.predictions.transform.dense", "head.rework.linear"),
        weight("cls.predictions.transform.LayerNorm", "head.rework.norm"),
        weight("cls.predictions.bias", "head.bias", whole=True),
        weight("classifier", "head.linear"),
    ),
    prefix="bert.",
    aliases={
        "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    },
    legacy=OLDER,
    skipped=SKIPPED,
)


# Together, since what is the classifier's there is the model's own pooler where there are no classes.
CLASSIFIER = Weight(
    ("classifier.dense", "classifier.out_proj"),
    ("head.pooler.linear", "head.linear"),
    lambda given, shapes, spec: given,
    lambda given, spec: given,
)


def _shift(config: Config) -> Config:
    """As many rows more as positions are counted from."""
    count, pad = config.get("max_position_embeddings"), config.get("pad_token_id")
    return config | {"max_position_embeddings": count + pad + 1}


TWICE = {
    "lm_head.decoder.weight": "roberta.embeddings.word_embeddings.weight",
    "lm_head.decoder.bias": "lm_head.bias",
}


def _roberta(name: str, kind: str) -> Family:
    """RoBERTa and XLM-RoBERTa, whose classes have a pooler of their own."""
    return Family(
        name=name,
        base=BASE,
        stacks={"blocks": "num_hidden_layers"},
        architectures={f"{kind}{what}": head for what, head in HEADS.items()},
        lacking={f"{kind}Model": ("roberta.pooler.dense.weight", {"head": None})},
        defaults=DEFAULTS | {"vocab_size": 50_265 if name == "roberta" else 30_522, "pad_token_id": 1},
        rules=(
            *RULES,
            Rule(
                ("max_position_embeddings", "pad_token_id"),
                ("context",),
                lambda config: config["max_position_embeddings"] - config["pad_token_id"] - 1,
                lambda context: {"max_position_embeddings": context},
            ),
            through("pad_token_id", lambda pad: pad + 1, lambda offset: offset - 1, "embed.position.offset"),
            named("hidden_act", ACTIVATIONS, "blocks.*.channel.activation"),
        ),
        fixed=FIXED,
        free=FREE,
        weights=(
            *encoder("roberta."),
            CLASSIFIER,
            weight("roberta.pooler.dense", "head.pooler.linear"),
            weight("lm_head.dense", "head.rework.linear"),
            weight("lm_head.layer_norm", "head.rework.norm"),
            weight("lm_head.bias", "head.bias", whole=True),
        ),
        prefix="roberta.",
        aliases=TWICE,
        legacy=OLDER,
        skipped=SKIPPED,
        complete=_shift,
    )


ROBERTA, XLM_ROBERTA = _roberta("roberta", "Roberta"), _roberta("xlm-roberta", "XLMRoberta")
