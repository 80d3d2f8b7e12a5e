"""Models written elsewhere, read as ordinary specs and weights of this package. One file a format."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ..errors import UnsupportedError
from .ctranslate2 import MODEL, Variables, spec_of
from .g2p_en import is_g2p_en, read_g2p_en
from .hama import FILES, read_hama
from .imported import Imported
from .llama2c import is_llama2c, read_llama2c
from .opennmt import read_opennmt

__all__ = ["Imported", "reader_of"]

OF_CTRANSLATE2 = dict.fromkeys(("TransformerBase", "TransformerBig", "TransformerSpec"), read_opennmt)


def reader_of(path: Path) -> Callable[[], Imported] | None:
    """What reads the file or folder at `path`; None where it is in no format known here."""
    if path.is_dir() and (path / FILES[0]).is_file() and (path / FILES[1]).is_file():
        return lambda: read_hama(path)
    spec = spec_of(path)
    if spec is not None:
        return lambda: _read_ctranslate2(path, spec)
    for fits, read in ((is_g2p_en, read_g2p_en), (is_llama2c, read_llama2c)):
        file = fits(path)
        if file is not None:
            return lambda read=read, file=file: read(file)
    return None


def _read_ctranslate2(path: Path, spec: str) -> Imported:
    """The model of CTranslate2 in a folder, or the model.bin in one, by the name of its kind."""
    if spec not in OF_CTRANSLATE2:
        raise UnsupportedError(f"{path}: this is a {spec} of CTranslate2; read are {', '.join(OF_CTRANSLATE2)}")
    folder = path if path.is_dir() else path.parent
    return OF_CTRANSLATE2[spec](folder, Variables(folder / MODEL))
