"""The verb that prints any explanation of a run."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from ..errors import InputError
from ..terminal.edits import edit_of
from ..terminal.options import COMMON, Common, Edits, ModelName, Whole, check_text
from ..terminal.output import console, language, print_json
from .loading import loaded_as


def explain(
    name: Annotated[str, Parameter(help="Which explanation: ledger, flow, influence …; docs/explain.md lists them.")],
    text: Annotated[str, Parameter(help="The sentence to run, in quotes.")],
    /,
    *,
    set: Annotated[
        tuple[str, ...],
        Parameter(
            negative="",
            show_default=False,
            help="A setting of the explanation, as --set layer=2 or --set candidate=fish; may be given again.",
        ),
    ] = (),
    target: Annotated[
        str | None,
        Parameter(help="Of an encoder-decoder: what it is to have written for TEXT; left out: what it writes itself."),
    ] = None,
    edit: Edits = (),
    memory: Annotated[Whole, Parameter(help="Memory limit of the trace, in MiB.")] = 1024,
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
    settings = dict(map(_setting, set))
    chosen(name, settings)  # refused before anything is loaded
    loaded = loaded_as(model, common, "text", "sound")
    if target is not None and not hasattr(loaded.spec, "encoder"):
        raise InputError("--target: only an encoder-decoder writes a target; leave it out, or name another model")
    given = text if target is None else (text, target)
    run = loaded.trace(given, edits=[edit_of(one) for one in edit], limit_bytes=memory << 20)
    one = explained(name, run, settings)
    if common.json:
        print_json(one)
    else:
        show_explanation(one, console(), language(common.lang))
    return int(any(check.passed is False for check in one.checks))


def _setting(given: str) -> tuple[str, str]:
    """name=value apart. Raises InputError for what is none."""
    name, equals, value = given.partition("=")
    if not equals or not name:
        raise InputError(f"--set: {given!r} is no name=value; write it as --set layer=2")
    return name, value
