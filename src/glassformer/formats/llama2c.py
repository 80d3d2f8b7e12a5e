"""Decoders in the llama2.c format: seven whole numbers, then fp32 weights in a fixed order; and the tokenizer beside
it, `tok*.bin`, pieces with the score by which pairs are merged.
"""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import tokenizers
import torch
from tokenizers import AddedToken, decoders, models, normalizers

from ..data.tokenizer import Tokenizer
from ..data.vocabulary import END
from ..errors import CheckpointError
from ..mixers.attention import AttentionSpec
from ..model import BlockSpec, ModelSpec
from ..nn.channel import GatedSpec
from ..nn.head import HeadSpec
from ..nn.norm import RMSNormSpec
from ..nn.position import RopeSpec
from .imported import Imported

HEADER = struct.Struct("<7i")
ABOUT = {
    "format": "llama2.c",
    "summary": "A decoder in the llama2.c format",
    "summary_ko": "llama2.c 형식의 디코더",
}
MOST = 1 << 22  # of each number in a header; a file that begins with larger ones is another
BEGIN = 1  # the token before every text


def is_llama2c(path: Path) -> Path | None:
    """The file to read where there is one at `path`: a .bin whose size is what its header says. Raises CheckpointError
    where there is only one whose header is that of a model, and which is shorter or longer."""
    files = [path] if path.is_file() else sorted(path.glob("*.bin")) if path.is_dir() else []
    found = [(file, _sizes(file)) for file in files if file.suffix == ".bin"]
    found = [(file, sizes) for file, sizes in found if sizes is not None]
    for file, sizes in found:
        if _bytes(sizes) == file.stat().st_size:
            return file
    for file, sizes in found:
        raise CheckpointError(
            f"{file} has {file.stat().st_size} bytes and its header tells of a llama2.c model of {_bytes(sizes)}; "
            "fetch it again"
        )
    return None


def _sizes(file: Path) -> tuple[int, ...] | None:
    """The numbers with which a file begins, where they can be those of a model."""
    with file.open("rb") as opened:
        raw = opened.read(HEADER.size)
    if len(raw) < HEADER.size:
        return None
    *widths, vocab, context = HEADER.unpack(raw)
    dim, _, _, heads, kv_heads = widths
    fits = 0 < min(*widths, context) and max(*widths, abs(vocab), context) <= MOST and vocab
    return (*widths, vocab, context) if fits and not dim % heads and not heads % kv_heads else None


def _shapes(sizes: tuple[int, ...]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """(name, shape) of each part of the file in its order; {} stands for the block, whose parts lie together."""
    dim, hidden, blocks, heads, kv_heads, vocab, context = sizes
    kv = dim // heads * kv_heads
    yield "embed.token.weight", (abs(vocab), dim)
    for name, shape in (
        ("mixer_norm.weight", (dim,)),
        ("mixer.q.weight", (dim, dim)),
        ("mixer.k.weight", (kv, dim)),
        ("mixer.v.weight", (kv, dim)),
        ("mixer.out.weight", (dim, dim)),
        ("channel_norm.weight", (dim,)),
        ("channel.gate.weight", (hidden, dim)),
        ("channel.down.weight", (dim, hidden)),
        ("channel.up.weight", (hidden, dim)),
    ):
        yield f"blocks.{{}}.{name}", (blocks, *shape)
    yield "norm.weight", (dim,)
    yield "", (context, dim // heads)  # angles of RoPE, worked out anew here
    if vocab < 0:  # the sign tells that the head has a table of its own
        yield "head.weight", (-vocab, dim)


def _bytes(sizes: tuple[int, ...]) -> int:
    return HEADER.size + 4 * sum(math.prod(shape) for _, shape in _shapes(sizes))


def read_llama2c(path: Path) -> Imported:
    """The model in a file that `is_llama2c` found, with the tokenizer beside it."""
    raw = path.read_bytes()
    sizes = HEADER.unpack(raw[: HEADER.size])
    dim, hidden, blocks, heads, kv_heads, vocab, context = sizes
    numbers, at, tensors = torch.from_numpy(np.frombuffer(raw, "<f4", offset=HEADER.size).copy()), 0, {}
    for name, shape in _shapes(sizes):
        part = numbers[at : at + math.prod(shape)].view(shape)
        at += part.numel()
        if "{}" in name:
            tensors |= {name.format(i): one for i, one in enumerate(part)}
        elif name:
            tensors[name] = part
    norm = RMSNormSpec(eps=1e-5)
    block = BlockSpec(
        mixer=AttentionSpec(heads=heads, kv_heads=kv_heads, position=RopeSpec(pairing="neighbours")),
        channel=GatedSpec(hidden=hidden),
        norm=norm,
    )
    spec = ModelSpec(
        vocab=abs(vocab),
        dim=dim,
        blocks=(block,) * blocks,
        context=context,
        norm=norm,
        head=HeadSpec(tied=vocab > 0),
    )
    return Imported(spec, tensors, _tokenizer(path.parent, abs(vocab)), about=ABOUT)


def _tokenizer(folder: Path, vocab: int) -> Tokenizer:
    """The tok*.bin in a folder as byte-pair merges: of all neighbours the pair with the best score is merged first."""
    files = sorted(folder.glob("tok*.bin"))
    if len(files) != 1:
        raise CheckpointError(f"{folder}: a model of llama2.c needs one tok*.bin beside it, and there are {len(files)}")
    pieces = _pieces(files[0], vocab)
    ids = {piece: id for id, (piece, _) in enumerate(pieces)}
    scores = dict(pieces)
    pairs = [
        (-scores[piece], ids[piece], (piece[:cut], piece[cut:]))
        for piece in ids
        for cut in range(1, len(piece))
        if piece[:cut] in ids and piece[cut:] in ids and not piece.startswith("<")
    ]
    merges = [pair for *_, pair in sorted(pairs)]
    library = tokenizers.Tokenizer(models.BPE(ids, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=False))
    library.normalizer = normalizers.Prepend(" ")  # every text begins like a word within it
    library.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    library.add_special_tokens([AddedToken(one, special=True, normalized=False) for one in ("<unk>", "</s>", END)])
    return Tokenizer(library)


def _pieces(path: Path, vocab: int) -> list[tuple[str, float]]:
    """(piece, score) of each id: the length of the longest, then score, length and bytes of each."""
    raw, at, found = path.read_bytes(), 4, []
    names = {0: "<unk>", BEGIN: END, 2: "</s>"}
    try:
        for id in itertools.count():
            if at == len(raw):
                break
            score, size = struct.unpack_from("<fi", raw, at)
            at += 8 + size
            found.append((names.get(id, raw[at - size : at].decode()), score))
    except (struct.error, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path} is broken or truncated ({error}); restore it from a copy") from None
    if len(found) != vocab or len({piece for piece, _ in found}) != vocab:
        raise CheckpointError(f"{path}: it has {len(found)} pieces and the model knows {vocab}")
    return found
