"""Runs as data: recipes, defaults for a bare text, schedules, and messages for what is wrong."""

import itertools
import json
import math
from pathlib import Path

import pytest

from glassformer.errors import InputError, SettingError
from glassformer.spec import from_json, to_data, to_json
from glassformer.train import AdamWSpec, MuonSpec, RunSpec, ScheduleSpec, read_run
from glassformer.train.loop import snapshot_steps
from glassformer.train.optimizer import rate_share

RUNS = Path(__file__).parents[2] / "runs"

RECIPE = """
data = "text.txt"
steps = 10
block = 16
[tokenizer]
method = "char"
[optimizer]
kind = "adamw"
rate = 2e-3
[model]
dim = 16
layers = 2
[model.block]
mixer = { kind = "attention", heads = 2 }
"""


def written(folder, text, name="run.toml"):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_a_recipe_is_read_and_layers_are_written_out(tmp_path):
    run = read_run(written(tmp_path, RECIPE))
    assert len(run.model.blocks) == 2 and run.model.blocks[1].mixer.heads == 2
    assert run.model.context == 16 and run.model.vocab == 0
    assert run.data == str(tmp_path / "text.txt")
    assert run.optimizer == AdamWSpec(rate=2e-3)
    assert from_json(to_json(run), RunSpec) == run


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("rate = 2e-3", "rat = 2e-3"), r"optimizer\.rat: unknown setting; did you mean rate"),
        (("steps = 10", "stepz = 10"), r"stepz: unknown setting; did you mean steps"),
        (("heads = 2", "head = 2"), r"model\.blocks\.0\.mixer\.head: unknown setting; did you mean .*heads"),
        (("steps = 10", "steps = 0"), r"steps: 0 is not allowed; use 1 or more"),
        (("layers = 2", "layers = 0"), r"model\.layers"),
        (("block = 16", "block = 16\nclip = 0"), r"clip: 0.* is not allowed"),
        (('"text.txt"', '""'), r"data: the path is empty; name a file or a folder"),
        (('"text.txt"', '"$NO_SUCH_FOLDER/text.txt"'), r"data: the environment variable NO_SUCH_FOLDER .* is not set"),
        (("layers = 2", "layers = 2\ncontext = 8"), r"block: 16 is longer than model\.context=8"),
    ],
)
def test_a_wrong_setting_is_named_with_its_path(tmp_path, change, message):
    with pytest.raises(SettingError, match=message):
        read_run(written(tmp_path, RECIPE.replace(*change)))


def test_broken_and_missing_recipes(tmp_path):
    with pytest.raises(SettingError, match="not valid TOML"):
        read_run(written(tmp_path, "steps = = 3"))
    with pytest.raises(InputError, match=r"there is no such file; did you mean run\.toml"):
        read_run(tmp_path / "rum.toml")
    with pytest.raises(InputError, match="there is no such file"):
        read_run(tmp_path / "missing.txt")


@pytest.mark.parametrize("name", ["shakespeare", "nanogpt-cpu"])
def test_the_shipped_recipes_are_valid(monkeypatch, name):
    monkeypatch.setenv("GLASSFORMER_DATA", "data")
    assert read_run(RUNS / f"{name}.toml").validation == 0.1


def test_the_recipe_of_the_package_is_valid():
    run = read_run(RUNS / "shipped.toml")
    assert Path(run.validation).name == "held.txt" and run.model.context == run.block and run.model.vocab == 0


def test_layers_are_copies_of_a_block_where_the_blocks_are_alike(tmp_path):
    recipe = written(tmp_path, RECIPE)
    assert len(read_run(recipe, {"model.layers": "5"}).model.blocks) == 5
    data = to_data(read_run(recipe))
    data["model"]["blocks"] = [data["model"]["blocks"][0] | {"dropout": share} for share in (0.0, 0.5, 0.1)]
    recipe = written(tmp_path, json.dumps(data), "run.json")
    for layers in ("3", "2"):
        with pytest.raises(SettingError, match=rf"^model\.layers: the 3 blocks differ, and {layers} copies"):
            read_run(recipe, {"model.layers": layers})
    assert read_run(recipe).model.blocks[1].dropout == 0.5
    for layers in ("²", "0", "9" * 5000, "x"):
        with pytest.raises(SettingError, match=r"^model\.layers: .* is not allowed; use a number from 1"):
            read_run(recipe, {"model.layers": layers})


