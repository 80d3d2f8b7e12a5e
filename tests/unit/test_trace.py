"""A trace: what is recomputed after a fast run is what the run computed, within the memory that was allowed."""

import json
import re

import numpy as np
import pytest
import torch
from sheet_models import BIAS, DIM, ROPE, SPECS, loaded, model_of, of, pair, stack, tokens_of

import glassformer.mixers.multihead as multihead
from glassformer.call import Call, at_rest
from glassformer.errors import CheckpointError, InputError, MemoryLimitError
from glassformer.mask import Mask, pad_left
from glassformer.mixers.attention import AttentionSpec, CrossSpec
from glassformer.model import BlockSpec
from glassformer.nn.channel import Experts, ExpertsSpec
from glassformer.nn.head import HeadSpec
from glassformer.nn.norm import Norm
from glassformer.nn.position import AlibiSpec
from glassformer.stored import StoredTrace
from glassformer.tap import Probe, add, mean, noise, replace, scale, zero
from glassformer.trace import QUADRATIC, Trace

ALL = {**SPECS, "pair": pair(), "pair-post": pair(CrossSpec(kv_heads=1, sink=True), "post")}
ROWS = [3, -1, slice(1, 6, 2), [4, 0, -2], []]


def inputs(spec, t=7):
    return (tokens_of(2, 5, seed=1), tokens_of(2, t)) if hasattr(spec, "encoder") else tokens_of(2, t)


def glass(model, tokens, edits=()):
    """Every value of one run with everything looked at."""
    probe = Probe(edits=tuple(edits))
    with torch.no_grad():
        out = model(*tokens, probe=probe) if isinstance(tokens, tuple) else model(tokens, probe=probe)
    return probe.values, out


def close(found, wanted, tolerance=2e-6):
    finite = torch.isfinite(wanted)
    assert found.shape == wanted.shape and torch.equal(torch.isfinite(found), finite)
    difference = (found - wanted)[finite].abs().max() if finite.any() else torch.zeros(())
    return bool(difference <= tolerance * max(1.0, wanted[finite].abs().max().item() if finite.any() else 1.0))


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


# ---------------------------------------------------------------- the two paths


def test_a_broken_fast_path_is_found(monkeypatch):
    model, tokens = model_of(SPECS["rope"]), tokens_of(2, 7)
    right = multihead.fused
    monkeypatch.setattr(multihead, "fused", lambda *given: right(*given) * 1.001)
    found = Trace(model, tokens).difference()
    attention = ["blocks.0.mixer.out", "blocks.1.mixer.out"]
    norms = [f"blocks.{i}.{place}_norm.out" for i in range(2) for place in ("mixer", "channel")]
    assert set(found) == {*attention, *norms, "norm.out"}
    assert all((5e-4 < number < 2e-3) == (name in attention) for name, number in found.items())
    monkeypatch.setattr(multihead, "fused", lambda *given: right(*given) * torch.nan)
    broken = Trace(model, tokens).difference()
    assert {broken[name] for name in attention} == {float("inf")}


@pytest.mark.parametrize(("kind", "method", "end"), [(Norm, "_fused", "norm.out"), (Experts, "_routed", "channel.out")])
def test_a_broken_fast_norm_or_experts_are_found(monkeypatch, kind, method, end):
    model, tokens = model_of(SPECS["experts"]), tokens_of(2, 7)
    right = getattr(kind, method)
    monkeypatch.setattr(kind, method, lambda *given: right(*given) * 1.001)
    found = Trace(model, tokens).difference()
    assert {name for name, number in found.items() if number > 5e-4} == {name for name in found if name.endswith(end)}
    assert sum(name.endswith(end) for name in found) == (5 if kind is Norm else 2)


