"""What in a folder a training wrote itself: nothing else there is ever deleted or overwritten."""

from __future__ import annotations

import contextlib
import json
import re
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from ..errors import InputError
from ..weights import mapping

MODEL = ("model.json", "model.safetensors", "about.json")
PARTS = ("train", ".train")  # the second while the first is being made
_FILES = re.compile(
    r"state\.safetensors|run\.json|reports\.jsonl|loss\.svg|tokens/(index\.json|tokens-[0-9a-f]{16}\.bin)"
    r"|snapshots/\d{7,}/model\.(json|safetensors)"
)
# What a killed process leaves: of files.replacing, and of safetensors.
_TEMPORARY, _TENSORS = re.compile(r"\.([^/]+)\.\w{8}$"), re.compile(r"(snapshots/\d{7,}/)?\.tmp\w{6}")


def check_own(folder: Path) -> None:
    """Raise InputError, naming the first such file, where a new run in `folder` would delete or overwrite what no run
    wrote."""
    ours = _holds_a_run(folder)
    for part in PARTS:
        place = folder / part
        if place.is_symlink() or (place.exists() and not place.is_dir()):
            raise _foreign(folder, part)
        for path in sorted(place.rglob("*")):
            link = path.is_symlink()
            if (link or not path.is_dir()) and (link or not (ours or part == ".train") or not _is_own(path, place)):
                raise _foreign(folder, path.relative_to(folder).as_posix())
    for name in (*MODEL, "tokenizer.json"):
        path = folder / name
        if path.is_symlink() or (path.exists() and not (ours and path.is_file())):
            raise _foreign(folder, name)


def _foreign(folder: Path, name: str) -> InputError:
    return InputError(
        f"{folder}: no training wrote {name} in this folder, and a new one would need its place; choose another "
        "folder (--out), or move it elsewhere"
    )


def clear(place: Path) -> None:
    """Delete what a run wrote into its `train` (or `.train`), and the folders that are empty then."""
    for path in sorted(place.rglob("*"), reverse=True):
        if not path.is_dir() and _is_own(path, place):
            path.unlink()
        elif path.is_dir():
            with contextlib.suppress(OSError):
                path.rmdir()
    with contextlib.suppress(OSError):
        place.rmdir()


def _is_own(path: Path, place: Path) -> bool:
    name = path.relative_to(place).as_posix()
    return bool(_TENSORS.fullmatch(name) or _FILES.fullmatch(_TEMPORARY.sub(r"\1", name)))


def _holds_a_run(folder: Path) -> bool:
    """Whether a run left its mark: how the model was made, the index of its tokens, its settings, or its state."""
    about = _read(folder / "about.json")
    if str(about.get("made_by")).startswith("glassformer") and isinstance(about.get("run"), dict):
        return True
    if any({"fingerprint", "asked", "seen"} <= _read(folder / part / "tokens" / "index.json").keys() for part in PARTS):
        return True
    if any({"kind", "data", "model", "steps"} <= _read(folder / part / "run.json").keys() for part in PARTS):
        return True
    state = folder / "train" / "state.safetensors"
    with contextlib.suppress(SafetensorError, OSError), mapping(state), safe_open(state, "pt") as file:
        return "glassformer" in (file.metadata() or {})
    return False


def _read(path: Path) -> dict[str, Any]:
    """The table in a JSON file; empty where there is none."""
    with contextlib.suppress(OSError, ValueError, RecursionError):
        data = json.loads(path.read_text(encoding="utf-8"))
        return data if isinstance(data, dict) else {}
    return {}
