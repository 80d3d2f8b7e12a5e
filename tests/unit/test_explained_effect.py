"""effect: what a change moved, against distributions computed here from the logits of each run."""

import math

import numpy as np
import pytest
import torch
from sheet_models import loaded, stack

import glassformer as gf
from glassformer.errors import InputError
from glassformer.explain.control import elsewhere
from glassformer.explain.kinds.effect import TURNED, divergence, finite, variation
from glassformer.mask import Mask
from glassformer.mixers.attention import AttentionSpec
from glassformer.mixers.linear import LinearSpec
from glassformer.model import BlockSpec
from glassformer.nn.pool import PooledSpec

TEXT = "고양이가 생선을 먹었다"


@pytest.fixture(scope="module")
def small():
    return gf.load()


def shares(trace, t=-1, temperature=1.0):
    logits = trace.logits[0, t].double() / temperature
    return [math.exp(one) for one in (logits - logits.logsumexp(0)).tolist()]


def of(found):
    return {row[0]: row[2:] for row in found.figure("outcome").rows}, {one.name: one.value for one in found.checks}


def kl(p, q):
    return sum(a * math.log2(a / b) for a, b in zip(p, q, strict=True) if a)


def test_a_head_that_is_switched_off_beside_the_next_one(small):
    trace = small.trace(TEXT, edits=gf.zero("blocks.1.mixer.z", h=3))
    control = small.trace(TEXT, edits=gf.zero("blocks.1.mixer.z", h=0))  # the next of four
    p, q, c = shares(small.trace(TEXT)), shares(trace), shares(control)
    rows, checks = of(gf.explain("effect", trace, top=5))
    best = {max(range(len(one)), key=one.__getitem__) for one in (p, q)}
    assert best <= rows.keys() and 5 <= len(rows) <= 10
    for i, row in rows.items():
        assert row == pytest.approx([p[i], q[i], c[i], q[i] - p[i]], rel=1e-4, abs=1e-7)
    assert checks["variation"] == pytest.approx(sum(abs(a - b) for a, b in zip(p, q, strict=True)) / 2, rel=1e-4)
    assert checks["kl"] == pytest.approx(kl(p, q), rel=1e-4)
    assert checks["kl_control"] == pytest.approx(kl(p, c), rel=1e-4)
    found = gf.explain("effect", trace)
    assert found.figure("runs").rows[2][1] == "gf.zero('blocks.1.mixer.z', h=0)"
    old, new = (run["blocks.3.resid_out"][0].double() for run in (small.trace(TEXT), trace))
    moved = ((new - old).norm(dim=-1) / old.norm(dim=-1)).tolist()
    assert found.figure("tokens").values == pytest.approx(moved, rel=1e-5)
    assert found.figure("layers").lines[0].values[-1] == pytest.approx(moved[-1], rel=1e-5)
    assert found.figure("layers").lines[0].values[:3] == [0.0, 0.0, 0.0]  # before layer 1 nothing has changed


def test_temperature_alone(small):
    trace = small.trace(TEXT)
    p, q = shares(trace, 3), shares(trace, 3, 2.0)
    rows, checks = of(gf.explain("effect", trace, token=3, temperature=2.0))
    for i, row in rows.items():
        assert row == pytest.approx([p[i], q[i], q[i] - p[i]], rel=1e-4, abs=1e-7)
    assert checks == {"variation": pytest.approx(0.5 * sum(abs(a - b) for a, b in zip(p, q, strict=True))),
                      "kl": pytest.approx(kl(p, q), rel=1e-4)}  # fmt: skip


def test_nothing_changed(small):
    for trace in (small.trace(TEXT), small.trace(TEXT).beside()):  # as the page's server has it
        rows, checks = of(gf.explain("effect", trace))
        assert checks == {"variation": 0.0, "kl": 0.0} and all(row[2] == 0 for row in rows.values())


