"""What the page's tests share: a server in this process, one browser a session, and pages in it."""

from __future__ import annotations

import os

import browsers
import pytest
from pages import Pages, served

import page_build


@pytest.fixture(scope="session")
def launched():
    """What starts a real Chromium."""
    program = browsers.browser()
    if program is None:
        pytest.skip(browsers.NONE)
    api = pytest.importorskip("playwright.sync_api")
    # A browser refuses to put its processes into a sandbox where it runs as the superuser, as in a container.
    flags = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    flags += ["--force-color-profile=srgb", "--font-render-hinting=none"]
    with api.sync_playwright() as playwright:
        yield lambda: playwright.chromium.launch(executable_path=program, args=flags)


@pytest.fixture(scope="session")
def browser(launched):
    """The one of all tests."""
    opened = launched()
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def built():
    """The page, built from the sources of this checkout."""
    if not page_build.is_built():
        if page_build.machine_node() is None:
            pytest.skip("the page is not built, and there is no Node.js (make page)")
        try:
            page_build.build()
        except page_build.PageError as error:
            if "npm ci left" not in str(error):  # sources that cannot be built are a mistake, no network is none
                raise
            pytest.skip("the page is not built, and npm cannot fetch its packages (make page)")


@pytest.fixture(scope="session")
def server(built, tmp_path_factory):
    """The address of a server on a free port of this machine."""
    os.environ["GLASSFORMER_HOME"] = str(tmp_path_factory.getbasetemp() / "home")
    with served() as address:
        yield address


@pytest.fixture
def pages(browser, server):
    """Pages of the server: `pages.open(model="small", text="…", view="flow", lang="en", theme="dark")`. At the end of
    the test: none of them threw, wrote an error to the console, or asked another machine."""
    made = Pages(browser, server)
    yield made
    made.close()
