"""Text to tokens and back, losslessly: bytes, characters, byte-level BPE, and unigram pieces with byte fallback.

All four are ordinary `tokenizer.json` files of the `tokenizers` library. Around it this file adds what an exact
explanation needs: which bytes of the text each token stands for, hence offsets that are right even where a token is
part of a character, and a decoding in which no byte is ever lost or replaced. There is no normalizer: NFC and NFD
stay what they were.
"""

from __future__ import annotations

import codecs
import functools
import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import tokenizers
from tokenizers import AddedToken, pre_tokenizers

from ..errors import CheckpointError, InputError, UnsupportedError
from ..files import replacing
from .panics import encoding, told
from .places import joined, located
from .vocabulary import END, TokenizerSpec, byte_of_symbol, trained

__all__ = ["END", "Encoding", "StreamDecoder", "Tokenizer", "TokenizerSpec", "escaped", "train_tokenizer"]

_STRAY = re.compile("[\udc80-\udcff]")


START, STOP = "⟨start⟩", "⟨end⟩"  # the end token before a text, and anywhere else


@dataclass(frozen=True)
class Encoding:
    """The tokens of a text.

    ids: the token ids. offsets: for each token the characters [start, end) of the text it stands for; the several
    tokens of one character all carry that character's offsets. byte_offsets: the same in bytes of the UTF-8 text, where
    they follow each other without gap or overlap. special: the names of the special tokens by their place; these stand
    for nothing in the text, and their spans are empty. parts: the bytes of tokens that are a part of a character as the
    tokenizer writes it, where it changes a text first (decomposed Hangul composed, say).
    """

    ids: list[int]
    offsets: list[tuple[int, int]]
    byte_offsets: list[tuple[int, int]]
    special: dict[int, str] = field(default_factory=dict)
    parts: dict[int, bytes] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.ids)

    def tokens_of(self, start: int, end: int) -> list[int]:
        """The places of the tokens that stand for some of the characters [start, end) of the text; those that are a
        part of one of these characters are among them."""
        spans = enumerate(self.offsets)
        return [place for place, (first, last) in spans if max(first, start) < min(last, end)]

    def span_of(self, first: int, last: int) -> tuple[int, int]:
        """The characters [start, end) of the text that the tokens at the places first to last - 1 stand for."""
        if not 0 <= first < last <= len(self):
            raise InputError(f"there are no tokens {first} to {last - 1}; this text has {len(self)}, from 0")
        spans = [span for span in self.offsets[first:last] if span[0] < span[1]] or [self.offsets[first]]
        return min(start for start, _ in spans), max(end for _, end in spans)


