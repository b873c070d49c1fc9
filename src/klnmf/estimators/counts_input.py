"""`TakesCounts`: X as an estimator takes it, checked, with warnings of what few people want."""

from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import validate_data

from klnmf.backends.cpu import effective_threads
from klnmf.constraints.checks import missing_cells
from klnmf.constraints.constraints import Constraints
from klnmf.constraints.names import names_seen_in_fit, sample_names_of
from klnmf.data.dominant_samples import warn_of_dominant_samples
from klnmf.data.matrix_checks import is_dask_array
from klnmf.data.not_counts import warn_if_not_counts
from klnmf.data.on_disk.matrix import OnDiskMatrix
from klnmf.data.sparse_data import CountData, FitInput, InMemoryData, RowView, view_of
from klnmf.data.validation import (
    check_counts,
    warn_of_empty_samples,
    warn_of_many_components,
    working_dtype,
)
from klnmf.support.option_names import option


class TakesCounts:
    """Gives estimators the checks of X."""

    n_components: int
    dtype: Any
    backend: str
    n_threads: int | None

    def _missing_cells(self, X: Any, missing: Any, *, reset: bool = False) -> sp.csr_array | None:
        """Missing cells of X, in its order; None: there are none."""
        if missing is None:
            return None
        return missing_cells(X, missing, None if reset else names_seen_in_fit(self))

    def _check(
        self,
        X: Any,
        missing: sp.csr_array | None = None,
        *,
        reset: bool,
        takes_missing: bool = False,
    ) -> sp.csr_array:
        if isinstance(X, OnDiskMatrix):
            raise TypeError(
                f"{X!r} is on disk, but here the counts must be in memory. Pass "
                "klnmf.readers.read_counts(path).X, or a block of its row_blocks()."
            )
        if is_dask_array(X):
            raise TypeError(
                "X is a Dask array, but here the counts must be in memory. Pass X.compute(), or "
                "some of its blocks. KLNMF(backend='dask') fits and transforms Dask arrays."
            )
        counts = check_counts(
            X,
            dtype=self.dtype,
            name=type(self).__name__,
            takes_missing=takes_missing,
            model=self,
            missing=missing,
            reset=reset,
            n_threads=effective_threads(self.n_threads),
        )
        if reset:
            warn_if_not_counts(view_of(counts))
        return counts

    def _fit_input(self, X: Any, missing: sp.csr_array | None) -> FitInput:
        """X as a fit takes it: checked, or a Dask array that workers check."""
        if not is_dask_array(X) or self.backend != "dask":
            return self._data(X, missing, reset=True)
        validate_data(self, X, reset=True, skip_check_array=True)
        from klnmf.backends.dask.arrays import UnreadDaskArray

        return UnreadDaskArray(X, self.dtype, type(self).__name__, missing)

    def _data(self, X: Any, missing: sp.csr_array | None = None, *, reset: bool) -> CountData:
        """X as solvers see it: checked here, or when it was prepared on disk."""
        if not isinstance(X, OnDiskMatrix):
            counts = self._check(X, missing, reset=reset, takes_missing=True)
            return InMemoryData(counts, n_threads=effective_threads(self.n_threads))
        validate_data(self, X, reset=reset, skip_check_array=True)
        if self.dtype is not None and working_dtype(np.zeros(0), self.dtype) != X.dtype:
            raise ValueError(
                f"{X.path} was prepared in {X.dtype}, not with {option('dtype', self.dtype)}. "
                f"Leave {option('dtype')} out, or prepare the matrix again with that type."
            )
        X.check_unchanged()
        if reset and not X.holds_whole_numbers:
            warn_if_not_counts(X.data.view(0))
        return X.data


def warn_of_data(X: Any, seen: RowView, n_components: int, constraints: Constraints | None) -> None:
    """Warn of data that a fit takes but few people want.

    ``seen`` is X as the solver sees it, with weights and without missing cells; X itself is for the
    names of its samples.
    """
    n_learned, is_empty, names = n_components, np.diff(seen.indptr) == 0, sample_names_of(X)
    if constraints is not None:
        n_learned = int((~(constraints.is_frozen(0) | constraints.is_frozen(1))).sum())
        if constraints.sample_weight is not None:
            is_empty &= constraints.sample_weight > 0
    warn_of_many_components(n_learned, (seen.n_rows, seen.n_columns))
    warn_of_empty_samples(is_empty, names)
    if n_learned:
        warn_of_dominant_samples(seen.row_sums, n_components, names)
