"""The certificate's lines against transformers: published models pass, and what is damaged fails the right line."""

import json

import pytest
import torch
from published import lively, transformers
from published_shapes import folder as tokenizer_folder

import glassformer as gf
from glassformer.certificate import check, original
from glassformer.certificate.subject import Subject
from glassformer.checkpoint import filled, unique_tensors
from glassformer.data.folder import read_tokenizer
from glassformer.formats.shards import read_weights
from glassformer.hf import read_model
from glassformer.nn.embed import Embed
from glassformer.nn.pool import PooledSpec

ORIGINAL = {"original_ids", "original_fp32", "original_text", "original_bf16"}
SMALL = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96}
DECODER = {**SMALL, "num_key_value_heads": 2, "vocab_size": 400, "max_position_embeddings": 128}
GPT2 = {"n_embd": 48, "n_layer": 2, "n_head": 4, "vocab_size": 500, "n_positions": 128}
BERT = {**SMALL, "vocab_size": 400}
SEVERAL = {
    f"{side}_{what}": n for side in ("encoder", "decoder") for what, n in (("layers", 2), ("attention_heads", 4))
}
BART = {"d_model": 48, "vocab_size": 400, "encoder_ffn_dim": 96, "decoder_ffn_dim": 96, **SEVERAL}
T5 = {"vocab_size": 400, "d_model": 48, "d_kv": 12, "d_ff": 96, "num_layers": 2, "num_heads": 4}
HEARS = {**BART, "max_source_positions": 60, "max_target_positions": 64, "bos_token_id": 1, "eos_token_id": 2}
KINDS = {
    "llama": ("LlamaForCausalLM", transformers.LlamaConfig(**DECODER)),
    "gpt2": ("GPT2LMHeadModel", transformers.GPT2Config(**GPT2)),
    "gemma2": ("Gemma2ForCausalLM", transformers.Gemma2Config(**DECODER, head_dim=12, sliding_window=16)),
    "mamba": ("MambaForCausalLM", transformers.MambaConfig(vocab_size=400, hidden_size=32, num_hidden_layers=2)),
    "bert": ("BertModel", transformers.BertConfig(**BERT)),
    "bert-classes": ("BertForSequenceClassification", transformers.BertConfig(**BERT, num_labels=3)),
    "roberta": ("RobertaForMaskedLM", transformers.RobertaConfig(**BERT)),
    "t5": ("T5ForConditionalGeneration", transformers.T5Config(**T5)),
    "bart": ("BartForConditionalGeneration", transformers.BartConfig(**BART)),
    "whisper": (
        "WhisperForConditionalGeneration",
        transformers.WhisperConfig(**HEARS, pad_token_id=0, decoder_start_token_id=3),
    ),
    "vit": ("ViTForImageClassification", transformers.ViTConfig(**SMALL, image_size=48, patch_size=16, num_labels=5)),
}
WRITES = {"llama", "gpt2", "gemma2", "mamba", "t5", "bart", "whisper"}


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path):
    monkeypatch.setenv("GLASSFORMER_HOME", str(tmp_path / "home"))


def save(kind, path):
    """A random published model in a folder."""
    name, config = KINDS[kind]
    config._attn_implementation = "eager"
    transformers.utils.logging.disable_progress_bar()
    lively(getattr(transformers, name)(config)).save_pretrained(path)
    return path


def load(path, tokenizer=None, **changes):
    """Our model of a folder; changes: of its configuration, as a wrong rule would make them."""
    found = gf.load(path)
    if changes:
        config = json.loads((path / "config.json").read_text()) | changes
        found.model = read_model(config, read_weights(path), path)
    found.tokenizer = tokenizer
    return found


def by_status(made):
    return {status: {line.name for line in made.lines if line.status == status} for status in ("passed", "failed")}


