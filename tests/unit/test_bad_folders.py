"""Folders as somebody downloads them, with one thing wrong: each is refused by name when the model is loaded."""

import json
import shutil

import pytest
import tokenizers
import torch
from cli_runs import refused, run, write
from tokenizers import AddedToken, decoders, models, pre_tokenizers

import glassformer as gf
from glassformer.catalogue import folder_of
from glassformer.data.folder import tokenizer_file
from glassformer.errors import CheckpointError, InputError, SettingError
from glassformer.generate import GenerateSpec, reading
from glassformer.hf.generation import check_ids
from glassformer.terminal.korean import translated

VOCAB = 300
ALPHABET = sorted(pre_tokenizers.ByteLevel.alphabet())


def library(pieces=256, special=()):
    """Bytes, as many further pieces as are wanted, and special tokens behind them."""
    vocab = {piece: id for id, piece in enumerate([*ALPHABET, *(f"Ġ{i}" for i in range(pieces - len(ALPHABET)))])}
    made = tokenizers.Tokenizer(models.BPE(vocab, []))
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    made.add_special_tokens([AddedToken(one, special=True, normalized=False) for one in special])
    return made


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A published folder without a tokenizer."""
    folder = tmp_path_factory.mktemp("published") / "model"
    gf.build("llama", vocab=VOCAB, dim=16, blocks=1, heads=2, context=64).export(folder)
    return folder


@pytest.fixture
def folder(whole, tmp_path):
    return shutil.copytree(whole, tmp_path / "model")


def change(path, **fields):
    path.write_text(json.dumps((json.loads(path.read_text()) if path.is_file() else {}) | fields))


# ---------------------------------------------------------------- tokens that the model does not know


def test_a_tokenizer_with_more_tokens_than_the_model_is_refused_with_both_sizes(folder):
    library(VOCAB).save(str(folder / "tokenizer.json"))
    assert gf.load(folder).tokenizer.vocab_size == VOCAB
    library(VOCAB - 1).save(str(folder / "tokenizer.json"))  # a table with spare rows
    assert gf.load(folder).tokenizer.vocab_size == VOCAB - 1
    library(VOCAB + 1).save(str(folder / "tokenizer.json"))
    wanted = rf"model/tokenizer\.json: the tokenizer has {VOCAB + 1} tokens and the model knows {VOCAB}; it belongs to"
    with pytest.raises(CheckpointError, match=wanted):
        gf.load(folder)


def test_so_is_one_in_older_files(folder):
    vocab = {f"Ġ{id}": id for id in range(VOCAB - len(ALPHABET) + 1)}
    vocab |= {piece: len(vocab) + id for id, piece in enumerate(ALPHABET)}
    (folder / "vocab.json").write_text(json.dumps(vocab))
    (folder / "merges.txt").write_text("")
    change(folder / "tokenizer_config.json", tokenizer_class="GPT2Tokenizer")
    with pytest.raises(CheckpointError, match=rf"model/vocab\.json: the tokenizer has {VOCAB + 1} tokens and the"):
        gf.load(folder)
    assert tokenizer_file(folder / "nothing") == folder / "nothing"


def test_a_special_token_that_no_text_leads_to_may_be_beyond(folder, tmp_path):
    """Gemma 3's models of text alone have one for an image, behind their vocabulary."""
    library(VOCAB, ["<image>"]).save(str(folder / "tokenizer.json"))
    loaded = gf.load(folder)
    assert loaded.tokenizer.vocab_size == VOCAB and max(loaded.encode("<image>")) < VOCAB
    loaded.save(tmp_path / "copy")
    again = gf.load(tmp_path / "copy")
    assert again.tokenizer.vocab_size == VOCAB and again.encode("a<image>") == loaded.encode("a<image>")
    for ends, kept in (([7, VOCAB], {7}), (VOCAB, set(loaded.tokenizer.ends))):
        change(folder / "generation_config.json", eos_token_id=ends)
        assert gf.load(folder).tokenizer.ends == kept
    change(folder / "tokenizer_config.json", eos_token="<image>")  # one that ends a text must be known
    with pytest.raises(CheckpointError, match=rf"has {VOCAB + 1} tokens and the model knows {VOCAB}"):
        gf.load(folder)


