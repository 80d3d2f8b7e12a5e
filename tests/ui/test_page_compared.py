"""Several models or texts beside each other: families over one sentence, a word in two contexts. Every number, also of
another model or text than the page's own, is Python's."""

from __future__ import annotations

import pytest
from pages import settle
from test_page_explanations import check_maps
from test_page_numbers import TEXT, check_page, figures_of

import glassformer as gf
import page_build
from glassformer.page import beside
from glassformer.sources import SIBLINGS

WORD = {"first": "어두운 하늘에 별이 빛난다", "second": "이 영화는 별이 하나다"}


@pytest.fixture
def own():
    return figures_of("small")


def test_families_side_by_side(pages, own):
    """One card each; a token chosen on one is chosen on all; one scale of colours; exact where it is asked for."""
    page = pages.open(model="small", text=TEXT, view="families", lang="en")
    cards = page.locator("article")
    assert [name.strip() for name in cards.locator("h3").all_inner_texts()] == [*SIBLINGS]
    assert check_page(page, own.trace, own) >= 45
    assert check_maps(page, own) > 500
    page.get_by_role("listbox", name="The token that all cards show").get_by_role("option").nth(4).click()
    settle(page)
    chosen = cards.locator(".cell span:first-child").all_inner_texts()
    assert len(chosen) == 5 and len(set(chosen)) == 1
    cards.nth(0).get_by_role("button", name="exactly").click()
    settle(page)
    error = cards.nth(0).locator('data[data-figure="influence?method=exact/influence"]')
    assert error.count() == 1
    check_page(page, own.trace, own)
    value = figures_of("mlp", TEXT).number(
        {"figure": error.get_attribute("data-figure"), "at": error.get_attribute("data-at")}
    )
    assert float(error.get_attribute("value")) == pytest.approx(value, rel=1e-4)


def test_of_a_long_text_the_influence_is_asked_of_one_token_at_a_time(pages):
    """All rows of several models would take minutes; the limit is the one by which a page is saved."""
    window = (page_build.UI / "src" / "lib" / "window.ts").read_text(encoding="utf-8")
    assert f"export const WHOLE = {beside.WHOLE};" in window
    own = figures_of("small", "고양이가 생선을 먹었다. " * 4)
    trace = own.trace
    last = trace.stacks[-1].length - 1
    assert last >= beside.WHOLE
    page = pages.open(model="small", text=trace.text, view="families", lang="en", more="families=mlp%2Csmall")
    for row in (last, 4):
        if row != last:
            page.get_by_role("listbox", name="The token that all cards show").get_by_role("option").nth(row).click()
            settle(page)
        shown = page.locator(f'data[data-figure="influence?method=estimate&row={row}/influence"]')
        assert shown.count() == 4  # a number and its error in each card
        assert check_page(page, trace, own) >= 10
    assert check_maps(page, own) >= 20


@pytest.mark.slow
def test_other_models_can_be_added_and_taken_away(pages, own):
    page = pages.open(model="small", text=TEXT, view="families", lang="en", more="families=mlp%2Ccnn")
    assert page.locator("article").count() == 2
    page.get_by_label("Add a model").select_option("small")
    settle(page)
    assert page.locator("article h3").all_inner_texts()[-1].strip() == "small"
    page.get_by_role("button", name="remove cnn").click()
    settle(page)
    assert [name.strip() for name in page.locator("article h3").all_inner_texts()] == ["mlp", "small"]
    again = pages.open(url=page.url, lang="en")
    assert again.locator("article").count() == 2
    check_page(again, own.trace, own)


def test_a_word_in_two_contexts(pages, own):
    """An example at first; the fixed vectors are equal; the layer follows the chosen point of a line."""
    page = pages.open(model="small", text=TEXT, view="two")
    assert page.get_by_label("다른 문장").input_value() == WORD["second"]
    assert check_page(page, own.trace, own) >= 10
    trace = gf.load("small").trace(WORD["first"])
    found = gf.explain("two", trace, second=WORD["second"], word="별")
    written = page.locator("figure").first.locator("data")
    assert float(written.get_attribute("value")) == pytest.approx(
        found.figure("distance").lines[0].values[-1], rel=1e-4
    )
    fixed = page.locator('data[data-figure$="/checks"]')
    assert float(fixed.get_attribute("value")) == 0 == found.checks[0].value
    svg = page.locator("figure svg").first
    svg.focus()
    page.keyboard.press("ArrowLeft")
    settle(page)
    assert "2층" in page.inner_text("section h3 >> nth=-1")
    names = set(page.eval_on_selector_all("data[data-name]", "all => all.map((one) => one.dataset.name)"))
    assert names == {"blocks.2.mixer.pattern"}
    assert "layer=2" in page.url
    check_page(page, own.trace, own)


def test_a_pair_of_ones_own(pages, own):
    page = pages.open(model="small", text=TEXT, view="two", lang="en")
    page.get_by_label("One sentence").fill("개가 고양이를 보았다")
    page.get_by_label("Another").fill("아이가 고양이를 불렀다")
    page.get_by_role("combobox", name="The word").fill("고양이")
    page.get_by_role("button", name="Compare").click()
    settle(page)
    figures = figures_of("small", "개가 고양이를 보았다")
    assert check_page(page, figures.trace, figures) >= 10
    page.get_by_role("combobox", name="The word").fill("없는 말")
    page.get_by_role("button", name="Compare").click()
    settle(page)
    assert "없는 말" in page.inner_text("[role=alert]")


@pytest.mark.slow
def test_of_a_word_that_stands_twice_the_reader_chooses(pages, own):
    """What is compared is said and can be changed; a link holds it; another pair begins with the first of each."""
    text, second = "고양이가 고양이를 보았다", "개와 고양이가 고양이를 보았다"
    page = pages.open(model="small", text=text, view="two", lang="en", second=second, more="two=고양이")
    groups = page.get_by_role("group", name="Which occurrence")
    assert [one.get_attribute("aria-pressed") for one in groups.nth(1).get_by_role("button").all()] == ["true", "false"]
    groups.nth(1).get_by_role("button", name="2 of 2").click()
    settle(page)
    found = gf.explain("two", gf.load("small").trace(text), second=second, word="고양이", second_at=1)
    wanted = found.figure("distance").lines[0].values[-1]
    for one in (page, pages.open(url=page.url, lang="en")):
        assert one.get_by_role("group", name="Which occurrence").count() == 2
        written = one.locator("figure").first.locator("data")
        assert float(written.get_attribute("value")) == pytest.approx(wanted, rel=1e-4)
        figures = figures_of("small", text)
        assert check_page(one, figures.trace, figures) >= 10
    page.get_by_role("button", name="별").click()
    settle(page)
    assert "second_at" not in page.url and page.get_by_role("group", name="Which occurrence").count() == 0
