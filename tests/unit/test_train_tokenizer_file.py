"""A tokenizer that is not learnt but taken from another model, so that several models share one."""

import json
import shutil

import pytest
from train_runs import a_run, contents, write_text

from glassformer.api import load
from glassformer.cli import main
from glassformer.data.tokenizer import Tokenizer, TokenizerSpec, train_tokenizer
from glassformer.errors import CheckpointError, SettingError
from glassformer.spec import from_data
from glassformer.train import fit, read_run

SMALL = {"steps": "2", "batch": "2", "block": "16", "sample_tokens": "0", "snapshots": "0", "evaluate_every": "null"}


@pytest.fixture
def text(tmp_path):
    return write_text(tmp_path)


@pytest.fixture
def other(tmp_path):
    """The folder of a model with a tokenizer of its own, learnt from another text."""
    folder = tmp_path / "other"
    folder.mkdir()
    (tmp_path / "another.txt").write_text("a tree ran and a cat saw the tree. " * 300, encoding="utf-8")
    train_tokenizer(TokenizerSpec(vocab=300, end="<|stop|>"), tmp_path / "another.txt").save(folder)
    return folder


def shared(path):
    return TokenizerSpec(method="file", path=str(path))


@pytest.mark.parametrize("by", ["folder", "file"])
def test_a_run_takes_the_tokenizer_of_another_model(text, other, tmp_path, by):
    path = other if by == "folder" else other / "tokenizer.json"
    list(fit(a_run(text, tokenizer=shared(path)), tmp_path / "out"))
    made = load(tmp_path / "out")
    assert made.tokenizer.fingerprint == Tokenizer.load(other).fingerprint
    assert made.spec.vocab == made.tokenizer.vocab_size == 275 and made.tokenizer.end == "<|stop|>"


def test_a_recipe_names_the_tokenizer_from_its_own_place(text, other, tmp_path, monkeypatch):
    (tmp_path / "runs").mkdir()
    recipe = tmp_path / "runs" / "run.json"
    model = {"dim": 8, "layers": 1, "block": {"mixer": {"kind": "attention", "heads": 2}}}
    data = {"data": "../text.txt", "steps": 1, "block": 16, "model": model}
    recipe.write_text(json.dumps(data | {"tokenizer": {"method": "file", "path": "../other"}}), encoding="utf-8")
    assert read_run(recipe).tokenizer == shared(tmp_path / "runs" / "../other")
    recipe.write_text(json.dumps(data | {"tokenizer": {"method": "file", "path": "$MODELS_HERE/other"}}))
    with pytest.raises(SettingError, match=r"tokenizer\.path: the environment variable MODELS_HERE .* is not set"):
        read_run(recipe)
    assert read_run(recipe, {"tokenizer.path": "other"}).tokenizer.path == "other", "given by hand: from where we are"
    monkeypatch.setenv("MODELS_HERE", str(tmp_path))
    assert read_run(recipe).tokenizer == shared(other)


def test_a_run_with_a_shared_tokenizer_goes_on(text, other, tmp_path):
    folder = tmp_path / "out"
    run = a_run(text, tokenizer=shared(other), steps=3)
    list(fit(run, folder))
    moved = shutil.copytree(other, tmp_path / "moved")
    more = list(fit(run.changed(steps=4, tokenizer=shared(moved)), folder))
    assert [report.step for report in more] == [4], "where the tokenizer lies is no part of what was learnt"
    about = json.loads((folder / "about.json").read_text())
    assert about["run"]["tokenizer"]["path"] == "moved"
    train_tokenizer(TokenizerSpec(vocab=280), text).save(moved)
    before = contents(folder)
    with pytest.raises(SettingError, match=r"^tokenizer\.path: .* a run with another tokenizer than .*moved; give"):
        fit(run.changed(steps=5, tokenizer=shared(moved)), folder)
    with pytest.raises(SettingError, match=r"^tokenizer\.method: .* 'file', and 'char' was given"):
        fit(a_run(text, steps=5), folder)
    assert contents(folder) == before


def test_a_text_without_a_recipe_goes_on_with_the_tokenizer_it_was_given(text, other, tmp_path):
    folder = tmp_path / "out"
    settings = SMALL | {"tokenizer.method": "file", "tokenizer.path": str(other)}
    list(fit(read_run(text, settings, folder), folder))
    shutil.rmtree(other)
    (*_, last) = fit(read_run(text, {"steps": "3"}, folder), folder)
    assert last.step == 3 and load(folder).spec.vocab == 275


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"method": "file"}, r"^path: method=file needs the path of a tokenizer\.json, or of a model that holds one$"),
        ({"path": "x"}, r"^path: method=bpe reads no tokenizer; set method=file too, or path=null$"),
    ],
)
def test_method_and_path_belong_together(settings, message):
    with pytest.raises(SettingError, match=message):
        TokenizerSpec(**settings)
    with pytest.raises(SettingError, match=message):
        from_data({"kind": "tokenizer", **settings}, TokenizerSpec)


def test_a_tokenizer_that_is_not_there_is_refused_before_anything_changes(text, tmp_path, capsys):
    folder = tmp_path / "out"
    with pytest.raises(CheckpointError, match="nowhere.*: there is no such file; a model folder holds a tokenizer"):
        fit(a_run(text, tokenizer=shared(tmp_path / "nowhere")), folder)
    assert not contents(folder) if folder.exists() else True
    wrong = ["--set", "tokenizer.method=file", "--out", str(folder), "--lang", "ko"]
    assert main(["train", str(text), *wrong]) == 2
    assert "tokenizer.path: method=file에는 " in capsys.readouterr().err
    assert main(["train", str(text), "--set", "tokenizer.path=x", "--out", str(folder), "--lang", "ko"]) == 2
    assert "tokenizer.path: method=byte 설정은 토크나이저 파일을 읽지 않습니다" in capsys.readouterr().err
