"""The models of images that every law is checked on: small, and different in code."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor, nn

from contract.cases import drawn
from glassformer.image import ImageModelSpec
from glassformer.mask import Mask
from glassformer.mixers.attention import AttentionSpec
from glassformer.mixers.dense import MixingSpec
from glassformer.mixers.fixed import FourierSpec
from glassformer.mixers.recurrent import LstmSpec
from glassformer.model import BlockSpec, build_model
from glassformer.named import preset
from glassformer.nn.channel import ExpertsSpec, MlpSpec
from glassformer.nn.classes import ClassesSpec, PoolerSpec
from glassformer.nn.maps import Conv2dSpec, DenseSpec, SubsampleSpec
from glassformer.nn.norm import LayerNormSpec, RMSNormSpec
from glassformer.nn.pixels import PatchesSpec, PixelsSpec, Sinusoidal2dSpec
from glassformer.nn.position import AlibiSpec
from glassformer.nn.resize import ResizeSpec

_FULL = AttentionSpec(heads=2, mask=Mask(causal=False))
_NEAR = AttentionSpec(heads=2, mask=Mask(causal=False, window=2), position=AlibiSpec(), bias=True, out_bias=True)
_LAYERS = (
    Conv2dSpec(maps=4, kernel=3, stride=2, pad=1, activation="tanh"),
    Conv2dSpec(maps=3, kernel=2, table=((0, 2), (1, 3), (0, 1, 2, 3)), activation="gelu"),
    SubsampleSpec(size=2, pool="max"),
    SubsampleSpec(size=2, trained=False),
)

CASES: dict[str, ImageModelSpec] = {
    "lenet": preset("lenet", size=28),
    "layers": ImageModelSpec(classes=5, size=17, channels=2, blocks=_LAYERS, embed=PixelsSpec(mean=0.2, deviation=2.0)),
    "mlp": preset("mlp-image", size=6, channels=2, hidden=9, blocks=2, classes=3),
    "linear": ImageModelSpec(classes=3, size=4, blocks=(DenseSpec(width=3, activation="none"),)),
    "vit": preset("vit", size=12, patch=4, dim=16, blocks=2, heads=2, classes=5, dropout=0.0),
    "vit-mean": ImageModelSpec(
        classes=4,
        size=8,
        channels=2,
        embed=PatchesSpec(patch=2, dim=16, class_token=False, position=Sinusoidal2dSpec()),
        blocks=(BlockSpec(mixer=_NEAR, norm=RMSNormSpec()), BlockSpec(mixer=_FULL, wiring="post", channel=None)),
        norm=LayerNormSpec(),
    ),
    "vit-sinusoids": ImageModelSpec(
        classes=4,
        size=8,
        embed=PatchesSpec(patch=4, dim=16, position=Sinusoidal2dSpec()),
        blocks=(BlockSpec(mixer=_FULL, channel=ExpertsSpec(expert=MlpSpec(hidden=8), experts=3)),),
    ),
    "deit": ImageModelSpec(
        classes=4,
        size=8,
        channels=3,
        embed=PatchesSpec(patch=4, dim=16, distilled=True, mean=(0.5, 0.4, 0.3), deviation=(0.2, 0.3, 0.4)),
        blocks=(BlockSpec(mixer=_FULL),),
        norm=LayerNormSpec(),
        head=ClassesSpec(distilled=True),
        resize=ResizeSpec(side=10, filter="bicubic"),
    ),
    "pooler": ImageModelSpec(
        classes=0,
        size=8,
        channels=2,
        embed=PatchesSpec(patch=4, dim=16, distilled=True, position=Sinusoidal2dSpec(), mean=(0.5, 0.4)),
        blocks=(BlockSpec(mixer=_FULL),),
        norm=LayerNormSpec(),
        head=PoolerSpec(width=12),
    ),
    "headless": ImageModelSpec(
        classes=0, size=8, embed=PatchesSpec(patch=4, dim=16), blocks=(BlockSpec(mixer=_FULL),), head=None
    ),
    "headless-maps": ImageModelSpec(classes=0, size=5, channels=2, blocks=(Conv2dSpec(maps=3, kernel=2),), head=None),
    "pooler-maps": ImageModelSpec(
        classes=0, size=5, embed=PixelsSpec(mean=(0.1,)), blocks=(Conv2dSpec(maps=3, kernel=2),), head=PoolerSpec()
    ),
    "mlp-mixer": ImageModelSpec(
        classes=4,
        size=6,
        embed=PatchesSpec(patch=2, dim=16, class_token=False, position=None),
        blocks=(BlockSpec(mixer=MixingSpec(length=9)), BlockSpec(mixer=FourierSpec(unitary=True))),
        norm=LayerNormSpec(),
    ),
    "widening": ImageModelSpec(
        classes=4,
        size=6,
        embed=PatchesSpec(patch=3, dim=8),
        blocks=(BlockSpec(mixer=LstmSpec(bidirectional=True), width=12), BlockSpec(mixer=_FULL)),
    ),
    # Neither a signal of place nor a class token, a causal mixer, then a layer over all patches at once.
    "bare": ImageModelSpec(
        classes=4,
        size=6,
        embed=PatchesSpec(patch=2, dim=16, class_token=False, position=None),
        blocks=(BlockSpec(mixer=AttentionSpec()), DenseSpec(width=7)),
    ),
}


@cache
def kept(name: str) -> nn.Module:
    """The model of the case, built once; for tests that do not change it."""
    return built(name)


def built(name: str) -> nn.Module:
    """A fresh model of the case."""
    return drawn(build_model(CASES[name]))


def images_of(name: str, batch: int, seed: int = 0) -> Tensor:
    """Random images `b c y x` of the case's size."""
    spec = CASES[name]
    return torch.rand(batch, spec.channels, spec.size, spec.size, generator=torch.Generator().manual_seed(seed))
