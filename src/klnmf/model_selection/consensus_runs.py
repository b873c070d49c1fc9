"""`consensus`: find the components that many runs agree on."""

import os
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from sklearn.cluster import KMeans
from sklearn.metrics import silhouette_samples
from threadpoolctl import threadpool_limits

from klnmf.backends import make_backend
from klnmf.backends.cpu import effective_threads
from klnmf.constraints.names import sample_names_of
from klnmf.data.not_counts import warn_if_not_counts
from klnmf.data.sparse_data import InMemoryData, view_of
from klnmf.data.validation import check_counts, warn_of_empty_samples, warn_of_many_components
from klnmf.model_selection.checkpoints import Fit, Runs, RunsFile
from klnmf.model_selection.consensus_result import Consensus
from klnmf.model_selection.growth import column_sums, descended
from klnmf.model_selection.progress import RunsProgress
from klnmf.objective import Penalties
from klnmf.saved.periodic_file import data_identity
from klnmf.solvers.base import Problem
from klnmf.solvers.coordinate_descent import SparseCoordinateDescent
from klnmf.solvers.loop import MaxIterations, Run, SmallGain
from klnmf.solvers.row_solve import RowSolve, solved_rows
from klnmf.solvers.start import start_state
from klnmf.starts.initialization import STARTS, cover_columns
from klnmf.support.array_types import Array, FloatArray
from klnmf.support.number_checks import checked_positive, checked_whole
from klnmf.support.option_names import option
from klnmf.support.progress import is_bar_wanted
from klnmf.support.threads import run_in_threads
from klnmf.topics.checks import checked_choice

ROW_SOLVE = RowSolve(tolerance=1e-5)
# Number of neighbours as a share of the runs: each run should hold one of them.
NEIGHBOUR_SHARE = 0.3


