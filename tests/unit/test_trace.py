"""A trace: what is recomputed after a fast run is what the run computed."""

import numpy as np
import pytest
import torch
from sheet_models import ROPE, SPECS, model_of, of, pair, tokens_of
from trace_runs import ALL, close, glass, inputs

from glassformer.call import at_rest
from glassformer.edit import zero
from glassformer.errors import InputError
from glassformer.mask import pad_left
from glassformer.rerun import QUADRATIC
from glassformer.trace import Trace

ROWS = [3, -1, slice(1, 6, 2), [4, 0, -2], []]


@pytest.mark.parametrize("name", ALL)
def test_every_value_recomputed_lazily_is_that_of_a_run_with_everything_looked_at(name):
    model, tokens = model_of(ALL[name]), inputs(ALL[name])
    trace = Trace(model, tokens)
    values, out = glass(model, tokens)
    assert trace.names() == list(values)
    assert close(trace.logits, out)
    with torch.no_grad():
        assert torch.equal(trace.logits, model(*tokens) if isinstance(tokens, tuple) else model(tokens))
    for value in values:
        assert close(trace[value], values[value]), value
        assert dict(trace.sizes(value)) == dict(zip(trace.axes(value).split(), values[value].shape, strict=True))
        assert trace.card(value).en and trace.card(value).ko
    assert all(0 <= number < 2e-6 for number in trace.difference().values())


def taken(full, axes, where):
    """`full` at those places, one after the other."""
    letters = axes.split()
    for axis in reversed(range(full.ndim)):
        index = where.get(letters[axis], slice(None))
        if isinstance(index, int):
            full = full.select(axis, index)
            continue
        places = range(full.shape[axis])[index] if isinstance(index, slice) else index
        full = torch.stack([full.select(axis, i) for i in places], axis) if len(places) else full.narrow(axis, 0, 0)
    return full


@pytest.mark.parametrize("name", ["rope", "grouped", "sink", "relative", "window-sinks", "post", "pair"])
def test_a_part_is_the_whole_at_those_places(name):
    spec = ALL[name]
    whole, trace = (Trace(model_of(spec), inputs(spec)) for _ in range(2))
    asked = [{"t": place} for place in ROWS] + [
        {"h": 2},
        {"b": 1, "h": [3, 0], "t": -1},
        {"h": slice(1, 3), "t": [2, 2]},
    ]
    asked += [
        {"t": slice(None, 2), "s": [0, 1]},
        {"s": 3},
        {"v": [1, 3], "t": 2},
        {"d": -1, "t": [0]},
        {"g": 0, "s": -2},
    ]
    for value in whole.names():
        axes = whole.axes(value)
        short = value.rpartition(".")[2]
        for where in asked if short in (*QUADRATIC, "head_out", "out", "v") or "head" in value else asked[:1]:
            if set(where) <= set(axes.split()):
                trace._cache.clear()  # as if nothing had been asked for yet
                assert close(trace.part(value, **where), taken(whole[value], axes, where)), (value, where)


def test_places_may_be_numpys_and_run_backwards():
    trace, name = Trace(model_of(SPECS["rope"]), tokens_of(2, 7)), "blocks.0.mixer.pattern"
    whole = Trace(model_of(SPECS["rope"]), tokens_of(2, 7))[name]
    assert close(trace.part(name, h=np.int64(1), t=torch.tensor(-1)), whole[:, 1, -1])
    backwards = trace.part(name, t=slice(None, None, -2), s=slice(5, 2, -1))
    assert close(backwards, whole[:, :, [6, 4, 2, 0]][..., [5, 4, 3]])
    assert close(trace.part(name, t=np.array([3, 1])), whole[:, :, [3, 1]])
    for one in ([3], np.array([3]), torch.tensor([3]), slice(3, 4)):  # a list of one keeps the axis
        assert close(trace.part(name, t=one), whole[:, :, 3:4])
    for wrong in (1.5, "one", torch.tensor([[3]]), [0, None], slice(0, 3, 0)):
        with pytest.raises(InputError, match="give a whole number, a list of them, or a slice"):
            trace.part(name, t=wrong)


def test_cross_attention_has_the_source_as_its_keys():
    spec = pair()
    trace = Trace(
        model_of(spec),
        inputs(spec),
        labels={"t": list("abcdefg"), "encoder.t": list("VWXYZ"), "encoder.s": list("VWXYZ")},
    )
    name = "decoder.blocks.1.cross.pattern"
    assert dict(trace.sizes(name)) == {"b": 2, "h": 4, "t": 7, "s": 5}
    assert close(trace.part(name, h=1, t=3), Trace(model_of(spec), inputs(spec))[name][:, 1, 3])
    assert trace[name].sum(-1).allclose(torch.ones(2, 4, 7))
    assert trace.labels("s", name) == list("VWXYZ") and trace.labels("t", name) == list("abcdefg")
    assert trace.labels("s", "encoder.blocks.0.mixer.pattern") == list("VWXYZ")
    assert trace.labels("t") == list("abcdefg") and trace.labels("h", name) == list("0123")
    assert trace.labels("s", "decoder.blocks.0.mixer.pattern") == [str(i) for i in inputs(spec)[1][0].tolist()]


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda t: t["blocks.0.mixer.patern"], "no value named .*did you mean blocks.0.mixer.pattern"),
        (lambda t: t.part("blocks.0.mixer.q", s=1), "blocks.0.mixer.q has no axis 's'; its axes are: b t h e"),
        (lambda t: t.part("blocks.0.mixer.pattern", h=4), r"no index 4; it has 4 \(0 to 3\)"),
        (lambda t: t.part("blocks.0.mixer.pattern", t=[0, -8]), "no index -8; it has 7"),
        (lambda t: t.part("blocks.0.mixer.z", e=9), "no index 9"),
        (lambda t: t.labels("a"), "no axis 'a'"),
        (lambda t: t.card("blocks.9.resid_in"), "no value named"),
    ],
)  # fmt: skip
def test_what_does_not_exist_is_refused_by_name(ask, message):
    with pytest.raises(InputError, match=message):
        ask(Trace(model_of(SPECS["rope"]), tokens_of(2, 7)))


