"""Progress bars for long work."""

import sys
from typing import Any, Self

import numpy as np
from tqdm.auto import tqdm

# Fits that take less time than this show no bar.
SECONDS_BEFORE_SHOWN = 3.0


def is_bar_wanted(progress: str | bool) -> bool:
    """Whether to show a bar: "auto" shows it on a terminal only.

    >>> is_bar_wanted(True), is_bar_wanted(False)
    (True, False)
    """
    if isinstance(progress, bool | np.bool_):
        return bool(progress)
    if progress != "auto":
        raise ValueError(f"progress must be 'auto', True or False; got {progress!r}.")
    return sys.stderr is not None and sys.stderr.isatty()


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


class ProgressBar(Bar):
    """The bar of a fit: iterations, objective and optimality gap."""

    def __init__(self, show: str | bool, total: int, n_done: int = 0) -> None:
        delay = SECONDS_BEFORE_SHOWN if show == "auto" else 0.0
        super().__init__(show, total=total, initial=n_done, desc="klnmf", unit="it", delay=delay)

    def update(self, record: dict[str, Any]) -> None:
        """Move on by one iteration."""
        objective, gap = record["objective"], record["optimality_gap"]
        self.advance(f"objective {objective:.6g}, gap {gap:.1e}")
