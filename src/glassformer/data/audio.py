"""Sound: WAV files of any rate, width and number of channels, and arrays, as one channel at the rate a model reads.

A sample is a number from -1 to 1. Channels are averaged. Another rate is brought to the wanted one by a windowed sinc
(Smith & Gossett 1984), one row of weights for each phase between the samples: what both rates can carry stays up to 0.9
of it within 1e-4, and what the lower one cannot is 90 dB lower.
"""

from __future__ import annotations

import math
import struct
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import InputError
from ..files import given_path
from .display import Cell

CROSSINGS = 64  # zeros of the sinc on each side of its centre: how sharply it cuts off what a rate cannot carry
ROLLOFF = 0.95  # where half is cut, as a share of half the lower rate
BETA = 9.0  # of Kaiser's window: how much is left of what is cut off
_STEPS = (0.1, 0.2, 0.5, 1.0)  # of a row of a table, in seconds
RATES = range(100, 1_000_001)
_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE
_KINDS = {(_PCM, 1): "u1", (_PCM, 2): "<i2", (_PCM, 3): "u1", (_PCM, 4): "<i4", (_FLOAT, 4): "<f4", (_FLOAT, 8): "<f8"}
_STREAMED = 0x7FFF_0000  # a size from here on, or of 0, was written before the end was known


def read_sound(path: Path | str, rate: int) -> np.ndarray:
    """The sound in a WAV file: `n` float32 samples of one channel at `rate` samples a second.

    Raises InputError for a file that is missing, empty, cut off, or in another format.
    """
    path = given_path(path)
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file; give the path of a WAV file") from None
    except IsADirectoryError:
        raise InputError(f"{path} is a folder; give the path of a WAV file") from None
    if raw[:4] != b"RIFF" or raw[8:12] != b"WAVE":
        raise InputError(
            f"{path}: this is no WAV file; convert it to one first, for example with ffmpeg -i FILE new.wav"
        )
    samples, own = _samples(path, raw)
    return resampled(samples, own, rate)


def _samples(path: Path, raw: bytes) -> tuple[np.ndarray, int]:
    """The samples `n` of the mean of all channels, and their rate."""
    form = b""
    for name, start, size in _chunks(raw):
        if name == b"fmt ":
            form = raw[start : start + size]
        elif name == b"data":
            if len(form) < 16:
                break
            streamed = size == 0 or size >= _STREAMED
            if start + size > len(raw) and not streamed:
                missing = start + size - len(raw)
                raise InputError(f"{path} is cut off: {missing:,} bytes are missing; copy or record it again")
            return _decoded(path, form, raw[start:] if streamed else raw[start : start + size])
    raise InputError(f"{path} is broken: a WAV file without its description or its samples; record it again")


def _chunks(raw: bytes) -> list[tuple[bytes, int, int]]:
    """(name, start, size) of every part of a RIFF file; the last may reach beyond its end."""
    found, at = [], 12
    while at + 8 <= len(raw):
        name, size = struct.unpack_from("<4sI", raw, at)
        found.append((name, at + 8, size))
        at += 8 + size + size % 2
    return found


