"""Folders of encoder-decoders as they are published: a text goes in, the text that transformers writes comes out."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from published import lively, transformers
from published_shapes import MORE, SENTENCES, folder
from test_generate import byte_tokenizer

import glassformer as gf
from glassformer.certificate.original import ids as ids_line
from glassformer.cli import main
from glassformer.data.languages import in_language
from glassformer.errors import CheckpointError, InputError, SettingError, UnsupportedError
from glassformer.hf.generation import own_generation, published_generation
from glassformer.nn.position import RelativeBiasSpec, relative_bucket

SIZES = {"d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_ffn_dim": 40, "decoder_ffn_dim": 40}
SIZES |= {"encoder_attention_heads": 4, "decoder_attention_heads": 4, "max_position_embeddings": 200}
T5 = {"d_model": 32, "d_kv": 8, "d_ff": 40, "num_layers": 2, "num_heads": 4}
TEXTS = [SENTENCES[0], MORE[2], "a"]


def published(shape: str, kind: str, place: Path, **fields) -> Path:
    """A random model of a class of transformers in a folder, with a tokenizer of that shape."""
    names = json.loads((folder(shape) / "tokenizer_config.json").read_text())
    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(folder(shape))
    id = {role: tokenizer.convert_tokens_to_ids(names[role]) for role in names if role.endswith("_token")}
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=len(tokenizer), eos_token_id=id["eos_token"], pad_token_id=tokenizer.convert_tokens_to_ids("<pad>"),
        **fields,
    )  # fmt: skip
    head = {"Marian": "MarianMTModel"}.get(kind, f"{kind}ForConditionalGeneration")
    torch.manual_seed(1)
    model = lively(getattr(transformers, head)(config), seed=4)
    model.save_pretrained(place)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(folder(shape) / name, place / name)
    return place


FOLDERS = {
    "t5": ("t5", "T5", {**T5, "decoder_start_token_id": 0}),
    "mt5": ("t5", "MT5", {**T5, "decoder_start_token_id": 0, "feed_forward_proj": "gated-gelu"}),
    "bart": ("roberta", "Bart", {**SIZES, "decoder_start_token_id": 2, "forced_bos_token_id": 0, "min_length": 12}),
    "mbart": ("mbart", "MBart", {**SIZES, "decoder_start_token_id": 2, "scale_embedding": True}),
    "marian": ("t5", "Marian", {**SIZES, "decoder_start_token_id": 0, "bad_words_ids": [[0]]}),
}


@torch.no_grad()
@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_writes_what_transformers_writes(name, tmp_path):
    shape, kind, fields = FOLDERS[name]
    place = published(shape, kind, tmp_path / "model", **fields)
    loaded = gf.load(place)
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(place)
    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(folder(shape))
    forced = {"forced": ["ko_KR"]} if name == "mbart" else {}
    told = {"forced_bos_token_id": tokenizer.convert_tokens_to_ids("ko_KR")} if forced else {}
    for text in TEXTS:
        given = tokenizer(text, return_tensors="pt", return_token_type_ids=False)
        assert loaded.read(text) == given["input_ids"][0].tolist()
        for beams in (1, 4):
            how = {"num_beams": beams, "early_stopping": beams > 1, "no_repeat_ngram_size": 2, "max_new_tokens": 15}
            (wanted,) = theirs.generate(**given, **how, **told, forced_eos_token_id=None, do_sample=False).tolist()
            searched = {"beams": 4, "early_stopping": True} if beams > 1 else {}
            events = list(loaded.generate(text, no_repeat=2, max_new_tokens=15, **searched, **forced))
            assert [event.token for event in events] == wanted[1 : 1 + len(events)], (text, beams)
            assert len(events) == len(wanted) - 1
            shown = tokenizer.decode(wanted, skip_special_tokens=True, clean_up_tokenization_spaces=False)
            assert "".join(event.text for event in events).strip() == shown.strip() or "\ufffd" in shown


@torch.no_grad()
@pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")
@pytest.mark.parametrize("apart", [False, True], ids=["one-list", "two-lists"])
def test_marians_two_sentencepiece_models(tmp_path, apart):
    sentencepiece = pytest.importorskip("sentencepiece", reason="the original is sentencepiece (extra dev)")
    pieces = {"source": ["</s>", "<unk>"], "target": ["<unk>", "</s>"] if apart else []}
    for side, lines in (("source", MORE[1:4]), ("target", MORE[:2])):
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines * 20), model_prefix=str(tmp_path / side), vocab_size=120, minloglevel=2,
            hard_vocab_limit=False,
        )  # fmt: skip
        (tmp_path / f"{side}.model").rename(tmp_path / f"{side}.spm")
        model = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / f"{side}.spm"))
        pieces[side] += [model.id_to_piece(id) for id in range(3, model.get_piece_size())]
    lists = [pieces["source"], pieces["target"]] if apart else [pieces["source"] + pieces["target"]]
    names = ("vocab.json", "target_vocab.json")[: len(lists)]
    ids = [{piece: id for id, piece in enumerate(dict.fromkeys([*one, "<pad>"]))} for one in lists]
    for name, one in zip(names, ids, strict=True):
        (tmp_path / name).write_text(json.dumps(one))
    said = {"tokenizer_class": "MarianTokenizer", "separate_vocabs": True}
    if apart:
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(said))
    last, end = ids[-1]["<pad>"], ids[-1]["</s>"]
    own = {"vocab_size": len(ids[0]), "pad_token_id": last, "decoder_start_token_id": last, "bad_words_ids": [[last]]}
    own |= {"decoder_vocab_size": len(ids[1]), "share_encoder_decoder_embeddings": False} if apart else {}
    config = transformers.MarianConfig(**SIZES, **own, eos_token_id=end, scale_embedding=True)
    theirs = lively(transformers.MarianMTModel(config), seed=4)
    theirs.save_pretrained(tmp_path)
    loaded, original = gf.load(tmp_path), transformers.MarianTokenizer.from_pretrained(tmp_path)
    for text in [*MORE[2:4], "free spirit"]:
        given = original(text, return_tensors="pt")
        assert loaded.read(text) == given["input_ids"][0].tolist()
        how = {"max_new_tokens": 15, "do_sample": False, "num_beams": 1, "no_repeat_ngram_size": 2}
        (wanted,) = theirs.generate(**given, **how, forced_eos_token_id=None).tolist()
        events = list(loaded.generate(text, no_repeat=2, max_new_tokens=15))
        assert [event.token for event in events] == wanted[1:]
        shown = original.decode([one for one in wanted if one not in (last, end)])  # it skips by the source's ids
        assert "".join(event.text for event in events).strip() == shown.strip()
    drawn = loaded.trace(MORE[2]).alignment()
    assert drawn.source[-1] == "</s>" and len(drawn.source) == len(loaded.read(MORE[2]))
    check_marian_there(loaded, original, tmp_path, names)
    line = ids_line(gf.load(tmp_path))
    assert line.status == "passed" and line.detail["of"] > 60, line
    loaded.tokenizer = loaded.source
    loaded.place = tmp_path
    assert ids_line(loaded).status == "failed"  # of the other side
    if apart:
        (tmp_path / "target_vocab.json").unlink()
        with pytest.raises(CheckpointError, match=r"target_vocab\.json is missing"):
            gf.load(tmp_path)


def check_marian_there(loaded, original, place, lists):
    """Written for transformers, from the folder or from our own form, both tokenizers and the text are the same."""
    loaded.save(place / "own")
    loaded.export(place / "out")
    gf.load(place / "own").export(place / "again")
    for other in ("out", "again"):
        auto = transformers.AutoTokenizer.from_pretrained(place / other)
        again, back = transformers.MarianTokenizer.from_pretrained(place / other), gf.load(place / other)
        model = transformers.MarianMTModel.from_pretrained(place / other)
        for text in [*MORE, *SENTENCES, "고양이 cat"]:
            ids = original(text).input_ids
            assert again(text).input_ids == ids == auto(text).input_ids == back.read(text)
            targets = original(text_target=text).input_ids
            assert again(text_target=text).input_ids == targets
            assert targets[:-1] == back.tokenizer.encode(text).ids  # it ends with the source's </s>
            assert back.tokenizer.closing == sorted(back.tokenizer.ends)
        given = torch.tensor([original(MORE[2]).input_ids])
        how = {"max_new_tokens": 9, "do_sample": False, "num_beams": 1, "no_repeat_ngram_size": 2}
        (wanted,) = model.generate(given, **how, forced_eos_token_id=None).tolist()
        found = [event.token for event in loaded.generate(MORE[2], no_repeat=2, max_new_tokens=9)]
        assert found == wanted[1 : 1 + len(found)]
    names = ("source.spm", "target.spm", *lists)
    assert all((place / "again" / one).read_bytes() == (place / one).read_bytes() for one in names)
    (place / "own" / "tokenizer" / "source.spm").unlink()  # then there is nothing to write it from
    with pytest.raises(UnsupportedError, match="reads its source with another tokenizer"):
        gf.load(place / "own").export(place / "third")


def test_it_is_traced_kept_and_used_at_the_command_line(tmp_path, capsys):
    shape, kind, fields = FOLDERS["mbart"]
    place = published(shape, kind, tmp_path / "model", **fields)
    loaded = gf.load(place)
    trace = loaded.trace((SENTENCES[0], MORE[0]))
    assert trace.stacks[0].tokens[0].tolist() == loaded.read(SENTENCES[0])
    assert trace.stacks[1].tokens[0].tolist() == [2, *loaded.tokenizer.encode(MORE[0]).ids]
    drawn = trace.alignment()
    assert {len(row) for row in drawn.weights} == {len(drawn.source)}
    loaded.save(tmp_path / "own")
    again = gf.load(tmp_path / "own")
    wanted = [event.token for event in loaded.generate(SENTENCES[0], forced=["ko_KR"], max_new_tokens=9)]
    assert [event.token for event in again.generate(SENTENCES[0], forced=["ko_KR"], max_new_tokens=9)] == wanted
    call = ["generate", SENTENCES[0], "-m", str(tmp_path / "own"), "-n", "9", "--json"]
    assert main([*call, "--forced", "ko_KR"]) == 0
    shown = [json.loads(line)["token"] for line in capsys.readouterr().out.splitlines()]
    assert shown == wanted
    assert main([*call, "--forced", "ko_KP", "--lang", "en"]) == 2
    assert "forced: the tokenizer has no token 'ko_KP'; " in capsys.readouterr().err
    with pytest.raises(InputError, match="ko_KR"):
        loaded.generate("a", forced=["ko_Kr"])


@torch.no_grad()
@pytest.mark.parametrize("name", ["mt5", "bart", "marian"])
def test_an_exported_folder_writes_the_same_there_and_here(name, tmp_path):
    shape, kind, fields = FOLDERS[name]
    place = published(shape, kind, tmp_path / "model", **fields)
    loaded = gf.load(place)
    loaded.export(tmp_path / "out")
    first, again = (transformers.AutoModelForSeq2SeqLM.from_pretrained(one) for one in (place, tmp_path / "out"))
    for model in (first, again):
        model.generation_config.update(forced_eos_token_id=None)
    ids = torch.tensor([loaded.read(TEXTS[0])])
    there = [model.generate(ids, max_new_tokens=20, do_sample=False, num_beams=1).tolist() for model in (first, again)]
    assert there[0] == there[1]
    assert gf.load(tmp_path / "out").about["generation"] == loaded.about["generation"]


@torch.no_grad()
def test_a_model_that_was_built_here_begins_its_targets_there_as_here(tmp_path):
    loaded = gf.build("t5", vocab=257, dim=32, heads=4, blocks=2)
    loaded.tokenizer = byte_tokenizer()
    lively(loaded.model, seed=3)
    loaded.export(tmp_path / "out")
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "out")
    ids = loaded.read("abc")
    (wanted,) = theirs.generate(torch.tensor([ids]), max_new_tokens=9, do_sample=False, num_beams=1).tolist()
    found = [event.token for event in loaded.generate([ids], max_new_tokens=9)]
    assert [*loaded.tokenizer.begin, *found] == wanted[: 1 + len(found)]


def test_the_language_of_a_text_is_told_by_its_code(tmp_path, capsys):
    shape, kind, fields = FOLDERS["mbart"]
    place = published(shape, kind, tmp_path / "model", **fields)
    loaded = gf.load(place)
    korean, english = (loaded.tokenizer.library.token_to_id(one) for one in ("ko_KR", "en_XX"))
    usual = loaded.read(TEXTS[0])
    assert usual[-1] == english
    loaded.source = in_language(loaded.tokenizer, "ko_KR")
    assert loaded.read(TEXTS[0]) == [*usual[:-1], korean] and loaded.tokenizer.closing[-1] == english
    loaded.save(tmp_path / "own")
    assert gf.load(tmp_path / "own").read(TEXTS[0])[-1] == korean
    wanted = [event.token for event in loaded.generate(TEXTS[0], max_new_tokens=8, forced=["en_XX"])]
    call = ["generate", TEXTS[0], "-m", str(place), "-n", "8", "--json", "--lang", "en"]
    assert main([*call, "--from", "ko_KR", "--forced", "en_XX"]) == 0
    assert [json.loads(line)["token"] for line in capsys.readouterr().out.splitlines()] == wanted
    assert main([*call, "--from", "ko"]) == 2
    assert "'ko' is no language of this model" in capsys.readouterr().err
    assert main(["generate", "a", "--from", "ko_KR", "--lang", "en"]) == 2
    assert "reads no code of a language" in capsys.readouterr().err


def test_what_a_configuration_says_of_writing():
    config = {"model_type": "bart", "is_encoder_decoder": True, "min_length": 56, "no_repeat_ngram_size": 3}
    config |= {"forced_bos_token_id": 0, "max_length": 142, "num_beams": 4, "suppress_tokens": [-1]}
    config |= {"early_stopping": "never", "length_penalty": 0.0}
    expected = {"begin": [2], "ends": [2], "forced": [0], "min_new_tokens": 55, "no_repeat": 3}
    expected |= {"early_stopping": "never", "length_penalty": 0.0}
    assert own_generation(config, {}) == expected
    # The newer file stands for all of the older one but the ids.
    said = {"eos_token_id": [2, 7], "begin_suppress_tokens": [5], "bad_words_ids": [[9]], "decoder_start_token_id": 4}
    assert own_generation(config, said) == {
        "begin": [4], "ends": [2, 7], "suppressed": [9], "suppressed_first": [5],
    }  # fmt: skip
    assert own_generation({"model_type": "llama", "eos_token_id": 2, "bos_token_id": 1}, {}) == {"ends": [2]}
    assert own_generation({"model_type": "t5"}, {}) == {"begin": [0], "ends": [1]}
    assert own_generation({"model_type": "mbart", "is_encoder_decoder": True}, {})["begin"] == [0]
    for wrong in (
        {"early_stopping": 1},
        {"length_penalty": True},
        {"length_penalty": -11},
        {"eos_token_id": "x"},
        {"eos_token_id": True},
        {"min_length": "x"},
        {"no_repeat_ngram_size": -1},
    ):
        with pytest.raises(SettingError, match=f"^{next(iter(wrong))}: "):
            own_generation(config | wrong, {})
    own = {"begin": [4], "ends": [2, 7], "forced": [3], "suppressed": [9], "min_new_tokens": 5, "no_repeat": 3}
    own |= {"early_stopping": True, "length_penalty": 0.0}
    assert own_generation({"model_type": "bart", "is_encoder_decoder": True}, published_generation(own)) == own
    with pytest.raises(UnsupportedError, match="begins with 3 tokens"):
        published_generation({"begin": [1, 2], "forced": [3]})
    with pytest.raises(UnsupportedError, match="words of several tokens"):
        own_generation(config | {"bad_words_ids": [[1, 2]]}, {})


@pytest.mark.parametrize("one_sided", [False, True])
def test_distances_fall_into_t5s_buckets(one_sided):
    distance = torch.arange(-300, 301)[None]
    for buckets, most in ((32, 128), (8, 20), (64, 500)):
        wanted = transformers.models.t5.modeling_t5.T5Attention._relative_position_bucket(
            distance, bidirectional=not one_sided, num_buckets=buckets, max_distance=most
        )
        found = relative_bucket(distance, RelativeBiasSpec(buckets=buckets, max_distance=most), one_sided)
        assert torch.equal(found, wanted)
