"""The laws of looking: tracing changes nothing, names are addresses, cards exist in both languages, edits act."""

import re

import pytest
import torch
from quick import quick_first, quick_share

from contract.cases import (
    CASES,
    CAUSAL,
    ONE_STACK,
    VOCAB,
    assert_same,
    built,
    kept,
    relative_error,
    run,
    source_of,
    start,
    stepped,
    tokens_of,
)
from glassformer.edit import add, mean, noise, scale, zero
from glassformer.errors import InputError
from glassformer.model import EncoderDecoder
from glassformer.tap import AXES, Probe, check_edited

CARRIED = (".mixer.state",)  # what a mixer keeps after the last token
HANGUL = re.compile("[가-힣]")


def traced(name, tokens, **extra) -> tuple[torch.Tensor, Probe]:
    probe = Probe(**extra)
    with torch.no_grad():
        return run(kept(name), tokens, probe=probe), probe


@pytest.mark.parametrize("name", CASES)
def test_looking_at_everything_changes_nothing(name):
    tokens = tokens_of(2, 9)
    found, probe = traced(name, tokens)
    with torch.no_grad():
        assert_same(found, run(kept(name), tokens))
    assert len(probe.values) > 10


@pytest.mark.parametrize("name", CASES)
def test_names_are_module_paths_with_axes_and_cards(name):
    model, batch, t = kept(name), 2, 9
    stack, two = CASES[name], isinstance(model, EncoderDecoder)
    _, probe = traced(name, tokens_of(batch, t))
    modules = dict(model.named_modules())
    for full, value in probe.values.items():
        path, _, short = full.rpartition(".")
        assert path in modules and modules[path].path == path, full
        letters = probe.axes[full].split()
        assert set(letters) <= AXES.keys() and len(set(letters)) == len(letters) == value.ndim, full
        sizes = dict(zip(letters, value.shape, strict=True))
        encoder, cross = full.startswith("encoder."), ".cross." in full
        here = source_of(1)[0].shape[1] if encoder else t
        seen = source_of(1)[0].shape[1] if encoder or cross else t
        for letter, size in (("b", batch), ("t", here), ("s", seen), ("v", VOCAB)):
            assert sizes.get(letter, size) == size, (full, letter, sizes)
        widths = (stack.encoder if encoder else stack.decoder).widths if two else stack.widths
        assert sizes.get("d", widths[0]) in widths, (full, sizes)
        card = modules[path].cards[short]
        assert card.symbol and card.formula and card.en.endswith("."), full
        assert HANGUL.search(card.ko), full


@pytest.mark.parametrize("name", CAUSAL)
def test_steps_tap_the_same_values_under_the_same_names(name):
    model, tokens = kept(name), tokens_of(2, 6)
    _, whole = traced(name, tokens)
    first, second = Probe(), Probe()
    stack = model.decoder if isinstance(model, EncoderDecoder) else model
    with torch.no_grad():
        _, state = stack.step(tokens[:, :4], start(model, 2, 6), probe=first)
        stack.step(tokens[:, 4:], state, probe=second)
    own = {n for n in whole.values if not n.startswith("encoder.") and not n.endswith(("cross.k", "cross.v"))}
    assert set(first.values) == set(second.values) == own
    for full in own:
        axes = whole.axes[full].split()
        if "t" in axes and "s" not in axes:
            parts = (first.values[full], second.values[full])
            assert_same(torch.cat(parts, axes.index("t")), whole.values[full], 3e-5)


def _indifferent(name: str, full: str) -> bool:
    """What cannot matter: scores where a token sees itself alone, an expert that was perhaps not chosen, and what is
    left after the last token, in a run that does not go on."""
    return (
        (name == "mixer-window-1" and full.endswith((".q", ".k", ".dots", ".scores")))
        or ".experts." in full
        or full.endswith(CARRIED)
    )


@pytest.mark.parametrize("name", quick_share(CASES, 4, 3))
def test_an_edit_of_any_value_acts(name):
    tokens = tokens_of(1, 6)
    plain, probe = traced(name, tokens)
    for full in probe.values:
        edited, told = traced(name, tokens, want=lambda n, full=full: n == full, edits=(noise(full, 1.0),))
        assert told.edited == {full}
        assert not torch.equal(told.values[full], probe.values[full]), f"{full}: the recorded value is not the edited"
        if not _indifferent(name, full):
            assert relative_error(edited.nan_to_num(), plain) > 1e-4, f"editing {full} changed nothing"


