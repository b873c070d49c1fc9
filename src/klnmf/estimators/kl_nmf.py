"""`KLNMF`: parameters, fitted attributes and methods."""

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self, Unpack

import numpy as np
from sklearn.base import _fit_context
from sklearn.utils._param_validation import StrOptions

from klnmf.constraints.checks import checked_weights
from klnmf.constraints.constraints import ComponentConstraints, FitConstraints
from klnmf.constraints.names import in_feature_order
from klnmf.constraints.penalties import Penalties
from klnmf.data.validation import check_start
from klnmf.estimators.arguments import check_arguments, explains_misplaced
from klnmf.estimators.base import FIT_ARGUMENTS, FLOAT_FROM_ZERO, OF_ALL_FITS, FittedByLoop
from klnmf.estimators.fitted import (
    checked_feature_names,
    checked_history,
    checked_sums,
    components_as_given,
    fit_in_html,
)
from klnmf.estimators.fitting import fit_model
from klnmf.estimators.run_options import RunOptions
from klnmf.saved.container import write_container
from klnmf.saved.models import SavedModel, packed_model, read_model, unpacked_model
from klnmf.solvers import SOLVERS, Solver
from klnmf.solvers.base import Problem
from klnmf.solvers.initialization import STARTS
from klnmf.solvers.loop import Record
from klnmf.support.array_types import Array
from klnmf.support.descriptions import listed
from klnmf.support.result_tables import ShownBelowDiagram


