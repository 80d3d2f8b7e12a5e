"""Position signals: added to the embedding (sinusoidal, learned), turned into the query and key (RoPE), or added to
the scores (ALiBi, T5's relative bias, Transformer-XL's relative scores). None of them is also a choice."""

from __future__ import annotations

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import SettingError
from ..spec import Spec, check_finite, check_least, check_positive
from .init import InitSpec, Linear


def _check_base(spec: Spec) -> None:
    check_finite(spec, "base")
    if spec.base <= 1:
        raise SettingError(f"base: {spec.base} is not allowed; use more than 1")


# ---------------------------------------------------------------- added to the embedding


class SinusoidalSpec(Spec, frozen=True, tag="sinusoidal"):
    """p(t, 2i) = sin(t / base^(2i/d)), p(t, 2i+1) = cos(…) (Vaswani et al. 2017, section 3.5).

    layout  where they stand: "neighbours" as above; "halves" all sines, then all cosines (BART's and Marian's code);
            "timescales" the same with base^(i/(d/2-1)), so that the last wavelength is that of base itself
            (tensor2tensor, OpenNMT, Whisper)
    offset  the number of the first position; OpenNMT begins with 1
    """

    base: float = 10_000.0
    layout: Literal["neighbours", "halves", "timescales"] = "neighbours"
    offset: int = 0

    def __post_init__(self) -> None:
        _check_base(self)
        check_least(self, 0, "offset")


class LearnedSpec(Spec, frozen=True, tag="learned"):
    """One free vector for each of the model's `context` positions."""

    offset: int = 0  # some published models start counting at 2

    def __post_init__(self) -> None:
        check_least(self, 0, "offset")


def sinusoid(pos: Tensor, dim: int, spec: SinusoidalSpec | RelativeSinusoidSpec, dtype: torch.dtype) -> Tensor:
    """Positions `b t` to sinusoidal vectors `b t d`. A shift of the position rotates each (sin, cos) pair."""
    wide = torch.float32 if pos.device.type == "mps" else torch.float64  # as tables are computed; far angles are large
    layout = getattr(spec, "layout", "neighbours")
    width = max(dim - 2, 1) if layout == "timescales" else dim
    frequency = spec.base ** (-torch.arange(0, dim, 2, device=pos.device, dtype=wide) / width)
    angle = (pos.clamp(min=0) + getattr(spec, "offset", 0))[..., None] * frequency
    waves = (angle.sin(), angle.cos())
    found = torch.stack(waves, -1).flatten(-2) if layout == "neighbours" else torch.cat(waves, -1)
    return found[..., :dim].to(dtype)


def formula_of(spec: SinusoidalSpec | LearnedSpec) -> str:
    """What is added at position t, as its card says it."""
    if isinstance(spec, LearnedSpec):
        return f"P[t+{spec.offset}], a learned row" if spec.offset else "P[t], a learned row"
    time = f"(t+{spec.offset})" if spec.offset else "t"
    power = "i/(d/2−1)" if spec.layout == "timescales" else "2i/d"
    return f"sin({time}/{spec.base:g}^{{{power}}}), cos(…)"


# ---------------------------------------------------------------- turned into query and key


class LinearScaling(Spec, frozen=True, tag="linear"):
    """Position interpolation (Chen et al. 2023): every frequency is divided by `factor`."""

    factor: float

    def __post_init__(self) -> None:
        check_positive(self, "factor")


class NtkScaling(Spec, frozen=True, tag="ntk"):
    """NTK-aware scaling: the base grows by factor^(e/(e-2)), so that fast frequencies hardly change."""

    factor: float

    def __post_init__(self) -> None:
        check_positive(self, "factor")


class YarnScaling(Spec, frozen=True, tag="yarn"):
    """YaRN (Peng et al. 2023): interpolates slow frequencies, keeps fast ones, and sharpens the softmax a
    little (its temperature is 1 / attention² < 1)."""

    factor: float  # how many times longer texts may be
    original: int = 4096  # context length of the pretraining
    beta_fast: float = 32.0  # pairs that make more turns than this within `original` are kept
    beta_slow: float = 1.0  # those that make fewer than this are divided by the whole factor
    attention: float | None = None  # factor on q and k; None: 0.1·ln(factor) + 1
    truncate: bool = True  # round the bounds of the ramp to whole pairs, outwards, as the published code does

    def __post_init__(self) -> None:
        check_positive(self, "factor", "beta_fast", "beta_slow", "attention")
        check_least(self, 1, "original")
        if self.beta_slow >= self.beta_fast:
            raise SettingError(f"beta_slow: {self.beta_slow} is not allowed; use less than beta_fast={self.beta_fast}")


