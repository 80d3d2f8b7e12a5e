"""SentencePiece models (Kudo and Richardson 2018): a reader of `.model` files, and their normalisation with exact
places.

The library `tokenizers` segments as SentencePiece does, but normalises a little differently (by grapheme cluster, so
that decomposed Hangul stays decomposed). So the text is normalised here, by the file's own rules, and each character of
the outcome keeps the characters of the given text that it stands for.
"""

from __future__ import annotations

import functools
import math
import re
import struct
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Library

from ..errors import CheckpointError, UnsupportedError
from .panics import told
from .protobuf import fields

NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = range(1, 7)
UNIGRAM, BPE = 1, 2
SPACE = "▁"
LONGEST = 512  # characters of a piece that is merged of others; each place within is tried


@dataclass(frozen=True)
class Rules:
    """How a text is changed before it is segmented.

    charsmap: the rules as the file has them, compiled. prefix: a blank is put before every text. collapsed: blanks at
    the ends are dropped, and of several only one stays. escaped: a blank is written ▁. whole: pieces that are never
    changed, wherever they occur. silent: pieces that no text is cut into. codes: a text may begin with the code of a
    language, >>fr<<.
    """

    charsmap: bytes = field(default=b"", repr=False)
    prefix: bool = True
    collapsed: bool = True
    escaped: bool = True
    whole: tuple[str, ...] = ()
    silent: tuple[str, ...] = ()
    codes: bool = False

    def check(self) -> None:
        """Raise CheckpointError where the compiled rules are broken."""
        _ = self._charsmap

    def normalised(self, text: str) -> tuple[str, list[int]]:
        """The text that is segmented, and for each of its characters the place in the given text at which it begins,
        with the place behind the last one. What was dropped belongs to the character before it."""
        blank = SPACE if self.escaped else " "
        shown: list[str] = []
        places: list[int] = []
        at, skipping = 0, self.collapsed
        while self.collapsed and at < len(text):
            new, used = self._step(text, at)
            if new != " ":
                break
            at += used
        if at == len(text):
            return "", [at]
        if self.prefix:
            shown, places = [blank], [at]
        while at < len(text):
            new, used = self._step(text, at)
            kept = new.lstrip(" ") if skipping else new
            shown += [blank if one == " " else one for one in kept]
            places += [at] * len(kept)
            if kept:
                skipping = self.collapsed and kept.endswith(" ")
            at += used
        while self.collapsed and shown and shown[-1] == blank:
            shown.pop()
            at = places.pop()
        return "".join(shown), [*places, at]

    def _step(self, text: str, at: int) -> tuple[str, int]:
        """What the text at a place becomes by the longest rule that fits, and how many characters that rule takes."""
        if self._whole is not None and (found := self._whole.match(text, at)):
            return found[0], len(found[0])
        found = self._charsmap.longest(text, at) if self._charsmap is not None else None
        return found or (text[at], 1)

    @functools.cached_property
    def _whole(self) -> re.Pattern[str] | None:
        ordered = sorted(self.whole, key=len, reverse=True)
        return re.compile("|".join(map(re.escape, ordered))) if ordered else None

    @functools.cached_property
    def _charsmap(self) -> Charsmap | None:
        return Charsmap(self.charsmap) if self.charsmap else None


class Charsmap:
    """Compiled rules of normalisation: a double-array trie (Aoe 1989) over UTF-8, then the texts that it points to."""

    def __init__(self, raw: bytes) -> None:
        try:
            size = struct.unpack_from("<I", raw)[0]
            self._units = array("I", raw[4 : 4 + size])
        except (struct.error, ValueError) as error:
            raise CheckpointError(f"the rules of normalisation are broken ({error}); restore the file") from None
        self._texts = raw[4 + size :]
        if size > len(raw) - 4 or not self._units or self._texts[-1:] != b"\0":
            raise CheckpointError("the rules of normalisation are cut off; restore the file from a copy")
        units = np.frombuffer(self._units, dtype=np.uint32)
        places = np.unique(units[units >= 1 << 31] & 0x7FFFFFFF)  # where the text of each rule begins
        try:
            for place in places.tolist():
                self._text(place)
        except ValueError as error:
            raise CheckpointError(f"the rules of normalisation are broken ({error}); restore the file") from None

    def longest(self, text: str, at: int) -> tuple[str, int] | None:
        """(what it becomes, the number of characters) of the longest rule that fits at a place."""
        units, found = self._units, None
        node = _offset(units[0])
        for taken, character in enumerate(text[at : at + 32], 1):
            for byte in character.encode():
                node ^= byte
                unit = units[node] if node < len(units) else 0
                if unit & 0x800000FF != byte:
                    return None if found is None else (self._text(found[0]), found[1])
                node ^= _offset(unit)
            if unit >> 8 & 1:
                found = units[node] & 0x7FFFFFFF, taken
        return None if found is None else (self._text(found[0]), found[1])

    def _text(self, place: int) -> str:
        return self._texts[place : self._texts.index(b"\0", place)].decode()


