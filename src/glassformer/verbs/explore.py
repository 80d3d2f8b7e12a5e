"""The verb that shows a run in the browser: explore."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from ..errors import InputError, UnsupportedError
from ..hub import is_id
from ..terminal.edits import edits_of, words_of
from ..terminal.options import COMMON, Common, EditFile, Edits, ModelName, Whole, check_text
from ..terminal.output import print_json, say
from .loading import loaded_as
from .look import trace

if TYPE_CHECKING:
    from socket import socket

    from ..edit import Edit
    from ..serve.models import Models

SENTENCE = "고양이가 생선을 먹었다"


def explore(
    text: Annotated[str, Parameter(name="TEXT", help="The sentence to run, in quotes.")] = SENTENCE,
    /,
    *,
    models: Annotated[
        tuple[Path, ...],
        Parameter(
            negative="",
            show_default=False,
            help="A folder of models that the page may open too, beside those below out; may be given again.",
        ),
    ] = (),
    port: Annotated[
        Whole | None, Parameter(help="The port; 0: any that is free; left out: 8765, or the next that is free.")
    ] = None,
    host: Annotated[
        str,
        Parameter(help="Where to listen; 0.0.0.0 lets other machines in, by a link with a secret word, unencrypted."),
    ] = "127.0.0.1",
    browser: Annotated[bool, Parameter(help="Open the page in the browser, where there is a display.")] = True,
    serve: Annotated[
        bool, Parameter(help="Show the page; with --no-serve the sheet is printed and nothing else.")
    ] = True,
    memory: Annotated[Whole, Parameter(help="Memory limit of each run, in MiB.")] = 256,
    edit: Edits = (),
    edits: EditFile = None,
    model: ModelName = None,
    common: Common = COMMON,
) -> None:
    """Print how the context vector of the last word of TEXT is computed, and show the whole run in the browser. Ctrl-C
    ends it.

    Example:  glassformer explore "The cat ate the fish" --model small
    """
    check_text(text, {"memory": memory})
    changes = edits_of(edit, edits)
    if port is not None and not 0 <= port <= 65535:
        raise InputError(f"--port: {port} is not allowed; use 0 to 65535")
    for folder in models:
        if not folder.is_dir():
            raise InputError(f"--models: {folder} is no folder; name one that holds models")
    sheet = functools.partial(trace, text, edit=edit, edits=edits, model=model, common=common)
    if not serve:
        with contextlib.suppress(UnsupportedError):  # a model of images has no sheet
            sheet()
        say("explore_how", common.lang, aside=True)
        return
    place = {"model": model, "text": text if text != SENTENCE else "", "edits": _written(changes)}
    place = {name: one for name, one in place.items() if one}
    with _ready(models, text, changes, model, common, host, port) as (made, bound):
        if not common.json:
            with contextlib.suppress(UnsupportedError):
                sheet()
        _show(place, made, bound, host, memory << 20, browser, common)


@contextlib.contextmanager
def _ready(
    folders: tuple[Path, ...],
    text: str,
    edits: list[Edit],
    model: str | None,
    common: Common,
    host: str,
    port: int | None,
) -> Iterator[tuple[Models, socket]]:
    """What the page may open, and where it listens: every mistake is told before anything is shown."""
    from ..serve import start
    from ..serve.app import check_built

    check_built()
    made = _models(folders, model, common)
    with contextlib.closing(start.listening(host, port)) as bound:
        if edits and common.json:  # else the sheet is made with them, before a line of it is printed
            loaded = loaded_as(model, common)
            if loaded.reads == "text":
                loaded.trace(text, edits=edits)
        yield made, bound


def _models(folders: tuple[Path, ...], model: str | None, common: Common) -> Models:
    """What the page may open; the model that was named is loaded, so that a mistake is told before the page opens."""
    from ..serve.models import Models, check_shown
    from ..serve.work import Work

    named = {}
    if model is not None:
        check_shown(model, Path(model) if Path(model).exists() else None)
        place = loaded_as(model, common).place
        named = {model: place} if Path(model).exists() or is_id(model) else {}
    made = Models(folders, named, common.device, common.dtype)
    made.open(model or "small", Work())
    return made


def _written(edits: list[Edit]) -> str:
    """Edits as they stand in the page's address. Raises UnsupportedError for one that a page cannot ask for."""
    import msgspec

    from ..page.again import asked

    found = [(one, asked(one)) for one in edits]
    for one, made in found:
        if made is None:
            raise UnsupportedError(
                f"{words_of(one)}: the page cannot ask for this change; print its sheet with --no-serve, or use trace"
            )
    usual = {"seed": 0, "renormalise": True, "run": None, "there": {}}  # as ui/src/lib/edits.ts leaves it out
    said = [msgspec.to_builtins(made).items() for _, made in found]
    brief = [{name: value for name, value in one if name not in usual or value != usual[name]} for one in said]
    return msgspec.json.encode(brief).decode() if edits else ""


def _show(
    place: dict[str, str],
    models: Models,
    bound: socket,
    host: str,
    run_bytes: int,
    browser: bool,
    common: Common,
) -> None:
    """Serve the page until Ctrl-C."""
    from ..page.documents import Asked
    from ..serve import start

    token, number = start.token_for(host), bound.getsockname()[1]
    asked = {"token": token, "lang": "" if common.lang == "auto" else common.lang}
    address = start.link(host, number, asked, **place)

    def ready() -> None:
        if common.json:
            print_json({"link": address, "port": number}, None)
        else:
            say("explore_link", common.lang, link=address)
            say("explore_shared" if token else "explore_end", common.lang)
        if browser:
            start.open_browser(address)

    how = {"host": host, "token": token, "run_bytes": run_bytes, "ready": ready}
    # Ctrl-C ends it, as an interrupt or, where whoever called takes that signal, by a plain return.
    with contextlib.suppress(KeyboardInterrupt):
        start.serve(bound, models, first=Asked(place.get("model", "small"), place.get("text", SENTENCE)), **how)
    say("explore_ended", common.lang, aside=common.json)
