"""`MiniBatchKLNMF`: the estimator that learns batch by batch."""

import time
from numbers import Integral, Real
from typing import Any, ClassVar, Self, TypedDict, Unpack

import numpy as np
import scipy.sparse as sp
from sklearn.base import _fit_context
from sklearn.utils._param_validation import Interval, StrOptions

from klnmf.backends import BACKENDS, CLUSTERS
from klnmf.data.sparse_data import InMemoryData, counts_checksum
from klnmf.data.validation import warn_of_many_components
from klnmf.estimators.arguments import check_arguments, explains_misplaced
from klnmf.estimators.base import FIT_ARGUMENTS, FLOAT_FROM_ZERO, MOST_COMPONENTS, FactorModel
from klnmf.estimators.checked_counts import ConstrainedCounts, warn_of_data
from klnmf.solvers.online import Batch, OnlineMemory
from klnmf.support.array_types import Array
from klnmf.support.number_checks import seed_of

# Batches that `fit` starts from.
START_BATCHES = 4


class BatchConstraints(TypedDict, total=False):
    """What ``fit`` and ``partial_fit`` take about samples."""

    sample_weight: Any


class MiniBatchKLNMF(FactorModel):
    """Nonnegative matrix factorisation under the Kullback-Leibler divergence, batch by batch.

    Learns the components H of X ≈ W Hᵀ from batches of samples. ``partial_fit`` reads each batch
    once, for data that arrive over time or do not fit into memory; ``fit`` reads it a few times.
    For each batch, W is solved for with H fixed, and H then moves towards the best value for the
    batch, by steps that shrink. The memory needed does not grow with the number of batches.

    On 20 Newsgroups (18,774 samples), reading each batch once comes within about 2 % of the
    objective of :class:`~klnmf.KLNMF`, and ``fit`` within 1 % (``benchmarks/online.py``). If X fits
    into memory, :class:`~klnmf.KLNMF` is faster and continues to convergence. Here the objective
    may rise from one batch to the next. ``transform`` always solves to its tolerance.

    Parameters
    ----------
    n_components : int, default=10
        Number of components r.
    batch_size : int, default=2048
        Samples per batch in ``fit``. Larger batches end lower; in fewer than a few hundred samples
        of sparse text, rare features are mostly noise. In ``partial_fit``, X is the batch.
    forget_factor : float, default=1.0
        Weight that the past keeps after a call of ``partial_fit``, or after a pass of ``fit``. With
        1, all samples ever seen count the same, and steps shrink towards 0. For a stream that
        changes, use less: with 0.99, about the last hundred batches count.
    max_iter : int, default=10
        Maximum number of passes over the data in ``fit``.
    max_no_improvement : int or None, default=1
        Stop ``fit`` after this many passes in a row that improved by less than ``tol``. None:
        ``max_iter`` passes.
    tol : float, default=1e-3
        A pass has improved if the divergence met on the way fell by at least this share below the
        lowest before: a pass is no certificate, and there is no ``optimality_gap_``. ``transform``
        solves each sample to a KKT residual of 0.01 ``tol``, at most 1e-5 and at least 1e-7.
    feature_weight : array-like of shape (n_features,), default=None
        As in :class:`~klnmf.KLNMF`. In ``partial_fit``, the first batch decides.
    random_state : int, RandomState instance or None, default=None
        Seed of the start and of the order of the samples in ``fit``.
    n_threads : int, default=None
        As in :class:`~klnmf.KLNMF`.
    dtype : None, numpy.float32 or numpy.float64, default=None
        As in :class:`~klnmf.KLNMF`. In ``partial_fit``, the first batch decides.
    sparse_output : bool, default=False
        Return W and ``components_`` as CSR arrays; their zeros are exact.
    backend : {"auto", "cpu", "cuda", "reference"}, default="auto"
        Where to compute. "auto" is the C++ core; "cuda" is an NVIDIA GPU, in float32; "reference"
        is slow NumPy.

    Attributes
    ----------
    components_ : ndarray or CSR array of shape (n_components, n_features)
        Hᵀ. Each component sums to 1. Features never seen are 0 in all of them.
    n_iter_ : int
        Passes of the last ``fit``; 1 more for each ``partial_fit`` after it.
    n_steps_ : int
        Number of batches used, without those that have no counts.
    n_revived_ : int
        Components that had died out and were started again from the worst-fitted samples.
    history_ : list of dict
        One record for each pass of ``fit``, or each call of ``partial_fit``: iteration, seconds,
        divergence (summed over the batches, each at the components *before* the batch was used in
        that pass), zeros_H (share of exact zeros).
    constraint_names_, n_fixed_W_, feature_weight_ : list of str, int, ndarray or None
        As in :class:`~klnmf.KLNMF`; ``n_fixed_W_`` is always 0.
    W_sums_ : ndarray of shape (`n_components_`,)
        Counts of each component so far, as in :class:`~klnmf.KLNMF`.
    data_checksum_ : int or None
        As in :class:`~klnmf.KLNMF`; None after ``partial_fit``.
    n_components_, n_features_in_ : int
        Number of components, and of features seen in ``fit``.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of the features, if X had string column names.

    See Also
    --------
    klnmf.KLNMF : For data in memory: lower objective, penalties, a certificate of convergence.

    Notes
    -----
    ``fit`` starts with 20 iterations of the full solver on four random batches, which costs as much
    as several passes. The first ``partial_fit`` does so on its batch, which should have many more
    samples than there are components. ``fit`` visits the samples in random order and keeps W
    between passes, so that its result differs from that of ``partial_fit`` on pieces of X.
    ``partial_fit`` continues from there. Weights are exact: the divergence is homogeneous, so that
    weighted counts are learned from. Other constraints are not taken: ``missing`` cells and fixed
    entries would need the constraints of every batch in each update of H. ``fit`` needs memory for
    the nonzeros of X twice and for W; ``partial_fit`` for its batch and H. A model that is saved
    with ``joblib.dump`` and loaded again continues exactly as it would have.

    Examples
    --------
    >>> from klnmf import MiniBatchKLNMF
    >>> from klnmf.datasets import load_bible
    >>> X = load_bible().data
    >>> model = MiniBatchKLNMF(n_components=5, random_state=0)
    >>> for start in range(0, X.shape[0], 300):  # as from a stream
    ...     model = model.partial_fit(X[start : start + 300])
    >>> model.n_steps_, model.transform(X[:10]).shape
    (4, (10, 5))
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "n_components": [Interval(Integral, 1, MOST_COMPONENTS, closed="both")],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "forget_factor": [Interval(Real, 0, 1, closed="right")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "max_no_improvement": [None, Interval(Integral, 1, None, closed="left")],
        "tol": [FLOAT_FROM_ZERO],
        "feature_weight": [None, "array-like"],
        "random_state": ["random_state"],
        "n_threads": [None, Integral],
        "dtype": "no_validation",  # checked with a better message
        "sparse_output": ["boolean"],
        "backend": [StrOptions({"auto", *BACKENDS} - CLUSTERS)],
    }

    # What scikit-learn's metadata routing may pass on, which the signature does not show.
    __metadata_request__fit: ClassVar[dict[str, None]] = {"sample_weight": None}
    __metadata_request__partial_fit: ClassVar[dict[str, None]] = {"sample_weight": None}

    _memory: OnlineMemory | None
    n_iter_: int
    n_steps_: int
    n_revived_: int
    history_: list[dict[str, Any]]

    @explains_misplaced
    def __init__(
        self,
        n_components: int = 10,
        *,
        batch_size: int = 2048,
        forget_factor: float = 1.0,
        max_iter: int = 10,
        max_no_improvement: int | None = 1,
        tol: float = 1e-3,
        feature_weight: Any = None,
        random_state: int | np.random.RandomState | None = None,
        n_threads: int | None = None,
        dtype: Any = None,
        sparse_output: bool = False,
        backend: str = "auto",
    ) -> None:
        self.n_components = n_components
        self.batch_size = batch_size
        self.forget_factor = forget_factor
        self.max_iter = max_iter
        self.max_no_improvement = max_no_improvement
        self.tol = tol
        self.feature_weight = feature_weight
        self.random_state = random_state
        self.n_threads = n_threads
        self.dtype = dtype
        self.sparse_output = sparse_output
        self.backend = backend

    @_fit_context(prefer_skip_nested_validation=True)  # type: ignore[untyped-decorator]
    def fit(self, X: Any, y: Any = None, **constraints: Unpack[BatchConstraints]) -> Self:
        """Learn the components of X, in passes over random batches of it.

        Parameters
        ----------
        X : {array-like, sparse matrix or array, DataFrame} of shape (n_samples, n_features)
            Counts, or other nonnegative data.
        y : Ignored
        **constraints
            ``sample_weight``, as in ``KLNMF.fit``.

        Returns
        -------
        self
        """
        self._fit(X, constraints)
        return self

    @_fit_context(prefer_skip_nested_validation=True)  # type: ignore[untyped-decorator]
    def fit_transform(self, X: Any, y: Any = None, **constraints: Unpack[BatchConstraints]) -> Any:
        """Learn the components of X and return W.

        Parameters
        ----------
        X, y, **constraints
            As in ``fit``.

        Returns
        -------
        ndarray or CSR array of shape (n_samples, n_components)
            W, as ``transform`` returns it.
        """
        counts = self._fit(X, constraints)
        return self._as_output(self._transformed(InMemoryData(counts), {}, self.backend))

    @_fit_context(prefer_skip_nested_validation=True)  # type: ignore[untyped-decorator]
    def partial_fit(self, X: Any, y: Any = None, **constraints: Unpack[BatchConstraints]) -> Self:
        """Learn from one more batch; the first one also decides where to start.

        Batches may differ in size and in the features that occur. A batch without counts does
        not change the components.

        Parameters
        ----------
        X : {array-like, sparse matrix or array, DataFrame} of shape (n_samples, n_features)
            Counts, or other nonnegative data, always with the same features.
        y : Ignored
        **constraints
            ``sample_weight`` of the batch, as in ``KLNMF.fit``.

        Returns
        -------
        self
        """
        is_first = not hasattr(self, "_memory")
        dtype = self.dtype if is_first or self._memory is None else self._memory.shares.dtype
        given = self._taken(
            X, constraints, "partial_fit", reset=is_first, dtype=dtype, min_samples=0
        )
        memory, counts = self._memory, given.data.view(0).as_csr()
        if is_first and counts.nnz:
            warn_of_many_components(self.n_components, counts.shape)
        started = time.perf_counter()
        divergence = 0.0
        if counts.nnz:
            batch = Batch(counts, self.backend, self.n_threads)
            if memory is None:
                memory = self._memory = self._begin(counts, seed_of(self.random_state))
            else:
                memory.observe(batch, self.forget_factor)
            divergence = memory.learn(batch, least_step=1 - self.forget_factor)
            self.n_steps_ += 1
        self._set_fitted(time.perf_counter() - started, divergence, counts)
        return self

    # ---- inside ----------------------------------------------------------------------------------

    def _fit(self, X: Any, constraints: BatchConstraints) -> sp.csr_array:
        """Learn from X, set the fitted attributes, and return the counts."""
        given = self._taken(X, constraints, "fit", reset=True)
        warn_of_data(X, given.data.view(0), self.n_components, given.constraints)
        counts, is_weighted = given.data.view(0).as_csr(), bool(given.constraints.names)
        checksum = given.data.sums_checksum if is_weighted else counts_checksum(counts)
        started = time.perf_counter()
        seed = seed_of(self.random_state)
        rows = np.random.default_rng(seed).permutation(np.flatnonzero(np.diff(counts.indptr)))
        parts = [
            np.sort(rows[start : start + self.batch_size])
            for start in range(0, len(rows), self.batch_size)
        ]
        batches = [Batch(counts[part], self.backend, self.n_threads) for part in parts]
        if batches:
            sample = np.sort(np.concatenate(parts[:START_BATCHES]))
            self._memory = memory = self._begin(counts[sample], seed)
            memory.totals[:] = 0
            for batch in batches:
                memory.observe(batch)
        # Each batch forgets its share of what a pass forgets.
        least_steps = [1 - self.forget_factor ** (len(part) / len(rows)) for part in parts]
        lowest, n_stale = np.inf, 0
        for _ in range(self.max_iter):
            divergence = 0.0
            for batch, least_step in zip(batches, least_steps, strict=True):
                divergence += memory.learn(batch, least_step)
                self.n_steps_ += 1
            self._set_fitted(time.perf_counter() - started, divergence, counts, checksum)
            started = time.perf_counter()
            n_stale = 0 if lowest - divergence > self.tol * abs(divergence) else n_stale + 1
            lowest = min(lowest, divergence)
            if self.max_no_improvement is not None and n_stale >= self.max_no_improvement:
                break
        return given.X

    def _taken(
        self, X: Any, given: BatchConstraints, function: str, *, reset: bool, **options: Any
    ) -> ConstrainedCounts:
        """X with its weights: Σ w_i v_j KL(x_ij, y_ij) is the divergence of w_i v_j x_ij."""
        for name in given:
            if name in FIT_ARGUMENTS and name != "sample_weight":
                reason = "each update of H would need it for all batches; use KLNMF"
                if name == "exposure":
                    reason = "it does not change the components; pass it to transform and score"
                raise TypeError(f"MiniBatchKLNMF.{function} does not take {name!r}: {reason}.")
        check_arguments(given, function, BatchConstraints.__annotations__)
        weight = self.feature_weight if reset else self.feature_weight_
        known = {**given, "feature_weight": weight}
        found = self._in_memory(X, known, reset=reset, **options).in_memory(self.n_components)
        names = found.constraints.names
        if reset:
            self._forget_everything()
            self.constraint_names_ = names
            self.feature_weight_ = found.constraints.feature_weight
        elif "sample_weight" in set(names) - set(self.constraint_names_):
            self.constraint_names_ = ["sample_weight", *self.constraint_names_]
        return found

    def _begin(self, counts: sp.csr_array, seed: int) -> OnlineMemory:
        return OnlineMemory.begin(counts, self.n_components, seed, self.backend, self.n_threads)

    def _forget_everything(self) -> None:
        self._memory = None
        self.n_iter_ = self.n_steps_ = self.n_revived_ = 0
        self.history_ = []

    def _in_user_units(self, memory: OnlineMemory) -> tuple[Array, Array]:
        """Return the components, each summing to 1, and the sums of W that belong to them.

        What was learned is v_j H_jk.
        """
        components, sums = np.array(memory.components().T, order="C"), memory.masses()
        if self.feature_weight_ is None:
            return components, sums
        with np.errstate(divide="ignore"):
            inverse = np.where(self.feature_weight_ > 0, 1 / self.feature_weight_, 0.0)
        scaled = components * inverse
        scales = scaled.sum(axis=1)
        scaled /= np.where(scales > 0, scales, 1.0)[:, None]
        return scaled.astype(components.dtype), sums * scales

    def _set_fitted(
        self, seconds: float, divergence: float, counts: sp.csr_array, checksum: int | None = None
    ) -> None:
        """Set the fitted attributes after a pass or a batch."""
        if self._memory is None:  # no count so far
            components = np.zeros((self.n_components, counts.shape[1]), dtype=counts.dtype)
            W_sums = np.zeros(self.n_components)
        else:
            components, W_sums = self._in_user_units(self._memory)
            self.n_revived_ = self._memory.n_revived
        output = self._as_output(components)
        self._set_attributes(output, W_sums=W_sums, data_checksum=checksum, n_fixed_W=0)
        self.n_iter_ += 1
        before = self.history_[-1]["seconds"] if self.history_ else 0.0
        self.history_.append(
            {
                "iteration": self.n_iter_,
                "seconds": before + seconds,
                "divergence": divergence,
                "zeros_H": 1 - np.count_nonzero(components) / components.size,
            }
        )
