"""What a person does beside looking: copying, stopping a run, following what was written."""

from __future__ import annotations

import threading
import time
from urllib.parse import parse_qs, urlsplit

import pytest
from pages import Pages, at_rest, served, settle
from test_page_numbers import Figures, check_page

import glassformer as gf
from glassformer.serve import app
from glassformer.serve.models import Models
from glassformer.serve.runs import Runs
from glassformer.serve.work import Cancelled

TEXT = "고양이가 잤다"


def address(page):
    """What stands in the address of a page."""
    return {name: value[0] for name, value in parse_qs(urlsplit(page.url).fragment).items()}


def test_the_equivalent_command_and_the_python_are_copied(pages):
    page = pages.open(text=TEXT, view="hands", lang="en")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="switch head 3.0 off").click()
    settle(page)
    for i, name in enumerate(("copy the Python", "copy the command")):
        page.get_by_role("button", name=name).first.click()
        page.get_by_role("button", name="copied", exact=True).wait_for()
        assert page.evaluate("navigator.clipboard.readText()") == page.locator("#view pre").nth(i).inner_text()
        assert page.get_by_role("textbox", name="copy it from here").count() == 0
        page.get_by_role("button", name=name).first.wait_for()  # a moment later it can be copied again
    page.get_by_role("button", name="Copy link", exact=True).click()
    page.get_by_role("button", name="copied", exact=True).wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == page.url


@pytest.mark.parametrize(
    "without",
    [
        "navigator.clipboard.writeText = () => Promise.reject(new Error('not allowed'))",
        "Object.defineProperty(navigator, 'clipboard', { value: undefined })",  # as on a page without https
    ],
)
def test_where_a_browser_does_not_copy_the_text_stands_to_be_copied(pages, without):
    page = pages.open(text=TEXT, view="hands", lang="en")
    page.evaluate(f"() => {{ {without} }}")
    page.get_by_role("button", name="copy the command").click()
    field = page.get_by_role("textbox", name="copy it from here")
    field.wait_for()
    assert field.input_value() == page.locator("#view pre").nth(1).inner_text()
    assert page.evaluate("getSelection().toString() || document.activeElement.value") == field.input_value()
    assert page.get_by_text("copied", exact=True).count() == 0  # it is not said to be
    page.keyboard.press("Escape")
    assert field.count() == 0


@pytest.fixture
def slow(built, browser, monkeypatch):
    """(pages, what is known of it) of a server whose runs of one text last until they are stopped, or may end."""
    known = {"began": threading.Event(), "ended": threading.Event(), "may": threading.Event()}
    make = Runs.make

    def slowly(self, asked, work):
        work.report("run")
        try:
            while asked.text == "느린 문장" and not known["may"].is_set():
                known["began"].set()
                time.sleep(0.02)
                work.report("run", 1, 4)
        except Cancelled:
            known["ended"].set()
            raise
        return make(self, asked, work)

    monkeypatch.setattr(Runs, "make", slowly)
    with served(models=Models()) as server:
        pages = Pages(browser, server)
        yield pages, known
        known["may"].set()
        pages.close()


def test_a_run_is_stopped_and_run_again(slow):
    pages, known = slow
    page = pages.open(text=TEXT, view="steps", lang="en")
    before = page.inner_text("#view table")
    page.fill("#text", "느린 문장")
    page.get_by_role("button", name="Run", exact=True).click()
    page.locator("header progress").wait_for()
    assert known["began"].wait(10) and page.locator("#view [inert]").count() == 1
    page.locator("header").get_by_role("button", name="Stop", exact=True).click()
    assert known["ended"].wait(2), "the server computes on"
    page.get_by_text("The run was stopped.").wait_for()
    settle(page)
    assert page.locator("header progress").count() == 0 and page.get_by_role("alert").count() == 0
    # The old run is still there to be looked at, as what it is: of another text than the one that stands above.
    assert page.inner_text("#view table") == before and page.locator("#view [inert]").count() == 1
    known["may"].set()
    page.get_by_role("button", name="run it again").click()
    page.get_by_text("The run was stopped.").wait_for(state="detached")
    settle(page)
    assert page.locator("#view [inert]").count() == 0 and page.inner_text("#view table") != before
    trace = gf.load("small").trace("느린 문장")
    assert check_page(page, trace, Figures(trace)) >= 10


