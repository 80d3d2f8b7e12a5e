"""Attributions against derivatives, runs of other texts and products of attention written out here."""

from itertools import product

import numpy as np
import pytest
import torch
from page_runs import runs
from sheet_models import ROPE, SPECS, drawn, loaded, pair, stack

import glassformer as gf
from glassformer.api import Loaded
from glassformer.block import BlockSpec
from glassformer.data.published import Published
from glassformer.data.published import Settings as Beside
from glassformer.errors import InputError, UnsupportedError
from glassformer.explain.answer import Answer
from glassformer.explain.attribution import attribution, integrated
from glassformer.explain.flowing import most_flowing
from glassformer.explain.ledger import ledger
from glassformer.explain.target import Target
from glassformer.mixers.fixed import BagSpec
from glassformer.mixers.recurrent import LstmSpec
from glassformer.model import build_model
from glassformer.nn.head import HeadSpec
from glassformer.tap import Probe

TEXT = "고양이가 생선을 먹었다"
RUNS = runs()


@pytest.fixture(scope="module")
def run():
    return loaded().trace(TEXT)


def logit(run, candidate=5, **target):
    return Answer(run, Target(candidate=f"#{candidate}", **target))


def forward(model, x):
    """Logit 5 behind the last place of vectors `t d`, the blocks written out."""
    call = model.call(torch.zeros(1, len(x), dtype=torch.long))
    y = x[None]
    for block in model.blocks:
        y, _ = block(y, call)
    return model.finish(y, call)[0, -1, 5]


# ---------------------------------------------------------------- gradients


def test_gradient_times_input(run):
    x = run.model.embed.token.weight.detach()[run.stacks[0].tokens[0]]
    gradient = torch.autograd.functional.jacobian(lambda x: forward(run.model, x), x)
    answer = logit(run)
    assert answer.value == pytest.approx(run.logits[0, -1, 5].item(), rel=1e-5)
    assert attribution(answer, "gradient").scores.tolist() == pytest.approx(
        (gradient * x).sum(1).tolist(), rel=1e-3, abs=1e-5
    )
    second = torch.arange(len(x))[None] % 20
    other = run.model.embed.token.weight.detach()[second[0]]
    found = attribution(answer, "patching", second=second)
    assert found.scores.tolist() == pytest.approx((gradient * (x - other)).sum(1).tolist(), rel=1e-3, abs=1e-5)
    with pytest.raises(InputError, match=f"second: it has 3 tokens and this text has {len(x)}"):
        attribution(answer, "patching", second=second[:, :3])
    with pytest.raises(InputError, match="second: it is empty"):
        gf.explain("attribution", run, method="patching")


def test_integrated_gradients_follow_the_straight_way_and_add_up(run):
    model, table = run.model, run.model.embed.token.weight.detach()
    x, mean = table[run.stacks[0].tokens[0]], table.mean(0)
    count, total = 250, torch.zeros_like(x)
    for places in ((torch.arange(count) + 0.5) / count).split(50):
        way = [(mean + place * (x - mean)).requires_grad_() for place in places]
        total += sum(torch.autograd.grad(sum(forward(model, one) for one in way), way)) / count
    wanted = (total * (x - mean)).sum(1)
    found = integrated(logit(run), 64)
    assert found.scores.tolist() == pytest.approx(wanted.tolist(), rel=2e-2, abs=2e-3)
    apart = forward(model, x) - forward(model, mean.expand_as(x))
    assert found.completeness == pytest.approx(abs(found.scores.sum().item() / apart.item() - 1), abs=1e-5)
    assert found.completeness < 1e-3 < integrated(logit(run), 1).completeness
    zero = integrated(logit(run), 16, "zero")
    assert zero.completeness == pytest.approx(
        abs(zero.scores.sum().item() / (forward(model, x) - forward(model, x * 0)).item() - 1), abs=1e-5
    )


