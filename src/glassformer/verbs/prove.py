"""The verb that proves a model: check."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from ..terminal.options import COMMON, Common
from ..terminal.output import console, language, print_json


def check(
    model: Annotated[
        str | None, Parameter(help="A shipped name or a model folder; left out: the shipped model.")
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
    from .. import certificate
    from ..terminal.certificate import show_certificate

    made = certificate.check(model, quick=quick, again=again, device=common.device, dtype=common.dtype)
    if common.json:
        print_json(made.data())
    else:
        numbers = [certificate.numbers(line) for line in made.lines]
        show_certificate(made, numbers, console(), language(common.lang))
    return 0 if made.passed else 1