@pytest.mark.parametrize("kind", KINDS)
def test_a_published_model_passes(kind, tmp_path):
    made = check(load(save(kind, tmp_path / kind)))
    assert made.passed, repr(made)
    found = by_status(made)["passed"]
    assert {"finite", "names", "glass", "batch", "original_fp32", "original_bf16"} <= found, repr(made)
    writing = {"future", "chunks", "cache", "greedy", "original_text"}
    assert found & writing == (writing if kind in WRITES else set()), repr(made)
    line = made.line("original_fp32")
    assert 0 < line.detail["mean_difference"] < line.detail["largest_difference"] < 5e-4
    if kind in WRITES:
        assert made.line("original_text").detail["of"] >= 63


def test_what_the_texts_are_written_without_is_said(tmp_path, monkeypatch):
    path = save("llama", tmp_path / "llama")
    assert check(load(path)).line("original_text").reason == ""
    said = {"repetition_penalty": 5.0, "suppress_tokens": [7], "eos_token_id": 2}
    (path / "generation_config.json").write_text(json.dumps(said))
    line = check(load(path)).line("original_text")
    assert line.status == "passed" and line.detail["of"] >= 126
    assert (
        line.reason == "both texts are written without suppressed, repetition_penalty, which this model has of its own"
    )


@pytest.mark.parametrize("kind", ["llama", "gpt2", "vit"])
def test_a_model_without_its_folder_is_held_against_its_export(kind, tmp_path):
    model = load(save(kind, tmp_path / kind))
    model.place = None
    made = check(model)
    assert made.passed and {"original_fp32", "original_bf16"} <= by_status(made)["passed"], repr(made)


@pytest.mark.parametrize("folder", [True, False], ids=["folder", "export"])
def test_a_model_of_sentence_vectors_is_held_against_its_blocks(folder, tmp_path):
    model = load(save("bert", tmp_path / "bert"))
    kept = {name: x for name, x in unique_tensors(model.model).items() if not name.startswith("head.")}
    model.model = filled(model.model.spec.changed(head=PooledSpec(pool="mean", unit=True)), kept, tmp_path)
    model.place = model.place if folder else None
    made = check(model)
    assert made.passed and {"original_fp32", "original_bf16"} <= by_status(made)["passed"], repr(made)
    with torch.no_grad():
        model.model.blocks[0].mixer.q.weight.mul_(1.1)
    assert not folder or "original_fp32" in by_status(check(model))["failed"]


def test_bf16_is_held_against_bf16(tmp_path):
    model = load(save("llama", tmp_path / "llama"))
    model.model.bfloat16()
    made = check(model)
    assert made.passed and "original_bf16" in by_status(made)["passed"], repr(made)
    assert "check it in float32" in made.line("original_fp32").reason


def test_another_base_of_rope_fails_against_the_original_alone(tmp_path):
    made = check(
        load(save("llama", tmp_path / "llama"), rope_parameters={"rope_type": "default", "rope_theta": 20_000.0})
    )
    assert by_status(made)["failed"] == {"original_fp32", "original_text", "original_bf16"}, repr(made)
    assert made.line("original_fp32").value > 1e-3 and "part at token" in made.line("original_text").reason


def test_a_transposed_weight_fails_against_the_original_alone(tmp_path):
    model = load(save("llama", tmp_path / "llama"))
    weight = model.model.blocks[1].mixer.out.weight
    with torch.no_grad():
        weight.copy_(weight.T.clone())
    assert by_status(check(model))["failed"] == {"original_fp32", "original_text", "original_bf16"}


def test_positions_that_are_off_by_one_fail_against_the_original_alone(tmp_path, monkeypatch):
    path, forward = save("gpt2", tmp_path / "gpt2"), Embed.forward

    def late(self, tokens, call, *rest):
        return forward(self, tokens, original.replace(call, pos=(call.pos + 1).clamp(max=127)), *rest)

    monkeypatch.setattr(Embed, "forward", late)
    failed = by_status(check(load(path)))["failed"]
    assert {"original_fp32", "original_bf16"} <= failed and not failed & {"batch", "cache", "chunks", "glass"}


