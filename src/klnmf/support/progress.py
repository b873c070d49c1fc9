"""A progress bar for long fits."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any, Self

import numpy as np
from tqdm.auto import tqdm

# Fits that are over sooner show no bar.
SECONDS_BEFORE_SHOWN = 3.0


def is_bar_wanted(progress: str | bool) -> bool:
    """Whether to show a bar: "auto" is on a terminal only, and anything but a bool is refused.

    Examples
    --------
    >>> is_bar_wanted(True), is_bar_wanted(False)
    (True, False)
    """
    if isinstance(progress, bool | np.bool_):
        return bool(progress)
    if progress != "auto":
        raise ValueError(f"progress must be 'auto', True or False; got {progress!r}.")
    return sys.stderr is not None and sys.stderr.isatty()


class ClosesBar:
    """Something with a bar, closed at the end of a ``with``, whatever happened."""

    _bar: Any

    def __enter__(self) -> Self:
        """Return this."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the bar."""
        if self._bar is not None:
            self._bar.close()


class ProgressBar(ClosesBar):
    """Shows iterations, objective and KKT residual; does nothing where it is not wanted.

    Parameters
    ----------
    show : {"auto", True, False}
        "auto" shows it on a terminal only, and only for a fit that takes some seconds.
    total : int
        Iterations at most.
    n_done : int
        Iterations that were done before.
    """

    def __init__(self, show: str | bool, total: int, n_done: int = 0) -> None:
        automatic = show == "auto"
        self._bar: Any = None
        # Even a disabled bar would start tqdm's monitor thread; where none is wanted, make none.
        if is_bar_wanted(show):
            self._bar = tqdm(
                total=total,
                initial=n_done,
                desc="klnmf",
                unit="it",
                delay=SECONDS_BEFORE_SHOWN if automatic else 0,
                leave=False,
            )

    def update(self, record: dict[str, Any]) -> None:
        """Move on by one iteration."""
        if self._bar is None:
            return
        self._bar.set_postfix_str(
            f"objective {record['objective']:.6g}, KKT {record['kkt_residual']:.1e}", refresh=False
        )
        self._bar.update()
