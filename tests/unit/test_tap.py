"""Taps and edits, on bare tensors."""

import numpy as np
import pytest
import torch

from glassformer.edit import Edit, add, mean, noise, replace, scale, zero
from glassformer.errors import InputError
from glassformer.tap import Probe, Stop, check_edited, off

X = torch.arange(24.0).reshape(2, 3, 4) + 1


def test_off_returns_its_argument():
    assert off("q", X, "b t d") is X


def test_a_probe_records_what_it_wants_under_the_full_name():
    probe = Probe(lambda name: name.endswith("q"))
    tap = probe.at("blocks.0.mixer")
    assert tap("q", X, "b t d") is X and tap("k", X, "b s d") is X
    assert list(probe.values) == ["blocks.0.mixer.q"] and probe.axes == {"blocks.0.mixer.q": "b t d"}
    Probe.at(other := Probe(), "")("logits", X, "b t v")
    assert list(other.values) == ["logits"]


def test_wants_what_is_recorded_or_edited():
    probe = Probe(lambda name: name == "a.q", (zero("a.k"),))
    assert probe.wants("a.q") and probe.wants("a.k") and not probe.wants("a.v")


def test_axes_that_do_not_fit_and_names_tapped_twice_are_mistakes():
    tap = Probe().at("a")
    with pytest.raises(AssertionError, match=r"a\.q: axes 'b t' do not fit shape \(2, 3, 4\)"):
        tap("q", X, "b t")
    tap("q", X, "b t d")
    with pytest.raises(AssertionError, match="tapped twice"):
        tap("q", X, "b t d")


def test_stops_once_everything_asked_for_is_there():
    probe = Probe(last=frozenset(("a.q", "a.k")))
    tap = probe.at("a")
    tap("k", X, "b t d")
    tap("v", X, "b t d")
    with pytest.raises(Stop):
        tap("q", X, "b t d")
    assert {"a.q", "a.k"} <= probe.values.keys()


def changed(edit: Edit) -> torch.Tensor:
    before = X.clone()
    found = edit.apply(X, "b t d")
    assert torch.equal(X, before), "an edit must not write into the value it was given"
    return found


def test_zero_scale_add_replace_at_places_by_axis():
    wanted = X.clone()
    wanted[:, 1] = 0
    assert torch.equal(changed(zero("a", t=1)), wanted)
    wanted = X.clone()
    wanted[1, :, -1] *= 3
    assert torch.equal(changed(scale("a", 3, d=-1, b=1)), wanted)
    wanted = X.clone()
    wanted[:, 1:] += torch.arange(4.0)
    assert torch.equal(changed(add("a", torch.arange(4.0), t=slice(1, None))), wanted)
    wanted = X.clone()
    wanted[0, 2] = torch.tensor([9.0, 8, 7, 6])
    assert torch.equal(changed(replace("a", [9, 8, 7, 6], b=0, t=2)), wanted)
    assert torch.equal(changed(replace("a", -X)), -X)


def test_lists_on_two_axes_mean_every_pair_of_places():
    wanted = X.clone()
    for t in (0, 2):
        for d in (1, 2, 3):
            wanted[:, t, d] = 0
    assert torch.equal(changed(zero("a", t=[0, 2], d=[1, 2, 3])), wanted)
    assert torch.equal(changed(zero("a", t=[2, 0], d=slice(1, None))), wanted)


def test_numpys_numbers_and_slices_backwards_are_places():
    for odd, even in (
        (np.int64(1), 1),
        (torch.tensor(-1), 2),
        (np.array([2, 0]), [2, 0]),
        (torch.tensor([0, 1]), [0, 1]),
        (range(2), [0, 1]),
        (slice(None, None, -2), [2, 0]),
        (slice(2, 0, -1), [2, 1]),
    ):
        assert torch.equal(changed(zero("a", t=odd)), changed(zero("a", t=even)))


