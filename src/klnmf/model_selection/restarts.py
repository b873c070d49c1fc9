"""Many fits of the same data from different starts; X is prepared once and shared by all."""

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
    """What is kept of a run."""

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
    """Do these runs, several at a time; run i depends on (seed, i) alone.

    Parameters
    ----------
    problem : Problem
        The data on a back-end, which all runs read.
    n_components : int
        Number of components.
    runs : iterable of int
        Numbers of the runs.
    init : str
        Where a run starts.
    enough : float
        A run is over when an iteration gains less than this share of the objective.
    max_iter : int
        Iterations of a run at most.
    seed : int
        Of all.
    n_jobs : int
        Runs at a time.
    on_fit : callable
        Called with the number of a run and its fit, in the calling thread, when it is over.
    """
    problem.backend.data.prepare()  # here, not in several threads at once

    def fit(run: int) -> Fit:
        its_seed = int(np.random.default_rng([seed, run]).integers(2**31 - 1))
        state = start_state(problem, n_components, init, its_seed)
        fresh = Run.started(problem, SparseCoordinateDescent(), state)
        fresh.until(SmallGain(enough), MaxIterations(max_iter))
        components = np.ascontiguousarray(np.asarray(state.factors[1], dtype=np.float32).T)
        lengths = np.linalg.norm(components, axis=1, keepdims=True)
        components /= np.where(lengths > 0, lengths, 1)
        return Fit(components, float(state.objective))

    run_in_threads(fit, list(runs), n_jobs, on_fit)
