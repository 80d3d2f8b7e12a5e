"""Matched controls: another head, layer or source of the same kind, or as large a change in another direction."""

import pytest
import torch
from sheet_models import ROPE, SPECS, loaded, model_of, of, pair, tokens_of

import glassformer as gf
from glassformer.errors import InputError
from glassformer.explain.control import again
from glassformer.mask import Mask
from glassformer.mixers.attention import AttentionSpec
from glassformer.mixers.recurrent import GruSpec
from glassformer.trace import Trace

Z, MIXER = "blocks.1.mixer.z", "blocks.0.mixer"


@pytest.fixture(scope="module")
def rope():
    return Trace(model_of(SPECS["rope"]), tokens_of(1, 7))


def test_a_control_is_the_same_change_at_another_head_drawn_from_the_seed(rope):
    edit = gf.scale(Z, 0.5, h=2, t=[3, 4])
    found = [gf.control(edit, rope, seed=seed) for seed in range(40)]
    assert {one.where["h"] for one in found} == {0, 1, 3}
    assert all((one.name, one.kind, one.value, one.where["t"]) == (Z, "scale", 0.5, [3, 4]) for one in found)
    assert gf.control(edit, rope, seed=3).where == gf.control(edit, rope, seed=3).where
    for seed in range(8):
        assert set(gf.control(gf.zero(Z, h=[0, 1]), rope, seed=seed).where["h"]) == {2, 3}
        a, b = gf.control([gf.zero(Z, h=0), gf.zero(Z, h=1)], rope, seed=seed)  # together at heads of neither
        assert {a.where["h"], b.where["h"]} == {2, 3}
    assert gf.control(gf.zero("blocks.1.mixer.out", t=3), rope, seed=1).name == "blocks.0.mixer.out"
    with pytest.raises(InputError, match="embed.out: there is no other place of its kind for a control"):
        gf.control(gf.zero("embed.out"), rope)


def test_a_patch_is_controlled_by_what_the_other_run_has_at_the_other_place(rope):
    other = Trace(rope.model, tokens_of(1, 9, seed=4))
    for run in (other, tokens_of(1, 9, seed=4)[0].tolist()):
        edit = gf.patch(Z, run, there={"t": [5], "h": 1}, t=[2], h=1)
        control = gf.control(edit, rope, seed=2)
        head = control.where["h"]
        found = Trace(rope.model, tokens_of(1, 7), edits=control)
        assert head != 1 and control.there["h"] == head
        assert torch.equal(found[Z][0, 2, head], other[Z][0, 5, head])
        assert torch.equal(found[Z][0, 2, 1], rope[Z][0, 2, 1])
    again_patched = gf.patch("embed.out", Trace(rope.model, tokens_of(1, 7), edits=gf.zero("embed.out", t=1)))
    with pytest.raises(InputError, match="no other place"):
        gf.control(again_patched, rope)


def test_a_cut_is_controlled_by_another_source_that_the_query_sees(rope):
    for edit, allowed in (
        (gf.cut(MIXER, t=5, s=2), {0, 1, 3, 4}),
        (gf.cut(MIXER, t=[4, 5], s=2), {0, 1, 3}),
        (gf.cut(MIXER, s=2), {0, 1, 3, 4, 5, 6}),
    ):
        found = [gf.control(edit, rope, seed=seed) for seed in range(60)]
        assert {one.where["s"] for one in found} == allowed
        assert all(one.where.get("t") == edit.where.get("t") for one in found)
    assert {gf.control(gf.cut(MIXER, t=5, s=2, h=0), rope, seed=i).where["h"] for i in range(40)} == {1, 2, 3}
    several = gf.control(gf.cut(MIXER, t=6, s=[2, 3]), rope, seed=1).where["s"]
    assert len(set(several)) == 2 and not {2, 3, 6} & set(several)
    near = Trace(model_of(of(AttentionSpec(mask=Mask(window=3)))), tokens_of(1, 7))
    assert {gf.control(gf.cut(MIXER, t=5, s=4), near, seed=i).where["s"] for i in range(9)} == {3}
    with pytest.raises(InputError, match="no other place"):
        gf.control(gf.cut(MIXER, t=1, s=0), rope)
    two = Trace(model_of(pair()), (tokens_of(1, 4, seed=1), tokens_of(1, 7)))
    found = [gf.control(gf.cut("decoder.blocks.0.cross", t=6, s=1), two, seed=i).where["s"] for i in range(30)]
    assert set(found) == {0, 2, 3}


