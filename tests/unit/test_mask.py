"""Masks: against the definition in plain Python, and the reason of every dark cell."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.mask import Mask, allowed, pad_left, reason, rows

masks = st.builds(
    lambda causal, window, prefix, sinks: Mask(
        causal=causal, window=window, prefix=prefix if causal else 0, sinks=sinks if window else 0
    ),
    st.booleans(),
    st.none() | st.integers(1, 5),
    st.integers(0, 4),
    st.integers(0, 3),
)


@settings(max_examples=60)
@given(mask=masks, pos=st.lists(st.integers(-1, 9), min_size=1, max_size=6), documents=st.booleans())
def test_allowed_and_reason_follow_the_definition(mask, pos, documents):
    segments = torch.tensor([[i % 2 for i in range(len(pos))]]) if documents else None
    ok = allowed(mask, torch.tensor([pos]), torch.tensor([pos]), segments, segments)
    assert ok.shape == (1, len(pos), len(pos)) and ok.dtype == torch.bool
    for i, q in enumerate(pos):
        for j, k in enumerate(pos):
            together = not documents or i % 2 == j % 2
            wanted = q >= 0 and k >= 0 and together
            if mask.causal and k > q:
                wanted = wanted and q < mask.prefix and k < mask.prefix
            if mask.window and abs(q - k) >= mask.window:
                wanted = wanted and k < mask.sinks
            assert bool(ok[0, i, j]) == wanted
            assert (reason(mask, q, k, together) == "") == wanted


def test_reasons_by_name():
    window = Mask(window=2, sinks=1)
    assert reason(Mask(), 1, 2) == "future"
    assert reason(Mask(prefix=3), 1, 2) == "" and reason(Mask(prefix=3), 2, 3) == "future"
    assert reason(Mask(), 2, -1) == reason(Mask(), -1, -1) == "padding"
    assert reason(Mask(), 2, 1, same_segment=False) == "other document"
    assert reason(window, 5, 3) == "outside the window"
    assert reason(window, 5, 4) == reason(window, 5, 0) == ""


def test_streams():
    assert Mask().streams and Mask(window=3, sinks=1).streams
    assert not Mask(prefix=1).streams and not Mask(causal=False).streams


def test_pad_left_and_rows():
    tokens, pos = pad_left([[7], [4, 5, 6]], fill=9)
    assert tokens.tolist() == [[9, 9, 7], [4, 5, 6]]
    assert pos.tolist() == [[-1, -1, 0], [0, 1, 2]]
    assert rows(torch.tensor([[0, 1]]), 3).tolist() == [[0, 1]] * 3
