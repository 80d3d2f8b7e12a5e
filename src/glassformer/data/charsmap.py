"""Rules of normalisation compiled as SentencePiece has them: a double-array trie (Aoe 1989) over UTF-8, each of whose
units is 32 bits, then the texts that it points to.
"""

from __future__ import annotations

import struct
import unicodedata
from array import array
from collections.abc import Mapping

BLOCK = 256


def compiled(rules: Mapping[str, str]) -> bytes:
    """The rules, each a text and what it becomes, in the form that `sentencepiece.Charsmap` reads."""
    texts, places = bytearray(), {}
    for text in rules.values():
        if text not in places:
            places[text] = len(texts)
            texts += text.encode() + b"\0"
    root: dict[int, object] = {}
    for key, text in rules.items():
        node = root
        for byte in key.encode():
            node = node.setdefault(byte, {})
        node[-1] = places[text]
    units = _laid_out(root)
    return struct.pack("<I", 4 * len(units)) + units.tobytes() + bytes(texts)


def _laid_out(root: dict[int, object]) -> array:
    """The trie as an array: the children of a node lie at its base, xor their byte; at the base itself, what a rule
    that ends in the node becomes."""
    units = array("I", bytes(4 * BLOCK))
    taken, bases, first = {0}, set(), 1
    waiting = [(root, 0)]
    while waiting:
        node, place = waiting.pop()
        labels = [0 if byte == -1 else byte for byte in node]
        base = first
        while base in bases or any((base ^ label) in taken for label in labels):
            base += 1
        bases.add(base)
        while first in taken or first in bases:
            first += 1
        while max(base ^ label for label in labels) >= len(units):
            units.extend(array("I", bytes(4 * BLOCK)))
        units[place] |= (place ^ base) << 10 | (0x100 if -1 in node else 0)
        for byte, child in node.items():
            at = base ^ max(byte, 0)
            taken.add(at)
            if byte == -1:
                units[at] = 0x80000000 | child
            else:
                units[at] |= byte
                waiting.append((child, at))
    return units


def composed(rules: Mapping[str, str]) -> dict[str, str]:
    """The rules, and a rule for each way of writing a letter as several characters: to the letter, or to what that
    becomes (as Hangul written in jamo)."""
    made = {}
    for point in range(0xC0, 0x20000):
        letter = chr(point)
        taken_apart = unicodedata.normalize("NFD", letter)
        if len(taken_apart) > 1 and unicodedata.normalize("NFC", taken_apart) == letter:
            made[taken_apart] = rules.get(letter, letter)
    return made | dict(rules)
