"""What all estimators share: everything that a model with components can do."""

from __future__ import annotations

import copy
from contextlib import closing
from importlib import import_module
from importlib.util import find_spec
from typing import Any, ClassVar, Unpack

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from klnmf.backends import backend_named, make_backend
from klnmf.constraints.checks import check_known, check_scaled_penalties
from klnmf.constraints.constraints import Constraints, SampleConstraints
from klnmf.constraints.missing_cells import missing_cells, without_cells
from klnmf.constraints.names import check_sample_order, names_seen_in_fit, sample_names_of
from klnmf.constraints.penalties import check_penalties
from klnmf.data.matrix_checks import checked_matrix, is_dask_array
from klnmf.data.not_counts import warn_if_not_counts
from klnmf.data.on_disk.matrix import OnDiskMatrix
from klnmf.data.sparse_data import SparseData, view_of
from klnmf.data.validation import (
    check_counts,
    checked_input,
    warn_of_empty_samples,
    warn_of_many_components,
    working_dtype,
)
from klnmf.estimators.arguments import check_arguments
from klnmf.estimators.completion import completed, observed_blocks
from klnmf.objective import Penalties
from klnmf.solvers.base import Problem
from klnmf.solvers.row_solve import RowSolve, solved_rows
from klnmf.support.option_names import option

Array = npt.NDArray[Any]

# Imported now and not in the first fit: a process that is forked during an import cannot finish it
# (`klnmf` makes forks wait for its imports). scikit-learn has callbacks since version 1.9.
backend_named("auto")
if find_spec("sklearn.callback"):
    import_module("sklearn.callback")

TRANSFORM_ARGUMENTS = tuple(SampleConstraints.__annotations__)