def _offset(unit: int) -> int:
    return (unit >> 10) << ((unit & 0x200) >> 6)


@dataclass(frozen=True)
class Pieces:
    """A SentencePiece model: its pieces, each (text, score, kind), by id.

    bpe: pairs are merged, the best score first; else the most probable segmentation (unigram). byte_fallback: what has
    no piece is spelled in bytes. names: the texts of its special pieces by role (unk, bos, eos, pad).
    """

    pieces: tuple[tuple[str, float, int], ...]
    bpe: bool = False
    byte_fallback: bool = False
    rules: Rules = Rules()
    names: dict[str, str] = field(default_factory=dict)

    def arranged(self, before: Sequence[str], skip: int, behind: Sequence[str] = ()) -> Pieces:
        """The same under other ids: special pieces, then those from number `skip` on, then further special pieces."""
        kinds = {text: kind for text, _, kind in self.pieces}
        made = [(one, 0.0, UNKNOWN if kinds.get(one) == UNKNOWN else CONTROL) for one in before]
        made += [*self.pieces[skip:], *((one, 0.0, CONTROL) for one in behind)]
        return Pieces(tuple(made), self.bpe, self.byte_fallback, self.rules, self.names)

    def listed(self, texts: Sequence[str]) -> Pieces:
        """The same under the ids of a list, those that are not in it behind them. Into what is only in the list no text
        is cut."""
        known = {text: (text, score, kind) for text, score, kind in self.pieces}
        kinds = {"</s>": CONTROL, "<pad>": CONTROL, "<unk>": UNKNOWN}
        made = [(one, 0.0, kinds[one]) if one in kinds else known.get(one, (one, 0.0, UNUSED)) for one in texts]
        rest = known.keys() - set(texts)
        made += [
            (text, score, NORMAL if kind == UNKNOWN else kind) for text, score, kind in self.pieces if text in rest
        ]
        silent = tuple(text for text, _, kind in made if kind == UNUSED)
        rules = replace(self.rules, silent=silent, codes=True)
        return Pieces(tuple(made), self.bpe, self.byte_fallback, rules, self.names)

    def library(self) -> Library:
        """The same for the library `tokenizers`, as a plain tokenizer.json holds it. Raises CheckpointError for what it
        cannot be made of."""
        with told(
            lambda why: CheckpointError(f"the pieces of the tokenizer are broken ({why}); fetch its files again")
        ):
            return self._library()

    def _library(self) -> Library:
        if not all(text and math.isfinite(score) for text, score, _ in self.pieces):
            raise ValueError("a piece has no text, or a score that is no number")
        ids = {text: id for id, (text, _, _) in enumerate(self.pieces)}
        if len(ids) != len(self.pieces):
            raise CheckpointError("two pieces of the SentencePiece model have one text; fetch the file again")
        unknown = next((id for id, (_, _, kind) in enumerate(self.pieces) if kind == UNKNOWN), None)
        if self.bpe:
            name = None if unknown is None else self.pieces[unknown][0]
            model = models.BPE(ids, self._merges(), unk_token=name, fuse_unk=True, byte_fallback=self.byte_fallback)
        else:
            scored = [(text, score) for text, score, _ in self.pieces]
            model = models.Unigram(scored, unk_id=unknown, byte_fallback=self.byte_fallback)
        made = Library(model)
        made.normalizer = self._normalizer()
        if self.rules.prefix:
            made.pre_tokenizer = pre_tokenizers.Metaspace(SPACE, prepend_scheme="always", split=False)
        steps: list[Any] = [decoders.Replace(SPACE, " "), *([decoders.ByteFallback()] if self.byte_fallback else [])]
        steps += [decoders.Fuse(), *([decoders.Strip(" ", 1, 0)] if self.rules.prefix else [])]
        made.decoder = decoders.Sequence(steps)
        marks = [(text, kind) for text, _, kind in self.pieces if kind in (CONTROL, UNKNOWN, USER)]
        special = [AddedToken(text, special=True, normalized=False) for text, kind in marks if kind != USER]
        made.add_special_tokens(special)
        made.add_tokens([AddedToken(text, normalized=False) for text, kind in marks if kind == USER])
        return made

    def _merges(self) -> list[tuple[str, str]]:
        """The pairs that are merged, those whose piece has the best score first."""
        known = {text: (-score, id) for id, (text, score, kind) in enumerate(self.pieces) if kind == NORMAL}
        longest = max(map(len, known), default=0)
        if longest > LONGEST:
            raise CheckpointError(f"a piece of the tokenizer has {longest} characters; fetch its files again")
        pairs = [
            (*known[text], (text[:cut], text[cut:]))
            for text in known
            for cut in range(1, len(text))
            if text[:cut] in known and text[cut:] in known
        ]
        return [pair for *_, pair in sorted(pairs)]

    def _normalizer(self) -> normalizers.Normalizer | None:
        """What comes nearest to the rules in the library."""
        steps: list[Any] = [normalizers.Precompiled(self.rules.charsmap)] if self.rules.charsmap else []
        if self.rules.collapsed:
            ends, several = Regex(r"\A +| +\z"), Regex(" {2,}")
            steps += [normalizers.Replace(ends, ""), normalizers.Replace(several, " ")]
        if self.rules.escaped:
            steps.append(normalizers.Replace(" ", SPACE))
        return normalizers.Sequence(steps) if steps else None


