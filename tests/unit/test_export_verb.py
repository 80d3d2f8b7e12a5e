"""glassformer export at the command line."""

import json

import pytest
from cli_runs import run, write

import glassformer as gf
from glassformer.checkpoint import read_spec
from glassformer.files import new_folder


@pytest.fixture
def llama(tmp_path):
    loaded = gf.build("llama", vocab=20, dim=16, blocks=1, heads=2, context=16)
    loaded.about = {"summary": "mine", "licence": "CC BY 4.0"}
    loaded.save(tmp_path / "model")
    return tmp_path / "model"


def test_a_model_is_written_and_said_in_both_languages(llama, tmp_path, capsys):
    status, out, err = run(capsys, "export", str(llama), str(tmp_path / "a"))
    assert (status, err) == (0, "")
    assert out == f"{tmp_path / 'a'}: a llama model (LlamaForCausalLM), which transformers loads\n"
    assert (
        "transformers로 불러올 수 있는 llama 모델입니다"
        in run(capsys, "export", str(llama), str(tmp_path / "b"), "--lang", "ko")[1]
    )
    status, out, _ = run(
        capsys, "export", str(llama), str(tmp_path / "c"), "--json", "--family", "mistral", "--shard", "1"
    )
    assert json.loads(out) == {
        "folder": str(tmp_path / "c"),
        "family": "mistral",
        "architecture": "MistralForCausalLM",
        "files": ["about.json", "config.json", "model.safetensors"],
        "without": [],
    }
    assert json.loads((tmp_path / "a" / "about.json").read_text())["licence"] == "CC BY 4.0"
    assert gf.load(tmp_path / "a").spec.blocks == gf.load(tmp_path / "a").spec.blocks != read_spec(llama).blocks


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("small", "{out}"), "no published family can be this model: none has embed.previous=True"),
        (("{model}", "{model}"), "holds something already, which is kept; give a new folder"),
        (("{model}", "{out}", "--family", "gpt2"), "a gpt2 model cannot be this one: "),
        (("{model}", "{out}", "--shard", "0"), "--shard: 0 is not allowed; use 1 or more"),
        (("nothing", "{out}"), "no model 'nothing'"),
        (("{model}", "{model}/model.json/a"), "cannot be written ("),
    ],
)
def test_what_cannot_be_exported_is_one_line_and_leaves_nothing(arguments, message, llama, tmp_path, capsys):
    given = [one.format(model=llama, out=tmp_path / "out") for one in arguments]
    status, out, err = run(capsys, "export", *given)
    assert (status, out) == (2, "") and message in err and err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_the_tokenizer_can_be_left_out(tmp_path, capsys):
    write(tmp_path / "model")
    assert run(capsys, "export", str(tmp_path / "model"), str(tmp_path / "a"))[0] == 0
    assert run(capsys, "export", str(tmp_path / "model"), str(tmp_path / "b"), "--no-tokenizer")[0] == 0
    files = [{path.name for path in (tmp_path / one).iterdir()} for one in "ab"]
    assert files[0] - files[1] >= {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"}
    assert not any("token" in name for name in files[1])
    status, _, err = run(capsys, "export", "korean-g2p", str(tmp_path / "c"), "--no-tokenizer")
    assert status == 2 and "no published family can be this model: none has " in err


def test_a_folder_appears_only_when_it_is_whole(tmp_path):
    with pytest.raises(KeyboardInterrupt), new_folder(tmp_path / "a") as made:
        (made / "x").write_text("half")
        raise KeyboardInterrupt
    assert not list(tmp_path.iterdir())
    with new_folder(tmp_path / "b" / "a") as made:
        (made / "x").write_text("whole")
        assert not (tmp_path / "b" / "a").exists()
    assert (tmp_path / "b" / "a" / "x").read_text() == "whole" and len(list((tmp_path / "b").iterdir())) == 1
