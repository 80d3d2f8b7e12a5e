"""Patching from another run, frozen weights, resampled values: through a trace, by text, and what is refused."""

import pytest
import torch
from sheet_models import ROPE, SPECS, loaded, model_of, of, pair, stack, tokens_of

import glassformer as gf
from glassformer.errors import InputError, UnsupportedError
from glassformer.mixers.linear import LinearSpec
from glassformer.mixers.recurrent import GruSpec
from glassformer.model import BlockSpec
from glassformer.tap import Probe
from glassformer.trace import Trace


def test_every_value_of_another_run_is_that_run():
    """Patched from a trace, under a tight limit too; and, of a pair, in both stacks."""
    for spec in (SPECS["rope"], SPECS["experts"], pair()):
        model = model_of(spec)
        a, b = ((tokens_of(1, 7, seed), tokens_of(1, 5, seed)) for seed in (1, 2))
        a, b = (a, b) if hasattr(spec, "encoder") else (a[0], b[0])
        other = Trace(model, b)
        for limit in (1 << 30, 40_000):
            found = Trace(model, a, edits=[gf.patch(name, other) for name in other.names()], limit_bytes=limit)
            for name in other.names():
                torch.testing.assert_close(found[name], other[name], rtol=0, atol=1e-6)
            assert (Trace(model, a).logits - other.logits).abs().max() > 0.1


def test_a_patch_at_one_place_moves_what_can_see_it():
    """The value of token 5 of the other run, put where token 2 stands: as replaced by hand."""
    model, a, b = model_of(SPECS["rope"]), tokens_of(1, 7), tokens_of(1, 9, seed=3)
    other, name = Trace(model, b), "blocks.0.resid_out"
    found = Trace(model, a, edits=gf.patch(name, other, t=2, there={"t": 5}))
    by_hand = Trace(model, a, edits=gf.replace(name, other[name][:, 5], t=2))
    assert torch.equal(found.logits, by_hand.logits)
    assert torch.equal(found.logits[:, :2], Trace(model, a).logits[:, :2])
    assert (found.logits - Trace(model, a).logits)[:, 2:].abs().amax(-1).min() > 1e-3
    several = Trace(model, a, edits=gf.patch(name, other, t=[1, 2], there={"t": slice(4, 6)}, d=3))
    assert torch.equal(several[name][:, 1:3, 3], other[name][:, 4:6, 3])
    assert torch.equal(several[name][:, 3:], Trace(model, a)[name][:, 3:])
    with pytest.raises(InputError, match="the other run has 9 places where this one is patched at 7; give a text of"):
        Trace(model, a, edits=gf.patch(name, other))


def test_a_run_is_named_by_its_text_or_its_ids():
    model = gf.load()
    clean, name = model.trace("The cat ate the fish"), "blocks.2.resid_out"
    given = [gf.patch(name, one, t=3) for one in (clean, "The cat ate the fish", model.encode("The cat ate the fish"))]
    runs = [model.trace("The dog ate the fish", edits=one) for one in given]
    assert all(torch.equal(one.logits, runs[0].logits) for one in runs)
    assert (runs[0].logits - model.trace("The dog ate the fish").logits).abs().max() > 0.1
    assert given[0].line == given[1].line == f"gf.patch({name!r}, 'The cat ate the fish', t=3)"
    assert gf.patch(name, runs[0]).line == f"gf.patch({name!r}, …)"  # a run with edits has no text
    bare = model_of(SPECS["rope"])
    ids = tokens_of(1, 7, seed=1)
    found = Trace(bare, tokens_of(1, 7), edits=gf.patch("embed.out", ids[0].tolist()))
    assert torch.equal(found.logits, Trace(bare, ids).logits)
    with pytest.raises(InputError, match="no tokenizer; patch from a trace"):
        Trace(bare, ids, edits=gf.patch("embed.out", "a text"))
    for wrong in ("", [], 3, [0.5], None):
        with pytest.raises(InputError, match="is no run; give a trace"):
            gf.patch("embed.out", wrong)
    with pytest.raises(InputError, match="no value named 'embed.outt'"):
        gf.patch("embed.outt", clean)


