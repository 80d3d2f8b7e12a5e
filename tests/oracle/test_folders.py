"""Folders as transformers and sentence-transformers write them: read by gf.load with the same numbers, or refused."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import pytest
import torch
from published import lively, tokens, transformers
from quick import quick_first, quick_share
from test_gguf_models import gguf, made
from test_gguf_models import write as write_gguf
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

import glassformer as gf
from glassformer.errors import CheckpointError, InputError, UnsupportedError
from glassformer.hf import Family

VOCAB = 300


def tiny(**more):
    fields = {"hidden_size": 64, "intermediate_size": 88, "num_hidden_layers": 3, "vocab_size": VOCAB}
    config = transformers.LlamaConfig(**fields, num_attention_heads=4, num_key_value_heads=2, eos_token_id=1, **more)
    return lively(transformers.LlamaForCausalLM(config))


@pytest.fixture
def folder(tmp_path):
    """A model in several files, with a byte-level tokenizer and two tokens that end a text."""
    model = tiny()
    model.generation_config.eos_token_id = [1, 2]
    model.save_pretrained(tmp_path / "model", max_shard_size="60KB")
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    library = Tokenizer(models.BPE({piece: 3 + i for i, piece in enumerate(alphabet)}, []))
    library.pre_tokenizer, library.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    library.save(str(tmp_path / "model" / "tokenizer.json"))
    return tmp_path / "model"


@torch.no_grad()
def test_a_folder_in_several_files_gives_the_logits_of_transformers(folder, tmp_path):
    theirs, ours = transformers.AutoModelForCausalLM.from_pretrained(folder), gf.load(folder)
    ids = tokens(VOCAB, 20)
    assert len(list(folder.glob("*.safetensors"))) > 3
    assert (ours.model(ids) - theirs(ids).logits).abs().max() < 5e-5
    assert ours.name == "model" and ours.tokenizer.ends == {1, 2}
    assert ours.encode("고양이") == [3 + sorted(pre_tokenizers.ByteLevel.alphabet()).index(c) for c in "ê³łìĸĳìĿ´"]
    ours.save(tmp_path / "copy")
    again = gf.load(tmp_path / "copy")
    assert torch.equal(again.model(ids), gf.load(tmp_path / "copy").model(ids))
    assert (again.model(ids) - ours.model(ids)).abs().max() < 1e-6 and again.tokenizer.ends == {1, 2}
    assert gf.load(folder, dtype="bfloat16").model.embed.token.weight.dtype == torch.bfloat16


@torch.no_grad()
@pytest.mark.parametrize("zipped", [True, False])
def test_a_pickled_folder_is_read_as_tensors_alone(tmp_path, zipped):
    theirs = tiny()
    theirs.config.save_pretrained(tmp_path)
    torch.save(theirs.state_dict(), tmp_path / "pytorch_model.bin", _use_new_zipfile_serialization=zipped)
    ids = tokens(VOCAB, 20)
    assert (gf.load(tmp_path).model(ids) - theirs(ids).logits).abs().max() < 5e-5


@torch.no_grad()
def test_an_older_sentence_transformers_folder_has_the_network_inside(tmp_path):
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    theirs = lively(transformers.BertModel(transformers.BertConfig(**sizes, vocab_size=VOCAB)))
    theirs.save_pretrained(tmp_path / "0_Transformer")
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_mean_tokens": True}))
    parts = [{"path": f"{i}_{kind}", "type": f"models.{kind}"} for i, kind in enumerate(("Transformer", "Pooling"))]
    (tmp_path / "modules.json").write_text(json.dumps(parts))
    ids = tokens(VOCAB, 20)
    wanted = theirs(ids).last_hidden_state.mean(1)
    assert (gf.load(tmp_path).model(ids) - wanted).abs().max() < 5e-5
    for wrong in ("../other", str(tmp_path), None):
        (tmp_path / "modules.json").write_text(json.dumps([{"path": wrong}, parts[1]]))
        with pytest.raises(CheckpointError, match=r"modules\.json names no folder inside this one; fetch it again"):
            gf.load(tmp_path)


def changed(folder, **fields):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | fields))


def test_what_does_not_fit_is_refused_by_name(folder):
    whole = (folder / "config.json").read_text()
    changed(folder, new_trick=3)
    with pytest.raises(
        UnsupportedError, match=r"new_trick: this field of a llama configuration \(here 3\) is not known"
    ):
        gf.load(folder)
    (folder / "config.json").write_text(whole)
    changed(folder, model_type="rwkv")
    with pytest.raises(UnsupportedError, match=r"model_type: 'rwkv' is not known here"):
        gf.load(folder)
    (folder / "config.json").write_text(whole)
    changed(folder, intermediate_size=96)
    with pytest.raises(CheckpointError, match=r"has shape \(88, 64\)"):
        gf.load(folder)
    (folder / "config.json").write_text(whole)
    last = sorted(folder.glob("*.safetensors"))[-1]
    last.write_bytes(last.read_bytes()[:-4])
    with pytest.raises(CheckpointError, match=r"is broken or truncated"):
        gf.load(folder)
    last.unlink()
    with pytest.raises(CheckpointError, match=r"is missing, one of \d+ files of weights; fetch it again"):
        gf.load(folder)
    shutil.rmtree(folder / "..", ignore_errors=True)


@pytest.mark.parametrize(
    "fields",
    [{"vocab_size": 10**9}, {"hidden_size": 1 << 40}, {"intermediate_size": 10**12}, {"num_hidden_layers": 9999}],
)
def test_absurd_configurations_cost_no_memory(folder, fields):
    """Noticed from shapes alone: each of them would need more memory than any machine has."""
    changed(folder, **fields)
    with pytest.raises((CheckpointError, UnsupportedError, InputError, ValueError)) as raised:
        gf.load(folder)
    assert isinstance(raised.value, gf.GlassformerError)


def test_more_blocks_than_are_stored_are_refused_before_any_is_built(folder, monkeypatch):
    changed(folder, num_hidden_layers=9999)
    monkeypatch.setattr(Family, "spec", None)
    with pytest.raises(CheckpointError, match=r"num_hidden_layers is 9999, and the tensors of 3 blocks are stored"):
        gf.load(folder)


@pytest.mark.parametrize("kind", [["llama"], {"a": 1}, 3])
def test_a_family_that_is_no_word_is_not_known(folder, kind):
    changed(folder, model_type=kind)
    with pytest.raises(UnsupportedError, match=r"^model_type: .* is not known here"):
        gf.load(folder)


def test_a_broken_or_partial_folder_is_named(folder):
    for file in folder.glob("*.safetensors*"):
        file.unlink()
    with pytest.raises(CheckpointError, match=r"it holds no model\.safetensors and no pytorch_model\.bin; fetch"):
        gf.load(folder)
    (folder / "config.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"config\.json is broken"):
        gf.load(folder)
    (folder / "config.json").write_text("{}")
    with pytest.raises(InputError, match=r"is not a model folder"):
        gf.load(folder)


PEAK = """
import sys, torch
from pathlib import Path
import glassformer as gf

