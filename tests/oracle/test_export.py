"""Models that were built here, written as folders for transformers: the same numbers there, and the same bits here."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import torch
from published import LOGITS, lively, tokens, transformers
from published_shapes import SHAPES, folder

import glassformer as gf
from glassformer.api import Loaded
from glassformer.data.folder import read_tokenizer
from glassformer.data.tokenizer import TokenizerSpec, train_tokenizer
from glassformer.errors import InputError, UnsupportedError, WriteError
from glassformer.hf.folder import as_published, write_folder
from glassformer.nn.resize import ResizeSpec

TEXTS = [
    "The cat ate the fish.",
    "고양이가 생선을 먹었다.",
    "별이 빛난다 ★ a star\n\n  shines",
    "",
    "e\u0301 \u1112\u1161\u11ab 😀",
]
VOCAB = 300
SMALL = {"vocab": VOCAB, "dim": 32, "blocks": 2}
# preset -> what is chosen of it, and the class that reads it
BUILT = {
    "gpt2": ({**SMALL, "heads": 4, "context": 64}, "GPT2LMHeadModel"),
    "llama": ({**SMALL, "heads": 4, "context": 64}, "LlamaForCausalLM"),
    "mamba": ({**SMALL, "context": 64}, "MambaForCausalLM"),
    "mamba2": ({**SMALL, "heads": 4, "context": 64}, "Mamba2ForCausalLM"),
    "bert": ({**SMALL, "heads": 4, "context": 64}, "BertModel"),
    "t5": ({**SMALL, "heads": 4}, "T5ForConditionalGeneration"),
    "vit": (
        {"dim": 24, "blocks": 2, "heads": 3, "classes": 5, "size": 24, "patch": 8, "channels": 3},
        "ViTForImageClassification",
    ),
}


def built(name: str, **changes):
    loaded = gf.build(name, **(BUILT[name][0] | changes))
    lively(loaded.model)
    return loaded


def trained(folder, method):
    (folder / "text.txt").write_text("\n".join(TEXTS * 20), encoding="utf-8")
    return train_tokenizer(TokenizerSpec(method=method, vocab=360), folder / "text.txt")


def theirs(folder, config, **more):
    """The model of transformers in a folder, by the class that its own Auto classes choose, with nothing left over."""
    kinds = {"vit": "AutoModelForImageClassification", "bert": "AutoModel", "t5": "AutoModelForSeq2SeqLM"}
    name = kinds.get(config["model_type"], "AutoModelForCausalLM")
    model, told = getattr(transformers, name).from_pretrained(folder, output_loading_info=True, **more)
    assert not any(told[which] for which in ("missing_keys", "unexpected_keys", "mismatched_keys")), told
    assert type(model).__name__ == config["architectures"][0]
    return model.eval()


@pytest.mark.parametrize("name", BUILT)
@torch.no_grad()
def test_what_was_built_here_is_the_same_there_and_comes_back_bit_by_bit(name, tmp_path):
    loaded = built(name)
    config = loaded.export(tmp_path / "out")
    assert config["architectures"] == [BUILT[name][1]]
    other = theirs(tmp_path / "out", config, **({"add_pooling_layer": False} if name == "bert" else {}))
    given = (tokens(VOCAB, 20),)
    if name == "vit":
        given = (torch.rand(2, 3, 24, 24, generator=torch.Generator().manual_seed(0)),)
        found = other((given[0] - 0.5) / 0.5).logits
    elif name == "t5":
        given = (*given, tokens(VOCAB, 9, seed=3))
        found = other(input_ids=given[0], decoder_input_ids=given[1]).logits
    else:
        found = other(*given).last_hidden_state if name == "bert" else other(*given).logits
    assert (found - loaded.model(*given)).abs().max() <= LOGITS
    back = gf.load(tmp_path / "out")
    assert torch.equal(back.model(*given), loaded.model(*given))
    assert {name: x.shape for name, x in back.model.named_parameters()} == {
        name: x.shape for name, x in loaded.model.named_parameters()
    }


@torch.no_grad()
def test_weights_in_several_files_have_an_index(tmp_path):
    loaded = built("llama")
    config = loaded.export(tmp_path / "out", shard_bytes=20_000)
    files = sorted(path.name for path in (tmp_path / "out").glob("*.safetensors"))
    assert len(files) > 3 and files[0] == f"model-00001-of-{len(files):05}.safetensors"
    index = json.loads((tmp_path / "out" / "model.safetensors.index.json").read_text())
    assert set(index["weight_map"].values()) == set(files)
    assert index["metadata"]["total_size"] == sum(p.nbytes for p in loaded.model.parameters())
    several = [one for one in files if list(index["weight_map"].values()).count(one) > 1]
    assert several and all((tmp_path / "out" / one).stat().st_size < 20_000 + 4096 for one in several)
    ids = tokens(VOCAB, 9)
    assert (theirs(tmp_path / "out", config)(ids).logits - loaded.model(ids)).abs().max() <= LOGITS
    assert torch.equal(gf.load(tmp_path / "out").model(ids), loaded.model(ids))


@torch.no_grad()
def test_half_precision_is_written_as_it_is(tmp_path):
    loaded = built("gpt2")
    loaded.model.bfloat16()
    config = loaded.export(tmp_path / "out")
    assert config["dtype"] == "bfloat16"
    assert next(theirs(tmp_path / "out", config, dtype="auto").parameters()).dtype == torch.bfloat16


def test_the_tokenizer_gives_the_same_ids_there_and_back(tmp_path):
    """Behind the token with which every text begins; and generation ends where it ended."""
    tokenizer = trained(tmp_path, "bpe")
    model = built("llama", vocab=tokenizer.vocab_size).model
    loaded = Loaded(model, tokenizer)
    config = loaded.export(tmp_path / "out")
    other, back = transformers.AutoTokenizer.from_pretrained(tmp_path / "out"), gf.load(tmp_path / "out")
    for text in TEXTS:
        ids = tokenizer.encode(text, start=True).ids
        assert other(text).input_ids == ids == back.tokenizer.encode(text, start=True).ids
        assert other.decode(ids, skip_special_tokens=True) == text == back.tokenizer.decode(ids)
    end = tokenizer.end_id
    assert config["bos_token_id"] == config["eos_token_id"] == end and other.eos_token == tokenizer.end
    assert json.loads((tmp_path / "out" / "special_tokens_map.json").read_text())["bos_token"] == tokenizer.end
    generation = transformers.GenerationConfig.from_pretrained(tmp_path / "out")
    assert generation.eos_token_id == end and other.model_max_length == 64
    assert [one.text for one in back.generate("The cat", max_new_tokens=8, temperature=0)] == [
        one.text for one in loaded.generate("The cat", max_new_tokens=8, temperature=0)
    ]


@pytest.mark.parametrize("method", ["byte", "char", "unigram"])
def test_every_kind_of_tokenizer_that_is_trained_here_is_read_there(method, tmp_path):
    tokenizer = trained(tmp_path, method)
    Loaded(built("gpt2", vocab=tokenizer.vocab_size).model, tokenizer).export(tmp_path / "out")
    other = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    for text in TEXTS:
        assert other(text).input_ids == tokenizer.encode(text, start=True).ids


@pytest.mark.parametrize("shape", SHAPES)
def test_a_published_tokenizer_is_written_so_that_its_original_and_ours_agree(shape, tmp_path):
    tokenizer = as_published(read_tokenizer(folder(shape)), 64)
    tokenizer.save(tmp_path)
    before, after = (transformers.PreTrainedTokenizerFast.from_pretrained(one) for one in (folder(shape), tmp_path))
    again, auto = read_tokenizer(tmp_path), transformers.AutoTokenizer.from_pretrained(tmp_path)
    for text in TEXTS:
        ids = before(text).input_ids
        assert after(text).input_ids == auto(text).input_ids == ids
        assert [*again.encode(text, start=True).ids, *again.closing] == ids
    assert (auto.eos_token_id, auto.pad_token_id) == (before.eos_token_id, before.pad_token_id)


def test_what_a_published_folder_said_besides_is_written_again(tmp_path):
    """Ids of its special tokens and the like; and its tokenizer's files as they were understood."""
    config = transformers.LlamaConfig(
        vocab_size=VOCAB, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4
    )
    config.update({"bos_token_id": 7, "eos_token_id": [8, 9], "pad_token_id": 6, "attention_dropout": 0.25})
    model = lively(transformers.LlamaForCausalLM(config))
    model.generation_config.update(temperature=0.25, do_sample=True, eos_token_id=[8, 9])
    model.save_pretrained(tmp_path / "first")
    gf.load(tmp_path / "first").export(tmp_path / "second")
    written = json.loads((tmp_path / "second" / "config.json").read_text())
    assert (written["bos_token_id"], written["eos_token_id"], written["pad_token_id"]) == (7, [8, 9], 6)
    assert written["attention_dropout"] == 0.25
    generation = transformers.GenerationConfig.from_pretrained(tmp_path / "second")
    assert (generation.temperature, generation.eos_token_id) == (0.25, [8, 9])
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "second")
    for name, value in model.state_dict().items():
        assert torch.equal(value, again.state_dict()[name]), name


