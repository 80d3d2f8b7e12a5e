"""Every number that the page writes is the one that Python gives for its name; a map's colours are its numbers."""

from __future__ import annotations

import math
import re

import pytest
import torch
from pages import show, views

import glassformer as gf

MODELS = ["small", "ssm"]
TEXT = "고양이가 생선을 먹었다"
TEXTS = {"korean-g2p": "값없이"}

# A number that the page writes: what it is called, where it stands, its exact value, the text beside it.
NUMBERS = """all => all.map((one) => ({
  name: one.dataset.name ?? "", figure: one.dataset.figure ?? "", at: one.dataset.at ?? "",
  value: one.getAttribute("value"), text: one.textContent.trim(), shown: one.checkVisibility() }))"""


def places(at):
    """The places that data-at names, as trace.part takes them: "b=0,h=1,t=5"."""
    given = (one.partition("=") for one in re.split(r",(?=\w+=)", at) if one)
    return {axis: [int(k) for k in text.split(",")] if "," in text else int(text) for axis, _, text in given}


def digits(text, value):
    """Whether a written number is the value within its last digit."""
    text = text.replace("−", "-").replace(",", "").replace("\u202f", "").replace(" ", "")
    if text in ("–", "…", ""):
        return False
    share = text.endswith("%")
    text, value = text.rstrip("%"), value * 100 if share else value
    if text.startswith("<"):
        return 0 < value < float(text[1:])
    if text in ("∞", "-∞"):
        return value == float(text.replace("∞", "inf"))
    mantissa, _, power = text.partition("e")
    last = 10.0 ** (-len(mantissa.partition(".")[2]) + int(power or 0))
    return abs(float(text) - value) <= 0.5001 * last + 1e-12


@pytest.fixture(scope="module")
def traces():
    return {name: gf.load(name).trace(TEXTS.get(name, TEXT), limit_bytes=256 << 20) for name in MODELS}


def checked(trace, one):
    """Compare one written number with Python's. Closely, not bit by bit: the page asks for a whole map, this for one
    number, and sums of other shapes are added up in another order."""
    found = trace.part(one["name"], **places(one["at"])).to(torch.float32)
    assert found.ndim == 0, f"{one}: no single number"
    value = found.item()
    if one["value"] == "":
        assert one["text"] == "–", one
        return
    given = float(one["value"])
    assert torch.tensor(given, dtype=torch.float32).item() == given, f"{one}: not the whole of a number in fp32"
    assert math.isclose(given, value, rel_tol=1e-5, abs_tol=1e-6), f"{one}: Python has {value!r}"
    assert digits(one["text"], given), f"{one}: Python has {value!r}"


@pytest.mark.parametrize("model", MODELS)
def test_every_written_number_is_pythons(pages, traces, model):
    page, trace, seen = pages.open(model=model, text=TEXTS.get(model, TEXT)), traces[model], 0
    for view in views(page):
        show(page, view)
        for one in page.eval_on_selector_all("data[data-name]", NUMBERS):
            checked(trace, one)
            seen += 1
    assert seen > 0, page.inner_text("body")


def test_a_number_that_is_wrong_is_found(traces):
    name = "blocks.0.mixer.pattern"
    right = traces["small"].part(name, b=0, h=0, t=3, s=1).item()
    one = {"name": name, "at": "b=0,h=0,t=3,s=1", "value": repr(right), "text": f"{right:.4f}"}
    checked(traces["small"], one)
    for wrong in ({"at": "b=0,h=0,t=3,s=2"}, {"value": repr(right * 1.0001)}, {"text": f"{right + 0.001:.4f}"}):
        with pytest.raises(AssertionError):
            checked(traces["small"], one | wrong)
