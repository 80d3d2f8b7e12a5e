"""Named models that look at a part of the past, or keep it segment by segment."""

from __future__ import annotations

from ..mask import Mask
from ..mixers.attention import AttentionSpec
from ..mixers.memory import MemoryCachingSpec
from ..mixers.rmt import RmtSpec
from ..model import BlockSpec, ModelSpec
from ..nn.channel import GatedSpec, MlpSpec
from ..nn.embed import EmbedSpec
from ..nn.head import HeadSpec
from ..nn.init import InitSpec
from ..nn.norm import LayerNormSpec, RMSNormSpec
from ..nn.position import LearnedSpec, RelativeBiasSpec, RelativeSinusoidSpec
from .transformers import bert


def longformer(
    vocab: int = 50_265,
    dim: int = 768,
    blocks: int = 12,
    heads: int = 12,
    hidden: int | None = None,
    context: int = 4096,
    window: int = 512,
    dropout: float = 0.1,
) -> ModelSpec:
    """Longformer base (Beltagy et al. 2020), the encoder: RoBERTa in which a token sees `window` others, half of them
    on each side, and the first token sees all and is seen by all.

    The paper gives global tokens query, key and value projections of their own, and each task says which tokens are
    global; here the projections are the others' and the first token alone is global. Without the masked-word head, and
    without the dropout of attention weights (0.1 in the paper).
    """
    norm, like = LayerNormSpec(), bert(vocab, dim, blocks, heads, hidden, context, dropout)
    mask = Mask(causal=False, window=window // 2 + 1, globals=1)
    each = tuple(one.changed(norm=norm, mixer=one.mixer.changed(mask=mask)) for one in like.blocks)
    return like.changed(blocks=each, embed=EmbedSpec(position=LearnedSpec(offset=2), norm=norm))


def transformer_xl(
    vocab: int = 267_735,
    dim: int = 410,
    blocks: int = 16,
    heads: int = 10,
    hidden: int | None = None,
    context: int = 2048,
    segment: int = 150,
    memory: int = 150,
    dropout: float = 0.1,
) -> ModelSpec:
    """Transformer-XL, the base model for WikiText-103 (Dai et al. 2019, table 1): post-norm, relative scores, segments
    of 150 tokens that see 150 tokens of memory before them; in training no gradient flows into the memory.
    hidden None: 2100 as in the paper, or for another width four times it.

    One full softmax in the place of the adaptive one, u and v of each layer its own (the published code shares them
    among the layers), and no gradient of W_K and W_V through the memory. Dropout acts on the embeddings and on what
    each sublayer adds; the published code drops hidden units as well."""
    hidden = 2100 if hidden is None and dim == 410 else hidden
    mixer = AttentionSpec(
        heads=heads, mask=Mask(segment=segment, memory=memory), position=RelativeSinusoidSpec(), detach=True
    )
    block = BlockSpec(mixer=mixer, channel=MlpSpec(hidden=hidden, activation="relu"), wiring="post", dropout=dropout)
    return ModelSpec(
        vocab=vocab,
        dim=dim,
        blocks=(block,) * blocks,
        context=context,
        embed=EmbedSpec(scale=dim**0.5),
        norm=None,
        head=HeadSpec(bias=True),
        dropout=dropout,
        init=InitSpec(outputs="same"),
    )


def rmt(
    vocab: int = 267_735,
    dim: int = 410,
    blocks: int = 16,
    heads: int = 10,
    hidden: int | None = None,
    context: int = 2048,
    segment: int = 150,
    memory: int = 10,
    dropout: float = 0.1,
) -> ModelSpec:
    """The Recurrent Memory Transformer for WikiText-103 (Bulatov et al. 2022): the layers of `transformer-xl`, whose
    segments pass 10 memory tokens on in the place of its cached keys. hidden None: 2100 as in the paper, or for another
    width four times it. The layers are inside one mixer, since the whole depth lies between two segments.

    Here pre-norm, with T5's relative bias in each layer in the place of Transformer-XL's relative scores; memory tokens
    see causally, as all tokens do; and gradients pass all segments of a training window."""
    layers = RmtSpec(
        layers=blocks,
        segment=segment,
        memory=memory,
        attention=AttentionSpec(heads=heads, position=RelativeBiasSpec()),
        channel=MlpSpec(hidden=2100 if hidden is None and dim == 410 else hidden, activation="relu"),
        dropout=dropout,
    )
    return ModelSpec(
        vocab=vocab,
        dim=dim,
        blocks=(BlockSpec(mixer=layers, channel=None, norm=None, residual=False),),
        context=context,
        embed=EmbedSpec(scale=dim**0.5),
        norm=None,
        head=HeadSpec(bias=True),
        dropout=dropout,
        init=InitSpec(outputs="same"),
    )


def memory_caching(
    vocab: int = 32_000,
    dim: int = 1536,
    blocks: int = 24,
    heads: int = 16,
    hidden: int | None = None,
    context: int = 4096,
    segment: int = 256,
) -> ModelSpec:
    """A language model of cached linear memories in the gated form (Behrouz et al. 2026), of about the size of the
    paper's smaller models (760 million).

    The paper caches the states of several memories and its best results are those of deep ones; here the memory is the
    linear one, whose forms it derives. Widths, blocks and segments are a choice of ours. The other forms are
    blocks.*.mixer.form=residual, soup or sparse."""
    norm = RMSNormSpec()
    mixer = MemoryCachingSpec(heads=heads, segment=segment, norm=norm)
    return ModelSpec(
        vocab=vocab,
        dim=dim,
        blocks=(BlockSpec(mixer=mixer, channel=GatedSpec(hidden=hidden), norm=norm),) * blocks,
        context=context,
        norm=norm,
    )
