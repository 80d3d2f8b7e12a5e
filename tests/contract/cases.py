"""The models that every law is checked on: one table. A new family of mixers adds its lines to MIXERS.

Each entry of a table becomes a small model of width 16; `built` gives it weights so large that a mistake in any part
of it moves the output far beyond the tolerance.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor, nn

from glassformer.call import Call
from glassformer.mask import Mask
from glassformer.mixers import MixerSpec
from glassformer.mixers.alignment import AlignmentSpec, LocationSpec
from glassformer.mixers.attention import AttentionSpec, CrossSpec
from glassformer.mixers.conv import ConvSpec, TcnSpec
from glassformer.mixers.delta import DeltaSpec
from glassformer.mixers.dense import MixingSpec, WindowSpec
from glassformer.mixers.fixed import BagSpec, FourierSpec
from glassformer.mixers.linear import FixedDecaySpec, GatedDecaySpec, LinearSpec
from glassformer.mixers.mamba import MambaSpec
from glassformer.mixers.mamba2 import Mamba2Spec
from glassformer.mixers.memory import MemoryCachingSpec
from glassformer.mixers.recurrent import GruSpec, LstmSpec, RnnSpec, StartSpec
from glassformer.mixers.rmt import RmtSpec
from glassformer.mixers.s4 import S4DSpec
from glassformer.model import AnySpec, BlockSpec, EncoderDecoder, EncoderDecoderSpec, ModelSpec, ModelState, build_model
from glassformer.nn.channel import ExpertsSpec, GatedSpec, MlpSpec
from glassformer.nn.embed import EmbedSpec
from glassformer.nn.head import HeadSpec
from glassformer.nn.init import InitSpec, initialise
from glassformer.nn.norm import LayerNormSpec, RMSNormSpec
from glassformer.nn.position import (
    AlibiSpec,
    LearnedSpec,
    LinearScaling,
    Llama3Scaling,
    NtkScaling,
    RelativeBiasSpec,
    RelativeSinusoidSpec,
    RopeSpec,
    SinusoidalSpec,
    YarnScaling,
)
from glassformer.nn.rework import ReworkSpec
from glassformer.tap import Probe

VOCAB, DIM, CONTEXT = 23, 16, 32
BIAS = RelativeBiasSpec(buckets=8, max_distance=8)

# ---------------------------------------------------------------- the tables

MIXERS: dict[str, MixerSpec] = {
    "plain": AttentionSpec(),
    # masks
    "window": AttentionSpec(mask=Mask(window=3)),
    "window-1": AttentionSpec(mask=Mask(window=1)),
    "sinks": AttentionSpec(mask=Mask(window=3, sinks=2)),
    "window-rope": AttentionSpec(mask=Mask(window=4), position=RopeSpec()),
    "prefix": AttentionSpec(mask=Mask(prefix=3)),
    "prefix-rope": AttentionSpec(mask=Mask(prefix=3), position=RopeSpec()),
    "prefix-alibi": AttentionSpec(mask=Mask(prefix=3), position=AlibiSpec()),
    "prefix-relative": AttentionSpec(mask=Mask(prefix=3), position=BIAS),
    "full": AttentionSpec(mask=Mask(causal=False)),
    "full-window": AttentionSpec(mask=Mask(causal=False, window=2)),
    # positions in the scores
    "rope": AttentionSpec(position=RopeSpec()),
    "rope-partial": AttentionSpec(position=RopeSpec(share=0.5)),
    "rope-neighbours": AttentionSpec(position=RopeSpec(pairing="neighbours")),
    "rope-linear": AttentionSpec(position=RopeSpec(scaling=LinearScaling(factor=2.0))),
    "rope-ntk": AttentionSpec(position=RopeSpec(scaling=NtkScaling(factor=2.0))),
    "rope-yarn": AttentionSpec(head_dim=8, position=RopeSpec(scaling=YarnScaling(factor=4.0, original=16))),
    "rope-llama3": AttentionSpec(head_dim=8, position=RopeSpec(scaling=Llama3Scaling(original=16))),
    "alibi": AttentionSpec(position=AlibiSpec()),
    "alibi-3-heads": AttentionSpec(heads=3, head_dim=4, position=AlibiSpec()),
    "alibi-full": AttentionSpec(mask=Mask(causal=False), position=AlibiSpec()),
    "alibi-window": AttentionSpec(mask=Mask(window=3, sinks=1), position=AlibiSpec()),
    "relative": AttentionSpec(position=BIAS),
    "relative-shared": AttentionSpec(position=BIAS.changed(shared=True)),
    "relative-full": AttentionSpec(mask=Mask(causal=False), position=BIAS),
    "relative-window": AttentionSpec(mask=Mask(window=3), position=BIAS),
    # heads
    "kv-2": AttentionSpec(kv_heads=2),
    "kv-1-rope": AttentionSpec(kv_heads=1, position=RopeSpec()),
    "kv-2-window": AttentionSpec(kv_heads=2, mask=Mask(window=3, sinks=1)),
    "kv-2-softcap": AttentionSpec(kv_heads=2, softcap=2.0),
    "head-dim": AttentionSpec(head_dim=6),
    "biases": AttentionSpec(bias=True, out_bias=True),
    "biases-qv": AttentionSpec(bias="qv", kv_heads=2, smear=True),
    "scale": AttentionSpec(scale=1.0),
    # variants
    "qk-norm": AttentionSpec(qk_norm=RMSNormSpec(), position=RopeSpec()),
    "qk-layernorm": AttentionSpec(qk_norm=LayerNormSpec()),
    "qk-norm-all": AttentionSpec(qk_norm=RMSNormSpec(), qk_norm_over="all", kv_heads=2, position=RopeSpec()),
    "softcap": AttentionSpec(softcap=2.0),
    "sink": AttentionSpec(sink=True),
    "sink-softcap-window": AttentionSpec(sink=True, softcap=2.0, mask=Mask(window=3, sinks=1)),
    "sink-relative": AttentionSpec(sink=True, position=BIAS),
    "smear": AttentionSpec(smear=True, position=RopeSpec()),
    "smear-window": AttentionSpec(smear=True, mask=Mask(window=2), kv_heads=2),
}

CONV = {
    "conv-dilated": ConvSpec(width=3, dilation=2),
    "conv-gated-depthwise": ConvSpec(width=4, depthwise=True, gate=True, bias=False),
    "conv-centred": ConvSpec(width=5, causal=False, gate=True),
    "tcn": TcnSpec(width=2, dilation=3, hidden=12),
}
DENSE = {
    "bengio": WindowSpec(window=3, hidden=12),
    "one-token": WindowSpec(window=1, activation="relu", bias=False),
    "mixing": MixingSpec(length=CONTEXT),
}
FIXED = {"fourier": FourierSpec(unitary=True), "bag": BagSpec()}
MIXERS |= CONV | DENSE | FIXED

RECURRENT: dict[str, MixerSpec] = {
    "rnn": RnnSpec(hidden=12),
    "rnn-relu-bare": RnnSpec(activation="relu", project=False),
    "gru": GruSpec(hidden=12),
    "gru-before": GruSpec(reset="before"),
    "gru-both": GruSpec(hidden=8, bidirectional=True, project=False),
    "lstm": LstmSpec(hidden=12),
    "lstm-both": LstmSpec(hidden=6, bidirectional=True),
}
MIXERS |= RECURRENT
LINEAR: dict[str, MixerSpec] = {
    "linear": LinearSpec(bias=True, out_bias=True),
    "linear-decay": LinearSpec(decay=FixedDecaySpec(fastest=0.5), heads=2, key_dim=3),
    "retention": LinearSpec(
        feature="none",
        normalise=False,
        decay=FixedDecaySpec(fastest=0.5, slowest=0.1),
        position=RopeSpec(),
        norm=LayerNormSpec(weight=False, bias=False),
        gate=True,
        value_dim=6,
    ),
    "gla": LinearSpec(
        feature="none", normalise=False, decay=GatedDecaySpec(rank=3, tau=2.0), key_dim=2, norm=RMSNormSpec(), gate=True
    ),
}
MIXERS |= LINEAR

# A head may find next to nothing at its query; the larger ε keeps the norm from making much of its rounding.
DELTA: dict[str, MixerSpec] = {
    "delta": DeltaSpec(conv=3, key_dim=6, norm=RMSNormSpec(eps=0.3)),
    "delta-bare": DeltaSpec(heads=2, conv=None, norm=None, bias=True, out_bias=True),
    "delta-gated": DeltaSpec(decay=True, gate=True, value_dim=6, norm=RMSNormSpec(eps=0.3)),
}
MIXERS |= DELTA

SPARSE = {
    "globals": AttentionSpec(mask=Mask(window=3, globals=2), position=RopeSpec()),
    "globals-full": AttentionSpec(mask=Mask(causal=False, window=2, globals=2), position=AlibiSpec()),
    "stride": AttentionSpec(mask=Mask(window=2, stride=4), smear=True),
    "stride-full": AttentionSpec(mask=Mask(causal=False, stride=2)),
    "random": AttentionSpec(mask=Mask(window=2, random=1, block=2, globals=1), kv_heads=2),
    "random-full": AttentionSpec(mask=Mask(causal=False, window=1, random=2, block=2), position=BIAS),
    "segment": AttentionSpec(mask=Mask(segment=3, memory=2), position=RopeSpec()),
    "xl-segment": AttentionSpec(mask=Mask(segment=3, memory=4), position=RelativeSinusoidSpec()),
    "xl-segment-detached": AttentionSpec(
        mask=Mask(segment=4, memory=3), position=RelativeSinusoidSpec(base=100.0), detach=True, kv_heads=2, softcap=3.0
    ),
    "xl-window-full": AttentionSpec(mask=Mask(causal=False, window=3), position=RelativeSinusoidSpec(), scale=0.5),
    "top-k": AttentionSpec(heads=8, top_k=5, position=RopeSpec()),
    "top-k-window": AttentionSpec(
        heads=8, top_k=2, sink=True, kv_heads=2, mask=Mask(window=3, sinks=1), position=AlibiSpec()
    ),
}
MIXERS |= SPARSE

MEMORY = {
    "memory-residual": MemoryCachingSpec(segment=3, form="residual", feature="none", gate=True),
    "memory-gated": MemoryCachingSpec(segment=2, normalise=True, key_dim=3),
    "memory-soup": MemoryCachingSpec(segment=3, form="soup", normalise=True, bias=True, out_bias=True),
    "memory-sparse": MemoryCachingSpec(segment=2, form="sparse", top_k=2, norm=RMSNormSpec()),
}
MIXERS |= MEMORY
SSM = {
    "s4d": S4DSpec(state=6, delta_min=0.1, delta_max=1.0),
    "s4d-inv": S4DSpec(state=2, start="inv", delta_min=0.2, delta_max=0.2),
    "mamba": MambaSpec(state=3),
    "mamba-narrow": MambaSpec(expand=1, state=1, conv=1, rank=3, delta_min=0.1, delta_max=1.0),
    "mamba-biases": MambaSpec(state=2, bias=True, conv_bias=False),
    "mamba2": Mamba2Spec(state=6),
    "mamba2-biases": Mamba2Spec(
        heads=2, state=4, bias=True, conv_bias=False, eps=0.1, norm_first=True, limits=(0.02, 0.05)
    ),
    "mamba2-groups": Mamba2Spec(expand=1, heads=4, groups=2, state=3, conv=2, delta_min=0.1, delta_max=1.0),
}
MIXERS |= SSM

RMT = {
    "rmt": RmtSpec(segment=5, memory=2, layers=2, attention=AttentionSpec(position=RopeSpec()), norm=RMSNormSpec()),
    "rmt-gated": RmtSpec(segment=1, memory=3, layers=1, channel=GatedSpec(), attention=AttentionSpec(kv_heads=2)),
}
MIXERS |= RMT

CHANNELS = {
    **{
        f"mlp-{name}": MlpSpec(hidden=24, activation=name)
        for name in ("relu", "gelu", "gelu_tanh", "relu2", "silu", "sigmoid")
    },
    "mlp-no-bias": MlpSpec(bias=False),
    "swiglu": GatedSpec(),
    "geglu-bias": GatedSpec(activation="gelu", bias=True, hidden=20),
    "experts": ExpertsSpec(experts=3, active=2),
    "experts-mlp-1": ExpertsSpec(expert=MlpSpec(hidden=8), experts=4, active=1),
    "none": None,
}

EMBEDS = {
    "sinusoidal": EmbedSpec(position=SinusoidalSpec(), scale=4.0),
    "sinusoidal-timescales": EmbedSpec(position=SinusoidalSpec(layout="timescales", offset=1)),
    "learned": EmbedSpec(position=LearnedSpec()),
    "learned-offset": EmbedSpec(position=LearnedSpec(offset=2)),
    "previous": EmbedSpec(previous=True),
    "normed": EmbedSpec(position=LearnedSpec(), norm=LayerNormSpec()),
    "types": EmbedSpec(types=2, position=LearnedSpec()),
}

NORMS = {
    "layernorm": LayerNormSpec(),
    "layernorm-bare": LayerNormSpec(weight=False, bias=False, eps=1e-12),
    "rms": RMSNormSpec(),
    "rms-offset": RMSNormSpec(offset=1.0),
    "rms-bare": RMSNormSpec(weight=False),
    "none": None,
}

HEADS = {
    "untied": HeadSpec(tied=False, bias=True),
    "scaled-softcap": HeadSpec(scale=0.25, softcap=5.0),
    "reworked": HeadSpec(bias=True, rework=ReworkSpec(norm=LayerNormSpec())),
    "reworked-untied": HeadSpec(tied=False, rework=ReworkSpec(width=12, activation="tanh", bias=False)),
    "none": None,
}

_ROPE = AttentionSpec(position=RopeSpec())
WIRINGS = {
    "post": BlockSpec(mixer=_ROPE, wiring="post"),
    "parallel": BlockSpec(mixer=_ROPE, wiring="parallel"),
    "parallel-no-residual": BlockSpec(mixer=_ROPE, wiring="parallel", residual=False),
    "no-residual": BlockSpec(mixer=_ROPE, residual=False),
    "post-no-channel": BlockSpec(mixer=_ROPE, wiring="post", channel=None),
    "post-no-norm": BlockSpec(mixer=_ROPE, wiring="post", norm=None),
    "after": BlockSpec(mixer=_ROPE, wiring="after"),
    "after-no-residual": BlockSpec(mixer=_ROPE, wiring="after", residual=False),
    "sandwich": BlockSpec(mixer=_ROPE, wiring="sandwich", norm=RMSNormSpec(offset=1.0)),
    "sandwich-no-channel": BlockSpec(mixer=_ROPE, wiring="sandwich", channel=None),
    "no-first-norm": BlockSpec(mixer=_ROPE, first_norm=False),
    "parallel-no-first-norm": BlockSpec(mixer=_ROPE, wiring="parallel", first_norm=False),
}

CROSSES = {
    "plain": CrossSpec(),
    "kv-1": CrossSpec(kv_heads=1, bias=True, out_bias=True),
    "qk-norm-softcap": CrossSpec(qk_norm=RMSNormSpec(), softcap=2.0, head_dim=6),
    "sink": CrossSpec(sink=True, kv_heads=2),
    "memory-dim": CrossSpec(memory_dim=12),
}


def stack(*blocks: BlockSpec, **settings) -> ModelSpec:
    """A one-stack model of the given blocks."""
    return ModelSpec(**{"vocab": VOCAB, "dim": DIM, "context": CONTEXT, "blocks": blocks, **settings})


def two_stacks(cross: CrossSpec, wiring: str = "pre", mixer: MixerSpec = _ROPE, share: bool = False, **settings):
    """An encoder-decoder with one encoder block and two decoder blocks; `cross` fixes the encoder's width."""
    dim = cross.memory_dim or DIM
    reader = BlockSpec(mixer=AttentionSpec(mask=Mask(causal=False), head_dim=4, position=RopeSpec()), wiring=wiring)
    writer = BlockSpec(mixer=mixer, cross=cross, wiring=wiring)
    return EncoderDecoderSpec(
        encoder=stack(reader, dim=dim, head=None), decoder=stack(writer, writer, **settings), share=share
    )