def test_of_a_linear_model_all_are_the_truth():
    """The mean of what came so far, and a head: f is a sum over the tokens."""
    spec = stack(*[BlockSpec(mixer=BagSpec(), channel=None, norm=None)] * 2, norm=None, head=HeadSpec(tied=False))
    run = Loaded(drawn(build_model(spec)), name="linear").trace([3, 7, 1, 7, 5, 2, 9, 4])
    x, n = run.model.embed.token.weight.detach()[run.stacks[0].tokens[0]].double(), 8
    mixing = torch.ones(n, n).tril().double() / torch.arange(1, n + 1)[:, None]  # row t: the mean up to t
    layer = torch.eye(n) + mixing
    truth = (layer @ layer)[-1] * (x @ run.model.head.weight.detach()[5].double())
    answer = logit(run)
    assert truth.sum().item() == pytest.approx(answer.value, rel=1e-4)
    for how in ({"method": "gradient"}, {"method": "integrated", "origin": "zero", "steps": 3}):
        assert attribution(answer, **how).scores.tolist() == pytest.approx(truth.tolist(), rel=1e-4, abs=1e-5)
    mean = run.model.embed.token.weight.detach().double().mean(0)
    apart = truth - (layer @ layer)[-1] * (mean @ run.model.head.weight.detach()[5].double())
    assert attribution(answer, "removal", baseline="mean").scores[:-1].tolist() == pytest.approx(
        apart[:-1].tolist(), abs=1e-4
    )
    one = gf.explain("attribution", run, candidate="#5", method="integrated", measure="mean", orders=30)
    checks = {check.name: check.value for check in one.checks}
    assert checks["spearman"] == 1 and checks["completeness"] < 1e-4
    assert checks["comprehensiveness_reversed"] < checks["comprehensiveness_random"] < checks["comprehensiveness"]
    assert checks["sufficiency_reversed"] > checks["sufficiency_random"] > checks["sufficiency"]


def test_targets(run):
    logits = run.logits[0, 4].double()
    for what, wanted in (
        ("logit", logits[5]),
        ("difference", logits[5] - logits[6]),
        ("log-probability", logits.log_softmax(-1)[5]),
    ):
        answer = Answer(run, Target(what, 4, "#5", "#6" if what == "difference" else ""))
        assert answer.value == pytest.approx(wanted.item(), rel=1e-4, abs=1e-5)
        scores = attribution(answer, "removal").scores
        assert scores[0] == 0 and (scores[1:4] != 0).all() and not scores[4:].any()
        assert not attribution(answer, "gradient").scores[5:].any()
    one = gf.explain("attribution", run, token=1, by="word", candidate="#5", what="log-probability")
    assert one.figure("scores").values[-1] is None and one.figure("scores").chosen == 1
    assert "the log probability of" in one.claim.en and "의 로그 확률입니다" in one.claim.ko
    whole = gf.explain("attribution", run, candidate="#5")
    words = gf.explain("attribution", run, candidate="#5", by="word").figure("scores").values
    cells = run.cells("word")
    sums = [sum(whole.figure("scores").values[t] for t in cell.tokens) for cell in cells]
    assert words == pytest.approx(sums, rel=1e-4, abs=1e-6)


# ---------------------------------------------------------------- tokens taken out


