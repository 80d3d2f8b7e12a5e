"""Masks: against the definition in plain Python, and the reason of every dark cell."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.errors import SettingError
from glassformer.mask import Mask, _drawn, allowed, pad_left, reason, rows


@st.composite
def masks(draw):
    """Any mask that is allowed."""

    def some(low, high, given=True):
        return draw(st.integers(low, high)) if given else low

    causal = draw(st.booleans())
    if causal and draw(st.integers(0, 4)) == 0:
        return Mask(segment=some(1, 4), memory=some(0, 4))
    window, stride = (draw(st.none() | st.integers(1, 5)) for _ in range(2))
    return Mask(
        causal=causal,
        window=window,
        stride=stride,
        prefix=some(0, 4, causal),
        sinks=some(0, 3, bool(window)),
        globals=some(0, 3, bool(window or stride)),
        random=some(0, 2, bool(window)),
        block=some(1, 3),
        seed=some(0, 2),
    )


def seen(mask, q, k):
    """The definition, for two tokens of one document."""
    if mask.causal and k > q and not (q < mask.prefix and k < mask.prefix):
        return False
    if mask.segment:
        return k >= q - q % mask.segment - mask.memory
    if not (mask.window or mask.stride):
        return True
    near = mask.window is not None and abs(q - k) < mask.window
    strided = mask.stride is not None and (q - k) % mask.stride == 0
    early, late = sorted((q // mask.block, k // mask.block))
    drawn = early < late and early in [_drawn(late, i, mask.seed) for i in range(mask.random)]
    return near or strided or k < mask.sinks or min(q, k) < mask.globals or drawn


@settings(max_examples=100)
@given(mask=masks(), pos=st.lists(st.integers(-1, 9), min_size=1, max_size=6), documents=st.booleans())
def test_allowed_and_reason_follow_the_definition(mask, pos, documents):
    segments = torch.tensor([[i % 2 for i in range(len(pos))]]) if documents else None
    ok = allowed(mask, torch.tensor([pos]), torch.tensor([pos]), segments, segments)
    assert ok.shape == (1, len(pos), len(pos)) and ok.dtype == torch.bool
    for i, q in enumerate(pos):
        for j, k in enumerate(pos):
            together = not documents or i % 2 == j % 2
            assert bool(ok[0, i, j]) == (q >= 0 and k >= 0 and together and seen(mask, q, k))
            assert (reason(mask, q, k, together) == "") == bool(ok[0, i, j])


def test_random_blocks_are_as_many_as_wanted_and_spread_evenly():
    mask = Mask(window=1, random=3, block=1, seed=5)
    pos = torch.arange(400)[None]
    ok = allowed(mask, pos, pos)[0].fill_diagonal_(False)
    assert int(ok.sum(1).max()) == 3  # fewer only where one was drawn twice
    assert ok[50:].sum(1).float().mean() > 2.9
    share = torch.cat([torch.nonzero(row)[:, 0] / i for i, row in enumerate(ok) if i > 50])
    assert abs(share.mean() - 0.5) < 0.03 and abs(share.std() - 12**-0.5) < 0.02
    assert not torch.equal(ok, allowed(mask.changed(seed=6), pos, pos)[0].fill_diagonal_(False))
    both = allowed(mask.changed(causal=False), pos, pos)[0]
    assert torch.equal(both, both.T) and torch.equal(both.tril(-1), ok.tril(-1))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"window": 0}, r"^window: 0 is not allowed; use 1 or more, or null"),
        ({"stride": 0}, r"^stride: 0 is not allowed"),
        ({"globals": 1}, r"^globals: only has a meaning beside a window or a stride"),
        ({"random": 1}, r"^random: only has a meaning beside a window; set window as well, or random=0"),
        ({"memory": 2}, r"^memory: it lies before a segment"),
        ({"segment": 2, "causal": False}, r"^segment: only has a meaning in a causal mask; set causal=true, or segm"),
        ({"segment": 2, "window": 2}, r"^segment: it stands alone"),
        ({"globals": -1, "window": 2}, r"^globals: -1 is not allowed; use 0 or more"),
    ],
)
def test_settings_without_a_meaning_are_refused(settings, message):
    with pytest.raises(SettingError, match=message):
        Mask(**settings)


def test_reasons_by_name():
    window = Mask(window=2, sinks=1)
    assert reason(Mask(), 1, 2) == "future"
    assert reason(Mask(prefix=3), 1, 2) == "" and reason(Mask(prefix=3), 2, 3) == "future"
    assert reason(Mask(), 2, -1) == reason(Mask(), -1, -1) == "padding"
    assert reason(Mask(), 2, 1, same_segment=False) == "other document"
    assert reason(window, 5, 3) == "outside the window"
    assert reason(window, 5, 4) == reason(window, 5, 0) == ""
    assert reason(Mask(stride=3), 7, 2) == "off the stride" and reason(Mask(stride=3), 7, 4) == ""
    assert reason(Mask(window=2, stride=3), 7, 2) == "outside the window"
    segments = Mask(segment=4, memory=2)
    assert [reason(segments, 9, k) for k in (5, 6, 9, 10)] == ["before the memory", "", "", "future"]
    globals_ = Mask(causal=False, window=1, globals=1)
    assert reason(globals_, 0, 9) == reason(globals_, 9, 0) == "" and reason(globals_, 9, 8) == "outside the window"


def test_streams():
    assert Mask().streams and Mask(window=3, sinks=1).streams
    assert not Mask(prefix=1).streams and not Mask(causal=False).streams


def test_pad_left_and_rows():
    tokens, pos = pad_left([[7], [4, 5, 6]], fill=9)
    assert tokens.tolist() == [[9, 9, 7], [4, 5, 6]]
    assert pos.tolist() == [[-1, -1, 0], [0, 1, 2]]
    assert rows(torch.tensor([[0, 1]]), 3).tolist() == [[0, 1]] * 3
