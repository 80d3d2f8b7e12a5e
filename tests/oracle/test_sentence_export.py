"""Models of sentence vectors as folders that sentence-transformers loads with the same vectors, and that are read back
as the same models; and their certificate."""

from __future__ import annotations

import json

import pytest
import torch
from cli_runs import run
from difficult_text import tokenizer as own_tokenizer
from published import lively, meaning, transformers
from published_shapes import folder as shape_folder
from test_sentences import SENTENCES, theirs

import glassformer as gf
from glassformer.api import Loaded
from glassformer.certificate import check
from glassformer.checkpoint import filled, unique_tensors
from glassformer.data.folder import read_tokenizer
from glassformer.embedding import embed
from glassformer.errors import UnsupportedError
from glassformer.hf import read_model
from glassformer.hf.rules import differences
from glassformer.nn.pool import PooledSpec

SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
KINDS = {
    "bert": (transformers.BertModel, transformers.BertConfig(**SIZES, vocab_size=520, max_position_embeddings=40)),
    "xlm-roberta": (
        transformers.XLMRobertaModel,
        transformers.XLMRobertaConfig(**SIZES, vocab_size=520, max_position_embeddings=42, type_vocab_size=1),
    ),
    "llama2": (
        transformers.LlamaModel,
        transformers.LlamaConfig(**SIZES, vocab_size=560, num_key_value_heads=2, max_position_embeddings=40),
    ),
}
TEXTS = [text for text in SENTENCES if text]


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path):
    monkeypatch.setenv("GLASSFORMER_HOME", str(tmp_path / "home"))


@torch.no_grad()
def made(kind, about=None, **head):
    """A random published network that ends in vectors of sentences."""
    name, config = KINDS[kind]
    config._attn_implementation = "eager"
    network = lively(name(config))
    said = config.to_dict() | {"architectures": [name.__name__]}
    model = read_model(said, network.state_dict(), "memory")
    tensors = {one: x for one, x in unique_tensors(model).items() if not one.startswith("head.")}
    pooled = filled(model.spec.changed(head=PooledSpec(**head)), tensors, shape_folder(kind))
    tokenizer = read_tokenizer(shape_folder(kind))
    assert tokenizer.vocab_size <= config.vocab_size
    return Loaded(pooled, tokenizer, about={"sentences": about or {}, "config": said})


def back(loaded, folder):
    """What an export is read back as: it has the model's spec and vectors, and those of the original program."""
    config = loaded.export(folder)
    assert config["model_type"] == loaded.about.get("config", config)["model_type"]
    again, vectors = gf.load(folder), embed(loaded, TEXTS).vectors
    assert not differences(meaning(again.spec), meaning(loaded.spec)) and torch.equal(
        embed(again, TEXTS).vectors, vectors
    )
    wanted = theirs(folder, TEXTS)
    assert (wanted - vectors).abs().max() <= 1e-5 and vectors.std() > 0.05
    return again


@pytest.mark.parametrize("unit", [True, False], ids=["unit", "plain"])
@pytest.mark.parametrize("pool", ["mean", "first"])
@pytest.mark.parametrize("kind", ["bert", "xlm-roberta"])
def test_an_export_has_the_same_vectors_everywhere(kind, pool, unit, tmp_path):
    again = back(made(kind, pool=pool, unit=unit), tmp_path / "out")
    listed = json.loads((tmp_path / "out" / "modules.json").read_text())
    assert [one["path"] for one in listed] == ["", "1_Pooling", "2_Normalize"][: 2 + unit]
    assert again.about["sentences"] == {"longest": 40}, "as much as the network reads"


def test_a_decoder_whose_last_token_stands_for_the_text(tmp_path):
    """As of the models that were made from decoders, whose tokenizer puts an end behind every text."""
    loaded = made("llama2", pool="last", unit=True)
    config = loaded.tokenizer.library
    end = config.token_to_id("</s>")
    tokenizers = pytest.importorskip("tokenizers")
    config.post_processor = tokenizers.processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", config.token_to_id("<s>")), ("</s>", end)]
    )
    loaded.tokenizer = type(loaded.tokenizer)(config, loaded.tokenizer.settings)
    assert loaded.encode("a")[-1] == end
    assert back(loaded, tmp_path / "out").encode("a")[-1] == end
    plain = Loaded(filled(loaded.spec.changed(head=None), unique_tensors(loaded.model), tmp_path), loaded.tokenizer)
    assert plain.encode("a")[-1] != end, "a text of which nothing is pooled may go on"


def test_how_texts_are_read_goes_with_it(tmp_path):
    about = {"longest": 12, "prefix": "query: ", "prompts": {"passage": "passage: ", "query": "query: "}}
    again = back(made("bert", about, pool="mean"), tmp_path / "out")
    assert again.about["sentences"] == about and embed(again, TEXTS).longest == 12
    assert json.loads((tmp_path / "out" / "config_sentence_transformers.json").read_text()) == {
        "prompts": about["prompts"],
        "default_prompt_name": "query",
    }


