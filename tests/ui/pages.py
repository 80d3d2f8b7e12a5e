"""Pages of the explorer in a browser, opened at a place, and what a test asks of them."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote, urlencode

import pytest

import page_build

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


# Waits until the page waits for nothing and has changed nothing for `quiet` ms, over several of the browser's frames
# (where it draws any: not of a frame that is out of sight). What it says if that takes more than `most` ms.
REST = """async ([quiet, most]) => {
  const now = () => {
    const told = window.glassformer, view = document.querySelector("#view > *");
    if (!told || !view || told.asking > 0 || document.querySelector("[aria-busy=true]")) return "";
    return `${document.querySelectorAll("*").length} ${document.body.textContent.length} ${told.drawn.size}`;
  };
  const began = performance.now();
  for (let since = began, frames = 0, before = ""; performance.now() - began < most; ) {
    const found = now();
    if (!found || found !== before) [since, frames, before] = [performance.now(), 0, found];
    else if (++frames > 3 && performance.now() - since > quiet) return "";
    await new Promise((next) => (requestAnimationFrame(next), setTimeout(next, 100)));
  }
  return document.body.innerText.slice(0, 500) || "empty";
}"""


def settle(page: Any, quiet_s: float = 0.05, most_s: float = 120) -> None:
    """Wait until the page waits for nothing, and has changed nothing for a while."""
    left = page.evaluate(REST, [1000 * quiet_s, 1000 * most_s])
    assert not left, f"the page does not come to rest: {left}"


def at_rest(page: Any, most_s: float) -> bool:
    """Whether the page comes to rest within so many seconds."""
    return not page.evaluate(REST, [50, 1000 * most_s])


def views(page: Any) -> list[str]:
    """The views that the page offers for what it shows."""
    return page.eval_on_selector_all("[role=tab][id^='tab-']", "all => all.map((one) => one.id.slice(4))")


def show(page: Any, view: str) -> None:
    """Choose a view."""
    page.click(f"#tab-{view}")
    settle(page)


AXE = page_build.UI / "node_modules" / "axe-core" / "axe.min.js"
VIOLATIONS = """async () => (await axe.run(document, { resultTypes: ["violations"] })).violations
  .filter((one) => ["serious", "critical"].includes(one.impact))
  .map((one) => `${one.id}: ${one.nodes.slice(0, 3).map((node) => node.html.slice(0, 150)).join(" | ")}`)"""


def violations(page: Any) -> list[str]:
    """What axe-core finds that is serious, in what the page shows now."""
    if not AXE.is_file():
        assert page_build.machine_node() is None, "the page's packages are not installed (npm ci in ui/)"
        pytest.skip("no Node.js, whose npm installs axe-core")
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE.read_text(encoding="utf-8"))
    return page.evaluate(VIOLATIONS)
