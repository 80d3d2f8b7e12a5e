"""The parts of a training: gradients, optimizers, the validation loss, number formats."""

import numpy as np
import pytest
import torch
from train_runs import a_run, weights, write_text

from glassformer.checkpoint import load_model
from glassformer.data.packed import Packed
from glassformer.mixers.attention import AttentionSpec
from glassformer.model import BlockSpec, Model, ModelSpec
from glassformer.nn.channel import ExpertsSpec, MlpSpec
from glassformer.train import AdamWSpec, MuonSpec, ScheduleSpec, evaluate, fit
from glassformer.train.evaluate import token_loss
from glassformer.train.loop import Trainer
from glassformer.train.optimizer import Optimizer, orthogonalised


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    return write_text(tmp_path_factory.mktemp("corpus"))


def test_accumulation_equals_a_large_batch(text, tmp_path):
    large = list(fit(a_run(text, batch=8), tmp_path / "large"))
    parts = list(fit(a_run(text, batch=2, accumulate=4), tmp_path / "parts"))
    assert [r.loss for r in parts] == pytest.approx([r.loss for r in large], rel=1e-4)
    assert parts[-1].gradient_norm == pytest.approx(large[-1].gradient_norm, rel=1e-3)
    assert parts[-1].tokens == large[-1].tokens


def test_a_step_by_hand_changes_the_parameters_and_not_the_input(text, tmp_path):
    """What learning changes is W_Q, W_K, W_V, W_O and their kind, never the vectors of this input (statement S1)."""
    spec = AdamWSpec(rate=1e-2, betas=(0.9, 0.99), eps=1e-8, decay=0.1)
    trainer = Trainer(a_run(text, optimizer=spec, clip=None, schedule=ScheduleSpec(warmup=0)), tmp_path)
    before = {name: p.detach().clone() for name, p in trainer.model.named_parameters()}
    grads, tokens = {}, []
    inner = trainer.optimizer.step

    def watching(share):
        grads.update((name, p.grad.clone()) for name, p in trainer.model.named_parameters())
        inner(share)

    trainer.optimizer.step = watching
    trainer.model.register_forward_pre_hook(lambda module, args: tokens.append((args[0], args[0].clone())))
    trainer.update()
    assert grads.keys() == before.keys() and {"blocks.0.mixer.q.weight", "blocks.0.mixer.out.weight"} <= grads.keys()
    for name, p in trainer.model.named_parameters():
        # the first step of Adam: both means divided by their own bias are g and g², so the step is g/(|g| + eps)
        decay = 1 - 1e-2 * 0.1 * (p.ndim >= 2)
        expected = before[name] * decay - 1e-2 * grads[name] / (grads[name].abs() + 1e-8)
        torch.testing.assert_close(p.detach(), expected, rtol=1e-5, atol=1e-6)
    (given, copy), *_ = tokens
    assert torch.equal(given, copy) and not given.dtype.is_floating_point  # ids: nothing there could get a gradient


def test_only_matrices_decay():
    model = Model(ModelSpec(vocab=5, dim=8, blocks=(BlockSpec(mixer=AttentionSpec(heads=2)),)))
    (rule,) = Optimizer(model, AdamWSpec(decay=0.3)).rules
    decay = {id(p): group["weight_decay"] for group in rule.param_groups for p in group["params"]}
    for name, p in model.named_parameters():
        assert decay[id(p)] == (0.3 if p.ndim >= 2 else 0.0), name
    assert len(decay) == len(list(model.parameters()))


def test_muon_takes_the_matrices_inside_the_blocks():
    model = Model(ModelSpec(vocab=5, dim=8, blocks=(BlockSpec(mixer=AttentionSpec(heads=2)),)))
    outer, inner = Optimizer(model, MuonSpec()).rules
    names = {p: name for name, p in model.named_parameters()}
    found = {names[p] for group in inner.param_groups for p in group["params"]}
    assert found == {f"blocks.0.{part}.weight" for part in ("mixer.q", "mixer.k", "mixer.v", "mixer.out")} | {
        "blocks.0.channel.up.weight",
        "blocks.0.channel.down.weight",
    }
    assert sum(len(g["params"]) for rule in (outer, inner) for g in rule.param_groups) == len(names)


def test_orthogonalised_brings_every_singular_value_near_one():
    x = torch.randn(3, 8, 20, generator=torch.Generator().manual_seed(0))
    u, s, v = torch.linalg.svd(x, full_matrices=False)
    y = orthogonalised(x)
    turned = u.mT @ y @ v.mT  # diagonal in the same directions
    values = turned.diagonal(dim1=-2, dim2=-1)
    assert s.max() / s.min() > 2 and values.min() > 0.6 and values.max() < 1.3
    torch.testing.assert_close(turned, torch.diag_embed(values), atol=1e-4, rtol=0)


