"""Named models of softmax attention: the Transformer and what followed it."""

from __future__ import annotations

from ..mask import Mask
from ..mixers.attention import AttentionSpec, CrossSpec
from ..model import BlockSpec, EncoderDecoderSpec, ModelSpec
from ..nn.channel import GatedSpec, MlpSpec
from ..nn.embed import EmbedSpec
from ..nn.head import HeadSpec
from ..nn.init import InitSpec
from ..nn.norm import LayerNormSpec, RMSNormSpec
from ..nn.position import LearnedSpec, RelativeBiasSpec, RopeSpec, SinusoidalSpec


def transformer_base(
    vocab: int = 37_000,
    dim: int = 512,
    blocks: int = 6,
    heads: int = 8,
    hidden: int | None = None,
    context: int = 1024,
    dropout: float = 0.1,
) -> EncoderDecoderSpec:
    """The base Transformer (Vaswani et al. 2017, table 3): post-norm, sinusoids added to embeddings times √d, one table
    for both embeddings and the head. The paper does not say how weights start; here normal, 1/√(inputs). Dropout acts
    where the paper has it, on the embeddings and on what each sublayer adds; the published code drops attention weights
    and hidden units as well, which is left out here."""
    channel = MlpSpec(hidden=hidden, activation="relu")
    reader = BlockSpec(
        mixer=AttentionSpec(heads=heads, mask=Mask(causal=False)), channel=channel, wiring="post", dropout=dropout
    )
    writer = reader.changed(mixer=AttentionSpec(heads=heads), cross=CrossSpec(heads=heads))
    encoder = ModelSpec(
        vocab=vocab,
        dim=dim,
        blocks=(reader,) * blocks,
        context=context,
        embed=EmbedSpec(scale=dim**0.5, position=SinusoidalSpec()),
        norm=None,
        head=None,
        dropout=dropout,
        init=InitSpec(std=None, embedding_std=dim**-0.5, outputs="same"),
    )
    return EncoderDecoderSpec(
        encoder=encoder, decoder=encoder.changed(blocks=(writer,) * blocks, head=HeadSpec()), share=True
    )


def bert(
    vocab: int = 30_522,
    dim: int = 768,
    blocks: int = 12,
    heads: int = 12,
    hidden: int | None = None,
    context: int = 512,
    dropout: float = 0.1,
) -> ModelSpec:
    """BERT base (Devlin et al. 2019), the encoder: its vectors `b t d`.

    Without the pooler and the masked-word head (both are heads: PooledSpec, HeadSpec with a rework). Without the
    dropout of attention weights (0.1 in the paper).
    """
    norm = LayerNormSpec(eps=1e-12)
    block = BlockSpec(
        mixer=AttentionSpec(heads=heads, mask=Mask(causal=False), bias=True, out_bias=True),
        channel=MlpSpec(hidden=hidden),
        norm=norm,
        wiring="post",
        dropout=dropout,
    )
    return ModelSpec(
        vocab=vocab,
        dim=dim,
        blocks=(block,) * blocks,
        context=context,
        embed=EmbedSpec(position=LearnedSpec(), norm=norm, types=2),
        norm=None,
        head=None,
        dropout=dropout,
        init=InitSpec(outputs="same"),
    )


def gpt2(
    vocab: int = 50_257,
    dim: int = 768,
    blocks: int = 12,
    heads: int = 12,
    hidden: int | None = None,
    context: int = 1024,
    dropout: float = 0.1,
) -> ModelSpec:
    """GPT-2, its smallest size of 124 million parameters (Radford et al. 2019). Without the dropout of attention
    weights (0.1 in the published model), and position vectors start with deviation 0.02 (there 0.01)."""
    block = BlockSpec(
        mixer=AttentionSpec(heads=heads, bias=True, out_bias=True),
        channel=MlpSpec(hidden=hidden, activation="gelu_tanh"),
        dropout=dropout,
    )
    return ModelSpec(
        vocab=vocab,
        dim=dim,
        blocks=(block,) * blocks,
        context=context,
        embed=EmbedSpec(position=LearnedSpec()),
        dropout=dropout,
    )


def llama(
    vocab: int = 32_000,
    dim: int = 4096,
    blocks: int = 32,
    heads: int = 32,
    hidden: int | None = None,
    context: int = 2048,
    kv_heads: int | None = None,
) -> ModelSpec:
    """LLaMA 7B (Touvron et al. 2023). hidden None: 11008 as in the paper, or for another width 8/3 of it.
    The paper does not say how weights start; here normal, 0.02."""
    norm = RMSNormSpec(eps=1e-6)
    hidden = 11_008 if hidden is None and dim == 4096 else hidden
    block = BlockSpec(
        mixer=AttentionSpec(heads=heads, kv_heads=kv_heads, position=RopeSpec()),
        channel=GatedSpec(hidden=hidden),
        norm=norm,
    )
    return ModelSpec(
        vocab=vocab,
        dim=dim,
        blocks=(block,) * blocks,
        context=context,
        norm=norm,
        head=HeadSpec(tied=False),
        init=InitSpec(outputs="same"),
    )


def t5(
    vocab: int = 32_128,
    dim: int = 512,
    blocks: int = 6,
    heads: int = 8,
    hidden: int | None = None,
    context: int = 512,
    dropout: float = 0.1,
) -> EncoderDecoderSpec:
    """T5 small, version 1.0 (Raffel et al. 2020): scores are not scaled, one relative bias for all layers of a stack,
    and the head, tied to the embeddings, reads vectors times d^-1/2. Without the dropout of attention weights and of
    hidden units (0.1 in the paper); weights start normal, 0.02, where the published code has one deviation a kind."""
    norm = RMSNormSpec(eps=1e-6)

    def mixer(causal: bool) -> AttentionSpec:
        return AttentionSpec(
            heads=heads, scale=1.0, mask=Mask(causal=causal), position=RelativeBiasSpec(buckets=32, shared=True)
        )

    channel = MlpSpec(hidden=hidden, activation="relu", bias=False)
    reader = BlockSpec(mixer=mixer(causal=False), channel=channel, norm=norm, dropout=dropout)
    writer = reader.changed(mixer=mixer(causal=True), cross=CrossSpec(heads=heads, scale=1.0))
    encoder = ModelSpec(
        vocab=vocab,
        dim=dim,
        blocks=(reader,) * blocks,
        context=context,
        norm=norm,
        head=None,
        dropout=dropout,
        init=InitSpec(embedding_std=1.0, outputs="same"),
    )
    decoder = encoder.changed(blocks=(writer,) * blocks, head=HeadSpec(scale=dim**-0.5))
    return EncoderDecoderSpec(encoder=encoder, decoder=decoder, share=True)
