"""Refits of a model to counts that are drawn from it."""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from sklearn.base import clone

from klnmf.constraints.constraints import Constraints
from klnmf.estimators.kl_nmf import KLNMF
from klnmf.estimators.run_options import RunOptions
from klnmf.simulate import draw_counts
from klnmf.support.array_types import Array, FloatArray
from klnmf.topics import component_similarity, match_components
from klnmf.uncertainty.data_of_fit import DataOfFit


class Refit(NamedTuple):
    """A refit, with its components in the order of the model."""

    W: Array
    components: Array
    similarity: Array  # cosine similarity of each component with the model's
    converged: bool


def refits(
    model: KLNMF,
    data: DataOfFit,
    dispersion: float | FloatArray,
    n_runs: int,
    seed: int,
    n_jobs: int,
) -> Iterator[Refit]:
    """Yield refits with the parameters and the constraints of the model, in the order of the runs.

    Counts are drawn from the factors of the fit with this dispersion, and the refits start there.
    Run i depends on (seed, i) alone. At most ``n_jobs`` refits are in memory.
    """
    W, H = data.rates
    start = data.W, np.ascontiguousarray(data.H.T)
    of_components, of_samples = _constraints_by_name(data.constraints)
    stays = _stays_in_place(data.constraints)
    estimator = clone(model).set_params(
        n_init=1,
        n_threads=1,
        sparse_output=False,
        warm_start=False,
        backend="reference" if model.backend == "reference" else "auto",
        run=RunOptions(progress=False),
        **of_components,
    )
    estimator.set_output(transform="default")

    def refit(run: int) -> Refit:
        generator = np.random.default_rng([seed, run])
        drawn = draw_counts(W, H.T, generator, dispersion=dispersion).astype(data.H.dtype)
        again = clone(estimator).set_params(random_state=int(generator.integers(2**31 - 1)))
        new_W = again.fit_transform(drawn, W=start[0], H=start[1], **of_samples)
        order, similarity = matched(start[1], again.components_, stays)
        return Refit(new_W[:, order], again.components_[order], similarity, bool(again.converged_))

    with ThreadPoolExecutor(n_jobs) as pool:
        waiting: deque[Future[Refit]] = deque()
        try:
            for run in range(n_runs):
                waiting.append(pool.submit(refit, run))
                if len(waiting) == n_jobs:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _constraints_by_name(constraints: Constraints) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return constraints for the constructor and for fit, in the order of the features of X."""
    (fixed_W, fixed_H), (zero_W, zero_H) = constraints.fixed, constraints.zeros
    of_components = {
        "fixed_components": None if fixed_H is None else fixed_H.T,
        "zero_components": None if zero_H is None else zero_H.T,
        "feature_weight": constraints.feature_weight,
    }
    of_samples = {
        "sample_weight": constraints.sample_weight,
        "exposure": constraints.exposure,
        "missing": constraints.missing,
        "fixed_W": fixed_W,
        "zero_W": zero_W,
    }
    return of_components, {name: part for name, part in of_samples.items() if part is not None}


def _stays_in_place(constraints: Constraints) -> npt.NDArray[np.bool_]:
    """By component, whether a refit cannot find it in another place: it is fixed or has zeros."""
    is_frozen = constraints.is_frozen(0) | constraints.is_frozen(1)
    return np.asarray(is_frozen | constraints.has_zeros)


def matched(components: Array, refitted: Array, stays: Array) -> tuple[Array, Array]:
    """Order and similarity of a refit's components, of which some stay in their places."""
    order = np.arange(len(components))
    free = np.flatnonzero(~stays)
    if len(free):
        order[free] = free[match_components(components[free], refitted[free]).second]
    similarity = component_similarity(components, refitted[order]).diagonal()
    return order, np.asarray(similarity)
