"""Published tokenizers: exact places in the text as given, true characters in every view, what stands beside them."""

import base64
import json
import struct
import unicodedata

import pytest
import torch
from difficult_text import DIFFICULT, JAMO, SENTENCES, random_strings
from hypothesis import given
from hypothesis import strategies as st
from published_shapes import MORE, SHAPES, folder

import glassformer as gf
from glassformer.api import Loaded
from glassformer.data.display import cells, cells_of_ids, find
from glassformer.data.folder import read_tokenizer
from glassformer.data.published import Published
from glassformer.data.tokenizer import Tokenizer, TokenizerSpec, train_tokenizer
from glassformer.errors import CheckpointError, InputError, UnsupportedError
from glassformer.hf.generation import own_generation

NFD = [unicodedata.normalize("NFD", one) for one in (*SENTENCES, *MORE)]
TEXTS = [*DIFFICULT, *MORE, *NFD, *random_strings()[:200], JAMO]
FOREIGN = ("\ufffd", "Ġ", "Ċ", "▁", "##")


@pytest.fixture(params=SHAPES)
def made(request):
    return read_tokenizer(folder(request.param))


def test_places_follow_each_other_and_leave_out_only_what_is_dropped(made):
    for text in TEXTS:
        encoding = made.encode(text)
        covered, touched = 0, set()
        for start, end in encoding.offsets:
            assert 0 <= start <= end <= len(text) and start <= max(covered, start)
            covered = max(covered, end)
            touched |= set(range(start, end))
        for place in set(range(len(text))) - touched:
            dropped = text[place].isspace() or unicodedata.category(text[place])[0] in "CM" or text[place] == "\ufffd"
            assert dropped and made.method != "bpe", (text, place)
        starts = [start for start, _ in encoding.offsets]
        assert starts == sorted(starts)
        for (start, end), (first, last) in zip(encoding.offsets, encoding.byte_offsets, strict=True):
            whole = (len(text[:start].encode()), len(text[:end].encode()))
            assert whole[0] <= first <= last <= whole[1]


def test_bytes_of_an_unchanged_text_are_its_own(made):
    for text in TEXTS if made.lossless else []:
        encoding = made.encode(text)
        data = text.encode()
        assert [data[a:b] for a, b in encoding.byte_offsets] == [made.piece_bytes(id) for id in encoding.ids]
        assert made.decode(encoding.ids) == text


def test_a_span_has_its_tokens_and_they_have_their_span(made):
    text = "고양이가 생선을 먹었다. The cat's fish! " + unicodedata.normalize("NFD", "각나 é")
    encoding = made.encode(text)
    for start in range(len(text)):
        for end in range(start + 1, len(text) + 1):
            places = made.tokens_of(text, start, end)
            assert places == encoding.tokens_of(start, end) == sorted(places)
            for place, (first, last) in enumerate(encoding.offsets):
                assert (place in places) == bool(set(range(first, last)) & set(range(start, end)))
            if places:
                first, last = made.span_of(text, places[0], places[-1] + 1)
                assert first <= start or not text[start:first].strip()
                assert set(places) <= set(encoding.tokens_of(first, last))
    with pytest.raises(InputError, match=r"there are no tokens 3 to 2"):
        encoding.span_of(3, 3)
    with pytest.raises(InputError, match="there are no tokens 0 to"):
        encoding.span_of(0, len(encoding) + 1)


@pytest.mark.parametrize("by", ["token", "character", "word"])
def test_views_show_true_characters(made, by):
    for text in TEXTS:
        if any(sign in text for sign in (*FOREIGN, "Ġ")):
            continue
        encoding = made.encode(text, start=True)
        found = cells(text, encoding, by)
        assert [place for cell in found for place in cell.tokens] == list(range(len(encoding)))
        shown = [*found, *(part for cell in found for part in cell.parts)]
        for cell in [*shown, *cells_of_ids(made, encoding.ids, by)]:
            assert cell.text and not any(sign in cell.text for sign in FOREIGN), (text, cell)
        for cell in found:
            assert cell.source == text[cell.start : cell.end]


