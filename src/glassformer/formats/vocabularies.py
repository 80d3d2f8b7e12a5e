"""What lies beside CTranslate2's model.bin: its settings and its vocabularies.

A vocabulary is a list of pieces, `shared_vocabulary`, or `source_vocabulary` and `target_vocabulary`, one a line in
.txt or a list in .json. How a text becomes such pieces the format does not say. Where a SentencePiece model lies in
the folder it is asked; letters and words are cut out of a text without it, the longest piece first; pieces with marks
for what they join cannot be.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..data.folder import around
from ..data.published import Published, Settings
from ..data.sentencepiece import read_pieces
from ..data.tokenizer import Tokenizer
from ..errors import CheckpointError, UnsupportedError
from ..files import read_json, read_object
from .imported import listed

DEFAULTS = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "decoder_start_token": "<s>"}
SPECIAL = ("<blank>", "<pad>", "<s>", "</s>", "<unk>")
MARKS = ("▁", "@@", "￭", "##", "Ġ", "▪")  # of pieces that are joined to words
FILES = ("sentencepiece.bpe.model", "sentencepiece.model", "spm.model", "spiece.model", "tokenizer.model")
ROLES = ("bos", "eos", "unk")


class Vocabularies:
    """The settings in a folder's config.json, and the pieces of source and target in the order of their ids."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        path = folder / "config.json"
        self.config: dict[str, Any] = DEFAULTS | read_object(path)
        shared = self._pieces("shared")
        self.source, self.target = (self._pieces(side) or shared for side in ("source", "target"))
        if self.source is None or self.target is None:
            raise CheckpointError(f"{folder}: a model of CTranslate2 needs its vocabularies beside it; restore them")

    def _pieces(self, side: str) -> list[str] | None:
        """The pieces in a file of that name; None where there is none."""
        path = self.folder / f"{side}_vocabulary.json"
        if path.is_file():
            found = read_json(path)
        else:
            path = path.with_suffix(".txt")
            if not path.is_file():
                return None
            try:
                found = path.read_bytes().decode().removesuffix("\n").split("\n")
            except UnicodeDecodeError as error:
                raise CheckpointError(f"{path} is broken: {error}") from None
        if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
            raise CheckpointError(f"{path} is broken: it is no list of pieces")
        return found

    def tokenizers(self, source: int, target: int) -> tuple[Tokenizer | None, Tokenizer | None]:
        """Of tables with so many rows; None where a text cannot be cut into such pieces here."""
        self.source, self.target = self._full(self.source, source), self._full(self.target, target)
        files = [self._sentencepiece(side) for side in ("source", "target")]
        if all(files):
            return self._published(files[0], self.source, True), self._published(files[1], self.target, False)
        if any(mark in piece for mark in MARKS for piece in (*self.source, *self.target)):
            return None, None
        if self.config.get("add_source_bos"):
            raise UnsupportedError(f"{self.folder}: add_source_bos is read with a SentencePiece model only")
        closing = self.config["eos_token"] if self.config.get("add_source_eos") else ""
        return self._listed(self.source, closing), self._listed(self.target)

    def _sentencepiece(self, side: str) -> Path | None:
        """The SentencePiece model of a side."""
        names = (f"{side}.spm", f"{side}.model", *FILES)
        return next((self.folder / name for name in names if (self.folder / name).is_file()), None)

    def _published(self, file: Path, pieces: list[str], source: bool) -> Published:
        """The tokenizer of a SentencePiece model under the ids of a vocabulary."""
        model = read_pieces(file).listed(pieces)
        library, config = model.library(), self.config
        marks = [[config[f"{role}_token"]] if source and config.get(f"add_source_{role}") else [] for role in ROLES[:2]]
        around(library, *marks)
        names = {role: config[f"{role}_token"] for role in ROLES if config[f"{role}_token"] in pieces}
        ends = (pieces.index(names["eos"]),) if "eos" in names else ()
        begin = tuple(self.generation(None).get("begin", ()))
        settings = Settings(names, ends, begin, rules=model.rules, size=len(pieces))
        return Published(library, settings)

    def _full(self, pieces: list[str], rows: int) -> list[str]:
        """With the token for what is unknown, which the format adds where a list lacks it."""
        unknown = self.config["unk_token"]
        pieces = [*pieces, *([unknown] if unknown not in pieces and len(pieces) == rows - 1 else [])]
        if len(pieces) != rows or len(set(pieces)) != rows:
            raise CheckpointError(
                f"{self.folder}: a vocabulary has {len(set(pieces))} pieces and the model knows {rows}"
            )
        return pieces

    def _listed(self, pieces: list[str], closing: str = "") -> Tokenizer:
        config, known = self.config, set(pieces)
        named = {one for one in (*SPECIAL, *(config[name] for name in DEFAULTS)) if one in known}
        end = config["eos_token"] if config["eos_token"] in known else ""
        special, closing = sorted(named, key=pieces.index), closing if closing in known else ""
        if not special:
            raise CheckpointError(
                f"{self.folder}: a vocabulary has none of {', '.join(SPECIAL)}; restore it from a copy"
            )
        return listed(pieces, special, end, closing=closing, unknown=config["unk_token"])

    def generation(self, start: int | None) -> dict[str, Any]:
        """With what a target begins and ends; start: the token of the vector of zeros. And its runtime's beam search
        ends once as many hypotheses as its width are complete."""
        first = self.config["decoder_start_token"] or self.config["bos_token"]
        place = {piece: id for id, piece in enumerate(self.target)}
        begin = start if start is not None else place.get(first)
        end = place.get(self.config["eos_token"])
        found = {"begin": begin, "ends": end}
        return {name: [id] for name, id in found.items() if id is not None} | {"early_stopping": True}
