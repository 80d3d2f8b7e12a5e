"""Attributions, edges and causal tracing in the page: each with how faithful it is in view, measured when asked for."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from pages import settle
from test_page_explanations import check_maps, chosen
from test_page_numbers import TEXT, Figures, check_page, figures_of
from test_page_pictures import SEVEN

import glassformer as gf
from glassformer.data.picture import picture

pytestmark = pytest.mark.slow
UNMEASURED = {"en": "not measured", "ko": "측정하지 않음"}


@pytest.mark.parametrize("lang", UNMEASURED)
def test_an_attribution_says_that_it_is_not_measured_until_it_is(pages, lang):
    own = figures_of("small")
    page = pages.open(model="small", text=TEXT, view="explain", more=chosen("attribution"), lang=lang)
    assert page.inner_text("#view").count(UNMEASURED[lang]) >= 7  # also as a choice of the setting
    label = {"en": "measure by", "ko": "측정 방법"}[lang]
    page.get_by_label(label, exact=True).select_option("delete")
    settle(page)
    assert "measure='delete'" in page.inner_text("pre code")
    assert page.locator("figure").count() == 5 and check_page(page, own.trace, own) > 30
    shown = page.locator("#view li").all_inner_texts()
    random = {"en": "random orders", "ko": "무작위 순서"}[lang]
    assert sum(random in one for one in shown) >= 2 and not any(UNMEASURED[lang] in one for one in shown)


def test_edges_and_tracing_show_pythons_maps_with_their_controls(pages):
    own = figures_of("small")
    for name, settings, check in (
        ("edges", {"layer": 1, "head": 2, "measure": "sampled", "samples": 32}, "Rank correlation"),
        ("tracing", {"subject": "생선을", "way": "both", "draws": 2}, "put back"),
        ("circuit", {"edges": 24, "samples": 8, "orders": 2}, "Faithfulness of the circuit"),
    ):
        page = pages.open(model="small", text=TEXT, view="explain", more=chosen(name, **settings), lang="en")
        assert check_page(page, own.trace, own) > 20 and (name == "circuit" or check_maps(page, own) > 20)
        assert check in page.inner_text("#view") and page.locator("#view [role=alert]").count() == 0


@pytest.mark.parametrize(("name", "lang"), [("lenet", "ko"), ("vit", "en")])
def test_a_class_comes_from_pixels_or_patches(pages, name, lang):
    """The map and its faithfulness are Python's; nothing is offered that only a text has."""
    model = gf.load(name)
    seven = picture(base64.b64decode(SEVEN), Path("seven.png"))
    own = Figures(model.trace(model.fitted(seven)[0].image))
    settings = {"method": "integrated", "measure": "mean", "orders": 2}
    more = chosen("attribution", **settings)
    page = pages.open(model=name, text="", image=SEVEN, view="explain", more=more, lang=lang)
    side = len(own.number({"figure": "attribution?method=integrated/scores", "at": "values"}))
    assert page.locator("figure").count() == 5 and side == {"lenet": 28, "vit": 7}[name]
    assert check_page(page, own.trace, own) > 30 and check_maps(page, own) > 20
    labels = {"en": ("token", "second text"), "ko": ("토큰", "다른 텍스트")}[lang]
    assert not any(page.get_by_label(one, exact=True).count() for one in labels)
    measure = page.get_by_label({"en": "measure by", "ko": "측정 방법"}[lang], exact=True)
    assert measure.locator("option").evaluate_all("all => all.map((one) => one.value)") == ["", "pad", "mean"]
    kind = {"lenet": "픽셀", "vit": "patches"}[name]
    assert kind in page.inner_text("#view") and not any(one in page.inner_text("figure") for one in ("토큰", "token"))
