"""Named models of convolution."""

from __future__ import annotations

from ..mixers.conv import TcnSpec
from ..model import BlockSpec, ModelSpec
from ..nn.head import HeadSpec
from ..nn.init import InitSpec


def tcn(
    vocab: int = 10_000,
    dim: int = 600,
    blocks: int = 4,
    hidden: int | None = None,
    context: int = 1024,
    dropout: float = 0.45,
    width: int = 3,
) -> ModelSpec:
    """The temporal convolutional network that Bai, Kolter & Koltun (2018) train on words: level i has dilation 2^i, so
    that it sees 1 + 2 (width-1) (2^blocks - 1) tokens. One table, tied, for embedding and head.

    The paper applies one more ReLU to the sum of a level and what came in. Behind the first level that changes nothing,
    since both are at least 0 there; it is left out here, so that the residual stays a plain sum. `dropout` is that of
    the levels, that of the embeddings 0.25 at most, as in the published code. How weights start is a choice of ours:
    normal, 1/√(inputs), embeddings 0.1."""
    levels = tuple(
        BlockSpec(mixer=TcnSpec(width=width, dilation=2**i, hidden=hidden, dropout=dropout), channel=None, norm=None)
        for i in range(blocks)
    )
    return ModelSpec(
        vocab=vocab,
        dim=dim,
        blocks=levels,
        context=context,
        norm=None,
        head=HeadSpec(bias=True),
        dropout=min(dropout, 0.25),
        init=InitSpec(std=None, embedding_std=0.1, outputs="same"),
    )
