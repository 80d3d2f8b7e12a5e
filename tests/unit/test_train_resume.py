"""Going on: from a text alone, from a whole state only, and one training at a time in a folder."""

import json
import shutil
import subprocess
import sys

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from glassformer.errors import CheckpointError, InputError, SettingError
from glassformer.mixers.attention import AttentionSpec
from glassformer.model import BlockSpec, ModelSpec
from glassformer.nn.channel import MlpSpec
from glassformer.spec import to_data
from glassformer.train import AdamWSpec, MuonSpec, RunSpec, fit, read_run
from glassformer.train.store import STATE, read_facts

SMALL = {
    "steps": "2",
    "batch": "2",
    "block": "16",
    "model.layers": "1",
    "model.dim": "16",
    "model.blocks.*.mixer.heads": "2",
    "sample_tokens": "0",
    "snapshots": "0",
}


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "my.txt"
    path.write_text("the cat saw a dog and the dog ran to a tree. " * 60, encoding="utf-8")
    return path


def a_run(text, **changes):
    block = BlockSpec(mixer=AttentionSpec(heads=2), channel=MlpSpec(hidden=16))
    model = ModelSpec(vocab=257, dim=8, blocks=(block,), context=16)
    given = {"steps": 2, "batch": 2, "block": 16, "sample_tokens": 0, "snapshots": 0, "model": model} | changes
    return read_run(text, {"tokenizer.method": "byte"}).changed(**given)


# ------------------------------------------------------------ from a text alone


def test_a_text_alone_goes_on_whatever_was_set_the_first_time(text, tmp_path):
    folder = tmp_path / "out"
    settings = SMALL | {"optimizer.kind": "adamw", "optimizer.rate": "0.004", "tokenizer.method": "char"}
    list(fit(read_run(text, settings, folder), folder))
    again = read_run(text, folder=folder)
    assert again.optimizer == AdamWSpec(rate=0.004) and again.tokenizer.method == "char" and again.data == str(text)
    (last,) = fit(again, folder)
    assert last.step == 2
    more = list(fit(read_run(text, {"steps": "4"}, folder), folder))
    assert [report.step for report in more] == [3, 4]
    assert read_run(text).optimizer.rate == 0.02, "without the folder it is a new run"
    with pytest.raises(SettingError, match=r"^optimizer\.rate: .* --fresh"):
        fit(read_run(text, {"optimizer.rate": "0.1"}, folder), folder)
    with pytest.raises(InputError, match="no such file or folder; .*did you mean my.txt"):
        read_run(tmp_path / "mi.txt", folder=folder)


def test_a_text_alone_goes_on_with_what_was_set_before_the_first_checkpoint(text, tmp_path):
    folder, held = tmp_path / "out", tmp_path / "held.txt"
    held.write_text("the dog saw a tree. " * 20)
    run = read_run(text, SMALL | {"steps": "8", "optimizer.kind": "adamw", "validation": str(held)}, folder)
    reports = fit(run, folder)
    for path in (STATE, "model.json"):
        assert not (folder / path).exists()
    assert read_run(text, folder=folder) == run, "even before its first step"
    next(reports)
    copied = tmp_path / "killed"
    shutil.copytree(folder, copied)  # as a kill leaves it
    reports.close()
    again = read_run(text, folder=copied)
    assert again == run and not (copied / STATE).exists()
    assert [report.step for report in fit(again, copied)] == list(range(1, 9))
    for name in ("model.safetensors", "train/state.safetensors"):
        assert (copied / name).is_file()


def test_the_settings_of_the_start_count_for_their_text_only_and_until_there_is_a_state(text, tmp_path):
    folder, other = tmp_path / "out", tmp_path / "other.txt"
    other.write_text("another text " * 200)
    fit(read_run(text, SMALL), folder)
    assert read_run(other, folder=folder).steps == 60, "nothing was learnt of the first yet"
    assert read_run(text, {"model.dim": "32"}, folder).model.dim == 32
    list(fit(read_run(text, SMALL), folder))
    assert read_run(text, {"steps": "3"}, folder).steps == 3
    list(fit(read_run(text, {"steps": "3"}, folder), folder))
    assert read_run(text, folder=folder).steps == 3, "of the last session, not of the first"


