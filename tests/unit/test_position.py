"""Position signals against formulas written anew from the papers in plain Python."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.errors import SettingError
from glassformer.nn.position import (
    LinearScaling,
    Llama3Scaling,
    NtkScaling,
    RelativeBias,
    RelativeBiasSpec,
    RopeSpec,
    SinusoidalSpec,
    YarnScaling,
    alibi_bias,
    alibi_slopes,
    relative_bucket,
    rope_angles,
    rope_frequencies,
    rope_width,
    rotate,
    sinusoid,
)


def test_sinusoids():
    """Vaswani et al. 2017, section 3.5."""
    pos = [0, 1, 5, 37]
    found = sinusoid(torch.tensor([pos]), 6, SinusoidalSpec(), torch.float32)[0]
    for row, p in enumerate(pos):
        for i in range(3):
            angle = p / 10_000 ** (2 * i / 6)
            assert found[row, 2 * i].item() == pytest.approx(math.sin(angle), abs=1e-5)
            assert found[row, 2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-5)
    assert sinusoid(torch.tensor([[3]]), 5, SinusoidalSpec(), torch.float32).shape == (1, 1, 5)
    assert torch.equal(
        sinusoid(torch.tensor([[-1]]), 4, SinusoidalSpec(), torch.float32),
        sinusoid(torch.tensor([[0]]), 4, SinusoidalSpec(), torch.float32),
    )


def test_sinusoids_as_other_code_lays_them_out():
    """All sines, then all cosines; and the last wavelength that of the base itself, as tensor2tensor has it."""
    pos, dim = [0, 1, 5, 1400], 8
    for layout, exponent in (("halves", lambda i: 2 * i / dim), ("timescales", lambda i: i / (dim / 2 - 1))):
        for offset in (0, 1):
            spec = SinusoidalSpec(base=100.0, layout=layout, offset=offset)
            found = sinusoid(torch.tensor([pos]), dim, spec, torch.float32)[0]
            for row, p in enumerate(pos):
                for i in range(dim // 2):
                    angle = (p + offset) / 100.0 ** exponent(i)
                    assert found[row, i].item() == pytest.approx(math.sin(angle), abs=1e-6)
                    assert found[row, dim // 2 + i].item() == pytest.approx(math.cos(angle), abs=1e-6)


# ---------------------------------------------------------------- RoPE


def turned_by_hand(x: list[float], pos: int, frequencies: list[float], pairing: str, factor: float = 1.0):
    """One head's vector, pair by pair as complex numbers."""
    half, out = len(frequencies), list(x)
    for i, frequency in enumerate(frequencies):
        a, b = (i, i + half) if pairing == "halves" else (2 * i, 2 * i + 1)
        turned = complex(x[a], x[b]) * complex(math.cos(pos * frequency), math.sin(pos * frequency)) * factor
        out[a], out[b] = turned.real, turned.imag
    return out


