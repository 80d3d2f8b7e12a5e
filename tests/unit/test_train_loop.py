"""Training: it learns, it goes on bit for bit, and it survives being killed."""

import itertools
import json
import math
import os
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from train_runs import a_run, same, weights, write_text

from glassformer.checkpoint import load_model, read_about
from glassformer.data.packed import Packed
from glassformer.errors import CheckpointError, SettingError
from glassformer.train import AdamWSpec, MuonSpec, evaluate, fit, read_run
from glassformer.train import store as train_store
from glassformer.train.loop import Trainer
from glassformer.train.optimizer import Optimizer


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    return write_text(tmp_path_factory.mktemp("corpus"))


def test_the_loss_falls_and_everything_is_written(text, tmp_path):
    reports = list(fit(a_run(text, steps=80, snapshots=4), tmp_path))
    assert [r.step for r in reports] == list(range(1, 81))
    assert reports[0].loss > 2.0 and reports[-1].loss < 0.75 * reports[0].loss
    last = reports[-1]
    assert last.saved and last.sample.startswith("the") and len(last.sample) == 8
    assert last.tokens == 80 * 4 * 16 and last.tokens_per_s > 0 and last.seconds_left == 0
    assert [r.step for r in reports if r.validation is not None] == [*range(6, 80, 6), 80]
    # one token is one byte of this text, but the validation split's first token is not predicted
    assert last.bits_per_byte == pytest.approx(last.validation / math.log(2), rel=1e-6)

    model = load_model(tmp_path)
    tokens = np.array(Trainer(a_run(text, steps=80), tmp_path).task.packed.validation)
    assert evaluate(model, tokens, 16) == pytest.approx(last.validation, rel=1e-6)
    about = read_about(tmp_path)
    assert about["validation_loss"] == pytest.approx(last.validation, abs=1e-5) and about["step"] == 80
    assert str(text.parent) not in json.dumps(about)
    assert len(list((tmp_path / "train" / "snapshots").iterdir())) == 4
    assert load_model(tmp_path / "train" / "snapshots" / "0000080").spec == model.spec