def test_every_token_alone_shows_true_characters(made):
    for id in range(made.vocab_size):
        [cell] = cells_of_ids(made, [id], "token", continues=True)
        assert cell.text and not any(sign in cell.text for sign in FOREIGN), cell
        if id in made.special:
            assert cell.text == made.special[id] and not cell.source
        elif made.piece_bytes(id).strip():
            [alone] = cells_of_ids(made, [id], "token")
            assert alone.text == cell.text and alone.source.strip() == cell.source.strip()


@pytest.mark.parametrize("shape", ["gpt2", "qwen2", "bert", "llama2", "t5", "xlm-roberta", "neox"])
def test_words_are_words(shape):
    made = read_tokenizer(folder(shape))
    text = "고양이가 생선을 먹었다 free"
    for given_text in (text, unicodedata.normalize("NFD", text)):
        found = cells(given_text, made.encode(given_text, start=True), "word")
        words = [cell.source.strip() for cell in found if cell.source]
        assert words == given_text.split()
        assert [found[place].source.strip() for place in find(given_text, found, "생선을")] == [given_text.split()[1]]


def test_decomposed_hangul_keeps_its_place_where_it_is_composed():
    made = read_tokenizer(folder("qwen2"))
    text = unicodedata.normalize("NFD", "각갂")
    encoding = made.encode(text)
    assert encoding.offsets == [(0, 3), (0, 3), (3, 6), (3, 6)]
    assert encoding.parts == dict(enumerate([b"\xea\xb0", b"\x81", b"\xea\xb0", b"\x82"]))
    assert [cell.source for cell in cells(text, encoding, "character")] == [text[:3], text[3:]]
    assert [part.text for part in cells(text, encoding, "character")[0].parts] == ["⟨EA⟩⟨B0⟩", "⟨81⟩"]
    assert made.tokens_of(text, 4, 5) == [2, 3] and made.span_of(text, 2, 3) == (3, 6)


def test_a_blank_that_is_put_in_stands_for_nothing():
    made = read_tokenizer(folder("llama2"))
    encoding = made.encode("각")
    assert [made.piece_bytes(id) for id in encoding.ids] == [b" ", b"\xea", b"\xb0", b"\x81"]
    assert encoding.offsets == [(0, 0), (0, 1), (0, 1), (0, 1)]
    assert encoding.byte_offsets == [(0, 0), (0, 1), (1, 2), (2, 3)]
    assert [cell.text for cell in cells("각", encoding, "token")] == ["␠", "⟨EA⟩", "⟨B0⟩", "⟨81⟩"]
    assert [cell.text for cell in cells("각", encoding, "character")] == ["각"]


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_has_tokens_and_streams_as_it_decodes(text):
    for shape in ("llama3", "qwen2", "bert", "t5", "mistral", "gemma"):
        made = read_cached(shape)
        encoding = made.encode(text)
        stream = made.stream()
        parts = [stream.push(id) for id in encoding.ids]
        assert "".join(parts) + stream.close() == made.decode(encoding.ids)
        if "\ufffd" not in text:
            assert not any("\ufffd" in part for part in parts)
        raw, again = made.encoding_of(encoding.ids)
        assert again.ids == encoding.ids and len(again.offsets) == len(again)
        assert made.ids_array(text).tolist() == encoding.ids == made.ids_arrays([text])[0].tolist()
        if made.lossless:
            assert made.decode(encoding.ids) == text == raw


_READ: dict[str, Published] = {}


def read_cached(shape):
    if shape not in _READ:
        _READ[shape] = read_tokenizer(folder(shape))
    return _READ[shape]


def test_a_typed_special_token_is_text(made):
    for text in made.special.values():
        unknown = made.library.token_to_id(made.settings.names.get("unk", "")) if made.method != "bpe" else None
        assert not set(made.encode(f"a {text} b").ids) & set(made.special) - {unknown}
        assert made.library.token_to_id(text) in made.encode(f"a {text} b", special=True).ids


def test_it_is_saved_with_what_stands_beside_it(made, tmp_path):
    made.save(tmp_path / "source_tokenizer.json")
    again = Tokenizer.load(tmp_path / "source_tokenizer.json")
    assert isinstance(again, Published) and again.fingerprint == made.fingerprint and again.settings == made.settings
    assert (again.start, again.closing, again.begin, again.ends) == (made.start, made.closing, made.begin, made.ends)
    assert [again.encode(text).ids for text in TEXTS[:40]] == [made.encode(text).ids for text in TEXTS[:40]]
    with pytest.raises(UnsupportedError, match="came with a published model"):
        train_tokenizer(TokenizerSpec(method="file", path=str(tmp_path / "source_tokenizer.json")), tmp_path)


