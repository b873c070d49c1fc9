"""`select_rank`: choose the number of components."""

import os
from collections.abc import Callable, Iterable
from numbers import Integral
from typing import Any

import numpy as np
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

from klnmf.backends.cpu import effective_threads
from klnmf.data.not_counts import NotCountsWarning, transformation_of
from klnmf.data.sparse_data import view_of
from klnmf.data.validation import EXACT_IN_FLOAT32, check_counts, warn_caller
from klnmf.estimators.completion import is_integer_valued
from klnmf.model_selection.checkpoints import SearchFile
from klnmf.model_selection.deviance import BACKGROUNDS
from klnmf.model_selection.progress import SearchProgress
from klnmf.model_selection.rank_selection import RankSelection
from klnmf.model_selection.search import Plan, Search, Step, is_small
from klnmf.support.number_checks import checked_fraction, checked_whole
from klnmf.support.progress import is_bar_wanted
from klnmf.support.threads import run_in_threads

Record = dict[str, Any]


def select_rank(
    X: Any,
    ranks: Iterable[int] = range(1, 41),
    *,
    n_splits: int = 5,
    train_fraction: float = 0.9,
    background: str | float = "best",
    early_stop: bool = True,
    n_jobs: int | None = None,
    n_threads: int | None = None,
    random_state: int | np.random.RandomState | None = None,
    progress: str | bool = "auto",
    callback: Callable[[Record], Any] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: float = 60.0,
    resume: str | bool = "auto",
) -> RankSelection:
    """Choose the number of components by how well the model predicts held-out counts.

    Each count is split at random into training and test counts (binomial thinning), which are
    independent for Poisson counts. Models of increasing rank are fitted to the training counts,
    each starting from the previous one. Components are then merged again, down to the smallest
    rank, and each rank keeps the better fit. The score of a rank is the Poisson deviance of the
    test counts: too few components miss structure, too many fit noise, and both predict worse.

    The chosen rank is the smallest one whose deviance is within one standard error of the lowest
    deviance: the standard error of the difference, over samples and splits.

    Only whole counts can be thinned. For other data, random cells (zeros included) are held out
    instead, with a warning.

    Parameters
    ----------
    X : {array-like, sparse matrix or array, DataFrame} of shape (n_samples, n_features)
        Counts, or other nonnegative data.
    ranks : iterable of int, default=range(1, 41)
        Ranks to try. The time grows with the largest one. Steps larger than 1 are allowed.
    n_splits : int, default=5
        Number of random splits.
    train_fraction : float, default=0.9
        Share of the counts in the training data, between 0 and 1. Much smaller values find fewer
        components.
    background : "best" or float, default="best"
        Share of each sample's rate that is spread over all features, in proportion to how often
        they occur. It keeps the deviance finite where an estimated rate is 0. "best" takes the one
        of eight values from 0.001 to 0.5 with the lowest deviance, for each rank. The smaller a
        single value for all ranks, the fewer components are chosen.
    early_stop : bool, default=True
        Stop when three ranks in a row are worse than the best by more than two standard errors.
    n_jobs : int, default=None
        Number of splits to fit at the same time; -1 is all CPUs. None is the same, or 1 if the data
        are too large for several copies. The result does not depend on it.
    n_threads : int, default=None
        Threads of each fit. None divides the available CPUs among the jobs.
    random_state : int, RandomState instance or None, default=None
        Seed of the splits and fits.
    progress : {"auto"} or bool, default="auto"
        Show a progress bar with the predicted time left. "auto" shows it on a terminal only.
    callback : callable, default=None
        Called after each fit with a dict: rank, split, deviance, seconds, seconds_left (for all
        ranks, without early stopping; None if not yet known), n_done, n_fits.
    checkpoint : str or path, default=None
        File to save the progress of the search to. If the search is interrupted, call the function
        again with the same arguments to resume it; the result is the same.
    checkpoint_every : float, default=60.0
        Seconds between checkpoints; 0 writes one after each fit.
    resume : {"auto"} or bool, default="auto"
        Whether to resume from ``checkpoint``. "auto" resumes if the file exists, True raises an
        error if it does not, False starts again and overwrites the file.

    Returns
    -------
    RankSelection
        The choice, ``best_rank``, with the scores of all ranks.

    Notes
    -----
    With more counts, finer components become visible, and the best rank is larger. On simulated
    counts the true rank is found within 1 if components differ enough (``benchmarks/ranks.py``).

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
    counts, method = _checked_data(X)
    n_splits = checked_whole("n_splits", n_splits)
    jobs = effective_threads(n_jobs, "n_jobs")
    if n_jobs is None:
        jobs = min(jobs, n_splits) if is_small(counts, n_splits) else 1
    cpus = effective_threads(None)
    threads = effective_threads(n_threads) if n_threads is not None else max(1, cpus // jobs)
    is_bar_wanted(progress)  # an invalid value is an error before any work
    file = SearchFile(checkpoint, checkpoint_every, resume)
    plan = Plan(
        counts,
        _checked_ranks(ranks),
        n_splits,
        checked_fraction("train_fraction", train_fraction),
        _checked_backgrounds(background),
        method,
        file.seed(random_state),
        threads,
    )
    search = file.resumed(Search.new(plan), plan.seed)

    def finished(split: int, step: Step) -> None:
        rank = search.rank
        search.accept(split, step)
        file.write_if_due(search)
        bar.update(search, rank, split, step)

    # A threaded BLAS sums in varying order. The limit is process-wide, and the fits set and reset
    # it too. Set here, concurrent fits find and leave it as it is.
    with (
        file.kept(search),
        SearchProgress(progress, search, callback, jobs) as bar,
        threadpool_limits(1, "blas"),
    ):
        while search.goes_on(early_stop):
            run_in_threads(search.step, search.splits_to_do, jobs, finished)
    return _result(search)


def _result(search: Search) -> RankSelection:
    plan, comparison = search.plan, search.comparison()
    ranks = np.array(plan.ranks[: search.n_ranks_done], dtype=np.int64)
    return RankSelection(
        best_rank=int(ranks[comparison.chosen]),
        lowest_rank=int(ranks[comparison.lowest]),
        ranks=ranks,
        deviance=comparison.deviance,
        difference=comparison.difference,
        standard_error=comparison.standard_error,
        stability=np.array(search.stability),
        background=np.array(search.backgrounds),
        seconds=np.array(search.seconds).sum(axis=1),
        is_complete=search.is_complete,
        method=plan.method,
        n_splits=plan.n_splits,
        train_fraction=plan.train_fraction,
        random_state=plan.seed,
        n_samples=plan.X.shape[0],
        n_features=plan.X.shape[1],
    )


def _checked_data(X: Any) -> tuple[sp.csr_array, str]:
    """Return the counts, and the method to hold data out."""
    name = "select_rank"
    counts = check_counts(X, name=name, estimator=name, ensure_min_samples=2)
    if counts.nnz == 0:
        raise ValueError("All values of X are zero, so there is no rank to choose.")
    if is_integer_valued(counts):
        exact = counts.data.max() < EXACT_IN_FLOAT32
        return (counts.astype(np.float32) if exact else counts), "thinning"
    transformation = transformation_of(view_of(counts))
    what = "has values that are not whole numbers" if transformation is None else transformation
    warn_caller(
        f"X {what}. Only whole counts can be thinned, so random cells are held out instead "
        "(speckled hold-out). If you have the raw counts, pass those: the model is made for "
        "counts, and thinning is exact and faster.",
        UserWarning if transformation is None else NotCountsWarning,
    )
    return counts, "speckled"


def _checked_ranks(ranks: Iterable[int]) -> tuple[int, ...]:
    given: list[Any] = list(ranks)
    if not given or any(not isinstance(rank, Integral) or rank < 1 for rank in given):
        raise ValueError(f"ranks must be whole numbers of at least 1; got {given!r}.")
    return tuple(sorted({int(rank) for rank in given}))


def _checked_backgrounds(background: Any) -> tuple[float, ...]:
    if background == "best":
        return BACKGROUNDS
    if isinstance(background, str):
        raise ValueError(f'background must be "best" or between 0 and 1; got {background!r}.')
    return (checked_fraction("background", background),)
