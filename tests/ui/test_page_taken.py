"""Every figure of every view can be taken along as PNG and SVG, live and from a saved page."""

from __future__ import annotations

import base64
import io
import re
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from pages import settle, show, views
from PIL import Image
from test_page_pictures import SEVEN
from test_page_saved import opened

import glassformer as gf
from glassformer.page.documents import AskedWriting, PageWriting
from glassformer.page.saved import page_of
from glassformer.serve.models import Models
from glassformer.serve.work import Work
from glassformer.serve.writing import write

TEXT = {"ko": "고양이가 잤다", "en": "The cat slept"}
OTHER = {"ko": "개가 잤다", "en": "A dog slept"}
EDIT = '[{"kind":"zero","name":"blocks.2.mixer.z","where":{"h":1},"value":null}]'
SVG = "{http://www.w3.org/2000/svg}"
PAPER = {"light": "#ffffff", "dark": "#14171c"}
# A view, what its address says beside a model and a text, the least number of its figures, and a language and a theme.
VIEWS = {
    "flow": ({"layer": 1}, 3, "ko", "light"),
    "steps": ({"layer": 1, "head": 2}, 2, "en", "dark"),
    "heads": ({}, 2, "ko", "dark"),
    "hands": ({"edits": EDIT}, 3, "ko", "light"),
    "write": ({"more": "write=max_new_tokens%3D3"}, 2, "en", "light"),
    "families": ({"more": "families=mlp,lstm"}, 8, "ko", "dark"),
    "two": ({}, 4, "en", "light"),
    "explain": ({"more": "explain=sight"}, 2, "ko", "light"),
    "align": ({"model": "korean-g2p", "text": "값없이"}, 1, "ko", "dark"),
    "image": ({"model": "vit", "text": ""}, 4, "ko", "light"),
    "image of lenet": ({"model": "lenet", "text": ""}, 4, "en", "dark"),
    "steps without attention": ({"model": "lstm"}, 1, "ko", "light"),
    "hands of a picture": (
        {"model": "vit", "text": "", "image": SEVEN, "edits": EDIT.replace("2.", "0.")},
        1,
        "en",
        "dark",
    ),
}
# What is drawn and stands in no figure: but small maps that lead to a view of their own, and the square to draw on.
LOST = """() => [...document.querySelectorAll("#view canvas, #view svg, #view table, #view .scores, #view .bars")]
  .filter((one) => one.checkVisibility() && !one.closest("figure, button, .tools"))
  .map((one) => `${one.tagName} ${one.getAttribute("aria-label") ?? one.textContent}`.slice(0, 80))"""
# Figures that show something and do not have both buttons.
WITHOUT = """() => [...document.querySelectorAll("#view figure")]
  .filter((one) => one.checkVisibility() && one.querySelector("canvas, svg, table, .scores, dl, ol"))
  .filter((one) => !/PNG\\s*SVG/.test([...one.querySelectorAll(".take")].map((of) => of.textContent).join()))
  .map((one) => one.textContent.slice(0, 80))"""
# Press each of these buttons; the names and the bytes of the files that they give. A browser stops several downloads in
# a row, so they are kept from it here; that they arrive is tested by one of each view.
FILES = """async (kind) => {
  const found = [], make = URL.createObjectURL, click = HTMLAnchorElement.prototype.click;
  let last;
  URL.createObjectURL = (one) => make.call(URL, (last = one));
  HTMLAnchorElement.prototype.click = function () { found.push([this.download, last]); };
  for (const one of document.querySelectorAll("#view .take")) {
    const many = found.length;
    [...one.querySelectorAll("button")].find((of) => of.textContent === kind).click();
    for (let i = 0; found.length === many && i < 400; i++) await new Promise((next) => setTimeout(next, 25));
  }
  [URL.createObjectURL, HTMLAnchorElement.prototype.click] = [make, click];
  const read = (blob) => new Promise((done) => {
    const reader = new FileReader();
    reader.onload = () => done(reader.result.split(",")[1]);
    reader.readAsDataURL(blob);
  });
  return Promise.all(found.map(async ([name, blob]) => [name, await read(blob)]));
}"""


def downloaded(page, button, kind):
    """The bytes of what a button gives, as the browser stores it."""
    # Chromium takes one download for a click; where it has not counted this one yet, so soon behind another, it asks.
    page.wait_for_timeout(200)
    with page.expect_download() as got:
        button.get_by_role("button", name=kind, exact=True).click()
    assert got.value.suggested_filename.endswith(f".{kind.lower()}")
    return got.value.path().read_bytes()