def test_no_edit_opens_what_the_mask_forbids():
    scores = torch.tensor([[1.0, -torch.inf, -torch.inf], [2.0, 3.0, -torch.inf], [6.0, 5.0, 4.0]])
    for edit in (
        zero("s"),
        add("s", 3.0),
        scale("s", 0.0),
        scale("s", -2.0),
        replace("s", 1.0),
        noise("s", 1.0),
        mean("s"),
    ):
        found = edit.apply(scores, "t s")
        assert torch.equal(found.isneginf(), scores.isneginf()) and not found.isnan().any()
        assert not torch.equal(found, scores)
    assert mean("s").apply(scores, "t s")[2].tolist() == [3.0, 4.0, 4.0]
    assert replace("s", -torch.inf, t=2, s=0).apply(scores, "t s")[2].tolist() == [-torch.inf, 5.0, 4.0]


def test_mean_is_over_the_positions_of_this_input():
    wanted = X.clone()
    wanted[:, 0] = X.mean(1)
    assert torch.equal(changed(mean("a", t=0)), wanted)
    assert torch.equal(mean("a").apply(X, "b s d"), X.mean(1, keepdim=True).expand_as(X))
    with pytest.raises(InputError, match="no position axis"):
        mean("a").apply(X, "b h e")


def test_noise_has_the_given_deviation_and_repeats_with_its_seed():
    big = torch.zeros(100, 100)
    found = noise("a", 2.0, seed=3, t=slice(0, 50)).apply(big, "t d")
    assert torch.equal(found, noise("a", 2.0, seed=3, t=slice(0, 50)).apply(big, "t d"))
    assert not torch.equal(found, noise("a", 2.0, seed=4, t=slice(0, 50)).apply(big, "t d"))
    assert 1.9 < found[:50].std() < 2.1 and found[50:].abs().max() == 0


def test_edits_apply_in_order_before_the_value_is_recorded_and_used():
    probe = Probe(edits=(add("a.q", 1.0), scale("a.q", 2.0)))
    used = probe.at("a")("q", X, "b t d")
    assert torch.equal(used, (X + 1) * 2) and probe.values["a.q"] is used


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (zero("a", h=1), r"a has no axis 'h'; its axes are: b t d"),
        (zero("a", t=3), r"a: axis 't' has no index 3; it has 3 \(0 to 2\)"),
        (zero("a", t=[0, -4]), r"a: axis 't' has no index -4"),
        (zero("a", t=slice(5, 9)), r"a: axis 't' has no place in 5:9; it has 3"),
        (zero("a", t=[]), r"a: axis 't' has no place in \[\]"),
        (zero("a", t=1.5), r"a: axis 't' has no place 1.5; give a whole number, a list of them, or a slice"),
        (zero("a", t="one"), r"a: axis 't' has no place 'one'; give a whole number"),
        (zero("a", t=[0, None]), r"a: axis 't' has no place \[0, None\]; give a whole number"),
        (zero("a", t=slice(0, 2, 0)), r"a: axis 't' has no place 0:2:0"),
        (zero("a", t=np.int64(7)), r"a: axis 't' has no index 7"),
        (replace("a", torch.ones(5), t=0), r"a: a value of shape \(5,\) does not fit the edited place \(2, 1, 4\)"),
    ],
)
def test_places_and_values_that_do_not_fit_are_refused(edit, message):
    with pytest.raises(InputError, match=message):
        edit.apply(X, "b t d")


def test_edits_that_found_no_value_are_named():
    probe = Probe(edits=(zero("a.q"), zero("a.zz")))
    probe.at("a")("q", X, "b t d")
    with pytest.raises(InputError, match=r"no value named 'a\.zz' in this model; .*a\.z\b"):
        check_edited(probe, lambda: ["a.q", "a.z"])
    check_edited(Probe(), lambda: [])


@pytest.mark.parametrize("given", [-1.0, float("nan"), float("inf")])
def test_noise_has_a_finite_spread(given):
    with pytest.raises(InputError, match="^deviation: .* is not allowed; use a finite number from 0"):
        noise("embed.out", given)
