"""Cut edges through a trace: wherever one looks, with other edits, in every row, and what is refused."""

import pytest
import torch
from sheet_models import ROPE, SPECS, model_of, of, pair, stack, tokens_of

import glassformer as gf
from glassformer.edit import Edit
from glassformer.errors import InputError, MemoryLimitError, UnsupportedError
from glassformer.mixers.linear import LinearSpec
from glassformer.mixers.recurrent import GruSpec
from glassformer.mixers.rmt import RmtSpec
from glassformer.model import BlockSpec
from glassformer.tap import Probe
from glassformer.trace import Trace

MIXER = "blocks.0.mixer"


def close(found, wanted, **how):
    torch.testing.assert_close(found, wanted, **{"rtol": 1e-5, "atol": 1e-5} | how)


@pytest.mark.parametrize("limit", [1 << 30, 40_000])
@pytest.mark.parametrize("spec", [SPECS["grouped"], of(GruSpec()), of(LinearSpec(heads=2)), pair()])
def test_a_cut_acts_once_wherever_one_looks(spec, limit):
    """As in the run with everything looked at, kept or recomputed; the fast path agrees."""
    two = hasattr(spec, "encoder")
    path = "decoder.blocks.1.cross" if two else MIXER
    model, tokens = model_of(spec), (tokens_of(1, 5, seed=1), tokens_of(1, 7)) if two else tokens_of(1, 7)
    edit = gf.cut(path, t=[4, 6], s=[1, 2])
    probe = Probe(edits=(edit,))
    with torch.no_grad():
        model(*tokens, probe=probe) if two else model(tokens, probe=probe)
    trace = Trace(model, tokens, edits=edit, limit_bytes=limit)
    for name in trace.names():
        finite = probe.values[name].isfinite()
        assert torch.equal(trace[name].isfinite(), finite)
        close(trace[name][finite], probe.values[name][finite])
    if f"{path}.pattern" in trace.names():
        part = trace.part(f"{path}.pattern", h=1, t=4)
        close(part, trace[f"{path}.pattern"][:, 1, 4])
        assert part[0, 1:3].abs().max() == 0 and abs(part.sum() - 1) < 1e-5
    assert (trace.logits - Trace(model, tokens).logits).abs().max() > 1e-3
    assert max(trace.difference().values()) < 1e-5


def test_cuts_of_one_query_add_up_and_are_those_of_their_rows():
    model, tokens = model_of(of(GruSpec())), tokens_of(2, 7)
    one = Trace(model, tokens, edits=[gf.cut(MIXER, t=5, s=1), gf.cut(MIXER, t=[4, 5], s=2)])
    both, alone = (Trace(model, tokens, edits=gf.cut(MIXER, t=5, s=s)) for s in ([1, 2], 2))
    close(one[f"{MIXER}.out"][:, 5], both[f"{MIXER}.out"][:, 5])
    assert (both[f"{MIXER}.out"] - alone[f"{MIXER}.out"])[:, 5].abs().max() > 1e-3
    close(one[f"{MIXER}.out"][:, 4], Trace(model, tokens, edits=gf.cut(MIXER, s=2))[f"{MIXER}.out"][:, 4])
    first = Trace(model, tokens, edits=gf.cut(MIXER, t=5, s=1, b=0))
    close(first.logits[0], Trace(model, tokens[:1], edits=gf.cut(MIXER, t=5, s=1)).logits[0])
    assert torch.equal(first[f"{MIXER}.out"][1], Trace(model, tokens)[f"{MIXER}.out"][1])


def test_a_cut_holds_whatever_else_is_done():
    """With other values inside the mixer, with its output, and with weights that were put there."""
    model, tokens = model_of(of(LinearSpec(heads=2, normalise=False))), tokens_of(1, 7)
    inner, out = gf.zero(f"{MIXER}.z", h=1), gf.scale(f"{MIXER}.out", 3.0)
    plain, both = Trace(model, tokens, edits=inner), Trace(model, tokens, edits=[out, inner, gf.cut(MIXER, t=5, s=2)])
    weights, v = plain[f"{MIXER}.weights"], plain[f"{MIXER}.v"]
    z = torch.einsum("hs,she->he", weights[0, :, 5, [0, 1, 3, 4, 5]], v[0, [0, 1, 3, 4, 5]])
    z[1] = 0
    with torch.no_grad():
        close(both[f"{MIXER}.out"][0, 5], 3 * model.blocks[0].mixer.out(z.flatten()))
    model = model_of(SPECS["rope"])
    kept, other = Trace(model, tokens), tokens_of(1, 7, seed=2)
    name = f"{MIXER}.pattern"
    for order in (1, -1):
        edits = [*gf.freeze(kept), gf.cut(MIXER, t=5, s=2)][::order]
        found = Trace(model, other, edits=edits)[name]
        wanted = kept[name].clone()
        wanted[:, :, 5, 2] = 0
        close(found[:, :, :5], wanted[:, :, :5])
        close(found[:, :, 5], wanted[:, :, 5] / wanted[:, :, 5].sum(-1, keepdim=True))
        kept_whole = [*gf.freeze(kept), gf.cut(MIXER, t=5, s=2, renormalise=False)][::order]
        close(Trace(model, other, edits=kept_whole)[name], wanted)


