"""`differential_features`: features with a larger share in one component than in others."""

import copy
from collections.abc import Sequence
from numbers import Integral
from typing import Any, Literal, Unpack, get_args

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.stats import false_discovery_control, norm
from threadpoolctl import threadpool_limits

from klnmf.backends.cpu import effective_threads
from klnmf.constraints.constraints import FitConstraints
from klnmf.estimators.base import FactorModel
from klnmf.support.array_types import FloatArray
from klnmf.support.descriptions import described
from klnmf.support.number_checks import checked_fraction
from klnmf.topics.checks import (
    Names,
    checked_choice,
    checked_numbers,
    checked_representation,
)
from klnmf.uncertainty.comparison import compared_shares, interval
from klnmf.uncertainty.data_of_fit import (
    check_matrix_model,
    data_of_fit,
    names_of_features,
    other_data,
)
from klnmf.uncertainty.differential_result import DifferentialFeatures
from klnmf.uncertainty.posterior_differences import compared_posterior
from klnmf.uncertainty.posterior_result import Posterior
from klnmf.uncertainty.sample_amounts import (
    Amounts,
    fitted_amounts,
    given_amounts,
    regressions_on,
)

Alternative = Literal["greater", "two-sided"]


def differential_features(
    model: FactorModel | Posterior,
    X: Any = None,
    against: str | int = "nearest",
    *,
    components: Sequence[int] | None = None,
    nuisance: Sequence[int] | None = None,
    alternative: Alternative = "greater",
    level: float = 0.95,
    W: Any = None,
    feature_names: Names | None = None,
    n_threads: int | None = None,
    **constraints: Unpack[FitConstraints],
) -> DifferentialFeatures:
    """Find features with a larger share in a component than in the other components.

    For each component and feature, this compares the share of the feature in the component with its
    share in the reference: the log₂ fold change with an interval, and a test of equal shares.

    Each feature is a regression of its counts on W. Counts may vary more than Poisson counts: their
    variance is y + α y² for a rate of y, with α estimated for each feature (`dispersion`). The test
    is Neyman's C(α) test, which holds on both sides, also where shares are 0, and allows for the
    skewness of rare features. It assumes that cells are independent given their rates. The features
    are divided into ten groups, and each group is tested with the W that the other nine give, so
    that the noise of a feature is not in the W with which it is tested. Fold changes are moderated:
    on average half a count per component is added to each feature, which keeps them finite and
    shrinks those of rare features. docs/maths/differential.md has the derivations,
    docs/performance.md the measured rates.

    The interval of a feature follows from its test: a 95 % interval excludes 0 exactly if z is
    above 1.96 or below −1.96, that is, if a one-sided p-value is below 0.025. The q-value answers
    another question. It is about all tests together, and among thousands of tests many intervals
    exclude 0 by chance. To list features, go by q-values; to say how large a difference is, use the
    interval.

    Two things that make p-values too small (docs/performance.md has rates). If components share a
    background, the fit does not find them exactly, whatever the number of samples: a feature with
    equal shares in two components and a larger one in a third may then differ between the fitted
    two. And single extreme counts, as some genes have in one cell, are more frequent in real data
    than in the model.

    If components share a background, pass the result of `posterior` in place of the model, without
    X: shares are then its means, and z their difference in standard deviations. Of features
    with equal shares, it rejected 5 to 7 % at a level of 5 %, where tests of a fit rejected 5 to
    11 % (docs/performance.md).

    **The components of a model are taken as they are.** Their uncertainty is not part of the errors
    (it is part of those of a `Posterior`). And a
    model finds components even in noise: features that have shaped a component will often differ
    between components. To test with counts that took no part in the fit, use `split_counts`.

    Parameters
    ----------
    model : KLNMF, MiniBatchKLNMF or Posterior
        A fitted model, or the result of `posterior`. Penalties on W do not apply here: its maximum
        likelihood estimate is used.
    X : {array-like, sparse matrix or array, DataFrame} of shape (n_samples, n_features)
        The counts of the fit, or other counts together with their W. A `Posterior` has seen them:
        pass none.
    against : {"nearest", "others"} or int, default="nearest"
        The reference: for each feature the other component that is hardest to distinguish, so that
        significant features are specific to the component; all other components together, in
        proportion to their sizes; or the component of this number.
    components : sequence of int, default=None
        Components to test; None tests all of them but ``nuisance``. ``components=[2], against=5``
        compares one pair.
    nuisance : sequence of int, default=None
        Components that are no reference of "nearest" and "others", such as the profiles of batches.
        They stay in the regressions. None takes those whose columns of W were fixed (``fixed_W``);
        ``[]`` is for none.
    alternative : {"greater", "two-sided"}, default="greater"
        Whether to test for larger shares only, or for smaller ones as well. "nearest" requires
        "greater".
    level : float, default=0.95
        Level of the intervals of the fold changes.
    W : array-like of shape (n_samples, n_components), default=None
        Representation of the samples, taken as known. None estimates it, and requires the X of the
        fit. With `split_counts`, pass that of the other part. For other samples, pass
        ``model.transform(X)``; this W comes from the counts that are tested, so it does not replace
        `split_counts`.
    feature_names : sequence of str, default=None
        Names for the printed result. None uses the names seen in ``fit``.
    n_threads : int, default=None
        Number of threads, as in `klnmf.KLNMF`. The result does not depend on it.
    **constraints
        ``sample_weight``, ``exposure``, ``missing``, ``fixed_W`` and ``zero_W``, as in
        ``KLNMF.fit``, if the model was fitted with them. Samples count by their weights, and the
        errors are those of weighted sums. All shares are free in the regressions, also those of
        fixed components and of zeros.

    Returns
    -------
    DifferentialFeatures

    Examples
    --------
    >>> from klnmf import KLNMF
    >>> from klnmf.datasets import load_bible
    >>> from klnmf.uncertainty import differential_features
    >>> bible = load_bible()
    >>> model = KLNMF(5, random_state=0).fit(bible.data)
    >>> found = differential_features(model, bible.data, feature_names=bible.feature_names)
    >>> disciples = list(bible.feature_names).index("disciples")
    >>> component = int(found.share[:, disciples].argmax())
    >>> bool(found.q_value[component, disciples] < 0.05)  # special to that component
    True
    """
    level = checked_fraction("level", level)
    threads = effective_threads(n_threads)
    posterior = None
    if isinstance(model, Posterior):
        _refuse_beside_posterior(X=X, W=W, **constraints)
        posterior, model = model, model.model_
        feature_names = posterior.feature_names if feature_names is None else feature_names
    else:
        check_matrix_model(model, X, "differential_features")
    names = names_of_features(model, feature_names)
    references = _references(nuisance, model)
    chosen = _chosen_components(components, against, alternative, references, model.n_components_)
    # Each product has one thread, so that its rounding does not depend on their number.
    with threadpool_limits(limits=1, user_api="blas"):
        if posterior is not None:
            variation = posterior.dispersion
            result = compared_posterior(posterior, chosen, against, references)
        else:
            given = {**constraints}
            if W is None:
                amounts = _amounts_of_fit(model, X, given, threads)
            else:
                amounts = _amounts_of_others(model, X, W, given, threads)
            variation, alpha = amounts.dispersion, amounts.dispersion.by_feature
            result = compared_shares(amounts.groups, alpha, len(alpha), chosen, against, references)
    # Where test and estimate have opposite signs, neither shows a difference.
    z = np.where(result.z * result.log2_fold_change <= 0.0, 0.0, result.z)
    p_value = norm.sf(z) if alternative == "greater" else 2.0 * norm.sf(np.abs(z))
    quantile = float(norm.ppf(0.5 + level / 2.0))
    lower, upper = interval(result.log2_fold_change, result.standard_error, z, quantile)
    return DifferentialFeatures(
        **result._replace(z=z)._asdict(),
        components=chosen,
        lower=lower,
        upper=upper,
        p_value=p_value,
        q_value=_q_values(p_value),
        dispersion=variation,
        is_W_given=W is not None,
        against=against if isinstance(against, str) else int(against),
        alternative=alternative,
        level=level,
        feature_names=names,
        is_integrated=posterior is not None,
    )