def words(svg, name="", theme="light"):
    """The texts in an SVG, which must be valid, have a title and ask for nothing."""
    root = ElementTree.fromstring(svg)
    assert root.tag == f"{SVG}svg" and float(root.get("width")) > 50
    title = root.find(f"{SVG}title")
    assert title is not None and title.text and root.find(f"{SVG}rect").get("fill") == PAPER[theme], name
    images = [one.get("href") for one in root.iter(f"{SVG}image")]
    assert all(one.startswith("data:image/png;base64,") for one in images)
    assert bool(images) == name.endswith("-picture"), f"{name}: only a picture is one in a file"
    said = svg.decode()
    for one in images:
        assert Image.open(io.BytesIO(base64.b64decode(one.partition(",")[2]))).width > 1
        said = said.replace(one, "")
    faces = re.findall(r"url\((.*?)\)", said)
    assert all(one.strip('"').startswith(("data:font/woff;base64,", "#unseen")) for one in faces)
    said = re.sub(r"url\(.*?\)", "", said)
    assert "�" not in said and "http" not in said.replace("http://www.w3.org/2000/svg", "")
    if re.search("[가-힣]", said):
        assert any(one.strip('"').startswith("data:") for one in faces), "its letters come along"
    assert not re.search(r"oklch|NaN|undefined|Infinity", said)
    return [title.text, *(one.text or "" for one in root.iter(f"{SVG}text"))]


