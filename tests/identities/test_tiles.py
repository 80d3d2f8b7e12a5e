"""Identity 10: the online softmax over tiles is dense attention, for any tile size."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from contract.cases import assert_same, call_of, drawn, relative_error, tokens_of
from glassformer.mask import Mask, allowed
from glassformer.mixers.attention import Attention, AttentionSpec
from glassformer.mixers.softmax import explicit, fused, shared_out, tiled, weights
from glassformer.model import BlockSpec, build_model
from glassformer.nn.head import capped
from glassformer.tap import Probe, off


def parts(t: int, s: int, seed: int, mask: Mask, cap: float | None, spread: float, dtype=torch.float32):
    """q, k, v `b h t e` and the score function of a masked, perhaps capped attention."""
    generator = torch.Generator().manual_seed(seed)
    q = spread * torch.randn(2, 3, t, 4, generator=generator, dtype=dtype)
    k, v = (torch.randn(2, 3, s, 4, generator=generator, dtype=dtype) for _ in range(2))
    # Queries stand at the end, as in decoding; the first key of row 1 is padding.
    key_pos = torch.stack((torch.arange(s), torch.arange(s) - 1))
    ok = allowed(mask, key_pos[:, s - t :], key_pos)[:, None]

    def score(start: int, end: int, tap) -> torch.Tensor:
        dots = q @ k[:, :, start:end].mT
        return capped(dots * 0.5, cap).masked_fill(~ok[..., start:end], -torch.inf)

    return q, k, v, score, ok


masks = st.sampled_from([Mask(), Mask(causal=False), Mask(window=2), Mask(window=3, sinks=1), Mask(prefix=3)])


@settings(max_examples=60)
@given(
    sizes=st.integers(1, 17).flatmap(lambda s: st.tuples(st.integers(1, s), st.just(s))),
    tile=st.integers(1, 20),
    mask=masks,
    cap=st.none() | st.just(1.5),
    sink=st.none() | st.sampled_from([-50.0, 0.0, 3.0, 200.0]),
    spread=st.sampled_from([1.0, 30.0]),
    seed=st.integers(0, 99),
)
def test_any_tiles_equal_dense_attention(sizes, tile, mask, cap, sink, spread, seed):
    _, _, v, score, _ = parts(*sizes, seed, mask, cap, spread)
    sink = None if sink is None else torch.tensor([sink, -sink, 0.0])
    found, wanted = tiled(score, v, sink, tile), explicit(score, v, sink, off)
    assert torch.isfinite(wanted).all()
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


@settings(max_examples=20)
@given(tile=st.integers(1, 9), mask=masks, seed=st.integers(0, 9), sinks=st.booleans())
def test_gradients_of_tiles_equal_those_of_dense_attention(tile, mask, seed, sinks):
    q, k, v, score, _ = parts(5, 8, seed, mask, 2.0, 1.0, torch.float64)
    sink = torch.tensor([0.3, -1.0, 2.0], dtype=torch.float64, requires_grad=True) if sinks else None
    given_ = [x.requires_grad_() for x in (q, k, v)] + ([sink] if sinks else [])
    found = torch.autograd.grad(tiled(score, v, sink, tile).square().sum(), given_)
    wanted = torch.autograd.grad(explicit(score, v, sink, off).square().sum(), given_)
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


@settings(max_examples=20)
@given(mask=masks, seed=st.integers(0, 9))
def test_the_kernel_equals_the_written_out_form(mask, seed):
    q, k, v, score, ok = parts(6, 9, seed, mask, None, 1.0)
    found, wanted = fused(q, k, v, 0.5, ok, False), explicit(score, v, None, off)
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


def test_weights_of_a_row_that_sees_nothing_are_zero_and_a_sink_takes_its_share():
    scores = torch.tensor([[[[1.0, 1.0], [-torch.inf, -torch.inf]]]])
    assert weights(scores).tolist() == [[[[0.5, 0.5], [0.0, 0.0]]]]
    shared = weights(scores, torch.tensor([1.0]))
    torch.testing.assert_close(shared, torch.tensor([[[[1 / 3, 1 / 3], [0.0, 0.0]]]]))


def test_key_heads_are_written_out_for_their_group():
    k = torch.arange(2.0).reshape(1, 2, 1, 1)
    assert shared_out(k, 6).flatten().tolist() == [0, 0, 0, 1, 1, 1]
    assert shared_out(k, 2) is k


def test_a_long_capped_sinking_window_is_the_same_in_several_tiles_of_the_default_size():
    mixer = AttentionSpec(softcap=3.0, sink=True, mask=Mask(window=150, sinks=2))
    model, tokens = drawn(build_model_of(mixer)), tokens_of(1, 300)
    with torch.no_grad():
        assert_same(model(tokens, probe=Probe()), model(tokens))


@torch.no_grad()
@pytest.mark.parametrize("cap", [20.0, 50.0])
@pytest.mark.parametrize("autocast", [False, True])
def test_capped_scores_in_bf16_are_as_exact_as_plain_attention(cap, autocast):
    """The larger a score, the more its rounding to bf16 before the tanh would cost (2.8 times the plain error)."""
    x = (2 * torch.randn(2, 64, 64, generator=torch.Generator().manual_seed(1))).bfloat16()

    def errors(spec: AttentionSpec) -> list[float]:
        layer = drawn(Attention(spec, 64)).bfloat16()
        wanted = layer.double().parallel(x.double(), call_of(64))
        layer = layer.float() if autocast else layer.bfloat16()
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            forms = [layer.parallel(x, call_of(64, probe)).double() for probe in (None, Probe())]
        return [relative_error(form, wanted) for form in forms]

    plain, _ = errors(AttentionSpec(heads=2))
    assert all(error <= 2 * plain for error in errors(AttentionSpec(heads=2, softcap=cap)))


def build_model_of(mixer: AttentionSpec):
    from contract.cases import stack

    return build_model(stack(BlockSpec(mixer=mixer), context=300))
