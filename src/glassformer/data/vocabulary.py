"""How the four kinds of tokenizer are made: their settings, and the training of their vocabularies.

Every vocabulary ends with the special end token. A kind's own pieces cover every text (a character tokenizer's cover
its corpus), so no kind has an "unknown" token in its output.
"""

from __future__ import annotations

import functools
import json
import re
import string
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, pre_tokenizers, trainers

from ..errors import InputError, SettingError
from ..spec import Spec
from .text import documents, training_part

END = "<|end|>"

# Where bpe and unigram cut a text before they look for pieces. A word takes its combining marks and one space before
# it; digits go in pairs, so that a small vocabulary does not fill up with numbers; runs have an upper length, since a
# rule of 200 dashes or 500 spaces would otherwise become a piece, and take quadratic time on the way. A line break
# never shares a piece with something visible after it: this is what lets a corpus be read in blocks of lines.
WORDS = "|".join(
    (
        r"'(?i:[sdmt]|ll|re|ve)(?!\p{L})",  # it's, we'll: the English short forms
        r" ?\p{L}[\p{L}\p{M}]{0,63}",  # a word in any script, decomposed or not
        r"\p{N}{1,2}",
        r"[^\S\r\n]{0,16}[\r\n]{1,16}",  # line breaks, with the blanks that end the line
        r" ?[^\s\p{L}\p{N}]{1,16}[\r\n]{0,4}",  # punctuation, symbols, emoji with their joiners
        r"\s{1,15}(?!\S)",  # all but the last blank of an indentation; the last belongs to the word
        r"\s",
    )
)
_ASCII = sorted(c for c in string.printable if c not in "\r\x0b\x0c")
_LEAST = {"byte": 257, "char": 2, "bpe": 257, "unigram": 256 + len(_ASCII) + 1}


class TokenizerSpec(Spec, frozen=True, tag="tokenizer"):
    """Settings of a tokenizer.

    method: byte (256 bytes), char (the characters of the corpus), bpe (frequent pairs of bytes merged), unigram (the
    pieces under which the corpus is most probable, with single bytes for everything else), or file: nothing is learnt,
    the tokenizer is the one at `path`, vocabulary and end token included.
    vocab: the number of tokens, the end token included. For char it is an upper limit, for byte it is always 257; a
    corpus too small for it gives fewer.
    end: the text of the special token that stands before every document and starts a generation, written <|…|>.
    path: a tokenizer.json, or a model folder that holds one.
    """

    method: Literal["byte", "char", "bpe", "unigram", "file"] = "bpe"
    vocab: int = 8192
    end: str = END
    path: str | None = None

    def __post_init__(self) -> None:
        if self.method == "file":
            if self.path is None:
                raise SettingError("path: method=file needs the path of a tokenizer.json, or of a model that holds one")
            return
        if self.path is not None:
            raise SettingError(f"path: method={self.method} reads no tokenizer; set method=file too, or path=null")
        least = _LEAST[self.method]
        if not least <= self.vocab <= 1 << 24:
            raise SettingError(f"vocab: {self.vocab} is not allowed with method={self.method}; use {least} or more")
        word = self.end[2:-2]
        if not (self.end.startswith("<|") and self.end.endswith("|>") and word.isidentifier() and word.isascii()):
            # Of this form no piece of a corpus can have it: WORDS cuts between symbols and letters.
            raise SettingError(f"end: {self.end!r} is not allowed; write a word between <| and |>, for example {END}")


Texts = Callable[[], Iterator[str]]  # the text to learn from, in pieces; called anew for every reading


def trained(spec: TokenizerSpec, source: Path | str, validation: float | Path | str = 0.0) -> tokenizers.Tokenizer:
    """The library tokenizer trained on a file or folder but for what is held out (see `train_tokenizer`).

    Raises InputError for a source that cannot be read (see `documents`) or does not fit the settings.
    """
    library = _MAKERS[spec.method](spec, _texts(spec, source, validation))
    library.add_special_tokens([AddedToken(spec.end, special=True, normalized=False)])
    return library


def _texts(spec: TokenizerSpec, source: Path | str, validation: float | Path | str) -> Texts:
    """What a tokenizer reads: the part that is trained on; all there is for the characters."""
    if spec.method == "char":
        both = (source,) if isinstance(validation, int | float) else (source, validation)
        return lambda: (text for one in both for text in documents(one))
    most = None
    if isinstance(validation, int | float) and validation and spec.method != "byte":
        most = training_part(sum(map(len, documents(source))), validation)
    return lambda: documents(source, most=most)


