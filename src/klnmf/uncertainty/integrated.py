"""`posterior`: components and proportions with the samples integrated out."""

from typing import Any, get_args

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

from klnmf.backends.cpu import effective_threads
from klnmf.backends.gibbs import LARGEST_COUNT, Cells, Chain
from klnmf.data.row_constraints import Pattern
from klnmf.data.tensor_data import data_in_memory
from klnmf.data.validation import warn_caller
from klnmf.estimators.arguments import check_arguments
from klnmf.estimators.kl_nmf import KLNMF
from klnmf.estimators.run_options import RunOptions, checked_run_options
from klnmf.saved.periodic_file import data_identity
from klnmf.support.array_types import Array, FloatArray
from klnmf.support.number_checks import checked_fraction, checked_whole
from klnmf.topics.checks import Names, checked_choice
from klnmf.uncertainty.data_of_fit import (
    DataOfFit,
    check_matrix_model,
    chosen_samples,
    data_of_fit,
    names_of_features,
)
from klnmf.uncertainty.intervals import posterior_intervals
from klnmf.uncertainty.overdispersion import (
    estimated_dispersion,
    poisson_dispersion,
    typical_rates,
)
from klnmf.uncertainty.parametric_bootstrap import Noise, given_entries, shares_of
from klnmf.uncertainty.posterior_chain import (
    PosteriorFile,
    Sums,
    Work,
    covariances,
    drift_of,
    effective_draws,
    moments_of_components,
    moments_of_sizes,
    run_chain,
)
from klnmf.uncertainty.posterior_result import Posterior

# Constraints that the sampler does not know, and why.
REFUSED = {
    "sample_weight": "a sample that counts twice is not two observations, and intervals would be "
    "as narrow as if it were",
    "feature_weight": "weighted counts are not counts, for which there is a probability",
    "fixed_W": "the prior of proportions is for samples of which no column of W is known",
    "zero_W": "the prior of proportions is for samples that may have any component",
}
FEWEST_SWEEPS = 30
# α times the typical rate of a feature from which on the factors of its zeros are drawn.
DRAWN_FROM = 0.1
# Times the Poisson variance from which on counts have factors of cells, for two to three times the
# time: less makes intervals hardly 1 % longer.
LEAST_FACTOR = 1.02
FLOOR = 1e-3  # share that the start gives to what the fit has at 0


