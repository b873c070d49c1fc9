"""Progress of a rank search and of a consensus: a bar, a callback, and the time that is left."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy.optimize import nnls

from klnmf.model_selection.search import Search, Step
from klnmf.support.progress import Bar

Callback = Callable[[dict[str, Any]], Any] | None

# tqdm assumes that all steps take equally long. This format leaves its estimate out.
_FORMAT = "{desc}: {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} fits [{elapsed}{postfix}]"


class SearchProgress(Bar):
    """Shows how many fits are done and predicts the time that is left.

    ``jobs`` is the number of fits at a time; ``callback`` is called after each fit.
    """

    def __init__(self, show: str | bool, search: Search, callback: Callback, jobs: int) -> None:
        total = search.n_fits + len(search.ranks_ahead)
        super().__init__(
            show, total=total, initial=search.n_fits, desc="klnmf rank", bar_format=_FORMAT
        )
        self._callback, self._jobs = callback, min(jobs, search.plan.n_splits)

    def update(self, search: Search, rank: int, split: int, step: Step) -> None:
        """Move on by one fit."""
        if self._bar is None and self._callback is None:
            return
        left = seconds_left(search, self._jobs)
        time_left = "" if left is None else f", at most about {duration(left)} left"
        n_fits = search.n_fits + len(search.ranks_ahead)
        self.advance(f"rank {rank}{time_left}", n_fits)
        if self._callback is not None:
            self._callback(
                {
                    "rank": rank,
                    "split": split,
                    "deviance": float(step.deviances.mean(axis=1).min()),
                    "seconds": step.seconds,
                    "seconds_left": left,
                    "n_done": search.n_fits,
                    "n_fits": n_fits,
                }
            )


class RunsProgress(Bar):
    """Shows how many runs of a consensus are done; they all take about the same time.

    ``n_done`` runs were read from a checkpoint; ``callback`` is called after each run.
    """

    def __init__(self, show: str | bool, n_runs: int, n_done: int, callback: Callback) -> None:
        super().__init__(show, total=n_runs, initial=n_done, desc="klnmf consensus", unit="run")
        self._n_runs, self._n_before, self._n_done = n_runs, n_done, n_done
        self._callback, self._started = callback, time.monotonic()

    def update(self, run: int, objective: float, is_null: bool) -> None:
        """Move on by one run."""
        self._n_done += 1
        self.advance()
        if self._callback is not None:
            seconds = (time.monotonic() - self._started) / (self._n_done - self._n_before)
            self._callback(
                {
                    "run": run,
                    "is_null": is_null,
                    "objective": objective,
                    "n_done": self._n_done,
                    "n_runs": self._n_runs,
                    "seconds_left": seconds * (self._n_runs - self._n_done),
                }
            )


def seconds_left(search: Search, jobs: int) -> float | None:
    """Seconds to the end of all ranks; None before the first measurement."""
    ahead = search.ranks_ahead
    if not ahead:
        return 0.0
    ranks, seconds = [], []
    for rank, times in zip(search.plan.ranks, search.seconds, strict=False):
        ranks += [rank] * len(times)
        seconds += times.tolist()
    if search.current and search.back is None:
        ranks += [search.rank] * len(search.current)
        seconds += [held.seconds for held in search.current.values()]
    predicted = predicted_seconds(ranks, seconds, ahead)
    return None if predicted is None else predicted / jobs


def predicted_seconds(
    ranks: Sequence[int], seconds: Sequence[float], ahead: Sequence[int]
) -> float | None:
    """Predict the seconds for the ranks ahead; None before the first measurement.

    The time of a fit grows with its rank, so a straight line is fitted to the times. Rank 1 has a
    closed form and is left out.

    Examples
    --------
    >>> round(predicted_seconds([1, 2, 4, 8], [0.0, 2.0, 3.0, 5.0], [16, 32]), 6)
    26.0
    """
    measured = [pair for pair in zip(ranks, seconds, strict=True) if pair[0] > 1]
    if not measured:
        return None
    r, t = np.array(measured, dtype=np.float64).T
    # Both coefficients are nonnegative: noise must not predict that larger ranks take less time.
    (constant, slope), _ = nnls(np.column_stack([np.ones_like(r), r]), t)
    return float(sum(constant + slope * rank for rank in ahead if rank > 1))


def duration(seconds: float) -> str:
    """Write a time in words.

    Examples
    --------
    >>> duration(8.2), duration(200), duration(9000)
    ('8 s', '3 min', '2.5 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
