"""Models of other kinds than the shipped one, in every view: masks of their own, an encoder and a decoder, pictures."""

from __future__ import annotations

import json
import re

import pytest
import torch
from page_runs import preset
from pages import Pages, served, settle, show, views
from quick import quick_first
from sheet_models import SPECS, drawn, loaded, of, pair, stack
from test_page_numbers import Figures, check_page, maps
from test_page_taken import check_taken, downloaded, words

import glassformer as gf
from glassformer.classifier import Classifier
from glassformer.explain.sight import through
from glassformer.mask import Mask
from glassformer.mixers.attention import AttentionSpec
from glassformer.model import BlockSpec, build_model
from glassformer.nn.pool import PooledSpec
from glassformer.serve.models import Models

TEXT = "고양이가 생선을 먹었다"
BAND = of(AttentionSpec(mask=Mask(causal=False, window=3)))


def short():
    """A pair that stops writing soon."""
    spec = pair()
    return spec.changed(encoder=spec.encoder.changed(context=24), decoder=spec.decoder.changed(context=24))


def colours(labels=()):
    """A model of pictures in three colours, with drawn weights."""
    spec = gf.preset("vit", size=8, patch=4, classes=3, channels=3, dim=16, blocks=1, heads=2, hidden=24)
    return Classifier(drawn(build_model(spec.changed(labels=labels))), "colours")


LONG = ("a tabby cat that sleeps", "a dog", "줄무늬 고양이")


def telling(scores, classes):
    """A model of texts that ends in classes as `scores` says; None: in one vector."""
    block = BlockSpec(mixer=AttentionSpec(heads=2, mask=Mask(causal=False)))
    return stack(block, vocab=300, head=PooledSpec(pool="mean", classes=classes, scores=scores or "softmax"))


TOLD = {"one-of-three": ("softmax", 3), "each": ("sigmoid", 3), "estimates": ("number", 3), "vectors": (None, None)}


@pytest.fixture(scope="module")
def given():
    made = {
        name: loaded(spec)
        for name, spec in (
            {name: SPECS[name] for name in ("window", "prefix", "sink")}
            | {"band": BAND}
            | {name: telling(*how) for name, how in TOLD.items()}
        ).items()
    }
    made |= {name: loaded(preset(name).spec) for name in ("t5", "retention")}
    made |= {"pair": loaded(short()), "colours": colours(), "named": colours(LONG)}
    for name, model in made.items():
        model.name = name
    return made


@pytest.fixture
def kinds(built, browser, given):
    """Pages of a server that has these models."""
    with served(models=Models(given=given)) as address:
        pages = Pages(browser, address)
        yield pages
        pages.close()


def test_a_sink_has_a_row_as_wide_as_what_no_token_gets(kinds, given):
    trace = given["sink"].trace(TEXT)
    weights = torch.stack([trace[f"blocks.{layer}.mixer.pattern"][0, :, -1] for layer in (0, 1)])  # l h s
    lefts = 1 - weights.sum(-1)
    layer, head = divmod(int(lefts.argmax()), lefts.shape[1])
    page = kinds.open(model="sink", text=TEXT, view="steps", lang="en", layer=layer, head=head)
    bars = "all => all.map((one) => one.getBoundingClientRect().width)"
    *rows, sink = page.eval_on_selector_all("#view tr .weight .bar", bars)
    wanted = (lefts[layer, head] / weights[layer, head].max()).item()
    assert wanted > 0.05 and sink / max(rows) == pytest.approx(wanted, rel=0.05)
    assert "sink" in page.inner_text("#view tr.sink") and check_page(page, trace, Figures(trace)) > 0
    number = page.locator("#view tr.sink data")
    assert float(number.get_attribute("value")) == pytest.approx(lefts[layer, head].item(), abs=1e-6)
    number.hover()
    assert f'layer={layer}).figure("sink").values[{weights.shape[-1] - 1}]' in page.inner_text(".inspector")
    assert number.inner_text() in words(downloaded(page, page.locator("#view .steps .take"), "SVG"))


