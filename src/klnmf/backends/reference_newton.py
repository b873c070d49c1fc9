"""The slow oracle's solve of a row problem to its end: Newton's method with x ≥ 0.

In here a component is measured by its mass c_k x_k, and its column of A is divided by c_k: all
slopes are 1. The formulas are derived in docs/maths.md.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

# As in the core: sweeps over the model at most, and the share of the first sweep's largest move
# below which they end; tries along a way that leads too far.
MODEL_SWEEPS = 16
LAST_MOVE = 0.05
TRIES = 4


def newton_steps(v: Array, A: Array, x: Array, tolerance: float, rounds: int) -> None:
    """Move the masses x, in place, to the minimum of Σ x − Σ v log (A x).

    A has columns that are divided by the slopes. Every nonzero is covered, and stays so.
    """
    total, rounding = float(v.sum()), 16 * np.finfo(x.dtype).eps
    for _ in range(rounds):
        y = A @ x
        gradient = 1 - A.T @ (v / y)
        if np.abs(np.minimum(x / total, gradient)).max() <= tolerance:
            return
        free = (x > 0) | (gradient < 0)
        scaled = A[:, free] * (np.sqrt(v) / y)[:, None]
        second_derivatives = scaled.T @ scaled
        step = np.zeros_like(x)
        step[free] = minimum_of_model(x[free], gradient[free], second_derivatives) - x[free]
        curvature = float(step[free] @ second_derivatives @ step[free])
        share = 1.0
        if not _descends(v, A, x, step, -float(gradient @ step), curvature, rounding * total):
            share = share_of_way(v, y, A @ step, float(step.sum()))
        x[:] = np.maximum(x + share * step, 0)


def minimum_of_model(x: Array, gradient: Array, second_derivatives: Array) -> Array:
    """Minimise g·(z − x) + (z − x)ᵀ M (z − x) / 2 over z ≥ 0, by coordinate descent."""
    z, slope = x.copy(), gradient.copy()
    first_move = 0.0
    for sweep in range(MODEL_SWEEPS):
        largest_move = 0.0
        for k in range(len(z)):
            moved = max(0.0, z[k] - slope[k] / second_derivatives[k, k])
            slope += (moved - z[k]) * second_derivatives[k]
            largest_move = max(largest_move, abs(moved - z[k]))
            z[k] = moved
        first_move = first_move if sweep else largest_move
        if largest_move <= LAST_MOVE * first_move:
            break
    return z


def _descends(
    v: Array, A: Array, x: Array, step: Array, fall: float, curvature: float, rounding: float
) -> bool:
    """Whether the whole step is certain to descend; ``fall`` is −φ'(0), ``curvature`` φ''(0)."""
    y, y_before = A @ (x + step), A @ x
    if not (y > 0).all():
        return False
    slope = float((1 - A.T @ (v / y)) @ step)  # φ'(1)
    if slope <= rounding:
        return True
    return slope + 0.5 * curvature <= fall and bool((y <= 2 * y_before).all())


def share_of_way(v: Array, y: Array, change: Array, linear: float) -> float:
    """How far to go along a way that leads too far: to where φ' is about 0, from below."""

    def slope_at(t: float) -> float:
        moved = y + t * change
        return linear - float(np.sum(v * change / moved)) if (moved > 0).all() else np.inf

    low, high, slope_low = 0.0, 1.0, slope_at(0.0)
    # Beyond a pole, and where it is steep, as if it rose eightfold.
    slope_high = min(slope_at(1.0), -8 * slope_low)
    for _ in range(TRIES):
        margin = 0.1 * (high - low)
        line = low + (high - low) * slope_low / (slope_low - slope_high)
        t = min(max(line, low + margin), high - margin)
        slope = slope_at(t)
        if slope <= 0:
            low, slope_low = t, slope
        else:
            high, slope_high = t, min(slope, -8 * slope_low) if np.isinf(slope) else slope
    return low if low > 0 else 0.5 * high
