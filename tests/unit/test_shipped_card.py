"""The shipped model's card: numbers as each language writes them."""

import importlib
import json
import sys
from pathlib import Path

import pytest

import glassformer as gf
from glassformer.train import read_run

FOLDER = Path(__file__).parents[2] / "runs/shipped"


@pytest.fixture(scope="module")
def card():
    """The program, found as it is when it runs: beside the corpus's."""
    before = set(sys.modules)
    sys.path.insert(0, str(FOLDER))
    try:
        yield importlib.import_module("card")
    finally:
        sys.path.remove(str(FOLDER))
        for name in set(sys.modules) - before:
            if str(FOLDER) in str(getattr(sys.modules[name], "__file__", "")):
                del sys.modules[name]


def test_parameters_are_counted_as_each_language_counts(card, tmp_path):
    (tmp_path / "corpus.json").write_text(json.dumps({"sources": []}), encoding="utf-8")
    made = gf.build("gpt2", vocab=18000, dim=128, heads=4, blocks=6, context=64)
    said = card.card(made, {"seconds": 60}, {}, tmp_path)
    assert said["parameters"] == sum(size for _, _, size in gf.parameters(made)) == 3_502_080
    assert said["summary"] == "Korean and English, 3.5 million parameters, 6 layers of 4 heads"
    package = gf.load().about
    assert said.keys() == package.keys() and (said["made"], said["made_ko"]) == (package["made"], package["made_ko"])
    assert "stopped" in said["made"] and "held-out" in said["made"], "what the command alone would not tell"
    assert said["summary_ko"] == "한국어와 영어, 매개변수 약 350만 개, 층 6개, 층마다 헤드 4개"


def test_the_model_in_the_package_is_the_recipes():
    recipe = read_run(FOLDER.parent / "shipped.toml")
    shipped = gf.load()
    assert shipped.spec == recipe.model.changed(vocab=shipped.tokenizer.vocab_size)
    assert recipe.tokenizer.vocab >= shipped.tokenizer.vocab_size > recipe.tokenizer.vocab - 8


def test_the_model_in_the_package_clearly_beats_a_5_gram_and_xz():
    """At least 10 % fewer bits per byte on text that was not trained on; English alone, a twelfth of it, has 8 %."""
    scores = gf.load().about["bits_per_byte"]
    assert set(scores) == {"ko", "en", "both"}
    assert scores["both"]["model"] <= 0.9 * scores["both"]["kneser_ney_5"]
    for found in scores.values():
        assert found["model"] < 0.92 * found["kneser_ney_5"] < found["xz_9_after_the_training_text"] < found["xz_9"]
