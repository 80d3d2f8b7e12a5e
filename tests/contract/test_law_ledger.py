"""The law of the ledger: whatever the layers, the parts of a number add up to it, and each is what it says it is."""

import pytest
import torch
import torch.nn.functional as F
from quick import quick_first

import glassformer as gf
from contract import image_cases
from contract.cases import CASES, CAUSAL, DIM, VOCAB, built, drawn, kept, source_of, stack, tokens_of
from glassformer.data.display import Cell
from glassformer.errors import InputError, MemoryLimitError, UnsupportedError
from glassformer.explain.contributions import contributions
from glassformer.explain.explainer import has_tokens
from glassformer.explain.ledger import ledger
from glassformer.explain.sight import through
from glassformer.explain.target import Target
from glassformer.mixers.attention import AttentionSpec
from glassformer.mixers.base import TokenMixer
from glassformer.mixers.conv import ConvSpec
from glassformer.mixers.fixed import BagSpec, FourierSpec
from glassformer.mixers.linear import FixedDecaySpec, LinearSpec
from glassformer.mixers.mamba import MambaSpec
from glassformer.mixers.multihead import SoftmaxAttention
from glassformer.mixers.recurrent import GruSpec, LstmSpec
from glassformer.model import BlockSpec, EncoderDecoder, build_model
from glassformer.nn.channel import GatedSpec, MlpSpec
from glassformer.nn.embed import EmbedSpec
from glassformer.nn.norm import RMSNormSpec
from glassformer.nn.position import LearnedSpec
from glassformer.trace import Trace

FAMILIES = sorted({name.split("-")[0] for name in CASES})
T = 6  # the place that is explained, of 8


def trace_of(name, **how):
    """A run of the case over two rows, of which the second of an encoder-decoder's source is padded."""
    model, tokens = kept(name), tokens_of(2, 8)
    if not isinstance(model, EncoderDecoder):
        return Trace(model, tokens, **how)
    source, pos = source_of(2)
    return Trace(model, (source, tokens), pos=(pos, None), **how)


@pytest.mark.parametrize("family", FAMILIES)
def test_parts_add_up_in_every_layer_and_wiring(family):
    wrong = {}
    for name in (one for one in CASES if one.split("-")[0] == family):
        run = trace_of(name)
        of_logits = "vector" if run.stacks[-1].model.head is None else "log-probability"
        for what, depth in (("vector", "parts"), (of_logits, "tokens")):
            found = ledger(run, Target(what=what, token=T), depth, row=1)
            if not found.error < 1e-5 or not found.whole:
                wrong[name, what, depth] = found.error
            if name in CAUSAL and found.by_token(8)[T + 1 :].abs().sum():
                wrong[name, what, depth] = "a later token has a part"
    assert not wrong, "\n".join(map(str, wrong.items()))


@pytest.mark.parametrize("name", [one for one in image_cases.CASES if not one.startswith(("headless", "pooler"))])
def test_parts_of_a_class_add_up(name):
    model = image_cases.kept(name)
    run = Trace(model, image_cases.images_of(name, 2))
    if not has_tokens(run):
        with pytest.raises(InputError, match="work on no tokens"):
            ledger(run)
        return
    for what in ("logit", "difference"):
        for depth in ("parts", "tokens"):
            found = ledger(run, Target(what=what, candidate="#1"), depth, row=1)
            assert found.error < 1e-5 and found.whole
            assert found.by_token(len(model.embed.names())).abs().min() > 0


def test_every_place_of_the_residual_stream_can_be_taken_apart():
    """And no part of it is more than what was added before that place."""
    for name in ("wiring-post", "wiring-sandwich", "cross-plain", "hybrid"):
        run = trace_of(name)
        for vector in [one for one in run.names() if one.rpartition(".")[2].startswith("resid_")]:
            found = ledger(run, Target(what="vector", token=T, vector=vector))
            layer = int(vector.partition("blocks.")[2].split(".")[0])
            assert found.error < 1e-5 and found.whole == pytest.approx(
                run.part(vector, b=0, t=T).norm().item(), rel=1e-5
            )
            assert all(part.layer is None or part.layer <= layer for part in found.parts), vector
            assert vector.endswith("_in") is all(part.layer != layer for part in found.parts)


