"""The laws of time: step = parallel, no leak from the future, and what a State promises."""

from functools import cache
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from quick import quick_share

from contract.cases import (
    CASES,
    CAUSAL,
    CHOOSING,
    NOT_CAUSAL,
    ONE_STACK,
    ROUTED,
    SPECTRAL,
    assert_same,
    built,
    kept,
    relative_error,
    run,
    start,
    stepped,
    tokens_of,
)
from glassformer.checkpoint import filled, unique_tensors
from glassformer.edit import scale
from glassformer.errors import InputError, UnsupportedError
from glassformer.mask import Mask
from glassformer.mixers.attention import AttentionSpec
from glassformer.mixers.cache import Keys
from glassformer.model import BlockSpec, EncoderDecoderSpec
from glassformer.nn.position import RopeSpec
from glassformer.tap import Probe


@st.composite
def chunkings(draw, longest: int = 14):
    """(batch, length, sorted places to cut at)."""
    batch, t = draw(st.integers(1, 3)), draw(st.integers(1, longest))
    return batch, t, sorted(draw(st.sets(st.integers(1, t - 1)))) if t > 1 else []


@pytest.mark.parametrize("name", quick_share(CAUSAL, 3, 2))
@given(shape=chunkings(), seed=st.integers(0, 3))
def test_any_chunks_of_step_equal_parallel(name, shape, seed):
    batch, t, cuts = shape
    tokens = tokens_of(batch, t, seed)
    with torch.no_grad():
        assert_same(stepped(kept(name), tokens, cuts), run(kept(name), tokens))


@pytest.mark.parametrize("name", CAUSAL)
def test_one_token_at_a_time_and_room_to_spare_equal_parallel(name):
    tokens = tokens_of(2, 11)
    with torch.no_grad():
        state = start(kept(name), 2, 30)
        assert_same(stepped(kept(name), tokens, list(range(1, 11)), state=state), run(kept(name), tokens))


def indifferent(name: str, label: str) -> bool:
    """An expert that was perhaps not chosen, and what finds a token that sees itself alone."""
    return ".experts." in label or (name == "mixer-window-1" and label.endswith((".q.weight", ".k.weight")))


@pytest.mark.parametrize("name", quick_share(CAUSAL, 3, 1))
def test_gradients_of_chunks_equal_those_of_parallel(name):
    model, tokens = built(name), tokens_of(2, 9)
    parameters = list(model.parameters())
    out = run(model, tokens)
    weight = torch.randn(out.shape, generator=torch.Generator().manual_seed(5))
    wanted = torch.autograd.grad((out * weight).sum(), parameters)
    for cuts in ([], [4, 5]):
        found = torch.autograd.grad((stepped(model, tokens, cuts) * weight).sum(), parameters)
        for (label, _), a, b in zip(model.named_parameters(), found, wanted, strict=True):
            assert b.abs().max() > 0 or indifferent(name, label), f"{label} has no gradient"
            # Relative to the largest gradient: that of a key's bias is zero in exact arithmetic.
            assert (a - b).abs().max() <= 1e-5 * max(g.abs().max() for g in wanted), label


@cache
def in_bf16(name):
    """The case in bf16, and the same numbers in fp64."""
    half, wide = built(name).bfloat16(), built(name)
    wide.load_state_dict(half.state_dict())
    return half, wide.double()


def routes(name, tokens, given):
    """The edits, for a slice of places, that keep every router's choice of the run in fp64, where they change nothing.
    Where a router decides otherwise in bf16, the token goes to another expert, which is no matter of exactness."""
    probe = Probe(lambda full: full.endswith("channel.weights"))
    run(in_bf16(name)[1], tokens, probe=probe, **given)
    chosen = {full.replace("weights", "router"): value != 0 for full, value in probe.values.items()}
    return lambda part: tuple(scale(full, value[:, part]) for full, value in chosen.items())


def errors(name, tokens, cuts=None, **given):
    """How far bf16 is from fp64, as a share: on the fast path, written out, and in chunks (where cuts are given)."""
    half, wide = in_bf16(name)
    edits = routes(name, tokens, given) if name in ROUTED else None
    every = () if edits is None else edits(slice(None))
    there = given.get("pos", torch.zeros_like(tokens)) >= 0
    wanted = run(wide, tokens, **given)[there]
    forms = [
        run(half, tokens, probe=Probe(lambda full: False, every) if every else None, **given),
        run(half, tokens, probe=Probe(edits=every), **given),
    ]
    if cuts is not None:
        forms.append(stepped(half, tokens, cuts, edits=edits, **given))
    return [((form[there].double() - wanted).square().mean() / wanted.square().mean()).sqrt() for form in forms]


