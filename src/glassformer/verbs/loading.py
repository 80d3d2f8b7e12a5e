"""The model that a verb works on."""

from __future__ import annotations

from typing import Any

from ..errors import UnsupportedError
from ..terminal.options import Common


def loaded_as(model: str | None, common: Common, reads: str | None = None) -> Any:
    """The model that is named; raises UnsupportedError where it reads something else than the verb needs."""
    from ..api import load

    loaded = load(model, device=common.device, dtype=common.dtype)
    if reads not in (None, loaded.reads):
        raise UnsupportedError(f"{loaded.name}: this model reads {loaded.reads}, not {reads}; name another with -m")
    return loaded
