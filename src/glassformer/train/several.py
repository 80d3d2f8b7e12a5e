"""Recipes that hold several runs trained alike, and what came of each."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..checkpoint import read_about
from ..errors import GlassformerError, SettingError, UnsupportedError, nearest, under
from ..files import given_path
from .recipe import in_file, is_recipe, laid_over, read_recipe, read_run, run_from_data, set_in
from .report import Report
from .run import AnyRun, ImageRunSpec


def read_runs(
    path: str | Path,
    settings: Mapping[str, str] | None = None,
    folder: str | Path | None = None,
    only: Sequence[str] = (),
) -> dict[str, AnyRun]:
    """The runs of a recipe by name, or under the name "" the one that `read_run` finds in a recipe or text.

    In a recipe of several runs, each table [runs.NAME] is laid over the settings outside of these tables (see
    `laid_over`). Of `settings`, `runs.NAME.path` goes to one run and any other path to all. only: the names of those
    that are wanted; none: all. Raises what `read_run` raises, its messages naming the run.
    """
    path, settings = given_path(path), dict(settings or {})
    data = read_recipe(path) if is_recipe(path) else {}
    if "runs" not in data:
        if only:
            raise SettingError(f"--only: {path} does not hold several runs; leave it out")
        return {"": read_run(path, settings, folder)}
    with in_file(path):
        tables = _tables(data.pop("runs"))
    for name in only:
        if name not in tables:
            raise SettingError(f"--only: {path} holds no run {name!r}; {nearest(name, tables)}")
    chosen = _by_run(settings, tables)
    return {name: _run(path, data, name, tables[name], chosen[name]) for name in tables if name in only or not only}


def _tables(runs: Any) -> dict[str, dict[str, Any]]:
    """The table of every run, checked as far as a name and a table go."""
    if not (isinstance(runs, dict) and runs and all(isinstance(table, dict) for table in runs.values())):
        raise SettingError("runs: write a table of settings for each run, [runs.NAME]")
    for name in runs:
        if not re.fullmatch(r"[\w-]+", name):
            raise SettingError(f"runs: {name!r} is no name of a run; use letters, digits, _ and -")
    return runs


def _by_run(settings: Mapping[str, str], names: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """The settings of each run: those of all, and then its own."""
    general = {path: value for path, value in settings.items() if not path.startswith("runs.")}
    found = {name: dict(general) for name in names}
    for path, value in settings.items():
        if path in general:
            continue
        _, name, inner = (*path.split(".", 2), "", "")[:3]
        if name not in names:
            raise SettingError(f"{path}: there is no run {name!r}; {nearest(name, names)}")
        if not inner:
            raise SettingError(f"{path}: name one of its settings, for example runs.{name}.steps=500")
        found[name][inner] = value
    return found


def _run(path: Path, data: dict[str, Any], name: str, table: dict[str, Any], settings: dict[str, str]) -> AnyRun:
    place = f"runs.{name}"
    with in_file(path), under(place):
        run = run_from_data(laid_over({"kind": "run"} | data, table), path.parent, settings)
    with under(place):
        return set_in(run, settings)


@contextlib.contextmanager
def named(name: str) -> Iterator[None]:
    """Put the run's name before the message of whatever mistake is raised inside; a lone run has none."""
    try:
        yield
    except GlassformerError as error:
        if not name:
            raise
        colon = "." if isinstance(error, SettingError | UnsupportedError) else ": "
        raise type(error)(f"runs.{name}{colon}{error}") from None


@dataclass(frozen=True)
class Outcome:
    """What came of one of several runs.

    parameters, bytes  of its model, bytes as stored after training
    per_second         tokens or images (`unit`) at the end of the training, without evaluations and checkpoints
    seconds            of all sessions together
    validation         loss in nats per token or image over the whole validation data; bits_per_byte of a text, error of
                       images: the share put into a wrong class. None: there were none
    """

    name: str
    folder: str
    parameters: int
    bytes: int
    unit: str
    per_second: float
    seconds: float
    validation: float | None
    bits_per_byte: float | None
    error: float | None

    @classmethod
    def of(cls, name: str, run: AnyRun, folder: Path, last: Report) -> Outcome:
        """Of a run whose last report is given."""
        return cls(
            name,
            str(folder),
            read_about(folder)["parameters"],
            (folder / "model.safetensors").stat().st_size,
            "image" if isinstance(run, ImageRunSpec) else "token",
            last.tokens_per_s,
            last.seconds,
            last.validation,
            last.bits_per_byte,
            last.error,
        )
