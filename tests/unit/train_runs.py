"""A small text, a small run on it, and what a run folder holds."""

import random

import torch
from safetensors.torch import load_file

from glassformer.data.tokenizer import TokenizerSpec
from glassformer.mixers.attention import AttentionSpec
from glassformer.model import BlockSpec, ModelSpec
from glassformer.nn.channel import MlpSpec
from glassformer.train import AdamWSpec, RunSpec, ScheduleSpec


def write_text(folder):
    """A small text of twelve words."""
    words = ["the", "cat", "saw", "a", "dog", "and", "the", "dog", "ran", "to", "a", "tree"]
    draw = random.Random(0)
    path = folder / "text.txt"
    path.write_text(" ".join(draw.choice(words) for _ in range(2000)), encoding="utf-8")
    return path


def a_run(text, **changes):
    block = BlockSpec(mixer=AttentionSpec(heads=2), channel=MlpSpec(hidden=16), dropout=changes.pop("dropout", 0.0))
    settings = {
        "data": str(text),
        "tokenizer": TokenizerSpec(method="char"),
        "model": ModelSpec(vocab=0, dim=8, blocks=(block,), context=16),
        "steps": 12,
        "batch": 4,
        "block": 16,
        "optimizer": AdamWSpec(rate=1e-2),
        "schedule": ScheduleSpec(warmup=2),
        "evaluate_every": 6,
        "sample_every": None,
        "sample_tokens": 5,
        "prompt": "the",
        "save_every": None,
        "snapshots": 0,
    }
    return RunSpec(**settings | changes)


def weights(folder):
    return load_file(folder / "model.safetensors")


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