@pytest.mark.parametrize("family", ["align", "mixer", "start", "width"])
def test_what_tokens_hand_to_each_other_adds_up_to_what_a_mixer_gives(family):
    """The vectors of the flow, which go forward where the ledger comes back."""
    wrong = {}
    for name in (one for one in CASES if one.split("-")[0] == family):
        run = trace_of(name)
        stack, cells = run.stacks[-1], [Cell(str(i), (i,), 0, 0, "") for i in range(8)]
        if isinstance(stack.model.blocks[-1].mixer, SoftmaxAttention):  # see test_explained_flow.py
            continue
        found = contributions(run, stack, stack.model.blocks[-1].mixer.path, cells, rows=[2, T])
        seen = through(stack.model.blocks[-1].mixer, 8, 7, rows=[2, T])
        if not found.error < 1e-5 or (found.norms * ~seen).max() > 1e-6 or not found.norms.max():
            wrong[name] = found.error
    assert not wrong, "\n".join(map(str, wrong.items()))


SHOWING = ["cross-plain", "hybrid", "mixer-gru-both", "mixer-kv-2", "mixer-mamba", "start-gru", "wiring-post"]


@pytest.mark.parametrize("name", quick_first(CASES, SHOWING))
def test_parts_are_vectors_that_add_up(name):
    """To what leaves the last block; and along the gradient of the number each is what the ledger says without them."""
    run = trace_of(name)
    of_logits = "vector" if run.stacks[-1].model.head is None else "log-probability"
    for what, depth in (("vector", "parts"), (of_logits, "tokens")):
        target = Target(what=what, token=T)
        found, plain = (ledger(run, target, depth, row=1, vectors=one) for one in (True, False))
        last = run.stacks[-1].entry(len(run.stacks[-1].model.blocks))
        assert torch.equal(found.vector, run.part(last, b=1, t=T).double()), (what, depth)
        assert found.apart < 1e-5 and found.error < 1e-5 and plain.vector is None, (what, depth)
        wanted = {(part.name, part.kind, part.layer): part.values for part in plain.parts}
        values = {(part.name, part.kind, part.layer): part.values for part in found.parts}
        assert wanted.keys() == values.keys() and found.says == plain.says
        largest = max(one.abs().max().item() for one in wanted.values())
        for key, one in wanted.items():
            assert torch.allclose(values[key], one, rtol=0, atol=1e-5 * largest), key


def test_vectors_are_what_was_added():
    """Before any norm they are the traced values themselves, a head's α_ts v_s W_O^h; of any vector of the stream."""
    run = trace_of("mixer-kv-2")
    for vector, blocks in (("blocks.1.resid_mid", 2), ("blocks.0.resid_in", 0), ("", 2)):
        found = ledger(run, Target(what="vector", token=T, vector=vector), vectors=True)
        assert found.apart < 1e-5
        parts = {part.name: part for part in found.parts}
        assert torch.equal(parts["embed.token"].vectors.nonzero()[:, 0].unique(), torch.tensor([T]))
        assert torch.allclose(parts["embed.token"].vectors[T], run["embed.token"][0, T].double())
        for i in range(blocks):
            at = f"blocks.{i}.mixer"
            pattern, v = run[f"{at}.pattern"][0, :, T].double(), run[f"{at}.v"][0].double()
            out = run.model.get_submodule(at).out.weight.double().detach().view(DIM, 4, -1)
            wanted = torch.einsum("hs,she,dhe->hsd", pattern, v.repeat_interleave(2, 1), out)
            assert torch.allclose(parts[f"{at}.head_out"].vectors, wanted, rtol=1e-5, atol=1e-7)
            if f"blocks.{i}.channel.out" in parts:
                written = run[f"blocks.{i}.channel.out"][0, T].double()
                assert torch.allclose(parts[f"blocks.{i}.channel.out"].vectors[T], written, rtol=1e-5, atol=1e-7)
    behind = ledger(run, Target(token=T, candidate="#5"), vectors=True).parts
    assert [part.name for part in behind if part.vectors is None] == ["norm.bias"]


