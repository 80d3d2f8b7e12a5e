"""A generation in the terminal: a text as it is written, or a batch of them."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterable, Sequence

from ..data.display import visible
from ..generate import Event
from .words import say


def show_stream(prompt: str, events: Iterable[Event], lang: str) -> list[Event]:
    """Print one text as it is written, and on a terminal its speed below it; the events."""
    shown: list[Event] = []
    started = time.perf_counter()
    for event in events:
        if not shown:  # only now, since a model may prove broken at its first token
            sys.stdout.write(_printable(prompt))
        shown.append(event)
        sys.stdout.write(_printable(event.text))
        sys.stdout.flush()
    sys.stdout.write("\n")
    if sys.stdout.isatty() and shown:
        speed = len(shown) / (time.perf_counter() - started)
        print(say("speed", lang, tokens=len(shown), speed=speed), file=sys.stderr)
    return shown


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