class FactorModel(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """An estimator with ``components_``: it can transform, transform back, and be scored.

    Its parameters include ``n_components``, ``tol``, ``dtype``, ``sparse_output``, ``backend`` and
    ``n_threads``. Its fitted attributes are those of ``_set_components``.
    """

    n_components: int
    tol: float
    n_threads: int | None
    dtype: Any
    sparse_output: bool
    backend: str
    components_: Any
    n_components_: int
    n_features_in_: int
    constraint_names_: list[str]
    n_fixed_W_: int  # noqa: N815
    feature_weight_: Array | None
    data_checksum_: int | None

    # What scikit-learn's metadata routing may pass on, which the signature does not show.
    __metadata_request__transform: ClassVar[dict[str, None]] = dict.fromkeys(TRANSFORM_ARGUMENTS)

    def transform(self, X: Any, **constraints: Unpack[SampleConstraints]) -> Any:
        """Return W for new samples, with the components fixed: each row's problem is convex.

        Parameters
        ----------
        X : {array-like, sparse, DataFrame, OnDiskMatrix, Dask array} of shape \
                (n_samples, n_features)
            Counts, or other nonnegative data.
        **constraints
            Constraints on these samples: ``exposure``, ``missing``, ``fixed_W`` and ``zero_W``, as
            in ``KLNMF.fit``. A model that was fitted with ``fixed_W`` needs these columns for the
            new samples too.

        Returns
        -------
        ndarray or CSR array of shape (n_samples, n_components)
            For a Dask array, a Dask array with blocks of the same rows, not computed yet.
        """
        check_is_fitted(self, "components_")
        check_arguments(constraints, "transform", TRANSFORM_ARGUMENTS)
        if is_dask_array(X):
            validate_data(self, X, reset=False, skip_check_array=True)
            return self._transformed_blocks(X, {**constraints})
        check_sample_order({**constraints}, X)
        cells = self._missing_cells(X, constraints.get("missing"))
        given = {**constraints, "missing": cells}
        return self._as_output(self._transformed(self._data(X, cells, reset=False), given))

    def inverse_transform(self, X: Any) -> Any:
        """Return the estimated rates W Hᵀ: a dense array of n_samples × n_features numbers.

        Parameters
        ----------
        X : {array-like, sparse matrix or array} of shape (n_samples, n_components)
            W, as returned by ``transform``.

        Returns
        -------
        ndarray of shape (n_samples, n_features)
        """
        check_is_fitted(self, "components_")
        W = checked_input(X, "W", dtype=[np.float64, np.float32], ensure_all_finite=True)
        W = W.toarray() if sp.issparse(W) else W
        if W.shape[1] != self.n_components_:
            raise ValueError(
                f"W must have shape (n_samples, {self.n_components_}), as transform returns it; "
                f"got {W.shape}."
            )
        return W @ self._H().T

    def score(self, X: Any, y: Any = None, missing: Any = None) -> float:
        """Return the held-out log-likelihood by document completion: higher is better.

        Each count of X falls into one of two halves at random, with a fixed seed. W is estimated
        from one half with the components fixed. The score is the Poisson log-likelihood of the
        other half, averaged over the samples. 1 % of each sample's rate is spread evenly over the
        features, so that a feature that no component uses costs much, but not everything.

        Values are always taken as counts. The fraction of a value falls into one half as a whole,
        so that 2.9 and 3.1 score nearly as 3 does. In other units, such as counts per million, the
        halves vary less than counts would, and the score does not show when there are too many
        components.

        Parameters
        ----------
        X : {array-like, sparse, DataFrame, OnDiskMatrix} of shape (n_samples, n_features)
            Counts, or other nonnegative data.
        y : Ignored
            For scikit-learn's API.
        missing : {sparse, array-like} of shape (n_samples, n_features), default=None
            True (or not 0) where a cell was not observed: it is in neither half. A model that was
            fitted with ``missing`` needs it here too; if nothing is missing now, pass a pattern
            without any True. scikit-learn's searches pass it on under metadata routing.

        Returns
        -------
        float
            Mean log-likelihood of the held-out halves.
        """
        check_is_fitted(self, "components_")
        if missing is None and "missing" in self.constraint_names_:
            raise ValueError(
                "The model was fitted with missing cells, and score does not know which cells of "
                "these samples are missing: it would take them for observed zeros. Pass "
                "score(X, missing=...), with numpy.zeros(X.shape, bool) if none are. GridSearchCV "
                "passes it on with sklearn.set_config(enable_metadata_routing=True) and "
                "set_fit_request(missing=True).set_score_request(missing=True)."
            )
        cells = self._missing_cells(X, missing)
        if isinstance(X, OnDiskMatrix):
            self._data(X, reset=False)  # for its checks
            return completed(self, lambda: observed_blocks(X, cells), cells).per_sample
        counts = self._check(X, cells, reset=False, takes_missing=True)
        return completed(self, lambda: [(counts, cells)], cells).per_sample

    # ---- inside ----------------------------------------------------------------------------------

    def _set_components(
        self,
        components: Any,
        *,
        constraint_names: list[str],
        n_fixed_W: int,
        feature_weight: Array | None,
        data_checksum: int | None,
    ) -> None:
        """Set the fitted attributes that all methods here need."""
        self.components_ = components
        self.n_components_, self.n_features_in_ = map(int, components.shape)
        self.constraint_names_ = constraint_names
        self.n_fixed_W_ = n_fixed_W
        self.feature_weight_ = feature_weight
        self.data_checksum_ = data_checksum

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
        if missing is not None:
            X = without_cells(X, missing)
        X = checked_input(X, model=self, reset=reset)
        name = type(self).__name__
        counts = check_counts(X, dtype=self.dtype, name=name, takes_missing=takes_missing)
        if reset:
            warn_if_not_counts(view_of(counts))
        return counts

    def _data(self, X: Any, missing: sp.csr_array | None = None, *, reset: bool) -> SparseData:
        """X as solvers see it; matrices on disk and Dask arrays are checked elsewhere."""
        if is_dask_array(X) and self.backend == "dask":
            validate_data(self, X, reset=reset, skip_check_array=True)
            from klnmf.backends.dask.arrays import DaskArrayData

            return DaskArrayData(X, self.dtype, type(self).__name__, missing)
        if not isinstance(X, OnDiskMatrix):
            return SparseData(self._check(X, missing, reset=reset, takes_missing=True))
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

    def _warn_of_data(
        self, X: Any, indptr: Array, shape: tuple[int, int], known: Constraints | None = None
    ) -> None:
        """Warn of data that a fit takes but few people want; X is for the names of samples."""
        n_learned, is_empty = self.n_components, np.diff(indptr) == 0
        if known is not None:
            n_learned = int((~(known.is_frozen(0) | known.is_frozen(1))).sum())
            if known.sample_weight is not None:
                is_empty &= known.sample_weight > 0
        warn_of_many_components(n_learned, shape)
        warn_of_empty_samples(is_empty, sample_names_of(X))

    def _penalties(self) -> Penalties:
        return Penalties()

    def _problem(self, data: SparseData, known: Constraints | None = None) -> Problem:
        penalties = self._penalties()
        if known is not None:
            data = known.applied_to(data, penalties)
        backend = make_backend(self.backend, data, self.n_threads)
        try:
            check_penalties(penalties, backend.data.dtype)
        except ValueError:
            backend.close()
            raise
        if not data.has_known_shape:
            late: Any = data
            known = late.known
        return Problem(backend, penalties, known)

    def _row_solve(self) -> RowSolve:
        # Tighter than the fit, so that fit + transform and fit_transform agree to its tolerance.
        return RowSolve(tolerance=min(1e-5, max(0.01 * self.tol, 1e-7)))

    def _transformed(self, data: SparseData, given: Any) -> Array:
        """W of data with constraints."""
        known = self._known_of_samples(data.shape, data.dtype, given)
        return self._solve_W(data, self._H(), known)

    def _transformed_blocks(self, X: Any, given: dict[str, Any]) -> Any:
        """W of a Dask array, as a Dask array."""
        from klnmf.backends.dask.blocks import blocks_of_W, known_on_driver

        given, known = known_on_driver(given, X), None
        # One type for all blocks: that of integers would depend on the size of their values.
        is_integer = X.dtype.kind in "biu"
        dtype = np.dtype(self.dtype or (self.components_.dtype if is_integer else X.dtype))
        if self.n_fixed_W_ or any(value is not None for value in given.values()):
            known = self._known_of_samples(X.shape, dtype, given)
        return blocks_of_W(self._rows_of_W(dtype), X, known)

    def _rows_of_W(self, dtype: np.dtype[Any]) -> Any:  # noqa: N802
        from klnmf.backends.dask.blocks import RowsOfW

        single = copy.copy(self)  # Dask runs as many at a time as it has threads
        single.backend, single.n_threads = "cpu", 1
        single.__dict__.pop("_saved_state", None)
        name = type(self).__name__
        return RowsOfW(single._made_rows, self.n_components_, dtype, self.sparse_output, name)

    def _made_rows(
        self, data: SparseData | None, W: Array | None, known: Constraints | None
    ) -> Any:
        """Rows of W as the user gets them; ``W`` has those of a fit, which may need no data."""
        if W is None:
            assert data is not None
            known = known or self._known_of_samples(data.shape, data.dtype, {})
            return self._as_output(self._solve_W(data, self._H(), known))
        assert known is not None
        return self._as_output(
            known.original(0, W) if data is None else self._W_in_own_units(W, data, known)
        )

    def _known_of_samples(
        self, shape: tuple[int, int], dtype: np.dtype[Any], given: Any
    ) -> Constraints | None:
        fixed_W = given.get("fixed_W")
        n_given = 0 if fixed_W is None else np.shape(fixed_W)[1] if np.ndim(fixed_W) == 2 else 1
        if n_given != self.n_fixed_W_:
            raise ValueError(
                f"The model was fitted with {self.n_fixed_W_} fixed columns of W, and {n_given} "
                "are given for these samples. Pass fixed_W with the same columns as in fit."
            )
        known = {**given, "feature_weight": self.feature_weight_}
        checked = check_known(known, shape, self.n_components_, dtype)
        if checked is not None:
            check_scaled_penalties(checked, self._penalties(), dtype)
        return checked

    def _solve_W(  # noqa: N802
        self, X: sp.csr_array | SparseData, H: Array, known: Constraints | None = None
    ) -> Array:
        if known is None and (self.n_fixed_W_ or self.feature_weight_ is not None):
            raise ValueError(
                "The model was fitted with fixed_W or feature_weight, which are not supported "
                "here. transform supports both."
            )
        problem = self._problem(X if isinstance(X, SparseData) else SparseData(X), known)
        H = H if known is None else known.in_fit(1, H)
        with closing(problem.backend) as backend:
            factors = [None, backend.upload(H)]
            W = backend.download(solved_rows(problem, 0, factors, self._row_solve()))
        return W if known is None else known.original(0, W)

    def _W_in_own_units(  # noqa: N802
        self, W: Array, data: SparseData, known: Constraints
    ) -> Array:
        """W of a fit in the user's units; rows of samples of weight 0 are solved for."""
        W = known.original(0, W)
        if known.sample_weight is None or known.sample_weight.all():
            return W
        unseen = np.flatnonzero(known.sample_weight == 0)
        indptr, indices, values = data.view(0).take_rows(unseen)
        rows = sp.csr_array((values, indices, indptr), shape=(len(unseen), data.shape[1]))
        here = copy.copy(self)  # a cluster is not worth it
        here.backend = "cpu" if self.backend == "dask" else self.backend
        W[unseen] = here._solve_W(rows, self._H(), known.of_rows(unseen))
        return W

    def _H(self) -> Array:  # noqa: N802
        components: Any = checked_matrix(self.components_, "components_")
        dense = components.toarray() if sp.issparse(components) else components
        return np.ascontiguousarray(dense.T)

    def _as_output(self, W: Array) -> Any:
        return sp.csr_array(W) if self.sparse_output else W

    @property
    def _n_features_out(self) -> int:
        return int(self.n_components_)

    def __sklearn_tags__(self) -> Any:
        """Declare what scikit-learn should know: nonnegative input, sparse or dense."""
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
