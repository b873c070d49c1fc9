"""`FactorModel`: the methods that all estimators share."""

import copy
from contextlib import closing
from importlib import import_module
from importlib.util import find_spec
from numbers import Real
from typing import Any, ClassVar, Unpack

import numpy as np
import scipy.sparse as sp
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import check_is_fitted, validate_data

from klnmf.backends import backend_named, make_backend
from klnmf.constraints.checks import check_constraints, check_penalties
from klnmf.constraints.constraints import Constraints, FitConstraints, SampleConstraints
from klnmf.constraints.names import check_sample_order
from klnmf.constraints.penalties import Penalties
from klnmf.data.matrix_checks import checked_matrix, is_dask_array
from klnmf.data.on_disk.matrix import OnDiskMatrix
from klnmf.data.sparse_data import CountData, FindConstraints, FitInput, InMemoryData
from klnmf.data.validation import checked_input
from klnmf.estimators.arguments import ChecksParameters, check_arguments
from klnmf.estimators.counts_input import TakesCounts
from klnmf.estimators.held_out import Likelihood, held_out_likelihood, observed_blocks
from klnmf.solvers.base import Problem
from klnmf.solvers.row_solve import RowSolve, solved_rows
from klnmf.support.array_types import Array
from klnmf.support.descriptions import described

# Imported now and not in the first fit: a process that is forked during an import cannot finish it
# (`klnmf` makes forks wait for its imports). scikit-learn has callbacks since version 1.9.
backend_named("auto")
if find_spec("sklearn.callback"):
    import_module("sklearn.callback")

TRANSFORM_ARGUMENTS = tuple(SampleConstraints.__annotations__)
FIT_ARGUMENTS = (*TRANSFORM_ARGUMENTS, "sample_weight")
# More than any matrix has rows or columns.
MOST_COMPONENTS = 2**31 - 1


class _FloatInterval(Interval):
    """An interval without integers that are too large for a float."""

    def __contains__(self, value: Any) -> bool:
        try:
            return bool(super().__contains__(float(value)))
        except OverflowError:
            return False


FLOAT_FROM_ZERO = _FloatInterval(Real, 0, None, closed="left")


def check_fitted(model: Any) -> None:
    """Refuse what is not a model, and a model that is not fitted."""
    if not isinstance(model, FactorModel):
        hint = " Pass its nmf_." if hasattr(model, "nmf_") else ""
        raise TypeError(
            f"model must be a fitted KLNMF or MiniBatchKLNMF; got {described(model)}.{hint}"
        )
    check_is_fitted(model, "components_")


