"""Small models with drawn weights and a tokenizer trained on the spot, for the tests of traces and sheets."""

import torch
from difficult_text import tokenizer
from torch import nn

from glassformer.api import Loaded
from glassformer.mask import Mask
from glassformer.mixers.attention import AttentionSpec, CrossSpec
from glassformer.model import AnySpec, BlockSpec, EncoderDecoderSpec, ModelSpec, build_model
from glassformer.nn.channel import ExpertsSpec, GatedSpec, MlpSpec
from glassformer.nn.embed import EmbedSpec
from glassformer.nn.head import HeadSpec
from glassformer.nn.norm import LayerNormSpec, RMSNormSpec
from glassformer.nn.position import AlibiSpec, LearnedSpec, RelativeBiasSpec, RopeSpec

DIM = 16
ROPE = AttentionSpec(position=RopeSpec())
BIAS = RelativeBiasSpec(buckets=8, max_distance=8)


def stack(*blocks: BlockSpec, vocab: int = 32, **settings) -> ModelSpec:
    """A one-stack model of the given blocks."""
    return ModelSpec(**{"vocab": vocab, "dim": DIM, "context": 256, "blocks": blocks, **settings})


def of(mixer: AttentionSpec, **settings) -> ModelSpec:
    """Two blocks with this mixer."""
    return stack(*[BlockSpec(mixer=mixer, **settings)] * 2)


def pair(cross: CrossSpec | None = None, wiring: str = "pre") -> EncoderDecoderSpec:
    """An encoder block and two decoder blocks."""
    reader = BlockSpec(mixer=AttentionSpec(mask=Mask(causal=False), position=RopeSpec()), wiring=wiring)
    writer = BlockSpec(mixer=ROPE, cross=cross or CrossSpec(), wiring=wiring)
    return EncoderDecoderSpec(encoder=stack(reader, head=None), decoder=stack(writer, writer))


SPECS: dict[str, ModelSpec] = {
    "rope": of(ROPE),
    "qk-norm": of(AttentionSpec(position=RopeSpec(), qk_norm=RMSNormSpec()), norm=RMSNormSpec()),
    "qk-norm-all": of(AttentionSpec(kv_heads=2, position=RopeSpec(), qk_norm=RMSNormSpec(), qk_norm_over="all")),
    "biases": of(AttentionSpec(bias=True, out_bias=True)),
    "grouped": of(AttentionSpec(kv_heads=2, position=RopeSpec())),
    "one-key-head": of(AttentionSpec(kv_heads=1, position=RopeSpec())),
    "sink": of(AttentionSpec(sink=True, position=RopeSpec())),
    "alibi": of(AttentionSpec(position=AlibiSpec())),
    "relative": of(AttentionSpec(position=BIAS)),
    "softcap": of(AttentionSpec(softcap=2.0, position=RopeSpec())),
    "softcap-sink-relative": of(AttentionSpec(softcap=2.0, sink=True, position=BIAS)),
    "window": of(AttentionSpec(mask=Mask(window=4))),
    "window-sinks": of(AttentionSpec(mask=Mask(window=3, sinks=1), position=RopeSpec())),
    "stride": of(AttentionSpec(mask=Mask(stride=3), position=RopeSpec())),
    "segment": of(AttentionSpec(mask=Mask(segment=3, memory=1), position=RopeSpec())),
    "top-k": of(AttentionSpec(top_k=3, position=RopeSpec())),
    "prefix": of(AttentionSpec(mask=Mask(prefix=4))),
    "full": of(AttentionSpec(mask=Mask(causal=False), position=RopeSpec())),
    "scale": of(AttentionSpec(scale=0.3)),
    "head-dim": of(AttentionSpec(head_dim=6)),
    "smear": of(AttentionSpec(smear=True, position=RopeSpec())),
    "gated": of(ROPE, channel=GatedSpec()),
    "relu2": of(ROPE, channel=MlpSpec(activation="relu2", bias=False, hidden=24)),
    "experts": of(ROPE, channel=ExpertsSpec(experts=3, active=2)),
    "no-channel": of(ROPE, channel=None),
    "post": of(ROPE, wiring="post"),
    "post-no-channel": of(ROPE, wiring="post", channel=None),
    "parallel": of(ROPE, wiring="parallel"),
    "after": of(ROPE, wiring="after"),
    "after-no-residual": of(ROPE, wiring="after", residual=False),
    "sandwich": of(ROPE, wiring="sandwich", norm=RMSNormSpec(offset=1.0)),
    "sandwich-no-channel": of(ROPE, wiring="sandwich", channel=None),
    "no-norm": of(ROPE, norm=None),
    "no-residual": of(ROPE, residual=False),
    "learned": of(AttentionSpec()).changed(
        embed=EmbedSpec(position=LearnedSpec(), previous=True, norm=LayerNormSpec())
    ),
    "no-head": of(ROPE).changed(head=None),
    "no-head-no-norm": of(ROPE).changed(head=None, norm=None),
    "capped-head": of(ROPE).changed(head=HeadSpec(tied=False, bias=True, scale=0.5, softcap=3.0)),
    "mixed": stack(
        BlockSpec(mixer=AttentionSpec(heads=2)),
        BlockSpec(mixer=AttentionSpec(heads=8, position=AlibiSpec()), wiring="post", norm=RMSNormSpec()),
    ),
}


@torch.no_grad()
def drawn(model: nn.Module, seed: int = 0) -> nn.Module:
    """The model in evaluation mode with weights so large that every part of it matters."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if parameter.ndim > 1:
            parameter.copy_(1.5 * parameter.shape[-1] ** -0.5 * noise)
        else:
            parameter.add_(0.4 * noise)
    return model.eval()


def model_of(spec: AnySpec, seed: int = 0) -> nn.Module:
    """A drawn model."""
    return drawn(build_model(spec), seed)


def loaded(spec: AnySpec = SPECS["rope"], method: str = "bpe") -> Loaded:
    """A drawn model of the spec with a tokenizer and a vocabulary that fits it."""
    made = tokenizer(method)
    if isinstance(spec, EncoderDecoderSpec):
        spec = spec.changed(
            encoder=spec.encoder.changed(vocab=made.vocab_size), decoder=spec.decoder.changed(vocab=made.vocab_size)
        )
    else:
        spec = spec.changed(vocab=made.vocab_size)
    return Loaded(model_of(spec), made, "tiny")


def tokens_of(batch: int, t: int, seed: int = 0) -> torch.Tensor:
    """Random token ids `b t` of the 32 that these specs know."""
    return torch.randint(32, (batch, t), generator=torch.Generator().manual_seed(seed))
