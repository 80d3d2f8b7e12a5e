"""Every explanation on every family and shape: it can be made, sent, drawn, and made again from its Python line."""

import gc
import math
import weakref

import msgspec
import pytest
from page_runs import runs
from quick import quick_share

import glassformer as gf
from glassformer.explain.explained import EXPLANATIONS, available
from glassformer.explain.explanation import Explanation, Graph, HeatMap, Points, Said, Series, Table, TokenScores
from glassformer.explain.kinds.flow import EXACT

RUNS = runs()
GIVEN = {
    "two": {"second": "생선을 보았다"},
    "contexts": {"texts": "생선을 보았다", "word": "생선을"},
    "neurons": {"texts": "생선을 보았다\n개가 짖었다\n별이 빛난다"},
    "roles": {"times": 2, "sequences": 1},
    "pruning": {"steps": 1, "orders": 1},
}


def numbers(figure):
    """All numbers of a figure, its shape checked on the way."""
    match figure:
        case HeatMap():
            for more in (figure.values, figure.reasons, figure.errors):
                assert more is None or [len(row) for row in more] == [len(figure.columns)] * len(figure.rows)
            return [x for row in figure.values for x in row]
        case Series():
            assert all(len(line.values) == len(figure.x) for line in figure.lines) and figure.lines
            return [x for line in figure.lines for x in line.values]
        case TokenScores():
            assert len(figure.values) == len(figure.tokens)
            return figure.values
        case Table():
            assert all(len(row) == len(figure.columns) for row in figure.rows) and figure.rows
            return [x for row in figure.rows for x in row if not isinstance(x, str)]
        case Points():
            return [x for point in figure.points for x in (point.x, point.y)]
        case Graph():
            return [edge.value for edge in figure.edges]


@pytest.mark.parametrize("name", quick_share(RUNS, 3, 0))
def test_every_explanation_of_every_family(name):
    trace = RUNS[name]()
    found = [one for one, _ in available(trace)]
    assert {"influence", "cost"} <= set(found) <= set(EXPLANATIONS)
    for kind in found:
        one = gf.explain(kind, trace, **GIVEN.get(kind, {}))
        assert one.name == kind and one.title == EXPLANATIONS[kind].title and one.claim.en and one.claim.ko
        assert msgspec.json.decode(msgspec.json.encode(one), type=Explanation) == one
        assert len({figure.name for figure in one.figures}) == len(one.figures) > 0
        for figure in one.figures:
            given = [x for x in numbers(figure) if x is not None]
            assert given and all(math.isfinite(x) for x in given), (kind, figure.name)
            assert figure.title.en and figure.title.ko and one.figure(figure.name) is figure
        for check in one.checks:
            assert check.passed is not False and (check.value is None or math.isfinite(check.value)), (kind, check)
        assert eval(one.python, {"gf": gf, "trace": trace}) == one
    weights = [weakref.ref(value) for stack in trace.stacks for value in stack.model.parameters()]
    del trace
    gc.collect()
    assert weights and not [one for one in weights if one() is not None], "something is kept"


@pytest.mark.parametrize("name", RUNS)
def test_the_parts_of_every_layer_add_up_to_its_output(name):
    trace = RUNS[name]()
    if "flow" not in dict(available(trace)):
        pytest.skip("its layers work on maps")
    for stack in range(len(trace.stacks)):
        for layer in range(len(trace.stacks[stack].model.blocks)):
            one = gf.explain("flow", trace, stack=stack, layer=layer)
            for check in one.checks:
                assert check.passed and check.value < EXACT


def test_every_kind_of_explanation_names_how_far_it_is_true():
    """What it proves is there in each that is made, measured or not; and without a check none can be built."""
    for name, one in EXPLANATIONS.items():
        assert one.proves, name
    with pytest.raises(ValueError, match="says nothing of how far it is true"):
        Explanation("x", Said("x", "엑스"), Said("x", "엑스"), (), ())
    run = gf.load().trace("The cat ate the fish")
    for name in ("heads", "sight", "journey", "fields", "cost"):
        made = gf.explain(name, run)
        assert {check.name for check in made.checks} == set(EXPLANATIONS[name].proves)
        assert all(check.value is None and check.said.ko for check in made.checks)
