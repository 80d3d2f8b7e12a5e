"""Recipes of several runs: how each is laid over what they share, trained in its own folder, and named in mistakes."""

import io
import json
import re
import tomllib

import pytest
from rich.console import Console
from train_runs import contents, same, weights, write_text
from wcwidth import wcswidth

from glassformer.cli import main
from glassformer.errors import InputError, SettingError
from glassformer.terminal.several import lines, show_outcomes
from glassformer.train import Outcome, check, fit, read_run, read_runs
from glassformer.train.recipe import laid_over

RECIPE = """
data = "text.txt"
steps = 3
batch = 2
block = 16
snapshots = 0
sample_tokens = 0
evaluate_every = 2
save_every = 1

[tokenizer]
method = "byte"
vocab = 257

[optimizer]
kind = "adamw"
rate = 0.01

[model]
dim = 8

[model.block]
norm = { kind = "layernorm" }
channel = { kind = "mlp", hidden = 16 }
mixer = { kind = "attention", heads = 2, bias = true }

[runs.looks.model]
layers = 2
block.mixer.heads = 4

[runs.remembers]
seed = 7
optimizer = { kind = "muon" }
model.layers = 1
model.block.mixer = { kind = "lstm" }

[[runs.slides.model.blocks]]
mixer = { kind = "conv", width = 2 }

[[runs.slides.model.blocks]]
mixer = { kind = "conv", width = 3 }
channel.hidden = 24
"""


@pytest.fixture
def recipe(tmp_path):
    write_text(tmp_path)
    path = tmp_path / "three.toml"
    path.write_text(RECIPE, encoding="utf-8")
    return path


# ------------------------------------------------------------ what is read


def test_each_run_is_laid_over_what_they_share(recipe):
    runs = read_runs(recipe)
    assert list(runs) == ["looks", "remembers", "slides"]
    looks, remembers, slides = (run.model.blocks for run in runs.values())
    assert [len(blocks) for blocks in (looks, remembers, slides)] == [2, 1, 2]
    assert (looks[0].mixer.heads, looks[0].mixer.bias) == (4, True), "the others of the same kind stay"
    assert remembers[0].mixer.__struct_config__.tag == "lstm", "another kind has settings of its own"
    assert [block.mixer.width for block in slides] == [2, 3]
    assert [block.channel.hidden for block in slides] == [16, 24]
    assert {type(block.norm).__name__ for blocks in (looks, remembers, slides) for block in blocks} == {"LayerNormSpec"}
    assert [run.seed for run in runs.values()] == [0, 7, 0]
    assert runs["looks"].optimizer.rate == 0.01 and runs["remembers"].optimizer.__struct_config__.tag == "muon"
    assert {run.data for run in runs.values()} == {str(recipe.parent / "text.txt")}


def test_a_run_of_a_recipe_is_the_one_that_a_recipe_of_its_own_gives(recipe):
    """Both written out by hand: the tables merged, and what stands in no table."""
    alone = recipe.with_name("alone.toml")
    text = RECIPE[: RECIPE.index("[runs.looks.model]")]
    alone.write_text(text.replace("[model]", "[model]\nlayers = 2").replace("heads = 2", "heads = 4"), encoding="utf-8")
    assert read_run(alone) == read_runs(recipe)["looks"]
    assert read_runs(alone) == {"": read_run(alone)}
    as_json = recipe.with_name("three.json")
    as_json.write_text(json.dumps(tomllib.loads(RECIPE)), encoding="utf-8")
    assert read_runs(as_json) == read_runs(recipe)


def test_settings_go_to_all_or_to_one(recipe):
    runs = read_runs(recipe, {"steps": "9", "runs.slides.steps": "4", "runs.remembers.model.layers": "3"})
    assert [run.steps for run in runs.values()] == [9, 9, 4]
    assert len(runs["remembers"].model.blocks) == 3
    assert read_runs(recipe, {"runs.looks.data": "here.txt"})["looks"].data == "here.txt"
    assert list(read_runs(recipe, only=["slides", "looks"])) == ["looks", "slides"]


def test_a_table_of_another_kind_takes_the_place_of_the_whole():
    base = {"a": 1, "part": {"kind": "x", "width": 2, "deep": {"one": 1, "two": 2}}, "list": [1, 2]}
    assert laid_over(base, {}) == base
    assert laid_over(base, {"part": {"deep": {"two": 3}}})["part"] == base["part"] | {"deep": {"one": 1, "two": 3}}
    assert laid_over(base, {"part": {"kind": "x", "width": 5}})["part"]["deep"] == {"one": 1, "two": 2}
    assert laid_over(base, {"part": {"kind": "y", "height": 1}})["part"] == {"kind": "y", "height": 1}
    assert laid_over(base, {"list": [3], "part": None}) == {"a": 1, "part": None, "list": [3]}


