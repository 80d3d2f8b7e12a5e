"""The page in a notebook: each number from the kernel, each widget for itself, and nothing of it outside its frame."""

from __future__ import annotations

import threading
import time

import pytest
import torch
from notebooks import Notebook
from pages import settle, show, views
from quick import quick_first
from test_page_numbers import Figures, check_page

import glassformer as gf
from glassformer.notebook import shown
from glassformer.serve import app

pytest.importorskip("anywidget")
TEXT, OTHER = "고양이가 생선을 먹었다", "밤하늘에 별이 빛난다"
STYLE = (
    "<style>button, main, h1 { color: rgb(255, 0, 0) !important; display: none !important } p { margin: 7px }</style>"
)


def own(name, seed):
    """A model that only this process has: another with its name cannot be loaded anywhere."""
    model = gf.load("small")
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(seed)
        for p in model.model.parameters():
            p.add_(0.3 * p.std().nan_to_num() * torch.randn_like(p))
    model.name = name
    return model


def until(notebook, is_so, most_s=20):
    """Let messages pass until something is so."""
    end = time.monotonic() + most_s
    while not is_so():
        assert time.monotonic() < end
        notebook.page.wait_for_timeout(10)


@pytest.fixture
def notebook(built, pages, tmp_path):
    """A bare page whose own styles would ruin the explorer."""
    (tmp_path / "bare.html").write_text(f"<!doctype html>{STYLE}<body><p id=text>text", encoding="utf-8")
    made = Notebook(pages.open(url=(tmp_path / "bare.html").as_uri(), wait=False, offline=True))
    yield made
    for one in made.widgets.values():
        one.close()


def test_every_number_comes_from_the_kernel(notebook):
    trace = own("mine", 1).trace(TEXT)
    frame, seen = notebook.show("one", gf.widget(trace, lang="en")), {}
    settle(frame)
    assert frame.evaluate("document.documentElement.lang") == "en" and TEXT in frame.input_value("#text")
    figures = Figures(trace)
    for view in views(frame):
        if view not in ("families", "two"):  # which run other models and texts
            show(frame, view)
            assert frame.get_by_role("alert").count() == 0, (view, frame.inner_text("#view"))
            seen[view] = check_page(frame, trace, figures)
    assert seen["flow"] and seen["steps"] and seen["heads"]


def test_a_click_computes_in_the_kernel(notebook):
    """Another token, another text and a change, each against a trace of the same model."""
    model = own("mine", 2)
    trace = model.trace(TEXT)
    frame = notebook.show("one", gf.widget(trace))
    settle(frame)
    show(frame, "steps")
    before = len(notebook.messages)
    frame.locator("[role=option], .tokens button").nth(2).click()
    settle(frame)
    asked = [message for _, message in notebook.messages[before:] if "ask" in message]
    assert asked and check_page(frame, trace, Figures(trace))
    frame.fill("#text", OTHER)
    frame.press("#text", "Enter")
    settle(frame)
    other = model.trace(OTHER)
    assert check_page(frame, other, Figures(other)) and not shows(frame, trace)


def shows(frame, trace):
    """Whether the page shows the numbers of this trace."""
    try:
        check_page(frame, trace, Figures(trace))
    except (AssertionError, gf.GlassformerError, IndexError):
        return False
    return True


@pytest.mark.slow
def test_two_widgets_side_by_side_do_not_know_of_each_other(notebook):
    traces = {"one": own("mine", 3).trace(TEXT), "two": own("mine", 4).trace(OTHER)}
    # By name: the language that a test gives its browser reaches a sandboxed frame now and then after the page began.
    frames = {id: notebook.show(id, gf.widget(trace, lang="ko")) for id, trace in traces.items()}
    for frame in frames.values():
        settle(frame)
    show(frames["one"], "heads")
    frames["one"].select_option("[aria-label='언어'], [aria-label='Language']", "en")
    settle(frames["one"])
    for id, frame in frames.items():
        settle(frame)
        assert check_page(frame, traces[id], Figures(traces[id]))
    chosen = {id: frame.get_attribute("[role=tab][aria-selected=true]", "id") for id, frame in frames.items()}
    assert chosen == {"one": "tab-heads", "two": "tab-flow"}
    langs = {id: frame.evaluate("document.documentElement.lang") for id, frame in frames.items()}
    assert langs == {"one": "en", "two": "ko"}
    assert {id for id, _ in notebook.messages} == {"one", "two"}


def test_nothing_of_it_leaves_its_frame(notebook):
    """No style, no storage, no address, no name: the notebook's page is as it was, and its styles stay outside."""
    page = notebook.page
    look = """() => [location.href, localStorage.length, document.title, document.head.innerHTML,
      document.documentElement.getAttributeNames(), document.body.getAttributeNames(),
      getComputedStyle(document.body).margin, getComputedStyle(document.querySelector("#text")).font,
      document.styleSheets.length, Object.keys(window).filter((one) => one === "glassformer").length]"""
    before = page.evaluate(look)
    frame = notebook.show("one", gf.widget(own("mine", 5).trace(TEXT)))
    settle(frame)
    show(frame, "heads")
    assert page.evaluate(look) == before
    assert frame.evaluate("getComputedStyle(document.querySelector('h1')).color") != "rgb(255, 0, 0)"
    assert frame.evaluate("() => { try { return parent.document.title } catch { return null } }") is None
    assert frame.get_by_text("Copy link").count() == frame.get_by_text("링크 복사").count() == 0


