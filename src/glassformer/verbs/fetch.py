"""The verb that fetches published models, and what it can fetch."""

from __future__ import annotations

from typing import Annotated, Any

from cyclopts import Parameter

from ..terminal.options import COMMON, Common
from ..terminal.output import console, language, print_json, say
from .prove import certified, shown


def pull(
    name: Annotated[
        str,
        Parameter(
            name="NAME",
            help="A name that models lists, such as smollm2-135m, or the id of a model of the Hugging Face hub, "
            "ORGANISATION/MODEL or ORGANISATION/MODEL@REVISION.",
        ),
    ],
    /,
    *,
    common: Common = COMMON,
) -> int:
    """Fetch a published model, check its files, convert it, and make the quick half of its certificate, so that every
    verb finds it by its name.

    Example:  glassformer pull smollm2-135m
    """
    from .. import hub, sources
    from ..pull import pull as fetched
    from ..terminal.fetching import fetching

    lang = language(common.lang)
    try:
        with fetching(console(stderr=True), lang) as report:
            from_hub = hub.is_id(name)
            folder = sources.from_hub(name, report) if from_hub else fetched(name, report)
    except KeyboardInterrupt:
        say("stopped_pull", common.lang, aside=True)
        raise
    say("pulled", common.lang, aside=common.json, name=name, folder=folder, read=repr(name))
    made = certified(name, common)
    if common.json:
        print_json({"name": name, "folder": str(folder), "certificate": made.data()})
    elif made.passed:
        say("certified", common.lang, name=name)
    else:
        shown(made, common)
    return 0 if made.passed else 1


def listed() -> dict[str, Any]:
    """What of the catalogue is on this machine, by name with its folder; and what else can be fetched."""
    from ..catalogue import CATALOGUE, folder_of, pulled

    here = pulled()
    rest = {name: one for name, one in CATALOGUE.items() if name not in here}
    return {
        "pulled": {name: str(folder_of(name)) for name in here},
        "pullable": {name: {"summary": one.summary, "licence": one.licence} for name, one in rest.items()},
    }


def show_catalogue(lang: str) -> None:
    """Print the models of the catalogue, and which of them are on this machine."""
    from ..catalogue import CATALOGUE, folder_of, pulled
    from ..certificate.kept import last
    from ..terminal.words import say as text

    here, spoken = pulled(), language(lang)
    say("can_be_pulled", lang)
    for name, one in CATALOGUE.items():
        summary = one.summary_ko if spoken == "ko" else one.summary
        made = last(folder_of(name)) if name in here else None
        verdict = "" if made is None else text("certificate_passed" if made.passed else "certificate_failed", spoken)
        mark = f" {text('pulled_before', spoken)}{verdict}" if name in here else ""
        print(f"{name:{max(map(len, CATALOGUE))}}  {summary} · {one.licence}{mark}")
