"""False discoveries, intervals and one-sided tests of differences stay near their nominal rates."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.differences import (
    Planted,
    boundary_figures,
    noise_figures,
    planted_figures,
)


@pytest.mark.slow
@pytest.mark.parametrize(("counts", "alpha"), [(3000, 0.0), (3000, 0.3), (300, 0.3), (3000, 1.0)])
def test_rates_hold_with_fitted_w(counts: int, alpha: float) -> None:
    design = Planted(300, 200, 3, counts, alpha)
    figures = [planted_figures((design, seed, False)) for seed in range(4)]
    mean = {name: float(np.mean([one[name] for one in figures])) for name in figures[0]}
    assert mean["nearest false"] < 0.05
    assert mean["others false"] < 0.10
    assert mean["0 false"] < 0.12
    assert mean["others power"] > 0.85
    assert 0.03 < mean["above"] < 0.07
    assert 0.03 < mean["below"] < 0.07
    assert 0.92 < mean["covered, equal"] < 0.99


@pytest.mark.slow
@pytest.mark.parametrize(("alpha", "counts"), [(0.0, 30), (0.0, 3000), (0.5, 300)])
def test_one_sided_rates_hold_where_another_share_is_0(alpha: float, counts: int) -> None:
    jobs = [("goes along", alpha, counts, seed) for seed in range(3)]
    above, far_above, below, far_below = np.mean([boundary_figures(job) for job in jobs], axis=0)
    assert 0.03 < above < 0.07
    assert 0.03 < below < 0.07
    assert max(far_above, far_below) < 0.005


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [0.0, 0.3])
def test_split_counts_do_not_confirm_components_of_noise(alpha: float) -> None:
    figures = [noise_figures((300, alpha, seed)) for seed in range(3)]
    hits, below = np.mean([one["split"] for one in figures], axis=0)
    assert hits < 2
    assert 0.03 < below < 0.07
    assert np.mean([one["same counts"][1] for one in figures]) > 0.09