class Llama3Scaling(Spec, frozen=True, tag="llama3"):
    """Llama 3.1: interpolates by `factor` wavelengths longer than original/low, keeps those shorter than
    original/high."""

    factor: float = 8.0
    low: float = 1.0
    high: float = 4.0
    original: int = 8192

    def __post_init__(self) -> None:
        check_positive(self, "factor", "low", "high")
        check_least(self, 1, "original")
        if self.low >= self.high:
            raise SettingError(f"low: {self.low} is not allowed; use less than high={self.high}")


class RopeSpec(Spec, frozen=True, tag="rope"):
    """Rotary position embedding (Su et al. 2021): q and k are turned by an angle in proportion to their position, so
    that q·k depends on the distance only. Pair i turns by base^(-2i/e) a position; `scaling` changes that.

    share is the part of the head's width that is turned; pairing says which two numbers form a pair: (i, i + e/2)
    as in GPT-NeoX and Llama, or neighbours (2i, 2i + 1) as in the paper and GPT-J.
    """

    base: float = 10_000.0
    share: float = 1.0
    pairing: Literal["halves", "neighbours"] = "halves"
    scaling: LinearScaling | NtkScaling | YarnScaling | Llama3Scaling | None = None

    def __post_init__(self) -> None:
        _check_base(self)
        if not 0 < self.share <= 1:
            raise SettingError(f"share: {self.share} is not allowed; use more than 0, at most 1")


def rope_frequencies(
    spec: RopeSpec, width: int, device: torch.device | None = None, dtype: torch.dtype = torch.float32
) -> tuple[Tensor, float]:
    """(angle per position of each pair, `e/2` in radians; factor on q and k) for a head of `width`."""
    width = rope_width(spec, width)
    index = torch.arange(0, width, 2, device=device, dtype=dtype)
    scaling, base = spec.scaling, spec.base
    if isinstance(scaling, NtkScaling):
        base = base * scaling.factor ** (width / (width - 2))
    frequency = 1 / base ** (index / width)  # in this order, as published code rounds it
    if isinstance(scaling, LinearScaling):
        return frequency / scaling.factor, 1.0
    if isinstance(scaling, YarnScaling):
        return _yarn(scaling, frequency, base, width)
    if isinstance(scaling, Llama3Scaling):
        return _llama3(scaling, frequency), 1.0
    return frequency, 1.0