def test_the_difference_row_by_row_is_the_same():
    model, tokens = model_of(SPECS["alibi"]), tokens_of(2, 7)
    rows = Trace(model, tokens, limit_bytes=5_000)
    assert 1 <= rows.limit_bytes // rows._working_bytes("blocks.0.mixer.pattern", 1) < 7
    for name, number in rows.difference().items():
        assert number == pytest.approx(Trace(model, tokens).difference()[name], abs=5e-7)


def test_the_difference_row_by_row_projects_the_keys_once():
    calls = {}
    for limit in (40_000, 1 << 20):
        model = model_of(SPECS["rope"])
        trace, keys = Trace(model, tokens_of(1, 60), limit_bytes=limit), model.blocks[0].mixer.k
        trace.names()
        calls[limit] = []
        keys.register_forward_hook(lambda *_, found=calls[limit]: found.append(1))
        trace.difference()
    assert len(calls[40_000]) == len(calls[1 << 20]) < 60


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


# ---------------------------------------------------------------- edits

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


def test_labels_are_those_of_a_row():
    trace = Trace(model_of(SPECS["rope"]), torch.tensor([[1, 2, 3], [4, 5, 6]]))
    assert trace.labels("t") == ["1", "2", "3"] and trace.labels("s", "blocks.0.mixer.pattern", b=1) == ["4", "5", "6"]
    with pytest.raises(InputError, match="no index 2"):
        trace.labels("t", b=2)


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


# ---------------------------------------------------------------- memory


@pytest.mark.parametrize("name", ["rope", "pair"])
@pytest.mark.parametrize("limit", [13_000, 60_000])
def test_the_memory_limit_is_kept_and_changes_no_number(name, limit):
    spec = stack(*[BlockSpec(mixer=AttentionSpec())] * 6) if name == "rope" else ALL[name]
    model, tokens = model_of(spec), inputs(spec, 12)
    values, _ = glass(model, tokens)
    trace = Trace(model, tokens, limit_bytes=limit)
    refused = []
    for value in values:
        try:
            assert close(trace[value], values[value])
        except MemoryLimitError as error:
            refused.append(value.rpartition(".")[2])
            assert re.search(r"needs [\d,]+ bytes and the limit is", str(error))
        assert trace.stored_bytes <= limit
    assert set(refused) == ({*QUADRATIC, "head_out"} if limit == 13_000 else set())
    output = trace.stacks[-1].output
    assert close(trace.part(output, t=2), values[output][:, 2])
    assert max(trace.difference().values()) < 2e-6 and trace.stored_bytes <= limit
    if name == "rope":
        assert list(trace.stacks[0].kept) == ([0, 2, 4, 6] if limit == 13_000 else [0, 1, 2, 3, 4, 5, 6])


def test_too_little_memory_is_refused_with_the_sizes():
    one = 7 * 2 * DIM * 4
    with pytest.raises(
        MemoryLimitError, match=f"cannot hold two block inputs of {one:,} bytes; allow at least {4 * one:,}"
    ):
        Trace(model_of(SPECS["rope"]), tokens_of(2, 7), limit_bytes=4 * one - 1)
    trace = Trace(model_of(SPECS["rope"]), tokens_of(2, 7), limit_bytes=4 * one)
    with pytest.raises(MemoryLimitError, match=r"trace\.part\('blocks.0.mixer.pattern', h=0, t=slice\(0, 64\)\)"):
        trace["blocks.0.mixer.pattern"]
    with pytest.raises(MemoryLimitError, match=r"blocks.0.mixer.dots needs [\d,]+ bytes"):
        trace.save("never-written.safetensors")


def test_one_row_of_a_long_text_allocates_nothing_quadratic():
    """Measured by PyTorch's own allocator: the largest sum of live bytes while the part is computed."""
    t = 4096
    model = model_of(stack(BlockSpec(mixer=AttentionSpec(heads=4)), context=t))
    trace = Trace(model, tokens_of(1, t), limit_bytes=16 << 20)
    trace.names()
    for short, where in (("pattern", {"h": 1, "t": 4000}), ("scores", {"t": [5, 4000]})):
        peak = peak_bytes(trace.part, f"blocks.0.mixer.{short}", **where)
        assert peak < 16 * t * DIM * 4, peak  # a few block inputs; the n² numbers of one head would be 67 MB
    with pytest.raises(MemoryLimitError):
        trace["blocks.0.mixer.pattern"]


