"""S29: a signal of position lets attention use position; it does not by itself teach order. Each bound of the bench, on
one seed; `python -m glassformer.bench.order` holds them on the medians of three."""

import math

import pytest
import torch

from glassformer.bench import order
from glassformer.bench.longlag import Reader, broken
from glassformer.bench.order import BOUNDS, CONTESTANTS, LENGTHS, Found, found, moved, telling


def test_without_a_signal_of_position_the_answer_does_not_move():
    rows = telling(24).draw(40, torch.Generator().manual_seed(0))
    for who, contestant in CONTESTANTS.items():
        torch.manual_seed(0)
        model = Reader(telling(24), contestant, max(LENGTHS)).eval()
        far = moved(model, rows)
        told = model(rows).detach()
        pairs = [abs(b - a - d + c) for (a, b), (c, d) in zip(told[:20].tolist(), told[20:].tolist(), strict=True)]
        assert far == pytest.approx(sum(pairs) / 20, rel=1e-4, abs=1e-7)
        assert (far < 1e-5) == (who == "none")
        if who != "none":
            continue
        places = torch.randperm(23, generator=torch.Generator().manual_seed(1))
        shuffled = type(rows)(torch.cat((rows.inputs[:, :-1][:, places], rows.inputs[:, -1:]), 1), rows.targets)
        torch.testing.assert_close(model(shuffled).detach(), told, rtol=1e-4, atol=1e-5)


def test_positions_that_are_added_are_those_of_the_place():
    task = telling(24)
    rows = task.draw(2, torch.Generator().manual_seed(0))
    for who in ("learned", "sinusoidal"):
        torch.manual_seed(0)
        model = Reader(task, CONTESTANTS[who], 24)
        x = model._placed(torch.zeros(2, 24, order.DIM))
        if who == "learned":
            assert torch.equal(x[1], model.places.weight)
        else:
            angle = 5 * 10_000 ** (-2 / order.DIM)
            assert x[0, 5, 2:4].tolist() == pytest.approx([math.sin(angle), math.cos(angle)])
        assert model(rows).shape == (2, 2)


def test_what_does_not_hold_is_told(monkeypatch, capsys):
    monkeypatch.setattr(order, "found", lambda who, seed: Found(0.1, 0.5, {24: 1.0, 48: 0.95, 96: 0.6}))
    assert order.main(["--only", "rope", "alibi"]) == 0
    assert order.main(["--only", "none"]) == 1
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "rope       moves     median 0.1000 of 0.1000, 0.1000, 0.1000"
    assert [line.partition(":")[0] for line in said[-4:]] == ["moves, none", "24, none", "48, none", "96, none"]


@pytest.mark.slow
@pytest.mark.parametrize("who", CONTESTANTS)
def test_s29_order_is_at_chance_before_learnt_after_and_lost_far_past_the_trained_length(who):
    numbers = found(who, seed=0).numbers
    held = {(what, who): value for what, value in numbers.items()}
    assert broken(held, BOUNDS) == [], held