# ---------------------------------------------------------------- a run of its own


def test_traces_do_not_disturb_each_other():
    model = model_of(SPECS["rope"])
    first, second = (
        Trace(model, tokens_of(1, 7)),
        Trace(model, tokens_of(1, 9, 5), edits=[zero("blocks.0.mixer.z", h=1)]),
    )
    names = ["blocks.0.mixer.pattern", "blocks.1.resid_mid", "head.logits"]
    mixed = [(first[name], second[name]) for name in names]
    alone = Trace(model, tokens_of(1, 7)), Trace(model, tokens_of(1, 9, 5), edits=[zero("blocks.0.mixer.z", h=1)])
    for name, (a, b) in zip(names, mixed, strict=True):
        assert torch.equal(a, alone[0][name]) and torch.equal(b, alone[1][name])


def test_a_model_that_changed_is_not_traced_any_further():
    model = model_of(SPECS["rope"])
    trace = Trace(model, tokens_of(1, 7))
    trace["blocks.0.mixer.q"]
    with torch.no_grad():
        model.blocks[1].mixer.q.weight.mul_(1.0)
    with pytest.raises(InputError, match="parameters have changed since this run; trace it again"):
        trace["blocks.1.mixer.q"]


def test_replaced_constants_are_noticed_too():
    model = model_of(SPECS["alibi"])
    trace = Trace(model, tokens_of(1, 7))
    trace.names()
    model.blocks[1].mixer.slopes.mul_(2)
    with pytest.raises(InputError, match="have changed since this run"):
        trace["blocks.1.mixer.q"]


def test_dropout_that_is_on_is_refused():
    model = model_of(of(ROPE, dropout=0.1)).train()
    with pytest.raises(InputError, match=r"training mode.*call model\.eval\(\)"):
        Trace(model, tokens_of(1, 7))
    Trace(model_of(SPECS["rope"]).train(), tokens_of(1, 7))
    model = model_of(of(ROPE, dropout=0.1))
    model.blocks[0].train()  # a part alone
    with pytest.raises(InputError, match="training mode"):
        Trace(model, tokens_of(1, 7))
    with at_rest(model):
        assert not model.blocks[0].training and Trace(model, tokens_of(1, 7)).logits is not None
    assert model.blocks[0].training and not model.training


def test_a_pair_that_is_none_is_refused():
    model, (source, target) = model_of(pair()), inputs(pair())
    pos = torch.arange(5).expand(2, 5)
    with pytest.raises(InputError, match=r"tokens: this is an encoder-decoder; give a pair \(source, target\)"):
        Trace(model, source)
    with pytest.raises(InputError, match=r"pos: this is an encoder-decoder; give a pair"):
        Trace(model, (source, target), pos=pos)
    with pytest.raises(InputError, match="segments: an encoder-decoder takes no packed documents"):
        Trace(model, (source, target), segments=torch.zeros(2, 7, dtype=torch.long))


# ---------------------------------------------------------------- padding and packing


def test_padded_and_packed_runs_are_recomputed_as_they_were():
    model = model_of(SPECS["rope"])
    tokens, pos = pad_left([[3, 1, 4], [1, 5, 9, 2, 6]])
    trace = Trace(model, tokens, pos=pos)
    alone = Trace(model, torch.tensor([[3, 1, 4]]))
    assert close(trace["blocks.1.mixer.pattern"][:1, :, 2:, 2:], alone["blocks.1.mixer.pattern"], 1e-5)
    assert trace.part("blocks.1.mixer.pattern", b=0, t=4)[:, :2].abs().max() == 0
    assert close(trace.part("blocks.1.mixer.pattern", t=3), trace["blocks.1.mixer.pattern"][:, :, 3])
    segments = torch.tensor([[0, 0, 0, 1, 1]])
    packed = Trace(model, tokens[1:], pos=torch.tensor([[0, 1, 2, 0, 1]]), segments=segments)
    assert packed.part("blocks.0.mixer.pattern", b=0, h=0, t=4)[:3].abs().max() == 0
    second = Trace(model, tokens[1:, 3:])
    assert close(packed["blocks.1.resid_out"][:, 3:], second["blocks.1.resid_out"], 1e-5)
    assert all(number < 2e-6 for number in [*trace.difference().values(), *packed.difference().values()])