def test_a_tokenizer_of_another_model_fails_by_its_ids(tmp_path):
    path = save("gpt2", tmp_path / "gpt2")
    for file in tokenizer_folder("gpt2").iterdir():
        (path / file.name).write_bytes(file.read_bytes())
    for shape, failed in (("gpt2", set()), ("llama3", {"original_ids"})):
        made = check(load(path, read_tokenizer(tokenizer_folder(shape))))
        assert by_status(made)["failed"] == failed, repr(made)
    assert made.line("original_ids").value > 20


@pytest.mark.parametrize("shape", ["gpt2", "llama3", "qwen2", "neox", "bert", "xlm-roberta", "t5", "llama2", "gemma"])
def test_ids_and_places_of_published_tokenizers(shape, monkeypatch):
    monkeypatch.setattr(original, "published", lambda place: place)  # these lie there without a model
    model = gf.build("rnn", vocab=5, dim=8)
    model.tokenizer, model.place = read_tokenizer(tokenizer_folder(shape)), tokenizer_folder(shape)
    line = original.ids(model)
    assert line.status == "passed" and line.detail["of"] >= 40, line


@pytest.mark.parametrize("part", ["tokenizer", "model"])
def test_no_code_of_a_folder_is_run_and_nobody_is_asked(part, tmp_path, monkeypatch):
    path, ran = save("llama", tmp_path / "llama"), tmp_path / "ran"
    for file in tokenizer_folder("gpt2").iterdir():
        (path / file.name).write_bytes(file.read_bytes())
    (path / "theirs.py").write_text(f"open({str(ran)!r}, 'w').close()\nclass Theirs: pass\n")
    config = json.loads((path / "config.json").read_text())
    named = {"AutoTokenizer": ["theirs.Theirs", None], "AutoConfig": "theirs.Theirs", "AutoModel": "theirs.Theirs"}
    spoilt = {"auto_map": named, "model_type": "theirs", "architectures": ["AutoModel"]}
    (path / "config.json").write_text(json.dumps(config | spoilt))
    (path / "tokenizer_config.json").write_text(json.dumps({"auto_map": named, "tokenizer_class": "Theirs"}))
    asked = []
    monkeypatch.setattr("builtins.input", lambda *given: asked.append(given) or "y")
    monkeypatch.setattr(original, "published", lambda place: place)
    model = gf.build("rnn", vocab=5, dim=8)
    model.tokenizer, model.place = read_tokenizer(tokenizer_folder("gpt2")), path
    if part == "tokenizer":
        assert original.ids(model).status == "not applicable"
    else:
        with pytest.raises(original.Absent):
            original.Original(model, Subject(model.model, [])).model
    assert not asked and not ran.exists()


def test_transformers_says_nothing_and_is_left_as_it_was(tmp_path, capfd, recwarn):
    path = save("llama", tmp_path / "llama")
    model = load(path)
    log = transformers.utils.logging
    before = log.get_verbosity(), log.is_progress_bar_enabled()
    capfd.readouterr()
    check(model)
    assert capfd.readouterr() == ("", "") and not recwarn.list
    assert (log.get_verbosity(), log.is_progress_bar_enabled()) == before


def test_without_transformers_the_lines_do_not_apply(tmp_path, monkeypatch):
    model = load(save("llama", tmp_path / "llama"))
    monkeypatch.setattr(original.importlib.util, "find_spec", lambda name: None)
    made = check(model)
    assert made.passed and not by_status(made)["passed"] & ORIGINAL
    assert "not installed" in made.line("original_fp32").reason


def test_a_folder_that_transformers_cannot_read_says_so(tmp_path):
    model = load(save("llama", tmp_path / "llama"))
    (tmp_path / "llama" / "model.safetensors").unlink()
    line = check(model).line("original_fp32")
    assert line.status == "not applicable" and f"transformers {transformers.__version__} does not read" in line.reason
