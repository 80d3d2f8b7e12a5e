"""Several texts as one setting, a line for each, and their runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..errors import InputError
from .explainer import Report, quiet

if TYPE_CHECKING:
    from ..text_trace import TextTrace

MOST_TEXTS = 1000


def lines_of(texts: str) -> list[str]:
    """The texts of a setting: its lines, without those that hold nothing. Raises InputError for too many."""
    found = [one.strip() for one in texts.splitlines() if one.strip()]
    if len(found) > MOST_TEXTS:
        raise InputError(f"texts: {len(found):,} lines are too many; give at most {MOST_TEXTS:,}")
    return found


def runs_of(trace: TextTrace, texts: str, own: bool, report: Report = quiet) -> Iterator[TextTrace]:
    """The runs of several texts by the model of a run, with its edits: own: after that run itself. Raises InputError
    for a text that the model cannot read."""
    given = lines_of(texts)
    if own:
        yield trace
    for k, text in enumerate(given):
        report(k, len(given))
        if not own or text != trace.text:
            yield trace.loaded.trace(text, limit_bytes=trace.limit_bytes, edits=trace.edits)