def posterior(
    model: KLNMF,
    X: Any,
    *,
    n_sweeps: int = 1500,
    level: float = 0.95,
    noise: Noise = "estimated",
    samples: npt.ArrayLike | None = None,
    feature_names: Names | None = None,
    n_threads: int | None = None,
    random_state: int | np.random.RandomState | None = None,
    run: RunOptions | None = None,
    **constraints: Any,
) -> Posterior:
    """Estimate components and proportions with the samples' proportions integrated out.

    A fit estimates H together with the proportions of every sample. Where components share
    features, this pulls them apart, and more samples do not help: each brings its own proportions
    to estimate (docs/maths/posterior.md). Here the proportions are random, with a distribution that
    is learned from all samples, and the error of the components falls as samples are added. The
    fit is where the Gibbs sampler starts.

    Use it when components share a background, when there are many samples, or when intervals must
    hold. `bootstrap` describes the fit itself, with its weights, penalties and constraints.

    Parameters
    ----------
    model : KLNMF
        A fitted model. Its penalties are not used: the priors take their place.
    X : {array-like, sparse matrix or array, DataFrame} of shape (n_samples, n_features)
        The counts that the model was fitted to.
    n_sweeps : int, default=1500
        Number of sweeps; the first third is burn-in. The result warns if they show that they are
        too few; fewer than several hundred cannot show it.
    level : float, default=0.95
        Probability with which an interval should contain the true value.
    noise : {"estimated", "poisson"}, default="estimated"
        Whether counts vary around their rates as the data do (see `dispersion`), or as Poisson
        counts. More variation takes more time: the zeros of common features have to be drawn too.
        Less than 2 % more, on average over the counts, is none.
    samples, feature_names
        As in `bootstrap`.
    n_threads : int, default=None
        Number of threads. None uses all CPUs. The result is the same for any number, bit for bit.
    random_state : int, RandomState instance or None, default=None
        Seed of the draws.
    run : RunOptions, default=None
        Checkpoint and progress bar. A call that was interrupted continues from its checkpoint to
        the same result.
    **constraints
        ``exposure`` and ``missing``, as in ``KLNMF.fit``, if the model was fitted with them. Fixed
        components stay as they are, and entries that ``zero_components`` bars stay 0. Models with
        ``sample_weight``, ``feature_weight``, ``fixed_W`` or ``zero_W`` are refused.

    Returns
    -------
    Posterior
        Means and intervals of ``components``, ``proportions`` and ``sizes``, and ``model_``, a
        fitted KLNMF with the means as its components.

    Examples
    --------
    >>> from klnmf import KLNMF
    >>> from klnmf.simulate import simulate_counts
    >>> from klnmf.uncertainty import posterior
    >>> X = simulate_counts(100, 40, 3, counts_per_sample=200, random_state=0).X
    >>> model = KLNMF(3, random_state=0).fit(X)
    >>> result = posterior(model, X, n_sweeps=300, random_state=0)
    >>> result.components.estimate.shape, result.proportions.lower.shape
    ((3, 40), (100, 3))
    >>> result.model_.transform(X).shape
    (100, 3)
    """
    check_matrix_model(model, X, "posterior")
    if not isinstance(model, KLNMF):
        raise TypeError(
            f"posterior needs a fitted KLNMF; got {type(model).__name__}. To convert another "
            "model, use KLNMF(...).fit(X, H=model.components_)."
        )
    n_sweeps = checked_whole("n_sweeps", n_sweeps, least=FEWEST_SWEEPS)
    level = checked_fraction("level", level)
    _refuse(model, constraints)
    check_arguments(constraints, "posterior", ("exposure", "missing", "run"))
    options = checked_run_options(
        run, "posterior", "checkpoint", "checkpoint_every", "resume", "progress"
    )
    checked_choice(noise, "noise", get_args(Noise))
    threads = effective_threads(n_threads)
    data = data_of_fit(model, X, {**constraints}, "posterior")
    counts = _whole_counts(data.counts)
    names = names_of_features(model, feature_names)
    chosen = chosen_samples(samples, counts.shape[0])
    file = PosteriorFile(options)
    seed = file.seed(random_state)
    found = poisson_dispersion(counts.shape[1])
    if noise == "estimated":
        estimated = estimated_dispersion(data.fitted_rates)
        found = estimated if estimated.factor >= LEAST_FACTOR else found
    missing = data.constraints.missing
    cells = None
    if missing is not None or not found.is_poisson:
        of_features = found.by_feature * typical_rates(*data.rates)[1]
        pattern = None if missing is None else Pattern.of(missing)
        cells = Cells(found.by_feature, of_features >= DRAWN_FROM, pattern)
    exposure = data.constraints.exposure
    totals = (data.W * data.H.sum(axis=0, dtype=np.float64)).sum(axis=1)
    work = _begun(data, n_sweeps, seed, totals if cells is not None else None)
    work.identity["noise"] = noise
    work = file.resumed(work, seed)
    in_counts = np.ones_like(totals) if exposure is None else 1.0 / exposure
    masses = totals if cells is None else in_counts
    is_fixed = data.constraints.is_frozen(1)
    with threadpool_limits(limits=1):  # products of small matrices do not depend on n_threads
        run_chain(work, counts, is_fixed, cells, masses, file, options, threads)
        result = _result(
            model,
            data,
            work,
            chosen,
            totals,
            level=level,
            noise=noise,
            dispersion=found,
            feature_names=names,
        )
    if result.warning is not None:
        warn_caller(result.warning, UserWarning)
    return result


def _refuse(model: KLNMF, given: dict[str, Any]) -> None:
    """Refuse constraints that the sampler does not know."""
    names = [*model.constraint_names_, *(name for name in given if given[name] is not None)]
    for name, why in REFUSED.items():
        if name in names:
            raise ValueError(
                f"posterior does not take {name}: {why}. Fit a model without it, or use bootstrap."
            )


def _whole_counts(counts: Any) -> sp.csr_array:
    """Return the counts in int32."""
    if not counts.nnz:
        raise ValueError("X has no counts, so that nothing can be said of components.")
    # In float64: sums and limits in float32 would be rounded.
    sums = np.bincount(counts.indices, weights=counts.data, minlength=counts.shape[1])
    if sums.max(initial=0.0) > LARGEST_COUNT:
        raise ValueError(
            f"posterior takes at most {LARGEST_COUNT:,} counts of one feature; X has "
            f"{sums.max():,.0f}. Divide X by a number and round it."
        )
    return sp.csr_array((counts.data.astype(np.int32), counts.indices, counts.indptr), counts.shape)


