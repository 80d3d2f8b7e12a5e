"""Every number that the page writes is the one that Python gives for its name; a map's colours are its numbers."""

from __future__ import annotations

import json
import math
import re
from functools import cache
from urllib.parse import parse_qsl

import pytest
import torch
from pages import show, views
from quick import quick_first

import glassformer as gf
from glassformer.figures.colour import shade

MODELS = ["small", "lstm", "ssm", "korean-g2p"]
TEXT = "고양이가 생선을 먹었다"
TEXTS = {"korean-g2p": "값없이"}

# A number that the page writes: what it is called, where it stands, its exact value, the text beside it. As one string,
# like the maps below: Playwright takes apart each value of a list by itself, which costs more than the page does.
NUMBERS = """all => JSON.stringify(all.map((one) => ({
  model: one.dataset.model ?? "", of: one.dataset.text ?? "",
  name: one.dataset.name ?? "", figure: one.dataset.figure ?? "", at: one.dataset.at ?? "",
  value: one.getAttribute("value") ?? "", text: one.textContent.trim() })))"""


def numbers(found):
    """The numbers among the elements of a locator."""
    return json.loads(found.evaluate_all(NUMBERS))


def places(at):
    """The places that data-at names, as trace.part takes them: "b=0,h=1,t=5"."""
    given = (one.partition("=") for one in re.split(r",(?=\w+=)", at) if one)
    return {axis: [int(k) for k in text.split(",")] if "," in text else int(text) for axis, _, text in given}


def digits(text, value):
    """Whether a written number is the value within its last digit."""
    text = text.replace("−", "-").replace(",", "").replace("\u202f", "").replace(" ", "")
    if text in ("–", "…", ""):
        return False
    share = text.endswith(("%", "pp", "%p"))
    text, value = text.rstrip("%p"), value * 100 if share else value
    if text.startswith("≈"):
        return 0 < abs(value) < 0.01
    if text.startswith("<"):
        return 0 < value < float(text[1:])
    if text.startswith(">"):
        return float(text[1:]) < value < 0
    if text in ("∞", "-∞"):
        return value == float(text.replace("∞", "inf"))
    mantissa, _, power = text.partition("e")
    last = 10.0 ** (-len(mantissa.partition(".")[2]) + int(power or 0))
    return abs(float(text) - value) <= 0.5001 * last + 1e-12


def checked(trace, one):
    """Compare one written number with Python's. Closely, not bit by bit: the page asks for a whole map, this for one
    number, and sums of other shapes are added up in another order."""
    found = trace.part(one["name"], **places(one["at"])).to(torch.float32)
    assert found.ndim == 0, f"{one}: no single number"
    value = found.item()
    if not one["value"]:
        assert one["text"] == "–", one
        return
    given = float(one["value"])
    assert torch.tensor(given, dtype=torch.float32).item() == given, f"{one}: not the whole of a number in fp32"
    assert math.isclose(given, value, rel_tol=1e-5, abs_tol=1e-6), f"{one}: Python has {value!r}"
    assert digits(one["text"], given), f"{one}: Python has {value!r}"


class Figures:
    """The explanations of a trace by the requests of the page, each made once."""

    def __init__(self, trace):
        self.trace, self.made = trace, {}

    def number(self, one):
        """What Python has where the page found a number: data-figure "flow?layer=2/mixing", data-at "values.3.1"."""
        request, _, figure = one["figure"].rpartition("/")
        if request not in self.made:
            name, _, settings = request.partition("?")
            self.made[request] = gf.explain(name, self.trace, **dict(parse_qsl(settings)))
        found = self.made[request]
        if figure == "checks":
            return next(check.value for check in found.checks if check.name == one["at"])
        found = found.figure(figure)
        for part in one["at"].split("."):
            found = found[int(part)] if part.isdigit() else getattr(found, part)
        return found


def checked_figure(figures, one):
    """Compare a number of an explanation with Python's."""
    value = figures.number(one)
    if value is None:
        assert not one["value"] and one["text"] == "–", one
        return
    assert isinstance(value, int | float), f"{one}: Python has {value!r}"
    given = float(one["value"])
    assert math.isclose(given, value, rel_tol=1e-4, abs_tol=1e-6), f"{one}: Python has {value!r}"
    assert digits(one["text"], given), f"{one}: Python has {value!r}"


@cache
def figures_of(model, text=None):
    """Those of a model's run over a text, made once for all tests; without a text, over the one of most of them."""
    return Figures(gf.load(model).trace(text or TEXTS.get(model, TEXT), limit_bytes=256 << 20))


def owner(one, figures):
    """Whose a number, or a map, is: the page's own figures, or those of a run that a view makes beside."""
    key, trace = (one["model"], one["of"]), figures.trace
    own = (trace.loaded.name, trace.text) if hasattr(trace, "loaded") else (trace.classifier.name, "")
    return figures if not key[0] or key == own else figures_of(*key)