def changed(shape, tmp_path, **files):
    """A copy of a shape's folder with further files, or changed ones."""
    for path in folder(shape).iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    for name, content in files.items():
        old = tmp_path / f"{name}.json"
        held = json.loads(old.read_text()) if old.is_file() else {}
        old.write_text(json.dumps(held | content))
    return tmp_path


def test_what_the_files_beside_it_say(tmp_path):
    place = changed(
        "llama3", tmp_path,
        generation_config={"eos_token_id": [1, 2]},
        config={"eos_token_id": 1, "model_type": "llama"},
        tokenizer_config={"model_max_length": 131072, "padding_side": "left", "add_bos_token": False},
    )  # fmt: skip
    made = read_tokenizer(place)
    assert made.ends == {1, 2} and made.start == [] and made.settings.longest == 131072
    assert made.settings.padding == "left" and made.end == "<|end_of_text|>" and made.end_id == 1
    assert made.empty == [0], "an empty prompt begins with the token that would stand before a text"
    (place / "generation_config.json").unlink()
    assert read_tokenizer(place).ends == {1}
    other = changed(
        "llama3", place, tokenizer_config={"add_bos_token": True, "add_eos_token": True, "model_max_length": 1e30}
    )
    made = read_tokenizer(other)
    assert (made.start, made.closing, made.settings.longest) == ([0], [1], None)


def test_tokens_that_were_added_beside_it(tmp_path):
    size = read_tokenizer(folder("qwen2")).vocab_size
    added = {str(size): {"content": "<|vision|>", "special": True}, str(size + 1): {"content": "<tool>"}}
    place = changed("qwen2", tmp_path, tokenizer_config={"added_tokens_decoder": added})
    made = read_tokenizer(place)
    assert made.vocab_size == size + 2 and made.special[size] == "<|vision|>" and size + 1 not in made.special
    assert made.encode("a<tool>b").ids[1] == size + 1 and made.decode([size, size + 1]) == "<tool>"
    (tmp_path / "added_tokens.json").write_text(json.dumps({"<later>": size + 2}))
    assert read_tokenizer(place).encode("<later>").ids == [size + 2]


def test_a_folder_whose_class_is_unknown_is_refused(tmp_path):
    for name, config in (
        ("tokenizer_config.json", {"tokenizer_class": "CodeGenTokenizer"}),
        ("config.json", {"model_type": "xyz"}),
    ):
        (tmp_path / "vocab.json").write_text('{"a": 0, "b": 1, "ab": 2}')
        (tmp_path / "merges.txt").write_text("a b")
        (tmp_path / name).write_text(json.dumps(config))
        with pytest.raises(
            UnsupportedError, match="a tokenizer of class (CodeGen|xyz) is read from a tokenizer.json only"
        ):
            read_tokenizer(tmp_path)
        (tmp_path / name).unlink()
    made = read_tokenizer(tmp_path)
    assert made.encode("ab").ids == [2] and not made.lossless, "not every byte has a token"


@pytest.mark.parametrize("shape", ["gpt2", "bert", "t5", "whisper"])
def test_a_tokenizer_without_a_decoder_spells_as_it_cuts(shape, tmp_path):
    place = changed(shape, tmp_path, tokenizer={"decoder": None})
    made, whole = read_tokenizer(place), read_tokenizer(folder(shape))
    for text in [*SENTENCES, *MORE]:
        assert made.decode(made.encode(text).ids) == whole.decode(whole.encode(text).ids)
    (place / "tokenizer.json").write_text(
        json.dumps(
            json.loads((place / "tokenizer.json").read_text())
            | {"decoder": {"type": "CTC", "pad_token": "", "word_delimiter_token": "|", "cleanup": True}}
        )
    )
    with pytest.raises(UnsupportedError, match="a tokenizer whose decoder is CTC is not read"):
        read_tokenizer(place)


