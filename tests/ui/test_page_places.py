"""What stands in the address and what is shown belong together: places that a run lacks, and another model's run."""

from __future__ import annotations

import re
from urllib.parse import urlencode

import pytest
from pages import settle, show, views

import glassformer as gf

TEXT = "고양이가 생선을 먹었다"


def go(page, hash_):
    """Another address in the same tab."""
    page.evaluate("to => { location.hash = to; }", hash_)
    settle(page)


def test_a_layer_that_the_run_lacks_is_the_last(pages):
    page = pages.open(text=TEXT, lang="en")
    for view in ("flow", "steps", "heads", "hands", "explain"):
        go(page, f"#view={view}&layer=99&head=9&token=70&key=80")
        assert page.locator("#view").inner_text() and "layer=99" not in page.url and "head=3" in page.url, view
        assert page.locator(f"#tab-{view}").get_attribute("aria-selected") == "true"
        show(page, "steps")
        assert "layer 3, head 3" in page.inner_text("#view h3"), view


def test_a_cell_that_a_map_lacks_is_its_last(pages):
    at = urlencode({"image": "0.0.99.99", "influence.pixels": "99.40"})
    page = pages.open(model="vit", view="image", more=urlencode({"at": at}), lang="en")
    told = page.eval_on_selector_all("#view canvas[role=img]", "all => all.map((one) => one.ariaLabel)")
    last = gf.load("vit").model.spec.size - 1
    assert sum(f", {last} {last}: " in one for one in told) >= 2 and not any("99" in one or "–" in one for one in told)


def test_a_layer_of_another_model_while_it_loads(pages):
    page = pages.open(model="small", text=TEXT, view="steps", layer=3, lang="en")
    go(page, "#model=transformer&view=steps&layer=17")
    assert page.locator("tbody tr").count() > 3 and "layer=17" not in page.url


def test_the_run_of_one_model_never_stands_under_the_name_of_another(pages):
    page = pages.open(text=TEXT, lang="en")
    seen = page.evaluate("""async () => {
      const seen = [];
      location.hash = "#model=lenet&view=image";
      for (let i = 0; i < 200; i++) {
        await new Promise((next) => setTimeout(next, 5));
        if (document.querySelector("header b")?.textContent !== "lenet") continue;
        seen.push(document.querySelector("#tab-flow, #picture") !== null && !document.querySelector("#tab-image"));
      }
      return seen;
    }""")
    assert seen and not any(seen)
    settle(page)
    assert "image" in views(page)


def test_a_text_that_is_refused_leaves_the_old_run_inert(pages):
    page = pages.open(text=TEXT, lang="en")
    assert page.locator("[inert]").count() == 0
    edit = '[{"kind":"zero","name":"nosuch","where":{},"value":null}]'
    page.evaluate("to => { location.hash = to; }", f"#text=%EA%B0%9C&edits={edit}")
    page.get_by_role("alert").wait_for()
    assert page.locator("#view [inert]").count() == 1
    pages.errors.clear()  # the browser's own line on the refusal
    page.fill("#text", TEXT)
    page.get_by_role("button", name="Run", exact=True).click()
    settle(page)
    assert page.locator("[inert]").count() == 0


def test_without_a_run_there_are_no_tabs(pages):
    page = pages.open(model="nosuch", text=TEXT, lang="en", wait=False)
    page.get_by_role("alert").wait_for()
    assert views(page) == [] and page.locator("[role=tablist]").count() == 0
    pages.errors.clear()
    go(page, "#view=flow")
    assert "flow" in views(page)


def test_a_bar_is_as_long_as_its_weight(pages):
    for place in ({"layer": 1, "head": 2}, {"layer": 0, "head": 0, "token": 5}):
        page = pages.open(text=TEXT, view="steps", lang="en", **place)
        found = page.eval_on_selector_all(
            "td.weight", "all => all.map((one) => [one.querySelector('.bar').getBoundingClientRect().width, "
            "Number(one.querySelector('data').value)])",
        )  # fmt: skip
        most = max(weight for _, weight in found)
        full = max(width for width, _ in found)
        assert full > 40 and len({weight for _, weight in found}) > 3
        for width, weight in found:
            assert width == pytest.approx(full * weight / most, abs=0.1)


def test_the_terms_are_those_that_are_seen(pages):
    """Added up one at a time, without motion where the reader wants none."""
    page = pages.open(text=TEXT, view="steps", lang="en", token=3)
    assert page.inner_text(".count") == "4 / 4" and page.locator("td.unseen").count() == 5
    for many in (0, 1):
        page.get_by_role("button", name="add a term").click()
        assert page.inner_text(".count") == f"{many} / 4"
    assert page.locator("tr.adding").count() == 1 and page.locator("tr.later").count() == 3


