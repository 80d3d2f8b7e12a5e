"""What a tokenizer of the library does to a text, in both directions, without any special token.

`Plain` gives ids and places; `Spelling` the bytes that a piece stands for.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Sequence

from tokenizers import AddedToken, Encoding, decoders, models
from tokenizers import Tokenizer as Library
from tokenizers.pre_tokenizers import PreTokenizer

from ..errors import InputError, UnsupportedError
from .panics import encoding
from .places import Spans
from .sentencepiece import Rules
from .vocabulary import byte_of_symbol

BYTE = re.compile("<0x([0-9A-F]{2})>")
DECODERS = {"ByteLevel", "WordPiece", "Metaspace", "Replace", "ByteFallback", "Fuse", "Strip"}
METHODS = {"BPE": "bpe", "Unigram": "unigram", "WordPiece": "wordpiece", "WordLevel": "words"}


class Plain:
    """Text to ids and places, in which nothing is a special token."""

    def __init__(self, library: Library, rules: Rules | None, size: int) -> None:
        """size: ids from there on are of pieces that the model does not know, and of tokens that no text may have."""
        self.rules = rules
        added = sorted(library.get_added_tokens_decoder().items())
        self._bytes: dict[int, int] = {}
        self._unknown: int | None = None
        model, kept = library.model, [token for _, token in added]
        if isinstance(model, models.Unigram):
            model, kept = self._without_special(library, added)
        self.library = self._copy(library, model, kept)
        self.later = self.library  # for what stands behind a special token
        if rules is None and "prepend_scheme=first" in str(library.pre_tokenizer):
            self.later = self._copy(library, model, kept)
            self.later.pre_tokenizer = _never_first(library)
        wanted = library.get_vocab(with_added_tokens=True)
        # Where no blank is dropped between words, pieces that spell the text stand one behind the other in it.
        dropping = re.search("Whitespace|Bert", str(library.pre_tokenizer))
        self.faithful = rules is None and isinstance(model, models.BPE) and not dropping
        made = self.library.get_vocab(with_added_tokens=True)
        self._ids = {id: wanted[text] for text, id in made.items() if wanted.get(text, id) != id}
        self._beyond = {id: token.content for id, token in added if id >= size}
        self._ids |= dict.fromkeys({*range(size, len(wanted))} - self._beyond.keys(), self._unknown)
        self.size = size
        special = {token.content for _, token in added if token.special}
        listed = {one: id for one, id in wanted.items() if id < size and one not in special}
        self._listed = listed if rules and rules.codes else {}

    def _copy(self, library: Library, model: models.Model, added: list[AddedToken]) -> Library:
        made = Library(model)
        if self.rules is None:
            made.normalizer = library.normalizer
            if library.pre_tokenizer is not None:
                made.pre_tokenizer = library.pre_tokenizer
        add_tokens(made, added)
        made.encode_special_tokens = True
        return made

    def _without_special(
        self, library: Library, added: list[tuple[int, AddedToken]]
    ) -> tuple[models.Unigram, list[AddedToken]]:
        """The unigram model in which no text can spell a special piece, and its other added tokens.

        A SentencePiece model also keeps the pieces of bytes from being spelled; what has no piece is put into bytes
        behind it (`tokens`).
        """
        data = json.loads(library.model.__getstate__())
        vocab = [tuple(one) for one in data["vocab"]]
        names, special = ({id: getattr(token, one) for id, token in added} for one in ("content", "special"))
        silent = set() if self.rules is None else set(self.rules.silent)
        for id in range(len(vocab), 1 + max(names, default=-1)):
            vocab.append((names.get(id, f"\uffff{id}\uffff"), 0.0))
        spelled = data.get("byte_fallback", False)
        for id, (text, score) in enumerate(vocab):
            byte = BYTE.fullmatch(text) if self.rules is not None and spelled else None
            if byte:
                self._bytes[int(byte[1], 16)] = id
            if byte or text in silent or (id in names and special[id]):
                vocab[id] = (f"\uffff{id}\uffff", score)
        bytes_in_library = spelled and self.rules is None
        self._unknown = data["unk_id"]
        model = models.Unigram(vocab, unk_id=data["unk_id"], byte_fallback=bytes_in_library)
        return model, [token for _, token in added if not token.special]

    def tokens(self, text: str, later: bool = False) -> tuple[list[int], Spans]:
        """The ids of a text, and the characters of it that each stands for. later: something stands before it."""
        if self.rules is None:
            found = encoded(self.later if later else self.library, text)
            return self._true(found.ids), found.offsets
        code = re.match(r">>.*?<<", text) if self._listed else None
        if code:
            ids, spans = self.tokens(text[code.end() :], later)
            shifted = [(start + code.end(), end + code.end()) for start, end in spans]
            return [self._listed.get(code[0], self._unknown), *ids], [code.span(), *shifted]
        spelled, places = self.rules.normalised(text)
        found = encoded(self.library, spelled)
        ids, spans = [], []
        for id, (first, last) in zip(found.ids, found.offsets, strict=True):
            if self._bytes and id == self._unknown:
                for place in range(first, last):
                    bytes_ = [self._bytes[byte] for byte in spelled[place].encode()]
                    ids += bytes_
                    spans += [(places[place], places[place + 1])] * len(bytes_)
            else:
                ids.append(id)
                spans.append((places[first], places[last]))
        ids = self._true(ids)
        if self._listed:  # what one side has no piece for may be a piece of the other
            for place, (first, last) in enumerate(found.offsets):
                ids[place] = self._listed.get(spelled[first:last], ids[place])
        return ids, spans

    def _true(self, ids: list[int]) -> list[int]:
        found = [self._ids.get(id, id) for id in ids] if self._ids else ids
        wrong = next((id for id in found if id in self._beyond), None) if self._beyond else None
        if wrong is not None:
            raise InputError(
                f"the text has {self._beyond[wrong]!r}, token {wrong}, and the model knows 0 to {self.size - 1}; "
                "leave it out"
            )
        return found


def add_tokens(library: Library, added: Sequence[AddedToken]) -> None:
    """Add tokens in their order, many at a time."""
    for special, some in itertools.groupby(added, lambda token: token.special):
        (library.add_special_tokens if special else library.add_tokens)(list(some))


def encoded(library: Library, text: str, special: bool = False) -> Encoding:
    """The library's encoding of a text. Raises InputError where it has no token for a part of it."""
    with encoding():
        return library.encode(text, add_special_tokens=special)