CASES: dict[str, AnySpec] = {
    **{f"mixer-{name}": stack(*[BlockSpec(mixer=mixer)] * 2) for name, mixer in MIXERS.items()},
    **{f"channel-{name}": stack(*[BlockSpec(mixer=_ROPE, channel=c)] * 2) for name, c in CHANNELS.items()},
    **{f"embed-{name}": stack(BlockSpec(mixer=AttentionSpec()), embed=embed) for name, embed in EMBEDS.items()},
    **{f"norm-{name}": stack(*[BlockSpec(mixer=_ROPE, norm=n)] * 2, norm=n) for name, n in NORMS.items()},
    **{f"head-{name}": stack(BlockSpec(mixer=_ROPE), head=head) for name, head in HEADS.items()},
    **{f"wiring-{name}": stack(block, block) for name, block in WIRINGS.items()},
    "hybrid": stack(
        BlockSpec(mixer=ConvSpec(width=3, dilation=2)),
        BlockSpec(mixer=_ROPE),
        BlockSpec(mixer=BagSpec(), wiring="parallel"),
        BlockSpec(mixer=WindowSpec(window=2), wiring="post", channel=None),
    ),
    "fourier-post": stack(*[BlockSpec(mixer=FourierSpec(), wiring="post")] * 2),
    "mixed": stack(
        BlockSpec(mixer=AttentionSpec(mask=Mask(window=3), smear=True)),
        BlockSpec(mixer=AttentionSpec(position=BIAS), wiring="post", norm=RMSNormSpec(), channel=GatedSpec()),
        embed=EmbedSpec(previous=True, position=SinusoidalSpec()),
    ),
    # different families in one model
    "hybrid-long": stack(
        BlockSpec(mixer=MambaSpec(state=3), channel=None, norm=RMSNormSpec()),
        BlockSpec(mixer=AttentionSpec(mask=Mask(window=2, stride=5), position=RopeSpec())),
        BlockSpec(mixer=MemoryCachingSpec(segment=3), wiring="parallel"),
        BlockSpec(mixer=GruSpec(hidden=12), channel=None),
    ),
    "hybrid-short": stack(
        BlockSpec(mixer=ConvSpec(width=3, dilation=2)),
        BlockSpec(mixer=AttentionSpec(mask=Mask(segment=3, memory=1), position=AlibiSpec()), wiring="post"),
    ),
    "hybrid-full": stack(
        BlockSpec(mixer=AttentionSpec(mask=Mask(causal=False, window=2), position=RopeSpec())),
        BlockSpec(mixer=ConvSpec(width=3, causal=False), channel=None),
        BlockSpec(mixer=LstmSpec(hidden=6, bidirectional=True), channel=GatedSpec()),
    ),
    "masked-words": stack(
        *[BlockSpec(mixer=AttentionSpec(mask=Mask(causal=False)), wiring="post")] * 2,
        embed=EmbedSpec(types=2, position=LearnedSpec(offset=2), norm=LayerNormSpec()),
        norm=None,
        head=HeadSpec(bias=True, rework=ReworkSpec(norm=LayerNormSpec())),
    ),
    **{f"cross-{name}": two_stacks(cross) for name, cross in CROSSES.items()},
    "cross-shared-post": two_stacks(CrossSpec(), "post", share=True),
    "cross-sandwich": two_stacks(CrossSpec(), "sandwich"),
    "cross-window-relative": two_stacks(CrossSpec(), mixer=AttentionSpec(mask=Mask(window=3), position=BIAS)),
    "cross-learned": two_stacks(CrossSpec(), embed=EmbedSpec(position=LearnedSpec(), previous=True)),
}

