"""Tokenizers lose nothing, say exactly where each token stands, and are ordinary tokenizer.json files."""

import json
import os
import subprocess
import sys
import unicodedata

import numpy as np
import pytest
import tokenizers
from difficult_text import DIFFICULT, JAMO, METHODS, SENTENCES, SYLLABLES, random_strings, tokenizer
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.data.tokenizer import Tokenizer, TokenizerSpec, train_tokenizer
from glassformer.errors import CheckpointError, InputError, SettingError, UnsupportedError
from glassformer.spec import from_data, to_data

LOSSLESS = ["byte", "bpe", "unigram"]


def slow_offsets(text, pieces):
    """Which characters each piece touches, found by walking through the bytes one at a time."""
    owner = [place for place, character in enumerate(text) for _ in character.encode()]
    done, spans = 0, []
    for piece in pieces:
        touched = owner[done : done + len(piece)]
        spans.append((touched[0], touched[-1] + 1))
        done += len(piece)
    return spans


@pytest.mark.parametrize("method", METHODS)
def test_every_text_returns_and_every_offset_is_exact(method):
    made = tokenizer(method)
    everything = [*DIFFICULT, SYLLABLES, JAMO, unicodedata.normalize("NFD", SYLLABLES), *SYLLABLES, *random_strings()]
    for text in everything:
        encoding = made.encode(text)
        assert made.decode(encoding.ids) == text
        pieces = [made.piece_bytes(id) for id in encoding.ids]
        data = text.encode()
        assert [data[start:end] for start, end in encoding.byte_offsets] == pieces
        assert made.end_id not in encoding.ids and not encoding.special
        if len(text) < 200:
            assert encoding.offsets == slow_offsets(text, pieces)


@pytest.mark.parametrize("method", LOSSLESS)
@given(st.text(st.characters(exclude_categories=["Cs"])))
@settings(max_examples=150, deadline=None)
def test_any_text_returns(method, text):
    made = tokenizer(method)
    encoding = made.encode(text)
    assert made.decode(encoding.ids) == text
    stream = made.stream()
    parts = [stream.push(id) for id in encoding.ids]
    assert "".join(parts) + stream.close() == text


@pytest.mark.parametrize("method", METHODS)
def test_the_saved_file_gives_the_same_ids_in_the_plain_library(method, tmp_path):
    made = tokenizer(method)
    made.save(tmp_path / "tokenizer.json")
    library = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    library.encode_special_tokens = True
    again = Tokenizer.load(tmp_path)
    assert (again.method, again.vocab_size, again.end_id) == (made.method, made.vocab_size, made.end_id)
    assert again.fingerprint == made.fingerprint
    for text in [*DIFFICULT, *random_strings()[:500]]:
        ids = library.encode(text, add_special_tokens=False).ids
        assert ids == made.encode(text).ids == again.encode(text).ids
        assert library.decode(ids, skip_special_tokens=False) == text


@pytest.mark.parametrize("method", METHODS)
def test_the_end_token_is_never_typed(method):
    made = tokenizer(method)
    text = f"고{made.end}a{made.end}"
    encoding = made.encode(text, start=True)
    assert encoding.ids[0] == made.end_id and made.end_id not in encoding.ids[1:]
    assert encoding.special == {0: "⟨start⟩"} and encoding.offsets[0] == (0, 0) == encoding.byte_offsets[0]
    assert encoding.ids[1:] == made.encode(text).ids
    assert made.decode(encoding.ids) == text and made.piece_bytes(made.end_id) == b""
    assert made.end_id == made.vocab_size - 1 == len(made.library.get_vocab()) - 1


@pytest.mark.parametrize("method", LOSSLESS)
def test_bytes_that_are_no_text_are_shown_not_replaced(method):
    made = tokenizer(method)
    single = {made.piece_bytes(id): id for id in range(made.vocab_size) if len(made.piece_bytes(id)) == 1}
    assert len(single) >= 256
    ids = [single[bytes([byte])] for byte in b"\xe3a\xea\xb0\x81\xff\xed\xa0\x80\xe3\x81"]
    assert made.decode(ids) == "⟨E3⟩a각⟨FF⟩⟨ED⟩⟨A0⟩⟨80⟩⟨E3⟩⟨81⟩"
    stream = made.stream()
    parts = [stream.push(id) for id in ids]
    assert "".join(parts) + stream.close() == made.decode(ids)
    assert parts[2:5] == ["", "", "각"], "no half character is given out"


