"""The weights of a published folder: safetensors, in one file or several with an index; else PyTorch's own files, which
are unpickled only as far as they hold nothing but tensors.
"""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from ..errors import CheckpointError, InputError
from ..files import read_object
from ..weights import Stored, Weights, mapping, read_safetensors

NAMES = ("model.safetensors", "pytorch_model.bin")  # the first that is there; with an index, of several files
RELOADED = 0.05  # share of a pickled file, read before it is mapped anew, so that what was read leaves the memory


def weights_file(folder: Path) -> Path | None:
    """The file in a folder that holds the weights or the index of them; None where there is none."""
    files = (folder / (name + end) for name in NAMES for end in ("", ".index.json"))
    return next((file for file in files if file.is_file()), None)


def read_weights(folder: Path) -> Weights:
    """The weights of a folder, none of them read yet.

    Raises CheckpointError for files that are missing or broken, for names that leave the folder, and for code.
    """
    file = weights_file(folder)
    if file is None:
        raise CheckpointError(
            f"{folder}: it holds no model.safetensors and no pytorch_model.bin; fetch the weights too"
        )
    return _sharded(file) if file.suffix == ".json" else _read(file)


def _read(file: Path) -> Weights:
    return read_safetensors(file)[0] if file.suffix == ".safetensors" else read_pickled(file)


def _sharded(index: Path) -> Weights:
    """The tensors that an index lists, each from the file that it names."""
    places = read_object(index).get("weight_map")
    if not isinstance(places, dict) or not places or not all(isinstance(one, str) for one in places.values()):
        raise CheckpointError(f"{index} is broken: it has no weight_map; fetch it again")
    shards = {}
    for name in sorted(set(places.values())):
        if name in ("", ".", "..") or {"/", "\\", "\0", ":"} & set(name):
            raise CheckpointError(f"{index}: {name!r} is not the name of a file in this folder; do not use this model")
        if not (index.parent / name).is_file():
            raise CheckpointError(
                f"{index.parent / name} is missing, one of {len(set(places.values()))} files of weights; fetch it again"
            )
        shards[name] = _read(index.parent / name).stored
    for tensor, name in places.items():
        if tensor not in shards[name]:
            raise CheckpointError(f"{index}: {tensor!r} is not in {name}, where it should be; fetch both again")
    return Weights({tensor: shards[name][tensor] for tensor, name in places.items()})


def read_pickled(file: Path) -> Weights:
    """The tensors of a file that torch.save wrote. Raises CheckpointError where it holds anything but tensors."""
    tensors = _unpickled(file)
    kept = {"tensors": tensors, "read_bytes": 0}

    def read(name: str) -> Tensor:
        if kept["read_bytes"] > RELOADED * file.stat().st_size:
            kept["tensors"], kept["read_bytes"] = _unpickled(file), 0
        value = kept["tensors"][name]
        kept["read_bytes"] += value.nbytes
        return value

    return Weights(
        {name: Stored(x.dtype, tuple(x.shape), lambda name=name: read(name), True) for name, x in tensors.items()}
    )


def _unpickled(file: Path) -> dict[str, Tensor]:
    try:
        with mapping(file):
            found = _mapped(file)
    except InputError:
        raise
    except pickle.UnpicklingError as error:
        if "Weights only load failed" in str(error):
            raise CheckpointError(
                f"{file} holds code or objects beside tensors, and nothing of it was run; use a model with safetensors"
            ) from None
        raise CheckpointError(f"{file} is broken or truncated; fetch it again") from None
    except (RuntimeError, ValueError, EOFError, OSError, KeyError, AttributeError, TypeError) as error:
        raise CheckpointError(f"{file} is broken or truncated ({_one_line(error)}); fetch it again") from None
    if isinstance(found, Mapping) and isinstance(found.get("state_dict"), Mapping):
        found = found["state_dict"]
    if not isinstance(found, Mapping) or not all(isinstance(x, Tensor) for x in found.values()):
        raise CheckpointError(f"{file} holds no table of tensors; use a model with safetensors")
    for name, x in found.items():
        if x.layout != torch.strided or x.numel() * x.itemsize > x.untyped_storage().nbytes():
            raise CheckpointError(
                f"{file}: {name!r} of shape {tuple(x.shape)} has fewer numbers in the file; do not use this model"
            )
    return dict(found)


def _mapped(file: Path) -> object:
    """Mapped where the file is a zip archive, as torch has written since 1.6; read where it is older."""
    with file.open("rb") as opened:
        old = opened.read(2) != b"PK"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torch tells of pickle protocols that it may not know
        return torch.load(file, map_location="cpu", weights_only=True, mmap=not old)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
