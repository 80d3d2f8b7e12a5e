"""Pairs of texts in an exported folder, through transformers' own classes of both folders."""

import json

import pytest
import torch
from published import lively, transformers
from published_shapes import folder as shape_folder
from tokenizers import Tokenizer, processors

import glassformer as gf

PAIR = ("모든 인간은 자유롭다.", "All human beings are born free.")
SMALL = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96}
SMALL |= {"vocab_size": 600, "max_position_embeddings": 70, "num_labels": 3}
MARKS = dict.fromkeys([f"{one}_token_id" for one in ("pad", "bos", "eos", "cls", "sep")])
# What transformers calls a family -> its settings, the shape and the class of its tokenizer, whether it tells parts.
KINDS = {
    "Bert": (SMALL, "bert", "BertTokenizer", True),
    "Roberta": (SMALL | {"type_vocab_size": 1}, "roberta", "RobertaTokenizer", False),
    "XLMRoberta": (SMALL | {"type_vocab_size": 1}, "xlm-roberta", "XLMRobertaTokenizer", False),
    "DistilBert": (
        {"vocab_size": 600, "dim": 48, "n_layers": 2, "n_heads": 4, "hidden_dim": 96, "num_labels": 3},
        "bert",
        "DistilBertTokenizer",
        False,
    ),
    "ModernBert": (SMALL | MARKS, "bert", "PreTrainedTokenizerFast", False),
}


def published(kind, place):
    """A random classifier of transformers in a folder, with a tokenizer that joins pairs."""
    settings, shape, named, _ = KINDS[kind]
    model = getattr(transformers, f"{kind}ForSequenceClassification")
    transformers.utils.logging.disable_progress_bar()
    lively(model(getattr(transformers, f"{kind}Config")(**settings))).save_pretrained(place)
    library = Tokenizer.from_file(str(shape_folder(shape) / "tokenizer.json"))
    ends = ("[SEP]", "[CLS]") if shape == "bert" else ("</s>", "<s>")
    joined = processors.BertProcessing if shape == "bert" else processors.RobertaProcessing
    library.post_processor = joined(*[(mark, library.token_to_id(mark)) for mark in ends])
    library.save(str(place / "tokenizer.json"))
    config = json.loads((shape_folder(shape) / "tokenizer_config.json").read_text(encoding="utf-8"))
    (place / "tokenizer_config.json").write_text(json.dumps(config | {"tokenizer_class": named}))


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_the_classes_of_a_pair_are_the_same_in_the_exported_folder(kind, tmp_path):
    published(kind, tmp_path / "in")
    gf.load(tmp_path / "in").export(tmp_path / "out")
    logits = {}
    for place in ("in", "out"):
        tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / place)
        model = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / place).eval()
        given = tokenizer(*PAIR, return_tensors="pt")
        assert ("token_type_ids" in given) == KINDS[kind][3]
        logits[place] = torch.cat([model(**given).logits, model(**tokenizer(PAIR[0], return_tensors="pt")).logits])
    assert logits["in"].std() > 0.01
    torch.testing.assert_close(logits["out"], logits["in"], atol=1e-6, rtol=0)
