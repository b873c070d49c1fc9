"""The row problems on the workers of a Dask cluster, to the bits of one machine."""

from __future__ import annotations

import itertools
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from klnmf import _core
from klnmf.backends.base import (
    GuardedRule,
    MultiplicativeRule,
    PaperRule,
    RowTotals,
    Rule,
    SolveRule,
)
from klnmf.backends.dask import kernels
from klnmf.backends.dask.cluster import Cluster
from klnmf.backends.dask.data import parts_of
from klnmf.backends.dask.operations import (
    Convert,
    Describe,
    Evaluate,
    Extrapolate,
    Facts,
    Merge,
    Operation,
    Outcome,
    Put,
    Scale,
    SumInOwnUnits,
    TakeRows,
    Update,
)
from klnmf.backends.dask.partition import Partition
from klnmf.backends.dask.session import Session
from klnmf.data.sparse_data import CountData, FitInput

Array = npt.NDArray[Any]


class Version:
    """A factor that never changes, in parts on the workers, which drop it when this object goes."""

    def __init__(
        self, session: Session, number: int, mode: int, rank: int, dtype: np.dtype[Any]
    ) -> None:
        self._session = session
        self.number, self.mode, self.dtype = number, mode, dtype
        self.shape = (session.partitions[mode].n_rows, rank)
        self.sums: Array | None = None
        self.squares: Array | None = None
        self.zeros: int | None = None

    def __del__(self) -> None:
        self._session.drop(self.number)

    def learn(self, facts: dict[int, Facts]) -> None:
        """Take in what the workers say about their parts."""
        partition = self._session.partitions[self.mode]
        self.zeros = sum(of_part.zeros for of_part in facts.values())
        for name, block_sum in (
            ("sums", kernels.column_sums),
            ("squares", kernels.column_squares),
        ):
            pieces = [getattr(of_part, name) for of_part in facts.values()]
            if all(piece is not None for piece in pieces):
                setattr(self, name, partition.total(pieces, block_sum, np.zeros(self.shape[1])))


class Factor:
    """What solvers hold: it has a version, and gets another one where NumPy would write to it."""

    def __init__(self, version: Version) -> None:
        self.version = version

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and components."""
        return self.version.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the entries."""
        return self.version.dtype


class LazySlopes:
    """Column sums of a factor + l1, which the workers compute for themselves."""

    def __init__(self, backend: DaskBackend, A: Factor, l1: float) -> None:
        self._backend, self._version, self.l1 = backend, A.version, float(l1)

    def sum(self) -> float:
        """Sum of the slopes."""
        return float((self._backend.column_sums(Factor(self._version)) + self.l1).sum())