class Tokenizer:
    """A trained tokenizer; make one with `train_tokenizer` or `Tokenizer.load`.

    library: the `tokenizers.Tokenizer` underneath. method: byte, char, bpe or unigram; and of other packages list (a
    fixed list of pieces) or pairs (of characters, merged).
    end: the text of the special token that stands before every document and starts a generation; end_id: its id.
    start: the ids that a model reads before a text; closing: those behind it, which `encode` leaves out; begin: those
    with which the target of an encoder-decoder begins; ends: those that end a text; empty: what stands for no text.
    lossless: whether decoding gives every text back. piecewise: whether the pieces that `data.text.pieces` cuts a text
    into have the tokens of the whole.
    """

    lossless = piecewise = True

    def __init__(self, library: tokenizers.Tokenizer):
        self.library = library
        self.library.no_padding()
        self.library.no_truncation()
        self.library.encode_special_tokens = True  # else "<|end|>" typed by a user would become the special token
        self.method = _method(library)
        self.end, self.end_id = _end_token(library)
        self.start = self.begin = self.empty = [self.end_id]
        self.ends = frozenset(self.start)
        with told(lambda why: CheckpointError(f"the tokenizer does not work: {why}")):
            self.closing = [] if library.post_processor is None else library.encode("").ids
        self.vocab_size = library.get_vocab_size(with_added_tokens=True)
        self._pieces = _piece_table(library, self.method, self.vocab_size)
        self._piece_bytes = np.array([len(piece) for piece in self._pieces], dtype=np.int64)

    def __repr__(self) -> str:
        return f"Tokenizer({self.name}, end={self.end!r})"

    @property
    def name(self) -> str:
        """Method and vocabulary size, for example bpe-8192."""
        return f"{self.method}-{self.vocab_size}"

    @functools.cached_property
    def fingerprint(self) -> str:
        """A hash of everything that decides the ids, the same in every process."""
        return hashlib.sha256(self.library.to_str().encode()).hexdigest()

    def encode(self, text: str, start: bool = False) -> Encoding:
        """The tokens of `text`; with `start`, after an end token, as a document begins in training.

        Raises InputError for a lone surrogate and, with a character tokenizer or a list, for unknown characters. The
        few tokenizers of other packages that change a text first (`listed` in formats) give places in what it became.
        """
        ids = self._ids(text, _utf8(text))
        ids = np.concatenate([[self.end_id], ids]) if start else ids
        return self._encoding(ids, self._spelled(text))

    def encoding_of(self, ids: Sequence[int], continues: bool = False) -> tuple[str, Encoding]:
        """The text of ids that came without one, and their Encoding in it. continues: it goes on behind another text.

        In this text a stray byte is a surrogate (U+DC80 to U+DCFF), one character long; `escaped` makes it readable.
        """
        raw = self._raw(ids)
        return raw, self._encoding(np.array(list(ids), dtype=np.int64), raw)

    def tokens_of(self, text: str, start: int, end: int) -> list[int]:
        """The places among `encode(text)` of the tokens that stand for the characters [start, end) of the text."""
        return self.encode(text).tokens_of(start, end)

    def span_of(self, text: str, first: int, last: int) -> tuple[int, int]:
        """The characters [start, end) of the text that its tokens first to last - 1 stand for."""
        return self.encode(text).span_of(first, last)

    def _encoding(self, ids: np.ndarray, raw: str) -> Encoding:
        """The places of the ids in their text, found from the number of bytes that each stands for."""
        offsets, byte_offsets = located(raw, self._piece_bytes[ids])
        empty = [place for place, (start, end) in enumerate(byte_offsets) if start == end]
        special = {place: self._name_of(int(ids[place]), place) for place in empty}
        return Encoding(ids.tolist(), offsets, byte_offsets, special)

    def _name_of(self, id: int, place: int) -> str:
        """What a reader calls a special token; "<|end|>" itself may be typed, and then is text."""
        return self.library.id_to_token(id) if id != self.end_id else STOP if place else START

    def ids_array(self, text: str) -> np.ndarray:
        """The ids of `encode(text)` as an int64 array [t], without the offsets."""
        return self._ids(text, _utf8(text))

    def ids_arrays(self, texts: Sequence[str]) -> list[np.ndarray]:
        """`ids_array` of each text, on all processor cores."""
        if self.method in ("byte", "char"):
            return [self.ids_array(text) for text in texts]
        for text in texts:
            _utf8(text)
        with encoding():
            batch = self.library.encode_batch_fast(list(texts), add_special_tokens=False)
        return [np.array(encoding.ids, dtype=np.int64) for encoding in batch]

    def decode(self, ids: Iterable[int]) -> str:
        """The text of the ids; `decode(encode(text).ids) == text` for every text. An end token stands for no text.

        A model may sample bytes that are not UTF-8. Each of those stands in the text as its value, ⟨E3⟩ for 0xE3.
        """
        return escaped(self._raw(ids))

    def _raw(self, ids: Iterable[int]) -> str:
        """The text of the ids with stray bytes as surrogates. No character reaches across an end token."""
        return joined(list(map(self.piece_bytes, ids)))

    def piece_bytes(self, id: int) -> bytes:
        """The exact bytes that one token stands for; none for a special token. Raises InputError for an unknown id."""
        if not 0 <= id < self.vocab_size:
            raise InputError(f"token id {id}: this tokenizer has the ids 0 to {self.vocab_size - 1}")
        return self._pieces[id]

    def spells(self, character: str) -> bool:
        """Whether some text with this character has tokens: all but a list's know every one, or say which not."""
        return self.method != "list" or any(character in piece.decode() for piece in self._pieces)

    def placed(self, text: str, ids: Sequence[int]) -> Encoding | None:
        """The places in `text` of ids that were made of it and of special tokens around it; None where these give the
        text back by themselves (`encoding_of`), or were not made of it."""
        return None

    def stream(self, after: Sequence[int] = ()) -> StreamDecoder:
        """A decoder for ids that arrive one at a time, behind others."""
        return StreamDecoder(self)

    def save(self, path: Path | str) -> None:
        """Write tokenizer.json, atomically; a folder gets a file of that name."""
        path = Path(path)
        path = path / "tokenizer.json" if path.is_dir() else path
        with replacing(path) as temporary:
            temporary.write_text(self.library.to_str(pretty=True), encoding="utf-8")

    def within(self, vocab: int, place: Path) -> Tokenizer:
        """The tokenizer for a model with so many tokens; raises CheckpointError where it has more. place: its file."""
        if self.vocab_size > vocab:
            raise CheckpointError(
                f"{place}: the tokenizer has {self.vocab_size} tokens and the model knows {vocab}; it belongs to "
                "another model"
            )
        return self

    @classmethod
    def load(cls, path: Path | str) -> Tokenizer:
        """The tokenizer in a tokenizer.json or in the folder that holds one.

        Raises CheckpointError for a missing, broken or truncated file, UnsupportedError for another kind of tokenizer.
        """
        path = Path(path)
        path = path / "tokenizer.json" if path.is_dir() else path
        from .published import Published, is_published, read_library  # it builds upon this file

        return Published.load(path) if is_published(path) else Tokenizer(read_library(path))

    def _spelled(self, text: str) -> str:
        """The text as its tokens spell it."""
        normalizer = self.library.normalizer
        return text if normalizer is None or not text else normalizer.normalize_str(text)

    def _ids(self, text: str, utf8: bytes) -> np.ndarray:
        """The ids as an int64 array. Bytes and characters are looked up here, 50 times faster than in the library."""
        if self.method == "byte":
            return np.frombuffer(utf8, dtype=np.uint8).astype(np.int64)
        if self.method == "char":
            points = np.frombuffer(text.encode("utf-32-le"), dtype=np.uint32)
            ids = self._id_of_point[np.minimum(points, len(self._id_of_point) - 1)]
            if len(ids) and ids.min() < 0:
                raise InputError(self._unknown(text, ids))
            return ids
        with encoding():
            ids = np.array(self.library.encode(text, add_special_tokens=False).ids, dtype=np.int64)
        if self.method == "list" and (ids == self.library.token_to_id(self.library.model.unk_token)).any():
            raise InputError(self._outside(text))
        return ids

    def _outside(self, text: str) -> str:
        """The message that names the characters that are in no piece of a list."""
        known = {character for piece in self._pieces for character in piece.decode()}
        unknown = list(dict.fromkeys(c for c in self._spelled(text) if c not in known)) or [text]
        named = ", ".join(map(repr, unknown[:8]))
        return f"this tokenizer has no piece for {named}; leave it out, or give one word at a time"

    @functools.cached_property
    def _id_of_point(self) -> np.ndarray:
        """For each code point its id in a character tokenizer, -1 for an unknown one (the last entry always is)."""
        known = {ord(piece.decode()): id for id, piece in enumerate(self._pieces) if piece}
        table = np.full(max(known) + 2, -1, dtype=np.int64)
        table[list(known)] = list(known.values())
        return table

    def _unknown(self, text: str, ids: np.ndarray) -> str:
        """The message that names the characters a character tokenizer does not know."""
        places = np.flatnonzero(ids < 0)
        unknown = list(dict.fromkeys(text[place] for place in places))
        named = ", ".join(f"{c!r} (U+{ord(c):04X})" for c in unknown[:8]) + (" …" if len(unknown) > 8 else "")
        return (
            f"position {places[0]}: this character tokenizer never saw {named}; it knows {self.vocab_size - 1} "
            "characters. Leave them out, or train with tokenizer.method=bpe (or byte, unigram), which takes every text"
        )


