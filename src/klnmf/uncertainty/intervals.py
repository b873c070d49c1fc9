"""Intervals for shares, from the spread of refits or, near 0 and 1, from the likelihood."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.special import betaincinv
from scipy.stats import t as student

from klnmf.data.sparse_data import InMemoryView, view_of
from klnmf.support.array_types import Array, FloatArray
from klnmf.uncertainty.row_blocks import row_blocks

BoolArray = npt.NDArray[np.bool_]

# An entry is in the interior if it is this many standard errors from 0 and 1. A Poisson count
# reaches this at 9.
ERRORS_FROM_BOUNDARY = 3.0
# Share of the bias of an estimate that refits to data drawn from it show: the constraints W, H ≥ 0
# have had most of their effect on the estimate. 0.2 to 0.7 where it was measured; chosen by
# coverage (docs/performance_log.md).
SEEN_BIAS = 0.5
_NEWTON_STEPS = 100  # the largest number; five or six are usual


@dataclass(frozen=True, eq=False)
class Intervals:
    """Intervals for an array of shares; all attributes have the same shape.

    Attributes
    ----------
    estimate : ndarray of float
        The share in the fitted model; of `posterior`, the mean of the share.
    lower, upper : ndarray of float
        Ends of the interval; NaN for an empty component or sample.
    standard_error : ndarray of float
        Standard deviation of the share over the bootstrap runs; of `posterior`, that of the share.
    bias : ndarray of float
        Mean over the runs minus the estimate. The intervals are not shifted by it, but wider. Of
        `posterior`: the share in the fitted model minus the estimate.
    is_interior : ndarray of bool
        Whether the entry is more than three standard errors from 0 and 1. Other entries have
        one-sided intervals, which start at 0 or end at 1.
    """

    estimate: FloatArray
    lower: FloatArray
    upper: FloatArray
    standard_error: FloatArray
    bias: FloatArray
    is_interior: BoolArray


def interior(estimate: FloatArray, standard_error: FloatArray) -> BoolArray:
    """Whether shares are well away from 0 and 1."""
    room = np.minimum(estimate, 1.0 - estimate)
    return np.asarray(room > ERRORS_FROM_BOUNDARY * standard_error)


def share_intervals(
    spread: "SpreadOfRuns", could_be_added: FloatArray, is_given: BoolArray, level: float
) -> Intervals:
    """Intervals for the shares in the rows of an array; each row sums to 1.

    ``could_be_added`` is what the likelihood allows above the estimate. Entries that ``is_given``
    were not estimated and have intervals of length 0.

    In the interior the interval is sin²(φ ± z d) with φ = arcsin √p, on the scale on which a share
    has the same variance everywhere. Here d² is the variance of φ over the runs plus the square of
    twice their bias (see ``SEEN_BIAS``), and z Student's quantile. Near 0 the interval goes from 0
    to p plus z standard errors or ``could_be_added``, whichever is larger. Near 1 it leaves room
    for the largest of the others.
    """
    estimate, standard_error = spread.estimate, spread.standard_deviation
    z = float(student.ppf(0.5 + level / 2.0, spread.n - 1))
    inside = interior(estimate, standard_error)
    p = np.clip(estimate, 0.0, 1.0)
    reach = z * spread.angular_deviation
    lower = np.sin(np.clip(spread.angle - reach, 0.0, math.pi / 2)) ** 2
    upper = np.sin(np.clip(spread.angle + reach, 0.0, math.pi / 2)) ** 2

    near_one = ~inside & (p > 0.5)
    near_zero = ~inside & ~near_one
    wide = np.minimum(p + np.maximum(z * standard_error, could_be_added), 1.0)
    upper = np.where(near_zero, wide, upper)
    lower[near_zero], upper[near_one] = 0.0, 1.0
    others = _largest_other(np.where(near_one, 0.0, upper))
    lower = np.where(near_one, np.minimum(lower, 1.0 - others), lower)
    # Rounding of sin² must not exclude the estimate itself.
    lower, upper = np.minimum(lower, p), np.maximum(upper, p)
    empty = ~(estimate.sum(axis=1) > 0.0)
    lower[empty] = upper[empty] = np.nan
    for end in (lower, upper):
        end[is_given] = estimate[is_given]
    return Intervals(estimate, lower, upper, standard_error, spread.mean - estimate, inside)


def posterior_intervals(
    mean: FloatArray, square: FloatArray, fitted: FloatArray, is_given: BoolArray, level: float
) -> Intervals:
    """Intervals for shares with these posterior means and second moments.

    They are quantiles of the Beta distribution with the same mean and variance. The lower end is 0
    where the mean is less than three standard deviations from 0, and the upper end 1 likewise.
    ``fitted`` are the shares of the model that the sampler started from. A row without mass is one
    of an empty sample.
    """
    estimate = np.where(is_given, fitted, mean)
    variance = np.where(is_given, 0.0, np.maximum(square - mean**2, 0.0))
    deviation = np.sqrt(variance)
    p = np.clip(estimate, 1e-12, 1.0 - 1e-12)
    size = np.clip(p * (1.0 - p) / np.maximum(variance, 1e-24) - 1.0, 1e-3, 1e12)
    inside = interior(estimate, deviation)
    tail = (1.0 - level) / 2.0
    lower, upper = (betaincinv(p * size, (1.0 - p) * size, q) for q in (tail, 1.0 - tail))
    lower[~inside & (estimate <= 0.5)] = 0.0
    upper[~inside & (estimate > 0.5)] = 1.0
    lower, upper = np.minimum(lower, estimate), np.maximum(upper, estimate)
    empty = ~(estimate.sum(axis=1) > 0.0)
    lower[empty] = upper[empty] = np.nan
    for end in (lower, upper):
        end[is_given] = estimate[is_given]
    return Intervals(estimate, lower, upper, deviation, fitted - estimate, inside)


def _largest_other(values: FloatArray) -> FloatArray:
    """For each entry, return the largest of the others in its row, or 0 in a single column."""
    if values.shape[1] < 2:
        return np.zeros_like(values)
    second, first = np.partition(values, -2, axis=1)[:, -2:].T[:, :, np.newaxis]
    is_first = np.arange(values.shape[1]) == values.argmax(axis=1)[:, np.newaxis]
    return np.asarray(np.where(is_first, second, first))


class SpreadOfRuns:
    """Mean and spread of the shares of runs around an estimate; the runs are not kept.

    Examples
    --------
    >>> import numpy as np
    >>> spread = SpreadOfRuns(np.array([0.25, 0.5]))
    >>> for shares in ([0.2, 0.5], [0.4, 0.5]):
    ...     spread.add(np.array(shares))
    >>> spread.mean.round(2).tolist(), spread.standard_deviation.round(3).tolist()
    ([0.3, 0.5], [0.141, 0.0])
    """

    def __init__(self, estimate: FloatArray) -> None:
        self.n = 0
        self.estimate = estimate
        self.mean: FloatArray = np.zeros(estimate.shape)
        self._squares: FloatArray = np.zeros(estimate.shape)  # Σ (x − mean)² (Welford's sums)
        # Sums of arcsin √x − arcsin √estimate and of its square.
        self._turn, self._turn_squares = np.zeros((2, *estimate.shape))

    @property
    def angle(self) -> FloatArray:
        """Arcsin √ of the estimate."""
        return _angles(self.estimate)

    def add(self, shares: FloatArray) -> None:
        """Include one more run."""
        self.n += 1
        off = shares - self.mean
        self.mean += off / self.n
        off *= shares - self.mean
        self._squares += off
        turn = _angles(shares) - self.angle
        self._turn += turn
        self._turn_squares += turn**2

    @property
    def standard_deviation(self) -> FloatArray:
        """Standard deviation of the shares around their mean; NaN for fewer than two runs."""
        if self.n < 2:
            return np.full(self.mean.shape, np.nan)
        return np.sqrt(self._squares / (self.n - 1))

    @property
    def angular_deviation(self) -> FloatArray:
        """Root of the variance plus the squared bias of arcsin √; runs show a part of the bias."""
        bias = self._turn / self.n
        variance = np.maximum(self._turn_squares - self._turn * bias, 0.0) / max(self.n - 1, 1)
        return np.asarray(np.sqrt(variance + (bias / SEEN_BIAS) ** 2))


def _angles(shares: FloatArray) -> FloatArray:
    return np.asarray(np.arcsin(np.sqrt(np.clip(shares, 0.0, 1.0))))


def upper_limits(
    X: sp.csr_array | InMemoryView,
    x: Array,
    A: Array,
    wanted: Array,
    rise: FloatArray,
    unseen: sp.csr_array | InMemoryView | None,
) -> FloatArray:
    """Find how much can be added to entries of x before minus the log-likelihood has risen so far.

    An entry that is 0 usually stays 0 in refits to simulated data, so a bootstrap cannot show how
    large it could be. The likelihood can. With the rest of the row and the other factor A fixed,
    adding u to x_k changes the negative log-likelihood by the convex function

        F(u) = c_k u − Σ_i v_i log(1 + u A_ik / y_i).

    The limit is the u at which F reaches the ``rise`` of the row. If no count supports the
    component, it is rise / c_k. For Poisson counts a rise of log(1 / a) is exact there: three
    counts for a level of 1 − a = 0.95. Counts that vary f times as much need f times the rise.

    X (n_rows × n_columns) holds the counts by rows of x (n_rows × r); A (n_columns × r) is the
    other factor, or those of the other modes, one below the other; ``unseen`` are the missing cells
    of X. The result is 0 where ``wanted`` is False,
    and ∞ for an empty component.
    """
    x, A = x.astype(np.float64), A.astype(np.float64)
    view = X if isinstance(X, InMemoryView) else view_of(X)
    by_mode = [part.sum(axis=0) for part in view.split(A)]
    sums = np.broadcast_to(np.prod(by_mode, axis=0), x.shape)
    if unseen is not None:
        hidden = np.zeros(x.shape)
        for block, _, rows, a, _ in row_blocks(unseen, x, A):
            for k, of_component in enumerate(a.T):
                n_rows = block.stop - block.start
                hidden[block, k] = np.bincount(rows, of_component, minlength=n_rows)
        sums = np.maximum(sums - hidden, 0.0)
    limits = np.zeros(x.shape)
    for block, part, rows, a, y in row_blocks(view, x, A):
        with np.errstate(divide="ignore", invalid="ignore"):
            a /= y[:, np.newaxis]
        for k in range(A.shape[1]):
            limits[block, k][wanted[block, k]] = np.inf
            here = wanted[block, k] & (sums[block, k] > 0.0)
            if here.any():
                used = here[rows] & (a[:, k] > 0.0) & np.isfinite(a[:, k])
                position = np.cumsum(here) - 1  # of a row among the wanted ones
                limits[block, k][here] = _roots(
                    sums[block, k][here],
                    position[rows[used]],
                    part.values[used].astype(np.float64),
                    a[used, k],
                    rise[block][here],
                )
    return limits


def _roots(
    c: FloatArray, rows: Array, v: FloatArray, t: FloatArray, rise: FloatArray
) -> FloatArray:
    """Root u > 0 of c u − Σ v log(1 + u t) = rise for each row.

    The parabola at 0 lies above F, because the third derivative of F is negative. So its root is to
    the left of F's. Newton's next point is to the right, and from there the steps decrease to the
    root. If F falls first, because of a penalty or an unfinished fit, u is doubled until F rises.
    """

    def total(values: FloatArray) -> FloatArray:
        return np.bincount(rows, weights=values, minlength=len(c)).astype(np.float64, copy=False)

    slope = np.maximum(c - total(v * t), 0.0)
    bend = total(v * t * t)
    u = 2.0 * rise / (slope + np.sqrt(slope**2 + 2.0 * bend * rise))
    for _ in range(_NEWTON_STEPS):
        at = u[rows] * t
        value = c * u - total(v * np.log1p(at)) - rise
        slope = c - total(v * t / (1.0 + at))
        steps = np.where(slope > 0.0, value / np.where(slope > 0.0, slope, 1.0), -u)
        u = u - steps
        if np.all(np.abs(steps) <= 1e-6 * u):
            break
    return np.asarray(u)
