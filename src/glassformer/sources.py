"""Where the model lies that somebody names: in the package, on this machine, among what was pulled, or on the hub."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from . import catalogue, hub
from .errors import InputError, nearest

SHIPPED = Path(__file__).parent / "shipped"
DEFAULT_MODEL = "small"
SIBLINGS = ("mlp", "cnn", "lstm", "transformer", "ssm")  # trained alike, and with the data of the default one
FILES = (".npz", ".bin", ".gguf")  # of models that are one file


def shipped() -> list[str]:
    """The names of the models in the package, the default one first."""
    names = [p.parent.name for p in SHIPPED.glob("*/model.json")]
    return sorted(names, key=lambda name: (name != DEFAULT_MODEL, name))


def place_of(name: str | Path | None, report: Callable[[str, int, int], None] | None = None) -> tuple[Path, str]:
    """The folder or file of a model, and what it is called. name: None (the shipped model), a shipped name, a path, a
    name of the catalogue, or an id of the hub, from where it is fetched; report: as of hub.fetched.

    Raises InputError, with the way out, where there is none.
    """
    if name is None:
        name = DEFAULT_MODEL
    if not isinstance(name, str | os.PathLike):
        raise InputError(f"no model {name!r}; give the path of a folder, or a shipped name")
    text, path = str(name), Path(name)
    if text in shipped():
        return SHIPPED / text, text
    if path.is_file() and path.suffix not in FILES:
        raise InputError(
            f"{name} is a file, and a model is a folder with a model.json or a config.json, or a file that ends in "
            f"{', '.join(FILES)}; give one of these"
        )
    if not text:
        raise InputError("the model's name is empty; give a folder, or a shipped name")
    if path.exists():
        return path, path.resolve().name
    if text in catalogue.CATALOGUE:
        if text not in catalogue.pulled():
            raise InputError(f"{name} is not on this machine yet; fetch it first: glassformer pull {name}")
        return catalogue.folder_of(text), text
    from .named import presets  # only here: a trace should not wait for it

    if text in presets():
        raise InputError(
            f"{name} is a preset, a structure without weights; train it on a text (glassformer train TEXT --set "
            "model=…), or build it in Python (gf.build)"
        )
    if path.suffix in FILES:
        raise InputError(f"no model {text!r}: there is no such file; check the path")
    if hub.is_id(text) and not Path(path.parts[0]).exists():  # else a name in a folder that is here, mistyped
        return from_hub(text, report), text
    known = nearest(text, [*shipped(), *catalogue.CATALOGUE])
    if not known.startswith("did you mean"):
        raise InputError(f"no model {text!r}: neither a folder nor a shipped name; `glassformer models` lists all")
    raise InputError(f"no model {text!r}: neither a folder nor a shipped name; {known}")


def from_hub(name: str, report: hub.Report | None = None, room: hub.Room = lambda size, numbers: None) -> Path:
    """The folder of a model of the hub (hub.fetched); of one refused by its settings nothing else is fetched."""
    from .hf import check_beginning  # only here: a trace should not wait for it

    return hub.fetched(name, report, check_beginning, room)
