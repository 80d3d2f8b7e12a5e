"""The measuring programs decide by their targets."""

import json
from pathlib import Path

import pytest

import glassformer
from glassformer.bench import generation, taps, training
from glassformer.checkpoint import read_spec
from glassformer.data.tokenizer import TokenizerSpec
from glassformer.mixers.attention import AttentionSpec
from glassformer.model import BlockSpec, ModelSpec
from glassformer.nn.channel import MlpSpec
from glassformer.nn.embed import EmbedSpec
from glassformer.nn.head import HeadSpec
from glassformer.nn.init import InitSpec
from glassformer.nn.norm import LayerNormSpec
from glassformer.nn.position import LearnedSpec, RopeSpec
from glassformer.spec import to_data
from glassformer.train import AdamWSpec, RunSpec, ScheduleSpec, read_run

RUNS = Path(__file__).parents[2] / "runs"


def test_taps_that_are_off_cost_less_than_their_limit(capsys):
    assert taps.main(["--repeats", "5"]) == 0
    count = int(capsys.readouterr().out.split(" taps")[0])
    assert count > 40 and taps.MOST_SHARE == 0.02


def test_taps_that_cost_too_much_are_said_to(monkeypatch):
    monkeypatch.setattr(taps, "measure", lambda **options: taps.TapCost(100, 10, 0.03, 1.0))
    assert taps.main([]) == 1


