"""A bare page that shows widgets as a notebook does: their module is loaded, and messages go to the widget in Python
and back. What a test sees there can only have come from the kernel."""

from __future__ import annotations

import base64
import json
import queue
from typing import Any

# As anywidget's front end does it: the module from a blob, a model with the widget's state, an element to draw in.
HOST = """
window.widgets = new Map();
window.show = async (id, state) => {
  const listeners = new Set();
  const model = {
    get: (name) => state[name],
    send: (content) => void window.toKernel(id, JSON.stringify(content)),
    on: (name, hear) => name === "msg:custom" && listeners.add(hear),
    off: (name, hear) => listeners.delete(hear),
  };
  const url = URL.createObjectURL(new Blob([state._esm], { type: "text/javascript" }));
  const module = await import(url);
  const place = document.querySelector(".widget-place") ?? document.body; // where a test drew a notebook's tree
  const el = place.appendChild(Object.assign(document.createElement("div"), { id }));
  const away = await module.default.render({ model, el });
  window.widgets.set(id, { listeners, away });
};
window.deliver = async () => {
  for (const [id, content, data] of await window.fromKernel()) {
    const buffers = data.map((one) => new DataView(Uint8Array.from(atob(one), (c) => c.charCodeAt(0)).buffer));
    for (const hear of window.widgets.get(id).listeners) hear(content, buffers);
  }
  setTimeout(window.deliver, 5);
};
"""


class Notebook:
    """Widgets in one page, by the ids of their elements."""

    def __init__(self, page: Any) -> None:
        self.page, self.widgets = page, dict[str, Any]()
        self.sent: queue.SimpleQueue[tuple[str, Any, list[str]]] = queue.SimpleQueue()
        self.messages: list[tuple[str, Any]] = []  # that the page sent
        page.expose_function("toKernel", self._to_kernel)
        page.expose_function("fromKernel", self._from_kernel)
        page.evaluate(HOST)
        page.evaluate("void window.deliver()")

    def show(self, id: str, widget: Any) -> Any:
        """Show a widget; the frame of its page, once that is drawn."""
        widget.send = lambda content, buffers: self.sent.put(
            (id, content, [base64.b64encode(one).decode() for one in buffers])
        )
        self.widgets[id] = widget
        state = {name: getattr(widget, name) for name in ("_esm", "run", "kept", "lang")}
        self.page.evaluate("([id, state]) => window.show(id, state)", [id, state])
        return self.frame(id)

    def frame(self, id: str) -> Any:
        """The frame in an element, once its page is there."""
        frame = self.page.wait_for_selector(f"#{id} iframe", state="attached").content_frame()
        frame.wait_for_selector("#view > *")
        return frame

    def _to_kernel(self, id: str, content: str) -> None:
        self.messages.append((id, json.loads(content)))
        self.widgets[id]._handle_custom_msg(json.loads(content), [])

    def _from_kernel(self) -> list[tuple[str, Any, list[str]]]:
        found = []
        while not self.sent.empty():
            found.append(self.sent.get())
        return found
