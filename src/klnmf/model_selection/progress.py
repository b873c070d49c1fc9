"""A progress bar over ranks and splits, with the time that is left."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tqdm.auto import tqdm

from klnmf.model_selection.search import Search, Step
from klnmf.model_selection.timing import duration, predicted_seconds
from klnmf.support.progress import ClosesBar, is_bar_wanted

# tqdm's own estimate takes all steps for equally long; ours stands at the end.
_FORMAT = "{desc}: {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} fits [{elapsed}{postfix}]"


class PathProgress(ClosesBar):
    """Shows how many fits are done and how long the others take; tells the callback as well.

    Parameters
    ----------
    show : {"auto", True, False}
        "auto" shows it on a terminal only.
    search : Search
        Where the search begins.
    callback : callable or None
        Called after each fit.
    jobs : int
        Fits at the same time.
    """

    def __init__(
        self,
        show: str | bool,
        search: Search,
        callback: Callable[[dict[str, Any]], Any] | None,
        jobs: int,
    ) -> None:
        self._callback, self._jobs = callback, min(jobs, search.plan.n_splits)
        self._bar: Any = None
        if is_bar_wanted(show):
            self._bar = tqdm(
                total=search.n_fits + len(search.ranks_ahead),
                initial=search.n_fits,
                desc="klnmf rank",
                bar_format=_FORMAT,
                leave=False,
            )

    def update(self, search: Search, rank: int, split: int, step: Step) -> None:
        """Move on by one fit."""
        if self._bar is None and self._callback is None:
            return
        left = seconds_left(search, self._jobs)
        if self._bar is not None:
            text = f"rank {rank}"
            if left is not None:
                text += f", at most about {duration(left)} left"
            self._bar.set_postfix_str(text, refresh=False)
            self._bar.total = search.n_fits + len(search.ranks_ahead)
            self._bar.update()
        if self._callback is not None:
            self._callback(
                {
                    "rank": rank,
                    "split": split,
                    "deviance": float(step.deviances.mean(axis=1).min()),
                    "seconds": step.seconds,
                    "seconds_left": left,
                    "n_done": search.n_fits,
                    "n_fits": search.n_fits + len(search.ranks_ahead),
                }
            )


def seconds_left(search: Search, jobs: int) -> float | None:
    """Seconds to the end of all ranks; None before anything is known, 0 at the end."""
    ranks, seconds = [], []
    for rank, times in zip(search.plan.ranks, search.seconds, strict=False):
        ranks += [rank] * len(times)
        seconds += times.tolist()
    ahead = search.ranks_ahead
    if search.current and search.back is None:
        ranks += [search.rank] * len(search.current)
        seconds += [held.seconds for held in search.current.values()]
    if not ahead:
        return 0.0
    predicted = predicted_seconds(ranks, seconds, ahead)
    return None if predicted is None else predicted / jobs
