"""What a position can see by construction against what the Jacobian finds: no more, and in drawn weights no less."""

import pytest
import torch
from quick import quick_share
from torch.utils._python_dispatch import TorchDispatchMode

from contract.cases import CHOOSING, ONE_STACK, built, stack, tokens_of
from glassformer.explain import sight as seeing
from glassformer.explain.influence import influence
from glassformer.explain.sight import fields, reasons, seen_together, sight, through
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


@pytest.mark.parametrize("room", [1, 30, 1 << 20])
def test_what_is_seen_is_the_product_of_the_maps_of_all_blocks(room, monkeypatch):
    """However many of their rows are worked out at once, and for those that look alone."""
    monkeypatch.setattr(seeing, "AT_ONCE", room)
    for name in ONE_STACK:
        model, n = built(name), 9
        maps = [through(block.mixer, n).long() for block in model.blocks]
        ahead, rows = torch.eye(n, dtype=torch.long), torch.tensor([7, 2])
        if getattr(model.embed, "previous", None) is not None:
            ahead = ahead + torch.diag(torch.ones(n - 1, dtype=torch.long), -1)
        after = [torch.eye(n, dtype=torch.long)]
        for one in maps:
            after.append(one @ after[-1])
        wanted = torch.stack([one @ ahead > 0 for one in after])
        assert torch.equal(sight(model, n), wanted[-1])
        assert torch.equal(sight(model, n, rows=rows.tolist()), wanted[-1][rows])
        assert torch.equal(fields(model, n, 7), wanted[:, 7])
        for every, over in ((True, torch.all), (False, torch.any)):
            found = seen_together(model.blocks[0].mixer, n, rows.tolist(), every)
            assert torch.equal(found, over(maps[0][rows] > 0, 0))


class Largest(TorchDispatchMode):
    """The numbers of the largest tensor that is made inside."""

    numbers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        sizes = [one.numel() for one in (made if isinstance(made, list | tuple) else [made]) if torch.is_tensor(one)]
        self.numbers = max([self.numbers, *sizes])
        return made


def test_a_long_text_makes_no_map_of_all_tokens_by_all():
    """At 12,000 tokens it had 1.2 GiB a block, of which all were held, for a single row of a figure."""
    n = 1500
    for name in ("mixer-plain", "mixer-globals-full", "mixer-random", "mixer-xl-segment", "hybrid", "mixer-lstm-both"):
        model = built(name)
        with Largest() as seen:
            sight(model, n, rows=[n - 1])
            fields(model, n, n - 1)
            seen_together(model.blocks[0].mixer, n, range(n), False)
            reasons(model.blocks[0].mixer, list(range(n)), [3], [[s] for s in range(5)])
        assert n < seen.numbers <= seeing.AT_ONCE < n * n
