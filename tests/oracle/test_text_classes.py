"""Classes of a text and of a pair of texts, from a published folder, against transformers."""

import json
import warnings

import pytest
import torch
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


@pytest.mark.parametrize("kind", ["bert", "roberta", "one", "several", "numbers"])
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
    assert [guess.probability for guess in found] == sorted((guess.probability for guess in found), reverse=True)
    for guess in found:
        assert abs(guess.probability - shares[guess.number]) < 1e-5 and guess.label == names[str(guess.number)]
    config, _ = export(ours.model)
    assert config.get("problem_type") == theirs.config.problem_type
    assert config["label2id"] == {name: int(i) for i, name in config["id2label"].items()}
    assert ours.trace(PAIR[0]).labels("k") == [names[str(i)] for i in range(len(shares))]


def test_mistakes(published):
    ours, *_ = published("bert")
    for given in (3, (), ("a", "b", "c"), ("a", 3)):
        with pytest.raises(InputError, match="give a text, or a pair of texts"):
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
