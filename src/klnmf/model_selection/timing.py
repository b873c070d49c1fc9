"""How long the rest of a path takes, from what its beginning took.

The time of a fit grows with its rank: the mean of the small ranks would promise too much. So a
straight line is fitted to the times measured, and summed over the ranks to come.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.optimize import nnls


def predicted_seconds(
    ranks: Sequence[int], seconds: Sequence[float], ahead: Sequence[int]
) -> float | None:
    """Seconds that the steps ahead take; None before anything was measured.

    Parameters
    ----------
    ranks, seconds : sequence
        Rank and time of every step that was done. Steps of one component are closed forms and say
        nothing.
    ahead : sequence of int
        Ranks of the steps to come.

    Examples
    --------
    >>> round(predicted_seconds([1, 2, 4, 8], [0.0, 2.0, 3.0, 5.0], [16, 32]), 6)
    26.0
    """
    measured = [(rank, time) for rank, time in zip(ranks, seconds, strict=True) if rank > 1]
    if not measured:
        return None
    r, t = np.array(measured, dtype=np.float64).T
    # Both coefficients nonnegative: noise must not predict that larger ranks take less time.
    (constant, slope), _ = nnls(np.column_stack([np.ones_like(r), r]), t)
    return float(sum(constant + slope * rank for rank in ahead if rank > 1))


def duration(seconds: float) -> str:
    """Write a time in words.

    Examples
    --------
    >>> duration(8.2), duration(200), duration(9000)
    ('8 s', '3 min', '2.5 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
