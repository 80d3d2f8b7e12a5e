"""An interrupt at any line of the loop: the run goes on, and what it tells is what it would have told."""

import json
import shutil
import sys
from itertools import islice
from pathlib import Path

import pytest
import torch
from train_runs import a_run, same, weights, write_text

from glassformer.checkpoint import read_about
from glassformer.errors import SettingError
from glassformer.train import figure, fit, loop, precision
from glassformer.train.store import STATE, read_facts

FILES = {loop.__file__, figure.__file__}
QUICK = {"advance", "update", "finish", "add"}
ALL = {*QUICK, "backward", "validate", "save", "about", "times", "keep_snapshot", "_reports", "lowest"}


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    return write_text(tmp_path_factory.mktemp("corpus"))


class Interrupting:
    """Ctrl-C before the given line, counted over those that these functions of the loop and the record run."""

    def __init__(self, functions, at):
        self.functions, self.left, self.place = functions, at, None

    def __call__(self, frame, event, arg):
        ours = frame.f_code.co_filename in FILES and frame.f_code.co_name in self.functions
        return self.line if ours and self.left >= 0 else None

    def line(self, frame, event, arg):
        if event == "line":
            self.left -= 1
            if self.left == -1:
                self.place = frame.f_code.co_name, frame.f_lineno
                raise KeyboardInterrupt
        return self.line


