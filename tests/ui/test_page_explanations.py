"""Every explanation in its own view: its numbers and maps are Python's, its settings are those that Python has, and
one that does not exist yet appears by itself."""

from __future__ import annotations

import json
import math
from urllib.parse import urlencode

import pytest
from pages import settle
from quick import quick_first
from test_page_numbers import MODELS, TEXT, TEXTS, check_page, figures_of, maps, owner

import glassformer as gf

SECOND = "개가 고양이를 보았다"
SETTINGS = {"two": {"second": SECOND}, "influence": {"method": "estimate"}}


def chosen(name, **settings):
    """The part of the address that chooses an explanation with its settings."""
    request = f"{name}?{urlencode(settings)}" if settings else name
    return urlencode({"explain": request})


def check_maps(page, figures):
    """Compare what is behind every map, and the colours of some of its cells; how many cells."""
    seen = 0
    for drawn in maps(page):
        own = owner(drawn, figures)
        if drawn["figure"]:
            request, figure, *place = drawn["figure"].split("/")  # of a line of a series its place too
            values = own.number({"figure": f"{request}/{figure}", "at": place[0] if place else "values"})
        elif drawn["where"]:
            values = own.trace.part(drawn["name"], **drawn["where"]).tolist()
        else:
            continue
        for one in drawn["points"]:
            value = values[one["t"]][one["s"]] if isinstance(values[0], list) else values[one["s"]]
            if one["value"] is None:
                assert value is None and one["pixel"][3] == 0, (drawn["name"], one)
                continue
            assert math.isclose(one["value"], value, rel_tol=1e-4, abs_tol=1e-6), (drawn["name"], one, value)
            if one["pixel"][3]:
                assert all(abs(a - b) <= 2 for a, b in zip(one["pixel"], one["asked"], strict=True)), (drawn, one)
            seen += 1
    return seen


@pytest.mark.parametrize("model", quick_first(MODELS, ["small"]))
def test_every_explanation_shows_pythons_numbers(pages, model):
    own, cells = figures_of(model), 0
    page = pages.open(model=model, text=TEXTS.get(model, TEXT), view="explain", lang="en")
    for i in range(page.locator(".explain .list button").count()):
        page.locator(".explain .list button").nth(i).click()
        settle(page)
        if page.locator("[role=alert]").count():
            told = page.inner_text("[role=alert]")
            assert any(one in told for one in ("two texts", "other text", "these texts twice", "give 4 at least")), told
            continue
        assert check_page(page, own.trace, own) > 0, page.inner_text("#view")
        cells += check_maps(page, own)
    assert cells > 100


def test_settings_are_pythons_and_stand_in_the_address(pages):
    own = figures_of("small")
    page = pages.open(model="small", text=TEXT, view="explain", more=chosen("weights"), lang="en")
    page.get_by_label("layer", exact=True).select_option("2")
    settle(page)
    page.get_by_label("head", exact=True).select_option("1")
    settle(page)
    assert page.inner_text("pre code") == "gf.explain('weights', trace, layer=2, head=1)"
    check_page(page, own.trace, own)
    assert check_maps(page, own) > 20
    again = pages.open(url=page.url, lang="en")
    assert again.inner_text("pre code") == page.inner_text("pre code")
    assert again.inner_text("figure") == page.inner_text("figure")


def test_the_places_offered_are_those_of_the_chosen_stack_and_grouping(pages):
    trace = figures_of("korean-g2p").trace
    place = {"model": "korean-g2p", "text": TEXTS["korean-g2p"], "view": "explain", "by": "token"}
    page = pages.open(**place, more=chosen("fields"), lang="en")
    field = page.get_by_label("token (−1: the last)")
    for stack, by, cells in (
        ("decoder", "token", trace.cells("token")),
        ("encoder", "token", trace.source_cells("token")),
        ("encoder", "character", trace.source_cells("character")),
    ):
        page.get_by_label("stack", exact=True).select_option(label=stack)
        page.get_by_role("group", name="Shown by").get_by_role("button", name=by).click()
        settle(page)
        assert (field.get_attribute("min"), field.get_attribute("max")) == (str(-len(cells)), str(len(cells) - 1))
        field.fill(str(len(cells) - 1))
        page.keyboard.press("Tab")
        settle(page)
        assert page.locator("#view [role=alert]").count() == 0
        assert f"token={len(cells) - 1}" in page.inner_text("pre code")


