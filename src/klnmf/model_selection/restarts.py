"""Fits of the same data from many starts; X is prepared once for all."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from klnmf.solvers.base import Problem
from klnmf.solvers.coordinate_descent import SparseCoordinateDescent
from klnmf.solvers.loop import MaxIterations, Run, SmallGain
from klnmf.solvers.start import start_state
from klnmf.support.threads import run_in_threads

Array = npt.NDArray[Any]


class Fit(NamedTuple):
    """The result of a run."""

    components: Array  # n_components × n_features, float32, each of Euclidean length 1
    objective: float


def restarted(
    problem: Problem,
    n_components: int,
    runs: Iterable[int],
    *,
    init: str,
    enough: float,
    max_iter: int,
    seed: int,
    n_jobs: int,
    on_fit: Callable[[int, Fit], None],
) -> None:
    """Do these runs, ``n_jobs`` at a time; run i depends on (seed, i) alone.

    A run is over when an iteration gains less than ``enough`` of the objective, or after
    ``max_iter``. ``on_fit`` is then called with its number and its fit, in the calling thread.
    """
    problem.backend.data.prepare()  # here, not in several threads at once

    def fit(run: int) -> Fit:
        its_seed = int(np.random.default_rng([seed, run]).integers(2**31 - 1))
        state = start_state(problem, n_components, init, its_seed)
        fresh = Run.started(problem, SparseCoordinateDescent(), state)
        fresh.until(SmallGain(enough), MaxIterations(max_iter))
        H = problem.backend.download(state.factors[1])
        components = np.array(H.T, dtype=np.float32, order="C")
        lengths = np.linalg.norm(components, axis=1, keepdims=True)
        components /= np.where(lengths > 0, lengths, 1)
        return Fit(components, float(state.objective))

    run_in_threads(fit, list(runs), n_jobs, on_fit)