def test_further_special_tokens_are_special(tmp_path):
    names = {"tool": "먹었다", "other": {"content": "and"}}
    for key, value in (("extra_special_tokens", names), ("additional_special_tokens", list(names.values()))):
        vocab = {"a": 0, "먹었다": 1, "and": 2}
        (tmp_path / "vocab.json").write_text(json.dumps(vocab))
        (tmp_path / "merges.txt").write_text("")
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({key: value}))
        assert read_tokenizer(tmp_path).special == {1: "먹었다", 2: "and"}


def test_a_text_without_tokens_is_refused(tmp_path):
    (tmp_path / "vocab.txt").write_text("[CLS]\n[SEP]\na\n##b\n")
    made = read_tokenizer(tmp_path)
    assert made.encode("ab").ids == [2, 3]
    with pytest.raises(InputError, match="no token for a part of the text"):
        made.encode("abc")
    with pytest.raises(InputError, match="no token for a part of the text"):
        made.ids_array("abc")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("tokenizer.json", "{", "broken or truncated tokenizer file"),
        ("tokenizer_config.json", "[1]", r"tokenizer_config\.json must be a JSON object"),
        ("tokenizer_config.json", '{"added_tokens_decoder": {"x": 1}}', "the tokenizer's files are broken"),
        ("special_tokens_map.json", '{"a": ', "broken or truncated"),
        ("added_tokens.json", '{"a": "b"}', "the tokenizer's files are broken"),
        ("tokenizer_config.json", '{"add_bos_token": true, "bos_token": "<none>"}', "'<none>' is not in the"),
    ],
)  # fmt: skip
def test_broken_files_are_named(name, content, message, tmp_path):
    place = changed("gpt2", tmp_path)
    (place / name).write_text(content)
    with pytest.raises(CheckpointError, match=message):
        read_tokenizer(place)


CHARSMAP = {"type": "Precompiled", "precompiled_charsmap": "AAAA"}
AROUND = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "none", "type_id": 0}}]}


@pytest.mark.parametrize(
    "spoilt", [{"normalizer": CHARSMAP}, {"post_processor": {**AROUND, "pair": [], "special_tokens": {}}}]
)
def test_a_tokenizer_over_which_the_library_panics_is_refused(spoilt, tmp_path):
    place = changed("gpt2", tmp_path)
    data = json.loads((place / "tokenizer.json").read_text())
    (place / "tokenizer.json").write_text(json.dumps(data | spoilt))
    with pytest.raises(CheckpointError, match=r"^.*(broken or truncated|does not work).*$"):
        read_tokenizer(place)


def test_a_text_over_which_the_library_panics_is_refused(tmp_path):
    place = changed("gpt2", tmp_path)
    data = json.loads((place / "tokenizer.json").read_text())
    rules = base64.b64encode(struct.pack("<I", 512) + bytes(513)).decode()
    (place / "tokenizer.json").write_text(
        json.dumps(data | {"normalizer": {**CHARSMAP, "precompiled_charsmap": rules}})
    )
    made = read_tokenizer(place)
    assert made.encode("a").ids
    with pytest.raises(InputError, match="no token for a part of the text"):
        made.encode("가")


def test_ids_far_beyond_the_number_of_pieces_are_refused(tmp_path):
    for last, refused in ((1500, False), (1 << 31, True)):
        (tmp_path / "vocab.json").write_text(json.dumps({"a": 0, "b": last}))
        (tmp_path / "merges.txt").write_text("")
        made = read_tokenizer(tmp_path, {"model_type": "gpt2"})
        if refused:
            with pytest.raises(CheckpointError, match="has 2 pieces, and ids up to 2147483648"):
                made.encode("ab")
        else:
            assert made.encode("ab").ids == [0, last]
    own = {"ends": [], "begin": [], "size": 1 << 40}
    place = changed("gpt2", tmp_path, **{"tokenizer_config": {"padding_side": "right", "glassformer": own}})
    with pytest.raises(CheckpointError, match="and ids up to"):
        _ = Published.load(place).vocab_size


