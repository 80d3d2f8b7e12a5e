"""A model's card in the terminal."""

import json

import pytest
import wcwidth

import glassformer as gf
from glassformer.checkpoint import read_about
from glassformer.cli import main
from glassformer.errors import InputError
from glassformer.sources import SHIPPED, shipped
from glassformer.terminal.card import lines


@pytest.mark.parametrize("lang", ["en", "ko"])
@pytest.mark.parametrize("columns", [40, 50, 80, 140])
def test_the_card_is_shown_whole_at_every_width(lang, columns):
    model = gf.load()
    card = model.about
    shown = [line.plain for line in lines(model, lang, columns)]
    assert all(wcwidth.wcswidth(line) <= columns for line in shown)
    words = " ".join(" ".join(shown).split())
    for said in (card["summary_ko" if lang == "ko" else "summary"], card["command"]):
        assert said in words
    for said in ("cannot", "made", "licence"):
        assert card[f"{said}_ko" if lang == "ko" else said] in words
    for scores in card["bits_per_byte"].values():
        for one in ("model", "kneser_ney_5", "xz_9", "xz_9_after_the_training_text"):
            assert f" {scores[one]:.3f}" in words
    assert all(source["credit"] in words for source in card["data"])


def test_a_name_that_is_near_none_is_told_where_all_stand():
    with pytest.raises(InputError, match="nor a shipped name; `glassformer models` lists all"):
        gf.load("qqqq")


def test_the_command_shows_it_and_names_the_nearest_model(capsys):
    assert main(["models", "small", "--lang", "ko"]) == 0
    assert capsys.readouterr().out.startswith("small   한국어와 영어")
    assert main(["models", "small", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == gf.load().about
    assert main(["models", "smal", "--lang", "en"]) == 2
    said = "glassformer: no model 'smal': neither a folder nor a shipped name; did you mean small, e5-small?\n"
    assert capsys.readouterr().err == said


def test_the_card_of_any_folder_says_what_is_known(capsys, tmp_path):
    made = gf.build("gru", vocab=9, dim=8, blocks=2)
    made.about = {"made_by": "glassformer", "step": 7, "tokens": 70, "training_tokens": 300, "validation_loss": 1.25}
    made.save(tmp_path / "mine")
    assert main(["models", str(tmp_path / "mine"), "--lang", "en"]) == 0
    out = capsys.readouterr().out
    count = sum(size for _, _, size in gf.parameters(made))
    assert out.startswith(f"mine\n{count:,} parameters · gru × 2\n")
    assert "Made by 7 updates over 70 tokens of a text of 300\n" in out and "loss 1.2500 nats" in out
    gf.build("bahdanau", vocab=9, dim=8).save(tmp_path / "pair")
    assert main(["models", str(tmp_path / "pair"), "--lang", "ko"]) == 0
    assert "인코더: gru · 디코더: alignment" in capsys.readouterr().out


def test_models_writes_what_it_shows_and_overwrites_nothing(capsys, tmp_path):
    assert main(["models", "small", "--save", str(tmp_path / "copy"), "--json"]) == 0
    capsys.readouterr()
    copy, model = gf.load(tmp_path / "copy"), gf.load()
    assert copy.about == model.about and (copy("가") == model("가")).all()
    assert main(["models", "small", "--save", str(tmp_path / "copy"), "--lang", "en"]) == 2
    assert "holds something already, which is kept; give a new folder" in capsys.readouterr().err
    assert main(["models", "--save", str(tmp_path / "other"), "--lang", "en"]) == 2
    assert "--save: name the model to be written" in capsys.readouterr().err and not (tmp_path / "other").exists()


@pytest.mark.parametrize("name", sorted(shipped()))
@pytest.mark.parametrize("lang", ["en", "ko"])
def test_every_shipped_model_has_a_card_that_is_shown(name, lang, capsys):
    assert main(["models", name, "--lang", lang]) == 0
    out = capsys.readouterr().out
    assert read_about(SHIPPED / name)["summary_ko" if lang == "ko" else "summary"].split(",")[0] in " ".join(
        out.split()
    )


@pytest.mark.parametrize("name", sorted(shipped()))
def test_a_card_in_korean_has_no_english_sentence_of_ours(name, capsys):
    """Names and licences stay as they are called; a card has no two colons in a row."""
    card = read_about(SHIPPED / name)
    assert main(["models", name, "--lang", "ko"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    for english in ("credits in", "databases", "is not published", "trained on"):
        assert english not in out.replace(card.get("command", ""), "")
    assert card["licence_ko"] in out and all(one.get("credit_ko", one["credit"]) in out for one in card["data"])
    assert card["summary"].count(":") < 2 and card["summary_ko"].count(":") < 2


def test_a_preset_has_no_card_and_the_way_to_one_is_told(capsys):
    assert main(["models", "gla", "--lang", "en"]) == 2
    assert "gla is a preset, a structure without weights; train it on a text" in capsys.readouterr().err
    assert main(["trace", "a", "-m", "gla", "--lang", "ko"]) == 2
    assert "gla: 가중치가 없는 구조인 프리셋입니다." in capsys.readouterr().err
