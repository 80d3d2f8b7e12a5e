"""SmolLM2-135M from its wheel: how well it predicts, what it says of France, and how fast it loads."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

import glassformer as gf
from glassformer.bench.loading import measured
from unit.pulled import needed

pytestmark = pytest.mark.slow
NAME = "smollm2-135m"
WIKITEXT = Path(os.environ.get("GLASSFORMER_DATA", "../shared/data")) / "wikitext2" / "wiki.test.tokens.txt"
ANOTHER = 10.96  # the perplexity that another implementation gives on the same file


@pytest.mark.skipif(not WIKITEXT.is_file(), reason=f"needs {WIKITEXT}; set GLASSFORMER_DATA to the folder of the data")
def test_perplexity_is_that_of_another_implementation(monkeypatch):
    """The text as the file has it, no token put before it; the first 1,024 tokens, of which 1,023 are predicted."""
    model = gf.load(needed(NAME, monkeypatch))
    ids = model.encode(WIKITEXT.read_text(encoding="utf-8")[:8000], start=False)[:1024]
    assert len(ids) == 1024
    logits = model(ids)[0, :-1].double()
    losses = torch.nn.functional.cross_entropy(logits, torch.tensor(ids[1:]), reduction="mean")
    assert losses.exp().item() == pytest.approx(ANOTHER, rel=0.005)


def test_the_capital_of_france_is_paris(monkeypatch):
    model = gf.load(needed(NAME, monkeypatch))
    text = "".join(event.text for event in model.generate("The capital of France is", max_new_tokens=4, temperature=0))
    assert text.startswith(" Paris")


def test_loading_takes_little_more_time_than_reading_the_file(monkeypatch):
    found = measured(needed(NAME, monkeypatch), 5)
    assert found["bytes"] > 500_000_000 and found["ratio"] <= 1.5, found
