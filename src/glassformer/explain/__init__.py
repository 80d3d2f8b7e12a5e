"""Explanations of runs as data; only the views draw. The package can be called: `glassformer.explain("flow", …)`."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _Explain(ModuleType):
    """A package named explain and a function named explain are one object, so that importing a part of the package
    does not take the function's place."""

    def __call__(self, name: str, given: Any, text: Any = None, **how: Any) -> Any:
        """explained.explain, imported when it is used."""
        from .explained import explain

        return explain(name, given, text, **how)


sys.modules[__name__].__class__ = _Explain
