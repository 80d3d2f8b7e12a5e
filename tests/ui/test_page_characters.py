"""Characters that are several tokens: a view shows the character, and its numbers are Python's for the whole of it."""

from __future__ import annotations

import re
import unicodedata

import pytest
from pages import settle, show, views
from test_page_explanations import check_maps
from test_page_numbers import Figures, check_page, figures_of

import glassformer as gf
from glassformer.page.saved import page_of

TEXTS = {
    "hanja": "龜가 別을 보다",
    "emoji": "👩‍👧‍👦 family",
    "nfd": unicodedata.normalize("NFD", "한글 자모"),
}
BYTES = re.compile("⟨[0-9A-F]{2}⟩")
EVERYTHING = """() => [document.querySelector("#view").innerText,
  ...[...document.querySelectorAll("#view [title], #view [aria-label]")].flatMap(
    (one) => [one.title, one.ariaLabel ?? ""]),
  ...[...document.querySelectorAll("#view svg text")].map((one) => one.textContent)].join("\\n")"""
CELLS = "#view [role=listbox] [role=option]"


@pytest.mark.slow
@pytest.mark.parametrize("name", TEXTS)
def test_no_view_shows_the_bytes_of_a_character(pages, name):
    """By character at first, by word, by token: every number is Python's, and no name is made of bytes."""
    text = TEXTS[name]
    figures, asked = figures_of("small", text), set()
    trace = figures.trace
    groupings = ("character", "word", "token") if name == "hanja" else ("character",)
    for by in groupings:
        page = pages.open(model="small", text=text, by=by)
        for view in views(page):
            show(page, view)
            assert not BYTES.search(page.evaluate(EVERYTHING)), (view, by)
            assert check_page(page, trace, figures) + check_maps(page, figures) > 0 or view in ("write", "film"), view
            asked |= set(page.eval_on_selector_all("data[data-figure]", "all => all.map((one) => one.dataset.figure)"))
    for by in groupings[:2]:
        assert {one.partition("?")[0] for one in asked if f"by={by}" in one} >= {
            "flow",
            "weights",
            "influence",
            "sight",
        }
    cells = [one.text for one in trace.cells("character")]
    page = pages.open(model="small", text=text)
    assert "by=" not in page.url
    shown = page.eval_on_selector_all(CELLS, "all => all.map((one) => one.firstChild.textContent)")
    assert shown == ["⟨시작⟩", *cells[1:]]


def test_a_character_is_put_together_by_python(pages):
    """The large map of a head, one number: the weights on a character's tokens are summed."""
    trace = figures_of("small", TEXTS["hanja"]).trace
    page = pages.open(model="small", text=TEXTS["hanja"], view="heads", layer=1, head=0, token=10, key=3)
    number = page.locator('.large data[data-figure^="weights"]').first
    assert number.get_attribute("data-at") == "values.6.1"
    pattern = trace.part("blocks.1.mixer.pattern", b=0, h=0, t=10)
    assert float(number.get_attribute("value")) == pytest.approx(pattern[1:4].sum().item(), rel=1e-5)


def test_the_tokens_of_a_character_are_reached_with_the_keys(pages):
    """Each by itself, where a number belongs to one token alone; the byte is in words."""
    page = pages.open(model="small", text=TEXTS["hanja"], view="steps", token=3)
    page.locator("#view").get_by_role("option", name="龜", exact=True).focus()
    for _ in range(12):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent") == "1/3":
            break
    part = page.get_by_role("group", name="“龜”의 토큰").get_by_role("button", name="龜 1/3")
    assert part.evaluate("one => one === document.activeElement")
    assert part.get_attribute("title") == "바이트 E9"
    page.keyboard.press("Enter")
    settle(page)
    assert part.get_attribute("aria-pressed") == "true"
    assert "token=1" in page.url
    places = page.eval_on_selector_all("#view data[data-name]", "all => all.map((one) => one.dataset.at)")
    assert places and all("t=1," in f"{one}," for one in places if "t=" in one)
    assert page.locator("#view").get_by_role("option", name="龜", exact=True).get_attribute("aria-selected") == "true"


def test_how_tokens_are_grouped_stands_in_the_address(pages):
    page = pages.open(model="small", text=TEXTS["hanja"], view="flow", lang="en")
    by = page.get_by_role("group", name="Shown by")
    assert by.get_by_role("button").all_inner_texts() == ["token", "character", "word"]
    by.get_by_role("button", name="word").click()
    settle(page)
    assert "by=word" in page.url
    assert page.locator(CELLS).all_inner_texts() == ["⟨start⟩", "龜가", "別을", "보다"]
    again = pages.open(url=page.url, lang="en")
    assert again.locator(CELLS).count() == 4
    by.get_by_role("button", name="token").click()
    settle(page)
    assert "龜 1/3" in page.locator(CELLS).all_inner_texts()


def test_where_no_character_is_split_there_is_no_choice(pages):
    """What is asked for then is looked at in test_page_numbers."""
    one = pages.open(model="small", text="별", lang="en")
    assert one.get_by_role("group", name="Shown by").count() == 0


def test_what_is_written_is_shown_in_characters(pages):
    """Tokens that spell a character together are it; what is no character at all is called a byte, in words."""
    text = "龜가 別을"
    page = pages.open(model="small", text=text, view="write")
    page.get_by_label("온도").fill("1.2")
    page.get_by_label("시드").fill("1")
    page.get_by_label("새 토큰").fill("16")
    page.get_by_role("button", name="쓰기", exact=True).click()
    settle(page)
    events = list(gf.load("small").generate(text, max_new_tokens=16, temperature=1.2, seed=1))
    first = next(i for i, one in enumerate(events) if not one.text)
    whole = events[first + 1].text
    assert len(whole) == 1, "two tokens that are one character only together"
    assert not BYTES.search(page.evaluate(EVERYTHING))
    page.locator(CELLS).filter(has_text=whole).click()
    part = page.get_by_role("button", name=f"{whole} 1/2")
    assert part.get_attribute("title").startswith("바이트 ")
    part.click()
    settle(page)
    assert f"{whole} 1/2" in page.locator("h3", has_text="토큰의 후보").inner_text()
    assert not BYTES.search(page.evaluate(EVERYTHING))


@pytest.mark.slow
def test_a_saved_page_holds_characters(pages, built, tmp_path):
    """What views ask for by character is in the file; by word too."""
    trace = gf.load("small").trace("龜가 별을")
    file = tmp_path / "page.html"
    file.write_text(page_of(trace, "ko", slow=False), encoding="utf-8")
    figures, asked = Figures(trace), set()
    for by in ("character", "word"):
        page = pages.open(url=file.as_uri(), offline=True, by=by, layer=2, head=3)
        for view in views(page):
            show(page, view)
            assert not BYTES.search(page.evaluate(EVERYTHING)), (view, by)
            check_page(page, trace, figures)
            asked |= set(page.eval_on_selector_all("data[data-figure]", "all => all.map((one) => one.dataset.figure)"))
        assert {one.partition("?")[0] for one in asked if f"by={by}" in one} >= {"flow", "weights"}