def told(folder):
    """The record without its times."""
    lines = (folder / "train" / "reports.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if k not in ("seconds", "tokens_per_s")} for line in lines]


def interrupted(run, folder, functions, at):
    """Go on in the folder until the interrupt; its place, None where the run ended before."""
    reports, tracer, before = fit(run, folder), Interrupting(functions, at), sys.gettrace()
    sys.settrace(tracer)
    try:
        list(reports)
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(before)
        torch.autocast_increment_nesting()  # an exception that comes just before the end of a `with` leaves it open
        while torch.autocast_decrement_nesting():
            pass
        torch.clear_autocast_cache()
    return tracer.place


@pytest.mark.parametrize(
    ("functions", "steps"),
    [(QUICK, 2), pytest.param(ALL, 2, marks=pytest.mark.slow), pytest.param(ALL, 5, marks=pytest.mark.slow)],
    ids=["quick", "last step", "step 4 of 5"],
)
def test_an_interrupt_anywhere_loses_nothing(text, tmp_path, monkeypatch, functions, steps):
    """Before each line of a step after which everything is due: validation, a line of the record, a checkpoint."""
    monkeypatch.setattr(figure, "LINES", 1)
    run = a_run(text, steps=steps, evaluate_every=2, save_every=4, evaluate_blocks=4, validation=0.02)
    begun, whole = tmp_path / "begun", tmp_path / "whole"
    reports = fit(run, begun)
    list(islice(reports, 1 if steps == 2 else 3))
    reports.close()
    list(fit(run, whole))
    expected, final, places = told(whole), weights(whole), set()
    for at in range(1000):
        folder = tmp_path / "run"
        shutil.copytree(begun, folder)
        place = interrupted(run, folder, functions, at)
        if place is None:
            break
        places.add(place[0])
        rest = list(fit(run, folder))
        assert rest[-1].step == steps and rest[-1].validation is not None, place
        assert told(folder) == expected and same(weights(folder), final), place
        shutil.rmtree(folder)
    assert places >= functions - {"lowest"} and at > 60


@pytest.mark.parametrize("part", ["save_model", "save_state"])
def test_a_second_interrupt_while_saving_loses_nothing_either(text, tmp_path, monkeypatch, part):
    monkeypatch.setattr(figure, "LINES", 2)
    run = a_run(text, steps=5, evaluate_every=4, save_every=3)
    list(fit(run, tmp_path / "whole"))
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        inner, left = getattr(loop, part), [1]  # the save of step 3 is whole

        def stopping(*given):
            left[0] -= 1
            if left[0] < 0:
                raise KeyboardInterrupt
            inner(*given)

        patch.setattr(loop, part, stopping)
        list(fit(run, tmp_path / "run"))
    list(fit(run, tmp_path / "run"))
    assert told(tmp_path / "run") == told(tmp_path / "whole")
    assert same(weights(tmp_path / "run"), weights(tmp_path / "whole"))


@pytest.mark.parametrize("part", ["save_model", "save_state"])
def test_an_interrupt_while_saving_is_followed_by_a_whole_save(text, tmp_path, monkeypatch, part):
    inner, calls = getattr(loop, part), []

    def stopping(*given):
        calls.append(part)
        inner(*given)
        if len(calls) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(loop, part, stopping)
    with pytest.raises(KeyboardInterrupt):
        list(fit(a_run(text, save_every=3), tmp_path))
    assert len(calls) == 2 and read_about(tmp_path)["step"] == read_facts(tmp_path / STATE).step == 3
    assert told(tmp_path)[-1]["step"] == 3


def test_a_step_that_is_done_again_has_one_line_with_its_loss(tmp_path):
    records = figure.Records(tmp_path, 0, 10, [2.0, 4.0])
    report = {"step": 2, "rate": 1.0, "gradient_norm": 1.0, "tokens": 2, "tokens_per_s": 1.0, "seconds": 1.0}
    report |= {"loss": 4.0, "validation": None}
    records.add(report)
    records.add(report | {"validation": 1.5})
    assert [(line["step"], line["loss"], line.get("validation")) for line in records.lines] == [(2, 3.0, 1.5)]
    records.add(report | {"step": 3, "loss": 7.0})
    assert records.lines[-1]["loss"] == 7.0, "whose losses are lost has its own at least"


# ------------------------------------------------------------ the number format


def wide(text):
    run = a_run(text, steps=4)
    return run.changed(model=run.model.changed(dim=64))


@pytest.mark.parametrize("fast", [True, False])
def test_a_run_goes_on_in_the_number_format_it_began_with(text, tmp_path, monkeypatch, fast):
    monkeypatch.setattr(precision, "multiplies_bfloat16", lambda device: fast)
    whole = [report.loss for report in fit(wide(text), tmp_path / "whole")]
    reports = fit(wide(text), tmp_path / "parts")
    first = [report.loss for report in islice(reports, 2)]
    reports.close()
    assert read_facts(tmp_path / "parts" / STATE).dtype == ("bfloat16" if fast else "float32")
    monkeypatch.setattr(precision, "multiplies_bfloat16", lambda device: not fast)
    assert first + [report.loss for report in fit(wide(text), tmp_path / "parts")] == whole
    other = [report.loss for report in fit(wide(text), tmp_path / "other")]
    assert other != whole, "the format can be told by the losses"


def test_a_device_without_the_number_format_is_named_before_anything_is_lost(text, tmp_path, monkeypatch):
    run = wide(text).changed(dtype="bfloat16")
    reports = fit(run, tmp_path)
    next(reports)
    reports.close()
    before = {path: path.read_bytes() for path in Path(tmp_path).rglob("*") if path.is_file()}
    monkeypatch.setattr(precision, "knows_bfloat16", lambda device: False)
    for fresh in (False, True):
        with pytest.raises(SettingError, match=r"^dtype: the device cpu cannot compute in the bfloat16"):
            fit(run, tmp_path, fresh=fresh)
    assert {path: path.read_bytes() for path in Path(tmp_path).rglob("*") if path.is_file()} == before
    reports = fit(run.changed(dtype="float32"), tmp_path / "new")
    assert next(reports).step == 1
    reports.close()


def test_of_what_a_run_was_computed_in_its_record_tells(text, tmp_path):
    list(fit(a_run(text, steps=1), tmp_path))
    about = json.loads((tmp_path / "about.json").read_text())
    assert (about["device"], about["dtype"]) == ("cpu", "float32")