ALIGNMENTS = {
    "gru": AlignmentSpec(start=StartSpec()),
    "gru-location": AlignmentSpec(hidden=10, width=6, location=LocationSpec(filters=3, width=3), drift=0.3),
    "lstm-bilinear": AlignmentSpec(cell="lstm", hidden=10, score="bilinear", start=StartSpec(), activation="tanh"),
    "gru-dot-before": AlignmentSpec(score="dot", reset="before"),
    "no-cell": AlignmentSpec(cell=None, context_norm=LayerNormSpec()),
    "no-cell-location": AlignmentSpec(cell=None, location=LocationSpec(filters=2, width=5)),
}
CASES |= {
    f"align-{name}": EncoderDecoderSpec(
        encoder=stack(BlockSpec(mixer=GruSpec(hidden=8, bidirectional=True)), head=None),
        decoder=stack(*[BlockSpec(mixer=mixer)] * 2),
    )
    for name, mixer in ALIGNMENTS.items()
}
# blocks that change the width of the vectors, and project what goes past the mixer
CASES |= {
    "width": stack(
        BlockSpec(mixer=GruSpec(hidden=10, project=False), width=10, channel=None, wiring="post"),
        BlockSpec(mixer=LstmSpec(), width=12),
        BlockSpec(mixer=GruSpec(hidden=6), width=14, wiring="sandwich"),
        head=HeadSpec(tied=False),
    ),
    "width-align": EncoderDecoderSpec(
        encoder=stack(BlockSpec(mixer=LstmSpec(hidden=7, bidirectional=True), width=12), dim=8, head=None),
        decoder=stack(
            BlockSpec(mixer=AlignmentSpec(memory_dim=12, start=StartSpec(width=28)), width=20, residual=False),
            head=HeadSpec(tied=False),
        ),
    ),
}
CASES |= {
    # an encoder whose last states a decoder begins with (Cho et al. 2014); its vectors are read as well, by attention
    "start-gru": EncoderDecoderSpec(
        encoder=stack(BlockSpec(mixer=GruSpec(hidden=8, bidirectional=True)), head=None),
        decoder=stack(BlockSpec(mixer=GruSpec(start=StartSpec()), cross=CrossSpec())),
    ),
    "start-lstm": EncoderDecoderSpec(
        encoder=stack(*[BlockSpec(mixer=LstmSpec(hidden=7))] * 2, head=None),
        decoder=stack(
            *(
                BlockSpec(mixer=LstmSpec(start=StartSpec(layer=i, width=14, activation="none")), cross=CrossSpec())
                for i in range(2)
            )
        ),
    ),
}


