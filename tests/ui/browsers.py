"""The browser of the page's tests: the one that GLASSFORMER_BROWSER names, else the first that is found.

`python tests/ui/browsers.py` says which; it leaves with status 1 where there is none. It needs nothing but Python.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "microsoft-edge")
NONE = "no browser (set GLASSFORMER_BROWSER, or install chromium)"


def browser() -> str | None:
    """The program of a browser of Chromium's kind, None where there is none. Raises FileNotFoundError where
    GLASSFORMER_BROWSER names no program."""
    given = os.environ.get("GLASSFORMER_BROWSER")
    if given:
        found = shutil.which(given)
        if found is None:
            raise FileNotFoundError(f"GLASSFORMER_BROWSER is {given!r}, which is no program")
        return found
    return next((found for name in NAMES if (found := shutil.which(name))), None) or _own()


def _own() -> str | None:
    """The browser that `playwright install chromium` fetched."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return None
    with sync_playwright() as playwright:
        path = playwright.chromium.executable_path
    return path if Path(path).is_file() else None


if __name__ == "__main__":
    program = browser()
    print(f"The page's tests use {program}" if program else f"The page's tests are skipped: {NONE}")
    sys.exit(0 if program else 1)