@pytest.mark.parametrize("name", quick_first(["window", "prefix", "band"], ["band"]))
def test_what_a_layer_may_not_see_is_hatched_and_nothing_else(kinds, given, name):
    """Every cell of every small and large map, as Python's mask has it."""
    page, n = kinds.open(model=name, text=TEXT, lang="en"), given[name].trace(TEXT).stacks[0].length
    ways, seen = through(given[name].model.blocks[0].mixer, n), 0
    assert 0 < ways.sum() < n * n
    for view in ("flow", "heads"):
        show(page, view)
        for map_ in maps(page):
            if map_["name"].endswith(".pattern") and not map_["figure"]:
                for one in map_["points"]:
                    assert (one["pixel"][3] > 0) == ways[one["t"], one["s"]].item(), (view, map_["where"], one)
                    seen += 1
    assert seen > n * n


WEIGHTS = """() => [...window.glassformer.drawn].filter((one) => one.name.endsWith("weights")).map((one) => {
  const all = Array.from(one.values, (x) => x ?? 0);
  const [low, high] = [Math.min(...all), Math.max(...all)].map((x) => [x, one.colour(all.indexOf(x))]);
  return { large: one.canvas.closest(".large") !== null, low, high };
})"""


@pytest.mark.parametrize("by", quick_first(["token", "word"], ["word"]))
def test_weights_below_zero_are_seen_as_such(kinds, given, by):
    """A layer without a softmax, small and large, and in the files: blue below zero, orange above."""
    trace = given["retention"].trace(TEXT)
    assert trace["blocks.0.mixer.weights"].min() < 0
    page = kinds.open(model="retention", text=TEXT, view="heads", layer=0, head=1, by=by, lang="en")
    below = [one for one in page.evaluate(WEIGHTS) if one["low"][0] < 0]
    assert len(below) > 1 and any(one["large"] for one in below)
    for one in below:
        assert one["low"][1].endswith(" 255)"), one
        assert one["high"][0] <= 0 or one["high"][1].endswith(" 55)"), one
    for take in page.locator("#view .take").all():
        fills = re.findall(rb'fill="#(..)(..)(..)"', downloaded(page, take, "SVG"))
        redder = [int(red, 16) - int(blue, 16) for red, _, blue in fills]
        assert min(redder) < -60 and max(redder) > 60
    assert check_page(page, trace, Figures(trace)) >= 1


@pytest.mark.parametrize("name", quick_first(["pair", "t5"], ["t5"]))
def test_what_a_decoder_reads_of_the_source(kinds, given, name):
    """The steps and the heads of cross-attention, and every number Python's; of the source's own values nothing is said
    to stand at a token of the target."""
    page, trace = kinds.open(model=name, text="생선을", view="steps", lang="en"), given[name].trace("생선을")
    figures = Figures(trace)
    source = len(trace.stacks[0].tokens[0])
    names = page.eval_on_selector_all("ol code", "all => all.map((one) => one.textContent)")
    assert not [one for one in names if one.endswith((".cross.k", ".cross.v"))]
    page.get_by_label("looks at").select_option("the source")
    settle(page)
    assert page.locator("tbody tr").count() == source and check_page(page, trace, figures) >= 3 * source
    named = page.eval_on_selector_all("tbody data", "all => all.map((one) => one.dataset.name)")
    assert set(named) == {f"decoder.blocks.1.cross.{short}" for short in ("dots", "scores", "pattern")}
    show(page, "heads")
    assert any(one["name"] == "decoder.blocks.1.cross.pattern" for one in maps(page))
    assert check_page(page, trace, figures) >= 1
    page.get_by_label("looks at").select_option("its own text")
    settle(page)
    assert {one["name"] for one in maps(page) if not one["figure"]} == {
        f"decoder.blocks.{i}.mixer.pattern" for i in (0, 1)
    }
    for view in set(views(page)) - {"families", "write"}:  # of other models
        show(page, view)
        check_page(page, trace, figures)