def test_clipping_bounds_the_gradient(text, tmp_path):
    trainer = Trainer(a_run(text, clip=1e-3), tmp_path)
    seen = []
    trainer.optimizer.step = lambda share: seen.append(
        torch.nn.utils.get_total_norm([p.grad for p in trainer.model.parameters()]).item()
    )
    _, norm, _ = trainer.update()
    assert norm > 0.1 and seen == [pytest.approx(1e-3, rel=1e-3)]


def test_the_loss_of_experts_enters_the_gradient(text, tmp_path):
    def router_grad(balance):
        block = BlockSpec(mixer=AttentionSpec(heads=2), channel=ExpertsSpec(expert=MlpSpec(hidden=8), balance=balance))
        run = a_run(text, model=ModelSpec(vocab=0, dim=8, blocks=(block,), context=16))
        trainer = Trainer(run, tmp_path / str(balance))
        grads = []
        trainer.optimizer.step = lambda share: grads.append(trainer.model.blocks[0].channel.router.weight.grad.clone())
        loss, _, _ = trainer.update()
        return loss, grads[0]

    (loss, without), (also, strong) = router_grad(0.0), router_grad(10.0)
    assert loss == also and not torch.allclose(without, strong)  # reported is the cross entropy alone


def test_evaluate_is_the_mean_over_every_token_once():
    model = Model(ModelSpec(vocab=7, dim=8, blocks=(BlockSpec(mixer=AttentionSpec(heads=2)),), context=8)).train()
    tokens = np.random.default_rng(0).integers(0, 7, 30).astype(np.uint16)
    total = 0.0
    with torch.no_grad():
        for start in range(0, 29, 8):
            part = torch.from_numpy(tokens[start : start + 9].astype(np.int64))[None]
            total += token_loss(model(part[:, :-1]), part[:, 1:], "sum").item()
    assert evaluate(model, tokens, 8, batch=2) == pytest.approx(total / 29, rel=1e-6)
    assert model.training
    some = evaluate(model, tokens, 8, batch=2, most=2)  # the first and the last whole block
    with torch.no_grad():
        rows = torch.from_numpy(np.stack([tokens[0:9], tokens[16:25]]).astype(np.int64))
        assert some == pytest.approx(token_loss(model(rows[:, :-1]), rows[:, 1:]).item(), rel=1e-6)


def test_bfloat16_trains_with_float32_weights(text, tmp_path):
    reports = list(
        fit(a_run(text, steps=40, dtype="bfloat16", optimizer=MuonSpec(others=AdamWSpec(rate=2e-2))), tmp_path)
    )
    assert reports[-1].loss < 0.8 * reports[0].loss
    assert {value.dtype for value in weights(tmp_path).values()} == {torch.float32}


# ------------------------------------------------------------ dropout, threads, compile


def test_every_step_drops_other_units(text, tmp_path):
    trainer = Trainer(a_run(text, dropout=0.5), tmp_path)
    seen = []
    dropout = torch.nn.functional.dropout

    def watching(x, *given, **more):
        found = dropout(x, *given, **more)
        seen.append(found == 0)
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.nn.functional, "dropout", watching)
        masks = []
        for step in (0, 1, 1):
            trainer.step = step
            seen.clear()
            trainer.update()
            masks.append(torch.cat([mask.flatten() for mask in seen]))
    assert 0.3 < masks[0].float().mean() < 0.7
    assert not torch.equal(masks[0], masks[1]) and torch.equal(masks[1], masks[2])
    trainer.held.close()


def test_validation_drops_nothing(text, tmp_path):
    *_, last = fit(a_run(text, dropout=0.5, steps=3), tmp_path)
    split = np.array(Packed.open(tmp_path / "train" / "tokens").validation)
    assert last.validation == pytest.approx(evaluate(load_model(tmp_path), split, 16), rel=1e-6)
    assert evaluate(load_model(tmp_path).train(), split, 16) == pytest.approx(last.validation, rel=1e-6)


@pytest.mark.parametrize(("asked", "inside"), [(2, 2), (None, 1)])
def test_the_passes_run_with_the_threads_that_were_asked_for(text, tmp_path, monkeypatch, asked, inside):
    seen, backward = [], Trainer.backward

    def watching(self, x, y):
        seen.append(torch.get_num_threads())
        return backward(self, x, y)

    monkeypatch.setattr(Trainer, "backward", watching)
    reports = fit(a_run(text, steps=3, threads=asked), tmp_path)
    next(reports), next(reports)
    reports.close()
    assert seen == [inside] * 2 and torch.get_num_threads() == 1


@pytest.mark.parametrize("asked", [True, False])
def test_the_passes_run_compiled_where_that_was_asked_for(text, tmp_path, monkeypatch, asked):
    passes = []

    def compiled(model):
        def forward(*given, **more):
            passes.append(given[0].shape)
            return model(*given, **more)

        return forward

    monkeypatch.setattr(torch, "compile", compiled)
    list(fit(a_run(text, steps=2, accumulate=2, compile=asked), tmp_path))
    assert passes == [(4, 16)] * 4 * asked
