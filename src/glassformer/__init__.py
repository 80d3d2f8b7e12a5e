"""Glassformer: neural networks that compute context, built, trained, run and shown with their real numbers.

Importing it is light: torch is loaded when something is used that needs it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# Public name -> the module that holds it.
_PUBLIC = {
    "load": "api",
    "build": "api",
    "check": "certificate",
    "fit": "train",
    "presets": "named",
    "preset": "named",
    "Trace": "trace",
    "zero": "edit",
    "scale": "edit",
    "add": "edit",
    "replace": "edit",
    "mean": "edit",
    "resample": "edit",
    "cut": "edit",
    "edits_to_json": "edit_json",
    "edits_from_json": "edit_json",
    "control": "explain.control",
    "patch": "patches",
    "freeze": "patches",
    "differentiable": "rerun",
    "noise": "edit",
    "parameters": "api",
    "cost": "explain.cost",
    "widget": "notebook.made",
    "explain": "",  # the package itself, which can be called
    "GlassformerError": "errors",
}

__all__ = ["__version__", *_PUBLIC]

if TYPE_CHECKING:
    from .api import build, load, parameters
    from .certificate import check
    from .edit import add, cut, mean, noise, replace, resample, scale, zero
    from .edit_json import edits_from_json, edits_to_json
    from .errors import GlassformerError
    from .explain.control import control
    from .explain.cost import cost
    from .explain.explained import explain
    from .named import preset, presets
    from .notebook.made import widget
    from .patches import freeze, patch
    from .rerun import differentiable
    from .trace import Trace
    from .train import fit


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'glassformer' has no attribute {name!r}")
    module = import_module(f".{_PUBLIC[name] or name}", __name__)
    return getattr(module, name) if _PUBLIC[name] else module


def __dir__() -> list[str]:
    return sorted(__all__)