def test_an_aligned_decoder_says_what_it_reads_of_the_source(pages):
    """Its steps over the source, every number Python's; in the flow no residual, no MLP, and a list that says so."""
    trace = gf.load("korean-g2p").trace("국물")
    figures, at = Figures(trace), "decoder.blocks.2.mixer.cross"
    page = pages.open(model="korean-g2p", text="국물", view="steps", lang="en", layer=2, token=3)
    assert "choose “the source” above" in page.inner_text("#view") and not page.locator("tbody tr").count()
    page.get_by_label("looks at").select_option("the source")
    settle(page)
    assert page.locator("tbody tr").count() == trace.stacks[0].length
    named = page.eval_on_selector_all("tbody data", "all => all.map((one) => one.dataset.name)")
    assert set(named) == {f"{at}.scores", f"{at}.pattern"} and check_page(page, trace, figures) >= len(named)
    assert page.locator(".steps tbody canvas").count() == trace.stacks[0].length  # the vectors h_j
    title = "How the source is read while “m” is written"  # [궁물]: by the row of ŋ, the token before it
    (taken,) = [said for said in check_taken(page, "steps", "en") if title in said[0]]
    assert {one.strip() for one in page.locator(".steps tbody data").all_inner_texts()} <= set(taken)
    show(page, "flow")
    listed = page.inner_text(".way").splitlines()
    assert "What the token mixer puts in its place" in listed and "What the token mixer reads of the source" in listed
    assert page.locator(".way .instead").count() == 4 and "biases and the source" in page.inner_text(".left")
    assert check_page(page, trace, figures) >= 8
    page.locator(".way data").first.hover()
    assert page.locator(".inspector .exact").count() == 1
    page.focus("#picture")
    page.keyboard.press("ArrowLeft")
    settle(page)
    assert page.locator(".inspector .exact").count() == 0  # that number was of another token


@pytest.mark.parametrize("name", quick_first(["lenet", "vit", "colours"], ["colours"]))
def test_a_model_of_pictures_opens_on_one(kinds, name):
    """Without a picture in the address, by it and from the list; all channels are drawn, all cells reachable."""
    page = kinds.open(model=name, lang="en")
    assert page.locator("#tab-image").get_attribute("aria-selected") == "true"
    assert page.get_by_role("img", name="Draw here").count() == 1 and page.locator(".classes data").count() >= 3
    drawn = [one for one in maps(page) if one["name"] in ("embed.pixels", "embed.out")]
    assert {one["where"]["c"] for one in drawn} >= set(range(3 if name == "colours" else 1))
    groups = page.locator("#view .row:has(canvas[tabindex])")
    assert page.locator("#view .row canvas[tabindex='0']").count() == groups.count()  # not one for each channel
    first = page.locator("#view section .row canvas").first
    first.focus()
    page.keyboard.press("ArrowRight")
    assert page.locator(".inspector .exact").inner_text() and "x=" in page.locator(".inspector pre").inner_text()
    other = kinds.open(model="small", text=TEXT, lang="en")
    other.get_by_role("button", name="Model").click()
    other.locator("dialog li button", has=other.locator("b", has_text=name)).first.click()
    settle(other)
    assert other.locator("#tab-image").get_attribute("aria-selected") == "true"
    other.go_back()
    settle(other)
    assert other.locator("#tab-flow").get_attribute("aria-selected") == "true" and "lenet" not in other.url