def _begun(data: DataOfFit, n_sweeps: int, seed: int, totals: FloatArray | None) -> Work:
    """Return a chain at the shares of the fit, none of them 0 that need not be.

    W are proportions, or rates if the totals of the samples are given.
    """
    sums = data.H.sum(axis=0, dtype=np.float64)
    W = _smoothed((data.W * sums).T, FLOOR).T
    H = _smoothed(data.H, FLOOR / len(data.H))
    is_fixed, (n, r), m = data.constraints.is_frozen(1), W.shape, len(H)
    H[:, is_fixed] = (data.H / np.where(sums > 0.0, sums, 1.0))[:, is_fixed]
    barred = data.constraints.zeros[1]
    if barred is not None:
        H[barred.toarray() != 0] = 0.0
    empty = np.flatnonzero(H.sum(axis=0) <= 0.0)
    if len(empty):
        raise ValueError(
            f"Component {empty[0]} has no feature: all of its entries are fixed at 0 or barred. "
            "posterior needs components that can have counts; fit a model without this one."
        )
    if barred is not None:
        H /= H.sum(axis=0)
    identity = data_identity(data_in_memory(data.counts)) | {
        "checksum of the start": data_in_memory(sp.csr_array(H)).sums_checksum,
        "checksum of what is known": data.constraints.checksum,
    }
    if totals is not None:
        exposure = data.constraints.exposure
        W = W * (totals if exposure is None else totals * exposure)[:, np.newaxis]
        identity["rates"] = True
    chain = Chain.started(np.ascontiguousarray(W), np.ascontiguousarray(H), seed)
    return Work(identity, seed, n_sweeps, chain, Sums.empty(n, m, r, n_sweeps - n_sweeps // 3))


def _smoothed(amounts: Array, floor: float) -> FloatArray:
    """Columns that sum to 1, after a floor was added to their shares."""
    sums = amounts.sum(axis=0, dtype=np.float64)
    shares = amounts / np.where(sums > 0.0, sums, 1.0) + floor
    return np.asarray(shares / shares.sum(axis=0))


def _result(
    model: KLNMF,
    data: DataOfFit,
    work: Work,
    chosen: Array,
    totals: FloatArray,
    **about: Any,
) -> Posterior:
    n_kept, exposure = work.n_kept, data.constraints.exposure
    in_counts = totals if exposure is None else totals * exposure
    fitted = shares_of(data.W, data.H.T, chosen)
    H, H2 = moments_of_components(work)
    P, P2 = np.split(work.sums.proportions / n_kept, 2)
    moments = ((H.T, H2.T), (P[chosen], P2[chosen]), moments_of_sizes(work))
    parts = zip(moments, fitted, given_entries(data, chosen), strict=True)
    intervals = [
        posterior_intervals(*of, shares, given, about["level"]) for of, shares, given in parts
    ]
    together = covariances(work)
    if together is not None:
        places = np.arange(H.shape[1])
        together[:, places, places] = intervals[0].standard_error.T ** 2
    return Posterior(
        components=intervals[0],
        proportions=intervals[1],
        sizes=intervals[2],
        samples=chosen,
        totals=totals[chosen],
        model_=_model_of(model, intervals[0].estimate, P.T @ in_counts),
        n_sweeps=work.n_sweeps,
        n_kept=n_kept,
        drift=drift_of(work),
        effective_draws=effective_draws(work),
        covariances=together,
        **about,
    )


def _model_of(model: KLNMF, shares: FloatArray, W_sums: FloatArray) -> KLNMF:
    """Return a fitted model with these shares as components; fixed ones keep their scale."""
    components = model._H().T.astype(np.float64)
    is_given = np.zeros(len(shares), dtype=bool)
    if model.fixed_components is not None:
        is_given[: np.shape(model.fixed_components)[0]] = True
    scale = np.where(is_given, components.sum(axis=1), 1.0)
    components = np.where(is_given[:, np.newaxis], components, shares)
    penalties = dict.fromkeys(("l1_W", "l2_W", "l1_H", "l2_H"), 0.0)
    parameters = model.get_params(deep=False) | penalties | {"n_components": len(shares)}
    return KLNMF.from_components(
        components.astype(model.components_.dtype),
        feature_names=getattr(model, "feature_names_in_", None),
        converged=True,
        constraint_names=model.constraint_names_,
        W_sums=W_sums / np.where(scale > 0.0, scale, 1.0),
        data_checksum=model.data_checksum_,
        **parameters,
    )
