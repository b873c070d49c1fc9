"""Planted counts for the tests of the rank."""

from __future__ import annotations

from typing import Any

import numpy as np

from klnmf.data.validation import check_counts
from klnmf.simulate import simulate_counts


def counts(n: int = 120, m: int = 80, rank: int = 4, depth: float = 200, seed: int = 0) -> Any:
    return check_counts(
        simulate_counts(n, m, rank, counts_per_sample=depth, random_state=seed).X, dtype=np.float32
    )