@pytest.mark.parametrize("pairing", ["halves", "neighbours"])
@pytest.mark.parametrize("share", [1.0, 0.5])
def test_rope_turns_each_pair_by_an_angle_in_proportion_to_the_position(pairing, share):
    """Su et al. 2021, equation 34."""
    spec, pos = RopeSpec(base=100.0, share=share, pairing=pairing), [0, 1, 7]
    x = torch.randn(1, 3, 2, 8, generator=torch.Generator().manual_seed(0))
    found = rotate(x, rope_angles(spec, 8, torch.tensor([pos]), torch.float32), pairing)
    width = int(8 * share)
    frequencies = [100.0 ** (-2 * i / width) for i in range(width // 2)]
    for t, p in enumerate(pos):
        for h in range(2):
            wanted = turned_by_hand(x[0, t, h].tolist(), p, frequencies, pairing)
            assert found[0, t, h].tolist() == pytest.approx(wanted, abs=1e-5)


def yarn_frequency(i: int, width: int, base: float, s: float, original: int, fast: float, slow: float) -> float:
    """Peng et al. 2023, section 3.2, with the published code's ramp over the index of the pair."""
    theta = base ** (-2 * i / width)

    def pair(turns: float) -> float:
        return width * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(base))

    low, high = max(math.floor(pair(fast)), 0), min(math.ceil(pair(slow)), width - 1)
    gamma = 1 - min(max((i - low) / ((high - low) or 0.001), 0), 1)
    return (1 - gamma) * theta / s + gamma * theta


def llama3_frequency(i: int, width: int, base: float, spec: Llama3Scaling) -> float:
    """As published with Llama 3.1."""
    theta = base ** (-2 * i / width)
    wavelength = 2 * math.pi / theta
    if wavelength < spec.original / spec.high:
        return theta
    if wavelength > spec.original / spec.low:
        return theta / spec.factor
    smooth = (spec.original / wavelength - spec.low) / (spec.high - spec.low)
    return (1 - smooth) * theta / spec.factor + smooth * theta


@pytest.mark.parametrize("width", [8, 64, 128])
@pytest.mark.parametrize("base", [10_000.0, 500_000.0])
def test_scaled_frequencies(width, base):
    def found(scaling):
        frequency, factor = rope_frequencies(RopeSpec(base=base, scaling=scaling), width)
        return frequency.tolist(), factor

    half, plain = range(width // 2), [base ** (-2 * i / width) for i in range(width // 2)]
    assert found(None)[0] == pytest.approx(plain, rel=1e-5) and found(None)[1] == 1
    assert found(LinearScaling(factor=4.0))[0] == pytest.approx([f / 4 for f in plain], rel=1e-5)
    grown = base * 4.0 ** (width / (width - 2))
    ntk = found(NtkScaling(factor=4.0))[0]
    assert ntk == pytest.approx([grown ** (-2 * i / width) for i in half], rel=1e-5)
    assert ntk[0] == 1 and ntk[-1] == pytest.approx(plain[-1] / 4, rel=1e-5)  # the slowest pair is fully interpolated
    wanted = [yarn_frequency(i, width, base, 8.0, 4096, 32, 1) for i in half]
    frequency, factor = found(YarnScaling(factor=8.0))
    assert frequency == pytest.approx(wanted, rel=1e-5) and factor == pytest.approx(0.1 * math.log(8) + 1)
    assert found(YarnScaling(factor=8.0, attention=1.5))[1] == 1.5 and found(YarnScaling(factor=1.0))[1] == 1
    llama = Llama3Scaling()
    assert found(llama)[0] == pytest.approx([llama3_frequency(i, width, base, llama) for i in half], rel=1e-5)
    if width == 128:  # each of the three ranges was met
        kinds = {round(a / b, 3) for a, b in zip(found(llama)[0], plain, strict=True)}
        assert 1.0 in kinds and 0.125 in kinds and len(kinds) > 4


def test_yarns_factor_reaches_q_and_k():
    spec = RopeSpec(scaling=YarnScaling(factor=4.0, original=64))
    cos, sin = rope_angles(spec, 8, torch.tensor([[3]]), torch.float32)
    assert (cos.square() + sin.square()).flatten().tolist() == pytest.approx([(0.1 * math.log(4) + 1) ** 2] * 4)


def test_angles_are_worked_out_in_fp32_even_for_bf16():
    cos, _ = rope_angles(RopeSpec(), 8, torch.tensor([[1001]]), torch.bfloat16)
    assert cos.dtype == torch.bfloat16
    assert cos.flatten()[0].item() == pytest.approx(math.cos(1001), abs=4e-3)


@pytest.mark.parametrize(("width", "share"), [(5, 1.0), (8, 0.4), (8, 0.1)])
def test_widths_that_cannot_be_paired_are_refused(width, share):
    with pytest.raises(SettingError, match=r"^position\.share: .* it must be even and not 0"):
        rope_width(RopeSpec(share=share), width)


# ---------------------------------------------------------------- ALiBi


def slopes_by_hand(n: int) -> list[float]:
    """The published code of Press et al. 2022."""

    def power_of_two(n: int) -> list[float]:
        start = 2 ** (-(2 ** -(math.log2(n) - 3)))
        return [start * start**i for i in range(n)]

    if math.log2(n).is_integer():
        return power_of_two(n)
    closest = 2 ** math.floor(math.log2(n))
    return power_of_two(closest) + slopes_by_hand(2 * closest)[0::2][: n - closest]


@pytest.mark.parametrize("heads", [1, 2, 3, 5, 8, 12, 16, 20, 32, 40])
def test_alibi_slopes(heads):
    assert alibi_slopes(heads).tolist() == pytest.approx(slopes_by_hand(heads), rel=1e-6)
    assert len(alibi_slopes(heads)) == heads


def test_alibi_bias():
    found = alibi_bias(torch.tensor([0.5, 0.25]), torch.tensor([[3, 4]]), torch.tensor([[0, 4, 6]]))
    assert found[0].tolist() == [[[-1.5, -0.5, -1.5], [-2, 0, -1]], [[-0.75, -0.25, -0.75], [-1, 0, -0.5]]]


# ---------------------------------------------------------------- T5


def bucket_by_hand(distance: int, buckets: int, most: int, causal: bool) -> int:
    """Raffel et al. 2020, appendix and published code; distance is key minus query."""
    bucket, n = 0, -distance
    if causal:
        n = max(n, 0)
    else:
        buckets //= 2
        bucket = buckets if n < 0 else 0
        n = abs(n)
    exact = buckets // 2
    if n < exact:
        return bucket + n
    far = exact + int(math.log(n / exact) / math.log(most / exact) * (buckets - exact) + 1e-9)
    return bucket + min(far, buckets - 1)


@settings(max_examples=40)
@given(half=st.integers(2, 20), factor=st.integers(2, 9), causal=st.booleans(), start=st.integers(-400, 300))
def test_t5_buckets(half, factor, causal, start):
    spec = RelativeBiasSpec(buckets=2 * half, max_distance=half * factor)
    distances = torch.arange(start, start + 100)
    found = relative_bucket(distances, spec, causal).tolist()
    for distance, bucket in zip(distances.tolist(), found, strict=True):
        wanted = bucket_by_hand(distance, 2 * half, half * factor, causal)
        # At an exact boundary the logarithm is a whole number, and fp32 may land on either side of it.
        assert bucket == wanted or (abs(bucket - wanted) == 1 and _on_boundary(distance, spec, causal)), distance
        assert 0 <= bucket < spec.buckets


def _on_boundary(distance: int, spec: RelativeBiasSpec, causal: bool) -> bool:
    buckets = spec.buckets if causal else spec.buckets // 2
    exact = buckets // 2
    place = math.log(max(abs(distance), 1) / exact) / math.log(spec.max_distance / exact) * (buckets - exact)
    return abs(place - round(place)) < 1e-4


def test_t5_buckets_at_the_published_settings():
    spec = RelativeBiasSpec()
    causal = relative_bucket(-torch.tensor([0, 1, 15, 16, 20, 50, 113, 127, 128, 5000, -3]), spec, True)
    assert causal.tolist() == [0, 1, 15, 16, 17, 24, 31, 31, 31, 31, 0]
    both = relative_bucket(torch.tensor([0, -1, 1, -7, 7, -8, 8, -200, 200]), spec, False)
    assert both.tolist() == [0, 1, 17, 7, 23, 8, 24, 15, 31]


def test_relative_bias_reads_its_table():
    layer = RelativeBias(RelativeBiasSpec(buckets=4, max_distance=8), heads=2, one_sided=True)
    with torch.no_grad():
        layer.table.copy_(torch.arange(8.0).reshape(4, 2))
    found = layer(torch.tensor([[2]]), torch.tensor([[0, 1, 2]]))
    assert found.tolist() == [[[[4.0, 2.0, 0.0]], [[5.0, 3.0, 1.0]]]]
