"""Mixers that no preset has, each in the place of gpt2's attention: what `--set model.blocks.*.mixer.kind=` makes of
it."""

from __future__ import annotations

from collections.abc import Mapping

from ..mask import Mask
from ..mixers import MixerSpec
from ..mixers.attention import AttentionSpec
from ..mixers.conv import ConvSpec
from ..mixers.delta import DeltaSpec
from ..mixers.fixed import BagSpec, FourierSpec
from ..mixers.s4 import S4DSpec
from ..model import ModelSpec
from .transformers import gpt2

LAYERS: Mapping[str, MixerSpec] = {
    "conv": ConvSpec(),
    "gated-conv": ConvSpec(gate=True),
    "bag": BagSpec(),
    "fourier": FourierSpec(),
    "sliding-window": AttentionSpec(heads=12, mask=Mask(window=256)),
    "strided": AttentionSpec(heads=12, mask=Mask(window=32, stride=32)),
    "top-k": AttentionSpec(heads=12, top_k=32),
    "gated-deltanet": DeltaSpec(heads=12, decay=True),
    "s4d": S4DSpec(),
}


def gpt2_with(layer: str) -> ModelSpec:
    """gpt2 with one of LAYERS in each block."""
    spec = gpt2()
    return spec.changed(blocks=tuple(block.changed(mixer=LAYERS[layer]) for block in spec.blocks))