def test_what_has_no_vectors_is_refused():
    run, target = trace_of("mixer-plain"), Target(token=T)
    with pytest.raises(InputError, match="ask for them, as ledger"):
        _ = ledger(run, target).apart
    small = Trace(kept("mixer-plain"), tokens_of(1, 8), limit_bytes=1 << 13)
    with pytest.raises(MemoryLimitError, match="the vectors of all parts take"):
        ledger(small, target, vectors=True)
    runs = (Trace(image_cases.kept(name), image_cases.images_of(name, 1)) for name in image_cases.CASES)
    with pytest.raises(InputError, match="read from several places; use what=vector"):
        ledger(next(one for one in runs if has_tokens(one)), vectors=True)


# ---------------------------------------------------------------- against what can be worked out by hand


def test_attention_by_matrix_products():
    """Attention alone before the norm: ⟨γ ⊙ centred(α_ts v_s W_O^h)/σ, w_c⟩ of the model's own weights, in fp64."""
    spec = stack(*[BlockSpec(mixer=AttentionSpec(kv_heads=2, bias=True, out_bias=True), channel=None)] * 2)
    model = drawn(build_model(spec.changed(embed=EmbedSpec(position=LearnedSpec()))))
    run = Trace(model, tokens_of(1, 8))
    found = ledger(run, Target(token=T, candidate="#5"))
    x, norm = run["blocks.1.resid_out"][0, T].double(), model.norm
    read = model.head.weight[5].double().detach()

    def share(vector):  # through the last norm with its scale as it was
        scale = (x - x.mean()).square().mean().add(norm.spec.eps).rsqrt()
        return ((vector - vector.mean(-1, keepdim=True)) * scale * norm.weight.double().detach()) @ read

    heads = [part for part in found.parts if part.kind == "head"]
    for layer, part in enumerate(heads):
        at = f"blocks.{layer}.mixer"
        pattern, v = run[f"{at}.pattern"][0, :, T].double(), run[f"{at}.v"][0].double()
        out = model.blocks[layer].mixer.out.weight.double().detach().view(DIM, 4, -1)
        vectors = torch.einsum("hs,she,dhe->hsd", pattern, v.repeat_interleave(2, 1), out)
        assert torch.allclose(part.values, share(vectors), rtol=1e-5, atol=1e-7)
    for name in ("embed.token", "embed.position"):
        [part] = [part for part in found.parts if part.name == name]
        assert part.values[T] == pytest.approx(share(run[name][0, T].double()).item(), rel=1e-5)
        assert part.values.count_nonzero() == 1
    biases = {part.name: part.total for part in found.parts if part.kind == "bias"}
    wanted = {f"blocks.{i}.mixer.out.bias": share(model.blocks[i].mixer.out.bias.double().detach()) for i in range(2)}
    wanted["norm.bias"] = norm.bias.double().detach() @ read
    assert biases == pytest.approx({name: value.item() for name, value in wanted.items()}, rel=1e-5)


LINEAR = {
    "bag": BagSpec(),
    "conv": ConvSpec(width=3, dilation=2),
    "fourier": FourierSpec(unitary=True),
}


@pytest.mark.parametrize("name", LINEAR)
def test_in_a_linear_model_a_part_is_what_removing_it_changes(name):
    model = drawn(build_model(stack(*[BlockSpec(mixer=LINEAR[name], channel=None, norm=None)] * 2, norm=None)))
    run = Trace(model, tokens_of(1, 8))
    target = Target(token=T, candidate="#5")
    deep = ledger(run, target, "tokens")
    [embedding] = [part for part in deep.parts if part.kind == "embedding"]
    shallow = {(part.kind, part.layer): part for part in ledger(run, target).parts}
    for s in range(8):
        without = Trace(model, tokens_of(1, 8), edits=gf.zero("embed.token", t=s)).logits[0, T, 5]
        assert embedding.values[s] == pytest.approx((run.logits[0, T, 5] - without).item(), abs=2e-6)
        cut = Trace(model, tokens_of(1, 8), edits=gf.zero("blocks.0.resid_out", t=s)).logits[0, T, 5]
        wanted = shallow["mixer", 1].values[s]
        if s == T:  # the token's own vector goes past the mixer as well
            wanted = wanted + sum(p.values[s] for (_, layer), p in shallow.items() if layer is None and p.axes == "t")
            wanted = wanted + sum(p.total for (kind, layer), p in shallow.items() if layer == 0)
        assert wanted.item() == pytest.approx((run.logits[0, T, 5] - cut).item(), abs=2e-6)