def _yarn(scaling: YarnScaling, frequency: Tensor, base: float, width: int) -> tuple[Tensor, float]:
    def pair_of(turns: float) -> float:  # the pair that makes `turns` full turns within the original context
        return width * math.log(scaling.original / (turns * 2 * math.pi)) / (2 * math.log(base))

    low, high = pair_of(scaling.beta_fast), pair_of(scaling.beta_slow)
    if scaling.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, width - 1)
    pair = torch.arange(width // 2, device=frequency.device, dtype=frequency.dtype)
    ramp = ((pair - low) / max(high - low, 0.001)).clamp(0, 1)
    mixed = frequency / scaling.factor * ramp + frequency * (1 - ramp)
    attention = scaling.attention
    if attention is None:
        attention = 0.1 * math.log(scaling.factor) + 1.0 if scaling.factor > 1 else 1.0
    return mixed, attention


def _llama3(scaling: Llama3Scaling, frequency: Tensor) -> Tensor:
    turns = scaling.original * frequency / (2 * math.pi)  # full turns within the original context
    smooth = ((turns - scaling.low) / (scaling.high - scaling.low)).clamp(0, 1)
    return (1 - smooth) * frequency / scaling.factor + smooth * frequency


def rope_width(spec: RopeSpec, width: int) -> int:
    """How many of a head's numbers are turned; an even number."""
    turned = int(width * spec.share)
    if turned < 2 or turned % 2:
        raise SettingError(f"position.share: {spec.share} of a head of {width} is {turned}; it must be even and not 0")
    if turned == 2 and isinstance(spec.scaling, NtkScaling):
        raise SettingError("position.scaling: ntk needs a turned width above 2; use linear, or wider heads")
    return turned


def rope_angles(spec: RopeSpec, width: int, pos: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """cos and sin of the angle of each pair at each position, `b t 1 e/2`, worked out in fp32 at least."""
    wide = torch.promote_types(dtype, torch.float32)
    frequency, factor = rope_frequencies(spec, width, pos.device, wide)
    angle = pos.clamp(min=0)[..., None, None] * frequency
    return (angle.cos() * factor).to(dtype), (angle.sin() * factor).to(dtype)


def rotate(x: Tensor, angles: tuple[Tensor, Tensor], pairing: str = "halves") -> Tensor:
    """x `b t h e` with each pair turned by its angle; numbers beyond the angles' width stay as they are."""
    cos, sin = angles
    width = 2 * cos.shape[-1]
    turned, rest = x[..., :width], x[..., width:]
    if pairing == "halves":
        a, b = turned.chunk(2, -1)
        out = torch.cat((a * cos - b * sin, a * sin + b * cos), -1)
    else:
        a, b = turned[..., 0::2], turned[..., 1::2]
        out = torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)
    return torch.cat((out, rest), -1) if rest.shape[-1] else out


# ---------------------------------------------------------------- added to the scores


class AlibiSpec(Spec, frozen=True, tag="alibi"):
    """ALiBi (Press et al. 2022): each head subtracts its slope times the distance from the score."""


class RelativeBiasSpec(Spec, frozen=True, tag="relative"):
    """T5's relative bias (Raffel et al. 2020): a learned number per head and bucket of the distance.

    Half of the buckets hold one distance each, the other half grow logarithmically up to max_distance. Where a token
    sees later ones (also inside a prefix), half of all buckets are for keys to the right. `shared` uses the first
    layer's table in all layers, as T5 does.
    """

    buckets: int = 32
    max_distance: int = 128
    shared: bool = False

    def __post_init__(self) -> None:
        if self.buckets < 4 or self.buckets % 2:
            raise SettingError(f"buckets: {self.buckets} is not allowed; use an even number from 4")
        if self.max_distance <= self.buckets // 2:
            half = self.buckets // 2
            raise SettingError(f"max_distance: {self.max_distance} is not allowed; use more than buckets/2={half}")


class RelativeSinusoidSpec(Spec, frozen=True, tag="relative-sinusoidal"):
    """Transformer-XL's relative scores (Dai et al. 2019, section 3.3): (q_i + u)·k_j + (q_i + v)·W_R r_{i-j}, where u
    and v are learned for each head, r is the sinusoid of the distance with its `base`, and W_R a projection. For masks
    that see a limited way back: a segment with its memory, or a window."""

    base: float = 10_000.0

    def __post_init__(self) -> None:
        _check_base(self)


def alibi_slopes(heads: int) -> Tensor:
    """The slope of each head `h`: 2^(-8/n), 2^(-16/n), …; for n not a power of two those of the next lower power,
    filled up with every second one of the next higher."""
    power = 2 ** math.floor(math.log2(heads))
    slopes = [2 ** (-8 * (i + 1) / power) for i in range(power)]
    finer = [2 ** (-4 * (i + 1) / power) for i in range(2 * power)]
    return torch.tensor((slopes + finer[0::2])[:heads])


def alibi_bias(slopes: Tensor, query_pos: Tensor, key_pos: Tensor) -> Tensor:
    """-slope · |i - j|, `b h t s` from positions `b t` and `b s`."""
    distance = (query_pos[:, :, None] - key_pos[:, None, :]).abs()
    return -slopes[:, None, None] * distance[:, None]


class RelativeBias(nn.Module):
    """The learned table of RelativeBiasSpec, `buckets h`."""

    path = ""

    def __init__(self, spec: RelativeBiasSpec, heads: int, one_sided: bool) -> None:
        super().__init__()
        self.spec, self.one_sided = spec, one_sided
        self.table = nn.Parameter(torch.zeros(spec.buckets, heads))

    def forward(self, query_pos: Tensor, key_pos: Tensor, heads: Tensor | None = None) -> Tensor:
        """Bias `b h t s` from positions `b t` and `b s`; heads: of these only."""
        bucket = relative_bucket(key_pos[:, None, :] - query_pos[:, :, None], self.spec, self.one_sided)
        table = self.table if heads is None else self.table[:, heads]
        return table[bucket].permute(0, 3, 1, 2)


def relative_bucket(distance: Tensor, spec: RelativeBiasSpec, one_sided: bool) -> Tensor:
    """The bucket of a signed distance (key minus query). Not one-sided: half of the buckets for keys to the right."""
    buckets, bucket = spec.buckets, torch.zeros_like(distance)
    if one_sided:
        distance = (-distance).clamp(min=0)
    else:
        buckets //= 2
        bucket = (distance > 0).long() * buckets
        distance = distance.abs()
    exact = buckets // 2
    ratio = torch.log(distance.clamp(min=1).float() / exact) / math.log(spec.max_distance / exact)
    far = (exact + (ratio * (buckets - exact)).long()).clamp(max=buckets - 1)
    return bucket + torch.where(distance < exact, distance, far)


class RelativeSinusoid(nn.Module):
    """u, v and W_R of RelativeSinusoidSpec for distances below `near`, to both sides or back only."""

    path = ""

    def __init__(
        self, spec: RelativeSinusoidSpec, dim: int, heads: int, width: int, near: int, one_sided: bool
    ) -> None:
        super().__init__()
        self.spec, self.near, self.first = spec, near, 0 if one_sided else 1 - near
        self.u, self.v = (nn.Parameter(torch.zeros(heads, width)) for _ in range(2))
        self.project = Linear(dim, heads * width, bias=False)

    @property
    def distances(self) -> int:
        """How many there are."""
        return self.near - self.first

    def forward(self, q: Tensor, query_pos: Tensor, key_pos: Tensor, heads: Tensor | None = None) -> Tensor:
        """(q_i + v)·W_R r_{i-j}, `b h t s` in fp32 at least, from q_i + u `b h t e` and positions `b t` and `b s`;
        heads: of these only. Beyond the distances it holds any number."""
        wide = torch.promote_types(q.dtype, torch.float32)
        weight, shift = self.project.weight.to(wide), (self.v.to(wide) - self.u.to(wide))[:, None]
        chosen = slice(None) if heads is None else heads
        place = torch.arange(self.first, self.near, device=q.device)
        r = _signed_sinusoid(place, weight.shape[1], self.spec, wide)  # i-j d
        with torch.autocast(q.device.type, enabled=False):
            asked = q.to(wide) + shift[chosen]
            from_queries, from_distances = self._orders(q.shape[0] * q.shape[2])
            if from_queries < from_distances:
                found = (asked @ weight.unflatten(0, self.u.shape)[chosen]) @ r.mT
            else:
                table = F.linear(r, weight).unflatten(1, self.u.shape)  # i-j h e
                found = asked @ table[:, chosen].permute(1, 2, 0)  # b h t i-j
        back = (query_pos[:, :, None] - key_pos[:, None, :] - self.first).clamp(0, self.distances - 1)
        return found.gather(3, back[:, None].expand(len(q), q.shape[1], -1, -1))

    def _orders(self, t: int) -> tuple[int, int]:
        """FLOPs where t queries are brought to the width of r, and where all distances are brought to the heads."""
        dim, all_heads, heads = self.project.in_features, self.project.out_features, len(self.u)
        return 2 * t * dim * (all_heads + heads * self.distances), 2 * all_heads * self.distances * (dim + t)

    def flops(self, n: int) -> int:
        """Of n queries, in the cheaper order; two for each multiplication with its addition."""
        return min(self._orders(n))

    def draw(self, init: InitSpec) -> None:
        """u and v start like weights."""
        for each in (self.u, self.v):
            nn.init.normal_(each, std=0.02 if init.std is None else init.std)


def _signed_sinusoid(place: Tensor, dim: int, spec: RelativeSinusoidSpec, dtype: torch.dtype) -> Tensor:
    """The sinusoid `s d` of distances, which may be negative: its sines change their sign, its cosines do not."""
    found = sinusoid(place.abs()[None], dim, spec, dtype)[0]
    sine = torch.arange(dim, device=place.device) % 2 == 0
    return torch.where(sine & (place < 0)[:, None], -found, found)


PositionSpec = SinusoidalSpec | LearnedSpec
ScoreSpec = RopeSpec | AlibiSpec | RelativeBiasSpec | RelativeSinusoidSpec
