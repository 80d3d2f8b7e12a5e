"""Induction heads (Olsson et al. 2022; S14): one layer of attention cannot, two can, smeared keys let one; without the
head that is found by its score the gain is gone, without any other it stays. Each bound of the bench, on one seed."""

import math

import pytest
import torch

from glassformer.bench.induction import BOUNDS, LENGTH, MODELS, SYMBOLS, broken, drawn, found, measured, trained


class Knowing(torch.nn.Module):
    """Tells the next symbol where the one at hand came before, by looking for it, and else every symbol alike."""

    def forward(self, tokens, probe=None):
        logits = torch.zeros(*tokens.shape, SYMBOLS)
        for b, row in enumerate(tokens.tolist()):
            for t, one in enumerate(row):
                earlier = [s for s in range(t) if row[s] == one]
                if earlier:
                    logits[b, t, row[earlier[-1] + 1]] = 100.0
        return logits


def test_who_looks_behind_the_last_equal_symbol_knows_all_that_can_be_known():
    some = drawn(20, torch.Generator().manual_seed(0))
    assert some.tokens.shape == (20, LENGTH + 1)
    whole = measured(Knowing(), some)
    assert whole.accuracy == 1 and whole.gain == pytest.approx(math.log(SYMBOLS))


def test_a_bound_that_does_not_hold_is_told():
    good = {"accuracy": 0.96, "score": 0.9, "removed": 0.9, "removed_control": 0.1}
    medians = {"one": {"accuracy": 0.2}, "two": good, "smeared": {"accuracy": 0.95}}
    assert broken(medians) == [] and {name for name, _ in BOUNDS} == set(MODELS)
    for (name, number), (least, _) in BOUNDS.items():
        wrong = medians | {name: medians[name] | {number: 0.0 if least is not None else 1.0}}
        assert len(broken(wrong)) == 1 and broken(wrong)[0].startswith(f"{name}, {number}:")


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_what_one_layer_and_two_learn_of_repetition(name):
    model, _ = trained(name, 0)
    told = found(name, model, 0)
    assert broken({name: told}) == [], told
