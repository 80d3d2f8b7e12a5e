"""The saved page: one file that opens from disk with the network off, asks for nothing, and shows the same numbers."""

from __future__ import annotations

import math
import re
from urllib.parse import parse_qs, urlsplit

import pytest
import torch
from pages import settle, show, views
from quick import quick_first
from test_page_numbers import Figures, check_page, checked, numbers

import glassformer as gf
from glassformer.cli import main
from glassformer.page.saved import VALUE_BYTES, page_of, parts_of, values_of

SIXTEEN = "고양이가 생선을 먹었다 그리고 나서 잠을 잤다고"
WICKED = "</script><script>window.ran.push(1)</script><img src=x onerror=window.ran.push(2)> <!-- <script>"


def opened(pages, browser, file, **how):
    """A page from disk in a context without network."""
    page = pages.open(url=file.as_uri(), offline=True, **how)
    assert page.evaluate("window.ran") == []
    return page


@pytest.fixture(scope="module")
def trace():
    return gf.load("small").trace(SIXTEEN)


@pytest.fixture
def quick(monkeypatch):
    """No explanations: the influence takes seconds. And no families."""
    monkeypatch.setattr("glassformer.page.saved.available", lambda trace: [])
    monkeypatch.setattr("glassformer.page.saved.siblings", lambda trace: [])


@pytest.fixture(scope="module")
def file(built, trace, tmp_path_factory):
    """Without the influence, whose numbers take no room to speak of."""
    path = tmp_path_factory.mktemp("saved") / "페이지.html"
    path.write_text(page_of(trace, "ko", slow=False), encoding="utf-8")
    return path


def test_it_opens_offline_asks_for_nothing_and_shows_pythons_numbers(pages, browser, file, trace):
    page, seen = opened(pages, browser, file), 0
    for view in views(page):
        show(page, view)
        for one in numbers(page.locator("data[data-name]")):
            checked(trace, one)
            seen += 1
    assert seen > 0
    assert [url for url in pages.asked if not url.startswith(("data:", "blob:"))] == [file.as_uri()]


@pytest.mark.slow
def test_the_flow_is_drawn_in_the_letters_of_the_file(pages, browser, file):
    """They come after the first drawing: what stands there is what a drawing made once more gives."""
    page = opened(pages, browser, file, view="flow")
    page.evaluate("document.fonts.ready")
    painted = "document.querySelector('#picture canvas').toDataURL()"
    page.wait_for_timeout(200)
    first = page.evaluate(painted)
    page.get_by_role("button", name="크게").click()
    show(page, "flow")
    assert page.evaluate(painted) != first
    page.get_by_title("기본 크기").click()
    show(page, "flow")
    page.evaluate("document.querySelector('#picture').scrollTop = 1e6")
    page.wait_for_timeout(200)
    assert page.evaluate(painted) == first


def test_a_link_to_another_run_says_that_the_file_has_it_not(pages, browser, file):
    page = opened(pages, browser, file, text="<i>The cat</i>", view="heads")
    [note] = page.get_by_role("note").all_inner_texts()
    assert "text=<i>The cat</i>" in note and SIXTEEN in page.inner_text("header")
    page.evaluate("location.hash = '#view=flow'")
    page.get_by_role("note").wait_for(state="detached")
    assert SIXTEEN in page.inner_text("header") and page.evaluate("decodeURIComponent(location.hash)").count("text=")


@pytest.mark.slow
def test_a_file_that_cannot_be_opened_says_why(pages, browser, file, tmp_path):
    """Cut off within its values, and before what it holds; in a browser that cannot unpack it."""
    whole, cut = file.read_text(encoding="utf-8"), tmp_path / "cut.html"

    def told(page):
        page.get_by_role("alert").wait_for()
        return page.inner_text("body")

    for end in (whole.index('id="values"') + 5000, whole.index('id="saved"') - 200):
        cut.write_text(whole[:end], encoding="utf-8")
        assert told(pages.open(url=cut.as_uri(), offline=True, wait=False)).startswith("파일이 손상되었거나")
    page = pages.open(url=file.as_uri(), offline=True, wait=False)
    page.add_init_script("delete window.DecompressionStream")
    page.reload()
    assert told(page).startswith("이 브라우저는 오래되어")
    said = [one for one in pages.errors if "손상되었거나" in one or "오래되어" in one]
    assert len(said) == 3, pages.errors  # told in the console too, with where it happened
    pages.errors.clear()


