"""Packed corpora: exact counts, the split of nanoGPT, reuse, crash safety, and windows that depend on (seed, step)."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from difficult_text import SENTENCES, tokenizer

from glassformer.data.packed import Beginnings, Packed, batch_at, blocks, pack
from glassformer.data.tokenizer import TokenizerSpec, train_tokenizer
from glassformer.errors import CheckpointError, InputError

TEXT = "".join(SENTENCES) * 9
DATA = Path(os.environ.get("GLASSFORMER_DATA", Path(__file__).parents[3] / "shared" / "data"))
SHAKESPEARE = DATA / "tinyshakespeare" / "input.txt"


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())
    return path


@pytest.mark.parametrize("method", ["byte", "bpe", "unigram"])
def test_the_tokens_are_the_corpus(method, tmp_path, monkeypatch):
    monkeypatch.setattr("glassformer.data.packed._BLOCK_CHARS", 100)
    monkeypatch.setattr("glassformer.data.packed._BATCH_BLOCKS", 3)
    made, calls = tokenizer(method), []
    packed = pack(write(tmp_path / "a.txt", TEXT), made, tmp_path / "packed", 0.25, lambda *done: calls.append(done))
    cut = int(0.75 * len(TEXT))
    assert packed.train.tolist() == made.encode(TEXT[:cut], start=True).ids
    assert made.decode(packed.validation.tolist()) == TEXT[cut:]
    assert packed.validation[0] == made.end_id and made.end_id not in packed.validation[1:]
    assert packed.train_documents == packed.validation_documents == 1
    assert packed.train_bytes == len(TEXT[:cut].encode()) and packed.validation_bytes == len(TEXT[cut:].encode())
    assert packed.train.dtype == np.uint16 and not packed.train.flags.writeable
    assert calls[-1] == (len(TEXT.encode()),) * 2 and calls == sorted(calls)


def test_the_end_token_stands_before_every_file(tmp_path):
    made = tokenizer("byte")
    for name, text in {"a.txt": "하나", "b/c.txt": "둘", "d.txt": "셋!"}.items():
        write(tmp_path / "corpus" / name, text)
    packed = pack(tmp_path / "corpus", made, tmp_path / "packed", 0)
    end = [made.end_id]
    assert packed.train.tolist() == [*end, *"하나".encode(), *end, *"둘".encode(), *end, *"셋!".encode()]
    assert len(packed.validation) == 0 and packed.train_bytes == len("하나둘셋!".encode())
    assert (packed.train_documents, packed.validation_documents) == (3, 0)


@pytest.mark.parametrize("block", [2, 3, 1000])
@pytest.mark.parametrize("kept", range(13))
def test_both_parts_begin_with_the_end_token_wherever_the_cut_falls(tmp_path, monkeypatch, block, kept):
    monkeypatch.setattr("glassformer.data.packed._BLOCK_CHARS", block)
    made, texts = tokenizer("byte"), ["abcdef", "ghi", "jkl"]
    for place, text in enumerate(texts):
        write(tmp_path / "corpus" / f"{place}.txt", text)
    packed = pack(tmp_path / "corpus", made, tmp_path / "packed", 1 - (kept + 0.5) / 12 if kept < 12 else 0)

    def tokens(parts):
        return [token for part in parts if part for token in (made.end_id, *part.encode())]

    edges = [0, 6, 9, 12]
    train = [text[: max(kept - first, 0)] for text, first in zip(texts, edges, strict=False)]
    rest = [text[max(kept - first, 0) :] for text, first in zip(texts, edges, strict=False)]
    assert (packed.train.tolist(), packed.validation.tolist()) == (tokens(train), tokens(rest))
    assert (packed.train_documents, packed.validation_documents) == (sum(map(bool, train)), sum(map(bool, rest)))


def test_a_validation_corpus_of_its_own(tmp_path):
    made = tokenizer("byte")
    train, other = write(tmp_path / "a.txt", "하나"), write(tmp_path / "b.txt", "둘")
    packed = pack(train, made, tmp_path / "packed", other)
    assert packed.train.tolist() == [made.end_id, *"하나".encode()]
    assert packed.validation.tolist() == [made.end_id, *"둘".encode()]
    assert (packed.train_bytes, packed.validation_bytes) == (6, 3)
    write(other, "")
    with pytest.raises(InputError, match=r"b\.txt: empty"):
        pack(train, made, tmp_path / "packed", other)


def test_reused_when_nothing_changed_and_rebuilt_when_anything_did(tmp_path):
    made, calls = tokenizer("byte"), []
    source = write(tmp_path / "a.txt", TEXT)

    def again(**changed):
        calls.clear()
        settings = {"tokenizer": made, "validation": 0.1} | changed
        packed = pack(source, folder=tmp_path / "packed", progress=lambda *done: calls.append(done), **settings)
        return packed.fingerprint, bool(calls)

    first, built = again()
    assert built and again() == (first, False)
    other, built = again(validation=0.2)
    assert built and other != first and again(validation=0.2) == (other, False)
    assert again(tokenizer=tokenizer("bpe"))[1]
    assert again() == (first, True), "the same corpus has the same fingerprint"
    status = source.stat()
    write(source, TEXT.replace("3.14", "2.72"))
    os.utime(source, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    changed, built = again()
    assert built and changed != first
    (only,) = (tmp_path / "packed").glob("tokens-*")
    assert only.name == f"tokens-{changed}.bin", "what is no longer used is deleted"
    only.write_bytes(only.read_bytes()[:-2])
    with pytest.raises(CheckpointError, match="no whole packed corpus"):
        Packed.open(tmp_path / "packed")
    assert again() == (changed, True)


def test_an_interruption_leaves_the_old_corpus(tmp_path):
    made = tokenizer("byte")
    source = write(tmp_path / "a.txt", TEXT)
    old = pack(source, made, tmp_path / "packed")
    write(source, TEXT * 2)

    def stop(*done):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pack(source, made, tmp_path / "packed", progress=stop)
    assert Packed.open(tmp_path / "packed").train.tolist() == old.train.tolist()
    assert len(list((tmp_path / "packed").iterdir())) == 2


def test_broken_folders_are_refused(tmp_path):
    with pytest.raises(CheckpointError, match="no whole packed corpus"):
        Packed.open(tmp_path)
    pack(write(tmp_path / "a.txt", TEXT), tokenizer("byte"), tmp_path)
    index = json.loads((tmp_path / "index.json").read_text())
    for broken in ("", "[]", json.dumps(index | {"format": 99}), json.dumps(index | {"dtype": "nonsense"})):
        (tmp_path / "index.json").write_text(broken)
        with pytest.raises(CheckpointError, match="delete it and pack again"):
            Packed.open(tmp_path)


def test_shares_out_of_range_are_refused(tmp_path):
    for share in (1, -0.1, 1.5):
        with pytest.raises(InputError, match=r"validation: .* from 0 to below 1"):
            pack(write(tmp_path / "a.txt", TEXT), tokenizer("byte"), tmp_path, share)


def test_large_vocabularies_get_wider_numbers(tmp_path):
    made = train_tokenizer(TokenizerSpec(method="char", vocab=1 << 17), write(tmp_path / "a.txt", every_character()))
    packed = pack(tmp_path / "a.txt", made, tmp_path, 0)
    assert packed.train.dtype == np.uint32 and packed.train[1:].max() == made.vocab_size - 2 > 1 << 16


def every_character():
    return "".join(map(chr, [*range(1, 0xD800), *range(0xE000, 0x14000)]))


def test_batches_depend_on_seed_and_step_alone():
    tokens = np.arange(500, dtype=np.uint16)
    inputs, targets = batch_at(tokens, step=3, batch=4, block=16, seed=1)
    assert inputs.shape == targets.shape == (4, 16) and inputs.dtype == targets.dtype == np.int64
    assert (targets == inputs + 1).all() and (np.diff(inputs, axis=1) == 1).all()
    assert (batch_at(tokens, 3, 4, 16, 1)[0] == inputs).all()
    for step, seed in ((4, 1), (3, 2), (1, 3)):
        assert (batch_at(tokens, step, 4, 16, seed)[0] != inputs).any()


def test_an_epoch_takes_each_window_once():
    tokens, block, batch = np.arange(1003), 10, 9
    windows = (len(tokens) - 1) // block - 1
    firsts = [int(row[0]) for step in range(2 * windows // batch) for row in batch_at(tokens, step, batch, block, 0)[0]]
    epochs = [firsts[i : i + windows] for i in range(0, windows + 1, windows)]
    for epoch in epochs:
        assert np.diff(sorted(epoch)).tolist() == [block] * (len(epoch) - 1) and epoch != sorted(epoch)
    assert epochs[0][: len(epochs[1])] != epochs[1], "each epoch has its own order"


def test_windows_reach_both_ends():
    tokens = np.arange(12)
    firsts = {int(row[0]) for step in range(50) for row in batch_at(tokens, step, 8, 8, 0)[0]}
    assert firsts == {0, 1, 2, 3}, "12 tokens hold four windows of eight with a target after each"
    assert batch_at(np.arange(9), 0, 1, 8, 0)[1].tolist() == [[1, 2, 3, 4, 5, 6, 7, 8]]
    with pytest.raises(InputError, match=r"8 tokens, too few for windows of 8 .* at most 7"):
        batch_at(np.arange(8), 0, 1, 8, 0)


# ------------------------------------------------------------ windows that begin as documents do


def begun(text, block, share, step=0, batch=8, made=None):
    made = made or tokenizer("byte")
    tokens, begin = np.array(made.encode(text).ids, np.uint16), Beginnings.of(made, share)
    plain, other = (batch_at(tokens, step, batch, block, 0, given) for given in (None, begin))
    return made, tokens, begin.chosen(step * batch + np.arange(batch)), plain, other


@pytest.mark.parametrize("share", [0, 1 / 16, 0.3, 1])
def test_a_share_of_the_windows_begins_with_the_end_token(share):
    count = 0
    for step in range(30):
        made, _, chosen, plain, (inputs, targets) = begun(TEXT, 16, share, step)
        assert ((inputs[:, 0] == made.end_id) == chosen).all() and (inputs[:, 1:] == targets[:, :-1]).all()
        for found, usual in zip((inputs, targets), plain, strict=True):
            assert (found[~chosen] == usual[~chosen]).all(), "the others stay as they are"
        assert made.end_id not in targets
        count += chosen.sum()
    assert count == int(240 * share)


def test_a_window_begins_where_a_document_line_or_word_does():
    made = tokenizer("byte")
    begin = Beginnings.of(made, 1)

    def first(text, start=0, block=12, end=None):
        ids = made.encode(text).ids
        tokens = np.array([made.end_id if place == end else one for place, one in enumerate(ids)], np.uint16)
        window = begin.window(tokens, start, block)
        assert window[0] == made.end_id and len(window) == block + 1
        return made.decode(window[1:].tolist())

    text = "one two\n three\nfour five six seven"
    assert first(text, block=16) == "four five six se", "a line that does not begin with a blank"
    assert first(text, block=8) == "two\n thr", "else a word"
    assert first("one two\nthree four five six", end=1) == "e two\nthree ", "a document before all"
    assert first("고양이가생선을먹었다", 1, 4).startswith("⟨"), "else any token"
    assert first("one two three four", 3, 12) == "two three fo", "and never beyond the end"
    assert first("one twothree f\nr", 3, 12) == "twothree f\nr"
    assert first("one-twothree f\nr", 3, 12) == "twothree f\nr"


def test_windows_that_begin_so_hold_the_corpus():
    """With pieces of words too: what follows the end token is the text from that place on."""
    made = tokenizer("bpe")
    _, tokens, _, _, (inputs, targets) = begun(TEXT, 8, 1, made=made)
    text = tokens.tolist()
    for window in np.concatenate([inputs[:, 1:], targets[:, -1:]], 1).tolist():
        assert any(text[place : place + 8] == window for place in range(len(text)))


@pytest.mark.parametrize("count", [2, 8, 9, 10, 17, 40, 41, 42, 100])
def test_blocks_make_every_token_a_target_once(count):
    found = list(blocks(np.arange(count, dtype=np.uint16), block=8, batch=2))
    assert np.concatenate([targets.ravel() for _, targets in found]).tolist() == list(range(1, count))
    assert all((targets == inputs + 1).all() and inputs.dtype == np.int64 for inputs, targets in found)
    assert all(inputs.shape[1] == 8 and len(inputs) <= 2 for inputs, _ in found[:-1])
    with pytest.raises(InputError, match="1 tokens"):
        next(blocks(np.arange(1), 8))


@pytest.mark.skipif(not SHAKESPEARE.exists(), reason=f"needs {SHAKESPEARE} (set GLASSFORMER_DATA)")
def test_the_split_of_nanogpt(tmp_path):
    made = train_tokenizer(TokenizerSpec(method="char"), SHAKESPEARE)
    packed = pack(SHAKESPEARE, made, tmp_path)
    assert made.vocab_size == 65 + 1
    assert (len(packed.train), len(packed.validation)) == (1 + 1_003_854, 1 + 111_540)
    assert made.decode(packed.train[:15].tolist()) == "First Citizen:"


@pytest.mark.parametrize("share", [0, 0.5])
def test_a_file_without_text_is_no_document(tmp_path, share):
    made = tokenizer("byte")
    for name, text in {"b.txt": "hello", "d.txt": "world"}.items():
        write(tmp_path / "corpus" / name, text)
    plain = pack(tmp_path / "corpus", made, tmp_path / "plain", share)
    for name, text in {"a.txt": "", "c.txt": "\ufeff", "e.txt": ""}.items():
        write(tmp_path / "corpus" / name, text)
    padded = pack(tmp_path / "corpus", made, tmp_path / "padded", share)
    for part in ("train", "validation"):
        assert getattr(padded, part).tolist() == getattr(plain, part).tolist()
    assert padded.fingerprint == plain.fingerprint
    both = [*plain.train.tolist(), *plain.validation.tolist()]
    assert both == [made.end_id, *b"hello", made.end_id, *b"world"]


def test_only_tokens_of_ours_give_way_to_new_ones(tmp_path):
    made, folder = tokenizer("byte"), tmp_path / "packed"
    write(folder / "tokens-of-mine.bin", "mine")
    first = pack(write(tmp_path / "a.txt", TEXT), made, folder)
    pack(write(tmp_path / "a.txt", TEXT + "more"), made, folder)
    names = {path.name for path in folder.iterdir()}
    assert "tokens-of-mine.bin" in names and f"tokens-{first.fingerprint}.bin" not in names and len(names) == 3
