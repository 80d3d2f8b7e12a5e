"""A generation in the terminal: a text as it is written, or a batch of them."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import wcwidth

from ..data.display import visible
from ..generate import Event
from ..model import EncoderDecoder
from .words import say

if TYPE_CHECKING:
    from ..api import Loaded


def lead(loaded: Loaded, prompt: str, chat: bool = False) -> str:
    """What is shown before what is written: a text that goes on, or what is answered or made into another and an
    arrow."""
    return f"{prompt} → " if chat or isinstance(loaded.model, EncoderDecoder) else prompt


def show_stream(prompt: str, events: Iterable[Event], lang: str) -> list[Event]:
    """Print one text as it is written, and on a terminal its speed below it; the events.

    What a terminal shows, joined, is what it would show of the whole text at once: a character that the next token may
    still change (by a mark, a joiner, a final consonant) waits for that token.
    """
    shown: list[Event] = []
    waiting = ""
    started = time.perf_counter()
    try:
        for event in events:
            waiting += event.text if shown else prompt + event.text  # not before: a model may prove broken at once
            shown.append(event)
            ready = _settled(waiting) if sys.stdout.isatty() else len(waiting)
            sys.stdout.write(_printable(waiting[:ready]))
            sys.stdout.flush()
            waiting = waiting[ready:]
    finally:
        sys.stdout.write(_printable(waiting) + "\n" if shown else "")
    if sys.stdout.isatty() and shown:
        speed = len(shown) / (time.perf_counter() - started)
        print(say("speed", lang, tokens=len(shown), speed=speed), file=sys.stderr)
    return shown


def _settled(text: str) -> int:
    """How many of the first characters nothing that follows can change: all but the last grapheme cluster."""
    clusters = list(wcwidth.iter_graphemes(text))
    return len(text) - len(clusters[-1]) if clusters else 0


def show_batch(prompts: Sequence[str], events: Iterable[Event]) -> list[Event]:
    """Print several texts, each behind its number, once all are written; the events."""
    shown, texts = [], list(prompts)
    for event in events:
        shown.append(event)
        texts[event.row] += event.text
    for i, text in enumerate(texts):
        print(f"[{i}] {_printable(text)}")
    return shown


def _printable(text: str) -> str:
    """A generated text for the terminal, control characters made visible; exact where it goes into a file or pipe."""
    if not sys.stdout.isatty():
        return text
    return "".join(part if part in "\n\t" else visible(part) for part in re.split("([\n\t])", text))