@pytest.mark.slow
def test_a_fetch_tells_how_far_it_is_is_stopped_and_made_again(built, browser, monkeypatch):
    known = {"ended": threading.Event(), "may": threading.Event()}

    def pull(name, report):
        try:
            while not known["may"].is_set():
                report("download", 3 << 20, 8 << 20)
                time.sleep(0.02)
        except Cancelled:
            known["ended"].set()
            raise
        return Models().place("small")

    monkeypatch.setattr("glassformer.serve.models.pull", pull)
    monkeypatch.setattr("glassformer.catalogue.pulled", lambda: [])  # whatever this machine has
    with served(models=Models()) as server:
        pages = Pages(browser, server)
        page = pages.open(text=TEXT, lang="en")
        page.get_by_role("button", name="Model").click()
        dialog = page.locator("dialog")
        fetch = dialog.locator("li button", has_text="smollm2-135m")
        fetch.click()
        dialog.get_by_text("3.00 MiB / 8.00 MiB").wait_for()
        assert dialog.locator("progress").evaluate("one => one.value / one.max") == 3 / 8
        dialog.get_by_role("button", name="Stop", exact=True).click()
        assert known["ended"].wait(5), "the server fetches on"
        dialog.locator("progress").wait_for(state="detached")
        assert dialog.get_by_role("alert").count() == 0 and "smollm2" not in page.url
        known["may"].set()
        fetch.click()
        page.locator("header button", has_text="smollm2-135m").wait_for()
        settle(page)
        trace = gf.load("small").trace(TEXT)
        assert not dialog.is_visible() and check_page(page, trace, Figures(trace)) >= 5
        pages.close()


@pytest.mark.slow
def test_two_people_look_at_once(built, browser, launched):
    """Each in a browser of its own: both have their own numbers."""
    own = launched()
    with served(models=Models()) as server:
        people = [Pages(browser, server), Pages(own, server)]
        given = [("small", TEXT), ("lstm", "개가 잤다")]
        opened = [
            one.open(model=model, text=text, lang="en", wait=False)
            for one, (model, text) in zip(people, given, strict=True)
        ]
        for view in ("flow", "hands", "explain"):
            for page in opened:
                page.click(f"#tab-{view}")  # both wait at once
            for page, (model, text) in zip(opened, given, strict=True):
                settle(page)
                trace = gf.load(model).trace(text)
                assert page.input_value("#text") == text and check_page(page, trace, Figures(trace)) >= 3
        for one in people:
            one.close()
    own.close()


def test_what_was_written_is_followed_through_the_model(pages):
    page = pages.open(model="small", text=TEXT, view="write", lang="en", more="write=max_new_tokens%3D4%26seed%3D3")
    made = page.locator(".text").inner_text()
    page.get_by_label("Beginning").fill("아직 쓰지 않은 글")  # what was written stays behind what it was written for
    assert page.locator(".text").inner_text() == made
    page.get_by_role("button", name="follow the whole text").click()
    settle(page)
    assert page.input_value("#text").startswith(TEXT) and len(page.input_value("#text")) > len(TEXT)
    assert made.replace("␠", " ").startswith(TEXT) and address(page).get("view", "flow") == "flow"
    trace = gf.load("small").trace(page.input_value("#text"))
    assert check_page(page, trace, Figures(trace)) >= 5


@pytest.mark.slow
def test_a_page_that_writes_is_not_at_rest_before_its_first_token(pages, monkeypatch):
    """Else whoever waits for it, as a test or a reader of the screen does, takes a part for the whole."""
    began, may, write = threading.Event(), threading.Event(), app.write

    def late(*asked):
        began.set()
        may.wait(20)
        return write(*asked)

    monkeypatch.setattr(app, "write", late)
    page = pages.open(text=TEXT, view="write", more="write=max_new_tokens%3D2", wait=False)
    assert began.wait(20) and not at_rest(page, most_s=0.5)
    assert page.locator(".text").count() == 0
    may.set()
    settle(page)
    assert page.locator(".text button").count() == 2


