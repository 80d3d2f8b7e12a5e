"""The verb that shows a run in the browser: explore."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from ..errors import InputError, UnsupportedError
from ..terminal.options import COMMON, Common, ModelName, Whole, check_text
from ..terminal.output import print_json, say
from .loading import loaded_as
from .look import trace

if TYPE_CHECKING:
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
    model: ModelName = None,
    common: Common = COMMON,
) -> None:
    """Print how the context vector of the last word of TEXT is computed, and show the whole run in the browser. Ctrl-C
    ends it.

    Example:  glassformer explore "The cat ate the fish" --model small
    """
    check_text(text, {"memory": memory})
    if port is not None and not 0 <= port <= 65535:
        raise InputError(f"--port: {port} is not allowed; use 0 to 65535")
    for folder in models:
        if not folder.is_dir():
            raise InputError(f"--models: {folder} is no folder; name one that holds models")
    if not (common.json and serve):
        with contextlib.suppress(UnsupportedError):  # a model of images or sound has no sheet
            trace(text, model=model, common=common)
    if not serve:
        say("explore_how", common.lang, aside=True)
        return
    _show(text, _models(models, model, common), model, port, host, memory << 20, browser, common)


def _models(folders: tuple[Path, ...], model: str | None, common: Common) -> Models:
    """What the page may open; the model that was named is loaded, so that a mistake is told before the page opens."""
    from ..serve.models import Models
    from ..serve.work import Work

    named = {}
    if model is not None:
        place = loaded_as(model, common).place
        named = {model: place} if Path(model).exists() else {}
    made = Models(folders, named, common.device, common.dtype)
    made.open(model or "small", Work())
    return made


def _show(
    text: str,
    models: Models,
    model: str | None,
    port: int | None,
    host: str,
    run_bytes: int,
    browser: bool,
    common: Common,
) -> None:
    """Serve the page until Ctrl-C."""
    from ..serve import start

    bound = start.listening(host, port)
    token, number = start.token_for(host), bound.getsockname()[1]
    place = ({"model": model} if model else {}) | ({"text": text} if text != SENTENCE else {})
    address = start.link(host, number, token, **place)

    def ready() -> None:
        if common.json:
            print_json({"link": address, "port": number}, None)
        else:
            say("explore_link", common.lang, link=address)
            say("explore_shared" if token else "explore_end", common.lang)
        if browser:
            start.open_browser(address)

    # Ctrl-C ends it, as an interrupt or, where whoever called takes that signal, by a plain return.
    with contextlib.closing(bound), contextlib.suppress(KeyboardInterrupt):
        start.serve(bound, models, host=host, token=token, run_bytes=run_bytes, ready=ready)
    say("explore_ended", common.lang, aside=common.json)
