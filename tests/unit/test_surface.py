"""The public surface of the package: light, and with names that no import can take away."""

import re
from pathlib import Path

import glassformer as gf


def test_every_public_name_is_there_and_none_is_also_a_module():
    """Importing a submodule puts it into the package under its name, over a function of the same name."""
    folder = Path(gf.__file__).parent
    for name in gf.__all__:
        assert getattr(gf, name) is not None
        assert not (folder / f"{name}.py").exists() and not (folder / name).exists(), name


def test_presets_can_be_listed_before_and_after_one_is_built():
    before = gf.presets()
    gf.build("gpt2", vocab=65, dim=32, heads=2, blocks=1, context=16)
    assert gf.presets() == before and "t5" in before


def test_the_exact_versions_are_nothing_but_versions():
    """pip refuses constraints with -e lines, paths or addresses; one slipped in from a freeze once."""
    lines = (Path(__file__).parents[2] / "constraints.txt").read_text(encoding="utf-8").split()
    assert "torch==2.13.0" in lines
    assert [line for line in lines if not re.fullmatch(r"[\w.-]+==[\w.]+", line)] == []
