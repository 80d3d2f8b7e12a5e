"""Identities 5, 6 and 7: what a model knows about order, distance and time (statements S15 and S16)."""

import math

import pytest
import torch

from contract.cases import MIXERS, assert_same, drawn, relative_error, stack, tokens_of
from glassformer.mask import Mask
from glassformer.mixers.attention import AttentionSpec
from glassformer.model import BlockSpec, build_model
from glassformer.nn.embed import EmbedSpec
from glassformer.nn.position import (
    AlibiSpec,
    LearnedSpec,
    RelativeBiasSpec,
    RopeSpec,
    SinusoidalSpec,
    alibi_slopes,
    sinusoid,
)
from glassformer.tap import Probe

FULL = Mask(causal=False)
ORDER = torch.tensor([3, 0, 5, 1, 4, 2])


ENCODING = AttentionSpec(mask=FULL)


def encoder(mixer=ENCODING, **settings):
    return drawn(build_model(stack(BlockSpec(mixer=mixer), BlockSpec(mixer=mixer), **settings)))


@torch.no_grad()
def test_s15_without_positions_shuffled_words_give_shuffled_vectors():
    model, tokens = encoder(), tokens_of(2, 6)
    assert_same(model(tokens[:, ORDER]), model(tokens)[:, ORDER])


POSITIONED = {
    "sinusoidal": (AttentionSpec(mask=FULL), {"embed": EmbedSpec(position=SinusoidalSpec())}),
    "learned": (AttentionSpec(mask=FULL), {"embed": EmbedSpec(position=LearnedSpec())}),
    "rope": (AttentionSpec(mask=FULL, position=RopeSpec()), {}),
    "alibi": (AttentionSpec(mask=FULL, position=AlibiSpec()), {}),
    "relative": (AttentionSpec(mask=FULL, position=RelativeBiasSpec(buckets=8, max_distance=8)), {}),
    "causal, no position": (AttentionSpec(), {}),
    "window, no position": (AttentionSpec(mask=Mask(causal=False, window=2)), {}),
}


@torch.no_grad()
@pytest.mark.parametrize("name", POSITIONED)
def test_s15_positions_or_a_mask_let_order_matter(name):
    mixer, settings = POSITIONED[name]
    model, tokens = encoder(mixer, **settings), tokens_of(2, 6)
    assert relative_error(model(tokens[:, ORDER]), model(tokens)[:, ORDER]) > 0.02


@torch.no_grad()
@pytest.mark.parametrize("position", [RopeSpec(), AlibiSpec(), RelativeBiasSpec(buckets=8, max_distance=8)])
@pytest.mark.parametrize("mask", [FULL, Mask(prefix=6)])
def test_s15_the_first_token_notices_the_order_of_those_ahead_of_it(position, mask):
    """Of one layer, where nothing but this position signal can carry the order."""
    model = drawn(build_model(stack(BlockSpec(mixer=AttentionSpec(mask=mask, position=position)))))
    before, after = (model(torch.tensor([row]))[0, 0] for row in ([1, 2, 3, 4, 5, 6], [1, 6, 3, 5, 4, 2]))
    assert relative_error(after, before) > 0.02


def scores(model, tokens, pos):
    probe = Probe(lambda name: name == "blocks.0.mixer.scores")
    with torch.no_grad():
        model(tokens, pos=pos, probe=probe)
    return probe.values["blocks.0.mixer.scores"]


def shifts(mixer) -> bool:
    """Whether its positions count in its scores and its mask is the same at every place of the text."""
    if not isinstance(mixer, AttentionSpec) or mixer.position is None:
        return False
    mask = mixer.mask
    return mask.streams and not (mask.sinks or mask.globals or mask.random or mask.segment)


RELATIVE = [name for name, mixer in MIXERS.items() if shifts(mixer)]


