"""`bootstrap`: how far the parts of a model would move if the data were drawn again."""

from __future__ import annotations

import warnings
from numbers import Integral
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.utils import check_random_state
from threadpoolctl import threadpool_limits
from tqdm.auto import tqdm

from klnmf.backends import make_backend
from klnmf.backends.cpu import effective_threads
from klnmf.data.sparse_data import SparseData
from klnmf.estimators.kl_nmf import KLNMF
from klnmf.objective import Penalties
from klnmf.solvers.base import Problem
from klnmf.support.progress import is_bar_wanted
from klnmf.topics import component_shares, plsi_probabilities
from klnmf.topics.checks import Names
from klnmf.uncertainty.bootstrap_result import Bootstrap, Draws
from klnmf.uncertainty.inputs import (
    check_is_data_of_fit,
    checked_level,
    checked_whole_counts,
    n_fixed_components,
    names_of_features,
)
from klnmf.uncertainty.intervals import interior, share_intervals
from klnmf.uncertainty.limits import upper_limits
from klnmf.uncertainty.moments import RunningMoments
from klnmf.uncertainty.replicates import replicates

Array = npt.NDArray[Any]
FloatArray = npt.NDArray[np.float64]


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
    """Intervals for components and for samples' proportions, by the parametric bootstrap.

    Counts are drawn from the fitted model, X* ~ Poisson(W Hᵀ), and the model is fitted to them,
    starting at its own factors; the components of the refit are matched to those of the model. How
    far the refits scatter says how far the model would be off if it were true.

    The intervals are about the estimate, with the runs' standard deviation as standard error: a
    hundred runs are enough for that, where percentiles of the runs, which are the usual choice,
    need several hundred to cover as they should (docs/performance.md, "How sure", has the measured
    coverage). Entries near 0 or 1 are marked as such (``is_interior``); their intervals come from
    the likelihood as well and are one-sided. Components that were fixed in the fit are known: they
    are the same in all runs, and the ends of their intervals are the estimate.

    What they do not tell: whether the model is right. Counts that vary more than Poisson counts, a
    wrong number of components and another local optimum are not in them, and components that the
    data do not determine (no component has features or samples of its own) may be off by more.
    The divergence of the data is compared with that of the runs, and the printed result says so
    where the data vary more than the model allows.

    Parameters
    ----------
    model : KLNMF
        A fitted model. Intervals of a penalised model are about what the penalised fit estimates.
    X : {array-like, sparse matrix or array, DataFrame} of shape (n_samples, n_features)
        The counts that it was fitted to; others are refused.
    n_runs : int, default=100
        Refits; at least 2. The standard error from 100 is right to 7 %.
    level : float, default=0.95
        Probability with which an interval should contain the truth.
    samples : array-like of int or bool, default=None
        Samples whose proportions are wanted: row numbers, or a mask. None is all of them, an empty
        list none. Memory is that of five arrays of this many samples × components, however many
        runs there are.
    keep_draws : bool, default=False
        Keep the shares of every run, in float32, to compute anything else from them. That is
        ``n_runs`` × (n_features + n_samples) × n_components numbers; more than 4 GiB of them are
        refused.
    feature_names : sequence of str, default=None
        For the printed result and pictures; None takes those that the model saw in ``fit``.
    n_jobs : int, default=None
        Runs at a time, each in one thread; None is as many as there are CPUs. The result does not
        depend on it.
    random_state : int, RandomState instance or None, default=None
        Seed of the draws.
    progress : {"auto"} or bool, default="auto"
        Progress bar; "auto" shows one on a terminal.

    Returns
    -------
    Bootstrap
        With `Intervals` for ``components``, ``proportions`` and ``sizes``. It prints as a table and
        can be plotted.

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
    _check_arguments(model, n_runs)
    level, shows_bar = checked_level(level), is_bar_wanted(progress)
    counts = checked_whole_counts(model, X)
    check_is_data_of_fit(
        model,
        counts,
        "The intervals are about the fit: pass the X of the fit, all of it (samples= chooses whose "
        "proportions are returned), or fit a model to this X.",
    )
    names = names_of_features(model, feature_names)
    chosen = _chosen_samples(samples, counts.shape[0])
    jobs = min(effective_threads(n_jobs, "n_jobs"), n_runs)
    seed = int(check_random_state(random_state).randint(np.iinfo(np.int32).max))
    H = model._H()
    draws = Draws.empty(n_runs, H.shape[::-1], len(chosen)) if keep_draws else None
    W, components = model._solve_W(counts, H), np.ascontiguousarray(H.T)

    estimates = _shares(W, components, chosen)
    moments = [RunningMoments(shares.shape) for shares in estimates]
    similarity, divergences = np.empty((n_runs, len(components))), np.empty(n_runs)
    n_converged = 0
    bar = tqdm(total=n_runs, desc="klnmf bootstrap", leave=False) if shows_bar else None
    try:
        # Each run is one thread. Refits that stop early are counted, and what else there is to
        # warn of, the fit of the model did.
        with threadpool_limits(limits=1), warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            for run, refit in enumerate(replicates(model, W, components, n_runs, seed, jobs)):
                shares = _shares(refit.W, refit.components, chosen)
                for moment, values in zip(moments, shares, strict=True):
                    moment.add(values)
                if draws is not None:
                    draws.put(run, *shares)
                similarity[run], divergences[run] = refit.similarity, refit.divergence
                n_converged += refit.converged
                if bar is not None:
                    bar.update()
    finally:
        if bar is not None:
            bar.close()

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
        n_converged=n_converged,
        level=level,
        feature_names=names,
        draws=draws,
    )


def _divergence(counts: sp.csr_array, W: Array, H: Array, n_threads: int) -> float:
    problem = Problem(make_backend("auto", SparseData(counts), n_threads), Penalties())
    return problem.objective([W, H])


def _shares(W: Array, components: Array, samples: Array) -> tuple[FloatArray, ...]:
    """P(feature | component), P(component | sample) of these samples, and P(component) as a row."""
    mixture = plsi_probabilities(W[samples], components)
    sizes = component_shares(components, W)
    return (
        mixture.feature_given_component,
        mixture.component_given_sample,
        sizes[np.newaxis, :],
    )


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
    """How much every share at the boundary could be larger, by the likelihood of its row.

    The first ``n_fixed`` components are known, and have no room.
    """
    outside = [
        ~interior(shares, moment.standard_deviation)
        for shares, moment in zip(estimates, moments, strict=True)
    ]
    outside[0][:n_fixed] = False
    alpha = 1.0 - level
    by_feature = sp.csr_array(counts.T)
    of_H = upper_limits(by_feature, H, W, np.ascontiguousarray(outside[0].T), alpha).T
    of_W = upper_limits(counts[samples], W[samples], H, outside[1], alpha)
    masses = H.sum(axis=0, dtype=np.float64)
    totals = W[samples].astype(np.float64) @ masses
    with np.errstate(divide="ignore", invalid="ignore"):
        # The rest keeps its mass: h + u of what is then s + u.
        component_room = _added_share(of_H, masses[:, np.newaxis], estimates[0])
        sample_room = _added_share(of_W * masses, totals[:, np.newaxis], estimates[1])
    return component_room, sample_room, np.zeros_like(estimates[2])


def _added_share(added: FloatArray, total: FloatArray, share: FloatArray) -> FloatArray:
    """By how much a share rises where its part of the total rises by this much."""
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
            f"samples must be row numbers or a mask of {n_samples} truth values; got an array of "
            f"shape {given.shape} and type {given.dtype}."
        )
    if given.min() < 0 or given.max() >= n_samples:
        raise ValueError(
            f"samples must be from 0 to {n_samples - 1}; got {given.min()} to {given.max()}."
        )
    return given.astype(np.intp)


def _check_arguments(model: Any, n_runs: Any) -> None:
    if not isinstance(model, KLNMF):
        raise TypeError(
            f"bootstrap takes a fitted KLNMF, which is refitted from its own factors; got "
            f"{type(model).__name__}. KLNMF(...).fit(X, H=model.components_) makes one from the "
            "components of any other model."
        )
    if not isinstance(n_runs, Integral) or int(n_runs) < 2:
        raise ValueError(f"n_runs must be a whole number of at least 2; got {n_runs!r}.")
