"""`consensus`: find the components that many runs agree on."""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from klnmf.backends.cpu import effective_threads
from klnmf.constraints.names import feature_names_of
from klnmf.data.sparse_tensor import SparseTensor
from klnmf.data.tensor_data import is_float32_enough
from klnmf.data.validation import is_integer_valued
from klnmf.estimators.arguments import check_arguments, explains_misplaced
from klnmf.estimators.checked_counts import ConstrainedCounts, checked_counts, warn_of_data
from klnmf.estimators.run_options import RunOptions, checked_run_options
from klnmf.model_selection.consensus_groups import grouped_runs
from klnmf.model_selection.consensus_null import null_counts
from klnmf.model_selection.consensus_result import Consensus, NullAgreement
from klnmf.model_selection.growth import column_sums, descended
from klnmf.model_selection.work_files import EndOfRun, Ends, Runs, RunsFile
from klnmf.saved.periodic_file import data_identity
from klnmf.solvers.base import Problem
from klnmf.solvers.coordinate_descent import SparseCoordinateDescent
from klnmf.solvers.initialization import STARTS, cover_cells, cover_columns
from klnmf.solvers.loop import MaxIterations, Run, SmallGain
from klnmf.solvers.row_solve import RowSolve, solved_W
from klnmf.solvers.start import start_state
from klnmf.support.array_types import Array, FloatArray
from klnmf.support.number_checks import checked_positive, checked_whole
from klnmf.support.option_names import option
from klnmf.support.progress import WorkProgress
from klnmf.support.threads import run_in_threads
from klnmf.topics.checks import checked_choice, checked_names
from klnmf.uncertainty.refits import LABELS_INSTEAD, comparable, unit_spectra

ROW_SOLVE = RowSolve(tolerance=1e-5)
# Runs on the null if it is not said how many; more hardly change its figures.
NULL_RUNS = 20
TAKEN = ("sample_weight", "feature_weight", "exposure", "missing", "fixed_W")
TAKEN_OF_TENSORS = ("weights", "exposure", "missing")
_NUMBERED = (
    "belongs to components by their numbers, and those of different runs have no common order"
)
REFUSED = {
    "fixed_components": "would be in every run, so that there is nothing to agree on; fit KLNMF "
    "with them",
    "fixed": "would be in every run; fit PoissonCP with it",
    **dict.fromkeys(("zero_components", "zero_W", "zeros"), _NUMBERED),
    **dict.fromkeys(
        ("l1_W", "l2_W", "l1_H", "l2_H", "l1", "l2"),
        "depends on the scale of components, which is ignored when they are compared and averaged",
    ),
}


