"""Pages of the explorer in a browser, opened at a place, and what a test asks of them."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote, urlencode

# Before the page's own code runs: what a text must never do, and when the first picture is there.
BEFORE = """
window.ran = [];
for (const name of ["alert", "confirm", "prompt"]) window[name] = () => window.ran.push(name);
const seen = new MutationObserver(() => {
  if (document.querySelector("#view canvas, #view svg, #view data") && window.drawn === undefined)
    requestAnimationFrame(() => (window.drawn ??= performance.now()));
});
seen.observe(document, { childList: true, subtree: true });
"""


@contextmanager
def served(**how: Any) -> Iterator[str]:
    """A server in a thread of this process; how: as of serve.app.application. Its address."""
    import uvicorn

    from glassformer.serve.app import application

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    one = uvicorn.Server(uvicorn.Config(application(**how), host="127.0.0.1", port=port, log_level="error", ws="none"))
    thread = threading.Thread(target=one.run, daemon=True)
    thread.start()
    until = time.monotonic() + 30
    while not one.started and time.monotonic() < until:
        time.sleep(0.02)
    assert one.started
    yield f"http://127.0.0.1:{port}/"
    one.should_exit = True
    thread.join(10)


class Pages:
    """Opens pages, each in a context of its own, and looks after what they did."""

    def __init__(self, browser: Any, server: str) -> None:
        self.browser, self.server = browser, server
        self.contexts: list[Any] = []
        self.errors: list[str] = []
        self.asked: list[str] = []

    def open(
        self,
        *,
        lang: str = "ko",
        theme: str = "light",
        width: int = 1280,
        height: int = 900,
        url: str | None = None,
        wait: bool = True,
        offline: bool = False,
        **place: Any,
    ) -> Any:
        """A page at a place (`model`, `text`, `view`, `layer` …), settled unless `wait` is False."""
        context = self.browser.new_context(
            viewport={"width": width, "height": height},
            locale={"ko": "ko-KR", "en": "en-US"}[lang],
            color_scheme=theme,
            reduced_motion="reduce",
            offline=offline,
        )
        self.contexts.append(context)
        context.add_init_script(BEFORE)
        page = context.new_page()
        page.on("request", lambda one: self.asked.append(one.url))
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", lambda one: self.errors.append(one.text) if one.type in ("error", "warning") else None)
        page.on("dialog", lambda one: (self.errors.append(f"dialog: {one.message}"), one.dismiss()))
        hash_ = urlencode(place, quote_via=quote)
        page.goto((url or self.server) + (f"#{hash_}" if hash_ else ""))
        if wait:
            settle(page)
        return page

    def close(self) -> None:
        """Close all, and raise AssertionError for anything a page must not do."""
        for context in self.contexts:
            context.close()
        foreign = [url for url in self.asked if not url.startswith((self.server, "data:", "blob:", "file:"))]
        assert not foreign, f"asked of other machines: {foreign}"
        assert not self.errors, self.errors


READY = """() => {
  const told = window.glassformer, view = document.querySelector("#view > *");
  if (!told || !view || told.asking > 0 || document.querySelector("[aria-busy=true]")) return "";
  return `${document.querySelectorAll("*").length} ${document.body.textContent.length} ${told.drawn.size}`;
}"""


def settle(page: Any, quiet_s: float = 0.1, most_s: float = 120) -> None:
    """Wait until the page waits for nothing, and has changed nothing for a while."""
    until, since, before = time.monotonic() + most_s, time.monotonic(), ""
    while time.monotonic() < until:
        now = page.evaluate(READY)
        if not now or now != before:
            since, before = time.monotonic(), now
        elif time.monotonic() - since > quiet_s:
            return
        page.wait_for_timeout(25)
    raise AssertionError(f"the page does not come to rest: {page.inner_text('body')[:500]}")


def views(page: Any) -> list[str]:
    """The views that the page offers for what it shows."""
    return page.eval_on_selector_all("[role=tab][id^='tab-']", "all => all.map((one) => one.id.slice(4))")


def show(page: Any, view: str) -> None:
    """Choose a view."""
    page.click(f"#tab-{view}")
    settle(page)
