"""`bootstrap`: intervals for the parts of a model, from refits to simulated data."""

import warnings
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.utils import check_random_state
from threadpoolctl import threadpool_limits

from klnmf.backends import make_backend
from klnmf.backends.cpu import effective_threads
from klnmf.data.sparse_data import InMemoryData
from klnmf.estimators.kl_nmf import KLNMF
from klnmf.estimators.run_options import RunOptions
from klnmf.objective import Penalties
from klnmf.simulate import draw_counts
from klnmf.solvers.base import Problem
from klnmf.support.array_types import Array, FloatArray
from klnmf.support.number_checks import checked_fraction, checked_whole
from klnmf.support.progress import Bar, is_bar_wanted
from klnmf.topics import component_shares, match_components, plsi_probabilities
from klnmf.topics.checks import Names
from klnmf.uncertainty.bootstrap_result import Bootstrap, Draws
from klnmf.uncertainty.inputs import (
    check_is_data_of_fit,
    checked_whole_counts,
    n_fixed_components,
    names_of_features,
)
from klnmf.uncertainty.intervals import RunningMoments, interior, share_intervals, upper_limits


def bootstrap(
    model: KLNMF,
    X: Any,
    n_runs: int = 100,
    *,
    level: float = 0.95,
    samples: npt.ArrayLike | None = None,
    keep_draws: bool = False,
    feature_names: Names | None = None,
    n_jobs: int | None = None,
    random_state: int | np.random.RandomState | None = None,
    progress: str | bool = "auto",
) -> Bootstrap:
    """Compute intervals for components and sample proportions by the parametric bootstrap.

    Each run draws counts from the fitted model, X* ~ Poisson(W Hᵀ), and refits the model to them,
    starting from the fitted factors. The spread of the refits shows how accurate the estimates are
    if the model is correct.

    The intervals are centred on the estimate, with the standard deviation over the runs as standard
    error. Entries near 0 or 1 (where ``is_interior`` is False) have one-sided intervals, which also
    use the likelihood. Components that were fixed in the fit stay fixed, and their intervals have
    length 0. The measured coverage is in docs/performance.md.

    The intervals do not cover counts that vary more than Poisson counts, a wrong number of
    components, or other local optima. The printed result has a warning if the data vary more than
    the model allows.

    Parameters
    ----------
    model : KLNMF
        A fitted model. For a penalised model, the intervals describe the penalised estimate.
    X : {array-like, sparse matrix or array, DataFrame} of shape (n_samples, n_features)
        The counts that the model was fitted to.
    n_runs : int, default=100
        Number of refits, at least 2. With 100 runs, standard errors are accurate to about 7 %.
    level : float, default=0.95
        Probability with which an interval should contain the true value.
    samples : array-like of int or bool, default=None
        Samples whose proportions are returned: row numbers or a mask. None selects all samples, an
        empty list none. The memory needed is that of five arrays of these samples × components.
    keep_draws : bool, default=False
        Whether to keep the shares of all runs, in float32: ``n_runs`` × (n_features + n_samples) ×
        n_components numbers, at most 4 GiB.
    feature_names : sequence of str, default=None
        Names for the printed result and plots. None uses the names seen in ``fit``.
    n_jobs : int, default=None
        Number of runs at a time, each in one thread. None uses all CPUs. The result does not depend
        on it.
    random_state : int, RandomState instance or None, default=None
        Seed of the draws.
    progress : {"auto"} or bool, default="auto"
        Show a progress bar. "auto" shows it on a terminal only.

    Returns
    -------
    Bootstrap
        `Intervals` for ``components``, ``proportions`` and ``sizes``.

    Examples
    --------
    >>> from klnmf import KLNMF
    >>> from klnmf.simulate import simulate_counts
    >>> from klnmf.uncertainty import bootstrap
    >>> X = simulate_counts(100, 40, 3, counts_per_sample=200, random_state=0).X
    >>> model = KLNMF(3, random_state=0).fit(X)
    >>> result = bootstrap(model, X, n_runs=20, random_state=0)
    >>> result.components.lower.shape, result.proportions.lower.shape
    ((3, 40), (100, 3))
    >>> bool((result.components.lower <= result.components.estimate).all())
    True
    """
    if not isinstance(model, KLNMF):
        raise TypeError(
            f"bootstrap needs a fitted KLNMF; got {type(model).__name__}. To convert another "
            "model, use KLNMF(...).fit(X, H=model.components_)."
        )
    n_runs = checked_whole("n_runs", n_runs, least=2)
    level = checked_fraction("level", level)
    is_bar_wanted(progress)  # an invalid value is an error before any work
    counts = checked_whole_counts(model, X)
    way_out = (
        "Pass the complete X of the fit (samples= selects the proportions to return), or fit a "
        "model to this X."
    )
    check_is_data_of_fit(model, counts, way_out)
    names = names_of_features(model, feature_names)
    chosen = _chosen_samples(samples, counts.shape[0])
    jobs = min(effective_threads(n_jobs, "n_jobs"), n_runs)
    seed = int(check_random_state(random_state).randint(np.iinfo(np.int32).max))
    H = model._H()
    draws = Draws.empty(n_runs, H.shape[::-1], len(chosen)) if keep_draws else None
    W, components = model._solve_W(counts, H), np.ascontiguousarray(H.T)

    estimates = _shares(W, components, chosen)
    moments = [RunningMoments(shares.shape) for shares in estimates]
    refits = []
    with (
        Bar(progress, total=n_runs, desc="klnmf bootstrap") as bar,
        threadpool_limits(limits=1),
        warnings.catch_warnings(),
    ):
        # The fit of the model has given these warnings. Refits that stop early are counted.
        warnings.simplefilter("ignore", UserWarning)
        for run, refit in enumerate(replicates(model, W, components, n_runs, seed, jobs)):
            shares = _shares(refit.W, refit.components, chosen)
            for moment, values in zip(moments, shares, strict=True):
                moment.add(values)
            if draws is not None:
                draws.components[run], draws.proportions[run], draws.sizes[run] = shares
            refits.append((refit.similarity, refit.divergence, refit.converged))
            bar.advance()
    similarity, divergences, converged = (np.array(column) for column in zip(*refits, strict=True))

    n_fixed = n_fixed_components(model)
    rooms = _rooms(counts, W, H, chosen, estimates, moments, level, n_fixed)
    of_components, of_proportions, of_sizes = (
        share_intervals(estimate, moment.mean, moment.standard_deviation, room, level, moment.n)
        for estimate, moment, room in zip(estimates, moments, rooms, strict=True)
    )
    for end in (of_components.lower, of_components.upper):
        end[:n_fixed] = of_components.estimate[:n_fixed]
    return Bootstrap(
        components=of_components,
        proportions=of_proportions,
        sizes=of_sizes,
        samples=chosen,
        similarity=similarity,
        divergence=_divergence(counts, W, H, jobs),
        run_divergences=divergences,
        n_converged=int(converged.sum()),
        level=level,
        feature_names=names,
        draws=draws,
    )


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
    order, similarity = np.arange(len(components)), np.ones(len(components))
    if n_fixed < len(components):
        match = match_components(components[n_fixed:], refitted[n_fixed:])
        order[n_fixed:] = n_fixed + match.second
        similarity[n_fixed:] = match.similarity
    return order, similarity


