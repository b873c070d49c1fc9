"""The C++ core on the CPUs of this machine."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, ClassVar, Self

import joblib
import numpy as np
from sklearn.utils._openmp_helpers import (
    _openmp_effective_n_threads,
    _openmp_parallelism_enabled,
)

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
from klnmf.data.row_constraints import Pattern, RowConstraints
from klnmf.data.sparse_data import CountData, Piece
from klnmf.support.array_types import Array
from klnmf.support.descriptions import described

# More than any machine has. OpenMP could not start more.
MAX_THREADS = 1024


def effective_threads(n_threads: Any, name: str = "n_threads") -> int:
    """Return the number of threads to use.

    None follows OMP_NUM_THREADS, or else is the CPUs that this process may use. Negative numbers
    count from the end, as in scikit-learn: -1 is all CPUs, -2 all but one. Errors use ``name``.
    """
    if n_threads is None:
        # scikit-learn's function follows OMP_NUM_THREADS and the limits of threadpoolctl.
        if _openmp_parallelism_enabled():
            return int(_openmp_effective_n_threads(only_physical_cores=False))
        return _allowed_cpus()
    number = int(n_threads) if isinstance(n_threads, Integral) else 0
    if number == 0 or number > MAX_THREADS:
        raise ValueError(
            f"{name} must be None, from 1 to {MAX_THREADS}, or negative, got "
            f"{described(n_threads)}. None uses all CPUs this process may use; negative "
            "numbers count from the end (-1: all)."
        )
    return number if number > 0 else max(1, _allowed_cpus() + 1 + number)


def _allowed_cpus() -> int:
    """CPUs this process may use, with affinity masks and cgroup quotas."""
    return int(joblib.cpu_count())


def instruction_set() -> str:
    """Return the name of the instruction set that the core uses on this machine."""
    return str(_core.instruction_set())


def column_sums(rows: Array, n_threads: int = 1, power: int = 1) -> Array:
    """Column sums of a power, 1 or 2, in float64, by blocks of rows."""
    sums = np.empty(rows.shape[1])
    _core.column_powers(np.ascontiguousarray(rows), power, n_threads, sums)
    return sums


def core_constraints(
    constraints: RowConstraints | None, sizes: Sequence[int] = ()
) -> _core.RowConstraints | None:
    """Return the constraints on rows as the core takes them; ``sizes``: see `update_piece`."""
    if constraints is None or constraints.is_empty:
        return None
    none = np.zeros(0, dtype=np.int64)
    missing, barred = (
        Pattern(none, none) if cells is None else cells
        for cells in (constraints.missing, constraints.barred)
    )
    return _core.RowConstraints(
        missing.starts,
        missing.columns.reshape(-1),
        barred.starts,
        barred.columns.astype(np.int32, copy=False),
        np.zeros(0)
        if constraints.penalty_shares is None
        else constraints.penalty_shares.reshape(-1),
        constraints.l1,
        np.zeros(0, dtype=np.uint8) if constraints.frozen is None else constraints.frozen,
        np.array(sizes if len(sizes) > 1 else (), dtype=np.int64),
    )


@dataclass(frozen=True)
class RowResults:
    """What the core says of every row; see `RowTotals`."""

    values: Array
    kkt: Array
    gaps: Array

    @classmethod
    def empty(cls, n_rows: int) -> Self:
        """Return room for so many rows."""
        return cls(*(np.empty(n_rows) for _ in range(3)))

    def of(self, rows: slice) -> Self:
        """Return the part that belongs to some rows."""
        return type(self)(self.values[rows], self.kkt[rows], self.gaps[rows])

    @property
    def worst(self) -> float:
        """Largest residual."""
        return float(self.kkt.max(initial=0.0))


def update_piece(
    piece: Piece,
    x: Array,
    A: Array,
    c: Array,
    l2: float,
    rule: Rule,
    n_threads: int,
    results: RowResults,
    sizes: Sequence[int] = (),
) -> None:
    """Apply a rule to the rows of a piece, each independent of the others.

    ``x`` is changed; the results are filled in, as far as the rule computes them. Of a tensor, A
    holds factors of these ``sizes`` one below the other.
    """
    problem = (piece.indptr, piece.indices.reshape(-1), piece.values, A, c, l2)
    values, kkt, gaps = results.values, results.kkt, results.gaps
    constraints = core_constraints(piece.row_constraints, sizes)
    match rule:
        case Improve():
            settings = (rule.order, rule.rounds, rule.passes, rule.tolerance, rule.want_value)
            _core.guarded_rows(*problem, *settings, n_threads, x, values, kkt, gaps, constraints)
        case Solve():
            how = (rule.cold, rule.relaxed, rule.rounds, rule.tolerance)
            _core.newton_rows(*problem, *how, n_threads, x, kkt, gaps, constraints)
        case Multiply():
            relaxed = rule.relaxed
            _core.multiplicative_rows(*problem, relaxed, n_threads, x, kkt, gaps, constraints)
        case PaperRule() if constraints is None and piece.indices.ndim == 1:
            limits = (rule.epsilon, rule.relative_change, rule.signed_break, rule.max_newton)
            _core.paper_rows(*problem, rule.order, *limits, n_threads, x, kkt)
        case _:
            raise TypeError(f"backend='cpu' has no rule {type(rule).__name__} for these rows.")


def evaluate_piece(
    piece: Piece,
    x: Array,
    A: Array,
    c: Array,
    l2: float | None,
    want_residual: bool,
    n_threads: int,
    results: RowResults,
    sizes: Sequence[int] = (),
) -> None:
    """Fill in the values and, if wanted, residuals and gaps of the rows of a piece at ``x``."""
    problem = (piece.indptr, piece.indices.reshape(-1), piece.values, A, c, l2 or 0.0)
    of_rows = piece.row_constraints
    if l2 is None and of_rows is not None:
        of_rows = of_rows.without_penalties
    constraints = core_constraints(of_rows, sizes)
    out = (results.values, results.kkt, results.gaps)
    _core.evaluate_rows(*problem, want_residual, n_threads, x, *out, constraints)


class CpuBackend(NumpyFactors):
    """Rows in parallel on threads.

    Sums are over fixed blocks, so that the number of threads does not change the result.
    """

    name: ClassVar[str] = "cpu"
    summary: ClassVar[str] = "the C++ core"
    constrained_rules: ClassVar[frozenset[type[Rule]]] = frozenset({Improve, Solve, Multiply})
    rules: ClassVar[frozenset[type[Rule]]] = constrained_rules | {PaperRule, DenseRule}

    def __init__(self, data: CountData, n_threads: int | None = None) -> None:
        self.data = data
        self.n_threads = effective_threads(n_threads)
        self.narrow_dtype = np.dtype(np.float32) if data.is_exact_in_float32 else None

    def column_sums(self, factor: Array) -> Array:
        """See :class:`~klnmf.backends.base.Backend`."""
        return column_sums(factor, self.n_threads)

    def column_squares(self, factor: Array) -> Array:
        """See :class:`~klnmf.backends.numpy_factors.NumpyFactors`."""
        return column_sums(factor, self.n_threads, power=2)

    def count_zeros(self, factor: Array) -> int:
        """See :class:`~klnmf.backends.base.Backend`."""
        return int(_core.count_zeros(factor, self.n_threads))

    def extrapolated(self, newest: Array, previous: Array, weight: float, keep: float) -> Array:
        """See :class:`~klnmf.backends.base.Backend`."""
        target = np.empty_like(newest)
        _core.extrapolate(newest, previous, weight, keep, self.n_threads, target)
        return target

    def update_rows(self, x: Array, fixed: Fixed, rule: Rule) -> RowTotals:
        """See :class:`~klnmf.backends.base.Backend`."""
        view, (A, c) = self.data.view(fixed.mode), self.linear_part(fixed)
        results = RowResults.empty(view.n_rows)
        sizes = [len(factor) for factor in fixed.factors]
        if isinstance(rule, DenseRule) and len(sizes) == 1:
            self._dense(fixed.mode, x, A, c, fixed.l2 or 0.0, rule, results.kkt)
        else:
            for piece in view.pieces():
                settings = (rule, self.n_threads, results.of(piece.rows), sizes)
                update_piece(piece, x[piece.rows], A, c, fixed.l2 or 0.0, *settings)
        value = _core.blocked_sum(results.values) if rule.gives_value else math.nan
        gap = _core.blocked_sum(results.gaps) if rule.gives_gap else math.nan
        return RowTotals(value, results.worst, gap)

    def _dense(
        self, mode: int, x: Array, A: Array, c: Array, l2: float, rule: DenseRule, kkt: Array
    ) -> None:
        view = self.data.view(mode)
        whole = view.whole()
        problem = (whole.indptr, whole.indices, whole.values, np.ascontiguousarray(A.T), c, l2)
        newton = (rule.relative_change, rule.floor, rule.max_newton)
        _core.dense_rows(*problem, *newton, bool(mode), self.n_threads, x, rule.product, kkt)

    def evaluate(self, x: Array, fixed: Fixed, want_residual: bool = True) -> RowTotals:
        """See :class:`~klnmf.backends.base.Backend`."""
        view, (A, c) = self.data.view(fixed.mode), self.linear_part(fixed)
        results = RowResults.empty(view.n_rows)
        for piece in view.pieces():
            sizes = [len(factor) for factor in fixed.factors]
            settings = (want_residual, self.n_threads, results.of(piece.rows), sizes)
            evaluate_piece(piece, x[piece.rows], A, c, fixed.l2, *settings)
        value, gap = _core.blocked_sum(results.values), _core.blocked_sum(results.gaps)
        return RowTotals(value, results.worst, gap)
