"""`select_rank`: how many components the data speak for."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import scipy.sparse as sp
from sklearn.utils import check_random_state
from threadpoolctl import threadpool_limits

from klnmf.backends.cpu import effective_threads
from klnmf.data.not_counts import NotCountsWarning, transformation_of
from klnmf.data.sparse_data import view_of
from klnmf.data.validation import EXACT_IN_FLOAT32, check_counts, checked_input, warn_caller
from klnmf.estimators.completion import is_integer_valued
from klnmf.model_selection.deviance import BACKGROUNDS
from klnmf.model_selection.progress import PathProgress
from klnmf.model_selection.rank_selection import RankSelection
from klnmf.model_selection.search import Plan, Search, Step, is_small
from klnmf.model_selection.search_file import SearchFile
from klnmf.saved.checkpoints import should_resume
from klnmf.support.progress import is_bar_wanted

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
    """Choose the number of components by how well models predict counts they have not seen.

    Every count is split at random between training and test data (binomial thinning): for Poisson
    counts the two parts are independent. Models of rising rank are fitted to the training part,
    each going on from the one before with new components for what that explains worst; then the way
    leads back by merges of components, and a rank keeps the better fits to the training part. The
    Poisson deviance of the test part is measured. Too few components miss structure, too many fit
    noise; both predict worse. The choice is the smallest rank whose deviance is not above the
    lowest one by more than a standard error of the difference, which comes from the differences of
    the single samples (and of the splits).

    Values that are not whole numbers cannot be thinned. With a warning, random cells are then
    hidden instead, zeros included, and predicted from a fit to the others.

    Parameters
    ----------
    X : {array-like, sparse matrix or array, DataFrame} of shape (n_samples, n_features)
        Counts, or other nonnegative data.
    ranks : iterable of int, default=range(1, 41)
        Ranks to try. Time grows with the largest one; steps of more than 1 are fine.
    n_splits : int, default=5
        How often the data are split anew.
    train_fraction : float, default=0.9
        Share of the counts to fit to, between 0 and 1. The choice is one for data with that share
        of the counts: much smaller values find fewer components.
    background : "best" or float, default="best"
        Share of every sample's rate that is spread over the features as they occur in the
        training data, so that a count whose estimated rate is 0 costs much and not everything.
        "best" takes, for each rank, the one of eight values from 0.001 to 0.5 under which the
        held-out data are likeliest: models with many components need more of it, and one value for
        all ranks would decide between them (the smaller, the fewer components; docs/performance.md
        has figures).
    early_stop : bool, default=True
        Stop when three ranks in a row are worse than the best by more than two standard errors.
    n_jobs : int, default=None
        Splits to fit at the same time, in threads; negative numbers count from the end. None is as
        many as there are CPUs, but 1 where the data are too large to hold several copies. The
        result does not depend on it, bit for bit.
    n_threads : int, default=None
        Threads of each fit; None shares the CPUs that this process may use between the jobs.
    random_state : int, RandomState instance or None, default=None
        Seed of the splits and of the fits.
    progress : {"auto"} or bool, default="auto"
        Progress bar with the time that is left, predicted from how the time grows with the rank;
        "auto" shows it on a terminal.
    callback : callable, default=None
        Called after each fit with a dict: rank, split, deviance, seconds, seconds_left (all ranks,
        if there is no early stop; None when unknown), n_done, n_fits.
    checkpoint : str or path, default=None
        File to which the search writes how far it has come; killed, it goes on from there to the
        same result. Delete it when you have what you want.
    checkpoint_every : float, default=60.0
        Seconds between two checkpoints; 0 is one after each fit.
    resume : {"auto"} or bool, default="auto"
        Whether to go on from ``checkpoint``: "auto" does so if the file is there, True wants it to
        be there, False starts anew and overwrites it.

    Returns
    -------
    RankSelection
        With ``best_rank``; it prints as a table, and can be plotted and saved.

    Notes
    -----
    The rank that predicts best is not a property of nature: with more counts finer components
    become visible. On simulated counts the planted rank is found within 1 where its components can
    be told apart at all, see ``benchmarks/ranks.py``.

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
    n_splits = _checked_number("n_splits", n_splits)
    jobs = _checked_jobs(n_jobs, 1 if not is_small(counts, n_splits) else n_splits)
    cpus = effective_threads(None)
    threads = effective_threads(n_threads) if n_threads is not None else max(1, cpus // jobs)
    file = None if checkpoint is None else SearchFile(Path(checkpoint), checkpoint_every)
    is_resumed = should_resume(None if file is None else file.path, resume)
    is_bar_wanted(progress)  # refuses what it cannot be, before any work
    if file is not None and is_resumed and random_state is None:
        seed = file.stored_seed()
    else:
        seed = int(check_random_state(random_state).randint(np.iinfo(np.int32).max))
    plan = Plan(
        counts,
        _checked_ranks(ranks),
        n_splits,
        _checked_share("train_fraction", train_fraction),
        _checked_backgrounds(background),
        method,
        seed,
        threads,
    )
    search = file.resumed(plan) if file is not None and is_resumed else Search.new(plan)
    if file is not None:
        file.write_if_due(search)  # a path that cannot be written to is an error before any work
    # A threaded BLAS sums in an order of its own. The limit is process-wide, and the fits set and
    # reset it too: set here, concurrent ones find and leave it as it is.
    with PathProgress(progress, search, callback, jobs) as bar, threadpool_limits(1, "blas"):
        try:
            _go_on(search, early_stop, jobs, file, bar)
        finally:
            if file is not None:
                file.write(search)
    return _result(search)


def _go_on(
    search: Search, early_stop: bool, jobs: int, file: SearchFile | None, bar: PathProgress
) -> None:
    """Fit rank after rank, up and back, until all are done or the deviance has clearly risen."""

    def finished(split: int, step: Step) -> None:
        rank = search.rank
        search.accept(split, step)
        if file is not None:
            file.write_if_due(search)
        bar.update(search, rank, split, step)

    while search.goes_on(early_stop):
        splits = search.splits_to_do
        if min(jobs, len(splits)) == 1:
            for split in splits:
                finished(split, search.step(split))
            continue
        with ThreadPoolExecutor(jobs) as pool:
            fits = {pool.submit(search.step, split): split for split in splits}
            try:
                for fit in as_completed(fits):
                    finished(fits[fit], fit.result())
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise


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


# ---- arguments -----------------------------------------------------------------------------------


def _checked_data(X: Any) -> tuple[sp.csr_array, str]:
    """Return the counts, and how data of them are held out."""
    counts = check_counts(
        checked_input(X, ensure_min_samples=2, estimator="select_rank"),
        name="select_rank",
    )
    if counts.nnz == 0:
        raise ValueError("X holds nothing but zeros: there is no rank to choose.")
    if is_integer_valued(counts):
        exact = counts.data.max() < EXACT_IN_FLOAT32
        return (counts.astype(np.float32) if exact else counts), "thinning"
    transformation = transformation_of(view_of(counts))
    what = "holds values that are not whole numbers" if transformation is None else transformation
    warn_caller(
        f"X {what}. Only whole counts can be thinned: random cells are held out instead (speckled "
        "hold-out). Pass the raw counts if there are any: the model is for them, and thinning is "
        "exact and faster.",
        UserWarning if transformation is None else NotCountsWarning,
    )
    return counts, "speckled"


def _checked_ranks(ranks: Iterable[int]) -> tuple[int, ...]:
    given: list[Any] = list(ranks)
    if not given or any(not isinstance(rank, Integral) or rank < 1 for rank in given):
        raise ValueError(f"ranks must be whole numbers of at least 1; got {given!r}.")
    return tuple(sorted({int(rank) for rank in given}))


def _checked_number(name: str, value: Any) -> int:
    if not isinstance(value, Integral) or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1; got {value!r}.")
    return int(value)


def _checked_share(name: str, value: Any) -> float:
    if not isinstance(value, Real) or not 0.0 < float(value) < 1.0:
        raise ValueError(f"{name} must be between 0 and 1, both excluded; got {value!r}.")
    return float(value)


def _checked_backgrounds(background: Any) -> tuple[float, ...]:
    if background == "best":
        return BACKGROUNDS
    if isinstance(background, str):
        raise ValueError(f'background must be "best" or between 0 and 1; got {background!r}.')
    return (_checked_share("background", background),)


def _checked_jobs(n_jobs: Any, most: int) -> int:
    if n_jobs is None:
        return min(most, effective_threads(None))
    if not isinstance(n_jobs, Integral) or n_jobs == 0:
        raise ValueError(f"n_jobs must be None or a whole number other than 0; got {n_jobs!r}.")
    number = int(n_jobs)
    return number if number > 0 else max(1, joblib.cpu_count() + 1 + number)
