"""The training state on disk: weights, what the optimizer remembers, and the step, in one file that is replaced whole.

A run that is killed at any moment leaves the file as it was or as it was to become, so that weights and optimizer never
disagree. It is safetensors: nothing is ever unpickled. The random numbers of a step are functions of (seed, step), so
there is no generator's state to keep.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from ..checkpoint import unique_tensors
from ..errors import CheckpointError, SettingError
from ..files import replacing
from ..spec import to_data
from .optimizer import Optimizer
from .run import FREE, RunSpec

FORMAT = 1
MODEL, MEMORY = "model.", "optimizer."


def save_state(path: Path, model: nn.Module, optimizer: Optimizer, facts: dict[str, Any]) -> None:
    """Replace the state file. facts: step, run and whatever else is to be found again, as JSON data."""
    tensors = {MODEL + name: value for name, value in unique_tensors(model).items()}
    tensors |= {MEMORY + name: value for name, value in optimizer.tensors().items()}
    with replacing(path) as temporary:
        save_file(tensors, temporary, {"glassformer": json.dumps({"format": FORMAT} | facts, ensure_ascii=False)})


def read_facts(path: Path) -> dict[str, Any] | None:
    """The facts of a state file, None where there is none. Raises CheckpointError for a broken one."""
    if not path.is_file():
        return None
    try:
        with safe_open(path, "pt") as file:
            facts = json.loads((file.metadata() or {})["glassformer"])
    except (SafetensorError, OSError, KeyError, ValueError) as error:
        raise CheckpointError(f"{path} is broken ({error}); train anew with --fresh") from None
    if facts["format"] != FORMAT:
        raise CheckpointError(f"{path} has format {facts['format']}, this version reads {FORMAT}; update glassformer")
    return facts


@torch.no_grad()
def load_state(path: Path, model: nn.Module, optimizer: Optimizer) -> None:
    """Put the weights into the model and the memory into the optimizer."""
    weights = dict(model.named_parameters())
    memory: dict[str, Tensor] = {}
    with safe_open(path, "pt", device=str(next(iter(weights.values())).device)) as file:
        for name in file.keys():  # noqa: SIM118 (not a dictionary)
            if name.startswith(MODEL):
                weights[name.removeprefix(MODEL)].copy_(file.get_tensor(name))
            else:
                memory[name.removeprefix(MEMORY)] = file.get_tensor(name)
    optimizer.load(memory)


def run_facts(run: RunSpec) -> dict[str, Any]:
    """The run as data, its texts by name only: where they lie is no part of what was learnt."""
    data = to_data(run)
    data["data"] = Path(run.data).name
    if isinstance(run.validation, str):
        data["validation"] = Path(run.validation).name
    return data


def check_run(run: RunSpec, facts: dict[str, Any], folder: Path) -> None:
    """Raise SettingError, naming the setting, where `run` does not continue the run whose facts lie in `folder`."""
    found = _difference(facts["run"], run_facts(run))
    if found:
        path, before, now = found
        raise SettingError(
            f"{path}: {folder} holds a run at step {facts['step']} with {before!r}, and {now!r} was given; "
            "keep the setting to go on, or choose another folder"
        )


def check_text(facts: dict[str, Any], fingerprint: str, folder: Path) -> None:
    """Raise SettingError where the fingerprint is not that of the text the run in `folder` learnt from."""
    if facts["fingerprint"] != fingerprint:
        raise SettingError(
            f"data: {folder} holds a run at step {facts['step']} on another text (or another tokenizer or share of "
            "validation); give the same text to go on, or choose another folder"
        )


def _difference(before: Any, now: Any, path: str = "") -> tuple[str, Any, Any] | None:
    """The first place where two runs as data differ: (dotted path, value before, value now)."""
    if isinstance(before, dict) and isinstance(now, dict):
        places = [key for key in sorted({*before, *now}) if path or key not in FREE]
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
