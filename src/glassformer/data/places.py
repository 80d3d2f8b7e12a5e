"""The characters of a text that the pieces of a tokenizer stand for."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence

import numpy as np
import wcwidth

Spans = list[tuple[int, int]]

# Characters that are shown as they are, have no part in a cluster of several, and a width that depends on nothing.
PLAIN = re.compile("[ -~가-힣ㄱ-ㅎㅏ-ㅣ一-鿿ぁ-ゖァ-ヺ⟨⟩␀-␡⏎⇥…]*")


def mended(text: str, pieces: Sequence[bytes], spans: Spans, normal: Callable[[str], str]) -> Spans:
    """The characters that each piece stands for, where the library's places are not exact. normal: what becomes of a
    text before it is cut.

    A blank that was put in has its neighbour's place there: it stands for the blanks that were dropped before it, or
    for nothing. Bytes of several characters have the place of all. And what was composed (a syllable of single jamo, a
    letter with marks) has the place of its first character only: the rest is added.
    """
    made = _bytes_apart(text, pieces, spans)
    covered = 0
    for place, (start, end) in enumerate(made):
        blank = pieces[place] and not pieces[place].strip()
        if blank and not text[start:end].isspace() and not text.startswith("▁", start):
            dropped = text[covered:start]
            made[place] = (covered, start) if dropped.isspace() else (start, start)
        covered = max(covered, end)
    starts, following = cluster_starts(text), len(text)
    for place in range(len(made) - 1, -1, -1):
        start, end = made[place]
        rest = end
        while start < rest < following and (rest not in starts or normal(text[rest]).strip("▁").strip()):
            rest += 1
        for other in range(place, -1 if rest > end else place, -1):
            if made[other][1] != end:
                break
            made[other] = (made[other][0], rest) if made[other][0] < end else made[other]
        following = min(following, start)
    return made


def _bytes_apart(text: str, pieces: Sequence[bytes], spans: Spans) -> Spans:
    """The places of bytes that spell several characters together, each with those of its own character."""
    made, place = list(spans), 0
    while place < len(made):
        start, end = spans[place]
        last = place
        while last < len(made) and spans[last] == (start, end):
            last += 1
        if end - start > 1 and last - place > 1 and b"".join(pieces[place:last]) == text[start:end].encode():
            inner, _ = located(text[start:end], np.array([len(piece) for piece in pieces[place:last]]))
            made[place:last] = [(start + first, start + behind) for first, behind in inner]
        place = last
    return made


def in_bytes(text: str, pieces: Sequence[bytes], spans: Spans) -> tuple[Spans, dict[int, bytes]]:
    """The bytes of the text that each piece stands for; and by place the pieces that are a part of a character, and
    whose bytes are not those of the text. These carry all bytes of the character."""
    ends = [0]
    for character in text:
        ends.append(ends[-1] + len(character.encode()))
    found = [(ends[start], ends[end]) for start, end in spans]
    parts: dict[int, bytes] = {}
    place = 0
    while place < len(spans):
        last, end = place + 1, spans[place][1]
        while last < len(spans) and spans[last][0] < end:
            end, last = max(end, spans[last][1]), last + 1
        if last - place > 1:
            start = spans[place][0]
            if b"".join(pieces[place:last]) == text[start:end].encode():
                inner = np.cumsum([ends[start], *map(len, pieces[place:last])]).tolist()
                found[place:last] = list(itertools.pairwise(inner))
            else:
                parts |= {at: pieces[at] for at in range(place, last) if pieces[at]}
        place = last
    return found, parts


def cluster_starts(text: str) -> set[int]:
    """The positions at which a character as a reader counts them begins."""
    if PLAIN.fullmatch(text):
        return set(range(len(text)))
    starts, place = set(), 0
    for cluster in wcwidth.iter_graphemes(text):
        starts.add(place)
        place += len(cluster)
    return starts


def joined(pieces: Sequence[bytes]) -> str:
    """The text that pieces spell, a stray byte as a surrogate. No character reaches across an empty piece."""
    texts, waiting = [], []
    for piece in pieces:
        waiting.append(piece)
        if not piece:
            texts.append(b"".join(waiting).decode("utf-8", "surrogateescape"))
            waiting.clear()
    return "".join([*texts, b"".join(waiting).decode("utf-8", "surrogateescape")])


def located(raw: str, sizes: np.ndarray) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """The characters and the bytes of a text that pieces of these many bytes, one behind the other, stand for. The
    several pieces of one character all carry it; a stray byte is a surrogate, one character long."""
    points = np.frombuffer(raw.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
    widths = 1 + (points >= 0x80).astype(np.int64) + (points >= 0x800) + (points >= 0x10000)
    widths[(points >= 0xDC80) & (points <= 0xDCFF)] = 1
    character = np.append(np.repeat(np.arange(len(points)), widths), len(points))  # for each byte; one past the end
    ends = np.cumsum(sizes)
    starts = ends - sizes
    assert len(character) == 1 + (ends[-1] if len(ends) else 0), "the pieces are not the text"
    first, last = character[starts], np.where(starts == ends, character[starts], character[ends - 1] + 1)
    offsets = list(zip(first.tolist(), last.tolist(), strict=True))
    return offsets, list(zip(starts.tolist(), ends.tolist(), strict=True))
