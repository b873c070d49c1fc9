"""`select_rank`: choose the number of components."""

from collections.abc import Iterable
from dataclasses import replace
from numbers import Integral
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from klnmf.backends.cpu import effective_threads
from klnmf.constraints.checks import warn_if_one_sided
from klnmf.constraints.constraints import ComponentConstraints, FitConstraints
from klnmf.constraints.explained_cells import check_explained
from klnmf.constraints.penalties import Penalties
from klnmf.data.sparse_data import InMemoryData
from klnmf.data.sparse_tensor import SparseTensor
from klnmf.data.tensor_data import data_in_memory
from klnmf.data.validation import EXACT_IN_FLOAT32, is_integer_valued
from klnmf.estimators.arguments import check_arguments, explains_misplaced
from klnmf.estimators.checked_counts import ConstrainedCounts, checked_counts
from klnmf.estimators.held_out import BACKGROUNDS
from klnmf.estimators.run_options import RunOptions, checked_run_options
from klnmf.model_selection.rank_selection import RankSelection, stable_rank
from klnmf.model_selection.search import Plan, Search, Step, is_small
from klnmf.model_selection.work_files import SearchFile
from klnmf.support.descriptions import described
from klnmf.support.number_checks import checked_nonnegative, checked_whole
from klnmf.support.progress import WorkProgress
from klnmf.support.threads import run_in_threads

OF_TENSORS = ("weights", "exposure", "missing", "fixed", "zeros")
CONSTRAINTS = (*FitConstraints.__annotations__, *ComponentConstraints.__annotations__)


