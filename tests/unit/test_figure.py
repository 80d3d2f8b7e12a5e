"""The figure of influence: it carries its letters, draws what was computed, and never breaks."""

import base64
import io
import itertools
import math
import re
import unicodedata
from xml.etree import ElementTree

import msgspec
import pytest
from difficult_text import DIFFICULT
from fontTools.ttLib import TTFont
from quick import quick_share
from sheet_models import SPECS, loaded

from glassformer.data.display import visible
from glassformer.explain.grid import Grid
from glassformer.figures import font
from glassformer.figures.colour import STEPS, shade
from glassformer.figures.influence import svg
from glassformer.figures.words import WORDS

SVG = "{http://www.w3.org/2000/svg}"
KOREAN = "고양이가 생선을 먹었다"
ROPE, WINDOW, BYTES = loaded(SPECS["rope"]), loaded(SPECS["window"]), loaded(method="byte")
for one, name in ((ROPE, "어텐션 & <rope>"), (WINDOW, "window"), (BYTES, "bytes")):
    one.name = name


def parsed(picture):
    bare = re.sub(r"base64,[^)]*", "", picture).replace("http://www.w3.org/2000/svg", "")
    assert set(re.findall(r"url\([^)#]*", bare)) <= {"url(", "url(data:font/woff;"}
    assert not re.search(r"https?:|href|@import|<script|<image", bare)
    return ElementTree.fromstring(picture)


def embedded(picture):
    """The font inside a figure, and its bytes."""
    [data] = re.findall(r"base64,([^)]*)\) format\('woff'\)", picture)
    raw = base64.b64decode(data)
    return TTFont(io.BytesIO(raw)), len(raw)


def shown(root):
    return "".join("".join(one.itertext()) for one in root.iter(f"{SVG}text"))


@pytest.mark.parametrize(
    "text", [KOREAN, unicodedata.normalize("NFD", KOREAN), "뷁쀍휗 ᄒᆞᆫ글 the cat ⟨ ␠", "Über naïve Ωμέγα"]
)
def test_the_figure_carries_every_glyph_of_its_letters(text):
    picture = svg([ROPE.trace(text).grid(), BYTES.trace(text).grid()], "ko")
    found, size = embedded(picture)
    root, drawn = parsed(picture), set(found.getBestCmap())
    letters = shown(root)
    composed = unicodedata.normalize("NFC", letters)
    assert all(ord(one) in drawn for one in composed if "가" <= one <= "힣" or "ㄱ" <= one <= "ㅣ")
    assert {ord(one) for one in letters + composed} >= drawn & set(font._advances()), "and no other characters"
    assert {ord(one) for one in composed} & set(font._advances()) <= drawn
    pen = found.getGlyphSet()
    for one in composed:
        if "가" <= one <= "힣":
            assert pen[found.getBestCmap()[ord(one)]].width > 0
    assert size < 60_000 and len(picture) < 400_000
    assert "Open Font License" in found["name"].getDebugName(13) and "Adobe" in found["name"].getDebugName(0)
    assert font.NAME in root.get("font-family") and root.get("font-family").endswith("sans-serif")


def test_old_syllables_are_joined_by_the_font():
    found, _ = embedded(f"<svg>{font.face('ᄒᆞᆫ')}</svg>")
    assert {record.FeatureTag for record in found["GSUB"].table.FeatureList.FeatureRecord} >= {"ljmo", "vjmo", "tjmo"}


def test_widths_are_those_of_the_glyphs_and_labels_are_cut_to_fit():
    assert font.width("가나", 10) == pytest.approx(2 * font.width("가", 10))
    assert font.width("가", 10) == font.width(unicodedata.normalize("NFD", "가"), 10) == pytest.approx(9.2, abs=0.8)
    assert font.width("i", 10) < font.width("n", 10) < font.width("가", 10) < font.width("😀😀", 10)
    for text in ("가" * 40, "m" * 40, "👨‍👩‍👧‍👦" * 20):
        short = font.fitted(text, 11, 110)
        assert short.endswith("…") and font.width(short, 11) <= 110 and len(short) > 5
    assert font.fitted("고양이", 11, 110) == "고양이"


