"""What one attention weight does, against runs in which it is cut, in fp64."""

import math

import pytest
import torch
from page_runs import runs
from sheet_models import SPECS, loaded, pair

import glassformer as gf
from glassformer.errors import UnsupportedError
from glassformer.explain.answer import Answer
from glassformer.explain.edges import edges, sampled
from glassformer.explain.explained import available
from glassformer.explain.explainer import quiet
from glassformer.explain.target import Target

TEXT = "고양이가 생선을 먹었다"


def double(spec, text=TEXT, sharp=1.0):
    """A run in fp64; sharp: by what queries are multiplied, so that single weights come near 1."""
    model = loaded(spec)
    model.model.double()
    with torch.no_grad():
        for block in getattr(model.model, "decoder", model.model).blocks:
            block.mixer.q.weight.mul_(sharp)
    return model.trace(text)


def cut(run, path, head, row, source, start=True):
    ids = [stack.tokens[0].tolist() for stack in run.stacks]
    edit = gf.replace(f"{path}.scores", -math.inf, b=0, h=head, t=row, s=source)
    return run.loaded.trace(ids[0] if len(ids) == 1 else tuple(ids), edits=edit, start=False)


@pytest.mark.parametrize(
    "name", ["rope", "grouped", "sink", "softcap", "alibi", "sandwich", "post", "window", "full", "biases"]
)
def test_each_effect_is_that_of_the_edge_cut_in_a_run(name):
    run = double(SPECS[name])
    n, path = run.stacks[0].length, "blocks.0.mixer"
    answer = Answer(run, Target(candidate="#5"))
    found = edges(run, path, list(range(n)), answer)
    pattern = run[f"{path}.pattern"][0]
    assert torch.allclose(found.weights, pattern.double(), atol=1e-6)
    generator, seen = torch.Generator().manual_seed(0), 0
    for head, row, source in torch.stack([torch.randint(k, (12,), generator=generator) for k in (4, n, n)], 1).tolist():
        size = found.effects[head, row, source]
        alone = (pattern[head, row] > 0).sum() == (pattern[head, row, source] > 0)
        assert size.isnan() == (pattern[head, row, source] == 0 or (alone and name != "sink"))
        if size.isnan():
            continue
        other = cut(run, path, head, row, source)
        moved = other[f"{path}.out"][0, row] - run[f"{path}.out"][0, row]
        assert size.item() == pytest.approx(moved.norm().item(), rel=1e-5, abs=1e-7)
        seen += 1
    assert seen >= 3
    drawn = sampled(answer, path, found, [0, 1, 2, 3], 16)
    for (head, row, source), change in zip(drawn.edges.tolist()[:4], drawn.changes.tolist(), strict=False):
        other = cut(run, path, head, row, source)
        assert change == pytest.approx((other.logits - run.logits)[0, -1, 5].item(), rel=1e-4, abs=1e-6)
    assert drawn.formula < 1e-6


def test_weights_near_one():
    """1 − α loses its digits there, and the form that does not is used."""
    run = double(SPECS["rope"], sharp=30.0)
    n, path = run.stacks[0].length, "blocks.0.mixer"
    found = edges(run, path, list(range(n)))
    assert found.directed is None
    near = ((found.weights > 0.999) & ~found.effects.isnan()).nonzero().tolist()
    assert len(near) > 3
    for head, row, source in near[:6]:
        moved = cut(run, path, head, row, source)[f"{path}.out"][0, row] - run[f"{path}.out"][0, row]
        assert found.effects[head, row, source].item() == pytest.approx(moved.norm().item(), rel=1e-5)


def test_the_first_order_is_the_derivative_along_the_change():
    run = double(SPECS["rope"])
    n, path, step = run.stacks[0].length, "blocks.0.mixer", 1e-6
    answer = Answer(run, Target(candidate="#5"))
    found = edges(run, path, list(range(n)), answer)
    for head, row, source in ((0, 5, 2), (3, n - 1, 0), (1, 3, 3)):
        moved = cut(run, path, head, row, source)[f"{path}.out"][0, row] - run[f"{path}.out"][0, row]
        ids = run.stacks[0].tokens[0].tolist()
        near = run.loaded.trace(ids, edits=gf.add(f"{path}.out", step * moved, t=row), start=False)
        slope = (near.logits - run.logits)[0, -1, 5].item() / step
        assert found.directed[head, row, source].item() == pytest.approx(slope, rel=1e-3, abs=1e-6)
    assert not edges(run, "blocks.1.mixer", list(range(n)), answer).directed[:, :-1].nan_to_num(0.0).any()