@given(st.lists(st.integers(0, 256)))
@settings(max_examples=150, deadline=None)
def test_streaming_equals_decoding_for_any_bytes(ids):
    made = tokenizer("byte")
    stream = made.stream()
    streamed = "".join(stream.push(id) for id in ids) + stream.close()
    assert streamed == made.decode(ids) and "\ufffd" not in streamed
    raw, encoding = made.encoding_of(ids)
    assert encoding.ids == ids
    data = raw.encode("utf-8", "surrogateescape")
    assert [data[start:end] for start, end in encoding.byte_offsets] == [made.piece_bytes(id) for id in ids]


@pytest.mark.parametrize("method", METHODS)
def test_arrays_and_batches_are_the_single_encoding(method):
    made = tokenizer(method)
    single = [made.encode(text).ids for text in DIFFICULT]
    assert [ids.tolist() for ids in made.ids_arrays(DIFFICULT)] == single
    assert all(made.ids_array(text).dtype == np.int64 for text in DIFFICULT)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("ab\udc80", "position 2: the byte 80 is not UTF-8; give the text in UTF-8"),  # as Python passes on a byte
        ("가\udcff", "position 1: the byte FF is not UTF-8"),
        ("ab\ud800", r"position 2: a lone surrogate \(U\+D800\) is no character; leave it out"),
        ("\udc7f", r"position 0: a lone surrogate \(U\+DC7F\)"),
    ],
)
def test_what_is_no_character_is_refused(method, text, wrong):
    for call in (tokenizer(method).encode, lambda text: tokenizer(method).ids_arrays([text])):
        with pytest.raises(InputError, match=wrong):
            call(text)


def test_a_character_tokenizer_names_what_it_does_not_know(tmp_path):
    (tmp_path / "a.txt").write_text("abc\n", encoding="utf-8")
    made = train_tokenizer(TokenizerSpec(method="char"), tmp_path)
    assert made.vocab_size == 5 and made.encode("cab").ids == [3, 1, 2]
    with pytest.raises(InputError, match=r"position 1: .*'각' \(U\+AC01\), 'B' \(U\+0042\).*method=bpe"):
        made.encode("a각B각")
    with pytest.raises(InputError, match=r"4 different characters.*vocab=5"):
        train_tokenizer(TokenizerSpec(method="char", vocab=4), tmp_path)


@pytest.mark.parametrize("method", ["bpe", "unigram"])
def test_words_of_the_corpus_become_tokens(method):
    made = tokenizer(method)
    assert made.vocab_size == {"bpe": 380, "unigram": 400}[method]
    assert len(made.encode(SENTENCES[0])) < len(SENTENCES[0].encode()) / 2
    longest = max((made.piece_bytes(id) for id in range(made.vocab_size)), key=len)
    assert len(longest.decode()) <= 20, "runs of dashes and blanks do not fill the vocabulary"


def test_rare_characters_leave_room_for_words(tmp_path):
    text = SYLLABLES[:2000] + ("고양이가 고양이는 생선을 생선이 먹었다 먹었고 " * 50 + "\n") * 20
    (tmp_path / "a.txt").write_text(text, encoding="utf-8")
    for vocab in (354, 600):
        made = train_tokenizer(TokenizerSpec(method="unigram", vocab=vocab), tmp_path)
        assert made.vocab_size <= vocab and made.decode(made.encode(text).ids) == text
    assert len(made.encode("고양이는 생선을 먹었고")) <= 6
    assert len(made.encode(SYLLABLES[1500])) == 3, "a rare character is spelled in bytes"


def test_training_is_the_same_in_another_process(tmp_path):
    # Syllables that only occur inside longer pieces: the trainer gives them scores in a random order.
    text = "\n".join([*SENTENCES, *(f" {c}다 {c}다가 {c}다는" for c in SYLLABLES[:400:10])]) * 5
    (tmp_path / "a.txt").write_text(text, encoding="utf-8", newline="")
    program = (
        "import sys; from glassformer.data.tokenizer import *\n"
        "for method in ('bpe', 'unigram', 'char'):\n"
        "    print(train_tokenizer(TokenizerSpec(method=method, vocab=700), sys.argv[1]).fingerprint)"
    )
    environment = os.environ | {"PYTHONHASHSEED": "5", "RAYON_NUM_THREADS": "1"}
    command = [sys.executable, "-c", program, str(tmp_path)]
    other = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split()
    here = [
        train_tokenizer(TokenizerSpec(method=m, vocab=700), tmp_path).fingerprint for m in ("bpe", "unigram", "char")
    ]
    assert here == other


