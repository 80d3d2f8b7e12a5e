"""What the page looks like, against pictures that a person approved, in both languages and themes.

They are small (a quarter of the page's size): letters of another system's fonts are grey dust in them, and a part that
moved, vanished or has another colour is not. To approve what is there now, look at it and keep it:

    GLASSFORMER_APPROVE=1 python -m pytest tests/ui/test_page_pictures.py tests/ui/test_page_film.py -k approved -m slow
"""

from __future__ import annotations

import io
import os
from pathlib import Path

import numpy as np
import pytest

APPROVED = Path(__file__).parent / "approved"
SEVEN = (  # a picture of a 7, 28 × 28, as the page keeps one in its address
    "iVBORw0KGgoAAAANSUhEUgAAABwAAAAcCAAAAABXZoBIAAAAQklEQVR4nM3MMQ4AIAgDwOr//4yTkRIkdsJOhOYKfJaxD0u+MyVW"
    "lXGWWDmLW3mgKB3UpIeSJKhIhoIM8F1GWMuOLH70CiRIWcINAAAAAElFTkSuQmCC"
)
# Each view, and what stands in its address; its own text where the model reads another kind.
VIEWS: dict[str, dict[str, object]] = {
    "flow": {"token": 3},
    "steps": {"token": 3, "layer": 2, "head": 1, "key": 1},
    "heads": {"token": 3, "key": 1},
    "hands": {"token": 3},
    "write": {},
    "families": {"token": 3},
    "two": {},
    "explain": {"more": "explain=journey"},
    "align": {"model": "korean-g2p", "text": "값없이"},
    "image": {"model": "vit", "image": SEVEN, "text": ""},
}
EACH = [(view, lang, theme) for view in VIEWS for lang in ("ko", "en") for theme in ("light", "dark")]
SMALLER = 4
BLOCK = 10  # pixels of a small picture: 40 of the page
MEAN, WORST = 4.0, 60.0  # of 255: over the whole picture, and of any block
TEXT = {"ko": "고양이가 생선을 먹었다", "en": "The cat ate the fish"}


def small(png):
    """A picture in a quarter of its size, as numbers `y x c`."""
    image = pytest.importorskip("PIL.Image").open(io.BytesIO(png)).convert("RGB")
    return np.asarray(image.reduce(SMALLER), dtype=np.float32)


def differs(one, other):
    """Why two pictures are not the same; "" where they are."""
    if one.shape != other.shape:
        return f"sizes {one.shape} and {other.shape}"
    apart = np.abs(one - other).mean(-1)
    high, wide = (size // BLOCK * BLOCK for size in apart.shape)
    blocks = apart[:high, :wide].reshape(high // BLOCK, BLOCK, wide // BLOCK, BLOCK).mean((1, 3))
    y, x = np.unravel_index(blocks.argmax(), blocks.shape)
    if apart.mean() > MEAN or blocks.max() > WORST:
        at = f"x {x * BLOCK * SMALLER}, y {y * BLOCK * SMALLER}"
        return f"{apart.mean():.1f} apart in the mean, {blocks.max():.0f} at {at}"
    return ""


def taken(pages, view, lang, theme):
    """A page, and its picture: the first screen, whose size is the same everywhere."""
    page = pages.open(**{"text": TEXT[lang], "view": view, "lang": lang, "theme": theme} | VIEWS[view])
    page.evaluate("document.fonts.ready")
    return page, page.screenshot(animations="disabled", caret="hide")


def compared(png, name):
    """Compare a picture with the approved one of this name; where one approves, keep it instead."""
    image, file = pytest.importorskip("PIL.Image"), APPROVED / name
    if os.environ.get("GLASSFORMER_APPROVE"):
        APPROVED.mkdir(exist_ok=True)
        image.fromarray(small(png).astype(np.uint8)).quantize(64).save(file, optimize=True)
        return
    approved = np.asarray(image.open(file).convert("RGB"), dtype=np.float32)
    found = differs(small(png), approved)
    if found:
        Path("out").mkdir(exist_ok=True)
        (Path("out") / name).write_bytes(png)
    assert found == "", f"{name}: {found}; what it looks like now is in out/{name}"


@pytest.mark.slow
@pytest.mark.parametrize(("view", "lang", "theme"), EACH)
def test_a_view_looks_as_it_was_approved(pages, view, lang, theme):
    _, png = taken(pages, view, lang, theme)
    compared(png, f"{view}-{lang}-{theme}.png")


@pytest.mark.slow
def test_a_part_that_vanished_or_moved_is_seen(pages):
    page, before = taken(pages, "flow", "ko", "light")
    assert differs(small(before), small(page.screenshot())) == ""
    for style in ("main { visibility: hidden }", "main { transform: translateY(60px) }", "html { filter: invert(1) }"):
        page.evaluate(
            "style => document.documentElement.insertAdjacentHTML('beforeend', `<style id=s>${style}</style>`)", style
        )
        assert differs(small(before), small(page.screenshot())), style
        page.evaluate("document.getElementById('s').remove()")