def check_taken(page, view, lang="ko", theme="light"):
    """Every figure of a view has both buttons, and every file is a picture of its own; the texts in them."""
    assert page.evaluate(LOST) == [], f"{view}: drawn outside of any figure"
    assert page.evaluate(WITHOUT) == [], f"{view}: a figure without PNG or SVG"
    vector, image = page.evaluate(FILES, "SVG"), page.evaluate(FILES, "PNG")
    assert len(vector) == len(image) == page.locator("#view .take").count(), view
    everything = []
    for name, data in vector:
        said = words(base64.b64decode(data), name.removesuffix(".svg"), theme)
        assert name.endswith(".svg") and len(said) > 1 and all(said), (view, name)
        everything.append(said)
    for name, data in image:
        picture = np.asarray(Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB").reduce(4), dtype=float)
        assert name.endswith(".png") and min(picture.shape[:2]) > 10 and picture.std() > 1, (view, name)
        paper = [int(PAPER[theme][i : i + 2], 16) for i in (1, 3, 5)]
        assert abs(picture[0, 0] - paper).max() <= 2, (view, name)  # in the theme of the page
    if lang == "en":
        assert not re.search("[가-힣]", str(everything)), view
    return everything


# What is of the same kind as another one, and takes its time.
ALIKE = {*VIEWS} - {"steps", "align", "image"}


@pytest.mark.parametrize("view", [pytest.param(one, marks=[pytest.mark.slow] * (one in ALIKE)) for one in VIEWS])
def test_every_figure_of_a_view_is_taken_along(pages, view):
    place, least, lang, theme = VIEWS[view]
    place = {"model": "small", "text": TEXT[lang], "second": OTHER[lang], **place}
    page = pages.open(view=view.split()[0], lang=lang, theme=theme, **place)
    assert page.locator(f"#tab-{view.split()[0]}").get_attribute("aria-selected") == "true"
    found = check_taken(page, view, lang, theme)
    assert len(found) >= least, [one[0] for one in found]
    if lang == "ko" and place["text"] and view != "align":
        assert re.search("고|잤|“다”", str(found)), f"{view}: no letter of its text"
    downloaded(page, page.locator("#view .take").last, "SVG")
    downloaded(page, page.locator("#view .take").last, "PNG")


def test_a_picture_in_a_file_is_the_one_that_the_model_reads(pages):
    page = pages.open(model="lenet", view="image", lang="en")
    svg = downloaded(page, page.locator("#view figure .take").first, "SVG").decode()
    one = Image.open(io.BytesIO(base64.b64decode(re.search(r'href="data:image/png;base64,([^"]+)"', svg)[1])))
    page_of_it = page.evaluate("""() => {
      const [one] = [...window.glassformer.drawn].filter((it) => it.name === "embed.pixels" || it.name === "embed.out");
      return { rows: one.rows, columns: one.columns, colours: Array.from(one.values, (_, i) => one.colour(i)) };
    }""")
    assert one.size == (page_of_it["columns"], page_of_it["rows"])
    pixels = np.asarray(one.convert("RGB")).reshape(-1, 3)
    assert [f"#{r:02x}{g:02x}{b:02x}" for r, g, b in pixels] == page_of_it["colours"]


def test_the_four_steps_of_a_file_are_the_page_s_numbers(pages):
    page = pages.open(model="small", text=TEXT["ko"], view="steps", layer=1, head=2)
    said = words(downloaded(page, page.locator("#view .take").first, "SVG"))
    shown = page.locator("#view table data[data-name='blocks.1.mixer.scores']").all_inner_texts()
    assert len(shown) == gf.load("small").trace(TEXT["ko"]).sizes("embed.out")[1][1]
    assert all(one.strip() in said for one in shown)


def test_bars_of_a_file_are_as_long_as_those_of_the_page(pages):
    """A share of what a bar can be: one of 3 % does not look certain."""
    page = pages.open(model="small", text=TEXT["ko"], view="write")
    for model, view in (("small", "write"), ("lenet", "image")):
        page.evaluate("to => { location.hash = to; }", f"#model={model}&view={view}")
        settle(page)
        bars = page.locator("#view figure:has(.bars) .bar")
        shown = bars.evaluate_all(
            "all => all.map((one) => one.firstElementChild.getBoundingClientRect().width / one.clientWidth)"
        )
        svg = downloaded(page, page.locator("#view figure:has(.bars) .take"), "SVG").decode()
        drawn = [float(one) / 120 for one in re.findall(r"h([\d.]+)v9h", svg)]
        assert len(shown) >= 10 and 0.05 < max(shown) and drawn == pytest.approx(shown, abs=0.02), model
        written = page.locator("#view figure:has(.bars) .n").all_inner_texts()
        assert {one.strip() for one in written} <= set(words(svg.encode())) and all("%" in one for one in written)


def test_the_flow_is_taken_whole_also_what_is_out_of_sight(pages):
    """Every token in every layer, and what each layer hands over, though the page shows and asked for a few of them."""
    text = "고양이가 생선을 먹고 잤다"
    page = pages.open(model="small", text=text, by="token", more="zoom=2", width=600, height=420, lang="en")
    (stack,) = gf.load("small").trace(text).stacks
    seen = page.locator("#picture").bounding_box()
    svg = downloaded(page, page.locator("#view figure:has(#picture) .take"), "SVG").decode()
    said, blocks = words(svg.encode()), len(stack.model.blocks)
    assert len(set(re.findall(r'd="M([\d.]+ [\d.]+)a', svg))) == stack.length * (blocks + 1)
    assert all(any(one.startswith(f"{layer} · ") for one in said) for layer in range(blocks))
    heights = {float(one) for one in re.findall(r'd="M[\d.]+ ([\d.]+)C', svg)}
    assert len(heights) == blocks, "ribbons above every layer but the last"
    image = downloaded(page, page.locator("#view figure:has(#picture) .take"), "PNG")
    (wide, high), root = Image.open(io.BytesIO(image)).size, ElementTree.fromstring(svg)
    assert wide == pytest.approx(2 * float(root.get("width")), abs=2) and wide > 2.5 * seen["width"]
    assert high == pytest.approx(2 * float(root.get("height")), abs=2) and high > 2.5 * seen["height"]


def test_what_a_change_did_is_written_in_a_file_as_on_the_page(pages):
    """Shares in percent, their differences in points."""
    page = pages.open(model="small", text=TEXT["ko"], view="hands", edits=EDIT)
    shown = page.locator("#view figure.first tbody data").all_inner_texts()
    said = words(downloaded(page, page.locator("#view figure.first .take"), "SVG"))
    assert len(shown) > 20 and {one.strip() for one in shown} <= set(said) and "%p" in str(said)


def test_a_map_of_a_family_has_the_colours_that_are_seen(pages):
    """On one scale for all, also in the file."""
    page = pages.open(model="small", text=TEXT["ko"], view="families", more="families=mlp,lstm")
    scale = page.locator(".tools .scale span").nth(1).inner_text()
    for card in page.locator("article").all():
        assert any(one.startswith(scale) for one in words(downloaded(page, card.locator(".take").first, "SVG")))


def written(text):
    """What the shipped model writes behind a text, as a page keeps it."""
    asked, lines = AskedWriting("small", text, settings={"max_new_tokens": 3}), []
    done = write(Models(), asked, Work(lines.append))
    return PageWriting(asked, tuple(one["event"] for one in lines if "event" in one), done)


@pytest.mark.slow
def test_those_of_a_saved_page(built, pages, browser, tmp_path):
    model = gf.load("small")
    trace = model.trace(TEXT["ko"])
    edited = model.trace(TEXT["ko"], edits=[gf.zero("blocks.2.mixer.z", h=1)])
    beside = [model.trace(OTHER["ko"]), gf.load("mlp").trace(TEXT["ko"]), edited]
    html = page_of(trace, "ko", True, beside, (), (written(TEXT["ko"]),))
    (tmp_path / "one.html").write_text(html, encoding="utf-8")
    page, seen = opened(pages, browser, tmp_path / "one.html", theme="dark"), {}
    for view in views(page):
        show(page, view)
        seen[view] = len(check_taken(page, f"saved {view}", theme="dark"))
    assert seen.keys() >= {"flow", "steps", "heads", "hands", "write", "families", "two", "explain"}
    assert all(seen.values()), seen


@pytest.mark.slow
@pytest.mark.parametrize(("model", "text"), [("vit", None), ("korean-g2p", "값없이")])
def test_those_of_a_saved_picture_and_a_saved_pair(built, pages, browser, tmp_path, model, text):
    picture = torch.rand(1, 28, 28, generator=torch.Generator().manual_seed(0))
    trace = gf.load(model).trace(picture if text is None else text)
    (tmp_path / "one.html").write_text(page_of(trace, "ko", slow=text is None), encoding="utf-8")
    page = opened(pages, browser, tmp_path / "one.html")
    for view in views(page):
        show(page, view)
        if page.get_by_role("note").count() == 0:  # what the file does not hold has no figures
            assert check_taken(page, f"saved {view}"), view
