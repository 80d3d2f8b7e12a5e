"""Models written elsewhere, read as ordinary specs and weights of this package. One file a format."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from .g2p_en import is_g2p_en, read_g2p_en
from .hama import FILES, read_hama
from .imported import Imported
from .llama2c import is_llama2c, read_llama2c

__all__ = ["Imported", "reader_of"]


def reader_of(path: Path) -> Callable[[], Imported] | None:
    """What reads the file or folder at `path`; None where it is in no format known here."""
    if path.is_dir() and (path / FILES[0]).is_file() and (path / FILES[1]).is_file():
        return lambda: read_hama(path)
    for fits, read in ((is_g2p_en, read_g2p_en), (is_llama2c, read_llama2c)):
        file = fits(path)
        if file is not None:
            return lambda read=read, file=file: read(file)
    return None