@torch.no_grad()
@pytest.mark.parametrize("name", CASES)
def test_fp64_is_fp32_with_more_digits(name):
    """As it is loaded, over more tokens than the kernels take at once, where a model has places for them."""
    single = kept(name)
    double = filled(single.spec, {label: value.double() for label, value in unique_tensors(single).items()}, Path())
    tokens = tokens_of(1, 40)
    try:
        found = run(single, tokens)
    except InputError as error:
        assert "position 39 is beyond" in str(error)
        tokens = tokens[:, :32]
        found = run(single, tokens)
    assert_same(found, run(double, tokens))


@pytest.mark.parametrize("name", quick_share([name for name in CAUSAL if name not in CHOOSING], 4, 3))
@pytest.mark.parametrize(("batch", "t", "cuts"), [(4, 12, [5, 6]), (1, 30, [29])])
def test_bf16_paths_are_as_exact_as_plain_bf16(name, batch, t, cuts):  # another choice of the top k is no rounding
    """Plain bf16 is the mathematics written out, so that the fast path is no yardstick for itself."""
    with torch.no_grad():
        fast, plain, chunks = errors(name, tokens_of(batch, t), cuts)
    assert 0 < plain < 0.05 and max(fast, chunks) <= 2 * plain


@pytest.mark.parametrize(
    ("name", "company"),
    quick_share(
        [
            (name, company)
            for name in CASES
            for company in ("padded", "packed")
            if name not in CHOOSING and (company == "padded" or name in ONE_STACK)
        ],
        5,
    ),
)
@settings(max_examples=3)
@given(shape=chunkings(), missing=st.sampled_from(["", "left", "right"]), seed=st.integers(0, 3), data=st.data())
def test_bf16_of_any_shape_and_company_is_as_exact_as_plain_bf16(name, company, shape, missing, seed, data):
    """Plain bf16 is the mathematics written out, in this call, of the tokens alone and of a longer text: a few numbers
    may be exact by chance."""
    some, t, cuts = shape
    tokens, place = tokens_of(8 * some, t, seed), torch.arange(t).expand(8 * some, t)
    given = {}
    if company == "packed":
        first = torch.tensor([True, *data.draw(st.lists(st.booleans(), min_size=t - 1, max_size=t - 1))])
        begin = torch.where(first, torch.arange(t), 0).cummax(0).values
        given = {"pos": place - begin, "segments": first.long().cumsum(0).expand(8 * some, t)}
    if missing and t > 1:
        pos = given.get("pos", place - 1 if missing == "left" else place)
        given["pos"] = torch.where(place == (0 if missing == "left" else t - 1), -1, pos)
    with torch.no_grad():
        fast, glass, *chunks = errors(name, tokens, cuts if name in CAUSAL else None, **given)
        plain = max(glass, *(errors(name, x)[1] for x in (tokens, tokens_of(2, 24))))
    assert all(error <= 2 * plain for error in (fast, *chunks))


@pytest.mark.parametrize("name", CAUSAL)
def test_the_future_does_not_leak(name):
    tokens = tokens_of(2, 9)
    with torch.no_grad():
        before = run(kept(name), tokens)
    for place in (1, 6):
        changed = tokens.clone()
        changed[:, place] = (changed[:, place] + 1) % 23
        with torch.no_grad():
            after = run(kept(name), changed)
        if name in ROUTED + SPECTRAL:  # another number of tokens for an expert: another order of summation
            assert_same(after[:, :place], before[:, :place], 1e-6)
        else:
            assert torch.equal(after[:, :place], before[:, :place]), place
        assert relative_error(after[:, place], before[:, place]) > 1e-3, place


@pytest.mark.parametrize("name", NOT_CAUSAL)
def test_what_is_not_causal_does_see_ahead(name):
    tokens = tokens_of(2, 9)
    changed = tokens.clone()
    changed[:, 2] = (changed[:, 2] + 1) % 23
    with torch.no_grad():
        before, after = run(kept(name), tokens), run(kept(name), changed)
    assert relative_error(after[:, :2], before[:, :2]) > 1e-3


@pytest.mark.parametrize("name", NOT_CAUSAL)
def test_what_is_not_causal_refuses_step_by_name(name):
    kind = CASES[name].blocks[0].mixer.__struct_config__.tag
    with pytest.raises(UnsupportedError, match=rf"^blocks\.0\.mixer: this {kind} sees later tokens"):
        start(kept(name), 1, 4)