def read_pieces(path: Path) -> Pieces:
    """The SentencePiece model in a `.model` (or `.spm`) file.

    Raises CheckpointError for a missing, broken or truncated file, UnsupportedError for a kind that is not read.
    """
    try:
        raw = memoryview(path.read_bytes())
        pieces, trainer, rules = [], {}, {}
        for number, value in fields(raw):
            if number == 1:
                pieces.append(_piece(value))
            elif number == 2:
                trainer = dict(fields(value))
            elif number == 3:
                rules = dict(fields(value))
        names = {role: _bytes(trainer[at]).decode() for role, at in _NAMES.items() if at in trainer}
        charsmap = _bytes(rules.get(2, memoryview(b"")))
    except FileNotFoundError:
        raise CheckpointError(f"{path} is missing") from None
    except (IndexError, TypeError, ValueError, struct.error) as error:
        raise CheckpointError(f"{path} is broken or truncated ({error}); restore it from a copy") from None
    if not pieces:
        raise CheckpointError(f"{path} holds no pieces; it is no SentencePiece model, or cut off")
    kind = trainer.get(3, UNIGRAM)
    if kind not in (UNIGRAM, BPE) or trainer.get(24, 0):
        raise UnsupportedError(
            f"{path}: a SentencePiece model of another kind than unigram and bpe with ▁ before a word is not read"
        )
    whole, silent = (tuple(text for text, _, kind in pieces if kind == one) for one in (USER, UNUSED))
    flags = {name: bool(rules.get(at, 1)) for name, at in (("prefix", 3), ("collapsed", 4), ("escaped", 5))}
    read = Rules(charsmap, whole=whole, silent=silent, **flags)
    read.check()
    return Pieces(tuple(pieces), kind == BPE, bool(trainer.get(35, 0)), read, names)


_NAMES = {"unk": 45, "bos": 46, "eos": 47, "pad": 48}


def _piece(raw: memoryview) -> tuple[str, float, int]:
    found = {1: memoryview(b"")} | dict(fields(raw))
    # Nine digits are what an fp32 holds; of more, a JSON reader may round the last one to another number.
    return _bytes(found[1]).decode(), float(f"{found.get(2, 0.0):.9g}"), int(found.get(3, NORMAL))


def _bytes(value: Any) -> bytes:
    if not isinstance(value, memoryview):
        raise TypeError("a number in the place of a text")
    return bytes(value)
