"""`FactorModel`: the methods that all estimators share."""

import copy
import os
from abc import abstractmethod
from contextlib import closing
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from numbers import Integral, Real
from typing import Any, ClassVar, Self, Unpack

import numpy as np
import scipy.sparse as sp
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from klnmf.backends import BACKENDS, backend_for, backend_named, make_backend
from klnmf.backends.base import Backend, RowModel
from klnmf.constraints.checks import check_constraints, check_penalties
from klnmf.constraints.constraints import (
    OF_MATRIX,
    ConstraintNames,
    Constraints,
    FitConstraints,
    SampleConstraints,
)
from klnmf.constraints.penalties import Penalties
from klnmf.data.matrix_checks import checked_matrix
from klnmf.data.sparse_data import CountData
from klnmf.data.tensor_data import data_in_memory, rows_in_memory
from klnmf.data.validation import checked_input
from klnmf.estimators.arguments import ChecksParameters, check_arguments, set_checked_params
from klnmf.estimators.checked_counts import CheckedCounts, checked_counts
from klnmf.estimators.held_out import Likelihood, held_out_likelihood
from klnmf.estimators.run_options import RunOptions
from klnmf.saved.models import read_model
from klnmf.solvers.base import Problem, State
from klnmf.solvers.loop import Record
from klnmf.solvers.row_solve import row_solve_of, solved_W
from klnmf.support.array_types import Array
from klnmf.support.descriptions import described

# Imported now and not in the first fit: a process that is forked during an import cannot finish it
# (`klnmf` makes forks wait for its imports). scikit-learn has callbacks since version 1.9.
backend_named("auto")
if find_spec("sklearn.callback"):
    import_module("sklearn.callback")

TRANSFORM_ARGUMENTS = tuple(SampleConstraints.__annotations__)
FIT_ARGUMENTS = tuple(FitConstraints.__annotations__)
# More than any matrix has rows or columns.
MOST_COMPONENTS = 2**31 - 1


FLOAT_FROM_ZERO = Interval(Real, 0, None, closed="left")
FROM_ONE = Interval(Integral, 1, None, closed="left")
# Parameters of all estimators that are fitted by the loop.
OF_ALL_FITS: dict[str, Any] = {
    "n_components": [Interval(Integral, 1, MOST_COMPONENTS, closed="both")],
    "n_init": [FROM_ONE],
    "max_iter": [FROM_ONE],
    "tol": [FLOAT_FROM_ZERO],
    "n_threads": [None, Integral],
    "random_state": ["random_state"],
    "dtype": "no_validation",  # checked with a better message
    "sparse_output": ["boolean"],
    "warm_start": ["boolean"],
    "backend": [StrOptions({"auto", *BACKENDS})],
    "run": [None, RunOptions],
}


def check_fitted(model: Any) -> None:
    """Refuse what is not a model, and a model that is not fitted."""
    if not isinstance(model, FactorModel):
        hint = " Pass its nmf_." if hasattr(model, "nmf_") else ""
        raise TypeError(
            f"model must be a fitted KLNMF or MiniBatchKLNMF; got {described(model)}.{hint}"
        )
    model._check_is_fitted()