@pytest.mark.parametrize("name", ["rope", "lstm", "mamba", "full", "gpt2"])
def test_without_tokens(name):
    """Deleted: the run of the others alone. Masked: positions stay. Mean and padding: another row of the table."""
    run = RUNS[name]()
    ids, answer = run.stacks[0].tokens[0].tolist(), logit(run)
    n, out = len(ids), [2, 4]
    gone = torch.zeros(1, n, dtype=torch.bool)
    gone[0, out] = True
    model = run.model
    deleted = model(torch.tensor([[one for i, one in enumerate(ids) if i not in out]]))[0, -1, 5].item()
    assert answer.without(gone, "delete").item() == pytest.approx(deleted, rel=1e-4, abs=1e-5)
    pos = torch.arange(n).masked_fill(gone[0], -1)[None]
    masked = model(torch.tensor([ids]), pos=pos)[0, -1, 5].item()
    assert answer.without(gone, "mask").item() == pytest.approx(masked, rel=1e-4, abs=1e-5)
    mean = model.embed.token.weight.detach().mean(0)
    edited = run.loaded.trace(ids, edits=gf.replace("embed.token", mean, t=out), start=False).logits[0, -1, 5].item()
    assert answer.without(gone, "mean").item() == pytest.approx(edited, rel=1e-4, abs=1e-5)
    with pytest.raises(InputError, match="this tokenizer has no token for a mask"):
        answer.without(gone, "pad")


def test_the_token_for_none_of_a_published_tokenizer(run):
    ids, tokenizer = run.stacks[0].tokens[0].tolist(), run.loaded.tokenizer
    published = Published(tokenizer.library, Beside(names={"mask": tokenizer.end}))
    other = Loaded(run.model, published, "tiny").trace(ids)
    gone = torch.zeros(1, len(ids), dtype=torch.bool)
    gone[0, 3] = True
    wanted = run.model(torch.tensor([[tokenizer.end_id if i == 3 else one for i, one in enumerate(ids)]]))[0, -1, 5]
    assert logit(other).without(gone, "pad").item() == pytest.approx(wanted.item(), rel=1e-4)
    start = integrated(logit(other), 64, "pad")
    empty = run.model(torch.full((1, len(ids)), tokenizer.end_id))[0, -1, 5].item()
    assert start.scores.sum().item() == pytest.approx(logit(other).value - empty, rel=1e-2)


def test_of_a_pairs_source():
    for name in ("pair", "bahdanau"):
        run = RUNS[name]()
        source, target = (stack.tokens[0] for stack in run.stacks)
        answer = Answer(run, Target(candidate="#5"), "source")
        assert answer.value == pytest.approx(run.logits[0, -1, 5].item(), rel=1e-4)
        scores = attribution(answer, "removal").scores
        for s in range(len(source)):
            if s in answer.removable:
                fewer = run.model(source[None, [i for i in range(len(source)) if i != s]], target[None])[0, -1, 5]
                assert scores[s].item() == pytest.approx(answer.value - fewer.item(), rel=1e-3, abs=1e-5)
        x = run.model.encoder.embed.token.weight.detach()[source]
        edits = [gf.scale("encoder.embed.token", 1 + 1e-3, t=0)]
        moved = run.loaded.trace((source.tolist(), target.tolist()), edits=edits, start=False).logits[0, -1, 5].item()
        first = attribution(answer, "gradient").scores
        assert len(first) == len(x) and first[0].item() == pytest.approx(
            (moved - answer.value) / 1e-3, rel=0.1, abs=2e-2
        )


EDITS = (
    gf.scale("blocks.0.mixer.z", 2.5, b=0, h=1),
    gf.noise("blocks.0.resid_out", 0.5, seed=3),
    gf.replace("blocks.1.channel.out", 0.3, t=3),
    gf.add("head.logits", 0.25, t=-1),
)


