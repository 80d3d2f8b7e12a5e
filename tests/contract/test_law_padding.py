"""The laws of padding by -1 and of packed documents: company in the batch changes nothing."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from quick import quick_share

from contract.cases import CASES, CAUSAL, ONE_STACK, assert_same, built, kept, run, start, stepped, tokens_of
from glassformer.edit import mean
from glassformer.mask import pad_left
from glassformer.tap import Probe


@st.composite
def ragged(draw, longest: int = 9):
    """(batch `b t` of ids, positions with -1 in places anywhere, cuts): rows of different length with gaps."""
    t = draw(st.integers(2, longest))
    masks = draw(st.lists(st.lists(st.booleans(), min_size=t, max_size=t).filter(any), min_size=2, max_size=3))
    there = torch.tensor(masks)
    pos = torch.where(there, there.long().cumsum(1) - 1, -1)
    return tokens_of(len(masks), t, draw(st.integers(0, 3))), pos, sorted(draw(st.sets(st.integers(1, t - 1))))


def alone(model, tokens, pos):
    """Every row by itself without its padding, as a list."""
    return [run(model, tokens[i, pos[i] >= 0][None], row=i)[0] for i in range(len(tokens))]


def assert_rows(found, pos, wanted):
    for i, row in enumerate(wanted):
        assert_same(found[i, pos[i] >= 0], row)


@pytest.mark.parametrize("name", quick_share(CASES, 4, 0))
@given(batch=ragged())
def test_places_without_a_token_change_nothing(name, batch):
    tokens, pos, cuts = batch
    model = kept(name)
    with torch.no_grad():
        wanted = alone(model, tokens, pos)
        assert_rows(run(model, tokens, pos=pos), pos, wanted)
        if name in CAUSAL:
            assert_rows(stepped(model, tokens, cuts, pos=pos), pos, wanted)


@pytest.mark.parametrize(
    ("name", "packed"),
    quick_share([(name, packed) for name in CAUSAL for packed in (False, True) if not packed or name in ONE_STACK], 3),
)
@pytest.mark.parametrize("side", ["left", "right"])
def test_ragged_prompts_then_decoding_without_positions(name, side, packed):
    """After a prompt of two chunks, padded on either side, each row goes on with its own next position."""
    model, tail = kept(name), tokens_of(3, 3, seed=7)

    def document(t):
        return {"segments": torch.ones(3, t, dtype=torch.long)} if packed else {}

    rows = [tokens_of(1, n, seed=n)[0].tolist() for n in (6, 2, 4)]
    tokens, pos = pad_left(rows)
    if side == "right":
        turn = (pos < 0).sum(1, keepdim=True) + torch.arange(6)
        tokens, pos = (x.gather(1, turn % 6) for x in (tokens, pos))
        assert pos[1].tolist() == [0, 1, -1, -1, -1, -1]
    with torch.no_grad():
        _, state = model.step(tokens[:, :4], start(model, 3, 9, packed), pos=pos[:, :4], **document(4))
        _, state = model.step(tokens[:, 4:], state, pos=pos[:, 4:], **document(2))
        assert state.next_pos.tolist() == [6, 2, 4]
        one, state = model.step(tail[:, :1], state, **document(1))
        two, state = model.step(tail[:, 1:], state, **document(2))
    assert state.next_pos.tolist() == [9, 5, 7]
    for i, row in enumerate(rows):
        whole = torch.tensor([row + tail[i].tolist()])
        with torch.no_grad():
            assert_same(torch.cat((one, two), 1)[i], run(model, whole, row=i)[0, len(row) :])


@pytest.mark.parametrize("name", quick_share(CASES, 3, 2))
def test_gradients_of_a_padded_batch_are_the_sum_of_the_rows(name):
    model = built(name)
    tokens = tokens_of(2, 7)
    pos = torch.tensor([[-1, -1, -1, 0, 1, 2, 3], [0, 1, 2, 3, 4, -1, -1]])
    parameters = list(model.parameters())
    found = torch.autograd.grad(run(model, tokens, pos=pos)[pos >= 0].square().sum(), parameters)
    wanted = torch.autograd.grad(sum(row.square().sum() for row in alone(model, tokens, pos)), parameters)
    largest = max(g.abs().max() for g in wanted)
    for (label, _), a, b in zip(model.named_parameters(), found, wanted, strict=True):
        assert (a - b).abs().max() <= 1e-5 * largest, label


MEANS = [
    *("mixer-plain", "mixer-relative", "mixer-smear", "mixer-full", "mixer-sink", "embed-learned", "channel-experts"),
    *("mixer-gru", "mixer-lstm-both", "mixer-conv-centred", "mixer-fourier", "mixer-bag"),
    *("mixer-s4d", "mixer-mamba", "mixer-mamba2"),
]


def means(name):
    """An edit for each value that has positions: its mean in its place."""
    probe = Probe()
    run(kept(name), tokens_of(1, 2), probe=probe)
    return [mean(full) for full, axes in probe.axes.items() if {"t", "s"} & set(axes.split())]


@torch.no_grad()
@pytest.mark.parametrize("name", quick_share([*MEANS, "cross-plain"], 2, 1))
def test_a_mean_is_taken_over_the_tokens_that_are_there(name):
    model, tokens = kept(name), tokens_of(2, 7)
    pos = torch.tensor([[-1, -1, -1, 0, 1, 2, 3], [0, 1, -1, 2, 3, 4, -1]])
    for edit in means(name):
        found = run(model, tokens, pos=pos, probe=Probe(edits=(edit,)))
        for i, there in enumerate(pos >= 0):
            wanted = run(model, tokens[i, there][None], row=i, probe=Probe(edits=(edit,)))
            assert_same(found[i, there], wanted[0])


@torch.no_grad()
@pytest.mark.parametrize("name", quick_share(MEANS, 2, 0))
def test_a_mean_is_taken_over_the_tokens_of_the_same_document(name):
    model, tokens = kept(name), tokens_of(1, 7)
    pos, segments = torch.tensor([[0, 1, 2, 0, 1, 2, -1]]), torch.tensor([[-1, -1, -1, 4, 4, 4, 4]])
    for edit in means(name):
        found = run(model, tokens, pos=pos, segments=segments, probe=Probe(edits=(edit,)))
        for place in (slice(0, 3), slice(3, 6)):
            assert_same(found[:, place], run(model, tokens[:, place], probe=Probe(edits=(edit,))))


@st.composite
def packed(draw):
    """(lengths of the documents of each of two rows, cuts)."""
    rows = draw(st.lists(st.lists(st.integers(1, 5), min_size=1, max_size=3), min_size=2, max_size=2))
    t = max(sum(row) for row in rows)
    return rows, sorted(draw(st.sets(st.integers(1, t - 1)))) if t > 1 else []


@pytest.mark.parametrize("name", quick_share(ONE_STACK, 4, 1))
@given(batch=packed())
def test_packed_documents_equal_separate_ones(name, batch):
    rows, cuts = batch
    t = max(sum(row) for row in rows)
    tokens, pos, segments = tokens_of(2, t), torch.full((2, t), -1), torch.zeros(2, t, dtype=torch.long)
    places = []
    for i, lengths in enumerate(rows):
        begin = 0
        for number, n in enumerate(lengths):
            place = (i, slice(begin, begin + n))
            pos[place], segments[place] = torch.arange(n), number + 1
            places.append(place)
            begin += n
    model = kept(name)
    with torch.no_grad():
        forms = [run(model, tokens, pos=pos, segments=segments)]
        if name in CAUSAL:
            forms.append(stepped(model, tokens, cuts, pos=pos, segments=segments))
        for place in places:
            wanted = run(model, tokens[place][None])[0]
            for found in forms:
                assert_same(found[place], wanted)
