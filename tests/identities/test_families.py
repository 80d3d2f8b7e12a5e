"""The map of all families (S18, S23, S24, S30): who mixes, what the mixing follows, what it costs, and that what stands
between families trains."""

import math

import pytest
import torch
import torch.nn.functional as F

import glassformer as gf
from contract.cases import MIXERS, assert_same, call_of, drawn, stack
from glassformer.mask import Mask
from glassformer.mixers.attention import AttentionSpec
from glassformer.mixers.conv import ConvSpec
from glassformer.mixers.delta import DeltaSpec
from glassformer.mixers.dense import WindowSpec
from glassformer.mixers.fixed import BagSpec, FourierSpec
from glassformer.mixers.linear import FixedDecaySpec, LinearSpec
from glassformer.mixers.mamba import MambaSpec
from glassformer.mixers.mamba2 import Mamba2Spec
from glassformer.mixers.memory import MemoryCachingSpec
from glassformer.mixers.recurrent import GruSpec, LstmSpec, RnnSpec
from glassformer.mixers.s4 import S4DSpec
from glassformer.model import BlockSpec, ModelSpec, build_model
from glassformer.tap import Probe

T, D = 6, 16
ONE_OF_EACH = {type(spec): name for name, spec in reversed(MIXERS.items())}.values()


def mixer_of(spec):
    return drawn(build_model(stack(BlockSpec(mixer=spec, channel=None)))).blocks[0].mixer


def text(seed):
    return torch.randn(1, T, D, generator=torch.Generator().manual_seed(seed))


def taken(mixer, seed, name="weights"):
    """A value of the mixer in a text of its own."""
    probe = Probe()
    with torch.no_grad():
        mixer.parallel(text(seed), call_of(T, probe))
    return probe.values[f"{mixer.path}.{name}"]


def jacobian(f, x):
    """`t f s d` of a function of `t d`."""
    return torch.autograd.functional.jacobian(lambda y: f(y[None])[0], x[0])


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_s18_every_token_mixer_lets_a_token_depend_on_another(name):
    mixer = mixer_of(MIXERS[name])
    moved = jacobian(lambda y: mixer.parallel(y, call_of(T)), text(0)).abs().amax((1, 3))
    assert moved.tril(-1).max() > 1e-4
    assert mixer.causal == (moved.triu(1).max() < 1e-6)  # a Fourier transform rounds


FIXED = {"bag": BagSpec(), "fourier": FourierSpec(), "s4d": S4DSpec(state=6, delta_min=0.1, delta_max=1.0)}
CHOSEN = {
    "attention": (AttentionSpec(), "pattern"),
    "linear": (LinearSpec(), "weights"),
    "delta": (DeltaSpec(), "weights"),
    "caching": (MemoryCachingSpec(segment=2), "weights"),
    "mamba": (MambaSpec(state=3, delta_min=0.1, delta_max=1.0), "weights"),
    "mamba2": (Mamba2Spec(state=6, delta_min=0.1, delta_max=1.0), "weights"),
}


@pytest.mark.parametrize("name", FIXED)
def test_s23_what_is_fixed_is_the_same_in_every_text(name):
    mixer = mixer_of(FIXED[name])
    assert torch.equal(taken(mixer, 0), taken(mixer, 1)) and taken(mixer, 0).abs().max() > 0.1


@pytest.mark.parametrize("name", CHOSEN)
def test_s23_what_is_chosen_by_content_follows_the_text(name):
    spec, tap = CHOSEN[name]
    mixer = mixer_of(spec)
    one, other = taken(mixer, 0, tap), taken(mixer, 1, tap)
    assert (one - other).norm() > 0.1 * one.norm()


def test_s23_a_convolution_is_one_band_everywhere_and_a_window_mlp_has_weights_for_each_place():
    def pieces(mixer, name, seed):  # `t s`: the block of the Jacobian of what is made before any activation
        def made(y):
            probe = Probe()
            mixer.parallel(y, call_of(T, probe))
            return probe.values[f"{mixer.path}.{name}"]

        return jacobian(made, text(seed)).transpose(1, 2)

    for spec, name in ((ConvSpec(width=3), "out"), (WindowSpec(window=3, hidden=8), "pre")):
        mixer = mixer_of(spec)
        blocks = pieces(mixer, name, 0)
        assert_same(pieces(mixer, name, 1), blocks)  # whatever the text says
        size = blocks.abs().amax((2, 3))
        band = torch.ones(T, T).tril().bool() & ~torch.ones(T, T).tril(-3).bool()
        assert ((size > 1e-4) == band).all()
        for t in range(3, T):  # the same weights one place further; and others for each place of the window
            assert_same(blocks[t, t - 2 : t + 1], blocks[t - 1, t - 3 : t])
        assert (blocks[5, 5] - blocks[5, 4]).norm() > 0.1 * blocks[5, 5].norm()
    mixed = mixer_of(MIXERS["mixing"])  # here each position has weights of its own, wherever it looks
    blocks = jacobian(lambda y: mixed.parallel(y, call_of(T)), text(0)).transpose(1, 2).diagonal(dim1=2, dim2=3)
    assert (blocks[3, 2] - blocks[2, 1]).norm() > 0.1 * blocks[3, 2].norm()


