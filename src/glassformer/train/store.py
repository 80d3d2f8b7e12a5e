"""The training state on disk: weights, what the optimizer remembers, and the step, in one file that is replaced whole.

A run that is killed at any moment leaves the file as it was or as it was to become, so that weights and optimizer never
disagree. It is safetensors: nothing is ever unpickled. The random numbers of a step are functions of (seed, step), so
there is no generator's state to keep.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import msgspec
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from ..checkpoint import check_fit, unique_tensors
from ..errors import CheckpointError, InputError, SettingError
from ..files import replacing
from ..spec import from_data, from_json, to_data
from ..weights import mapping
from .optimizer import Optimizer
from .report import Report
from .run import FREE, AnyRun, RunSpec

FORMAT = 1
MODEL, MEMORY = "model.", "optimizer."
STATE = Path("train") / "state.safetensors"  # inside a run folder
BEGUN = Path("train") / "run.json"  # the settings that a run began with, texts by name only


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What a state file says about its run.

    step: updates made. seconds: spent on them. run: its settings, texts by name only. fingerprint: of text and
    tokenizer. report: of the last update. losses: of the updates since the last line of the record.
    finished: whether what was due after the last update had been done, so that an interrupt did not come between.
    dtype: of the passes, which a run keeps whatever machine it goes on with.
    """

    step: int
    seconds: float
    run: AnyRun
    fingerprint: str
    report: Report
    losses: list[float] = []
    finished: bool = True
    dtype: Literal["float32", "bfloat16"] | None = None


def save_state(path: Path, model: nn.Module, optimizer: Optimizer, facts: Facts) -> None:
    """Replace the state file."""
    tensors = {MODEL + name: value for name, value in unique_tensors(model).items()}
    tensors |= {MEMORY + name: value for name, value in optimizer.tensors().items()}
    data = {name: getattr(facts, name) for name in ("step", "seconds", "fingerprint", "losses", "finished", "dtype")}
    data |= {"run": to_data(facts.run), "report": asdict(facts.report)}
    with replacing(path) as temporary:
        save_file(tensors, temporary, {"glassformer": json.dumps({"format": FORMAT} | data, ensure_ascii=False)})


def read_facts(path: Path) -> Facts | None:
    """The facts of a state file, None where there is none. Raises CheckpointError for a broken one, InputError for one
    that is larger than the memory of the machine can map."""
    if not path.is_file():
        return None
    try:
        with mapping(path), safe_open(path, "pt") as file:
            data = json.loads((file.metadata() or {})["glassformer"])
        number = data["format"]
        if number != FORMAT:
            raise CheckpointError(f"{path} has format {number!r}, this version reads {FORMAT}; update glassformer")
        run = from_data(data["run"], AnyRun)
        facts = msgspec.convert(data | {"run": run}, Facts)
        if facts.step < 1:
            raise ValueError(f"step {facts.step}")
    except (SafetensorError, OSError, KeyError, TypeError, ValueError, RecursionError) as error:
        if isinstance(error, CheckpointError | InputError):
            raise
        raise CheckpointError(f"{path} is broken ({_one_line(error)}); train anew with --fresh") from None
    return facts


def read_begun(folder: Path) -> AnyRun | None:
    """The settings that the run in a folder began with, texts by name only; None where there is none. They count until
    there is a state. Raises CheckpointError where they are broken."""
    path = folder / BEGUN
    try:
        return from_json(path.read_bytes(), AnyRun) if path.is_file() else None
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} is broken ({_one_line(error)}); train anew with --fresh") from None


@torch.no_grad()
def load_state(path: Path, model: nn.Module, optimizer: Optimizer) -> None:
    """Put the weights into the model and the memory into the optimizer.

    Raises CheckpointError, before anything is changed, where a tensor is missing, unexpected, misshaped or unreadable,
    and InputError where the file does not fit the memory.
    """
    weights = dict(model.named_parameters())
    found: dict[str, dict[str, Tensor]] = {MODEL: {}, MEMORY: {}}
    try:
        with mapping(path), safe_open(path, "pt", device=str(next(iter(weights.values())).device)) as file:
            for name in file.keys():  # noqa: SIM118 (not a dictionary)
                part = next((part for part in found if name.startswith(part)), None)
                if part is None:
                    raise CheckpointError(f"{path}: {name!r} belongs neither to the model nor to the optimizer")
                found[part][name.removeprefix(part)] = file.get_tensor(name)
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path} is broken ({_one_line(error)}); train anew with --fresh") from None
    check_fit(weights, found[MODEL], path)
    check_fit(optimizer.expected(), found[MEMORY], path)
    for name, value in found[MODEL].items():
        weights[name].copy_(value)
    optimizer.load(found[MEMORY])


def _one_line(error: Exception) -> str:
    return f"{error} is missing" if isinstance(error, KeyError) else " ".join(str(error).split())


def by_name(run: AnyRun) -> AnyRun:
    """The run with its texts and its tokenizer by name only: where they lie is no part of what was learnt."""
    held = run.validation
    named = run.changed(data=Path(run.data).name, validation=Path(held).name if isinstance(held, str) else held)
    if isinstance(named, RunSpec) and named.tokenizer.path is not None:
        return named.changed(tokenizer=named.tokenizer.changed(path=Path(named.tokenizer.path).name))
    return named


def check_run(run: AnyRun, facts: Facts, folder: Path) -> None:
    """Raise SettingError, naming the setting, where `run` does not continue the run whose facts lie in `folder`."""
    if type(facts.run) is not type(run):
        before, now = (one.__struct_config__.tag for one in (facts.run, run))
        raise SettingError(
            f"kind: {folder} holds a run of kind {before}, and one of kind {now} was given; choose another folder, or "
            "give --fresh to start anew"
        )
    found = _difference(to_data(facts.run), to_data(by_name(run)))
    if found:
        path, before, now = found
        raise SettingError(
            f"{path}: {folder} holds a run at step {facts.step} with {before!r}, and {now!r} was given; "
            "keep the setting to go on, choose another folder, or give --fresh to start anew"
        )


def check_text(facts: Facts, fingerprint: str, folder: Path) -> None:
    """Raise SettingError where the fingerprint is not that of the text the run in `folder` learnt from."""
    if facts.fingerprint != fingerprint:
        raise SettingError(
            f"data: {folder} holds a run at step {facts.step} on another text (or another tokenizer or share of "
            "validation, or packed by another version); give the same text to go on, choose another folder, or give "
            "--fresh to start anew"
        )


def _difference(before: Any, now: Any, path: str = "") -> tuple[str, Any, Any] | None:
    """The first place where two runs as data differ: (dotted path, value before, value now)."""
    if isinstance(before, dict) and isinstance(now, dict):
        places = [key for key in sorted({*before, *now}) if (f"{path}.{key}" if path else key) not in FREE]
        pairs = [(str(key), before.get(key), now.get(key)) for key in places]
    elif isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        pairs = [(str(i), old, new) for i, (old, new) in enumerate(zip(before, now, strict=True))]
    else:
        return None if before == now else (path, before, now)
    for key, old, new in pairs:
        found = _difference(old, new, f"{path}.{key}" if path else key)
        if found:
            return found
    return None
