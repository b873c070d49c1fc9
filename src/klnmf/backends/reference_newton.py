"""The slow oracle's steps of Newton's method with x ≥ 0.

In here a component is measured by its mass c_k x_k, and its column of A is divided by c_k: all
slopes are 1. The formulas are derived in docs/maths/iterations.md.
"""

import numpy as np

from klnmf.support.array_types import Array

# As in the core: sweeps over the model at most, and the share of the first sweep's largest move
# below which they end, sooner in the first model of a row; tries along a way that leads too far.
MODEL_SWEEPS = 16
LAST_MOVE, LAST_MOVE_OF_FIRST = 0.05, 0.2
TRIES = 4


# Without BLAS, whose products in single precision raise floating-point flags that mean nothing on
# some processors (with all values in order: NumPy turns the flags into warnings).


def products(A: Array, x: Array) -> Array:
    """Y = A x."""
    return np.asarray(np.einsum("ik,k->i", A, x))


def sums_over_rows(weights: Array, A: Array) -> Array:
    """S_k = Σ_i weights_i A_ik."""
    return np.asarray(np.einsum("i,ik->k", weights, A))


def newton_steps(
    v: Array, A: Array, x: Array, tolerance: float, rounds: int, least: int = 0
) -> None:
    """Move the masses x, in place, to the minimum of Σ x − Σ v log (A x).

    A has columns that are divided by the slopes. Every nonzero is covered, and stays so. At least
    ``least`` steps are made, whatever the tolerance.
    """
    total, rounding = float(v.sum()), 16 * np.finfo(x.dtype).eps
    for step in range(rounds):
        gradient = 1 - sums_over_rows(v / products(A, x), A)
        if step >= least and np.abs(np.minimum(x / total, gradient)).max() <= tolerance:
            return
        free = (x > 0) | (gradient < 0)
        last_move = LAST_MOVE if step else LAST_MOVE_OF_FIRST
        model = Model(v, A[:, free], x[free], np.zeros(int(free.sum()), x.dtype), last_move)
        share = 1.0
        if not model.descends(x[free] + model.way, rounding * total):
            share = model.share_of_way()
        x[free] = np.maximum(x[free] + share * model.way, 0)


def newton_step(v: Array, A: Array, x: Array, l2: Array) -> bool:
    """Move the masses x, in place, by one step that is certain to descend; else return False.

    All components given may move. ``l2`` is their penalty in terms of masses.
    """
    model = Model(v.astype(np.float64), A.astype(np.float64), x.astype(np.float64), l2)
    share = 1.0
    for _ in range(2):
        moved = (model.x + share * model.way).astype(x.dtype)
        if model.descends(moved.astype(np.float64), 1e-14 * float(v.sum())):
            x[:] = moved
            return True
        share = model.share_of_way()
    return False


class Model:
    """The quadratic model of Σ x + Σ l2 x² / 2 − Σ v log (A x) at x, and the way to its minimum."""

    def __init__(
        self, v: Array, A: Array, x: Array, l2: Array, last_move: float = LAST_MOVE
    ) -> None:
        self.v, self.A, self.x, self.l2 = v, A, x, l2
        self.y = products(A, x)
        self.gradient = 1 + l2 * x - sums_over_rows(v / self.y, A)
        scaled = A * (np.sqrt(v) / self.y)[:, None]
        self.second_derivatives = np.einsum("ik,il->kl", scaled, scaled) + np.diag(l2)
        self.way = minimum_of_model(x, self.gradient, self.second_derivatives, last_move) - x

    def descends(self, moved: Array, rounding: float) -> bool:
        """Whether f is certainly no higher at ``moved``: see docs/maths/iterations.md."""
        step = moved - self.x
        y = products(self.A, moved)
        if not (y > 0).all():
            return False
        gradient = 1 + self.l2 * moved - sums_over_rows(self.v / y, self.A)
        slope = float(gradient @ step)  # φ'(1)
        if slope <= rounding:
            return True
        fall = -float(self.gradient @ step)
        curvature = float(step @ products(self.second_derivatives, step))
        return slope + 0.5 * curvature <= fall + rounding and bool((y <= 2 * self.y).all())

    def share_of_way(self) -> float:
        """How far to go along a way that leads too far: to where φ' is about 0, from below."""
        change, linear = products(self.A, self.way), float((1 + self.l2 * self.x) @ self.way)
        square = float(self.l2 @ self.way**2)

        def slope_at(t: float) -> float:
            y = self.y + t * change
            if not (y > 0).all():
                return np.inf
            return linear + t * square - float(np.sum(self.v * change / y))

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


def minimum_of_model(
    x: Array, gradient: Array, second_derivatives: Array, last_move: float
) -> Array:
    """Minimise g·(z − x) + (z − x)ᵀ M (z − x) / 2 over z ≥ 0, by coordinate descent."""
    z, slope = x.copy(), gradient.copy()
    first_move = 0.0
    for sweep in range(MODEL_SWEEPS):
        largest_move = 0.0
        for k in range(len(z)):
            with np.errstate(divide="ignore"):  # no nonzero has the component: it goes to 0
                moved = max(0.0, z[k] - slope[k] / second_derivatives[k, k])
            slope += (moved - z[k]) * second_derivatives[k]
            largest_move = max(largest_move, abs(moved - z[k]))
            z[k] = moved
        first_move = first_move if sweep else largest_move
        if largest_move <= last_move * first_move:
            break
    return z