def test_so_may_any_token_that_was_added_until_a_text_reaches_it(folder, tmp_path, capsys):
    """Llama 2's <pad> has the id 32000, and its table 32000 rows."""
    made = library(VOCAB)
    made.add_tokens(["<pad>"])
    made.save(str(folder / "tokenizer.json"))
    loaded = gf.load(folder)
    assert loaded.tokenizer.vocab_size == VOCAB and loaded.tokenizer.ids_array("pad").tolist() == loaded.encode("pad")
    loaded.save(tmp_path / "copy")
    for place in (folder, tmp_path / "copy"):
        assert len(list(gf.load(place).generate("pad", max_new_tokens=3))) == 3
        for read in (gf.load(place).encode, gf.load(place).tokenizer.ids_array):
            with pytest.raises(InputError, match=rf"^the text has '<pad>', token {VOCAB}, and the model knows 0 to"):
                read("a <pad>")
        assert "모델이 아는" in refused(capsys, "trace", "a <pad>", "-m", str(place), lang="ko")


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """A published encoder-decoder without a tokenizer."""
    folder = tmp_path_factory.mktemp("pair") / "model"
    gf.build("t5", vocab=VOCAB, dim=16, blocks=1, heads=2, context=64).export(folder)
    return folder


@pytest.mark.parametrize("file", ["config.json", "generation_config.json"])
@pytest.mark.parametrize(
    "settings",
    [
        {"decoder_start_token_id": VOCAB},
        {"bos_token_id": 50256, "decoder_start_token_id": 3},
        {"forced_bos_token_id": VOCAB},
    ],
)
def test_an_id_beyond_the_vocabulary_with_which_a_target_begins_is_refused_by_its_name(pair, tmp_path, file, settings):
    folder = shutil.copytree(pair, tmp_path / "model")
    change(folder / file, **settings)
    if len(settings) > 1:  # the target begins with another
        assert gf.load(folder).about["generation"]["begin"] == [3]
        return
    file_ = folder / "model.safetensors"
    file_.write_bytes(file_.read_bytes()[:-4] + b"\xff\xff\xff\x7f")  # NaN, but this is said before any is read
    name = next(iter(settings))
    wanted = rf"^{name}: {file} gives the token id {VOCAB}, beyond the vocabulary \(0 to {VOCAB - 1}\); restore the"
    with pytest.raises(SettingError, match=wanted):
        gf.load(folder)


@pytest.mark.parametrize("file", ["config.json", "generation_config.json"])
def test_an_id_beyond_the_vocabulary_that_is_never_fed_changes_nothing(folder, tmp_path, file):
    """As transformers writes them for a smaller model of a family: 50256 ends GPT-2's texts."""
    library(VOCAB - 1, ["<end>"]).save(str(folder / "tokenizer.json"))
    change(folder / "config.json", bos_token_id=None, eos_token_id=None, pad_token_id=None)
    before = [event.token for event in gf.load(folder).generate("a", max_new_tokens=8)]
    change(folder / file, suppress_tokens=before[:1], begin_suppress_tokens=before[:2])
    wanted = [event.token for event in gf.load(folder).generate("a", max_new_tokens=8)]
    ids = {"eos_token_id": [50256, VOCAB], "bos_token_id": 50256, "pad_token_id": VOCAB, "forced_bos_token_id": VOCAB}
    ids |= {"suppress_tokens": [VOCAB, *before[:1]], "begin_suppress_tokens": [*before[:2], 50256]}
    ids |= {"bad_words_ids": [[VOCAB]], "forced_eos_token_id": VOCAB, "decoder_start_token_id": VOCAB}
    change(folder / file, **ids)
    loaded = gf.load(folder)
    assert wanted != before and len(wanted) == 8
    loaded.save(tmp_path / "own")
    for beams in (1, 3):
        found = [
            [e.token for e in one.generate("a", max_new_tokens=8, beams=beams)]
            for one in (loaded, gf.load(tmp_path / "own"))
        ]
        assert found[0] == found[1] and (beams > 1 or found[0] == wanted)
    loaded.export(tmp_path / "published")
    said = json.loads((tmp_path / "published" / file).read_text())
    assert {name: said.get(name) for name in ids} == ids
    with pytest.raises(InputError, match=rf"^ends: token id {VOCAB} is outside the vocabulary"):  # by whoever writes
        loaded.generate("a", ends=[VOCAB])


