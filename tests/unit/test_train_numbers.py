"""The numbers that training tells are right: speed, time left, losses, which was lowest, and of which weights."""

import io
import itertools
import json
import math
import random
import shutil
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from rich.console import Console
from train_runs import a_run

from glassformer.checkpoint import load_model, read_about
from glassformer.data.packed import Packed
from glassformer.errors import SettingError
from glassformer.mixers.attention import AttentionSpec
from glassformer.nn.channel import MlpSpec
from glassformer.terminal.stopping import Stopping
from glassformer.terminal.training import show
from glassformer.train import AdamWSpec, MuonSpec, RunSpec, ScheduleSpec, evaluate, fit
from glassformer.train import loop as train_loop
from glassformer.train import task as train_task
from glassformer.train.loop import Trainer
from glassformer.train.run import FREE
from glassformer.train.task import TextTask


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    draw = random.Random(0)
    path = tmp_path_factory.mktemp("corpus") / "text.txt"
    path.write_text("".join(draw.choice("abc the dog\n") for _ in range(6000)), encoding="utf-8")
    return path


def record(folder):
    return [json.loads(line) for line in (folder / "train" / "reports.jsonl").read_text().splitlines()]


# ------------------------------------------------------------ speed and time


def clocked(monkeypatch, prepare=1000.0, update=2.0, evaluation=10.0):
    """A clock that only these three move."""
    now = [5.0]
    monkeypatch.setattr(train_loop.time, "perf_counter", lambda: now[0])

    def taking(owner, name, seconds):
        inner = getattr(owner, name)

        def slow(*given, **more):
            now[0] += seconds
            return inner(*given, **more)

        monkeypatch.setattr(owner, name, slow)

    taking(train_task, "prepare", prepare)
    taking(Trainer, "update", update)
    taking(TextTask, "measure", evaluation)
    return now


def test_speed_and_time_left_are_those_of_the_updates(text, tmp_path, monkeypatch):
    clocked(monkeypatch)
    reports = list(fit(a_run(text, steps=10, evaluate_every=5), tmp_path))
    assert [report.tokens_per_s for report in reports] == pytest.approx([4 * 16 / 2.0] * 10)
    assert [report.seconds for report in reports] == pytest.approx(
        [*(1000 + 2 * step for step in range(1, 5)), *(1010 + 2 * step for step in range(5, 10)), 1040]
    )
    left = [report.seconds_left for report in reports]
    assert left[:4] == pytest.approx([18, 16, 14, 12])
    assert left[4] == pytest.approx((4 * 2 + 10) / 4 * 5), "evaluations count, the first update no longer"
    assert left[9] == 0
    (more,) = itertools.islice(fit(a_run(text, steps=20, evaluate_every=None), tmp_path), 1)
    assert more.seconds == pytest.approx(1040 + 1002) and more.seconds_left == pytest.approx(2 * 9)


def test_a_slow_first_update_does_not_stand_for_all(text, tmp_path, monkeypatch):
    """torch.compile is at work in it."""
    now = clocked(monkeypatch)
    reports = fit(a_run(text, steps=100, evaluate_every=None), tmp_path)
    forward = Trainer.backward

    def compiling(self, x, y):
        now[0] += 60
        return forward(self, x, y)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "backward", compiling)
        assert next(reports).seconds_left == pytest.approx(62 * 99)
    assert next(reports).seconds_left == pytest.approx(2 * 98)
    reports.close()


# ------------------------------------------------------------ losses


def test_the_last_evaluation_is_whole_whatever_is_looked_at_on_the_way(text, tmp_path):
    reports = list(fit(a_run(text, steps=6, evaluate_every=3, evaluate_blocks=2), tmp_path))
    split = np.array(Packed.open(tmp_path / "train" / "tokens").validation)
    model = load_model(tmp_path)
    last = reports[-1]
    assert last.validation == pytest.approx(evaluate(model, split, 16), rel=1e-6)
    assert last.watched == pytest.approx(evaluate(model, split, 16, most=2), rel=1e-6)
    assert last.validation != pytest.approx(last.watched, rel=1e-3)
    assert reports[2].validation == reports[2].watched and reports[0].watched is None
    lines = [line for line in record(tmp_path) if "validation" in line]
    assert [line["windows"] for line in lines] == [2, 2]
    assert [line["watched"] for line in lines] == pytest.approx([reports[2].watched, last.watched], abs=1e-6)


