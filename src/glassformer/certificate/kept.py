"""Certificates that are kept: in a folder of our own by a hash of all that they depend on, and beside a model."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import importlib.metadata
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from .. import __version__
from ..checkpoint import digest
from ..errors import GlassformerError
from ..files import home, write_json
from ..spec import to_data
from .line import FORMAT, Certificate
from .tokens import tokenizers_of

if TYPE_CHECKING:
    from ..api import Loaded
    from ..classifier import Classifier

BESIDE = "certificate.json"
PACKAGE = Path(__file__).parents[1]
USED = ("torch", "tokenizers", "transformers")  # the last is what a published model is held against


def versions() -> dict[str, str]:
    """The versions of glassformer and of the packages that its numbers, and those of the original, come from."""
    found = {"glassformer": f"{__version__}+{_code()}"}
    for name in USED:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


@functools.cache
def _code() -> str:
    """A hash of this package's own code: a certificate holds for what was run."""
    found = hashlib.sha256()
    for path in sorted(PACKAGE.rglob("*.py")):
        found.update(path.relative_to(PACKAGE).as_posix().encode() + b"\0" + path.read_bytes())
    return found.hexdigest()[:12]


def digest_of(loaded: Loaded | Classifier, used: Mapping[str, str]) -> str:
    """A hash of the weights bit by bit, the spec, the tokenizers, the source, the device and the versions."""
    first, place = next(loaded.model.parameters()), loaded.place
    found = hashlib.sha256(json.dumps([FORMAT, dict(used), str(first.device), _stamp(place)]).encode())
    found.update(digest(to_data(loaded.model.spec)).encode())
    for name, value in loaded.model.named_parameters():
        found.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        found.update(memoryview(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy()))
    for tokenizer in tokenizers_of(loaded):
        found.update(tokenizer.fingerprint.encode())
    return found.hexdigest()


def _stamp(place: Path | None) -> list[list[str | int]]:
    """The files that a model was read from, as they are now: names, sizes and times. Of a folder of our format, whose
    model says all, nothing."""
    if place is None or not place.exists() or (place / "model.json").is_file():
        return []
    files = [place] if place.is_file() else sorted(one for one in place.iterdir() if one.is_file())
    return [[str(one), one.stat().st_size, one.stat().st_mtime_ns] for one in files]


def found(digest: str, quick: bool) -> Certificate | None:
    """The certificate that is kept for a hash; a whole one serves where the quick half is asked for."""
    try:
        made = Certificate.of(json.loads(_own(digest).read_text(encoding="utf-8")), again=True)
    except (GlassformerError, OSError, ValueError, TypeError, KeyError, RecursionError):
        return None  # never kept, or not readable: it is measured
    return made if made.digest == digest and (quick or not made.quick) else None


def keep(made: Certificate, place: Path | None) -> Certificate:
    """Write a certificate into our own folder, and beside a model that is ours; it says where. A place that cannot be
    written to is left out: the certificate itself is what was asked for."""
    written, data = [], dataclasses.replace(made, kept=(), again=False).data()
    for path in (_own, lambda _: place / BESIDE) if is_ours(place) else (_own,):
        try:
            write_json(path(made.digest), data)
            written.append(str(path(made.digest)))
        except GlassformerError:  # a full disk, a folder that is not to be written to, a user without a home
            continue
    return dataclasses.replace(made, kept=tuple(written))


def is_ours(folder: Path | None) -> bool:
    """Whether a certificate may lie beside a model: in a folder of our format that is no part of the package."""
    if folder is None or not (folder / "model.json").is_file() or PACKAGE in folder.resolve().parents:
        return False
    return os.access(folder, os.W_OK)


def _own(digest: str) -> Path:
    return home() / "certificates" / f"{digest[:20]}.json"


def last(place: Path) -> Certificate | None:
    """The certificate that lies beside a model; None where there is none. It may be of other weights or versions."""
    try:
        return Certificate.of(json.loads((place / BESIDE).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None
