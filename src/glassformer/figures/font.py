"""The letters of a figure: their widths, and a font of just these glyphs to put into the file.

Noto Sans KR (SIL Open Font License 1.1, file LICENSES/OFL-1.1.txt) without hanja; runs/font/hangul.py makes the copy
in the package. What it has no glyph for is left to the fonts of the reader's system.
"""

from __future__ import annotations

import base64
import functools
import io
import unicodedata
from pathlib import Path
from typing import Any

import wcwidth

from ..data.display import width as columns

FILE = Path(__file__).parent / "NotoSansKR-Hangul.woff"
NAME = "Glassformer Noto Sans KR"
FALLBACK = (
    "Noto Sans KR", "Noto Sans CJK KR", "Apple SD Gothic Neo", "Malgun Gothic", "NanumGothic", "DejaVu Sans",
    "Noto Color Emoji", "Apple Color Emoji", "Segoe UI Emoji", "sans-serif",
)  # fmt: skip
FAMILY = ", ".join(one if one == "sans-serif" else f"'{one}'" for one in (NAME, *FALLBACK))
JOINING = ("ccmp", "ljmo", "vjmo", "tjmo")  # jamo into syllables, those of today and the old ones
ABOUT = (0, 13, 14)  # the names in a font file that say whose it is and under which licence
COLUMN = 0.55  # of the letters' size, for a column of text that the font has no glyph for


@functools.cache
def _advances() -> dict[int, int]:
    """The width of every character of the font, in thousandths of the letters' size."""
    from fontTools.ttLib import TTFont  # only here: most runs draw no figure

    with TTFont(FILE, lazy=True) as font:
        widths, scale = font["hmtx"].metrics, 1000 / font["head"].unitsPerEm
        return {code: round(widths[glyph][0] * scale) for code, glyph in font.getBestCmap().items()}


def width(text: str, size: float) -> float:
    """The pixels that a text takes in letters of `size` pixels; without kerning, and estimated where the reader's
    system gives the glyphs."""
    known = [_advances().get(ord(one)) for one in unicodedata.normalize("NFC", text)]
    if None not in known:
        return size * sum(known) / 1000
    return size * max(COLUMN * columns(text), sum(one or 0 for one in known) / 1000)


def fitted(text: str, size: float, room: float) -> str:
    """The text, or the longest beginning of it with … behind that takes at most `room` pixels."""
    if width(text, size) <= room:
        return text
    kept = list(wcwidth.iter_graphemes(text))
    while kept and width("".join(kept) + "…", size) > room:
        kept.pop()
    return "".join(kept) + "…"


def face(text: str) -> str:
    """A CSS @font-face that holds the glyphs of a text, of composed syllables too where it is decomposed; empty where
    the font has none of them."""
    from fontTools import subset
    from fontTools.ttLib import TTFont

    wanted = {ord(one) for one in text + unicodedata.normalize("NFC", text)} & set(_advances())
    if not wanted:
        return ""
    options: Any = subset.Options(layout_features=list(JOINING), name_IDs=list(ABOUT), hinting=False)
    with TTFont(FILE, lazy=True, recalcTimestamp=False) as font:
        part = subset.Subsetter(options)
        part.populate(unicodes=wanted)
        part.subset(font)
        made = io.BytesIO()
        font.save(made)  # WOFF like the file it came from, which every browser reads
    data = base64.b64encode(made.getvalue()).decode()
    return f"@font-face{{font-family:'{NAME}';src:url(data:font/woff;base64,{data}) format('woff')}}"
