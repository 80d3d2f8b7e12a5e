"""The film of a training: a run made here, its frames in the page, every number Python's."""

import pytest
from pages import Pages, served, settle, violations
from quick import quick_first
from test_page_explanations import check_maps
from test_page_links import keys, seen
from test_page_numbers import Figures, check_page
from test_page_pictures import compared
from test_page_taken import check_taken
from train_runs import a_run

import glassformer as gf
from glassformer.serve.models import Models

SENTENCES = "고양이가 생선을 먹었다. 강아지가 뼈를 물었다. 아이가 별을 보았다. 하늘에 별이 빛났다.\n"
TEXT = "아이가 별을"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run of a few steps on Korean sentences, of which four sets of weights were kept."""
    place = tmp_path_factory.mktemp("film")
    (place / "text.txt").write_text(SENTENCES * 40, encoding="utf-8")
    [*gf.fit(a_run(place / "text.txt", snapshots=4, prompt="아이"), place / "run")]
    return place / "run"


@pytest.fixture
def film(built, browser, folder):
    """Pages of a server that may open the run, and the figures of its trace."""
    with served(models=Models([folder.parent])) as address:
        pages = Pages(browser, address)
        model = gf.load(folder)
        model.name = str(folder)
        yield pages, Figures(model.trace(TEXT, limit_bytes=256 << 20))
        pages.close()


def step_of(page):
    return page.locator(".film data").first.inner_text()


def test_frames_are_walked_by_slider_keys_and_play(film, folder):
    pages, figures = film
    steps = sorted(int(one.name) for one in (folder / "train" / "snapshots").iterdir())
    assert steps == [0, 1, 3, 12]
    page = pages.open(model=str(folder), text=TEXT, view="film", lang="en")
    assert step_of(page) == "12" and check_page(page, figures.trace, figures) >= 12
    page.get_by_label("training step").focus()
    page.keyboard.press("ArrowLeft")
    settle(page)
    assert step_of(page) == "3" and check_page(page, figures.trace, figures) >= 12
    shares = [
        row[-1] for row in figures.number({"figure": "film?how=token%3D6&show=next&step=3/candidates", "at": "rows"})
    ]
    last = [row[-1] for row in figures.number({"figure": "film?how=token%3D6&show=next/candidates", "at": "rows"})]
    assert shares != last  # another frame is another model
    again = pages.open(url=page.url, lang="en")  # the step stands in the address
    assert step_of(again) == "3" and again.inner_text("figure") == page.inner_text("figure")
    page.get_by_role("button", name="play", exact=True).click()
    page.locator(".film").get_by_text("12", exact=True).wait_for(timeout=20_000)
    settle(page)
    page.get_by_role("button", name="play", exact=True).wait_for()  # at the end it stands still


@pytest.mark.parametrize("show", quick_first(["influence", "weights", "heads", "journey"], ["influence"]))
def test_what_a_film_shows(film, folder, show):
    pages, figures = film
    page = pages.open(model=str(folder), text=TEXT, view="film")
    page.get_by_label("보일 것").select_option(show)
    settle(page)
    page.get_by_label("학습 단계").focus()
    page.keyboard.press("Home")
    settle(page)
    assert step_of(page) == "0" and check_page(page, figures.trace, figures) >= 8
    if show in ("influence", "weights"):
        assert check_maps(page, figures) >= 1
    assert "gf.explain('film', trace, step=0" in page.inner_text("#view pre")
    assert len(check_taken(page, f"film of {show}")) >= 2
    if show == "weights":  # the cell that is looked at stands in the link too
        keys("figure canvas", "ArrowUp", "ArrowRight")(page)
        assert seen(pages.open(url=page.url)) == seen(page)


def test_the_loss_chooses_a_frame_and_a_phone_has_room(film, folder):
    pages, figures = film
    page = pages.open(model=str(folder), text=TEXT, view="film", width=360, theme="dark")
    page.locator("details svg").focus()
    page.keyboard.press("Home")
    settle(page)
    assert step_of(page) == "1" and check_page(page, figures.trace, figures) >= 12
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


@pytest.mark.parametrize(("lang", "theme"), [("ko", "light"), pytest.param("en", "dark", marks=pytest.mark.slow)])
def test_axe_finds_no_serious_violation(film, folder, lang, theme):
    pages, _ = film
    page = pages.open(model=str(folder), text=TEXT, view="film", lang=lang, theme=theme)
    assert page.locator(".film data").count() >= 2 and violations(page) == []


@pytest.mark.slow
@pytest.mark.parametrize(("lang", "theme"), [(lang, theme) for lang in ("ko", "en") for theme in ("light", "dark")])
def test_a_film_looks_as_it_was_approved(built, browser, folder, lang, theme):
    """Under a name that is the same everywhere, as the folder's is not."""
    with served(models=Models(named={"film": folder})) as address:
        pages = Pages(browser, address)
        page = pages.open(model="film", text=TEXT, view="film", lang=lang, theme=theme)
        assert page.locator("#tab-film").get_attribute("aria-selected") == "true"
        page.evaluate("document.fonts.ready")
        compared(page.screenshot(animations="disabled", caret="hide"), f"film-{lang}-{theme}.png")
        pages.close()
