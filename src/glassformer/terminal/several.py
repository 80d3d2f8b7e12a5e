"""One training or several in the terminal, and what came of several."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.text import Text

from ..train import Outcome, check, fit
from ..train.run import AnyRun
from ..train.several import named
from .output import console, print_json
from .sheet import HEADING, LEAST, MOST, flow, printed
from .stopping import Stopping
from .table import table
from .training import clock, show, size
from .words import say


def train_all(
    runs: Mapping[str, AnyRun], folder: Path, device: str, fresh: bool, lang: str, as_json: bool = False
) -> None:
    """Train the runs one after another, each into its folder inside `folder`, a lone one without a name into `folder`
    itself. What can be refused of any of them is refused before the first begins. Raises Stopped."""
    several, outcomes = "" not in runs, []
    for name, run in runs.items():
        if several:
            with named(name):
                check(run, folder / name, device, fresh)
    for number, (name, run) in enumerate(runs.items(), 1):
        start = functools.partial(fit, run, folder / name, device, fresh)
        if several and not as_json:
            console().print(Text(say("run", lang, name=name, number=number, count=len(runs)), HEADING))
        with named(name), Stopping() as stop:
            if as_json:
                more = {"run": name} if several else {}
                last = stop.follow(start(), lambda report, more=more: print_json(more | asdict(report), None))
            else:
                last = show(start, run, folder / name, console(), stop, lang)
        if several:
            outcomes.append(Outcome.of(name, run, folder / name, last))
    if several and as_json:
        print_json({"runs": outcomes}, None)
    elif several:
        show_outcomes(outcomes, console(), lang)


def show_outcomes(outcomes: list[Outcome], console: Console, lang: str) -> None:
    """Print one line a run."""
    printed(lines(outcomes, lang, console.width), console)


def lines(outcomes: list[Outcome], lang: str, columns: int = 80) -> Iterator[Text]:
    """The lines of the table, none wider than `columns`; a column that is empty in every run is left out."""
    columns = max(LEAST, min(columns, MOST))
    cells = {
        "parameters": [f"{one.parameters:,}" for one in outcomes],
        "bytes": [size(one.bytes) for one in outcomes],
        **{unit: [f"{one.per_second:,.0f}" * (one.unit == unit) for one in outcomes] for unit in ("token", "image")},
        "time": [clock(one.seconds) for one in outcomes],
        "validation": ["" if one.validation is None else f"{one.validation:.4f}" for one in outcomes],
        "bits": ["" if one.bits_per_byte is None else f"{one.bits_per_byte:.3f}" for one in outcomes],
        "error": ["" if one.error is None else f"{one.error:.2%}" for one in outcomes],
    }
    yield from flow([(say("runs", lang, count=len(outcomes)), HEADING)], columns)
    shown = {say(f"runs_{word}", lang): column for word, column in cells.items() if any(column)}
    yield from table([one.name for one in outcomes], shown, columns)
