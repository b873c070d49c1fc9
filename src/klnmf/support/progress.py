"""Progress bars for long work."""

import math
import sys
from collections import deque
from typing import Any, Self

from tqdm.auto import tqdm

from klnmf.support.number_checks import checked_flag

# Fits that take less time than this show no bar.
SECONDS_BEFORE_SHOWN = 3.0


def is_bar_wanted(progress: str | bool) -> bool:
    """Whether to show a bar: "auto" shows it on a terminal only.

    >>> is_bar_wanted(True), is_bar_wanted(False)
    (True, False)
    """
    wanted = checked_flag("progress", progress)
    return sys.stderr is not None and sys.stderr.isatty() if wanted is None else wanted


class Bar:
    """A tqdm bar that a ``with`` block closes; nothing if `is_bar_wanted` says no."""

    def __init__(self, show: str | bool, **options: Any) -> None:
        # Even a disabled bar would start tqdm's monitor thread.
        self._bar: Any = tqdm(leave=False, **options) if is_bar_wanted(show) else None

    def __enter__(self) -> Self:
        """Return the bar."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close the bar."""
        if self._bar is not None:
            self._bar.close()

    def advance(self, text: str = "", total: int | None = None) -> None:
        """Move on by one step, with a text at the end of the bar and a new total."""
        if self._bar is not None:
            self._bar.total = self._bar.total if total is None else total
            self._bar.set_postfix_str(text, refresh=False)
            self._bar.update()


class PredictedEnd:
    """How many iterations a fit will need if its optimality gap goes on falling as it does.

    >>> end = PredictedEnd(tol=1e-3, max_iter=500)
    >>> [end.after(i, 0.1 * 0.5**i) for i in (1, 2, 3, 5)]
    [None, None, 7, 7]
    """

    # The gap goes up and down, so its slope is that over several records.
    _FEWEST, _MOST = 3, 20

    def __init__(self, tol: float, max_iter: int) -> None:
        self._goal = math.log(tol) if tol > 0 else -math.inf
        self._max_iter = max_iter
        self._seen: deque[tuple[int, float]] = deque(maxlen=self._MOST)

    def after(self, iteration: int, gap: float) -> int | None:
        """Take in the gap of an iteration; return the number of all, None if unknown."""
        if self._goal == -math.inf:
            return self._max_iter
        if 0 < gap < math.inf:
            self._seen.append((iteration, math.log(gap)))
        if len(self._seen) < self._FEWEST:
            return None
        (first, at_first), (last, now) = self._seen[0], self._seen[-1]
        slope = (now - at_first) / (last - first)
        if slope >= 0:
            return None
        left = max((self._goal - now) / slope, 1.0)
        return int(min(iteration + left + 0.5, self._max_iter))


# Without a bar and the time left, for a fit whose end is not known.
_UNKNOWN_END = "{desc}: {n_fmt}/{total_fmt} [{elapsed}{postfix}]"


class ProgressBar(Bar):
    """The bar of a fit: iterations, objective and optimality gap."""

    def __init__(self, show: str | bool, tol: float, max_iter: int, n_done: int = 0) -> None:
        delay = SECONDS_BEFORE_SHOWN if show == "auto" else 0.0
        options = {"desc": "klnmf", "unit": "it", "delay": delay, "bar_format": _UNKNOWN_END}
        super().__init__(show, total=max_iter, initial=n_done, **options)
        self._end, self._n_done, self._max_iter = PredictedEnd(tol, max_iter), n_done, max_iter

    def update(self, record: dict[str, Any]) -> None:
        """Move on by one iteration."""
        objective, gap = record["objective"], record["optimality_gap"]
        self._n_done += 1
        end = self._end.after(self._n_done, gap)
        if self._bar is not None:
            self._bar.bar_format = _UNKNOWN_END if end is None else None
        total = self._max_iter if end is None else end
        self.advance(f"objective {objective:.6g}, gap {gap:.1e}", total)


# tqdm assumes that all steps take equally long. This format leaves its estimate out.
_FORMAT = "{desc}: {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} {unit}s [{elapsed}{postfix}]"


class WorkProgress(Bar):
    """Shows how many fits are done and tells the callback of each."""

    def __init__(self, options: Any, name: str, unit: str, n_done: int, n_all: int) -> None:
        super().__init__(
            options.progress,
            total=n_all,
            initial=n_done,
            desc=f"klnmf {name}",
            unit=unit,
            bar_format=_FORMAT,
        )
        self._callback = options.callback

    def update(self, record: dict[str, Any], n_all: int, text: str = "") -> None:
        """Move on by one fit, of which the record has ``seconds_left``, None if not known."""
        left = record["seconds_left"]
        self.advance(text + ("" if left is None else f"about {duration(left)} left"), n_all)
        if self._callback is not None:
            self._callback(record)


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
