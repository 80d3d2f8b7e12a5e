"""The saved page holds runs beside its own: families, another text, edits, what was written; and says what it lacks."""

from __future__ import annotations

import json
import shlex

import pytest
from pages import settle, show, views
from test_page_explanations import check_maps
from test_page_numbers import Figures, check_page, checked_figure, numbers
from test_page_saved import SIXTEEN, opened

import glassformer as gf
from glassformer.cli import main
from glassformer.explain.explained import EXPLANATIONS
from glassformer.page.beside import siblings
from glassformer.page.outline import outline
from glassformer.page.saved import Seen, page_of, plain, request
from glassformer.sources import SIBLINGS

SHORT, OTHER = "고양이가 잤다", "개가 잤다"
COMPUTING = (
    "form button[type=submit], input:not([readonly]):not([type=range]):not([type=checkbox]), textarea:not([readonly])"
)

# One worker makes the file of all these tests, which takes seconds.
pytestmark = pytest.mark.slow


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
    assert [name.strip() for name in page.locator("article h3").all_inner_texts()] == [*SIBLINGS]
    assert check_page(page, trace, figures) >= 45
    assert check_maps(page, figures) > 500
    assert page.get_by_role("button", name="exactly").count() == 0  # it would have to be computed
    show(page, "two")
    assert page.get_by_label("Another").input_value() == "개가 생선을 보았다"
    assert not page.get_by_label("Another").is_editable()
    assert check_page(page, trace, figures) >= 10
    assert [url for url in pages.asked if not url.startswith(("data:", "blob:"))] == [file.as_uri()]


def test_a_change_beside_its_control(pages, browser, file, trace, edited, capsys):
    """As live: before, after and with the control, at every token; how far vectors moved, and the same in Python."""
    page, figures = opened(pages, browser, file, lang="en", view="hands", token=5), Figures(edited)
    for token in (5, 9):
        page.locator(f".changed data[data-figure^='effect?token={token}/']").first.wait_for()
        [text] = page.locator(".changed").all_inner_texts()
        assert (
            page.locator(".changed pre").first.inner_text() == "gf.zero('blocks.2.mixer.z', h=3)"
            and "gf.explain('effect', trace" in text
        )
        assert page.locator("thead").inner_text().split("\t")[1:4] == ["before", "after", "control"]
        found = numbers(page.locator(".changed data"))
        assert len(found) > 50
        for one in found:
            checked_figure(figures, one)
        check_change(page, edited, {"token": token}, capsys)
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
    assert columns.nth(1).locator("code").inner_text() == "gf.zero('blocks.2.mixer.z', h=3)"
    for column, of in enumerate(runs):
        figures, found = Figures(of), numbers(columns.nth(column).locator("data"))
        assert len(found) == 12
        for one in found:
            checked_figure(figures, one)


HEATS = ({"temperature": 0.5, "token": 2}, {"temperature": 2.5, "token": 2})
SAID = "This file does not hold what the change did at this token"


def looked_at(trace, *asked):
    """What a person has seen of a run: the effect as live Hands on asks for it, as it is at first."""
    usual = plain(EXPLANATIONS["effect"].settings())
    end = trace.stacks[-1].length - 1
    found = [{"token": end}, {"token": 2}, *asked]
    return Seen(
        trace,
        outline(trace, "seen0"),
        {request("effect", how, usual): gf.explain("effect", trace, **how) for how in found},
    )


def printed(page, capsys):
    """What the command below a change prints as the probabilities of tokens, by their ids."""
    capsys.readouterr()
    command = page.locator(".changed pre").nth(2).inner_text()
    assert main([*shlex.split(command)[1:], "--json", "--lang", "en"]) == 0, command
    found = json.loads(capsys.readouterr().out)
    return {one["token"]: one["probability"] for one in found.get("sheet", found)["next"]}


def check_change(page, trace, how, capsys):
    """The one change that is shown: its numbers, the same from its Python, and from its command."""
    found = numbers(page.locator(".changed data"))
    figures, table = Figures(trace), gf.explain("effect", trace, **how).figure("outcome")
    usual = plain(EXPLANATIONS["effect"].settings())
    assert len(found) > 20 and {one["figure"].partition("/")[0] for one in found} == {request("effect", how, usual)}
    for one in found:
        checked_figure(figures, one)
    made: dict = {}
    *lines, last = page.locator(".changed pre").nth(1).inner_text().splitlines()
    exec("\n".join(lines), made)
    assert eval(last, made).figure("outcome") == table
    after = {row[0]: row[3] for row in table.rows}
    shown = printed(page, capsys)
    both = after.keys() & shown.keys()
    assert len(both) == 8 and {one: shown[one] for one in both} == pytest.approx(
        {one: after[one] for one in both}, 1e-5
    )


def test_a_temperature_that_was_looked_at_is_there_without_an_address(
    built, pages, browser, tmp_path, model, monkeypatch, capsys
):
    """Of a run without edits, which has its effect as it is at every token that was looked at too."""
    trace = model.trace(SHORT)
    brief = [("next", gf.explain("next", trace).title)]
    monkeypatch.setattr("glassformer.page.saved.available", lambda trace: brief)
    again = {**HEATS[0], "token": 2 - trace.stacks[-1].length}  # the same, asked for by its place from the end
    for name, seen in (("heated", looked_at(trace, again, *HEATS)), ("plain", looked_at(trace))):
        (tmp_path / f"{name}.html").write_text(page_of(trace, "en", False, [], [seen]), encoding="utf-8")
    page = opened(pages, browser, tmp_path / "heated.html", lang="en")
    show(page, "hands")
    tokens = page.locator("#view .tokens button")
    assert tokens.nth(2).get_attribute("aria-selected") == "true" and SAID not in page.inner_text("#view")
    assert page.locator(".changed p.row button").all_inner_texts() == ["T = 0.5"]
    assert page.locator(".changed pre").first.inner_text() == "T = 2.5"
    check_change(page, trace, HEATS[1], capsys)
    page.get_by_role("button", name="T = 0.5").click()  # the other one that was looked at there
    settle(page)
    assert page.locator(".changed pre").first.inner_text() == "T = 0.5"
    check_change(page, trace, HEATS[0], capsys)
    tokens.nth(1).click()
    settle(page)
    assert SAID in page.inner_text("#view") and page.locator(".changed").count() == 0
    page = opened(pages, browser, tmp_path / "plain.html", lang="en", view="hands", token=1)
    assert SAID not in page.inner_text("#view")  # nothing was changed
    assert page.locator(".changed").count() == 0 and page.get_by_role("note").count() == 1


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
    mine = opened(pages, browser, files["mine"], lang="en")  # by itself, without the address at which it was saved
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