@pytest.mark.parametrize("blocks", [1, 2, 7])
def test_weights_that_never_change_have_learnt_nothing_by_heart(text, tmp_path, blocks):
    still = {"optimizer": AdamWSpec(rate=0.0), "evaluate_every": 1, "evaluate_blocks": blocks, "steps": 4}
    run, console = a_run(text, **still), Console(file=io.StringIO(), width=200)
    last = show(lambda progress: fit(run, tmp_path, progress=progress), run, tmp_path, console, Stopping())
    seen = [line["watched"] for line in record(tmp_path)]
    assert len(set(seen)) == 1 and last.best_validation == pytest.approx(seen[0], abs=1e-6) and last.best_step == 1
    assert "by heart" not in console.file.getvalue() and "4 steps in" in console.file.getvalue()
    figure = ElementTree.parse(tmp_path / "train" / "loss.svg").getroot()
    heights = [circle.get("cy") for circle in figure.findall("{*}circle")]
    assert len(heights) == 4 and len(set(heights)) == 1, "the figure shows no rise at the end either"


def test_a_text_that_is_learnt_by_heart_is_said_to_be(text, tmp_path):
    """Random characters: what fits the training part better fits the rest worse."""
    model = a_run(text).model
    block = model.blocks[0].changed(mixer=AttentionSpec(heads=2), channel=MlpSpec(hidden=128))
    run = a_run(
        text,
        model=model.changed(dim=32, blocks=(block,)),
        validation=0.9,
        optimizer=MuonSpec(others=AdamWSpec(rate=2e-2)),
        schedule=ScheduleSpec(shape="constant", warmup=0),
        steps=120,
        evaluate_every=20,
        evaluate_blocks=20,
    )
    console = Console(file=io.StringIO(), width=300)
    last = show(lambda progress: fit(run, tmp_path, progress=progress), run, tmp_path, console, Stopping())
    assert last.best_step < 120 and last.watched > 1.05 * last.best_validation
    assert f"lowest at step {last.best_step} ({last.best_validation:.3f})" in console.file.getvalue()


def test_losses_over_other_windows_are_not_compared(text, tmp_path):
    still = {"optimizer": AdamWSpec(rate=0.0), "evaluate_every": 1}
    list(fit(a_run(text, steps=2, evaluate_blocks=1, **still), tmp_path))
    (more,) = fit(a_run(text, steps=3, evaluate_blocks=5, **still), tmp_path)
    assert more.best_step == 3 and more.best_validation == more.watched
    (more,) = fit(a_run(text, steps=4, evaluate_blocks=1, **still), tmp_path)
    assert more.best_step == 1 and more.best_validation == pytest.approx(more.watched, abs=1e-6)


def test_a_checkpoint_tells_the_loss_of_its_own_weights(text, tmp_path):
    run = a_run(text, steps=12, evaluate_every=3, save_every=5)
    reports = fit(run, tmp_path)
    for report in itertools.islice(reports, 10):
        about = read_about(tmp_path)
        if report.step == 5:
            assert about["step"] == 5 and about["validation_loss"] is None and about["bits_per_byte"] is None
    assert read_about(tmp_path)["step"] == 10
    list(reports)
    about, split = read_about(tmp_path), np.array(Packed.open(tmp_path / "train" / "tokens").validation)
    assert about["validation_loss"] == pytest.approx(evaluate(load_model(tmp_path), split, 16), rel=1e-6)
    bits = about["validation_loss"] / math.log(2)  # a token is a byte here
    assert about["bits_per_byte"] == pytest.approx(bits, rel=1e-6)


# ------------------------------------------------------------ the record


def test_a_line_holds_the_mean_loss_since_the_line_before(text, tmp_path, monkeypatch):
    monkeypatch.setattr("glassformer.train.figure.LINES", 4)
    reports = list(fit(a_run(text, evaluate_every=5), tmp_path))  # a line every third step, and after evaluations
    losses, lines = [report.loss for report in reports], record(tmp_path)
    assert [line["step"] for line in lines] == [3, 5, 6, 9, 10, 12]
    spans = itertools.pairwise([0, *(line["step"] for line in lines)])
    means = [sum(losses[first:end]) / (end - first) for first, end in spans]
    assert [line["loss"] for line in lines] == pytest.approx(means, abs=1e-6)