@pytest.mark.parametrize("value", [None, -1, [], VOCAB - 1, [0, VOCAB - 1]])
def test_none_and_minus_one_stand_for_no_token(folder, value):
    change(folder / "config.json", pad_token_id=value)
    change(folder / "generation_config.json", pad_token_id=value)
    assert gf.load(folder)(torch.tensor([[1, 2]])).shape == (1, 2, VOCAB)


def test_the_ids_of_a_configuration_alone():
    kind, first, forced = {"is_encoder_decoder": True}, "decoder_start_token_id", "forced_bos_token_id"
    check_ids({first: 10}, {}, 10)  # of a decoder alone, which asks for none
    check_ids(kind | {first: 10, forced: 10}, {first: 9}, 10)  # by which config.json is overruled
    check_ids(kind | {first: -1, forced: None}, {}, 10)
    for name, config, said in (
        (first, kind | {first: 10}, {forced: 3}),
        (forced, kind | {forced: [10]}, {}),
        ("bos_token_id", kind | {"bos_token_id": 10, "pad_token_id": 0}, {}),  # in the place of one to begin with
        ("pad_token_id", kind | {"pad_token_id": 10}, {}),
    ):
        with pytest.raises(SettingError, match=rf"^{name}: config\.json gives the token id 10, beyond .*\(0 to 9\)"):
            check_ids(config, said, 10)


# ---------------------------------------------------------------- sizes


def test_of_an_absurd_context_nothing_is_allocated(folder, capsys):
    """RoPE has no table; what grows with the text is asked for before it is allocated."""
    change(folder / "config.json", max_position_embeddings=10**15)
    loaded = gf.load(folder)
    assert loaded.context == 10**15 and len(list(loaded.generate([[1, 2]], max_new_tokens=3))) == 3
    assert loaded.trace([1, 2, 3])["blocks.0.mixer.pattern"].shape[-2:] == (3, 3)
    for settings in ({"max_new_tokens": 10**13}, {"max_new_tokens": 10**11, "beams": 100}):
        with pytest.raises(InputError, match=r"^max_new_tokens: 10+ new tokens need [\d,.]+ GiB of memory beside the"):
            loaded.generate([[1, 2]], **settings)
    library(VOCAB - 1, ["<end>"]).save(str(folder / "tokenizer.json"))
    line = refused(capsys, "generate", "a", "-m", str(folder), "-n", str(10**13), lang="ko")
    assert line.startswith(f"glassformer: -n: 새 토큰 {10**13}개를 쓰려면") and line.endswith("개수를 줄이십시오.\n")
    assert GenerateSpec(max_new_tokens=10**13)


def test_what_is_kept_counts_for_the_rows_that_are_read_at_once(folder, monkeypatch):
    """All prompts; with beams as many as there are, of one prompt after the other."""
    loaded = gf.load(folder)
    need = reading._kept_bytes(loaded.model, 2 + 8, 4)
    for rows, settings in ((5, {}), (3, {"beams": 3})):
        monkeypatch.setattr(reading, "total_bytes", lambda device, most=rows * need: most)
        loaded.generate([[1, 2]] * 5, max_new_tokens=8, **settings)
        monkeypatch.setattr(reading, "total_bytes", lambda device, most=rows * need - 1: most)
        with pytest.raises(InputError, match=r"^max_new_tokens: 8 new tokens need"):
            loaded.generate([[1, 2]] * 5, max_new_tokens=8, **settings)