WRONG = [
    ({"runs.looks.model.dim": "x"}, r"^runs\.looks\.model\.dim: 'x' is not allowed; use a whole number"),
    ({"batch": "0"}, r"^runs\.looks\.batch: 0 is not allowed; use 1 or more$"),
    ({"runs.slides.model.layers": "2"}, r"^runs\.slides\.model\.layers: the 2 blocks differ"),
    ({"runs.remembers.model": "bert"}, r"^runs\.remembers\.model: bert reads in both directions"),
    ({"model.blocks.*.mixer.heads": "2"}, r"^runs\.remembers\.model\.blocks\.\*\.mixer\.heads: unknown setting"),
    ({"runs.look.steps": "2"}, r"^runs\.look\.steps: there is no run 'look'; did you mean looks\?$"),
    ({"runs.looks": "2"}, r"^runs\.looks: name one of its settings, for example runs\.looks\.steps=500$"),
]


@pytest.mark.parametrize(("settings", "message"), WRONG)
def test_a_refused_setting_names_its_run(recipe, settings, message):
    with pytest.raises(SettingError, match=message):
        read_runs(recipe, settings)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "width = 3",
            "wide = 3",
            r"three\.toml: runs\.slides\.model\.blocks\.1\.mixer\.wide: unknown setting",
        ),
        ("[runs.remembers]", "[runs.'../up']", r"three\.toml: runs: '\.\./up' is no name of a run; use letters"),
        ("layers = 2", "layers = 2\nblocks = []", r"runs\.looks\.model\.layers: give either layers, or blocks"),
    ],
)
def test_a_mistake_in_the_file_names_file_and_run(recipe, old, new, message):
    recipe.write_text(RECIPE.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(SettingError, match=message):
        read_runs(recipe)


@pytest.mark.parametrize("runs", ["runs = 3", "runs = {}", "runs = { a = 1 }"])
def test_runs_are_tables(recipe, runs):
    recipe.write_text(runs, encoding="utf-8")
    with pytest.raises(SettingError, match=r"three\.toml: runs: write a table of settings for each run"):
        read_runs(recipe)


def test_one_is_asked_for_by_a_name_that_there_is(recipe):
    with pytest.raises(SettingError, match=r"^--only: .*three\.toml holds no run 'slide'; did you mean slides\?$"):
        read_runs(recipe, only=["slide"])
    with pytest.raises(SettingError, match=r"^--only: .*text\.txt does not hold several runs; leave it out$"):
        read_runs(recipe.with_name("text.txt"), only=["slides"])
    with pytest.raises(SettingError, match=r"three\.toml: runs: this recipe holds several runs; read them with train"):
        read_run(recipe)


# ------------------------------------------------------------ trained


def trained(recipe, *more):
    return main(["train", str(recipe), "--out", str(recipe.parent / "out"), *more])


def test_all_are_trained_and_compared(recipe, capsys):
    assert trained(recipe) == 0
    out, shown = recipe.parent / "out", capsys.readouterr().out
    for number, (name, run) in enumerate(read_runs(recipe).items(), 1):
        assert f"{name}: run {number} of 3" in shown
        list(fit(run, recipe.parent / "alone" / name))
        assert same(weights(out / name), weights(recipe.parent / "alone" / name)), "as it would be trained alone"
    last = shown[shown.index("Runs: 3") :]
    about = {name: json.loads((out / name / "about.json").read_text()) for name in ("looks", "remembers", "slides")}
    for name, made in about.items():
        row = next(line for line in last.splitlines() if line.split()[:1] == [name])
        assert f"{made['parameters']:,}" in row
        assert f"{made['validation_loss']:.4f}" in last and f"{made['bits_per_byte']:.3f}" in last


def test_it_goes_on_where_it_was_stopped(recipe, capsys):
    """A finished run is not trained again, an interrupted one goes on, and the rest follow."""
    out = recipe.parent / "out"
    assert trained(recipe, "--only", "looks") == 0
    looks = contents(out / "looks")
    reports = fit(read_runs(recipe)["remembers"], out / "remembers")
    next(reports)
    reports.close()
    capsys.readouterr()
    assert trained(recipe, "--lang", "ko") == 0
    shown = capsys.readouterr().out
    assert "3단계까지 이미 마친 학습입니다" in shown and "1단계에서 이어서 학습합니다(전체 3단계)" in shown
    assert "slides: 학습 3개 중 3번째" in shown and "바이트당 비트" in shown
    assert contents(out / "looks") == looks
    list(fit(read_runs(recipe)["remembers"], recipe.parent / "alone"))
    assert same(weights(out / "remembers"), weights(recipe.parent / "alone"))


def test_what_is_wrong_with_a_later_run_is_found_before_the_first_begins(recipe, capsys):
    out = recipe.parent / "out"
    for settings, message in (
        ({"runs.slides.model.dim": "1000000"}, r"runs\.slides\.model: training .* needs more than"),
        ({"runs.slides.data": "nowhere.txt"}, r"runs\.slides: nowhere\.txt"),
        ({"runs.slides.model.blocks.0.mixer.kind": "fourier"}, r"runs\.slides\.model\."),
    ):
        (path, value), *_ = settings.items()
        assert trained(recipe, "--set", f"{path}={value}") == 2
        shown = capsys.readouterr()
        assert re.search(message, shown.err) and not shown.out and not out.exists()


def test_a_run_that_does_not_go_on_is_named(recipe, capsys):
    assert trained(recipe, "--only", "remembers") == 0
    capsys.readouterr()
    before = contents(recipe.parent / "out")
    assert trained(recipe, "--set", "batch=4") == 2
    shown = capsys.readouterr()
    assert "glassformer: runs.remembers.batch: " in shown.err and "holds a run at step 3 with 2" in shown.err
    assert contents(recipe.parent / "out") == before, "looks, which would come first, has not begun"
    assert trained(recipe, "--set", "batch=4", "--lang", "ko") == 2
    assert "runs.remembers.batch: " in (said := capsys.readouterr().err) and "3단계의 학습이 있는데" in said


def test_a_run_that_fails_on_the_way_is_named(recipe, capsys):
    assert trained(recipe, "--set", "runs.remembers.optimizer.rate=1e30") == 2
    shown = capsys.readouterr()
    assert "glassformer: runs.remembers: step " in shown.err and "run 3 of 3" not in shown.out


def test_json_says_which_run_a_report_is_of(recipe, capsys):
    assert trained(recipe, "--json", "--only", "slides", "--only", "looks") == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(one["run"], one["step"]) for one in found[:-1]] == [(n, s) for n in ("looks", "slides") for s in (1, 2, 3)]
    looks, slides = found[-1]["runs"]
    about = json.loads((recipe.parent / "out/slides/about.json").read_text())
    assert slides["name"] == "slides" and slides["parameters"] == about["parameters"] != looks["parameters"]
    assert slides["bits_per_byte"] == about["bits_per_byte"] and slides["validation"] == about["validation_loss"]
    assert slides["bytes"] == (recipe.parent / "out/slides/model.safetensors").stat().st_size