def check_page(page, trace, figures):
    """Compare every number that the page shows now with Python's; how many there are."""
    named, derived = numbers(page.locator("data[data-name]")), numbers(page.locator("data[data-figure]"))
    for one in named:
        checked(owner(one, figures).trace, one)
    for one in derived:
        checked_figure(owner(one, figures), one)
    assert not page.query_selector("main data:not([data-name]):not([data-figure])"), "a number without its origin"
    return len(named) + len(derived)


@pytest.mark.parametrize("model", quick_first(MODELS, ["small"]))
def test_every_written_number_is_pythons(pages, model):
    """In every view, also of another token and in another layer than those at first. Where no character is split into
    several tokens, nothing is asked for by character."""
    figures, seen = figures_of(model), {}
    page, trace = pages.open(model=model, text=TEXTS.get(model, TEXT)), figures.trace
    for view in views(page):
        show(page, view)
        seen[view] = check_page(page, trace, figures)
    page = pages.open(model=model, text=TEXTS.get(model, TEXT), token=2, layer=1, head=1, key=1, lang="en")
    for view in views(page):
        show(page, view)
        seen[view] += check_page(page, trace, figures)
    # What was written is compared in test_page_written.py; before, a pair's model draws from nothing that is shown.
    assert all(seen[view] > 0 for view in seen if (model, view) != ("korean-g2p", "write")), seen
    if model == "small":
        assert pages.asked and not [url for url in pages.asked if "by=" in url]


PIXELS = """() => JSON.stringify([...window.glassformer.drawn].filter((one) => one.canvas.isConnected).map((one, k) => {
  const [w, h] = one.cell, points = [], wide = one.canvas.width;
  const all = one.canvas.getContext("2d").getImageData(0, 0, wide, one.canvas.height).data;
  const plain = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  for (let i = 0; i < 100; i++) {
    const at = (i * 7919 + 13 * k) % (one.rows * one.columns), t = Math.floor(at / one.columns), s = at % one.columns;
    const [x, y] = [Math.floor((s + 0.5) * w), Math.floor((t + 0.5) * h)];
    if (w < 5 || h < 5) continue; // a frame around the chosen cell would cover its middle
    plain.clearRect(0, 0, 1, 1);
    plain.fillStyle = one.colour(at);
    plain.fillRect(0, 0, 1, 1);
    points.push({ t, s, value: one.values[at], pixel: [...all.slice(4 * (y * wide + x), 4 * (y * wide + x) + 4)],
                  asked: [...plain.getImageData(0, 0, 1, 1).data] });
  }
  return { name: one.name, where: one.where, model: one.model, of: one.text, figure: one.figure,
           points };
}))"""


def maps(page):
    """The maps that the page has drawn, with 100 of the cells of each."""
    return json.loads(page.evaluate(PIXELS))


def rgb(colour):
    """A colour of the figures' scale as red, green, blue from 0 to 255."""
    return [int(colour[i : i + 2], 16) for i in (1, 3, 5)]


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["light", pytest.param("dark", marks=pytest.mark.slow)])
def test_the_colours_of_a_map_are_its_numbers(pages, theme):
    """The values behind a map are Python's, and 100 of its pixels have the colour that the scale gives for theirs. What
    a position cannot see is not coloured."""
    page, trace, seen = pages.open(model="small", text=TEXT, theme=theme), figures_of("small").trace, 0
    for view in views(page):
        show(page, view)
        for drawn in maps(page):
            if drawn["name"] not in trace.names() or not drawn["where"]:
                continue
            whole = trace.part(drawn["name"], **drawn["where"])
            for one in drawn["points"]:
                value = (whole[one["t"], one["s"]] if whole.ndim == 2 else whole[one["s"]]).item()  # a map, a strip
                assert math.isclose(one["value"], value, rel_tol=1e-5, abs_tol=1e-6), (drawn["name"], one)
                if one["pixel"][3] == 0:
                    assert value == 0, (drawn["name"], one)  # hidden by construction
                    continue
                assert all(abs(a - b) <= 2 for a, b in zip(one["pixel"], one["asked"], strict=True)), (drawn, one)
                if drawn["name"].endswith(".pattern"):
                    scale = rgb(shade(math.sqrt(value), theme == "dark"))  # as the page draws a share
                    assert all(abs(a - b) <= 3 for a, b in zip(one["pixel"][:3], scale, strict=True)), (drawn, one)
                seen += 1
    assert seen >= 20


def test_a_number_that_is_wrong_is_found():
    trace, name = figures_of("small").trace, "blocks.0.mixer.pattern"
    right = trace.part(name, b=0, h=0, t=3, s=1).item()
    one = {"name": name, "at": "b=0,h=0,t=3,s=1", "value": repr(right), "text": f"{right:.4f}"}
    checked(trace, one)
    for wrong in ({"at": "b=0,h=0,t=3,s=2"}, {"value": repr(right * 1.0001)}, {"text": f"{right + 0.001:.4f}"}):
        with pytest.raises(AssertionError):
            checked(trace, one | wrong)
