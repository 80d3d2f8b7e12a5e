"""The laws for models whose head reads one vector of the whole text: those of the other files, as far as they have a
meaning where each row gives one answer."""

import re

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from contract.cases import VOCAB, assert_same, drawn, relative_error, stack, tokens_of
from contract.test_law_cost import VIEWS
from glassformer.checkpoint import load_model, save_model
from glassformer.edit import noise, scale, zero
from glassformer.errors import InputError, SettingError, UnsupportedError
from glassformer.explain.cost import cost
from glassformer.mask import Mask
from glassformer.mixers.attention import AttentionSpec
from glassformer.model import AnySpec, BlockSpec, EncoderDecoderSpec, build_model
from glassformer.nn.embed import EmbedSpec
from glassformer.nn.norm import LayerNormSpec
from glassformer.nn.pool import PooledSpec
from glassformer.nn.position import LearnedSpec, RopeSpec
from glassformer.nn.rework import ReworkSpec
from glassformer.spec import from_json, to_json
from glassformer.stored import StoredTrace
from glassformer.tap import AXES, Probe
from glassformer.trace import Trace

HANGUL = re.compile("[가-힣]")
FULL = BlockSpec(mixer=AttentionSpec(mask=Mask(causal=False)), wiring="post")
NEAR = BlockSpec(mixer=AttentionSpec(mask=Mask(causal=False, window=3), position=RopeSpec(base=500.0)))
CASES = {
    "pooler": stack(
        FULL,
        FULL,
        embed=EmbedSpec(types=2, position=LearnedSpec(), norm=LayerNormSpec()),
        norm=None,
        head=PooledSpec(pooler=ReworkSpec(activation="tanh")),
    ),
    "classes": stack(FULL, head=PooledSpec(classes=3, labels=("a", "b", "c"))),
    "reworked-classes": stack(
        NEAR.changed(first_norm=False),
        NEAR,
        head=PooledSpec(
            pool="mean",
            pooler=ReworkSpec(bias=False, norm=LayerNormSpec(bias=False)),
            classes=4,
            scores="sigmoid",
        ),
    ),
    "mean": stack(NEAR, embed=EmbedSpec(position=LearnedSpec()), head=PooledSpec(pool="mean", unit=True)),
    "narrowed": stack(FULL, head=PooledSpec(pooler=ReworkSpec(width=6, activation="none"), unit=True)),
    "last": stack(BlockSpec(mixer=AttentionSpec()), head=PooledSpec(pool="last")),
}
each = pytest.mark.parametrize("name", CASES)
MODELS = {name: drawn(build_model(spec)) for name, spec in CASES.items()}


def traced(name, tokens, **extra):
    probe = Probe(**extra)
    with torch.no_grad():
        return MODELS[name](tokens, probe=probe), probe


@each
def test_looking_at_everything_changes_nothing_and_every_value_has_its_card(name):
    model, tokens = MODELS[name], tokens_of(3, 7)
    found, probe = traced(name, tokens)
    with torch.no_grad():
        assert_same(found, model(tokens))
    assert len(found) == 3 and found.ndim == 2
    modules = dict(model.named_modules())
    for full, value in probe.values.items():
        path, _, short = full.rpartition(".")
        letters = probe.axes[full].split()
        assert modules[path].path == path and set(letters) <= AXES.keys() and len(letters) == value.ndim
        card = modules[path].cards[short]
        assert card.symbol and card.formula and card.en.endswith(".") and HANGUL.search(card.ko), full
    for path, module in model.named_modules():
        tapped = {full.rpartition(".")[2] for full in probe.values if full.rpartition(".")[0] == path}
        assert tapped in (set(getattr(module, "cards", {})), set()), path
    assert list(probe.values)[-1] == f"head.{model.head.output}"


