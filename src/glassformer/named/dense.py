"""Named models of dense layers across positions."""

from __future__ import annotations

from ..mixers.dense import MixingSpec, WindowSpec
from ..model import BlockSpec, ModelSpec
from ..nn.channel import MlpSpec
from ..nn.head import HeadSpec
from ..nn.init import InitSpec


def mlp(
    vocab: int = 17_964,
    dim: int = 100,
    blocks: int = 1,
    hidden: int = 60,
    context: int = 1024,
    window: int = 5,
) -> ModelSpec:
    """The neural language model of Bengio et al. (2003), as they train it on AP News: an MLP over the vectors of the
    last five words laid end to end. Its U, from the hidden units to the vocabulary, is here two matrices: back to the
    model's width, and the head. Of their direct connections from the words to the vocabulary the residual gives the
    newest word's. The paper does not say how weights start; here normal, 1/√(inputs), embeddings 0.1."""
    block = BlockSpec(mixer=WindowSpec(window=window, hidden=hidden), channel=None, norm=None)
    return ModelSpec(
        vocab=vocab,
        dim=dim,
        blocks=(block,) * blocks,
        context=context,
        norm=None,
        head=HeadSpec(tied=False, bias=True),
        init=InitSpec(std=None, embedding_std=0.1, outputs="same"),
    )


def mlp_mixer(
    vocab: int = 30_522,
    dim: int = 512,
    blocks: int = 8,
    hidden: int | None = None,
    context: int = 196,
    mixing: int | None = None,
) -> ModelSpec:
    """MLP-Mixer S/16 (Tolstikhin et al. 2021) as an encoder over tokens: its vectors `b t d`, for texts of up to
    `context` tokens in the place of the paper's 196 patches. mixing: hidden units across positions, half the width
    unless given. How weights start is a choice of ours: normal, 1/√(inputs), embeddings 0.02."""
    block = BlockSpec(mixer=MixingSpec(length=context, hidden=mixing), channel=MlpSpec(hidden=hidden))
    return ModelSpec(
        vocab=vocab,
        dim=dim,
        blocks=(block,) * blocks,
        context=context,
        head=None,
        init=InitSpec(std=None, outputs="same"),
    )
