"""A corpus as one memory-mapped file of token ids, and the windows that training cuts from it.

`pack` reads and encodes a corpus as a stream, so that it may be larger than memory. Windows are a function of
(seed, step) alone: a training that resumes at step 700 sees what it would have seen, and no generator is stored.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import CheckpointError, InputError
from ..files import replacing, write_json
from .text import pieces, text_files, training_part
from .tokenizer import Tokenizer

FORMAT = 2
_BLOCK_CHARS = 1 << 13  # measured: smaller blocks encode a third faster than those of 32,768 characters
_BATCH_BLOCKS = 128  # encoded together, on all cores


@dataclass(frozen=True)
class Packed:
    """The token ids of a corpus.

    train, validation: read-only arrays [t] on disk (uint16 or uint32). train_bytes, validation_bytes: the bytes of
    UTF-8 text they stand for, which turn a loss per token into bits per byte. train_documents, validation_documents:
    the end tokens in each, one before every document. fingerprint: of corpus and tokenizer.
    """

    train: np.ndarray
    validation: np.ndarray
    train_bytes: int
    validation_bytes: int
    train_documents: int
    validation_documents: int
    fingerprint: str
    folder: Path

    @classmethod
    def open(cls, folder: Path | str) -> Packed:
        """What `pack` wrote into a folder. Raises CheckpointError where it is missing, broken or truncated."""
        folder = Path(folder)
        try:
            index = json.loads((folder / "index.json").read_text(encoding="utf-8"))
            assert index["format"] == FORMAT
            count = index["train_tokens"] + index["validation_tokens"]
            tokens = np.memmap(folder / index["file"], dtype=index["dtype"], mode="r")
            assert len(tokens) == count
        except (OSError, ValueError, KeyError, TypeError, AssertionError, RecursionError) as error:
            what = str(error) or "its length is not the one in index.json"
            raise CheckpointError(f"{folder}: no whole packed corpus ({what}); delete it and pack again") from None
        split = index["train_tokens"]
        counts = [index[f"{part}_{what}"] for what in ("bytes", "documents") for part in ("train", "validation")]
        return cls(tokens[:split], tokens[split:], *counts, index["fingerprint"], folder)


def pack(
    source: Path | str,
    tokenizer: Tokenizer,
    folder: Path | str,
    validation: float | Path | str = 0.1,
    progress: Callable[[int, int], None] | None = None,
    approve: Callable[[str], None] | None = None,
) -> Packed:
    """Encode a file or folder into `folder`; an unchanged corpus with the same tokenizer is not encoded again.

    validation: the share of the characters, from the end, that is held out, or the path of a corpus of its own. The end
    token stands before every file, and before what is held out of the one that is parted. progress: called with the
    bytes encoded so far and in all. approve: called with the fingerprint before anything is written; what it raises
    leaves the folder as it was.
    Raises InputError for a source that cannot be read or encoded, or a share that is not from 0 to below 1.
    """
    folder = Path(folder)
    corpora = [Path(source)] if isinstance(validation, int | float) else [Path(source), Path(validation)]
    share = validation if isinstance(validation, int | float) else 0
    if not 0 <= share < 1:
        raise InputError(f"validation: {validation} is not allowed; give a share from 0 to below 1, or a path")
    files = [text_files(corpus) for corpus in corpora]
    asked = {"share": share, "tokenizer": tokenizer.fingerprint, "format": FORMAT}
    seen = [[_facts(path) for path in paths] for paths in files]
    reused = _reusable(folder, asked, seen)
    if reused:
        if approve:
            approve(reused.fingerprint)
        return reused
    counts = [_counts(corpus, paths) for corpus, paths in zip(corpora, files, strict=True)]
    contents = [[digest for _, _, digest in count] for count in counts]
    fingerprint = hashlib.sha256(json.dumps([asked, contents]).encode()).hexdigest()[:16]
    if approve:
        approve(fingerprint)
    total = sum(size for count in counts for _, size, _ in count)
    chars = sum(count for count, _, _ in counts[0])
    parts = (
        [_halves(files[0], training_part(chars, share))] if len(files) == 1 else [_whole(files[0]), _whole(files[1])]
    )
    return _write(folder, parts, tokenizer, {"fingerprint": fingerprint, "asked": asked, "seen": seen}, total, progress)


def _write(
    folder: Path,
    parts: list[Iterator[tuple[int, str]]],
    tokenizer: Tokenizer,
    index: dict[str, Any],
    total: int,
    progress: Callable[[int, int], None] | None,
) -> Packed:
    """Encode the parts into a new file, then the index that names it; an interruption leaves the old pair whole."""
    dtype = np.dtype(np.uint16 if tokenizer.vocab_size <= 1 << 16 else np.uint32)
    name = f"tokens-{index['fingerprint']}.bin"
    tokens, sizes, documents = [0, 0], [0, 0], [0, 0]
    if progress:
        progress(0, total)
    with replacing(folder / name) as temporary, temporary.open("wb") as file:
        for number, part in enumerate(parts):
            for split, ids, size in _encoded(part, tokenizer):
                half = max(split, number)
                ids.astype(dtype).tofile(file)
                tokens[half] += len(ids)
                sizes[half] += size
                documents[half] += not size
                if progress:
                    progress(sum(sizes), total)
    index |= {"format": FORMAT, "file": name, "dtype": dtype.name}
    index |= {"train_tokens": tokens[0], "validation_tokens": tokens[1]}
    index |= {"train_bytes": sizes[0], "validation_bytes": sizes[1]}
    index |= {"train_documents": documents[0], "validation_documents": documents[1]}
    write_json(folder / "index.json", index)
    for old in folder.glob("tokens-*.bin"):
        if old.name != name and re.fullmatch(r"tokens-[0-9a-f]{16}\.bin", old.name):
            old.unlink()
    return Packed.open(folder)


_BEGIN = ""  # stands for the end token before a document; no piece of text is empty


def _whole(paths: list[Path]) -> Iterator[tuple[int, str]]:
    """The pieces of the files, all in split 0, with _BEGIN before each file; one without text is no document."""
    for path in paths:
        for place, piece in enumerate(pieces(path, _BLOCK_CHARS)):
            if not place:
                yield 0, _BEGIN
            yield 0, piece


def _halves(paths: list[Path], first: int) -> Iterator[tuple[int, str]]:
    """The pieces as (split, text): 0 for the first `first` characters, 1 for the rest, which begins a document."""
    done, begun = 0, False
    for _, piece in _whole(paths):
        if piece == _BEGIN:
            begun = done >= first
            yield int(begun), piece
            continue
        cut = max(0, min(first - done, len(piece)))
        done += len(piece)
        if cut:
            yield 0, piece[:cut]
        if cut < len(piece):
            if not begun:
                yield 1, _BEGIN
            begun = True
            yield 1, piece[cut:]


def _encoded(part: Iterable[tuple[int, str]], tokenizer: Tokenizer) -> Iterator[tuple[int, np.ndarray, int]]:
    """(split, ids, bytes of text) for each piece, encoded in batches."""
    waiting: list[tuple[int, str]] = []

    def flush() -> Iterator[tuple[int, np.ndarray, int]]:
        arrays = tokenizer.ids_arrays([text for _, text in waiting])
        for (split, text), ids in zip(waiting, arrays, strict=True):
            end = np.array([tokenizer.end_id]) if text == _BEGIN else ids
            yield split, end, len(text.encode())
        waiting.clear()

    for piece in part:
        waiting.append(piece)
        if len(waiting) == _BATCH_BLOCKS:
            yield from flush()
    yield from flush()


def _facts(path: Path) -> list[Any]:
    """What tells cheaply that a file is unchanged."""
    status = path.stat()
    return [str(path.resolve()), status.st_size, status.st_mtime_ns]


def _counts(corpus: Path, paths: list[Path]) -> list[tuple[int, int, str]]:
    """`_count` of each file that holds text. Raises InputError where none does."""
    counts = [count for count in map(_count, paths) if count[0]]
    if not counts:
        raise InputError(f"{corpus}: empty; there is no text in it")
    return counts


def _count(path: Path) -> tuple[int, int, str]:
    """The characters, bytes and hash of the text in a file."""
    chars, size, digest = 0, 0, hashlib.blake2b(digest_size=16)
    for piece in pieces(path, 1 << 20):
        data = piece.encode()
        chars, size = chars + len(piece), size + len(data)
        digest.update(data)
    return chars, size, digest.hexdigest()


def _reusable(folder: Path, asked: dict[str, Any], seen: list[Any]) -> Packed | None:
    """The packed corpus in `folder` if it is whole and was made from the same files in the same way."""
    try:
        index = json.loads((folder / "index.json").read_text(encoding="utf-8"))
        same = index["asked"] == asked and index["seen"] == seen
        return Packed.open(folder) if same else None
    except (OSError, ValueError, KeyError, TypeError, CheckpointError, RecursionError):
        return None


@dataclass(frozen=True)
class Beginnings:
    """Windows that begin as documents do: behind the end token, and where they can with a document, line or word.

    share: of all windows. end_id: the end token. after: for each token id how well a document may begin behind it, 3
    for the end token, 2 for what ends a line, 1 for what ends in a blank, else 0. blank: whether it begins with one.
    """

    share: float
    end_id: int
    after: np.ndarray
    blank: np.ndarray

    @classmethod
    def of(cls, tokenizer: Tokenizer, share: float) -> Beginnings:
        """With the tables of a tokenizer's tokens."""
        known = list(map(tokenizer.piece_bytes, range(tokenizer.vocab_size)))
        after = np.array([2 if one.endswith(b"\n") else int(one[-1:].isspace()) for one in known])
        after[tokenizer.end_id] = 3
        return cls(share, tokenizer.end_id, after, np.array([one[:1].isspace() for one in known]))

    def chosen(self, numbers: np.ndarray) -> np.ndarray:
        """Which of the windows with these numbers, from 0 on, begin so: exactly the share, evenly spread."""
        return np.floor((numbers + 1) * self.share) > np.floor(numbers * self.share)

    def window(self, tokens: np.ndarray, start: int, block: int) -> np.ndarray:
        """The window [t+1] that begins behind the first of the best places among the `block` tokens from `start` on."""
        near = np.asarray(tokens[start : min(start + block, len(tokens) - block) + 1], dtype=np.int64)
        start += int(np.where(self.blank[near[1:]], 0, self.after[near[:-1]]).argmax())
        found = np.asarray(tokens[start : start + block + 1], dtype=np.int64)
        found[0] = self.end_id
        return found


