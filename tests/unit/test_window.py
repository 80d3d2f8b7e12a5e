"""The tokens before a token, and where documents begin: against a loop over what each token may see."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.call import Call
from glassformer.mixers.window import Tail, around, edges, numbers, previous

WIDTH = 2


@st.composite
def texts(draw):
    """(positions `b t` with -1 anywhere, documents `b t` or None, places to cut at)."""
    t = draw(st.integers(1, 9))
    packed = draw(st.booleans())
    pos, segments = [], []
    for _ in range(2):
        line, number, place = [], [], 0
        document = draw(st.integers(0, 2))
        for there in draw(
            st.lists(st.sampled_from(["token", "token", "token", "none", "begin"]), min_size=t, max_size=t)
        ):
            if there == "begin":
                document, place = document + 1, 0
            line.append(-1 if there == "none" else place)
            number.append(document)
            place += there != "none"
        pos.append(line)
        segments.append(number)
    cuts = sorted(draw(st.sets(st.integers(1, t - 1)))) if t > 1 else []
    return torch.tensor(pos), torch.tensor(segments) if packed else None, cuts


def seen(x, pos, segments, back: int) -> torch.Tensor:
    """What lies `back` tokens before each token of its document, 0 where nothing does: by walking."""
    found = torch.zeros_like(x)
    for row in range(x.shape[0]):
        line: list[torch.Tensor] = []
        document = None
        for i in range(x.shape[1]):
            if pos[row, i] < 0:
                continue
            own = None if segments is None else int(segments[row, i])
            if pos[row, i] == 0 or own != document:
                line, document = [], own
            line.append(x[row, i])
            if back < len(line):
                found[row, i] = line[-1 - back]
    return found


def calls(pos, segments, cuts):
    """(slice, its call) of every chunk."""
    for a, b in zip([0, *cuts], [*cuts, pos.shape[1]], strict=True):
        yield slice(a, b), Call(pos[:, a:b], segments=None if segments is None else segments[:, a:b])


@given(text=texts(), count=st.integers(1, 4), dilation=st.integers(1, 3))
@settings(max_examples=200)
def test_previous_tokens_in_any_chunks_are_those_of_the_document(text, count, dilation):
    pos, segments, cuts = text
    x = torch.randn(*pos.shape, WIDTH, generator=torch.Generator().manual_seed(1))
    tail, parts = Tail.none(2, (count - 1) * dilation, x, WIDTH), []
    for some, call in calls(pos, segments, cuts):
        part, tail = previous(x[:, some], tail, call, count, dilation)
        parts.append(part)
    found = torch.cat(parts, 1)
    for k in range(count):
        wanted = seen(x, pos, segments, (count - 1 - k) * dilation)
        assert torch.equal(found[:, :, k][pos >= 0], wanted[pos >= 0])


@given(t=st.integers(1, 9), count=st.integers(1, 4), dilation=st.integers(1, 3), cut=st.integers(0, 8))
def test_a_plain_call_is_the_same_without_looking_at_positions(t, count, dilation, cut):
    x, pos = torch.randn(2, t, WIDTH), torch.arange(t)[None]
    outs = []
    for plain in (True, False):
        tail, parts = Tail.none(2, (count - 1) * dilation, x, WIDTH), []
        for some in (slice(0, min(cut, t)), slice(min(cut, t), t)):
            if some.start == some.stop:
                continue
            part, tail = previous(x[:, some], tail, Call(pos[:, some], plain=plain), count, dilation)
            parts.append(part)
        outs.append((torch.cat(parts, 1), tail.value * (tail.document >= 0)[..., None]))
    assert all(torch.equal(a, b) for a, b in zip(*outs, strict=True))


@given(text=texts())
@settings(max_examples=200)
def test_edges_tell_where_documents_begin(text):
    pos, segments, cuts = text
    last, firsts = torch.full((2,), -1), []
    for _, call in calls(pos, segments, cuts):
        valid, first, last = edges(call, last)
        assert torch.equal(valid, call.pos >= 0)
        firsts.append(first)
    found, numbered = torch.cat(firsts, 1), torch.ones(*pos.shape, 1)
    # A token begins its document where nothing lies one token before it.
    assert torch.equal(found, (pos >= 0) & (seen(numbered, pos, segments, 1)[..., 0] == 0))


@given(text=texts(), half=st.integers(0, 2), dilation=st.integers(1, 3))
@settings(max_examples=200)
def test_the_tokens_around_are_those_before_in_both_directions(text, half, dilation):
    """What lies after a token lies before it in the row read from its end."""
    pos, segments, _ = text
    number = numbers(Call(pos, segments=segments), 2)
    # Without segments a row is one document, whatever its positions: these are then counted anew.
    line = torch.where(pos >= 0, (pos >= 0).long().cumsum(1) - 1, -1) if segments is None else pos
    x = torch.randn(*pos.shape, WIDTH, generator=torch.Generator().manual_seed(1))
    found = around(x, Call(line, segments=segments), 2 * half + 1, dilation)
    back = torch.where(pos >= 0, 1, -1).flip(1)  # only its segment tells where a document begins
    for k in range(half + 1):
        before = seen(x, line, segments, (half - k) * dilation)
        after = seen(x.flip(1), back, number.flip(1), (half - k) * dilation).flip(1)
        assert torch.equal(found[:, :, k][pos >= 0], before[pos >= 0])
        assert torch.equal(found[:, :, 2 * half - k][pos >= 0], after[pos >= 0])


def test_documents_are_numbered_in_their_order():
    pos = torch.tensor([[-1, 0, 1, 0, -1, 1, 0], [0, 1, 2, -1, 3, 0, 1]])
    segments = torch.tensor([[9, 4, 4, 4, 4, 4, 7], [0, 0, 0, 0, 0, -3, -3]])
    assert numbers(Call(pos, segments=segments), 2).tolist() == [[-1, 0, 0, 1, -1, 1, 2], [0, 0, 0, -1, 0, 1, 1]]
    assert numbers(Call(pos), 2).tolist() == [[-1, 0, 0, 0, -1, 0, 0], [0, 0, 0, -1, 0, 0, 0]]
    assert numbers(Call(pos[:1]), 2).shape == (2, 7)