def test_what_ends_a_text_is_written_where_no_configuration_said_it(tmp_path):
    """As of a model out of a GGUF file, whose tokenizer alone knows it."""
    loaded = built("llama")
    loaded.tokenizer = read_tokenizer(folder("llama3"))
    loaded.about["config"] = {"model_type": "llama", "attention_dropout": 0.25}
    written = loaded.export(tmp_path / "out")
    generation = transformers.GenerationConfig.from_pretrained(tmp_path / "out")
    assert written["attention_dropout"] == 0.25
    assert [generation.eos_token_id] == [written["eos_token_id"]] == sorted(loaded.tokenizer.ends)


def test_a_classifier_with_korean_labels_sees_pictures_alike_after_a_journey(tmp_path):
    pytest.importorskip("PIL.Image", reason="transformers prepares pictures with Pillow")
    labels = ("고양이", "개", "별", "새", "물고기")
    spec = built("vit").spec
    embed = spec.embed.changed(mean=(0.4, 0.5, 0.6), deviation=(0.2, 0.25, 0.3))
    loaded = gf.build(spec.changed(labels=labels, embed=embed, resize=ResizeSpec(side=28, filter="bicubic")))
    lively(loaded.model)
    config = loaded.export(tmp_path / "out")
    image = np.random.default_rng(0).integers(0, 256, (3, 70, 51), np.uint8)
    processor = transformers.AutoImageProcessor.from_pretrained(tmp_path / "out", backend="pil")
    pixels = torch.as_tensor(np.stack(processor(image, input_data_format="channels_first")["pixel_values"]))
    other = theirs(tmp_path / "out", config)
    with torch.no_grad():
        wanted = other(pixels).logits.softmax(-1)[0]
    back = gf.load(tmp_path / "out")
    assert back.spec.labels == labels and other.config.id2label[2] == "별"
    for one in (loaded, back):
        assert all(abs(guess.probability - wanted[guess.number]) < 1e-5 for guess in one.classify(image))