@pytest.mark.parametrize("name", RELATIVE)
def test_s16_scores_depend_on_the_distance_only(name):
    """All positions shifted by 100: the same scores, for smeared keys too."""
    model, tokens = drawn(build_model(stack(BlockSpec(mixer=MIXERS[name])))), tokens_of(2, 7)
    here = scores(model, tokens, torch.arange(7)[None])
    there = scores(model, tokens, torch.arange(100, 107)[None])
    seen = here.isfinite()
    assert torch.equal(seen, there.isfinite())
    assert_same(there[seen], here[seen], 3e-5)


def test_s16_the_scores_of_positions_added_to_the_embedding_do_not():
    for position in (SinusoidalSpec(), LearnedSpec()):
        model = drawn(build_model(stack(BlockSpec(mixer=AttentionSpec()), embed=EmbedSpec(position=position))))
        here, there = (scores(model, tokens_of(1, 7), torch.arange(start, start + 7)[None]) for start in (0, 9))
        assert relative_error(there.tril(), here.tril()) > 0.05


def test_s16_alibi_is_a_bias_of_the_distance():
    bare, tilted = (
        drawn(build_model(stack(BlockSpec(mixer=AttentionSpec(heads=4, position=position)))))
        for position in (None, AlibiSpec())
    )
    tokens, pos = tokens_of(1, 9), torch.arange(9)[None]
    shift = scores(tilted, tokens, pos) - scores(bare, tokens, pos)
    for h, slope in enumerate((1 / 4, 1 / 16, 1 / 64, 1 / 256)):
        for i in range(9):
            for j in range(i + 1):
                assert shift[0, h, i, j].item() == pytest.approx(-slope * (i - j), abs=1e-5)


def test_s16_a_shifted_sinusoid_is_a_rotation():
    dim, shift = 12, 5
    here, there = (sinusoid(torch.arange(40)[None] + s, dim, SinusoidalSpec(), torch.float64)[0] for s in (0, shift))
    for pair in range(dim // 2):
        angle = shift * 10_000.0 ** (-2 * pair / dim)
        rotation = torch.tensor([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]])
        assert_same(here[:, 2 * pair : 2 * pair + 2] @ rotation.T.double(), there[:, 2 * pair : 2 * pair + 2], 1e-5)


def test_s16_slopes_of_many_heads_fall_strictly_in_each_series():
    slopes = alibi_slopes(12)
    assert slopes[:8].tolist() == [2.0**-n for n in range(1, 9)]
    assert slopes[8:].tolist() == pytest.approx([2.0 ** -(n + 0.5) for n in range(4)])


@torch.no_grad()
@pytest.mark.parametrize("place", [0, 3, 7])
def test_s20_a_changed_token_leaves_all_earlier_outputs_bit_identical(place):
    """Identity 6; that it holds for every causal model is a law of the contract (test_law_time)."""
    model, tokens = encoder(AttentionSpec(position=RopeSpec())), tokens_of(2, 8)
    changed = tokens.clone()
    changed[:, place] = (changed[:, place] + 1) % 23
    before, after = model(tokens), model(changed)
    assert torch.equal(before[:, :place], after[:, :place]) and not torch.equal(before[:, place:], after[:, place:])


@torch.no_grad()
def test_s20_an_encoder_sees_both_sides():
    model, tokens = encoder(), tokens_of(1, 8)
    for place in (0, 7):
        changed = tokens.clone()
        changed[:, place] = (changed[:, place] + 1) % 23
        moved = (model(changed) - model(tokens)).abs().amax(-1)[0]
        assert (moved > 1e-4).all()


@torch.no_grad()
def test_decoding_with_the_cache_equals_the_full_pass_on_a_long_text():
    """Identity 7 over 300 tokens and a window that turns over 60 times."""
    mixer = AttentionSpec(kv_heads=2, position=RopeSpec(), mask=Mask(window=5, sinks=1))
    blocks = BlockSpec(mixer=mixer), BlockSpec(mixer=AttentionSpec(position=RopeSpec()))
    model, tokens = drawn(build_model(stack(*blocks, context=300))), tokens_of(1, 300)
    state, parts = model.empty(1, 300), []
    for t in range(300):
        part, state = model.step(tokens[:, t : t + 1], state)
        parts.append(part)
    assert_same(torch.cat(parts, 1), model(tokens), 3e-5)
