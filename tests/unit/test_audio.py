"""Sound from files: every width gives the same numbers, another rate the same wave, and a bad file a way out."""

import math
import re

import numpy as np
import pytest
import torch
from sound_models import tone, wav

from glassformer.data.audio import as_sound, read_sound, resampled
from glassformer.errors import InputError

WAVE = tone(0.05)
SCIPY = {"modname": "scipy.signal", "reason": "the resampler is compared with scipy's"}
FLOAT, PCM, EXTENSIBLE = 3, 1, 0xFFFE
WIDTHS = {
    "8": ((PCM, 1, 16_000, 8), np.round(WAVE * 128 + 128).astype("u1").tobytes(), 1 / 256),
    "16": ((PCM, 1, 16_000, 16), np.round(WAVE * 2**15).astype("<i2").tobytes(), 1 / 2**16),
    "24": (
        (PCM, 1, 16_000, 24),
        np.round(WAVE * 2**23).astype("<i4").view("u1").reshape(-1, 4)[:, :3].tobytes(),
        1 / 2**24,
    ),
    "32": ((PCM, 1, 16_000, 32), np.round(WAVE * 2.0**31).astype("<i4").tobytes(), 1e-7),
    "float": ((FLOAT, 1, 16_000, 32), WAVE.astype("<f4").tobytes(), 1e-7),
    "double": ((FLOAT, 1, 16_000, 64), WAVE.astype("<f8").tobytes(), 1e-7),
}


@pytest.mark.parametrize("name", WIDTHS)
def test_every_width_holds_the_same_wave(name, tmp_path):
    form, data, error = WIDTHS[name]
    found = read_sound(wav(tmp_path / "a.wav", form, data), 16_000)
    assert found.dtype == np.float32 and np.abs(found - WAVE).max() <= error * 1.01


def test_the_extended_description_is_read(tmp_path):
    more = b"\x16\x00\x10\x00\x04\x00\x00\x00\x01\x00" + bytes(14)
    form, data, _ = WIDTHS["16"]
    plain = read_sound(wav(tmp_path / "a.wav", form, data), 16_000)
    found = read_sound(wav(tmp_path / "b.wav", (EXTENSIBLE, *form[1:]), data, more=more), 16_000)
    np.testing.assert_array_equal(found, plain)


def test_channels_are_averaged_and_a_stream_without_its_size_is_read_to_the_end(tmp_path):
    both = np.stack((np.full(50, 0.5), np.full(50, -0.25)), 1).astype("<f4")
    for size in (None, 0, 0xFFFFFFFF):
        found = read_sound(wav(tmp_path / "a.wav", (FLOAT, 2, 16_000, 32), both.tobytes(), size), 16_000)
        np.testing.assert_allclose(found, np.full(50, 0.125))