@pytest.mark.parametrize("far", [100, 1000, 9999])
def test_positions_that_all_move_as_far_move_nothing(small, far):
    """RoPE sees distances alone; what its angles round there is no movement, and the claim says how far that goes."""
    found = gf.explain("effect", small.trace(TEXT, edits=gf.add("positions", far)))
    assert set(found.figure("tokens").values) == {0.0}
    assert {one for line in found.figure("layers").lines for one in line.values} == {0.0}
    turned = small.trace(TEXT, edits=gf.scale("positions", 2))
    assert gf.explain("effect", turned).figure("tokens").values[-1] > 1e-3
    assert "1 + p/256" in found.claim.en and "1 + p/256" in found.claim.ko and TURNED == 256


def test_a_token_that_was_swapped(small):
    """Another number of tokens: what stands behind is counted from the end; the control has it for as many others."""
    before, after = "고양이가 생선을 먹었다", "커다란 호랑이가 생선을 먹었다"
    trace = small.trace(after)
    found = gf.explain("effect", trace, before=before, token=-2)
    p, q, c = (shares(small.trace(one), -2) for one in (before, after, "고양커다란 호랑선을 먹었다"))
    rows, checks = of(found)
    for i, row in rows.items():
        assert row == pytest.approx([p[i], q[i], c[i], q[i] - p[i]], rel=1e-4, abs=1e-7)
    assert checks["kl"] == pytest.approx(kl(p, q), rel=1e-4)
    assert [row[0] for row in found.figure("runs").rows] == [before, after, "고양커다란 호랑선을 먹었다"]
    values = found.figure("tokens").values
    assert values[0] == 0 and None in values and values[-1] > 0
    with pytest.raises(InputError, match="before: only of a model that reads one text"):
        gf.explain("effect", gf.load("korean-g2p").trace("값없이"), before="값")


def controlled(model, before, after, t):
    rows = gf.explain("effect", model.trace(after), before=before, token=t).figure("runs").rows
    return rows[2][0] if len(rows) > 2 else None


def test_the_control_of_a_swap_is_of_one_token_too_and_where_it_can_be_seen(small):
    """⟨start⟩ 고 양 이가 ␠생 선 을 …: at token 3 a causal model sees nothing of what is put into a later one."""
    assert controlled(small, TEXT, "고양개가 생선을 먹었다", 3) == "고개가이가 생선을 먹었다"
    assert controlled(small, TEXT, "고양개가 생선을 먹었다", 2) == "고개가이가 생선을 먹었다"
    assert controlled(small, TEXT, "개양이가 생선을 먹었다", 1) is None  # none before it
    assert controlled(small, TEXT, "개양이가 생선을 먹었다", 2) == "고개이가 생선을 먹었다"
    assert controlled(small, "The cat ate the fish", "The cat ate the fbird", -1) == "The cat ate the birdish"
    assert controlled(small, "The cat ate", "The dogat ate", -1) == "dog cat ate"
    both = loaded(stack(BlockSpec(mixer=AttentionSpec(heads=2, mask=Mask(causal=False))), vocab=300))
    assert controlled(both, "ab cd", "xb cd", 1) == "ax cd"  # it sees later ones


def test_a_control_is_somewhere_else_or_there_is_none(small):
    trace = small.trace(TEXT)

    def lines(*edits):
        found = elsewhere(trace, edits)
        return found and [one.line for one in found]

    assert lines(gf.zero("blocks.3.mixer.out")) == ["gf.zero('blocks.0.mixer.out')"]
    assert lines(gf.zero("blocks.0.mixer.z", h=0), gf.zero("blocks.0.mixer.z", h=1)) == [
        "gf.zero('blocks.0.mixer.z', h=2)", "gf.zero('blocks.0.mixer.z', h=3)",
    ]  # fmt: skip
    assert lines(gf.zero("positions")) is None
    assert lines(gf.zero("positions"), gf.mean("blocks.0.mixer.z", h=1)) == [
        "gf.zero('positions')", "gf.mean('blocks.0.mixer.z', h=2)",
    ]  # fmt: skip
    assert lines(*[gf.zero("blocks.0.mixer.z", h=h) for h in range(4)]) is None  # each head has been taken