@pytest.mark.parametrize("content", ["{", "[]", '{"stepz": 1}', "고"])
def test_broken_settings_of_the_start_are_named(text, tmp_path, content):
    folder = tmp_path / "out"
    fit(read_run(text, SMALL), folder)
    (folder / "train" / "run.json").write_bytes(content.encode("cp949"))
    with pytest.raises(CheckpointError, match=r"run\.json is broken .*; train anew with --fresh") as refused:
        read_run(text, folder=folder)
    assert "\n" not in str(refused.value)
    assert [report.step for report in fit(read_run(text, SMALL), folder, fresh=True)] == [1, 2]


def test_a_run_with_a_validation_text_of_its_own_finds_it_again(text, tmp_path):
    held = tmp_path / "held.txt"
    held.write_text("the dog saw a tree. " * 20)
    folder = tmp_path / "out"
    list(fit(read_run(text, SMALL | {"validation": str(held)}), folder))
    assert read_run(text, folder=folder).validation == str(held)
    assert [report.step for report in fit(text, folder)] == [2]
    held.rename(tmp_path / "moved.txt")
    with pytest.raises(InputError, match=r"kept held\.txt for validation.*--set validation=PATH"):
        read_run(text, folder=folder)
    assert read_run(text, {"validation": str(tmp_path / "moved.txt")}, folder).steps == 2


def test_fit_takes_the_path_of_a_text_or_recipe(text, tmp_path):
    list(fit(read_run(text, SMALL), tmp_path / "out"))
    assert [report.step for report in fit(str(text), tmp_path / "out")] == [2]
    recipe = tmp_path / "run.json"
    recipe.write_text(json.dumps(to_data(a_run(text))), encoding="utf-8")
    assert [report.step for report in fit(recipe, tmp_path / "other")] == [1, 2]


# ------------------------------------------------------------ from a whole state only


def rewritten(folder, tensors=lambda tensors: None, facts=lambda facts: None):
    path = folder / STATE
    with safe_open(path, "pt") as file:
        data = json.loads(file.metadata()["glassformer"])
    values = load_file(path)
    facts(data)
    tensors(values)
    save_file(values, path, {"glassformer": json.dumps(data)})


WEIGHT, TABLE = "blocks.0.channel.up.weight", "embed.token.weight"
TENSORS = {
    "lacking weight": (lambda t: t.pop(f"model.{WEIGHT}"), rf"lack '{WEIGHT}'"),
    "misshaped weight": (lambda t: t.update({f"model.{WEIGHT}": torch.zeros(3)}), rf"'{WEIGHT}' has shape \(3,\)"),
    "foreign weight": (lambda t: t.update({"model.nothing": torch.zeros(3)}), "hold 'nothing'"),
    "lacking memory": (lambda t: t.pop(f"optimizer.{TABLE}/exp_avg"), f"lack '{TABLE}/exp_avg'"),
    "no memory": (
        lambda t: [t.pop(name) for name in list(t) if name.startswith(f"optimizer.{WEIGHT}")],
        f"lack '{WEIGHT}/momentum'",
    ),
    "misshaped memory": (
        lambda t: t.update({f"optimizer.{TABLE}/exp_avg_sq": torch.zeros(5)}),
        rf"'{TABLE}/exp_avg_sq' has shape \(5,\)",
    ),
    "foreign memory": (lambda t: t.update({"optimizer.no/thing": torch.zeros(3)}), "hold 'no/thing'"),
    "nobody's": (lambda t: t.update({"other": torch.zeros(3)}), "'other' belongs neither"),
}
FACTS = {
    "no step": lambda facts: facts.pop("step"),
    "step of words": lambda facts: facts.update(step="two"),
    "step 0": lambda facts: facts.update(step=0),
    "no report": lambda facts: facts.update(report=None),
    "short report": lambda facts: facts["report"].pop("loss"),
    "no run": lambda facts: facts.pop("run"),
    "wrong run": lambda facts: facts["run"].update(stepz=3),
    "no fingerprint": lambda facts: facts.pop("fingerprint"),
    "no format": lambda facts: facts.pop("format"),
    "another format": lambda facts: facts.update(format="x"),
}


@pytest.mark.parametrize("name", TENSORS)
def test_a_state_that_does_not_fit_is_named(text, tmp_path, name):
    change, message = TENSORS[name]
    run = a_run(text, optimizer=MuonSpec())
    list(fit(run, tmp_path / "out"))
    rewritten(tmp_path / "out", tensors=change)
    with pytest.raises(CheckpointError, match=rf"state\.safetensors: .*{message}"):
        fit(run.changed(steps=3), tmp_path / "out")


