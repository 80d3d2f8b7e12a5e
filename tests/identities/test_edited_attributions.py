"""Explanations of runs with edits, against the mathematics written out."""

import pytest
import torch

import glassformer as gf
from glassformer.errors import InputError, UnsupportedError
from glassformer.explain.answer import Answer
from glassformer.explain.attended import by_value_norm
from glassformer.explain.target import Target
from glassformer.mixers.attention import AttentionSpec
from glassformer.model import BlockSpec, ModelSpec
from glassformer.nn.norm import RMSNormSpec
from glassformer.nn.position import AlibiSpec, RopeSpec

TEXT = "The cat ate the fish"


@pytest.fixture(scope="module")
def small():
    return gf.load()


def test_weights_of_several_heads_are_their_mean_where_some_were_cut(small):
    run = small.trace(TEXT, edits=gf.cut("blocks.2.mixer", h=[0, 1], t=5, s=1))
    row = gf.explain("edges", run, layer=2).figure("weights").values[5]
    pattern = run["blocks.2.mixer.pattern"][0, :, 5].double().mean(0)
    assert row[:6] == pytest.approx(pattern[:6].tolist(), rel=1e-6) and row[6:] == [None] * (len(row) - 6)
    assert sum(row[:6]) == pytest.approx(1, abs=1e-6)
    own = gf.explain("edges", run, layer=2, head=0).figure("weights").values[5]
    assert own[1] is None  # that edge is gone for this head


