"""The server's answers: numbers, lines of JSON as the work goes on, and mistakes in the reader's language."""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Callable
from typing import Any

import anyio
import anyio.from_thread
import anyio.lowlevel
import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from ..errors import GlassformerError, InputError
from ..machine import is_out_of_memory
from ..terminal.complaint import told
from .work import BusyError, Desk, EndedError, Lane, Work

log = logging.getLogger("glassformer.serve")


class GoneError(GlassformerError):
    """A run that was dropped, or never was."""


class TooLargeError(GlassformerError):
    """A request for more than is given at once."""


class NoPictureError(InputError):
    """A model that reads images, and none was given: its answer says so, and the page can begin with one of its own."""


class SlowError(GlassformerError):
    """A request of which the rest does not come."""


STATUS = {SlowError: 408, GoneError: 410, TooLargeError: 413, BusyError: 503, EndedError: 503}


def language(request: Request) -> str:
    """The language that the page asks for: of the two the first that Accept-Language names, else English."""
    for one in request.headers.get("accept-language", "")[:200].lower().split(","):
        if one.strip()[:2] in ("ko", "en"):
            return one.strip()[:2]
    return "en"


def refusal(error: Exception, lang: str, status: int | None = None) -> JSONResponse:
    """A mistake as JSON, in a language."""
    line, found = refused(error, lang)
    answer = status or found
    more = {"retry-after": "2"} if isinstance(error, BusyError) else None
    return JSONResponse(line | {"status": answer}, answer, headers=more)


def refused(error: BaseException, lang: str) -> tuple[dict[str, Any], int]:
    """What is said of a mistake, and its status."""
    if isinstance(error, GlassformerError):
        status = next((code for kind, code in STATUS.items() if isinstance(error, kind)), 400)
    elif is_out_of_memory(error):
        error, status = InputError("this needs more memory than the machine has; give a shorter text"), 413
    elif isinstance(error, msgspec.DecodeError | RecursionError):
        error, status = InputError(f"the request cannot be read ({error}); reload the page"), 400
    else:
        log.error("a request failed", exc_info=error)
        error, status = InputError("the server made a mistake; the terminal in which it runs says more"), 500
    reads = {"reads": "image"} if isinstance(error, NoPictureError) else {}
    return {"refused": told(error, lang), "status": status} | reads, status


class Streamed(Response):
    """The answer of a long computation: a line of JSON for its progress, its events, and its outcome, {"done": …} or
    {"refused": …}. Where the person leaves, the work ends.

    Raises BusyError at once where too many wait.
    """

    media_type = "application/x-ndjson"

    def __init__(self, desk: Desk, does: Callable[[Work], Any], lang: str, lane: Lane = "long") -> None:
        super().__init__()
        desk.check_room(lane)
        self.desk, self.does, self.lang, self.lane = desk, does, lang, lane
        self.headers["x-accel-buffering"] = "no"
        del self.headers["content-length"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, as starlette's responses do."""
        says, lines = anyio.create_memory_object_stream[dict[str, Any]](math.inf)
        loop = anyio.lowlevel.current_token()

        def tell(line: dict[str, Any]) -> None:
            with contextlib.suppress(anyio.BrokenResourceError):  # the person has left, and the work ends soon
                says.send_nowait(line)

        work = Work(lambda line: anyio.from_thread.run_sync(tell, line, token=loop))

        async def computed() -> None:
            try:
                if self.desk.is_full(self.lane):
                    tell({"progress": {"what": "wait", "done": 0, "all": 0}})
                outcome = {"done": await self.desk.done(work, lambda: self.does(work), self.lane)}
            except Exception as error:
                outcome, _ = refused(error, self.lang)
            tell(outcome)
            says.close()

        async with anyio.create_task_group() as group:
            group.start_soon(_leaving, receive, work)
            group.start_soon(computed)
            try:
                await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
                async with lines:
                    async for line in lines:
                        body = msgspec.json.encode(line) + b"\n"
                        await send({"type": "http.response.body", "body": body, "more_body": True})
                await send({"type": "http.response.body", "body": b""})
            finally:
                work.cancel()
                group.cancel_scope.cancel()


async def awaited(request: Request, desk: Desk, does: Callable[[Work], Any], lane: Lane = "quick") -> Any:
    """What a computation returns; it ends where the person leaves. Raises BusyError where too many wait."""
    desk.check_room(lane)
    work, found = Work(), None
    async with anyio.create_task_group() as group:
        group.start_soon(_leaving, request.receive, work)
        try:
            found = await desk.done(work, lambda: does(work), lane)
        except Exception as error:  # a task group would wrap it
            found = error
        group.cancel_scope.cancel()
    if isinstance(found, Exception):
        raise found
    return found


async def _leaving(receive: Receive, work: Work) -> None:
    """Cancel the work when the person has left."""
    while (await receive())["type"] != "http.disconnect":
        pass
    work.cancel()