def message(*parts):
    """A message of protobuf: (number, a whole number, an fp32 number or bytes)."""
    made = b""
    for number, value in parts:
        if isinstance(value, float):
            made += bytes([number << 3 | 5]) + struct.pack("<f", value)
        elif isinstance(value, bytes):
            size = bytes([len(value)]) if len(value) < 128 else bytes([len(value) & 127 | 128, len(value) >> 7])
            made += bytes([number << 3 | 2]) + size + value
        else:
            made += bytes([number << 3, value])
    return made


@pytest.mark.parametrize(
    ("model", "wanted"),
    [
        ([(1, message((1, b"a"), (2, float("nan"))))], "no text, or a score that is no number"),
        ([(1, message((2, 1.0)))], "no text, or a score that is no number"),
        ([(1, message((1, 100)))], "a number in the place of a text"),
        ([(1, message((1, b"a"))), (3, message((2, 100)))], "a number in the place of a text"),
        ([(1, message((1, b"a"))), (3, message((2, struct.pack("<II", 4, 0x80000000) + b"a")))], "are cut off"),
        ([(1, message((1, b"a"))), (3, message((2, struct.pack("<II", 4, 0x80000009) + b"a\0")))], "are broken"),
        ([(1, message((1, b"a"))), (3, message((2, struct.pack("<II", 4, 0x80000000) + b"\xff\0")))], "are broken"),
        ([(1, message((1, b"a" * 2000))), (2, message((3, 2)))], "has 2000 characters"),
    ],
)
def test_broken_sentencepiece_models_are_refused_at_loading(model, wanted, tmp_path):
    (tmp_path / "tokenizer.model").write_bytes(message(*model))
    with pytest.raises(CheckpointError, match=wanted):
        read_tokenizer(tmp_path, {"model_type": "llama"})


@pytest.mark.parametrize(
    ("files", "error", "message"),
    [
        ({}, CheckpointError, "holds no tokenizer"),
        ({"tokenizer.model": b"\x0a\xff"}, CheckpointError, "broken or truncated"),
        ({"tokenizer.model": b""}, CheckpointError, "holds no pieces"),
        ({"tokenizer.model": b"\x0a\x03\x0a\x01a"}, UnsupportedError, "from a tokenizer.json only"),
        ({"vocab.json": b"{}", "merges.txt": b"a b\n"}, CheckpointError, "broken or truncated"),
        ({"vocab.json": b'{"a": "b"}', "merges.txt": b""}, CheckpointError, "broken or truncated"),
        ({"vocab.txt": b"\xff"}, CheckpointError, "the tokenizer's files are broken"),
        ({"vocab.txt": b"a\nb"}, CheckpointError, "'\\[CLS\\]' is not in|special token None"),
    ],
)
def test_what_is_no_tokenizer_is_refused(files, error, message, tmp_path):
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    with pytest.raises(error, match=message):
        read_tokenizer(tmp_path)


# ---------------------------------------------------------------- with a model


def tiny(shape, preset="llama", **settings):
    tokenizer = read_cached(shape)
    made = gf.build(preset, vocab=tokenizer.vocab_size, dim=16, heads=2, blocks=1, context=96, **settings)
    return Loaded(made.model, tokenizer, shape)


@pytest.mark.parametrize("shape", ["gpt2", "llama3", "llama2", "gemma", "qwen2"])
def test_a_decoder_writes_traces_and_is_evaluated(shape, tmp_path):
    loaded = tiny(shape)
    text = unicodedata.normalize("NFD", "고양이가 생선을")
    run = loaded.trace(text)
    assert run.text == text and run.stacks[-1].tokens[0].tolist() == [
        *loaded.tokenizer.start,
        *loaded.tokenizer.encode(text).ids,
    ]
    assert [cell.source.strip() for cell in run.cells() if cell.source] == text.split()
    assert run.rows("생선을") == [len(run.cells()) - 1]
    events = list(loaded.generate(text, max_new_tokens=8))
    assert len(events) <= 8 and not any("\ufffd" in event.text for event in events)
    assert list(loaded.generate("", max_new_tokens=2)), "an empty prompt begins with the start token"
    whole = "A " + text * 3
    (tmp_path / "a.txt").write_text(whole, encoding="utf-8")
    found = loaded.evaluate(tmp_path / "a.txt")
    ids = loaded.tokenizer.encode(whole, start=True).ids
    # Where nothing stands before a text, its first token is not predicted: one letter, of one byte.
    alone = not loaded.tokenizer.start
    assert alone == (shape in ("gpt2", "qwen2")) and (not alone or loaded.tokenizer.library.id_to_token(ids[0]) == "A")
    assert found.tokens == len(ids) - 1 and found.bytes == len(whole.encode()) - alone
    logs = loaded(whole)[0].log_softmax(-1) if len(ids) <= 64 else None
    if logs is not None:
        wanted = -logs[:-1].gather(1, torch.tensor(ids[1:])[:, None]).mean()
        assert found.loss == pytest.approx(wanted.item(), rel=1e-4)


