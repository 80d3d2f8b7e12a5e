"""The folder of what is kept between runs."""

import sys
from pathlib import Path

import pytest

from glassformer.errors import InputError
from glassformer.files import home


@pytest.fixture(autouse=True)
def user(monkeypatch, tmp_path):
    monkeypatch.delenv("GLASSFORMER_HOME", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(("named", "wanted"), [("kept", "kept"), ("~/kept", "me/kept")])
def test_the_variable_names_it_and_nothing_is_made(monkeypatch, user, named, wanted):
    monkeypatch.setenv("GLASSFORMER_HOME", named)
    assert home() == user / wanted and not list(user.iterdir())


@pytest.mark.skipif(sys.platform in ("darwin", "win32"), reason="the XDG variables are those of other systems")
def test_without_it_the_folder_of_caches_is_taken(monkeypatch, user):
    assert home() == user / "me" / ".cache" / "glassformer"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert home() == user / "me" / ".cache" / "glassformer"
    monkeypatch.setenv("XDG_CACHE_HOME", str(user / "caches"))
    assert home() == user / "caches" / "glassformer"


def test_a_user_without_a_home_is_told_the_way_out(monkeypatch):
    def homeless(*_):
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", homeless)
    with pytest.raises(InputError, match="set GLASSFORMER_HOME"):
        home()
