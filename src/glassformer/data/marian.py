"""The files of Marian's two tokenizers: a SentencePiece model for each side, and a list of ids, or one each."""

from __future__ import annotations

from pathlib import Path

from ..errors import CheckpointError
from ..files import read_object

NEEDED = ("source.spm", "target.spm", "vocab.json")
TARGET, SETTINGS = "target_vocab.json", "tokenizer_config.json"


def marian_files(folder: Path) -> dict[str, bytes]:
    """Their content by name, with what stands beside them; none where one is missing. transformers makes its tokenizer
    anew of them; no other form has both sides."""
    if not all((folder / name).is_file() for name in NEEDED):
        return {}
    paths = [folder / name for name in (*NEEDED, TARGET, SETTINGS, "special_tokens_map.json")]
    return {path.name: path.read_bytes() for path in paths if path.is_file()}


def pieces_of(folder: Path, side: str) -> list[str]:
    """The pieces of a side ("source" or "target") in the order of their ids; with `separate_vocabs` the target has a
    list of its own. Raises CheckpointError where that is missing or broken."""
    apart = side == "target" and bool(read_object(folder / SETTINGS).get("separate_vocabs"))
    path = folder / (TARGET if apart else NEEDED[-1])
    ids = read_object(path, needed=True)
    if sorted(ids.values()) != list(range(len(ids))) or "<unk>" not in ids:
        raise CheckpointError(f"{path}: its ids are not 0 to {len(ids) - 1}, or it has no <unk>")
    return sorted(ids, key=ids.__getitem__)