def _decoded(path: Path, form: bytes, data: bytes) -> tuple[np.ndarray, int]:
    code, channels, rate, _, block, bits = struct.unpack_from("<HHIIHH", form)
    if code == _EXTENSIBLE and len(form) >= 26:
        code = struct.unpack_from("<H", form, 24)[0]
    width = block // channels if channels else 0
    kinds = {
        (_PCM, 1): "u1",
        (_PCM, 2): "<i2",
        (_PCM, 3): "u1",
        (_PCM, 4): "<i4",
        (_FLOAT, 4): "<f4",
        (_FLOAT, 8): "<f8",
    }
    if (code, width) not in kinds or block != channels * width or rate not in RATES:
        raise InputError(
            f"{path}: a WAV file of format {code} with {channels} channels of {bits} bits at {rate} samples a second "
            "is not read; convert it to 16-bit PCM first"
        )
    flat = np.frombuffer(data[: len(data) // block * block], dtype=_KINDS[code, width])
    if not len(flat):
        raise InputError(f"{path} holds no sound; record it again")
    if code == _FLOAT:
        numbers = flat.astype(np.float64)
    elif width == 1:  # the only width without a sign
        numbers = (flat - 128.0) / 128
    elif width == 3:
        numbers = (np.pad(flat.reshape(-1, 3), ((0, 0), (1, 0))).view("<i4")[:, 0] >> 8) / 2.0**23
    else:
        numbers = flat / 2.0 ** (8 * width - 1)
    if not np.isfinite(numbers).all():
        raise InputError(f"{path} holds NaN or infinity; record it again")
    return numbers.reshape(-1, channels).mean(1), rate


def resampled(samples: np.ndarray, own: int, rate: int) -> np.ndarray:
    """Samples `n` taken `own` times a second, as float32 samples taken `rate` times a second: as many as fit.

    y(t) = Σ_n x[n] · c · sinc(c (t - n)) · w(t - n), t in samples of x, with c the cut-off as a share of half their
    rate and w Kaiser's window I₀(β √(1 - u²)) / I₀(β) over CROSSINGS zeros of the sinc to both sides, u from -1 to 1;
    brought to a sum of 1, so that what is constant stays as it is.
    """
    if own == rate:
        return samples.astype(np.float32)
    up, down = rate // math.gcd(own, rate), own // math.gcd(own, rate)
    cut = ROLLOFF * min(1.0, rate / own)
    reach = math.ceil(CROSSINGS / cut)
    count = -(-len(samples) * up // down)
    padded = np.pad(samples.astype(np.float64), (reach, reach + down + 1))
    windows = np.lib.stride_tricks.sliding_window_view(padded, 2 * reach + 1)
    out, place = np.zeros(count), np.arange(-reach, reach + 1)
    for phase in range(min(up, count)):  # output phase + k·up lies at start + part between samples, plus k·down
        start, part = divmod(phase * down, up)
        distance = place - part / up
        weights = np.sinc(cut * distance) * np.i0(BETA * np.sqrt(1 - (distance / (reach + 1)) ** 2))
        here = len(range(phase, count, up))
        out[phase::up] = windows[start::down][:here] @ (weights / weights.sum())
    return out.astype(np.float32)


def moments(places: int, seconds: float, heard: float) -> list[Cell]:
    """The places of a sound, each so many seconds long, as cells of at least a tenth of a second, at most 40 while
    something is `heard`, and one of the silence behind it."""
    heard = min(places, math.ceil(heard / seconds))
    step = next(one for one in _STEPS if one >= heard * seconds / 40 or one == _STEPS[-1])
    edges = [round(i * step / seconds) for i in range(math.ceil(heard * seconds / step))]
    ends = [*edges[1:], heard]
    cells = []
    for start, end in zip(edges, ends, strict=True):
        text = f"{start * seconds:.1f}"
        cells.append(Cell(text, tuple(range(start, end)), start, end, text))
    rest = tuple(range(heard, places))
    return [*cells, Cell("…", rest, heard, places, "…")] if rest else cells


def as_sound(given: Any, rate: int) -> Tensor:
    """The sounds `b n` that are meant by the path of a WAV file, or by an array or tensor at `rate`: `n` or `b n`
    numbers from -1 to 1, or whole numbers of 16 bits. Raises InputError for anything else."""
    if isinstance(given, str | Path):
        return torch.from_numpy(read_sound(given, rate))[None]
    try:
        sound = torch.as_tensor(given)
    except (TypeError, ValueError, RuntimeError):
        sound = torch.zeros(0, dtype=torch.bool)
    if sound.dtype == torch.int16:
        sound = sound.float() / 2**15
    if not sound.is_floating_point() or sound.ndim not in (1, 2) or not sound.numel():
        raise InputError(
            f"a sound is the path of a WAV file, or an array of {rate} samples a second, numbers from -1 to 1"
        )
    if not sound.isfinite().all():
        raise InputError("the sound holds NaN or infinity; give numbers from -1 to 1")
    return sound[None] if sound.ndim == 1 else sound
