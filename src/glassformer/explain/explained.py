"""The explanations that there are: `gf.explain("flow", trace, layer=2)`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from ..data.text import pieces, text_files
from ..errors import InputError, SettingError, UnsupportedError, nearest
from ..spec import Spec, with_settings
from ..trace import Trace
from .explainer import Explainer, Report, quiet
from .explanation import Explanation, Said
from .kinds.alignment import ALIGNMENT
from .kinds.attribution import ATTRIBUTION
from .kinds.circuit import CIRCUIT
from .kinds.contexts import CONTEXTS
from .kinds.cost import COST, FIELDS
from .kinds.difference import DIFFERENCE
from .kinds.edges import EDGES
from .kinds.effect import EFFECT
from .kinds.film import FILM
from .kinds.flow import FLOW
from .kinds.heads import HEADS
from .kinds.influence import INFLUENCE
from .kinds.journey import JOURNEY
from .kinds.ledger import LEDGER
from .kinds.lens import LENS
from .kinds.maps import MAPS
from .kinds.neurons import NEURONS_OF
from .kinds.next import CLASSIFIED, NEXT, SURPRISES
from .kinds.pruning import PRUNING
from .kinds.roles import ROLES
from .kinds.sight import SIGHT
from .kinds.states import STATE
from .kinds.tracing import TRACING
from .kinds.two import TWO
from .kinds.weights import WEIGHTS_OF
from .rest import check_run

TABLE = [FLOW, WEIGHTS_OF, HEADS, ROLES, PRUNING, NEURONS_OF, MAPS, SIGHT, STATE, ALIGNMENT, INFLUENCE, JOURNEY, TWO]
TABLE += [CONTEXTS, FIELDS, NEXT, LENS, SURPRISES, CLASSIFIED, LEDGER, ATTRIBUTION, EDGES, TRACING, CIRCUIT, EFFECT]
TABLE += [COST, DIFFERENCE, FILM]
EXPLANATIONS: dict[str, Explainer] = {one.name: one for one in TABLE}


def explain(name: str, given: Any, text: Any = None, *, report: Report = quiet, **settings: Any) -> Explanation:
    """The explanation of that name of a run: of a trace, or of a model and a text (whatever `model.trace` takes).

    settings  those of the explanation, as values or as the texts that stand in an address: `layer=2`, `layer="2"`
    report    is told now and then how much of the work is done, and of how much; what it raises ends the work

    Raises InputError for a name or place that does not exist, SettingError for a setting that does not exist or is not
    allowed, UnsupportedError where the explanation does not apply to this run.
    """
    wanted = chosen(name, settings)
    if isinstance(given, Trace):
        if text is not None:
            raise InputError("text: a trace has one already; leave it out, or give a model")
        return _made(name, given, wanted, report)
    if text is None:
        raise InputError("text: a model alone has no run to explain; give a text as well, or a trace")
    return _made(name, given.trace(text), wanted, report)


def explained(name: str, trace: Trace, settings: Mapping[str, Any], report: Report = quiet) -> Explanation:
    """The same of a trace with settings whose names a request chose, which may be called anything."""
    return _made(name, trace, chosen(name, settings), report)


def chosen(name: str, settings: Mapping[str, Any]) -> Spec:
    """The settings of an explanation, of those that are given as values or texts; raises as `explain` does."""
    if name not in EXPLANATIONS:
        raise InputError(f"there is no explanation {name!r}; {nearest(name, EXPLANATIONS)}")
    one = EXPLANATIONS[name]
    if settings and not msgspec.structs.fields(one.settings):
        raise SettingError(f"there is no setting {min(settings)!r} of {name}; leave it out")
    return with_settings(one.settings(), {key: _written(one, key, value) for key, value in settings.items()})


def _made(name: str, trace: Trace, settings: Spec, report: Report) -> Explanation:
    one = EXPLANATIONS[name]
    if not one.applies(trace):
        others = ", ".join(other for other, _ in available(trace))
        run = "a run with edits such as this" if trace.edits else "this run"
        raise UnsupportedError(f"the explanation {name} does not apply to {run}; those that do: {others}")
    check_run(trace)
    made = one.make(trace, settings, report)
    missing = set(one.proves) - {check.name for check in made.checks}
    assert one.proves and not missing, f"{name} says nothing of how faithful it is: {missing}"
    return made


def available(trace: Trace) -> list[tuple[str, Said]]:
    """The names and titles of the explanations that exist for this run."""
    return [(one.name, one.title) for one in EXPLANATIONS.values() if one.applies(trace)]


def _written(one: Explainer, key: str, value: Any) -> str:
    """A setting as with_settings reads it; a text stays as it is, whatever stands in it. Several texts are a line each,
    and a path is what stands in that file."""
    kinds = {field.name: field.type for field in msgspec.structs.fields(one.settings)}
    if kinds.get(key) is not str:
        return value if isinstance(value, str) else json.dumps(value, default=str)
    if isinstance(value, Path):
        value = "\n".join("".join(pieces(file)) for file in text_files(value))
    elif isinstance(value, list | tuple) and all(isinstance(part, str) for part in value):
        value = "\n".join(" ".join(part.splitlines()) for part in value)
    return json.dumps(str(value))
