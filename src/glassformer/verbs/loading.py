"""The model that a verb works on, and which of its runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import InputError, UnsupportedError
from ..terminal.options import Common

if TYPE_CHECKING:
    from ..data.display import By
    from ..text_trace import TextTrace


def loaded_as(model: str | None, common: Common, reads: str | None = None) -> Any:
    """The model that is named; raises UnsupportedError where it reads something else than the verb needs."""
    from ..api import load

    loaded = load(model, device=common.device, dtype=common.dtype)
    if reads not in (None, loaded.reads):
        raise UnsupportedError(f"{loaded.name}: this model reads {loaded.reads}, not {reads}; name another with -m")
    return loaded


def chosen_run(runs: list[TextTrace], token: str | None, by: By) -> TextTrace:
    """Of the runs of a text's parts the first that has the token; the last where none is named."""
    for run in runs[:-1] if token is not None else []:
        try:
            run.rows(token, by)
        except InputError:
            continue
        return run
    return runs[-1]