def test_a_picture_is_saved_from_the_page(pages, browser, quick, tmp_path):
    """Also after it was stopped, which is no mistake of which anything is said."""
    page = pages.open(model="lenet", lang="en")
    page.route("**/page", lambda route: None)  # an answer that does not come
    page.get_by_role("button", name="Save page").click()
    page.get_by_role("button", name="Stop saving").click()
    page.get_by_role("button", name="Stop saving").wait_for(state="detached")
    assert page.get_by_role("alert").count() == 0
    page.unroute("**/page")
    with page.expect_download() as got:
        page.get_by_role("button", name="Save page").click()
    got.value.save_as(tmp_path / "lenet.html")
    saved = opened(pages, browser, tmp_path / "lenet.html", lang="en")
    assert "lenet" in saved.inner_text("header") and saved.locator("#view canvas").count()


@pytest.mark.slow
def test_a_saved_page_opens_where_it_was_saved(pages, browser, quick, tmp_path):
    """At the view, layer, head, token and temperature that were seen; its address may name others."""
    page = pages.open(text=SIXTEEN, view="heads", layer=2, head=3, token=4, lang="en")
    show(page, "hands")
    page.get_by_role("button", name="switch head 2.3 off").click()
    settle(page)
    page.get_by_label("temperature as a number").fill("2.5")
    page.keyboard.press("Tab")
    settle(page)
    with page.expect_download() as got:
        page.get_by_role("button", name="Save page").click()
    got.value.save_as(tmp_path / "hands.html")
    saved = opened(pages, browser, tmp_path / "hands.html", lang="en")
    place = parse_qs(urlsplit(saved.url).fragment)
    assert [place[name] for name in ("view", "layer", "head", "token")] == [["hands"], ["2"], ["3"], ["4"]]
    assert saved.locator("[role=tab][aria-selected=true]").first.inner_text() == "Hands on"
    assert "2.5" in saved.inner_text("#view") and saved.evaluate("history.length") == 2  # and no step of its own
    assert not saved.get_by_role("note").filter(has_text="link").count()
    show(saved, "heads")
    assert "head 3" in saved.get_by_label("Where you are in the model").inner_text()
    other = opened(pages, browser, tmp_path / "hands.html", lang="en", view="steps", layer=1)
    place = parse_qs(urlsplit(other.url).fragment)
    assert place["view"] == ["steps"] and place["layer"] == ["1"] and "head" not in place


SAVED = {"korean-g2p": "값없이", "lenet": None, "ssm": "고양이가 먹었다", "vit": None}


@pytest.mark.parametrize("model", quick_first(SAVED, ["korean-g2p"]))
def test_every_view_of_a_saved_page_finds_what_it_asks_for(built, pages, browser, tmp_path, model):
    """Of a pair, of a model without attention, and of a picture, also in another layer and at another token."""
    picture, text = torch.rand(1, 28, 28, generator=torch.Generator().manual_seed(0)), SAVED[model]
    trace = gf.load(model).trace(picture if text is None else text)
    if text is None:
        trace.save(tmp_path / "one.html", lang="en")  # whose influence takes no time
    else:
        (tmp_path / "one.html").write_text(page_of(trace, "en", slow=False), encoding="utf-8")
    for place in ({}, {"layer": 1, "token": 2, "head": 1, "by": "word"}):
        page = opened(pages, browser, tmp_path / "one.html", lang="en", **place)
        figures = Figures(trace)
        for view in views(page):
            show(page, view)
            assert page.get_by_role("alert").count() == 0, (view, page.get_by_role("alert").first.inner_text())
            check_page(page, trace, figures)


