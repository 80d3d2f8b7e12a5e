"""Models written elsewhere, read as ordinary specs and weights of this package. One file a format."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ..errors import CheckpointError, UnsupportedError
from .ctranslate2 import MODEL, Variables, spec_of
from .e5s1 import is_e5s1, read_e5s1
from .g2p_en import is_g2p_en, read_g2p_en
from .gguf import is_gguf
from .hama import is_hama, read_hama
from .huggingface import Checkpoint, is_huggingface, read_gguf, read_huggingface
from .imported import Imported
from .llama2c import is_llama2c, read_llama2c
from .opennmt import read_opennmt
from .shards import weights_file
from .whisper import read_whisper

__all__ = ["Checkpoint", "Imported", "reader_of"]

OF_CTRANSLATE2 = dict.fromkeys(("TransformerBase", "TransformerBig", "TransformerSpec"), read_opennmt)
OF_CTRANSLATE2["WhisperSpec"] = read_whisper


def _is_ctranslate2(path: Path) -> Path | None:
    """The folder of a model of CTranslate2."""
    return None if spec_of(path) is None else path if path.is_dir() else path.parent


def _read_ctranslate2(folder: Path) -> Imported:
    """The model of CTranslate2 in a folder, by the name of its kind."""
    spec = spec_of(folder)
    if spec not in OF_CTRANSLATE2:
        raise UnsupportedError(f"{folder}: this is a {spec} of CTranslate2; read are {', '.join(OF_CTRANSLATE2)}")
    return OF_CTRANSLATE2[spec](folder, Variables(folder / MODEL))


# What finds the file or folder of a format at a path, and what reads it; the first that finds one.
FORMATS: tuple[tuple[Callable[[Path], Path | None], Callable[[Path], Imported | Checkpoint]], ...] = (
    (is_hama, read_hama),
    (_is_ctranslate2, _read_ctranslate2),
    (is_huggingface, read_huggingface),
    (is_gguf, read_gguf),
    (is_e5s1, read_e5s1),
    (is_g2p_en, read_g2p_en),
    (is_llama2c, read_llama2c),
)


def reader_of(path: Path) -> Callable[[], Imported | Checkpoint] | None:
    """What reads the file or folder at `path`; None for a folder without files of a format that is known here. Raises
    CheckpointError where there are some, and none is whole."""
    for fits, read in FORMATS:
        found = fits(path)
        if found is not None:
            return lambda read=read, found=found: read(found)
    weights = weights_file(path)
    if weights is not None:
        raise CheckpointError(
            f"{path} has {weights.name}, and neither a model.json nor a config.json that names a model_type; put the "
            "one that belongs to it there"
        )
    files = [path] if path.is_file() else sorted(one for end in ("npz", "bin") for one in path.glob(f"*.{end}"))
    if files:
        raise CheckpointError(
            f"{files[0]} is cut off, or in no format that is read here (.gguf, g2p-en's .npz, the .bin of llama2.c and "
            "E5S1); fetch it again"
        )
    return None
