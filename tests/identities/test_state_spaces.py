"""What S4D, Mamba and Mamba-2 have in common: their weights are exact in any row, and their state is all they keep."""

import pytest
import torch

from contract.cases import assert_same, drawn
from glassformer.call import Call
from glassformer.mixers.mamba import Mamba, MambaSpec
from glassformer.mixers.mamba2 import Mamba2, Mamba2Spec
from glassformer.mixers.s4 import S4D, S4DSpec
from glassformer.tap import Probe

LAYERS = {
    "s4d": lambda: S4D(S4DSpec(state=4, delta_min=0.1, delta_max=1.0), 8),
    "mamba": lambda: Mamba(MambaSpec(state=3), 8),
    "mamba2": lambda: Mamba2(Mamba2Spec(state=3, groups=2), 8),
}
POS = torch.tensor([[0, 1, 2, 0, -1, 1, 2, 0, 1], [-1, -1, 0, 1, 2, 3, -1, 4, 5]])
SEGMENTS = torch.tensor([[4, 4, 4, 4, 4, 4, 4, 7, 7], [1] * 9])


@pytest.fixture(params=LAYERS)
def layer(request):
    return drawn(LAYERS[request.param]()).double()


def normal(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@torch.no_grad()
@pytest.mark.parametrize("cut", [1, 4, 8])
def test_the_weights_are_exact_in_packed_and_padded_rows_and_after_a_past(layer, cut):
    x, there = normal(2, 9, 8), POS >= 0
    state, fast = layer.empty(2, 9, Call(POS, segments=SEGMENTS)), []
    glass_state, glass = state.clone(), []
    for part in (slice(0, cut), slice(cut, 9)):
        place = {"pos": POS[:, part], "segments": SEGMENTS[:, part]}
        y, state = layer.step(x[:, part], state, Call(**place))
        probe = Probe()
        z, glass_state = layer.step(x[:, part], glass_state, Call(**place, probe=probe))
        fast.append(y)
        glass.append(z)
        w = probe.values["weights"]
        other = SEGMENTS[:, part, None] != SEGMENTS[:, None, part]
        hidden = other | ~there[:, None, part] | ~there[:, part, None]
        seen = w.abs().amax(1) * there[:, part, None]
        assert seen[hidden].abs().max() == 0 if hidden.any() else True
    assert_same(torch.cat(glass, 1)[there], torch.cat(fast, 1)[there], 1e-12)


@torch.no_grad()
def test_the_state_stays_where_no_token_is_and_begins_anew_with_a_document(layer):
    x = normal(1, 4, 8)
    plain = Call(torch.arange(4)[None], plain=True)
    _, state = layer.step(x, layer.empty(1, 9, plain), plain)
    before = state.state.clone()
    _, state = layer.step(x[:, :2], state, Call(torch.tensor([[-1, -1]])))
    assert torch.equal(state.state, before)
    last = Call(torch.tensor([[0]]))
    found, _ = layer.step(x[:, :1], state, last)
    assert_same(found, layer.step(x[:, :1], layer.empty(1, 1, last), last)[0], 1e-12)


@torch.no_grad()
def test_the_state_does_not_grow_with_the_text(layer):
    sizes = set()
    for t in (1, 5, 40):
        call = Call(torch.arange(t)[None], plain=True)
        _, state = layer.step(normal(1, t, 8), layer.empty(1, t, call), call)
        sizes.add(state.nbytes)
        assert state.nbytes == layer.cost(t, 8).state_bytes
    assert len(sizes) == 1