@functools.cache
def byte_of_symbol() -> dict[str, int]:
    """The printable character by which byte-level vocabularies write each byte, to the byte."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    symbols = {chr(byte): byte for byte in printable}
    return symbols | {chr(256 + place): byte for place, byte in enumerate(others)}


def _byte(spec: TokenizerSpec, texts: Texts) -> tokenizers.Tokenizer:
    """Every byte is a token, its id the byte's value."""
    library = tokenizers.Tokenizer(models.BPE(dict(byte_of_symbol()), []))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    library.decoder = decoders.ByteLevel()
    return library


def _char(spec: TokenizerSpec, texts: Texts) -> tokenizers.Tokenizer:
    """Every character of the corpus is a token, in the order of the code points."""
    known: set[str] = set()
    for text in texts():
        known.update(text)
    if len(known) + 1 > spec.vocab:
        raise InputError(
            f"vocab: the corpus has {len(known)} different characters, with the end token more than {spec.vocab}; "
            f"set tokenizer.vocab={len(known) + 1} or more, or tokenizer.method=bpe"
        )
    library = tokenizers.Tokenizer(models.WordLevel({c: id for id, c in enumerate(sorted(known))}))
    library.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    library.decoder = decoders.Fuse()
    return library


def _bpe(spec: TokenizerSpec, texts: Texts) -> tokenizers.Tokenizer:
    """Bytes, and the pairs that were merged in the order of their frequency (Sennrich et al. 2016, on bytes)."""
    library = tokenizers.Tokenizer(models.BPE())
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    library.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(WORDS), "isolated"), to_bytes])
    library.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=spec.vocab - 1, min_frequency=2, initial_alphabet=alphabet, special_tokens=[], show_progress=False
    )
    library.train_from_iterator(texts(), trainer)
    return library


def _unigram(spec: TokenizerSpec, texts: Texts) -> tokenizers.Tokenizer:
    """Pieces with their log-probabilities (Kudo 2018); what no piece covers becomes bytes."""
    learner = tokenizers.Tokenizer(models.Unigram())
    learner.pre_tokenizer = pre_tokenizers.Split(Regex(WORDS), "isolated")
    room = spec.vocab - 257
    trainer = trainers.UnigramTrainer(
        vocab_size=room + 1, special_tokens=["<unk>"], unk_token="<unk>", show_progress=False
    )
    learner.train_from_iterator(_frequent(texts, room // 2), trainer)
    pieces = _chosen(dict(json.loads(learner.to_str())["model"]["vocab"][1:]), room)
    # No text can spell the piece of a byte, since WORDS cuts between the signs, letters and digits of "<0x41>".
    spelled = [(f"<0x{byte:02X}>", 0.0) for byte in range(256)]
    # unk_id only has to be some id: what it would stand for is always spelled out in bytes.
    library = tokenizers.Tokenizer(models.Unigram(spelled + pieces, unk_id=0, byte_fallback=True))
    library.pre_tokenizer = pre_tokenizers.Split(Regex(WORDS), "isolated")
    library.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    return library


def _chosen(scores: dict[str, float], room: int) -> list[tuple[str, float]]:
    """The best `room` pieces, printable ASCII always among them, with the same scores in every run.

    The trainer walks through randomly seeded hash maps. So its sums differ in their last digits, and the characters
    that only ever occurred inside longer pieces get scores 0.0001 apart, upwards from the lowest, in a random order.
    """
    least = min(scores.values())
    settled = dict.fromkeys(_ASCII, round(least, 6))
    for piece, score in scores.items():
        steps = (score - least) / 1e-4
        leftover = len(piece) == 1 and abs(steps - round(steps)) < 1e-6
        settled[piece] = round(least if leftover else score, 6)
    ranked = sorted(settled.items(), key=lambda pair: (pair[0] not in _ASCII, -pair[1], pair[0]))
    return sorted(ranked[:room], key=lambda pair: (-pair[1], pair[0]))


def _frequent(texts: Texts, most: int) -> Iterator[str]:
    """The corpus with only its `most` frequent characters; a blank stands for the others, which will be bytes.

    Without this, a corpus with many rare characters would leave no room for words. NUL is left out as well: with it
    the trainer separates words.
    """
    counts: Counter[str] = Counter()
    for text in texts():
        counts.update(text)
    ranked = sorted(counts, key=lambda c: (-counts[c], c))
    rare = "".join(sorted({*ranked[most:], "\0"}))
    pattern = re.compile(f"[{re.escape(rare)}]")
    return (pattern.sub(" ", text) for text in texts())


_MAKERS = {"byte": _byte, "char": _char, "bpe": _bpe, "unigram": _unigram}
