"""`differential_features`: what a component has more of than others, with a test."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.stats import false_discovery_control, norm

from klnmf.backends.cpu import effective_threads
from klnmf.estimators.base import FactorModel
from klnmf.topics.checks import Names, checked_choice, checked_representation
from klnmf.uncertainty.comparison import compared_shares
from klnmf.uncertainty.differential_result import DifferentialFeatures
from klnmf.uncertainty.inputs import (
    check_is_data_of_fit,
    checked_level,
    checked_whole_counts,
    names_of_features,
)

FloatArray = npt.NDArray[np.float64]
Alternative = Literal["greater", "two-sided"]


def differential_features(
    model: FactorModel,
    X: Any,
    against: str | int = "nearest",
    *,
    components: Sequence[int] | None = None,
    alternative: Alternative = "greater",
    level: float = 0.95,
    W: Any = None,
    feature_names: Names | None = None,
    n_threads: int | None = None,
) -> DifferentialFeatures:
    """Find the features that components have more of than other components do.

    For each component and feature: how many times the feature's share of the component is its share
    of what the component is compared with (log₂ fold change, with an interval), and a test of the
    two shares being equal, with q-values for all tests together.

    **Everything is conditional on W**: the parts that the components have in the samples are taken
    as known. W was estimated from the same counts, and that is not in the errors. It hardly matters
    where samples have counts enough to tell their parts; where they have not, false discoveries may
    be twice as many as the q-values say (docs/performance.md, "How sure", has the rates measured
    with known and with estimated W). Counts that vary more than Poisson counts make the tests too
    sure of themselves; see ``dispersion`` of `bootstrap`.

    Given W, each feature is a Poisson regression with nonnegative coefficients. The test is the
    likelihood-ratio test of the fit with equal shares against the free one, ``z`` being its signed
    root. A share of 0 needs no special treatment in it, because equal shares are not on the
    boundary. Fold changes are moderated: half a count for each component, in the mean, is added
    to every feature, so that they are finite and those of rare features are pulled to 0. Their
    standard errors come from Fisher's information.

    Parameters
    ----------
    model : KLNMF or MiniBatchKLNMF
        A fitted model.
    X : {array-like, sparse matrix or array, DataFrame} of shape (n_samples, n_features)
        Counts: those of the fit, or others together with their W.
    against : {"nearest", "others"} or int, default="nearest"
        What a component is compared with. "nearest" is, for each feature, the other component from
        which it is hardest to tell: what is left is special to the component. "others" is all
        others together, in proportion to their sizes. A number is that component.
    components : sequence of int, default=None
        Components to look at; None is all of them. ``components=[2], against=5`` is one pair.
    alternative : {"greater", "two-sided"}, default="greater"
        Whether only a larger share counts, or a smaller one as well; "nearest" is always "greater".
    level : float, default=0.95
        Of the intervals of the fold changes.
    W : array-like of shape (n_samples, n_components), default=None
        Representation of the samples; None solves for it, as ``transform`` does, and takes the X of
        the fit alone. For other samples it is ``model.transform(X)``.
    feature_names : sequence of str, default=None
        For the printed result; None takes those that the model saw in ``fit``.
    n_threads : int, default=None
        Threads; None follows OMP_NUM_THREADS, else all CPUs. The result does not depend on it.

    Returns
    -------
    DifferentialFeatures
        Arrays of components × features. It prints as a table and turns into a DataFrame.

    Examples
    --------
    >>> from klnmf import KLNMF
    >>> from klnmf.datasets import load_bible
    >>> from klnmf.uncertainty import differential_features
    >>> bible = load_bible()
    >>> model = KLNMF(5, random_state=0).fit(bible.data)
    >>> found = differential_features(model, bible.data, feature_names=bible.feature_names)
    >>> jesus = list(bible.feature_names).index("jesus")
    >>> component = int(found.share[:, jesus].argmax())
    >>> bool(found.q_value[component, jesus] < 0.05)  # special to that component
    True
    """
    level = checked_level(level)
    counts = checked_whole_counts(model, X)
    if W is None:
        check_is_data_of_fit(
            model,
            counts,
            "Pass the X of the fit. To compare the components in other samples, pass what they "
            "are made of as well: W=model.transform(X).",
        )
    names = names_of_features(model, feature_names)
    chosen = _chosen_components(components, against, alternative, model.n_components_)
    threads = effective_threads(n_threads)
    H = model._H()
    given: Any = model._solve_W(counts, H) if W is None else checked_representation(W, H.shape[1])
    dense = given.toarray() if sp.issparse(given) else given
    if len(dense) != counts.shape[0]:
        raise ValueError(f"W has {len(dense)} rows for the {counts.shape[0]} samples of X.")
    L = dense.astype(np.float64) * H.sum(axis=0, dtype=np.float64)
    result = compared_shares(counts, L, chosen, against, threads)
    z = float(norm.ppf(0.5 + level / 2.0))
    p_value = norm.sf(result.z) if alternative == "greater" else 2.0 * norm.sf(np.abs(result.z))
    return DifferentialFeatures(
        components=chosen,
        log2_fold_change=result.log2_fold_change,
        lower=result.log2_fold_change - z * result.standard_error,
        upper=result.log2_fold_change + z * result.standard_error,
        standard_error=result.standard_error,
        z=result.z,
        p_value=p_value,
        q_value=_q_values(p_value),
        share=result.share,
        reference_share=result.reference_share,
        reference=result.reference,
        against=against if isinstance(against, str) else int(against),
        alternative=alternative,
        level=level,
        feature_names=names,
    )


def _chosen_components(
    components: Sequence[int] | None, against: Any, alternative: str, n_components: int
) -> npt.NDArray[np.intp]:
    """Check what is compared with what; returns the components to look at."""
    checked_choice(alternative, "alternative", get_args(Alternative))
    if n_components < 2:
        raise ValueError("The model has one component: there is nothing to compare it with.")
    is_number = isinstance(against, Integral) and 0 <= int(against) < n_components
    if not is_number and against not in ("nearest", "others"):
        raise ValueError(
            f"against must be 'nearest', 'others' or a component from 0 to {n_components - 1}; got "
            f"{against!r}."
        )
    if against == "nearest" and alternative != "greater":
        raise ValueError(
            "against='nearest' asks what a component has more of than each of the others, and "
            "goes with alternative='greater' only. Compare with 'others' or with one component."
        )
    chosen = np.arange(n_components)
    if components is not None:
        chosen = np.asarray(components)
        is_whole = chosen.ndim == 1 and chosen.dtype.kind in "iu" and chosen.size > 0
        if not is_whole or chosen.min() < 0 or chosen.max() >= n_components:
            raise ValueError(
                f"components must name components from 0 to {n_components - 1}; got {components!r}."
            )
    if is_number:
        chosen = chosen[chosen != int(against)]
        if chosen.size == 0:
            raise ValueError(f"Component {against} cannot be compared with itself alone.")
    return chosen.astype(np.intp)


def _q_values(p_values: FloatArray) -> FloatArray:
    """Benjamini and Hochberg's, over all tests; NaN where there was none."""
    found = np.full(p_values.shape, np.nan)
    tested = np.isfinite(p_values)
    if tested.any():
        found[tested] = false_discovery_control(p_values[tested], method="bh")
    return found
