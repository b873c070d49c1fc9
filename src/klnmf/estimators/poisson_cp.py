"""`PoissonCP`: factors of counts with any number of modes."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from sklearn.base import _fit_context
from sklearn.utils._param_validation import StrOptions

from klnmf.constraints.constraints import ConstraintNames
from klnmf.constraints.penalties import Penalties
from klnmf.data.tensor_alignment import aligned, tensor_of
from klnmf.data.validation import check_start
from klnmf.estimators.arguments import check_arguments, explains_misplaced
from klnmf.estimators.base import FLOAT_FROM_ZERO, OF_ALL_FITS, FittedByLoop
from klnmf.estimators.checked_counts import CheckedCounts, by_mode, checked_counts
from klnmf.estimators.fitted import fit_in_html
from klnmf.estimators.fitting import fit_model
from klnmf.estimators.run_options import RunOptions
from klnmf.saved.container import write_container
from klnmf.saved.tensor_models import packed_tensor_model, unpacked_tensor_model
from klnmf.solvers import Solver
from klnmf.solvers.base import Problem
from klnmf.support.array_types import Array, FloatArray
from klnmf.support.descriptions import listed, sizes_in_words
from klnmf.support.result_tables import ShownBelowDiagram

OF_FIRST_MODE = ("exposure", "missing", "fixed", "zeros")
# Column sums this near to 1 are those of columns that were scaled to 1.
NEAR_1 = 1e-4


class PoissonCP(ShownBelowDiagram, FittedByLoop):
    """Factors of sparse counts with two to eight modes: Poisson CP decomposition (CP-APR).

    Events with several labels (customer × product × week) are counts in a tensor. The model says

    .. code-block:: text

        X_ijl... ~ Poisson(Σ_k weights_k A_ik B_jk C_lk ...)

    with one nonnegative matrix for each mode, whose columns sum to 1. They minimise the
    Kullback-Leibler divergence, by the same loop, solvers and kernels as `klnmf.KLNMF`, which is
    the case of two modes. Time and memory grow with the nonzeros of X.

    Parameters
    ----------
    n_components : int, default=10
        Number of components r.
    solver : {"srcd", "mu", "bmme"} or Solver, default="srcd"
        As in `klnmf.KLNMF`.
    init : {"samples", "random"}, default="samples"
        Where the fit starts, unless ``start`` is passed to ``fit``: averages of a few slices of the
        first mode for each component, or noise scaled to the sums of X.
    l1, l2 : float or sequence of float, default=0
        Penalties l1 ‖A‖₁ + l2/2 ‖A‖² on the factor of each mode; one number is for all modes.
    tol : float, default=3e-4
        The fit has converged when the optimality gap is at most this: changing the factor of any
        one mode cannot lower the objective by more than this share of it.
    dtype : None, numpy.float32 or numpy.float64, default=None
        Type to compute in. None keeps that of X, or is float64 where products of small shares would
        become 0 in float32: of many modes, or of counts of very different sizes.
    backend : {"auto", "cpu", "reference"}, default="auto"
        Where to compute. "dask" and "cuda" take matrices only.
    n_init, max_iter, n_threads, random_state, sparse_output, warm_start, run
        As in `klnmf.KLNMF`.

    Attributes
    ----------
    factors_ : list of ndarray or CSR array, of shape (n_rows, n_components)
        One for each mode. Columns sum to 1; the component with the most counts comes first.
    weights_ : ndarray of shape (n_components,)
        Expected counts of each component, without weights of the fit.
    factor_sums_ : ndarray of shape (n_modes, n_components)
        Column sums of the factors in the fit, whose product is ``weights_``: penalties and fixed
        entries depend on the scale.
    n_iter_, divergence_, optimality_gap_, kkt_residual_, converged_, history_
        As in `klnmf.KLNMF`; a record has the share of zeros of each factor as ``zeros_W``,
        ``zeros_H``, ``zeros_factor_2``, ...
    shape_, mode_names_, labels_ : tuple
        Those of the X of the fit.
    mode_weights_ : list of ndarray or None
        Weights of the rows of each mode in the fit.
    constraint_names_, n_fixed_W_, W_sums_, data_checksum_, n_components_
        As in `klnmf.KLNMF`; W is the first factor.

    See Also
    --------
    klnmf.SparseTensor : Counts with labels, from tables, files and other libraries.

    Examples
    --------
    >>> from klnmf import PoissonCP
    >>> from klnmf.simulate import simulate_tensor
    >>> X = simulate_tensor((60, 40, 12), 3, n_counts=20_000, random_state=0).X
    >>> model = PoissonCP(n_components=3, random_state=0).fit(X)
    >>> [factor.shape for factor in model.factors_], model.converged_
    ([(60, 3), (40, 3), (12, 3)], True)
    >>> bool(abs(model.weights_.sum() - X.total) < 1e-4 * X.total)
    True
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = OF_ALL_FITS | {
        "solver": [StrOptions({"srcd", "mu", "bmme"}), Solver],
        "init": [StrOptions({"samples", "random"})],
        "l1": [FLOAT_FROM_ZERO, "array-like"],
        "l2": [FLOAT_FROM_ZERO, "array-like"],
    }

    factors_: list[Any]
    weights_: FloatArray
    factor_sums_: FloatArray
    mode_names_: tuple[str, ...]
    labels_: tuple[Any, ...]
    mode_weights_: list[Array | None]

    _learned = "factors_"
    _unpacked = staticmethod(unpacked_tensor_model)
    _fit_arguments: ClassVar[tuple[str, ...]] = ("weights", *OF_FIRST_MODE)
    _transform_arguments: ClassVar[tuple[str, ...]] = OF_FIRST_MODE
    __metadata_request__fit: ClassVar[dict[str, None]] = dict.fromkeys(_fit_arguments)
    __metadata_request__transform: ClassVar[dict[str, None]] = dict.fromkeys(OF_FIRST_MODE)
    __metadata_request__score: ClassVar[dict[str, None]] = dict.fromkeys(_fit_arguments)

    @explains_misplaced
    def __init__(
        self,
        n_components: int = 10,
        *,
        solver: str | Solver = "srcd",
        init: str = "samples",
        n_init: int = 1,
        l1: float | Sequence[float] = 0.0,
        l2: float | Sequence[float] = 0.0,
        max_iter: int = 500,
        tol: float = 3e-4,
        n_threads: int | None = None,
        random_state: int | np.random.RandomState | None = None,
        dtype: Any = None,
        sparse_output: bool = False,
        warm_start: bool = False,
        backend: str = "auto",
        run: RunOptions | None = None,
    ) -> None:
        self.n_components = n_components
        self.solver = solver
        self.init = init
        self.n_init = n_init
        self.l1 = l1
        self.l2 = l2
        self.max_iter = max_iter
        self.tol = tol
        self.n_threads = n_threads
        self.random_state = random_state
        self.dtype = dtype
        self.sparse_output = sparse_output
        self.warm_start = warm_start
        self.backend = backend
        self.run = run

    @_fit_context(prefer_skip_nested_validation=True)  # type: ignore[untyped-decorator]
    def fit(self, X: Any, y: Any = None, start: Any = None, **constraints: Any) -> Self:
        """Learn the factors of X.

        Parameters
        ----------
        X : SparseTensor, sparse.COO, pyttb.sptensor or array
            Counts, or other nonnegative data, with two to eight modes.
        y : Ignored
        start : sequence of array-like, default=None
            Factors to start from, one for each mode; one that is None is solved for. Their
            product counts, so that weights go into any of them:
            ``[A * weights, B, C]`` for what `pyttb.cp_apr` returns.
        **constraints
            Lists with an entry for each mode, None where there is nothing, by these names:

            weights : list of array-like of shape (n_rows,)
                Weights of the rows of a mode: a cell counts with the product of its weights.
            fixed : list of array-like of shape (n_rows, k)
                Columns that are kept as given: the first k of a factor, but the last ones of the
                first mode's.
            zeros : list of {array-like, sparse} of shape (n_rows, n_components)
                True (or not 0) where an entry must be 0.

            And, not as lists:

            exposure : array-like of shape (n_rows,)
                Positive factors of the rates of the rows of the first mode.
            missing : SparseTensor of the shape of X
                Its nonzeros are the cells that were not observed.

        Returns
        -------
        self
        """
        check_arguments(constraints, "fit", self._fit_arguments)
        fit_model(self, X, start, constraints, wants_W=False)
        return self

    @_fit_context(prefer_skip_nested_validation=True)  # type: ignore[untyped-decorator]
    def fit_transform(self, X: Any, y: Any = None, start: Any = None, **constraints: Any) -> Any:
        """Learn the factors of X and return that of the first mode in counts.

        Parameters
        ----------
        X, y, start, **constraints
            As in ``fit``.

        Returns
        -------
        ndarray or CSR array of shape (n_rows, n_components)
            Without penalties, each row sums to the counts of its slice of X.
        """
        check_arguments(constraints, "fit_transform", self._fit_arguments)
        return fit_model(self, X, start, constraints, wants_W=True)

    def save(
        self, path: str | os.PathLike[str], *, metadata: Mapping[str, Any] | None = None
    ) -> None:
        """Save the fitted model to a file, with the labels of its modes; see `KLNMF.save`.

        Parameters
        ----------
        path : str or path
            File to write, usually with the ending ``.klnmf``.
        metadata : dict, default=None
            Anything that JSON can represent.
        """
        self._check_is_fitted()
        write_container(Path(path), packed_tensor_model(self, metadata))

    # ---- inside ----------------------------------------------------------------------------------

    @property
    def shape_(self) -> tuple[int, ...]:
        """Shape of the X of the fit."""
        return tuple(factor.shape[0] for factor in self.factors_)

    @property
    def _called(self) -> ConstraintNames:  # type: ignore[override]
        return ConstraintNames.of_tensor(len(self.factors_))

    def _checked(
        self, X: Any, given: dict[str, Any], *, reset: bool = False, by_mode: bool = False, **_: Any
    ) -> CheckedCounts:
        """Return X with constraints: lists by mode for a fit, else those of the first mode."""
        X = tensor_of(X, type(self).__name__)
        if not reset:
            X = aligned(X, self.shape_, self.labels_, self.mode_names_)
        if not (reset or by_mode):
            none = [None] * (X.ndim - 1)
            names = [name for name in ConstraintNames._fields if given.get(name) is not None]
            given = given | {name: [given[name], *none] for name in names}
        return checked_counts(
            X,
            given,
            type(self).__name__,
            reset=reset,
            dtype=self.dtype if reset else self.factors_[0].dtype,
            penalties=self._penalties(X.ndim),
            n_threads=self.n_threads,
            takes_tensors=True,
        )

    def _penalties(self, n_modes: int | None = None) -> Penalties:
        n_modes = len(self.factors_) if n_modes is None else n_modes
        found = []
        for name, given in (("l1", self.l1), ("l2", self.l2)):
            numbers = [given] * n_modes if np.ndim(given) == 0 else listed(given, name)
            if len(numbers) != n_modes:
                raise ValueError(
                    f"{name} must be a number, or one for each of the {n_modes} modes; got "
                    f"{len(numbers)}."
                )
            found.append(tuple(map(float, numbers)))
        return Penalties(*found)

    def _weights_of_others(self) -> list[Array | None]:
        return self.mode_weights_[1:]

    def _checked_start(
        self, start: Any, shape: tuple[int, ...], dtype: np.dtype[Any]
    ) -> list[Array | None]:
        factors = by_mode(start, "start", len(shape))
        sizes = [(size, self.n_components) for size in shape]
        checked = [
            None if factor is None else check_start(factor, f"start[{mode}]", size, dtype)
            for mode, (factor, size) in enumerate(zip(factors, sizes, strict=True))
        ]
        n_missing = sum(factor is None for factor in factors)
        if 1 < n_missing < len(factors):
            raise ValueError(
                f"start has no factor for {n_missing} modes. Give all of them but one, which is "
                "solved for, or leave start out."
            )
        return checked

    def _set_factors(self, problem: Problem, factors: list[Any], **others: Any) -> None:
        constraints, found = problem.constraints, problem.download(factors)
        found = [constraints.original(mode, factor) for mode, factor in enumerate(found)]
        data: Any = problem.backend.data
        sums = np.array([factor.sum(axis=0, dtype=np.float64) for factor in found])
        masses = np.prod(sums, axis=0)
        # A column that was scaled to 1, or is empty, keeps its bits.
        sums = np.where((np.abs(sums - 1.0) < NEAR_1) | (sums == 0.0), 1.0, sums)
        self.factors_ = [
            self._as_output((factor / scale).astype(factor.dtype))
            for factor, scale in zip(found, sums, strict=True)
        ]
        self.n_components_ = found[0].shape[1]
        self._set_others(
            others
            | {
                "factor_sums": sums,
                "weights": masses,
                "mode_weights": list(constraints.weights),
                "mode_names": data.mode_names,
                "labels": data.labels,
                "W_sums": problem.backend.column_sums(factors[0]),
            }
        )

    def _others(self) -> list[Array]:
        others = []
        for factor, sums in zip(self.factors_[1:], self.factor_sums_[1:], strict=True):
            dense = factor.toarray() if sp.issparse(factor) else factor
            others.append(np.ascontiguousarray(dense * sums.astype(dense.dtype)))
        return others

    def _fitted_in_html(self) -> str:
        if not self._is_fitted:
            return ""
        return fit_in_html(self, {"modes": sizes_in_words(self.shape_, self.mode_names_)})

    def __sklearn_tags__(self) -> Any:
        """Declare what scikit-learn should know: tensors instead of matrices."""
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array, tags.input_tags.three_d_array = False, True
        return tags
