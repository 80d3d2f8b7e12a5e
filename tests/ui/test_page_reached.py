"""Numbers from the keyboard, the way from the model to one cell, and one form for the marks of tokens."""

from __future__ import annotations

import pytest
from pages import settle, show

import glassformer as gf

TEXT = "고양이가 생선을 먹었다"
FOCUSED = "document.activeElement.dataset.name ?? document.activeElement.dataset.figure ?? ''"


def test_numbers_are_walked_with_the_arrow_keys_and_told_at_the_foot(pages):
    """One of them is in the order of tabs; the one with the focus has its name, value and Python line in the bar."""
    page = pages.open(text=TEXT, view="steps", layer=1, head=2, lang="en")
    assert page.locator("main data[tabindex='0']").count() == 1
    page.locator("main data[tabindex='0']").focus()
    assert page.evaluate(FOCUSED) == "blocks.1.mixer.dots"
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    told = page.get_by_label("The number pointed at")
    assert 'trace.part("blocks.1.mixer.pattern", b=0, h=2, t=8, s=1)' in told.inner_text()
    value = page.evaluate("document.activeElement.value")
    assert told.locator("data").get_attribute("value") == value
    assert "b 1 × h 4 × t 9 × s 9" in told.inner_text() and "softmax" in told.inner_text()
    assert page.locator("main data[tabindex='0']").count() == 1
    page.keyboard.press("Escape")
    assert told.locator("data").count() == 0


PAINTED = """() => {
  const fill = CanvasRenderingContext2D.prototype.fillRect;
  window.filled = 0;
  CanvasRenderingContext2D.prototype.fillRect = function (...at) { window.filled++; fill.apply(this, at); };
}"""
PICTURE = "one => one.toDataURL()"


def test_a_frame_that_moves_over_a_map_paints_no_cell_anew(pages):
    """The cells lie under it as they were; where it has been there is none left."""
    page = pages.open(text=TEXT, view="heads", layer=2, token=7, key=2, lang="en")
    map_ = page.locator(".large canvas")
    before = map_.evaluate(PICTURE)
    page.evaluate(PAINTED)
    map_.focus()
    page.keyboard.press("ArrowRight")
    settle(page)
    assert "key=3" in page.url and map_.evaluate(PICTURE) != before and page.evaluate("window.filled") == 0
    page.keyboard.press("ArrowLeft")
    settle(page)
    assert "key=2" in page.url and map_.evaluate(PICTURE) == before
    page.evaluate("to => { location.hash = to; }", page.url.partition("#")[2].replace("layer=2", "layer=1"))
    settle(page)
    assert page.evaluate("window.filled") > 0 and map_.evaluate(PICTURE) != before


def test_from_the_model_to_one_cell_and_back(pages):
    page = pages.open(text=TEXT, lang="en", layer=2, token=7)
    where = page.get_by_label("Where you are in the model")
    page.focus("#picture")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowLeft")
    settle(page)
    mixing = page.eval_on_selector_all(
        "data[data-figure='flow?layer=2/mixing']", "all => all.map((one) => one.dataset.at)"
    )
    row = gf.explain("flow", gf.load("small").trace(TEXT), layer=2).figure("mixing")
    most = sorted(range(8), key=lambda s: -row.values[7][s])[:3]
    assert mixing[:3] == [f"values.7.{s}" for s in most]
    names = ", ".join(row.columns[s].replace("<s>", "⟨start⟩") for s in most)
    said = page.locator("#view .hidden[aria-live=polite]").inner_text()
    assert said == f"“먹” after layer 2. In this layer it takes most from: {names}."
    page.locator("#block .heads button").nth(1).click()
    settle(page)
    assert "view=heads" in page.url and "head=1" in page.url
    assert where.locator("[aria-current]").inner_text() == "head 1"
    page.locator(".large canvas").focus()
    page.keyboard.press("ArrowRight")
    page.get_by_role("button", name="four steps").click()
    settle(page)
    assert "view=steps" in page.url and "key=1" in page.url
    assert where.locator("[aria-current]").inner_text() == "“먹” → “고”"
    where.get_by_role("button", name="layer 2").click()
    settle(page)
    assert page.locator("#picture").count() == 1 and "layer=2" in page.url


@pytest.mark.parametrize(
    ("lang", "own", "other"),
    [("ko", "⟨시작⟩", "⟨start⟩"), ("en", "⟨start⟩", "⟨시작⟩")],
)
def test_the_start_has_one_name_in_each_language(pages, lang, own, other):
    page = pages.open(text=TEXT, lang=lang)
    for view in ("flow", "steps", "heads", "explain"):
        show(page, view)
        text = page.locator("#view").text_content()
        assert own in text and other not in text, view
    with page.expect_download() as got:
        page.locator("figure").first.get_by_role("button", name="SVG").click()
    svg = got.value.path().read_text(encoding="utf-8")
    assert own in svg and other not in svg
