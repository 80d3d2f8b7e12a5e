"""One small model of each family, for benches that set the families side by side; and the formula of what it costs."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import log2

from ..block import BlockSpec
from ..mask import Mask
from ..mixers import MixerSpec
from ..mixers.alignment import AlignmentSpec
from ..mixers.attention import AttentionSpec, CrossSpec
from ..mixers.conv import ConvSpec, TcnSpec
from ..mixers.delta import DeltaSpec
from ..mixers.dense import MixingSpec, WindowSpec
from ..mixers.fixed import BagSpec, FourierSpec
from ..mixers.linear import FixedDecaySpec, GatedDecaySpec, LinearSpec
from ..mixers.mamba import MambaSpec
from ..mixers.mamba2 import Mamba2Spec
from ..mixers.memory import MemoryCachingSpec
from ..mixers.recurrent import GruSpec, LstmSpec, RnnSpec
from ..mixers.rmt import RmtSpec
from ..mixers.s4 import S4DSpec
from ..model import EncoderDecoderSpec, ModelSpec
from ..nn.head import HeadSpec
from ..nn.position import RelativeSinusoidSpec, RopeSpec

VOCAB = 4  # few, so that a head costs next to nothing

_ROPE = RopeSpec()
# Family -> its token mixer. Images are left out: their length is that of the picture.
FAMILIES: dict[str, MixerSpec] = {
    "window-mlp": WindowSpec(),
    "mixer": MixingSpec(length=8192),
    "fourier": FourierSpec(),
    "bag": BagSpec(),
    "conv": ConvSpec(),
    "gated-conv": ConvSpec(gate=True),
    "tcn": TcnSpec(dilation=4),
    "rnn": RnnSpec(),
    "gru": GruSpec(),
    "lstm": LstmSpec(),
    "alignment": AlignmentSpec(score="bilinear"),
    "attention": AttentionSpec(position=_ROPE),
    "window": AttentionSpec(mask=Mask(window=64), position=_ROPE),
    "window-globals": AttentionSpec(mask=Mask(window=64, globals=4), position=_ROPE),
    "strided": AttentionSpec(mask=Mask(window=64, stride=64), position=_ROPE),
    "top-k": AttentionSpec(top_k=16, position=_ROPE),
    "cross-attention": BagSpec(),  # with CrossSpec behind it
    "linear": LinearSpec(),
    "retention": LinearSpec(feature="none", normalise=False, decay=FixedDecaySpec(), position=_ROPE),
    "gla": LinearSpec(feature="none", normalise=False, decay=GatedDecaySpec()),
    "delta": DeltaSpec(),
    "gated-delta": DeltaSpec(decay=True, gate=True),
    "s4d": S4DSpec(),
    "mamba": MambaSpec(),
    "mamba2": Mamba2Spec(),
    "transformer-xl": AttentionSpec(mask=Mask(segment=64, memory=64), position=RelativeSinusoidSpec(), detach=True),
    "memory-tokens": RmtSpec(attention=AttentionSpec(position=_ROPE)),
    "memory-caching": MemoryCachingSpec(),
}


def family(name: str, dim: int, context: int, writes: bool = False) -> ModelSpec | EncoderDecoderSpec:
    """A model of one token mixer of FAMILIES and nothing else, for texts of so many tokens; writes: with a head. What
    looks at a source is given the bare vectors of one, and has a head in any case."""
    mixer = FAMILIES[name]
    pair = isinstance(mixer, AlignmentSpec) or name == "cross-attention"
    block = BlockSpec(mixer=mixer, channel=None, cross=CrossSpec() if name == "cross-attention" else None)
    stack = ModelSpec(vocab=VOCAB, dim=dim, context=context, blocks=(block,), head=HeadSpec() if writes else None)
    if not pair:
        return stack
    return EncoderDecoderSpec(encoder=stack.changed(blocks=(), head=None), decoder=stack.changed(head=HeadSpec()))


# ---------------------------------------------------------------- formulas

LENGTHS, WIDTHS = (512, 1024, 2048, 4096, 8192), (64, 128, 256)
POWERS = ("", "{}", "{}²")


def formula(cost: Callable[[int, int], int]) -> str:
    """What a cost of n tokens and width d is, as a sum of powers of both and of n d log₂(n d): "4n²d + 8nd²".

    Found from the cost itself, as the sum that gives its value exactly at all LENGTHS and WIDTHS.
    Raises ValueError where there is none.
    """
    points = [(n, d) for n in LENGTHS for d in WIDTHS]
    terms = [(a, b) for a in (2, 1, 0) for b in (2, 1, 0)]
    rows = [[*(Fraction(n**a * d**b) for a, b in terms), Fraction(n * d * int(log2(n * d)))] for n, d in points]
    found = _solved(rows, [Fraction(cost(n, d)) for n, d in points])
    names = [POWERS[a].format("n") + POWERS[b].format("d") for a, b in terms] + ["nd log₂(nd)"]
    terms = [_term(number, name) for number, name in zip(found, names, strict=True) if number]
    return " + ".join(terms).replace("+ -", "- ") or "0"


def _term(number: Fraction, name: str) -> str:
    size, sign = abs(number), "-" if number < 0 else ""
    if size.numerator == 1 and name and (size == 1 or size < Fraction(1, 8)):
        return f"{sign}{name}" + ("" if size == 1 else f"/{size.denominator}")
    return f"{sign}{float(size):.6g}{name}"


def _solved(rows: list[list[Fraction]], values: list[Fraction]) -> list[Fraction]:
    """x with rows · x = values, by elimination; more rows than columns."""
    lines, size = [[*row, value] for row, value in zip(rows, values, strict=True)], len(rows[0])
    for column in range(size):
        pivot = next(i for i in range(column, len(lines)) if lines[i][column])
        lines[column], lines[pivot] = lines[pivot], lines[column]
        lines[column] = [number / lines[column][column] for number in lines[column]]
        for i, line in enumerate(lines):
            if i != column and line[column]:
                lines[i] = [x - line[column] * y for x, y in zip(line, lines[column], strict=True)]
    if any(line[-1] for line in lines[size:]):
        raise ValueError("no sum of powers of n and d gives these numbers")
    return [line[-1] for line in lines[:size]]
