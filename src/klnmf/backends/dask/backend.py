"""The row problems on the workers of a Dask cluster, with the same results as on one machine."""

import itertools
import math
from typing import Any, ClassVar

import numpy as np

from klnmf import _core
from klnmf.backends.base import Backend, Fixed, PaperRule, RowTotals, Rule
from klnmf.backends.cpu import CpuBackend
from klnmf.backends.dask import kernels
from klnmf.backends.dask.cluster import EXTRA, PACKAGES, Cluster
from klnmf.backends.dask.kernels import Operation, Outcome
from klnmf.backends.dask.partition import Pieces
from klnmf.backends.dask.parts import parts_of
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
        self.sums: dict[Any, Array] = {}  # those that somebody has asked for, by their functions
        self.zeros: int | None = None

    def __del__(self) -> None:
        self._session.drop(self.number)


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
    constrained_rules: ClassVar[frozenset[type[Rule]]] = CpuBackend.constrained_rules
    rules: ClassVar[frozenset[type[Rule]]] = constrained_rules | {PaperRule}
    most_modes: ClassVar[int | None] = 2
    keeps_factors: ClassVar[bool] = False  # the workers keep nothing after a fit

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

    @classmethod
    def local(cls, data: CountData, n_threads: int | None = None) -> CpuBackend:
        """See :class:`~klnmf.backends.base.Backend`."""
        return CpuBackend(data, n_threads)

    @classmethod
    def available(cls) -> str | None:
        """See :class:`~klnmf.backends.base.Backend`."""
        return not_installed(EXTRA, PACKAGES)

    def close(self) -> None:
        """See :class:`~klnmf.backends.base.Backend`."""
        self.session.close()
        self._cluster.close()

    # ---- versions --------------------------------------------------------------------------------

    def _made(
        self, function: Any, mode: int, rank: int, dtype: Any, **details: Any
    ) -> tuple[Version, dict[int, Any]]:
        """Return a new version that a function of ``kernels`` makes, and its answers by part."""
        version = Version(self.session, next(self._numbers), mode, rank, np.dtype(dtype))
        operation = Operation(mode, function, out=version.number, **details)
        return version, self.session.ask(operation)

    def _look(self, version: Version, function: Any, *settings: Any) -> dict[int, Any]:
        """Return by part what a function of ``kernels`` says about a version."""
        return self.session.ask(Operation(version.mode, function, (version.number,), settings))

    def upload(self, array: Any, mode: int, dtype: Any = None) -> Factor:
        """See :class:`~klnmf.backends.base.Backend`."""
        dtype = dtype or self.data.dtype
        partition = self.session.partitions[mode]
        rows = {}
        for part in range(partition.n_parts):
            here = partition.rows(part)
            if isinstance(array, np.ndarray):
                rows[part] = np.array(array[here], dtype=dtype, order="C")
            else:
                rows[part] = array.part(here)
        version, _ = self._made(kernels.given, mode, array.shape[1], dtype, by_part=rows)
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
        futures = self.session.futures_of(version.number)
        return [
            (future, (partition.size(part), version.shape[1]))
            for part, future in enumerate(futures)
        ]

    def _derived(
        self, function: Any, sources: list[Factor], *settings: Any, dtype: Any = None
    ) -> Factor:
        """Return a new factor, of the type and size of the first source."""
        first, numbers = sources[0].version, tuple(source.version.number for source in sources)
        like = (first.mode, first.shape[1], dtype or first.dtype)
        version, _ = self._made(function, *like, sources=numbers, settings=settings)
        return Factor(version)

    def copy(self, factor: Factor, dtype: Any = None) -> Factor:
        """See :class:`~klnmf.backends.base.Backend`."""
        if dtype is None or factor.dtype == dtype:
            return Factor(factor.version)
        return self._derived(kernels.converted, [factor], np.dtype(dtype), dtype=dtype)

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

    def column_sums(self, factor: Factor) -> Array:
        """See :class:`~klnmf.backends.base.Backend`."""
        functions = (kernels.sums_and_squares, kernels.powers_of_block)
        sums: Array = self._summed(factor.version, *functions)[0]
        return sums

    def sums_and_squares(self, mode: int, factor: Factor) -> tuple[Array, Array]:
        """See :class:`~klnmf.backends.base.Backend`."""
        functions: Any = (kernels.sums_and_squares, kernels.powers_of_block)
        if (self.data.view(mode).row_constraints or RowConstraints()).penalty_shares is not None:
            functions = (kernels.weighted_sums, kernels.sum_of_rows)
        sums, squares = self._summed(factor.version, *functions)
        return sums, squares

    def _summed(self, version: Version, function: Any, block_sum: Any) -> Array:
        """Return sums over rows of a version, and of squares; each is computed once."""
        if function not in version.sums:
            partition, zero = self.session.partitions[version.mode], np.zeros((2, version.shape[1]))
            pieces = self._look(version, function).values()
            version.sums[function] = partition.total(pieces, block_sum, zero)
        return np.array(version.sums[function])

    def count_zeros(self, factor: Factor) -> int:
        """See :class:`~klnmf.backends.base.Backend`."""
        version = factor.version
        if version.zeros is None:
            version.zeros = sum(self._look(version, kernels.count_zeros).values())
        return version.zeros

    # ---- row problems ----------------------------------------------------------------------------

    def update_rows(self, x: Factor, fixed: Fixed, rule: Rule) -> RowTotals:
        """See :class:`~klnmf.backends.base.Backend`."""
        old = x.version
        x.version, outcomes = self._made(
            kernels.update,
            fixed.mode,
            old.shape[1],
            old.dtype,
            sources=(old.number,),
            settings=(rule,),
            fixed=_numbered(fixed),
        )
        x.version.zeros = sum(outcome.zeros for outcome in outcomes.values())
        return self._totals(fixed.mode, list(outcomes.values()))

    def evaluate(self, x: Factor, fixed: Fixed, want_residual: bool = True) -> RowTotals:
        """See :class:`~klnmf.backends.base.Backend`."""
        sources, settings = (x.version.number,), (want_residual,)
        operation = Operation(fixed.mode, kernels.evaluate, sources, settings, _numbered(fixed))
        return self._totals(fixed.mode, list(self.session.ask(operation).values()))

    def _totals(self, mode: int, outcomes: list[Outcome]) -> RowTotals:
        return RowTotals(
            self._total(mode, [outcome.values for outcome in outcomes]),
            max(outcome.kkt for outcome in outcomes),
            self._total(mode, [outcome.gaps for outcome in outcomes]),
        )

    def _total(self, mode: int, pieces: list[Pieces | None]) -> float:
        """Sum over all rows of a mode; NaN if the workers have not computed it."""
        given = [piece for piece in pieces if piece is not None]
        if len(given) < len(pieces):
            return math.nan
        return float(self.session.partitions[mode].total(given, _core.blocked_sum, 0.0))


def _numbered(fixed: Fixed) -> Fixed:
    """Return the same with the numbers of versions, as the workers know them."""
    return fixed._replace(factors=tuple(factor.version.number for factor in fixed.factors))
