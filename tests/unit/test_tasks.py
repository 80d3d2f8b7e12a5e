"""The tasks are what their papers describe."""

import math

import pytest
import torch

from glassformer.data.tasks import (
    ADDING_BASELINE,
    adding,
    copy_baseline,
    copy_memory,
    first_of_two,
    looking_back,
    repeated,
    temporal_order,
)


def drawn(seed=0):
    return torch.Generator().manual_seed(seed)


def test_temporal_order_is_task_6a():
    generator = drawn()
    batches = [temporal_order(50, generator) for _ in range(60)]
    firsts, seconds = set(), set()
    for batch in batches:
        for text, wanted in zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True):
            assert text[0] == 6 and text[-1] == 7 and text.count(6) == text.count(7) == 1
            places = [i for i, symbol in enumerate(text) if symbol in (4, 5)]
            assert len(places) == 2 and [text[i] - 4 for i in places] == [wanted // 2, wanted % 2]
            firsts.add(places[0]), seconds.add(places[1])
    assert {batch.inputs.shape[1] for batch in batches} == set(range(100, 111))
    assert (firsts, seconds) == (set(range(10, 21)), set(range(50, 61)))
    assert torch.bincount(torch.cat([batch.targets for batch in batches]), minlength=4).min() > 600


def test_adding_marks_one_number_in_each_half():
    batch = adding(300, 21, drawn())
    values, marks = batch.inputs.unbind(-1)
    assert (
        (marks[:, :10].sum(1) == 1).all()
        and (marks[:, 10:].sum(1) == 1).all()
        and set(marks.unique().tolist()) == {0, 1}
    )
    assert torch.allclose(batch.targets, (values * marks).sum(1)) and 0 <= values.min() and values.max() <= 1
    assert (batch.targets - 1).square().mean().item() == pytest.approx(ADDING_BASELINE, rel=0.15)
    with pytest.raises(ValueError, match="two halves"):
        adding(1, 1, drawn())


def test_copy_memory_repeats_the_letters_at_the_end():
    batch = copy_memory(50, 30, drawn())
    assert batch.inputs.shape == batch.targets.shape == (50, 50)
    letters = batch.inputs[:, :10]
    assert letters.min() >= 1 and letters.max() <= 8 and len(letters.unique()) == 8
    assert torch.equal(batch.targets[:, -10:], letters) and (batch.targets[:, :-10] == 0).all()
    assert (batch.inputs[:, 10:39] == 0).all() and (batch.inputs[:, 39:] == 9).all()
    chance = torch.full((50, 50, 10), -1e9)
    chance[:, :-10, 0], chance[:, -10:, 1:9] = 0.0, 0.0
    loss = torch.nn.functional.cross_entropy(chance.flatten(0, 1), batch.targets.flatten())
    assert loss.item() == pytest.approx(copy_baseline(30)) == pytest.approx(10 * math.log(8) / 50)


def test_repeated_rows_come_again_with_a_length_of_their_own():
    some = repeated(400, 20, 12, drawn(), least=3)
    lengths = set()
    for row, known in zip(some.tokens.tolist(), some.known.tolist(), strict=True):
        length = next(k for k in range(1, 20) if row[k:] == row[: 20 - k])
        assert len(set(row[:length])) == length and length <= 10
        assert known == [row[t - 1] in row[: t - 1] if t else False for t in range(20)]
        lengths.add(length)
    assert lengths == set(range(3, 11)) and set(some.tokens.unique().tolist()) == set(range(12))
    with pytest.raises(ValueError, match="no run of 11"):
        repeated(1, 20, 12, drawn(), least=11)


def test_of_two_marks_the_first_is_told_and_order_alone_tells_it():
    batch = first_of_two(401, 12, 8, drawn())
    x, y = ((batch.inputs == mark).nonzero() for mark in (5, 6))
    assert x[:, 0].tolist() == y[:, 0].tolist() == list(range(401)) and (batch.inputs[:, -1] == 7).all()
    assert torch.equal(batch.targets, (y[:, 1] < x[:, 1]).long())
    assert {*x[:, 1].tolist()} == {*y[:, 1].tolist()} == set(range(11))
    swapped = batch.inputs.clone()
    swapped[batch.inputs == 5], swapped[batch.inputs == 6] = 6, 5
    assert torch.equal(swapped[:200], batch.inputs[201:]) and torch.equal(1 - batch.targets[:200], batch.targets[201:])


def test_a_batch_follows_from_its_seed():
    rows = [repeated(5, 20, 12, drawn(seed)).tokens for seed in (1, 1, 2)]
    assert torch.equal(rows[0], rows[1]) and not torch.equal(rows[0], rows[2])
    tasks = [lambda g: temporal_order(5, g), lambda g: adding(5, 20, g), lambda g: copy_memory(5, 20, g)]
    tasks += [lambda g: looking_back(5, 20, 9, (2,), g), lambda g: first_of_two(5, 20, 9, g)]
    for task in tasks:
        one, same, other = (task(drawn(seed)).inputs for seed in (1, 1, 2))
        assert torch.equal(one, same) and (one.shape != other.shape or not torch.equal(one, other))
