"""Every rule in NumPy, row by row and slowly, written like the formulas; for checks.

Sums are in the type of the data, as in the C++ core, except where the core uses double.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np

from klnmf import _core
from klnmf.backends.base import (
    DenseRule,
    Fixed,
    Improve,
    Multiply,
    PaperRule,
    RowTotals,
    Rule,
    Solve,
)
from klnmf.backends.numpy_factors import NumpyFactors
from klnmf.backends.reference_newton import newton_step, newton_steps, products, sums_over_rows
from klnmf.data.row_constraints import RowConstraints
from klnmf.data.sparse_data import CountData, InMemoryView
from klnmf.data.sums import blocked_sum
from klnmf.support.array_types import Array

# As in the core: rows with more nonzeros than its tile move by a step of Newton's method instead of
# sweeps, unless more components than this are active.
LONG_ROW = _core.TILE
MOST_NEWTON_COMPONENTS = 64


def entry_residuals(x: Array, c: Array, g: Array, total: float) -> Array:
    """|min(x c / Σv, g / c)| for every component; 0 for a dead one (c = 0)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        residuals = np.abs(np.minimum(x * c / total, g / c))
    return np.where(c > 0, residuals, 0.0)


def guarded_step(
    x: float, S: float, h: float, top: float, c: float, l2: float, margin: float = 0.0
) -> float:
    """Return a new value of one coordinate, not past the minimiser.

    With f'(x) = g = c + l2 x − S increasing and concave: from the left (g < 0) Newton on 1/S, from
    the right (g > 0) Newton on x·S; both functions are concave, so neither step overshoots. ``top``
    is the largest a_i / y_i: where x·top stays below 1 by more than ``margin``, S(0) is at most
    S + x h / (1 − x·top), and 0 is the minimiser if that is at most c.
    """
    g = c + l2 * x - S
    if g < 0:
        numerator = c * x + (S - c) * S / h
        if l2 == 0:
            return max(numerator / c, x)
        b = c + l2 * (S / h - x)
        return max(2 * numerator / (b + math.sqrt(b * b + 4 * l2 * numerator)), x)
    if x == 0 or g == 0:
        return x
    rest = 1 - min(x * top, 1.0)
    if rest > margin and x * h <= (c - S) * rest:
        return 0.0
    B = c - S + x * h
    if l2 == 0:
        return min(x * x * h / B, x)
    root = math.sqrt(B * B + 4 * l2 * x * x * h)
    moved = 2 * x * x * h / (B + root) if B >= 0 else (root - B) / (2 * l2)
    return min(moved, x)


class RowProblem:
    """minimise over x ≥ 0  c·x + l2/2 ‖x‖² − Σ_i v_i log (A x)_i, for the nonzeros v of one row.

    Components that are ``held`` stay as they are.
    """

    def __init__(self, v: Array, A: Array, c: Array, l2: float, held: Array) -> None:
        self.v, self.A, self.c, self.l2, self.held = v, A, c, l2, held
        self.total = float(v.sum(dtype=np.float64))

    @property
    def live(self) -> Array:
        """Components that may move."""
        return (self.c > 0) & ~self.held

    def residual(self, x: Array) -> float:
        """Return the largest violation of the optimality conditions."""
        residuals = entry_residuals(x, self.c, self.gradient(x), self.total)
        return float(np.max(residuals, where=~self.held, initial=0.0))

    def start_evenly(self, x: Array) -> None:
        """Set all that may move to the same share of every live component."""
        live = self.live
        x[~self.held] = np.where(live, self.total / max(self.c[live].sum(), 1e-300), 0)[~self.held]

    def gap(self, x: Array) -> float:
        """Bound on how much lower f could be than at x; see ``klnmf.objective.optimality_gap``."""
        y = self.products(x)
        if not (y > 0).all():
            return math.inf
        S, x = sums_over_rows(self.v / y, self.A).astype(np.float64), x.astype(np.float64)
        slopes = np.where(self.held, 0.0, self.c + self.l2 * x)
        linear, of_held = float(slopes @ x), float(np.sum((x * S)[self.held]))
        if self.total == 0:
            return linear
        steepest = float(np.max(S[slopes > 0] / slopes[slopes > 0], initial=0.0))
        theta = max(steepest, of_held / self.total)
        if theta == 0:  # nothing that may be in use covers the nonzeros
            return math.inf
        bound = linear - self.total + self.total * math.log(theta) + of_held / theta
        return max(bound, 0.0)

    def restart(self, x: Array) -> None:
        """Cover every nonzero that can be covered."""
        self.start_evenly(x)
        coverable = self.products(x) > 0
        self.v, self.A = self.v[coverable], self.A[coverable]

    def products(self, x: Array) -> Array:
        """Y = A x."""
        return products(self.A, x)

    def ratios(self, x: Array) -> Array:
        """S_k = Σ_i v_i A_ik / (A x)_i."""
        return sums_over_rows(self.v / self.products(x), self.A)

    def value(self, x: Array) -> float:
        """f(x) in float64."""
        x64 = x.astype(np.float64)
        y = products(self.A.astype(np.float64), x64)
        if not (y > 0).all():
            return math.inf
        return float(self.c @ x64 + 0.5 * self.l2 * x64 @ x64 - self.v @ np.log(y))

    def gradient(self, x: Array) -> Array:
        """C + l2 x − S."""
        return np.asarray(self.c + self.l2 * x - self.ratios(x))

    def guarded_sweep(self, x: Array, components: Array) -> float:
        """One sweep of guarded steps over the listed components; the largest violation met."""
        violation = 0.0
        margin = 100 * float(np.finfo(x.dtype).eps)  # what a nonzero keeps is more than rounding
        for k in components:
            y, a = self.products(x), self.A[:, k]
            S, h = float(np.sum(self.v * a / y)), float(np.sum(self.v * (a / y) ** 2))
            g = self.c[k] + self.l2 * x[k] - S
            met = entry_residuals(x[k : k + 1], self.c[k : k + 1], np.array([g]), self.total)
            violation = max(violation, float(met[0]))
            top = float(np.max(a / y))
            x[k] = guarded_step(float(x[k]), S, h, top, float(self.c[k]), self.l2, margin)
        return violation