def _causal(spec: AnySpec) -> bool:
    """What the model itself declares: declaring too much or too little fails one law or another."""
    with torch.device("meta"):
        model = build_model(spec)
    return model.decoder.causal if isinstance(model, EncoderDecoder) else model.causal


CAUSAL = [name for name, spec in CASES.items() if _causal(spec)]
NOT_CAUSAL = [name for name in CASES if name not in CAUSAL]
ONE_STACK = [name for name, spec in CASES.items() if isinstance(spec, ModelSpec)]
# The router's choice is a jump, as is that of the largest scores, and the number of tokens of an expert changes the
# shape of its matrix product.
CHOOSING = [name for name in CASES if name.startswith(("mixer-top-k", "mixer-memory-sparse"))]
ROUTED = [*CHOOSING, *(name for name in CASES if name.startswith("channel-experts"))]

# In the fast Fourier transform the rounding of every number is spread over all.
SPECTRAL = [name for name in CASES if name.startswith("mixer-s4d")]

# ---------------------------------------------------------------- how a case is built and run


@torch.no_grad()
def drawn(model: nn.Module, seed: int = 0) -> nn.Module:
    """The model in evaluation mode with every parameter drawn anew, matrices large and vectors away from 0 and 1."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        initialise(model, InitSpec(), 1)  # a layer alone starts with whatever its memory held
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        noise = torch.randn(parameter.shape, generator=generator).to(parameter)
        if parameter.ndim > 1:
            parameter.copy_(1.5 * parameter[0].numel() ** -0.5 * noise)
        else:
            parameter.add_(0.4 * noise)
    return model.eval()


def built(name: str, seed: int = 0) -> nn.Module:
    """A fresh model of the case."""
    return drawn(build_model(CASES[name]), seed)


@cache
def kept(name: str) -> nn.Module:
    """The model of the case, built once; for tests that do not change it."""
    return built(name)


def tokens_of(batch: int, t: int, seed: int = 0) -> Tensor:
    """Random token ids `b t`."""
    return torch.randint(VOCAB, (batch, t), generator=torch.Generator().manual_seed(seed))


SOURCE = tokens_of(1, 7, seed=99)


def source_of(batch: int) -> tuple[Tensor, Tensor]:
    """What the encoder of a two-stack case reads: 7 places, of which row i has i mod 3 on the left without a token."""
    pos = torch.arange(7).expand(batch, 7) - (torch.arange(batch) % 3)[:, None]
    return SOURCE.expand(batch, 7), pos.clamp(min=-1)


def run(
    model: nn.Module, tokens: Tensor, *, pos=None, segments=None, probe: Probe | None = None, row: int | None = None
) -> Tensor:
    """The parallel form; a two-stack model reads `source_of` the batch, or that of one row alone, without padding."""
    if not isinstance(model, EncoderDecoder):
        return model(tokens, pos=pos, segments=segments, probe=probe)
    source, source_pos = source_of(len(tokens) if row is None else row + 1)
    if row is not None:
        source, source_pos = source[row:, row % 3 :], None
    return model(source, tokens, source_pos=source_pos, target_pos=pos, probe=probe)


def start(model: nn.Module, batch: int, room: int, packed: bool = False) -> ModelState:
    """The state before the first token."""
    if isinstance(model, EncoderDecoder):
        source, source_pos = source_of(batch)
        return model.empty(source, room, source_pos=source_pos)
    return model.empty(batch, room, packed=packed)


def stepped(
    model: nn.Module, tokens: Tensor, cuts: list[int], *, pos=None, segments=None, state=None, edits=None
) -> Tensor:
    """The outputs of `step` over the chunks that the sorted `cuts` make, joined; edits: those of a slice of places."""
    t = tokens.shape[1]
    state = start(model, len(tokens), t, segments is not None) if state is None else state
    parts = []
    for a, b in zip([0, *cuts], [*cuts, t], strict=True):
        extra = {} if segments is None else {"segments": segments[:, a:b]}
        if edits is not None:
            extra["probe"] = Probe(lambda name: False, edits(slice(a, b)))
        part, state = model.step(tokens[:, a:b], state, pos=None if pos is None else pos[:, a:b], **extra)
        parts.append(part)
    return torch.cat(parts, 1)


def relative_error(found: Tensor, wanted: Tensor) -> float:
    """The largest difference, as a share of the largest wanted number."""
    return ((found - wanted).abs().max() / wanted.abs().max().clamp(min=1e-30)).item()


def assert_same(found: Tensor, wanted: Tensor, tolerance: float = 1e-5) -> None:
    """Equal to a relative tolerance, and nothing infinite or not a number."""
    assert found.shape == wanted.shape, (tuple(found.shape), tuple(wanted.shape))
    assert torch.isfinite(found).all() and torch.isfinite(wanted).all()
    error = relative_error(found, wanted)
    assert error <= tolerance, f"relative difference {error:.2e}, allowed {tolerance:.0e}"


def call_of(t: int, probe: Probe | None = None) -> Call:
    """A plain call of t tokens, for a layer that is used without its model."""
    return Call(torch.arange(t)[None], plain=True, probe=probe)
