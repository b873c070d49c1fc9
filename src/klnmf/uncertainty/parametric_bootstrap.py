"""`bootstrap`: intervals for the parts of a model, from refits to simulated data."""

import warnings
from typing import Any, Literal, Unpack, get_args

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

from klnmf.backends.cpu import effective_threads
from klnmf.constraints.constraints import FitConstraints
from klnmf.estimators.arguments import check_arguments
from klnmf.estimators.base import FIT_ARGUMENTS
from klnmf.estimators.kl_nmf import KLNMF
from klnmf.estimators.run_options import RunOptions, checked_run_options
from klnmf.support.array_types import Array, FloatArray
from klnmf.support.number_checks import checked_fraction, checked_whole, seed_of
from klnmf.support.progress import Bar
from klnmf.topics import component_shares, plsi_probabilities
from klnmf.topics.checks import Names, checked_choice
from klnmf.uncertainty.bootstrap_result import Bootstrap
from klnmf.uncertainty.data_of_fit import DataOfFit, data_of_fit, names_of_features
from klnmf.uncertainty.intervals import SpreadOfRuns, interior, share_intervals, upper_limits
from klnmf.uncertainty.overdispersion import Dispersion, estimated_dispersion, poisson_dispersion
from klnmf.uncertainty.refits import refits
from klnmf.uncertainty.residual_moments import FittedRates, nonzeros

Noise = Literal["estimated", "poisson"]


