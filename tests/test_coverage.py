"""Whether intervals contain the true shares as often as they say, on counts of every noise."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.coverage import PARTS, Design, covered

DESIGNS = (Design(300, 100, 3, 100, "broad"), Design(200, 150, 4, 400, "sparse"))
N_SETS, N_RUNS = 4, 50


def coverage(design: Design, noise: str, model_noise: str = "estimated") -> dict[str, float]:
    """Share of interior entries that are covered, over several data sets."""
    found = [covered((design, noise, seed, N_RUNS, 3e-4, model_noise)) for seed in range(N_SETS)]
    return {
        part: float(np.concatenate([one[part, True].ravel() for one in found]).mean())
        for part in PARTS
    }


@pytest.mark.slow
@pytest.mark.parametrize("noise", ["Poisson", "size 1"])
@pytest.mark.parametrize("design", DESIGNS, ids=str)
def test_intervals_hold_for_every_noise(design: Design, noise: str) -> None:
    found = coverage(design, noise)
    assert 0.915 < found["components"] < 0.985
    assert 0.89 < found["proportions"] < 0.985
    assert found["sizes"] > 0.6  # these are a dozen numbers


@pytest.mark.slow
def test_poisson_intervals_are_too_short_for_other_counts() -> None:
    """The grid is able to tell: this is what a loss of calibration looks like."""
    found = coverage(DESIGNS[1], "size 1", model_noise="poisson")
    assert found["components"] < 0.8
    assert found["proportions"] < 0.8


def test_the_benchmark_counts_what_is_covered() -> None:
    design = Design(60, 30, 2, 200, "sparse")
    found = covered((design, "size 3", 0, 6, 3e-3, "estimated"))
    assert found["dispersion"] == pytest.approx(1 / 3, abs=0.15)
    n_entries = sum(found["components", inside].size for inside in (True, False))
    assert n_entries == 2 * 30
    assert found["components", True].mean() > 0.7