class FactorModel(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ChecksParameters):
    """An estimator with ``components_``: it has transform, inverse_transform and score.

    Its parameters include ``n_components``, ``tol``, ``dtype``, ``sparse_output``, ``backend`` and
    ``n_threads``.
    """

    n_components: int
    tol: float
    dtype: Any
    backend: str
    n_threads: int | None
    sparse_output: bool
    components_: Any
    n_components_: int
    n_features_in_: int
    constraint_names_: list[str]
    n_fixed_W_: int  # noqa: N815
    feature_weight_: Array | None
    W_sums_: Array | None
    data_checksum_: int | None

    _learned: ClassVar[str] = "components_"
    _called: ConstraintNames = OF_MATRIX
    _transform_arguments: ClassVar[tuple[str, ...]] = TRANSFORM_ARGUMENTS
    _fit_arguments: ClassVar[tuple[str, ...]] = FIT_ARGUMENTS
    # What scikit-learn's metadata routing may pass on, which the signature does not show.
    __metadata_request__transform: ClassVar[dict[str, None]] = dict.fromkeys(TRANSFORM_ARGUMENTS)
    __metadata_request__score: ClassVar[dict[str, None]] = dict.fromkeys(FIT_ARGUMENTS)

    def transform(self, X: Any, **constraints: Unpack[SampleConstraints]) -> Any:
        """Return W for new samples, with the components fixed: each row's problem is convex.

        Parameters
        ----------
        X : {array-like, sparse, DataFrame, OnDiskMatrix, Dask array} of shape \
                (n_samples, n_features)
            Counts, or other nonnegative data. A `klnmf.PoissonCP` takes what its ``fit`` takes; the
            modes after the first are matched by their labels, if both have them, and labels that
            the model does not know are left out with a warning.
        **constraints
            ``exposure``, ``missing``, ``fixed_W`` and ``zero_W`` of these samples, as in
            ``KLNMF.fit``. A model that was fitted with ``fixed_W`` needs it here too. For a
            `klnmf.PoissonCP`, ``fixed`` and ``zeros`` of the first mode, not as lists.

        Returns
        -------
        ndarray or CSR array of shape (n_samples, n_components)
            For a Dask array, a Dask array with blocks of the same rows, not computed yet.
        """
        self._check_is_fitted()
        check_arguments(constraints, "transform", self._transform_arguments)
        checked = self._checked(X, {**constraints})
        if isinstance(checked.data, CountData):
            backend = backend_for(self.backend, X)
            W = self._transformed(checked.data, checked.given, backend)
            return checked.beside_X(self._as_output(W))
        find = partial(self._constraints_on, checked.given)
        return checked.data.transformed(self._row_model(), find)

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
        W, (H, *rest) = self._checked_W(X), self._others()
        if not rest:
            return W @ H.T
        modes = "bcdefgh"[: 1 + len(rest)]
        which = ",".join(f"{mode}k" for mode in "a" + modes)
        return np.einsum(f"{which}->a{modes}", W, H, *rest)

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
        W = self._checked_W(W)
        sums = [H.sum(axis=0, dtype=np.float64) for H in self._others()]
        shares: Array = W * np.prod(sums, axis=0)
        totals = shares.sum(axis=1, keepdims=True)
        return shares / np.where(totals > 0.0, totals, 1.0)

    def score(self, X: Any, y: Any = None, **constraints: Unpack[FitConstraints]) -> float:
        """Return the held-out log-likelihood of new samples: higher is better.

        The features are dealt into ten groups, always the same. For each group, W is estimated
        from the other features, with the components fixed, and predicts the counts of the group.
        The score is the mean Poisson log-likelihood of a sample, in which every entry was predicted
        without being seen. A part of each sample's rate follows the sums of the features in the
        fit, so that a count that no component allows does not make the score minus infinity; the
        size of this part is the one of nine values from 0.001 to 0.7 with the highest score. This
        is the prediction that `klnmf.model_selection.select_rank` compares ranks by. The order of
        models does not depend on the unit of the counts.

        Components that fit noise score lower, also if the counts vary more than Poisson counts do
        (docs/maths/held_out.md). This assumes that the features of a sample are independent
        given its rates, and that the model has not seen these samples. Samples of a
        `klnmf.PoissonCP` are slices of the first mode, and its features are rows of the second.

        Parameters
        ----------
        X : {array-like, sparse, DataFrame, OnDiskMatrix} of shape (n_samples, n_features)
            Counts, or other nonnegative data. A `klnmf.PoissonCP` takes what its ``transform``
            takes.
        y : Ignored
            For scikit-learn's API.
        **constraints
            ``sample_weight``, ``exposure``, ``missing``, ``fixed_W`` and ``zero_W`` of these
            samples, as in ``KLNMF.fit``: the mean over the samples and the sum over the features
            are weighted, and missing cells are neither seen nor predicted. A model that was
            fitted with ``missing`` or ``fixed_W`` needs them here too; if nothing is missing now,
            pass a pattern without any True. scikit-learn's searches pass them on under metadata
            routing. For a `klnmf.PoissonCP` as ``transform`` takes them.

        Returns
        -------
        float
        """
        return self._held_out(X, constraints, "score").per_sample

    # ---- inside ----------------------------------------------------------------------------------

    def _held_out(self, X: Any, given: FitConstraints, function: str) -> Likelihood:
        """How likely new samples are, with constraints as ``score`` takes them."""
        self._check_is_fitted()
        check_arguments(given, function, self._fit_arguments)
        missing = given.get("missing")
        if missing is None and "missing" in self.constraint_names_:
            raise ValueError(
                f"The model was fitted with missing cells, and {function} does not know which "
                "cells of these samples are missing: it would take them for observed zeros. Pass "
                "score(X, missing=...), with numpy.zeros(X.shape, bool) if none are. GridSearchCV "
                "passes it on with sklearn.set_config(enable_metadata_routing=True) and "
                "set_fit_request(missing=True).set_score_request(missing=True)."
            )
        checked = self._checked(X, {**given}, backends=())
        data = checked.data
        assert isinstance(data, CountData)
        known = self._constraints_on(checked.given, data.shape, data.dtype)
        return held_out_likelihood(self, data, known, backend_for(self.backend, X))

    def _checked(self, X: Any, given: dict[str, Any], **options: Any) -> CheckedCounts:
        """Return X and what is known about its samples, by default as ``transform`` takes them."""
        options = {
            "reset": False,
            "dtype": self.dtype,
            "penalties": self._penalties(),
            "n_threads": self.n_threads,
            "backends": tuple(BACKENDS),
            "takes_files": True,
            "backend": self.backend,
        } | options
        return checked_counts(X, given, type(self).__name__, model=self, **options)

    def _in_memory(self, X: Any, given: dict[str, Any], **options: Any) -> CheckedCounts:
        """X in memory, checked, without missing cells."""
        fewer = {"backends": (), "takes_files": False, "takes_missing": False}
        return self._checked(X, given, **fewer, **options)

    def _checked_W(self, W: Any) -> Array:  # noqa: N802
        """Return the representation of some samples as an ndarray."""
        self._check_is_fitted()
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
        self._set_others(others)

    def _set_others(self, others: dict[str, Any]) -> None:
        for name, value in others.items():
            setattr(self, f"{name}_", value)

    def _penalties(self) -> Penalties:
        return Penalties()

    def _transformed(self, data: CountData, given: Any, backend: str) -> Array:
        """W of data with constraints."""
        constrained = data.with_constraints(partial(self._constraints_on, given))
        return self._solved(make_backend(backend, constrained, self.n_threads))

    def _row_model(self) -> RowModel:
        """Return what workers need to transform blocks of rows."""
        single: Any = copy.copy(self)
        single.n_threads, single.run, single._saved_state = 1, None, None
        return RowModel(
            name=type(self).__name__,
            n_components=self.n_components_,
            dtype=self.components_.dtype,
            is_sparse=self.sparse_output,
            transform=single._transformed_rows,
            in_user_units=single._fitted_rows,
        )

    def _transformed_rows(self, data: CountData, constraints: Constraints) -> Any:
        return self._as_output(self._solve_W(data.view(0).as_csr(), constraints))

    def _fitted_rows(self, W: Array, data: CountData | None, constraints: Constraints) -> Any:
        """W of a fit as it is returned; rows of samples of weight 0 are solved for."""
        W = constraints.original(0, W)
        if constraints.sample_weight is not None and not constraints.sample_weight.all():
            assert data is not None
            unseen = np.flatnonzero(constraints.sample_weight == 0)
            of_rows = constraints.part(unseen).with_sample_weight(None)
            W[unseen] = self._solve_W(rows_in_memory(data, unseen), of_rows)
        return self._as_output(W)

    def _constraints_on(
        self, given: Any, shape: tuple[int, ...], dtype: np.dtype[Any]
    ) -> Constraints:
        called = self._called
        name, fixed = called.fixed[0], given.get(called.fixed[0])
        n_given = 0 if fixed is None else np.shape(fixed)[1] if np.ndim(fixed) == 2 else 1
        if n_given != self.n_fixed_W_:
            raise ValueError(
                f"{name} had {self.n_fixed_W_} columns in fit, and has {n_given} for these "
                f"samples. Pass {name} with the same columns as in fit."
            )
        given = {**given, **dict(zip(called.weights[1:], self._weights_of_others(), strict=True))}
        check_penalties(self._penalties(), dtype)
        size = (shape, self.n_components_, dtype)
        return check_constraints(given, *size, penalties=self._penalties(), called=called)

    def _weights_of_others(self) -> list[Array | None]:
        """Return the weights in the fit of the rows of all modes but the first."""
        return [self.feature_weight_]

    def _solve_W(self, X: Any, constraints: Constraints) -> Array:  # noqa: N802
        """W of counts in memory, in this process."""
        data = data_in_memory(X).constrained(constraints)
        return self._solved(backend_named(self.backend).local(data, self.n_threads))

    def _solved(self, backend: Backend) -> Array:
        problem = Problem(backend, self._penalties())
        constraints = problem.constraints
        with closing(backend):
            others = (constraints.in_fit(*each) for each in enumerate(self._others(), 1))
            W = solved_W(problem, others, row_solve_of(self.tol))
        return constraints.original(0, W)

    def _check_is_fitted(self) -> None:
        check_is_fitted(self, self._learned)

    @property
    def _is_fitted(self) -> bool:
        return hasattr(self, self._learned)

    def _others(self) -> list[Array]:
        """Return the factors of all modes but the first."""
        return [self._H()]

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


