"""State: written once for every past."""

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from glassformer.state import Nothing, State, before, written


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
    one_before, exists, last = before(values, torch.tensor([7, 8]), pos)
    assert exists.tolist() == [[False, True, False, True, False], [False, True, True, False, False]]
    assert one_before[0, [1, 3]].tolist() == [7, 11]
    assert one_before[1, [1, 2]].tolist() == [20, 21]
    assert last.tolist() == [14, 22]


def test_before_keeps_the_old_last_value_when_a_chunk_holds_no_token():
    values = torch.randn(2, 3, 4)
    last = torch.randn(2, 4)
    _, exists, newest = before(values, last, torch.full((1, 3), -1))
    assert not exists.any() and torch.equal(newest, last)