def test_a_text_too_long_for_a_whole_map_opens_on_what_works(pages):
    """The first explanation refuses a map of all tokens and names the setting that helps: it is taken by itself; where
    a reader asks for all, the refusal stays, beside a button that takes it."""
    page = pages.open(model="small", text="고양이가 생선을 먹었다. " * 190, view="explain", lang="en")
    token = page.evaluate("window.glassformer && document.querySelector('.settings input[type=text]').value")
    assert int(token) > 1448 and f"rows='{token}'" in page.inner_text("pre code")
    assert page.locator("figure canvas").count() >= 1 and not page.locator("#view [role=alert]").count()
    page.get_by_label("these rows alone").fill("")
    page.keyboard.press("Tab")
    settle(page)
    assert "is too large; say which rows, as “these rows alone” = " in page.inner_text("#view [role=alert]")
    assert page.locator(".settings .helps").count() == 1
    page.get_by_role("button", name="alone", exact=False).last.click()
    settle(page)
    assert page.locator("figure canvas").count() >= 1 and f"rows='{token}'" in page.inner_text("pre code")


def test_two_texts_by_their_setting(pages):
    page = pages.open(model="small", text=TEXT, view="explain", more=chosen("two", second=SECOND))
    assert check_page(page, figures_of("small").trace, figures_of("small")) >= 6


def spoken(page, told):
    """The number that the bar at the foot says, beside what is said where it was chosen."""
    assert told.get_attribute("aria-live") == page.locator(".inspector").get_attribute("aria-live") == "polite"
    return float(page.locator(".inspector data").get_attribute("value"))


def test_several_texts_are_lines_and_their_contexts_a_map(pages):
    """Written into the setting, a line each; points are chosen by keyboard and by name, and are Python's."""
    lines = "저 별은 멀다\n별 하나도 아깝다\n이 영화에 별 다섯 개를 준다"
    page = pages.open(
        model="small", text="밤하늘에 별이 빛난다", view="explain", more=chosen("contexts", word="별"), lang="en"
    )
    page.get_by_label("texts, a line each").fill(lines)
    page.keyboard.press("Tab")
    settle(page)
    found = gf.explain("contexts", gf.load("small"), "밤하늘에 별이 빛난다", word="별", texts=lines).figure("map")
    assert page.inner_text("pre code") == f"gf.explain('contexts', trace, texts={lines!r}, word='별')"
    figure = page.locator("figure").nth(3)
    for key, at in (("ArrowRight", 1), ("ArrowLeft", 0), ("ArrowUp", 3)):
        figure.locator("svg").first.focus()
        page.keyboard.press(key)
        point = found.points[at]
        shown = [float(one.get_attribute("value")) for one in figure.locator("data").all()]
        assert shown == pytest.approx([point.x, point.y])
        assert point.label in figure.locator("svg").first.get_attribute("aria-label")
        assert spoken(page, figure.locator(".told")) == point.x and point.label in page.inner_text(".inspector")
    figure.get_by_label("Point", exact=True).select_option(label=found.points[2].label)
    assert float(figure.locator("data").first.get_attribute("value")) == pytest.approx(found.points[2].x)
    again = pages.open(url=page.url, lang="en")
    assert again.get_by_label("texts, a line each").input_value() == lines
    assert again.inner_text("figure >> nth=3") == page.inner_text("figure >> nth=3")


def test_a_dark_cell_says_why_and_is_reached_by_keyboard(pages):
    page = pages.open(model="small", text=TEXT, view="explain", more=chosen("sight", layer=0), lang="en")
    canvas = page.locator("figure canvas").first
    canvas.focus()
    for _ in range(20):
        page.keyboard.press("ArrowUp")
    for _ in range(20):
        page.keyboard.press("ArrowRight")
    assert "looks back only" in page.inner_text(".cell[aria-live=polite]")
    assert "looks back only" in canvas.get_attribute("aria-label")


