"""How a fit is run: options that do not change what is fitted."""

import os
from collections.abc import Callable
from numbers import Real
from typing import Any, ClassVar

from sklearn.utils._param_validation import Interval, StrOptions

from klnmf.estimators.arguments import ChecksParameters
from klnmf.solvers.loop import Record
from klnmf.support.descriptions import described


class RunOptions(ChecksParameters):
    """How long work is run: checkpoints, progress bar and callback.

    Pass it as ``KLNMF(run=RunOptions(...))``; `klnmf.model_selection.select_rank` and ``consensus``
    take it too, `klnmf.uncertainty.posterior` without the callback, and
    `klnmf.uncertainty.bootstrap` its ``progress``. It has ``get_params`` and
    ``set_params``, so that ``model.set_params(run__checkpoint="other.checkpoint")`` works too.
    Model files do not hold it.

    Parameters
    ----------
    checkpoint : str or path, default=None
        File to which a fit writes its progress: at the start, every ``checkpoint_every`` seconds,
        at the end, and on Ctrl-C, which then waits for the end of the iteration (press it twice to
        stop at once). A fit that was killed continues from there to exactly the same result. Use a
        different file for each fit.
    checkpoint_every : float, default=60.0
        Seconds between two checkpoints; 0 writes one before each iteration.
    resume : {"auto"} or bool, default="auto"
        Whether to continue from ``checkpoint``: "auto" does so if the file exists, True requires
        it, False starts again and overwrites it. X and all parameters that matter must be the
        same; otherwise an error says what differs. ``max_iter``, which includes earlier iterations,
        and ``tol`` may differ, so that a finished fit can be continued.
    progress : {"auto"} or bool, default="auto"
        Whether to show a progress bar; "auto" shows one on a terminal when a fit takes more than a
        few seconds.
    callback : callable, default=None
        Called with each record of ``history_``; the fit stops when it returns a true value.
        Functions that do several fits call it after each, with records of their own.

    Examples
    --------
    >>> from klnmf import KLNMF, RunOptions
    >>> from klnmf.simulate import simulate_counts
    >>> X = simulate_counts(60, 40, 3, random_state=0).X
    >>> ten_seconds = RunOptions(callback=lambda record: record["seconds"] > 10)
    >>> KLNMF(3, random_state=0, run=ten_seconds).fit(X).converged_
    True
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "checkpoint": [None, str, os.PathLike],
        "checkpoint_every": [Interval(Real, 0, None, closed="left")],
        "resume": [StrOptions({"auto"}), "boolean"],
        "progress": [StrOptions({"auto"}), "boolean"],
        "callback": [None, callable],
    }

    def __init__(
        self,
        *,
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_every: float = 60.0,
        resume: str | bool = "auto",
        progress: str | bool = "auto",
        callback: Callable[[Record], Any] | None = None,
    ) -> None:
        self.checkpoint = checkpoint
        self.checkpoint_every = checkpoint_every
        self.resume = resume
        self.progress = progress
        self.callback = callback


def checked_run_options(run: RunOptions | None, function: str = "", *taken: str) -> RunOptions:
    """Return valid options: those given, or the defaults.

    Of a function that has use for a few of them, the others are refused by name.
    """
    defaults = RunOptions()
    options = defaults if run is None else run
    if not isinstance(options, RunOptions):
        raise TypeError(f"run must be a klnmf.RunOptions or None; got {described(run)}.")
    options._validate_params()
    for name, value in options.get_params().items():
        if taken and name not in taken and value != getattr(defaults, name):
            raise ValueError(
                f"{function} has no use for RunOptions({name}=...): of these options it takes "
                f"{', '.join(taken)}."
            )
    return options