def test_a_gru_with_its_gates_held_still():
    """h_t = (1 - z) c_t (W_n x_t + b + r (U_n h + b_U)) + z h, c = tanh(p)/p: a part of s is pushed through by hand."""
    model = drawn(build_model(stack(BlockSpec(mixer=GruSpec(hidden=12), channel=None, norm=None), norm=None)))
    run = Trace(model, tokens_of(1, 8))
    mixer, x = model.blocks[0].mixer, run["blocks.0.resid_in"][0].double()
    cell = mixer.cell
    hidden = run["blocks.0.mixer.cell.hidden"][0].double()
    r, z = (run[f"blocks.0.mixer.cell.{name}"][0].double() for name in ("reset", "update"))
    weight, recurrent, bias, carried = (
        one.double().detach() for one in (cell.weight[24:], cell.recurrent[24:], cell.bias[24:], cell.recurrent_bias)
    )
    past = F.pad(hidden, (0, 0, 1, 0))[:-1]
    pre = x @ weight.T + bias + r * (past @ recurrent.T + carried)
    slope = torch.tanh(pre) / pre
    read = model.head.weight[5].double().detach() @ mixer.out.weight.double().detach()

    def pushed(inputs, biases):
        h = torch.zeros(12, dtype=torch.float64)
        for t in range(T + 1):
            inner = inputs[t] @ weight.T + r[t] * (h @ recurrent.T) + biases * (bias + r[t] * carried)
            h = (1 - z[t]) * slope[t] * inner + z[t] * h
        return (h @ read).item()

    found = ledger(run, Target(token=T, candidate="#5"))
    [part] = [part for part in found.parts if part.kind == "mixer"]
    for s in range(8):
        assert part.values[s].item() == pytest.approx(pushed(F.one_hot(torch.tensor(s), 8)[:, None] * x, 0), abs=1e-6)
    biases = sum(one.total for one in found.parts if one.kind == "bias" and ".cell." in one.name)
    assert biases == pytest.approx(pushed(0 * x, 1), abs=1e-6) and abs(biases) > 1e-3


def test_a_gated_mlp_is_linear_in_what_is_gated_and_an_activation_has_a_slope():
    """Depth tokens of one token: norms, gate and slope as they were; all else by matrix products."""
    for channel in (GatedSpec(hidden=20), MlpSpec(hidden=20, activation="sigmoid")):
        spec = stack(BlockSpec(mixer=BagSpec(), channel=channel, norm=RMSNormSpec()), norm=None)
        model = drawn(build_model(spec))
        run = Trace(model, tokens_of(1, 1))
        found = ledger(run, Target(token=0, candidate="#5"), "tokens")
        part, read = model.blocks[0].channel, model.head.weight[5].double().detach()
        up, down = part.up.weight.double().detach(), part.down.weight.double().detach()
        pre = run["blocks.0.channel.pre"][0, 0].double()
        if isinstance(channel, GatedSpec):
            factor, start = run["blocks.0.channel.gate"][0, 0].double(), torch.zeros(20).double()
        else:
            factor, start = (torch.sigmoid(pre) - 0.5) / pre, torch.full((20,), 0.5).double()
        first, second = (
            run[f"blocks.0.{name}.scale"][0, 0].double() * getattr(model.blocks[0], name).weight.double().detach()
            for name in ("mixer_norm", "channel_norm")
        )
        x = run["embed.token"][0, 0].double()
        x = x + x * first
        x = x + down @ (factor * (up @ (x * second)))
        [embedding] = [part for part in found.parts if part.kind == "embedding"]
        assert embedding.total == pytest.approx((x @ read).item(), abs=1e-6)
        biases = torch.zeros(20).double() if part.up.bias is None else factor * part.up.bias.double().detach()
        wanted = down @ (start + biases) + (0 if part.down.bias is None else part.down.bias.double().detach())
        assert sum(one.total for one in found.parts if one.kind == "bias") == pytest.approx(
            (wanted @ read).item(), abs=1e-6
        )


