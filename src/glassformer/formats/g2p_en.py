"""The English grapheme-to-phoneme model of g2p-en (PyPI, Apache-2.0): one npz file. It reads the letters of one word
and writes phonemes of the CMU dictionary, by gated units whose last state is all that the writer knows of the word.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ..errors import CheckpointError
from ..mixers.recurrent import GruSpec, StartSpec
from ..model import BlockSpec, EncoderDecoderSpec, ModelSpec
from ..nn.head import HeadSpec
from .imported import Imported, listed

_CELL = ("emb", "w_ih", "w_hh", "b_ih", "b_hh")
NAMES = {"fc_w", "fc_b"} | {f"{side}_{part}" for side in ("enc", "dec") for part in _CELL}
LETTERS = ["<pad>", "<unk>", "</s>", *"abcdefghijklmnopqrstuvwxyz"]
_OTHERS = "B CH D DH F G HH JH K L M N NG P R S SH T TH UW V W Y Z ZH"
_VOWELS = "AA AE AH AO AW AY EH ER EY IH IY OW OY UH UW"
PHONEMES = [
    *("<pad>", "<unk>", "<s>", "</s>"),
    *sorted([f"{vowel}{stress}" for vowel in _VOWELS.split() for stress in "012"] + _OTHERS.split()),
]
START, END = PHONEMES.index("<s>"), PHONEMES.index("</s>")


def is_g2p_en(path: Path) -> Path | None:
    """The file to read where there is one at `path`."""
    files = [path] if path.suffix == ".npz" else sorted(path.glob("checkpoint*.npz")) if path.is_dir() else []
    for file in files:
        try:
            with file.open("rb") as opened, np.load(opened, allow_pickle=False) as found:
                if "enc_w_ih" in found:
                    return file
        except (OSError, ValueError, EOFError, zipfile.BadZipFile):
            continue
    return None


def read_g2p_en(path: Path) -> Imported:
    """The model in an npz file. Raises CheckpointError for what is missing, unknown or misshaped."""
    given = _checked(path)
    # A target begins with the end token here: it has the vector of the original's start token, and is not read again.
    table = given["dec_emb"].clone()
    table[END] = given["dec_emb"][START]
    hidden = given["enc_w_hh"].shape[1]
    tensors = {
        "encoder.embed.token.weight": given["enc_emb"],
        "decoder.embed.token.weight": table,
        **_cell(given, "enc", "encoder.blocks.0.mixer.cell"),
        **_cell(given, "dec", "decoder.blocks.0.mixer.cell"),
        "decoder.blocks.0.mixer.start.bridge.weight": torch.eye(hidden),  # the state is handed over as it is
        "decoder.blocks.0.mixer.start.bridge.bias": torch.zeros(hidden),
        "decoder.head.weight": given["fc_w"],
        "decoder.head.bias": given["fc_b"],
    }
    return Imported(
        _spec(given, hidden),
        tensors,
        listed(PHONEMES, PHONEMES[:4], end=PHONEMES[END], how="words"),
        listed(LETTERS, LETTERS[:3], how="lower", closing="</s>"),
        {
            "format": "g2p-en",
            "summary": "English grapheme-to-phoneme: reads the letters of a word, writes its phonemes (ARPAbet)",
            "summary_ko": "영어 발음 변환: 낱말의 철자를 읽고 음소(ARPAbet)를 씁니다",
        },
    )


def _checked(path: Path) -> dict[str, Tensor]:
    """The tensors of the file, which are all there and of the sizes that are known."""
    with np.load(path, allow_pickle=False) as file:
        given = {name: torch.from_numpy(file[name]).float() for name in file}
    for name in sorted(NAMES ^ given.keys()):
        if name in NAMES:
            raise CheckpointError(f"{path}: it lacks {name!r}, so it is another model than g2p-en's")
        raise CheckpointError(f"{path}: it holds the unknown {name!r}, so it is another model than g2p-en's")
    hidden = given["enc_w_hh"].shape[1]
    sizes = (given["dec_w_hh"].shape[1], len(given["dec_emb"]), len(given["enc_emb"]))
    if sizes != (hidden, len(PHONEMES), len(LETTERS)):
        raise CheckpointError(f"{path}: its sizes are not those of g2p-en's letters, phonemes and states")
    return given


def _spec(given: dict[str, Tensor], hidden: int) -> EncoderDecoderSpec:
    bare = {"channel": None, "norm": None, "residual": False, "width": hidden}
    plain = GruSpec(hidden=hidden, project=False)
    encoder = ModelSpec(
        vocab=len(LETTERS),
        dim=given["enc_emb"].shape[1],
        blocks=(BlockSpec(mixer=plain, **bare),),
        context=128,
        norm=None,
        head=None,
    )
    start = StartSpec(width=hidden, activation="none")
    decoder = encoder.changed(
        vocab=len(PHONEMES),
        dim=given["dec_emb"].shape[1],
        blocks=(BlockSpec(mixer=plain.changed(start=start), **bare),),
        head=HeadSpec(tied=False, bias=True),
    )
    return EncoderDecoderSpec(encoder=encoder, decoder=decoder)


def _cell(given: dict[str, Tensor], side: str, path: str) -> dict[str, Tensor]:
    """Rows r, z, n as here; of its two biases only the candidate's second one stands alone."""
    of_x, of_h = given[f"{side}_b_ih"], given[f"{side}_b_hh"]
    gates = 2 * len(of_h) // 3
    return {
        f"{path}.weight": given[f"{side}_w_ih"],
        f"{path}.recurrent": given[f"{side}_w_hh"],
        f"{path}.bias": torch.cat((of_x[:gates] + of_h[:gates], of_x[gates:])),
        f"{path}.recurrent_bias": of_h[gates:],
    }