def test_a_picture_too_large_for_a_link_is_said_to_be(kinds):
    page = kinds.open(model="lenet", lang="en")
    assert "image=" in page.url
    noise = torch.randint(0, 255, (100, 100), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    file = {
        "name": "a.pgm",
        "mimeType": "image/x-portable-graymap",
        "buffer": b"P5 100 100 255\n" + noise.numpy().tobytes(),
    }
    page.locator("input[type=file]").set_input_files(file)
    settle(page)
    assert "image=" not in page.url and "too large for a link" in page.inner_text("#view")
    page.get_by_role("button", name="the digit 7").click()
    settle(page)
    assert "image=" in page.url and "too large for a link" not in page.inner_text("#view")


@pytest.mark.parametrize("name", quick_first(TOLD, ["each", "vectors"]))
def test_what_a_model_tells_is_shown_as_what_it_is(kinds, given, name):
    """Probabilities in per cent with bars, at a temperature; what is estimated as the numbers that it is, of which many
    are below nothing, without either; and of vectors how far they went. A link's temperature that a run does not have
    changes nothing."""
    scores, _ = TOLD[name]
    page = kinds.open(model=name, text=TEXT, view="hands", lang="en", more="hands=temperature%3D2.5")
    heats = page.get_by_label("temperature as a number")
    assert heats.count() == (scores in ("softmax", "sigmoid"))
    assert ("T = 2.5" in page.inner_text("#view")) == bool(heats.count()) and page.get_by_role("alert").count() == 0
    page.get_by_role("button", name="no mixing in layer 0").click()
    settle(page)
    trace = given[name].trace(TEXT, edits=gf.zero("blocks.0.mixer.out"))
    assert check_page(page, trace, Figures(trace)) >= 3
    table, bars = page.locator("#view .first"), page.locator("#view .first i b")
    if scores is None:
        assert table.locator("tbody tr").count() == 2 and bars.count() == 0
        return
    heat = {"temperature": 2.5} if heats.count() else {}
    found = {one.number: one.value for one in given[name].classify(TEXT, edits=trace.edits, **heat)}
    rows = """all => JSON.stringify(all.map((row) => [row.querySelector("th").textContent,
      Number(row.querySelector("[data-at$='.3']").value), row.querySelector("[data-at$='.3']").textContent]))"""
    shown = json.loads(table.locator("tbody tr").evaluate_all(rows))
    assert {int(label): value for label, value, _ in shown} == pytest.approx(found, rel=1e-5) and len(shown) == 3
    assert [text.endswith("%") for *_, text in shown] == [scores != "number"] * 3
    assert bars.count() == (0 if scores == "number" else 9 if "control" in table.inner_text() else 6)
    if scores == "number":
        assert min(found.values()) < 0 < max(found.values()) or max(map(abs, found.values())) > 1  # no probabilities
    else:
        widths = bars.evaluate_all("all => JSON.stringify(all.map((one) => parseFloat(one.style.width)))")
        assert max(json.loads(widths)) == pytest.approx(100) and min(json.loads(widths)) > 0


def test_a_file_that_is_no_picture_is_named_and_the_one_before_stays(kinds):
    page = kinds.open(model="lenet", lang="en")
    before = page.url
    field, alert = page.locator("input[type=file]"), page.get_by_role("alert")
    for file, why in (
        ({"name": "cat.gif", "mimeType": "image/gif", "buffer": b"GIF89a"}, "cat.gif: not a PNG, PGM or PPM file"),
        ({"name": "big.png", "mimeType": "image/png", "buffer": bytes(900_000)}, "big.png: this file has 900 kB"),
        ({"name": "empty.png", "mimeType": "image/png", "buffer": b""}, "empty.png: an empty file"),
        ({"name": "half.png", "mimeType": "image/png", "buffer": b"\x89PNG\r\n\x1a\n"}, "half.png: a broken PNG file"),
    ):
        field.set_input_files(file)
        page.get_by_text(why).wait_for()
        settle(page)
        assert alert.count() == 1 and page.url == before and page.locator(".stale").count() == 0
    page.get_by_role("button", name="the digit 7").click()
    settle(page)
    assert alert.count() == 0 and page.url != before


def test_names_of_classes_are_read_whole(kinds):
    page = kinds.open(model="named", lang="en", width=360)
    names = page.locator(".classes th").all_inner_texts()
    assert sorted(names) == sorted(LONG)
    for one in page.locator(".classes th").all():
        assert one.evaluate("(th) => th.scrollWidth <= th.clientWidth && th.scrollHeight <= th.clientHeight")
        assert one.bounding_box()["width"] > 100
