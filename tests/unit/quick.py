"""Parameters of a test of which the quick suite takes a few: those that stand for the others."""

from __future__ import annotations

from collections.abc import Iterable

import pytest


def quick_first(names: Iterable[str], quick: Iterable[str]) -> list:
    """The names as parameters, all but the quick ones marked slow."""
    names, quick = list(names), set(quick)
    assert quick <= set(names)
    return [name if name in quick else pytest.param(name, marks=pytest.mark.slow) for name in names]