def _refuse_beside_posterior(**given: Any) -> None:
    for name, value in given.items():
        if value is not None:
            raise ValueError(
                f"differential_features does not take {name} beside a Posterior, which has seen "
                "the counts. Pass the posterior alone, or its model_ with X."
            )


def _amounts_of_fit(model: FactorModel, X: Any, given: dict[str, Any], n_threads: int) -> Amounts:
    if any(model._penalties().penalised_modes):
        model = copy.copy(model)
        model.set_params(l1_W=0.0, l2_W=0.0)
    way_out = "Pass the X of the fit. For other samples, also pass W=model.transform(X)."
    return fitted_amounts(data_of_fit(model, X, given, "differential_features", way_out), n_threads)


def _amounts_of_others(
    model: FactorModel, X: Any, W: Any, given: dict[str, Any], n_threads: int
) -> Amounts:
    counts, constraints = other_data(model, X, given, "differential_features")
    checked = checked_representation(W, model.n_components_)
    L = np.asarray(checked.toarray() if sp.issparse(checked) else checked, dtype=np.float64)
    L = L * model._H().sum(axis=0, dtype=np.float64)
    if len(L) != counts.shape[0]:
        raise ValueError(f"W has {len(L)} rows for the {counts.shape[0]} samples of X.")
    if constraints.exposure is not None:
        L = L * constraints.exposure[:, np.newaxis]
    return given_amounts(regressions_on(L, counts, constraints, n_threads))


