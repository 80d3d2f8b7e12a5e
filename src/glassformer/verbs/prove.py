"""The verb that proves a model: check."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from rich.markup import escape

from ..terminal.options import COMMON, Common
from ..terminal.output import console, language, print_json

if TYPE_CHECKING:
    from ..certificate import Certificate


def check(
    model: Annotated[
        str | None,
        Parameter(help="A model's name, folder or hub id; left out: the shipped model."),
    ] = None,
    /,
    *,
    quick: Annotated[
        bool,
        Parameter(negative="", show_default=False, help="Without the slow half: what it writes, and transformers."),
    ] = False,
    again: Annotated[
        bool, Parameter(negative="", show_default=False, help="Measure anew, also where a certificate is kept.")
    ] = False,
    common: Common = COMMON,
) -> int:
    """Print and keep a model's certificate: whether every way to run it gives the same numbers, whether its tokenizer
    loses nothing, and whether it computes what transformers does. Exit status 1 where a line fails.

    Example:  glassformer check small --quick
    """
    made = certified(model, common, quick, again)
    print_json(made.data()) if common.json else shown(made, common)
    return 0 if made.passed else 1


def certified(model: str | None, common: Common, quick: bool = True, again: bool = False) -> Certificate:
    """The certificate of a model; a terminal says which check is being made."""
    from .. import certificate
    from ..terminal.words import say

    aside, lang = console(stderr=True), language(common.lang)
    how = {"quick": quick, "again": again, "device": common.device, "dtype": common.dtype}
    with aside.status("") if aside.is_terminal else contextlib.nullcontext() as status:

        def report(name: str) -> None:
            if status is not None:
                status.update(escape(say(f"check_{name}", lang)))

        return certificate.check(model, report=report, **how)


def shown(made: Certificate, common: Common) -> None:
    """Print a certificate."""
    from ..certificate import numbers
    from ..terminal.certificate import show_certificate

    show_certificate(made, [numbers(line) for line in made.lines], console(), language(common.lang))