@explains_misplaced
def consensus(
    X: Any,
    n_components: int,
    n_runs: int = 100,
    *,
    n_null_runs: int | None = None,
    feature_names: Sequence[str] | None = None,
    density_threshold: float = 0.5,
    refit: str = "W",
    init: str = "samples",
    tol: float = 1e-4,
    max_iter: int = 300,
    dtype: Any = np.float32,
    n_jobs: int | None = None,
    backend: str = "auto",
    random_state: int | np.random.RandomState | None = None,
    run: RunOptions | None = None,
    **constraints: Any,
) -> Consensus:
    """Find the components that fits from many starts agree on, as in cNMF.

    The components of all runs are scaled to length 1. Those far from their nearest neighbours are
    left out. k-means puts the others into ``n_components`` groups, and the median of each group is
    a consensus component. The more runs are in a group, and the farther it is from other groups,
    the less does the component depend on the start.

    That is agreement of starts on the same data. It does not say that a component is real: starts
    may agree on noise too, in particular if counts vary more than Poisson counts do. So the same
    is done with a null, counts with the margins and the dispersion of X but without structure, and
    its figures stand beside those of X. The null is a single draw, so this is a yardstick and not a
    test. Whether a further component predicts data that it has not seen, ask `select_rank`.

    Parameters
    ----------
    X : {array-like, sparse matrix or array, DataFrame} of shape (n_samples, n_features)
        Counts, or other nonnegative data, with the warnings of `klnmf.KLNMF.fit`. Features of very
        different variance can be scaled first, as cNMF does for genes. Or a `klnmf.SparseTensor`:
        the components of runs of `klnmf.PoissonCP` are compared by their factors of all modes after
        the first, which count the same.
    n_components : int
        Number of components of each run and of the consensus.
    n_runs : int, default=100
        Number of starts, at least 2.
    n_null_runs : int, default=None
        Number of starts on the null, at least 2; 0 leaves the null out. None is ``n_runs``, at most
        20, or 0 if X has values that are not whole numbers: the null is one of counts.
    feature_names : sequence of str, default=None
        Names of the features, to print the leading ones; by default those of a DataFrame. A tensor
        has labels instead.
    density_threshold : float, default=0.5
        Components are left out if their mean Euclidean distance to their nearest neighbours (3 for
        every 10 runs) is above this. The largest possible distance is √2. If a plot of the result
        shows two groups of distances, choose a threshold between them.
    refit : {"W", "both"}, default="W"
        "W" keeps the medians and solves for W. "both" also refits the components, which describes
        the data better, but may move them away from the medians (default of ``klnmf consensus``).
    init : {"samples", "random", "nndsvd"}, default="samples"
        Kind of start, see `klnmf.KLNMF`. "nndsvd" is for matrices.
    tol : float, default=1e-4
        A run stops when an iteration improves the objective by less than this fraction.
    max_iter : int, default=300
        Maximum number of iterations of a run.
    dtype : {numpy.float32, numpy.float64, None}, default=numpy.float32
        Type to compute in; None uses that of X. float32 is accurate enough and takes half the time.
    n_jobs : int, default=None
        Number of runs at a time, each in one thread. None uses all CPUs. The result does not depend
        on it.
    backend : {"auto", "cpu", "cuda", "reference"}, default="auto"
        Where to compute, as in `klnmf.KLNMF`. With "cuda", runs share one X on the GPU.
    random_state : int, RandomState instance or None, default=None
        Seed of the starts and of k-means.
    run : RunOptions, default=None
        Checkpoint, progress bar and callback, see `klnmf.RunOptions`. The checkpoint holds the
        finished runs: if the function is interrupted, call it again with the same arguments to
        resume; the result is the same. ``n_runs`` may be larger than before. The callback is called
        after each run with a dict: run, is_null (whether it is one on the null), objective, n_done,
        n_runs (both with those on the null), seconds_left.
    **constraints
        ``sample_weight``, ``feature_weight``, ``exposure``, ``missing`` and ``fixed_W`` of every
        run, as in `klnmf.KLNMF` and its ``fit``. The components of fixed columns of W are the last
        ones of every run. They are not grouped, and as their size depends on the others, all
        components are refitted. Other constraints are refused: fixed components would be in every
        run, ``zero_components`` and ``zero_W`` belong to components by their numbers, which mean
        nothing across runs, and penalties depend on the scale of components, which are compared
        without it. With a tensor, ``weights``, ``exposure`` and ``missing`` as in
        `klnmf.PoissonCP.fit`.

    Returns
    -------
    Consensus
        The ``components``, ``W``, the ``factors`` of a tensor, and how well the runs agree on each
        component.

    Examples
    --------
    >>> from klnmf.model_selection import consensus
    >>> from klnmf.simulate import simulate_counts
    >>> from klnmf.topics import match_components
    >>> X, _, H = simulate_counts(200, 100, 4, counts_per_sample=300, random_state=0)
    >>> found = consensus(X, 4, n_runs=10, random_state=0)
    >>> bool(found.run_share.min() == 1.0 and found.silhouette.min() > 0.95)
    True
    >>> bool(found.null.silhouette.max() < 0.9)
    True
    >>> bool(match_components(found.components, H.T).similarity.min() > 0.98)
    True
    """
    n_components = checked_whole("n_components", n_components)
    max_iter = checked_whole("max_iter", max_iter)
    n_runs = checked_whole("n_runs", n_runs, least=2)
    threshold = checked_positive("density_threshold", density_threshold)
    tol = checked_positive("tol", tol)
    checked_choice(refit, "refit", ("W", "both"))
    is_tensor = isinstance(X, SparseTensor)
    checked_choice(init, "init", tuple(s for s in STARTS if not (is_tensor and s == "nndsvd")))
    jobs = effective_threads(n_jobs, "n_jobs")
    counts = _checked_data(X, constraints, n_components, dtype)
    known, n_given = counts.constraints, counts.n_fixed
    names = _checked_names(feature_names, X, counts.X.shape[1])
    if n_given >= n_components:
        raise ValueError(
            f"All {n_components} components have fixed columns of W, so there are none to agree "
            f"on. n_components counts them too: pass more than {n_given}."
        )
    n_null = _checked_null_runs(n_null_runs, n_runs, counts.X)
    options = checked_run_options(run)
    file = RunsFile(options)
    seed = file.seed(random_state)
    counts.check_backend(backend, n_components)
    problem = counts.problem(n_components, 1, backend)
    identity = data_identity(problem.backend.data) | {
        "n_components": n_components,
        "init": init,
        "enough": tol,  # as older versions call it
        "max_iter": max_iter,
    }
    if known.names:
        identity |= {"constraints": known.names, "checksum of constraints": known.checksum}
    runs = file.resumed(Runs(identity, seed, {}, {}), seed)

    def done_runs(problem: Problem, done: Ends, n_wanted: int, is_null: bool) -> Array:
        """Do the runs that are not done yet; return the objectives of all."""
        todo = [run for run in range(n_wanted) if run not in done]

        def fit(run: int) -> EndOfRun:
            seeds = [seed, run, 1] if is_null else [seed, run]
            return restarted(problem, n_components, init, tol, max_iter, seeds)

        def finished(run: int, fit: EndOfRun) -> None:
            done[run] = fit
            file.write_if_due(runs)
            tell(run, fit.objective, is_null)

        with file.kept(runs):
            problem.backend.data.prepare()  # here, not in several threads at once
            run_in_threads(fit, todo, min(jobs, n_wanted), finished)
        return np.array([done[run].objective for run in range(n_wanted)])

    def spectra(done: Ends, n_wanted: int) -> Array:
        return np.concatenate([done[run].components for run in range(n_wanted)])

    n_before = len(set(runs.fits) & {*range(n_runs)}) + len(set(runs.null_fits) & {*range(n_null)})
    n_all, started = n_runs + n_null, time.monotonic()

    def tell(run: int, objective: float, is_null: bool) -> None:
        n_done = sum(each < n_runs for each in runs.fits)
        n_done += sum(each < n_null for each in runs.null_fits)
        seconds = (time.monotonic() - started) / (n_done - n_before)
        record = {"run": run, "is_null": is_null, "objective": objective, "n_done": n_done}
        bar.update(record | {"n_runs": n_all, "seconds_left": seconds * (n_all - n_done)}, n_all)

    # One limit around all threads, because each thread would set and reset it for the others.
    with (
        WorkProgress(options, "consensus", "run", n_before, n_all) as bar,
        threadpool_limits(1),
    ):
        objectives = done_runs(problem, runs.fits, n_runs, is_null=False)
        wide = Problem(problem.backend.with_threads(jobs), counts.penalties)
        # The weight of a sample does not change its own row of W, except that 0 would hide it.
        by_row = wide
        if known.sample_weight is not None:
            by_row = counts.equally_weighted.problem(n_components, jobs, backend)
        of_runs = spectra(runs.fits, n_runs)
        found = _agreed(wide, by_row, of_runs, objectives, threshold, refit, seed)
        found = replace(found, feature_names=names)
        if is_tensor:
            about = {"mode_labels": X.labels, "mode_weights": known.weights}
            found = replace(found, sizes=X.shape[1:], mode_names=X.mode_names, **about)
        if not n_null:
            return found
        null = null_counts(counts.X, n_components, known, seed, jobs)
        if null.X.nnz == 0:
            return found
        of_null = replace(counts, X=null.X).problem(n_components, 1, backend)
        done_runs(of_null, runs.null_fits, n_null, is_null=True)
        null_spectra = spectra(runs.null_fits, n_null)
        groups = grouped_runs(null_spectra, n_null, threshold, seed, n_given)
        medians = np.zeros((n_components, 1))
        if groups.medians is not None:
            medians = comparable(groups.medians, counts.X.shape[1:])
        figures = groups.figures(null_spectra, medians, n_null)
        agreement = NullAgreement(
            **{name: -np.sort(-figure) for name, figure in figures._asdict().items()},
            n_runs=n_null,
            dispersion=null.dispersion,
            n_left_out=len(null_spectra) - groups.n_kept,
        )
        return replace(found, null=agreement)


