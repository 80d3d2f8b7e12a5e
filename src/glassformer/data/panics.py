"""What the library `tokenizers` raises, told as one of our mistakes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from ..errors import GlassformerError, InputError


@contextlib.contextmanager
def told(mistake: Callable[[str], GlassformerError]) -> Iterator[None]:
    """Raise, for whatever the library raises inside, a mistake that is made of its message in one line.

    It raises a bare Exception for what it cannot read, and for what it did not expect a panic of Rust, which no
    `except Exception` sees.
    """
    try:
        yield
    except (GlassformerError, OSError, MemoryError):
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise mistake(" ".join(str(error).split())[:200]) from None


def encoding() -> contextlib.AbstractContextManager[None]:
    """The same where a text is encoded. Raises InputError where the library has no token for a part of it."""
    return told(lambda why: InputError(f"this tokenizer has no token for a part of the text ({why}); leave that out"))
