"""ViT (Dosovitskiy et al. 2021) and DeiT (Touvron et al. 2021): encoders of image patches, with classes or without."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ..block import BlockSpec
from ..image import ImageModelSpec
from ..mask import Mask
from ..mixers.attention import AttentionSpec
from ..nn.channel import MlpSpec
from ..nn.classes import ClassesSpec, PoolerSpec
from ..nn.init import InitSpec
from ..nn.norm import LayerNormSpec
from ..nn.pixels import PatchesSpec
from ..spec import to_data
from . import labels, pictures
from .rules import ACTIVATIONS, Config, Family, Rule, named, same, through
from .tensors import Shapes, Weight, weight

NORM = LayerNormSpec(eps=1e-12)
BASE = ImageModelSpec(
    classes=2,
    size=1,
    channels=3,
    embed=PatchesSpec(patch=1, dim=1),
    blocks=(
        BlockSpec(
            mixer=AttentionSpec(heads=1, mask=Mask(causal=False), out_bias=True), channel=MlpSpec(hidden=1), norm=NORM
        ),
    ),
    norm=NORM,
    init=InitSpec(outputs="same"),
)
POOLER = {"head": to_data(PoolerSpec()), "classes": 0}
DEFAULTS: Config = {
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-12,
    "image_size": 224,
    "patch_size": 16,
    "num_channels": 3,
    "qkv_bias": True,
    "pooler_output_size": None,
    "pooler_act": "tanh",
    **labels.DEFAULTS,
    **pictures.DEFAULTS,
}
FREE = frozenset({"encoder_stride", "hidden_dropout_prob", "attention_probs_dropout_prob", *pictures.FREE})


RULES: tuple[Rule, ...] = (
    same("hidden_size", "embed.dim"),
    same("num_attention_heads", "blocks.*.mixer.heads"),
    same("intermediate_size", "blocks.*.channel.hidden"),
    named("hidden_act", ACTIVATIONS, "blocks.*.channel.activation"),
    same("layer_norm_eps", "norm.eps", "blocks.*.norm.eps"),
    through("image_size", pictures.square, int, "size"),
    through("patch_size", pictures.square, int, "embed.patch"),
    same("num_channels", "channels"),
    same("qkv_bias", "blocks.*.mixer.bias"),
    same("pooler_output_size", "head.width"),
    named("pooler_act", ACTIVATIONS, "head.activation"),
    *labels.classes("ForImageClassification", "classes", "labels", 0),
    *pictures.pictures("image_size"),
)


def _alone(theirs: str, ours: str) -> Weight:
    """One vector `d`, which they keep as `1 1 d`."""
    return Weight((theirs,), (ours,), lambda given, *_: [given[0][0, 0]], lambda given, _: [given[0][None, None]], True)


def _patches(theirs: str, ours: str) -> Weight:
    """The linear map of a patch, `d c·y·x`, which they keep as a convolution's `d c y x`."""

    def read(given: list[Tensor], shapes: Shapes, spec: Any) -> list[Tensor]:
        return [one.flatten(1) if one.ndim > 1 else one for one in given]

    def write(given: list[Tensor], spec: ImageModelSpec) -> list[Tensor]:
        square = (spec.channels, spec.embed.patch, spec.embed.patch)
        return [one.unflatten(1, square) if one.ndim > 1 else one for one in given]

    return Weight((theirs,), (ours,), read, write)


def _weights(prefix: str) -> tuple[Weight, ...]:
    layer, places = f"{prefix}encoder.layer.{{}}.", f"{prefix}embeddings.position_embeddings"
    return (
        _alone(f"{prefix}embeddings.cls_token", "embed.first"),
        _alone(f"{prefix}embeddings.distillation_token", "embed.second"),
        Weight(
            *((places,), ("embed.position.weight",)),
            *(lambda given, *_: [given[0][0]], lambda given, _: [given[0][None]], True),
        ),
        _patches(f"{prefix}embeddings.patch_embeddings.projection", "embed.patch"),
        weight(f"{layer}attention.attention.query", "blocks.{}.mixer.q"),
        weight(f"{layer}attention.attention.key", "blocks.{}.mixer.k"),
        weight(f"{layer}attention.attention.value", "blocks.{}.mixer.v"),
        weight(f"{layer}attention.output.dense", "blocks.{}.mixer.out"),
        weight(f"{layer}intermediate.dense", "blocks.{}.channel.up"),
        weight(f"{layer}output.dense", "blocks.{}.channel.down"),
        weight(f"{layer}layernorm_before", "blocks.{}.mixer_norm"),
        weight(f"{layer}layernorm_after", "blocks.{}.channel_norm"),
        weight(f"{prefix}layernorm", "norm"),
        weight(f"{prefix}pooler.dense", "head.dense"),
        weight("classifier", "head.linear"),
        weight("cls_classifier", "head.linear.0"),
        weight("distillation_classifier", "head.linear.1"),
    )


# transformers 5 holds other names in memory, and writes those of the published files.
LEGACY = (
    (r"(^|\.)layers\.(\d+)\.", r"\1encoder.layer.\2."),
    (r"attention\.q_proj\.", "attention.attention.query."),
    (r"attention\.k_proj\.", "attention.attention.key."),
    (r"attention\.v_proj\.", "attention.attention.value."),
    (r"attention\.o_proj\.", "attention.output.dense."),
    (r"mlp\.fc1\.", "intermediate.dense."),
    (r"mlp\.fc2\.", "output.dense."),
)
SHARED: dict[str, Any] = {
    "stacks": {"blocks": "num_hidden_layers"},
    "rules": RULES,
    "free": FREE,
    "fixed": pictures.FIXED | {"problem_type": (None, "single_label_classification")},
    "legacy": LEGACY,
    "skipped": (r"embeddings\.mask_token$",),  # of the pre-training that hides patches
    "beside": {pictures.FILE: pictures.FIELDS},
    "ready": pictures.ready,
    "complete": pictures.complete,
}
VIT = Family(
    name="vit",
    base=BASE,
    architectures={"ViTForImageClassification": {}, "ViTModel": POOLER},
    lacking={"ViTModel": ("vit.pooler.dense.weight", {"head": None})},
    defaults=DEFAULTS,
    weights=_weights("vit."),
    prefix="vit.",
    **SHARED,
)
DEIT = Family(
    name="deit",
    base=BASE.changed(embed=BASE.embed.changed(distilled=True)),
    architectures={
        "DeiTForImageClassification": {},
        "DeiTForImageClassificationWithTeacher": {"head": to_data(ClassesSpec(distilled=True))},
        "DeiTModel": POOLER,
    },
    lacking={"DeiTModel": ("deit.pooler.dense.weight", {"head": None})},
    defaults=DEFAULTS
    | {"resample": 3, "do_center_crop": True}
    | {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]},
    weights=_weights("deit."),
    prefix="deit.",
    **SHARED,
)