def peak():
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM:")).split()[1]) << 10

gf.load(sys.argv[1])  # a small one, so that all that loading needs is there
before = peak()
model = gf.load(sys.argv[2], dtype=sys.argv[3]).model
print((peak() - before) / sum(p.nbytes for p in model.parameters()))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the peak of memory is read from /proc, as Linux has it")
@pytest.mark.parametrize("kind", quick_share(["float32", "bfloat16", "pickled", "gguf"], 2, 1))
@pytest.mark.parametrize("dtype", quick_first(["float32", "bfloat16"], ["bfloat16"]))
def test_loading_takes_little_more_memory_than_the_weights(tmp_path, kind, dtype):
    """Some 100 MB of weights, as they are stored or turned into another format, in a process of its own."""
    sizes = {"hidden_size": 512, "intermediate_size": 1536, "num_hidden_layers": 8, "vocab_size": 4096}
    config = transformers.LlamaConfig(**sizes, num_attention_heads=8)
    model = transformers.LlamaForCausalLM(config).to(torch.bfloat16 if kind == "bfloat16" else torch.float32)
    if kind == "gguf":
        write_gguf(tmp_path / "big.gguf", "llama", model, gguf.GGMLQuantizationType.Q8_0)
        write_gguf(tmp_path / "small.gguf", "llama", made("llama")[0], gguf.GGMLQuantizationType.Q8_0)
    else:
        for name, one in (("big", model), ("small", tiny())):
            one.save_pretrained(tmp_path / name, max_shard_size="50MB")
            if kind == "pickled":
                shutil.rmtree(tmp_path / name)
                one.config.save_pretrained(tmp_path / name)
                torch.save(one.state_dict(), tmp_path / name / "pytorch_model.bin")
    ends = ".gguf" if kind == "gguf" else ""
    command = [sys.executable, "-c", PEAK, str(tmp_path / f"small{ends}"), str(tmp_path / f"big{ends}"), dtype]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert float(found.stdout) < 1.3