def test_what_the_weights_carry_is_what_the_edited_head_gave(small):
    """Edits behind the weights act: each token's part is the edited map of α_ts v_s W_O."""
    run = small.trace(TEXT)
    part, t = run.model.blocks[2].mixer, len(run.logits[0]) - 1
    values = run["blocks.2.mixer.v"][0].double().repeat_interleave(part.heads // part.groups, 1)
    pattern = run["blocks.2.mixer.pattern"][0, :, t].double()  # h s
    maps = part.out.weight.detach().double().unflatten(1, (part.heads, part.width))  # d h e
    factor = torch.ones(part.heads, part.width, dtype=torch.float64)
    factor[1] = 0.5
    factor[:, 3] = 0.0
    carried = torch.einsum("hs,she,dhe->sd", pattern, values * factor, maps)
    edits = [gf.zero("blocks.2.mixer.z", e=3), gf.scale("blocks.2.mixer.z", 0.5, h=1)]
    changed = small.trace(TEXT, edits=edits)
    scores = gf.explain("attribution", changed, method="value-norm", layer=2).figure("scores").values
    # the weights of this layer are those of the run without edits, which act behind them
    assert scores == pytest.approx(carried.norm(dim=1).tolist(), rel=1e-4)
    for edit in (gf.replace("blocks.2.mixer.z", 0.0), gf.zero("blocks.2.mixer.out")):
        gone = small.trace(TEXT, edits=edit)
        assert not any(gf.explain("attribution", gone, method="value-norm", layer=2).figure("scores").values)
        (closure,) = gf.explain("flow", gone, layer=2).checks
        assert closure.passed
        for how in ({"method": "value-norm", "layer": 2, "head": 0}, {"method": "alti"}):
            with pytest.raises(UnsupportedError, match="comes from no token"):
                gf.explain("attribution", gone, **how)
    mixed = gf.explain("flow", small.trace(TEXT, edits=gf.mean("blocks.2.mixer.z")), layer=2)
    assert mixed.checks[0].passed


def test_a_head_carries_as_much_as_the_layer_where_it_is_the_only_one():
    block = BlockSpec(mixer=AttentionSpec(heads=1), norm=RMSNormSpec(), wiring="sandwich")
    model = gf.build(ModelSpec(vocab=30, dim=16, blocks=(block, block), context=16, norm=RMSNormSpec()), seed=3)
    with torch.no_grad():
        for one in model.model.blocks:
            one.mixer_out_norm.weight.normal_(1, 0.5)
    run = model.trace([3, 1, 4, 1, 5, 9])
    asked = torch.zeros(6, dtype=torch.float64)
    asked[4] = 1.0
    whole = by_value_norm(run, asked, "blocks.1.mixer", None)
    assert by_value_norm(run, asked, "blocks.1.mixer", 0).tolist() == pytest.approx(whole.tolist(), rel=1e-6)
    part, norm = run.model.blocks[1].mixer, run.model.blocks[1].mixer_out_norm
    given = run["blocks.1.mixer.out"][0, 4].double()
    carried = run["blocks.1.mixer.v"][0, :, 0].double() @ part.out.weight.detach().double().T
    carried = carried * run["blocks.1.mixer.pattern"][0, 0, 4].double()[:, None] * norm.weight.detach().double()
    expected = carried.norm(dim=1) / (given.square().mean() + norm.spec.eps).sqrt()
    assert whole.tolist() == pytest.approx(expected.tolist(), rel=1e-5)


@pytest.mark.parametrize("position", [RopeSpec(), AlibiSpec()])
def test_a_deleted_token_lets_the_others_move_up_where_positions_were_edited(position):
    block = BlockSpec(mixer=AttentionSpec(heads=2, position=position))
    model = gf.build(ModelSpec(vocab=30, dim=16, blocks=(block, block), context=16), seed=5)
    with torch.no_grad():
        for one in model.model.blocks:  # so that positions matter
            one.mixer.q.weight.mul_(12)
            one.mixer.k.weight.mul_(12)
            one.mixer.out.weight.mul_(20)
    ids, edit = [3, 1, 4, 1, 5, 9], gf.scale("positions", 2)
    run = model.trace(ids, edits=edit)
    answer = Answer(run, Target(what="logit", token=-1, candidate="#7"))
    gone = torch.zeros(1, 6, dtype=torch.bool)
    gone[0, 2] = True
    deleted = answer.without(gone, "delete").item()
    true = model.trace(ids[:2] + ids[3:], edits=edit).logits[0, -1, 7].item()
    assert deleted == pytest.approx(true, abs=1e-4)
    assert abs(answer.without(gone, "mask").item() - true) > 3e-4  # there the others stay where they are


def test_tokens_that_an_edit_brings_in_are_accounted_for(small):
    plain, run = small.trace(TEXT), small.trace(TEXT, edits=gf.mean("blocks.1.resid_in"))
    for method in ("gradient", "decompx"):
        scores = gf.explain("attribution", run, token=3, method=method).figure("scores").values
        assert None not in scores and min(map(abs, scores[4:])) > 1e-3
        assert gf.explain("attribution", plain, token=3, method=method).figure("scores").values[4:] == [None] * 5
    removed = gf.explain("attribution", run, token=3, method="removal").figure("scores").values
    answer = Answer(run, Target(what="logit", token=3))
    gone = torch.zeros(1, answer.length, dtype=torch.bool)
    gone[0, 6] = True
    assert removed[6] == pytest.approx(answer.value - answer.without(gone, "delete").item(), rel=1e-5)
    closure = next(one for one in gf.explain("ledger", run, token=3, depth="tokens").checks if one.name == "closure")
    assert closure.passed


def test_a_vector_that_is_named_is_the_one_that_is_explained(small):
    run = small.trace(TEXT)
    found = gf.explain("ledger", run, vector="blocks.1.resid_mid", token=4)
    (number,) = [one.value for one in found.checks if one.name == "number"]
    assert number == pytest.approx(run["blocks.1.resid_mid"][0, 4].norm().item(), rel=1e-6)
    for kind in ("ledger", "attribution", "edges", "circuit"):
        with pytest.raises(InputError, match="against: only a difference"):
            gf.explain(kind, run, against=".")
    pair = gf.load("korean-g2p")
    with pytest.raises(InputError, match="no vector of the residual stream"):
        gf.explain("ledger", pair.trace("별"), vector="encoder.blocks.0.resid_outer")


@pytest.mark.parametrize("name", ["small", "lstm", "korean-g2p", "vit"])
def test_gradients_pass_through_an_edit_to_what_it_puts_in(name):
    """∂f/∂a of a scale a is ⟨∂f/∂x, x⟩ where it acts: here beside the difference quotient."""
    model = gf.load(name)
    given = {
        "korean-g2p": ("별", "pjʌl"),
        "vit": torch.rand(1, 28, 28, generator=torch.Generator().manual_seed(1)),
    }.get(name, TEXT)
    stack = "decoder." if name == "korean-g2p" else ""
    at = f"{stack}blocks.0.mixer.out"

    def f(strength):
        run = model.trace(given, edits=gf.scale(at, strength, t=1))
        out = gf.differentiable(run)
        assert torch.allclose(out, run.logits, atol=1e-4)
        return out.flatten(0, -2)[-1].max()

    strength = torch.tensor(1.0, requires_grad=True)
    f(strength).backward()
    step = 1e-2
    with torch.no_grad():
        quotient = (f(torch.tensor(1 + step)) - f(torch.tensor(1 - step))) / (2 * step)
    assert strength.grad.item() == pytest.approx(quotient.item(), rel=2e-2, abs=1e-4) and strength.grad != 0


def test_a_cut_between_patches_has_a_control():
    model, image = gf.load("vit"), torch.rand(1, 28, 28, generator=torch.Generator().manual_seed(2))
    edit = gf.cut("blocks.0.mixer", t=3, s=1)
    other = gf.control(edit, model.trace(image))
    assert other.where["t"] == 3 and other.where["s"] not in (1, 3)
    found = gf.explain("effect", model.trace(image, edits=edit))
    values = {check.name: check.value for check in found.checks}
    assert values["variation"] > 0 and values["variation_control"] > 0


def test_what_is_not_finite_is_not_explained(small):
    run = small.trace(TEXT, edits=gf.scale("blocks.0.mixer.z", 1e30))
    for kind in ("ledger", "attribution", "edges", "flow", "heads", "journey", "surprise", "tracing"):
        with pytest.raises(InputError, match="not finite from block 0 on: an edit may have made them so large"):
            gf.explain(kind, run)
    late = small.trace(TEXT, edits=gf.scale("norm.out", 1e39))  # behind all blocks
    for kind in ("ledger", "attribution", "edges"):
        with pytest.raises(InputError, match="not finite in the number that is to be explained"):
            gf.explain(kind, late)


def test_a_circuit_is_of_no_run_with_edits(small):
    with pytest.raises(UnsupportedError, match="circuit does not apply to a run with edits"):
        gf.explain("circuit", small.trace(TEXT, edits=gf.zero("blocks.1.channel.out")))
    plain, moved = (
        gf.explain("circuit", run, edges=16, samples=2)
        for run in (small.trace(TEXT), small.trace(TEXT, edits=gf.add("positions", 3)))
    )
    for one in (plain, moved):  # of positions, which every part of the run is told, it can be
        assert next(check for check in one.checks if check.name == "closure").passed


def test_positions_of_a_pair_are_named_by_their_stack():
    pair = gf.load("korean-g2p")
    with pytest.raises(InputError, match=r"name encoder\.positions or decoder\.positions"):
        pair.trace("별", edits=gf.zero("positions"))
    with pytest.raises(InputError, match="no position signal"):
        pair.trace("별", edits=gf.zero("decoder.positions"))
