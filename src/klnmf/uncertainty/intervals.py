"""Intervals for shares, from a standard error or, at the boundary, from the likelihood."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.stats import t as student

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

# An entry is in the interior if it is so many standard errors away from 0 and from 1: for a Poisson
# count, from nine on.
ERRORS_FROM_BOUNDARY = 3.0


@dataclass(frozen=True, eq=False)
class Intervals:
    """Intervals for an array of shares; each attribute is an array of the same shape.

    Attributes
    ----------
    estimate : ndarray of float
        The share in the fitted model.
    lower, upper : ndarray of float
        Ends of the interval; NaN where there is no distribution (an empty component or sample).
    standard_error : ndarray of float
        Standard deviation of the share over the bootstrap runs.
    bias : ndarray of float
        Mean over the runs minus the estimate. It is not taken off the intervals.
    is_interior : ndarray of bool
        Whether the entry is more than three standard errors away from 0 and from 1. Elsewhere the
        interval is one-sided, from 0 or to 1: "not more than", or "not less than".
    """

    estimate: FloatArray
    lower: FloatArray
    upper: FloatArray
    standard_error: FloatArray
    bias: FloatArray
    is_interior: BoolArray


def interior(estimate: FloatArray, standard_error: FloatArray) -> BoolArray:
    """Whether shares are well away from 0 and from 1."""
    room = np.minimum(estimate, 1.0 - estimate)
    return np.asarray(room > ERRORS_FROM_BOUNDARY * standard_error)


def share_intervals(
    estimate: FloatArray,
    mean: FloatArray,
    standard_error: FloatArray,
    could_be_added: FloatArray,
    level: float,
    n_runs: int,
) -> Intervals:
    """Intervals for the shares in the rows of an array, each adding up to 1.

    In the interior it is sin²(φ ± z s / (2 √(p (1 − p)))) with φ = arcsin √p, s the standard error
    and z Student's quantile: as p ± z s, but within [0, 1], and with more room on the side of ½.
    Near 0 it goes from 0 to p plus z s or what the likelihood allows, whichever is more; near 1 it
    leaves room for the largest of the others.

    Parameters
    ----------
    estimate : ndarray of shape (n_rows, n_columns)
        Shares.
    mean, standard_error : ndarray of the same shape
        Over the runs.
    could_be_added : ndarray of the same shape
        What the likelihood allows above the estimate.
    level : float
        Of the intervals.
    n_runs : int
        From which the standard errors come.
    """
    z = float(student.ppf(0.5 + level / 2.0, n_runs - 1))
    inside = interior(estimate, standard_error)
    p = np.clip(estimate, 0.0, 1.0)
    spread = np.sqrt(p * (1.0 - p))
    angle = np.arcsin(np.sqrt(p))
    with np.errstate(divide="ignore", invalid="ignore"):
        reach = np.where(spread > 0.0, z * standard_error / (2.0 * spread), 0.0)
    lower = np.sin(np.clip(angle - reach, 0.0, math.pi / 2)) ** 2
    upper = np.sin(np.clip(angle + reach, 0.0, math.pi / 2)) ** 2

    near_one = ~inside & (p > 0.5)
    near_zero = ~inside & ~near_one
    wide = np.minimum(p + np.maximum(z * standard_error, could_be_added), 1.0)
    upper = np.where(near_zero, wide, upper)
    lower[near_zero], upper[near_one] = 0.0, 1.0
    others = _largest_other(np.where(near_one, 0.0, upper))
    lower = np.where(near_one, np.minimum(lower, 1.0 - others), lower)
    # The estimate itself is in the interval, whatever the rounding of sin².
    lower, upper = np.minimum(lower, p), np.maximum(upper, p)
    empty = ~(estimate.sum(axis=1) > 0.0)
    lower[empty] = upper[empty] = np.nan
    return Intervals(estimate, lower, upper, standard_error, mean - estimate, inside)


def _largest_other(values: FloatArray) -> FloatArray:
    """Largest entry of the row without the entry itself; 0 where there is no other."""
    if values.shape[1] < 2:
        return np.zeros_like(values)
    top = np.argmax(values, axis=1)
    row = np.arange(len(values))
    without = values.copy()
    without[row, top] = -np.inf
    largest = np.broadcast_to(values[row, top][:, np.newaxis], values.shape).copy()
    largest[row, top] = without.max(axis=1)
    return largest
