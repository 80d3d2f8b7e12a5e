"""Long lags as published (Hochreiter & Schmidhuber 1997; Bai et al. 2018, table 1; S6 to S8): each bound of the bench,
on one seed. `python -m glassformer.bench.longlag` holds them on the medians of three."""

import pytest

from glassformer.bench.longlag import BOUNDS, CONTESTANTS, TASKS, broken, run

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("task", "who"), BOUNDS)
def test_what_is_remembered_over_a_long_lag_and_what_is_not(task, who):
    found = run(TASKS[task], CONTESTANTS[task][who], seed=0)
    assert broken({(task, who): found.score}) == [], found
