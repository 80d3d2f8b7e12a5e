"""One line with the way out, in both languages, for every mistake on the command line."""

import json
import pathlib
import re
import shutil

import pytest
import torch
from cli_runs import KOREAN, refused, run, write
from sheet_models import SPECS, loaded

import glassformer as gf
from glassformer.api import load
from glassformer.checkpoint import save_model
from glassformer.errors import InputError
from glassformer.train import fit, read_runs

pytestmark = pytest.mark.usefixtures("english_locale")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write(tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def copy(folder, tmp_path):
    return pathlib.Path(shutil.copytree(folder, tmp_path / "copy"))


@pytest.mark.parametrize(
    ("arguments", "way_out"),
    [
        (["trace", ""], 'the text is empty; give a sentence, for example "고양이가'),
        (["trace", " \n\t "], "the text is empty"),
        (["trace", KOREAN, "--token", "강아지"], "its rows are: 0 ⟨start⟩, 1 고양이가, 2 생선을, 3 먹었다"),
        (["trace", KOREAN, "--token", ""], "its rows are:"),
        (["trace", KOREAN, "--token", "9"], "its rows are:"),
        (["trace", KOREAN, "--head", "4"], "there is no head 4; this model has 4 (0 to 3)"),
        (["trace", KOREAN, "--head", "-1"], "there is no head -1"),
        (["trace", KOREAN, "--layer", "2"], "there is no layer 2; this model has 2 (0 to 1)"),
        (["trace", KOREAN, "--head", "x"], "--head"),
        (["trace", KOREAN, "--by", "wort"], "--by"),
        (["trace", KOREAN, "--lang", "fr"], "--lang"),
        (["--lang", "fr", "trace", KOREAN], "--lang"),
        (["trace", KOREAN, "--tokn", "먹었다"], "--tokn"),
        (["trace"], "TEXT"),
        (["trace", "The", "cat", "ate"], "not expected here: cat ate; put a text of several words in quotes"),
        (["trace", KOREAN, "--haed", "1"], "(see glassformer trace --help)"),
        (["trace", KOREAN, "--memory", "0"], "--memory: 0 is not allowed; use 1 or more"),
        (["trace", KOREAN * 2000, "--memory", "1"], "the limit of 1.0 MiB cannot hold"),
        (["trace", KOREAN, "--top", "0"], "--top: 0 is not allowed; use 1 or more"),
        (["trace", KOREAN, "--top", "many"], "--top"),
        (["trace", KOREAN, "--closed=perhaps"], "--closed"),
        (["trace", KOREAN, "--top", "1.5"], 'Invalid value for --top: unable to convert "1.5" into int'),
        (["trace", KOREAN, "--layer", "0.6"], 'unable to convert "0.6" into int'),
        (["generate", KOREAN, "-n", "2.7"], 'Invalid value for -n: unable to convert "2.7" into int'),
        (["generate", KOREAN, "--seed", "1e3"], 'Invalid value for --seed: unable to convert "1e3" into int'),
        (["trace", KOREAN, "--dtype", "float23"], "dtype: 'float23' is not allowed; use float32, bfloat16, float64"),
        (["trace", KOREAN, "--dtype", "nn"], "dtype: 'nn' is not allowed"),
        (["trace", KOREAN, "--device", "tpu"], "device: 'tpu' is not known; use cpu, cuda"),
        (["trace", KOREAN, "--device", "cuda:x"], "device: 'cuda:x' is not known"),
        (["trace", KOREAN, "--device", "cuda:99"], "'cuda:99' is not available on this machine; there is: cpu"),
        (["trace", KOREAN, "--save", "run.htm"], "run.htm does not end in .safetensors"),
        (["trace", KOREAN, "--save", "run"], "does not end in .safetensors"),
        (["trace", "a\udcff"], "position 1: the byte FF is not UTF-8; give the text in UTF-8"),
        (["trace", KOREAN, "--token", "\udcff"], "its rows are:"),
        (["generate", "a\udcff"], "the byte FF is not UTF-8"),
        (["generate", KOREAN, "--temperature", "-1"], "--temperature: -1.0 is not allowed; use 0 for greedy"),
        (["generate", KOREAN, "--top-p", "2"], "--top-p: 2.0 is not allowed"),
        (["generate", KOREAN, "-n", "0"], "-n: 0 is not allowed; use 1 or more"),
        (["generate", KOREAN, "-n", "999"], "set -n to at most 2"),
        (["generate", KOREAN * 99], "shorten it to at most 255"),
        (["generate", KOREAN, "--seed", "-1"], "--seed: -1 is not allowed"),
        (["generate", KOREAN, "--beams", "2", "--stop", "."], "--stop: beam search"),
        (["generate", KOREAN, "--beams", "2", "--top-k", "1"], "--top-k: beam search weighs"),
        (["generate", KOREAN, "--length-penalty", "2"], "--length-penalty: only beam search uses it; leave it out"),
        (["trace", KOREAN, "--device", "cpu:"], "device: 'cpu:' is not known; use cpu, cuda"),
        (["trace", KOREAN, "--device", "cpu:٠"], "device: 'cpu:٠' is not known"),
        (["trace", KOREAN, "--device", "cpu:1"], "device: 'cpu:1' is not available"),
        (["models", "--device", "xyz"], "device: 'xyz' is not known"),
        (["models", "--dtype", "nonsense"], "dtype: 'nonsense' is not allowed"),
        (["evaluate", "no-such-file.txt"], "there is no such file"),
        (["evaluate", ""], "the name of the file or folder is empty; give its path"),
        (["train", ""], "the name of the file or folder is empty"),
        (["train", "a.txt", "--out", ""], "the name of the file or folder is empty"),
        (["export", "small", ""], "the name of the file or folder is empty"),
        (["models", "small", "--save", ""], "the name of the file or folder is empty"),
        (["classify", "--file", "a", "--file", "", "-m", "small"], "the name of the file or folder is empty"),
        (["generate", KOREAN, "--beams", "2", "--length-penalty", "400"], "--length-penalty: 400.0 is not allowed"),
        (["bogus"], "bogus"),
        (["--bogus"], "--bogus"),
    ],
    ids=lambda given: " ".join(given)[:40].encode("ascii", "replace").decode() if isinstance(given, list) else "",
)  # fmt: skip
def test_a_mistake_is_one_line_with_the_way_out(capsys, folder, arguments, way_out):
    model = ["-m", folder] if arguments[0] in ("trace", "generate", "evaluate") and len(arguments) > 1 else []
    english = refused(capsys, *arguments, *model)
    assert way_out in english
    if "--lang" in arguments or arguments[0].startswith("-"):
        return
    korean = refused(capsys, *arguments, *model, lang="ko").removeprefix("glassformer: ")
    for given in sorted((*arguments, *KOREAN.split()), key=len, reverse=True):
        korean = korean.replace(given, "")
    assert re.search("(니다|십시오)", korean), korean
    assert not re.search(r"(?<![-./])\b[a-z]+ [a-z]+ [a-z]+\b", korean), korean


def test_an_empty_name_is_no_folder_in_python_either(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("some text")
    model = gf.build("llama", vocab=65, dim=32, blocks=1, heads=4)
    for call in (
        lambda: fit("", tmp_path / "out"),
        lambda: fit("a.txt", ""),
        lambda: read_runs(""),
        lambda: gf.load().evaluate(""),
        lambda: model.save(""),
        lambda: model.export(""),
    ):
        with pytest.raises(InputError, match="^the name of the file or folder is empty; give its path$"):
            call()
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


def test_memory_is_counted_in_mib_with_the_option_that_suffices(capsys, folder):
    text = "고양이 " * 2000
    message = refused(capsys, "trace", text, "--memory", "1", "-m", folder)
    assert "bytes" not in message and " MiB" in message
    option, value = re.search(r"--memory (\d+)", message)[0].split()
    assert option == "--memory" and int(value) > 1
    load(folder).trace(text, limit_bytes=int(value) << 20)


def test_a_file_is_no_model(capsys, folder, tmp_path):
    (tmp_path / "my.txt").write_text("a", encoding="utf-8")
    message = refused(capsys, "trace", "a", "-m", str(tmp_path / "my.txt"))
    assert "my.txt is a file, and a model is a folder with a model.json" in message and ".gguf" in message


def test_a_model_file_that_is_not_there_is_no_id_of_the_hub(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("lost.npz", "folder/lost.bin", "lost.gguf"):
        assert "there is no such file" in refused(capsys, "trace", "a", "-m", name)
    assert "empty" in refused(capsys, "trace", "a", "-m", "")
    (tmp_path / "other").mkdir()
    message = refused(capsys, "trace", "a", "-m", "other")
    assert all(one in message for one in ("model.json", "config.json", "GGUF", "llama2.c", "CTranslate2", "g2p-en"))


def test_a_model_that_does_not_compute_numbers_is_refused(capsys, tmp_path):
    """A weight of 1e38 is a number; what comes of it is none."""
    made = loaded(SPECS["rope"], "byte")
    with torch.no_grad():
        made.model.head.weight.fill_(1e38)
    save_model(made.model, tmp_path, {})
    made.tokenizer.save(tmp_path / "tokenizer.json")
    (tmp_path / "text.txt").write_text("a text", encoding="utf-8")
    for arguments in (["trace", "a"], ["generate", "a"], ["evaluate", str(tmp_path / "text.txt")]):
        assert re.search("not finite|not numbers", refused(capsys, *arguments, "-m", str(tmp_path)))


@pytest.mark.parametrize("set", ["steps", "nothing=1"])
def test_mistakes_in_training_settings(capsys, tmp_path, set):
    (tmp_path / "text.txt").write_text(KOREAN, encoding="utf-8")
    assert set.split("=")[0] in refused(
        capsys, "train", str(tmp_path / "text.txt"), "--set", set, "--out", str(tmp_path / "o")
    )
    assert "no-such" in refused(capsys, "train", str(tmp_path / "no-such.txt"))
    assert "'tpu'" in refused(capsys, "train", str(tmp_path / "text.txt"), "--device", "tpu")


def test_a_model_that_is_not_there(capsys, tmp_path):
    assert "no model 'nothing-here'" in refused(capsys, "trace", KOREAN, "-m", "nothing-here")
    assert "it has no model.json" in refused(capsys, "trace", KOREAN, "-m", str(tmp_path))
    assert "no model '\\udcff'" in refused(capsys, "trace", KOREAN, "-m", "\udcff")


def test_a_broken_model(capsys, copy):
    def message():
        return refused(capsys, "trace", KOREAN, "-m", str(copy))

    weights, spec, tokenizer = copy / "model.safetensors", copy / "model.json", copy / "tokenizer.json"
    whole, text = weights.read_bytes(), spec.read_text()
    for wrong in (whole[: len(whole) // 2], whole[:5], b""):
        weights.write_bytes(wrong)
        assert "model.safetensors is broken or truncated" in message()
    weights.unlink()
    assert "model.safetensors is missing" in message()
    weights.write_bytes(whole)
    for wrong in ("{", "", "[]", "3", '"text"', text.replace('"format": 1', '"format": "one"')):
        spec.write_text(wrong)
        assert "model.json" in message()
    spec.write_text(text.replace('"dim"', '"dimm"'))
    assert "dimm: unknown setting; did you mean dim" in message()
    spec.write_text(text.replace('"heads": 4', '"heads": 5'))
    assert "heads: 5 does not divide d=16" in message()
    spec.write_text(text.replace('"hidden": null', '"hidden": 24'))
    assert "has shape" in message()
    spec.write_bytes(b"\xff\xfe\x00")
    assert "model.json" in message()
    spec.write_text(text)
    tokenizer.write_text("{}")
    assert "tokenizer.json" in message()
    tokenizer.unlink()
    assert "no tokenizer" in message()


def test_a_tokenizer_of_another_model(capsys, copy):
    spec = json.loads((copy / "model.json").read_text())
    other = write(copy.parent / "byte", method="byte")
    shutil.copy(copy / "tokenizer.json", pathlib.Path(other) / "tokenizer.json")
    assert f"has {spec['spec']['vocab']} tokens and the model knows 257" in refused(
        capsys, "trace", KOREAN, "-m", other
    )


def test_a_text_longer_than_learned_positions(capsys, tmp_path):
    learned = write(tmp_path / "learned", "learned", "byte")
    assert "give at most 256 tokens" in refused(capsys, "trace", KOREAN * 20, "-m", learned)


def test_a_path_that_cannot_be_written(capsys, folder, tmp_path):
    (tmp_path / "file").write_text("")
    message = refused(capsys, "trace", KOREAN, "-m", folder, "--save", str(tmp_path / "file" / "x.safetensors"))
    assert message.endswith("; check the path and its permissions\n"), "there was nothing to keep"
    (tmp_path / "dir.safetensors").mkdir()
    message = refused(capsys, "trace", KOREAN, "-m", folder, "--save", str(tmp_path / "dir.safetensors"))
    assert "check the path" in message and "What was there before is kept" in message


def test_a_model_without_attention_or_head_is_named(capsys, tmp_path):
    no_head = write(tmp_path / "bare", "no-head")
    assert run(capsys, "trace", KOREAN, "-m", no_head)[0] == 0
    assert "no head" in refused(capsys, "generate", KOREAN, "-m", no_head)
    (tmp_path / "text.txt").write_text(KOREAN, encoding="utf-8")
    assert "from left to right" in refused(capsys, "evaluate", str(tmp_path / "text.txt"), "-m", no_head)
    full = write(tmp_path / "full", "full")
    message = refused(capsys, "evaluate", str(tmp_path / "text.txt"), "-m", full)
    assert "full reads a whole text at once and writes none; use embed or trace" in message
    assert run(capsys, "trace", KOREAN, "-m", full)[0] == 0


@pytest.mark.parametrize(("verb", "way_out"), [("trace", "quotes"), ("evaluate", "one at a time")])
def test_one_argument_too_many_gets_the_way_out_of_its_verb(capsys, verb, way_out):
    assert way_out in refused(capsys, verb, "a", "b")