def test_any_of_several_ends_ends_a_text(tmp_path):
    place = changed("llama3", tmp_path, generation_config={"eos_token_id": [1, 2]})
    loaded = tiny("llama3")
    loaded.tokenizer = read_tokenizer(place)
    step = loaded.model.step
    for end in (1, 2):
        bias = torch.zeros(loaded.tokenizer.vocab_size).index_fill(0, torch.tensor([end]), 1e4)

        def biased(*given, bias=bias, **how):
            logits, state = step(*given, **how)
            return logits + bias, state

        loaded.model.step = biased
        events = list(loaded.generate("a", max_new_tokens=5))
        assert [(one.finished, one.token, one.text) for one in events] == [("end", end, "")]


def test_an_encoder_reads_what_stands_around_a_text():
    loaded = tiny("bert", "bert")
    assert loaded.encode("free") == [2, *loaded.tokenizer.encode("free").ids, 3]
    run = loaded.trace("Free and EQUAL")
    assert [cell.text for cell in run.cells()] == ["[CLS]", "Free", "and", "EQUAL", "[SEP]"]
    assert run.text == "Free and EQUAL"


def test_an_encoder_decoder_reads_and_begins_as_published(tmp_path):
    place = changed("t5", tmp_path, config={"model_type": "t5", "decoder_start_token_id": 0, "eos_token_id": 1})
    tokenizer = read_tokenizer(place)
    model = gf.build("t5", vocab=tokenizer.vocab_size, dim=16, heads=2, blocks=1, context=64).model
    loaded = Loaded(model, tokenizer, "t5")
    source, target = loaded.inputs(("born free", "자유"))
    assert source[0].tolist() == [*tokenizer.encode("born free").ids, 1]
    assert target[0].tolist() == [0, *tokenizer.encode("자유").ids]
    run = loaded.trace(("Born  free", "자유"))
    assert [cell.source.strip() for cell in run.source_cells() if cell.source.strip()] == ["Born", "free"]
    assert list(loaded.generate("born free", max_new_tokens=3))


@pytest.mark.parametrize(
    ("config", "said", "begin", "ends"),
    [
        ({"model_type": "t5"}, {}, [0], [1]),
        ({"model_type": "mbart", "eos_token_id": [2, -1]}, {}, [0], [2]),
        ({"model_type": "marian", "pad_token_id": 9}, {"eos_token_id": None}, [9], [0]),
        ({"model_type": "bart"}, {"decoder_start_token_id": 7, "eos_token_id": [4, 5]}, [7], [4, 5]),
        ({"model_type": "llama", "eos_token_id": 2}, {"decoder_start_token_id": 7, "eos_token_id": None}, [], [2]),
    ],
)
def test_a_tokenizer_and_its_model_begin_and_end_alike(config, said, begin, ends, tmp_path):
    """Whether the files say it, or a family has it by itself; an empty field says nothing."""
    place = changed("t5", tmp_path, config=config, generation_config=said)
    settings, own = read_tokenizer(place).settings, own_generation(config, said)
    assert (list(settings.begin), list(settings.ends)) == (begin, ends) == (own.get("begin", []), own["ends"])


def test_the_first_blank_of_a_text_is_dropped_but_not_of_one_that_goes_on():
    made = read_cached("llama2")
    ids = made.encode("free and").ids
    assert made.decode(ids) == "free and" and made.encoding_of(ids)[0] == "free and"
    assert made.encoding_of(ids, continues=True)[0] == " free and"
    stream = made.stream(after=made.encode("born").ids)
    assert "".join(stream.push(id) for id in ids) + stream.close() == " free and"