def _checked_data(
    X: Any, given: dict[str, Any], n_components: int, dtype: Any
) -> ConstrainedCounts:
    """Return the counts and what is known about them."""
    given = {name: value for name, value in given.items() if value is not None}
    is_tensor = isinstance(X, SparseTensor)
    for name in given:
        if name in REFUSED:
            raise ValueError(f"consensus does not take {name}: it {REFUSED[name]}.")
    check_arguments(given, "consensus", (*(TAKEN_OF_TENSORS if is_tensor else TAKEN), "run"))
    if is_tensor and not is_float32_enough(X):
        dtype = np.float64
    checked = checked_counts(X, given, "consensus", dtype=dtype, takes_tensors=True)
    counts = checked.in_memory(n_components)
    if counts.data.nnz == 0:
        raise ValueError("All values of X are zero, so there are no components to find.")
    warn_of_data(X, counts.data.view(0), n_components, counts.constraints)
    return counts


def _checked_names(given: Sequence[str] | None, X: Any, n_features: int) -> Array | None:
    if isinstance(X, SparseTensor) and given is not None:
        raise ValueError(LABELS_INSTEAD)
    names = feature_names_of(X) if given is None else given
    if names is None:
        return None
    return np.array(checked_names(names, n_features), dtype=object)


def _checked_null_runs(given: int | None, n_runs: int, counts: Any) -> int:
    is_whole = is_integer_valued(counts)
    if given is None:
        return min(n_runs, NULL_RUNS) if is_whole else 0
    n_null = checked_whole("n_null_runs", given, least=0)
    if n_null == 1:
        raise ValueError("n_null_runs must be 0, or at least 2; got 1.")
    if n_null and not is_whole:
        raise ValueError(
            f"X has values that are not whole numbers, and the null of "
            f"{option('n_null_runs', n_null)} is one of counts. Pass raw counts, or "
            f"{option('n_null_runs', 0)}."
        )
    return n_null


