"""Hands on: what is changed in the page is what Python changes, and every number beside it is Python's."""

import itertools
import json
import shlex

import pytest
from pages import settle
from test_page_numbers import Figures, check_page

from glassformer.terminal.edits import edit_of

TEXT = "고양이가 생선을 먹었다"


def trace_shown(page):
    """The trace that the page's own Python lines make, and the explanation of its last line."""
    lines = page.locator("#view pre").first.inner_text().splitlines()
    made: dict = {}
    exec("\n".join(lines[:-1]), made)
    return made["trace"], eval(lines[-1], made), made


def checked(page, least):
    """All numbers of the view against the run that its Python lines make; the command names the same edits."""
    trace, found, _ = trace_shown(page)
    assert check_page(page, trace, Figures(trace)) >= least
    command = page.locator("#view pre").nth(1)
    if command.count():
        words = shlex.split(command.inner_text())
        edits = [edit_of(one).line for option, one in itertools.pairwise(words) if option == "--edit"]
        assert words[:2] == ["glassformer", "trace"] and edits == [one.line for one in trace.edits]
    return found


def press(page, *names):
    for name in names:
        page.get_by_role("button", name=name, exact=True).click()
        settle(page)


def test_a_head_is_switched_off_and_back(pages):
    page = pages.open(text=TEXT, view="hands", lang="en", layer=2, head=1)
    assert "Nothing yet" in page.inner_text("#view") and checked(page, 8)
    assert page.locator("thead").inner_text().strip().split("\t")[1:] == ["as it is"]
    press(page, "switch head 2.1 off")
    found = checked(page, 40)
    assert "control" in page.inner_text("thead") and "gf.zero('blocks.2.mixer.z', h=2)" in page.inner_text("#view")
    assert next(one for one in found.checks if one.name == "variation").value > 0
    bars = page.eval_on_selector_all("tbody tr:first-child i b", "all => all.map((one) => one.style.width)")
    shares = [float(one.rstrip("%")) for one in bars]
    assert len(shares) == 3 and max(shares) == pytest.approx(100)  # the largest of all fills its bar: one scale
    press(page, "no MLP in layer 2")
    assert page.locator(".edits li").count() == 3 and checked(page, 40)
    press(page, "switch head 2.1 off")  # pressed again it is taken back
    assert json.loads(page.evaluate("new URLSearchParams(location.hash.slice(1)).get('edits')")) == [
        {"kind": "zero", "name": "blocks.2.channel.out", "where": {}, "value": None}
    ]
    press(page, "take all back")
    assert "Nothing yet" in page.inner_text("#view")


def test_the_position_signal_of_the_shipped_model(pages):
    page = pages.open(text=TEXT, view="hands", lang="en")
    press(page, "none")
    assert checked(page, 25).figure("runs").rows[1][1] == "gf.zero('positions')"
    press(page, "reversed")  # in the place of the other
    found = checked(page, 25)
    assert found.figure("runs").rows[1][1] == "gf.scale('positions', -1), gf.add('positions', 8)"
    press(page, "shifted by")
    found = checked(page, 25)
    assert found.figure("runs").rows[1][1] == "gf.add('positions', 5)"
    assert found.checks[0].value < 1e-5  # RoPE sees distances alone
    press(page, "shifted by")
    assert "Nothing yet" in page.inner_text("#view")


def test_a_token_is_swapped_and_the_temperature_changed(pages):
    page = pages.open(text=TEXT, view="hands", lang="en", token=1)
    page.get_by_label("instead of").fill("여우")
    press(page, "swap")
    found = checked(page, 25)
    assert page.input_value("#text") == "여우양이가 생선을 먹었다" and TEXT in page.inner_text(".edits")
    assert found.figure("runs").rows[0][0] == TEXT
    page.get_by_label("temperature as a number").fill("2.5")
    page.keyboard.press("Tab")
    settle(page)
    checked(page, 25)
    assert "temperature=2.5" in page.locator("#view pre").first.inner_text()
    again = pages.open(url=page.url, lang="en")  # all of it stands in the address
    assert again.inner_text("tbody") == page.inner_text("tbody")
    press(page, "take all back")
    assert page.input_value("#text") == TEXT and "Nothing yet" in page.inner_text("#view")


@pytest.mark.parametrize("model", ["korean-g2p", "lstm", "mlp", "vit"])
def test_models_of_every_kind(pages, model):
    """A pair, a recurrence, and an image: whatever can be switched off moves what the run ends in."""
    where = {"view": "hands", "model": model, "text": "값없이" if model == "korean-g2p" else TEXT, "lang": "en"}
    if model == "vit":
        page = pages.open(model="small", text=TEXT, lang="en")
        page.get_by_role("button", name="Model").click()
        page.locator("dialog li button", has=page.locator("b", has_text="vit")).first.click()
        settle(page)
        page.click("#tab-hands")
        settle(page)
    else:
        page = pages.open(**where)
    press(page, page.get_by_role("button", name="no mixing in layer").inner_text())
    assert page.locator("thead").inner_text().split("\t")[1:3] == ["before", "after"]
    if model == "vit":  # its picture lies in no file; what is written is what the page was told
        assert page.locator("#view pre").count() == 1 and page.locator("tbody tr").count() == 8
        press(page, "none")
        assert "gf.zero('embed.position')" in page.locator("#view pre").first.inner_text()
        return
    found = checked(page, 20)
    assert next(one for one in found.checks if one.name == "variation").value > 0


def test_a_model_without_a_position_signal_says_so(pages):
    page = pages.open(model="lstm", text=TEXT, view="hands", lang="en")
    assert "This model has none" in page.inner_text("#view")


def test_in_korean_on_a_phone(pages):
    page = pages.open(text=TEXT, view="hands", width=360)
    press(page, "없애기")
    assert "대조 없음" in page.inner_text("#view") and "바꾸기 전" in page.inner_text("thead")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