def test_its_language_is_the_one_it_was_saved_in(built, quick, pages, browser, trace, tmp_path):
    for lang, word in (("ko", "언어"), ("en", "Language")):
        (tmp_path / f"{lang}.html").write_text(page_of(trace, lang), encoding="utf-8")
        page = opened(pages, browser, tmp_path / f"{lang}.html", lang="en" if lang == "ko" else "ko")
        assert page.evaluate("document.documentElement.lang") == lang
        assert page.get_by_label(word, exact=True).count() == 1


def test_the_command_line_and_the_trace_save_the_same_file(built, quick, trace, tmp_path, capsys):
    trace.save(tmp_path / "new" / "one.html", lang="ko")
    assert main(["trace", SIXTEEN, "--save", str(tmp_path / "two.html"), "--lang", "ko"]) == 0
    assert "화면(" in capsys.readouterr().err
    assert (tmp_path / "new" / "one.html").read_bytes() == (tmp_path / "two.html").read_bytes()
    with pytest.raises(gf.GlassformerError, match="the page chooses what it needs"):
        trace.save(tmp_path / "three.html", names=["embed.out"])


def test_a_notebook_shows_the_page_in_a_frame_that_can_touch_nothing(built, quick, pages, browser, trace, tmp_path):
    (tmp_path / "cell.html").write_text(f"<!doctype html><div id='cell'>{trace._repr_html_()}</div>", "utf-8")
    page = pages.open(url=(tmp_path / "cell.html").as_uri(), offline=True, wait=False, lang="en")
    frame = page.frame_locator("iframe")
    frame.locator("#view data[data-name], #view data[data-figure], #view canvas").first.wait_for()
    assert SIXTEEN in frame.locator("header").inner_text() and frame.get_by_label("Language", exact=True).count() == 1
    assert page.frames[1].evaluate("() => { try { return parent.document.title } catch { return 0 } }") == 0
    assert gf.load("small").trace(torch.tensor([[5, 6], [7, 8]]))._repr_html_() is None


def test_a_text_cannot_leave_its_place_in_the_file(built, quick, pages, browser, tmp_path):
    trace = gf.load("small").trace(WICKED)
    (tmp_path / "wicked.html").write_text(page_of(trace, "en"), encoding="utf-8")
    page = opened(pages, browser, tmp_path / "wicked.html", lang="en")
    assert WICKED in page.inner_text("header")
    assert page.evaluate("[...document.scripts].map((one) => one.id || one.type)") == ["module", "saved", "values"]


def test_a_script_that_came_in_would_not_run(built, pages, browser, file, tmp_path):
    """The policy in the file allows the page's own script alone."""
    text = file.read_text(encoding="utf-8").replace(
        '<div id="app">', '<script>window.ran.push(3)</script><div id="app">'
    )
    (tmp_path / "changed.html").write_text(text, encoding="utf-8")
    opened(pages, browser, tmp_path / "changed.html")
    assert any("Content Security Policy" in one for one in pages.errors)
    pages.errors.clear()


def test_a_large_run_leaves_out_what_is_asked_for_least(trace):
    [own, other] = parts_of(trace, False, [gf.load("small").trace("고양이가 잤다")], [])
    names = set(trace.names())
    whole, without = values_of([own, other], VALUE_BYTES)
    assert all(f'"{name}"'.encode() in whole for name in names) and without == ()
    assert b'"beside-0/blocks.0.mixer.pattern"' in whole and b"beside-0/blocks.0.mixer.q" not in whole
    patterns = [name for name in names if name.endswith(".pattern")]
    room = sum(4 * math.prod(n for _, n in trace.sizes(name)) for name in patterns)
    found, without = values_of([own, other], room)
    assert set(re.findall(rb'"([\w./-]+)": \{"dtype"', found)) == {name.encode() for name in patterns}
    assert set(without) == {f"small: {name}" for name in patterns}  # of the run beside it