def test_of_an_edited_run_it_is_that_run_that_is_explained():
    """f, its derivatives, and the runs without tokens all have the edits, at the same tokens, and the same noise."""
    model = loaded()
    run = model.trace(TEXT, edits=EDITS)
    ids, answer = run.stacks[0].tokens[0].tolist(), logit(run)
    assert answer.value == pytest.approx(run.logits[0, -1, 5].item(), rel=1e-5)
    assert abs(answer.value - model.trace(TEXT).logits[0, -1, 5].item()) > 0.1

    def edited(**more):
        probe = Probe(lambda name: False, EDITS)
        return model.model(torch.tensor([ids]), probe=probe, **more)[0, -1, 5].item()

    gone = torch.zeros(3, len(ids), dtype=torch.bool)
    gone[0, 2], gone[1, [1, 4]] = True, True
    for baseline in ("mask", "delete"):
        pos = torch.arange(len(ids)).expand_as(gone) if baseline == "mask" else (~gone).long().cumsum(1) - 1
        wanted = [edited(pos=one[None]) for one in pos.masked_fill(gone, -1)]
        assert answer.without(gone, baseline).tolist() == pytest.approx(wanted, rel=1e-4, abs=1e-5)
    found, step = attribution(answer, "gradient").scores, 1e-3
    for s in (1, 4):
        moved = model.trace(TEXT, edits=(gf.scale("embed.token", 1 + step, t=s), *EDITS)).logits[0, -1, 5].item()
        assert found[s].item() == pytest.approx((moved - answer.value) / step, rel=0.05, abs=2e-2)
    assert integrated(answer, 64).completeness < 1e-3
    assert attribution(answer, "decompx").completeness < 1e-4
    measured = gf.explain("attribution", run, candidate="#5", measure="delete", orders=2)
    assert measured.checks[0].value is not None
    heads = [attribution(answer, "value-norm", layer=0, head=h).scores for h in (0, 1)]
    plain = [attribution(logit(model.trace(TEXT)), "value-norm", layer=0, head=h).scores for h in (0, 1)]
    assert torch.allclose(heads[0], plain[0]) and torch.allclose(heads[1], 2.5 * plain[1])
    spots = gf.explain("tracing", run, candidate="#5", subject="3", draws=2)
    assert {check.name: check.value for check in spots.checks}["put_back"] < 1e-4
    cut = gf.explain("edges", run, candidate="#5", measure="sampled", samples=16)  # of the layer behind
    assert cut.checks[0].passed and cut.checks[1].value > 0.5


@pytest.mark.parametrize("name", ["bert", "no-head", "mlp-mixer", "longformer"])
def test_of_a_bare_encoder_it_is_a_vector_that_is_explained(name):
    """f is ⟨x, u⟩ of the token's last vector with u its direction in the run: its length there."""
    run = RUNS[name]()
    t = 3
    answer, last = Answer(run, Target(token=t)), run.stacks[-1].entry(len(run.model.blocks))
    x = run[last][0, t].double()
    assert answer.value == pytest.approx(x.norm().item(), rel=1e-5)
    place, ids = 1, run.stacks[-1].tokens[0].tolist()
    gone = torch.zeros(1, len(ids), dtype=torch.bool)
    gone[0, place] = True
    probe = Probe(lambda name: name == last)
    run.model(torch.tensor([ids]), pos=torch.arange(len(ids)).masked_fill(gone[0], -1)[None], probe=probe)
    wanted = (probe.values[last][0, t].double() @ x / x.norm()).item()
    assert answer.without(gone, "mask").item() == pytest.approx(wanted, rel=1e-4, abs=1e-5)
    step = 1e-3
    edited = run.loaded.trace(ids, edits=gf.scale("embed.token", 1 + step, t=place), start=False)
    moved = (edited[last][0, t].double() @ x / x.norm()).item() - answer.value
    found = attribution(answer, "gradient").scores[place].item()
    assert found == pytest.approx(moved / step, rel=0.05, abs=1e-2)
    assert attribution(answer, "decompx").completeness < 1e-4 and integrated(answer, 64).completeness < 1e-2
    one = gf.explain("attribution", run, token=t, method="removal", measure="mask", orders=2)
    assert "along its own direction" in one.claim.en and one.figure("scores").chosen == t
    assert one.figure("scores").values[place] == pytest.approx(answer.value - wanted, rel=1e-3, abs=1e-5)
    spots = gf.explain("tracing", run, token=t, subject="1", draws=2)
    assert {check.name: check.value for check in spots.checks}["put_back"] < 1e-3
    if name != "mlp-mixer":
        assert gf.explain("edges", run, token=t).figure("directed").title.en


