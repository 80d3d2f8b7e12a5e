"""DistilBERT (Sanh et al. 2019): half of BERT's blocks, without segment vectors and without a pooler."""

from __future__ import annotations

from ..nn.pool import PooledSpec
from ..nn.rework import ReworkSpec
from ..spec import to_data
from . import labels
from .bert import BASE
from .rules import ACTIVATIONS, Family, named, same
from .tensors import weight

_LAYER = "distilbert.transformer.layer.{}."

DISTILBERT = Family(
    name="distilbert",
    base=BASE,
    stacks={"blocks": "n_layers"},
    architectures={
        "DistilBertForMaskedLM": {},
        "DistilBertModel": {"head": None},
        "DistilBertForSequenceClassification": {"head": to_data(PooledSpec(pooler=ReworkSpec(activation="relu")))},
    },
    defaults={
        "vocab_size": 30_522,
        "dim": 768,
        "n_layers": 6,
        "n_heads": 12,
        "hidden_dim": 3072,
        "activation": "gelu",
        "max_position_embeddings": 512,
        **labels.DEFAULTS,
    },
    rules=(
        same("vocab_size", "vocab"),
        same("dim", "dim"),
        same("n_heads", "blocks.*.mixer.heads"),
        same("hidden_dim", "blocks.*.channel.hidden"),
        same("max_position_embeddings", "context"),
        named("activation", ACTIVATIONS, "blocks.*.channel.activation", "head.rework.activation"),
        *labels.classes("ForSequenceClassification", "head.classes", "head.labels", None),
        labels.scores("head.scores"),
    ),
    fixed={"tie_word_embeddings": (True,), "pruned_heads": ({}, None)},
    # Sinusoids are stored like learned vectors, which they only are when training starts.
    free=frozenset(
        {"dropout", "attention_dropout", "qa_dropout", "seq_classif_dropout", "sinusoidal_pos_embds"}
        | {"output_past", "tie_weights_"}
    ),
    weights=(
        weight("distilbert.embeddings.word_embeddings", "embed.token"),
        weight("distilbert.embeddings.position_embeddings", "embed.position"),
        weight("distilbert.embeddings.LayerNorm", "embed.norm"),
        weight(f"{_LAYER}attention.q_lin", "blocks.{}.mixer.q"),
        weight(f"{_LAYER}attention.k_lin", "blocks.{}.mixer.k"),
        weight(f"{_LAYER}attention.v_lin", "blocks.{}.mixer.v"),
        weight(f"{_LAYER}attention.out_lin", "blocks.{}.mixer.out"),
        weight(f"{_LAYER}sa_layer_norm", "blocks.{}.mixer_norm"),
        weight(f"{_LAYER}ffn.lin1", "blocks.{}.channel.up"),
        weight(f"{_LAYER}ffn.lin2", "blocks.{}.channel.down"),
        weight(f"{_LAYER}output_layer_norm", "blocks.{}.channel_norm"),
        weight("vocab_transform", "head.rework.linear"),
        weight("vocab_layer_norm", "head.rework.norm"),
        weight("vocab_projector.bias", "head.bias", whole=True),
        weight("pre_classifier", "head.pooler.linear"),
        weight("classifier", "head.linear"),
    ),
    prefix="distilbert.",
    aliases={"vocab_projector.weight": "distilbert.embeddings.word_embeddings.weight"},
    skipped=(r"embeddings\.position_ids$",),
)