def train_tokenizer(spec: TokenizerSpec, source: Path | str, validation: float | Path | str = 0.0) -> Tokenizer:
    """A tokenizer trained on a file or folder, which is read as a stream. The same source gives the same tokenizer.
    With method=file it is the one at the path, and the source is not looked at.

    validation: what `pack` will hold out, the share of the characters at the end or a corpus of its own. Nothing is
    learnt from it; but a character tokenizer, which refuses what it does not know, takes up its characters as well.
    Raises InputError for a source that cannot be read, is empty or not UTF-8, or does not fit the settings, and what
    `Tokenizer.load` raises.
    """
    if spec.path is not None:
        found = Tokenizer.load(spec.path)
        if type(found) is not Tokenizer:
            raise UnsupportedError(
                f"{spec.path} came with a published model; a model is trained with a tokenizer of this package"
            )
        return found
    return Tokenizer(trained(spec, source, validation))


class StreamDecoder:
    """Ids to text as they come: only whole characters are given out. The joined output equals `decode` of all ids."""

    def __init__(self, tokenizer: Tokenizer, drops: bool = False):
        """drops: the blank at the very beginning is not given out."""
        self._tokenizer, self._drops = tokenizer, drops
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")

    def push(self, id: int) -> str:
        """The text that this token completes; empty while a character is still incomplete."""
        piece = self._tokenizer.piece_bytes(id)
        if piece and self._drops:
            self._drops = False
            piece = piece.removeprefix(b" ")
        return escaped(self._decoder.decode(piece, not piece))  # an end token ends an unfinished character too

    def close(self) -> str:
        """What is left when no more tokens come: the bytes of an unfinished character, escaped as ⟨E3⟩."""
        return escaped(self._decoder.decode(b"", True))


