"""Refits of a model to data that are drawn from it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from sklearn.base import clone

from klnmf.estimators.kl_nmf import KLNMF
from klnmf.estimators.run_options import RunOptions
from klnmf.simulate import draw_counts
from klnmf.topics import match_components
from klnmf.uncertainty.inputs import n_fixed_components

Array = npt.NDArray[Any]


class Replicate(NamedTuple):
    """A refit, with its components in the order of the model."""

    W: Array
    components: Array
    similarity: Array  # cosine similarity of each component with the model's
    divergence: float
    converged: bool


def replicates(
    model: KLNMF, W: Array, components: Array, n_runs: int, seed: int, n_jobs: int
) -> Iterator[Replicate]:
    """Yield refits with the parameters of the model, in the order of the runs.

    Data are drawn from the factors W and components, and the refits start there. Run i depends on
    (seed, i) alone. At most ``n_jobs`` refits are in memory.
    """
    n_fixed = n_fixed_components(model)
    rates = [factor.astype(np.float64) for factor in (W, components)]
    estimator = clone(model).set_params(
        n_init=1,
        n_threads=1,
        sparse_output=False,
        warm_start=False,
        backend="reference" if model.backend == "reference" else "auto",
        run=RunOptions(progress=False),
        # A table of fixed components may have its columns in another order than X.
        fixed_components=components[:n_fixed] if n_fixed else None,
    )

    def replicate(run: int) -> Replicate:
        generator = np.random.default_rng([seed, run])
        drawn = draw_counts(rates[0], rates[1], generator).astype(components.dtype)
        refit = clone(estimator).set_params(random_state=int(generator.integers(2**31 - 1)))
        new_W = refit.fit_transform(drawn, W=W, H=components)
        order, similarity = _matched(components, refit.components_, n_fixed)
        return Replicate(
            new_W[:, order],
            refit.components_[order],
            similarity,
            float(refit.divergence_),
            bool(refit.converged_),
        )

    with ThreadPoolExecutor(n_jobs) as pool:
        waiting: deque[Future[Replicate]] = deque()
        try:
            for run in range(n_runs):
                waiting.append(pool.submit(replicate, run))
                if len(waiting) == n_jobs:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _matched(components: Array, refitted: Array, n_fixed: int) -> tuple[Array, Array]:
    """Order and similarity of a refit's components; the first ones are fixed and stay first."""
    order = np.arange(len(components))
    similarity = np.ones(len(components))
    if n_fixed < len(components):
        match = match_components(components[n_fixed:], refitted[n_fixed:])
        order[n_fixed:] = n_fixed + match.second
        similarity[n_fixed:] = match.similarity
    return order, similarity