@pytest.mark.parametrize("name", ["rope", "relative", "softcap-sink-relative"])
def test_written_out_attention_needs_no_more_than_was_announced(name):
    spec = SPECS[name].changed(blocks=SPECS[name].blocks[:1])
    trace = Trace(model_of(spec), tokens_of(1, 256))
    for where in ({}, {"t": slice(0, 128)}, {"t": slice(0, 128), "h": [0, 1]}):
        rows, heads = (128 if "t" in where else None), (2 if "h" in where else None)
        announced = trace._working_bytes("blocks.0.mixer.pattern", rows, heads)
        beside = 40 * 256 * DIM * 4  # what is linear in the length
        name = "blocks.0.mixer.pattern"
        asked = (trace.part, name) if where else (trace._again, trace.stacks[0], name)
        peak = peak_bytes(*asked, **where)
        most = 1.5 * announced if "h" in where else announced  # distances are those of all heads
        assert announced / 2 < peak < most + beside, (where, peak, announced)


LONG = {
    "plain": AttentionSpec(),
    "window": AttentionSpec(mask=Mask(window=4)),
    "window-both-ways": AttentionSpec(mask=Mask(causal=False, window=4)),
    "window-sinks": AttentionSpec(mask=Mask(window=4, sinks=2)),
    "prefix": AttentionSpec(mask=Mask(prefix=9)),
    "alibi": AttentionSpec(position=AlibiSpec()),
    "alibi-window": AttentionSpec(mask=Mask(window=4), position=AlibiSpec()),
    "relative": AttentionSpec(position=BIAS),
    "relative-one-head": AttentionSpec(heads=1, position=BIAS),
    "softcap": AttentionSpec(softcap=3.0),
    "softcap-sink-relative": AttentionSpec(softcap=3.0, sink=True, position=BIAS, kv_heads=2),
}


@pytest.mark.parametrize("name", LONG)
@pytest.mark.parametrize("padded", [False, True])
def test_the_run_itself_stays_within_the_limit(name, padded):
    model = model_of(stack(BlockSpec(mixer=LONG[name]), context=1200))
    pos = (torch.arange(1200)[None] - 5).clamp(min=-1) if padded else None
    peak = peak_bytes(lambda: Trace(model, tokens_of(1, 1200), pos=pos, limit_bytes=2 << 20))
    assert peak <= 2 << 20, peak  # n² numbers in fp32 would be 6 MB for each head


@pytest.mark.parametrize("name", ["alibi", "relative-one-head", "softcap-sink-relative"])
def test_the_difference_stays_within_the_limit(name):
    trace = Trace(model_of(stack(BlockSpec(mixer=LONG[name]), context=400)), tokens_of(1, 400), limit_bytes=1 << 20)
    assert peak_bytes(trace.difference) <= 1 << 20


@pytest.mark.parametrize("name", LONG)
def test_attention_in_pieces_is_attention_at_once(name):
    model, tokens = model_of(of(LONG[name])), tokens_of(2, 70)
    padded = (torch.arange(70).expand(2, 70) - torch.tensor([[0], [9]])).clamp(min=-1)
    with torch.no_grad():
        for pos, plain in ((torch.arange(70)[None], True), (padded, False)):
            whole = model.run(tokens, Call(pos, plain))
            for room in (1, 40_000, 200_000):
                found = model.run(tokens, Call(pos, plain, room_bytes=room))
                there = (pos >= 0).expand(2, 70)
                assert close(found[there], whole[there]), room


