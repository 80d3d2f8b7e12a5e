"""What every test shares: one thread a worker (pytest-xdist brings the parallelism), and modest hypothesis runs."""

import os
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, settings

from glassformer.machine import give_back

torch.set_num_threads(1)
os.environ.setdefault("OMP_NUM_THREADS", "1")  # of what tests start too: two workers share the machine

# deadline None: the first call of a kernel is slow. derandomize: the same examples for everyone; raise the number with
# `--hypothesis-profile=long` when a law is in doubt.
settings.register_profile(
    "short",
    max_examples=20,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.differing_executors],
)
settings.register_profile("long", settings.get_profile("short"), max_examples=200, derandomize=False)
settings.load_profile("short")


@pytest.fixture
def english_locale(monkeypatch):
    """The command line speaks English where nothing asks for Korean, whatever the machine."""
    for name in ("LC_ALL", "LC_MESSAGES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LANG", "C.UTF-8")


@pytest.fixture(autouse=True)
def own_home(monkeypatch, tmp_path_factory):
    """What is kept between runs is kept among the files of this test session, not in somebody's cache."""
    monkeypatch.setenv("GLASSFORMER_HOME", str(tmp_path_factory.getbasetemp() / "home"))


@pytest.fixture(scope="module", autouse=True)
def freed():
    """What a file's tests freed goes back to the system: the C library kept 7 GB of the tests of memory limits."""
    yield
    give_back()


def pytest_collection_modifyitems(items):
    """The page's tests come last: as long as their browser is open its event loop runs, and another cannot."""
    items.sort(key=lambda one: one.path.is_relative_to(Path(__file__).parent / "ui"))