def test_a_source_and_its_edges():
    run = double(pair(), ("생선을", "먹었다"))
    path, rows = "decoder.blocks.0.cross", [1, 2]
    found = edges(run, path, rows, Answer(run, Target(candidate="#5")))
    moved = cut(run, path, 2, 2, 1)[f"{path}.out"][0, 2] - run[f"{path}.out"][0, 2]
    assert found.effects[2, 1, 1].item() == pytest.approx(moved.norm().item(), rel=1e-5)
    one = gf.explain("edges", run, of="source", layer=0, head=2, rows="1,2", candidate="#5")
    assert one.figure("effects").values[1][1] == pytest.approx(moved.norm().item(), rel=1e-5)
    assert one.figure("weights").columns != one.figure("weights").rows


def test_the_explanation():
    run = loaded(SPECS["rope"]).trace(TEXT)
    n = run.stacks[0].length
    one = gf.explain("edges", run, layer=0, head=1, candidate="#5")
    weights, effects = one.figure("weights"), one.figure("effects")
    assert weights.value == "blocks.0.mixer.pattern" and weights.where == {"b": 0, "h": 1}
    assert effects.values[0][0] is None and weights.values[0][0] == 1  # there is no other token
    assert effects.values[2][3] is None and effects.values[2][1] > 0
    assert [check.value for check in one.checks] == [None] * 3
    measured = gf.explain("edges", run, layer=0, head=1, candidate="#5", measure="sampled", samples=20, seed=3)
    checks = {check.name: check for check in measured.checks}
    assert checks["formula"].passed and -1 <= checks["agreement"].value <= 1
    table = measured.figure("cut").rows
    assert len(table) == 20 and {row[0] for row in table} == {1}
    sizes = [abs(row[5]) for row in table]
    assert sizes == sorted(sizes, reverse=True)
    mean = gf.explain("edges", run, layer=0, candidate="#5")
    heads = [gf.explain("edges", run, layer=0, head=h).figure("effects").values[4][2] for h in range(4)]
    assert mean.figure("effects").values[4][2] == pytest.approx(sum(heads) / 4, rel=1e-5)
    some = gf.explain("edges", run, layer=0, head=1, rows=f"{n - 1},2").figure("effects")
    assert some.values == [effects.values[-1], effects.values[2]]
    with pytest.raises(UnsupportedError, match="looks at the 3 largest scores alone"):
        edges(loaded(SPECS["top-k"]).trace(TEXT), "blocks.0.mixer", [2])


def test_sampled_edges_come_from_all_weights():
    run = loaded(SPECS["rope"]).trace(TEXT)
    path, n = "blocks.0.mixer", run.stacks[0].length
    answer = Answer(run, Target(candidate="#5"))
    found = edges(run, path, list(range(n)), answer)
    drawn = sampled(answer, path, found, [0, 1, 2, 3], 48, 0, quiet)
    known = found.weights[~found.effects.isnan() & (found.directed != 0)]
    thirds = known.quantile(torch.tensor([1 / 3, 2 / 3], dtype=torch.float64))
    counts = torch.bucketize(drawn.weights, thirds).bincount(minlength=3)
    assert len({tuple(one) for one in drawn.edges.tolist()}) == 48 and counts.min() >= 12
    assert sampled(answer, path, edges(run, path, [0], answer), [0], 8) is None  # the first token sees itself alone


def test_it_exists_where_there_is_attention():
    made = runs()
    for name, there in (("lstm", False), ("mamba", False), ("top-k", False), ("no-head", True), ("t5", True)):
        assert ("edges" in dict(available(made[name]()))) is there, name
    bare = gf.explain("edges", made["no-head"](), measure="sampled", samples=16)  # what its last vector gains
    checks = {check.name: check for check in bare.checks}
    assert "along its own direction" in bare.claim.en and checks["formula"].passed
    assert checks["agreement"].value > 0.5 and bare.figure("directed").values
