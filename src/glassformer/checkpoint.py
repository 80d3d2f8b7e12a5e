"""A model as a folder: `model.json` (the spec), `model.safetensors`, `about.json`; nothing is ever unpickled.

Writing is atomic: a crash leaves the old file or the new one. Loading is strict and names what is missing, unexpected
or misshaped, with the nearest name.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from .catalogue import way_back
from .errors import CheckpointError, InputError, SettingError, alike, nearest
from .files import check_new, given_path, read_object, replacing, write_json
from .machine import check_room
from .model import AnySpec, without_memory
from .spec import from_data, to_data
from .weights import Stored, Weights, read_safetensors, write_safetensors

FORMAT = 1
STORED = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16, "float64": torch.float64}


def save_model(
    model: nn.Module, folder: Path | str, about: dict[str, Any] | None = None, dtype: torch.dtype | None = None
) -> None:
    """Write a model's spec, weights (cast to `dtype` where given) and how it was made into a folder."""
    folder = Path(folder)
    tensors = unique_tensors(model)
    formats = {name: dtype if dtype and x.is_floating_point() else x.dtype for name, x in tensors.items()}
    spec = to_data(model.spec)
    # The weights name the spec that they belong to, so that a crash between the two files cannot mix old and new.
    with replacing(folder / "model.safetensors") as temporary:
        write_safetensors(
            temporary,
            {name: (formats[name], tuple(x.shape)) for name, x in tensors.items()},
            lambda name: tensors[name].to(formats[name]),
            {"format": "pt", "spec": digest(spec)},
        )
        write_json(folder / "model.json", {"format": FORMAT, "spec": spec})
    if about is not None:
        write_json(folder / "about.json", about)


def save_new(
    model: nn.Module,
    folder: Path | str,
    about: dict[str, Any] | None,
    dtype: str | torch.dtype | None,
    tokenizers: Mapping[str, Any] | None = None,
) -> None:
    """The same into a folder that is new or empty, with tokenizers by file name. Raises InputError for another folder
    and for a number format in which no weights are stored."""
    folder = given_path(folder)
    numbers = STORED.get(dtype) if isinstance(dtype, str) else dtype
    if dtype is not None and numbers not in STORED.values():
        raise InputError(f"dtype: {str(dtype)!r} is not allowed; use {', '.join(STORED)}")
    check_new(folder)
    for name, tokenizer in (tokenizers or {}).items():  # before model.json, which makes a model of the folder
        tokenizer.save(folder / name)
    save_model(model, folder, about, numbers)


def load_model(
    folder: Path | str, device: str | torch.device = "cpu", dtype: torch.dtype | None = torch.float32
) -> nn.Module:
    """The model in a folder, in evaluation mode. dtype None keeps the stored one.

    Raises InputError for a path that is not a model folder, CheckpointError for one that is broken.
    """
    folder = Path(folder)
    spec = read_spec(folder)
    try:
        model = without_memory(spec)
    except SettingError as error:
        raise CheckpointError(f"{folder / 'model.json'}: {error}") from None
    weights, metadata = read_safetensors(folder / "model.safetensors")
    check_fit(unique_tensors(model), weights.stored, folder)
    if metadata.get("spec", None) not in (None, digest(_spec_data(folder))):
        way = way_back(folder, "restore both, or train again")
        raise CheckpointError(
            f"{folder}: model.safetensors belongs to another model.json, which was changed or whose writing was cut "
            f"off; {way}"
        )
    formats = {name: weights.stored[name].dtype for name in sorted(weights)}
    other = next((name for name, one in formats.items() if one != next(iter(formats.values()))), None)
    if dtype is None and other is not None:
        raise CheckpointError(f"{folder}: {other!r} is of {formats[other]}, others are not; load with a dtype")
    return _fill(model, weights.cast(dtype, device), folder, device)


def filled(spec: AnySpec, tensors: Mapping[str, Tensor], place: Path, device: str | torch.device = "cpu") -> nn.Module:
    """The model of a spec with these tensors, in evaluation mode; place: where they lie, for messages.

    Raises CheckpointError where they do not fit the spec or are no numbers, and InputError, before anything is
    read, for more than the machine has.
    """
    model, weights = without_memory(spec), Weights.of(tensors)
    check_fit(unique_tensors(model), weights.stored, place)
    return _fill(model, weights, place, device)


