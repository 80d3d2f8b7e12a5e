"""Single images from files of two kinds that need no library: PNG, and the portable gray- and colour-maps PGM and PPM.

Both are read whole, as eight bits a channel. An interlaced PNG is refused by name.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

from ..errors import InputError

SIGNATURE = b"\x89PNG\r\n\x1a\n"
MOST_PIXELS = 50_000_000  # beyond that a picture would fill the memory before it is made small
MOST_SIDE = 32_768  # pixels; a PNG is read one diagonal at a time, and a line of many millions has as many of them
Check = Callable[[], None]  # what it raises ends the reading
_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # of the colour types: gray, RGB, palette, gray and alpha, RGB and alpha
_BITS = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}


def picture(data: bytes, path: Path, most_pixels: int = MOST_PIXELS, check: Check = lambda: None) -> np.ndarray:
    """A picture of either kind, told by its first bytes; as `png` and `portable`, which raise InputError for a broken
    one, as this does for an empty file and one of another kind."""
    if not data:
        raise InputError(f"{path}: an empty file; choose another, or save the picture again")
    if data.startswith(SIGNATURE[:4]):
        return png(data, path, most_pixels, check)
    if not re.match(rb"P[2356]\s", data):
        raise InputError(f"{path}: not a PNG, PGM or PPM file; save the picture as one of these")
    return portable(data, path, most_pixels)


def png(data: bytes, path: Path, most_pixels: int = MOST_PIXELS, check: Check = lambda: None) -> np.ndarray:
    """A PNG (its specification, sections 7, 9 and 11) as bytes `y x` (gray) or `c y x` (RGB).

    Of 16 bits a channel the upper eight count. What is transparent shows black where the rest is bright, else white.
    check: called again and again meanwhile.
    Raises InputError for a broken file, an interlaced one, and one of more pixels than most_pixels or a longer side
    than MOST_SIDE.
    """
    if not data.startswith(SIGNATURE):
        raise InputError(f"{path}: not a PNG file; save it again")
    try:
        chunks = _chunks(data)
        width, height, bits, colour, _, _, interlaced = struct.unpack(">IIBBBBB", chunks[b"IHDR"])
        if interlaced:
            raise InputError(f"{path}: only PNG files that are not interlaced are read; save it as one")
        check_size(path, height, width, most_pixels)
        if bits not in _BITS[colour]:
            raise ValueError(f"{bits} bits a channel")
        samples = _samples(chunks[b"IDAT"], height, width, _CHANNELS[colour], bits, check)
        image = _coloured(samples, colour, bits, chunks)
    except (struct.error, zlib.error, KeyError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        lost = error.args[0] if isinstance(error, KeyError) else None
        why = f"no {lost.decode()} in it" if isinstance(lost, bytes) else " ".join(str(error).split())
        raise InputError(f"{path}: a broken PNG file ({why}); save it again") from None
    return image[:, :, 0] if image.shape[2] == 1 else image.transpose(2, 0, 1)


def check_size(path: Path, height: int, width: int, most_pixels: int = MOST_PIXELS) -> None:
    """Raise InputError for an image of more pixels than most_pixels, and of a longer side than MOST_SIDE."""
    if height * width > most_pixels:
        raise InputError(
            f"{path}: it has {width} × {height} pixels, and at most {most_pixels // 1_000_000} million are read; make "
            "it smaller"
        )
    if max(height, width) > MOST_SIDE:
        raise InputError(
            f"{path}: it has {width} × {height} pixels, and a side may have at most {MOST_SIDE:,}; make it smaller"
        )


def _chunks(data: bytes) -> dict[bytes, bytes]:
    """The contents of a PNG's chunks by their kinds, those of one kind joined. The first is IHDR, and no other is."""
    chunks, at = dict[bytes, list[bytes]](), len(SIGNATURE)
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at : at + 8])
        body = data[at + 8 : at + 8 + length]
        if len(body) < length:
            raise ValueError("it ends too early")
        if (kind == b"IHDR") != (not chunks):
            raise ValueError("its size is not at its beginning")
        chunks.setdefault(kind, []).append(body)
        at += 12 + length
    return {kind: b"".join(bodies) for kind, bodies in chunks.items()}