def test_one_run_is_trained_as_ever(recipe, capsys):
    alone = recipe.with_name("alone.toml")
    alone.write_text(RECIPE[: RECIPE.index("[runs.looks.model]")].replace("[model]", "[model]\nlayers = 1"))
    assert trained(alone) == 0
    assert (recipe.parent / "out" / "model.json").exists() and "run 1 of 1" not in capsys.readouterr().out


def test_check_reads_no_text_and_changes_nothing(recipe, tmp_path):
    run = read_runs(recipe)["looks"]
    check(run, tmp_path / "new")
    assert not (tmp_path / "new").exists()
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "model.json").write_text("{}")
    with pytest.raises(InputError, match="no training wrote model.json"):
        check(run, tmp_path / "theirs")


# ------------------------------------------------------------ the table


def outcome(name, **more):
    of_text = {"unit": "token", "bits_per_byte": 1.5, "error": None}
    return Outcome(
        **{"name": name, "folder": name, "parameters": 1_234_567, "bytes": 2_469_134, "per_second": 9876.4}
        | {"seconds": 3723.0, "validation": 4.56789}
        | of_text
        | more
    )


def test_the_table_shows_texts_and_images_side_by_side():
    images = {"unit": "image", "bits_per_byte": None, "error": 0.0123}
    text = "\n".join(line.plain for line in lines([outcome("lstm"), outcome("lenet", **images)], "en", 140))
    head, lstm, lenet = (line.split() for line in text.splitlines()[-3:])
    assert " ".join(head) == "parameters weights tokens/s images/s time validation loss bits per byte errors"
    assert lstm == ["lstm", "1,234,567", "2.5", "MB", "9,876", "1:02:03", "4.5679", "1.500"]
    assert lenet == ["lenet", "1,234,567", "2.5", "MB", "9,876", "1:02:03", "4.5679", "1.23%"]


@pytest.mark.parametrize("lang", ["en", "ko"])
@pytest.mark.parametrize("width", [40, 60, 200])
def test_the_table_fits_the_terminal_and_says_only_what_there_is(lang, width):
    console = Console(file=io.StringIO(), width=width)
    show_outcomes([outcome("고양이"), outcome("a-very-long-name-of-a-run-" * 3, validation=None)], console, lang)
    shown = console.file.getvalue()
    assert max(map(wcswidth, shown.splitlines())) <= width
    assert "images/s" not in shown and "오류율" not in shown and "errors" not in shown
    assert shown.count("1,234,567") == 2