def _fill(model: nn.Module, weights: Weights, place: Path, device: str | torch.device) -> nn.Module:
    """The same where the names and shapes are known to fit."""
    check_room(weights.need_bytes, place, device)
    _assign(model, {name: _finite(name, weights[name], place) for name in weights}, device)
    return model.eval()


def _finite(name: str, value: Tensor, place: Path) -> Tensor:
    """The tensor, which must hold numbers."""
    if value.is_floating_point() and value.numel() and not all(x.isfinite() for x in value.aminmax()):
        raise CheckpointError(f"{place}: {name!r} holds NaN or infinity; {way_back(place)}")
    return value


def read_spec(folder: Path) -> AnySpec:
    """The spec in a model folder."""
    try:
        return from_data(_spec_data(folder), AnySpec)
    except SettingError as error:
        raise CheckpointError(f"{folder / 'model.json'}: {error}") from None


def _spec_data(folder: Path) -> Any:
    """The spec in a model folder as model.json has it."""
    path = folder / "model.json"
    if not path.is_file():
        if not folder.is_dir():
            raise InputError(
                f"{folder} does not exist; give a folder that `glassformer train` wrote, or a shipped name"
            )
        raise InputError(
            f"{folder} is not a model folder: it has no model.json, and nothing of Hugging Face (config.json), "
            "CTranslate2 (model.bin), GGUF, E5S1, hama, g2p-en or llama2.c; give a folder that `glassformer train` "
            "wrote, or a shipped name"
        )
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        number, spec = data["format"], data["spec"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise CheckpointError(f"{path} is broken: not the JSON of a model; {way_back(path)}") from None
    if number != FORMAT:
        raise CheckpointError(f"{path} has format {number}, this version reads {FORMAT}; update glassformer")
    return spec


def read_about(folder: Path) -> dict[str, Any]:
    """How the model was made; empty where nothing is written."""
    return read_object(folder / "about.json")


def digest(spec: Any) -> str:
    """A number for the spec as model.json has it, whatever its layout there."""
    return hashlib.sha256(json.dumps(spec, sort_keys=True).encode()).hexdigest()


def unique_tensors(model: nn.Module) -> dict[str, Tensor]:
    """The parameters by name, each tied one once, under its first name."""
    return {name: value.detach().contiguous() for name, value in model.named_parameters()}


def check_fit(expected: Mapping[str, Tensor], given: Mapping[str, Tensor | Stored], place: Path) -> None:
    """Raise CheckpointError where a tensor given is missing, unexpected or misshaped. place: where they lie."""
    for name in sorted(expected.keys() - given.keys()):
        raise CheckpointError(f"{place}: the tensors lack {name!r} ({alike(name, given)}); {way_back(place)}")
    for name in sorted(given.keys() - expected.keys()):
        raise CheckpointError(f"{place}: the tensors hold {name!r}, which has no place here; {nearest(name, expected)}")
    for name, value in expected.items():
        if value.is_floating_point() != given[name].is_floating_point():
            raise CheckpointError(f"{place}: {name!r} holds {given[name].dtype}, which is no weight; {way_back(place)}")
        if value.shape != given[name].shape:
            raise CheckpointError(
                f"{place}: {name!r} has shape {tuple(given[name].shape)}, expected {tuple(value.shape)}"
            )


def _assign(model: nn.Module, tensors: dict[str, Tensor], device: str | torch.device) -> None:
    """Put the tensors in the place of the meta parameters, keeping ties, and work out the buffers anew."""
    made: dict[int, nn.Parameter] = {}
    for name, value in tensors.items():
        made[id(model.get_parameter(name))] = nn.Parameter(value, requires_grad=value.is_floating_point())
    for module in model.modules():
        for name, parameter in list(module._parameters.items()):
            if parameter is not None:
                module._parameters[name] = made[id(parameter)]
        make: Callable[[], dict[str, Tensor]] | None = getattr(module, "buffer_values", None)
        if make is not None:
            for name, value in make().items():
                module.register_buffer(name, value.to(device), persistent=False)