def _samples(data: bytes, height: int, width: int, channels: int, bits: int, check: Check) -> np.ndarray:
    """Bytes `y x c`, of fewer than eight bits as they are, of sixteen the upper half."""
    row_bytes = (width * channels * bits + 7) // 8
    count = height * (row_bytes + 1) if width else 0
    lines = zlib.decompressobj().decompress(data, count + 1)
    if len(lines) != count or not count:
        raise ValueError("its pixels do not fit its size")
    lines = np.frombuffer(lines, np.uint8).reshape(height, row_bytes + 1)
    rows = _unfiltered(lines[:, 0], lines[:, 1:], max(1, channels * bits // 8), check)
    if bits == 16:
        rows = rows[:, ::2]
    elif bits < 8:
        ones = np.unpackbits(rows, axis=1).reshape(height, -1, bits)
        rows = (ones << np.arange(bits - 1, -1, -1, dtype=np.uint8)).sum(2, dtype=np.uint8)
    return rows[:, : width * channels].reshape(height, width, channels)


def _unfiltered(kinds: np.ndarray, given: np.ndarray, back: int, check: Check) -> np.ndarray:
    """The bytes of all rows, each filtered in its own way. back: bytes of one pixel.

    A pixel needs those on its left, above it and above these, so all pixels of one diagonal are ready at once.
    """
    if kinds.max() > 4:
        raise ValueError(f"filter {kinds.max()}")
    rows, columns = len(given), given.shape[1] // back
    given = given.reshape(rows, columns, back)
    made = np.zeros((rows + 1, columns + 1, back), np.int16)  # with one row and one column of zeros before the image
    for diagonal in range(rows + columns - 1):
        check()
        y = np.arange(max(0, diagonal - columns + 1), min(rows, diagonal + 1))
        x = diagonal - y
        left, up, corner = made[y + 1, x], made[y, x + 1], made[y, x]
        guesses = (0, left, up, (left + up) // 2, _paeth(left, up, corner))
        made[y + 1, x + 1] = (given[y, x] + np.choose(kinds[y, None], guesses)) & 255
    return made[1:, 1:].astype(np.uint8).reshape(rows, -1)


def _paeth(left: np.ndarray, up: np.ndarray, corner: np.ndarray) -> np.ndarray:
    """Of each pixel the neighbour nearest to left + up - corner."""
    to_left, to_up, to_corner = abs(up - corner), abs(left - corner), abs(left + up - 2 * corner)
    nearest_up = np.where(to_up <= to_corner, up, corner)
    return np.where((to_left <= to_up) & (to_left <= to_corner), left, nearest_up)


def _coloured(samples: np.ndarray, colour: int, bits: int, chunks: dict[bytes, bytes]) -> np.ndarray:
    """Bytes `y x c` from 0 to 255, of one or three channels: a palette's colours, and nothing transparent any more."""
    alpha, clear = None, chunks.get(b"tRNS")
    if colour == 3:
        palette = np.frombuffer(chunks.get(b"PLTE", b""), np.uint8).reshape(-1, 3)
        if samples.max(initial=0) >= len(palette):
            raise ValueError("a colour beyond its palette")
        if clear is not None:
            shares = np.full(256, 255, np.uint8)
            shares[: len(clear)] = np.frombuffer(clear, np.uint8)[:256]
            alpha = shares[samples]
        samples = palette[samples[:, :, 0]]
    elif colour in (4, 6):
        samples, alpha = samples[:, :, :-1], samples[:, :, -1:]
    elif clear is not None and bits <= 8:
        alpha = np.where((samples == np.frombuffer(clear, ">u2")).all(2, keepdims=True), 0, 255)
    if bits < 8 and colour != 3:
        samples = samples * np.uint8(255 // ((1 << bits) - 1))
    if alpha is None:
        return samples
    share = alpha.astype(np.float64) / 255
    bright = (samples.mean(2, keepdims=True) * share).sum() >= 127.5 * share.sum()
    return (samples * share + (0 if bright else 255) * (1 - share)).round().astype(np.uint8)


def portable(data: bytes, path: Path, most_pixels: int = MOST_PIXELS) -> np.ndarray:
    """A PGM (P2, P5) as bytes `y x`, or a PPM (P3, P6) as `c y x`; brightness is brought to 0 … 255.

    Raises InputError for a broken file, and as `check_size`.
    """
    head = re.match(rb"P([2356])((?:\s|#[^\n]*\n)+\d{1,9}){3}\s", data)
    if not head:
        raise InputError(f"{path}: not a PGM or PPM file; save it again")
    kind = int(head[1])
    width, height, most = map(int, re.sub(rb"#[^\n]*\n", b" ", head[0][2:]).split())
    check_size(path, height, width, most_pixels)
    count = width * height * (3 if kind in (3, 6) else 1)
    try:
        if kind in (5, 6):
            pixels = np.frombuffer(data, np.dtype(">u2") if most > 255 else np.uint8, count, head.end())
        else:
            pixels = np.array(re.sub(rb"#[^\n]*\n", b" ", data[head.end() :]).split(None, count), np.int64)
        if not count or len(pixels) != count or not 0 < most < 1 << 16 or pixels.max() > most or pixels.min() < 0:
            raise ValueError
    except (ValueError, OverflowError):
        raise InputError(f"{path}: a broken PGM or PPM file (its pixels do not fit its size); save it again") from None
    pixels = (pixels.astype(np.float64) * 255 / most).round().astype(np.uint8).reshape(height, width, -1)
    return pixels[:, :, 0] if pixels.shape[2] == 1 else pixels.transpose(2, 0, 1)
