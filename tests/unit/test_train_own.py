"""A training deletes and overwrites nothing that no training wrote."""

import json
import os

import pytest
from test_train_resume import SMALL
from train_runs import contents

from glassformer.cli import main
from glassformer.errors import InputError
from glassformer.train import fit, read_run
from glassformer.train.own import check_own


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "my.txt"
    path.write_text("the cat saw a dog and the dog ran to a tree. " * 60, encoding="utf-8")
    return path


def hugging_face(folder):
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        (folder / name).write_text(f'{{"{name}": 1}}')


def written(*names):
    def write(folder):
        for name in names:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text("the user's own " * 30)

    return write


FOREIGN = {
    "texts in train": (written("train/a.txt", "train/b.txt"), "train/a.txt"),
    "a deep text": (written("train/tokens/a.txt"), "train/tokens/a.txt"),
    "names of ours": (written("train/loss.svg"), "train/loss.svg"),
    "the index of others": (written("train/tokens/index.json"), "train/tokens/index.json"),
    "a file train": (written("train"), "train"),
    "texts in .train": (written(".train/a.txt"), ".train/a.txt"),
    "a model of others": (hugging_face, "model.safetensors"),
    "weights alone": (written("model.safetensors"), "model.safetensors"),
    "a tokenizer": (written("tokenizer.json"), "tokenizer.json"),
    "a card": (written("about.json"), "about.json"),
    "a link": (lambda folder: (folder / "train").symlink_to(folder.parent), "train"),
}


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize("name", FOREIGN)
def test_what_others_wrote_stays(text, tmp_path, name, fresh):
    write, named = FOREIGN[name]
    folder = tmp_path / "folder"
    folder.mkdir()
    write(folder)
    before = contents(folder)
    with pytest.raises(InputError, match=rf"no training wrote {named} in this folder.*choose another folder"):
        fit(read_run(text, SMALL), folder, fresh=fresh)
    assert contents(folder) == before and any(folder.iterdir())


@pytest.mark.parametrize("fresh", [False, True])
def test_the_very_texts_that_are_read_stay(tmp_path, capsys, fresh):
    corpus = tmp_path / "corpus" / "train"
    corpus.mkdir(parents=True)
    for name in "abc":
        (corpus / f"{name}.txt").write_text("the cat saw a dog. " * 60)
    before = contents(tmp_path)
    settings = [part for key, value in SMALL.items() for part in ("--set", f"{key}={value}")]
    more = ["--fresh"] if fresh else []
    assert main(["train", str(corpus), "--out", str(corpus.parent), *settings, *more]) == 2
    assert capsys.readouterr().err.count("\n") == 1 and contents(tmp_path) == before


def test_a_run_called_train_survives_one_beside_it(text, tmp_path):
    list(fit(read_run(text, SMALL), tmp_path / "out" / "train"))
    before = contents(tmp_path / "out")
    for fresh in (False, True):
        with pytest.raises(InputError, match="no training wrote train/about.json"):
            fit(read_run(text, SMALL), tmp_path / "out", fresh=fresh)
    assert contents(tmp_path / "out") == before


@pytest.mark.parametrize("name", ["train/notes.txt", "train/snapshots/notes.txt", "train/tokens/tokens-mine.bin"])
def test_notes_among_a_run_stay(text, tmp_path, name):
    folder = tmp_path / "run"
    list(fit(read_run(text, SMALL | {"snapshots": "2"}), folder))
    written(name)(folder)
    assert [report.step for report in fit(read_run(text, {"steps": "3"}, folder), folder)] == [3]
    before = contents(folder)
    with pytest.raises(InputError, match=f"no training wrote {name}"):
        fit(read_run(text, SMALL), folder, fresh=True)
    assert contents(folder) == before
    (folder / name).unlink()
    assert [report.step for report in fit(read_run(text, SMALL), folder, fresh=True)] == [1, 2]


def test_what_a_killed_run_left_behind_is_in_nobodys_way(text, tmp_path):
    folder = tmp_path / "run"
    list(fit(read_run(text, SMALL | {"snapshots": "2"}), folder))
    for name in ("train/state.safetensors", "model.json", "model.safetensors", "about.json"):
        (folder / name).unlink()  # it was killed before its first checkpoint
    for name in ("train/.state.safetensors.0123abcd", "train/.tmpA1b2C3", "train/snapshots/0000001/.tmpA1b2C3"):
        written(name)(folder)
    for name in ("train/snapshots/0000001/.model.json.0123abcd", "train/tokens/.tokens-0123456789abcdef.bin.0123abcd"):
        written(name)(folder)
    written(".train/tokens/.tokens-0123456789abcdef.bin.0123abcd")(folder)
    assert [report.step for report in fit(read_run(text, SMALL), folder)] == [1, 2]
    assert not (folder / ".train").exists()
    assert not [name for name in contents(folder) if "0123abcd" in name.name or ".tmp" in name.name]


@pytest.mark.parametrize("lost", ["train", "about.json"])
def test_fresh_replaces_a_model_that_a_run_wrote(text, tmp_path, lost):
    folder = tmp_path / "run"
    list(fit(read_run(text, SMALL), folder))
    if lost == "train":
        for path in sorted((folder / lost).rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
    else:
        (folder / lost).unlink()
        (folder / "train" / "state.safetensors").unlink()
    check_own(folder)
    with pytest.raises(InputError, match=r"holds a model, but no training to go on with.*--fresh"):
        fit(read_run(text, SMALL), folder)
    assert [report.step for report in fit(read_run(text, SMALL), folder, fresh=True)] == [1, 2]
    assert json.loads((folder / "about.json").read_text())["step"] == 2


@pytest.mark.parametrize("given", ["..", ".", "../here", "../here/"])
def test_a_folder_is_called_by_its_name_however_it_is_given(tmp_path, monkeypatch, given):
    for name in ("here", "here/sub"):
        (tmp_path / name).mkdir()
    (tmp_path / "here" / "a.txt").write_text("the cat saw a dog. " * 100)
    (tmp_path / "here" / "sub" / "b.txt").write_text("the dog saw a cat. " * 100)
    where = tmp_path / "here" / "sub" if given == ".." else tmp_path / "here"
    written("train/own.txt")(where)
    monkeypatch.chdir(where)
    settings = [part for key, value in SMALL.items() for part in ("--set", f"{key}={value}")]
    assert main(["train", given, *settings]) == 0
    assert (where / "out" / "here" / "model.json").is_file()
    assert sorted(os.listdir(where)) == sorted({*(["a.txt", "sub"] if given != ".." else ["b.txt"]), "out", "train"})
    assert os.listdir(where / "out") == ["here"] and (where / "train" / "own.txt").is_file()
