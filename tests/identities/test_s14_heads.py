"""S14: several heads hold several relations at once. What one head can and cannot tell of two letters, trained.
`python -m glassformer.bench.heads` holds the bounds on the medians of three seeds."""

import pytest
import torch

from glassformer.bench import heads
from glassformer.bench.heads import BOUNDS, CONTESTANTS, TASKS, parameters
from glassformer.bench.longlag import Reader, Result, broken, run, score


def test_what_is_asked_stands_at_its_distance_and_chance_is_one_letter_of_all():
    for name, distances in (("two letters", (2, 5)), ("one letter", (5,))):
        task = TASKS[name]
        batch = task.draw(500, torch.Generator().manual_seed(0))
        assert batch.inputs.shape == (500, heads.LENGTH) and (batch.inputs[:, -1] == heads.LETTERS).all()
        wanted = torch.stack([batch.inputs[:, -1 - distance] for distance in distances], 1)
        assert torch.equal(batch.targets.view(500, -1), wanted) and wanted.max() == heads.LETTERS - 1
        model = Reader(task, CONTESTANTS["one head"])
        assert model(batch).shape == (500, *[2] * (len(distances) > 1), heads.LETTERS)
        torch.nn.init.zeros_(model.tell.weight)
        torch.nn.init.zeros_(model.tell.bias)
        assert score(task, model, batch) == pytest.approx(task.chance, abs=0.02)
        assert len({parameters(name, who) for who in CONTESTANTS}) == 1


def test_what_does_not_hold_is_told(monkeypatch, capsys):
    good = {("two letters", "one head"): 0.56, ("two letters", "two heads"): 1.0}
    good |= {("one letter", who): 1.0 for who in CONTESTANTS}
    assert broken(good, BOUNDS) == [] and good.keys() == BOUNDS.keys()
    for key in good:
        assert len(broken(good | {key: 0.8}, BOUNDS)) == 1  # too much for the one, too little for the others
    monkeypatch.setattr(heads, "run", lambda task, contestant, seed: Result(0.9 + 0.05 * seed, 100, 1.0))
    assert heads.main([]) == 1
    assert capsys.readouterr().out.endswith("two letters, one head: 0.9500, and at most 0.75 is asked\n")


@pytest.mark.slow
@pytest.mark.parametrize(("task", "who"), BOUNDS)
def test_s14_one_head_fails_where_two_of_half_its_width_succeed(task, who):
    found = run(TASKS[task], CONTESTANTS[who], seed=0)
    assert broken({(task, who): found.score}, BOUNDS) == [], found
