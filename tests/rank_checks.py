"""Planted counts for the tests of the rank."""

from __future__ import annotations

from typing import Any

import numpy as np

from klnmf.constraints.constraints import Constraints
from klnmf.constraints.penalties import NO_PENALTIES, Penalties
from klnmf.data.validation import check_counts
from klnmf.estimators.checked_counts import ConstrainedCounts
from klnmf.simulate import simulate_counts


def counts(n: int = 120, m: int = 80, rank: int = 4, depth: float = 200, seed: int = 0) -> Any:
    return check_counts(
        simulate_counts(n, m, rank, counts_per_sample=depth, random_state=seed).X, dtype=np.float32
    )


def plain_counts(X: Any, penalties: Penalties = NO_PENALTIES) -> ConstrainedCounts:
    return ConstrainedCounts(X, Constraints(X.shape, 1), penalties)