def test_tokens_of_pieces_are_tokens_of_the_whole(tmp_path):
    from glassformer.data.text import pieces

    text = "".join(SENTENCES) * 30
    (tmp_path / "a.txt").write_bytes(text.encode())
    cut = list(pieces(tmp_path / "a.txt", 150))
    assert len(cut) > 30
    for method in LOSSLESS:
        made = tokenizer(method)
        assert np.concatenate(made.ids_arrays(cut)).tolist() == made.encode(text).ids


@pytest.mark.parametrize("method", ["bpe", "unigram", "char"])
def test_a_tiny_corpus_is_enough(method, tmp_path):
    (tmp_path / "a.txt").write_bytes("\0가\n".encode())
    made = train_tokenizer(TokenizerSpec(method=method), tmp_path)
    assert made.decode(made.encode("\0가\n").ids) == "\0가\n"
    with pytest.raises(InputError, match="no such file"):
        train_tokenizer(TokenizerSpec(method=method), tmp_path / "none")


def test_settings_are_checked():
    assert from_data(to_data(TokenizerSpec()), TokenizerSpec) == TokenizerSpec()
    for settings_, message in [
        ({"vocab": 256}, "vocab: 256 is not allowed with method=bpe; use 257"),
        ({"vocab": 300, "method": "unigram"}, "vocab: 300 .* use 35"),
        ({"end": "the"}, "end: 'the' is not allowed"),
        ({"end": "<|a b|>"}, "end: "),
    ]:
        with pytest.raises(SettingError, match=message):
            TokenizerSpec(**settings_)
        with pytest.raises(SettingError, match=message):
            from_data({"kind": "tokenizer", **settings_}, TokenizerSpec)


def test_broken_files_are_refused(tmp_path):
    path = tmp_path / "tokenizer.json"
    with pytest.raises(CheckpointError, match="no such file"):
        Tokenizer.load(tmp_path)
    tokenizer("bpe").save(path)
    whole = path.read_bytes()
    for data in (whole[: len(whole) // 2], b"", b"{}", b"\xff\xfe", b"[1]"):
        path.write_bytes(data)
        with pytest.raises(CheckpointError, match=r"tokenizer\.json: broken or truncated"):
            Tokenizer.load(tmp_path)
    lowered = json.loads(whole) | {"normalizer": {"type": "Lowercase"}}
    path.write_text(json.dumps(lowered))
    with pytest.raises(UnsupportedError, match="not lossless"):
        Tokenizer.load(path)
    path.write_text(json.dumps(json.loads(whole) | {"added_tokens": []}))
    with pytest.raises(CheckpointError, match="no special token"):
        Tokenizer.load(path)


def test_an_unknown_id_is_refused():
    with pytest.raises(InputError, match=r"token id 257: .* 0 to 256"):
        tokenizer("byte").decode([257])
    with pytest.raises(InputError, match="token id -1"):
        tokenizer("byte").decode([-1])


@pytest.mark.parametrize("method", ["bpe", "unigram"])
def test_nothing_is_learnt_from_what_is_held_out(method, tmp_path):
    known, held = "the cat sat on the mat. " * 200, "zebras graze quietly. " * 200
    share = len(held) / (len(known) + len(held))
    (tmp_path / "both.txt").write_text(known + held)
    (tmp_path / "known.txt").write_text(known)
    (tmp_path / "held.txt").write_text(held)
    spec = TokenizerSpec(method=method, vocab=512)
    alone = train_tokenizer(spec, tmp_path / "known.txt")
    assert train_tokenizer(spec, tmp_path / "both.txt", share).fingerprint == alone.fingerprint
    assert train_tokenizer(spec, tmp_path / "known.txt", tmp_path / "held.txt").fingerprint == alone.fingerprint
    assert train_tokenizer(spec, tmp_path / "both.txt").fingerprint != alone.fingerprint


def test_a_character_tokenizer_knows_what_is_held_out(tmp_path):
    (tmp_path / "both.txt").write_text("abc" * 50 + "z")
    (tmp_path / "known.txt").write_text("abc")
    (tmp_path / "held.txt").write_text("z")
    spec = TokenizerSpec(method="char")
    for made in (
        train_tokenizer(spec, tmp_path / "both.txt", 0.1),
        train_tokenizer(spec, tmp_path / "known.txt", tmp_path / "held.txt"),
    ):
        assert made.vocab_size == 5 and made.decode(made.encode("zab").ids) == "zab"