class ReferenceBackend(NumpyFactors):
    """One row after the other, no threads, no tricks."""

    name: ClassVar[str] = "reference"
    summary: ClassVar[str] = "slow NumPy, for checks"
    constrained_rules: ClassVar[frozenset[type[Rule]]] = frozenset({Improve, Solve, Multiply})
    rules: ClassVar[frozenset[type[Rule]]] = constrained_rules | {PaperRule, DenseRule}

    def __init__(self, data: CountData, n_threads: int | None = None) -> None:
        self.data = data
        self.n_threads = 1

    def update_rows(self, x: Array, fixed: Fixed, rule: Rule) -> RowTotals:
        """See :class:`~klnmf.backends.base.Backend`."""
        (A, c), mode, l2 = self.linear_part(fixed), fixed.mode, fixed.l2 or 0.0
        is_matrix = len(fixed.factors) == 1
        if isinstance(rule, DenseRule) and is_matrix:
            return self._dense_rows(mode, x, A, c, l2, rule)
        if type(rule) not in self.rules or not (is_matrix or rule.most_modes is None):
            raise TypeError(
                f"backend='reference' has no rule {type(rule).__name__} for these rows."
            )
        view, factors = self.data.view(mode).whole(), fixed.factors
        held = (view.row_constraints or RowConstraints()).is_frozen(x.shape[1])
        values, kkt, gaps = np.zeros((3, view.n_rows))
        for i in range(view.n_rows):
            row = _row_problem(view, i, factors, c, l2, held)
            gaps[i] = row.gap(x[i]) if len(row.v) else 0.0
            x[i, (row.c <= 0) & ~held] = 0
            if len(row.v) == 0:
                x[i, ~held] = 0
                values[i] = row.value(x[i])
                continue
            if isinstance(rule, PaperRule):
                kkt[i] = _paper_row(row, x[i], rule)
                continue
            if isinstance(rule, Solve) and rule.cold:
                row.start_evenly(x[i])
            n_nonzeros = len(row.v)
            if not (row.products(x[i]) > 0).all():
                row.restart(x[i])
                kkt[i] = math.inf
            if isinstance(rule, Solve):
                residual, gap = _solve_row(row, x[i], rule)
                kkt[i], gaps[i] = max(kkt[i], residual), math.inf if math.isinf(kkt[i]) else gap
            elif isinstance(rule, Multiply):
                kkt[i] = max(kkt[i], _multiplicative_row(row, x[i], rule.relaxed))
            elif isinstance(rule, Improve):
                kkt[i] = max(kkt[i], _guarded_row(row, x[i], rule))
                exact = _row_problem(view, i, _in_double(factors), c, l2, held)
                values[i] = exact.value(x[i]) if len(row.v) == n_nonzeros else math.inf
        value = blocked_sum(values) if rule.gives_value else math.nan
        gap = blocked_sum(gaps) if rule.gives_gap else math.nan
        return RowTotals(value, float(kkt.max(initial=0.0)), gap)

    def _dense_rows(
        self, mode: int, x: Array, A: Array, c: Array, l2: float, rule: DenseRule
    ) -> RowTotals:
        product = rule.product.T if mode else rule.product
        dense = self.data.view(mode).whole().as_csr().toarray()
        worst = 0.0
        for v, y, x_row in zip(dense, product, x, strict=True):
            for k in range(x.shape[1]):
                a = A[:, k]
                for newton in range(rule.max_newton):
                    g = c[k] + l2 * x_row[k] - float(np.sum(v * a / y))
                    curvature = float(np.sum(v * (a / y) ** 2)) + l2
                    if newton == 0 and v.any():
                        met = entry_residuals(x_row[k], c[k], np.array(g), float(v.sum()))
                        worst = max(worst, float(met))
                    before = x_row[k]
                    target = before - g / curvature if curvature > 0 else rule.floor
                    x_row[k] = max(rule.floor, target)
                    delta = float(x_row[k]) - float(before)
                    y[:] = np.maximum(y + delta * a.astype(np.float64), rule.floor**2)
                    if abs(delta) < rule.relative_change * before:
                        break
        return RowTotals(math.nan, worst, math.nan)

    def evaluate(self, x: Array, fixed: Fixed, want_residual: bool = True) -> RowTotals:
        """See :class:`~klnmf.backends.base.Backend`."""
        view, (_, c) = self.data.view(fixed.mode).whole(), self.linear_part(fixed)
        if fixed.l2 is None and view.row_constraints is not None:
            view = replace(view, row_constraints=view.row_constraints.without_penalties)
        held = (view.row_constraints or RowConstraints()).is_frozen(x.shape[1])
        x64, factors = x.astype(np.float64), _in_double(fixed.factors)
        values, kkt, gaps = np.zeros((3, view.n_rows))
        for i in range(view.n_rows):
            row = _row_problem(view, i, factors, c, fixed.l2 or 0.0, held)
            values[i] = row.value(x64[i])
            if math.isinf(values[i]):
                kkt[i] = gaps[i] = math.inf
            elif want_residual:
                kkt[i] = row.residual(x64[i]) if len(row.v) else 0.0
                gaps[i] = row.gap(x64[i])
        return RowTotals(blocked_sum(values), float(kkt.max(initial=0.0)), blocked_sum(gaps))