def test_a_control_in_another_layer_that_has_the_same():
    """Where only every other layer has it, and the last of them too."""
    blocks = [BlockSpec(mixer=AttentionSpec() if i % 2 else LinearSpec()) for i in range(6)]
    trace = loaded(stack(*blocks)).trace("먹었다")
    name = next(
        one
        for one in trace.names()
        if one.startswith("blocks.1.mixer.") and one.replace(".1.", ".0.") not in trace.names()
    )
    line = [gf.zero(name.replace(".1.", f".{i}.")).line for i in (1, 3, 5)]
    found = [elsewhere(trace, [gf.zero(name.replace(".1.", f".{i}."))])[0].line for i in (1, 3, 5)]
    assert found == [line[1], line[2], line[0]]


def test_classes_of_an_image():
    model, image = gf.load("vit"), np.linspace(0, 1, 784, dtype=np.float32).reshape(28, 28)
    trace = model.trace(image, edits=gf.zero("embed.position"))
    p, q = (run.logits[0].double().softmax(-1).tolist() for run in (model.trace(image), trace))
    rows, checks = of(gf.explain("effect", trace))
    for i, row in rows.items():
        assert row == pytest.approx([p[i], q[i], q[i] - p[i]], rel=1e-4, abs=1e-7)
    assert checks["kl"] == pytest.approx(kl(p, q), rel=1e-4)
    found = gf.explain("effect", gf.load("lenet").trace(image, edits=gf.zero("blocks.0.out", c=0)))
    assert found.figure("runs").rows[2][1] == "gf.zero('blocks.0.out', c=1)"


def test_vectors_of_a_model_that_predicts_nothing():
    model = gf.build("bert", vocab=30, dim=16, blocks=2, heads=2)
    stack = model.spec.changed(head=None)
    from glassformer.api import Loaded
    from glassformer.model import build_model

    bare = Loaded(build_model(stack).eval())
    ids = [1, 5, 7, 2]
    trace = bare.trace(ids, edits=gf.zero("blocks.0.mixer.z", h=0), start=False)
    old, new = (run.logits[0, 2].double() for run in (bare.trace(ids, start=False), trace))
    found = gf.explain("effect", trace, token=2)
    [length, cosine] = found.figure("outcome").rows
    assert length[1] == pytest.approx(((new - old).norm() / old.norm()).item(), rel=1e-5)
    assert cosine[1] == pytest.approx(torch.cosine_similarity(old, new, dim=0).item(), rel=1e-5)
    assert len(length) == 3
    assert [(check.name, check.value) for check in found.checks] == list(
        zip(("variation", "variation_control"), length[1:], strict=True)
    )
    with pytest.raises(InputError, match="no logits that it could divide"):
        gf.explain("effect", trace, token=2, temperature=0.5)


def test_what_cannot_be_finite_is_not_written_as_a_number():
    one, other = torch.tensor([0.5, 0.5]).double().log(), torch.tensor([1.0, 0.0]).double().log()
    assert finite(divergence(one, other)) is None and variation(one.exp(), other.exp()) == pytest.approx(0.5)
    assert divergence(other, one) == pytest.approx(1.0)


def test_the_line_gives_the_same(small):
    trace = small.trace(TEXT, edits=[gf.zero("positions"), gf.noise("embed.out", 0.1, seed=3, t=[1, 2])])
    found = gf.explain("effect", trace, token=2, temperature=0.5)
    assert found.python == "gf.explain('effect', trace, token=2, temperature=0.5)"
    again = eval(found.figure("runs").rows[1][1], {"gf": gf})
    other = gf.explain("effect", small.trace(TEXT, edits=again), token=2, temperature=0.5)
    assert other.figure("outcome") == found.figure("outcome")


def test_what_only_rounding_moves_has_not_moved(small):
    """RoPE sees distances alone: a shift of all positions moves sums in fp32 by their order, and nothing else."""
    trace = small.trace(TEXT, edits=gf.add("positions", 5))
    noise = (trace["blocks.3.resid_out"] - small.trace(TEXT)["blocks.3.resid_out"]).abs().max().item()
    found = gf.explain("effect", trace)
    assert 0 < noise < 1e-4
    assert found.figure("tokens").values == [0.0] * 9 and set(found.figure("layers").lines[0].values) == {0.0}