def restarted(
    problem: Problem, n_components: int, init: str, tol: float, max_iter: int, seed: list[int]
) -> EndOfRun:
    """Fit from a new start until an iteration gains less than ``tol`` of the objective."""
    state_seed = int(np.random.default_rng(seed).integers(2**31 - 1))
    state = start_state(problem, n_components, init, state_seed)
    run = Run.started(problem, SparseCoordinateDescent(), state)
    run.until(SmallGain(tol), MaxIterations(max_iter))
    by_mode = []
    for mode, factor in enumerate(state.factors[1:], 1):
        H = problem.constraints.original(mode, problem.backend.download(factor))
        by_mode.append(np.array(H.T, dtype=np.float32, order="C"))
    return EndOfRun(unit_spectra(by_mode), float(state.objective))


def _agreed(
    problem: Problem,
    by_row: Problem,
    spectra: Array,
    objectives: Array,
    threshold: float,
    refit: str,
    seed: int,
) -> Consensus:
    """Return the consensus of runs; W is solved for in ``by_row``, where all samples weigh 1."""
    n_runs, known = len(objectives), problem.constraints
    n_components = len(spectra) // n_runs
    is_given = known.is_frozen(0)
    groups = grouped_runs(spectra, n_runs, threshold, seed, int(is_given.sum()))
    if groups.medians is None:
        raise ValueError(
            f"The runs do not agree: with {option('density_threshold', threshold)}, only "
            f"{groups.n_kept} components of {n_runs} runs are close to their neighbours, fewer "
            f"than {option('n_components', n_components)}. Choose fewer components or a larger "
            "threshold."
        )
    W, others = _refitted(problem, by_row, groups.medians, refit, seed, is_given)
    order = np.argsort(np.where(is_given, np.inf, -W.sum(axis=0)), kind="stable")
    labels = np.where(groups.labels < 0, -1, np.argsort(order)[groups.labels])
    W, others = W[:, order], [np.ascontiguousarray(H[:, order].T) for H in others]
    components = np.concatenate(others, axis=1)
    rows = comparable(components, known.shape[1:])
    figures = groups._replace(labels=labels).figures(spectra, rows, n_runs)
    by_mode = enumerate((W, *(H.T for H in others)))
    factors = [known.in_fit(mode, factor) for mode, factor in by_mode]
    evaluation = problem.evaluate(problem.upload(factors))
    return Consensus(
        components=components,
        W=W,
        divergence=float(evaluation.divergence),
        optimality_gap=float(evaluation.optimality_gap),
        kkt_residual=float(evaluation.kkt_residual),
        **figures._asdict(),
        run_objectives=objectives,
        spectra=spectra,
        labels=labels,
        neighbour_distance=groups.neighbour_distance,
        density_threshold=threshold,
        W_sums=factors[0].sum(axis=0),
        feature_weight=known.feature_weight,
        constraint_names=tuple(known.names),
        n_fixed_W=int(is_given.sum()),
    )


