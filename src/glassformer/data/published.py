"""Tokenizers that came with a published model, by the ids that they give there and the places in the text as given.

Some of them change a text before they cut it up (lower case, composed letters, blanks that are put in or dropped), so
that decoding need not give it back. What is exact here all the same: each token's characters in the text as it was
given. And a special token that somebody typed is text; only what is marked as a prompt (`special=True`) has special
tokens in it.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import AddedToken
from tokenizers import Tokenizer as Library

from ..errors import CheckpointError, InputError
from ..files import read_object, replacing, write_json
from .marian import marian_files
from .panics import told
from .places import in_bytes, joined, located, mended
from .plain import METHODS, Plain, Spelling, encoded
from .sentencepiece import Rules
from .tokenizer import Encoding, StreamDecoder, Tokenizer, _utf8, escaped
from .vocabulary import byte_of_symbol

OWN = "glassformer"  # the key in tokenizer_config.json under which stands what no other program knows
GAPS = 4  # so many times as many ids as pieces there may be, for lists are as long as there are ids
AS_READ = "tokenizer"  # the folder beside a tokenizer.json with the files that it was read from
ROLES = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")


@dataclass(frozen=True)
class Settings:
    """What the files beside a tokenizer.json say.

    names: the text of special tokens by role (bos, eos, unk, sep, pad, cls, mask). ends: the ids that end a text.
    begin: the ids with which the target of an encoder-decoder begins. longest: how many tokens the model was made for.
    padding: the side on which a batch is filled up. template: how a conversation is written, in Jinja.
    rules: the normalisation of a SentencePiece model, which replaces that of the tokenizer.json. size: how many ids the
    model knows, where the tokenizer has further pieces, which are unknown to it.
    """

    names: dict[str, str] = field(default_factory=dict)
    ends: tuple[int, ...] = ()
    begin: tuple[int, ...] = ()
    longest: int | None = None
    padding: str = "right"
    template: str | None = None
    rules: Rules | None = None
    size: int | None = None


class Published(Tokenizer):
    """A published tokenizer. `library` is the tokenizer.json as it was published, `settings` what stands beside it;
    `special`: the special tokens by id."""

    piecewise = False

    def __init__(
        self, library: Library, settings: Settings | None = None, files: Mapping[str, bytes] | None = None
    ) -> None:
        """files: those that it was read from, by name, where they are more than a tokenizer.json can hold."""
        self.files = dict(files or {})
        library.no_padding()
        library.no_truncation()
        self.library, self.settings = library, settings or Settings()
        self.method = METHODS[type(library.model).__name__]
        added = library.get_added_tokens_decoder()
        self.special = {id: token.content for id, token in sorted(added.items()) if token.special}
        self._spelling = Spelling(library)
        self._drops = self._spelling.drops
        self.start, self.closing = self._around()
        self._find_ends()

    # The tables of all pieces are made when they are first needed: a model is loaded faster than they are.

    @functools.cached_property
    def vocab_size(self) -> int:  # type: ignore[override]
        """How many ids there are. Raises CheckpointError for ids far beyond the number of pieces."""
        size, pieces = self.settings.size or 1 + max(self._names, default=-1), len(self._names)
        if size > GAPS * (pieces + 1000):
            raise CheckpointError(f"the tokenizer has {pieces} pieces, and ids up to {size - 1}; fetch its files again")
        return size

    @functools.cached_property
    def _names(self) -> dict[int, str]:
        return {id: text for text, id in self.library.get_vocab(with_added_tokens=True).items()}

    @functools.cached_property
    def _pieces(self) -> list[bytes]:  # type: ignore[override]
        """The bytes that each id stands for."""
        added, names, of = self.library.get_added_tokens_decoder(), self._names, self._spelling.of
        plain = [names.get(id) for id in range(self.vocab_size)]
        return [
            b"" if text is None or id in self.special else added[id].content.encode() if id in added else of(text)
            for id, text in enumerate(plain)
        ]

    @functools.cached_property
    def _piece_bytes(self) -> np.ndarray:  # type: ignore[override]
        return np.array([len(piece) for piece in self._pieces], dtype=np.int64)

    @functools.cached_property
    def _plain(self) -> Plain:
        with told(lambda why: CheckpointError(f"the tokenizer does not work: {why}")):
            return Plain(self.library, self.settings.rules, self.vocab_size)

    def _around(self) -> tuple[list[int], list[int]]:
        """The special ids that the tokenizer puts before and behind every text."""
        try:
            found = encoded(self.library, "a", special=True)
        except InputError as error:
            raise CheckpointError(f"the tokenizer does not work: {error}") from None
        inner = [place for place, mark in enumerate(found.special_tokens_mask) if not mark]
        if not inner:
            return list(found.ids), []
        return found.ids[: inner[0]], found.ids[inner[-1] + 1 :]

    def _find_ends(self) -> None:
        eos, bos = (self.role(role) for role in ("eos", "bos"))
        self.ends = frozenset(self.settings.ends or (self.closing[-1:] if eos is None else [eos]))
        self.end_id = -1 if not self.ends else eos if eos in self.ends else min(self.ends)
        self.end = "" if self.end_id < 0 else self.library.id_to_token(self.end_id) or ""
        self.begin = list(self.settings.begin) or self.start or [one for one in (bos, eos) if one is not None][:1]
        self.empty = self.start or self.begin

    def role(self, role: str) -> int | None:
        """The id of the special token in a role (ROLES); None where there is none."""
        text = self.settings.names.get(role)
        return None if text is None else self.library.token_to_id(text)

    @property
    def lossless(self) -> bool:  # type: ignore[override]
        """Whether nothing in it changes a text; where something does, `decode` may give another text back."""
        if self.library.normalizer is not None or self.settings.rules is not None or self._drops:
            return False
        prefixed = "add_prefix_space=True" in str(self.library.pre_tokenizer)
        return not prefixed and all(self.library.token_to_id(symbol) is not None for symbol in byte_of_symbol())

    @functools.cached_property
    def fingerprint(self) -> str:
        """A hash of everything that decides the ids, the same in every process."""
        return hashlib.sha256((self.library.to_str() + json.dumps(_config_of(self.settings))).encode()).hexdigest()

    def encode(self, text: str, start: bool = False, special: bool = False, parting: str = "") -> Encoding:
        """The tokens of `text`; with `start`, behind the special tokens that the model reads before every text.

        special: special tokens that are written in the text are meant, as in a prompt made by a template. Otherwise
        they are text. parting: a sign that is left out, but parts what would else be special (`parted`). Raises
        InputError for a lone surrogate.
        """
        _utf8(text)
        made = Encoding([], [], [])
        for id in self.start if start else []:
            self._append(made, self._marked([id]), 0, 0)
        at = size = 0
        for id, first, last in self._parts(text) if special else [(None, 0, len(text))]:
            part = text[first:last].replace(parting, "") if parting else text[first:last]
            utf8 = part.encode()
            found = self._encoded(part, utf8, at > 0) if id is None else self._marked([id], len(part), len(utf8))
            self._append(made, found, at, size)
            at, size = at + len(part), size + len(utf8)
        return made

    def parted(self, text: str, parting: str) -> str:
        """The text with a sign within all that could be read as special tokens; `encode` leaves it out again."""
        return self._marks.sub(lambda found: found[0][0] + parting + found[0][1:], text) if self.special else text

    def _marked(self, ids: Sequence[int], width: int = 0, size: int = 0) -> Encoding:
        """Special tokens, each of so many characters and bytes."""
        names = {place: self._name_of(id, place) for place, id in enumerate(ids)}
        return Encoding(list(ids), [(0, width)] * len(ids), [(0, size)] * len(ids), names)

    @staticmethod
    def _append(made: Encoding, part: Encoding, first: int, at: int) -> None:
        """Add the tokens of a part that begins at character `first` and byte `at`."""
        count = len(made.ids)
        made.ids.extend(part.ids)
        made.offsets.extend((start + first, end + first) for start, end in part.offsets)
        made.byte_offsets.extend((start + at, end + at) for start, end in part.byte_offsets)
        made.special.update({place + count: name for place, name in part.special.items()})
        made.parts.update({place + count: piece for place, piece in part.parts.items()})

    def _parts(self, text: str) -> Iterator[tuple[int | None, int, int]]:
        """The text cut at the special tokens in it: (the token's id, or None for text; first and last character)."""
        at = 0
        for found in self._marks.finditer(text) if self.special else ():
            start, end = found.span()
            added = self._added[found[0]]
            while added.lstrip and start > at and text[start - 1].isspace():
                start -= 1
            while added.rstrip and end < len(text) and text[end].isspace():
                end += 1
            if start > at:
                yield None, at, start
            yield self.library.token_to_id(found[0]), max(start, at), end
            at = end
        if at < len(text):
            yield None, at, len(text)

    @functools.cached_property
    def _marks(self) -> re.Pattern[str]:
        return re.compile("|".join(map(re.escape, sorted(self.special.values(), key=len, reverse=True))))

    @functools.cached_property
    def _added(self) -> dict[str, AddedToken]:
        return {token.content: token for token in self.library.get_added_tokens_decoder().values()}

    def _encoded(self, text: str, utf8: bytes, later: bool) -> Encoding:
        """The tokens of a text without special ones; later: something stands before it."""
        ids, spans = self._plain.tokens(text, later)
        pieces = [self._pieces[id] for id in ids]
        whole = b"".join(pieces) if self._plain.faithful else b""
        if ids and (whole == utf8 or (whole == b" " + utf8 and pieces[0][:1] == b" ")):
            sizes = self._piece_bytes[ids].astype(np.int64)
            sizes[:1] -= len(whole) - len(utf8)  # a blank that was put in stands for nothing
            return Encoding(ids, *located(text, sizes))
        if self.settings.rules is None:
            normalizer = self.library.normalizer
            spans = mended(text, pieces, spans, str if normalizer is None else normalizer.normalize_str)
        byte_offsets, parts = in_bytes(text, pieces, spans)
        return Encoding(ids, spans, byte_offsets, {}, parts)

    def encoding_of(self, ids: Sequence[int], continues: bool = False) -> tuple[str, Encoding]:
        """The text of ids that came without one, and their Encoding in it. continues: it goes on behind another text,
        so that its first blank stays."""
        ids = list(ids)
        pieces = self._written(ids, continues)
        raw = joined(pieces)
        offsets, byte_offsets = located(raw, np.array([len(piece) for piece in pieces], dtype=np.int64))
        special = {place: self._name_of(id, place) for place, id in enumerate(ids) if not self._pieces[id]}
        return raw, Encoding(ids, offsets, byte_offsets, special)

    def _written(self, ids: Iterable[int], continues: bool) -> list[bytes]:
        """What each id stands for in a text of its own, at whose beginning no blank is put."""
        pieces = list(map(self.piece_bytes, ids))
        first = next((place for place, piece in enumerate(pieces) if piece), None)
        if self._drops and not continues and first is not None:
            pieces[first] = pieces[first].removeprefix(b" ")
        return pieces

    def decode(self, ids: Iterable[int]) -> str:
        """The text of the ids. Special tokens stand for no text; stray bytes are written as their value, ⟨E3⟩."""
        return escaped(joined(self._written(ids, False)))

    def placed(self, text: str, ids: Sequence[int]) -> Encoding | None:
        """The places in `text` of ids that were made of it and of special tokens around it, None for other ids."""
        found, ids = self.encode(text), list(ids)
        for first in range(len(ids) - len(found) + 1):
            if ids[first : first + len(found)] == found.ids:
                break
            if ids[first] not in self.special:
                return None
        else:
            return None
        behind = ids[first + len(found) :]
        if not self.special.keys() >= {*behind}:
            return None
        size = len(text.encode())
        made = Encoding([], [], [])
        for part, place, byte in ((ids[:first], 0, 0), (found, 0, 0), (behind, len(text), size)):
            self._append(made, part if isinstance(part, Encoding) else self._marked(part), place, byte)
        return made

    def stream(self, after: Sequence[int] = ()) -> StreamDecoder:
        """A decoder for ids that arrive one at a time, behind others; behind none that stand for text, the blank that
        was put before the first word is dropped."""
        return StreamDecoder(self, self._drops and not any(self._pieces[id] for id in after if id < self.vocab_size))

    def ids_array(self, text: str) -> np.ndarray:
        """The ids of `encode(text)` as an int64 array [t], without the offsets."""
        _utf8(text)
        return np.array(self._plain.tokens(text)[0], dtype=np.int64)

    def ids_arrays(self, texts: Sequence[str]) -> list[np.ndarray]:
        """`ids_array` of each text."""
        return [self.ids_array(text) for text in texts]

    def spells(self, character: str) -> bool:
        """Whether some text with this character has tokens: always, were it the token for what is unknown."""
        return True

    def _name_of(self, id: int, place: int) -> str:
        """What a reader calls a special token: its own text, or its number where the tokenizer has none for it."""
        return self._names.get(id, f"⟨{id}⟩")

    def within(self, vocab: int, place: Path) -> Tokenizer:
        """The same; tokens that were added to the vocabulary may be beyond what the model knows, as Gemma 3's for an
        image is in the models of text alone, until a text reaches them (`Plain`), and so may the ids of a configuration
        by which a text would end."""
        if max(self.settings.ends, default=0) >= vocab:
            settings = replace(self.settings, ends=tuple(id for id in self.settings.ends if id < vocab))
            return Published(self.library, settings, self.files).within(vocab, place)
        added = self.library.get_added_tokens_decoder()
        needed = {*(id for id in self._names if id not in added), *self.start, *self.closing, *self.ends}
        if self.vocab_size <= vocab or max(needed, default=0) >= vocab:
            return super().within(vocab, place)
        return Published(self.library, replace(self.settings, size=vocab), self.files)

    def save(self, path: Path | str) -> None:
        """Write tokenizer.json and, beside it, tokenizer_config.json, each atomically; a folder gets both."""
        path = Path(path)
        path = path / "tokenizer.json" if path.is_dir() else path
        if self.files:
            self.save_files(path.with_name(AS_READ))
        write_json(_beside(path), _config_of(self.settings))
        with replacing(path) as temporary:
            temporary.write_text(self.library.to_str(), encoding="utf-8")

    def save_files(self, folder: Path) -> None:
        """Write the files that it was read from, as they were."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in self.files.items():
            with replacing(folder / name) as temporary:
                temporary.write_bytes(content)

    @classmethod
    def load(cls, path: Path | str) -> Published:
        """The tokenizer that `save` wrote. Raises CheckpointError for missing or broken files."""
        path = Path(path)
        path = path / "tokenizer.json" if path.is_dir() else path
        kept = marian_files(path.with_name(AS_READ)) if path.stem == "tokenizer" else {}
        return cls(read_library(path), _settings_of(_beside(path)), kept)


def longest(context: int, tokenizer: Tokenizer | None, said: Mapping[str, Any]) -> int:
    """How many tokens of a text are read to make one vector of it, special ones included: what was published
    (`longest`), what the tokenizer was made for, at most the context."""
    given = [said.get("longest"), getattr(getattr(tokenizer, "settings", None), "longest", None)]
    return min(context, *(one for one in given if isinstance(one, int) and one > 0), context)


def read_library(path: Path) -> Library:
    """The library tokenizer in a tokenizer.json. Raises CheckpointError for a missing or broken file."""
    try:
        with told(
            lambda why: CheckpointError(f"{path}: broken or truncated tokenizer file ({why}); restore it from a copy")
        ):
            return Library.from_str(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(f"{path}: there is no such file; a model folder holds a tokenizer.json") from None


def _beside(path: Path) -> Path:
    """tokenizer_config.json beside tokenizer.json, and source_tokenizer_config.json beside source_tokenizer.json."""
    return path.with_name(f"{path.stem}_config.json")


def is_published(path: Path) -> bool:
    """Whether a tokenizer.json is one that `Published.save` wrote."""
    beside = _beside(path)
    return beside.is_file() and OWN in read_object(beside)


def _config_of(settings: Settings) -> dict[str, Any]:
    """The settings as tokenizer_config.json holds them, for other programs too."""
    config: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    config |= {f"{role}_token": text for role, text in settings.names.items()}
    config |= {"padding_side": settings.padding}
    if settings.longest is not None:
        config["model_max_length"] = settings.longest
    if settings.template is not None:
        config["chat_template"] = settings.template
    own: dict[str, Any] = {"ends": settings.ends, "begin": settings.begin, "size": settings.size}
    if settings.rules is not None:
        rules = asdict(settings.rules)
        own["rules"] = rules | {"charsmap": base64.b64encode(settings.rules.charsmap).decode()}
    return config | {OWN: own}


def _settings_of(path: Path) -> Settings:
    config = read_object(path)
    try:
        own = config[OWN]
        rules = own.get("rules")
        if rules is not None:
            several = {name: tuple(rules[name]) for name in ("whole", "silent")}
            rules = Rules(**rules | {"charsmap": base64.b64decode(rules["charsmap"])} | several)
            rules.check()
        names = {role: config[f"{role}_token"] for role in ROLES if f"{role}_token" in config}
        sides = {"longest": config.get("model_max_length"), "padding": config["padding_side"], "size": own["size"]}
        ends, begin = tuple(own["ends"]), tuple(own["begin"])
        return Settings(names, ends, begin, template=config.get("chat_template"), rules=rules, **sides)
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path} is broken or truncated ({error!r}); restore it from a copy") from None
