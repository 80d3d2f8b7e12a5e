"""What every reader of a foreign format gives: a spec of this package, its weights by name, and tokenizers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import tokenizers
import torch
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors
from torch import Tensor, nn

from ..checkpoint import filled
from ..data.tokenizer import Tokenizer
from ..data.vocabulary import END
from ..model import AnySpec


@dataclass
class Imported:
    """A model written elsewhere.

    tensors    its weights, under the names of this package
    tokenizer  of the text, or of an encoder-decoder's target; None: texts cannot be read
    source     of an encoder-decoder's source; None: the same
    """

    spec: AnySpec
    tensors: dict[str, Tensor]
    tokenizer: Tokenizer | None
    source: Tokenizer | None = None
    about: dict[str, Any] = field(default_factory=dict)

    def model(self, place: Path, device: str | torch.device, dtype: torch.dtype) -> nn.Module:
        """The model in evaluation mode. Raises CheckpointError where weights and spec do not fit."""
        # Copies: two parameters of one memory could be neither trained apart nor saved.
        tensors = {name: value.to(device, dtype, copy=True).contiguous() for name, value in self.tensors.items()}
        return filled(self.spec, tensors, place, device)


def listed(
    pieces: Sequence[str],
    special: Sequence[str],
    end: str = "",
    how: Literal["", "jamo", "lower", "words"] = "",
    closing: str = "",
    unknown: str = "<unk>",
) -> Tokenizer:
    """A tokenizer of a fixed list of pieces, the longest first wherever several fit; ids are places in the list.

    special: pieces that stand for no text; end: the one that ends a text (empty: the last special one).
    how: "jamo": a text is lower-cased and its syllables taken apart into letters (NFD), and the pieces with it;
    "lower": a text is lower-cased; "words": a blank stands between the pieces.
    closing: the special piece that a model reads behind every text. unknown: the special piece for what no other is
    for; where the list lacks it the first special one, which no text has either.
    """
    vocab = {END if one == end else one if one in special else _spelled(one, how): i for i, one in enumerate(pieces)}
    plain = [piece for piece in vocab if piece != END and piece not in special]
    unknown = unknown if unknown in vocab else special[0]
    library = tokenizers.Tokenizer(models.WordLevel(vocab, unk_token=unknown))
    if how == "jamo":
        library.normalizer = normalizers.Sequence([normalizers.Lowercase(), normalizers.NFD()])
    elif how == "lower":
        library.normalizer = normalizers.Lowercase()
    elif how == "words":
        library.normalizer = normalizers.Prepend(" ")
    long = sorted((piece for piece in plain if len(piece) > 1), key=len, reverse=True)
    library.pre_tokenizer = pre_tokenizers.Split(Regex("|".join([*map(re.escape, long), r"[\s\S]"])), "isolated")
    library.decoder = decoders.Fuse()
    marks = [*(one for one in special if one != end), *([END] if end else [])]
    library.add_special_tokens([AddedToken(one, special=True, normalized=False) for one in marks])
    if closing:
        behind = [(closing, vocab[closing])]
        library.post_processor = processors.TemplateProcessing(single=f"$A {closing}", special_tokens=behind)
    return Tokenizer(library)


def _spelled(piece: str, how: str) -> str:
    return normalizers.NFD().normalize_str(piece) if how == "jamo" else f" {piece}" if how == "words" else piece