class FactorModel(TakesCounts, ClassNamePrefixFeaturesOutMixin, TransformerMixin, ChecksParameters):
    """An estimator with ``components_``: it has transform, inverse_transform and score.

    Its parameters include ``n_components``, ``tol``, ``dtype``, ``sparse_output``, ``backend`` and
    ``n_threads``.
    """

    tol: float
    sparse_output: bool
    components_: Any
    n_components_: int
    n_features_in_: int
    constraint_names_: list[str]
    n_fixed_W_: int  # noqa: N815
    feature_weight_: Array | None
    W_sums_: Array | None
    data_checksum_: int | None

    # What scikit-learn's metadata routing may pass on, which the signature does not show.
    __metadata_request__transform: ClassVar[dict[str, None]] = dict.fromkeys(TRANSFORM_ARGUMENTS)
    __metadata_request__score: ClassVar[dict[str, None]] = dict.fromkeys(FIT_ARGUMENTS)

    def transform(self, X: Any, **constraints: Unpack[SampleConstraints]) -> Any:
        """Return W for new samples, with the components fixed: each row's problem is convex.

        Parameters
        ----------
        X : {array-like, sparse, DataFrame, OnDiskMatrix, Dask array} of shape \
                (n_samples, n_features)
            Counts, or other nonnegative data.
        **constraints
            ``exposure``, ``missing``, ``fixed_W`` and ``zero_W`` of these samples, as in
            ``KLNMF.fit``. A model that was fitted with ``fixed_W`` needs it here too.

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
        """Return the estimated rates W Hᵀ as a dense array.

        Parameters
        ----------
        X : {array-like, sparse matrix or array} of shape (n_samples, n_components)
            W, as returned by ``transform``.

        Returns
        -------
        ndarray of shape (n_samples, n_features)
        """
        return self._checked_W(X) @ self._H().T

    def proportions(self, W: Any) -> Array:
        """Return the share of each component in the expected counts of each sample.

        These are what to compare between samples: the rows of W also hold the sizes of samples and,
        in models with penalties or fixed parts, the scales of components.

        Parameters
        ----------
        W : {array-like, sparse matrix or array} of shape (n_samples, n_components)
            As returned by ``fit_transform`` or ``transform``.

        Returns
        -------
        ndarray of shape (n_samples, n_components)
            Rows that sum to 1, or zeros for a sample without counts.

        Examples
        --------
        >>> from klnmf import KLNMF
        >>> from klnmf.datasets import load_bible
        >>> X = load_bible().data
        >>> model = KLNMF(n_components=5, random_state=0)
        >>> shares = model.proportions(model.fit_transform(X))
        >>> bool(abs(shares.sum(axis=1) - 1).max() < 1e-6)
        True
        """
        shares: Array = self._checked_W(W) * self._H().sum(axis=0, dtype=np.float64)
        totals = shares.sum(axis=1, keepdims=True)
        return shares / np.where(totals > 0.0, totals, 1.0)

    def score(self, X: Any, y: Any = None, **constraints: Unpack[FitConstraints]) -> float:
        """Return the held-out log-likelihood of new samples: higher is better.

        The features are dealt into five groups, always the same. For each group, W is estimated
        from the other features, with the components fixed, and predicts the counts of the group.
        The score is the mean Poisson log-likelihood of a sample, in which every entry was predicted
        without being seen. A part of each sample's rate follows the sums of the features in the
        fit, so that a count that no component allows does not make the score minus infinity; the
        size of this part is the one of nine values from 0.001 to 0.7 with the highest score.

        Components that fit noise score lower, also if the counts vary more than Poisson counts do
        (docs/maths.md, section 13). This assumes that the features of a sample are independent
        given its rates, and that the model has not seen these samples.

        Parameters
        ----------
        X : {array-like, sparse, DataFrame, OnDiskMatrix} of shape (n_samples, n_features)
            Counts, or other nonnegative data.
        y : Ignored
            For scikit-learn's API.
        **constraints
            ``sample_weight``, ``exposure``, ``missing``, ``fixed_W`` and ``zero_W`` of these
            samples, as in ``KLNMF.fit``: the mean over the samples and the sum over the features
            are weighted, and missing cells are neither seen nor predicted. A model that was
            fitted with ``missing`` or ``fixed_W`` needs them here too; if nothing is missing now,
            pass a pattern without any True. scikit-learn's searches pass them on under metadata
            routing.

        Returns
        -------
        float
        """
        return self._held_out(X, constraints, "score").per_sample

    # ---- inside ----------------------------------------------------------------------------------

    def _held_out(self, X: Any, given: FitConstraints, function: str) -> Likelihood:
        """How likely new samples are, with constraints as ``score`` takes them."""
        check_is_fitted(self, "components_")
        check_arguments(given, function, FIT_ARGUMENTS)
        missing = given.get("missing")
        if missing is None and "missing" in self.constraint_names_:
            raise ValueError(
                f"The model was fitted with missing cells, and {function} does not know which "
                "cells of these samples are missing: it would take them for observed zeros. Pass "
                "score(X, missing=...), with numpy.zeros(X.shape, bool) if none are. GridSearchCV "
                "passes it on with sklearn.set_config(enable_metadata_routing=True) and "
                "set_fit_request(missing=True).set_score_request(missing=True)."
            )
        check_sample_order({**given}, X)
        cells = self._missing_cells(X, missing)
        if isinstance(X, OnDiskMatrix):
            self._data(X, reset=False)  # for its checks
            blocks, counts = observed_blocks(X, cells), X
        else:
            counts = self._check(X, cells, reset=False, takes_missing=True)
            blocks = iter([counts])
        known = self._constraints_on(counts.shape, counts.dtype, {**given, "missing": cells})
        if known is None:
            known = Constraints(counts.shape, self.n_components_, penalties=self._penalties())
        return held_out_likelihood(self, blocks, known)

    def _checked_W(self, W: Any) -> Array:  # noqa: N802
        """Return the representation of some samples as an ndarray."""
        check_is_fitted(self, "components_")
        W = checked_input(W, "W", dtype=[np.float64, np.float32], ensure_all_finite=True)
        W = W.toarray() if sp.issparse(W) else W
        if W.shape[1] != self.n_components_:
            raise ValueError(
                f"W must have shape (n_samples, {self.n_components_}), as transform returns it; "
                f"got {W.shape}."
            )
        return np.asarray(W)

    def _set_attributes(self, components: Any, **others: Any) -> None:
        """Set ``components_``, the attributes that follow from it, and others by their names."""
        self.components_ = components
        self.n_components_, self.n_features_in_ = map(int, components.shape)
        for name, value in others.items():
            setattr(self, f"{name}_", value)

    def _penalties(self) -> Penalties:
        return Penalties()

    def _problem(self, data: FitInput, find_constraints: FindConstraints) -> Problem:
        penalties = self._penalties()
        constrained = data.with_constraints(find_constraints)
        backend = make_backend(self.backend, constrained, self.n_threads)
        try:
            check_penalties(penalties, backend.data.dtype)
        except ValueError:
            backend.close()
            raise
        return Problem(backend, penalties)

    def _row_solve(self) -> RowSolve:
        # Tighter than the fit: fit + transform and fit_transform agree where one solution is best.
        return RowSolve(tolerance=min(1e-5, max(0.01 * self.tol, 1e-7)))

    def _transformed(self, data: CountData, given: Any) -> Array:
        """W of data with constraints."""
        constraints = self._constraints_on(data.shape, data.dtype, given)
        return self._solve_W(data, self._H(), constraints)

    def _transformed_blocks(self, X: Any, given: dict[str, Any]) -> Any:
        from klnmf.backends.dask.blocks import constraints_on_driver, transformed_blocks

        given = constraints_on_driver(given, X)
        # Not the type of one block: integers would have one or the other by their size.
        is_integer = X.dtype.kind in "biu"
        dtype = np.dtype(self.dtype or (self.components_.dtype if is_integer else X.dtype))
        constraints = None
        if self.n_fixed_W_ or any(value is not None for value in given.values()):
            constraints = self._constraints_on((X.shape[0], X.shape[1]), dtype, given)
        return transformed_blocks(self._row_model(), X, dtype, constraints)

    def _row_model(self) -> Any:
        """Return what workers need to transform blocks of rows."""
        from klnmf.backends.dask.blocks import RowModel

        single: Any = copy.copy(self)
        single.backend, single.n_threads, single.run, single._saved_state = "cpu", 1, None, None
        return RowModel(
            name=type(self).__name__,
            n_components=self.n_components_,
            is_sparse=self.sparse_output,
            transform=single._transformed_rows,
            in_user_units=single._fitted_rows,
        )

    def _transformed_rows(self, data: CountData, constraints: Constraints | None) -> Any:
        if constraints is None:
            return self._as_output(self._transformed(data, {}))
        return self._as_output(self._solve_W(data, self._H(), constraints))

    def _fitted_rows(self, W: Array, data: CountData | None, constraints: Constraints) -> Any:
        return self._as_output(self._W_in_user_units(W, data, constraints))

    def _constraints_on(
        self, shape: tuple[int, int], dtype: np.dtype[Any], given: Any
    ) -> Constraints | None:
        fixed_W = given.get("fixed_W")
        n_given = 0 if fixed_W is None else np.shape(fixed_W)[1] if np.ndim(fixed_W) == 2 else 1
        if n_given != self.n_fixed_W_:
            raise ValueError(
                f"fixed_W had {self.n_fixed_W_} columns in fit, and has {n_given} for these "
                "samples. Pass fixed_W with the same columns as in fit."
            )
        given = {**given, "feature_weight": self.feature_weight_}
        size = (shape, self.n_components_, dtype)
        return check_constraints(given, *size, penalties=self._penalties())

    def _solve_W(  # noqa: N802
        self, X: sp.csr_array | CountData, H: Array, constraints: Constraints | None = None
    ) -> Array:
        if constraints is None and (self.n_fixed_W_ or self.feature_weight_ is not None):
            raise ValueError(
                "The model was fitted with fixed_W or feature_weight, which are not supported "
                "here. transform supports both."
            )
        data = X if isinstance(X, CountData) else InMemoryData(X)
        problem = self._problem(data, lambda *_: constraints)
        H = H if constraints is None else constraints.in_fit(1, H)
        with closing(problem.backend) as backend:
            factors = [None, backend.upload(H)]
            W = backend.download(solved_rows(problem, 0, factors, self._row_solve()))
        return W if constraints is None else constraints.original(0, W)

    def _W_in_user_units(  # noqa: N802
        self, W: Array, data: CountData | None, constraints: Constraints
    ) -> Array:
        """W of a fit in the user's units; rows of samples of weight 0 are solved for."""
        W = constraints.original(0, W)
        if constraints.sample_weight is None or constraints.sample_weight.all():
            return W
        assert data is not None
        unseen = np.flatnonzero(constraints.sample_weight == 0)
        indptr, indices, values = data.view(0).take_rows(unseen)
        rows = sp.csr_array((values, indices, indptr), shape=(len(unseen), data.shape[1]))
        here = copy.copy(self)  # a cluster is not worth it
        here.backend = "cpu" if self.backend == "dask" else self.backend
        W[unseen] = here._solve_W(rows, self._H(), constraints.of_rows(unseen))
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
