"""The language of a text for tokenizers that put its code beside the text, as mBART's do."""

from __future__ import annotations

import re

from tokenizers import Tokenizer as Library

from ..errors import InputError, UnsupportedError, nearest
from .folder import around
from .published import Published
from .tokenizer import Tokenizer

CODE = re.compile(r"[a-z]{2,3}_([A-Z]{2}|[A-Z][a-z]{3})")  # ko_KR, kor_Hang


def in_language(tokenizer: Tokenizer | None, code: str) -> Published:
    """The tokenizer for texts in the language of a code, which stands where the code of the usual one stood.

    Raises InputError for a language that it does not know, UnsupportedError where it puts none beside a text.
    """
    special = tokenizer.special if isinstance(tokenizer, Published) else {}
    codes = [text for text in special.values() if CODE.fullmatch(text)]
    sides = [[special[id] for id in side] for side in ((tokenizer.start, tokenizer.closing) if codes else ())]
    if not any(text in codes for side in sides for text in side):
        raise UnsupportedError("this model reads no code of a language beside a text; leave it (--from) out")
    if code not in codes:
        raise InputError(f"{code!r} is no language of this model; {nearest(code, codes)}")
    library = Library.from_str(tokenizer.library.to_str())
    around(library, *([code if text in codes else text for text in side] for side in sides))
    return Published(library, tokenizer.settings)
