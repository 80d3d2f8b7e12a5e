"""Single images from files of two kinds that need no library: PNG, and the portable gray- and colour-maps PGM and PPM.

Both are read whole, eight bits a channel. What a file has beyond that (16 bits, interlacing) is refused by name.
"""

from __future__ import annotations

import re
import struct
import zlib
from pathlib import Path

import numpy as np

from ..errors import InputError

SIGNATURE = b"\x89PNG\r\n\x1a\n"
_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # of the colour types: gray, RGB, palette, gray and alpha, RGB and alpha


def png(data: bytes, path: Path) -> np.ndarray:
    """A PNG (its specification, sections 7 and 9) as bytes `y x` (gray) or `c y x` (RGB), an alpha channel on black.

    Raises InputError for a broken file, and for one of other than 8 bits a channel or interlaced.
    """
    if not data.startswith(SIGNATURE):
        raise InputError(f"{path}: not a PNG file; save it again")
    chunks, at = {}, len(SIGNATURE)
    try:
        while at < len(data):
            length, kind = struct.unpack(">I4s", data[at : at + 8])
            body = data[at + 8 : at + 8 + length]
            if len(body) < length:
                raise ValueError("it ends too early")
            chunks[kind] = chunks.get(kind, b"") + body
            at += 12 + length
        width, height, bits, colour, _, _, interlaced = struct.unpack(">IIBBBBB", chunks[b"IHDR"])
        if bits != 8 or interlaced:
            raise InputError(f"{path}: only PNG files of 8 bits a channel, not interlaced, are read; save it as one")
        channels = _CHANNELS[colour]
        pixels = _unfiltered(zlib.decompress(chunks[b"IDAT"]), height, width * channels, channels)
    except (struct.error, zlib.error, KeyError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path}: a broken PNG file ({' '.join(str(error).split())}); save it again") from None
    image = pixels.reshape(height, width, channels)
    if colour == 3:
        palette = np.frombuffer(chunks.get(b"PLTE", b""), np.uint8).reshape(-1, 3)
        if image.max(initial=0) >= len(palette):
            raise InputError(f"{path}: a broken PNG file (a colour beyond its palette); save it again")
        image = palette[image[:, :, 0]]
    elif colour in (4, 6):
        alpha = image[:, :, -1:].astype(np.float64) / 255
        image = (image[:, :, :-1] * alpha).round().astype(np.uint8)
    return image[:, :, 0] if image.shape[2] == 1 else image.transpose(2, 0, 1)


def _unfiltered(data: bytes, rows: int, row_bytes: int, back: int) -> np.ndarray:
    """The bytes of all rows; each begins with the kind of its filter. back: bytes of one pixel."""
    if len(data) != rows * (row_bytes + 1):
        raise ValueError("its pixels do not fit its size")
    lines = np.frombuffer(data, np.uint8).reshape(rows, row_bytes + 1)
    above = np.zeros(row_bytes + back, np.int64)  # with one pixel of zeros on its left
    made = np.zeros((rows, row_bytes), np.uint8)
    for y, line in enumerate(lines):
        kind, given, row = line[0], line[1:].astype(np.int64), np.zeros_like(above)
        if kind > 4:
            raise ValueError(f"filter {kind}")
        for x in range(row_bytes):
            left, up, corner = int(row[x]), int(above[x + back]), int(above[x])
            guess = (0, left, up, (left + up) // 2, _paeth(left, up, corner))[kind]
            row[x + back] = (given[x] + guess) & 255
        made[y] = row[back:]
        above = row
    return made


def _paeth(left: int, up: int, corner: int) -> int:
    """The neighbour nearest to left + up - corner."""
    wanted = left + up - corner
    return min((abs(wanted - left), 0, left), (abs(wanted - up), 1, up), (abs(wanted - corner), 2, corner))[2]


def portable(data: bytes, path: Path) -> np.ndarray:
    """A PGM (P2, P5) as bytes `y x`, or a PPM (P3, P6) as `c y x`; brightness is brought to 0 … 255.

    Raises InputError for a broken file.
    """
    head = re.match(rb"P([2356])((?:\s|#[^\n]*\n)+\d+){3}\s", data)
    if not head:
        raise InputError(f"{path}: not a PGM or PPM file; save it again")
    kind = int(head[1])
    width, height, most = map(int, re.sub(rb"#[^\n]*\n", b" ", head[0][2:]).split())
    count = width * height * (3 if kind in (3, 6) else 1)
    try:
        if kind in (5, 6):
            pixels = np.frombuffer(data, np.dtype(">u2") if most > 255 else np.uint8, count, head.end())
        else:
            pixels = np.array(re.sub(rb"#[^\n]*\n", b" ", data[head.end() :]).split(), np.int64)
        if len(pixels) != count or not 0 < most < 1 << 16 or pixels.max(initial=0) > most or pixels.min(initial=0) < 0:
            raise ValueError
    except ValueError:
        raise InputError(f"{path}: a broken PGM or PPM file (its pixels do not fit its size); save it again") from None
    pixels = (pixels.astype(np.float64) * 255 / most).round().astype(np.uint8).reshape(height, width, -1)
    return pixels[:, :, 0] if pixels.shape[2] == 1 else pixels.transpose(2, 0, 1)
