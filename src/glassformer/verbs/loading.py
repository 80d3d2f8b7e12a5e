"""The model that a verb works on, and which of its runs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import GlassformerError, InputError, UnsupportedError
from ..terminal.options import Common
from ..terminal.output import console, language

if TYPE_CHECKING:
    from ..data.display import By
    from ..text_trace import TextTrace


def loaded_as(model: str | None, common: Common, *reads: str) -> Any:
    """The model that is named; raises UnsupportedError where it reads nothing of what the verb needs."""
    from .. import hub
    from ..api import load

    if model is not None and hub.is_id(model) and not Path(model).exists():
        from ..sources import place_of
        from ..terminal.fetching import fetching

        with fetching(console(stderr=True), language(common.lang)) as report:
            place_of(model, report)
    loaded = load(model, device=common.device, dtype=common.dtype)
    if reads and loaded.reads not in reads:
        raise UnsupportedError(f"{loaded.name}: this model reads {loaded.reads}, not {reads[0]}; name another with -m")
    return loaded


def chosen_run(runs: list[TextTrace], token: str | None, by: By) -> TextTrace:
    """Of the runs of a text's parts the first that has the token; the last where none is named. Raises InputError that
    lists what each of several parts has, where none has it."""
    if token is None or len(runs) == 1:
        return runs[-1]
    for run in runs:
        try:
            run.rows(token, by)
        except InputError:
            continue
        return run
    rows = "; ".join(f"{run.source_text} → {', '.join(cell.text for cell in run.cells(by)[:40])}" for run in runs[:40])
    raise InputError(f"token {token!r}: in none of the words that were written: {rows}. Give one of these rows")


@contextlib.contextmanager
def naming(model: str, several: bool) -> Iterator[None]:
    """Of several models, put the name of the one that a mistake is about before its message."""
    try:
        yield
    except GlassformerError as error:
        if not several:
            raise
        raise type(error)(f"{model}: {error}") from None
