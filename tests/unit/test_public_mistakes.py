"""What the public functions do with what is no model, no name and no number."""

import re

import pytest

import glassformer as gf
from glassformer.errors import GlassformerError, SettingError
from glassformer.mask import Mask
from glassformer.mixers.attention import AttentionSpec


def called(one):
    """The same name in every process: no address."""
    return repr(one) if isinstance(one, int | float | str | bytes | list | dict | None) else type(one).__name__


WRONG = [None, 3, 2.5, float("nan"), True, -1, [], {}, ["gpt2"], b"gpt2", "nope", AttentionSpec(), Mask(), object()]
SMALL = gf.preset("rnn", vocab=10, dim=8)
CALLS = {
    "cost": lambda wrong: gf.cost(wrong, 10),
    "build": gf.build,
    "preset": gf.preset,
    "parameters": gf.parameters,
    "Trace": lambda wrong: gf.Trace(wrong, [1, 2]),
    "fit": lambda wrong: gf.fit(wrong, "nowhere"),
    "load": gf.load,
    "check": gf.check,
}


@pytest.mark.parametrize("wrong", WRONG, ids=called)
@pytest.mark.parametrize("name", CALLS)
def test_what_is_no_model_is_refused_in_a_line(name, wrong, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if wrong is None and name in ("load", "check"):
        return  # the shipped model
    with pytest.raises(GlassformerError) as told:
        CALLS[name](wrong)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("wrong", [None, 2.5, float("nan"), True, "3", [], {}, SMALL], ids=called)
def test_what_is_no_number_is_refused(wrong, tmp_path):
    calls = [
        lambda: gf.cost(SMALL, wrong),
        lambda: gf.cost(SMALL, 3, number_bytes=wrong),
        lambda: gf.build(SMALL, seed=wrong),
        lambda: gf.noise("embed.out", 0.1, seed=wrong),
        lambda: gf.zero(wrong if not isinstance(wrong, str) else 3),
        lambda: gf.fit("my.txt", 3 if isinstance(wrong, str) else wrong),
    ]
    for call in calls:
        with pytest.raises(GlassformerError):
            call()


def test_a_cost_takes_the_name_of_a_preset():
    assert gf.cost("gpt2", 10) == gf.cost(gf.preset("gpt2"), 10)


def test_a_name_that_is_like_none_is_answered_with_all():
    with pytest.raises(SettingError) as told:
        gf.build("맘바")
    assert set(re.findall(r"[\w-]+", str(told.value))) > set(gf.presets())