@pytest.mark.parametrize(
    ("lang", "field", "said"),
    [("en", "temperature as a number", "from 0.1 to 100"), ("ko", "온도(수)", "0.1 이상 100 이하")],
)
def test_a_temperature_out_of_range_is_refused_in_words(pages, lang, field, said):
    page = pages.open(text=TEXT, view="hands", lang=lang)
    heat = page.get_by_label(field)
    for given in ("0", "-3", "", "1000000000"):
        heat.fill(given)
        heat.press("Tab")
        assert heat.get_attribute("aria-invalid") == "true" and "temperature" not in page.url, given
        assert said in page.locator(f"#{heat.get_attribute('aria-describedby')}").inner_text()
    heat.fill("2")
    heat.press("Tab")
    settle(page)
    assert heat.get_attribute("aria-invalid") is None and "temperature" in page.url
    assert page.locator(".wrong").count() == 0


@pytest.mark.slow
@pytest.mark.parametrize("lang", ["ko", "en"])
def test_every_number_field_refuses_in_words_what_it_does_not_take(pages, lang):
    """In every view: what was written stays, nothing is asked for, and what is allowed stands beside the field."""
    page = pages.open(text=f"{TEXT} " * 40, view="flow", lang=lang)
    seen = [view for view in ("flow", "hands", "write") for _ in refused_fields(pages, page, view, lang)]
    page = pages.open(text=TEXT, view="explain", lang=lang)
    for i in range(page.locator("#view .list button").count()):
        page.locator("#view .list button").nth(i).click()
        settle(page)
        seen += refused_fields(pages, page, "explain", lang)
    assert {view: seen.count(view) for view in ("flow", "hands", "write")} == {"flow": 1, "hands": 5, "write": 4}
    assert seen.count("explain") >= 5


def refused_fields(pages, page, view, lang):
    """The number fields of a view, each tried with numbers that it does not take, or none: its view for each."""
    if view != "explain":
        show(page, view)
    fields = page.locator("#view input[type=number]")
    for field in (fields.nth(i) for i in range(fields.count())):
        before, asked = field.input_value(), len(pages.asked)
        least, most = field.get_attribute("min"), field.get_attribute("max")
        for given in ([str(int(most) + 1)] if most else []) + ["-99999" if least else ""]:
            field.fill(given)
            field.press("Tab")
            assert field.get_attribute("aria-invalid") == "true" and field.input_value() == given, (view, least)
            said = page.locator(f"[id='{field.get_attribute('aria-describedby')}']").inner_text()
            assert said.startswith("Use a") if lang == "en" else said.endswith("쓰십시오."), said
            assert (least or "") in said and (most or "") in said
        assert len(pages.asked) == asked, (view, least)
        field.fill(before)
        field.press("Tab")
        settle(page)
        assert page.locator("#view [aria-invalid]").count() == 0
    return [view] * fields.count()


def test_nothing_is_written_as_long_as_a_number_is_wrong(pages):
    page = pages.open(text=TEXT, view="write", lang="en")
    page.get_by_label("new tokens").fill("3")
    page.get_by_role("button", name="Write", exact=True).click()
    page.get_by_role("heading", name="Terminal").wait_for()
    written = page.inner_text("[aria-label='The tokens written']")
    page.get_by_label("top-k").fill("2.5")
    page.get_by_role("button", name="Write", exact=True).click()
    assert page.evaluate("document.activeElement.getAttribute('aria-invalid')") == "true"
    assert page.inner_text("[aria-label='The tokens written']") == written
    assert "Use a whole number from 0 to 1000000." in page.inner_text("form.settings, #view form")


def test_a_shift_out_of_range_is_refused_in_words(pages):
    page = pages.open(text=TEXT, view="hands", lang="en")
    places, button = page.get_by_label("shifted by so many places"), page.get_by_role("button", name="shifted by")
    for given in ("", "0", "-3", "2.5", "10000"):
        places.fill(given)
        assert places.get_attribute("aria-invalid") == "true" and button.is_disabled(), given
        assert "from 1 to 9999" in page.locator(f"#{places.get_attribute('aria-describedby')}").inner_text()
    places.fill("3")
    assert button.is_enabled() and page.locator(".wrong").count() == 0


@pytest.mark.slow
def test_names_beside_small_maps_are_whole(pages):
    page = pages.open(text=TEXT, view="families")
    page.locator(".axes").first.wait_for()
    first = page.locator(".axes").first
    name = first.locator(".rows span").first
    assert name.inner_text() == "⟨시작⟩"
    box, frame = name.bounding_box(), first.bounding_box()
    assert box["y"] >= frame["y"] and box["height"] >= 1.4 * 12
    turned = first.locator(".columns span").filter(has_text=re.compile("⟨")).first
    assert turned.evaluate("one => getComputedStyle(one).textOrientation") == "sideways"
