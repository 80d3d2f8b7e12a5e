"""Training speed and loss beside nanoGPT's own training script, in the same session on the same machine.

    python -m glassformer.bench.training --nanogpt DIR [--repeats 5] [--steps 150] [--full]

DIR is a checkout of nanoGPT whose data/shakespeare_char/prepare.py has run. Its train.py runs with its README's command
line for a processor (4 layers, 4 heads, width 128, block 64, batch 12, no dropout, device=cpu, compile=False); ours
runs runs/nanogpt-cpu.toml, which mirrors it. The contestants take turns, each in a process of its own, so that a change
of the machine's load meets all of them; a contestant's speed is the median over its repeats of (tokens of a step /
median time between steps). --full adds one whole run of each, of the same size, steps and batch with rotary positions,
and of runs/shakespeare.toml, with the clock from the start of the process to its end, and evaluates every result over
the whole validation split in blocks of 64.

Leaves with status 1 where a target of TARGETS is missed, and names it. It also names each that was not measured, which
has no part in the status: without --full, those of the whole runs.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from ..errors import GlassformerError, InputError

MIRROR, ROTARY = "ours, nanoGPT's setting, {}", "ours, its size, steps and batch with rotary positions, {}"
RECIPE = "ours, runs/shakespeare.toml"
# What turns nanoGPT's setting into the same one with rotary positions.
TURNED = {"model.embed.position": "null", "model.blocks.*.mixer.position.kind": "rope"}

# (where in the result, what it must be more than, the most it may be): faster than nanoGPT at its own setting; there,
# and with rotary positions, as good as its README says, rounded up; with our recipe better, in a quarter of its time.
TARGETS: tuple[tuple[tuple[str, str, str], float | None, float | None], ...] = (
    (("speed", "ours, float32", "ratio"), 1.0, None),
    (("speed", "ours, auto", "ratio"), 1.0, None),
    (("whole runs", MIRROR.format("float32"), "validation"), None, 1.90),
    (("whole runs", MIRROR.format("auto"), "validation"), None, 1.90),
    (("whole runs", ROTARY.format("float32"), "validation"), None, 1.90),
    (("whole runs", ROTARY.format("auto"), "validation"), None, 1.90),
    (("whole runs", RECIPE, "validation"), None, 1.88),
    (("whole runs", RECIPE, "share of nanoGPT's time"), None, 0.25),
)

TOKENS = 12 * 64  # of one step
WARM = 10  # steps at the start that are not counted

CONFIG = "config/train_shakespeare_char.py"
SETTING = [
    *(CONFIG, "--device=cpu", "--compile=False", "--log_interval=1", "--block_size=64", "--batch_size=12"),
    *("--n_layer=4", "--n_head=4", "--n_embd=128", "--lr_decay_iters=2000", "--dropout=0.0"),
]

# Run inside nanoGPT's folder: its model, from its checkpoint, over its validation file, in blocks of 64.
NANOGPT_LOSS = """
import sys, numpy as np, torch
from model import GPT, GPTConfig
saved = torch.load(sys.argv[1], weights_only=True)
model = GPT(GPTConfig(**saved["model_args"])).eval()
model.load_state_dict(saved["model"])
tokens = torch.from_numpy(np.fromfile("data/shakespeare_char/val.bin", np.uint16).astype(np.int64))
total = count = 0
with torch.no_grad():
    for start in range(0, len(tokens) - 1, 64):
        part = tokens[start : start + 65][None]
        loss = model(part[:, :-1], part[:, 1:])[1].item()
        total, count = total + loss * (part.shape[1] - 1), count + part.shape[1] - 1
print("LOSS", total / count)
"""

# Ours, through the same door as a user: fit, and nothing measured that the user would not wait for.
OURS = """
import json, sys, time
from itertools import islice
from glassformer.spec import with_settings
from glassformer.train import fit, read_run
run = with_settings(read_run(sys.argv[1]), json.loads(sys.argv[3]))
times, last = [time.perf_counter()], None
for last in islice(fit(run, sys.argv[2]), json.loads(sys.argv[4])):
    times.append(time.perf_counter())