class FittedByLoop(FactorModel):
    """An estimator whose fit runs `klnmf.estimators.fitting.fit_model` on all of X."""

    solver: Any
    init: str
    n_init: int
    max_iter: int
    random_state: Any
    warm_start: bool
    run: RunOptions | None
    n_iter_: int
    divergence_: float
    optimality_gap_: float
    kkt_residual_: float
    converged_: bool
    history_: list[Record]
    _saved_state: tuple[Any, State] | None = None  # of the last fit, if that had warm_start=True

    @abstractmethod
    def _checked_start(
        self, start: Any, shape: tuple[int, ...], dtype: np.dtype[Any]
    ) -> list[Array | None]:
        """Return what a fit starts from, by mode, one row for each row of the mode."""

    @abstractmethod
    def _set_factors(self, problem: Problem, factors: list[Any], **others: Any) -> None:
        """Set the fitted attributes: the factors, and ``others`` by their names."""

    def set_params(self, **params: Any) -> Self:
        """Set parameters, also those of ``run``, such as ``run__checkpoint``."""
        if self.run is None and any(name.startswith("run__") for name in params):
            self.run = RunOptions()
        set_checked_params(self, **params)
        return self

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Load a model from a file written by ``save``; it gives exactly the same results.

        Files from untrusted sources are safe to load: no code in them is run, and a damaged or
        forged file gives an error.

        Parameters
        ----------
        path : str or path
            The file.

        Returns
        -------
        The model.

        Raises
        ------
        klnmf.saved.SavedFileError
            If the file is damaged, from a newer version, or not a model. It is a ValueError.

        See Also
        --------
        klnmf.load_model : Also returns W, names and metadata.
        """
        model: Self = read_model(path, cls).model
        return model