def consensus(
    X: Any,
    n_components: int,
    n_runs: int = 100,
    *,
    density_threshold: float = 0.5,
    refit: str = "W",
    init: str = "samples",
    enough: float = 1e-4,
    max_iter: int = 300,
    dtype: Any = np.float32,
    n_jobs: int | None = None,
    random_state: int | np.random.RandomState | None = None,
    progress: str | bool = "auto",
    callback: Callable[[dict[str, Any]], Any] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: float = 60.0,
    resume: str | bool = "auto",
) -> Consensus:
    """Find the components that fits from many starts agree on, as in cNMF.

    The components of all runs are scaled to length 1. Those far from their nearest neighbours are
    left out. k-means puts the others into ``n_components`` groups, and the median of each group is
    a consensus component. The more runs are in a group, and the closer its members are, the more
    reliable is the component.

    Parameters
    ----------
    X : {array-like, sparse matrix or array, DataFrame} of shape (n_samples, n_features)
        Counts, or other nonnegative data, with the warnings of `klnmf.KLNMF.fit`. Features of very
        different variance can be scaled first, as cNMF does for genes.
    n_components : int
        Number of components of each run and of the consensus.
    n_runs : int, default=100
        Number of starts, at least 2.
    density_threshold : float, default=0.5
        Components are left out if their mean Euclidean distance to their nearest neighbours (3 for
        every 10 runs) is above this. The largest possible distance is √2. If a plot of the result
        shows two groups of distances, choose a threshold between them.
    refit : {"W", "both"}, default="W"
        "W" keeps the medians and solves for W. "both" also refits the components, which describes
        the data better, but may move them away from the medians (default of ``klnmf consensus``).
    init : {"samples", "random", "nndsvd"}, default="samples"
        Kind of start, see `klnmf.KLNMF`.
    enough : float, default=1e-4
        A run stops when an iteration improves the objective by less than this fraction.
    max_iter : int, default=300
        Maximum number of iterations of a run.
    dtype : {numpy.float32, numpy.float64, None}, default=numpy.float32
        Type to compute in; None uses that of X. float32 is accurate enough and takes half the time.
    n_jobs : int, default=None
        Number of runs at a time, each in one thread. None uses all CPUs. The result does not depend
        on it.
    random_state : int, RandomState instance or None, default=None
        Seed of the starts and of k-means.
    progress : {"auto"} or bool, default="auto"
        Show a progress bar. "auto" shows it on a terminal only.
    callback : callable, default=None
        Called after each run with a dict: run, objective, n_done, n_runs, seconds_left.
    checkpoint : str or path, default=None
        File to save the finished runs to. If the function is interrupted, call it again with the
        same arguments to resume; the result is the same. ``n_runs`` may be larger than before.
    checkpoint_every, resume : float, {"auto"} or bool
        As in `select_rank`.

    Returns
    -------
    Consensus
        The ``components``, ``W``, and the stability of each component.

    Examples
    --------
    >>> from klnmf.model_selection import consensus
    >>> from klnmf.simulate import simulate_counts
    >>> from klnmf.topics import match_components
    >>> X, _, H = simulate_counts(200, 100, 4, counts_per_sample=300, random_state=0)
    >>> found = consensus(X, 4, n_runs=10, random_state=0)
    >>> bool(found.stability.min() > 0.99)
    True
    >>> bool(match_components(found.components, H.T).similarity.min() > 0.98)
    True
    """
    n_components = checked_whole("n_components", n_components)
    max_iter = checked_whole("max_iter", max_iter)
    n_runs = checked_whole("n_runs", n_runs, least=2)
    threshold = checked_positive("density_threshold", density_threshold)
    enough = checked_positive("enough", enough)
    checked_choice(refit, "refit", ("W", "both"))
    checked_choice(init, "init", tuple(STARTS))
    jobs = effective_threads(n_jobs, "n_jobs")
    counts = check_counts(X, dtype=dtype, name="consensus")
    if counts.nnz == 0:
        raise ValueError("All values of X are zero, so there are no components to find.")
    warn_of_many_components(n_components, counts.shape)
    warn_of_empty_samples(np.diff(counts.indptr) == 0, sample_names_of(X))
    warn_if_not_counts(view_of(counts))
    is_bar_wanted(progress)  # an invalid value is an error before any work
    file = RunsFile(checkpoint, checkpoint_every, resume)
    seed = file.seed(random_state)
    problem = Problem(make_backend("auto", InMemoryData(counts), 1), Penalties())
    identity = data_identity(problem.backend.data) | {
        "n_components": n_components,
        "init": init,
        "enough": enough,
        "max_iter": max_iter,
    }
    runs = file.resumed(Runs(identity, seed, {}), seed)
    missing = [run for run in range(n_runs) if run not in runs.fits]

    def fit(run: int) -> Fit:
        return restarted(problem, n_components, init, enough, max_iter, [seed, run])

    def finished(run: int, fit: Fit) -> None:
        runs.fits[run] = fit
        file.write_if_due(runs)
        bar.update(run, fit.objective)

    # One limit around all threads, because each thread would set and reset it for the others.
    with (
        RunsProgress(progress, n_runs, n_runs - len(missing), callback) as bar,
        threadpool_limits(1),
    ):
        with file.kept(runs):
            problem.backend.data.prepare()  # here, not in several threads at once
            run_in_threads(fit, missing, min(jobs, n_runs), finished)
        fits = [runs.fits[run] for run in range(n_runs)]
        spectra = np.concatenate([fit.components for fit in fits])
        objectives = np.array([fit.objective for fit in fits])
        wide = Problem(make_backend("auto", problem.backend.data, jobs), Penalties())
        return _agreed(wide, spectra, objectives, n_components, threshold, refit, seed)


def restarted(
    problem: Problem, n_components: int, init: str, enough: float, max_iter: int, seed: list[int]
) -> Fit:
    """Fit from a new start until an iteration gains less than ``enough`` of the objective."""
    state_seed = int(np.random.default_rng(seed).integers(2**31 - 1))
    state = start_state(problem, n_components, init, state_seed)
    run = Run.started(problem, SparseCoordinateDescent(), state)
    run.until(SmallGain(enough), MaxIterations(max_iter))
    H = problem.backend.download(state.factors[1])
    components = np.array(H.T, dtype=np.float32, order="C")
    lengths = np.linalg.norm(components, axis=1, keepdims=True)
    components /= np.where(lengths > 0, lengths, 1)
    return Fit(components, float(state.objective))


