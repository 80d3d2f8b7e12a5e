"""The verb that explains a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from ..errors import InputError
from ..terminal.edits import edits_of
from ..terminal.options import COMMON, Common, EditFile, Edits, ModelName, Place, Whole, check_text, settings_of
from ..terminal.output import console, language, print_json
from .loading import chosen_run, loaded_as

if TYPE_CHECKING:
    from ..classifier import Classifier
    from ..trace import Trace


def explain(
    name: Annotated[str, Parameter(help="The explanation, as heads, next or two; docs/explain.md lists them.")],
    text: Annotated[
        str,
        Parameter(
            help="The sentence to run, in quotes; for a model of images a file (PNG, PGM, PPM, .npy, .npz, IDX)."
        ),
    ],
    /,
    *,
    set: Annotated[
        tuple[str, ...],
        Parameter(
            negative="",
            show_default=False,
            help="A setting of the explanation, as --set layer=2 or --set word=star; may be given again.",
        ),
    ] = (),
    texts: Annotated[
        Place | None, Parameter(help="A file with other texts, a line each, for an explanation of several.")
    ] = None,
    target: Annotated[
        str | None,
        Parameter(help="Of an encoder-decoder: what it is to have written for TEXT; left out: what it writes itself."),
    ] = None,
    memory: Annotated[Whole, Parameter(help="Memory limit of the trace, in MiB.")] = 1024,
    start: Annotated[bool, Parameter(help="Run the text behind the start-of-document token.")] = True,
    edit: Edits = (),
    edits: EditFile = None,
    model: ModelName = None,
    common: Common = COMMON,
) -> int:
    """Print an explanation of the run of TEXT: what it claims, its figures as tables, and how far it measured itself to
    be true. Exit status 1 where one of its checks fails.

    Example:  glassformer explain ledger "The cat ate the fish" --set depth=tokens
    """
    from ..explain.explained import chosen, explained
    from ..terminal.explained import show_explanation

    check_text(text, {"memory": memory})
    settings = settings_of(set) | ({} if texts is None else {"texts": texts})
    chosen(name, settings)  # a mistake in these is told before a model is loaded
    loaded = loaded_as(model, common, "text", "sound", "images")
    if target is not None and not hasattr(loaded.spec, "encoder"):
        raise InputError("--target: only an encoder-decoder writes a target; leave it out, or name another model")
    how = {"edits": edits_of(edit, edits), "limit_bytes": memory << 20}
    if loaded.reads == "images":
        run = _of_image(loaded, text, start, how)
    else:
        given = loaded.parts(text) if target is None else [(text, target)]
        run = chosen_run([loaded.trace(part, start=start, **how) for part in given], None, "word")
    found = explained(name, run, settings)
    if common.json:
        print_json(found)
    else:
        show_explanation(found, console(), language(common.lang))
    return int(any(check.passed is False for check in found.checks))


def _of_image(loaded: Classifier, path: str, start: bool, how: dict[str, Any]) -> Trace:
    """The run of the one image in a file."""
    if not start:
        raise InputError("--no-start: an image has no start token; leave it out")
    if not Path(path).exists():
        raise InputError(f"{path}: there is no such image, and {loaded.name} reads no texts; name a model with -m")
    found = loaded.fitted(path)
    if len(found) != 1:
        raise InputError(f"{path}: there are {len(found)} images; give a file of one")
    return loaded.trace(found[0].image, **how)