@pytest.mark.parametrize("name", CAUSAL)
def test_an_edit_of_what_is_carried_on_acts_on_the_next_step(name):
    model, tokens = kept(name), tokens_of(1, 6)
    stack = model.decoder if isinstance(model, EncoderDecoder) else model

    def next_step(probe):
        _, state = stack.step(tokens[:, :4], start(model, 1, 6), probe=probe)
        return stack.step(tokens[:, 4:], state)[0]

    with torch.no_grad():
        plain = next_step(probe := Probe())
        for full in (full for full in probe.values if full.endswith(CARRIED)):
            edited = Probe(lambda asked, full=full: asked == full, (noise(full, 1.0),))
            assert relative_error(next_step(edited), plain) > 1e-4, f"editing {full} changed nothing"


KINDS = {
    "scale": lambda n: scale(n, -1.0),
    "zero": zero,
    "noise": lambda n: noise(n, 1.0),
    "add": lambda n: add(n, 0.5),
}
QUICK = {"mixer-sink-relative", "channel-experts", "wiring-parallel", "cross-kv-1", "mixer-lstm-both", "mixer-gla"}


@pytest.mark.parametrize("name", quick_first(CASES, QUICK))
def test_an_edit_acts_on_the_fast_path_as_where_all_is_looked_at(name):
    """Written out or fused, routed to some experts or through all: the edited run is one and the same."""
    tokens = tokens_of(2, 6)
    _, probe = traced(name, tokens)
    for full, axes in probe.axes.items():
        kinds = KINDS | ({"mean": mean} if {"t", "s"} & set(axes.split()) else {})
        for kind, edit in kinds.items():
            fast, glass = (traced(name, tokens, want=lambda _, a=a: a, edits=(edit(full),))[0] for a in (False, True))
            assert relative_error(fast, glass) < 1e-4, (full, kind)


@pytest.mark.parametrize("name", quick_share(CAUSAL, 4, 2))
def test_an_edit_at_a_position_does_not_act_on_earlier_ones(name):
    tokens = tokens_of(2, 6)
    plain, probe = traced(name, tokens)
    for full, axes in probe.axes.items():
        if "t" in axes.split() and not full.startswith("encoder.") and not full.endswith(("scores", "dots", "pattern")):
            edited, _ = traced(name, tokens, edits=(noise(full, 1.0, t=4),))
            assert_same(edited[:, :4], plain[:, :4])
            assert _indifferent(name, full) or relative_error(edited[:, 4:], plain[:, 4:]) > 1e-4, full


@pytest.mark.parametrize("name", ["mixer-plain", "cross-plain"])
def test_an_edit_of_an_unknown_name_is_refused_with_the_nearest(name):
    _, probe = traced(name, tokens_of(1, 4), edits=(zero("blocks.0.mixer.patern"),))
    with pytest.raises(InputError, match=r"no value named 'blocks.0.mixer.patern'.*did you mean .*mixer\.pattern"):
        check_edited(probe, lambda: list(probe.values))


def test_without_a_probe_no_layer_stores_anything():
    model = kept("mixer-plain")
    before = {n: set(vars(m)) for n, m in model.named_modules()}
    traced("mixer-plain", tokens_of(1, 4))
    stepped(model, tokens_of(1, 4), [2])
    assert {n: set(vars(m)) for n, m in model.named_modules()} == before


PACKED = {
    "pos": torch.tensor([[0, 1, 2, 3, 0, 1, 2, 3, 4], [-1, -1, 0, 1, 2, 0, 1, 2, -1]]),
    "segments": torch.tensor([[1, 1, 1, 1, 2, 2, 2, 2, 2], [1, 1, 1, 1, 1, 2, 2, 2, 2]]),
}
PADDED = torch.tensor([[0, 1, 2, 3, 4, 5, 6, 7, 8], [-1, -1, 0, 1, 2, 3, 4, 5, -1]])


@pytest.mark.parametrize("name", quick_share(CASES, 3, 0))
def test_gradients_of_a_run_that_is_looked_at_are_those_of_the_fast_one(name):
    model, tokens = built(name).double(), tokens_of(2, 9)
    parameters = list(model.parameters())
    for places in ({}, PACKED) if name in ONE_STACK else ({}, {"pos": PADDED}):
        there = places.get("pos", torch.zeros(2, 9)) >= 0
        found, wanted = (
            torch.autograd.grad(run(model, tokens, **places, probe=probe)[there].sin().sum(), parameters)
            for probe in (Probe(), None)
        )
        largest = max(g.abs().max() for g in wanted)
        for (label, _), a, b in zip(model.named_parameters(), found, wanted, strict=True):
            assert (a - b).abs().max() <= 1e-10 * largest, label