@pytest.mark.parametrize("rate", [8_000, 11_025, 22_050, 44_100, 48_000, 44_099])
def test_another_rate_keeps_the_wave(rate):
    """A tone that both rates can carry, away from the ends, where there is nothing to average with."""
    found = resampled(tone(0.2, 1000, rate), rate, 16_000)
    assert len(found) == -(-len(tone(0.2, 1000, rate)) * 16_000 // rate)
    middle = slice(400, -400)
    wanted = tone(0.2 + 1, 1000)[: len(found)]
    assert np.abs(found - wanted)[middle].max() < 2e-3


def test_what_the_lower_rate_cannot_carry_is_cut_off():
    """Half of 16,000 is 8,000 Hz: a tone of 9,000 Hz would come back as one of 7,000."""
    found = resampled(tone(0.2, 9_000, 48_000), 48_000, 16_000)[400:-400]
    assert np.abs(found).max() < 2e-3


@pytest.mark.parametrize("rate", [22_050, 44_100, 48_000, 8_000, 11_025])
def test_the_band_is_kept_and_what_lies_above_it_is_90_decibels_lower(rate):
    """Noise of tones up to 0.9 of what both rates carry, against the same tones at the other rate; tones above it."""
    signal = pytest.importorskip(**SCIPY)
    most, draw = min(rate, 16_000) / 2, np.random.default_rng(0)
    tones, phases = draw.uniform(0, 0.9 * most, 40), draw.uniform(0, 6, 40)

    def noise(own):
        return np.sin(np.outer(np.arange(own // 4) / own, 2 * np.pi * tones) + phases).sum(1) / 40

    error = np.abs(resampled(noise(rate), rate, 16_000) - noise(16_000))[400:-400].max()
    other = signal.resample_poly(noise(rate), 16_000, rate)[: 16_000 // 4]
    assert error < 2e-5 < np.abs(other - noise(16_000))[400:-400].max()  # scipy's cuts sooner, and not as sharply
    for above in np.linspace(1.01 * most, min(rate / 2, 2 * most), 9)[:-1] if rate > 16_000 else ():
        found = resampled(np.sin(2 * np.pi * above / rate * np.arange(rate // 4)), rate, 16_000)[400:-400]
        assert 20 * np.log10(np.abs(found).max()) < -90, above


@pytest.mark.parametrize("rate", [22_050, 44_100, 8_000])
def test_white_noise_is_that_of_scipy_with_as_sharp_a_filter(rate):
    signal, draw = pytest.importorskip(**SCIPY), np.random.default_rng(0)
    given, shared = draw.standard_normal(rate // 2), math.gcd(rate, 16_000)
    up, down = 16_000 // shared, rate // shared
    most = max(up, down)
    taps = signal.firwin(2 * math.ceil(64 / 0.95) * most + 1, 0.95 / most, window=("kaiser", 9.0))
    wanted = signal.resample_poly(given, up, down, window=taps)
    found = resampled(given, rate, 16_000)
    assert len(found) == len(wanted) and np.abs(found - wanted).max() < 2e-3 and found.std() > 0.5


def test_an_array_is_taken_as_it_is():
    assert torch.equal(as_sound(WAVE, 16_000), torch.from_numpy(WAVE)[None])
    assert torch.equal(as_sound(np.array([[2**14, -(2**15)]], np.int16), 16_000), torch.tensor([[0.5, -1.0]]))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([], "a sound is the path"),
        ([1, 2], "a sound is the path"),
        (3.0, "a sound is the path"),
        ("missing.wav", "no such file"),
        (np.zeros((1, 2, 3)), "a sound is the path"),
        ([0.0, float("nan")], "NaN"),
        (object(), "a sound is the path"),
    ],
)
def test_what_is_no_sound_is_refused(given, message):
    with pytest.raises(InputError, match=message):
        as_sound(given, 16_000)


def test_files_that_cannot_be_read_say_what_to_do(tmp_path):
    form, data, _ = WIDTHS["16"]

    def refused(message, *args, **how):
        with pytest.raises(InputError, match=message):
            read_sound(wav(tmp_path / "a.wav", *args, **how), 16_000)

    refused("is cut off: 100 bytes are missing; copy or record it again", form, data, size=len(data) + 100)
    refused("holds no sound", form, b"")
    refused("format 7 with 1 channels of 8 bits at 8000", (7, 1, 8000, 8), data)
    refused("with 0 channels", (PCM, 0, 8000, 16), data)
    refused("at 3 samples a second", (PCM, 1, 3, 16), data)
    refused("holds NaN", (FLOAT, 1, 16_000, 32), np.full(9, np.nan, "<f4").tobytes())
    other = tmp_path / "b.wav"
    for content, message in (
        (b"ID3\x04", "this is no WAV file; convert it"),
        (b"", "this is no WAV file"),
        (b"RIFF\0\0\0\0WAVE", "is broken"),
        (b"RIFF\0\0\0\0WAVEdata\x02\0\0\0ab", "is broken"),
    ):
        other.write_bytes(content)
        with pytest.raises(InputError, match=re.escape(message)):
            read_sound(other, 16_000)
    with pytest.raises(InputError, match="is a folder"):
        read_sound(tmp_path, 16_000)