def test_the_figure_and_the_record(text, tmp_path):
    reports = list(fit(a_run(text), tmp_path))
    lines = [json.loads(line) for line in (tmp_path / "train" / "reports.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(1, 13))
    assert [line["loss"] for line in lines] == pytest.approx([r.loss for r in reports], abs=1e-5)
    assert [line["validation"] for line in lines if "validation" in line] == pytest.approx(
        [r.validation for r in reports if r.validation is not None], abs=1e-5
    )
    figure = ElementTree.parse(tmp_path / "train" / "loss.svg").getroot()
    assert len(figure.findall("{*}polyline")[0].get("points").split()) == 12
    assert len(figure.findall("{*}circle")) == 2
    texts = [element.text for element in figure.findall("{*}text")]
    assert (
        "updates" in texts and "loss (nats per token)" in texts and f"validation {lines[-1]['validation']:.3f}" in texts
    )


def test_nothing_is_printed(text, tmp_path, capfd):
    list(fit(a_run(text, steps=2), tmp_path))
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("optimizer", [AdamWSpec(rate=1e-2), MuonSpec()], ids=["adamw", "muon"])
def test_a_resumed_run_equals_one_that_never_stopped(text, tmp_path, optimizer):
    run = a_run(text, optimizer=optimizer, dropout=0.2)
    whole = list(fit(run, tmp_path / "whole"))
    reports = fit(run, tmp_path / "parts")
    first = list(itertools.islice(reports, 5))
    torch.rand(7)  # whatever else draws random numbers meanwhile
    reports.close()
    rest = list(fit(run, tmp_path / "parts"))
    assert [r.step for r in rest] == list(range(6, 13))
    assert [r.loss for r in whole] == [r.loss for r in first + rest]
    assert same(weights(tmp_path / "whole"), weights(tmp_path / "parts"))
    states = [load_file(tmp_path / name / "train" / "state.safetensors") for name in ("whole", "parts")]
    assert same(*states) and any(name.startswith("optimizer.") for name in states[0])


def test_a_complete_run_gives_its_last_report_again(text, tmp_path):
    last = list(fit(a_run(text), tmp_path))[-1]
    assert list(fit(a_run(text), tmp_path)) == [last]


def test_global_random_state_and_threads_are_left_alone(text, tmp_path):
    torch.manual_seed(5)
    expected, threads = torch.rand(3), torch.get_num_threads()
    torch.manual_seed(5)
    list(fit(a_run(text, steps=2, threads=1), tmp_path))
    assert torch.equal(torch.rand(3), expected) and torch.get_num_threads() == threads


def test_another_run_in_the_same_folder_is_refused(text, tmp_path):
    list(fit(a_run(text, steps=3), tmp_path))
    with pytest.raises(SettingError, match=r"optimizer\.rate: .* step 3 with 0\.01, and 0\.1 was given"):
        fit(a_run(text, steps=3, optimizer=AdamWSpec(rate=0.1)), tmp_path)
    other = tmp_path / "other.txt"
    other.write_text(text.read_text() + " a tree")
    with pytest.raises(SettingError, match=r"data: .* another text"):
        fit(a_run(other, steps=3), tmp_path)
    moved = tmp_path / "moved.txt"
    moved.write_text(text.read_text())
    more = list(fit(a_run(moved, steps=5, evaluate_every=None), tmp_path))
    assert [r.step for r in more] == [4, 5]


class Killed(BaseException):
    """Stands for the process ending at once."""


@pytest.mark.parametrize("writes", range(1, 14))
def test_killed_between_any_two_writes_leaves_a_whole_checkpoint(text, tmp_path, monkeypatch, writes):
    run = a_run(text, save_every=3)
    expected = list(fit(run, tmp_path / "whole"))
    rename, left = type(tmp_path).replace, [writes]

    def dying(self, target):
        if left[0] == 0:
            raise Killed
        left[0] -= 1
        return rename(self, target)

    reports = fit(run, tmp_path / "killed")
    monkeypatch.setattr(type(tmp_path), "replace", dying)
    with pytest.raises(Killed):
        list(reports)
    monkeypatch.undo()
    rest = list(fit(run, tmp_path / "killed"))
    assert rest[0].step - 1 == 3 * ((writes + 3) // 6)  # a save is six files, the state behind the two of the record
    assert [r.loss for r in rest] == [r.loss for r in expected[-len(rest) :]]
    assert same(weights(tmp_path / "whole"), weights(tmp_path / "killed"))
    lines = (tmp_path / "killed" / "train" / "reports.jsonl").read_text().splitlines()
    steps = [json.loads(line)["step"] for line in lines]
    assert steps == sorted(set(steps)) and steps[-1] == 12


def test_an_interrupt_inside_an_update_keeps_the_last_checkpoint(text, tmp_path, monkeypatch):
    reports = fit(a_run(text, save_every=2), tmp_path)
    next(reports), next(reports), next(reports)

    def interrupted(self, share):
        raise KeyboardInterrupt

    monkeypatch.setattr(Optimizer, "step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        next(reports)
    assert train_store.read_facts(tmp_path / "train" / "state.safetensors").step == 2


def test_a_broken_state_file_is_named(text, tmp_path):
    list(fit(a_run(text, steps=2), tmp_path))
    path = tmp_path / "train" / "state.safetensors"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(CheckpointError, match=r"state\.safetensors is broken"):
        fit(a_run(text, steps=2), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_shakespeare_recipe_reaches_its_loss(tmp_path, seed):
    if "GLASSFORMER_DATA" not in os.environ:
        pytest.skip("GLASSFORMER_DATA is not set")
    run = read_run(Path(__file__).parents[2] / "runs" / "shakespeare.toml")
    *_, last = fit(run.changed(seed=seed), tmp_path)
    assert last.validation < 1.85  # over the whole split in blocks of 64; the target is 1.88
    assert evaluate(load_model(tmp_path), Packed.open(tmp_path / "train" / "tokens").validation, 64) == pytest.approx(
        last.validation, rel=1e-5
    )
