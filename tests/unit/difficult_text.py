"""Texts that break careless tokenizers and tables, and tokenizers small enough to train in every test run."""

import functools
import random
import tempfile
import unicodedata
from pathlib import Path

from glassformer.data.tokenizer import Tokenizer, TokenizerSpec, train_tokenizer

SYLLABLES = "".join(map(chr, range(0xAC00, 0xD7A4)))
JAMO = "".join(
    map(chr, [*range(0x1100, 0x1200), *range(0x3131, 0x318F), *range(0xA960, 0xA97D), *range(0xD7B0, 0xD7FC)])
)
SENTENCES = [
    "고양이가 생선을 먹었다.",
    "The quick brown fox doesn't jump over 1234567 lazy dogs; it's 3.14!",
    "  들여쓰기와  두 칸,\t탭,\r\n줄 끝 \n\n\n빈 줄\n",
    "x = {'a': [1, 2], 'b': None}  # 주석\n        return x\n",
    "-" * 70 + "\n" + " " * 70 + "끝",
]
JOINED = ["👨‍👩‍👧‍👦", "👩🏽‍💻 👍🏿", "🏳️‍🌈🏴󠁧󠁢󠁥󠁮󠁧󠁿", "🇰🇷🇫🇷🇰", "❤️‍🔥", "1️⃣ #️⃣", "क्षत्रिय নমস্কার", "e\u0301\u0323 ñ", "שָׁלוֹם مرحبا"]
LITERAL = [
    "<|end|>",
    "a<|end|>b",
    "<0x41><0xE3>",
    "<unk>",
    "▁Ġ⟨E3⟩",
    "[UNK]</s>",
    "\0",
    "\ufeffa",
    "\ufffd",
    "\u3000",
    "",
]
DIFFICULT = [
    *SENTENCES,
    *(unicodedata.normalize("NFD", text) for text in SENTENCES),
    *JOINED,
    *LITERAL,
    "\u0301",
    "\u1161\u11a8",
    "\u200d",
    "한\u200d글",
    "\u202eabc",
    "\U0010ffff\U000e0001\ue000",
]
METHODS = ["byte", "char", "bpe", "unigram"]


@functools.cache
def random_strings(count: int = 10_000) -> list[str]:
    """Strings of 0 to 12 characters from all planes, rich in marks, jamo, joiners and blanks; always the same ones."""
    generator = random.Random(20)
    ranges = [
        (0x00, 0x80), (0x80, 0x300), (0x300, 0x370), (0x900, 0xE00), (0x1100, 0x1200), (0x2000, 0x2070),
        (0xAC00, 0xD7A4), (0x370, 0xD800), (0xE000, 0x10000), (0xFE00, 0xFE10), (0x1F1E6, 0x1F200),
        (0x1F300, 0x1FB00), (0x10000, 0x110000),
    ]  # fmt: skip
    often = " \n\r\t\u200d\ufe0f\u0301각a"

    def character() -> str:
        if generator.random() < 0.3:
            return generator.choice(often)
        return chr(generator.randrange(*generator.choice(ranges)))

    return ["".join(character() for _ in range(generator.randrange(13))) for _ in range(count)]


@functools.cache
def tokenizer(method: str) -> Tokenizer:
    """A small tokenizer of that method; the character tokenizer knows every character of the texts above."""
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder) / "corpus.txt"
        text = "\n".join(SENTENCES) * 20
        if method == "char":
            text += SYLLABLES + JAMO + "".join(DIFFICULT) + unicodedata.normalize("NFD", SYLLABLES)
            text += "".join(random_strings())
        corpus.write_text(text, encoding="utf-8", newline="")
        vocab = {"byte": 257, "char": 1 << 20, "bpe": 380, "unigram": 400}[method]
        return train_tokenizer(TokenizerSpec(method=method, vocab=vocab), corpus)