@pytest.mark.parametrize("name", ["dot", "euclidean", "cosine"])
def test_so_does_the_measure_of_similarity(name, tmp_path):
    original = pytest.importorskip("sentence_transformers", reason="the original is sentence-transformers (extra dev)")
    made("bert", {"similarity": "manhattan"}).export(tmp_path / "in")
    path = tmp_path / "in" / "config_sentence_transformers.json"
    said = json.loads(path.read_text())
    assert said["similarity_fn_name"] == "manhattan"
    path.write_text(json.dumps(said | {"similarity_fn_name": name}))
    gf.load(tmp_path / "in").save(tmp_path / "own")
    back(gf.load(tmp_path / "own"), tmp_path / "out")
    assert original.SentenceTransformer(str(tmp_path / "out"), device="cpu").similarity_fn_name == name


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("model_args", {"dtype": "float16", "add_pooling_layer": False}, None),
        ("unpad_inputs", True, None),
        ("model_args", {"num_hidden_layers": 1}, r"model_args: \{'num_hidden_layers': 1\} is not supported in a sen"),
        ("tokenizer_args", {"padding_side": "left"}, r"tokenizer_args: .* is not supported"),
        ("processing_kwargs", {"text": {"padding": True}}, r"processing_kwargs: .* is not supported"),
        ("query_length", 32, r"query_length: 32 is not supported"),
        ("max_seq_lenght", 9, r"max_seq_lenght: this field of a sentence-transformers .* did you mean max_seq_length"),
    ],
)
def test_settings_of_the_reading_that_change_vectors_are_refused_by_name(field, value, said, tmp_path):
    made("bert").export(tmp_path / "out")
    path = tmp_path / "out" / "sentence_bert_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {field: value}))
    if said is None:
        assert gf.load(tmp_path / "out").embed("a").shape == (1, 32)
        return
    with pytest.raises(UnsupportedError, match=f"^{said}"):
        gf.load(tmp_path / "out")


def test_a_model_that_was_built_here_with_its_own_tokenizer(tmp_path):
    tokenizer = own_tokenizer("bpe")
    spec = gf.build("bert", vocab=tokenizer.vocab_size, dim=24, blocks=2, heads=4, context=48, dropout=0.0).spec
    loaded = gf.build(spec.changed(head=PooledSpec(pool="mean", unit=True)))
    loaded.tokenizer = tokenizer
    with torch.no_grad():
        for parameter in loaded.model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    back(loaded, tmp_path / "out")


@pytest.mark.parametrize(
    ("about", "head", "message"),
    [
        ({"prefix": "query: "}, {}, r"cannot be this one: about\.prefix: it can only have '', not 'query: '"),
        ({"colour": 3}, {}, r"cannot be this one: about\.colour: it can only have None, not 3"),
        ({}, {"scores": "sigmoid"}, r"cannot be this one: head\.scores: it can only have 'softmax', not 'sigmoid'"),
    ],
)
def test_what_such_a_folder_cannot_say_is_refused_by_name(about, head, message, tmp_path):
    with pytest.raises(UnsupportedError, match=f"^a sentence-transformers model {message}"):
        made("bert", about, **head).export(tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_family_that_cannot_be_the_network_is_refused(tmp_path):
    with pytest.raises(
        UnsupportedError, match=r"^a llama model cannot be this one: blocks.*; bert, roberta, xlm-roberta can$"
    ):
        made("bert").export(tmp_path / "out", family="llama")


@pytest.mark.parametrize("masked", [False, True], ids=["network", "masked-words"])
def test_its_certificate_holds_the_network_against_the_original(masked, tmp_path, capsys):
    made("bert", pool="mean", unit=True).save(tmp_path / "own")
    status, said, _ = run(capsys, "export", str(tmp_path / "own"), str(tmp_path / "out"))
    assert status == 0 and "without pooler.dense: sentence vectors do not use it" in said
    if masked:  # as in the files of sentence models that were made from a BertForMaskedLM
        config = json.loads((tmp_path / "out" / "config.json").read_text())
        (tmp_path / "out" / "config.json").write_text(json.dumps(config | {"architectures": ["BertForMaskedLM"]}))
    for place in ("own", "out"):
        found = check(gf.load(tmp_path / place))
        passed = {line.name for line in found.lines if line.status == "passed"}
        assert found.passed and {"original_fp32", "original_bf16"} <= passed, repr(found)
    assert "original_ids" in passed
    loaded = gf.load(tmp_path / "out")
    with torch.no_grad():
        loaded.model.blocks[0].mixer.q.weight.mul_(1.5)
    assert {"original_fp32", "original_bf16"} <= {line.name for line in check(loaded).failed}
