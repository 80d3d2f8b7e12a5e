"""What is pointed at: the Python line beside a number gives that number; nothing that the page only draws has one."""

import math

from pages import settle, show, views
from test_page_numbers import TEXT, figures_of

import glassformer as gf

EACH = 4  # numbers of a kind in a view


def pointed(page):
    """The line, the exact number, and whose it is; None where nothing is pointed at."""
    return page.evaluate("""() => {
      const one = document.querySelector(".inspector");
      const exact = one.querySelector(".exact data");
      return exact && { line: one.querySelector(".source pre").textContent, value: exact.value };
    }""")


def check(found, trace):
    value = eval(found["line"], {"gf": gf, "trace": trace})
    value = value.item() if hasattr(value, "item") else value
    assert math.isclose(float(found["value"]), value, rel_tol=1e-4, abs_tol=1e-6), (found, value)


def walked(page, trace, where):
    """Point at some of what matches, and run the lines that are shown."""
    all_, seen = page.locator(where), 0
    count = all_.count()
    for i in range(0, count, max(1, count // EACH)):
        one = all_.nth(i)
        if not one.is_visible():
            continue
        page.keyboard.press("Escape")
        one.hover(force=True)
        if found := pointed(page):
            check(found, trace)
            seen += 1
    return seen


def test_the_line_beside_a_number_gives_it(pages):
    page, trace, seen = pages.open(text=TEXT, lang="en", layer=1, head=1), figures_of("small").trace, {}
    for view in views(page):
        if view in ("families", "two", "write"):
            continue  # whose numbers are of other runs
        show(page, view)
        seen[view] = walked(page, trace, "#view data") + walked(page, trace, "#view canvas[role=img]")
    assert all(seen[view] >= 4 for view in ("flow", "steps", "heads", "hands", "explain")), seen


def test_a_sum_that_is_not_whole_yet_is_drawn_only(pages):
    page, trace = pages.open(text=TEXT, view="steps", lang="en"), figures_of("small").trace
    page.get_by_role("slider").fill("2")
    settle(page)
    page.keyboard.press("Escape")
    last = page.locator("tfoot canvas")
    last.hover()
    assert pointed(page) is None and "drawn only" in last.get_attribute("aria-label")
    assert last.get_attribute("tabindex") is None
    page.get_by_role("slider").fill(page.get_by_role("slider").get_attribute("max"))
    settle(page)
    last.hover()
    assert "mixer.z" in pointed(page)["line"]
    check(pointed(page), trace)
    assert walked(page, trace, "tbody canvas") >= 4
    assert page.locator("table [tabindex='0'], table button:not([tabindex='-1'])").count() <= 5  # stops of the Tab key
