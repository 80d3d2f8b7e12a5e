"""The bench of growth: its slopes, its bounds and what it measures."""

import pytest
import torch

from glassformer.bench import scaling
from glassformer.bench.memory import peak_bytes
from glassformer.bench.scaling import FAMILIES, Growth, broken, main, measure, slope


def test_a_slope_is_the_exponent_of_a_power():
    assert slope([1, 2, 4, 8], [3, 12, 48, 192]) == pytest.approx(2)
    assert slope([256, 512, 1024], [7, 7, 7]) == pytest.approx(0)


def test_peak_bytes_are_those_held_at_once():
    def work():
        first = torch.empty(1000)
        del first
        second, third = torch.empty(300), torch.empty(200)
        return second, third

    assert peak_bytes(work) == 4000


def test_written_out_attention_grows_as_the_square_and_the_fused_one_does_not():
    fused, written = (measure(name, (64, 128, 256, 512), repeats=1) for name in ("attention", "attention, written out"))
    assert fused.exponent("memory_bytes") < 1.2 < 1.7 < written.exponent("memory_bytes") < 2.1
    assert fused.exponent("state_bytes") == pytest.approx(1, abs=0.01) and fused.flops == written.flops


def test_a_broken_bound_is_said_and_is_the_status(monkeypatch, capsys):
    steep = Growth((1, 2, 4, 8), (1, 4, 16, 64), (1, 4, 16, 64), (1,) * 4, (1,) * 4)
    [line] = broken({"attention": steep})
    assert line == "attention: memory grows as n^2.00; below n^1.2 is asked" and broken({"window": steep}) == []
    for made, status in ((steep, 1), (Growth((1, 2, 4, 8), (1,) * 4, (1,) * 4, (1,) * 4, (1,) * 4), 0)):
        monkeypatch.setattr(scaling, "measure", lambda family, lengths, repeats, made=made: made)
        assert main(["--families", "attention", "--longest", "512"]) == status
    assert "grows as" in capsys.readouterr().out and set(scaling.BOUNDS) <= {
        (f, w) for f in FAMILIES for w in ("memory", "time")
    }