@pytest.mark.parametrize("text", quick_share(filter(None, DIFFICULT), 3), ids=lambda text: ascii(text)[:24])
def test_difficult_texts_are_xml_and_show_no_control(text):
    one = Grid(
        text=text, model=text, what="influence", name="", head=None, labels=tuple(text[:6]), errors=None, error=0.0,
        directions=0, mixers=(("attention", "어텐션", 2),), **table(len(text[:6])),
    )  # fmt: skip
    picture = svg([one], "ko")
    picture.encode("utf-8")
    assert visible(shown(parsed(picture))) == shown(parsed(picture))


def test_a_lone_surrogate_and_controls_do_not_break_it():
    labels = ("\ud800", "\x00", "\x1b[31m", "]]>", "<b>&\"'", "\ufffe")
    one = Grid(
        text="".join(labels), model="\x07", what="influence", name="", head=None, labels=labels, errors=None, error=0.0,
        directions=0, mixers=(), **table(6),
    )  # fmt: skip
    letters = shown(parsed(svg([one]).encode("utf-8").decode()))
    assert "⟨U+D800⟩" in letters and "⟨NUL⟩" in letters and "<b>&\"'" in letters and "⟨U+FFFE⟩" in letters


def table(n):
    """Of a causal model that looks evenly at all it sees."""
    seen = [[s <= t for s in range(n)] for t in range(n)]
    shares = [[1 / (t + 1) if s <= t else 0.0 for s in range(n)] for t in range(n)]
    return {"seen": seen, "shares": shares, "values": shares}


# ---------------------------------------------------------------- what it shows


def cells(picture):
    """(title, colour, column, row) of every cell, panel by panel."""
    panels = ElementTree.fromstring(picture).iter(f"{SVG}g")
    return [[(one[0].text, one.get("fill"), int(one.get("x")), int(one.get("y"))) for one in panel] for panel in panels]


def test_cells_are_the_shares_in_one_scale_and_what_is_not_seen_is_none():
    run, other = ROPE.trace(KOREAN), WINDOW.trace(KOREAN)
    grids = [run.grid(), other.grid()]
    first, second = cells(svg(grids))
    for grid, drawn in zip(grids, (first, second), strict=True):
        assert {(t, s) for _, _, s, t in drawn} == {
            (t, s) for t, row in enumerate(grid.seen) for s, seen in enumerate(row) if seen
        }
        for said, colour, s, t in drawn:
            share = grid.shares[t][s]
            assert colour == shade(math.sqrt(share))
            assert said == f"{grid.labels[s]} → {grid.labels[t]}: {share:.2%} ({grid.values[t][s]:.3g})"
    assert len(second) < len(first), "a window leaves more cells out than a triangle"
    assert all(math.isclose(sum(row), 1, rel_tol=1e-9) for grid in grids for row in grid.shares)


def test_a_grids_numbers_are_those_of_the_influence():
    run = BYTES.trace("고a")
    grid, whole = run.grid(), run.influence().norms.double()
    assert list(grid.labels) == ["⟨start⟩", "고", "a"] and grid.directions == 0
    assert grid.values[2][1] == pytest.approx(float(whole[4, 1:4].square().sum().sqrt()), rel=1e-5)
    assert grid.values[1][0] == pytest.approx(float(whole[3, 0]), rel=1e-5) and grid.values[1][2] == 0


def test_an_estimate_says_its_error_everywhere():
    grid = ROPE.trace(KOREAN).grid(method="estimate", directions=8)
    picture = svg([grid], "en")
    assert grid.directions == 8 and grid.error > 0
    assert f"estimated, 8 directions; error ≤ {grid.error:.1%} of the largest" in shown(parsed(picture))
    [drawn] = cells(picture)
    t, s = 2, 1
    [said] = [one[0] for one in drawn if one[2:] == (s, t)]
    assert said.endswith(f"({grid.values[t][s]:.3g} ± {grid.errors[t][s]:.3g})")