def escaped(raw: str) -> str:
    """Stray bytes, which Python's "surrogateescape" keeps as U+DC80 to U+DCFF, made visible: ⟨80⟩ to ⟨FF⟩."""
    return _STRAY.sub(lambda found: f"⟨{ord(found[0]) - 0xDC00:02X}⟩", raw)


def _utf8(text: str) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        point = ord(text[error.start])
        if 0xDC80 <= point <= 0xDCFF:  # how Python passes on a byte that it could not decode ("surrogateescape")
            wrong = f"the byte {point - 0xDC00:02X} is not UTF-8; give the text in UTF-8"
        else:
            wrong = f"a lone surrogate (U+{point:04X}) is no character; leave it out"
        raise InputError(f"position {error.start}: {wrong}") from None


def _method(library: tokenizers.Tokenizer) -> str:
    """Which of the four kinds a library tokenizer is, or of the two of other packages: a list of pieces, and pairs of
    characters merged with bytes for the rest; raises UnsupportedError for another."""
    kind = type(library.model).__name__
    if kind == "WordLevel" and library.token_to_id(library.model.unk_token or "") is not None:
        return "list"
    if kind == "BPE" and library.model.byte_fallback and library.pre_tokenizer is None:
        return "pairs"
    if library.normalizer is not None:
        raise UnsupportedError(f"a tokenizer that changes the text first ({library.normalizer}) is not lossless")
    if kind == "WordLevel" and all(len(piece) == 1 for piece in library.get_vocab(with_added_tokens=False)):
        return "char"
    spelled = all(library.token_to_id(f"<0x{byte:02X}>") is not None for byte in range(256))
    if kind == "Unigram" and spelled and isinstance(library.pre_tokenizer, pre_tokenizers.Split):
        return "unigram"
    if kind == "BPE" and library.pre_tokenizer is not None:
        text = "a \n각"  # a byte-level one writes each of its six bytes as one symbol
        symbols = "".join(piece for piece, _ in library.pre_tokenizer.pre_tokenize_str(text))
        if "".join(symbols) == "aĠĊê°ģ":
            plain = library.get_vocab(with_added_tokens=False) == byte_of_symbol()
            return "byte" if plain else "bpe"
    raise UnsupportedError(
        f"a {kind} tokenizer with the pre-tokenizer {library.pre_tokenizer} is not one of the four kinds"
    )


def _end_token(library: tokenizers.Tokenizer) -> tuple[str, int]:
    """The special token before every document: END where there is one, else the last special token."""
    special = {token.content: id for id, token in sorted(library.get_added_tokens_decoder().items()) if token.special}
    if not special:
        raise CheckpointError("the tokenizer has no special token to separate documents; train it anew")
    end = END if END in special else list(special)[-1]
    return end, special[end]


def _piece_table(library: tokenizers.Tokenizer, method: str, vocab_size: int) -> list[bytes]:
    """For each id the bytes it stands for."""
    table = [b""] * vocab_size
    added: dict[int, AddedToken] = library.get_added_tokens_decoder()
    for piece, id in library.get_vocab(with_added_tokens=True).items():
        if id in added:
            table[id] = b"" if added[id].special else added[id].content.encode()
        elif method in ("byte", "bpe"):
            table[id] = bytes(map(byte_of_symbol().__getitem__, piece))
        elif method in ("unigram", "pairs") and re.fullmatch("<0x[0-9A-F]{2}>", piece):
            table[id] = bytes([int(piece[3:5], 16)])
        else:
            table[id] = piece.encode()
    return table