def _agreed(
    problem: Problem,
    spectra: Array,
    objectives: Array,
    n_components: int,
    threshold: float,
    refit: str,
    seed: int,
) -> Consensus:
    n_runs = len(objectives)
    between = distances(spectra)
    to_neighbours = mean_distance_to_neighbours(between, n_runs)
    kept = np.flatnonzero((to_neighbours <= threshold) & spectra.any(axis=1))
    if len(kept) < n_components:
        raise ValueError(
            f"The runs do not agree: with {option('density_threshold', threshold)}, only "
            f"{len(kept)} components of {n_runs} runs are close to their neighbours, fewer than "
            f"{option('n_components', n_components)}. Choose fewer components or a larger "
            "threshold."
        )
    groups = clustered(spectra[kept], between[np.ix_(kept, kept)], n_components, seed)
    W, H = _refitted(problem, groups.medians, refit, seed)
    order = np.argsort(-W.sum(axis=0), kind="stable")
    labels = np.full(len(spectra), -1, dtype=np.int64)
    labels[kept] = np.argsort(order)[groups.labels]
    W, components = W[:, order], np.ascontiguousarray(H[:, order].T)
    unit = components / np.maximum(np.linalg.norm(components, axis=1, keepdims=True), 1e-300)
    members = [np.flatnonzero(labels == k) for k in range(n_components)]
    silhouettes = np.zeros(len(spectra))
    silhouettes[kept] = groups.silhouettes
    evaluation = problem.evaluate(problem.upload([W, components.T]))
    return Consensus(
        components=components,
        W=W,
        divergence=float(evaluation.divergence),
        optimality_gap=float(evaluation.optimality_gap),
        kkt_residual=float(evaluation.kkt_residual),
        stability=np.array([(spectra[group] @ unit[k]).mean() for k, group in enumerate(members)]),
        run_share=np.array([len(set(group // n_components)) / n_runs for group in members]),
        silhouette=np.array([silhouettes[group].mean() for group in members]),
        run_objectives=objectives,
        spectra=spectra,
        labels=labels,
        neighbour_distance=to_neighbours,
        density_threshold=threshold,
    )


def _refitted(problem: Problem, medians: Array, refit: str, seed: int) -> tuple[Array, Array]:
    """W and H in float64; the columns of H sum to 1."""
    data = problem.backend.data
    H = np.ascontiguousarray(medians.T, dtype=data.dtype)
    # No median may have a feature that each run has in another component.
    cover_columns(H, data.view(1))
    W = _solved_W(problem, H)
    if refit == "both":
        (_, H), _ = descended(problem, (W, H), seed, swap_failures=0)
        W = _solved_W(problem, H)
    W, H = W.astype(np.float64), H.astype(np.float64)
    scales = column_sums(H)
    return W * scales, H / scales


def _solved_W(problem: Problem, H: Array) -> Array:  # noqa: N802
    factors = [None, problem.backend.upload(H)]
    return problem.backend.download(solved_rows(problem, 0, factors, ROW_SOLVE))


# ---- groups of similar components ----------------------------------------------------------------


class Clusters(NamedTuple):
    """Groups of components."""

    labels: npt.NDArray[np.int64]  # one per component
    silhouettes: FloatArray  # one per component
    medians: FloatArray  # n_clusters × n_features, rows summing to 1


def distances(components: Array) -> FloatArray:
    """Euclidean distances between rows of length 1."""
    products = components.astype(np.float64) @ components.astype(np.float64).T
    found = np.sqrt(np.maximum(2.0 - 2.0 * products, 0.0))
    np.fill_diagonal(found, 0.0)
    return np.asarray(found)


def mean_distance_to_neighbours(between: FloatArray, n_runs: int) -> FloatArray:
    """Mean distance of each component to its nearest neighbours, excluding itself."""
    n_neighbours = min(max(1, round(NEIGHBOUR_SHARE * n_runs)), len(between) - 1)
    if n_neighbours < 1:
        return np.zeros(len(between))
    nearest = np.partition(between, n_neighbours, axis=1)[:, : n_neighbours + 1]
    return np.asarray(nearest.sum(axis=1) / n_neighbours)  # its distance to itself is 0


def clustered(components: Array, between: FloatArray, n_clusters: int, seed: int) -> Clusters:
    """Group components of length 1, with the distances ``between`` them, by k-means."""
    means = KMeans(n_clusters, n_init=10, random_state=seed).fit(components)
    labels = means.labels_.astype(np.int64)
    silhouettes = np.zeros(len(labels))
    if 1 < n_clusters < len(labels):
        silhouettes = silhouette_samples(between, labels, metric="precomputed")
    medians = np.array(
        [np.median(components[labels == cluster], axis=0) for cluster in range(n_clusters)],
        dtype=np.float64,
    )
    sums = medians.sum(axis=1, keepdims=True)
    return Clusters(labels, silhouettes, medians / np.where(sums > 0, sums, 1.0))
