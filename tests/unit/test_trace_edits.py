"""Edits of a run: they act once, wherever one looks, and open nothing."""

import pytest
import torch
from sheet_models import ROPE, SPECS, model_of, of, tokens_of
from trace_runs import close, glass

from glassformer.edit import add, mean, noise, replace, scale, zero
from glassformer.errors import InputError
from glassformer.trace import Trace


def test_an_edited_score_opens_nothing():
    model, tokens = model_of(SPECS["rope"]), tokens_of(1, 7)
    changed = tokens.clone()
    changed[0, 5] += 1
    name = "blocks.0.mixer.scores"
    for edit in (replace(name, 2.0), zero(name, h=1), mean(name)):
        first, second = (Trace(model, given, edits=[edit]) for given in (tokens, changed % 32))
        assert first["blocks.0.mixer.pattern"].triu(1).abs().max() == 0
        if edit.kind != "mean":  # which is over all positions, and so brings later ones along
            assert torch.equal(first.logits[:, :5], second.logits[:, :5])


EDITS = {
    "input-add": [add("blocks.1.resid_in", 0.5, d=slice(0, 5))],
    "input-scale": [scale("blocks.0.resid_in", 2.0, t=3), scale("embed.out", 1.5)],
    "output-add": [add("blocks.1.resid_out", 0.5, t=[1, 2], d=3)],
    "query": [add("blocks.0.mixer.q", 1.0, t=5)],
    "key": [noise("blocks.1.mixer.k", 1.0, seed=3, s=2)],
    "scores": [add("blocks.0.mixer.scores", 3.0, t=6, s=0), mean("blocks.1.mixer.scores", h=0)],
    "pattern": [replace("blocks.1.mixer.pattern", 0.25, h=2, t=4)],
    "z": [zero("blocks.0.mixer.z", h=3), noise("blocks.1.mixer.z", 0.1, t=[0, 6])],
    "head-out": [zero("blocks.0.mixer.head_out", h=1)],
    "norm": [mean("blocks.0.mixer_norm.out"), scale("norm.out", 0.5, t=-1)],
    "logits": [add("head.logits", 1.0, t=2, v=7)],
}


@pytest.mark.parametrize("name", EDITS)
@pytest.mark.parametrize("limit", [1 << 20, 17_000])
def test_edits_act_once_wherever_one_looks(name, limit):
    model, tokens = model_of(of(ROPE)), tokens_of(1, 7)
    values, out = glass(model, tokens, EDITS[name])
    trace = Trace(model, tokens, edits=EDITS[name], limit_bytes=limit)
    assert close(trace.logits, out)
    assert not close(trace.logits, Trace(model, tokens).logits)
    for value in trace.names():
        axes = trace.axes(value).split()
        where = {"t": 4} if "t" in axes else {}
        assert close(trace.part(value, **where), values[value].select(axes.index("t"), 4) if where else values[value])
        assert close(trace[value], values[value]), value
    assert all(number < 2e-6 for number in trace.difference().values())


def test_an_edit_of_what_does_not_exist_is_refused():
    model = model_of(SPECS["rope"])
    with pytest.raises(InputError, match=r"no value named 'blocks.0.mixer.zz' in this model; did you mean"):
        Trace(model, tokens_of(1, 7), edits=[zero("blocks.0.mixer.zz")])
    with pytest.raises(InputError, match="no index 4"):
        Trace(model, tokens_of(1, 7), edits=[zero("blocks.0.mixer.z", h=4)])


def test_what_is_no_edit_or_no_limit_is_refused():
    model, tokens, name = model_of(SPECS["rope"]), tokens_of(1, 7), "blocks.0.mixer.z"
    for wrong, message in (
        (lambda: Trace(model, tokens, edits="blocks.0"), "'b' is no edit; give what glassformer.zero"),
        (lambda: Trace(model, tokens, edits=3), "3 is no edit"),
        (lambda: Trace(model, tokens, limit_bytes="1"), "limit_bytes: '1' is not allowed; use a whole number from 1"),
        (lambda: add(name, "x"), f"{name}: add does not take 'x'; give a number or a tensor"),
        (lambda: noise(name, "x"), f"{name}: noise does not take 'x'; give a number"),
        (lambda: noise(name, [1.0, 2.0]), "noise does not take"),
    ):
        with pytest.raises(InputError, match=message):
            wrong()