def test_a_bare_text_gets_a_run_by_its_size(tmp_path):
    small, large = tmp_path / "small.txt", tmp_path / "large.txt"
    small.write_text("a" * 50_000)
    large.write_text("b" * 4_100_000)
    few, many = read_run(small), read_run(large)
    assert few.tokenizer.method == "byte" and many.tokenizer.method == "bpe" and many.tokenizer.vocab == 2048
    assert few.model.dim < many.model.dim and few.steps >= 60
    assert read_run(tmp_path).data == str(tmp_path)  # a folder


def test_schedules():
    cosine = ScheduleSpec(shape="cosine", warmup=10, final=0.1)
    # nanoGPT's rule: (step + 1) / (warmup + 1), then half a cosine down to the last share
    assert rate_share(cosine, 0, 110) == pytest.approx(1 / 11)
    assert rate_share(cosine, 9, 110) == pytest.approx(10 / 11)
    assert rate_share(cosine, 10, 110) == 1.0
    assert rate_share(cosine, 60, 110) == pytest.approx(0.55)
    assert rate_share(cosine, 85, 110) == pytest.approx(0.1 + 0.9 * 0.5 * (1 + math.cos(0.75 * math.pi)))
    linear = ScheduleSpec(shape="linear", warmup=0, final=0.0)
    assert [rate_share(linear, step, 4) for step in range(4)] == [1.0, 0.75, 0.5, 0.25]
    trapezoid = ScheduleSpec(shape="trapezoid", warmup=1, final=0.0, cooldown=0.5)
    assert [rate_share(trapezoid, step, 8) for step in range(8)] == [0.5, 1, 1, 1, 1, 0.75, 0.5, 0.25]
    assert rate_share(ScheduleSpec(shape="constant", warmup=0), 99, 100) == 1.0


def test_the_rates_of_the_shipped_recipe():
    """A run that goes on must find them again."""
    run = read_run(RUNS / "shipped.toml")
    rise, fall = run.schedule.warmup, round(run.schedule.cooldown * run.steps)
    places = (0, rise - 1, rise, run.steps - fall, run.steps - fall // 2)
    middle = (1 + run.schedule.final) / 2
    found = [rate_share(run.schedule, place, run.steps) for place in places]
    assert found == pytest.approx([1 / (rise + 1), rise / (rise + 1), 1, 1, middle])


@pytest.mark.parametrize("shape", ["cosine", "linear", "trapezoid"])
def test_a_rate_rises_for_half_of_a_short_run_at_most_and_falls_without_a_jump(shape):
    schedule = ScheduleSpec(shape=shape, warmup=100, final=0.0, cooldown=1.0)
    shares = [rate_share(schedule, step, 12) for step in range(12)]
    assert shares[:7] == [*((step + 1) / 7 for step in range(6)), 1.0] and shares[6:] == sorted(
        shares[6:], reverse=True
    )
    assert 0 < shares[-1] < 0.2 and rate_share(schedule, 12, 12) == pytest.approx(0, abs=1e-12)


def test_snapshots_grow_apart():
    steps = sorted(snapshot_steps(6, 1000))
    assert steps[0] == 0 and steps[1] == 1 and steps[-1] == 1000 and len(steps) == 6
    gaps = [b - a for a, b in itertools.pairwise(steps)]
    assert gaps == sorted(gaps)
    assert snapshot_steps(0, 1000) == set() and 1000 in snapshot_steps(1, 1000)


def test_muon_is_data():
    assert from_json(to_json(MuonSpec(rate=0.03)), AdamWSpec | MuonSpec) == MuonSpec(rate=0.03)
