"""Runs to compare with, for the tests of traces: every value with everything looked at, and what memory that took."""

import torch
from sheet_models import SPECS, pair, tokens_of

from glassformer.mixers.attention import CrossSpec
from glassformer.tap import Probe

ALL = {**SPECS, "pair": pair(), "pair-post": pair(CrossSpec(kv_heads=1, sink=True), "post")}


def inputs(spec, t=7):
    return (tokens_of(2, 5, seed=1), tokens_of(2, t)) if hasattr(spec, "encoder") else tokens_of(2, t)


def glass(model, tokens, edits=()):
    """Every value of one run with everything looked at."""
    probe = Probe(edits=tuple(edits))
    with torch.no_grad():
        out = model(*tokens, probe=probe) if isinstance(tokens, tuple) else model(tokens, probe=probe)
    return probe.values, out


def close(found, wanted, tolerance=2e-6):
    finite = torch.isfinite(wanted)
    assert found.shape == wanted.shape and torch.equal(torch.isfinite(found), finite)
    difference = (found - wanted)[finite].abs().max() if finite.any() else torch.zeros(())
    return bool(difference <= tolerance * max(1.0, wanted[finite].abs().max().item() if finite.any() else 1.0))