class KLNMF(ShownBelowDiagram, FittedByLoop):
    """Nonnegative matrix factorisation of sparse counts under the Kullback-Leibler divergence.

    Finds nonnegative W (samples) and H (features) with X ≈ W Hᵀ by minimising

    .. code-block:: text

        Σ_ij [ X_ij log(X_ij / (WHᵀ)_ij) − X_ij + (WHᵀ)_ij ]
          + l1_W ‖W‖₁ + l2_W/2 ‖W‖² + l1_H ‖H‖₁ + l2_H/2 ‖H‖²

    Without penalties this is maximum likelihood for X_ij ~ Poisson((WHᵀ)_ij), and the same model as
    probabilistic latent semantic indexing. Time and memory grow with the nonzeros of X.

    Constraints on the features are parameters (``fixed_components``, ``zero_components``,
    ``feature_weight``). Constraints on samples, such as missing cells, are arguments of ``fit``.

    Parameters
    ----------
    n_components : int, default=10
        Number of components r.
    solver : {"srcd", "srcd-paper", "ccd", "mu", "bmme"} or Solver, default="srcd"
        "srcd" is sparse randomised coordinate descent that never raises the objective. The others
        are for comparison and end higher at equal cost (docs/performance.md): the SRCD paper's
        algorithm as printed, cyclic descent on the dense product, multiplicative updates, and those
        with extrapolation.
    fixed_components : array-like of shape (k, n_features), default=None
        The first k rows of ``components_``, kept exactly as given; the other ``n_components − k``
        are learned. Constraints need the solver "srcd", "mu" or "bmme". If X is a DataFrame,
        constraints with feature names are put in the order of its columns.
    zero_components : {sparse, array-like} of shape (n_components, n_features), default=None
        True (or not 0) where an entry of ``components_`` must be 0.
    feature_weight : array-like of shape (n_features,), default=None
        Weights v: the divergence is Σ v_j KL(X_ij, (W Hᵀ)_ij), in ``transform`` too. A feature of
        weight 0 is ignored, and components that are not fixed are 0 there. Any solver can do this
        unless H is penalised.
    init : {"samples", "random", "nndsvd"}, default="samples"
        Where the fit starts, unless ``W`` or ``H`` are passed to ``fit``. "samples" averages a few
        samples for each component, similar ones if X has many samples. It is one to three
        iterations ahead of "random", noise scaled to
        the row and column sums of X; both end at about the same objective. "nndsvd" starts from a
        truncated SVD and hardly depends on ``random_state``. From each of these, "srcd" also tries
        to leave local optima by swapping components; from a start that you pass it does not.
    n_init : int, default=1
        Number of starts to try: each is improved for 20 iterations, and the one with the lowest
        objective continues. The seconds in ``history_`` include all of them. Has no effect if the
        start is given or the fit continues an earlier one.
    l1_W, l2_W, l1_H, l2_H : float, default=0
        Penalties on the factors. A penalty on one factor only has no effect in the end, because the
        factor shrinks while the other grows; it is allowed with a warning. L1 acts on the mass of a
        component and removes whole components; single entries become exactly 0 without any penalty.
    max_iter : int, default=500
        Maximum number of iterations. On the sets measured (docs/performance_log.md) most fits
        converge in 30 to 90.
    tol : float, default=3e-4
        The fit has converged when the optimality gap of the returned factors is at most this: at
        3e-4, changing only W, or only H, cannot lower the objective by more than 0.03 %. The
        objective is usually ten to a hundred times closer to the end of the fit than that. A gap of
        16 units of rounding (of ``dtype``) times the sum of X is small enough for any ``tol`` above
        0, because where the objective is nearly 0 no factors have a smaller one. 0 means that all
        ``max_iter`` iterations are done.
    n_threads : int, default=None
        Number of threads. None follows OMP_NUM_THREADS, or uses all CPUs this process may use;
        −1 means all CPUs, −2 all but one. The result is the same for any number, bit for bit. On
        your own Dask cluster, each worker's kernels use as many threads as the worker has.
    random_state : int, RandomState instance or None, default=None
        Seed of the start and of the order in which coordinates are visited.
    dtype : None, numpy.float32 or numpy.float64, default=None
        Type to compute in. None keeps float32 and float64; integers become float32 when every value
        is below 2²⁴, which is exact, and float64 otherwise.
    sparse_output : bool, default=False
        Return W and ``components_`` as CSR arrays; their zeros are exact.
    warm_start : bool, default=False
        Continue from the last fit: from its full state if X is the same and that fit had
        ``warm_start=True`` too, so that two fits of 10 iterations are one of 20; otherwise from its
        components. Iterations and seconds in ``history_`` continue as well.
    backend : {"auto", "cpu", "cuda", "dask", "reference"}, default="auto"
        Where to compute. "auto" is the C++ core on this machine, or "cuda" if X is on a GPU
        already. "cuda" is an NVIDIA GPU, in float32 (docs/guide/gpu.md). "dask" is the same core on
        the workers of a Dask cluster, with exactly the same result: those of the current
        ``distributed.Client``, or else ``n_threads`` processes on this machine, for the duration of
        the fit (docs/guide/large_data.md; in a script, put the fit under
        ``if __name__ == "__main__":``). It supports every solver except "ccd". Workers of dask-cuda
        use their GPUs, in float32: the same result to rounding. "reference" is slow NumPy.
    run : RunOptions, default=None
        Checkpoints, progress bar and callback, see :class:`~klnmf.RunOptions`. None uses its
        defaults: no checkpoint, and a progress bar on a terminal.

    Attributes
    ----------
    components_ : ndarray or CSR array of shape (n_components, n_features)
        Hᵀ. Without penalties each component sums to 1, and W is in counts: its rows sum to the
        totals of the samples. The component with the most counts comes first. Components that are
        fixed (here or in ``fixed_W``) keep their scale and their place; those with
        ``zero_components`` or ``zero_W``, and those of a given start, keep their order.
    n_iter_ : int
        Iterations of the last fit.
    divergence_ : float
        KL divergence of X from W Hᵀ, without penalties, with weights, exposures and missing cells.
        NaN if unknown.
    optimality_gap_ : float
        Bound on what another W for the returned H, or another H for the returned W, could gain, as
        a share of the objective: :func:`~klnmf.objective.optimality_gap`, or a sharper bound where
        rounding keeps the objective from falling (docs/maths/stopping.md). Infinite if a count has
        rate 0; it may also be large, or infinite, if X is fitted so exactly that both are rounding
        (see ``tol``). NaN if unknown.
    kkt_residual_ : float
        Largest violation of the optimality conditions at the returned W and H; 0 is a stationary
        point. One entry may decide it, so it does not stop a fit. NaN if unknown.
    converged_ : bool
        Whether the fit reached ``tol``, see there. False if it was interrupted or if that is not
        known.
    history_ : list of dict
        One record per iteration: iteration, seconds (solver time so far), divergence, objective
        (with penalties), optimality_gap and kkt_residual (met on the way), zeros_W, zeros_H (share
        of exact zeros). The gap is NaN for "srcd-paper" and "ccd", which do not compute it on the
        way.
    constraint_names_ : list of str
        Names of the constraints of the fit.
    n_fixed_W_ : int
        Number of columns of W that were fixed in ``fit``: the last ones.
    feature_weight_ : ndarray of shape (`n_features_in_`,) or None
        Weights of the features, in the order of the columns of X; None if all are 1.
    W_sums_ : ndarray of shape (`n_components_`,) or None
        Sums of the columns of W in the fit, each sample times its weight and exposure: what
        ``score`` knows of how often each component, and so each feature, occurs. None if unknown.
    data_checksum_ : int or None
        Checksum of the row and column sums of X, by which ``klnmf.uncertainty`` recognises the X of
        the fit. None if unknown.
    n_components_, n_features_in_ : int
        Number of components, and of features seen in ``fit``.
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

    _parameter_constraints: ClassVar[dict[str, Any]] = OF_ALL_FITS | {
        "solver": [StrOptions(set(SOLVERS)), Solver],
        "fixed_components": [None, "array-like", "sparse matrix"],
        "zero_components": [None, "array-like", "sparse matrix"],
        "feature_weight": [None, "array-like"],
        "init": [StrOptions(set(STARTS))],
        **{name: [FLOAT_FROM_ZERO] for name in ("l1_W", "l2_W", "l1_H", "l2_H")},
    }

    feature_names_in_: Any
    _unpacked = staticmethod(unpacked_model)

    # What scikit-learn's metadata routing may pass on, which the signature does not show.
    __metadata_request__fit: ClassVar[dict[str, None]] = dict.fromkeys(FIT_ARGUMENTS)

    @explains_misplaced
    def __init__(
        self,
        n_components: int = 10,
        *,
        solver: str | Solver = "srcd",
        fixed_components: Any = None,
        zero_components: Any = None,
        feature_weight: Any = None,
        init: str = "samples",
        n_init: int = 1,
        l1_W: float = 0.0,
        l2_W: float = 0.0,
        l1_H: float = 0.0,
        l2_H: float = 0.0,
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
        self.fixed_components = fixed_components
        self.zero_components = zero_components
        self.feature_weight = feature_weight
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
        self.run = run

    @_fit_context(prefer_skip_nested_validation=True)  # type: ignore[untyped-decorator]
    def fit(
        self,
        X: Any,
        y: Any = None,
        W: Any = None,
        H: Any = None,
        **constraints: Unpack[FitConstraints],
    ) -> Self:
        """Learn the components of X.

        Parameters
        ----------
        X : {array-like, sparse, DataFrame, OnDiskMatrix} of shape (n_samples, n_features)
            Counts, or other nonnegative data. With ``backend="dask"`` also a Dask array with dense
            or sparse blocks, which is never brought to one place.
        y : Ignored
        W : array-like of shape (n_samples, n_components), default=None
            Where to start; solved for from H if only H is given.
        H : array-like of shape (n_components, n_features), default=None
            Where to start: the transpose of the factor H, as ``components_`` is. The name follows
            scikit-learn's NMF.
        **constraints
            Constraints on the samples, by these names:

            sample_weight : array-like of shape (n_samples,)
                Weights w: the divergence is Σ w_i KL(X_ij, (W Hᵀ)_ij). A sample of weight 2 counts
                like two, with its penalty. One of weight 0 has no effect; its W is that of
                ``transform``.
            exposure : array-like of shape (n_samples,)
                Positive e: the rates are e_i (W Hᵀ)_ij, and W is per unit of exposure.
            missing : {sparse, array-like} of shape (n_samples, n_features)
                True (or not 0) where a cell was not observed: it counts neither as a zero nor as
                data, whatever X has there, NaN included (``numpy.isnan(X)``). The cost grows with
                the number of such cells.
            fixed_W : array-like of shape (n_samples, q)
                The last q columns of W (batches, covariates), kept exactly as given.
            zero_W : {sparse, array-like} of shape (n_samples, n_components)
                True (or not 0) where an entry of W must be 0.

            Their rows are those of X; an index with the same samples in another order is an error.
            All of them but ``sample_weight`` and ``exposure`` without penalties need the solver
            "srcd", "mu" or "bmme". If X is a Dask array, its blocks must have known sizes.

        Returns
        -------
        self

        Warns
        -----
        klnmf.ManyComponentsWarning
            If as many components are learned as there are samples or features.
        klnmf.EmptySamplesWarning
            If samples have no counts.
        klnmf.DominantSamplesWarning
            If a sample holds more of all counts than a component does on average, 1/r, and more
            than five times the mean.
        klnmf.NotCountsWarning
            If X looks like counts that were transformed: tf-idf weights, CPM, logarithms.

        Examples
        --------
        Two components are given, and a third is learned:

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
        check_arguments(constraints, "fit", FIT_ARGUMENTS)
        fit_model(self, X, (W, H), self._all_constraints(constraints), wants_W=False)
        return self

    @_fit_context(prefer_skip_nested_validation=True)  # type: ignore[untyped-decorator]
    def fit_transform(
        self,
        X: Any,
        y: Any = None,
        W: Any = None,
        H: Any = None,
        **constraints: Unpack[FitConstraints],
    ) -> Any:
        """Learn the components of X and return W.

        Parameters
        ----------
        X, y, W, H, **constraints
            As in ``fit``.

        Returns
        -------
        ndarray or CSR array of shape (n_samples, n_components)
            W, solved for as by ``transform``, which returns the same W where only one is best
            (docs/maths/stopping.md). For a Dask array, a Dask array with blocks of the same rows,
            on the workers of your cluster, or in this process if the fit started a cluster.
        """
        check_arguments(constraints, "fit_transform", FIT_ARGUMENTS)
        return fit_model(self, X, (W, H), self._all_constraints(constraints), wants_W=True)

    @classmethod
    def from_components(
        cls,
        components: Any,
        *,
        feature_names: Iterable[str] | None = None,
        divergence: float = math.nan,
        optimality_gap: float = math.nan,
        kkt_residual: float = math.nan,
        converged: bool | None = None,
        history: Sequence[Record] = (),
        constraint_names: Sequence[str] = (),
        n_fixed_W: int = 0,
        W_sums: Any = None,
        data_checksum: int | None = None,
        **parameters: Any,
    ) -> Self:
        """Return a fitted model with these components.

        It has the methods of a model after ``fit``: ``transform``, ``score``, ``save``. Attributes
        that are not given are NaN, None or empty.

        Parameters
        ----------
        components : {array-like, sparse} of shape (n_components, n_features)
            Nonnegative numbers: ``components_``, which is a copy.
        feature_names : sequence of str, default=None
            Names of the features: ``feature_names_in_``.
        divergence, optimality_gap, kkt_residual : float, default=NaN
            ``divergence_``, ``optimality_gap_`` and ``kkt_residual_``; NaN if unknown.
        converged : bool, default=None
            ``converged_``; None compares ``optimality_gap`` with ``tol``.
        history : sequence of dict, default=()
            Records of the iterations, with all that a fit records: ``history_``, and their number
            ``n_iter_``.
        constraint_names, n_fixed_W, data_checksum : sequence of str, int, int or None
            ``constraint_names_``, ``n_fixed_W_`` and ``data_checksum_``; nothing by default.
        W_sums : array-like of shape (n_components,), default=None
            ``W_sums_``. If unknown, ``score`` takes all components to occur equally often.
        **parameters
            Parameters of the constructor. ``n_components`` is the number of rows by default, and
            ``feature_weight`` becomes ``feature_weight_``.

        Returns
        -------
        KLNMF

        Examples
        --------
        >>> from klnmf import KLNMF
        >>> model = KLNMF.from_components([[0.75, 0.25, 0], [0, 0.5, 0.5]])
        >>> [round(float(count)) for count in model.transform([[9, 7, 4]])[0]]
        [12, 8]
        """
        components = components_as_given(components)
        n_components, n_features = components.shape
        names = checked_feature_names(feature_names, n_features)
        if not 0 <= n_fixed_W <= n_components:
            raise ValueError(f"n_fixed_W must be from 0 to {n_components}, got {n_fixed_W}.")
        model = cls(**{"n_components": n_components, **parameters})
        model._validate_params()
        if model.n_components != n_components:
            raise ValueError(
                f"n_components={model.n_components}, but components has {n_components} rows. "
                "Leave n_components out."
            )
        if names is not None:
            model.feature_names_in_ = names
        weights = in_feature_order(model.feature_weight, "feature_weight", names)
        records = checked_history(history)
        model._set_attributes(
            model._as_output(components.copy()),  # the caller may change the array later
            history=records,
            n_iter=len(records),
            divergence=divergence,
            optimality_gap=optimality_gap,
            kkt_residual=kkt_residual,
            converged=bool(optimality_gap <= model.tol) if converged is None else converged,
            constraint_names=listed(constraint_names, "constraint_names"),
            n_fixed_W=n_fixed_W,
            feature_weight=checked_weights(weights, "feature_weight", n_features, components.dtype),
            W_sums=checked_sums(W_sums, n_components),
            data_checksum=data_checksum,
        )
        return model

    def save(
        self,
        path: str | os.PathLike[str],
        *,
        W: Any = None,
        sample_names: Sequence[str] | None = None,
        feature_names: Sequence[str] | None = None,
        sample_metadata: Mapping[str, Sequence[Any]] | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> None:
        """Save the fitted model to a file, in klnmf's open format (docs/format.md).

        The file contains the parameters, the components and the other fitted attributes, but no
        code. An existing file is replaced only when the new one is complete. X, the run options, a
        ``random_state`` that is a RandomState instance and the state for ``warm_start=True`` are
        not saved: a loaded model continues from its components.

        Parameters
        ----------
        path : str or path
            File to write, usually with the ending ``.klnmf``.
        W : {ndarray, sparse matrix or array} of shape (n_samples, n_components), default=None
            W to save with the model.
        sample_names, feature_names : sequence of str, default=None
            Names to save with the model; ``feature_names_in_`` is always saved.
        sample_metadata : mapping of str to sequence, default=None
            Columns with a value for each sample: numbers, strings or dates (which become text).
        metadata : dict, default=None
            Anything that JSON can represent, for example a description of the data.

        See Also
        --------
        klnmf.load_model : Load all of it.

        Examples
        --------
        >>> import os, tempfile
        >>> from klnmf import KLNMF
        >>> from klnmf.simulate import simulate_counts
        >>> X = simulate_counts(60, 40, 3, random_state=0).X
        >>> model = KLNMF(3, random_state=0).fit(X)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = os.path.join(folder, "counts.klnmf")
        ...     model.save(path)
        ...     loaded = KLNMF.load(path)
        >>> bool((loaded.transform(X) == model.transform(X)).all())
        True
        """
        content = packed_model(self, W, sample_names, feature_names, sample_metadata, metadata)
        write_container(Path(path), content)

    def _penalties(self) -> Penalties:
        return Penalties.of_matrix(*map(float, (self.l1_W, self.l2_W, self.l1_H, self.l2_H)))

    def _all_constraints(self, given: Any) -> dict[str, Any]:
        """Return constraints on samples, and those on features, which are parameters."""
        on_features = {name: getattr(self, name) for name in ComponentConstraints.__annotations__}
        return {**given, **on_features}

    def _checked_start(
        self, start: Any, shape: tuple[int, ...], dtype: np.dtype[Any]
    ) -> list[Array | None]:
        (W, H), (n, m), r = start, shape, self.n_components
        return [
            None if W is None else check_start(W, "W", (n, r), dtype),
            None if H is None else check_start(H, "H", (r, m), dtype).T,
        ]

    def _set_factors(self, problem: Problem, factors: list[Any], **others: Any) -> None:
        (H,), constraints = problem.download(factors[1:]), problem.constraints
        self._set_attributes(
            self._as_output(np.array(constraints.original(1, H).T, order="C")),
            feature_weight=constraints.feature_weight,
            W_sums=problem.backend.column_sums(factors[0]),
            **others,
        )

    def _fitted_in_html(self) -> str:
        if not self._is_fitted:
            return ""
        return fit_in_html(self, {"features": f"{self.n_features_in_:,}"})


def load_model(path: str | os.PathLike[str]) -> SavedModel:
    """Load a file that :meth:`KLNMF.save` or `PoissonCP.save` wrote: model, W, names, metadata.

    Parameters
    ----------
    path : str or path
        The file.

    Returns
    -------
    SavedModel

    Raises
    ------
    klnmf.saved.SavedFileError
        If the file is damaged, from a newer version, or not a model. It is a ValueError.

    Examples
    --------
    >>> import os, tempfile
    >>> import klnmf
    >>> from klnmf.datasets import load_bible
    >>> bible = load_bible()
    >>> model = klnmf.KLNMF(5, random_state=0)
    >>> W = model.fit_transform(bible.data)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "bible.klnmf")
    ...     model.save(
    ...         path, W=W, sample_names=bible.sample_names, metadata={"text": "King James Bible"}
    ...     )
    ...     saved = klnmf.load_model(path)
    >>> saved.W.shape, saved.sample_names[0], saved.metadata["text"]
    ((1189, 5), 'Genesis 1', 'King James Bible')
    """
    from klnmf.estimators.poisson_cp import PoissonCP  # which few need

    return read_model(path, KLNMF, PoissonCP)
