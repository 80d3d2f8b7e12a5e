"""The sliding evaluation: every token is predicted once, from the overlap at least."""

import numpy as np
import pytest
import torch

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
