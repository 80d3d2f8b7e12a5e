"""What a position can see by construction against what the Jacobian finds: no more, and in drawn weights no less."""

import pytest
import torch
from quick import quick_share

from contract.cases import CHOOSING, ONE_STACK, built, stack, tokens_of
from glassformer.explain.influence import influence
from glassformer.explain.sight import sight
from glassformer.mask import Mask
from glassformer.mixers.attention import AttentionSpec
from glassformer.mixers.s4 import S4D
from glassformer.model import BlockSpec, build_model


@pytest.mark.parametrize("name", quick_share(ONE_STACK, 3, 1))
def test_what_is_seen_is_the_support_of_the_jacobian(name):
    model, n = built(name).double(), 11
    least = 1e-12 if any(isinstance(part, S4D) for part in model.modules()) else 0  # its transform rounds everywhere
    moved = influence(model, tokens_of(1, n), method="exact").norms > least
    seen = sight(model, n)
    assert not (moved & ~seen).any()
    if name not in CHOOSING:
        assert torch.equal(moved, seen)


def test_windows_add_up_over_blocks_and_stay_apart_without_a_residual():
    window = AttentionSpec(mask=Mask(window=3))
    i, j = torch.arange(9)[:, None], torch.arange(9)
    for residual in (True, False):
        two = build_model(stack(*[BlockSpec(mixer=window, residual=residual)] * 2)).eval()
        assert torch.equal(sight(two, 9), (j <= i) & (i - j <= 4))
