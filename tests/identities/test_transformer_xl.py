"""Transformer-XL: its scores by hand, its segments one after the other as the paper runs them, and what it trains."""

import math

import pytest
import torch

from contract.cases import assert_same, call_of, drawn, relative_error
from glassformer.errors import SettingError
from glassformer.mask import Mask
from glassformer.mixers.attention import Attention, AttentionSpec
from glassformer.nn.position import RelativeSinusoidSpec

T, SEGMENT, MEMORY, DIM = 11, 3, 4, 16


def layer(**settings) -> Attention:
    spec = AttentionSpec(mask=Mask(segment=SEGMENT, memory=MEMORY), position=RelativeSinusoidSpec(), **settings)
    return drawn(Attention(spec, DIM)).double()


def text(batch: int = 1) -> torch.Tensor:
    return torch.randn(batch, T, DIM, generator=torch.Generator().manual_seed(1)).double()


@torch.no_grad()
def by_hand(mixer: Attention, x: torch.Tensor) -> torch.Tensor:
    """Segment by segment, as in the paper: keys and values of [memory, segment], r of every distance, equation of
    section 3.3 with the four terms (a) to (d) apart."""
    w = dict(mixer.named_parameters())
    heads, width = mixer.heads, mixer.width
    out, memory = [], x[:0]
    for segment in x.split(SEGMENT):
        line = torch.cat((memory, segment))
        z = torch.zeros(len(segment), heads, width, dtype=x.dtype)
        for i, one in enumerate(segment):
            seen = line[: len(memory) + i + 1]
            for h in range(heads):
                rows = slice(h * width, (h + 1) * width)
                q, scores = w["q.weight"][rows] @ one, []
                for j, other in enumerate(seen):
                    k, back = w["k.weight"][rows] @ other, len(memory) + i - j
                    r = torch.tensor(
                        [f(back / 10_000 ** (c / DIM)) for c in range(0, DIM, 2) for f in (math.sin, math.cos)],
                        dtype=x.dtype,
                    )
                    r = w["relative.project.weight"][rows] @ r
                    u, v = w["relative.u"][h], w["relative.v"][h]
                    scores.append((q @ k + q @ r + u @ k + v @ r) / math.sqrt(width))
                z[i, h] = torch.stack(scores).softmax(0) @ (seen @ w["v.weight"][rows].T)
        out.append(z.flatten(1) @ w["out.weight"].T)
        memory = line[-MEMORY:]
    return torch.cat(out)[None]


def test_segments_one_after_the_other_are_the_paper():
    mixer, x = layer(), text()
    with torch.no_grad():
        assert_same(mixer.parallel(x, call_of(T)), by_hand(mixer, x[0]), 1e-12)


@torch.no_grad()
def test_both_ways_to_the_distances_agree():
    """One query goes through W_R itself; many let the distances go through it."""
    relative = layer().relative
    q, pos = torch.randn(1, 4, 12, 4, generator=torch.Generator().manual_seed(1)).double(), torch.arange(12)[None]
    (one, all_distances), (twelve, again) = relative._orders(1), relative._orders(12)
    assert one < all_distances and twelve > again
    many = relative(q, pos, pos)
    single = torch.cat([relative(q[:, :, i : i + 1], pos[:, i : i + 1], pos) for i in range(12)], 2)
    near = (pos[:, :, None] - pos[:, None]).abs() < relative.near
    assert_same(single.where(near, 0), many.where(near, 0), 1e-12)
    some = torch.tensor([2, 0])
    assert_same(relative(q[:, some], pos, pos, some), many[:, some], 1e-12)


def grads(mixer: Attention, x: torch.Tensor, cuts: list[int] | None = None) -> list[torch.Tensor]:
    """Of a sum over the last segment: with respect to x and every parameter."""
    x = x.clone().requires_grad_()
    if cuts is None:
        out = mixer.parallel(x, call_of(T))
    else:
        state, parts = mixer.empty(len(x), T, call_of(T)), []
        for a, b in zip([0, *cuts], [*cuts, T], strict=True):
            call = call_of(b)
            part, state = mixer.step(x[:, a:b], state, type(call)(call.pos[:, a:], plain=True))
            parts.append(part)
        out = torch.cat(parts, 1)
    weight = torch.randn(out.shape, generator=torch.Generator().manual_seed(4)).double()
    weight[:, : T - T % SEGMENT] = 0
    return list(torch.autograd.grad((out * weight).sum(), [x, *mixer.parameters()]))


@pytest.mark.parametrize("variant", [{}, {"softcap": 2.0, "kv_heads": 2}, {"sink": True}])
def test_no_gradient_reaches_a_detached_memory_in_any_form(variant):
    plain, mixer, x = layer(**variant), layer(detach=True, **variant), text(2)
    begin = T - T % SEGMENT
    assert_same(mixer.parallel(x, call_of(T)), plain.parallel(x, call_of(T)), 1e-12)
    whole = grads(plain, x)
    assert whole[0][:, begin - MEMORY : begin].abs().amin(-1).min() > 0
    for a, b in zip(grads(mixer, x), whole, strict=True):  # where nobody trains, the Jacobian is the true one
        assert_same(a, b, 1e-12)
    mixer.train()
    found = grads(mixer, x)
    assert found[0][:, :begin].abs().max() == 0 and found[0][:, begin:].abs().min() > 0
    at = 1 + [name for name, _ in mixer.named_parameters()].index("k.weight")
    assert relative_error(found[at], whole[at]) > 0.01, "W_K learns from its own segment alone"
    for cuts in ([4], list(range(1, T))):
        for a, b in zip(grads(mixer, x, cuts), found, strict=True):
            assert_same(a, b, 1e-10)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"detach": True}, r"^detach: only has a meaning with segments"),
        ({"position": RelativeSinusoidSpec()}, r"^position: relative-sinusoidal needs a limited way back"),
        ({"position": RelativeSinusoidSpec(), "mask": Mask(window=3, sinks=1)}, r"leave out sinks"),
    ],
)
def test_what_has_no_meaning_is_refused(settings, message):
    with pytest.raises(SettingError, match=message):
        AttentionSpec(**settings)
