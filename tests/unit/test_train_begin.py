"""A model knows how a text begins: behind the end token, of whose windows and losses every document has its share."""

import math

import numpy as np
import pytest
import torch
from train_runs import a_run, write_text

import glassformer as gf
from glassformer.data.packed import Packed
from glassformer.errors import SettingError
from glassformer.train import AdamWSpec, fit
from glassformer.train.evaluate import token_loss
from glassformer.train.loop import Trainer


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    return write_text(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("documents")
    for number in range(60):
        (folder / f"{number:02}.txt").write_text(f"the {number} cats", encoding="utf-8")
    return folder


def first_costs(folder):
    """Nats that each token of the vocabulary costs as the first of a text."""
    model = gf.load(folder)
    return -model([model.tokenizer.end_id])[0, -1].log_softmax(-1), model


def test_a_model_of_one_file_knows_how_a_text_begins(text, tmp_path):
    """Here with one of the words, which are drawn at random: their first letters' entropy is 1.9 nats."""
    run = a_run(text, steps=200, optimizer=AdamWSpec(rate=2e-2), evaluate_every=None)
    costs = {}
    for name, share in (("usual", 1 / 16), ("never", 0.0)):
        list(fit(run.changed(begin=share), tmp_path / name))
        of_tokens, model = first_costs(tmp_path / name)
        words = text.read_text(encoding="utf-8").split()
        costs[name] = of_tokens[model.tokenizer.encode("".join(word[0] for word in words)).ids].mean().item()
    assert costs["usual"] < 2.3 < math.log(model.spec.vocab) < costs["never"]


def test_windows_are_begun_only_where_documents_are_rare(text, corpus, tmp_path):
    for source, block, rare in ((text, 16, True), (corpus, 8, False)):
        trainer = Trainer(a_run(source, block=block), tmp_path / str(rare))
        assert (trainer.task.begin is not None) == rare
        trainer.held.close()
    trainer = Trainer(a_run(text, begin=0.0), tmp_path / "never")
    seen = []
    trainer.model.register_forward_pre_hook(lambda module, args: seen.append(args[0].clone()))
    trainer.update()
    assert not (seen[0] == trainer.task.tokenizer.end_id).any()
    trainer.held.close()


def test_the_share_is_that_of_the_windows_and_the_validation_loss_sees_none(text, tmp_path):
    trainer = Trainer(a_run(text, begin=0.25, batch=8), tmp_path)
    seen = []
    trainer.model.register_forward_pre_hook(lambda module, args: seen.append(args[0].clone()))
    for _ in range(3):
        trainer.update()
    training = torch.cat(seen)
    assert (training[:, 0] == trainer.task.tokenizer.end_id).sum() == 6
    seen.clear()
    trainer.task.measure(trainer.model, None)
    plain = torch.cat([part.flatten() for part in seen])
    assert plain.tolist() == trainer.task.packed.validation[:-1].tolist(), "the text as it is"
    trainer.held.close()


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_a_share_that_is_none_is_refused(text, share):
    with pytest.raises(SettingError, match=r"^begin: .* from 0 to 1"):
        a_run(text, begin=share)


def test_bits_per_byte_are_those_of_the_text_alone(corpus, tmp_path):
    """As `evaluate` counts them: the end tokens are no text, and what predicting them costs is nobody's."""
    *_, last = fit(a_run(corpus, validation=0.5, steps=20, evaluate_blocks=3), tmp_path)
    packed, model = Packed.open(tmp_path / "train" / "tokens"), gf.load(tmp_path)
    assert packed.validation_documents > 20
    tokens, total, count = np.array(packed.validation, np.int64), 0.0, 0
    for start in range(0, len(tokens) - 1, 16):
        part = torch.from_numpy(tokens[start : start + 17])[None]
        counts = part[0, 1:] != model.tokenizer.end_id
        losses = token_loss(model(part[:, :-1]), part[:, 1:], "none")[counts]
        total, count = total + losses.sum().item(), count + len(losses)
    assert count == len(tokens) - packed.validation_documents == packed.validation_bytes
    assert last.validation == pytest.approx(total / count, rel=1e-5)
    assert last.bits_per_byte == pytest.approx(total / packed.validation_bytes / math.log(2), rel=1e-5)


def test_training_and_evaluate_agree_on_one_short_text(tmp_path):
    """Where nothing but the definition could part them: one document that fits into a window."""
    held, source = tmp_path / "held.txt", write_text(tmp_path)
    held.write_text("the cat saw a dog", encoding="utf-8")
    run = a_run(source, validation=str(held), steps=20)
    run = run.changed(block=32, model=run.model.changed(context=32))
    *_, last = fit(run, tmp_path / "out")
    score = gf.load(tmp_path / "out").evaluate(held)
    assert score.bytes == 17 and score.loss == pytest.approx(last.validation, rel=1e-5)
    assert score.bits_per_byte == pytest.approx(last.bits_per_byte, rel=1e-5)
