"""The tokenizer in a GGUF file's metadata beside the one that it was made of: the same ids for every text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from glassformer.data.folder import read_tokenizer as read_folder
from glassformer.errors import CheckpointError, UnsupportedError
from glassformer.formats.gguf import GGUF
from glassformer.formats.gguf_tokenizer import read_tokenizer
from unit.difficult_text import DIFFICULT, random_strings
from unit.published_shapes import CORPUS, folder

NORMAL, UNKNOWN, CONTROL, USER, _, BYTE = range(1, 7)
TEXTS = [*DIFFICULT, *CORPUS, *random_strings()[:200], "I'LL 2024-12345 x\n\n\n  y", "<|im_end|><think>"]


def metadata(shape):
    """A shape's tokenizer.json as llama.cpp's converter writes it."""
    data = json.loads((folder(shape) / "tokenizer.json").read_text(encoding="utf-8"))
    config = json.loads((folder(shape) / "tokenizer_config.json").read_text(encoding="utf-8"))
    ids = dict(data["model"]["vocab"]) | {one["content"]: one["id"] for one in data["added_tokens"]}
    pieces = sorted(ids, key=ids.__getitem__)
    assert [ids[piece] for piece in pieces] == list(range(len(pieces)))
    kinds = dict.fromkeys(pieces, NORMAL)
    kinds |= {one["content"]: CONTROL if one["special"] else USER for one in data["added_tokens"]}
    merges = [one if isinstance(one, str) else " ".join(one) for one in data["model"]["merges"]]
    said = {"model": "gpt2", "tokens": pieces, "token_type": [kinds[piece] for piece in pieces], "merges": merges}
    for role in ("bos", "eos"):
        if f"{role}_token" in config:
            said[f"{role}_token_id"] = ids[config[f"{role}_token"]]
    return {f"tokenizer.ggml.{key}": value for key, value in said.items()}


def held(said):
    return GGUF(Path("a.gguf"), {"general.architecture": "llama", "llama.context_length": 4096} | said)


@pytest.mark.parametrize(
    ("shape", "pre"), [("gpt2", "gpt-2"), ("llama3", "llama-bpe"), ("qwen2", "qwen2"), ("smollm2", "smollm")]
)
def test_byte_level_tokenizers_give_the_ids_of_the_original(shape, pre):
    original = read_folder(folder(shape), {})
    made = read_tokenizer(held(metadata(shape) | {"tokenizer.ggml.pre": pre, "tokenizer.chat_template": "{{ x }}"}))
    assert made.settings.template == "{{ x }}" and made.settings.longest == 4096
    assert made.vocab_size == original.vocab_size and made.start == original.start
    for text in TEXTS:
        one, other = made.encode(text), original.encode(text)
        assert (one.ids, one.offsets) == (other.ids, other.offsets), text
        assert made.encode(text, special=True).ids == original.encode(text, special=True).ids
        assert made.decode(one.ids) == original.decode(one.ids)


def test_the_name_of_the_pre_tokenizer_matters():
    ids = [
        read_tokenizer(held(metadata("gpt2") | {"tokenizer.ggml.pre": pre})).encode("x 12345 y").ids
        for pre in ("gpt-2", "smollm")
    ]
    assert ids[0] != ids[1]


@pytest.fixture(scope="module")
def pieces(tmp_path_factory):
    """A SentencePiece model of Llama's kind, its own processor, and its metadata."""
    sentencepiece = pytest.importorskip("sentencepiece", reason="the original is sentencepiece (extra dev)")
    path = tmp_path_factory.mktemp("pieces") / "model"
    lines = [line for text in CORPUS for line in text.split("\n")]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_prefix=str(path),
        vocab_size=450,
        model_type="bpe",
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        user_defined_symbols=["<sep>"],
        hard_vocab_limit=False,
        minloglevel=2,
    )
    model = sentencepiece.SentencePieceProcessor(model_file=f"{path}.model")
    every = range(model.get_piece_size())
    kinds = [
        UNKNOWN if model.is_unknown(i) else CONTROL if model.is_control(i) else BYTE if model.is_byte(i)
        else USER if model.id_to_piece(i) == "<sep>" else NORMAL for i in every
    ]  # fmt: skip
    said = {
        "model": "llama",
        "tokens": [model.id_to_piece(i) for i in every],
        "scores": [model.get_score(i) for i in every],
        "token_type": kinds,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "unknown_token_id": 0,
    }
    return model, {f"tokenizer.ggml.{key}": value for key, value in said.items()}


def test_sentencepiece_pieces_give_the_ids_of_sentencepiece(pieces):
    model, said = pieces
    made = read_tokenizer(held(said))
    assert made.start == [1] and made.ends == {2}
    for text in [*TEXTS, "a<sep>b <sep> c"]:
        assert made.encode(text).ids == model.encode(text), text
    bare = read_tokenizer(
        held(said | {"tokenizer.ggml.add_space_prefix": False, "tokenizer.ggml.add_bos_token": False})
    )
    assert bare.start == [] and bare.encode("고양이").ids != made.encode("고양이").ids
    assert bare.decode(bare.encode(" 고양이").ids) == " 고양이"


def test_lists_that_do_not_fit_and_kinds_that_are_not_known_are_refused(pieces):
    said = pieces[1]
    for wrong in (
        {"tokens": None},
        {"tokens": []},
        {"tokens": [*said["tokenizer.ggml.tokens"][:-1], "<s>"]},
        {"token_type": [1]},
        {"scores": [1.0]},
        {"scores": None},
    ):
        with pytest.raises(CheckpointError, match=r"its tokenizer's lists do not fit each other; fetch it again"):
            read_tokenizer(held(said | {f"tokenizer.ggml.{key}": value for key, value in wrong.items()}))
    with pytest.raises(CheckpointError, match=r"eos_token_id is 9999, and there are \d+ tokens"):
        read_tokenizer(held(said | {"tokenizer.ggml.eos_token_id": 9999}))
    with pytest.raises(UnsupportedError, match=r"a tokenizer of the kind 'rwkv' is not read; there are gpt2 and llama"):
        read_tokenizer(held(said | {"tokenizer.ggml.model": "rwkv"}))
    with pytest.raises(UnsupportedError, match=r"the pre-tokenizer 'poro-chat' is not known; known are gpt-2"):
        read_tokenizer(held(metadata("gpt2") | {"tokenizer.ggml.pre": "poro-chat"}))
    with pytest.raises(CheckpointError, match=r"its tokenizer is broken"):
        read_tokenizer(held(metadata("gpt2") | {"tokenizer.ggml.pre": "gpt-2", "tokenizer.ggml.merges": ["zz qq"]}))
