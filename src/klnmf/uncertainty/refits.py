"""Refits of a model to counts that are drawn from it."""

import math
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from sklearn.base import clone

from klnmf.backends import CLUSTERS
from klnmf.constraints.constraints import ComponentConstraints, Constraints
from klnmf.data.sparse_tensor import SparseTensor
from klnmf.estimators.kl_nmf import KLNMF
from klnmf.estimators.poisson_cp import PoissonCP
from klnmf.estimators.run_options import RunOptions
from klnmf.simulate import draw_counts, drawn_tensor, one_for_each
from klnmf.support.array_types import Array, FloatArray
from klnmf.topics import component_similarity, match_components
from klnmf.uncertainty.data_of_fit import DataOfFit

LABELS_INSTEAD = (
    "feature_names are for matrices. Pass SparseTensor(..., labels=...), with the labels of every "
    "mode."
)


class Refit(NamedTuple):
    """A refit, with its components in the order of the model."""

    W: Array
    components: Array  # of a tensor, all modes but the first side by side
    similarity: Array  # cosine similarity of each component with the model's
    converged: bool


def refits(
    model: KLNMF | PoissonCP,
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
    (W, H), sizes = data.rates, data.counts.shape[1:]
    components = np.ascontiguousarray(data.H.T)
    arguments, parameters = data.constraints.as_given(), {}
    if isinstance(model, PoissonCP):
        arguments["start"] = [data.W, *model._others()]
    else:
        names = ComponentConstraints.__annotations__
        parameters = {name: arguments.pop(name, None) for name in names}
        arguments |= {"W": data.W, "H": components}
    stays = _stays_in_place(data.constraints)
    estimator = clone(model).set_params(
        n_init=1,
        n_threads=1,
        sparse_output=False,
        warm_start=False,
        backend="auto" if model.backend in CLUSTERS else model.backend,
        run=RunOptions(progress=False),
        **parameters,
    )
    estimator.set_output(transform="default")

    def refit(run: int) -> Refit:
        generator = np.random.default_rng([seed, run])
        drawn = drawn_counts(W, H, sizes, generator, dispersion, data.H.dtype)
        again = clone(estimator).set_params(random_state=int(generator.integers(2**31 - 1)))
        new_W = again.fit_transform(drawn, **arguments)
        found = np.ascontiguousarray(np.concatenate(again._others()).T)
        order, similarity = matched(comparable(components, sizes), comparable(found, sizes), stays)
        return Refit(new_W[:, order], found[order], similarity, bool(again.converged_))

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


def drawn_counts(
    W: FloatArray,
    H: Array,
    sizes: Sequence[int],
    generator: np.random.Generator,
    dispersion: float | FloatArray,
    dtype: Any,
) -> Any:
    """Draw counts with the rates W Hᵀ; of a tensor, H has the rows of modes of these sizes."""
    if len(sizes) == 1:
        return draw_counts(W, H.T, generator, dispersion=dispersion).astype(dtype)
    factors = [W, *np.split(H.astype(np.float64), np.cumsum(sizes[:-1]))]
    sums = np.array([factor.sum(axis=0) for factor in factors])
    shares = [
        factor / np.where(of > 0.0, of, 1.0) for factor, of in zip(factors, sums, strict=True)
    ]
    alpha = one_for_each("dispersion", dispersion, len(shares[1]), "rows of the second mode")
    drawn = drawn_tensor(generator, shares, sums.prod(axis=0), alpha)
    return SparseTensor(drawn.coords, drawn.values.astype(dtype), drawn.shape)


def _stays_in_place(constraints: Constraints) -> npt.NDArray[np.bool_]:
    """By component, whether a refit cannot find it in another place: it is fixed or has zeros."""
    is_frozen = [constraints.is_frozen(mode) for mode in range(len(constraints.shape))]
    return np.asarray(np.any(is_frozen, axis=0) | constraints.has_zeros)


def unit_spectra(by_mode: Sequence[Array]) -> Array:
    """Return components of length 1, in which every mode, an array of rows, has the same length."""
    parts = []
    for rows in by_mode:
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        parts.append(rows / (np.where(lengths > 0, lengths, 1) * math.sqrt(len(by_mode))))
    return np.concatenate(parts, axis=1)


def comparable(components: Array, sizes: Sequence[int]) -> Array:
    """Return components in which every mode counts the same; those of a matrix as they are."""
    if len(sizes) == 1:
        return components
    return unit_spectra(np.split(components, np.cumsum(sizes[:-1]), axis=1))


def matched(components: Array, refitted: Array, stays: Array) -> tuple[Array, Array]:
    """Order and similarity of a refit's components, of which some stay in their places."""
    order = np.arange(len(components))
    free = np.flatnonzero(~stays)
    if len(free):
        order[free] = free[match_components(components[free], refitted[free]).second]
    similarity = component_similarity(components, refitted[order]).diagonal()
    return order, np.asarray(similarity)
