"""The server: the page's files, and what it asks for under api/.

    GET  api/models                            what can be chosen
    POST api/models {name}                     open a model, fetched where it is not here: a stream
    POST api/runs {model, text, …}             a run: a stream whose outcome is its document
    GET  api/runs/ID/values?name=…&h=1         a value of it, or a part, as a safetensors file
    GET  api/runs/ID/explanations/NAME?…       an explanation of it: a stream
    GET  api/runs/ID/page?lang=ko              the run as one HTML file
    POST api/runs/ID/page {lang, seen, …}      the same with what was looked at beside it: a stream
    GET  api/runs/ID/documents/settings        the settings of its explanations: a stream
    POST api/generate {model, text, …}         a generation: a stream with an event for each token
    GET  api/font                              letters for Hangul
    GET  api/letters?of=…                      those of a text, as a file's style has them

A stream is lines of JSON: {"progress": {what, done, all}}, {"event": …}, and at last {"done": …} or {"refused": text,
"status": …}, of a model that reads images and was given none with "reads": "image". What is being done is "wait"
(others compute), "load" (a model), "run", "explain", "beside" (other runs explained) and "pack" (a saved page), "check"
and "convert" (of what was fetched), or what is fetched, by its name. Everything else that is refused is {"refused":
text} too, with its status.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from ..classifier import Classifier
from ..errors import GlassformerError, InputError
from ..explain.explained import explained
from ..explain.explanation import Explanation
from ..figures.font import face
from ..page.again import commanded
from ..page.documents import Asked, AskedModel, AskedPage, AskedValue, AskedWriting
from ..page.saved import page_of
from ..page.settings import settings
from ..place import Index
from .answers import Streamed, awaited, language, refusal
from .guard import Guard, body_of
from .models import Models
from .runs import Runs
from .work import Desk, Work
from .writing import write

PAGE = Path(__file__).parent / "page"
FONT = Path(__file__).parent.parent / "figures" / "NotoSansKR-Hangul.woff"
T = TypeVar("T")


def application(
    *, models: Models | None = None, runs: Runs | None = None, host: str = "127.0.0.1", token: str = ""
) -> Starlette:
    """The server as an ASGI application. host, token: as of Guard. Its `state.desk.stop()` ends all work."""
    models = (runs.models if runs else Models()) if models is None else models
    service = Service(models, Runs(models) if runs is None else runs)

    @asynccontextmanager
    async def life(app: Starlette) -> AsyncIterator[None]:
        yield
        service.desk.stop()

    app = Starlette(
        routes=[
            Mount("/api", routes=service.routes()),
            Mount("/", Page(directory=PAGE, html=True, check_dir=False)),
        ],
        middleware=[Middleware(Guard, host=host, token=token)],
        exception_handlers={
            GlassformerError: refuse,
            msgspec.MsgspecError: refuse,
            RecursionError: refuse,
            500: refuse,
            HTTPException: unknown,
        },
        lifespan=life,
    )
    app.state.desk = service.desk
    return app


def check_built() -> None:
    """Raise InputError where the page is not there, as in a source without its build."""
    if not (PAGE / "index.html").is_file():
        raise InputError(
            "the page is not built; build it (make page, in the folder of the source), or install a wheel of "
            "glassformer"
        )


class Service:
    """What is answered under api/."""

    def __init__(self, models: Models, runs: Runs) -> None:
        self.models, self.runs, self.desk = models, runs, Desk()

    def routes(self) -> Sequence[Route]:
        """Every address under api/."""
        return (
            Route("/models", self.listed, methods=["GET"]),
            Route("/models", self.opened, methods=["POST"]),
            Route("/runs", self.run, methods=["POST"]),
            Route("/runs/{ident}/values", self.value, methods=["GET"]),
            Route("/runs/{ident}/values", self.values, methods=["POST"]),
            Route("/runs/{ident}/documents/settings", self.choices, methods=["GET"]),
            Route("/runs/{ident}/explanations/{name}", self.explanation, methods=["GET"]),
            Route("/runs/{ident}/page", self.page, methods=["GET"]),
            Route("/runs/{ident}/page", self.seen, methods=["POST"]),
            Route("/generate", self.generated, methods=["POST"]),
            Route("/font", font, methods=["GET"]),
            Route("/letters", self.letters, methods=["GET"]),
        )

    async def listed(self, request: Request) -> Response:
        """The models that can be chosen."""
        return as_json(await awaited(request, self.desk, lambda work: self.models.listed()))

    async def opened(self, request: Request) -> Response:
        """A model, opened."""
        asked = await read(request, AskedModel)

        def made(work: Work) -> dict[str, str | bool]:
            model = self.models.open(asked.name, work, fetch=True)
            return {"name": model.name, "image": isinstance(model, Classifier)}

        return Streamed(self.desk, made, language(request), "fetch")

    async def run(self, request: Request) -> Response:
        """A run."""
        asked = await read(request, Asked)
        return Streamed(self.desk, lambda work: self.runs.make(asked, work), language(request), "run")

    async def value(self, request: Request) -> Response:
        """A value of a run, or a part of it."""
        ident, asked = request.path_params["ident"], given(request)
        self.runs.kept(ident)
        name = asked.pop("name", "")
        where = {axis: places(axis, text) for axis, text in asked.items()}
        found = await awaited(request, self.desk, lambda work: self.runs.value(ident, name, where, work))
        return Response(found, media_type="application/octet-stream")

    async def values(self, request: Request) -> Response:
        """Several values of a run at once."""
        ident, asked = request.path_params["ident"], await read(request, list[AskedValue])
        self.runs.kept(ident)
        found = await awaited(request, self.desk, lambda work: self.runs.values(ident, asked, work))
        return Response(found, media_type="application/octet-stream")

    async def choices(self, request: Request) -> Response:
        """The settings of every explanation of a run."""
        kept = self.runs.kept(request.path_params["ident"])
        return Streamed(self.desk, lambda work: settings(kept.trace), language(request), "quick")

    async def explanation(self, request: Request) -> Response:
        """An explanation of a run, its settings behind the ?."""
        kept, name, how = self.runs.kept(request.path_params["ident"]), request.path_params["name"], given(request)

        def found(work: Work) -> Explanation:
            work.report("explain")
            trace = kept.trace.beside()
            made = explained(name, trace, how, partial(work.report, "explain"))
            return commanded(made, trace, kept.document.model, how)

        return Streamed(self.desk, found, language(request))

    async def page(self, request: Request) -> Response:
        """A run as one file, to be kept."""
        lang = given(request).get("lang", "en")
        if lang not in ("en", "ko"):
            raise InputError(f"lang: {lang!r} is not allowed; use en, ko")
        name = {"content-disposition": 'attachment; filename="glassformer.html"'}
        made = await awaited(request, self.desk, self.saved(request, AskedPage(lang)), "long")
        return Response(made, media_type="text/html", headers=name)

    async def seen(self, request: Request) -> Response:
        """A run as one file, with what its person looked at: of runs whose ids they know."""
        return Streamed(self.desk, self.saved(request, await read(request, AskedPage)), language(request))

    def saved(self, request: Request, asked: AskedPage) -> Callable[[Work], str]:
        """What makes a run one file."""
        kept, (seen, gone) = self.runs.kept(request.path_params["ident"]), self.runs.seen(asked.seen)
        left = (*asked.left, *gone)

        def made(work: Work) -> str:
            return page_of(
                kept.trace.beside(),
                asked.lang,
                seen=seen,
                writings=asked.writings,
                left=left,
                place=asked.place,
                report=work.report,
            )

        return made

    async def letters(self, request: Request) -> Response:
        """The style that holds the letters of a text, for a figure that is taken along."""
        of = given(request).get("of", "")
        made = await awaited(request, self.desk, lambda work: face(of))
        return Response(made, media_type="text/css")

    async def generated(self, request: Request) -> Response:
        """A generation."""
        asked = await read(request, AskedWriting)
        return Streamed(self.desk, lambda work: write(self.models, asked, work), language(request))


# ---------------------------------------------------------------- what is asked


async def read(request: Request, kind: type[T]) -> T:
    """The body of a request."""
    return msgspec.json.decode(await body_of(request), type=kind)


def given(request: Request) -> dict[str, str]:
    """What stands behind the ? of an address. Raises InputError for a name that stands there twice."""
    found: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        if name in found:
            raise InputError(f"{name!r} is given twice; give it once")
        found[name] = value
    return found


def places(axis: str, text: str) -> Index:
    """A place of an axis, or several: "3", "0,2,5"."""
    found = [number(axis, one) for one in text.split(",")]
    return found if "," in text else found[0]


def number(name: str, text: str) -> int:
    """A number of an address."""
    try:
        return int(text)
    except ValueError:
        raise InputError(
            f"{name}: {text[:40]!r} is not the number that is meant here; give a whole one, "
            "of places also several with commas between"
        ) from None


# ---------------------------------------------------------------- what is answered


def as_json(value: Any) -> Response:
    """A value as JSON."""
    return Response(msgspec.json.encode(value), media_type="application/json")


def whole(scope: Scope) -> list[tuple[bytes, bytes]]:
    """The headers of a request for a file, which is always given whole: to ranges that make no sense Starlette answers
    in its own words."""
    return [(name, value) for name, value in scope["headers"] if name != b"range"]


async def font(request: Request) -> Response:
    """The font whose letters the figures have too."""
    request.scope["headers"] = whole(request.scope)
    return FileResponse(FONT, media_type="font/woff", headers={"cache-control": "public, max-age=604800"})


async def refuse(request: Request, error: Exception) -> Response:
    """A mistake as an answer."""
    return refusal(error, language(request))


async def unknown(request: Request, error: HTTPException) -> Response:
    """What no route answers."""
    said = {
        405: "that is not done in this way here; reload the page",
        404: "there is nothing at this address; open the link that the server printed",
    }
    told = InputError(said.get(error.status_code, "the request cannot be answered; reload the page"))
    if error.status_code == 404:
        try:
            check_built()
        except InputError as unbuilt:
            told = unbuilt
    return refusal(told, language(request), error.status_code)


class Page(StaticFiles):
    """The page's files; those with a hash in their name never change."""

    async def check_config(self) -> None:
        """A folder that is not there is told as an answer."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        """A file."""
        scope["headers"] = whole(scope)
        return await super().get_response(path, scope)

    def file_response(self, full_path: Any, *args: Any, **how: Any) -> Response:
        """A file."""
        made = super().file_response(full_path, *args, **how)
        built = Path(full_path).parent == Path(self.directory or "", "assets").resolve()
        made.headers["cache-control"] = "public, max-age=31536000, immutable" if built else "no-cache"
        return made