def test_the_divergence_is_said_the_right_way_round(small):
    claim = gf.explain("effect", small.trace(TEXT)).claim
    assert "to expect q where p holds" in claim.en and "p인데 q로 예상" in claim.ko
    half, sure = torch.tensor([0.5, 0.5]).log(), torch.tensor([1.0, 0.0]).log()
    assert divergence(sure, half) == pytest.approx(1)  # p certain, q a coin: one bit more than p needs
    assert divergence(half, sure) == math.inf


@pytest.mark.parametrize(("scores", "classes"), [("softmax", 1), ("sigmoid", 3), ("number", 2)])
def test_classes_are_told_as_the_model_tells_them(scores, classes):
    """Each by itself, a single one by its sigmoid, numbers as they are: what `classify` says, changed or not."""
    block = BlockSpec(mixer=AttentionSpec(heads=2, mask=Mask(causal=False)))
    head = PooledSpec(pool="mean", classes=classes, scores=scores)
    model = loaded(stack(block, vocab=300, head=head))
    edits = gf.scale("blocks.0.mixer.z", 0.2, h=1)
    trace, ids = model.trace(TEXT, edits=edits), model.encode(TEXT)
    was, now = (
        (logits.double() if scores == "number" else logits.double().sigmoid()).tolist()
        for logits in (model.trace(ids, start=False).logits[0], trace.logits[0])
    )
    assert {one.number: one.value for one in model.classify(TEXT, edits=edits)} == pytest.approx(dict(enumerate(now)))
    rows, checks = of(gf.explain("effect", trace))
    for i, row in rows.items():
        assert row[:2] == pytest.approx([was[i], now[i]], rel=1e-5) and row[-1] == pytest.approx(now[i] - was[i])
    far = max(abs(a - b) for a, b in zip(was, now, strict=True))
    assert checks["variation"] == pytest.approx(far, rel=1e-4) and far > 0
    title = gf.explain("effect", trace).figure("outcome").title
    assert ("확률" in title.ko) == (scores != "number")
    if scores == "number":
        assert "kl" not in checks
        with pytest.raises(InputError, match="temperature"):
            gf.explain("effect", trace, temperature=2.0)
    else:
        both = [[one for p in some for one in (p, 1 - p)] for some in (was, now)]
        assert checks["kl"] == pytest.approx(kl(*both), rel=1e-3)
    table = gf.explain("classes", trace).figure("classes")
    assert {row[0]: row[-1] for row in table.rows} == pytest.approx(dict(enumerate(now)), rel=1e-5)
    assert ("probability" in [one.en for one in table.columns]) == (scores != "number")


@pytest.mark.parametrize(("scores", "wanted"), [("softmax", 0.4248), ("sigmoid", None)])
def test_what_is_nearly_certain_still_costs_a_finite_number_of_bits(scores, wanted):
    """Logits so far apart that the probabilities themselves are 0 in fp64."""
    block = BlockSpec(mixer=AttentionSpec(heads=2, mask=Mask(causal=False)))
    model = loaded(stack(block, head=PooledSpec(classes=3, scores=scores)))
    with torch.no_grad():
        model.model.head.linear.weight.zero_()
        model.model.head.linear.bias.copy_(torch.tensor([0.0, -5.0, -80.0]))
    found = gf.explain("effect", model.trace(TEXT), temperature=0.1)
    value = {one.name: one.value for one in found.checks}["kl"]
    logs = [-math.log1p(math.exp(-abs(one))) + min(0, one) for x in (0.0, -5.0, -80.0) for one in (x, -x)]
    heated = [-math.log1p(math.exp(-abs(one))) + min(0, one) for x in (0.0, -50.0, -800.0) for one in (x, -x)]
    each = sum(math.exp(a) * (a - b) for a, b in zip(logs, heated, strict=True)) / math.log(2)
    assert value == pytest.approx(wanted or each, rel=1e-3)
    assert ("by itself" in found.claim.en) == (scores == "sigmoid")