def test_a_cut_inside_a_memory_transformer():
    spec = RmtSpec(layers=2, segment=4, memory=2)
    model, tokens = model_of(stack(BlockSpec(mixer=spec))), tokens_of(1, 7)
    path = f"{MIXER}.layers.1.attention"
    found = Trace(model, tokens, edits=gf.cut(path, t=[3, 6], s=[1, 5]))[f"{path}.pattern"][0]
    plain = Trace(model, tokens)[f"{path}.pattern"][0]
    assert plain[:, 3, 1].min() > 0 and plain[:, 6, 5].min() > 0  # in its segment each sees the other
    assert found[:, 3, 1].max() == found[:, 6, 5].max() == 0
    assert torch.equal(found[:, [0, 1, 2, 4, 5]], plain[:, [0, 1, 2, 4, 5]])


def test_what_is_refused():
    rope, gru, tokens = model_of(SPECS["rope"]), model_of(of(GruSpec())), tokens_of(1, 7)
    for model, made, kind, message in (
        (rope, lambda: gf.cut(MIXER, t=3), InputError, f"{MIXER}: say which tokens are cut off"),
        (
            rope,
            lambda: gf.cut("blocks.0.channel", s=1),
            InputError,
            "only what tokens reach through a mixer",
        ),
        (rope, lambda: gf.cut("blocks.7.mixer", s=1), InputError, r"blocks\.7\.mixer: only what .*blocks\.0\.mixer"),
        (rope, lambda: gf.cut(MIXER, t=9, s=1), InputError, "axis 't' has no index 9"),
        (gru, lambda: gf.cut(MIXER, t=9, s=1), InputError, "axis 't' has no index 9"),
        (gru, lambda: gf.cut(MIXER, t=3, s=1, h=0), InputError, "has no axis 'h'"),
        (gru, lambda: gf.cut(MIXER, t=[3, 4], s=3), InputError, "token 3 is cut from itself"),
        (gru, lambda: gf.cut(MIXER, t=3, s=1, renormalise=False), UnsupportedError, "leave renormalise out"),
    ):
        with pytest.raises(kind, match=message):
            Trace(model, tokens, edits=made())
    with pytest.raises(MemoryLimitError, match=r"the edit of blocks\.0\.mixer\.scores needs"):
        Trace(model_of(of(ROPE)), tokens_of(1, 200), edits=gf.cut(MIXER, t=3, s=1), limit_bytes=1 << 19)
    state = gru.empty(1, 9)
    with torch.no_grad(), pytest.raises(UnsupportedError, match="which a state has not kept"):
        gru.step(tokens, state, probe=Probe(lambda _: False, (gf.cut(MIXER, t=3, s=1),)))


def test_gradients_pass_through_a_cut():
    model = model_of(of(GruSpec())).double()
    tokens, edit = tokens_of(1, 6), gf.cut(MIXER, t=5, s=2)

    def loss(*edits: Edit):
        probe = Probe(lambda name: name == "embed.out", edits)
        return model(tokens, probe=probe)[0, 5].sin().sum(), probe.values["embed.out"]

    value, x = loss(gf.zero("blocks.1.mixer.out"), edit)
    assert torch.autograd.grad(value, x)[0][0, 2].abs().max() == 0  # it reached the query through this mixer alone
    value, x = loss(gf.zero("blocks.1.mixer.out"))
    assert torch.autograd.grad(value, x)[0][0, 2].abs().max() > 1e-3


def test_the_line_that_makes_it():
    assert gf.cut(MIXER, t=5, s=2).line == "gf.cut('blocks.0.mixer', t=5, s=2)"
    kept = gf.cut(MIXER, t=[1, 2], s=0, h=3, renormalise=False)
    assert kept.line == "gf.cut('blocks.0.mixer', t=[1, 2], s=0, h=3, renormalise=False)"
    trace = Trace(model_of(SPECS["rope"]), tokens_of(1, 7), edits=kept)
    assert trace.edits == (kept,)
