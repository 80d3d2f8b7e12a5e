"""Classes of a text and of a pair of texts, from a published folder, against transformers."""

import json
import warnings

import pytest
import torch
from cli_runs import refused, run
from published import lively, transformers
from published_shapes import folder as shape_folder
from tokenizers import Tokenizer, processors

import glassformer as gf
from glassformer.errors import InputError, UnsupportedError
from glassformer.hf import export

PAIR = ("모든 인간은 자유롭다.", "All human beings are born free.")
SMALL = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96}
SMALL |= {"vocab_size": 600, "max_position_embeddings": 64}
LABELS = {"id2label": {0: "모순", 1: "중립", 2: "함의"}}
MODELS = {
    "bert": ("BertForSequenceClassification", transformers.BertConfig(**SMALL, **LABELS)),
    "roberta": (
        "RobertaForSequenceClassification",
        transformers.RobertaConfig(**SMALL | {"max_position_embeddings": 70}, type_vocab_size=1, **LABELS),
    ),
    "several": (
        "BertForSequenceClassification",
        transformers.BertConfig(**SMALL, **LABELS, problem_type="multi_label_classification"),
    ),
    "numbers": ("BertForSequenceClassification", transformers.BertConfig(**SMALL, **LABELS, problem_type="regression")),
    "one": ("BertForSequenceClassification", transformers.BertConfig(**SMALL, num_labels=1)),
    "distilbert": (
        "DistilBertForSequenceClassification",
        transformers.DistilBertConfig(
            vocab_size=600, dim=48, n_layers=2, n_heads=4, hidden_dim=96, max_position_embeddings=64, **LABELS
        ),
    ),
    "modernbert": (
        "ModernBertForSequenceClassification",
        transformers.ModernBertConfig(
            **SMALL, **LABELS, **dict.fromkeys([f"{one}_token_id" for one in ("pad", "bos", "eos", "cls", "sep")])
        ),
    ),
    "masked": ("BertForMaskedLM", transformers.BertConfig(**SMALL)),
}


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """(ours, transformers' model, its tokenizer) of a kind."""

    def made(kind):
        folder = tmp_path_factory.mktemp(kind)
        name, config = MODELS[kind]
        model = lively(getattr(transformers, name)(config))
        transformers.utils.logging.disable_progress_bar()
        model.save_pretrained(folder)
        for file in shape_folder("roberta" if kind == "roberta" else "bert").iterdir():
            (folder / file.name).write_bytes(file.read_bytes())
        if kind != "roberta":  # the shape's own tokenizer joins no pairs
            library = Tokenizer.from_file(str(folder / "tokenizer.json"))
            ends = [(mark, library.token_to_id(mark)) for mark in ("[SEP]", "[CLS]")]
            library.post_processor = processors.BertProcessing(*ends)
            library.save(str(folder / "tokenizer.json"))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return gf.load(str(folder)), model, transformers.AutoTokenizer.from_pretrained(folder)

    return made


