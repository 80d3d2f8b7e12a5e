"""Sparse attention: each of its fast paths is attention written out under the mask, and its work follows the window."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from contract.cases import SPARSE, assert_same, call_of, drawn
from glassformer.bench.memory import peak_bytes
from glassformer.explain.cost import cost
from glassformer.mask import Mask, allowed
from glassformer.mixers import multihead
from glassformer.mixers.attention import Attention, AttentionSpec
from glassformer.model import BlockSpec, ModelSpec
from glassformer.nn.position import AlibiSpec, RelativeBiasSpec
from glassformer.tap import Probe

T = 23
MASKS = {
    "window": Mask(window=4),
    "both sides": Mask(causal=False, window=3),
    "globals": Mask(window=3, globals=2),
    "globals both sides": Mask(causal=False, window=3, globals=5),
    "more sinks than near": Mask(window=2, sinks=6),
    "sinks both sides": Mask(causal=False, window=2, sinks=3),
    "segments": Mask(segment=3, memory=4),
    "segments alone": Mask(segment=4),
    "stride": Mask(window=3, stride=4),
    "stride alone": Mask(stride=4),
    "random": Mask(causal=False, window=2, globals=1, random=2, block=3, seed=1),
}


def by_hand(layer: Attention, x: torch.Tensor, mask: Mask, top_k: int | None = None) -> torch.Tensor:
    """softmax over what `allowed` opens, of these the top_k largest, token by token and head by head."""
    q, k, v = (layer.split(f(x))[0].transpose(0, 1) for f in (layer.q, layer.k, layer.v))
    ok = allowed(mask, torch.arange(T)[None], torch.arange(T)[None])[0]
    z = torch.zeros_like(q)
    for h in range(layer.heads):
        for i in range(T):
            seen = ok[i].nonzero()[:, 0]
            scores = k[h, seen] @ q[h, i] * layer.scale
            best = scores.argsort(descending=True)[:top_k]
            z[h, i] = scores[best].softmax(0) @ v[h, seen[best]]
    return layer.out(z.transpose(0, 1).flatten(1))[None]


@pytest.mark.parametrize("top_k", [None, 2])
@pytest.mark.parametrize("name", MASKS)
@torch.no_grad()
def test_each_path_is_attention_to_what_the_mask_opens(name, top_k):
    layer = drawn(Attention(AttentionSpec(mask=MASKS[name], top_k=top_k), 16)).double()
    x = torch.randn(1, T, 16, generator=torch.Generator().manual_seed(1)).double()
    wanted = by_hand(layer, x, MASKS[name], top_k)
    probe = Probe()
    for found in (layer.parallel(x, call_of(T)), layer.parallel(x, call_of(T, probe))):
        assert_same(found, wanted, 1e-12)
    if top_k:
        assert ((probe.values["pattern"] > 0).sum(-1) <= top_k).all()
        assert torch.isfinite(probe.values["scores"]).sum(-1).max() > top_k, "the scores are those before the cut"


@pytest.mark.parametrize("position", [AlibiSpec(), RelativeBiasSpec(buckets=4, max_distance=4)])
@pytest.mark.parametrize("name", ["both sides", "globals both sides", "segments"])
@torch.no_grad()
def test_blocks_see_the_distances_of_their_own_places(name, position):
    layer = drawn(Attention(AttentionSpec(mask=MASKS[name], position=position, softcap=3.0), 16)).double()
    x = torch.randn(3, T, 16, generator=torch.Generator().manual_seed(1)).double()
    assert_same(layer.parallel(x, call_of(T)), layer.parallel(x, call_of(T, Probe())), 1e-12)


@pytest.mark.parametrize("mask", [Mask(window=8), Mask(causal=False, window=8, globals=1), Mask(segment=4, memory=4)])
@torch.no_grad()
def test_the_work_of_a_window_grows_with_the_length(mask):
    """Of the kernel, whose cells PyTorch counts; written out it would grow with the square."""
    layer = drawn(Attention(AttentionSpec(mask=mask, softcap=5.0), 16))

    def flops(t: int) -> int:
        with FlopCounterMode(display=False) as counter:
            layer.parallel(torch.randn(1, t, 16), call_of(t))
        return counter.get_total_flops()

    assert flops(2048) < 2.2 * flops(1024)


def spec(*masks: Mask) -> ModelSpec:
    return ModelSpec(vocab=11, dim=8, blocks=tuple(BlockSpec(mixer=AttentionSpec(mask=mask)) for mask in masks))


def test_path_and_reach_of_masks_with_holes():
    far = cost(spec(*[Mask(window=4)] * 3), 30)
    assert (far.reach, far.path) == (9, None)
    strided = cost(spec(Mask(stride=8), Mask(window=8)), 64)  # 63 = 7 · 8 + 7, in either order two steps
    assert (strided.reach, strided.path) == (None, 2)
    assert cost(spec(Mask(stride=8), Mask(stride=8)), 64).path is None
    assert cost(spec(Mask(stride=8)), 65).path == 1
    assert cost(spec(Mask(stride=8)), 64).reach == 56
    segments = spec(*[Mask(segment=4, memory=4)] * 2)
    # From 21 to the memory's first place 16, from there to 12; from 23 the same.
    assert [cost(segments, n).reach for n in (22, 24)] == [9, 11]
    assert cost(segments, 12).path == 2 and cost(segments, 14).path is None
    assert cost(spec(*[Mask(causal=False, window=2, globals=1)] * 2), 5000).path == 1


@pytest.mark.parametrize("name", ["stride", "random", "top-k", "plain-alibi"])
def test_a_long_text_is_read_in_pieces_where_no_gradients_are_kept(name, monkeypatch):
    spec = SPARSE.get(name, AttentionSpec(position=AlibiSpec()))
    layer, x = drawn(Attention(spec, 16)), torch.randn(2, 150, 16, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        whole, taken = layer.parallel(x, call_of(150)), peak_bytes(layer.parallel, x, call_of(150))
        monkeypatch.setattr(multihead, "ROOM_BYTES", 1 << 17)
        assert_same(layer.parallel(x, call_of(150)), whole, 1e-6)
        assert peak_bytes(layer.parallel, x, call_of(150)) < taken / 2
    assert_same(layer.parallel(x, call_of(150)).detach(), whole, 1e-6)
