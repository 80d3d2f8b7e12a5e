"""Tokens as a person reads them: whole characters and words, visible blanks, columns that line up.

Every view (terminal, notebook, page, figure) shows tokens through this file. What it shows is never used to get a text
back: each cell carries the exact characters of the text it stands for (`source`, `start`, `end`) beside what is shown.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import wcwidth

from ..errors import InputError, nearest
from .places import PLAIN, cluster_starts
from .tokenizer import Encoding, Tokenizer, escaped

By = Literal["character", "word", "token"]

_NAMES = {
    "\n": "⏎", "\t": "⇥", "\x7f": "⟨DEL⟩", "\u00a0": "⟨NBSP⟩", "\u00ad": "⟨SHY⟩", "\u200b": "⟨ZWSP⟩",
    "\u200c": "⟨ZWNJ⟩", "\u200d": "⟨ZWJ⟩", "\u200e": "⟨LRM⟩", "\u200f": "⟨RLM⟩", "\u202a": "⟨LRE⟩", "\u202b": "⟨RLE⟩",
    "\u202c": "⟨PDF⟩", "\u202d": "⟨LRO⟩", "\u202e": "⟨RLO⟩", "\u2066": "⟨LRI⟩", "\u2067": "⟨RLI⟩", "\u2068": "⟨FSI⟩",
    "\u2069": "⟨PDI⟩", "\ufeff": "⟨BOM⟩",
}  # fmt: skip
# Unicode's pictures of them (␀) are missing in many fonts; ⟨FF⟩ is a byte.
_CONTROLS = [
    *("NUL", "SOH", "STX", "ETX", "EOT", "ENQ", "ACK", "BEL", "BS", "HT", "LF", "VT", "U+000C", "CR", "SO", "SI"),
    *("DLE", "DC1", "DC2", "DC3", "DC4", "NAK", "SYN", "ETB", "CAN", "EM", "SUB", "ESC", "FS", "GS", "RS", "US"),
]
_FILLERS = "\u115f\u1160\u3164\uffa0\u034f\u17b4\u17b5\ufffd"  # blank letters and marks, and the replacement character
_SIGNS = "\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2"  # "format" characters that have ink
_CIRCLE = "◌"  # what Unicode's own charts put under a mark that stands alone


@dataclass(frozen=True, slots=True)
class Cell:
    """One or several tokens shown as one thing.

    text: what is shown. source: the exact characters of the text it stands for, [start, end) in the text.
    tokens: the places of its tokens in the sequence. form: "NFD" where the text in it is decomposed, else empty.
    parts: for a cell of several tokens, a cell for each; one that is a part of a character shows its bytes (⟨EB⟩⟨A8⟩),
    and its `source` is the character it belongs to.
    """

    text: str
    tokens: tuple[int, ...]
    start: int
    end: int
    source: str
    form: str = ""
    parts: tuple[Cell, ...] = ()


def cells(text: str, encoding: Encoding, by: By = "character") -> list[Cell]:
    """The tokens of `text` as cells, in order; every token is in exactly one.

    by: character merges the tokens that together spell one character as a reader counts them (a grapheme cluster: an
    emoji with joiners, a syllable of single jamo, a letter with its marks); word merges the tokens of a word between
    blanks (어절), the blank before it included; token merges nothing. Where two cells would look alike though their
    tokens differ, as " at" and the "at" of "cat", the blank is shown (␠at), but in words. Raises InputError for another
    `by`.
    """
    return _cells(text, encoding, by, range(len(text) + 1))


def cells_of_ids(
    tokenizer: Tokenizer, ids: Sequence[int], by: By = "character", text: str | None = None, continues: bool = False
) -> list[Cell]:
    """Cells of ids that came without a text, such as generated ones; `start` and `end` are places in `decode(ids)`.

    text: what they were made of, where that is known; then the places are those in it. continues: another text stands
    before them, so that a blank at the beginning is one.
    """
    placed = None if text is None else tokenizer.placed(text, ids)
    if text is not None and placed is not None:
        return _cells(text, placed, by, range(len(text) + 1))
    raw, encoding = tokenizer.encoding_of(ids, continues)
    places = np.cumsum([0, *(4 if "\udc80" <= c <= "\udcff" else 1 for c in raw)]).tolist()  # ⟨E3⟩ takes four
    return _cells(raw, encoding, by, places)


def alone(cell: Cell) -> str:
    """A token named by itself: its characters, with marks for blanks; its label where it has none."""
    return readable(cell.source, spaced=True) or cell.text


def _cells(raw: str, encoding: Encoding, by: By, places: Sequence[int]) -> list[Cell]:
    """Cells of a text in which stray bytes are surrogates; `places` maps its positions to those of the public text."""
    if by not in get_args(By):
        raise InputError(f"by: {by!r} is not a way to group tokens; {nearest(str(by), get_args(By))}")
    data = raw.encode("utf-8", "surrogateescape")

    def cell(first: int, last: int, whole: bool, spaced: bool = False) -> Cell:
        start, end = encoding.offsets[first][0], encoding.offsets[last - 1][1]
        source = escaped(raw[start:end])
        if first in encoding.special:
            shown = encoding.special[first]
        elif whole or not source:
            shown = readable(source, spaced) or "␠"  # a blank that the tokenizer put in
        elif first in encoding.parts:
            shown = readable(escaped(encoding.parts[first].decode("utf-8", "surrogateescape")), spaced)
        else:
            span = slice(encoding.byte_offsets[first][0], encoding.byte_offsets[last - 1][1])
            shown = readable(escaped(data[span].decode("utf-8", "surrogateescape")), spaced)
        several = last - first > 1
        parts = tuple(cell(place, place + 1, False) for place in range(first, last)) if several else ()
        return Cell(shown, tuple(range(first, last)), places[start], places[end], source, form(source), parts)

    spans = list(itertools.pairwise(_edges(raw, encoding, by)))
    made = [cell(first, last, by != "token") for first, last in spans]
    for place in _alike(made, [tuple(encoding.ids[first:last]) for first, last in spans]) if by != "word" else ():
        made[place] = cell(*spans[place], by != "token", spaced=True)
    return made


def _alike(cells: Sequence[Cell], ids: Sequence[tuple[int, ...]]) -> list[int]:
    """Which cells look like one of other ids, as "at" of " at" and of "c-at": those show their blank."""
    same: dict[str, list[int]] = {}
    for place, cell in enumerate(cells):
        same.setdefault(cell.text, []).append(place)
    return [place for places in same.values() if len({ids[one] for one in places}) > 1 for place in places]


def _edges(raw: str, encoding: Encoding, by: By) -> list[int]:
    """The token indices at which a cell begins, and the number of tokens."""
    count = len(encoding)
    if by == "token" or not count:
        return list(range(count + 1)) if count else []
    allowed = cluster_starts(raw)
    if by == "word":
        # A word takes the one space before it; all other blanks between two words are one group of their own.
        allowed = {m.start() for m in re.finditer(r" ?\S+|\s+?(?= ?\S|\Z)", raw)} & allowed
    edges, covered, fresh = [], 0, True  # covered: the characters that the tokens so far have touched
    for place, (start, end) in enumerate(encoding.offsets):
        special = place in encoding.special or place - 1 in encoding.special
        # What the tokenizer drops (a blank, where words have no ▁ or Ġ) stands before the token behind it.
        begins = start >= covered and not allowed.isdisjoint(range(covered, start + 1))
        if place == 0 or special or (begins and not (fresh and start == covered)):
            edges.append(place)
        fresh = start == end and place not in encoding.special  # a blank that was put in belongs to the next
        covered = max(covered, end)
    return [*edges, count]


def form(text: str) -> str:
    """NFD where something in the text is decomposed (composing it makes it shorter), else empty."""
    if text.isascii() or unicodedata.is_normalized("NFC", text):
        return ""
    return "NFD" if len(unicodedata.normalize("NFC", text)) < len(text) else ""


def letter(text: str) -> str:
    """A jamo that stands alone as the letter that a reader knows, ㅗ for U+1169; any other text as it is."""
    name = unicodedata.name(text.strip(_CIRCLE), "") if len(text.strip(_CIRCLE)) == 1 else ""
    plain = re.sub(r"^HANGUL (CHOSEONG|JUNGSEONG|JONGSEONG) ", "HANGUL LETTER ", name)
    try:
        return unicodedata.lookup(plain) if plain != name else text
    except KeyError:
        return text


def readable(piece: str, spaced: bool = False) -> str:
    """A piece of text as a cell shows it: without the one space before a word, other blanks at its ends as ␠.

    spaced: that space too is ␠, for a piece that stands alone, such as a candidate for the next token.
    """
    if piece.startswith(" ") and not piece.isspace() and not spaced:
        piece = piece[1:]
    inner = piece.strip(" ")
    if len(inner) == len(piece):
        return visible(piece)
    if not inner:
        return "␠" * len(piece)
    before = len(piece) - len(piece.lstrip(" "))
    return "␠" * before + visible(inner) + "␠" * (len(piece) - before - len(inner))


def visible(text: str) -> str:
    """The text with every control, invisible, bidirectional, unassigned or lone combining character made visible.

    A space stays a space. Joiners stay where they join something. Doing it twice changes nothing more.
    """
    while not PLAIN.fullmatch(text):
        shown = _visible_once(text)
        if shown == text:
            break
        text = shown  # a name that took a character's place may have parted its neighbours
    return text


def _visible_once(text: str) -> str:
    shown: list[str] = []
    for cluster in wcwidth.iter_graphemes(text):
        if wcwidth.wcwidth(cluster[0]) == 0 and _visible(cluster, 0) == cluster[0] and shown[-1:] != [_CIRCLE]:
            shown.append(_CIRCLE)
        piece = "".join(_visible(cluster, place) for place in range(len(cluster)))
        if wcwidth.wcswidth(piece + " ") != wcwidth.wcswidth(piece) + 1:
            # A sign that joins to the next letter, on a wide letter of another script: wcwidth counts its neighbour
            # into it, and no column would line up any more.
            piece = piece[0] + "".join(map(_code, piece[1:]))
        shown.append(piece)
    return "".join(shown)


def _visible(cluster: str, place: int) -> str:
    """One character of a grapheme cluster, or the name shown in its stead."""
    character = cluster[place]
    joins = 0 < place < len(cluster) - 1 and wcwidth.wcwidth(cluster[place + 1]) > 0
    kind = unicodedata.category(character)
    if character == " " or (joins and character in "\u200c\u200d"):
        return character
    if character in _NAMES:
        return _NAMES[character]
    if character < " ":
        return f"⟨{_CONTROLS[ord(character)]}⟩"
    if character in _FILLERS and not (character in "\u115f\u1160" and len(cluster) > 1):
        return _code(character)
    if kind == "Cf" and (character in _SIGNS or (place and cluster[0] == "🏴")):
        return character  # the letters of a regional flag follow 🏴 as invisible tags
    if kind in ("Cc", "Cf", "Cs", "Co", "Zs", "Zl", "Zp"):
        return _code(character)
    if kind == "Cn" and (ord(character) & 0xFFFE == 0xFFFE or wcwidth.wcwidth(character) < 2):
        return _code(character)  # a wide one may be an emoji that is newer than this Python
    return character


def _code(character: str) -> str:
    return f"⟨U+{ord(character):04X}⟩"


def width(text: str) -> int:
    """The columns that `visible(text)` takes in a terminal, as wcwidth.wcswidth counts them."""
    return wcwidth.wcswidth(visible(text))


def fit(text: str, columns: int, align: Literal["left", "right", "center"] = "left") -> str:
    """`visible(text)` in exactly `columns` columns: padded with spaces, or cut between two characters and then …."""
    shown = visible(text)
    room = columns - wcwidth.wcswidth(shown)
    if room < 0:
        shown = _cut(shown, columns)
        room = columns - wcwidth.wcswidth(shown)
    before = {"left": 0, "right": room, "center": room // 2}[align]
    return " " * before + shown + " " * (room - before)


def _cut(shown: str, columns: int) -> str:
    """The longest beginning that fits with an … after it; nothing at all where there is no column for the …."""
    if columns < 1:
        return ""
    kept = list(wcwidth.iter_graphemes(shown[: 8 * columns + 64]))
    while kept and wcwidth.wcswidth("".join(kept) + "…") > columns:
        kept.pop()
    return "".join(kept) + "…"


def find(text: str, cells: Sequence[Cell], word: str) -> list[int]:
    """The indices of the cells that a user means by `word`, as in `--token 먹었다`.

    In this order: the cells whose text is the word; the cells that the word covers from the beginning of one to the end
    of one; the cells it touches anywhere in the text; the cell with that number. Composed and decomposed spellings are
    the same. Raises InputError that lists the cells.
    """
    wanted = unicodedata.normalize("NFC", word)
    exact = [
        place for place, cell in enumerate(cells)
        if wanted and wanted in (_composed(cell.text), _composed(cell.source), _composed(cell.source).strip())
    ]  # fmt: skip
    if exact:
        return exact
    spans = _occurrences(text, wanted)
    starts, ends = {cell.start for cell in cells}, {cell.end for cell in cells}
    starts |= {cell.start + 1 for cell in cells if cell.source.startswith(" ")}
    whole = [(start, end) for start, end in spans if start in starts and end in ends]
    touched = {
        place
        for start, end in whole or spans
        for place, cell in enumerate(cells)
        if cell.start < end and start < cell.end
    }
    if touched:
        return sorted(touched)
    if word.isdecimal() and int(word) < len(cells):
        return [int(word)]
    names = [cell.text for cell in cells[:40]]
    listed = ", ".join(f"{place} {name}" for place, name in enumerate(names)) + (" …" if cells[40:] else "")
    raise InputError(f"token {word!r}: not in this text; its rows are: {listed}. Give one of them, or its number")


def _composed(text: str) -> str:
    return unicodedata.normalize("NFC", text)


def _occurrences(text: str, wanted: str) -> list[tuple[int, int]]:
    """The [start, end) in `text` at which `wanted` (composed) stands, however the text is composed."""
    if not wanted:
        return []
    place, origin, composed = 0, [], []  # origin: for each composed character, the cluster of `text` it comes from
    for cluster in wcwidth.iter_graphemes(text):
        piece = _composed(cluster)
        origin += [(place, place + len(cluster))] * len(piece)
        composed.append(piece)
        place += len(cluster)
    whole = "".join(composed)
    found = [match.start() for match in re.finditer(f"(?={re.escape(wanted)})", whole)]
    return [(origin[first][0], origin[first + len(wanted) - 1][1]) for first in found]
