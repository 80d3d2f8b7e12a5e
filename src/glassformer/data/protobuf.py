"""Protobuf messages without their library: fields with a number, a wire type and a value."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any


def varint(raw: memoryview, at: int) -> tuple[int, int]:
    """(a whole number, the place behind it)."""
    value = shift = 0
    while True:
        byte = raw[at]
        value, at, shift = value | (byte & 0x7F) << shift, at + 1, shift + 7
        if byte < 0x80:
            return (value - (1 << 64) if value >> 63 else value), at
        if shift > 63:
            raise ValueError("a whole number of more than 64 bits")


def fields(raw: memoryview) -> Iterator[tuple[int, Any]]:
    """(number, value) of each field of a message: whole numbers, floats, or the bytes of texts and messages.

    Raises ValueError, IndexError or struct.error where the message is broken.
    """
    at = 0
    while at < len(raw):
        key, at = varint(raw, at)
        number, kind = key >> 3, key & 7
        if kind == 0:
            value, at = varint(raw, at)
        elif kind == 2:
            size, at = varint(raw, at)
            if not 0 <= size <= len(raw) - at:
                raise ValueError("the file ends within a field")
            value, at = raw[at : at + size], at + size
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
            value, at = struct.unpack("<d" if kind == 1 else "<f", raw[at : at + size])[0], at + size
        else:
            raise ValueError(f"wire type {kind}")
        yield number, value