def test_s23_retention_fades_with_the_distance_alone_and_at_its_heads_own_pace():
    spec = LinearSpec(feature="none", normalise=False, decay=FixedDecaySpec(fastest=0.5, slowest=0.1), heads=2)
    mixer = mixer_of(spec)
    weights, q, k = (taken(mixer, 0, name)[0] for name in ("weights", "q", "k"))
    for head, lost in enumerate((0.5, 0.1)):
        dots = q[:, head] @ k[:, head].T
        distance = (torch.arange(T)[:, None] - torch.arange(T)).clamp(min=0)
        assert_same(weights[head], (dots * (1 - lost) ** distance).tril())


LONG = 16_384
GROWTH = {  # exponents of the work and of the state of one layer, at lengths far beyond its width
    "attention": (AttentionSpec(), 2, 1),
    "window": (AttentionSpec(mask=Mask(window=64)), 2, 0),  # counted as if written out
    "caching": (MemoryCachingSpec(), 2, 1),
    "conv": (ConvSpec(), 1, 0),
    "rnn": (RnnSpec(), 1, 0),
    "lstm": (LstmSpec(), 1, 0),
    "linear": (LinearSpec(), 1, 0),
    "delta": (DeltaSpec(), 1, 0),
    "s4d": (S4DSpec(), 1, 0),
    "mamba": (MambaSpec(), 1, 0),
    "mamba2": (Mamba2Spec(), 1, 0),
}


@pytest.mark.parametrize("name", GROWTH)
def test_s24_work_and_state_grow_as_the_map_says(name):
    spec, work, state = GROWTH[name]
    model = ModelSpec(vocab=2, dim=64, blocks=(BlockSpec(mixer=spec, channel=None),), head=None)
    short, long = gf.cost(model, LONG), gf.cost(model, 2 * LONG)
    assert math.log2((long.flops + long.scan_flops) / (short.flops + short.scan_flops)) == pytest.approx(work, abs=0.1)
    assert math.log2(long.state_bytes / short.state_bytes) == pytest.approx(state, abs=1e-3)


def losses(model, given, targets, steps=40):
    """The loss before and after some updates on the same batch."""
    torch.manual_seed(0)
    optimizer, found = torch.optim.Adam(model.parameters(), 0.01), []
    for _ in range(steps):
        loss = F.cross_entropy(model(given).flatten(0, -2), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found[0], found[-1]


SMALL = {"vocab": 11, "dim": 16, "context": 16}
WRITERS = {
    "hybrid": ModelSpec(
        **SMALL,
        blocks=tuple(
            BlockSpec(mixer=one) for one in (ConvSpec(width=2), MambaSpec(state=4), GruSpec(), AttentionSpec(heads=2))
        ),
    ),
    "mamba": gf.preset("mamba", blocks=2, **SMALL),
    "mamba2": gf.preset("mamba2", blocks=2, heads=2, **SMALL),
}


@pytest.mark.parametrize("name", WRITERS)
def test_s30_hybrids_and_state_spaces_learn_to_repeat_what_was_read(name):
    half = torch.randint(1, 11, (16, 6), generator=torch.Generator().manual_seed(0))
    tokens = torch.cat((half, half), 1)
    before, after = losses(gf.build(WRITERS[name]).model.train(), tokens[:, :-1], tokens[:, 1:])
    assert before > 2 and after < before / 2


def test_s30_a_vision_transformer_learns_what_lies_where():
    spec = gf.preset("vit", classes=4, size=8, channels=1, patch=4, dim=16, blocks=1, heads=2, dropout=0.0)
    labels = torch.arange(32) % 4
    images = 0.2 * torch.rand(32, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    for image, label in zip(images, labels.tolist(), strict=True):
        row, column = 4 * (label // 2), 4 * (label % 2)
        image[:, row : row + 4, column : column + 4] += 0.7
    before, after = losses(gf.build(spec).model.train(), images, labels)
    assert before > 1 and after < before / 3
