"""Names are public: the tapped names and axes of every preset, one file each, compared exactly.

After an intended change: python tests/contract/test_snapshots.py, and look at the difference.
"""

import inspect
from pathlib import Path

import pytest
import torch

from glassformer.image import ImageModel
from glassformer.model import EncoderDecoder, build_model
from glassformer.named import PRESETS, preset, presets
from glassformer.tap import Probe

SNAPSHOTS = Path(__file__).parent / "snapshots"


def listing(name: str) -> str:
    """One line a value, in the order of computation: name and axes; then one line a parameter: name and shape."""
    choices = {"vocab": 11, "dim": 8, "blocks": 2, "heads": 2, "context": 6, "patch": 112}
    known = inspect.signature(PRESETS[name]).parameters
    model = build_model(preset(name, **{c: v for c, v in choices.items() if c in known})).eval()
    probe, spec, given = Probe(), model.spec, torch.zeros(1, 2, dtype=torch.long)
    if isinstance(model, ImageModel):
        given = torch.zeros(1, spec.channels, spec.size, spec.size)
    with torch.no_grad():
        model(*[given] * (2 if isinstance(model, EncoderDecoder) else 1), probe=probe)
    values = [f"{full}: {axes}" for full, axes in probe.axes.items()]
    parameters = [f"{full}: {' '.join(map(str, p.shape))}" for full, p in model.named_parameters()]
    return "\n".join(["values", *values, "", "parameters", *parameters, ""])


@pytest.mark.parametrize("name", presets())
def test_names_of_the_preset(name):
    assert listing(name) == (SNAPSHOTS / f"{name}.txt").read_text(encoding="utf-8")


def test_no_snapshot_is_left_over():
    assert sorted(path.stem for path in SNAPSHOTS.iterdir()) == sorted(presets())


if __name__ == "__main__":
    for name in presets():
        (SNAPSHOTS / f"{name}.txt").write_text(listing(name), encoding="utf-8")
