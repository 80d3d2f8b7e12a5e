"""A run that the server has dropped: the page makes it again by itself and goes on."""

import pytest
from pages import Pages, served, settle, show, views

import glassformer as gf
from glassformer.page import saved
from glassformer.serve.models import Models
from glassformer.serve.runs import Runs


@pytest.fixture
def dropping(built, browser):
    """(pages, their runs) of a server of their own."""
    runs = Runs(Models())
    with served(runs=runs) as address:
        made = Pages(browser, address)
        yield made, runs
        made.close()


def refusals(page):
    """What the page says that it was refused."""
    return page.eval_on_selector_all("#view .refused, #view [role=alert]", "all => all.map((one) => one.textContent)")


@pytest.mark.slow
def test_the_page_makes_a_dropped_run_again_and_goes_on(dropping, monkeypatch, tmp_path):
    pages, runs = dropping
    page = pages.open(model="lstm", text="별이 밝다")
    (first,) = runs._runs
    with monkeypatch.context() as inside:
        inside.setattr(runs, "all_bytes", 1)  # only the latest run is kept
        pages.open(model="lstm", text="다른 사람")
    assert first not in runs._runs
    for view in views(page):
        show(page, view)
        assert not refusals(page), view
    quick = [one for one in saved.available(gf.load("lstm").trace("별이 밝다")) if one[0] != "influence"]
    monkeypatch.setattr(saved, "available", lambda trace: quick)  # that of all models takes seconds
    monkeypatch.setattr(saved, "siblings", lambda trace: [])
    with page.expect_download(timeout=240_000) as told:
        page.get_by_role("button", name="페이지 저장").click()
    settle(page)
    told.value.save_as(tmp_path / "page.html")
    file = pages.open(url=(tmp_path / "page.html").as_uri(), offline=True, view="steps")
    assert not refusals(file) and file.locator("#view canvas").count()
    pages.errors = [one for one in pages.errors if "410" not in one]  # the browser's own lines of the first refusals


def test_a_run_that_cannot_be_made_again_is_told(dropping, monkeypatch):
    pages, runs = dropping
    page = pages.open(model="lstm", text="별이 밝다", view="steps")
    asked = len(pages.asked)
    monkeypatch.setattr(runs.models, "open", lambda *_, **how: (_ for _ in ()).throw(MemoryError()))
    runs._runs.clear()
    show(page, "explain")
    assert "메모리" in page.inner_text("#view")
    assert len([one for one in pages.asked[asked:] if one.endswith("api/runs")]) < 20
    pages.errors = [one for one in pages.errors if "410" not in one]
