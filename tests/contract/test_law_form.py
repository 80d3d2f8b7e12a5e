"""The laws of form: one compiled graph, JSON round trip, meta device, and checkpoints that come back bit by bit."""

import pytest
import torch
from quick import quick_first

from contract.cases import CASES, CAUSAL, assert_same, built, kept, run, start, tokens_of
from glassformer.checkpoint import load_model, save_model
from glassformer.model import AnySpec, EncoderDecoder, ModelSpec, build_model
from glassformer.spec import from_json, to_json

# Compiling takes a second or more, so that the quick run compiles one case for every different line of code.
QUICK = {
    *("mixer-rope-yarn", "mixer-relative-shared", "mixer-sink", "mixer-full", "channel-experts", "mixer-xl-segment"),
    *("mixer-delta-gated", "mixer-mamba2-groups", "cross-kv-1", "mixer-conv-centred", "mixer-fourier"),
    "mixer-lstm-both",
}
QUICK_STEPS = {
    *("mixer-sink-relative", "cross-plain", "mixer-sinks", "mixer-lstm", "mixer-mamba"),
}
# Not in one graph with padding or packing, and why.
SEGMENTS = "its segments begin where the documents do, so that how many there are is only known from the data"
PADDED_REFUSED = {"mixer-rmt": SEGMENTS, "mixer-rmt-gated": SEGMENTS}
QUICK_PADDED = {
    *("mixer-smear", "channel-experts", "mixer-conv-dilated", "mixer-gru", "mixer-mixing", "mixer-bag"),
    *("mixer-memory-sparse", "mixer-xl-segment", "mixer-mamba2"),
}
PACKABLE = [name for name, spec in CASES.items() if isinstance(spec, ModelSpec)]


@pytest.fixture
def compiled():
    torch._dynamo.reset()
    yield lambda f: torch.compile(f, backend="eager", fullgraph=True)
    torch._dynamo.reset()


@pytest.mark.parametrize("name", quick_first(list(CASES), QUICK))
def test_compiles_as_one_graph(name, compiled):
    model, tokens = kept(name), tokens_of(2, 6)
    with torch.no_grad():
        assert_same(compiled(lambda x: run(model, x))(tokens), run(model, tokens))


@pytest.mark.parametrize("name", quick_first([n for n in PACKABLE if n not in PADDED_REFUSED], QUICK_PADDED))
def test_compiles_as_one_graph_with_padding_and_packing(name, compiled):
    model, tokens = kept(name), tokens_of(2, 6)
    pos = torch.tensor([[0, 1, 2, 0, 1, -1], [-1, -1, 0, 1, 2, 3]])
    segments = torch.tensor([[1, 1, 1, 2, 2, 2], [1, 1, 1, 1, 1, 1]])
    with torch.no_grad():
        found = compiled(lambda x: model(x, pos=pos, segments=segments))(tokens)
        wanted = model(tokens, pos=pos, segments=segments)
    assert_same(found[pos >= 0], wanted[pos >= 0])


@pytest.mark.parametrize("name", PADDED_REFUSED)
def test_what_does_not_compile_with_padding_is_named(name, compiled):
    """As soon as it does, it belongs to those above."""
    model, pos = kept(name), torch.tensor([[0, 1, 2, 3, 4, -1], [-1, -1, 0, 1, 2, 3]])
    with torch.no_grad(), pytest.raises(torch._dynamo.exc.UserError, match="data-dependent"):
        compiled(lambda x: model(x, pos=pos))(tokens_of(2, 6))


@pytest.mark.parametrize("name", quick_first(CAUSAL, QUICK_STEPS))
def test_steps_compile_as_one_graph(name, compiled):
    model, tokens = kept(name), tokens_of(2, 6)
    stack = model.decoder if isinstance(model, EncoderDecoder) else model
    step = compiled(lambda x, state: stack.step(x, state))
    with torch.no_grad():
        first, state = step(tokens[:, :4], start(model, 2, 6))
        second, state = step(tokens[:, 4:5], state)
        third, _ = step(tokens[:, 5:6], state)
        assert_same(torch.cat((first, second, third), 1), run(model, tokens))


@pytest.mark.parametrize("name", CASES)
def test_json_round_trip(name):
    spec = CASES[name]
    assert from_json(to_json(spec), AnySpec) == spec
    assert from_json(to_json(spec, None).encode(), AnySpec) == spec
    assert hash(from_json(to_json(spec), AnySpec)) == hash(spec)


@pytest.mark.parametrize("name", CASES)
def test_builds_on_the_meta_device(name):
    with torch.device("meta"):
        model = build_model(CASES[name])
    wanted = {n: p.shape for n, p in kept(name).named_parameters()}
    assert {n: p.shape for n, p in model.named_parameters()} == wanted
    assert all(p.is_meta for p in model.parameters())


@pytest.mark.parametrize("name", CASES)
def test_a_saved_model_comes_back_bit_by_bit(name, tmp_path):
    model = built(name)
    save_model(model, tmp_path)
    back = load_model(tmp_path)
    assert back.spec == model.spec and not back.training
    given, found = model.state_dict(keep_vars=True), back.state_dict(keep_vars=True)
    assert list(found) == list(given)
    for key, value in given.items():
        assert torch.equal(found[key], value) and found[key].requires_grad, key
        # What was one tensor under two names is one again.
        ties = [other for other in given if given[other] is value]
        assert [other for other in found if found[other] is found[key]] == ties
    tokens = tokens_of(2, 6)
    with torch.no_grad():
        assert torch.equal(run(back, tokens), run(model, tokens))
