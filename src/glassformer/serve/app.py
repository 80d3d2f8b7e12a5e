"""The server: the page's files, and what it asks for under api/."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import anyio.to_thread
import msgspec
import torch
from safetensors.torch import save as safetensors_bytes
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from ..errors import GlassformerError, InputError
from ..sources import shipped
from .documents import Asked
from .runs import Gone, Runs

PAGE = Path(__file__).parent / "page"
BODY_BYTES = 1 << 20


def application() -> Starlette:
    """The server as an ASGI application."""
    runs = Runs()

    async def models(request: Request) -> Response:
        return JSONResponse([{"name": name, "kind": "shipped", "summary": {"en": "", "ko": ""}, "bytes": 0, "family": "", "reads": "text"} for name in shipped()])

    async def run(request: Request) -> Response:
        asked = msgspec.json.decode(await request.body(), type=Asked)
        return _streamed(lambda: runs.make(asked))

    async def values(request: Request) -> Response:
        kept, name = runs.kept(request.path_params["ident"]), request.query_params.get("name", "")
        where = {axis: _places(text) for axis, text in request.query_params.items() if axis != "name"}

        def work() -> bytes:
            with kept.lock:
                part = kept.trace.part(name, **where) if where else kept.trace[name]
            return safetensors_bytes({name: part.detach().to("cpu", torch.float32).contiguous()})

        try:
            return Response(await anyio.to_thread.run_sync(work), media_type="application/octet-stream")
        except GlassformerError as error:
            return _refused(error)

    async def refused(request: Request, error: Exception) -> Response:
        return _refused(error)

    return Starlette(
        routes=[
            Route("/api/models", models),
            Route("/api/runs", run, methods=["POST"]),
            Route("/api/runs/{ident}/values", values),
            Mount("/", StaticFiles(directory=PAGE, html=True)),
        ],
        exception_handlers={GlassformerError: refused, msgspec.DecodeError: refused},
    )


def _places(text: str) -> int | list[int]:
    try:
        found = [int(one) for one in text.split(",")]
    except ValueError:
        raise InputError(f"{text!r} is no place; give a number, or several with commas between") from None
    return found if "," in text else found[0]


def _refused(error: Exception) -> Response:
    return JSONResponse({"refused": str(error)}, 410 if isinstance(error, Gone) else 400)


def _streamed(work: Callable[[], Any]) -> StreamingResponse:
    async def lines() -> AsyncIterator[bytes]:
        try:
            done = await anyio.to_thread.run_sync(work)
            yield b'{"done":' + msgspec.json.encode(done) + b"}\n"
        except GlassformerError as error:
            yield json.dumps({"refused": str(error)}).encode() + b"\n"

    return StreamingResponse(lines(), media_type="application/x-ndjson")
