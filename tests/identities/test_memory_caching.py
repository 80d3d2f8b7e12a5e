"""Identity 9, residual caching of a linear memory is the plain linear memory; and each form by hand."""

import pytest
import torch

from contract.cases import assert_same, call_of, drawn, relative_error
from glassformer.errors import InputError, SettingError
from glassformer.mixers.linear import LinearAttention, LinearSpec
from glassformer.mixers.memory import MemoryCaching, MemoryCachingSpec
from glassformer.tap import Probe

T, DIM = 14, 12
FORMS = ("residual", "gated", "soup", "sparse")


def layer(seed: int = 0, **settings) -> MemoryCaching:
    spec = MemoryCachingSpec(**{"heads": 3, "segment": 4, "key_dim": 5, "value_dim": 2} | settings)
    return drawn(MemoryCaching(spec, DIM), seed).double()


def text(batch: int = 2) -> torch.Tensor:
    return torch.randn(batch, T, DIM, generator=torch.Generator().manual_seed(1)).double()


def plain(mixer: MemoryCaching, **settings) -> LinearAttention:
    """Linear attention with one memory, and the weights of the mixer."""
    other = LinearAttention(LinearSpec(heads=3, key_dim=5, value_dim=2, **settings), DIM).double()
    other.load_state_dict({name: value for name, value in mixer.state_dict().items() if not name.startswith("u.")})
    return other


@pytest.mark.parametrize("feature", ["elu", "none"])
@pytest.mark.parametrize("segment", [1, 3, 4, 64])
@torch.no_grad()
def test_residual_caching_of_a_linear_memory_is_the_plain_linear_memory(segment, feature):
    mixer, x = layer(form="residual", segment=segment, feature=feature), text()
    wanted = plain(mixer, feature=feature, normalise=False).parallel(x, call_of(T))
    for probe in (None, Probe()):
        assert_same(mixer.parallel(x, call_of(T, probe)), wanted, 1e-12)


@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize("form", FORMS)
@torch.no_grad()
def test_a_single_segment_is_linear_attention_in_every_form(form, normalise):
    mixer, x = layer(form=form, segment=T, normalise=normalise), text()
    assert_same(mixer.parallel(x, call_of(T)), plain(mixer, normalise=normalise).parallel(x, call_of(T)), 1e-12)


@torch.no_grad()
def test_a_soup_is_gated_where_reading_is_linear_and_only_there():
    for normalise in (False, True):
        gated, soup = (layer(form=form, normalise=normalise) for form in ("gated", "soup"))
        error = relative_error(gated.parallel(text(), call_of(T)), soup.parallel(text(), call_of(T)))
        assert error > 1e-2 if normalise else error < 1e-12


@torch.no_grad()
def test_sparse_caching_that_reads_all_is_gated():
    gated, all_, one = layer(), layer(form="sparse", top_k=3), layer(form="sparse", top_k=1)
    outs = [mixer.parallel(text(), call_of(T)) for mixer in (gated, all_, one)]
    assert_same(outs[1], outs[0], 1e-12)
    assert_same(outs[2][:, :8], outs[0][:, :8], 1e-12)  # one earlier segment is all there is
    assert relative_error(outs[2][:, 12:], outs[0][:, 12:]) > 1e-2


@torch.no_grad()
def by_hand(mixer: MemoryCaching, x: torch.Tensor) -> torch.Tensor:
    """Token by token, head by head, memory by memory."""
    spec, size = mixer.spec, mixer.spec.segment
    q, k, v = (mixer.split(f(x), e) for f, e in ((mixer.q, 5), (mixer.k, 5), (mixer.v, 2)))
    q, k = (torch.nn.functional.elu(one) + 1 for one in (q, k))
    u = None if mixer.u is None else mixer.split(mixer.u(x), 5)
    z = torch.zeros_like(v)
    for i in range(T):
        for h in range(mixer.heads):
            memories, sums, scores = [], [], []
            for begin in range(0, i + 1, size):
                rows = slice(begin, min(begin + size, i + 1))
                memories.append(sum(torch.outer(a, b) for a, b in zip(k[rows, h], v[rows, h], strict=True)))
                sums.append(k[rows, h].sum(0))
                scores.append(torch.zeros(()) if u is None else u[i, h] @ k[rows, h].mean(0) / 5**0.5)
            own = len(memories) - 1
            chosen = list(range(own + 1))
            if spec.form == "sparse":
                chosen = [own, *sorted(range(own), key=lambda s, scores=scores: -scores[s])[: spec.top_k]]
            gates = [1.0] * len(chosen)
            if u is not None:
                gates = torch.stack([scores[s] for s in chosen]).softmax(0)
            one = q[i, h] if spec.normalise else q[i, h] / 5**0.5
            if spec.form == "soup":
                read = one @ sum(g * memories[s] for g, s in zip(gates, chosen, strict=True))
                share = one @ sum(g * sums[s] for g, s in zip(gates, chosen, strict=True))
                z[i, h] = read / share if spec.normalise else read
            else:
                for g, s in zip(gates, chosen, strict=True):
                    z[i, h] += g * (one @ memories[s]) / (one @ sums[s] if spec.normalise else 1.0)
    return mixer.out(z.flatten(1))


@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize("form", FORMS)
@torch.no_grad()
def test_every_form_by_hand(form, normalise):
    mixer, x = layer(form=form, normalise=normalise, top_k=1), text(1)
    probe = Probe()
    wanted = by_hand(mixer, x[0])[None]
    for found in (mixer.parallel(x, call_of(T)), mixer.parallel(x, call_of(T, probe))):
        assert_same(found, wanted, 1e-12)
    z = torch.einsum("bhts,bshf->bthf", probe.values["weights"], probe.values["v"])
    assert_same(z, probe.values["z"], 1e-12)
    if form in ("gated", "soup"):
        first_of_each = probe.values["shares"][..., [0, 4, 8, 12]]  # one token for each segment
        assert_same(first_of_each.sum(-1), torch.ones(1, 3, T).double(), 1e-12)


def test_more_tokens_than_room_and_settings_without_a_meaning_are_refused():
    mixer = layer()
    with torch.no_grad():
        _, state = mixer.step(text()[:, :3], mixer.empty(2, 5, call_of(3)), call_of(3))
        with pytest.raises(InputError, match="room for 5 tokens and 6 were given; ask for more room"):
            mixer.step(text()[:, :3], state, call_of(3))
    with pytest.raises(SettingError, match=r"^normalise: weights that may be negative"):
        MemoryCachingSpec(feature="none", normalise=True)
    with pytest.raises(SettingError, match=r"^segment: 0 is not allowed"):
        MemoryCachingSpec(segment=0)
