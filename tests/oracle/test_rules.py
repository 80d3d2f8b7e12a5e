"""The tables of the published families say what they seem to say."""

from __future__ import annotations

from pathlib import Path

import pytest
from quick import quick_share

from glassformer.checkpoint import unique_tensors
from glassformer.errors import GlassformerError, UnsupportedError
from glassformer.hf import FAMILIES, Family
from glassformer.hf.rules import get, put, written_out
from glassformer.hf.tensors import _rule
from glassformer.model import AnySpec, without_memory
from glassformer.named import preset
from glassformer.spec import from_data, to_data


def bases(family: Family) -> list[dict]:
    found = []
    for changes in family.architectures.values():
        data = to_data(family.base)
        for place, value in changes.items():
            put(data, place, value)
        found.append(written_out(data))
    return found


@pytest.mark.parametrize("name", FAMILIES)
def test_every_place_of_a_rule_exists(name):
    family = FAMILIES[name]
    for rule in family.rules:
        for place in rule.places:
            assert any(get(data, place) for data in bases(family)), (rule.fields, place)
    for place in family.stacks:
        assert get(to_data(family.base), place), place


@pytest.mark.parametrize("name", FAMILIES)
def test_every_field_that_a_rule_reads_is_written_by_it(name):
    for rule in FAMILIES[name].rules:
        values = [one for data in bases(FAMILIES[name]) for place in rule.places for one in get(data, place)]
        written = rule.write(values if rule.each else values[0])
        assert written.keys() <= set(rule.fields), rule.fields


@pytest.mark.parametrize("name", FAMILIES)
def test_every_tensor_of_the_base_has_its_place(name):
    family = FAMILIES[name]
    for data in bases(family):
        tensors = unique_tensors(without_memory(from_data(data, AnySpec)))
        for tensor in tensors:
            rule, theirs, ours = _rule(family, tensor, tensors)
            assert tensor in ours and theirs and len(set(theirs)) == len(rule.theirs)


@pytest.mark.parametrize("name", FAMILIES)
def test_an_unknown_field_is_refused_by_name(name):
    with pytest.raises(UnsupportedError, match=r"^made_up_field: "):
        FAMILIES[name].spec({"made_up_field": 1})


ODD = [None, True, 0, -4.5, 10**40, "x", ["x"], {"x": 1}]
ROPES = [{"rope_type": ["x"]}, {"rope_type": "yarn", "factor": "a"}, {"rope_type": "linear", "factor": 0}]
ROPES += [{"full_attention": 5}, {"rope_theta": "x"}, [], float("nan")]


@pytest.fixture
def little_memory():
    """An absurd number that would be allocated fails here, and takes no other program's memory."""
    resource = pytest.importorskip("resource", reason="only Unix limits a process's memory")
    limits = resource.getrlimit(resource.RLIMIT_AS)
    statistics = Path("/proc/self/statm")
    if not statistics.exists():
        pytest.skip("only Linux says how much memory a process has")
    used = int(statistics.read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 30), limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, limits)


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize("name", quick_share(FAMILIES, 4, 0))
def test_whatever_a_field_holds_is_read_or_refused_in_a_sentence(name):
    family = FAMILIES[name]
    fields = {field for rule in family.rules for field in rule.fields} | family.fixed.keys()
    small = dict.fromkeys(family.stacks.values(), 2)
    for field in (*fields, *small, "rope_parameters", "architectures"):
        for value in [*ODD, *(ROPES if field.startswith("rope") else ())]:
            try:
                family.spec({**small, field: value})
            except GlassformerError as error:
                assert len(str(error)) > len(field), (field, value)


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("other", ["gpt2", "t5", "lenet"])
def test_a_model_of_another_kind_is_refused(name, other):
    family, spec = FAMILIES[name], preset(other)
    if type(spec) is not type(family.base):
        with pytest.raises(UnsupportedError, match=f"{name} model cannot be this one: kind: it can only have"):
            family.config(spec)
