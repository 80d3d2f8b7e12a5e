"""The sliding evaluation: every token is predicted once, from the overlap at least."""

import numpy as np
import pytest
import torch
from published_shapes import folder

from glassformer.api import Loaded
from glassformer.data.folder import read_tokenizer
from glassformer.errors import InputError
from glassformer.mixers.attention import AttentionSpec
from glassformer.model import BlockSpec, ModelSpec, build_model
from glassformer.nn.position import RopeSpec
from glassformer.train.evaluate import sliding_loss, token_loss


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(3)
    block = BlockSpec(mixer=AttentionSpec(heads=2, position=RopeSpec()))
    return build_model(ModelSpec(vocab=31, dim=16, context=16, blocks=(block,) * 2)).eval()


def one_window_at_a_time(model, ids, block, seen):
    """The same sum, written as a loop that never batches."""
    total, done = 0.0, 0
    while done < len(ids) - 1:
        start = max(0, done - seen)
        window = torch.from_numpy(ids[start : start + block + 1])[None]
        with torch.no_grad():
            losses = token_loss(model(window[:, :-1]), window[:, 1:], "none")
        total += losses[done - start :].sum().item()
        done = start + window.shape[1] - 1
    return total


@pytest.mark.parametrize("count", [2, 15, 16, 17, 18, 25, 33, 200])
@pytest.mark.parametrize("overlap", [0.0, 0.25, 0.5])
def test_windows_in_batches_equal_one_at_a_time(model, count, overlap):
    ids = np.random.default_rng(count).integers(0, 31, count)
    found = sliding_loss(model, ids, 16, overlap, batch=3)
    assert found == pytest.approx(one_window_at_a_time(model, ids, 16, int(16 * overlap)), rel=1e-5)


def test_an_overlap_gives_tokens_more_to_go_by(model):
    """With an overlap the first token of a later window is no longer predicted from one token alone."""
    ids = np.random.default_rng(0).integers(0, 31, 100)
    assert sliding_loss(model, ids, 16, 0.5) != pytest.approx(sliding_loss(model, ids, 16, 0.0), rel=1e-6)


@pytest.mark.parametrize("overlap", [1.0, 1.5, -0.1, float("nan")])
def test_an_overlap_that_leaves_nothing_to_predict_is_refused(model, overlap):
    with pytest.raises(InputError, match=r"^overlap: .* from 0 to below 1"):
        sliding_loss(model, np.arange(30) % 31, 16, overlap)


@pytest.mark.parametrize("count", [1, 2, 16, 17, 18, 33, 200])
@pytest.mark.parametrize("size", [1, 3, 17, 50])
@pytest.mark.parametrize("overlap", [0.0, 0.5, 0.9])
def test_pieces_equal_the_whole(model, count, size, overlap):
    ids = np.random.default_rng(count).integers(0, 31, count)
    pieces = (ids[i : i + size] for i in range(0, count, size))
    assert sliding_loss(model, pieces, 16, overlap, batch=3) == sliding_loss(model, ids, 16, overlap, batch=3)


@pytest.mark.parametrize("shape", ["gpt2", "llama3", "t5", "bert"])
@pytest.mark.parametrize("texts", [["별이 빛난다. A star shines."], ["고양이가 생선을 먹었다.", "The cat ate.", "é"]])
def test_the_bytes_that_count_are_those_that_were_predicted(shape, texts, tmp_path):
    """Against a sum over each file in one window: without a token before the text, the first one is not predicted, and
    neither are its bytes."""
    tokenizer = read_tokenizer(folder(shape))
    torch.manual_seed(3)
    block = BlockSpec(mixer=AttentionSpec(heads=2, position=RopeSpec()))
    spec = ModelSpec(vocab=tokenizer.vocab_size, dim=16, context=64, blocks=(block,))
    loaded, losses, size = Loaded(build_model(spec).eval(), tokenizer), [], 0
    for number, text in enumerate(texts):
        (tmp_path / f"{number}.txt").write_text(text, encoding="utf-8")
        made = tokenizer.encode(text, start=True)
        with torch.no_grad():
            logs = loaded.model(torch.tensor([made.ids]))[0].double().log_softmax(-1)
        losses += [-float(logs[place, id]) for place, id in enumerate(made.ids[1:])]
        first = 0 if tokenizer.start else made.byte_offsets[0][1]
        size += len(text.encode()) - first
    assert (size < sum(len(text.encode()) for text in texts)) == (shape == "gpt2" or (shape == "t5" and len(texts) > 1))
    found = loaded.evaluate(tmp_path)
    assert (found.tokens, found.bytes) == (len(losses), size)
    assert found.bits_per_byte == pytest.approx(sum(losses) / np.log(2) / size, rel=1e-5)
    assert found.loss == pytest.approx(np.mean(losses), rel=1e-5)


def test_a_file_of_one_token_has_none_to_predict(tmp_path):
    tokenizer = read_tokenizer(folder("gpt2"))
    block = BlockSpec(mixer=AttentionSpec(heads=2))
    loaded = Loaded(build_model(ModelSpec(vocab=tokenizer.vocab_size, dim=16, context=64, blocks=(block,))), tokenizer)
    assert not tokenizer.start and len(tokenizer.encode("a").ids) == 1
    (tmp_path / "one.txt").write_text("a")
    with pytest.raises(
        InputError, match=r"one\.txt: one token, and the first of a file is not predicted; give a longer"
    ):
        loaded.evaluate(tmp_path / "one.txt")
    (tmp_path / "one.txt").write_text("")
    with pytest.raises(InputError, match=r"one\.txt: empty; there is no text in it"):
        loaded.evaluate(tmp_path / "one.txt")