@each
def test_an_edit_of_any_value_acts_and_acts_alike_on_the_fast_path(name):
    tokens = tokens_of(2, 6)
    plain, probe = traced(name, tokens)
    for full in probe.values:
        for edit in (noise(full, 1.0), scale(full, -1.0), zero(full)):
            fast, glass = (traced(name, tokens, want=lambda _, a=a: a, edits=(edit,))[0] for a in (False, True))
            assert relative_error(fast.nan_to_num(), glass.nan_to_num()) < 1e-4, full
            if edit.kind == "noise":
                assert relative_error(glass.nan_to_num(), plain) > 1e-4, f"editing {full} changed nothing"


PLACES = torch.tensor([[-1, -1, -1, 0, 1, 2, 3], [0, 1, 2, 3, 4, -1, -1], [0, -1, 1, 2, -1, -1, 3]])


@each
def test_places_without_a_token_change_nothing(name):
    model, tokens = MODELS[name], tokens_of(3, 7)
    with torch.no_grad():
        found = model(tokens, pos=PLACES)
        wanted = torch.cat([model(tokens[i, there][None]) for i, there in enumerate(PLACES >= 0)])
        assert_same(found, wanted)
        # One row of positions for all rows of the batch.
        assert_same(model(tokens, pos=PLACES[2:]), torch.cat([model(row[None], pos=PLACES[2:]) for row in tokens]))


@each
def test_gradients_of_a_padded_batch_are_the_sum_of_the_rows(name):
    model, tokens = MODELS[name], tokens_of(3, 7)
    parameters = list(model.parameters())
    found = torch.autograd.grad(model(tokens, pos=PLACES).sin().sum(), parameters)
    rows = [model(tokens[i, there][None], probe=Probe()) for i, there in enumerate(PLACES >= 0)]
    wanted = torch.autograd.grad(sum(row.sin().sum() for row in rows), parameters)
    largest = max(g.abs().max() for g in wanted)
    for (label, _), a, b in zip(model.named_parameters(), found, wanted, strict=True):
        assert (a - b).abs().max() <= 1e-5 * largest, label


@each
def test_a_trace_recomputes_every_value_under_a_tight_limit_and_comes_back_from_its_file(name, tmp_path):
    model, tokens = MODELS[name], tokens_of(2, 6)
    out, probe = traced(name, tokens)
    largest = max(value.numel() for value in probe.values.values())
    for limit in (1 << 30, 64 * largest):
        trace = Trace(model, tokens, limit_bytes=limit)
        assert trace.names() == list(probe.values)
        assert_same(trace.logits, out)
        for full, value in probe.values.items():
            assert [size for _, size in trace.sizes(full)] == list(value.shape)
            infinite = value.isinf()
            assert_same(trace[full].masked_fill(infinite, 0), value.masked_fill(infinite, 0))
    assert all(value < 1e-5 for value in trace.difference().values())
    assert_same(trace.part("norm.out", t=4) if model.norm else trace.part("blocks.1.resid_out", t=4), _row(probe, 4))
    trace.save(tmp_path / "a.safetensors")
    assert StoredTrace(tmp_path / "a.safetensors").names() == trace.names()


def _row(probe, t):
    return next(probe.values[name] for name in ("norm.out", "blocks.1.resid_out") if name in probe.values)[:, t]


def test_classes_have_names(tmp_path):
    trace = Trace(MODELS["classes"], tokens_of(1, 3))
    assert trace.labels("k") == ["a", "b", "c"] and trace.axes("head.logits") == "b k"
    trace.save(tmp_path / "a.safetensors")
    assert StoredTrace(tmp_path / "a.safetensors").labels("k", "head.logits") == ["a", "b", "c"]
    assert Trace(MODELS["reworked-classes"], tokens_of(1, 3)).labels("k") == ["0", "1", "2", "3"]


@each
@pytest.mark.parametrize("n", [1, 9])
def test_flops_are_those_that_pytorch_counts(name, n):
    probe = Probe(lambda full: not full.endswith(VIEWS))
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        MODELS[name](tokens_of(1, n), probe=probe)
    told = cost(CASES[name], n)
    assert counter.get_total_flops() == told.flops
    assert told.parameters == sum(p.numel() for p in MODELS[name].parameters()) and told.state_bytes == 0


