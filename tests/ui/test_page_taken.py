"""Every view's figures can be taken along as PNG and SVG, live and from a saved page; a link brings another person to
the same picture."""

from __future__ import annotations

import io
import re
from xml.etree import ElementTree

import numpy as np
import pytest
from pages import settle, show
from PIL import Image
from test_page_saved import opened

import glassformer as gf
from glassformer.page.saved import page_of

TEXT = "고양이가 잤다"
SVG = "{http://www.w3.org/2000/svg}"
# A view, where it is opened, and a text that its figures must have as letters.
VIEWS = {
    "flow": ({}, "고"),
    "steps": ({"layer": 1, "head": 2}, "고"),
    "heads": ({}, "고"),
    "families": ({"more": "families=mlp,lstm"}, "고"),
    "two": ({"second": "개가 잤다", "more": "two=잤다"}, "고"),
    "write": ({"more": "write=max_new_tokens%3D3"}, ""),
    "explain": ({"more": "explain=sight"}, "고"),
}


def taken(page, button, kind):
    """The bytes of what a button gives."""
    # Chromium takes one download for a click; where it has not counted this one yet, so soon behind another, it asks.
    page.wait_for_timeout(200)
    with page.expect_download() as got:
        button.get_by_role("button", name=kind, exact=True).click()
    assert got.value.suggested_filename.endswith(f".{kind.lower()}")
    return got.value.path().read_bytes()


def words(svg):
    """The texts in an SVG, which must be valid and ask for nothing."""
    root = ElementTree.fromstring(svg)
    assert root.tag == f"{SVG}svg" and float(root.get("width")) > 50
    said = svg.decode()
    faces = re.findall(r"url\((.*?)\)", said)
    assert all(one.strip('"').startswith(("data:font/woff;base64,", "#unseen")) for one in faces)
    said = re.sub(r"url\(.*?\)", "", said)
    assert "�" not in said and "http" not in said.replace("http://www.w3.org/2000/svg", "")
    if re.search("[가-힣]", said):
        assert any(one.strip('"').startswith("data:") for one in faces), "its letters come along"
    assert not re.search(r"oklch|NaN|undefined|Infinity", said)
    return [one.text or "" for one in root.iter(f"{SVG}text")]


def check_taken(page, view, word):
    """Take every figure of a view along; how many."""
    groups = page.locator("#view .take")
    assert groups.count() > 0, view
    everything = []
    for i in range(min(6, groups.count())):
        said = words(taken(page, groups.nth(i), "SVG"))
        assert said and all(said), view
        everything += said
        picture = np.asarray(Image.open(io.BytesIO(taken(page, groups.nth(i), "PNG"))).convert("RGB"))
        assert min(picture.shape[:2]) > 40 and picture.std() > 2, view  # something is drawn
    assert not word or any(word in one for one in everything), (view, everything)
    return groups.count()


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_s_figures_are_taken_along(pages, view):
    place, word = VIEWS[view]
    page = pages.open(model="small", text=TEXT, view=view, **place)
    check_taken(page, view, word)


def test_the_four_steps_of_a_file_are_the_page_s_numbers(pages):
    page = pages.open(model="small", text=TEXT, view="steps", layer=1, head=2)
    said = words(taken(page, page.locator("#view .take").first, "SVG"))
    shown = page.locator("#view table data[data-name='blocks.1.mixer.scores']").all_inner_texts()
    assert len(shown) == gf.load("small").trace(TEXT).sizes("embed.out")[1][1]
    assert all(one.strip() in said for one in shown)


def test_those_of_a_pair_and_of_a_saved_page(built, pages, browser, tmp_path):
    page = pages.open(model="korean-g2p", text="값없이", view="align")
    check_taken(page, "align", "")
    model = gf.load("small")
    trace = model.trace(TEXT)
    beside = [model.trace("개가 잤다"), gf.load("mlp").trace(TEXT)]
    (tmp_path / "one.html").write_text(page_of(trace, "ko", beside=beside), encoding="utf-8")
    page = opened(pages, browser, tmp_path / "one.html")
    for view in ("flow", "steps", "heads", "families", "two", "explain"):
        show(page, view)
        check_taken(page, view, VIEWS[view][1])


# What is changed in a view, and what it is changed with.
def zoomed(page):
    page.get_by_role("button", name="larger").click()


def headed(page):
    page.get_by_role("combobox", name="Head").select_option("3")


def sorted_(page):
    page.get_by_label("ordered by").select_option(index=3)


def stationed(page):
    page.locator("figure svg").first.focus()
    for _ in range(9):
        page.keyboard.press("ArrowLeft")


def each(page):
    page.get_by_label("one colour scale for all").uncheck()


def written(page):
    page.get_by_label("new tokens").fill("4")
    page.get_by_label("temperature").fill("0.5")
    page.get_by_label("seed").fill("7")
    page.get_by_role("button", name="Write", exact=True).click()


def sighted(page):
    page.locator(".explain .list button").nth(3).click()


CHANGES = {
    "flow": (zoomed, {"layer": 1, "token": 2}),
    "steps": (
        lambda page: page.get_by_role("combobox", name="Head").select_option("3"),
        {"layer": 2, "token": 3, "key": 1},
    ),
    "heads": (sorted_, {"layer": 2, "head": 1}),
    "families": (each, {"more": "families=mlp,cnn", "token": 2}),
    "two": (stationed, {"second": "개가 잤다", "more": "two=잤다"}),
    "write": (written, {}),
    "explain": (sighted, {}),
}
# What a person sees: the words (but for the seconds that it took), the choices, and the pictures.
SHOWN = """() => {
  const all = (of) => [...document.querySelectorAll(of)];
  return [document.querySelector("main").innerText.replace(/[0-9.]+ s\\b/g, "s"),
    ...all("main select, main input, main textarea").map((one) => (one.type === "checkbox" ? one.checked : one.value)),
    ...all("main [aria-selected=true], main [aria-pressed=true]").map((one) => one.textContent),
    ...all("main canvas").map((one) => one.toDataURL().length)];
}"""


@pytest.mark.parametrize("view", CHANGES)
def test_a_link_brings_another_to_the_same(pages, view):
    change, place = CHANGES[view]
    page = pages.open(model="small", text=TEXT, view=view, lang="en", **place)
    before = page.evaluate(SHOWN)
    change(page)
    settle(page)
    changed = page.evaluate(SHOWN)
    assert changed != before
    again = pages.open(url=page.url, lang="en")
    assert again.evaluate(SHOWN) == changed
