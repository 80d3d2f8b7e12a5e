"""Parameters of a test of which the quick suite takes a few: those that stand for the others."""

from __future__ import annotations

from collections.abc import Iterable

import pytest


def quick_first(names: Iterable[str], quick: Iterable[str]) -> list:
    """The names as parameters, all but the quick ones marked slow."""
    names, quick = list(names), set(quick)
    assert quick <= set(names)
    return [name if name in quick else pytest.param(name, marks=pytest.mark.slow) for name in names]


def quick_share(names: Iterable, share: int, first: int = 0) -> list:
    """Every so many of the names, from the first one on, as parameters; the others marked slow. Each law takes another
    first, so that every case is in the quick suite with some of the dear laws, and with all cheap ones."""
    names = [one if isinstance(one, tuple) else (one,) for one in names]
    assert len(names) > first < share
    return [pytest.param(*one, marks=[pytest.mark.slow] * (i % share != first)) for i, one in enumerate(names)]
