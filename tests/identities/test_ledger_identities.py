"""Identities 1 to 4 of published results: what the parts of GPT-2, Llama, BERT, T5 and the shipped model add up to.

Of every published family a small model of its shape with drawn weights; the vectors of the parts are written down here
by hand, from the traced values and the wiring of each family, and no code of the ledger.
"""

import pytest
import torch

import glassformer as gf
from contract.cases import drawn
from glassformer import named
from glassformer.explain.ledger import ledger
from glassformer.explain.target import Target
from glassformer.model import EncoderDecoder, build_model
from glassformer.nn.head import HeadSpec
from glassformer.nn.norm import LayerNormSpec
from glassformer.nn.rework import ReworkSpec
from glassformer.trace import Trace

SMALL = {"vocab": 50, "dim": 32, "blocks": 3, "heads": 4, "hidden": 48, "context": 32}
IDS = torch.tensor([[3, 14, 1, 5, 9, 2, 6, 5, 35, 8]])
OTHER = torch.tensor([[2, 7, 1, 8, 28, 18, 4, 5, 9, 0]])
SOURCE, OTHER_SOURCE = torch.tensor([[7, 4, 19, 11, 30]]), torch.tensor([[6, 1, 2, 40, 21]])
FAMILIES = ("gpt2", "llama", "bert", "t5", "small")
T = 7


def model_of(family):
    if family == "small":
        return gf.load().model
    known = named.choices_of(family)
    spec = gf.preset(family, **{key: value for key, value in SMALL.items() if key in known})
    if family == "bert":  # as it is trained, with the head of masked words
        spec = spec.changed(head=HeadSpec(bias=True, rework=ReworkSpec(norm=LayerNormSpec())))
    return drawn(build_model(spec))


def given_to(model, other=False):
    ids = OTHER if other else IDS
    return ((OTHER_SOURCE if other else SOURCE), ids) if isinstance(model, EncoderDecoder) else ids


def run_of(family, **how):
    model = model_of(family)
    return Trace(model, given_to(model), **how)