def test_frozen_weights_stay_while_the_values_are_those_of_the_other_text():
    for spec, short in ((SPECS["grouped"], "pattern"), (of(LinearSpec(heads=2, normalise=False)), "weights")):
        model, a, b = model_of(spec), tokens_of(1, 7), tokens_of(1, 7, seed=4)
        kept, plain = Trace(model, a), Trace(model, b)
        edits = gf.freeze(kept)
        assert [edit.name for edit in edits] == [f"blocks.{i}.mixer.{short}" for i in range(2)]
        found = Trace(model, b, edits=edits)
        for edit in edits:
            assert torch.equal(found[edit.name], kept[edit.name]) and not torch.equal(plain[edit.name], kept[edit.name])
        first = "blocks.0.mixer"
        v = plain[f"{first}.v"]
        v = v.repeat_interleave(kept[f"{first}.{short}"].shape[1] // v.shape[2], 2)
        torch.testing.assert_close(found[f"{first}.z"], torch.einsum("bhts,bshe->bthe", kept[f"{first}.{short}"], v))
        assert (found.logits - plain.logits).abs().max() > 1e-3
        torch.testing.assert_close(Trace(model, a, edits=edits).logits, kept.logits, rtol=1e-5, atol=1e-5)
        one = gf.freeze(kept, edits[1].name)
        assert [edit.name for edit in one] == [edits[1].name]
        with pytest.raises(InputError, match=f"no weights between tokens; those of this model: {edits[0].name}"):
            gf.freeze(kept, f"{first}.v")
    with pytest.raises(UnsupportedError, match="no weights between tokens that could be kept"):
        gf.freeze(Trace(model_of(stack(BlockSpec(mixer=GruSpec()))), tokens_of(1, 4)))


def test_gradients_pass_through_every_kind_of_edit():
    """Of what an edit puts in, and of what it leaves."""
    model, tokens, name = model_of(of(ROPE)).double(), tokens_of(1, 6), "blocks.0.resid_out"
    given = torch.randn(16, dtype=torch.float64, requires_grad=True)
    table = model.embed.token.weight

    def loss(value):
        own = (gf.add(name, value, t=1), gf.scale(name, value, t=2), gf.replace(name, value, t=3))
        others = (gf.resample(name, seed=1), gf.mean("blocks.1.mixer.v"), gf.noise(name, 0.1))
        return model(tokens, probe=Probe(lambda _: False, (*own, *others))).sin().sum()

    found, of_table = torch.autograd.grad(loss(given), (given, table))
    assert of_table.abs().max() > 1e-3
    for i in (0, 7):
        step = torch.zeros_like(given)
        step[i] = 1e-5
        with torch.no_grad():
            by_hand = (loss(given + step) - loss(given - step)) / 2e-5
        assert abs(found[i] - by_hand) < 1e-6 * max(1, abs(by_hand))


def test_resampling_through_a_trace():
    model = loaded(of(ROPE))
    plain, name = model.trace("abcdefgh"), "blocks.0.mixer.z"
    found = model.trace("abcdefgh", edits=gf.resample(name, seed=2, h=1))
    again = model.trace("abcdefgh", edits=gf.resample(name, seed=2, h=1))
    other = model.trace("abcdefgh", edits=gf.resample(name, seed=3, h=1))
    assert torch.equal(found.logits, again.logits) and not torch.equal(found.logits, other.logits)
    before, after = plain[name][0], found[name][0]
    assert torch.equal(after[:, 0], before[:, 0])
    matches = (after[:, None, 1] == before[None, :, 1]).all(-1)
    assert matches.sum(0).tolist() == matches.sum(1).tolist() == [1] * len(before) and not matches.diagonal().any()
