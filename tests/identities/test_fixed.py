"""Mixers without parameters: the Fourier transform and the running mean, by hand and as weights times values."""

import cmath
import math

import pytest
import torch
from torch import Tensor

from contract.cases import assert_same, stack, tokens_of
from glassformer.call import Call
from glassformer.mixers.fixed import Bag, BagSpec, Fourier, FourierSpec
from glassformer.model import BlockSpec, build_model
from glassformer.tap import Probe
from glassformer.trace import Trace

N, WIDE = 7, 4


def inputs(t: int = N) -> Tensor:
    return torch.randn(1, t, WIDE, generator=torch.Generator().manual_seed(0)).double()


def looked_at(mixer, x: Tensor, call: Call) -> dict[str, Tensor]:
    probe = Probe()
    mixer.parallel(x, Call(call.pos, call.plain, call.segments, probe=probe))
    return probe.values


@pytest.mark.parametrize("unitary", [False, True])
def test_the_transform_by_hand(unitary):
    mixer, x = Fourier(FourierSpec(unitary=unitary), WIDE), inputs()
    found = mixer.parallel(x, Call(torch.arange(N)[None], plain=True))[0]
    for t in range(N):
        for k in range(WIDE):
            wanted = sum(
                x[0, s, c].item() * cmath.exp(-2j * math.pi * (t * s / N + k * c / WIDE))
                for s in range(N)
                for c in range(WIDE)
            ).real
            assert found[t, k].item() == pytest.approx(wanted / (math.sqrt(N * WIDE) if unitary else 1), abs=1e-10)


def test_the_unitary_transform_keeps_what_it_is_given_in_size():
    """Of the whole complex transform; its real part holds half of that, and of position 0 more."""
    x = torch.randn(1, 64, 32, generator=torch.Generator().manual_seed(0))
    for unitary, size in ((True, 1), (False, math.sqrt(64 * 32))):
        out = Fourier(FourierSpec(unitary=unitary), 32).parallel(x, Call(torch.arange(64)[None], plain=True))
        assert out.norm().item() == pytest.approx(size * x.norm().item() / math.sqrt(2), rel=0.05)


POS = torch.tensor([[0, 1, 2, -1, 0, 1, -1]])
SEGMENTS = torch.tensor([[5, 5, 5, 5, 6, 6, 6]])
CALLS = {
    "plain": Call(torch.arange(N)[None], plain=True),
    "padded": Call(torch.tensor([[-1, 0, -1, 1, 2, 3, -1]])),
    "packed": Call(POS, segments=SEGMENTS),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("kind", ["fourier", "fourier-unitary", "bag"])
def test_effective_weights_times_values_are_the_output(name, kind):
    """Of the fast path, where nobody looks."""
    mixer = Bag(BagSpec(), WIDE) if kind == "bag" else Fourier(FourierSpec(unitary=kind != "fourier"), WIDE)
    x, call, there = inputs(), CALLS[name], CALLS[name].pos[0] >= 0
    values = looked_at(mixer, x, call)
    out = mixer.parallel(x, call)[0, there]
    if kind == "bag":
        made = values["weights"] @ x
        assert_same(values["weights"][0, there].sum(-1), torch.ones(int(there.sum())).double(), 1e-12)
    else:
        made = torch.einsum("bhts,bshd->btd", values["weights"], values["values"])
    assert_same(made[0, there], out, 1e-12)
    off = values["weights"][0].reshape(-1, N, N)
    assert not off[:, :, ~there].any()
    if name == "packed":
        assert not off[:, :3, 4:].any() and not off[:, 4:, :3].any()


def test_a_batch_without_any_token_is_transformed_to_something_finite():
    x = inputs()
    for mixer in (Fourier(FourierSpec(), WIDE), Bag(BagSpec(), WIDE)):
        assert torch.isfinite(mixer.parallel(x, Call(torch.full((1, N), -1)))).all()


def test_the_mean_by_hand_and_in_steps():
    mixer, x = Bag(BagSpec(), WIDE), inputs()
    wanted = torch.stack([x[0, : t + 1].mean(0) for t in range(N)])
    state = mixer.empty(1, N, CALLS["plain"])
    parts = []
    for a, b in ((0, 3), (3, 4), (4, N)):
        part, state = mixer.step(x[:, a:b], state, Call(torch.arange(a, b)[None], plain=True))
        parts.append(part)
    assert_same(torch.cat(parts, 1)[0], wanted, 1e-12)
    assert state.count.tolist() == [N]


def test_a_bag_knows_no_order():
    mixer, x = Bag(BagSpec(), WIDE), inputs()
    turned = torch.cat((x[:, :-1].flip(1), x[:, -1:]), 1)
    found, other = (mixer.parallel(one, CALLS["plain"])[0] for one in (x, turned))
    assert_same(other[-1], found[-1], 1e-12)
    assert (other[0] - found[0]).abs().max() > 0.1


def test_a_short_document_behind_a_long_one_keeps_its_digits():
    """A running sum of both would lose what is small beside it."""
    x = torch.cat((torch.full((1, 20_000, 2), 1000.0), torch.tensor([[[1e-3, -2e-3], [3e-3, 4e-3]]])), 1)
    pos = torch.cat((torch.arange(20_000), torch.arange(2)))[None]
    segments = torch.cat((torch.zeros(20_000), torch.ones(2))).long()[None]
    out = Bag(BagSpec(), 2).parallel(x, Call(pos, segments=segments))
    assert_same(out[0, -2:], torch.tensor([[1e-3, -2e-3], [2e-3, 1e-3]]), 1e-4)


@pytest.mark.parametrize("mixer", [FourierSpec(unitary=True), BagSpec()])
def test_a_trace_tells_how_far_both_forms_are_apart(mixer):
    model = build_model(stack(BlockSpec(mixer=mixer), BlockSpec(mixer=mixer))).eval()
    trace = Trace(model, tokens_of(1, N))
    apart = trace.difference()
    assert {name: 0 <= value < 1e-5 for name, value in apart.items() if "mixer.out" in name} == {
        "blocks.0.mixer.out": True,
        "blocks.1.mixer.out": True,
    }
    assert trace["blocks.1.mixer.weights"].shape[-2:] == (N, N)