def bootstrap(
    model: KLNMF,
    X: Any,
    n_runs: int = 100,
    *,
    level: float = 0.95,
    noise: Noise = "estimated",
    samples: npt.ArrayLike | None = None,
    feature_names: Names | None = None,
    n_jobs: int | None = None,
    random_state: int | np.random.RandomState | None = None,
    run: RunOptions | None = None,
    **constraints: Unpack[FitConstraints],
) -> Bootstrap:
    """Compute intervals for components and sample proportions by the parametric bootstrap.

    Each run draws counts from the fitted model and refits the model to them, starting from the
    fitted factors. The counts have the mean W Hᵀ and the `dispersion` of the data by feature: they
    are negative binomial, or Poisson if the data vary no more than that. The spread of the refits
    shows how accurate the estimates are if the model is correct.

    The intervals are centred on the estimate, and their length follows from the variance and the
    bias of the runs. Entries near 0 or 1 (where ``is_interior`` is False) have
    one-sided intervals, which also use the likelihood. What was fixed in the fit stays fixed, and
    has intervals of length 0. The measured coverage is in docs/performance.md.

    The intervals do not cover noise that several cells share, a wrong number of components, or
    other local optima.

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
    noise : {"estimated", "poisson"}, default="estimated"
        Whether the drawn counts vary as the data do, or as Poisson counts.
    samples : array-like of int or bool, default=None
        Samples whose proportions are returned: row numbers or a mask. None selects all samples, an
        empty list none. The memory needed is that of seven arrays of these samples × components.
    feature_names : sequence of str, default=None
        Names for the printed result and plots. None uses the names seen in ``fit``.
    n_jobs : int, default=None
        Number of runs at a time, each in one thread. None uses all CPUs. The result does not depend
        on it.
    random_state : int, RandomState instance or None, default=None
        Seed of the draws.
    run : RunOptions, default=None
        ``RunOptions(progress=...)`` says whether to show a progress bar; by default on a terminal
        only. It has no use for the other options, and refuses them.
    **constraints
        ``sample_weight``, ``exposure``, ``missing``, ``fixed_W`` and ``zero_W``, as in
        ``KLNMF.fit``, if the model was fitted with them. The refits have the same.

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
    check_arguments(constraints, "bootstrap", (*FIT_ARGUMENTS, "run"))
    options = checked_run_options(run, "bootstrap", "progress")
    checked_choice(noise, "noise", get_args(Noise))
    way_out = (
        "Pass the complete X of the fit (samples= selects the proportions to return), or fit a "
        "model to this X."
    )
    data = data_of_fit(model, X, {**constraints}, "bootstrap", way_out)
    names = names_of_features(model, feature_names)
    n_samples, n_features = data.counts.shape
    chosen = _chosen_samples(samples, n_samples)
    jobs = min(effective_threads(n_jobs, "n_jobs"), n_runs)
    seed = seed_of(random_state)
    estimated = noise == "estimated"
    rates = data.fitted_rates
    found = estimated_dispersion(rates) if estimated else poisson_dispersion(n_features)

    spreads = [SpreadOfRuns(shares) for shares in shares_of(data.W, data.H.T, chosen)]
    similarity, converged = [], 0
    with (
        Bar(options.progress, total=n_runs, desc="klnmf bootstrap") as bar,
        threadpool_limits(limits=1),
        warnings.catch_warnings(),
    ):
        # The fit of the model has given these warnings. Refits that stop early are counted.
        warnings.simplefilter("ignore", UserWarning)
        for refit in refits(model, data, found.by_feature, n_runs, seed, jobs):
            shares = shares_of(refit.W, refit.components, chosen)
            for spread, values in zip(spreads, shares, strict=True):
                spread.add(values)
            similarity.append(refit.similarity)
            converged += refit.converged
            bar.advance()

    rooms = _rooms(rates, found, chosen, spreads, level)
    intervals = [
        share_intervals(spread, room, given, level)
        for spread, room, given in zip(spreads, rooms, _given(data, chosen), strict=True)
    ]
    return Bootstrap(
        components=intervals[0],
        proportions=intervals[1],
        sizes=intervals[2],
        samples=chosen,
        similarity=np.array(similarity),
        n_converged=converged,
        level=level,
        noise=noise,
        dispersion=found,
        feature_names=names,
    )


def shares_of(W: Array, components: Array, samples: Array) -> tuple[FloatArray, ...]:
    """P(feature | component), P(component | sample) for these samples, and P(component)."""
    mixture = plsi_probabilities(W[samples], components)
    sizes = component_shares(components, W)[np.newaxis, :]
    return mixture.feature_given_component, mixture.component_given_sample, sizes


def _given(data: DataOfFit, samples: Array) -> tuple[Array, Array, Array]:
    """By component and feature, by sample and component, and by component: what is not estimated.

    A fixed column of W does not fix the proportions: the scale of its component is estimated.
    """
    (n, m), r = data.counts.shape, data.H.shape[1]
    of_components, of_samples = np.zeros((r, m), dtype=bool), np.zeros((n, r), dtype=bool)
    zero_W, zero_H = data.constraints.zeros
    of_components[data.constraints.is_frozen(1)] = True
    if zero_H is not None:
        of_components |= zero_H.toarray().T
    if zero_W is not None:
        of_samples |= zero_W.toarray()
    return of_components, of_samples[samples], np.zeros((1, r), dtype=bool)


def _rooms(
    rates: FittedRates,
    dispersion: Dispersion,
    samples: Array,
    spreads: list[SpreadOfRuns],
    level: float,
) -> tuple[FloatArray, ...]:
    """How much larger each share near 0 or 1 could be, by the likelihood of its row.

    For counts that vary φ times as much as Poisson counts, it is the quasi-likelihood: the
    log-likelihood divided by φ, the mean of 1 + α y over the counts of the row.
    """
    counts, W, H = rates.counts, rates.W, rates.H
    outside = [~interior(spread.estimate, spread.standard_deviation) for spread in spreads]
    by_sample, by_feature = np.ones((2, counts.shape[0])), np.ones((2, counts.shape[1]))
    if not dispersion.is_poisson:
        by_sample[:], by_feature[:] = 1e-12, 1e-12
        for x, i, j, y in nonzeros(counts, W, H):
            excess = x * (1.0 + dispersion.by_feature[j] * y)
            for sums, place in ((by_sample, i), (by_feature, j)):
                sums[0] += np.bincount(place, excess, minlength=sums.shape[1])
                sums[1] += np.bincount(place, x, minlength=sums.shape[1])
    rise = -np.log(1.0 - level)
    missing = rates.missing
    of_H = upper_limits(
        sp.csr_array(counts.T),
        H,
        W,
        np.ascontiguousarray(outside[0].T),
        rise * by_feature[0] / by_feature[1],
        None if missing is None else sp.csr_array(missing.T),
    ).T
    of_W = upper_limits(
        counts[samples],
        W[samples],
        H,
        outside[1],
        (rise * by_sample[0] / by_sample[1])[samples],
        None if missing is None else missing[samples],
    )
    masses = H.sum(axis=0)
    totals = W[samples] @ masses
    with np.errstate(divide="ignore", invalid="ignore"):
        # With u added and the rest unchanged, a share h / s becomes (h + u) / (s + u).
        component_room = _added_share(of_H, masses[:, np.newaxis], spreads[0].estimate)
        sample_room = _added_share(of_W * masses, totals[:, np.newaxis], spreads[1].estimate)
    return component_room, sample_room, np.zeros_like(spreads[2].estimate)


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