def test_a_control_of_the_same_norm_moves_each_token_as_far_in_another_direction():
    for model, edit, name in (
        (model_of(SPECS["rope"]), gf.scale(Z, 0.3, t=[2, 5]), Z),
        (model_of(of(GruSpec())), gf.cut(MIXER, t=[4, 6], s=1), f"{MIXER}.out"),
        (model_of(of(ROPE)), gf.mean("blocks.0.resid_out", t=3), "blocks.0.resid_out"),
    ):
        trace = Trace(model, tokens_of(1, 7))
        control = gf.control(edit, trace, seed=5, by="norm")
        moved, other = (again(trace, [one])[name] - trace[name] for one in (edit, control))
        torch.testing.assert_close(other.norm(dim=-1), moved.norm(dim=-1), rtol=1e-4, atol=1e-5)
        assert (moved.norm(dim=-1) > 1e-3).any() and (moved.norm(dim=-1) < 1e-6).any()
        cosine = torch.cosine_similarity(moved, other, dim=-1)[moved.norm(dim=-1) > 1e-3]
        assert cosine.abs().mean() < 0.8  # of a head of 4 numbers one may be near by chance
        same, another = (gf.control(edit, trace, seed=seed, by="norm").value for seed in (5, 6))
        assert torch.equal(same, control.value) and not torch.equal(another, control.value)
    with pytest.raises(InputError, match="weights between tokens have no direction"):
        gf.control(gf.zero("blocks.0.mixer.pattern", t=3, s=1), trace, by="norm")
    for how, message in (({"seed": 0.5}, "seed: 0.5 is not allowed"), ({"by": "head"}, "by: 'head' is not allowed")):
        with pytest.raises(InputError, match=message):
            gf.control(edit, trace, **how)


def test_the_same_input_with_other_edits():
    """Of a bare model with padding and packed documents, of a pair, and of a text."""
    model = model_of(SPECS["rope"])
    pos = torch.tensor([[-1, 0, 1, 2, 0, 1, 2]])
    segments = torch.tensor([[1, 1, 1, 1, 2, 2, 2]])
    first = Trace(model, tokens_of(1, 7), pos=pos, segments=segments)
    assert torch.equal(again(first, ()).logits, first.logits)
    two = Trace(model_of(pair()), (tokens_of(2, 4), tokens_of(2, 5)), pos=(torch.tensor([[-1, 0, 1, 2]]), None))
    assert torch.equal(again(two, ()).logits, two.logits)
    text = loaded(of(ROPE)).trace("abc def")
    edit = gf.zero(Z, h=1)
    assert torch.equal(again(text, [edit]).logits, text.loaded.trace("abc def", edits=edit).logits)


def test_what_a_cut_does_beside_its_control():
    """effect, of the shipped model: the control is another source, in the figures of the change."""
    model = gf.load()
    found = gf.explain("effect", model.trace("The cat ate the fish", edits=gf.cut("blocks.1.mixer", t=4, s=1)), token=4)
    runs = [row[1] for row in found.figure("runs").rows]
    assert runs == ["", "gf.cut('blocks.1.mixer', t=4, s=1)", "gf.cut('blocks.1.mixer', t=4, s=0)"]
    checks = {one.name: one.value for one in found.checks}
    assert checks["variation"] > 0 and checks["variation_control"] > 0
    small = model.trace("The cat ate the fish", edits=gf.zero("blocks.1.mixer.z", h=3))
    lines = [gf.explain("effect", small, seed=seed).figure("runs").rows[2][1] for seed in range(12)]
    assert lines[0] == "gf.zero('blocks.1.mixer.z', h=0)" and len(set(lines)) == 3
    far = gf.explain("effect", small, control="norm", seed=4)
    assert far.figure("runs").rows[2][1] == "gf.add('blocks.1.mixer.z', …)"
    by_hand = gf.control(small.edits[0], model.trace("The cat ate the fish"), seed=4, by="norm")
    wanted = model.trace("The cat ate the fish", edits=by_hand).logits[0, -1].double().softmax(0)
    plain = model.trace("The cat ate the fish").logits[0, -1].double().softmax(0)
    found = {one.name: one.value for one in far.checks}["variation_control"]
    assert found == pytest.approx(0.5 * (wanted - plain).abs().sum().item(), rel=1e-4)


def test_edits_of_one_value_have_one_control_of_the_size_of_their_sum():
    trace = gf.load().trace("The cat ate the fish")
    name = "blocks.1.resid_in"
    none = gf.control([gf.add(name, 1.0), gf.add(name, -1.0)], trace, by="norm")
    assert [one.name for one in none] == [name] and none[0].value.abs().max() < 1e-5
    edits = [gf.add(name, 1.0), gf.scale(name, 0.5), gf.zero("blocks.2.mixer.out")]
    found = gf.control(edits, trace, by="norm")
    assert [one.name for one in found] == [name, "blocks.2.mixer.out"]
    x = trace[name]
    assert torch.allclose(found[0].value.norm(dim=-1), ((x + 1) * 0.5 - x).norm(dim=-1), rtol=1e-4)
    with pytest.raises(InputError, match="positions are no vectors"):
        gf.control(gf.zero("positions"), trace, by="norm")