def _references(nuisance: Sequence[int] | None, model: FactorModel) -> npt.NDArray[np.intp]:
    """Return the components that "nearest" and "others" choose from."""
    every = np.arange(model.n_components_)
    if nuisance is None:
        return every[: model.n_components_ - model.n_fixed_W_]
    if np.size(nuisance) == 0:
        return every
    return np.setdiff1d(every, checked_numbers(nuisance, "nuisance", model.n_components_))


def _chosen_components(
    components: Sequence[int] | None,
    against: Any,
    alternative: str,
    references: npt.NDArray[np.intp],
    n_components: int,
) -> npt.NDArray[np.intp]:
    """Check the arguments; returns the components to test."""
    checked_choice(alternative, "alternative", get_args(Alternative))
    is_number = isinstance(against, Integral) and 0 <= int(against) < n_components
    is_word = isinstance(against, str) and against in ("nearest", "others")
    if not is_number and not is_word:
        raise ValueError(
            f"against must be 'nearest', 'others' or a component from 0 to {n_components - 1}; got "
            f"{described(against)}."
        )
    if against == "nearest" and alternative != "greater":
        raise ValueError(
            "against='nearest' requires alternative='greater'. For a two-sided test, use "
            "against='others' or the number of a component."
        )
    chosen = references
    if components is not None:
        chosen = np.array(checked_numbers(components, "components", n_components))
    others = np.array([int(against)]) if is_number else references
    chosen = np.array([k for k in chosen if np.any(others != k)], dtype=np.intp)
    if chosen.size == 0:
        raise ValueError(
            f"Component {against} cannot be compared with itself."
            if is_number and n_components > 1
            else "There is only one component to compare, so there is no reference."
        )
    return chosen


def _q_values(p_values: FloatArray) -> FloatArray:
    """Benjamini and Hochberg's q-values over all tests; NaN where there was no test."""
    found = np.full(p_values.shape, np.nan)
    tested = np.isfinite(p_values)
    if tested.any():
        found[tested] = false_discovery_control(p_values[tested], method="bh")
    return found