@each
def test_a_saved_model_comes_back_bit_by_bit(name, tmp_path):
    model, spec = MODELS[name], CASES[name]
    assert from_json(to_json(spec), AnySpec) == spec
    save_model(model, tmp_path)
    back = load_model(tmp_path)
    assert back.spec == spec
    with torch.no_grad():
        assert torch.equal(back(tokens_of(2, 6)), model(tokens_of(2, 6)))


@pytest.mark.parametrize("name", ["pooler", "mean", "last"])
def test_compiles_as_one_graph_with_padding(name):
    torch._dynamo.reset()
    model, tokens = MODELS[name], tokens_of(3, 7)
    compiled = torch.compile(lambda x, pos: model(x, pos=pos), backend="eager", fullgraph=True)
    with torch.no_grad():
        assert_same(compiled(tokens, PLACES), model(tokens, pos=PLACES))
    torch._dynamo.reset()


def test_the_vector_is_that_of_the_token_or_the_mean_and_of_length_1():
    tokens = tokens_of(2, 5)
    for name, read in (("pooler", lambda x: x[:, 0]), ("last", lambda x: x[:, -1]), ("mean", lambda x: x.mean(1))):
        _, probe = traced(name, tokens)
        vectors = probe.values.get("norm.out", probe.values[f"blocks.{len(CASES[name].blocks) - 1}.resid_out"])
        assert_same(probe.values["head.pooled"], read(vectors))
    assert_same(traced("mean", tokens)[0].norm(dim=-1), torch.ones(2))


def test_types_choose_their_vectors():
    model, tokens = MODELS["pooler"], tokens_of(2, 5)
    types = torch.tensor([[0, 0, 0, 1, 1], [0, 1, 1, 1, 1]])
    probe = Probe()
    with torch.no_grad():
        found = model(tokens, types=types, probe=probe)
        assert_same(model(tokens, types=torch.zeros_like(types)), model(tokens))
    assert torch.equal(probe.values["embed.types"], model.embed.types.weight[types])
    assert relative_error(found, MODELS["pooler"](tokens)) > 1e-3
    assert_same(Trace(model, tokens, types=types).logits, found)


def test_what_has_no_meaning_is_refused():
    model, tokens = MODELS["pooler"], tokens_of(1, 4)
    with pytest.raises(UnsupportedError, match=r"^head: it reads the whole text at once"):
        MODELS["last"].empty(1, 4)
    assert not MODELS["last"].causal
    with pytest.raises(InputError, match=r"^segments: this model gives one vector for each row"):
        model(tokens, segments=torch.zeros_like(tokens))
    with pytest.raises(InputError, match=r"^types: 2 is outside the 2 of this model \(0 to 1\)"):
        model(tokens, types=torch.tensor([[0, 1, 2, 0]]))
    with pytest.raises(InputError, match=r"^types: -1 is outside"):
        model(tokens, types=torch.full_like(tokens, -1))
    with pytest.raises(InputError, match=r"^types: give whole numbers of shape \(1, 4\)"):
        model(tokens, types=torch.zeros(1, 3, dtype=torch.long))
    with pytest.raises(InputError, match=r"^types: this model does not tell the parts"):
        MODELS["mean"](tokens, types=torch.zeros_like(tokens))
    with pytest.raises(SettingError, match=r"^labels: there are 2; give one for each of classes=3"):
        PooledSpec(classes=3, labels=("a", "b"))
    with pytest.raises(SettingError, match=r"^decoder: it needs a head"):
        EncoderDecoderSpec(encoder=stack(FULL, head=None), decoder=stack(FULL, head=PooledSpec()))
    with pytest.raises(SettingError, match=r"^first_norm: in post-norm no norm comes first"):
        BlockSpec(mixer=AttentionSpec(), wiring="post", first_norm=False)
    assert VOCAB == 23
