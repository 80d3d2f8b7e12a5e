"""The saved page holds runs beside its own: families, another text, edits, what was written; and says what it lacks."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

import pytest
from pages import settle, show, views
from test_page_explanations import check_maps
from test_page_numbers import Figures, check_page, checked_figure, numbers
from test_page_saved import SIXTEEN, opened

import glassformer as gf
from glassformer.page.beside import siblings
from glassformer.page.saved import page_of

SIBLINGS = ["mlp", "cnn", "lstm", "transformer", "ssm"]
SHORT, OTHER = "고양이가 잤다", "개가 잤다"
COMPUTING = (
    "form button[type=submit], input:not([readonly]):not([type=range]):not([type=checkbox]), textarea:not([readonly])"
)


@pytest.fixture(scope="module")
def model():
    return gf.load("small")


@pytest.fixture(scope="module")
def trace(model):
    return model.trace(SIXTEEN)


@pytest.fixture(scope="module")
def edited(model):
    return model.trace(SIXTEEN, edits=[gf.zero("blocks.2.mixer.z", h=3)])


@pytest.fixture(scope="module")
def file(built, model, trace, edited, tmp_path_factory):
    """Everything that a saved page can hold, of sixteen tokens."""
    path = tmp_path_factory.mktemp("beside") / "page.html"
    trace.save(path, lang="en", beside=[*siblings(trace), model.trace("개가 생선을 보았다"), edited])
    return path


def test_the_file_is_small_with_all_that_is_beside(file, trace):
    assert trace.sizes("embed.out")[1] == ("t", 16)
    assert file.stat().st_size <= 3_000_000


def test_families_and_two_contexts_offline(pages, browser, file, trace):
    page, figures = opened(pages, browser, file, lang="en", view="families"), Figures(trace)
    assert [name.strip() for name in page.locator("article h3").all_inner_texts()] == SIBLINGS
    assert check_page(page, trace, figures) >= 45
    assert check_maps(page, figures) > 500
    assert page.get_by_role("button", name="exactly").count() == 0  # it would have to be computed
    show(page, "two")
    assert page.get_by_label("Another").input_value() == "개가 생선을 보았다"
    assert not page.get_by_label("Another").is_editable()
    assert check_page(page, trace, figures) >= 10
    assert [url for url in pages.asked if not url.startswith(("data:", "blob:"))] == [file.as_uri()]


def test_a_change_beside_its_control(pages, browser, file, trace, edited):
    """As live: before, after and with the control, at every token; how far vectors moved, and the same in Python."""
    page, figures = opened(pages, browser, file, lang="en", view="hands", token=5), Figures(edited)
    for token in (5, 9):
        page.locator(f".changed data[data-figure^='effect?token={token}/']").first.wait_for()
        [text] = page.locator(".changed").all_inner_texts()
        assert 'gf.zero("blocks.2.mixer.z", h=3)' in text and "gf.explain('effect', trace" in text
        assert page.locator("thead").inner_text().split("\t")[1:4] == ["before", "after", "control"]
        found = numbers(page.locator(".changed data"))
        assert len(found) > 50
        for one in found:
            checked_figure(figures, one)
        with pytest.raises(AssertionError):
            checked_figure(Figures(trace), next(one for one in found if one["at"] == "variation"))
        show(page, "hands")
        page.locator("#view .tokens button").nth(9).click()
        settle(page)
    assert page.get_by_role("note").count() == 0 and "token=" in page.url


def test_of_a_long_text_the_change_stands_at_its_last_token(built, pages, browser, tmp_path, model):
    """Elsewhere what comes next, with and without it."""
    text = "고양이가 생선을 먹었다 " * 5
    edited = model.trace(text, edits=[gf.zero("blocks.2.mixer.z", h=3)])
    runs = (model.trace(text), edited)
    assert runs[0].sizes("embed.out")[1][1] > 32
    (tmp_path / "long.html").write_text(page_of(runs[0], "en", False, [edited]), encoding="utf-8")
    page = opened(pages, browser, tmp_path / "long.html", lang="en", view="hands")
    assert page.locator(".changed").count() == 1 and page.locator(".columns").count() == 0
    page = opened(pages, browser, tmp_path / "long.html", lang="en", view="hands", token=5)
    assert "at “␠”" in page.inner_text("#view")  # where it stands
    columns = page.locator(".columns section")
    assert columns.locator("h3").all_inner_texts() == ["as it is", "changed"] and page.locator(".changed").count() == 0
    assert columns.nth(1).locator("code").inner_text() == 'gf.zero("blocks.2.mixer.z", h=3)'
    for column, of in enumerate(runs):
        figures, found = Figures(of), numbers(columns.nth(column).locator("data"))
        assert len(found) == 12
        for one in found:
            checked_figure(figures, one)


@pytest.mark.parametrize(("lang", "words"), [("en", "Not in this file"), ("ko", "이 파일에 없는 항목")])
def test_what_was_not_kept_says_so(built, pages, browser, tmp_path, model, lang, words):
    """Each view that compares names what is missing and how to have it; nothing that computes can be pressed."""
    (tmp_path / "alone.html").write_text(page_of(model.trace(SHORT), lang, slow=False), encoding="utf-8")
    page = opened(pages, browser, tmp_path / "alone.html", lang=lang)
    for view in ("hands", "write", "families", "two"):
        show(page, view)
        [note] = page.get_by_role("note").all_inner_texts()
        assert words in note and "glassformer explore" in note
        assert page.get_by_role("alert").count() == 0
    for view in views(page):
        show(page, view)
        assert page.locator("#view").locator(COMPUTING).count() == 0, view


def written(page):
    """What the views that compare show, as text."""
    found = {}
    for view in ("families", "two", "write"):
        show(page, view)
        parts = {"families": "article data", "two": "figure, section li", "write": "[role=listbox], .below td"}[view]
        found[view] = [one.strip() for one in page.locator(parts).all_inner_texts()]
    return found


def test_the_button_saves_what_was_looked_at(pages, browser, tmp_path, monkeypatch):
    """What was seen in this session is in the file just as it was seen; what another person saw is not."""
    brief = [("next", gf.explain("next", gf.load("small").trace(SHORT)).title)]
    monkeypatch.setattr("glassformer.page.saved.available", lambda trace: brief)  # all of them take seconds
    monkeypatch.setattr("glassformer.page.saved.siblings", lambda trace: [])
    page = pages.open(model="small", text=SHORT, lang="en", view="families", more="families=mlp,lstm")
    page.locator("article").nth(1).get_by_role("button", name="exactly").click()
    settle(page)
    show(page, "two")
    for label, text in (("One sentence", SHORT), ("Another", OTHER), ("The word", "잤다")):
        page.get_by_label(label, exact=True).fill(text)
    page.get_by_role("button", name="Compare").click()
    settle(page)
    show(page, "write")
    page.get_by_label("new tokens").fill("5")
    page.get_by_role("button", name="Write", exact=True).click()
    settle(page)
    other = pages.open(model="small", text=SHORT, lang="en", view="flow")
    live, files = written(page), {}
    for name, one in (("mine", page), ("other", other)):
        with one.expect_download(timeout=240_000) as download:
            one.get_by_role("button", name="Save page").click()
        files[name] = tmp_path / f"{name}.html"
        download.value.save_as(files[name])
    [more] = parse_qs(urlsplit(page.url).fragment)["more"]
    mine = opened(pages, browser, files["mine"], lang="en", more=more)
    assert written(mine) == live and all(live.values())
    assert mine.get_by_role("button", name="Write", exact=True).count() == 0
    show(mine, "families")  # what was computed is there
    mine.locator("article").nth(1).get_by_text("exact", exact=True).wait_for()
    assert mine.locator("article").nth(0).get_by_text("exact", exact=True).count() == 0
    theirs = opened(pages, browser, files["other"], lang="en")
    show(theirs, "write")
    assert theirs.get_by_role("note").count() == 1
    show(theirs, "two")
    assert theirs.get_by_role("note").count() == 1