def test_logits_beyond_the_limit_are_taken_by_rows():
    model, tokens = model_of(of(ROPE).changed(vocab=20_000, context=1000)), tokens_of(1, 1000)
    made, limit = [], 2 << 20
    assert peak_bytes(lambda: made.append(Trace(model, tokens, limit_bytes=limit))) <= limit  # all logits are 80 MB
    with torch.no_grad():
        assert close(made[0].part("head.logits", b=0, t=[3, -1]), model(tokens)[0, [3, -1]])
    with pytest.raises(MemoryLimitError, match=r"head.logits needs 80,192,000 bytes"):
        made[0].logits
    for edit in (zero("norm.out", t=3), zero("head.logits", v=3)):
        with pytest.raises(MemoryLimitError, match=f"edit of {edit.name} needs all logits, 80,000,000 bytes"):
            Trace(model, tokens, edits=[edit], limit_bytes=limit)
    early = [scale("blocks.0.resid_out", 2.0, t=3)]
    with torch.no_grad():
        wanted = model(tokens, probe=Probe(lambda name: False, tuple(early)))
    assert close(Trace(model, tokens, edits=early, limit_bytes=limit).part("head.logits", t=-1), wanted[:, -1])


def test_all_logits_are_worked_out_within_the_limit_where_they_fit():
    for head, copies in ((HeadSpec(), 1), (HeadSpec(scale=0.5), 2), (HeadSpec(softcap=3.0), 3)):
        model = model_of(of(ROPE).changed(vocab=20_000, head=head))
        limit = copies * 100 * 20_000 * 4 + 100_000
        assert limit / 2 < peak_bytes(lambda m=model, n=limit: Trace(m, tokens_of(1, 100), limit_bytes=n)) <= limit
        assert Trace(model, tokens_of(1, 100), limit_bytes=limit - 80_000).logits is not None


def test_an_edit_that_needs_all_n_squared_numbers_is_refused_where_they_do_not_fit():
    model, edit = model_of(of(ROPE).changed(context=600)), scale("blocks.1.mixer.pattern", 2.0, t=3)
    with pytest.raises(MemoryLimitError, match=r"edit of blocks.1.mixer.pattern needs 34,675,200 bytes at once"):
        Trace(model, tokens_of(1, 600), edits=[edit], limit_bytes=4 << 20)
    pair_model = model_of(pair())
    edit = scale("decoder.blocks.0.cross.scores", 2.0)
    needed = 6 * 4 * 4 * 50 * 60 + (3 * 60 + 3 * 50) * DIM * 4  # with the block inputs and the memory
    with pytest.raises(MemoryLimitError, match=rf"decoder.blocks.0.cross.scores needs {needed:,} bytes"):
        Trace(pair_model, (tokens_of(1, 60), tokens_of(1, 50)), edits=[edit], limit_bytes=150_000)


EDIT_KINDS = [lambda n: scale(n, 2.0), zero, lambda n: noise(n, 1.0), lambda n: add(n, 0.5), mean]


def sufficient(work, limit: int) -> int:
    """The limit with which `work(limit)` is not refused, as the refusals name it, starting with too small a one."""
    for _ in range(4):
        try:
            work(limit)
        except MemoryLimitError as error:
            limit = int(re.search(r"needs ([\d,]+) bytes", str(error))[1].replace(",", ""))
        else:
            return limit
    raise AssertionError("what a refusal names never suffices")


@pytest.mark.parametrize("short", ["dots", "scores", "pattern", "head_out"])
@pytest.mark.parametrize("padded", [False, True])
def test_what_an_edit_is_said_to_need_suffices(short, padded):
    long = 300 if short != "head_out" else 40
    block = BlockSpec(mixer=AttentionSpec(heads=8), channel=None)
    model, tokens = model_of(stack(block, dim=256 if short == "head_out" else DIM, context=300)), tokens_of(1, long)
    pos = (torch.arange(long)[None] - 5).clamp(min=-1) if padded else None
    beside = peak_bytes(lambda: Trace(model, tokens, pos=pos))
    for kind in EDIT_KINDS:
        edits, made = [kind(f"blocks.0.mixer.{short}")], []

        def work(limit, edits=edits, made=made):
            made[:] = [Trace(model, tokens, pos=pos, edits=edits, limit_bytes=limit)]
            made[0].difference()

        limit = sufficient(work, 6 * 4 * long * model.spec.dim)
        assert limit > 6 * 4 * long * model.spec.dim
        assert limit / 2 < peak_bytes(work, limit) <= limit + beside


