"""Named models of linear attention and of the delta rule."""

from __future__ import annotations

from ..mixers.delta import DeltaSpec
from ..mixers.linear import FixedDecaySpec, GatedDecaySpec, LinearSpec
from ..model import BlockSpec, ModelSpec
from ..nn.channel import GatedSpec, MlpSpec
from ..nn.embed import EmbedSpec
from ..nn.head import HeadSpec
from ..nn.init import InitSpec
from ..nn.norm import LayerNormSpec, RMSNormSpec
from ..nn.position import LearnedSpec, RopeSpec


def linear_attention(
    vocab: int = 256,
    dim: int = 256,
    blocks: int = 8,
    heads: int = 8,
    hidden: int | None = None,
    context: int = 784,
) -> ModelSpec:
    """The linear Transformer (Katharopoulos et al. 2020, section 4.2), as it writes the digits of MNIST pixel after
    pixel: elu + 1, post-norm. Its head gives logits for the 256 values of a pixel, the paper's a mixture of ten
    logistic distributions. The paper says neither how positions enter nor how weights start; here learned vectors, and
    normal, 1/√(inputs)."""
    block = BlockSpec(
        mixer=LinearSpec(heads=heads, bias=True, out_bias=True),
        channel=MlpSpec(hidden=hidden, activation="relu"),
        wiring="post",
    )
    return ModelSpec(
        vocab=vocab,
        dim=dim,
        blocks=(block,) * blocks,
        context=context,
        embed=EmbedSpec(position=LearnedSpec()),
        head=HeadSpec(tied=False, bias=True),
        init=InitSpec(std=None, outputs="same"),
    )


def retention(
    vocab: int = 32_000,
    dim: int = 2048,
    blocks: int = 24,
    heads: int = 8,
    hidden: int | None = None,
    context: int = 2048,
) -> ModelSpec:
    """RetNet 1.3B (Sun et al. 2023): values and gate twice as wide as queries and keys and in their stead, with hidden
    None, an MLP of only twice the width, so that a block has as many weights as a Transformer's. Each head is
    normalised as by the paper's group norm, without weights, which W_O takes up. The paper does not give its
    vocabulary; weights start normal, 0.02, there as in DeepNet."""
    norm = LayerNormSpec()
    mixer = LinearSpec(
        heads=heads,
        value_dim=2 * dim // heads,
        feature="none",
        normalise=False,
        decay=FixedDecaySpec(),
        position=RopeSpec(),
        norm=norm.changed(weight=False, bias=False),
        gate=True,
    )
    channel = MlpSpec(hidden=2 * dim if hidden is None else hidden, bias=False)
    return ModelSpec(
        vocab=vocab,
        dim=dim,
        blocks=(BlockSpec(mixer=mixer, channel=channel, norm=norm),) * blocks,
        context=context,
        norm=norm,
    )


def gla(
    vocab: int = 32_000,
    dim: int = 1024,
    blocks: int = 24,
    heads: int = 4,
    hidden: int | None = None,
    context: int = 2048,
) -> ModelSpec:
    """The gated linear attention Transformer of 340 million parameters (Yang et al. 2024): LLaMA with gated linear
    attention in the place of attention, keys half as wide as values. hidden None: 8/3 of the width. Each head is
    normalised by RMSNorm, as in the published code, and the output gate has no bias, which the paper's equation has."""
    norm = RMSNormSpec()
    mixer = LinearSpec(
        heads=heads,
        key_dim=max(dim // (2 * heads), 1),
        feature="none",
        normalise=False,
        decay=GatedDecaySpec(),
        norm=norm,
        gate=True,
    )
    return ModelSpec(
        vocab=vocab,
        dim=dim,
        blocks=(BlockSpec(mixer=mixer, channel=GatedSpec(hidden=hidden), norm=norm),) * blocks,
        context=context,
        norm=norm,
    )


def deltanet(
    vocab: int = 32_000,
    dim: int = 1024,
    blocks: int = 24,
    heads: int = 8,
    hidden: int | None = None,
    context: int = 2048,
    gated: bool = False,
) -> ModelSpec:
    """DeltaNet of 340 million parameters (Yang et al. 2024): LLaMA with the delta rule in the place of attention.
    hidden None: 8/3 of the width. gated: Gated DeltaNet (Yang et al. 2025), with a decay per head and an output gate;
    its keys are 3/4 and its values 3/2 as wide as the model, where the published sizes have heads of 256."""
    norm = RMSNormSpec()
    mixer = DeltaSpec(heads=heads)
    if gated:
        mixer = DeltaSpec(
            heads=heads,
            key_dim=max(3 * dim // (4 * heads), 1),
            value_dim=max(3 * dim // (2 * heads), 1),
            decay=True,
            gate=True,
        )
    return ModelSpec(
        vocab=vocab,
        dim=dim,
        blocks=(BlockSpec(mixer=mixer, channel=GatedSpec(hidden=hidden), norm=norm),) * blocks,
        context=context,
        norm=norm,
    )
