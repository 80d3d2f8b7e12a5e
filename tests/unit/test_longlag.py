"""The bench of long lags: who competes, what is kept, and what its status follows from."""

import json
import math

import pytest
import torch

from glassformer.bench import longlag
from glassformer.bench.longlag import BOUNDS, CONTESTANTS, LENGTH, TASKS, Reader, Result, broken, main, score
from glassformer.mixers import MIXERS


def reach(name: str, who: str) -> int:
    """How many places the last output of a convolutional contestant sees."""
    contestant = CONTESTANTS[name][who]
    mixers = (MIXERS[type(block.mixer)](block.mixer, contestant.dim) for block in contestant.blocks)
    return 1 + sum(mixer.cost(1).reach for mixer in mixers)


def test_the_control_is_too_short_and_the_others_are_not():
    assert reach("adding", "tcn") > LENGTH > 1.5 * reach("adding", "tcn, too short")
    assert reach("copy", "tcn") > LENGTH + 20


def test_what_the_control_can_reach_at_best():
    """It never sees the first of the two numbers, and the second one only where its mark is not too far: guessing 1/2
    for what it does not see, it is wrong by 1/12 for each in the mean. Its bounds are on both sides of that."""
    seen = (reach("adding", "tcn, too short")) / (LENGTH / 2)
    best = (1 + 1 - seen) / 12
    least, most = BOUNDS["adding", "tcn, too short"]
    assert seen < 1 and least < best < most < TASKS["adding"].chance and best == pytest.approx(0.0958, abs=1e-4)


def test_every_bound_is_somebody_s_and_a_lucky_guess_does_not_pass_for_a_memory():
    for (name, who), (least, most) in BOUNDS.items():
        task = TASKS[name]
        assert who in CONTESTANTS[name] and (least, most) != (None, None)
        for bound, better in ((least, task.score == "accuracy"), (most, task.score == "loss")):
            if bound is not None and better:
                assert bound > task.chance if task.score == "accuracy" else bound < task.chance
    assert {name for name, _ in BOUNDS} == set(TASKS)


@pytest.mark.parametrize(("name", "who"), [("adding", "tcn, too short"), ("adding", "tcn"), ("adding", "gru")])
def test_leaving_out_what_nobody_sees_changes_nothing(name, who):
    task, found = TASKS[name], []
    for whole in (False, True):
        torch.manual_seed(0)
        model = Reader(task, CONTESTANTS[name][who])
        model.seen = [slice(None)] * len(model.seen) if whole else model.seen
        told = model(task.draw(3, torch.Generator().manual_seed(1)))
        found.append((told, *torch.autograd.grad(told.sum(), list(model.parameters()))))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", TASKS)
def test_a_score_is_what_chance_says_of_a_model_that_knows_nothing(name):
    """All logits alike: a quarter of the orders, log 10 a place; a constant 1 for the sum."""
    task = TASKS[name]
    model = Reader(task, CONTESTANTS[name][next(iter(CONTESTANTS[name]))])
    torch.nn.init.zeros_(model.tell.weight)
    torch.nn.init.constant_(model.tell.bias, 1.0)
    found = score(task, model, task.draw(2000, torch.Generator().manual_seed(0)))
    wanted = math.log(10) if name == "copy" else task.chance
    assert found == pytest.approx(wanted, rel=0.1)


def test_trainings_are_printed_one_by_one_and_not_done_twice(tmp_path, monkeypatch, capsys):
    done = []

    def run(task, contestant, seed):
        done.append(seed)
        if len(done) == 3:
            raise KeyboardInterrupt
        return Result((0.9975, 0.5, 1.0)[seed], 100 * (seed + 1), 1.5)

    monkeypatch.setattr(longlag, "run", run)
    asked = ["--tasks", "order", "--only", "lstm", "--results", str(tmp_path / "found.jsonl")]
    with pytest.raises(KeyboardInterrupt):
        main(asked)
    first = capsys.readouterr().out
    assert "seed 0    0.9975     6,400 rows" in first and "seed 1    0.5000" in first and "median" not in first
    assert main(asked) == 0
    assert done == [0, 1, 2, 2] and "median    0.9975" in capsys.readouterr().out
    assert len((tmp_path / "found.jsonl").read_text().splitlines()) == 3
    monkeypatch.setitem(CONTESTANTS["order"], "lstm", longlag.recurrent(longlag.LstmSpec()))
    main([*asked, "--seeds", "1"])
    assert done == [0, 1, 2, 2, 0]  # another contestant by the same name
    settings = [json.loads(line)["settings"] for line in (tmp_path / "found.jsonl").read_text().splitlines()]
    assert [one["blocks"][0]["mixer"]["chrono"] for one in settings] == [110, 110, 110, None]


def test_the_status_follows_from_the_bounds(monkeypatch, capsys):
    assert broken({("order", "lstm"): 0.99, ("order", "rnn"): 0.8, ("adding", "gru"): 0.01}) == []
    assert broken({("order", "lstm"): 0.98}) == ["order, lstm: 0.9800, and at least 0.99 is asked"]
    assert broken({("adding", "gru"): float("nan")}) != []
    monkeypatch.setattr(longlag, "run", lambda task, contestant, seed: Result(0.5, 100, 1.0))
    assert main(["--tasks", "order", "--only", "lstm", "--seeds", "1"]) == 1
    assert "at least 0.99 is asked" in capsys.readouterr().out