@pytest.mark.parametrize("mixer", [AttentionSpec(), LstmSpec(), LinearSpec(decay=FixedDecaySpec()), MambaSpec(state=3)])
def test_edits_are_taken_along(mixer):
    """What an edit puts somewhere is a part of its own; what it switches off has none."""
    block = BlockSpec(mixer=mixer)
    model = drawn(build_model(stack(block, block)))
    out = "blocks.0.mixer.out"
    put = torch.linspace(-1, 2, DIM)
    edits = [gf.add(out, put, t=T), gf.scale("blocks.1.channel.out", 0.5), gf.noise("blocks.0.resid_out", 0.3, seed=1)]
    run = Trace(model, tokens_of(1, 8), edits=[*edits, gf.zero("blocks.1.mixer.out")])
    for depth in ("parts", "tokens"):
        found = ledger(run, Target(token=T, candidate="#5"), depth)
        assert found.error < 1e-4
        put = {part.name: part.total for part in found.parts if part.kind == "edit"}
        assert put.keys() == {out, "blocks.0.resid_out"} and all(put.values())
        if depth == "parts":
            assert all(part.total == 0 for part in found.parts if part.name.startswith("blocks.1.mixer"))


@pytest.mark.parametrize(
    "name",
    quick_first(
        INSIDE := [one for one in CASES if one.split("-")[0] in ("mixer", "start", "align")],
        ["mixer-gru", "mixer-lstm", "mixer-rnn", "mixer-linear-decay"],
    ),
)
def test_edits_inside_a_mixer_are_taken_along(name):
    """In cells that go on position by position too: all that follows reads the edited value, and the sum closes. What
    is put among the values that are added up is a part by itself; what is put into a gate is none."""
    plain, wrong = trace_of(name), {}
    at = f"{plain.stacks[-1].prefix}blocks.0.mixer."
    values = [one for one in plain.names() if one.startswith(at) and "t" in plain.axes(one).split()]
    for value in values:
        for kind, edit in (("add", gf.add(value, 0.3, t=3)), ("replace", gf.replace(value, 0.4, t=3))):
            try:
                run = trace_of(name, edits=[edit, gf.scale(value, 0.5, t=4)])
            except InputError:
                continue
            for depth in ("parts", "tokens"):
                found = ledger(run, Target(what="vector", token=T), depth)
                put = [part.name for part in found.parts if part.kind == "edit"]
                if not found.error < 1e-4 or (value.endswith(("cell.hidden", "mixer.out")) and put != [value]):
                    wrong[value, kind, depth] = found.error, put
    assert values and not wrong, "\n".join(map(str, wrong.items()))


@pytest.mark.parametrize("family", FAMILIES)
def test_what_an_edit_draws_from_later_places_is_taken_along(family):
    """A mean and a resample reach a place of a causal stack from behind it, in whatever row of the batch."""
    wrong = {}
    for name in (one for one in CASES if one.split("-")[0] == family):
        prefix = trace_of(name).stacks[-1].prefix
        for edit in (gf.mean(f"{prefix}blocks.0.resid_out"), gf.resample(f"{prefix}blocks.0.resid_out", seed=2)):
            run = trace_of(name, edits=edit)
            for depth in ("parts", "tokens"):
                found = ledger(run, Target(what="vector", token=3), depth, row=1)
                if not found.error < 1e-4:
                    wrong[name, edit.kind, depth] = found.error
    assert not wrong, "\n".join(map(str, wrong.items()))


def test_a_later_token_has_a_part_where_an_edit_brings_it_in():
    run = trace_of("mixer-plain", edits=gf.mean("blocks.0.resid_out"))
    assert ledger(run, Target(what="vector", token=2), "tokens").by_token(8)[3:].abs().min() > 1e-4
    assert not ledger(trace_of("mixer-plain"), Target(what="vector", token=2), "tokens").by_token(8)[3:].any()


def test_edits_of_one_row_are_no_part_of_another():
    """A row of a batch is taken apart with its own edits, its own share of what they put in, and its own noise."""
    out, put = "blocks.0.mixer.out", torch.randn(2, 8, DIM, generator=torch.Generator().manual_seed(1))
    edits = [gf.add(out, 5.0, b=0, t=2), gf.scale("blocks.1.channel.out", 0.5, b=1), gf.add(out, put)]
    edits += [gf.noise("blocks.0.resid_out", 0.3, seed=4), gf.replace("blocks.1.mixer.out", put[:1, :1], b=[1], t=[T])]
    for name in ("mixer-plain", "mixer-gru", "wiring-post"):
        run = trace_of(name, edits=edits)
        for row in (0, 1):
            for depth in ("parts", "tokens"):
                found = ledger(run, Target(what="vector", token=T), depth, row=row)
                assert found.error < 1e-4, (name, row, depth, found.error)
        mine = {
            part.name: part.total
            for part in ledger(run, Target(what="vector", token=T), row=0).parts
            if part.kind == "edit"
        }
        assert "blocks.1.mixer.out" not in mine and mine["blocks.0.resid_out"]