@pytest.mark.parametrize("parts", [(1,), (2, 5), (4, 7, 11)])
def test_the_record_of_a_run_in_parts_is_that_of_one_that_never_stopped(text, tmp_path, monkeypatch, parts):
    monkeypatch.setattr("glassformer.train.figure.LINES", 4)
    run = a_run(text, evaluate_every=None)
    list(fit(run, tmp_path / "whole"))
    done = 0
    for stop in parts:
        reports = fit(run, tmp_path / "parts")
        list(itertools.islice(reports, stop - done))
        reports.close()
        done = stop
    list(fit(run, tmp_path / "parts"))

    def without_times(folder):
        return [{k: v for k, v in line.items() if k not in ("seconds", "tokens_per_s")} for line in record(folder)]

    assert without_times(tmp_path / "parts") == without_times(tmp_path / "whole")
    figures = [(tmp_path / name / "train" / "loss.svg").read_bytes() for name in ("parts", "whole")]
    assert figures[0] == figures[1]


@pytest.mark.parametrize(("owner", "part"), [(TextTask, "measure"), (Trainer, "keep_snapshot")])
def test_what_an_interrupt_came_before_is_made_up_for(text, tmp_path, monkeypatch, owner, part):
    monkeypatch.setattr("glassformer.train.figure.LINES", 4)
    run = a_run(text, evaluate_every=5)
    whole, reports = list(fit(run, tmp_path / "whole")), fit(run, tmp_path / "parts")
    first = list(itertools.islice(reports, 4))
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(owner, part, lambda *given: (_ for _ in ()).throw(KeyboardInterrupt))
        next(reports)
    rest = list(fit(run, tmp_path / "parts"))
    assert [(one.step, one.loss, one.validation) for one in first + rest] == [
        (one.step, one.loss, one.validation) for one in whole
    ]
    assert rest[0].seconds_left < 60
    assert [(line["step"], line["loss"], line.get("watched")) for line in record(tmp_path / "parts")] == [
        (line["step"], line["loss"], line.get("watched")) for line in record(tmp_path / "whole")
    ]


# ------------------------------------------------------------ which settings may change

# Only these change what is seen of a run or how fast it is, and not what it learns.
ALLOWED = {
    *("data", "steps", "threads", "evaluate_every", "evaluate_blocks", "sample_every", "sample_tokens", "prompt"),
    *("save_every", "snapshots"),
}
OTHERS = {
    "steps": 7,
    "threads": 1,
    "evaluate_every": 2,
    "evaluate_blocks": 3,
    "sample_every": 2,
    "sample_tokens": 3,
    "prompt": "dog",
    "save_every": 2,
    "snapshots": 3,
    "validation": 0.2,
    "batch": 5,
    "block": 15,
    "begin": 0.5,
    "accumulate": 2,
    "clip": 0.5,
    "dtype": "bfloat16",
    "compile": True,
    "seed": 1,
    "schedule": ScheduleSpec(warmup=3),
    "optimizer": AdamWSpec(rate=2e-2),
}


@pytest.fixture(scope="module")
def begun(text, tmp_path_factory):
    folder = tmp_path_factory.mktemp("begun") / "run"
    list(fit(a_run(text, steps=2), folder))
    return folder


@pytest.mark.parametrize("name", RunSpec.__struct_fields__)
def test_what_is_learnt_cannot_change_on_the_way(text, begun, tmp_path, name):
    run = a_run(text, steps=6)
    if name == "data":
        other = tmp_path / "moved.txt"
        other.write_bytes(text.read_bytes())
        changed = run.changed(data=str(other))
    elif name == "model":
        changed = run.changed(model=run.model.changed(context=32))
    elif name == "tokenizer":
        changed = run.changed(tokenizer=run.tokenizer.changed(vocab=300))
    else:
        changed = run.changed(**{name: OTHERS[name]})
    assert changed != run
    folder = tmp_path / "run"
    shutil.copytree(begun, folder)
    if name in ALLOWED:
        assert next(fit(changed, folder)).step == 3
    else:
        with pytest.raises(SettingError, match=rf"^{name}[.:].* holds a run at step 2"):
            fit(changed, folder)
    assert (name in ALLOWED) == (name in FREE)