def test_many_values_one_after_the_other_stay_within_the_limit(tmp_path):
    model, tokens = model_of(stack(*[BlockSpec(mixer=AttentionSpec())] * 6, context=300)), tokens_of(1, 300)
    beside = peak_bytes(lambda: Trace(model, tokens))  # with all that one block makes
    limit = sufficient(lambda n: Trace(model, tokens, limit_bytes=n)["blocks.0.mixer.pattern"], 1 << 20)
    trace = Trace(model, tokens, limit_bytes=limit)
    names = trace.names()
    assert sum(trace._value_bytes(name) for name in names) > 3 * limit
    assert limit / 2 < peak_bytes(lambda: [trace[name].ndim for name in names]) <= limit + beside
    trace = Trace(model, tokens, limit_bytes=limit)
    trace.names()
    assert limit / 2 < peak_bytes(trace.save, tmp_path / "all.safetensors") <= limit + beside
    back = StoredTrace(tmp_path / "all.safetensors")
    assert back.names() == names and torch.equal(back["blocks.5.mixer.pattern"], trace["blocks.5.mixer.pattern"])


@pytest.mark.parametrize("channel", [None, ExpertsSpec()])
def test_the_difference_of_a_wide_model_stays_within_the_limit(channel):
    block = BlockSpec(mixer=AttentionSpec(heads=16), channel=channel)
    model, tokens = model_of(stack(block, dim=512)), tokens_of(1, 16)
    limit, beside = 196_608, peak_bytes(lambda: Trace(model, tokens))
    trace = Trace(model, tokens, limit_bytes=limit)
    trace.names()
    assert peak_bytes(trace.difference) <= limit + beside