@pytest.mark.parametrize(
    "name", ["mixer-plain", "mixer-gru", "mixer-mamba", "mixer-mamba2", "mixer-linear", "mixer-delta"]
)
def test_what_tokens_hand_over_in_one_row_has_no_edit_of_another(name):
    out = "blocks.0.mixer.out"
    noise = gf.noise(out, 0.4, seed=3, b=0)
    alone, both = (trace_of(name, edits=edits) for edits in ([noise], [noise, gf.scale(out, 3.0, b=1)]))
    cells = [Cell(str(i), (i,), 0, 0, "") for i in range(8)]
    first, second = (contributions(run, run.stacks[-1], "blocks.0.mixer", cells) for run in (alone, both))
    assert torch.equal(first.norms, second.norms) and second.error < 1e-5


def test_what_is_cut_has_no_part_whatever_the_mixer():
    """The ledger of a run without an edge adds up too, and the token that was cut is not in that mixer's part."""
    wrong = {}
    for name in (one for one in CAUSAL if one.startswith("mixer-")):
        path = next(one for one, part in kept(name).named_modules() if isinstance(part, TokenMixer))
        try:
            run = trace_of(name, edits=gf.cut(path, t=T, s=2))
            found = {depth: ledger(run, Target(what="vector", token=T), depth) for depth in ("parts", "tokens")}
        except UnsupportedError:
            continue
        lost = [one for one in found["parts"].parts if one.name.startswith(f"{path}.") and "s" in one.axes]
        assert lost, name
        left = max(one.values[..., 2].abs().max() / one.values.abs().max() for one in lost)
        if not max(one.error for one in found.values()) < 1e-5 or left > 1e-6:
            wrong[name] = ([one.error for one in found.values()], left)
    assert not wrong, "\n".join(map(str, wrong.items()))


def test_a_target_is_a_candidate_by_number_or_what_is_most_probable():
    run = Trace(kept("mixer-plain"), tokens_of(1, 8))
    logits = run.logits[0, 3]
    first, second = logits.topk(2).values.tolist()
    assert ledger(run, Target(token=3)).whole == pytest.approx(first)
    assert ledger(run, Target(token=-5, candidate="#7")).whole == pytest.approx(logits[7].item())
    assert ledger(run, Target(token=3, what="difference")).whole == pytest.approx(first - second, abs=1e-6)
    assert ledger(run, Target(token=3, what="log-probability", candidate="#7")).whole == pytest.approx(
        logits.log_softmax(0)[7].item()
    )
    for wrong, said in (
        (Target(token=8), "token"),
        (Target(candidate=f"#{VOCAB}"), "there is no #23"),
        (Target(candidate="cat"), "by its id"),
        (Target(what="difference", candidate="#3", against="#3"), "the candidate itself"),
        (Target(what="vector", vector="blocks.0.mixer.q"), "no vector of the residual stream"),
        (Target(what="logit", vector="blocks.0.resid_out"), "only what=vector"),
    ):
        with pytest.raises(InputError, match=said):
            ledger(run, wrong)
    two = Trace(kept("mixer-plain"), tokens_of(2, 8), pos=torch.tensor([[*range(8)], [-1, -1, *range(6)]]))
    with pytest.raises(InputError, match="place 1 is padding"):
        ledger(two, Target(token=1), row=1)
    with pytest.raises(InputError, match="only a vector is measured along one"):
        ledger(run, direction=torch.ones(DIM))
    with pytest.raises(InputError, match="is not that of"):
        ledger(run, Target(what="vector"), direction=torch.ones(3))
    with pytest.raises(InputError, match="no vector of the residual stream"):
        ledger(trace_of("mixer-rmt"), Target(what="vector", vector="blocks.0.mixer.layers.0.resid_out"))
    with pytest.raises(InputError, match="gives no logits"):
        ledger(Trace(built("head-none"), tokens_of(1, 8)), Target(what="logit"))