def _in_double(factors: Sequence[Array]) -> list[Array]:
    return [factor.astype(np.float64) for factor in factors]


def _row_problem(
    view: InMemoryView, i: int, factors: Sequence[Array], c: Array, l2: float, held: Array
) -> RowProblem:
    """Row i with its constraints; a row of A is the product of one row of each other factor."""
    constraints = view.row_constraints or RowConstraints()
    stacked = np.concatenate(factors)
    offsets = np.cumsum([0, *map(len, factors[:-1])])[:, None]
    if constraints.missing is not None and constraints.missing.row(i).size:
        observed = np.ones([len(factor) for factor in factors], dtype=bool)
        observed[tuple(np.atleast_2d(constraints.missing.row(i)) - offsets)] = False
        cells = np.array(np.nonzero(observed)) + offsets
        c = np.prod(stacked.astype(np.float64)[cells], axis=0).sum(axis=0)
        c = c + constraints.l1 if constraints.penalty_shares is None else c
    if constraints.penalty_shares is not None:
        c = c + constraints.l1 * constraints.penalty_shares[i, 0]
        l2 = l2 * constraints.penalty_shares[i, 1]
    if constraints.barred is not None:
        c = c.copy()
        c[constraints.barred.row(i)] = 0
    own = slice(*view.indptr[i : i + 2])
    A = np.prod(stacked[np.atleast_2d(view.indices[..., own])], axis=0)
    return RowProblem(view.values[own], A, c, l2, held)


def _multiplicative_row(row: RowProblem, x: Array, relaxed: int) -> float:
    """x_k ← the positive root z of l2 z² + c z = x S (x S / c without l2); the residual before."""
    residual = row.residual(x)
    for _ in range(relaxed if row.l2 == 0 and not row.held.any() else 0):
        _relaxed_step(row, x)
    live = row.live
    c, product = row.c[live], (x * row.ratios(x))[live]
    x[live] = 2 * product / (c + np.sqrt(c**2 + 4 * row.l2 * product))
    return residual


