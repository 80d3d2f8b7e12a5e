"""Normalisation of each token's vector: LayerNorm and RMSNorm."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..call import Call
from ..spec import Spec, check_finite, check_positive
from ..tap import Card, Tap, as_built


class LayerNormSpec(Spec, frozen=True, tag="layernorm"):
    """(x - mean) / sqrt(var + eps) · weight + bias (Ba et al. 2016)."""

    eps: float = 1e-5
    weight: bool = True
    bias: bool = True

    def __post_init__(self) -> None:
        check_positive(self, "eps")


class RMSNormSpec(Spec, frozen=True, tag="rmsnorm"):
    """x / sqrt(mean(x²) + eps) · weight (Zhang & Sennrich 2019). `offset` is added to the weight (Gemma: 1)."""

    eps: float = 1e-6
    weight: bool = True
    offset: float = 0.0

    def __post_init__(self) -> None:
        check_positive(self, "eps")
        check_finite(self, "offset")


NormSpec = LayerNormSpec | RMSNormSpec


class Norm(nn.Module):
    """Either norm over the last axis of `b t d` (or of `b t h e` for QK-norm)."""

    path = ""
    written_out = ("scale",)
    cards = {
        "scale": Card(
            "1/σ",
            "1/√(mean((x−μ)²)+ε)",
            "The factor by which this token's vector is brought to unit size.",
            "이 토큰의 벡터를 일정한 크기로 맞추는 배율입니다.",
            ("S19",),
        ),
        "out": Card(
            "norm(x)",
            "(x−μ)/σ · w",
            "The token's vector brought to unit scale and then weighted, ready to be read by the next layer.",
            "크기를 맞춘 뒤 성분마다 가중치를 곱한, 다음 층이 읽을 토큰 벡터입니다.",
            ("S19",),
        ),
    }

    def __init__(self, spec: NormSpec, width: int) -> None:
        super().__init__()
        self.spec, self.width = spec, width
        start = 1.0 - spec.offset if isinstance(spec, RMSNormSpec) else 1.0
        self.weight = nn.Parameter(torch.full((width,), start)) if spec.weight else None
        self.bias = nn.Parameter(torch.zeros(width)) if isinstance(spec, LayerNormSpec) and spec.bias else None
        self.cards = _cards(spec)

    def forward(self, x: Tensor, call: Call | None = None) -> Tensor:
        """x of any shape `… d` to the same shape."""
        if call is None or call.probe is None:
            return self._fused(x)
        tap = call.tap(self)
        out = self._explicit(x, tap) if call.wants(self, "scale") else self._fused(x)
        return tap("out", out, "b t d")

    def _fused(self, x: Tensor) -> Tensor:
        if isinstance(self.spec, LayerNormSpec):
            return F.layer_norm(x, (self.width,), self.weight, self.bias, self.spec.eps)
        gain = self.gain
        # Of one type with x, as the fused kernel wants them; under autocast they are not.
        return F.rms_norm(x, (self.width,), gain if gain is None else gain.to(x.dtype), self.spec.eps)

    def _explicit(self, x: Tensor, tap: Tap) -> Tensor:
        """The same with the mathematics written out, for whoever looks at the scale; in fp32 at least and rounded
        once, as the kernel does it."""
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        centred = self.centred(wide)
        out = centred * tap("scale", self._scale(centred), "b t")[..., None]
        out = out if self.gain is None else out * self.gain
        out = out if self.bias is None else out + self.bias
        return out.to(x.dtype)

    @property
    def gain(self) -> Tensor | None:
        """What each number is multiplied with after the scaling, `d`; None: nothing."""
        offset = getattr(self.spec, "offset", 0.0)
        return self.weight + offset if self.weight is not None and offset else self.weight

    def centred(self, x: Tensor) -> Tensor:
        """x - μ in LayerNorm, x in RMSNorm."""
        return x - x.mean(-1, keepdim=True) if isinstance(self.spec, LayerNormSpec) else x

    def share(self, part: Tensor, whole: Tensor) -> Tensor:
        """What becomes of a `part` of the vector `whole`, both `… d`, that is normed: scaled as the whole is,
        without the bias, so that the shares of all parts add up."""
        out = self.centred(part) * self.scale(whole)[..., None]
        return out if self.gain is None else out * self.gain.to(out)

    def scale(self, x: Tensor) -> Tensor:
        """The factor 1/σ of each token, `… d` to `…`."""
        return self._scale(self.centred(x))

    def _scale(self, centred: Tensor) -> Tensor:
        return (centred.square().mean(-1) + self.spec.eps).rsqrt()


def _cards(spec: NormSpec) -> dict[str, Card]:
    centred = isinstance(spec, LayerNormSpec)
    weight = "" if not spec.weight else f" · ({spec.offset:g}+w)" if getattr(spec, "offset", 0.0) else " · w"
    bias = " + b" if getattr(spec, "bias", False) else ""
    out = {"formula": f"{'(x−μ)/σ' if centred else 'x/rms(x)'}{weight}{bias}"}
    if not spec.weight:
        out |= {
            "en": "The token's vector at unit scale, ready to be read by the next layer.",
            "ko": "다음 층이 읽을 수 있게 크기를 맞춘 토큰 벡터입니다.",
        }
    scale = {} if centred else {"symbol": "1/rms(x)", "formula": "1/√(mean(x²)+ε)"}
    return as_built(Norm.cards, out=out, scale=scale)