def _never_first(library: Library) -> PreTokenizer:
    """The library tokenizer's pre-tokenizer with no blank before the first word."""
    state = json.loads(library.pre_tokenizer.__getstate__())
    for step in state["pretokenizers"] if state["type"] == "Sequence" else [state]:
        if step.get("prepend_scheme") == "first":
            step["prepend_scheme"] = "never"
    stub = json.loads(Library(models.BPE()).to_str()) | {"pre_tokenizer": state}
    return Library.from_str(json.dumps(stub)).pre_tokenizer


def _decoder_of(library: Library) -> decoders.Decoder | None:
    """The decoder that belongs to a tokenizer which came without one, by how it cuts a text; None: pieces are words."""
    cut = str(library.pre_tokenizer)
    if "ByteLevel" in cut:
        return decoders.ByteLevel()
    if isinstance(library.model, models.WordPiece):
        return decoders.WordPiece(library.model.continuing_subword_prefix)
    return decoders.Metaspace() if "Metaspace" in cut else None


class Spelling:
    """What a tokenizer's decoder makes of each piece. drops: it drops the blank at the beginning of a text."""

    def __init__(self, library: Library) -> None:
        self.decoder = library.decoder or _decoder_of(library)
        state = None if self.decoder is None else json.loads(self.decoder.__getstate__())
        steps = [] if state is None else state["decoders"] if state["type"] == "Sequence" else [state]
        self.kinds = {step["type"]: step for step in steps}
        self.replaced = [step for step in steps if step["type"] == "Replace"]
        unknown = self.kinds.keys() - DECODERS
        if unknown or any("String" not in step["pattern"] for step in self.replaced):
            raise UnsupportedError(
                f"a tokenizer whose decoder is {', '.join(sorted(unknown) or self.kinds)} is not read"
            )
        self.spaced = not steps  # pieces are words
        metaspace = self.kinds.get("Metaspace", {"prepend_scheme": "never"})
        strip = self.kinds.get("Strip", {"start": 0, "content": " "})
        first = metaspace.get("prepend_scheme", "always") != "never" or (strip["content"] == " " and strip["start"] > 0)
        self.drops = self.spaced or "WordPiece" in self.kinds or first

    def of(self, piece: str) -> bytes:
        """The bytes that a piece stands for within a text."""
        if self.spaced:
            return f" {piece}".encode()
        byte = BYTE.fullmatch(piece)
        if byte and "ByteFallback" in self.kinds:
            return bytes([int(byte[1], 16)])
        if "ByteLevel" in self.kinds:
            table = byte_of_symbol()
            return bytes(table[c] for c in piece) if all(c in table for c in piece) else piece.encode()
        if "WordPiece" in self.kinds:
            return self.decoder.decode(["a", piece])[1:].encode()
        if "Metaspace" in self.kinds:
            return piece.replace(self.kinds["Metaspace"]["replacement"], " ").encode()
        for step in self.replaced:
            piece = piece.replace(step["pattern"]["String"], step["content"])
        return piece.encode()
