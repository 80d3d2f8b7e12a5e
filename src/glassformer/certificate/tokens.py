"""Checks of a tokenizer: texts come back, every place is right, and the ids are those of the original."""

from __future__ import annotations

import itertools
import unicodedata
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..data.published import Published
from ..errors import InputError
from .line import Line, judged, without
from .subject import texts

if TYPE_CHECKING:
    from ..api import Loaded

BLANK = "▁"  # what SentencePiece writes for a blank, so that one that was typed is read as a blank
NONE = "this model has no tokenizer"


def round_trip(loaded: Loaded) -> Line:
    """How many of the texts do not come back from their ids; by a tokenizer that changes a text before it reads it, not
    even with the same letters and digits."""
    found = list(_encoded(loaded))
    if not found:
        return without("round_trip", NONE)
    changed = [one for one in found if one[0].decode(one[2].ids) != spelled(*one[:2])]
    wrong = [text for tokenizer, text, made in changed if tokenizer.lossless or not _alike(tokenizer, text, made)]
    if changed and not wrong:
        lost, count = len(changed), len(found)
        return without(
            "round_trip",
            f"{lost} of {count} texts do not come back: this tokenizer changes a text before it reads it",
        )
    return _line("round_trip", wrong, len(found))


def _alike(tokenizer: Any, text: str, made: Any) -> bool:
    """Whether what comes back has the letters and digits of the text, and itself comes back, up to blanks; where a part
    of the text is unknown, that cannot be told."""
    back = tokenizer.decode(made.ids)
    again = encoded(tokenizer, back)
    if again is None or not {*made.ids}.isdisjoint(getattr(tokenizer, "special", ())):
        return True
    return _letters(back) == _letters(text) and tokenizer.decode(again.ids).split() == back.split()


def _letters(text: str) -> str:
    """The letters and digits of a text, without case and marks."""
    plain = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", text).casefold())
    return "".join(one for one in plain if unicodedata.category(one)[0] in "LN")


def offsets(loaded: Loaded) -> Line:
    """How many of the texts have a token whose place is not that of its bytes."""
    found = list(_encoded(loaded))
    if not found:
        return without("offsets", NONE)
    wrong = [
        text
        for tokenizer, text, made in found
        if not (_in_place(tokenizer, spelled(tokenizer, text), made) if tokenizer.lossless else _covers(text, made))
    ]
    return _line("offsets", wrong, len(found))


def _line(name: str, wrong: list[str], count: int) -> Line:
    return judged(name, len(wrong), 0, "count", f"the first is {wrong[0]!r}" if wrong else "", of=count, wrong=wrong)


def all_texts() -> list[str]:
    """The test set as one list."""
    return [text for some in texts().values() for text in some]


def tokenizers_of(loaded: Loaded) -> list[Any]:
    """The tokenizers of a model: one, or an encoder-decoder's two."""
    both = (getattr(loaded, "source", None), getattr(loaded, "tokenizer", None))
    return [one for one in both if one is not None]


def _encoded(loaded: Loaded) -> Iterator[tuple[Any, str, Any]]:
    """(tokenizer, text, its Encoding) of every text; where it is refused, as by a list of words, of its words that are
    known."""
    for tokenizer in tokenizers_of(loaded):
        for text in all_texts():
            made = encoded(tokenizer, text)
            some = [(text, made)] if made is not None else [(word, encoded(tokenizer, word)) for word in text.split()]
            yield from ((tokenizer, one, found) for one, found in some if found is not None)


def encoded(tokenizer: Any, text: str) -> Any:
    """The Encoding of a text; None where the tokenizer refuses it by name."""
    try:
        return tokenizer.encode(text)
    except InputError:
        return None


def spelled(tokenizer: Any, text: str) -> str:
    """The text as one of our own tokenizers spells it."""
    return text if isinstance(tokenizer, Published) else tokenizer._spelled(text)


def _in_place(tokenizer: Any, text: str, made: Any) -> bool:
    """Whether the tokens follow one another without gap or overlap, and stand where their bytes are."""
    raw, at = text.encode(), 0
    starts = [0]
    for character in text:
        starts.append(starts[-1] + len(character.encode()))
    for id, (first, last), (begin, end) in zip(made.ids, made.offsets, made.byte_offsets, strict=True):
        if begin != at or raw[begin:end] != tokenizer.piece_bytes(id):
            return False
        if begin < end and not (starts[first] <= begin < starts[first + 1] and starts[last - 1] < end <= starts[last]):
            return False
        at = end
    return at == len(raw)


def _covers(text: str, made: Any) -> bool:
    """The same of a tokenizer that changes a text first: its tokens stand in order within the text, and all of it that
    is to be seen belongs to one of them."""
    spans = made.offsets
    if not all(0 <= first <= last <= len(text) for first, last in spans):
        return False
    if not all(a[0] <= b[0] and a[1] <= b[1] for a, b in itertools.pairwise(spans)):
        return False
    covered = {place for span in spans for place in range(*span)}
    rest = (character for place, character in enumerate(text) if place not in covered)
    return all(unicodedata.category(one)[0] in "ZCM" or one == BLANK for one in rest)
