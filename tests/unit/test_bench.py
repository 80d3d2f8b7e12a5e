"""The measuring programs decide by their targets."""

import json

import pytest

from glassformer.bench import taps, training


def test_taps_that_are_off_cost_less_than_their_limit(capsys):
    assert taps.main(["--repeats", "5"]) == 0
    count = int(capsys.readouterr().out.split(" taps")[0])
    assert count > 50 and taps.MOST_SHARE == 0.02


def test_taps_that_cost_too_much_are_said_to(monkeypatch):
    monkeypatch.setattr(taps, "measure", lambda **options: taps.TapCost(100, 10, 0.03, 1.0))
    assert taps.main([]) == 1


GOOD = {
    "speed": {"nanoGPT, float32": {"ratio": 1.0}, "ours, float32": {"ratio": 1.17}, "ours, auto": {"ratio": 1.5}},
    "whole runs": {
        "nanoGPT": {"validation": 1.9, "share of nanoGPT's time": 1.0},
        "ours, its setting with rotary positions, float32": {"validation": 1.8999},
        "ours, its setting with rotary positions, auto": {"validation": 1.9},
        "ours, runs/shakespeare.toml": {"validation": 1.84, "share of nanoGPT's time": 0.2},
    },
}
MISSES = [
    ("speed", "ours, auto", "ratio", 0.99),
    ("whole runs", "ours, its setting with rotary positions, float32", "validation", 1.9103),
    ("whole runs", "ours, its setting with rotary positions, auto", "validation", float("nan")),
    ("whole runs", "ours, runs/shakespeare.toml", "validation", 1.89),
    ("whole runs", "ours, runs/shakespeare.toml", "share of nanoGPT's time", 1.2),
]


@pytest.mark.parametrize("miss", [None, *MISSES])
def test_the_status_of_the_training_bench_follows_from_its_targets(monkeypatch, capsys, tmp_path, miss):
    result = json.loads(json.dumps(GOOD))
    if miss:
        part, who, what, value = miss
        result[part][who][what] = value
    monkeypatch.setattr(training, "checked", lambda folder: None)
    monkeypatch.setattr(training, "speeds", lambda *given: result["speed"])
    monkeypatch.setattr(training, "whole_runs", lambda *given: result["whole runs"])
    status = training.main(["--nanogpt", str(tmp_path), "--full"])
    said = capsys.readouterr().err
    assert status == int(miss is not None)
    assert said == "" if miss is None else f"{who} · {what} is {value}" in said and said.count("missed") == 1


def test_what_was_not_measured_is_not_judged(monkeypatch, tmp_path):
    assert training.missed({"speed": {"ours, auto": {"ratio": 2.0}}}) == []
    assert training.main(["--nanogpt", str(tmp_path)]) == 2, "no checkout of nanoGPT"
