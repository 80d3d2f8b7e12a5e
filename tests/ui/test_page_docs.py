"""The pictures of the page in README and docs show what the page looks like now.

A page of the docs says beside a picture what was chosen, how large the window was, and which of the view's numbers was
pointed at:

    <!-- taken: view=steps&layer=2&head=3&point=20&height=720 -->

GLASSFORMER_APPROVE=1 python -m pytest tests/ui/test_page_docs.py -m slow takes them anew; look at them before they are
kept.
"""

from __future__ import annotations

import io
import os
import re
from pathlib import Path
from urllib.parse import parse_qsl

import pytest
from pages import settle
from test_page_pictures import TEXT, differs, small

ROOT = Path(__file__).parents[2]
TAKEN = re.compile(r"^<!-- taken: (\S+) -->\n!\[[^\]]+\]\((\S+\.png)\)$", re.M)
PAGES = ("README.md", "README.ko.md", "docs/explorer.md", "docs/ko/explorer.md")
PICTURES = {
    str((ROOT / page).parent.joinpath(file).relative_to(ROOT)): (how, "ko" if "ko" in re.split(r"[./]", page) else "en")
    for page in PAGES
    for how, file in TAKEN.findall((ROOT / page).read_text(encoding="utf-8"))
}


def test_the_pages_show_pictures():
    assert len(PICTURES) == 8 and all((ROOT / file).is_file() for file in PICTURES)


@pytest.mark.slow
@pytest.mark.parametrize("file", PICTURES)
def test_a_picture_of_the_docs_is_the_page(pages, file):
    image = pytest.importorskip("PIL.Image")
    how, lang = PICTURES[file]
    place = dict(parse_qsl(how))
    width, height = (int(place.pop(name, usual)) for name, usual in (("width", "1280"), ("height", "900")))
    pointed = place.pop("point", None)
    page = pages.open(text=TEXT[lang], lang=lang, width=width, height=height, **place)
    page.evaluate("document.fonts.ready")
    if pointed is not None:
        page.locator("#view data").nth(int(pointed)).hover()
        settle(page)
    png = page.screenshot(animations="disabled", caret="hide")
    if os.environ.get("GLASSFORMER_APPROVE"):
        (ROOT / file).parent.mkdir(exist_ok=True)
        few = image.open(io.BytesIO(png)).convert("RGB")
        few = few.quantize(256, image.Quantize.MAXCOVERAGE, kmeans=3, dither=image.Dither.NONE)
        few.save(ROOT / file, optimize=True)
        return
    found = differs(small(png), small((ROOT / file).read_bytes()))
    assert found == "", f"{file}: {found}; take it anew with GLASSFORMER_APPROVE=1"
