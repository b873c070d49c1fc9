"""The row problems on the workers of a Dask cluster, with the same results as on one machine."""

import itertools
import math
from typing import Any, ClassVar

import numpy as np

from klnmf import _core
from klnmf.backends.base import (
    Backend,
    Fixed,
    GuardedRule,
    MultiplicativeRule,
    PaperRule,
    RowTotals,
    Rule,
    SolveRule,
)
from klnmf.backends.cpu import CpuBackend, column_squares, column_sums
from klnmf.backends.dask import kernels
from klnmf.backends.dask.cluster import EXTRA, PACKAGES, Cluster
from klnmf.backends.dask.data import parts_of
from klnmf.backends.dask.operations import (
    Derive,
    Evaluate,
    Facts,
    Look,
    Operation,
    Outcome,
    Put,
    Update,
    Wants,
)
from klnmf.backends.dask.partition import Pieces
from klnmf.backends.dask.session import Session
from klnmf.data.row_constraints import RowConstraints
from klnmf.data.sparse_data import CountData, FitInput
from klnmf.support.array_types import Array
from klnmf.support.optional_packages import not_installed


class Version:
    """A factor that never changes, in parts on the workers; they drop it when this object goes."""

    def __init__(
        self, session: Session, number: int, mode: int, rank: int, dtype: np.dtype[Any]
    ) -> None:
        self._session = session
        self.number, self.mode, self.dtype = number, mode, dtype
        self.shape = (session.partitions[mode].n_rows, rank)
        self.sums: Array | None = None
        self.squares: Array | None = None
        self.zeros: int | None = None
        self.sources: list[Version] = []  # kept until it is made: other rounds may come before

    def __del__(self) -> None:
        self._session.drop(self.number)

    def learn(self, facts: dict[int, Facts]) -> None:
        """Add up what the workers say about their parts."""
        self.sources = []
        partition = self._session.partitions[self.mode]
        self.zeros = sum(of_part.zeros for of_part in facts.values())
        for name, block_sum in (("sums", column_sums), ("squares", column_squares)):
            pieces = [getattr(of_part, name) for of_part in facts.values()]
            if all(piece is not None for piece in pieces):
                setattr(self, name, partition.total(pieces, block_sum, np.zeros(self.shape[1])))


class Factor:
    """What solvers hold: a version, which update_rows replaces by another one."""

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


