"""The kernel's side of a widget: the page's requests, which come as messages, are answered by the server's own routes.

A message of the page, in its view (the widget may be shown in several places at once):

    {view, ask: 3, method, path, headers, body}   a request, as one that comes by HTTP
    {view, stop: 3}                               nobody waits for that answer any more
    {view, leave: true}                           nor for any other of this view

and what it is told, with the bytes beside it as a buffer: {view, of: 3, status, more}, for each piece of an answer.
"""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

from starlette.types import ASGIApp, Message

Tell = Callable[[dict[str, Any], bytes], None]
METHODS = ("GET", "POST")


class Bridge:
    """Answers one widget by an ASGI application, beside the cells that the kernel runs.

    tell    is given each piece of an answer, from another thread
    """

    def __init__(self, app: ASGIApp, tell: Tell) -> None:
        self.app, self.tell = app, tell
        self._gone: dict[tuple[str, int], asyncio.Event] = {}  # of what is being answered; used by the loop's thread

    def take(self, message: Any) -> None:
        """Take a message. Those that make no sense are not answered: no page sends them."""
        if isinstance(message, dict) and isinstance(message.get("view"), str):
            loop().call_soon_threadsafe(self._taken, message["view"], message)

    def close(self) -> None:
        """End all work."""
        if self._gone:  # else there may be no loop, and at the end of the program none can be made any more
            loop().call_soon_threadsafe(self._leave, None)

    # ------------------------------------------------------------ in the thread of the loop

    def _taken(self, view: str, message: dict[str, Any]) -> None:
        if message.get("leave"):
            self._leave(view)
        elif isinstance(stopped := message.get("stop"), int):
            if (view, stopped) in self._gone:
                self._gone[view, stopped].set()
        elif isinstance(number := message.get("ask"), int) and (view, number) not in self._gone:
            gone = self._gone[view, number] = asyncio.Event()
            task = loop().create_task(self._answer(view, number, message, gone))
            _tasks.add(task)
            task.add_done_callback(_tasks.discard)

    def _leave(self, view: str | None) -> None:
        """Nobody looks at this view any more, or at any."""
        for (of, _), gone in self._gone.items():
            if view in (None, of):
                gone.set()

    async def _answer(self, view: str, number: int, asked: dict[str, Any], gone: asyncio.Event) -> None:
        """Answer one request, in pieces; where nobody waits any more, as where a connection is cut."""
        begun, status = False, 500

        async def receive() -> Message:
            nonlocal begun
            if not begun:
                begun = True
                return {"type": "http.request", "body": str(asked.get("body", "")).encode(), "more_body": False}
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            piece = {
                "view": view,
                "of": number,
                "status": status,
                "more": message.get("more_body", "status" in message),
            }
            if not gone.is_set():
                self.tell(piece, bytes(message.get("body", b"")))

        try:
            await self.app(_scope(asked), receive, send)
        except Exception:  # it was told in the log, and to the page
            pass
        finally:
            del self._gone[view, number]


_tasks = set[asyncio.Task[None]]()  # a loop alone does not keep its tasks


@functools.cache
def loop() -> asyncio.AbstractEventLoop:
    """The loop in which all widgets of this kernel are answered: in a thread of its own, since the kernel's own loop
    stands still while a cell runs."""
    made = asyncio.new_event_loop()
    threading.Thread(target=made.run_forever, name="glassformer-notebook", daemon=True).start()
    return made


def _scope(asked: dict[str, Any]) -> dict[str, Any]:
    """The request as ASGI has it, as if it came from this machine."""
    path, _, query = str(asked.get("path", "")).partition("?")
    headers = {str(name).lower(): str(value) for name, value in dict(asked.get("headers") or {}).items()}
    headers["host"] = "localhost"
    pairs = [(name.encode("latin-1", "replace"), one.encode("latin-1", "replace")) for name, one in headers.items()]
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": asked["method"] if asked.get("method") in METHODS else "GET",
        "scheme": "http",
        "path": unquote(f"/{path.lstrip('/')}"),
        "raw_path": path.encode("ascii", "replace"),
        "root_path": "",
        "query_string": query.encode("ascii", "replace"),
        "headers": pairs,
        "client": None,
        "server": ("localhost", 80),
    }
