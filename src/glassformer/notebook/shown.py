"""The widget itself, for which anywidget must be installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anywidget
import msgspec
import traitlets

from ..api import Loaded
from ..classifier import Classifier
from ..page.outline import outline
from ..page.saved import body_of, built, html_of
from ..serve.app import application
from ..serve.models import Models
from ..serve.runs import Runs, new_id
from ..text_trace import KEPT_BYTES, TextTrace, framed
from ..trace import Trace
from .bridge import Bridge

ALL_BYTES = 256 << 20  # of all runs of one widget together
KERNEL = '<div id="kernel" hidden></div>'  # by which the page knows that it stands in a notebook
RELAY = Path(__file__).with_name("relay.js")
# JupyterLab looks for the live page alone, and where that is gone, as in a notebook that is opened again, it says
# "model not found" in its place. This stands before it, and relay.js hides it as long as the page is there.
AGAIN = (
    '<p class="glassformer-again">If no page of Glassformer is shown here (“model not found”), run this cell again.<br>'
    '<span lang="ko">여기에 Glassformer 화면이 보이지 않으면(“model not found”) 이 셀을 다시 실행하십시오.</span></p>'
)


class Shown(anywidget.AnyWidget):
    """The page over one run, in as many places of a notebook as it is shown; each widget has models and runs of its
    own, and `trace` as it was given.

    run     the document of the run, as JSON
    kept    the run as a saved page holds it, which is shown as long as the kernel says nothing
    lang    the language in which the page opens, "" for the browser's
    """

    _esm = traitlets.Unicode().tag(sync=True)
    run = traitlets.Unicode().tag(sync=True)
    kept = traitlets.Unicode().tag(sync=True)
    lang = traitlets.Unicode().tag(sync=True)

    def __init__(self, trace: Trace, model: Loaded | Classifier, lang: str = "") -> None:
        """Raises UnsupportedError where the page is not built, InputError for a trace of several texts."""
        self.trace, script = trace, esm()
        document = outline(trace, new_id())
        runs = Runs(Models(given={document.model: model}), all_bytes=ALL_BYTES)
        runs.keep(trace.beside(), model, document)
        app = application(runs=runs)
        self.desk, self.bridge = app.state.desk, Bridge(app, self._tell)
        kept = body_of(trace, slow=False, most_bytes=KEPT_BYTES)
        super().__init__(_esm=script, run=msgspec.json.encode(document).decode(), kept=kept, lang=lang)
        self.on_msg(lambda _, message, buffers: self.bridge.take(message))

    def _tell(self, piece: dict[str, Any], data: bytes) -> None:
        self.send(piece, [data])

    def __repr__(self) -> str:
        return f"<page of {self.trace!r}>"

    def _repr_mimebundle_(self, **how: Any) -> Any:
        """The widget for a notebook whose kernel lives, and what a saved one shows without it."""
        found = super()._repr_mimebundle_(**how)
        data, more = found if isinstance(found, tuple) else (found, {})
        page = html_of(*built(), self.lang, self.kept)
        drawn = self.trace.framed(page) if isinstance(self.trace, TextTrace) else framed(page, repr(self.trace))
        return data | {"text/html": drawn, "text/plain": repr(self.trace)}, more

    def _ipython_display_(self) -> None:
        """Show it in a cell, behind what to do where the kernel has gone."""
        from IPython.display import publish_display_data  # only here: a kernel has it

        publish_display_data({"text/html": AGAIN, "text/plain": ""})
        data, more = self._repr_mimebundle_()
        publish_display_data(data, more)

    def close(self) -> None:
        """End the widget, and all that is computed for it."""
        if hasattr(self, "bridge"):
            self.bridge.close()
            self.desk.stop()
        super().close()


def esm() -> str:
    """The module that a notebook's page loads for the widget: the relay, with the built page in it. Raises
    UnsupportedError where that is not built."""
    page = html_of(*built(), "", KERNEL)
    made = RELAY.read_text(encoding="utf-8")
    for name, text in (("PAGE", page), ("KERNEL", KERNEL)):
        made = made.replace(f'"{name}"', msgspec.json.encode(text).decode(), 1)
    return made