print("RESULT", json.dumps({"times": times, "loss": last.loss, "validation": last.validation}))
"""


def main(arguments: list[str] | None = None) -> int:
    """The command; prints one JSON object."""
    parser = argparse.ArgumentParser(prog="glassformer.bench.training", description=__doc__.split("\n")[0])
    parser.add_argument("--nanogpt", type=Path, required=True, help="a checkout of nanoGPT with its data prepared")
    parser.add_argument("--recipes", type=Path, default=Path("runs"), help="the folder of our recipes")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--steps", type=int, default=150, help="steps of each repeat")
    parser.add_argument("--threads", type=int, default=None, help="processor threads of every contestant")
    parser.add_argument("--full", action="store_true", help="also run each to its end and evaluate it")
    chosen = parser.parse_args(arguments)
    try:
        checked(chosen.nanogpt)
        result: dict[str, Any] = {"machine": machine()}
        result["speed"] = speeds(chosen.nanogpt, chosen.recipes, chosen.repeats, chosen.steps, chosen.threads)
        if chosen.full:
            result["whole runs"] = whole_runs(chosen.nanogpt, chosen.recipes, chosen.threads)
        result["load after"] = os.getloadavg()[0]
    except GlassformerError as error:
        print(error, file=sys.stderr)
        return 2
    print(json.dumps(result, indent=2))
    failed, unknown = judged(result)
    for line in failed + unknown:
        print(line, file=sys.stderr)
    return int(bool(failed))


def judged(result: dict[str, Any]) -> tuple[list[str], list[str]]:
    """A line for each target that a result misses, and for each that was not measured."""
    lines, unknown = [], []
    for place, above, most in TARGETS:
        value: Any = result
        for key in place:
            value = value.get(key) if value is not None else None
        if value is None:
            unknown.append(f"not measured: {' · '.join(place)}")
            continue
        if above is not None and not value > above:
            lines.append(f"missed: {' · '.join(place)} is {value}, asked is more than {above}")
        if most is not None and not value <= most:
            lines.append(f"missed: {' · '.join(place)} is {value}, asked is at most {most}")
    return lines, unknown


def checked(folder: Path) -> None:
    """Raise InputError where the folder is no prepared checkout of nanoGPT."""
    for name in ("train.py", "model.py", "configurator.py", CONFIG):
        if not (folder / name).is_file():
            raise InputError(
                f"{folder}: {name} is missing; clone https://github.com/karpathy/nanoGPT and name its folder"
            )
    if not (folder / "data/shakespeare_char/val.bin").is_file():
        raise InputError(f"{folder}: the data is not prepared; run python data/shakespeare_char/prepare.py in it")


def machine() -> dict[str, Any]:
    """What the numbers were measured on, and whether it was idle."""
    import torch

    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    idle = "yes" if load < 0.3 * cores else "no: other work was running, trust the ratio only"
    return {"cores": cores, "threads": torch.get_num_threads(), "torch": torch.__version__, "load": load, "idle": idle}


def speeds(nanogpt: Path, recipes: Path, repeats: int, steps: int, threads: int | None) -> dict[str, Any]:
    """Tokens per second of each contestant: every repeat, the median, and the ratio to nanoGPT's."""
    found: dict[str, list[float]] = {"nanoGPT, float32": [], "ours, float32": [], "ours, auto": []}
    for _ in range(repeats):
        found["nanoGPT, float32"].append(nanogpt_speed(nanogpt, steps, threads))
        for dtype in ("float32", "auto"):
            found[f"ours, {dtype}"].append(our_speed(recipes / "nanogpt-cpu.toml", dtype, steps, threads))
    medians = {name: statistics.median(values) for name, values in found.items()}
    base = medians["nanoGPT, float32"]
    return {
        name: {
            "tokens_per_s": round(medians[name]),
            "ratio": medians[name] / base,
            "all": list(map(round, v)),
        }
        for name, v in found.items()
    }


def nanogpt_speed(folder: Path, steps: int, threads: int | None) -> float:
    """Tokens per second from the step times that its script prints."""
    with tempfile.TemporaryDirectory() as out:
        # One evaluation of one batch at iteration 0, which its script always makes; its time is not counted.
        more = [f"--max_iters={steps}", "--eval_interval=1000000", "--eval_iters=1", f"--out_dir={out}"]
        text = _run([sys.executable, "train.py", *SETTING, *more], folder, threads)
    times = [float(ms) / 1000 for ms in re.findall(r"^iter \d+: loss .*?, time ([\d.]+)ms", text, re.M)]
    return TOKENS / statistics.median(times[WARM:])


def our_speed(recipe: Path, dtype: str, steps: int, threads: int | None) -> float:
    """Tokens per second from the times between our reports."""
    never = dict.fromkeys(("evaluate_every", "sample_every", "save_every"), "null")
    settings = never | {"dtype": dtype, "snapshots": "0"}
    with tempfile.TemporaryDirectory() as out:
        # The schedule is that of the whole run, which is cut off before its end, as nanoGPT's is.
        times = _ours(recipe, Path(out), settings, threads, steps)["times"]
    gaps = [b - a for a, b in itertools.pairwise(times)]
    return TOKENS / statistics.median(gaps[WARM:])


def whole_runs(nanogpt: Path, recipes: Path, threads: int | None) -> dict[str, Any]:
    """Seconds from process start to end, and the loss over the whole validation split."""
    rows: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as out:
        began = time.perf_counter()
        more = ["--max_iters=2000", "--eval_iters=20", f"--out_dir={out}"]
        _run([sys.executable, "train.py", *SETTING, *more], nanogpt, threads)
        wall = time.perf_counter() - began
        said = _run([sys.executable, "-c", NANOGPT_LOSS, f"{out}/ckpt.pt"], nanogpt, threads)
        rows["nanoGPT"] = {"wall_s": wall, "validation": float(said.split("LOSS ")[1])}
    for name, recipe, settings in (
        *((MIRROR.format(dtype), "nanogpt-cpu.toml", {"dtype": dtype}) for dtype in ("float32", "auto")),
        *((ROTARY.format(dtype), "nanogpt-cpu.toml", {"dtype": dtype} | TURNED) for dtype in ("float32", "auto")),
        (RECIPE, "shakespeare.toml", {}),
    ):
        with tempfile.TemporaryDirectory() as out:
            began = time.perf_counter()
            validation = _ours(recipes / recipe, Path(out), settings, threads)["validation"]
            wall = time.perf_counter() - began
        rows[name] = {"wall_s": wall, "validation": validation}
    for row in rows.values():
        row["share of nanoGPT's time"] = row["wall_s"] / rows["nanoGPT"]["wall_s"]
    return rows


def _ours(
    recipe: Path, out: Path, settings: dict[str, str], threads: int | None, steps: int | None = None
) -> dict[str, Any]:
    """What a process of ours says about its run, cut off after `steps`."""
    command = [sys.executable, "-c", OURS, str(recipe), str(out), json.dumps(settings), json.dumps(steps)]
    return json.loads(_run(command, None, threads).split("RESULT ")[1])


def _run(command: list[str], folder: Path | None, threads: int | None) -> str:
    """The standard output of a process; raises GlassformerError with its last words where it fails."""
    environment = os.environ | ({} if threads is None else {"OMP_NUM_THREADS": str(threads)})
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise GlassformerError(f"{' '.join(command[:2])} failed: {done.stderr.strip()[-600:]}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
