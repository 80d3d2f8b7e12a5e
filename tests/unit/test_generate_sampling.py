"""The mathematics of choosing a token, each against an independent slow version in numpy."""

import numpy as np
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from glassformer.generate import GenerateSpec
from glassformer.generate.sampling import drawn, filtered, min_p, penalised, tempered, top_k, top_p

NUMBERS = st.floats(-8, 8, allow_nan=False).map(lambda x: round(x, 2))  # rounded, so that equals occur
ROWS = st.integers(1, 12).flatmap(lambda v: st.lists(st.lists(NUMBERS, min_size=v, max_size=v), min_size=1, max_size=3))
SHARES = st.floats(0.01, 1)


def softmax(row):
    e = np.exp(np.array(row) - max(row))
    return e / e.sum()


def kept(logits: torch.Tensor) -> list[list[bool]]:
    return (~logits.isneginf()).tolist()


@settings(max_examples=60)
@given(ROWS, st.floats(0.05, 20))
def test_temperature(rows, temperature):
    got = tempered(torch.tensor(rows, dtype=torch.float64), temperature).softmax(-1)
    for one, row in zip(got.numpy(), rows, strict=True):
        np.testing.assert_allclose(one, softmax([x / temperature for x in row]), rtol=1e-9, atol=1e-12)


def test_the_lowest_temperature_is_greedy_without_overflow():
    logits = torch.tensor([[3e4, -3e4, 2.9e4]])
    assert tempered(logits, 1e-4).softmax(-1).tolist() == [[1.0, 0.0, 0.0]]


@settings(max_examples=60)
@given(ROWS, st.integers(1, 15))
def test_top_k(rows, k):
    got = top_k(torch.tensor(rows, dtype=torch.float64), k)
    for one, row in zip(kept(got), rows, strict=True):
        # A token stays where fewer than k are strictly larger.
        assert one == [sum(y > x for y in row) < k for x in row]


@settings(max_examples=60)
@given(ROWS, SHARES)
def test_top_p(rows, p):
    got = top_p(torch.tensor(rows, dtype=torch.float64), p)
    for one, row in zip(kept(got), rows, strict=True):
        probability, expected = softmax(row), [False] * len(row)
        total = 0.0
        for i in sorted(range(len(row)), key=lambda i: (-row[i], i)):
            assume(p == 1 or abs(total - p) > 1e-9)  # at the border itself rounding decides
            expected[i] = total < p or p == 1
            total += probability[i]
        assert one == expected


def test_the_nucleus_takes_equals_by_their_id():
    assert kept(top_p(torch.zeros(1, 2000), 0.1001))[0] == [i < 201 for i in range(2000)]


@settings(max_examples=60)
@given(ROWS, st.floats(0, 1))
def test_min_p(rows, share):
    got = min_p(torch.tensor(rows, dtype=torch.float64), share)
    for one, row in zip(kept(got), rows, strict=True):
        probability = softmax(row)
        assume(all(abs(x - share * probability.max()) > 1e-9 or share == 1 for x in probability))
        assert one == [bool(x >= share * probability.max()) for x in probability]


@settings(max_examples=60)
@given(ROWS, st.floats(0.2, 5), st.data())
def test_repetition_penalty(rows, penalty, data):
    seen = [[data.draw(st.booleans()) for _ in row] for row in rows]
    got = penalised(torch.tensor(rows, dtype=torch.float64), torch.tensor(seen), penalty)
    for one, row, marks in zip(got.tolist(), rows, seen, strict=True):
        expected = [(x / penalty if x > 0 else x * penalty) if mark else x for x, mark in zip(row, marks, strict=True)]
        np.testing.assert_allclose(one, expected)
        if penalty > 1:
            assert all(after <= before for after, before in zip(one, row, strict=True))


@settings(max_examples=60)
@given(ROWS, st.floats(0.1, 3), st.integers(1, 12), SHARES, st.floats(0, 1))
def test_no_filter_removes_the_most_probable_token(rows, temperature, k, p, share):
    logits = torch.tensor(rows, dtype=torch.float64)
    spec = GenerateSpec(temperature=temperature, top_k=k, top_p=p, min_p=share)
    got = filtered(logits, spec)
    assert (got.argmax(-1) == logits.argmax(-1)).all() and not got.isnan().any()


def test_the_filters_act_in_the_documented_order():
    logits = torch.tensor([[4.0, 3.0, 2.0, 1.0, 0.0]])
    # After top-k = 2 the first token alone has 0.73 of what is left; before it, with 0.64, the second would stay too.
    assert kept(filtered(logits, GenerateSpec(temperature=1.0, top_k=2, top_p=0.7))) == [[True] + [False] * 4]
    assert kept(filtered(logits, GenerateSpec(temperature=1.0, top_p=0.7))) == [[True, True] + [False] * 3]
    # The temperature comes first: at 2 the first has 0.62 of the two.
    assert kept(filtered(logits, GenerateSpec(temperature=2.0, top_k=2, top_p=0.7))) == [[True, True] + [False] * 3]
    # min-p compares after the temperature: e^(-1/2) = 0.61.
    assert kept(filtered(logits, GenerateSpec(temperature=2.0, min_p=0.6)))[0] == [True, True, False, False, False]


def test_drawn_tokens_have_the_distribution():
    generator = torch.Generator().manual_seed(0)
    logits, draws = torch.tensor([2.0, 1.0, 0.0, -torch.inf, -2.0, 1.0]), 40_000
    counts = drawn(logits.expand(draws, 6), torch.rand(draws, 6, generator=generator)).bincount(minlength=6).numpy()
    expected = logits.softmax(-1).numpy() * draws
    assert counts[3] == 0
    chi2 = ((counts - expected)[expected > 0] ** 2 / expected[expected > 0]).sum()
    assert chi2 < 18.5  # 4 degrees of freedom, p = 0.001


def test_the_only_token_left_is_drawn_even_with_the_worst_number():
    assert drawn(torch.tensor([[-torch.inf, 0.0]]), torch.tensor([[0.9, 0.0]])).tolist() == [1]