# ---------------------------------------------------------------- State


@pytest.mark.parametrize("name", CAUSAL)
def test_a_state_is_consumed_once(name):
    model, tokens = kept(name), tokens_of(2, 3)
    state = start(model, 2, 8)
    with torch.no_grad():
        model.step(tokens, state)
        with pytest.raises(RuntimeError, match="already consumed"):
            model.step(tokens, state)
    with pytest.raises(AssertionError, match="clone"):
        state.clone()


@pytest.mark.parametrize("name", CAUSAL)
def test_clones_branch_independently(name):
    model, past = kept(name), tokens_of(2, 5)
    left, right = tokens_of(2, 6, 1), tokens_of(2, 6, 2)
    with torch.no_grad():
        _, state = model.step(past, start(model, 2, 11))
        branch = state.clone()
        assert branch.nbytes == state.nbytes
        found_left, _ = model.step(left, state)
        found_right, _ = model.step(right, branch)
        for found, new in ((found_left, left), (found_right, right)):
            assert_same(found, run(model, torch.cat((past, new), 1))[:, 5:])


@pytest.mark.parametrize("name", [n for n in CAUSAL if not isinstance(CASES[n], EncoderDecoderSpec)])
def test_reordered_rows_go_on_as_the_reordered_batch(name):
    model, past, new = kept(name), tokens_of(3, 5), tokens_of(4, 4, 1)
    rows = torch.tensor([2, 0, 0, 1])
    with torch.no_grad():
        _, state = model.step(past, start(model, 3, 9))
        found, _ = model.step(new, state.reorder(rows))
        assert_same(found, run(model, torch.cat((past[rows], new), 1))[:, 5:])


def test_reordering_takes_the_memory_along():
    model, past, new = kept("cross-plain"), tokens_of(3, 5), tokens_of(3, 4, 1)
    rows = torch.tensor([2, 0, 1])  # rows differ in the padding of their source
    with torch.no_grad():
        _, state = model.step(past, start(model, 3, 9))
        found, _ = model.step(new[rows], state.reorder(rows))
        assert_same(found, run(model, torch.cat((past, new), 1))[rows, 5:])


KEY_CASES = {
    "every key": (AttentionSpec(), 40),
    "grouped": (AttentionSpec(kv_heads=2, head_dim=6), 40),
    "window": (AttentionSpec(mask=Mask(window=5)), 5),
    "window and sinks": (AttentionSpec(mask=Mask(window=5, sinks=2), position=RopeSpec()), 7),
    "room below the window": (AttentionSpec(mask=Mask(window=50)), 40),
}


@pytest.mark.parametrize("name", KEY_CASES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_state_bytes_follow_the_formula_and_do_not_grow(name, dtype):
    from contract.cases import stack
    from glassformer.model import build_model

    mixer, n = KEY_CASES[name]
    model = build_model(stack(BlockSpec(mixer=mixer), BlockSpec(mixer=mixer))).to(dtype).eval()
    g, e = mixer.kv_heads or mixer.heads, mixer.head_dim or 16 // mixer.heads
    itemsize = torch.finfo(dtype).bits // 8
    wanted = 3 * n * (2 * g * e * itemsize + 8)  # three rows: k and v, and the position as int64
    with torch.no_grad():
        state = model.empty(3, 40)
        for tokens in (tokens_of(3, 1), tokens_of(3, 9), tokens_of(3, 1), tokens_of(3, 20)):
            assert [block.nbytes for block in state.blocks] == [wanted, wanted]
            assert state.nbytes == 2 * wanted + 3 * 8  # and the next position of each row
            _, state = model.step(tokens, state)
    assert isinstance(state.blocks[0].mixer, Keys)
    assert state.nbytes == 2 * wanted + 3 * 8


def test_a_full_cache_says_how_much_room_was_needed():
    model = kept("mixer-plain")
    with torch.no_grad():
        _, state = model.step(tokens_of(1, 4), model.empty(1, 5))
        with pytest.raises(InputError, match="room for 5 tokens and 7 were given"):
            model.step(tokens_of(1, 3), state)


def test_a_window_goes_on_beyond_its_room_as_long_as_one_likes():
    model, tokens = kept("mixer-sinks"), tokens_of(1, 60)
    with torch.no_grad():
        for room in (5, 6):  # the window and its sinks, and more
            found = stepped(model, tokens, list(range(1, 60)), state=model.empty(1, room))
            assert_same(found, run(model, tokens))