@pytest.mark.slow
def test_a_frame_that_was_taken_out_and_put_in_again_is_where_it_was(notebook):
    """As a notebook does with cells that are scrolled away."""
    trace = own("mine", 6).trace(TEXT)
    frame = notebook.show("one", gf.widget(trace))
    settle(frame)
    show(frame, "heads")
    notebook.page.evaluate("() => { const at = document.querySelector('#one'); at.remove(); document.body.append(at) }")
    frame = notebook.frame("one")
    settle(frame)
    assert frame.get_attribute("[role=tab][aria-selected=true]", "id") == "tab-heads"
    assert check_page(frame, trace, Figures(trace))
    views_seen = {message["view"] for _, message in notebook.messages}
    assert len(views_seen) == 2
    assert [message for _, message in notebook.messages if message.get("leave")]


@pytest.mark.slow
@pytest.mark.parametrize("how", quick_first(["stop", "away"], ["stop"]))
def test_progress_is_shown_and_what_nobody_waits_for_ends(notebook, monkeypatch, how):
    ended = threading.Event()

    def slow(name, trace, settings, report):
        try:
            for i in range(1, 6000):
                report(i, 6000)
                ended.wait(0.01)
        except BaseException:
            ended.set()
            raise

    frame = notebook.show("one", gf.widget(own("mine", 7).trace(TEXT)))
    settle(frame)
    show(frame, "explain")
    monkeypatch.setattr(app, "explained", slow)
    frame.locator("#view .list button").last.click()
    until(notebook, lambda: frame.evaluate("document.querySelector('#view progress')?.value > 0.005"))
    if how == "stop":
        frame.locator("#view [role=status] button").click()
    else:
        notebook.page.evaluate("() => window.widgets.get('one').away()")
    until(notebook, ended.is_set)
    assert notebook.page.locator("iframe").count() == (how == "stop")


def held(widget):
    """The messages of a widget whose kernel runs a cell, and what lets it answer them."""
    taken, take = [], widget.bridge.take
    widget.bridge.take = taken.append

    def free():
        widget.bridge.take = take
        for message in taken:
            take(message)

    return free


@pytest.mark.slow
def test_a_kernel_that_says_nothing_is_told_of(notebook):
    widget = gf.widget(own("mine", 8).trace(TEXT), lang="en")
    frame = notebook.show("one", widget)
    settle(frame)
    free = held(widget)
    frame.click("#tab-steps")
    until(notebook, lambda: frame.get_by_text("The kernel does not answer").count())
    free()
    settle(frame)
    assert frame.get_by_text("The kernel does not answer").count() == 0


def forms(notebook):
    """Whether the page that is there takes another sentence; −1: none is there."""
    inside = notebook.page.frame_locator("#one iframe")
    return inside.locator("#text").count() if inside.locator("#view > *").count() else -1


@pytest.mark.slow
def test_until_the_kernel_answers_a_saved_page_stands_in_its_place(notebook):
    """As in a document that was executed by a program, and while the cells below are running."""
    trace = own("mine", 8).trace(TEXT)
    widget = gf.widget(trace)
    free = held(widget)
    frame = notebook.show("one", widget)
    until(notebook, lambda: forms(notebook) == 0)
    frame = notebook.frame("one")
    settle(frame)
    show(frame, "steps")
    assert check_page(frame, trace, Figures(trace))
    free()
    until(notebook, lambda: forms(notebook) == 1)
    settle(notebook.frame("one"))
    assert check_page(notebook.frame("one"), trace, Figures(trace))


# How notebooks nest what a cell shows, each of its outputs for itself; before it the output of another cell.
TREES = {
    "JupyterLab": """<div class="jp-Cell"><div class="jp-OutputArea">AGAIN</div></div>
      <div class="jp-Cell"><div class="jp-OutputArea">
        <div class="jp-OutputArea-child"><div class="jp-OutputArea-output"><b>other</b>AGAIN</div></div>
        <div class="jp-OutputArea-child"><div class="jp-OutputArea-output widget-place"></div></div></div></div>""",
    "classic": """<div class="cell"><div class="output_wrapper"><div class="output">AGAIN</div></div></div>
      <div class="cell"><div class="output_wrapper"><div class="output">
        <div class="output_area"><div class="output_subarea output_html"><b>other</b>AGAIN</div></div>
        <div class="output_area"><div class="output_subarea widget-place"></div></div></div></div></div>""",
}


@pytest.mark.slow
@pytest.mark.parametrize("tree", quick_first(TREES, ["JupyterLab"]))
def test_what_to_do_without_a_kernel_is_hidden_while_the_page_is_there(notebook, tree):
    """That of its own cell, and nothing else."""
    page, html = notebook.page, TREES[tree].replace("AGAIN", shown.AGAIN)
    page.evaluate("html => document.body.insertAdjacentHTML('beforeend', html)", html)
    again = page.locator(".glassformer-again")
    assert again.count() == 2 and again.nth(0).is_visible() and again.nth(1).is_visible()
    notebook.show("one", gf.widget(own("mine", 10).trace(TEXT)))
    until(notebook, lambda: again.nth(1).evaluate("one => one.hidden"))
    assert again.nth(0).is_visible() and page.locator("b", has_text="other").is_visible()


def test_it_takes_the_notebooks_theme(notebook):
    notebook.page.evaluate("document.body.style.background = 'rgb(17, 17, 17)'")
    frame = notebook.show("one", gf.widget(own("mine", 9).trace(TEXT)))
    settle(frame)
    assert frame.evaluate("document.documentElement.dataset.theme") == "dark"
    notebook.page.evaluate("document.body.style.background = 'rgb(250, 250, 250)'")
    until(notebook, lambda: frame.evaluate("document.documentElement.dataset.theme") == "light")