def batch_at(
    tokens: np.ndarray, step: int, batch: int, block: int, seed: int, begin: Beginnings | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and targets of one training step: int64 arrays [b, t], `batch` windows of `block` tokens.

    Windows are drawn without replacement: each epoch cuts the corpus into windows from a random place on and takes
    each once, in random order; those that `begin` chooses give way to one that begins as a document does. The targets
    are the inputs shifted by one token. The same (seed, step) gives the same windows. Raises InputError where the
    corpus is not longer than a block.
    """
    if len(tokens) <= block:
        raise InputError(
            f"the corpus has {len(tokens)} tokens, too few for windows of {block} and the token after each; "
            f"give more text, or a block of at most {max(len(tokens) - 1, 1)}"
        )
    count = max((len(tokens) - 1) // block - 1, 1)  # a window fewer than fit, so that an epoch can begin anywhere
    number = step * batch + np.arange(batch)
    starts = np.array([_starts(len(tokens), count, block, seed, int(n // count))[n % count] for n in number])
    places = starts[:, None] + np.arange(block + 1)  # b t+1
    window = np.asarray(tokens[places], dtype=np.int64)
    for row in np.flatnonzero(begin.chosen(number)) if begin else ():
        window[row] = begin.window(tokens, int(starts[row]), block)
    return window[:, :-1], window[:, 1:]


@functools.lru_cache(maxsize=2)
def _starts(length: int, count: int, block: int, seed: int, epoch: int) -> np.ndarray:
    """Where the `count` windows of an epoch begin, in the order they are taken."""
    rng = np.random.default_rng([seed, epoch])
    first = rng.integers(length - count * block)
    return first + block * rng.permutation(count)


def blocks(tokens: np.ndarray, block: int, batch: int = 32) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Inputs and targets over a whole split, for evaluation: every token but the first is a target exactly once.

    Yields int64 arrays [b, t] with b up to `batch` and t = `block`; what is left at the end comes as one shorter row.
    Raises InputError where there are fewer than two tokens.
    """
    if len(tokens) < 2:
        raise InputError(f"the split has {len(tokens)} tokens, and a prediction needs two; give more text")
    rows = (len(tokens) - 1) // block
    for first in range(0, rows, batch):
        count = min(batch, rows - first)
        span = np.asarray(tokens[first * block : (first + count) * block + 1], dtype=np.int64)
        yield span[:-1].reshape(count, block), span[1:].reshape(count, block)
    rest = np.asarray(tokens[rows * block :], dtype=np.int64)
    if len(rest) > 1:
        yield rest[None, :-1], rest[None, 1:]
