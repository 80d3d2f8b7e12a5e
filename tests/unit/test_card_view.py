"""A shipped model's card in the terminal."""

import json

import pytest
import wcwidth

import glassformer as gf
from glassformer.cli import main
from glassformer.terminal.card import lines


@pytest.mark.parametrize("lang", ["en", "ko"])
@pytest.mark.parametrize("columns", [40, 50, 80, 140])
def test_the_card_is_shown_whole_at_every_width(lang, columns):
    card = gf.load().about
    shown = [line.plain for line in lines("small", card, lang, columns)]
    assert all(wcwidth.wcswidth(line) <= columns for line in shown)
    words = " ".join(" ".join(shown).split())
    for said in (card["summary_ko" if lang == "ko" else "summary"], card["command"], card["licence"]):
        assert said in words
    for said in ("cannot", "made"):
        assert card[f"{said}_ko" if lang == "ko" else said] in words
    for scores in card["bits_per_byte"].values():
        for one in ("model", "kneser_ney_5", "xz_9", "xz_9_after_the_training_text"):
            assert f" {scores[one]:.3f}" in words
    assert all(source["credit"] in words for source in card["data"])


def test_the_command_shows_it_and_names_the_nearest_model(capsys):
    assert main(["models", "small", "--lang", "ko"]) == 0
    assert capsys.readouterr().out.startswith("small   한국어와 영어")
    assert main(["models", "small", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == gf.load().about
    assert main(["models", "smal", "--lang", "en"]) == 2
    assert capsys.readouterr().err == "glassformer: no model 'smal' in the package; did you mean small?\n"
