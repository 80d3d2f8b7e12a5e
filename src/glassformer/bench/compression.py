"""What a general compressor needs for a text: the second yardstick beside the n-gram."""

import lzma

from ..errors import InputError


def xz_bits_per_byte(text: bytes) -> float:
    """Bits per byte of `xz -9` on the text alone. The compressor starts knowing nothing, so this is the lenient one."""
    if not text:
        raise InputError("an empty text has no bits per byte; give at least one byte")
    return 8 * len(lzma.compress(text, preset=9)) / len(text)


def xz_bits_per_byte_after(before: bytes, text: bytes) -> float:
    """Bits per byte that `text` adds when `xz -9` has just read `before`: the fair form, since a model is trained.

    The window of preset 9 is 64 MiB, so all of `before` is in reach as long as both are smaller together.
    """
    if not text:
        raise InputError("an empty text has no bits per byte; give at least one byte")
    grown = len(lzma.compress(before + text, preset=9)) - len(lzma.compress(before, preset=9))
    return 8 * grown / len(text)
