"""A progress bar over runs, and a callback that hears of each."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from tqdm.auto import tqdm

from klnmf.support.progress import ClosesBar, is_bar_wanted


class RunsProgress(ClosesBar):
    """Shows how many runs are done and how long the others take: they are much alike.

    Parameters
    ----------
    show : {"auto", True, False}
        "auto" shows it on a terminal only.
    n_runs, n_done : int
        Runs in all, and those that were done before.
    callback : callable or None
        Called after each run.
    """

    def __init__(
        self,
        show: str | bool,
        n_runs: int,
        n_done: int,
        callback: Callable[[dict[str, Any]], Any] | None,
    ) -> None:
        self._n_runs, self._n_before, self._n_done = n_runs, n_done, n_done
        self._callback, self._started = callback, time.monotonic()
        self._bar: Any = None
        if is_bar_wanted(show):
            self._bar = tqdm(
                total=n_runs, initial=n_done, desc="klnmf consensus", unit="run", leave=False
            )

    def update(self, run: int, objective: float) -> None:
        """Move on by one run."""
        self._n_done += 1
        if self._bar is not None:
            self._bar.update()
        if self._callback is not None:
            seconds = (time.monotonic() - self._started) / (self._n_done - self._n_before)
            self._callback(
                {
                    "run": run,
                    "objective": objective,
                    "n_done": self._n_done,
                    "n_runs": self._n_runs,
                    "seconds_left": seconds * (self._n_runs - self._n_done),
                }
            )