# ---------------------------------------------------------------- JSON that is no object


@pytest.mark.parametrize("wrong", ["[1]", "3", "null", '"text"'])
@pytest.mark.parametrize(
    "name",
    [
        *("config.json", "generation_config.json", "tokenizer_config.json", "special_tokens_map.json"),
        *("added_tokens.json", "model.safetensors.index.json", "1_Pooling/config.json", "about.json"),
        *("sentence_bert_config.json", "config_sentence_transformers.json", "chat_template.json"),
    ],
)
def test_a_file_that_holds_no_object_is_refused_by_its_name(folder, tmp_path, name, wrong):
    library().save(str(folder / "tokenizer.json"))
    if name == "model.safetensors.index.json":
        (folder / "model.safetensors").unlink()
    if name == "about.json":  # which only our own folders have
        gf.load(folder).save(tmp_path / "own")
        folder = tmp_path / "own"
    if "_Pooling" in name or "sentence" in name:
        parts = [
            {"path": part, "type": kind} for part, kind in (("", "models.Transformer"), ("1_Pooling", "a.Pooling"))
        ]
        (folder / "modules.json").write_text(json.dumps(parts))
        (folder / "1_Pooling").mkdir()
        (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_mean_tokens": True}))
    (folder / name).write_text(wrong)
    with pytest.raises(CheckpointError, match=r"must be a JSON object, not .+; restore it from a copy") as raised:
        gf.load(folder)
    assert str(raised.value).startswith(str(folder / name))


@pytest.mark.parametrize("wrong", ["{}", "3", "[]", "[1]"])
def test_modules_json_is_a_list_of_objects(folder, wrong):
    (folder / "modules.json").write_text(wrong)
    with pytest.raises(CheckpointError, match=r"modules\.json must be a list of JSON objects, one for each part"):
        gf.load(folder)


# ---------------------------------------------------------------- files that are missing or cut off


def test_what_is_broken_is_fetched_again_or_trained_again(whole, folder, tmp_path, monkeypatch):
    monkeypatch.setenv("GLASSFORMER_HOME", str(tmp_path / "home"))
    own, pulled = tmp_path / "own", folder_of("smollm2-135m")
    home = tmp_path / "home"
    mine = [home / "mine", pulled.with_name("mine"), tmp_path / "models--mine", tmp_path / "models--a" / "b"]
    for one in (own, pulled, *mine):
        gf.build("llama", vocab=20, dim=16, blocks=1, heads=2, context=16).save(one)
    hub = shutil.copytree(whole, tmp_path / "hub" / "models--a--b" / "snapshots" / "c0ffee")
    ways = {
        folder: "fetch it again",
        **dict.fromkeys((own, *mine), "restore it or train again"),
        pulled: f"remove {pulled} and fetch it again",
        hub: f"remove {hub.parents[1]} and fetch it again",
    }
    for place, way in ways.items():
        file = place / "model.safetensors"
        file.write_bytes(file.read_bytes()[:-4])
        with pytest.raises(CheckpointError) as raised:
            gf.load(place)
        said = str(raised.value)
        assert said.startswith(f"{file} is broken or truncated (") and said.endswith(f"; {way}")
        assert translated(said).endswith(("받으십시오.", "복구하거나 다시 학습하십시오."))
    for place in (own, pulled, *mine):
        (place / "model.json").write_text("[]")
        with pytest.raises(CheckpointError) as raised:
            gf.load(place)
        assert str(raised.value).endswith(ways[place])


def test_numbers_that_are_none_are_fetched_again(folder):
    file = folder / "model.safetensors"
    raw = bytearray(file.read_bytes())
    raw[-4:] = b"\xff\xff\xff\x7f"  # NaN
    file.write_bytes(raw)
    with pytest.raises(CheckpointError, match=r"holds NaN or infinity; fetch it again$"):
        gf.load(folder)


def test_the_tokenizer_that_is_missing_is_named_when_a_text_is_asked_for(folder, tmp_path, capsys):
    loaded = gf.load(folder)
    assert loaded(torch.tensor([[1]])).shape == (1, 1, VOCAB)
    with pytest.raises(InputError) as raised:
        loaded.encode("a")
    assert str(raised.value) == (
        f"{folder} has no tokenizer.json, nor what may stand in its place (vocab.json with merges.txt, vocab.txt, or a "
        "SentencePiece model such as tokenizer.model); put it there, or give token ids in Python"
    )
    assert "tokenizer.json도, 이를 대신할 파일(" in refused(capsys, "trace", "a", "-m", str(folder), lang="ko")
    loaded.save(tmp_path / "own")
    line = refused(capsys, "generate", "a", "-m", str(tmp_path / "own"))
    assert line == f"glassformer: {tmp_path / 'own'} has no tokenizer.json; put it there, or give token ids in Python\n"


def test_weights_without_a_configuration_are_named(folder):
    (folder / "config.json").unlink()
    with pytest.raises(CheckpointError, match=r"model has model\.safetensors, and neither a model\.json nor a config"):
        gf.load(folder)


# ---------------------------------------------------------------- a file where a folder is to be made


@pytest.mark.parametrize("arguments", [("export",), ("models", "--save")])
def test_a_file_in_the_way_is_called_a_file(arguments, tmp_path, capsys):
    model = write(tmp_path / "model")
    file, link = tmp_path / "file", tmp_path / "link"
    file.write_text("kept")
    link.symlink_to(tmp_path / "nowhere")
    verb, *option = arguments
    for place, what, korean in ((file, "file", "이미 있는 파일이므로"), (link, "link", "이미 있는 링크이므로")):
        if place == link and verb == "models":
            continue
        line = refused(capsys, verb, model, *option, str(place))
        assert line == f"glassformer: {place} is a {what}, which is kept; give a new folder\n"
        assert korean in refused(capsys, verb, model, *option, str(place), lang="ko")
    assert file.read_text() == "kept" and run(capsys, verb, model, *option, str(tmp_path / "new"))[0] == 0


def test_a_family_that_is_none_is_said_with_its_option(tmp_path, capsys):
    model = write(tmp_path / "model")
    given = ("export", model, str(tmp_path / "out"), "--family", "llma")
    assert refused(capsys, *given) == "glassformer: --family: 'llma' is no published family; did you mean llama?\n"
    assert refused(capsys, *given, lang="ko") == (
        "glassformer: --family: 'llma': 지원하는 공개 모델 계열이 아닙니다. 비슷한 이름: llama\n"
    )


# ---------------------------------------------------------------- nothing to answer


def test_an_empty_template_or_message_is_told(folder, capsys):
    library(VOCAB - 1, ["<end>"]).save(str(folder / "tokenizer.json"))
    change(folder / "tokenizer_config.json", eos_token="<end>", chat_template="{{ messages[0]['content'] }}")
    assert run(capsys, "generate", "a", "--chat", "-m", str(folder), "-n", "2")[0] == 0
    for nothing in ("", " \n"):
        line = refused(capsys, "generate", nothing, "--chat", "-m", str(folder))
        assert line == "glassformer: the message is empty; give the model something to answer\n"
    change(folder / "tokenizer_config.json", chat_template="{# nothing #}")
    line = refused(capsys, "generate", "a", "--chat", "-m", str(folder))
    assert line == "glassformer: this model's chat template writes nothing for these messages; leave --chat out\n"
    change(folder / "tokenizer_config.json", chat_template=" ")
    line = refused(capsys, "generate", "a", "--chat", "-m", str(folder))
    assert line.startswith("glassformer: this model's chat template is empty; leave --chat out, or name a model that")
    assert "대화 템플릿이 비어 있습니다" in refused(capsys, "generate", "a", "--chat", "-m", str(folder), lang="ko")
