"""S19: the residual adds a change and the norm tames the scale; what a deep stack learns without each of them.

24 layers at one and the same rate on tiny Shakespeare; the losses are printed (`pytest -s`) and kept in dev/LOG.md.
"""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from glassformer.data.packed import batch_at
from glassformer.mixers.attention import AttentionSpec
from glassformer.model import BlockSpec, ModelSpec, build_model
from glassformer.nn.channel import MlpSpec
from glassformer.nn.norm import LayerNormSpec
from glassformer.nn.position import RopeSpec

DATA = Path(os.environ.get("GLASSFORMER_DATA", Path(__file__).parents[3] / "shared/data"))
LAYERS, DIM, BLOCK, BATCH, STEPS, RATE = 24, 64, 64, 12, 400, 1e-3


def bigram_loss(train: np.ndarray, held: np.ndarray, vocab: int) -> float:
    """Nats per token of the add-one bigram counted on `train`."""
    counts = np.ones((vocab, vocab))
    np.add.at(counts, (train[:-1], train[1:]), 1)
    logs = np.log(counts / counts.sum(1, keepdims=True))
    return float(-logs[held[:-1], held[1:]].mean())


def trained_loss(train: np.ndarray, held: np.ndarray, vocab: int, residual: bool, norm: bool) -> float:
    """Held-out loss after STEPS updates; infinite where it stopped being a number."""
    torch.manual_seed(0)
    kind = LayerNormSpec() if norm else None
    block = BlockSpec(
        mixer=AttentionSpec(heads=4, position=RopeSpec()),
        channel=MlpSpec(),
        norm=kind,
        residual=residual,
    )
    spec = ModelSpec(vocab=vocab, dim=DIM, context=BLOCK, blocks=(block,) * LAYERS, norm=kind)
    model = build_model(spec)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, fused=True)
    for step in range(STEPS):
        x, y = (torch.from_numpy(part) for part in batch_at(train, step, BATCH, BLOCK, 0))
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    with torch.no_grad():
        x, y = (torch.from_numpy(part) for part in batch_at(held, 0, 256, BLOCK, 1))
        found = F.cross_entropy(model(x).flatten(0, 1), y.flatten()).item()
    return found if np.isfinite(found) else float("inf")


@pytest.mark.slow
@pytest.mark.skipif(not (DATA / "tinyshakespeare/input.txt").is_file(), reason="needs tinyshakespeare/input.txt")
def test_s19_without_the_residual_a_deep_stack_is_worse_than_a_bigram(record_property):
    text = (DATA / "tinyshakespeare/input.txt").read_text()
    symbols = sorted(set(text))
    ids = np.array([symbols.index(c) for c in text])
    train, held = ids[: int(0.9 * len(ids))], ids[int(0.9 * len(ids)) :]
    bigram = bigram_loss(train, held, len(symbols))
    losses = {
        name: trained_loss(train, held, len(symbols), residual, norm)
        for name, residual, norm in (("whole", True, True), ("no residual", False, True), ("no norm", True, False))
    }
    print(f"\nbigram {bigram:.3f}", " ".join(f"{name} {loss:.3f}" for name, loss in losses.items()))
    for name, loss in losses.items():
        record_property(name, loss)
    assert losses["whole"] < bigram < losses["no residual"]
    assert losses["no norm"] > losses["whole"]
