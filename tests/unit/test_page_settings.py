"""The settings that the page offers are those that Python takes: their ranges, of the stack and the grouping chosen."""

from __future__ import annotations

import contextlib
from typing import get_args

import pytest
from msgspec.structs import fields
from page_runs import run

import glassformer as gf
from glassformer.errors import InputError, SettingError, UnsupportedError
from glassformer.explain.explained import EXPLANATIONS
from glassformer.image import ImageModel
from glassformer.page.settings import CALLED, TITLES, settings

TEXTS = {"small": "고양이가 생선을 먹었다", "korean-g2p": "같이"}
QUICK = {"influence": {"method": "estimate", "directions": 8}}
PLACES = {"stack", "layer", "head", "token"}  # of this run, and not of the settings alone


@pytest.fixture(scope="module", params=TEXTS)
def trace(request):
    return gf.load(request.param).trace(TEXTS[request.param])


def of_places(trace):
    """(explanation, setting, what is chosen beside it, how many places the page is told)."""
    for name, offered in settings(trace).items():
        has = {one.name for one in offered}
        for one in offered:
            if one.name not in ("token", "row"):
                continue
            assert one.places, (name, one.name)
            for by, counts in one.places.items():
                for stack, count in enumerate(counts):
                    beside = ({"stack": stack} if "stack" in has else {}) | ({"by": by} if "by" in has else {})
                    yield name, one.name, beside | QUICK.get(name, {}), count, one.least


def test_a_place_is_offered_as_far_as_python_takes_it(trace):
    seen = set()
    for name, setting, beside, count, least in of_places(trace):
        seen.add((name, setting, count))
        first = -count if least is None else int(least)
        for place in (first, count - 1):
            gf.explain(name, trace, **{setting: place}, **beside)
        for place in (first - 1, count):
            with pytest.raises((InputError, SettingError)):
                gf.explain(name, trace, **{setting: place}, **beside)
    assert len({name for name, *_ in seen}) >= 4 and len({count for *_, count in seen}) >= 2


def test_layers_are_those_of_the_stack(trace):
    for name, offered in settings(trace).items():
        of = {one.name: one for one in offered}
        if "layer" in of:
            stacks = trace.stacks if "stack" in of else trace.stacks[-1:]
            assert of["layer"].places == {"token": tuple(len(stack.model.blocks) for stack in stacks)}, name


def test_numbers_are_offered_as_the_specs_check_them(trace):
    seen = 0
    for name, offered in settings(trace).items():
        kind = EXPLANATIONS[name].settings
        assert set(kind.LIMITS) <= set(kind.__struct_fields__)
        for one in offered:
            if one.name in PLACES or one.kind not in ("whole", "number"):
                continue
            assert one.name in kind.LIMITS, f"{name}: what may {one.name} be?"
            ends = [(one.least, -1), (one.most, 1)] if one.above is None else [(one.above + 1e-9, -1e-9)]
            for end, further in ends:
                if end is not None:
                    kind(**{one.name: end})
                    with pytest.raises(SettingError):
                        kind(**{one.name: end + further})
                    seen += 1
    assert seen >= 6


def test_every_number_of_every_explanation_has_a_limit():
    for name, one in EXPLANATIONS.items():
        numbers = {field.name for field in fields(one.settings) if {int, float} & {field.type, *get_args(field.type)}}
        assert numbers - PLACES <= set(one.settings.LIMITS), name


def test_every_setting_and_every_choice_has_a_name_in_both_languages():
    for name, one in EXPLANATIONS.items():
        for field in fields(one.settings):
            said = [TITLES[field.name]] if field.name not in PLACES else []
            said += [CALLED[str(choice)] for choice in get_args(field.type) if isinstance(choice, str)]
            assert all(one.en and one.ko for one in said), (name, field.name)


@pytest.mark.parametrize("name", ["lenet", "vit", "mlp-image", "gpt2"])
def test_of_an_image_nothing_is_offered_that_only_a_text_has(name):
    """Every choice that an image has is made, or refused as what this model has no attention for."""
    trace = run(name)
    image = isinstance(trace.model, ImageModel)
    for name, offered in settings(trace).items():
        spec = EXPLANATIONS[name].settings
        shown = {one.name: [choice for choice, _ in one.choices] for one in offered}
        for setting, choices in spec.OF_TEXT.items():
            given = shown.get(setting, [])
            assert (setting in shown) == (not image or bool(choices)), (name, setting)
            assert set(choices).isdisjoint(given) if image else set(choices) <= set(given), (name, setting)
            for choice in given if image else []:
                with contextlib.suppress(UnsupportedError):
                    gf.explain(name, trace, **{setting: choice})