def test_points_of_a_series_are_reached_by_keyboard(pages):
    page = pages.open(model="small", text=TEXT, view="explain", more=chosen("journey"), lang="en")
    values = figures_of("small").number({"figure": "journey/distance", "at": "lines.0.values"})
    svg = page.locator("figure svg").first
    svg.focus()
    page.keyboard.press("Home")
    written = page.locator("figure").first.locator("data")
    assert float(written.get_attribute("value")) == pytest.approx(values[0])
    page.keyboard.press("ArrowRight")
    assert float(written.get_attribute("value")) == pytest.approx(values[1])
    assert written.get_attribute("data-at") == "lines.0.values.1"
    assert spoken(page, page.locator("figure .told").first) == values[1]
    assert 'figure("distance").lines[0].values[1]' in page.inner_text(".inspector")


def test_a_long_one_can_be_stopped_and_computed_again(pages):
    page = pages.open(model="small", text=TEXT, view="explain", more=chosen("cost"), lang="en")
    page.locator(".explain .list button", has_text="Influence").click()
    page.get_by_label("method", exact=True).select_option("exact")
    page.get_by_role("button", name="Stop", exact=True).click()
    page.get_by_role("button", name="compute it again").wait_for()
    page.get_by_role("button", name="compute it again").click()
    page.locator("figure").first.wait_for(timeout=120_000)


def said(text):
    return {"en": text, "ko": text}


NODES = ("<b>p</b>", "q")
INVENTED = {
    "name": "invented", "title": said("Invented"), "claim": said("It claims nothing."), "python": "",
    "figures": [
        {"kind": "graph", "name": "web", "title": said("A graph"), "unit": said("u"), "layers": ["in", "out"],
         "nodes": [{"id": one, "label": one, "layer": i, "place": 0, "value": None} for i, one in enumerate(NODES)],
         "edges": [{"source": "<b>p</b>", "target": "q", "value": 0.125}]},
        {"kind": "heat_map", "name": "map", "title": said("A map"), "rows": ["r"], "columns": ["x", "y"], "value": "",
         "values": [[0.5, None]], "row_title": said("r"), "column_title": said("c"), "unit": said("u"),
         "scale": "signed", "reasons": [["", "outside the window"]], "errors": [[0.25, None]], "where": {}},
        {"kind": "token_scores", "name": "text", "title": said("A text"), "tokens": ["가", "나"],
         "values": [-1.5, None], "unit": said("u"), "chosen": None, "scale": "signed", "errors": [0.5, None]},
    ],
    "checks": [{"name": "closure", "said": said("Closure"), "value": None, "passed": None}],
}  # fmt: skip


def test_one_that_does_not_exist_yet_appears_by_itself(pages):
    """With a graph, errors, a dark cell's reason, and a check that nobody measured yet."""
    page = pages.open(model="small", text=TEXT, view="explain", more=chosen("cost"), lang="en")

    def told(route):
        answer = route.fetch()
        lines = [json.loads(line) for line in answer.text().splitlines()]
        lines[-1]["done"]["explains"].append(["invented", said("Invented")])
        route.fulfill(response=answer, body="".join(f"{json.dumps(line)}\n" for line in lines))

    page.route("**/api/runs", told)
    page.route("**/explanations/invented*", lambda route: route.fulfill(body=json.dumps({"done": INVENTED}) + "\n"))
    page.get_by_role("button", name="Run", exact=True).click()
    settle(page)
    page.locator(".explain .list button", has_text="Invented").click()
    settle(page)
    text = page.inner_text("#view")
    assert "Closure: not measured" in text and "<b>p</b>" in text
    assert page.locator("figure").nth(0).locator("data").first.inner_text() == "0.1250"
    assert "± 0.2500" in page.locator("figure").nth(1).inner_text()
    page.locator("figure canvas").first.focus()
    page.keyboard.press("ArrowRight")
    assert "outside the window" in page.locator("figure .cell").inner_text()
    assert "−1.500" in page.locator("figure").nth(2).inner_text()
    with page.expect_download() as got:
        page.locator("figure").first.get_by_role("button", name="SVG").click()
    assert "<b>" not in got.value.path().read_text(encoding="utf-8")