# ---------------------------------------------------------------- refusals


SHIPPED = {
    "small": r"none has embed\.previous=True, ",
    "transformer": "activation='relu2'",
    "lstm": r"blocks\.\*\.mixer=lstm",
    "mlp": r"blocks\.\*\.mixer=window-mlp",
    "cnn": r"blocks\.\*\.mixer=conv",
    "ssm": r"none has norm=layernorm, embed\.norm=layernorm",
    "lenet": "none has embed=pixels",
    "vit": r"none has embed\.position=sinusoidal-2d",
    "korean-g2p": "reads its source with another tokenizer",
}


@pytest.mark.parametrize("name", SHIPPED)
def test_what_has_no_published_form_is_refused_with_the_settings_that_have_none(name, tmp_path):
    with pytest.raises(UnsupportedError, match=SHIPPED[name]):
        gf.load(name).export(tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_a_family_that_cannot_be_a_model_names_those_that_can(tmp_path):
    with pytest.raises(UnsupportedError, match=r"^a gpt2 model cannot be this one: .*; llama, mistral can$"):
        built("llama").export(tmp_path / "out", family="gpt2")
    with pytest.raises(InputError, match="^family: 'lama' is no published family; did you mean llama"):
        built("llama").export(tmp_path / "out", family="lama")
    assert built("llama").export(tmp_path / "out", family="mistral")["model_type"] == "mistral"
    spec = built("llama").spec
    mixed = spec.changed(blocks=[spec.blocks[0], spec.blocks[1].changed(channel=None)])
    with pytest.raises(
        UnsupportedError, match=r"^no published family can be this model: none has blocks\.\*\.channel=None"
    ):
        gf.build(mixed).export(tmp_path / "mixed")


def test_nothing_is_written_over_and_nothing_half_is_left(tmp_path, monkeypatch):
    loaded = built("mamba")
    for make in (lambda path: path.write_text("kept"), lambda path: (path.mkdir(), (path / "a").write_text("kept"))):
        make(tmp_path / "out")
        with pytest.raises(InputError, match="(holds something already|is a file), which is kept; give a new folder"):
            loaded.export(tmp_path / "out")
        shutil.rmtree(tmp_path / "out", ignore_errors=True) or (tmp_path / "out").unlink(missing_ok=True)
    (tmp_path / "out").mkdir()
    loaded.export(tmp_path / "out")  # an empty one is as good as none
    assert (tmp_path / "out" / "config.json").is_file()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("glassformer.hf.folder._write_weights", full)
    with pytest.raises(WriteError, match=r"other: cannot be written \(No space left on device\); free some space"):
        loaded.export(tmp_path / "other")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]
    with pytest.raises(InputError, match="^shard_bytes: 0 is not allowed"):
        write_folder(loaded.model, tmp_path / "other", shard_bytes=0)
