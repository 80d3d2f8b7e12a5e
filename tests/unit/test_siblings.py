"""The five small models trained alike: the recipe, what was shipped of it, and the cards."""

import importlib
import json
import sys
from pathlib import Path

import pytest

import glassformer as gf
from glassformer.api import Loaded
from glassformer.checkpoint import read_about
from glassformer.classifier import Classifier
from glassformer.model import build_model
from glassformer.sources import SHIPPED
from glassformer.spec import from_data, to_data
from glassformer.train import read_run, read_runs
from glassformer.train.memory import parameter_count
from glassformer.train.run import RunSpec

RUNS = Path(__file__).parents[2] / "runs"
NAMES = ("mlp", "cnn", "lstm", "transformer", "ssm")
PLACES = ("data", "validation", "tokenizer")  # by name only in a card; the tokenizer is compared itself


@pytest.fixture(scope="module")
def programs():
    """The programs, found as they are when they run: beside each other."""
    before = set(sys.modules)
    sys.path.insert(0, str(RUNS / "shipped"))
    try:
        yield {name: importlib.import_module(name) for name in ("siblings", "images", "card")}
    finally:
        sys.path.remove(str(RUNS / "shipped"))
        for name in set(sys.modules) - before:
            if str(RUNS) in str(getattr(sys.modules[name], "__file__", "")):
                del sys.modules[name]


@pytest.fixture(scope="module")
def runs():
    return read_runs(RUNS / "siblings.toml")


def test_they_differ_in_the_mixer_alone(runs):
    assert tuple(runs) == NAMES
    kinds = [{block.mixer.__struct_config__.tag for block in run.model.blocks} for run in runs.values()]
    assert kinds == [{"window-mlp"}, {"conv"}, {"lstm"}, {"attention"}, {"mamba2"}]

    def shared(run):
        data = to_data(run)
        for block in (blocks := data["model"].pop("blocks")):
            block.pop("mixer")
        assert all(block == blocks[0] for block in blocks)
        return data | {"block": blocks[0]}

    assert all(shared(run) == shared(runs["mlp"]) for run in runs.values())


def test_each_takes_at_most_3_megabytes_in_half_precision(runs):
    beside = (SHIPPED / "small" / "tokenizer.json").stat().st_size + 20_000  # settings and card
    vocab = gf.load().tokenizer.vocab_size
    for name, run in runs.items():
        assert 2_400_000 < 2 * parameter_count(run, vocab) + beside < 3_000_000, name


def test_text_and_tokenizer_are_those_of_the_model_in_the_package(runs):
    small = read_run(RUNS / "shipped.toml")
    for run in runs.values():
        assert (run.data, run.validation) == (small.data, small.validation)
        assert Path(run.tokenizer.path).resolve() == SHIPPED / "small"
        assert (run.optimizer, run.schedule, run.block) == (small.optimizer, small.schedule, small.block)


@pytest.mark.parametrize("name", NAMES)
def test_the_model_in_the_package_is_the_recipes(runs, name):
    folder = SHIPPED / name
    if not (folder / "model.json").is_file():
        pytest.skip(f"{name} is not in the package yet")
    model, small = gf.load(name), gf.load()
    assert model.spec == runs[name].model.changed(vocab=small.tokenizer.vocab_size)
    assert model.tokenizer.fingerprint == small.tokenizer.fingerprint
    assert sum(path.stat().st_size for path in folder.iterdir()) <= 3_000_000
    card = read_about(folder)
    for one, row in card["bits_per_byte"].items():
        beside = small.about["bits_per_byte"][one]
        assert row.keys() == beside.keys() and row["kneser_ney_5"] == beside["kneser_ney_5"] and row["bytes"] > 0
        assert beside["model"] < row["model"] < row["xz_9_after_the_training_text"]
    made, run = from_data(card["run"], RunSpec), runs[name]
    alike = {one: getattr(run, one) for one in PLACES}
    assert made.changed(**alike) == run, "trained as the recipe says"


def test_a_siblings_card_says_what_it_is(programs, runs):
    bits = {"ko": 1.5, "en": 2.0, "both": 1.6}
    made = {"seconds": 754.0, "made_by": "x", "step": 1, "tokens": 2, "training_tokens": 3}
    cards = {}
    for name, run in runs.items():
        model = Loaded(build_model(run.model.changed(vocab=3456)))
        cards[name] = programs["siblings"].card(name, model, made | {"run": to_data(run)}, bits)
    assert cards["mlp"]["summary"] == "Korean and English, 1.2 million parameters: an MLP over the last 8 tokens"
    assert cards["cnn"]["summary"].endswith("3 layers of causal convolutions over the last 15 tokens")
    assert cards["ssm"]["summary_ko"] == "한국어와 영어, 매개변수 약 116만 개: 상태 공간 모델 Mamba-2 3층"
    small = gf.load().about
    for card in cards.values():
        assert (card["licence"], card["data"]) == (small["licence"], small["data"])
        assert "13 minutes" in card["cannot"] and "13분" in card["cannot_ko"]
        assert {one: row["model"] for one, row in card["bits_per_byte"].items()} == bits
        assert card["bits_per_byte"]["both"]["kneser_ney_5"] == small["bits_per_byte"]["both"]["kneser_ney_5"]


@pytest.mark.parametrize("name", ["lenet", "vit", "mlp-image"])
def test_a_classifiers_card_says_what_it_is(programs, name, monkeypatch):
    monkeypatch.setenv("GLASSFORMER_DATA", ".")
    run = read_run(RUNS / f"{name}.toml")
    made = {"made_by": "x", "step": 1, "tokens": 2, "seconds": 3, "training_images": 4, "run": to_data(run)}
    model = Classifier(build_model(run.model))
    card = programs["images"].card(name, model, made, 0.0123)
    assert card["test_error"] == 0.0123 and card["parameters"] == sum(p.numel() for p in model.model.parameters())
    assert Classifier(model.model, name, json.loads(json.dumps(card))).view == run.view
    assert "{" not in json.dumps([card["summary"], card["summary_ko"]])
