"""Whatever text is given, every view stays readable and in its place, and no text becomes code."""

from __future__ import annotations

from urllib.parse import quote, urlencode

import pytest
from pages import settle, show, views, violations
from quick import quick_first
from sentences import TEXTS
from test_page_pictures import SEVEN

from glassformer.figures.font import width

FEW = ["handler", "empty"]
SIZES = ("tokens", "토큰", "MiB")  # by which the longest text is refused, where it is
MARKS = ("\ufffd", "▁", "Ġ", "Ċ")  # what tokenizers write for themselves, and what broken bytes are shown as
WORDS = """() => [document.body.innerText, ...[...document.querySelectorAll("[title], [aria-label]")].flatMap(
  (one) => [one.title, one.getAttribute("aria-label") ?? ""])].join("\\n")"""
TOO_WIDE = """() => {
  const room = document.documentElement.clientWidth, all = document.documentElement.scrollWidth;
  if (all <= room) return "";
  const wide = [...document.body.querySelectorAll("*")].filter((one) => one.getBoundingClientRect().right > room + 1);
  return `${all} > ${room}: ${wide.slice(0, 5).map((one) => one.outerHTML.slice(0, 160)).join(" | ")}`;
}"""


@pytest.mark.parametrize("name", quick_first(TEXTS, FEW))
def test_a_text_breaks_no_view(pages, name):
    text = TEXTS[name]
    page = pages.open(text=text, lang="ko" if len(name) % 2 else "en", theme="dark" if len(name) % 3 else "light")
    given = {mark for mark in MARKS if mark in text}
    if name == "empty":
        assert page.get_by_role("alert").inner_text(), "it says what to do"
    for k, view in enumerate(views(page) or [""]):
        if view:
            show(page, view)
        for wide in ((1280, 360), (360, 1280))[k % 2]:  # opened in the one in which the last was left
            page.set_viewport_size({"width": wide, "height": 900})
            settle(page)
            assert page.evaluate(TOO_WIDE) == "", (view, wide)
            shown = page.evaluate(WORDS)
            assert not [mark for mark in MARKS if mark in shown and mark not in given], (view, wide)
        for told in [] if name == "empty" else page.get_by_role("alert").all_inner_texts():
            assert name == "long" and [one for one in SIZES if one in told], (view, told)
    assert page.evaluate("window.ran") == []


WRONG = '<img src="data:,"><p style="color:#777;background:#888">unreadable</p>'
OTHERS = {"align": {"model": "korean-g2p", "text": "값없이"}, "image": {"model": "vit", "image": SEVEN, "text": ""}}


LOOKS = ["ko-light-1280", "en-dark-1280", "ko-dark-1280", "en-light-1280", "ko-light-360", "en-dark-360"]


@pytest.mark.parametrize("look", quick_first(LOOKS, ["ko-light-1280"]))
def test_axe_finds_no_serious_violation(pages, look):
    """In every view, also those of other models, and in the list of models; at a phone's width too."""
    lang, theme, wide = look.split("-")
    page, found = pages.open(lang=lang, theme=theme, width=int(wide)), {}
    for view in views(page):
        show(page, view)
        found[view] = violations(page)
    page.locator("header button[aria-haspopup=dialog]").click()
    page.locator("dialog li").first.wait_for()
    found["models"] = violations(page)
    page.keyboard.press("Escape")
    for view, place in OTHERS.items():
        page.evaluate("to => { location.hash = to; }", urlencode({"view": view} | place, quote_via=quote))
        settle(page)
        assert page.locator(f"#tab-{view}").get_attribute("aria-selected") == "true"
        found[view] = violations(page)
    page.evaluate("wrong => document.querySelector('main').insertAdjacentHTML('beforeend', wrong)", WRONG)
    assert len(violations(page)) >= 2, "what is wrong is found"
    assert {view: one for view, one in found.items() if one} == {}


CONTROLS = """() => [...document.querySelectorAll("button, select, textarea, input, a[href], [tabindex]")].filter(
  (one) => one.checkVisibility() && one.tabIndex >= 0 && !one.disabled)"""
FOCUSED = """() => {
  const one = document.activeElement;
  if (!one || one === document.body || one.dataset.reached) return "";
  one.dataset.reached = "yes";
  return getComputedStyle(one).outlineStyle === "none" ? `no focus to be seen: ${one.outerHTML.slice(0, 200)}` : "seen";
}"""


def test_every_control_is_reached_with_the_keys_alone(pages):
    """With Tab, in every view; and the one that has the focus can be seen."""
    page = pages.open(lang="en")
    for view in views(page):
        show(page, view)
        page.evaluate("document.querySelectorAll('[data-reached]').forEach((one) => delete one.dataset.reached)")
        page.evaluate("document.activeElement.blur()")
        count = page.evaluate(f"({CONTROLS})().length")
        for _ in range(count + 5):
            page.keyboard.press("Tab")
            assert page.evaluate(FOCUSED) in ("", "seen"), view
        missed = f"({CONTROLS})().filter((one) => !one.dataset.reached).map((one) => one.outerHTML.slice(0, 160))"
        assert count >= 5 and page.evaluate(missed) == [], view


WIDTHS = """() => {
  const pen = document.createElement("canvas").getContext("2d");
  const width = (font, text) => { pen.font = font; return pen.measureText(text).width; };
  return ["별", "뷁"].map((one) => width('100px "Glassformer Noto Sans KR", monospace', one));
}"""


def test_letters_for_hangul_are_there_where_the_system_has_none(pages):
    """They are asked for once such a letter is shown, and then drawn with them."""
    page = pages.open(lang="ko")
    page.evaluate("document.fonts.ready")
    assert [url for url in pages.asked if url.endswith("/api/font")]
    assert page.evaluate("[...document.fonts].map((one) => one.status)") == ["loaded"]
    assert page.evaluate(WIDTHS) == pytest.approx([width("별", 100), width("뷁", 100)], abs=0.5)