def written(run, name):
    """The vectors at T that a part gave: of each head from each source token, and its bias."""
    part = run.model.get_submodule(name)
    pattern, v = run[f"{name}.pattern"][0, :, T].double(), run[f"{name}.v"][0].double()
    out = part.out.weight.double().detach().unflatten(1, (part.heads, part.width))
    vectors = torch.einsum("hs,she,dhe->hsd", pattern, v.repeat_interleave(part.heads // part.groups, 1), out)
    bias = {} if part.out.bias is None else {f"{name}.out.bias": part.out.bias.double().detach()}
    return {f"{name}.head_out": vectors, **bias}


def vectors_of(run):
    """Every part of the residual stream at T behind the last block, by name, and that stream itself."""
    stack = run.stacks[-1]
    known = [f"{stack.prefix}embed.{short}" for short in ("token", "previous", "types", "position")]
    parts = {name: run[name][0, T].double() for name in known if name in run.names()}
    if stack.model.embed.norm is not None:
        parts = normed(parts, stack.model.embed.norm, sum(parts.values()))
    x = run[stack.entry(0)][0, T].double()
    for block in stack.model.blocks:
        post = block.spec.wiring == "post"
        for which, after in (("mixer", "resid_mid"), ("cross", "resid_cross"), ("channel", "resid_out")):
            if getattr(block, which) is None:
                continue
            name = f"{block.path}.{which}"
            out = run[f"{name}.out"][0, T].double()
            parts |= {f"{name}.out": out} if which == "channel" else written(run, name)
            if post:
                parts = normed(parts, getattr(block, f"{which}_norm"), x + out)
            x = run[f"{block.path}.{after}"][0, T].double()
    return parts, x


def normed(parts, norm, whole):
    """Each part through a norm whose scale is that of the whole, and the norm's bias as a part of its own."""
    layer = isinstance(norm.spec, LayerNormSpec)
    mean = (lambda one: one.mean(-1, keepdim=True)) if layer else (lambda one: 0)
    scale = ((whole - mean(whole)).square().mean() + norm.spec.eps).rsqrt()
    made = {name: (one - mean(one)) * scale * norm.weight.double().detach() for name, one in parts.items()}
    return made | ({f"{norm.path}.bias": norm.bias.double().detach()} if norm.bias is not None else {})


@pytest.mark.parametrize("family", FAMILIES)
def test_identity_1_heads_ffn_and_embedding_are_the_residual_stream_and_its_logits(family):
    run = run_of(family)
    parts, x = vectors_of(run)
    total = sum(one.flatten(0, -2).sum(0) if one.ndim > 1 else one for one in parts.values())
    assert (total - x).norm() < 1e-5 * x.norm()
    found = ledger(run, Target(what="vector", token=T))
    mine = {part.name: part for part in found.parts if part.values.abs().max() > 1e-12}
    assert found.error < 1e-5 and mine.keys() == {name for name, one in parts.items() if (one @ x).abs().max() > 1e-12}
    for name, part in mine.items():  # along the vector itself
        wanted = parts[name] @ (x / x.norm())
        at = T - 1 if name == "embed.previous" else T if part.axes == "t" else ...
        values = part.values[at]
        assert torch.allclose(values, wanted, rtol=1e-4, atol=1e-5 * x.norm().item()), name
    model = run.stacks[-1].model
    if model.head is None or model.head.rework is not None:  # BERT reads through one more layer
        return
    parts = parts if model.norm is None else normed(parts, model.norm, x)
    direct = sum(one.sum() for one in (vectors @ model.head.weight[5].double().detach() for vectors in parts.values()))
    logits, scale = run.logits[0, T].double(), model.head.spec.scale
    assert (direct * scale).item() == pytest.approx(logits[5].item(), abs=1e-5 * logits.abs().max().item())
    found = ledger(run, Target(what="logit", token=T, candidate="#5"))
    assert found.total == pytest.approx((direct * scale).item(), abs=1e-5 * logits.abs().max().item())


@pytest.mark.parametrize("family", FAMILIES)
def test_identity_2_values_make_up_a_heads_output_and_deletion_follows_its_formula(family):
    run = run_of(family)
    last = run.stacks[-1].model.blocks[-1]
    for part in [one for one in (last.mixer, last.cross) if one is not None]:
        name = part.path
        vectors = written(run, name)[f"{name}.head_out"].sum(1)
        assert torch.allclose(vectors, run[f"{name}.head_out"][0, T].double(), rtol=1e-5, atol=1e-6)
        pattern, z, v = (run[f"{name}.{short}"][0].double() for short in ("pattern", "z", "v"))
        v = v.repeat_interleave(part.heads // part.groups, 1)
        for s in (0, 3):
            cut = Trace(run.model, given_to(run.model), edits=gf.replace(f"{name}.scores", -torch.inf, t=T, s=s))
            a = pattern[:, T, s, None]
            wanted = a / (1 - a) * (z[T] - v[s])
            moved = cut[f"{name}.z"][0, T].double() - z[T]
            assert torch.allclose(moved, wanted, rtol=1e-4, atol=1e-5) and moved.abs().max() > 1e-4


@pytest.mark.parametrize("family", FAMILIES)
def test_identity_3_what_comes_from_each_token_adds_up_to_the_logit(family):
    run = run_of(family)
    logits = run.logits[0, T]
    for candidate in (5, 17):
        found = ledger(run, Target(what="logit", token=T, candidate=f"#{candidate}"), "tokens")
        tokens = found.by_token(IDS.shape[1])
        rest = sum(part.total for part in found.parts if not part.axes)
        if len(run.stacks) == 2:
            rest += found.by_token(SOURCE.shape[1], prefix="encoder.").sum().item()
        close = 1e-4 * logits.abs().max().item()
        assert tokens.sum().item() + rest == pytest.approx(logits[candidate].item(), abs=close)
        assert found.error < 1e-4 and tokens.count_nonzero() == (IDS.shape[1] if family == "bert" else T + 1)


@pytest.mark.parametrize("family", FAMILIES)
def test_identity_4_patching_a_run_into_itself_changes_nothing_and_all_of_another_gives_that_one(family):
    model = model_of(family)
    run, other = Trace(model, given_to(model)), Trace(model, given_to(model, other=True))
    names = [name for name in run.names() if name.endswith((".mixer.out", ".cross.out", ".channel.out"))]
    names += [f"{stack.prefix}embed.out" for stack in run.stacks]
    for name in names[:: max(1, len(names) // 4)]:
        same = Trace(model, given_to(model), edits=gf.replace(name, run[name]))
        assert torch.equal(same.logits, run.logits), name
    patched = Trace(model, given_to(model), edits=[gf.replace(name, other[name]) for name in names])
    assert torch.allclose(patched.logits, other.logits, rtol=1e-5, atol=1e-5)
    assert not torch.allclose(run.logits, other.logits, atol=1e-2)