@explains_misplaced
def select_rank(
    X: Any,
    ranks: Iterable[int] = range(1, 41),
    *,
    n_splits: int = 5,
    early_stop: bool = True,
    l1_W: float = 0.0,
    l2_W: float = 0.0,
    l1_H: float = 0.0,
    l2_H: float = 0.0,
    n_jobs: int | None = None,
    n_threads: int | None = None,
    backend: str = "auto",
    random_state: int | np.random.RandomState | None = None,
    run: RunOptions | None = None,
    **constraints: Any,
) -> RankSelection:
    """Choose the number of components by how well the model predicts held-out entries of X.

    Every entry of X is predicted from other samples and from other features (bi-cross-validation):
    the samples are divided into ``n_splits`` folds at random, and models of increasing rank are
    fitted to the samples outside each fold. For each of ten groups of features, W of the fold's
    samples is solved for from the other features, and their cells in the group are predicted. No
    part of a cell is used to predict it, so nothing is assumed about the noise except that it is
    independent between cells: counts may vary more than Poisson counts do, and values need not be
    whole numbers.

    Each fit starts from the one of the previous rank. Components are then merged again, down to the
    smallest rank, and each rank keeps the better fit. The score of a rank is the mean Poisson
    deviance of the predictions: too few components miss structure, too many fit noise, and both
    predict worse. A share of each sample's rate is spread over all features, in proportion to how
    often they occur, which keeps the deviance finite where an estimated rate is 0: for each rank
    the one of nine values from 0.001 to 0.7 with the lowest deviance.

    The chosen rank is the smallest one whose deviance is within one standard error of the lowest
    one: the standard error of the difference, over samples or over folds, whichever
    is larger.

    Parameters
    ----------
    X : {array-like, sparse matrix or array, DataFrame} of shape (n_samples, n_features)
        Counts, or other nonnegative data, with the warnings of `klnmf.KLNMF.fit`.
    ranks : iterable of int, default=range(1, 41)
        Ranks to try. The time grows with the largest one. Steps larger than 1 are allowed.
    n_splits : int, default=5
        Number of folds, at least 2; each sample is a fold if there are fewer samples.
    early_stop : bool, default=True
        Stop when three ranks in a row are worse than the best by more than two standard errors.
    l1_W, l2_W, l1_H, l2_H : float, default=0
        Penalties of the fits, as in `klnmf.KLNMF`.
    n_jobs : int, default=None
        Number of folds to fit at the same time; -1 is all CPUs. None is the same, or 1 if the data
        are too large for several copies. The result does not depend on it.
    n_threads : int, default=None
        Threads of each fit. None divides the available CPUs among the jobs.
    backend : {"auto", "cpu", "cuda", "reference"}, default="auto"
        Where to compute, as in `klnmf.KLNMF`. With "cuda", folds share the GPU.
    random_state : int, RandomState instance or None, default=None
        Seed of the folds, groups and fits.
    run : RunOptions, default=None
        Checkpoint, progress bar and callback, see `klnmf.RunOptions`. If a search with a checkpoint
        is interrupted, call the function again with the same arguments to resume it; the result is
        the same. The callback is called after each fit with a dict: rank, split, deviance, seconds,
        seconds_left (for all ranks, without early stopping; None if not yet known), n_done, n_fits.
    **constraints
        Constraints of the fits, as in `klnmf.KLNMF` and its ``fit``: ``sample_weight``,
        ``feature_weight`` (the deviances have these weights too), ``exposure``, ``missing`` (such
        cells are in no fit and in no deviance), ``fixed_components`` and ``fixed_W`` (the ranks
        include them). ``zero_components`` and ``zero_W`` have a row or a column per component, and
        so belong to one rank: they are refused.

    Returns
    -------
    RankSelection
        The choice, ``best_rank``, with the scores of all ranks.

    Notes
    -----
    With more counts or samples, finer components become visible, and the best rank is larger. On
    simulated counts, Poisson or negative binomial, the true rank is found within 1 if there are
    enough counts to tell components apart (``benchmarks/ranks.py``, docs/performance.md).

    Features that vary together beyond the components, such as words of a fixed phrase, are not
    independent. They count as structure, and more components are found.

    References
    ----------
    A. B. Owen, P. O. Perry. Bi-cross-validation of the SVD and the nonnegative matrix
    factorization. Annals of Applied Statistics, 2009.

    Examples
    --------
    >>> from klnmf.model_selection import select_rank
    >>> from klnmf.simulate import simulate_counts
    >>> X = simulate_counts(200, 100, 4, counts_per_sample=300, random_state=0).X
    >>> selection = select_rank(X, range(1, 9), n_splits=3, random_state=0)
    >>> selection.best_rank
    4
    >>> sorted(selection.table())
    ['background', 'deviance', 'difference', 'is_best', 'rank', 'seconds', 'stability',
    'standard_error']
    """
    given = _constrained_counts(X, constraints, Penalties.of_matrix(l1_W, l2_W, l1_H, l2_H))
    counts = _without_weight_0(given)
    n_splits = min(checked_whole("n_splits", n_splits, least=2), counts.X.shape[0])
    jobs = effective_threads(n_jobs, "n_jobs")
    if n_jobs is None:
        jobs = min(jobs, n_splits) if is_small(counts.X, n_splits) else 1
    cpus = effective_threads(None)
    threads = effective_threads(n_threads) if n_threads is not None else max(1, cpus // jobs)
    options = checked_run_options(run)
    chosen = _checked_ranks(ranks, counts)
    counts.check_backend(backend, chosen[-1])
    file = SearchFile(options)
    plan = Plan(
        counts,
        chosen,
        n_splits,
        BACKGROUNDS,
        file.seed(random_state),
        threads,
        backend,
    )
    search = file.resumed(Search.new(plan), plan.seed)

    def finished(split: int, step: Step) -> None:
        rank = search.rank
        search.accept(split, step)
        file.write_if_due(search)
        record = search.record(rank, split, step, jobs)
        bar.update(record, record["n_fits"], f"rank {rank}, ")

    n_all = search.n_fits + len(search.ranks_ahead)
    # A threaded BLAS sums in varying order. The limit is process-wide, and the fits set and reset
    # it too. Set here, concurrent fits find and leave it as it is.
    with (
        file.kept(search),
        WorkProgress(options, "rank", "fit", search.n_fits, n_all) as bar,
        threadpool_limits(1, "blas"),
    ):
        while search.goes_on(early_stop):
            run_in_threads(search.step, search.splits_to_do, jobs, finished)
    return _result(search, given.X.shape)


def _result(search: Search, shape: tuple[int, ...]) -> RankSelection:
    plan, comparison = search.plan, search.comparison()
    ranks = np.array(plan.ranks[: search.n_ranks_done], dtype=np.int64)
    stability = np.array(search.stability)
    return RankSelection(
        best_rank=int(ranks[comparison.chosen]),
        lowest_rank=int(ranks[comparison.lowest]),
        ranks=ranks,
        deviance=comparison.deviance,
        difference=comparison.difference,
        standard_error=comparison.standard_error,
        stable_rank=stable_rank(ranks, stability, int(ranks[comparison.chosen])),
        stability=stability,
        background=np.array(search.backgrounds),
        seconds=np.array(search.seconds).sum(axis=1),
        is_complete=search.is_complete,
        n_splits=plan.n_splits,
        random_state=plan.seed,
        n_samples=shape[0],
        n_features=shape[1],
        median_total=float(np.median(data_in_memory(plan.counts.X).view(0).row_sums)),
    )


def _constrained_counts(X: Any, given: dict[str, Any], penalties: Penalties) -> ConstrainedCounts:
    """Return the counts, constraints and penalties, or say what is wrong with them."""
    name, is_matrix = "select_rank", not isinstance(X, SparseTensor)
    check_arguments(given, name, (*(CONSTRAINTS if is_matrix else OF_TENSORS), "run"))
    for refused in ("zero_components", "zero_W", "zeros"):
        if given.get(refused) is not None:
            raise ValueError(
                f"{name} does not support {refused}: it says which entries of each component are "
                "0, so it belongs to one rank, and other ranks have other components. Leave it out."
            )
    for penalty, value in penalties.by_name.items():
        checked_nonnegative(penalty, value)
    if not is_matrix and any(penalties.penalised_modes):
        raise ValueError("select_rank takes penalties for matrices only. Leave them out.")
    checked = checked_counts(X, given, name, penalties=penalties, min_samples=2, takes_tensors=True)
    counts = checked.X
    if is_matrix and is_integer_valued(counts) and counts.data.max(initial=0) < EXACT_IN_FLOAT32:
        checked = replace(checked, data=InMemoryData(counts.astype(np.float32)))
    found = checked.in_memory(sum(counts.shape))  # more than can be fixed
    if not found.n_fixed:
        warn_if_one_sided(penalties)
    return found.of_rank(max(1, found.n_fixed))


def _without_weight_0(found: ConstrainedCounts) -> ConstrainedCounts:
    """Return the samples and features that have a weight."""
    of_samples, of_features, *_ = found.constraints.weights
    if of_samples is not None:
        found = found.part(np.flatnonzero(of_samples))
    if of_features is not None:
        found = found.of_features(np.flatnonzero(of_features))
    if found.data.nnz == 0:
        raise ValueError("All values of X are zero, so there is no rank to choose.")
    if found.X.shape[0] < 2:
        raise ValueError("Only one sample has a weight above 0; at least two are needed.")
    return found


def _checked_ranks(ranks: Iterable[int], counts: ConstrainedCounts) -> tuple[int, ...]:
    given: list[Any] = list(ranks)
    if not given or any(not isinstance(rank, Integral) or rank < 1 for rank in given):
        raise ValueError(f"ranks must be whole numbers of at least 1; got {described(given)}.")
    chosen = tuple(sorted({int(rank) for rank in given}))
    if chosen[0] < counts.n_fixed:
        raise ValueError(
            f"ranks begin with {chosen[0]}, but {counts.n_fixed} components are fixed, and ranks "
            f"include them. Pass ranks of at least {counts.n_fixed}."
        )
    if chosen[0] == counts.n_fixed:
        check_explained(counts.of_rank(chosen[0]).constraints, counts.data)
    return chosen
