"""A link brings another person to the same picture: whatever a control changes stands in the address."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pages import settle
from quick import quick_first
from test_page_pictures import SEVEN

TEXT, OTHER = "고양이가 잤다", "개가 잤다"
# What a person sees: the words (but for the seconds that it took), the choices, the maps, what is marked in drawings.
SHOWN = """() => {
  const all = (of) => [...document.querySelectorAll(of)];
  return [document.querySelector("main").innerText.replace(/[0-9.]+ s\\b/g, "s"),
    ...all("main select, main input, main textarea").map((one) => (one.type === "checkbox" ? one.checked : one.value)),
    ...all("main :is([aria-selected=true], [aria-pressed=true], .on, .adding, .later)").map((one) => one.textContent),
    ...all("main svg [stroke='var(--query)']").map((one) => one.outerHTML.replace(/ class="[^"]*"/, "")),
    ...all("main canvas").map((one) => one.toDataURL())];
}"""


# Of the fields, and of the groups of buttons of which one is pressed, those that were used, and those that there are.
FIELDS = """() => {
  const called = (one) => {
    const group = one.matches("button") && one.closest("[role=group], fieldset, table");
    const label = group ? group.querySelector("legend") : one.labels?.[0];
    return (group || one).getAttribute("aria-label") || label?.innerText.split("\\n")[0] || one.innerText || one.id;
  };
  window.used = new Set(), window.there = new Set();
  const all = "main :is(select, input, textarea, button[aria-pressed])";
  const use = (event) => {
    const one = event.target.closest?.(all);
    if (one && (event.type !== "click" || one.matches("button"))) window.used.add(called(one));
  };
  for (const what of ["input", "change", "click"]) document.addEventListener(what, use, true);
  window.look = () => {
    const open = (one) => one.checkVisibility() && !one.disabled && !one.readOnly;
    for (const one of document.querySelectorAll(all)) if (open(one)) window.there.add(called(one));
    return [...window.there].filter((one) => !window.used.has(one));
  };
}"""


def seen(page):
    """What is seen from the top of the page, with the mouse on nothing."""
    settle(page)
    page.mouse.move(0, 0)
    page.evaluate("window.scrollTo(0, 0)")
    settle(page)
    return page.evaluate(SHOWN)


def press(name, **how):
    """Press a button."""
    return lambda page: page.get_by_role("button", name=name, exact=True, **how).first.click()


def select(label, value):
    """Choose in a list."""
    return lambda page: page.get_by_role("combobox", name=label).first.select_option(value)


def keys(where, *names, at=0):
    """Press keys on something."""

    def change(page):
        page.locator(where).nth(at).focus()
        for name in names:
            page.keyboard.press(name)

    return change


def click(where, at=0):
    """Click on something."""
    return lambda page: page.locator(where).nth(at).click()


def fill(label, text, *then):
    """Write into a field, and press a button or a key."""

    def change(page):
        page.get_by_label(label, exact=True).first.fill(text)
        page.keyboard.press("Tab")
        for one in then:
            press(one)(page)

    return change


def explained(name):
    """Choose an explanation."""
    return lambda page: page.locator(".explain .list button", has_text=name).first.click()


def slide(page):
    page.get_by_label("terms").fill("2")


def uncheck(page):
    page.get_by_label("one colour scale for all").uncheck()


# Of each view where it is opened, and what is changed there, one after the other.
CHANGES = {
    "flow": (
        {"layer": 1, "token": 2},
        [press("larger"), press("token"), keys("#picture", "ArrowUp", "ArrowLeft"), click("summary")],
    ),
    "steps": (
        {"layer": 2, "token": 3},
        [
            select("Head", "3"),
            select("Layer", "1"),
            click("tbody .plain", 1),
            slide,
            click(".tokens button", 4),
            slide,
            press("token"),
        ],
    ),
    "heads": (
        {"layer": 2, "head": 1},
        [
            lambda page: page.get_by_label("ordered by").select_option(index=3),
            click(".all button", 2),
            keys(".large canvas", "ArrowUp", "ArrowRight"),
            press("token"),
            keys(".large canvas", "ArrowUp", "ArrowRight"),
        ],
    ),
    "hands": (
        {"token": 3},
        [
            press("switch head 3.0 off"),
            press("shifted by"),
            fill("shifted by so many places", "3", "shifted by"),
            fill("temperature as a number", "2.5"),
            keys("figure svg", "ArrowLeft", "ArrowLeft", "ArrowDown"),
            lambda page: page.locator("fieldset form input").fill("는") or press("swap")(page),
            lambda page: page.get_by_label("the other weights stay as they were").check(),
            lambda page: page.locator("fieldset input.text").fill(OTHER),
            click(".tokens button", 2),
        ],
    ),
    "families": (
        {"more": "families=mlp,lstm,cnn", "token": 2},
        [
            uncheck,
            press("remove cnn"),
            lambda page: page.locator("article").nth(1).get_by_role("button", name="exactly").click(),
            keys("article canvas", "ArrowUp", "ArrowLeft"),
            press("token"),
            lambda page: page.get_by_label("Add a model").select_option("ssm"),
        ],
    ),
    "two": (
        {"second": OTHER, "more": "two=잤다"},
        [
            keys("figure svg", *["ArrowLeft"] * 9),
            keys("figure svg", *["ArrowRight"] * 2),
            select("Head", "2"),
            press("token"),
            lambda page: fill("The word", "다", "Compare")(page),
        ],
    ),
    "write": (
        {},
        [
            lambda page: (
                [
                    page.get_by_label(name, exact=True).fill(to)
                    for name, to in (("new tokens", "4"), ("temperature", "0.5"), ("top-k", "9"), ("seed", "7"))
                ]
                and press("Write")(page)
            ),
            click(".text button", 1),
        ],
    ),
    "explain": (
        {"layer": 1},
        [
            explained("From the fixed vector"),
            keys("figure svg", "ArrowLeft", "ArrowDown"),
            fill("token (−1: the last)", "2"),
            explained("What each token can see"),
            click("summary"),
            keys("figure canvas", "ArrowUp", "ArrowRight"),
            keys(".scores button[tabindex='0']", "ArrowLeft"),
            select("layer", "0"),
            fill("these rows alone (3,7)", "1,2"),
            press("token"),
        ],
    ),
    "align": (
        {"model": "korean-g2p", "text": "값없이"},
        [keys("figure canvas", "ArrowUp", "ArrowRight"), press("token")],
    ),
    "image": (
        {"model": "vit", "text": "", "image": SEVEN},
        [
            press("the digit 4"),
            keys("section .row canvas", "ArrowUp", "ArrowRight"),
            keys("section figure > canvas", "ArrowUp", "ArrowLeft"),
            select("Head", "1"),
            select("Layer", "1"),
            keys(".axes canvas", "ArrowUp", "ArrowRight"),
        ],
    ),
}


# Fields that change nothing until a button is pressed, or are tried elsewhere (sentences in test_page_compared.py; a
# file, which may be too large for a link, in test_page_kinds.py), and the parts of a character, which are tokens.
ALONE = {
    "steps": {"How  gathers its context in layer , head ", "The tokens of "},
    "heads": {"The tokens of "},
    "hands": {
        *("Layer", "Head", "temperature", "Shown by", "instead of ", "Control", "seed of the control"),
        *(" looks at", "An edge", "From another text", "the token of the other text, by number"),
        *("Any value", "the value", "how it is changed", "the number", "at  alone"),  # what its button does is kept
    },
    "two": {"Examples", "One sentence", "Another"},
    "write": {"Beginning"},
    "image": {"open a file (PNG, PGM, PPM)"},
}


@pytest.mark.parametrize("view", quick_first(CHANGES, ["flow"]))
def test_whatever_is_changed_stands_in_the_link(pages, view):
    place, changes = CHANGES[view]
    page = pages.open(**{"model": "small", "text": TEXT, "view": view, "lang": "en"} | place)
    now = seen(page)
    page.evaluate(FIELDS)
    for i, change in enumerate(changes):
        address = page.url
        change(page)
        before, now = now, seen(page)
        assert now != before and page.url != address, f"change {i} of {view}"
        left = [re.sub(r"“[^”]*”|[0-9]+", "", name) for name in page.evaluate("look()")]
    assert set(left) == ALONE.get(view, set()), "the fields that are not changed above"
    again = pages.open(url=page.url, lang="en")
    found = seen(again)
    different = [(one, other) for one, other in zip(now, found, strict=False) if one != other]
    assert not different and len(found) == len(now), different


def test_every_view_is_changed_above():
    """No view is forgotten, nor, above, a field in it. The film needs a run of its own: test_page_film.py."""
    source = (Path(__file__).parents[2] / "ui" / "src" / "views" / "index.ts").read_text(encoding="utf-8")
    assert set(re.findall(r'{ id: "(\w+)"', source)) == set(CHANGES) | {"film"}


def test_another_text_begins_without_the_places_of_the_one_before(pages):
    page = pages.open(model="small", text=TEXT, view="explain", lang="en", more="explain=sight")
    keys("figure canvas", "ArrowUp", "ArrowRight")(page)
    settle(page)
    assert "at%3D" in page.url
    page.fill("#text", OTHER)
    press("Run")(page)
    settle(page)
    assert "at%3D" not in page.url and "explain%3Dsight" in page.url
    # Each run is a step of the history, as each view is.
    page.click("#tab-steps")
    settle(page)
    for text, view in ((OTHER, "explain"), (TEXT, "explain")):
        page.go_back()
        settle(page)
        assert page.input_value("#text") == text
        assert page.locator(f"#tab-{view}").get_attribute("aria-selected") == "true"
    page.go_forward()
    settle(page)
    assert page.input_value("#text") == OTHER


def test_what_a_link_asks_for_in_vain_is_said_and_leaves_the_address(pages):
    page = pages.open(text=TEXT, view="nosuch", edits="notjson", layer=99, head=1, lang="en")
    note = page.get_by_role("note")
    for hash_, said, left in (
        ("", "view=nosuch, edits=notjson, layer=99", ["head=1"]),
        ("#view=align&model=lstm&stack=3", "view=align, stack=3", ["model=lstm"]),
        ("#view=heads&model=lstm", "view=heads", ["model=lstm"]),
    ):
        if hash_:
            page.evaluate("to => { location.hash = to; }", hash_)
            settle(page)
        (told,) = note.all_inner_texts()
        assert told.endswith(f": {said}") and told.startswith("What follows of the link")
        address = page.evaluate("location.hash")
        assert all(one in address for one in left) and not any(one in address for one in said.split(", "))
        assert page.locator("#tab-flow").get_attribute("aria-selected") == "true"
    page.get_by_label("Language", exact=True).select_option("ko")
    assert note.inner_text().startswith("링크에서")
    page.go_back()  # to what was there before, and not to what was mended
    settle(page)
    page.go_back()
    settle(page)
    assert "head=1" in page.url and note.count() == 0
    page.click("#tab-heads")
    settle(page)
    assert note.count() == 0 and "view=heads" in page.url
