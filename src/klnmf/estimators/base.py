"""What all estimators share: everything that is done with components that are known."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import closing
from typing import Any, ClassVar, Unpack

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from klnmf.backends import make_backend
from klnmf.constraints.checks import check_known, check_scaled_penalties
from klnmf.constraints.constraints import Constraints, SampleConstraints
from klnmf.constraints.missing_cells import missing_cells, without_cells
from klnmf.constraints.names import check_sample_order, sample_names_of
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
from klnmf.estimators.completion import (
    Likelihood,
    Split,
    Splitter,
    likelihood,
    likelihood_of_blocks,
    split_for_completion,
)
from klnmf.objective import Penalties
from klnmf.solvers.base import Problem
from klnmf.solvers.row_solve import RowSolve, solved_rows
from klnmf.support.option_names import option

Array = npt.NDArray[Any]

# The half of the counts that `score` estimates from is the same for every model that is compared.
SCORE_SEED = 0


class FactorModel(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """An estimator with ``components_``: it can transform, go back, and be scored.

    Its parameters include ``n_components``, ``tol``, ``dtype``, ``sparse_output``, ``backend`` and
    ``n_threads``.
    """

    n_components: int
    tol: float
    n_threads: int | None
    dtype: Any
    sparse_output: bool
    backend: str
    components_: Any
    n_components_: int

    # What scikit-learn's metadata routing may hand on, which the signature does not tell.
    __metadata_request__transform: ClassVar[dict[str, None]] = dict.fromkeys(
        SampleConstraints.__annotations__
    )

    def transform(self, X: Any, **known: Unpack[SampleConstraints]) -> Any:
        """Return W for new samples, with the components fixed: each row's problem is convex.

        Parameters
        ----------
        X : {array-like, sparse, DataFrame, OnDiskMatrix, Dask array} of shape \
                (n_samples, n_features)
            Counts, or other nonnegative data.
        **known
            What is known of these samples: ``exposure``, ``missing``, ``fixed_W`` and ``zero_W``,
            as in ``KLNMF.fit``. A model that was fitted with ``fixed_W`` needs these columns of the
            new samples too. The model's feature weights hold here as well.

        Returns
        -------
        ndarray or CSR array of shape (n_samples, n_components)
            For a Dask array a Dask array, not computed yet, with blocks of the same rows.
        """
        check_is_fitted(self, "components_")
        if is_dask_array(X):
            validate_data(self, X, reset=False, skip_check_array=True)
            from klnmf.backends.dask.blocks import transformed_blocks

            return transformed_blocks(self, X, {**known})
        check_sample_order({**known}, X)
        cells = self._missing_cells(X, known.get("missing"))
        given = {**known, "missing": cells}
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
        """Held-out log-likelihood by document completion: higher is better, on new or old samples.

        Each count of X falls into one of two halves at random, with a fixed seed. W is estimated
        from one half with the components fixed, and the mean over the samples of the Poisson
        log-likelihood of the other half is returned. 1 % of each sample's rate is spread evenly
        over the features, so that a feature unknown to the model costs much and not everything.

        Values are always taken as counts. What one has beyond a whole number falls into either half
        as a whole, so that 2.9 and 3.1 are scored nearly as 3 is. For data in other units than
        counts, such as counts per million, the halves vary less than counts would, and the score
        does not tell when there are too many components.

        Parameters
        ----------
        X : {array-like, sparse, DataFrame, OnDiskMatrix} of shape (n_samples, n_features)
            Counts, or other nonnegative data.
        y : Ignored
            For scikit-learn's API.
        missing : {sparse, array-like} of shape (n_samples, n_features), default=None
            True (or not 0) where a cell was not observed: it is in neither half. A model that was
            fitted with ``missing`` needs it here too; if nothing is missing now, say so by a
            pattern without any True. scikit-learn's searches hand it on under metadata routing.

        Returns
        -------
        float
            Mean log-likelihood of a sample's held-out half.
        """
        check_is_fitted(self, "components_")
        if missing is None and "missing" in getattr(self, "known_names_", []):
            raise ValueError(
                "The model was fitted with missing cells, and which cells of these samples are "
                "missing was not said: they would be scored as zeros that were observed. Pass "
                "score(X, missing=...); numpy.zeros(X.shape, bool) says that none are. "
                "GridSearchCV hands it on with sklearn.set_config(enable_metadata_routing=True) "
                "and set_fit_request(missing=True).set_score_request(missing=True)."
            )
        cells = self._missing_cells(X, missing)
        if isinstance(X, OnDiskMatrix):
            return self._completed_in_blocks(X, cells).per_sample
        counts = self._check(X, cells, reset=False, takes_missing=True)
        return self._completed(counts, cells)[1].per_sample

    # ---- inside ----------------------------------------------------------------------------------

    def _missing_cells(self, X: Any, missing: Any, *, reset: bool = False) -> sp.csr_array | None:
        """Missing cells of X, in its order; None: there are none."""
        if missing is None:
            return None
        names = None if reset else getattr(self, "feature_names_in_", None)
        return missing_cells(X, missing, names)

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
                f"{X!r} is on disk, and here the counts must be in memory: pass "
                "klnmf.readers.read_counts(path).X, or a block of its row_blocks()."
            )
        if is_dask_array(X):
            raise TypeError(
                "X is a Dask array, and here the counts must be in memory: pass X.compute(), or "
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
        """X as solvers see it: checked, prepared on disk and checked then, or checked by Dask."""
        if is_dask_array(X) and self.backend == "dask":
            validate_data(self, X, reset=reset, skip_check_array=True)
            from klnmf.backends.dask.arrays import DaskArrayData

            return DaskArrayData(X, self.dtype, type(self).__name__, missing)
        if not isinstance(X, OnDiskMatrix):
            return SparseData(self._check(X, missing, reset=reset, takes_missing=True))
        validate_data(self, X, reset=reset, skip_check_array=True)
        if self.dtype is not None and working_dtype(np.zeros(0), self.dtype) != X.dtype:
            raise ValueError(
                f"{X.path} was prepared in {X.dtype}, and {option('dtype', self.dtype)} was asked "
                f"for. Leave {option('dtype')} out, or prepare the matrix again with that type."
            )
        X.check_unchanged()
        if reset and not X.holds_whole_numbers:
            warn_if_not_counts(X.data.view(0))
        return X.data

    def _warn_of_data(
        self, X: Any, indptr: Array, shape: tuple[int, int], known: Constraints | None = None
    ) -> None:
        """Warn of what a fit can do, and hardly anybody wants; X is for the names of samples."""
        n_learned, is_empty = self.n_components, np.diff(indptr) == 0
        if known is not None:
            n_learned = int((~(known.is_frozen(0) | known.is_frozen(1))).sum())
            if known.sample_weight is not None:
                is_empty &= known.sample_weight > 0
        warn_of_many_components(n_learned, shape)
        warn_of_empty_samples(is_empty, sample_names_of(X))

    def _completed(
        self, counts: sp.csr_array, missing: sp.csr_array | None = None
    ) -> tuple[Split, Likelihood]:
        """Estimate W from one half of the counts; both halves, and how likely the other one is."""
        H, positions = self._H(), self._scored_features()
        if positions is not None:
            counts, H = counts[:, positions], H[positions]
            missing = None if missing is None else missing[:, positions]
        split = split_for_completion(counts, SCORE_SEED)
        W = self._estimated(split, H, positions, missing)
        return split, likelihood(split.held_out, W, H, missing)

    def _scored_features(self) -> Array | None:
        """Features that count, which those of weight 0 do not; None: all of them."""
        if self._n_fixed_W:
            raise ValueError(
                "The model was fitted with fixed_W, known columns of W, and nobody knows those of "
                "the halves of samples that are scored. Compute the likelihood of new samples from "
                "transform(X, fixed_W=...) and components_."
            )
        weights = getattr(self, "feature_weight_", None)
        return None if weights is None else np.flatnonzero(weights)

    def _estimated(
        self, split: Split, H: Array, positions: Array | None, missing: sp.csr_array | None
    ) -> Array:
        """W from the half of the counts that is there for it."""
        known = None
        if missing is not None and not missing.nnz:
            missing = None
        weights = None if positions is None else self.feature_weight_[positions]
        if weights is not None or missing is not None:
            shape = split.estimate.shape
            known = Constraints(shape, H.shape[1], feature_weight=weights, missing=missing)
        return self._solve_W(split.estimate, H, known)

    def _completed_in_blocks(
        self, X: OnDiskMatrix, missing: sp.csr_array | None = None
    ) -> Likelihood:
        """Likelihood as by `_completed`, to the bit: W is there for all samples, X never is."""
        self._data(X, reset=False)  # for its checks
        H, positions = self._H(), self._scored_features()
        if positions is not None:
            H = H[positions]
            missing = None if missing is None else missing[:, positions]

        def blocks() -> Iterator[tuple[sp.csr_array, sp.csr_array | None]]:
            start = 0
            for block in X.row_blocks():
                stop = start + block.shape[0]
                seen = block if positions is None else block[:, positions]
                cells = None if missing is None else missing[start:stop]
                yield seen if cells is None else without_cells(seen, cells), cells
                start = stop

        estimating, scoring = Splitter(SCORE_SEED), Splitter(SCORE_SEED)
        parts = [
            self._estimated(estimating.split(block), H, positions, cells)
            for block, cells in blocks()
        ]
        held_out = (scoring.split(block).held_out for block, _ in blocks())
        return likelihood_of_blocks(held_out, np.concatenate(parts), H, missing)

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
        """W of data of which something may be known."""
        known = self._known_of_samples(data.shape, data.dtype, given)
        return self._solve_W(data, self._H(), known)

    def _known_of_samples(
        self, shape: tuple[int, int], dtype: np.dtype[Any], given: Any
    ) -> Constraints | None:
        of_fit = sorted(set(given) - set(SampleConstraints.__annotations__))
        if of_fit:
            raise TypeError(
                f"transform does not take {of_fit[0]!r}: the components are known. It takes "
                f"{sorted(SampleConstraints.__annotations__)}."
            )
        n_fixed, fixed_W = self._n_fixed_W, given.get("fixed_W")
        n_given = 0 if fixed_W is None else np.shape(fixed_W)[1] if np.ndim(fixed_W) == 2 else 1
        if n_given != n_fixed:
            raise ValueError(
                f"The model was fitted with {n_fixed} known columns of W, and {n_given} of them "
                "are known of these samples. Pass fixed_W with the same columns as in fit."
            )
        known = {**given, "feature_weight": getattr(self, "feature_weight_", None)}
        checked = check_known(known, None, shape, self.n_components_, dtype)
        if checked is not None:
            check_scaled_penalties(checked, self._penalties(), dtype)
        return checked

    @property
    def _n_fixed_W(self) -> int:  # noqa: N802
        return int(getattr(self, "n_fixed_W_", 0))

    def _solve_W(  # noqa: N802
        self, X: sp.csr_array | SparseData, H: Array, known: Constraints | None = None
    ) -> Array:
        if known is None and (
            self._n_fixed_W or getattr(self, "feature_weight_", None) is not None
        ):
            raise ValueError(
                "The model was fitted with fixed_W or feature_weight, of which this knows nothing: "
                "it is for models without. transform knows of both."
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
