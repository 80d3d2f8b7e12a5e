"""State: written once for every past."""

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from glassformer.state import Last, Nothing, State, before, written


@dataclass(eq=False)
class Two(State):
    a: Tensor
    inner: State
    many: tuple[Tensor, ...] = ()
    length: int = 0


def example() -> Two:
    return Two(torch.arange(6.0).reshape(3, 2), Two(torch.arange(3), Nothing()), (torch.ones(3, 1),), 7)


def test_take_consumes():
    state = example()
    assert state.take() is state
    with pytest.raises(RuntimeError, match=r"already consumed.*state\.clone\(\)"):
        state.take()


def test_clone_copies_every_tensor_and_is_fresh():
    state = example()
    copy = state.clone()
    copy.a.zero_()
    copy.inner.a.zero_()
    copy.many[0].zero_()
    assert state.a.sum() == 15 and state.inner.a.sum() == 3 and state.many[0].sum() == 3
    assert copy.length == 7
    copy.take()
    assert not state.used
    with pytest.raises(AssertionError):
        copy.clone()
    with pytest.raises(AssertionError, match="cannot be reordered"):
        copy.reorder(torch.tensor([0]))


def test_reorder_and_nbytes():
    state = example().reorder(torch.tensor([2, 2, 0, 1]))
    assert state.a.tolist() == [[4, 5], [4, 5], [0, 1], [2, 3]] and state.inner.a.tolist() == [2, 2, 0, 1]
    assert state.many[0].shape == (4, 1) and state.length == 7
    assert example().nbytes == 3 * 2 * 4 + 3 * 8 + 3 * 4


def test_written_is_in_place_unless_gradients_flow():
    buffer, new = torch.zeros(1, 4, 2), torch.ones(1, 2, 2)
    with torch.no_grad():
        assert written(buffer, 1, new) is buffer
    assert buffer[0, :, 0].tolist() == [0, 1, 1, 0]
    copied = written(buffer, 2, new.requires_grad_())
    assert copied is not buffer and copied[0, :, 0].tolist() == [0, 1, 1, 1]
    assert buffer[0, :, 0].tolist() == [0, 1, 1, 0]
    copied.sum().backward()
    assert new.grad.tolist() == [[[1, 1], [1, 1]]]


def test_before_skips_places_without_a_token_and_stops_at_documents():
    values = torch.tensor([[10, 11, 12, 13, 14], [20, 21, 22, 23, 24]])
    pos = torch.tensor([[-1, 3, -1, 4, 0], [0, 1, 2, -1, -1]])
    past = Last(torch.tensor([7, 8]), torch.tensor([0, 0]))
    one_before, exists, last = before(values, past, pos)
    assert exists.tolist() == [[False, True, False, True, False], [False, True, True, False, False]]
    assert one_before[0, [1, 3]].tolist() == [7, 11]
    assert one_before[1, [1, 2]].tolist() == [20, 21]
    assert last.value.tolist() == [14, 22] and last.document.tolist() == [0, 0]


def test_the_first_token_has_none_before_it_wherever_positions_start():
    values, pos = torch.tensor([[10, 11, 12], [20, 21, 22]]), torch.tensor([[5, 6, 7], [-1, -1, 9]])
    _, exists, last = before(values, Last.none(values[:, 0]), pos)
    assert exists.tolist() == [[False, True, True], [False, False, False]]
    _, exists, _ = before(values, last, pos + 3 * (pos >= 0))
    assert exists.tolist() == [[True, True, True], [False, False, True]]


def test_a_packed_document_has_none_before_it_wherever_its_positions_start():
    values, pos = torch.tensor([[10, 11, 12, 13, 14]]), torch.tensor([[4, 5, 3, -1, 4]])
    segments = torch.tensor([[1, 1, 2, 2, 2]])
    one_before, exists, last = before(values, Last.none(values[:, 0]), pos, segments)
    assert exists.tolist() == [[False, True, False, False, True]] and one_before[0, 4] == 12
    _, exists, _ = before(values[:, :2], last, torch.tensor([[5, 7]]), torch.tensor([[2, 3]]))
    assert exists.tolist() == [[True, False]]


def test_before_keeps_the_old_last_value_when_a_chunk_holds_no_token():
    values, past = torch.randn(2, 3, 4), Last(torch.randn(2, 4), torch.tensor([3, -1]))
    _, exists, newest = before(values, past, torch.full((1, 3), -1))
    assert not exists.any() and torch.equal(newest.value, past.value)
    assert torch.equal(newest.document, past.document)