GOOD = {
    "speed": {"nanoGPT, float32": {"ratio": 1.0}, "ours, float32": {"ratio": 1.17}, "ours, auto": {"ratio": 1.5}},
    "whole runs": {
        "nanoGPT": {"validation": 1.9, "share of nanoGPT's time": 1.0},
        "ours, nanoGPT's setting, float32": {"validation": 1.895},
        "ours, nanoGPT's setting, auto": {"validation": 1.9},
        "ours, its size, steps and batch with rotary positions, float32": {"validation": 1.8999},
        "ours, its size, steps and batch with rotary positions, auto": {"validation": 1.9},
        "ours, runs/shakespeare.toml": {"validation": 1.84, "share of nanoGPT's time": 0.2},
    },
}
MISSES = [
    ("speed", "ours, float32", "ratio", 1.0),
    ("speed", "ours, float32", "ratio", 0.99),
    ("speed", "ours, auto", "ratio", 1.0),
    ("whole runs", "ours, nanoGPT's setting, float32", "validation", 1.905),
    ("whole runs", "ours, nanoGPT's setting, auto", "validation", 1.9103),
    ("whole runs", "ours, its size, steps and batch with rotary positions, float32", "validation", 1.9103),
    ("whole runs", "ours, its size, steps and batch with rotary positions, auto", "validation", float("nan")),
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


def test_every_target_has_a_miss():
    assert {place for place, *_ in training.TARGETS} == {(part, who, what) for part, who, what, _ in MISSES}
    assert [1.0, 1.0, None, None, None, None, None, None] == [above for _, above, _ in training.TARGETS]
    assert [None, None, 1.9, 1.9, 1.9, 1.9, 1.88, 0.25] == [most for *_, most in training.TARGETS]


def test_what_is_measured_is_what_is_judged(monkeypatch, tmp_path):
    """The contestants by name, each with its recipe and settings; nanoGPT's own script beside them."""
    ran = []

    def ours(recipe, out, settings, threads, steps=None):
        ran.append((read_run(recipe, {"dtype": "auto"} | settings), steps))
        return {"validation": 1.5, "times": list(range(20))}

    def run(command, folder, threads):
        return "LOSS 1.9" if "-c" in command else "\n".join(f"iter {i}: loss 1, time 2000ms" for i in range(20))

    monkeypatch.setattr(training, "_ours", ours)
    monkeypatch.setattr(training, "_run", run)
    monkeypatch.setenv("GLASSFORMER_DATA", "data")
    speed = training.speeds(tmp_path, RUNS, 1, 150, None)
    assert [(run, steps) for run, steps in ran] == [
        (mirror().changed(dtype=dtype, evaluate_every=None, sample_every=None, save_every=None, snapshots=0), 150)
        for dtype in ("float32", "auto")
    ]
    assert speed["ours, float32"] == {"tokens_per_s": 768, "ratio": 2.0, "all": [768]}
    ran.clear()
    rows = training.whole_runs(tmp_path, RUNS, None)
    assert {place[1] for place, *_ in training.TARGETS if place[0] == "whole runs"} <= rows.keys()
    rope = AttentionSpec(heads=4, position=RopeSpec())
    turned = mirror().model.blocks[0].changed(mixer=rope)
    rotary = mirror().model.changed(embed=EmbedSpec(), blocks=(turned,) * 4)
    assert dict(zip(list(rows)[1:], ran, strict=True)) == {
        "ours, nanoGPT's setting, float32": (mirror().changed(dtype="float32"), None),
        "ours, nanoGPT's setting, auto": (mirror(), None),
        "ours, its size, steps and batch with rotary positions, float32": (
            mirror().changed(dtype="float32", model=rotary),
            None,
        ),
        "ours, its size, steps and batch with rotary positions, auto": (mirror().changed(model=rotary), None),
        "ours, runs/shakespeare.toml": (read_run(RUNS / "shakespeare.toml"), None),
    }


def mirror():
    """nanoGPT's setting, from config/train_shakespeare_char.py, its README's options and the defaults of train.py and
    model.py: no biases, LayerNorm, exact GELU, a table of positions, a tied head, normal weights of deviation 0.02, the
    projections into the residual scaled; AdamW whose decay leaves vectors out; half a cosine to a tenth after a linear
    rise; clipping at 1."""
    norm = LayerNormSpec(bias=False, eps=1e-5)
    block = BlockSpec(
        mixer=AttentionSpec(heads=4), channel=MlpSpec(hidden=None, activation="gelu", bias=False), norm=norm
    )
    return RunSpec(
        data=str(RUNS / "data" / "tinyshakespeare" / "input.txt"),
        validation=0.1,
        steps=2000,
        batch=12,
        block=64,
        begin=0.0,
        accumulate=1,
        clip=1.0,
        seed=0,
        evaluate_every=250,
        evaluate_blocks=240,
        sample_every=1000,
        tokenizer=TokenizerSpec(method="char"),
        optimizer=AdamWSpec(rate=1e-3, betas=(0.9, 0.99), eps=1e-8, decay=0.1),
        schedule=ScheduleSpec(shape="cosine", warmup=100, final=0.1),
        model=ModelSpec(
            vocab=0,
            dim=128,
            blocks=(block,) * 4,
            context=64,
            dropout=0.0,
            embed=EmbedSpec(position=LearnedSpec()),
            norm=norm,
            head=HeadSpec(tied=True),
            init=InitSpec(std=0.02, embedding_std=0.02, outputs="scaled"),
        ),
    )


def test_the_mirror_is_nanogpts_setting_field_by_field(monkeypatch):
    monkeypatch.setenv("GLASSFORMER_DATA", "data")
    ours, wanted = (to_data(run) for run in (read_run(RUNS / "nanogpt-cpu.toml"), mirror()))
    assert {name: ours[name] for name in wanted} == wanted and ours.keys() == wanted.keys()
    asked = dict(option.removeprefix("--").split("=") for option in training.SETTING[1:])
    assert asked == {
        "device": "cpu",
        "compile": str(ours["compile"]),
        "log_interval": "1",
        "block_size": str(ours["block"]),
        "batch_size": str(ours["batch"]),
        "n_layer": str(len(ours["model"]["blocks"])),
        "n_head": str(ours["model"]["blocks"][0]["mixer"]["heads"]),
        "n_embd": str(ours["model"]["dim"]),
        "lr_decay_iters": str(ours["steps"]),
        "dropout": str(ours["model"]["dropout"]),
    }
    said = (RUNS / "nanogpt-cpu.toml").read_text(encoding="utf-8")
    for option in set(training.SETTING) - {"--log_interval=1"}:
        assert option in said, "the recipe quotes the command line that the bench runs"


def test_generation_and_taps_are_measured_on_the_shipped_models_settings(monkeypatch):
    seen = []

    def stop(spec):
        seen.append(spec)
        raise InterruptedError

    for bench in (generation, taps):
        monkeypatch.setattr(bench, "build_model", stop)
        with pytest.raises(InterruptedError):
            bench.measure()
    package = read_spec(Path(glassformer.__file__).parent / "shipped" / "small")
    assert seen == [package.changed(context=513), package.changed(context=64)]
    assert generation.measure.__defaults__[1:] == (512, 3, 8)


def test_what_was_not_measured_is_said_to_be(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(training, "checked", lambda folder: None)
    monkeypatch.setattr(training, "speeds", lambda *given: GOOD["speed"])
    assert training.main(["--nanogpt", str(tmp_path)]) == 0
    said = capsys.readouterr().err.splitlines()
    assert said == [f"not measured: {' · '.join(place)}" for place, *_ in training.TARGETS if place[0] == "whole runs"]
    monkeypatch.undo()
    assert training.main(["--nanogpt", str(tmp_path)]) == 2, "no checkout of nanoGPT"