def _relaxed_step(row: RowProblem, x: Array) -> None:
    """X ← x (S / c)³ scaled to the row's total if that descends, else x S / c.

    f is convex: it has descended if its slope at the new point, along the way there, is ≤ 0.
    """
    live = row.c > 0
    before = x.copy()
    ratio = row.ratios(x)[live] / row.c[live]
    x[live] *= ratio**3
    x *= row.total / (row.c @ x)
    margin = 8 * np.finfo(x.dtype).eps * row.total
    covered = (row.products(x) > 0).all()
    if not covered or row.gradient(x) @ (x - before) + margin > 0:
        x[live] = before[live] * ratio


def _cold_steps(row: RowProblem, x: Array, count: int) -> None:
    """X ← x (S / c)^p scaled to the total of what is covered; x S / c if that covers less."""
    live, total = row.c > 0, float(row.v.sum(dtype=np.float64))
    powers = [3.0, *[2.0] * (count - 2), 1.5] if count > 1 else [2.0] * count
    for power in powers:
        before = x.copy()
        ratio = row.ratios(x)[live] / row.c[live]
        x[live] *= ratio**power
        x *= total / max(float(row.c @ x), 1e-300)
        if not (row.products(x) > 0).all():
            x[live] = before[live] * ratio


def _guarded_row(row: RowProblem, x: Array, rule: Improve) -> float:
    """Do the rounds of screening and sweeps; returns the residual before the first one."""
    first_residual = 0.0
    for round_number in range(rule.rounds):
        gradient = row.gradient(x)
        residual = row.residual(x)
        if round_number == 0:
            first_residual = residual
        if residual <= rule.tolerance:
            break
        movable = row.live & ((x > 0) | (gradient < 0))
        components = rule.order[movable[rule.order]]
        if _takes_newton_step(row, components) and _newton_step(row, x, components):
            continue
        for _ in range(rule.passes):
            violation = row.guarded_sweep(x, components)
            components = components[x[components] > 0]  # what became 0 waits for a screening
            if violation <= rule.tolerance:
                break
    return first_residual


def _takes_newton_step(row: RowProblem, components: Array) -> bool:
    """Rows longer than the core's tile, unless very many components are active or some are held."""
    is_long = len(row.v) > LONG_ROW and len(components) <= MOST_NEWTON_COMPONENTS
    return is_long and not row.held.any()


def _newton_step(row: RowProblem, x: Array, components: Array) -> bool:
    c = row.c[components]
    masses = x[components] * c
    if not newton_step(row.v, row.A[:, components] / c, masses, row.l2 / c**2):
        return False
    x[components] = masses / c
    return True


def _solve_row(row: RowProblem, x: Array, rule: Solve) -> tuple[float, float]:
    """Relaxed steps if cold, then Newton's method; with L2 or something held, coordinate descent.

    Returns the residual and the gap before the first step of those.
    """
    may_relax = row.l2 == 0 and not row.held.any()
    if may_relax and rule.cold:
        _cold_steps(row, x, rule.relaxed)
    gap = row.gap(x)
    if not may_relax:
        order = np.arange(len(x), dtype=np.int32)
        return _guarded_row(row, x, Improve(order, rule.rounds, 8, rule.tolerance)), gap
    residual = row.residual(x)
    if not len(row.v):  # nothing of this row can be covered
        x[:] = 0
        return residual, gap
    live, dtype = row.c > 0, x.dtype
    c = row.c[live].astype(dtype)
    masses = x[live] * c
    # A cold start leaves small entries where zeros belong: one step at least removes them.
    A, least = row.A[:, live] / c, int(rule.cold)
    newton_steps(row.v, A, masses, rule.tolerance, rule.rounds, least)
    x[live] = masses / c
    return residual, gap


def _paper_row(row: RowProblem, x: Array, rule: PaperRule) -> float:
    """Algorithm 2 as printed (see :class:`PaperRule`); the largest violation met."""
    violation = 0.0
    epsilon = x.dtype.type(rule.epsilon)
    y = row.products(x)
    for k in rule.order[row.c[rule.order] > 0]:
        a, c = row.A[:, k], float(row.c[k])
        for newton in range(rule.max_newton):
            g = c + row.l2 * float(x[k]) - float(np.sum(row.v * a / (y + epsilon)))
            curvature = float(np.sum(row.v * (a / (y + epsilon)) ** 2)) + row.l2
            if newton == 0:
                met = entry_residuals(x[k], np.array(c), np.array(g), row.total)
                violation = max(violation, float(met))
            goes_on = g < -rule.epsilon or (abs(g) > rule.epsilon and x[k] > rule.epsilon)
            if not goes_on or curvature <= 0:
                break
            before = x[k]
            x[k] = max(0.0, float(before) - g / curvature)
            delta = x[k] - before
            y += delta * a
            if (delta if rule.signed_break else abs(delta)) < rule.relative_change * before:
                break
    return violation