def _divergence(counts: sp.csr_array, W: Array, H: Array, n_threads: int) -> float:
    problem = Problem(make_backend("auto", InMemoryData(counts), n_threads), Penalties())
    with closing(problem.backend) as backend:
        return problem.objective([backend.upload(W), backend.upload(H)])


def _shares(W: Array, components: Array, samples: Array) -> tuple[FloatArray, ...]:
    """P(feature | component), P(component | sample) for these samples, and P(component)."""
    mixture = plsi_probabilities(W[samples], components)
    sizes = component_shares(components, W)[np.newaxis, :]
    return mixture.feature_given_component, mixture.component_given_sample, sizes


def _rooms(
    counts: sp.csr_array,
    W: Array,
    H: Array,
    samples: Array,
    estimates: tuple[FloatArray, ...],
    moments: list[RunningMoments],
    level: float,
    n_fixed: int,
) -> tuple[FloatArray, ...]:
    """How much larger each share near 0 or 1 could be, by the likelihood of its row.

    It is 0 for the first ``n_fixed`` components, which are fixed.
    """
    outside = [
        ~interior(shares, moment.standard_deviation)
        for shares, moment in zip(estimates, moments, strict=True)
    ]
    outside[0][:n_fixed] = False
    alpha = 1.0 - level
    of_features = np.ascontiguousarray(outside[0].T)
    of_H = upper_limits(sp.csr_array(counts.T), H, W, of_features, alpha).T
    of_W = upper_limits(counts[samples], W[samples], H, outside[1], alpha)
    masses = H.sum(axis=0, dtype=np.float64)
    totals = W[samples].astype(np.float64) @ masses
    with np.errstate(divide="ignore", invalid="ignore"):
        # With u added and the rest unchanged, a share h / s becomes (h + u) / (s + u).
        component_room = _added_share(of_H, masses[:, np.newaxis], estimates[0])
        sample_room = _added_share(of_W * masses, totals[:, np.newaxis], estimates[1])
    return component_room, sample_room, np.zeros_like(estimates[2])


def _added_share(added: FloatArray, total: FloatArray, share: FloatArray) -> FloatArray:
    """Increase of a share if this amount is added to its part of the total."""
    grown = np.where(np.isfinite(added), (share * total + added) / (total + added), 1.0)
    return np.asarray(np.nan_to_num(grown - share, nan=0.0))


def _chosen_samples(samples: npt.ArrayLike | None, n_samples: int) -> npt.NDArray[np.intp]:
    if samples is None:
        return np.arange(n_samples)
    given = np.asarray(samples)
    if given.size == 0:
        return np.empty(0, dtype=np.intp)
    if given.dtype == bool and given.shape == (n_samples,):
        return np.flatnonzero(given)
    if given.ndim != 1 or given.dtype.kind not in "iu":
        raise ValueError(
            f"samples must be row numbers or a mask of {n_samples} booleans; got an array of shape "
            f"{given.shape} and type {given.dtype}."
        )
    if given.min() < 0 or given.max() >= n_samples:
        raise ValueError(
            f"samples must be from 0 to {n_samples - 1}; got {given.min()} to {given.max()}."
        )
    return given.astype(np.intp)
