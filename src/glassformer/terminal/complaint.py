"""A mistake as the one line that the command line prints: with the options' names, in MiB, in the reader's language."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ..errors import MemoryLimitError
from .words import say

MIB = 1 << 20


def complaint(error: Exception, lang: str, more: str = "") -> str:
    """The message of a mistake as the command line prints it. more: an English sentence to add."""
    return f"glassformer: {told(error, lang, more)}"


def told(error: Exception, lang: str, more: str = "") -> str:
    """The message of a mistake in one line."""
    message = " ".join(f"{error} {more}".split())
    if isinstance(error, MemoryLimitError):
        message = _in_mib(message)
    if lang == "ko":
        from .korean import translated

        message = translated(message)
        for name in ("start", "end"):
            message = message.replace(say(name, "en"), say(name, "ko"))
    return message


def with_options(message: str, options: Mapping[str, str]) -> str:
    """The message of a setting's mistake with the command line's options (such as -n) for the names of settings
    (max_new_tokens): a name before the colon, and wherever else it cannot be an English word."""
    head, colon, rest = message.partition(": ")
    if colon and head in options:
        message = f"{options[head]}: {rest}"
    for name, option in options.items():
        if "_" in name:
            message = re.sub(rf"\b{name}\b", option, message)
    return message


def _in_mib(message: str) -> str:
    """Numbers of bytes as MiB, and the --memory that suffices: the largest of them."""
    sizes = [int(size.replace(",", "")) for size in re.findall(r"\d+(?:,\d{3})+", message)]
    if not sizes:
        return message
    message = re.sub(r"(\d+(?:,\d{3})+)( bytes)?", lambda found: _mib(int(found[1].replace(",", ""))), message)
    option = f"--memory {-(-max(sizes) // MIB)}"
    return message.replace("(--memory)", f"({option})") if "(--memory)" in message else f"{message} ({option})"


def _mib(size: int) -> str:
    return f"{size / MIB:,.1f} MiB" if size >= MIB else f"{size / MIB:.3f} MiB"