SCORES = {"one": "sigmoid", "several": "sigmoid", "numbers": "number"}
KINDS = [kind for kind in MODELS if kind != "masked"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("given", [PAIR[0], PAIR], ids=["text", "pair"])
@torch.no_grad()
def test_the_classes_are_those_of_transformers(kind, given, published):
    ours, theirs, tokenizer = published(kind)
    inputs = tokenizer(*([given] if isinstance(given, str) else given), return_tensors="pt")
    types = tokenizer._tokenizer.encode(*([given] if isinstance(given, str) else given)).type_ids
    assert max(types) == (kind != "roberta" and given is PAIR)
    inputs["token_type_ids"] = torch.tensor([types])
    wanted = theirs(**inputs).logits[0]
    shares = {"one": wanted.sigmoid(), "several": wanted.sigmoid(), "numbers": wanted}.get(kind, wanted.softmax(0))
    found = ours.classify(given)
    names = json.loads(theirs.config.to_json_string()).get("id2label", {"0": "0"}) if kind != "one" else {"0": "0"}
    assert [guess.value for guess in found] == sorted((guess.value for guess in found), reverse=True)
    assert {guess.scores for guess in found} == {SCORES.get(kind, "softmax")}
    for guess in found:
        assert abs(guess.value - shares[guess.number]) < 1e-5 and guess.label == names[str(guess.number)]
        assert guess.probability == (None if kind == "numbers" else guess.value)
    config, _ = export(ours.model)
    assert config.get("problem_type") == theirs.config.problem_type
    assert config["label2id"] == {name: int(i) for i, name in config["id2label"].items()}
    assert ours.trace(PAIR[0]).labels("k") == [names[str(i)] for i in range(len(shares))]


def test_mistakes(published):
    ours, *_ = published("bert")
    for given in (3, (), ("a", "b", "c"), ("a", 3)):
        with pytest.raises(InputError, match="give a text, or a pair of texts"):
            ours.classify(given)
    for given in (["a", "b c d"], ["a"], []):
        with pytest.raises(InputError, match=r"^a list is no pair; classify one text at a time"):
            ours.classify(given)
    with pytest.raises(InputError, match=r"^there are \d+ tokens and the model reads 64; shorten the text"):
        ours.classify("인간 " * 100)
    ours.tokenizer.library.post_processor = processors.TemplateProcessing(single="$A", special_tokens=[])
    with pytest.raises(UnsupportedError, match="joins no two texts"):
        ours.classify(PAIR)
    with pytest.raises(UnsupportedError, match="tells no classes of texts apart"):
        gf.load().classify("a")
    masked, *_ = published("masked")
    with pytest.raises(UnsupportedError, match="tells no classes of texts apart"):
        masked.classify("a")


def test_a_model_that_reads_a_whole_text_writes_none(published, tmp_path, capsys):
    (tmp_path / "a.txt").write_text("a")
    for kind, way in (("bert", "classify or trace"), ("masked", "embed or trace")):
        ours, *_ = published(kind)
        asked = (["generate", "a"], ["generate", "a", "--chat"], ["evaluate", str(tmp_path / "a.txt")])
        for one in asked:
            message = refused(capsys, *one, "-m", str(ours.place))
            assert f"{ours.name} reads a whole text at once and writes none; use {way} with it" in message
    with pytest.raises(UnsupportedError, match=r"^this model reads a whole text"):
        gf.api.Loaded(ours.model).evaluate(tmp_path / "a.txt")


# ---------------------------------------------------------------- at the command line


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_the_verb_prints_what_transformers_gives(kind, published, tmp_path, capsys):
    ours, theirs, tokenizer = published(kind)
    texts = tmp_path / "texts.txt"
    texts.write_text(f"{PAIR[1]}\r\n\n\u2028인간\n", encoding="utf-8")
    asked = ["classify", PAIR[0], "--file", str(texts), "-m", str(ours.place), "--json", "--top", "3"]
    status, out, err = run(capsys, *asked)
    assert (status, err) == (0, "")
    shown = json.loads(out)
    places = [(PAIR[0], None, None), (PAIR[1], str(texts), 1), ("\u2028인간", str(texts), 3)]
    assert [(one["text"], one["file"], one["line"]) for one in shown] == places
    for one in shown:
        ids = tokenizer(one["text"], return_tensors="pt").input_ids
        logits = theirs(ids).logits[0]
        shares = {"one": logits.sigmoid(), "several": logits.sigmoid(), "numbers": logits}.get(kind, logits.softmax(0))
        assert len(one["guesses"]) == len(shares)
        for guess in one["guesses"]:
            assert abs(guess["value"] - shares[guess["number"]]) < 1e-5
            assert guess["scores"] == SCORES.get(kind, "softmax")
            assert guess["probability"] == (None if kind == "numbers" else guess["value"])
    alone = json.loads(run(capsys, *asked[:2], *asked[4:])[1])
    assert alone == shown[0]["guesses"]


def test_the_classes_are_shown_in_both_languages(published, tmp_path, capsys):
    ours, *_ = published("bert")
    place, best = str(ours.place), ours.classify(PAIR[1])
    status, out, err = run(capsys, "classify", PAIR[1], "-m", place, "--lang", "en")
    lines = out.splitlines()
    assert (status, err, lines[0]) == (0, "", f"What {ours.name} makes of: {PAIR[1]}")
    assert [line.split()[:2] for line in lines[1:]] == [[one.label, f"{one.probability:.2%}"] for one in best]
    assert "█" in lines[1]
    (tmp_path / "texts.txt").write_text("\n".join((*PAIR, "인간 " * 100)), encoding="utf-8")
    status, out, err = run(capsys, "classify", "--file", str(tmp_path / "texts.txt"), "-m", place, "--lang", "ko")
    lines = out.splitlines()
    assert lines[0] == f"{ours.name} 모델이 분류한 텍스트 2개"
    assert [line.split()[2:] for line in lines[1:]] == [one.split() for one in PAIR]
    assert lines[2].split()[:2] == [best[0].label, f"{best[0].probability:.2%}"]
    assert status == 2 and err.startswith("glassformer: texts.txt:3: ") and "줄이십시오" in err and err.count("\n") == 1


def test_json_has_what_failed_too(published, tmp_path, capsys):
    ours, *_ = published("bert")
    file, long = tmp_path / "texts.txt", "인간 " * 100
    file.write_text(f"\n{long}\n{PAIR[1]}", encoding="utf-8")
    asked = ["classify", "--file", str(file), "-m", str(ours.place)]
    status, out, err = run(capsys, *asked, "--json")
    failed, read = json.loads(out)
    assert status == 2 and err.count("\n") == 1 and (read["line"], len(read["guesses"])) == (3, 1)
    assert {"text": long, "file": str(file), "line": 2} == {name: failed.pop(name) for name in ("text", "file", "line")}
    assert failed.keys() == {"error"} and failed["error"].endswith("shorten the text")
    assert run(capsys, *asked, "--lang", "en")[1].startswith(f"What {ours.name} makes of one text\n")


def test_numbers_are_shown_as_numbers(published, capsys):
    ours, *_ = published("numbers")
    found = ours.classify(PAIR[1])
    lines = run(capsys, "classify", PAIR[1], "-m", str(ours.place))[1].splitlines()
    assert [line.split() for line in lines[1:]] == [[one.label, f"{one.value:.4f}"] for one in found]
    line = run(capsys, "classify", PAIR[1], PAIR[1], "-m", str(ours.place), "--lang", "en")[1].splitlines()[2]
    assert line.startswith(f"{found[0].label}    {found[0].value:.4f}   All human")


def test_mistakes_at_the_command_line(published, tmp_path, capsys, monkeypatch):
    ours, *_ = published("bert")
    place = str(ours.place)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("\n \n", encoding="utf-8")
    (tmp_path / "latin.txt").write_bytes("é".encode("latin-1"))
    for asked, message in (
        ([], "give a text or an image, or a file of texts (--file)"),
        ([" ", "-m", place], "the text is empty"),
        (["a", "-m", "small"], "small: this model tells no classes of texts apart"),
        (["인간 " * 100, "-m", place], "tokens and the model reads 64; shorten the text"),
        (["a", "-m", place, "--top", "0"], "--top: 0 is not allowed; use 1 or more"),
        (["--file", "a.txt", "-m", place], "a.txt: empty; there is no text in it"),
        (["a", "--file", "no.txt", "-m", place], "no.txt"),
        (["a", "--file", "latin.txt", "-m", place], "latin.txt: not UTF-8 (first wrong byte at offset 0)"),
        (["--file", "a.txt"], "--file: lenet reads images; name a model of texts with -m, or leave --file out"),
        (["a" * 400], "there is no such image, and lenet reads no texts; name a model with -m"),
    ):
        assert message in refused(capsys, "classify", *asked)
    for asked in (["a", "--top", "0"], ["a", "--file", "no.txt"], ["--file", "a.txt"]):
        assert not refused(capsys, "classify", *asked, "-m", place).startswith(f"glassformer: {ours.name}")
    line = refused(capsys, "classify", "a", "-m", place, "--fit", "ink")
    assert line.startswith(f"glassformer: --fit: {ours.name} reads texts; leave it out")
    status, out, err = run(capsys, "classify", "a.txt", "-m", place, "--lang", "en")
    assert status == 0 and out.startswith("What ")
    assert err == "a.txt was read as a text, not as the file of that name; --file a.txt classifies each of its lines\n"
