"""The wheels in which published models travel, for tests that need them; and pip set to fetch from a folder."""

import os
from pathlib import Path

import pytest

from glassformer.catalogue import CATALOGUE, folder_of
from glassformer.pull import _unpack, pull

VARIABLE = "GLASSFORMER_WHEELS"


def from_folder(monkeypatch, folder):
    """Let pip find wheels in a folder, and nowhere else."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))


def needed(name, monkeypatch):
    """The folder of a pulled model; the test is skipped where neither it nor its wheels are on this machine."""
    if (folder_of(name) / "model.json").is_file():
        return folder_of(name)
    from_folder(monkeypatch, wheels_of(name))
    return pull(name)


def original(name, content):
    """The files of a model as its wheels hold them, put into the folder `content`; skipped where they are not here."""
    work = content / "wheels"  # links: a damaged wheel is removed there
    work.mkdir()
    for wheel in wheels_of(name).glob("*.whl"):
        (work / wheel.name).symlink_to(wheel)
    _unpack(CATALOGUE[name], work, content, lambda what, done, total: None)
    return content


def wheels_of(name):
    """The folder of a model's wheels; the test is skipped where they are not on this machine."""
    wheels = Path(os.environ.get(VARIABLE, "/nowhere"))
    for package, version in CATALOGUE[name].packages.items():
        if not list(wheels.glob(f"{package.replace('-', '_')}-{version}-*.whl")):
            pytest.skip(f"needs the wheel of {package} {version} in the folder {VARIABLE}, or: glassformer pull {name}")
    return wheels