@pytest.mark.parametrize("name", FACTS)
def test_facts_that_are_not_whole_are_named(text, tmp_path, name):
    run = a_run(text)
    list(fit(run, tmp_path / "out"))
    rewritten(tmp_path / "out", facts=FACTS[name])
    with pytest.raises(CheckpointError, match=r"state\.safetensors (is broken|has format)") as refused:
        fit(run, tmp_path / "out")
    assert "\n" not in str(refused.value)


def test_a_state_of_an_earlier_version_goes_on(text, tmp_path):
    """It knew fewer numbers of a report and fewer settings."""
    run = a_run(text, optimizer=MuonSpec())
    list(fit(run, tmp_path / "out"))

    def older(facts):
        del facts["report"]["best_step"], facts["report"]["best_validation"]
        del facts["run"]["snapshots"], facts["run"]["model"]["init"]

    rewritten(tmp_path / "out", facts=older)
    assert [report.step for report in fit(run.changed(steps=3), tmp_path / "out")] == [3]


@pytest.mark.parametrize("line", ["{", "[]", '{"step": 1}', '{"step": 1, "loss": "low"}', "\udcff"])
def test_a_broken_record_is_named(text, tmp_path, line):
    run = a_run(text)
    list(fit(run, tmp_path / "out"))
    path = tmp_path / "out" / "train" / "reports.jsonl"
    path.write_bytes(line.encode("utf-8", "surrogateescape"))
    with pytest.raises(CheckpointError, match=r"reports\.jsonl is broken .*; delete it"):
        fit(run.changed(steps=3), tmp_path / "out")
    path.unlink()
    assert [report.step for report in fit(run.changed(steps=3), tmp_path / "out")] == [3]


def test_the_lowest_validation_loss_is_remembered(text, tmp_path):
    run = a_run(text, steps=3, evaluate_every=1)
    *_, last = fit(run, tmp_path / "out")
    lines = [json.loads(line) for line in (tmp_path / "out" / "train" / "reports.jsonl").read_text().splitlines()]
    best = min(lines, key=lambda line: line["validation"])
    assert last.best_step == best["step"] and last.best_validation == pytest.approx(best["validation"], abs=1e-6)
    rewritten(tmp_path / "out")
    (tmp_path / "out" / "train" / "reports.jsonl").write_text(json.dumps(lines[0] | {"watched": 0.5}) + "\n")
    *_, more = fit(run.changed(steps=5), tmp_path / "out")
    assert (more.best_step, more.best_validation) == (1, 0.5), "of all sessions"


# ------------------------------------------------------------ one training at a time


def test_two_trainings_do_not_share_a_folder(text, tmp_path):
    run, folder = a_run(text, steps=3), tmp_path / "out"
    reports = fit(run, folder)
    next(reports)
    with pytest.raises(InputError, match="another training is at work in this folder"):
        fit(run, folder)
    with pytest.raises(InputError, match="another training is at work"):
        fit(run, folder, fresh=True)
    reports.close()
    assert [report.step for report in fit(run, folder)] == [2, 3]
    assert read_facts(folder / STATE).step == 3
    assert not [path for path in folder.rglob("*") if "lock" in path.name], "there is no file to be left behind"


def test_another_process_is_noticed_and_its_end_too(text, tmp_path):
    folder = tmp_path / "out"
    program = (
        "import sys, pathlib; from glassformer.train.lock import alone_in\n"
        "with alone_in(pathlib.Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", program, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "held\n"
        with pytest.raises(InputError, match="another training is at work"):
            fit(a_run(text), folder)
        other.kill()  # at once: nothing of its own can tidy up
        other.wait()
    assert [report.step for report in fit(a_run(text), folder)] == [1, 2]


def test_runs_are_compared_with_their_texts_by_name(text, tmp_path):
    list(fit(a_run(text), tmp_path / "out"))
    facts = read_facts(tmp_path / "out" / STATE)
    assert isinstance(facts.run, RunSpec) and facts.run.data == "my.txt"


def test_reports_that_are_never_asked_for_hold_no_folder(text, tmp_path):
    for _ in range(2):
        reports = fit(a_run(text), tmp_path / "out")
        del reports
    assert [report.step for report in fit(a_run(text), tmp_path / "out")] == [1, 2]
