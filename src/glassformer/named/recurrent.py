"""Named models of recurrence."""

from __future__ import annotations

from ..mixers import MixerSpec
from ..mixers.alignment import AlignmentSpec
from ..mixers.recurrent import GruSpec, LstmSpec, RnnSpec, StartSpec
from ..model import BlockSpec, EncoderDecoderSpec, ModelSpec
from ..nn.head import HeadSpec
from ..nn.init import InitSpec


def _recurrent(mixer: MixerSpec, vocab: int, dim: int, blocks: int, context: int, dropout: float) -> ModelSpec:
    """Recurrent layers one behind the other, as they were built before residuals and norms."""
    block = BlockSpec(mixer=mixer, channel=None, norm=None, residual=False, dropout=dropout)
    return ModelSpec(
        vocab=vocab,
        dim=dim,
        blocks=(block,) * blocks,
        context=context,
        norm=None,
        head=HeadSpec(tied=False, bias=True),
        dropout=dropout,
        init=InitSpec(std=None, embedding_std=0.1, outputs="same"),
    )


def rnn(vocab: int = 10_000, dim: int = 200, blocks: int = 1, context: int = 1024, dropout: float = 0.0) -> ModelSpec:
    """A recurrent language model (Elman 1990; Mikolov et al. 2010): the next word from one state of 200 numbers. Here
    with tanh (2010: sigmoid), and trained through as many steps as a window has (2010: few). The context bounds only
    training windows; the state reads on for ever."""
    return _recurrent(RnnSpec(project=False), vocab, dim, blocks, context, dropout)


def gru(vocab: int = 10_000, dim: int = 650, blocks: int = 2, context: int = 1024, dropout: float = 0.5) -> ModelSpec:
    """The `lstm` preset with gated recurrent units (Cho et al. 2014) in the place of its cells. Here the reset gate
    acts after the product with U, which has a fast kernel; the paper's order is blocks.*.mixer.reset=before."""
    return _recurrent(GruSpec(project=False), vocab, dim, blocks, context, dropout)


def lstm(vocab: int = 10_000, dim: int = 650, blocks: int = 2, context: int = 1024, dropout: float = 0.5) -> ModelSpec:
    """The medium LSTM language model of Zaremba et al. 2014 on the Penn Treebank: two layers of 650 cells, and dropout
    on what passes from layer to layer, never from step to step. Here the forget gate's bias starts at 1 and U as a
    rotation (there all weights start uniform within 0.05)."""
    return _recurrent(LstmSpec(project=False), vocab, dim, blocks, context, dropout)


def bahdanau(vocab: int = 30_000, dim: int = 620, hidden: int = 1000, context: int = 1024) -> EncoderDecoderSpec:
    """RNNsearch (Bahdanau, Cho & Bengio 2015): gated units read the source in both directions, and those that write the
    target look at all of it again before every word, by an additive score. dim is the width of word vectors.

    As the paper: s_0 comes from the encoder's last state (there from that of the backward direction alone), the word
    before reaches the output past the cell. Here the output reads s_i (there s_{i-1}) and is one linear map of half as
    many numbers as a state has (there the larger of two at each); the score's weights start like all others.
    """
    reader = BlockSpec(
        mixer=GruSpec(hidden=hidden, bidirectional=True, project=False, reset="before"),
        channel=None,
        norm=None,
        residual=False,
        width=2 * hidden,
    )
    aligned = AlignmentSpec(hidden=hidden, reset="before", memory_dim=2 * hidden, start=StartSpec(width=2 * hidden))
    writer = BlockSpec(mixer=aligned, channel=None, norm=None, width=max(1, hidden // 2))
    encoder = ModelSpec(
        vocab=vocab,
        dim=dim,
        blocks=(reader,),
        context=context,
        norm=None,
        head=None,
        init=InitSpec(std=0.01, embedding_std=0.01, outputs="same"),
    )
    decoder = encoder.changed(blocks=(writer,), head=HeadSpec(tied=False, bias=True))
    return EncoderDecoderSpec(encoder=encoder, decoder=decoder)