def peak_bytes(work, *given, **more):
    """The most bytes that `work(*given, **more)` held at once, by the profiler's record of allocations."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        work(*given, **more)
    held = peak = 0
    for event in record.profiler.kineto_results.events():
        if event.name() == "[memory]":
            held += event.nbytes()
            peak = max(peak, held)
    assert peak > 0
    return peak


# ---------------------------------------------------------------- the file


def test_a_saved_trace_reads_back_the_same(tmp_path):
    run = loaded(SPECS["rope"]).trace("고양이가 생선을 먹었다")
    run.save(tmp_path / "run.safetensors")
    back = StoredTrace(tmp_path / "run.safetensors")
    assert back.names() == run.names()
    for name in run.names():
        assert torch.equal(back[name], run[name])
        assert back.axes(name) == run.axes(name) and back.card(name) == run.card(name)
    assert back.labels("t") == run.labels("t") and back.labels("h", "blocks.0.mixer.z") == run.labels(
        "h", "blocks.0.mixer.z"
    )
    assert torch.equal(back.part("blocks.0.mixer.pattern", h=1, t=-1), run["blocks.0.mixer.pattern"][:, 1, -1])
    assert back.spec == json.loads(json.dumps(back.spec)) and back.spec["dim"] == DIM
    with pytest.raises(InputError, match="did you mean"):
        back["blocks.0.mixer.patern"]
    run.save(tmp_path / "two.safetensors", ["blocks.0.mixer.z", "head.logits"])
    assert StoredTrace(tmp_path / "two.safetensors").names() == ["blocks.0.mixer.z", "head.logits"]


def test_a_saved_pair_knows_both_texts(tmp_path):
    run = loaded(pair()).trace(("the cat", "고양이가"))
    run.save(tmp_path / "run.safetensors")
    back = StoredTrace(tmp_path / "run.safetensors")
    name = "decoder.blocks.0.cross.pattern"
    assert "".join(back.labels("s", name)[1:]).replace("␠", "") == "thecat"
    assert back.labels("s", name) == run.labels("s", name) != run.labels("s") == back.labels("s")


def test_a_broken_file_is_named(tmp_path):
    path = tmp_path / "run.safetensors"
    Trace(model_of(SPECS["rope"]), tokens_of(1, 7)).save(path)
    data = path.read_bytes()
    for wrong in (data[: len(data) // 2], data[:6], b"", b"not a trace at all, but long enough to be read"):
        path.write_bytes(wrong)
        with pytest.raises(CheckpointError, match="broken or truncated"):
            StoredTrace(path)
    path.write_bytes(data.replace(b"glassformer-trace-1", b"glassformer-trace-0"))
    with pytest.raises(CheckpointError, match="not a trace of this version"):
        StoredTrace(path)
    path.write_bytes(data.replace(rb"{\"embed.token\"", rb"[\"embed.token\""))
    with pytest.raises(CheckpointError, match="cannot be read"):
        StoredTrace(path)
    for wrong in (rb"b t", rb"b t h h", rb"b t h a"):
        same = rb"\"blocks.0.mixer.q\": \"b t h e\""
        assert same in data
        path.write_bytes(data.replace(same, same.replace(b"b t h e", wrong.ljust(7)), 1))
        with pytest.raises(
            CheckpointError, match=r"the axes .* of 'blocks.0.mixer.q' do not fit its shape \(1, 7, 4, 4\)"
        ):
            StoredTrace(path)
    with pytest.raises(InputError, match="does not exist"):
        StoredTrace(tmp_path / "nothing.safetensors")


# ---------------------------------------------------------------- what the caller gives


def test_labels_are_the_text():
    for method in ("byte", "bpe", "unigram", "char"):
        run = loaded(method=method).trace("고양이가 먹었다")
        labels = run.labels("t")
        assert len(labels) == run.logits.shape[1] and labels == run.labels("s", "blocks.0.mixer.pattern")
        assert not set("Ġ▁\ufffd") & set("".join(labels))
        shown = re.sub(
            "(?:⟨[0-9A-F]{2}⟩)+",
            lambda found: bytes.fromhex(re.sub("[⟨⟩]", "", found[0])).decode(),
            "".join(labels[1:]),
        )
        assert shown.replace("␠", "") == "고양이가먹었다"


def test_ids_are_shown_as_text_where_there_is_a_tokenizer():
    model = loaded()
    run = model.trace("고양이가 먹었다")
    again = model.trace(run.stacks[0].tokens[0].tolist())
    assert again.text == run.text == "고양이가 먹었다" and again.cells() == run.cells()
    assert [cell.text for cell in run.cells()][1:] == ["고양이가", "먹었다"]
    model.tokenizer = None
    assert [cell.text for cell in model.trace([1, 2, 3]).cells()] == ["1", "2", "3"]
    with pytest.raises(InputError, match="no tokenizer"):
        model.trace("text")


@pytest.mark.parametrize("wrong", [[[1, 2], [3]], ["a", "b"], [0.5, 1.5], None, [[[1]]]])
def test_other_inputs_are_refused(wrong):
    with pytest.raises(InputError, match="give a text, a list of token ids, or a batch"):
        loaded().trace(wrong)


def test_wrong_ids_are_refused():
    model = loaded()
    for wrong in ([], [-1], [model.spec.vocab]):
        with pytest.raises(InputError, match="no tokens were given|outside the vocabulary"):
            model.trace(wrong)
    with pytest.raises(InputError, match="the text is empty"):
        model.trace("")
    with pytest.raises(InputError, match="give a pair"):
        loaded(pair()).trace("a")
