"""The cache pays."""

import pytest
from test_generate import spec_of

from glassformer.bench.generation import LEAST_RATIO, main, measure


def test_the_measurement_counts_what_it_says():
    speed = measure(spec_of(), tokens=12, repeats=1, stride=4)
    assert speed.tokens == 12 and 10_000 < speed.parameters < 20_000
    assert speed.ratio == speed.cached / speed.recomputed
    assert speed.cached_gb_s == pytest.approx(speed.cached * speed.parameters * 4 / 1e9)


@pytest.mark.slow
def test_a_model_of_5_million_parameters_writes_at_least_5_times_as_fast_with_its_cache(capsys):
    assert main(["--threads", "1", "--repeats", "1"]) == 0
    assert LEAST_RATIO == 5 and "times as fast" in capsys.readouterr().out