class DaskBackend:
    """Rows in parts on the workers; factors travel between these, and only sums to the driver."""

    name: ClassVar[str] = "dask"
    rules: ClassVar[frozenset[type]] = frozenset(
        {GuardedRule, SolveRule, MultiplicativeRule, PaperRule}
    )

    def __init__(self, data: FitInput, n_threads: int | None = None) -> None:
        self._cluster = Cluster(n_threads)
        try:
            parts = parts_of(data, self._cluster)
            self.session = Session(self._cluster, parts)
            self.data: CountData = parts.seen_from_driver(self.session)
        except BaseException:
            if hasattr(self, "session"):
                self.session.close()
            self._cluster.close()
            raise
        self.narrow_dtype = np.dtype(np.float32) if self.data.is_exact_in_float32 else None
        self._numbers = itertools.count()
        self._pending: list[tuple[Operation, Version]] = []

    def close(self) -> None:
        """See :class:`~klnmf.backends.base.Backend`."""
        self._pending.clear()
        self.session.close()
        self._cluster.close()

    # ---- versions --------------------------------------------------------------------------------

    def _new(self, mode: int, rank: int, dtype: Any) -> Version:
        return Version(self.session, next(self._numbers), mode, rank, np.dtype(dtype))

    def _mode(self, n_rows: int) -> int:
        """Mode of a factor by its rows; where both have as many, both are cut alike."""
        return 0 if n_rows == self.data.shape[0] else 1

    def _later(self, operation: Operation, version: Version) -> Factor:
        """Leave an operation to the next round."""
        self._pending.append((operation, version))
        return Factor(version)

    def _ask(self, operation: Operation) -> dict[int, Any]:
        """Do what was left to this round, and the operation."""
        pending, self._pending = self._pending, []
        operations = [op for op, _ in pending] + [operation]
        try:
            *facts, result = self.session.ask(operations)
        except BaseException:
            self._pending = pending + self._pending  # somebody may still want them: Ctrl-C
            raise
        for (_, version), of_version in zip(pending, facts, strict=True):
            version.learn(of_version)
        return result

    def _put(self, factor: Any, dtype: Any) -> Factor:
        mode = self._mode(factor.shape[0])
        partition = self.session.partitions[mode]
        version = self._new(mode, factor.shape[1], dtype)
        rows = {}
        for part in range(partition.n_parts):
            own = partition.rows(part)
            if isinstance(factor, np.ndarray):
                rows[part] = np.array(factor[own], dtype=dtype, order="C")
            else:
                rows[part] = factor.part(own)
        operation = Put(mode, rows, version.number)
        version.learn(self._ask(operation))
        return Factor(version)

    def upload(self, factor: Any) -> Factor:
        """See :class:`~klnmf.backends.base.Backend`."""
        return self._put(factor, self.data.dtype)

    def restore(self, array: Array) -> Factor:
        """See :class:`~klnmf.backends.base.Backend`."""
        return self._put(array, array.dtype)

    def snapshot(self, array: Factor) -> Array:
        """See :class:`~klnmf.backends.base.Backend`."""
        version = array.version
        parts = self._ask(TakeRows(version.mode, version.number, None))
        return np.concatenate(list(parts.values()))

    def download(self, factor: Factor) -> Array:
        """See :class:`~klnmf.backends.base.Backend`."""
        return self.snapshot(factor).astype(self.data.dtype, copy=False)

    def futures_of(self, factor: Factor) -> list[tuple[Any, tuple[int, int]]] | None:
        """Return the parts of a factor as futures, with shapes; None if the cluster goes soon."""
        if self._cluster.is_own:
            return None
        version = factor.version
        partition = self.session.partitions[version.mode]
        self._ask(Describe(version.mode, version.number))  # it is there
        futures = self.session.futures_of(version.number)
        return [
            (future, (partition.size(part), version.shape[1]))
            for part, future in enumerate(futures)
        ]

    def take_rows(self, factor: Factor, rows: Array) -> Array:
        """See :class:`~klnmf.backends.base.Backend`."""
        version = factor.version
        ordered = np.argsort(rows, kind="stable")
        parts = self._ask(TakeRows(version.mode, version.number, rows[ordered]))
        taken = np.concatenate(list(parts.values())).astype(np.float64)
        result = np.empty_like(taken)
        result[ordered] = taken
        return result

    def copy(self, factor: Factor) -> Factor:
        """See :class:`~klnmf.backends.base.Backend`."""
        return Factor(factor.version)

    def converted(self, factor: Factor, dtype: Any) -> Factor:
        """See :class:`~klnmf.backends.base.Backend`."""
        old = factor.version
        if old.dtype == dtype:
            return Factor(old)
        new = self._new(old.mode, old.shape[1], dtype)
        return self._later(Convert(old.mode, old.number, np.dtype(dtype), new.number), new)

    def scale_columns(self, factor: Factor, scales: Array) -> None:
        """See :class:`~klnmf.backends.base.Backend`."""
        old = factor.version
        new = self._new(old.mode, old.shape[1], old.dtype)
        factor.version = self._later(Scale(old.mode, old.number, scales, new.number), new).version

    def merge_columns(
        self,
        factor: Factor,
        pair: tuple[int, int],
        weights: tuple[float, float],
        column: Array | None,
    ) -> None:
        """See :class:`~klnmf.backends.base.Backend`."""
        old = factor.version
        new = self._new(old.mode, old.shape[1], old.dtype)
        operation = Merge(old.mode, old.number, pair, weights, column, new.number)
        factor.version = self._later(operation, new).version

    def extrapolated(self, newest: Factor, previous: Factor, weight: float, keep: float) -> Factor:
        """See :class:`~klnmf.backends.base.Backend`."""
        a, b = newest.version, previous.version
        new = self._new(a.mode, a.shape[1], a.dtype)
        return self._later(Extrapolate(a.mode, a.number, b.number, weight, keep, new.number), new)

    # ---- sums ------------------------------------------------------------------------------------

    def _learn(self, version: Version, **wants: bool) -> None:
        """Ask for what is not known of a version; from now on it comes along with new ones."""
        self.session.wants = self.session.wants._replace(**wants)
        version.learn(self._ask(Describe(version.mode, version.number)))

    def column_sums(self, factor: Factor) -> Array:
        """See :class:`~klnmf.backends.base.Backend`."""
        version = factor.version
        if version.sums is None:
            self._learn(version, sums=True)
        assert version.sums is not None
        return version.sums.copy()

    def column_squares(self, factor: Factor) -> Array:
        """See :class:`~klnmf.backends.base.Backend`."""
        version = factor.version
        if version.squares is None:
            self._learn(version, squares=True)
        assert version.squares is not None
        return version.squares.copy()

    def penalised_sums(self, mode: int, factor: Factor) -> tuple[Array, Array]:
        """See :class:`~klnmf.backends.base.Backend`."""
        version = factor.version
        pieces = self._ask(SumInOwnUnits(mode, version.number)).values()
        zero = np.zeros((2, version.shape[1]))
        sums, squares = self.session.partitions[mode].total(pieces, kernels.sum_of_rows, zero)
        return sums, squares

    def count_zeros(self, factor: Factor) -> int:
        """See :class:`~klnmf.backends.base.Backend`."""
        version = factor.version
        if version.zeros is None:
            self._learn(version)
        assert version.zeros is not None
        return version.zeros

    def dense_product(self, W: Factor, H: Factor) -> Any:
        """See :class:`~klnmf.backends.base.Backend`."""
        raise TypeError("backend='dask' has no dense products: W Hᵀ would not fit on a worker.")

    # ---- row problems ----------------------------------------------------------------------------

    def slopes(self, A: Factor, l1: float) -> LazySlopes:
        """See :class:`~klnmf.backends.base.Backend`."""
        return LazySlopes(self, A, l1)

    def update_rows(
        self, mode: int, x: Factor, A: Factor, c: LazySlopes | Array, l2: float, rule: Rule
    ) -> RowTotals:
        """See :class:`~klnmf.backends.base.Backend`."""
        if type(rule) not in self.rules:
            raise TypeError(f"backend='dask' has no rule {type(rule).__name__}.")
        old, fixed = x.version, A.version
        new = self._new(mode, old.shape[1], old.dtype)
        slopes = c.l1 if isinstance(c, LazySlopes) else c
        operation = Update(mode, old.number, fixed.number, slopes, float(l2), rule, new.number)
        outcomes = self._ask(operation)
        new.learn({part: outcome.facts for part, outcome in outcomes.items()})
        x.version = new
        return self._totals(mode, fixed, outcomes)

    def evaluate(
        self,
        mode: int,
        x: Factor,
        A: Factor,
        c: LazySlopes | Array,
        l2: float,
        want_residual: bool = True,
    ) -> RowTotals:
        """See :class:`~klnmf.backends.base.Backend`."""
        slopes = c.l1 if isinstance(c, LazySlopes) else c
        of_x, fixed = x.version, A.version
        operation = Evaluate(mode, of_x.number, fixed.number, slopes, float(l2), want_residual)
        return self._totals(mode, fixed, self._ask(operation))

    def _totals(self, mode: int, fixed: Version, outcomes: dict[int, Outcome]) -> RowTotals:
        first = outcomes[0]
        fixed.sums = first.fixed_sums
        if first.fixed_squares is not None:
            fixed.squares = first.fixed_squares
        partition: Partition = self.session.partitions[mode]
        value = float("nan")
        pieces = [outcome.values for outcome in outcomes.values()]
        if all(piece is not None for piece in pieces):
            value = float(partition.total(pieces, _core.blocked_sum, 0.0))  # type: ignore[arg-type]
        return RowTotals(value, max(outcome.kkt for outcome in outcomes.values()))