@pytest.mark.parametrize(("count", "across"), [(1, 1), (2, 2), (3, 3), (4, 2), (5, 3), (6, 3)])
def test_panels_wrap_and_none_overlaps(count, across):
    grid = ROPE.trace("the cat sat").grid()
    root = parsed(svg([grid] * count))
    wide, high = (float(root.get(name)) for name in ("width", "height"))
    frames = [
        tuple(float(one.get(name)) for name in ("x", "y", "width", "height"))
        for one in root.iter(f"{SVG}rect")
        if one.get("fill", "").endswith("unseen)") and float(one.get("width")) > 100
    ]
    assert len(frames) == count and len({x for x, *_ in frames}) == across
    for i, (x, y, w, h) in enumerate(frames):
        assert x >= 0 and x + w <= wide and y + h <= high
        assert all(abs(x - a) >= w + 30 or abs(y - b) >= h + 30 for a, b, _, _ in frames[:i])


def test_forty_tokens_are_all_named_and_a_hundred_in_part():
    def named(n):
        one = ROPE.trace("a").grid()
        one = msgspec.structs.replace(one, labels=tuple(f"토큰{i}" for i in range(n)), **table(n))
        letters = shown(parsed(svg([one])))
        return [i for i in range(n) if re.search(rf"토큰{i}(?!\d)", letters)]

    assert named(40) == list(range(40)) and 20 < len(named(100)) < 60


def test_it_is_read_aloud_and_says_what_was_computed_in_both_languages():
    grid = ROPE.trace(KOREAN).grid()
    for lang, special in (("en", "⟨start⟩"), ("ko", "⟨시작⟩")):
        root = parsed(svg([grid], lang))
        title, desc = root.find(f"{SVG}title"), root.find(f"{SVG}desc")
        assert root.get("role") == "img" and root.get("aria-labelledby") == f"{title.get('id')} {desc.get('id')}"
        assert title.text == WORDS["influence"][lang] and KOREAN in desc.text and ROPE.name in desc.text
        letters = shown(root)
        assert special in letters and all(f"{tick}%" in letters for tick in (0, 1, 5, 10, 25, 50, 100))
        assert WORDS["caption_influence"][lang].replace(" ", "") in letters.replace(" ", "")
    weights = shown(parsed(svg([ROPE.trace(KOREAN).grid(what="weights", head=1)], "ko")))
    assert "blocks.0.mixer.pattern, 헤드 1" in weights and WORDS["weights"]["ko"] in weights


def test_the_scale_is_even_in_lightness_by_day_and_by_night():
    def lightness(colour):
        """CIE L* of #rrggbb."""
        red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (red, green, blue)]
        y = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
        return 116 * y ** (1 / 3) - 16 if y > 0.008856 else 903.3 * y

    for dark in (False, True):
        found = [lightness(shade(i / (STEPS - 1), dark)) for i in range(STEPS)]
        steps = [b - a for a, b in itertools.pairwise(found)]
        assert all((step > 0) == dark for step in steps) and abs(found[-1] - found[0]) > 65
        assert max(map(abs, steps)) < 2.5 * min(map(abs, steps))
    assert shade(-1) == shade(0) and shade(2) == shade(1) and len({shade(i / 63) for i in range(64)}) == 64


def test_figures_in_one_page_do_not_share_an_id():
    grids = [ROPE.trace(text).grid() for text in (KOREAN, 'the "url(#cat')]
    pictures = [svg([grid], lang) for grid in grids for lang in ("en", "ko")]
    found = [re.findall(r'\bid="([^"]*)"', one) for one in pictures]
    assert len({one for ids in found for one in ids}) == sum(map(len, found)) == 16
    for picture, ids in zip(pictures, found, strict=True):
        named = re.findall(r'"url\(#([^)]*)\)', picture) + re.search(r'aria-labelledby="([^"]*)"', picture)[1].split()
        assert set(named) == set(ids)
    assert "&quot;url(#cat</text>" in pictures[2]  # a text is no id
    assert svg(grids[:1], "en") == pictures[0]