def _refitted(
    problem: Problem, by_row: Problem, medians: Array, refit: str, seed: int, is_given: Array
) -> tuple[FloatArray, list[FloatArray]]:
    """W and H, ... in float64 and the user's units; columns of H whose W is not given sum to 1."""
    data, known = problem.backend.data, problem.constraints
    by_mode = data.view(0).split(medians.T)
    if len(by_mode) > 1:
        by_mode = [H / column_sums(H) for H in by_mode]
    H, *rest = (np.ascontiguousarray(H, dtype=data.dtype) for H in by_mode)
    if is_given.any():  # at first they make up a tenth of all counts
        totals = np.asarray(known.fixed[0]).sum(axis=0)
        H[:, is_given] *= 0.1 * data.total / (len(totals) * np.maximum(totals, 1e-30))
    others = [known.in_fit(mode, factor) for mode, factor in enumerate([H, *rest], 1)]
    # No median may have a feature that each run has in another component.
    for mode, H in enumerate(others, 1):
        cover_columns(H, data.view(mode))
    if rest:  # nor a cell
        cover_cells(known, [None, *others], data)
    if refit == "both" or is_given.any():
        start = (solved_W(problem, others, ROW_SOLVE), *others)
        (_, *others), _ = descended(problem, start, seed, swap_failures=0)
    W = solved_W(by_row, others, ROW_SOLVE)
    W = by_row.constraints.original(0, W).astype(np.float64)
    others = [known.original(mode, H).astype(np.float64) for mode, H in enumerate(others, 1)]
    scales = [np.where(is_given, 1.0, column_sums(H)) for H in others]
    W = W * np.prod(scales, axis=0)
    return W, [H / scale for H, scale in zip(others, scales, strict=True)]