def test_a_vector_of_a_model_with_logits():
    run = loaded().trace(TEXT)
    length = run["blocks.1.resid_out"][0, -1].norm().item()
    assert Answer(run, Target("vector")).value == pytest.approx(length, rel=1e-5)
    assert gf.explain("attribution", run, what="vector", method="decompx").checks[0].value < 1e-4


# ---------------------------------------------------------------- attention


def patterns(run):
    return [run[f"blocks.{i}.mixer.pattern"][0].double() for i in range(len(run.model.blocks))]


@pytest.mark.parametrize("name", ["rope", "grouped", "sink"])
def test_weights_and_what_they_carry(name):
    run = loaded(SPECS[name]).trace(TEXT)
    answer, part = logit(run), run.model.blocks[1].mixer
    values = run["blocks.1.mixer.v"][0].double().repeat_interleave(part.heads // part.groups, 1)  # s h e
    maps = part.out.weight.detach().double().unflatten(1, (part.heads, part.width))
    pattern = patterns(run)[1][:, -1]  # h s
    vectors = torch.einsum("hs,she,dhe->hsd", pattern, values, maps)
    assert attribution(answer, "pattern").scores.tolist() == pytest.approx(pattern.mean(0).tolist(), rel=1e-5)
    assert attribution(answer, "pattern", layer=1, head=2).scores.tolist() == pytest.approx(
        pattern[2].tolist(), rel=1e-5
    )
    whole = vectors.sum(0).norm(dim=-1)
    assert attribution(answer, "value-norm").scores.tolist() == pytest.approx(whole.tolist(), rel=1e-4, abs=1e-6)
    one = attribution(answer, "value-norm", head=1).scores
    assert one.tolist() == pytest.approx(vectors[1].norm(dim=-1).tolist(), rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("name", ["rope", "sink"])
def test_rollout(name):
    run = loaded(SPECS[name]).trace(TEXT)
    n, total = run.stacks[0].length, None
    for pattern in patterns(run):
        mean = pattern.mean(0) / pattern.mean(0).sum(1, keepdim=True)
        layer = 0.5 * mean + 0.5 * torch.eye(n)
        total = layer if total is None else layer @ total
    found = attribution(logit(run), "rollout").scores
    assert found.tolist() == pytest.approx(total[-1].tolist(), rel=1e-5) and found.sum().item() == pytest.approx(1)
    first = attribution(logit(run, token=4), "rollout", layer=0).scores
    mean = patterns(run)[0].mean(0)[4]
    assert first.tolist() == pytest.approx((0.5 * mean / mean.sum() + 0.5 * torch.eye(n)[4]).tolist(), rel=1e-5)


def test_flow_is_the_narrowest_cut():
    generator = np.random.default_rng(0)
    for n in (2, 3):
        pipes = [np.tril(generator.random((n, n))) for _ in range(3)]
        entering = np.eye(n)[n - 1]
        found = most_flowing(entering, pipes)
        for s in range(n):
            cuts = []
            for sides in product([0, 1], repeat=3 * n):  # which nodes lie on the side of the source
                inner = [np.array(sides[i * n : (i + 1) * n]) for i in range(3)]
                layers = [*inner, np.array([0 if j == s else 1 for j in range(n)])]
                cut = (entering * (1 - layers[0])).sum()
                for one, above, below in zip(pipes, layers, layers[1:], strict=False):
                    last = one is pipes[-1]
                    wide = one * np.array([[1.0 if not last or j == s else 0.0 for j in range(n)]])
                    cut += (wide * above[:, None] * (1 - below)[None]).sum()
                cuts.append(cut)
            assert found[s] == pytest.approx(min(cuts))


def test_flow_of_a_run(run):
    n = run.stacks[0].length
    layers = [(0.5 * pattern.mean(0) + 0.5 * torch.eye(n)).numpy() for pattern in patterns(run)]
    found = attribution(logit(run), "flow").scores
    assert found.tolist() == pytest.approx(most_flowing(np.eye(n)[-1], layers[::-1]).tolist(), rel=1e-6)
    assert attribution(logit(run), "flow", layer=0).scores.tolist() == pytest.approx(layers[0][-1].tolist(), rel=1e-5)
    with pytest.raises(InputError, match="the flow to 400 tokens through"):
        most_flowing(np.ones(400), [np.ones((400, 400))] * 2)


@pytest.mark.parametrize("name", ["rope", "post", "sandwich", "no-residual", "biases"])
def test_alti_is_the_nearness_of_each_part(name):
    run = loaded(SPECS[name]).trace(TEXT)
    total = None
    for i, block in enumerate(run.model.blocks):
        part, at = block.mixer, f"blocks.{i}"
        values = run[f"{at}.mixer.v"][0].double().repeat_interleave(part.heads // part.groups, 1)
        maps = part.out.weight.detach().double().unflatten(1, (part.heads, part.width))
        x, out, mid = (run[f"{at}.{one}"][0].double() for one in ("resid_in", "mixer.out", "resid_mid"))
        parts = torch.einsum("hts,she,dhe->tsd", run[f"{at}.mixer.pattern"][0].double(), values, maps)
        own = torch.diag_embed(x.T if name != "no-residual" else 0 * x.T).permute(1, 2, 0)  # t s d

        def normed(parts, whole, norm):
            centred = parts - parts.mean(-1, keepdim=True) if hasattr(norm.spec, "bias") else parts
            wide = whole - whole.mean(-1, keepdim=True) if hasattr(norm.spec, "bias") else whole
            scale = (wide.square().mean(-1) + norm.spec.eps).rsqrt()
            return centred * scale[:, None, None] * norm.gain.detach().double()

        if name == "post":
            parts = normed(parts + own, x + out, block.mixer_norm)
        else:
            parts = (normed(parts, out, block.mixer_out_norm) if name == "sandwich" else parts) + own
        near = (mid.abs().sum(-1)[:, None] - (mid[:, None] - parts).abs().sum(-1)).clamp(min=0)
        layer = near / near.sum(-1, keepdim=True)
        total = layer if total is None else layer @ total
    assert attribution(logit(run), "alti").scores.tolist() == pytest.approx(total[-1].tolist(), rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("name", ["rope", "lstm", "pair"])
def test_a_network_held_still_is_a_sum_over_its_tokens(name):
    """Of attention, a recurrence and both sides of a pair, against the ledger's own parts."""
    run = RUNS[name]()
    answer = logit(run)
    found = attribution(answer, "decompx")
    parts = ledger(run, answer.target, "tokens").parts
    sums = {
        prefix: sum(one.values for one in parts if one.axes and one.prefix == prefix) for prefix in ("", "decoder.")
    }
    own = sums[answer.stack.prefix]
    assert found.completeness < 1e-4 and found.scores.tolist() == pytest.approx(own.tolist(), rel=1e-6)
    rest = sum(one.total for one in parts if not one.axes)
    if name == "pair":
        source = attribution(Answer(run, answer.target, "source"), "decompx").scores
        assert len(source) == run.stacks[0].length and source.abs().max() > 1e-3
        rest += source.sum().item()
    assert found.scores.sum().item() + rest == pytest.approx(answer.value, rel=1e-3)


# ---------------------------------------------------------------- what is refused


def test_what_has_no_attention_is_refused_by_name():
    lstm, hybrid = RUNS["lstm"](), stack(BlockSpec(mixer=LstmSpec()), BlockSpec(mixer=ROPE))
    mixed = Loaded(drawn(build_model(hybrid)), name="x").trace([3, 7, 1, 7, 5])
    for method in ("pattern", "value-norm"):
        with pytest.raises(UnsupportedError, match="no layer of this model has attention weights; use gradient"):
            attribution(logit(lstm), method)
        with pytest.raises(UnsupportedError, match="layer 0 has no attention weights; those that do: 1"):
            attribution(logit(mixed), method, layer=0)
    for method in ("rollout", "flow", "alti"):
        for run in (lstm, mixed):
            with pytest.raises(
                UnsupportedError, match="layer [01] has no attention weights, and this method needs those"
            ):
                attribution(logit(run), method)
    two = loaded(pair()).trace(("생선을", "먹었다"))
    source = Answer(two, Target(candidate="#5"), "source")
    with pytest.raises(UnsupportedError, match="rollout goes through one text's own layers"):
        attribution(source, "rollout")
    cross = two["decoder.blocks.1.cross.pattern"][0, :, -1].mean(0)
    assert attribution(source, "pattern").scores.tolist() == pytest.approx(cross.tolist(), rel=1e-5)
    with pytest.raises(InputError, match="head: rollout takes the mean over all heads"):
        gf.explain("attribution", loaded().trace(TEXT), method="rollout", head=1)
    edited = loaded().trace(TEXT, edits=gf.zero("blocks.1.mixer.z", h=0))
    with pytest.raises(UnsupportedError, match="blocks.1.mixer.z is edited, so that an edge"):
        gf.explain("edges", edited)
    with pytest.raises(UnsupportedError, match="the vector that leaves the last block; leave vector out"):
        Answer(loaded().trace(TEXT), Target("vector", vector="blocks.0.resid_out"))


def test_the_classes_of_a_text():
    """A pooled head reads the whole text: no place is the answer's own, and the first token speaks for all."""
    from glassformer.mask import Mask
    from glassformer.mixers.attention import AttentionSpec
    from glassformer.nn.pool import PooledSpec

    mixer = AttentionSpec(mask=Mask(causal=False))
    spec = stack(*[BlockSpec(mixer=mixer)] * 2, head=PooledSpec(classes=3, labels=("good", "bad", "so-so")))
    run = Loaded(drawn(build_model(spec)), name="classes").trace([3, 7, 1, 7, 5, 2])
    one = gf.explain("attribution", run, candidate="bad", method="removal", measure="delete")
    assert "logit of “bad”" in one.claim.en and one.figure("scores").chosen is None
    for s in range(6):
        fewer = run.model(torch.tensor([[t for i, t in enumerate([3, 7, 1, 7, 5, 2]) if i != s]]))[0, 1]
        assert one.figure("scores").values[s] == pytest.approx((run.logits[0, 1] - fewer).item(), rel=1e-3, abs=1e-5)
    pattern = run["blocks.1.mixer.pattern"][0, :, 0].mean(0)
    found = gf.explain("attribution", run, method="pattern").figure("scores").values
    assert found == pytest.approx(pattern.tolist(), rel=1e-5)


def test_the_row_that_enters_one_place_later_is_its_own_tokens():
    """A second table is looked up with the token before: what its row does is that token's, in every method."""
    trace = gf.load("small").trace("The cat ate the fish")
    answer = Answer(trace, Target("logit"))
    one = ledger(trace, depth="tokens")
    rows = {part.name: part.values for part in one.parts if part.name.startswith("embed.")}
    assert rows["embed.previous"][-1] == 0 and (rows["embed.previous"][:-1] != 0).all()  # the last one enters nowhere
    assert one.error < 1e-4
    table = trace.model.embed.previous.weight.detach().double()
    written = {part.name: part for part in ledger(trace).parts}["embed.previous"]
    assert written.axes == "s" and written.values.nonzero().flatten().tolist() == [len(written.values) - 2]
    assert trace["embed.previous"][0, -1].double() == pytest.approx(table[trace.stacks[0].tokens[0, -2]])
    found = attribution(answer, "decompx").scores
    assert found == pytest.approx(one.by_token(len(found)), rel=1e-6)
