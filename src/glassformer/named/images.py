"""Named models of images, with the settings of their papers."""

from __future__ import annotations

from ..block import BlockSpec
from ..image import ImageModelSpec
from ..mask import Mask
from ..mixers.attention import AttentionSpec
from ..nn.channel import MlpSpec
from ..nn.init import InitSpec
from ..nn.maps import Conv2dSpec, DenseSpec, SubsampleSpec
from ..nn.norm import LayerNormSpec
from ..nn.pixels import PatchesSpec, PixelsSpec


def lenet(classes: int = 10, size: int = 28, channels: int = 1) -> ImageModelSpec:
    """LeNet-5 (LeCun et al. 1998, section II.B): the input padded to 32 × 32 with background at -0.1 and ink at 1.175,
    C1, S2, C3 with the connections of table 1, S4, C5, F6, each followed by 1.7159 · tanh(2a/3).

    Its output layer is a linear map trained with softmax and cross entropy, where the paper has radial basis functions
    on fixed codes and its own loss. Weights start normal with deviation 1/√(inputs), subsampling coefficients at 1/2;
    the paper draws uniformly from ±2.4/inputs. Another `size` keeps the layers, and C5 then sees more than one place.
    """
    squashed = {"activation": "scaled_tanh"}
    return ImageModelSpec(
        classes=classes,
        size=size,
        channels=channels,
        embed=PixelsSpec(pad=2, mean=0.1 / 1.275, deviation=1 / 1.275),
        blocks=(
            Conv2dSpec(maps=6, kernel=5, **squashed),
            SubsampleSpec(**squashed),
            Conv2dSpec(maps=16, kernel=5, table="lenet", **squashed),
            SubsampleSpec(**squashed),
            Conv2dSpec(maps=120, kernel=5, **squashed),
            DenseSpec(width=84, **squashed),
        ),
    )


def mlp_image(
    classes: int = 10, size: int = 28, channels: int = 1, hidden: int = 800, blocks: int = 1
) -> ImageModelSpec:
    """An MLP over all pixels in one line: 784-800-10 as Simard et al. (2003) have it for MNIST, with `blocks` hidden
    layers of `hidden` units. With ReLU; the paper has a sigmoid, and does not say how weights start (here 1/√(inputs))
    """
    return ImageModelSpec(
        classes=classes,
        size=size,
        channels=channels,
        embed=PixelsSpec(mean=0.1307, deviation=0.3081),  # of MNIST's training images
        blocks=(DenseSpec(width=hidden),) * blocks,
    )


def vit(
    classes: int = 1000,
    size: int = 224,
    channels: int = 3,
    patch: int = 16,
    dim: int = 768,
    blocks: int = 12,
    heads: int = 12,
    hidden: int | None = None,
    dropout: float = 0.1,
) -> ImageModelSpec:
    """The vision transformer ViT-B/16 (Dosovitskiy et al. 2021, table 1), with the single linear map to the classes
    that is used after pre-training. Without the dropout inside the MLP (0.1 in the paper); weights start normal, 0.02,
    and so do the positions."""
    norm = LayerNormSpec(eps=1e-6)
    block = BlockSpec(
        mixer=AttentionSpec(heads=heads, mask=Mask(causal=False), bias=True, out_bias=True),
        channel=MlpSpec(hidden=hidden),
        norm=norm,
        dropout=dropout,
    )
    return ImageModelSpec(
        classes=classes,
        size=size,
        channels=channels,
        embed=PatchesSpec(patch=patch, dim=dim),
        blocks=(block,) * blocks,
        norm=norm,
        dropout=dropout,
        init=InitSpec(outputs="same"),
    )
