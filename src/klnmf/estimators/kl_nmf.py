"""The scikit-learn estimator: the contract, and no mathematics."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from contextlib import closing
from numbers import Integral, Real
from pathlib import Path
from typing import Any, ClassVar, Self, Unpack

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.base import _fit_context
from sklearn.utils._param_validation import Interval, StrOptions

from klnmf.backends import BACKENDS, ClusterLostError, backend_named
from klnmf.constraints.checks import check_known, check_scaled_penalties
from klnmf.constraints.constraints import Constraints, FitConstraints, SampleConstraints
from klnmf.constraints.explained_cells import check_coverage
from klnmf.constraints.names import check_sample_order
from klnmf.constraints.penalties import warn_if_one_sided
from klnmf.data.matrix_checks import is_dask_array
from klnmf.data.sparse_data import SparseData
from klnmf.estimators.base import FactorModel
from klnmf.estimators.begin import begin_run, continuation_key, warn_not_converged
from klnmf.objective import Penalties
from klnmf.saved.models import SavedToFiles
from klnmf.solvers import SOLVERS, Solver, make_solver
from klnmf.solvers.base import Problem, State
from klnmf.solvers.loop import (
    CallbackStop,
    MaxIterations,
    Record,
    Run,
    SmallResidual,
    Solution,
)
from klnmf.starts.initialization import STARTS
from klnmf.support.progress import ProgressBar

Array = npt.NDArray[Any]

# More than any matrix has rows or columns.
MOST_COMPONENTS = 2**31 - 1


class KLNMF(SavedToFiles, FactorModel):
    """Nonnegative matrix factorisation of sparse counts under the Kullback-Leibler divergence.

    Finds nonnegative W (samples) and H (features) with X ≈ W Hᵀ by minimising

    .. code-block:: text

        Σ_ij [ X_ij log(X_ij / (WHᵀ)_ij) − X_ij + (WHᵀ)_ij ]
          + l1_W ‖W‖₁ + l2_W/2 ‖W‖² + l1_H ‖H‖₁ + l2_H/2 ‖H‖²

    Without penalties this is maximum likelihood for X_ij ~ Poisson((WHᵀ)_ij), and the same model as
    probabilistic latent semantic indexing. Time and memory grow with the nonzeros of X.

    What is known before may be said: components and columns of W that are given, entries that are
    0, cells of X that are missing, weights and exposures (see ``fixed_components`` and ``fit``).

    Parameters
    ----------
    n_components : int, default=10
        Number of components r.
    solver : {"srcd", "srcd-paper", "ccd", "mu", "bmme"} or Solver, default="srcd"
        "srcd" is sparse randomised coordinate descent that never raises the objective. At equal
        cost it ends lower than the others on the text sets measured (``benchmarks/solvers.py``,
        docs/performance.md). They are there for comparison: the SRCD paper's algorithm as printed,
        cyclic descent on the dense product, multiplicative updates, and those with extrapolation.
    fixed_components : array-like of shape (k, n_features), default=None
        The first k rows of ``components_``, known before and kept to the bit; the other
        ``n_components − k`` are learned next to them. Columns of a DataFrame are put in the order
        of X's by their names. Solvers "srcd", "mu" and "bmme".
    init : {"samples", "random", "nndsvd"}, default="samples"
        Where the fit starts, unless ``W`` or ``H`` are passed to ``fit``. "samples" averages a few
        samples for each component, similar ones where X has many, and is one to three iterations
        ahead of "random", noise scaled to the row and column sums of X; fits end alike
        (docs/performance.md). "nndsvd" starts from
        a truncated SVD and hardly depends on ``random_state``. From each of these, "srcd" also
        tries to leave local optima by swaps of components; from a start of your own it does not.
    n_init : int, default=1
        Starts to try: each is improved for 20 iterations, and the one of lowest objective goes on.
        ``history_`` tells of that one alone, but its seconds count the time of all. Without effect
        where the start is given or the fit goes on from the last one.
    l1_W, l2_W, l1_H, l2_H : float, default=0
        Penalties on the factors. A penalty on one factor only has no effect in the end, because the
        factor shrinks while the other grows; it is allowed with a warning. L1 acts on the mass of a
        component and removes whole components; single entries become exactly 0 without any penalty.
    max_iter : int, default=500
        Iterations at most. On the text sets measured (docs/performance.md) most fits come
        within 0.1 % of the final objective in 12 to 40 and reach ``tol`` in 90 to 230. The
        trials of swaps (see ``init``) belong to the iteration that follows them.
    tol : float, default=1e-3
        The fit has converged when the KKT residual at the returned factors is at most this. The
        residual is relative: at 1e-3, no entry's share of its sample and no gradient (relative to
        its positive part) is off by more than a thousandth.
    n_threads : int, default=None
        Threads. None follows OMP_NUM_THREADS, else all CPUs this process may use; negative numbers
        count from the end. The result does not depend on it, bit for bit. A Dask cluster of your
        own is used as it is: each worker's kernels have as many threads as the worker.
    random_state : int, RandomState instance or None, default=None
        Seed of the start and of the order in which coordinates are visited.
    dtype : None, numpy.float32 or numpy.float64, default=None
        Type to compute in. None keeps float32 and float64; integers become float32 when every value
        is below 2²⁴, which is exact, and float64 otherwise.
    sparse_output : bool, default=False
        Return W and ``components_`` as CSR arrays; their zeros are true zeros.
    warm_start : bool, default=False
        Go on from the last fit: from its full state if X is the same and that fit had
        ``warm_start=True`` too, so that two fits of 10 iterations are one of 20; otherwise from its
        components. Iterations and seconds in ``history_`` then count on.
    backend : {"auto", "cpu", "dask", "reference"}, default="auto"
        Where to compute. "auto" is the C++ core on this machine. "dask" is the same core on the
        workers of a Dask cluster, to the same bits: those of the ``distributed.Client`` that there
        is, else ``n_threads`` processes on this machine, for the time of the fit (docs/scaling.md;
        in a script, fits must then be under ``if __name__ == "__main__":``). It has all solvers
        but "ccd". "reference" is slow NumPy, the oracle of the tests.
    progress : {"auto"} or bool, default="auto"
        Progress bar; "auto" shows one on a terminal when a fit takes more than a few seconds.
    callback : callable, default=None
        Called with each record of ``history_``; the fit stops when it returns a true value.
    checkpoint : str or path, default=None
        File to which a fit writes how far it has come: at its start, every ``checkpoint_every``
        seconds, at its end, and on Ctrl-C, which then waits for the end of the iteration (press it
        twice if not). A fit that was killed goes on from there to the same bits. A file of its own
        for each fit; delete it when you have what you want.
    checkpoint_every : float, default=60.0
        Seconds between two checkpoints; 0 is one before each iteration.
    resume : {"auto"} or bool, default="auto"
        Whether to go on from ``checkpoint``: "auto" does so if the file is there, True wants it to
        be there, False starts anew and overwrites it. X and all parameters that matter must be the
        same, else there is an error that says what differs. ``max_iter``, which counts iterations
        from before, and ``tol`` may be others: a fit that is over can go on so.

    Attributes
    ----------
    components_ : ndarray or CSR array of shape (n_components, n_features)
        Hᵀ.
    n_iter_ : int
        Iterations of the last fit.
    divergence_ : float
        KL divergence of X from W Hᵀ, without penalties: over the cells that are not missing, each
        with its weight, of the rates times the exposures.
    kkt_residual_ : float
        Largest violation of the optimality conditions at the returned W and H; 0 is a stationary
        point.
    converged_ : bool
        Whether ``kkt_residual_`` is at most ``tol``.
    history_ : list of dict
        One record an iteration: iteration, seconds (solver time so far), divergence, objective
        (with penalties), kkt_residual (met on the way), zeros_W, zeros_H (share of exact zeros).
    n_components_ : int
        Number of components.
    known_names_ : list of str
        What was known in ``fit``, by the names of its parameters.
    n_fixed_W_ : int
        Columns of W that were known in ``fit``: the last ones.
    feature_weight_ : ndarray of shape (`n_features_in_`,) or None
        Weights of the features, which ``transform`` uses as well.
    data_checksum_ : int
        Checksum of the row and column sums of X, which tells ``klnmf.uncertainty`` whether it is
        given the X of the fit.
    n_features_in_ : int
        Number of features seen in ``fit``.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of the features, if X had string column names.

    Examples
    --------
    >>> from klnmf import KLNMF
    >>> from klnmf.datasets import load_bible
    >>> X = load_bible().data
    >>> model = KLNMF(n_components=5, random_state=0, max_iter=500)
    >>> W = model.fit_transform(X)
    >>> W.shape, model.components_.shape
    ((1189, 5), (5, 6061))
    >>> model.converged_
    True
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "n_components": [Interval(Integral, 1, MOST_COMPONENTS, closed="both")],
        "solver": [StrOptions(set(SOLVERS)), Solver],
        "fixed_components": [None, "array-like", "sparse matrix"],
        "init": [StrOptions(set(STARTS))],
        "n_init": [Interval(Integral, 1, None, closed="left")],
        "l1_W": [Interval(Real, 0, None, closed="left")],
        "l2_W": [Interval(Real, 0, None, closed="left")],
        "l1_H": [Interval(Real, 0, None, closed="left")],
        "l2_H": [Interval(Real, 0, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
        "n_threads": [None, Integral],
        "random_state": ["random_state"],
        "dtype": "no_validation",  # checked with its own message
        "sparse_output": ["boolean"],
        "warm_start": ["boolean"],
        "backend": [StrOptions({"auto", *BACKENDS})],
        "progress": [StrOptions({"auto"}), "boolean"],
        "callback": [None, callable],
        "checkpoint": [None, str, os.PathLike],
        "checkpoint_every": [Interval(Real, 0, None, closed="left")],
        "resume": [StrOptions({"auto"}), "boolean"],
    }

    # What scikit-learn's metadata routing may hand on, which the signature does not tell.
    __metadata_request__fit: ClassVar[dict[str, None]] = dict.fromkeys(
        [*SampleConstraints.__annotations__, *FitConstraints.__annotations__]
    )

    def __init__(
        self,
        n_components: int = 10,
        *,
        solver: str | Solver = "srcd",
        fixed_components: Any = None,
        init: str = "samples",
        n_init: int = 1,
        l1_W: float = 0.0,
        l2_W: float = 0.0,
        l1_H: float = 0.0,
        l2_H: float = 0.0,
        max_iter: int = 500,
        tol: float = 1e-3,
        n_threads: int | None = None,
        random_state: int | np.random.RandomState | None = None,
        dtype: Any = None,
        sparse_output: bool = False,
        warm_start: bool = False,
        backend: str = "auto",
        progress: str | bool = "auto",
        callback: Callable[[Record], Any] | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_every: float = 60.0,
        resume: str | bool = "auto",
    ) -> None:
        self.n_components = n_components
        self.solver = solver
        self.fixed_components = fixed_components
        self.init = init
        self.n_init = n_init
        self.l1_W = l1_W
        self.l2_W = l2_W
        self.l1_H = l1_H
        self.l2_H = l2_H
        self.max_iter = max_iter
        self.tol = tol
        self.n_threads = n_threads
        self.random_state = random_state
        self.dtype = dtype
        self.sparse_output = sparse_output
        self.warm_start = warm_start
        self.backend = backend
        self.progress = progress
        self.callback = callback
        self.checkpoint = checkpoint
        self.checkpoint_every = checkpoint_every
        self.resume = resume

    @_fit_context(prefer_skip_nested_validation=True)  # type: ignore[untyped-decorator]
    def fit(
        self,
        X: Any,
        y: Any = None,
        W: Any = None,
        H: Any = None,
        **known: Unpack[FitConstraints],
    ) -> Self:
        """Learn the components of X.

        Parameters
        ----------
        X : {array-like, sparse, DataFrame, OnDiskMatrix} of shape (n_samples, n_features)
            Counts, or other nonnegative data. With ``backend="dask"`` also a Dask array, whose
            blocks are dense or sparse, and which is never in one place.
        y : Ignored
            For scikit-learn's API.
        W : array-like of shape (n_samples, n_components), default=None
            Where to start; solved for from H if only H is given.
        H : array-like of shape (n_components, n_features), default=None
            Where to start, as in ``components_``.
        **known
            What is known already, by these names:

            sample_weight, feature_weight : array-like of shape (n_samples,) and (n_features,)
                Weights w and v: the divergence is Σ w_i v_j KL(X_ij, (W Hᵀ)_ij). A sample of
                weight 2 counts like two, with its penalty. One of weight 0 plays no part in the
                fit; its row of W is what ``transform`` says. A feature of weight 0 plays no part in
                ``transform`` either, and components that are not fixed are 0 there.
            exposure : array-like of shape (n_samples,)
                Positive e: the rates are e_i (W Hᵀ)_ij, and W is per unit of exposure.
            missing : {sparse, array-like} of shape (n_samples, n_features)
                True (or not 0) where a cell was not observed: it counts neither as a zero nor as
                data, whatever X has there, NaN included (``numpy.isnan(X)``). The cost grows with
                the number of such cells.
            fixed_W : array-like of shape (n_samples, q)
                The last q columns of W, known before (batches, covariates); kept to the bit.
            zero_W, zero_components : {sparse, array-like} of shape (n_samples, n_components) and \
                    (n_components, n_features)
                True where an entry of W, or of ``components_``, is 0.

            Where X is a DataFrame, what is about features and has their names (Series, DataFrames)
            is put in the order of X's columns; what is about samples is taken row by row, and
            refused if its index has X's samples in another order.

            All of these but weights and exposures without penalties need the solver "srcd", "mu"
            or "bmme". With a Dask array as X, whose blocks must have known sizes then, all of this
            is on the driver; what are Dask arrays themselves, such as
            ``missing=dask.array.isnan(X)``, is brought there.

        Returns
        -------
        self

        Warns
        -----
        UserWarning
            If as many components are learned as there are samples or features (those that are
            fixed do not count), or if samples have no counts: which ones is said.
        klnmf.NotCountsWarning
            If X looks like counts that were transformed: tf-idf weights, CPM, logarithms.

        Examples
        --------
        Two components are known, and a third is learned next to them:

        >>> import numpy as np
        >>> from klnmf import KLNMF
        >>> X = [[6, 2, 0, 0, 1], [0, 0, 4, 4, 0], [3, 1, 2, 2, 9], [0, 0, 1, 1, 5]]
        >>> signatures = np.array([[0.75, 0.25, 0, 0, 0], [0, 0, 0.5, 0.5, 0]])
        >>> model = KLNMF(3, fixed_components=signatures, random_state=0).fit(X)
        >>> bool((model.components_[:2] == signatures.astype("float32")).all())
        True
        >>> shares = model.components_[2] / model.components_[2].sum()
        >>> [round(float(share), 2) for share in shares]
        [0.0, 0.0, 0.0, 0.0, 1.0]
        """
        self._fit(X, W, H, known, wants_W=False)
        return self

    @_fit_context(prefer_skip_nested_validation=True)  # type: ignore[untyped-decorator]
    def fit_transform(
        self,
        X: Any,
        y: Any = None,
        W: Any = None,
        H: Any = None,
        **known: Unpack[FitConstraints],
    ) -> Any:
        """Learn the components of X and return W.

        Parameters
        ----------
        X : {array-like, sparse, DataFrame, OnDiskMatrix} of shape (n_samples, n_features)
            Counts, or other nonnegative data. With ``backend="dask"`` also a Dask array, whose
            blocks are dense or sparse, and which is never in one place.
        y : Ignored
            For scikit-learn's API.
        W : array-like of shape (n_samples, n_components), default=None
            Where to start; solved for from H if only H is given.
        H : array-like of shape (n_components, n_features), default=None
            Where to start, as in ``components_``.
        **known
            What is known already, as in ``fit``.

        Returns
        -------
        ndarray or CSR array of shape (n_samples, n_components)
            W, solved for as ``transform`` does with the final components. For a Dask array a Dask
            array with blocks of the same rows, which stay on the workers of your cluster; if the
            cluster was made for the fit, they are in this process.
        """
        return self._fit(X, W, H, known, wants_W=True)

    # ---- inside ----------------------------------------------------------------------------------

    def _fit(self, X: Any, W: Any, H: Any, given: Any, *, wants_W: bool) -> Any:
        """Fit, set the fitted attributes and return W, if it is wanted."""
        try:
            return self._fit_on_backend(X, W, H, given, wants_W)
        except ClusterLostError as error:
            raise self._cluster_lost(error) from error

    def _fit_on_backend(self, X: Any, W: Any, H: Any, given: Any, wants_W: bool) -> Any:
        solver = make_solver(self.solver)
        solver.check_backend(backend_named(self.backend))
        if self.warm_start and self.backend == "dask":
            raise ValueError(
                "warm_start=True and backend='dask' cannot be used together: the workers keep "
                "nothing after a fit. Pass checkpoint='PATH' to go on with a fit later."
            )
        check_sample_order(given, X)
        if is_dask_array(X):
            from klnmf.backends.dask.blocks import known_on_driver

            given = known_on_driver(given, X)
        missing = self._missing_cells(X, given.get("missing"), reset=True)
        if missing is not None and missing.nnz == math.prod(missing.shape):
            raise ValueError("missing covers every cell of X: nothing would be left to fit.")
        data = self._data(X, missing, reset=True)
        known = self._known_of_fit(data, {**given, "missing": missing}, solver)
        problem = self._problem(data, known)
        known = problem.known
        with closing(problem.backend):
            if known is not None:
                check_coverage(known, problem.backend.data)
            if known is None or not (known.is_frozen(0) | known.is_frozen(1)).all():
                warn_if_one_sided(problem.penalties)  # a component that is free can be rescaled
            self._warn_of_data(X, data.view(0).indptr, data.shape, known)
            W = self._run(X, problem, solver, W, H, wants_W)
        if not wants_W:
            return None
        if is_dask_array(X):
            from klnmf.backends.dask.blocks import output_blocks

            return output_blocks(self, X, W, known)
        return self._as_output(W if known is None else self._W_in_own_units(W, data, known))

    def _known_of_fit(self, data: SparseData, given: Any, solver: Solver) -> Constraints | None:
        penalties = self._penalties()

        def checked(shape: tuple[int, int], dtype: np.dtype[Any]) -> Constraints | None:
            names = getattr(self, "feature_names_in_", None)
            fixed, rank = self.fixed_components, self.n_components
            known = check_known(given, fixed, shape, rank, dtype, names)
            if known is not None:
                solver.check_known(known, penalties)
                check_scaled_penalties(known, penalties, dtype)
            return known

        if data.has_known_shape:
            return checked(data.shape, data.dtype)
        late: Any = data
        late.find_known, late.penalties = checked, penalties
        return None

    def _run(
        self,
        X: Any,
        problem: Problem,
        solver: Solver,
        W: Any,
        H: Any,
        wants_W: bool,
    ) -> Any:
        run, checkpoint = begin_run(self, problem, solver, W, H)
        n_done = len(run.history) - run.n_untold
        with ProgressBar(self.progress, self.max_iter, n_done) as bar:

            def on_record(record: Record) -> bool:
                bar.update(record)
                return self.callback is not None and bool(self.callback(record))

            row_solve = self._row_solve()
            limit = MaxIterations(run.state.iteration - len(run.history) + self.max_iter)
            try:
                stopped_by = run.until(
                    CallbackStop(on_record), SmallResidual(self.tol, row_solve), limit
                )
                solution = run.finish(row_solve, self.tol)
            except KeyboardInterrupt:
                # Whatever was interrupted, the state holds a valid pair: the best so far, or one
                # that a half-step was improving.
                if checkpoint is not None:
                    checkpoint.write(run)
                pair = list(run.state.factors)
                self._set_fitted(run, Solution(pair, problem.evaluate(pair), converged=False))
                raise
        self._set_fitted(run, solution)
        if checkpoint is not None:
            checkpoint.write(run)
        if not self.converged_ and stopped_by is limit:
            warn_not_converged(self.history_, self.kkt_residual_, self.max_iter, self.tol)
        return self._fitted_W(X, run, solution.factors[0]) if wants_W else None

    def _fitted_W(self, X: Any, run: Run, W: Any) -> Any:  # noqa: N802
        """W of a fit, no longer on the back-end: a Dask array for a Dask array."""
        if is_dask_array(X):
            from klnmf.backends.dask.blocks import blocks_of_factor

            return blocks_of_factor(run.problem.backend, W, X)
        downloaded = run.problem.backend.download(W)
        if any(downloaded is factor for factor in run.state.factors):
            downloaded = downloaded.copy()  # a fit that goes on from the state must not change it
        return downloaded

    def _cluster_lost(self, error: ClusterLostError) -> ClusterLostError:
        advice = "Pass checkpoint='PATH' to fits that should be able to go on after this."
        if self.checkpoint is not None and Path(self.checkpoint).exists():
            advice = (
                f"The checkpoint {self.checkpoint} holds what was done: the same fit goes on from "
                "there, to the same bits."
            )
        elif self.checkpoint is not None:
            advice = f"Nothing is in the checkpoint {self.checkpoint} yet: the fit begins anew."
        return ClusterLostError(f"{error} {advice}")

    def _penalties(self) -> Penalties:
        try:
            return Penalties(*map(float, (self.l1_W, self.l2_W, self.l1_H, self.l2_H)))
        except OverflowError as error:
            raise ValueError(f"A penalty is larger than a float can be: {error}.") from error

    def _set_fitted(self, run: Run, solution: Solution) -> None:
        """Set the fitted attributes."""
        (H,), known = run.problem.download(solution.factors[1:]), run.problem.known
        H = H if known is None else known.original(1, H)
        components = np.array(H.T, order="C")
        self.components_ = sp.csr_array(components) if self.sparse_output else components
        self.n_components_ = self.n_components
        self.n_iter_ = len(run.history)
        self.history_ = run.history
        self.divergence_ = solution.evaluation.divergence
        self.kkt_residual_ = solution.evaluation.kkt_residual
        self.converged_ = solution.converged
        self.known_names_ = [] if known is None else known.names
        self.n_fixed_W_ = 0 if known is None else int(known.is_frozen(0).sum())
        self.feature_weight_ = None if known is None else known.feature_weight
        self.data_checksum_ = run.problem.backend.data.sums_checksum
        self._saved_state: tuple[Any, State] | None = None
        if self.warm_start:
            key = continuation_key(self, run.problem, run.solver)
            self._saved_state = (key, run.state)