def test_what_the_first_token_is_drawn_from_is_that_of_the_run(pages):
    page, said = pages.open(text=TEXT, view="write", lang="en"), "The first token will be drawn from these"
    assert said in page.inner_text("#view") and page.locator("#view .bars").count() == 1
    page.get_by_label("new tokens").fill("500")  # what is refused names the fields of the page
    page.get_by_role("button", name="Write", exact=True).click()
    room = 256 - len(gf.load("small").encode(TEXT))
    page.get_by_text(f"set “new tokens” to at most {room}, or shorten").wait_for()
    page.evaluate("document.querySelector('#text').value = 'a\\ud83d'")
    page.locator("#text").dispatch_event("input")
    page.get_by_role("button", name="Run", exact=True).click()
    page.get_by_text("position 1: a lone surrogate (U+D83D) is no character; leave it out").wait_for()
    edit = '[{"kind":"zero","name":"blocks.2.mixer.z","where":{"h":1},"value":null}]'
    page.evaluate("to => { location.hash = to; }", f"#text={TEXT}&view=write&edits={edit}")
    settle(page)
    assert said in page.inner_text("#view") and "with the changes" in page.inner_text("#view")
    changed = gf.zero("blocks.2.mixer.z", h=1)
    shown = page.locator("#view .bars data").all_inner_texts()
    logits = gf.load("small").trace(TEXT, edits=changed).logits[0, -1]
    [first] = gf.load("small").generate(TEXT, max_new_tokens=1, temperature=0, edits=changed)
    wanted = f"{100 * logits.softmax(-1).max():.3g} %"
    assert wanted in [one.strip() for one in shown] and first.token == int(logits.argmax())


@pytest.mark.slow
def test_what_a_pair_has_written_is_followed_and_stays_in_the_link(pages):
    """With the target that was drawn, which is not the one that the model would write by itself."""
    source, model = "값없이", gf.load("korean-g2p")
    own = model.trace(source).text
    for seed in range(40):
        more = f"write=temperature%3D3%26seed%3D{seed}%26max_new_tokens%3D12"
        page = pages.open(model="korean-g2p", text=source, view="write", lang="en", more=more)
        page.get_by_role("button", name="follow the whole text").click()
        settle(page)
        target = address(page).get("target", "")
        if target and target != own:
            break
    assert target and target != own and page.input_value("#text") == source
    trace = model.trace((source, target))
    for one in (page, pages.open(url=page.url, lang="en")):
        assert "".join(one.locator("#view .tokens [role=option]").all_inner_texts()).endswith(f"⟩{target}")
        assert check_page(one, trace, Figures(trace)) >= 3
    # A change leaves the target as it is; another text has none.
    again = pages.open(url=page.url.replace("view=flow", "view=hands"), lang="en")
    again.locator("#tab-hands").click()
    settle(again)
    again.get_by_role("button", name="no mixing in layer").click()
    settle(again)
    assert address(again)["target"] == target
    again.fill("#text", "국물 값없이")
    again.get_by_role("button", name="Run", exact=True).click()
    settle(again)
    assert "target" not in address(again)
    # Of several words each has its own, also where one of them was changed.
    again.get_by_role("button", name="no mixing in layer").click()
    settle(again)
    assert address(again)["target"] == model.trace("국물").text and address(again)["text"] == "국물 값없이"
    again.get_by_role("button", name="값없이", exact=True).click()
    settle(again)
    assert "target" not in address(again) and "part=1" in again.url


@pytest.mark.parametrize(("width", "height"), [pytest.param(1280, 900, marks=pytest.mark.slow), (360, 640)])
def test_why_a_model_was_refused_is_in_sight(pages, width, height):
    page = pages.open(text=TEXT, lang="en", width=width, height=height)
    page.get_by_role("button", name="Model").click()
    field = page.locator("dialog form input")
    field.fill("../../etc")
    field.press("Enter")
    page.locator("dialog [role=alert]").wait_for()
    dialog = page.locator("dialog").bounding_box()
    for one in (page.locator("dialog [role=alert]"), field):
        box = one.bounding_box()
        assert dialog["y"] <= box["y"] and box["y"] + box["height"] <= dialog["y"] + dialog["height"]


def test_a_text_beyond_what_the_model_is_made_for_is_said_to_be(pages):
    page = pages.open(text=TEXT, lang="en")
    assert page.get_by_role("note").count() == 0
    page.fill("#text", "고양이 " * 150)
    page.keyboard.press("Enter")
    settle(page)
    tokens = len(gf.load("small").tokenizer.encode("고양이 " * 150)) + 1
    assert tokens > 256 and f"{tokens} tokens" in page.get_by_role("note").inner_text()
    assert "256" in page.get_by_role("note").inner_text()


def test_on_a_phone_what_a_picture_means_is_as_wide_as_the_screen(pages):
    page = pages.open(text=TEXT, width=360)
    assert page.locator("#view .over .said").bounding_box()["width"] > 300
