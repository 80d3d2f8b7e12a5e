"""S13, S14: Q and K decide how much, V decides what, and the heads add up; on the shipped model and on the shapes of
GPT-2 and T5. `python -m glassformer.bench.routing` prints the numbers."""

from dataclasses import replace as changed

import pytest
import torch

from glassformer.bench import routing
from glassformer.bench.routing import MODELS, Routed, broken, routed, values


@pytest.mark.parametrize("name", MODELS)
def test_s13_swapped_values_leave_the_weights_and_swapped_keys_the_values(name):
    found = routed(*MODELS[name]())
    assert broken(found) == [], found
    assert len(found) == {"small": 4, "gpt2": 2, "t5": 6}[name]


def test_the_weights_that_a_swap_moves_are_those_of_the_formula():
    model, one, other = MODELS["gpt2"]()  # its queries and keys meet as they are, without rotations or biases
    found, plain, foreign = routed(model, one, other), values(model, one), values(model, other)
    later = torch.ones(9, 9, dtype=torch.bool).triu(1)

    def pattern(q, k):
        scores = torch.einsum("bthe,bshe->bhts", q, k) / 4  # the root of a head's width, 16
        return scores.masked_fill(later, -torch.inf).softmax(-1)

    for path, one in found.items():
        q, k, foreign_q, foreign_k = (run[f"{path}.{short}"] for run in (plain, foreign) for short in "qk")
        own = pattern(q, k)
        wanted = [(pattern(*pair) - own).abs().sum(-1).mean().item() / 2 for pair in ((foreign_q, k), (q, foreign_k))]
        assert one.turned == pytest.approx(wanted, rel=1e-9)


def test_what_does_not_hold_is_told(monkeypatch, capsys):
    good = Routed(True, 1e-15, 0.5, (0.2, 0.3), 1e-15)
    assert broken({"a": good}) == []
    for wrong in ({"same": False}, {"predicted": 1e-6}, {"moved": 0.0}, {"turned": (0.0, 0.3)}, {"summed": 1e-3}):
        assert len(broken({"a": good, "b": changed(good, **wrong)})) == 1
    monkeypatch.setattr(routing, "routed", lambda *models: {"blocks.0.mixer": changed(good, same=False)})
    assert routing.main(["--only", "gpt2"]) == 1
    assert "what must stay CHANGED\ngpt2, blocks.0.mixer: something" in capsys.readouterr().out