class DaskBackend(Backend):
    """Rows in parts on the workers, which send each other factors; the driver gets sums only."""

    name: ClassVar[str] = "dask"
    summary: ClassVar[str] = "the workers of a Dask cluster"
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

    def local(self, data: CountData) -> CpuBackend:
        """See :class:`~klnmf.backends.base.Backend`."""
        return CpuBackend(data)

    @classmethod
    def available(cls) -> str | None:
        """See :class:`~klnmf.backends.base.Backend`."""
        return not_installed(EXTRA, PACKAGES)

    def close(self) -> None:
        """See :class:`~klnmf.backends.base.Backend`."""
        self._pending.clear()
        self.session.close()
        self._cluster.close()

    # ---- versions --------------------------------------------------------------------------------

    def _new(self, mode: int, rank: int, dtype: Any) -> Version:
        return Version(self.session, next(self._numbers), mode, rank, np.dtype(dtype))

    def _mode(self, n_rows: int) -> int:
        """Mode of a factor with so many rows; if both modes have as many, both are cut alike."""
        return 0 if n_rows == self.data.shape[0] else 1

    def _later(self, operation: Operation, version: Version) -> Factor:
        """Leave an operation to the next round."""
        self._pending.append((operation, version))
        return Factor(version)

    def _ask(self, operation: Operation) -> dict[int, Any]:
        """Do the operations left to this round, and this one."""
        pending, self._pending = self._pending, []
        operations = [op for op, _ in pending] + [operation]
        try:
            *facts, result = self.session.ask(operations)
        except BaseException:
            self._pending = pending + self._pending  # after Ctrl-C they may still be wanted
            raise
        for (_, version), of_version in zip(pending, facts, strict=True):
            version.learn(of_version)
        return result

    def _look(self, version: Version, function: Any, *settings: Any) -> dict[int, Any]:
        """Return by part what a function of ``kernels`` says about a version."""
        return self._ask(Look(version.mode, function, (version.number,), settings))

    def upload(self, array: Any, dtype: Any = None) -> Factor:
        """See :class:`~klnmf.backends.base.Backend`."""
        mode, dtype = self._mode(array.shape[0]), dtype or self.data.dtype
        partition = self.session.partitions[mode]
        version = self._new(mode, array.shape[1], dtype)
        rows = {}
        for part in range(partition.n_parts):
            here = partition.rows(part)
            if isinstance(array, np.ndarray):
                rows[part] = np.array(array[here], dtype=dtype, order="C")
            else:
                rows[part] = array.part(here)
        version.learn(self._ask(Put(mode, rows, version.number)))
        return Factor(version)

    def download(self, factor: Factor, rows: Array | None = None) -> Array:
        """See :class:`~klnmf.backends.base.Backend`."""
        version = factor.version
        order = None if rows is None else np.argsort(rows, kind="stable")
        wanted = None if rows is None else rows[order]
        taken = np.concatenate(list(self._look(version, kernels.rows_of_factor, wanted).values()))
        if order is None:
            return taken
        result = np.empty_like(taken)
        result[order] = taken
        return result

    def futures_of(self, factor: Factor) -> list[tuple[Any, tuple[int, int]]] | None:
        """Return the parts of a factor as futures, with shapes; None on a cluster of the fit."""
        if self._cluster.is_own:
            return None
        version = factor.version
        partition = self.session.partitions[version.mode]
        self._look(version, kernels.facts)  # so that all workers have it
        futures = self.session.futures_of(version.number)
        return [
            (future, (partition.size(part), version.shape[1]))
            for part, future in enumerate(futures)
        ]

    def _derived(self, function: Any, sources: list[Factor], *settings: Any) -> Factor:
        """Leave it to the next round to make a new version, of the type and size of the first."""
        old = sources[0].version
        new = self._new(old.mode, old.shape[1], old.dtype)
        new.sources = [source.version for source in sources]
        numbers = tuple(version.number for version in new.sources)
        return self._later(Derive(old.mode, function, numbers, settings, new.number), new)

    def copy(self, factor: Factor, dtype: Any = None) -> Factor:
        """See :class:`~klnmf.backends.base.Backend`."""
        if dtype is None or factor.dtype == dtype:
            return Factor(factor.version)
        copy = self._derived(kernels.converted, [factor], np.dtype(dtype))
        copy.version.dtype = np.dtype(dtype)
        return copy

    def scaled(self, factor: Factor, scales: Array, order: Array | None = None) -> Factor:
        """See :class:`~klnmf.backends.base.Backend`."""
        return self._derived(kernels.scaled, [factor], scales, order)

    def merged(self, factor: Factor, *how: Any) -> Factor:
        """See :class:`~klnmf.backends.base.Backend`."""
        return self._derived(kernels.merged, [factor], *how)

    def extrapolated(self, newest: Factor, previous: Factor, weight: float, keep: float) -> Factor:
        """See :class:`~klnmf.backends.base.Backend`."""
        return self._derived(kernels.extrapolated, [newest, previous], weight, keep)

    # ---- sums ------------------------------------------------------------------------------------

    def _described(self, version: Version, fact: str) -> Any:
        """Return a fact about a version; from now on it comes along with new ones."""
        if getattr(version, fact) is None:
            if fact in Wants._fields:
                self.session.wants = self.session.wants._replace(**{fact: True})
            version.learn(self._look(version, kernels.facts))
        return getattr(version, fact)

    def column_sums(self, factor: Factor) -> Array:
        """See :class:`~klnmf.backends.base.Backend`."""
        return np.array(self._described(factor.version, "sums"))

    def sums_and_squares(self, mode: int, factor: Factor) -> tuple[Array, Array]:
        """See :class:`~klnmf.backends.base.Backend`."""
        version = factor.version
        if (self.data.view(mode).row_constraints or RowConstraints()).penalty_shares is None:
            return self.column_sums(factor), np.array(self._described(version, "squares"))
        pieces = self._look(version, kernels.weighted_sums).values()
        zero = np.zeros((2, version.shape[1]))
        sums, squares = self.session.partitions[mode].total(pieces, kernels.sum_of_rows, zero)
        return sums, squares

    def count_zeros(self, factor: Factor) -> int:
        """See :class:`~klnmf.backends.base.Backend`."""
        return int(self._described(factor.version, "zeros"))

    # ---- row problems ----------------------------------------------------------------------------

    def update_rows(self, x: Factor, fixed: Fixed, rule: Rule) -> RowTotals:
        """See :class:`~klnmf.backends.base.Backend`."""
        if type(rule) not in self.rules:
            raise TypeError(f"backend='dask' has no rule {type(rule).__name__}.")
        old, mode = x.version, fixed.mode
        new = self._new(mode, old.shape[1], old.dtype)
        operation = Update(mode, (old.number,), _numbered(fixed), rule, new.number)
        outcomes = self._ask(operation)
        new.learn({part: outcome.facts for part, outcome in outcomes.items()})
        x.version = new
        return self._totals(fixed, outcomes)

    def evaluate(self, x: Factor, fixed: Fixed, want_residual: bool = True) -> RowTotals:
        """See :class:`~klnmf.backends.base.Backend`."""
        operation = Evaluate(fixed.mode, (x.version.number,), _numbered(fixed), want_residual)
        return self._totals(fixed, self._ask(operation))

    def _totals(self, fixed: Fixed, outcomes: dict[int, Outcome]) -> RowTotals:
        first, (A,), mode = outcomes[0], fixed.factors, fixed.mode
        A.version.sums = first.fixed_sums
        if first.fixed_squares is not None:
            A.version.squares = first.fixed_squares
        value, gap = (
            self._total(mode, [getattr(outcome, name) for outcome in outcomes.values()])
            for name in ("values", "gaps")
        )
        return RowTotals(value, max(outcome.kkt for outcome in outcomes.values()), gap)

    def _total(self, mode: int, pieces: list[Pieces | None]) -> float:
        """Sum over all rows of a mode; NaN if the workers have not computed it."""
        given = [piece for piece in pieces if piece is not None]
        if len(given) < len(pieces):
            return math.nan
        return float(self.session.partitions[mode].total(given, _core.blocked_sum, 0.0))


def _numbered(fixed: Fixed) -> Fixed:
    """Return the same with the numbers of versions, as the workers know them."""
    return fixed._replace(factors=tuple(factor.version.number for factor in fixed.factors))
