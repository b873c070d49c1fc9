"""Scores of a fitted model on new data, in one call."""

import math
from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from klnmf.constraints.constraints import FitConstraints
from klnmf.data.validation import warn_caller
from klnmf.estimators.base import FactorModel
from klnmf.estimators.kl_nmf import KLNMF
from klnmf.topics import coherence as coherence_in
from klnmf.topics.checks import checked_components

__all__ = ["HeldOutScores", "evaluate"]

# Samples that a score needs. In chapters of the Bible (15 components, average of twelve draws), the
# perplexity of 10 samples is off by 18 %, of 5 by 24 %. Coherence of single components in 30
# samples has no correlation with that in 600; in 50 it is 0.2, in 100 it is 0.5.
FEWEST_SAMPLES = 50


@dataclass(frozen=True)
class HeldOutScores:
    """What `evaluate` returns.

    Attributes
    ----------
    log_likelihood : float
        Mean Poisson log-likelihood of a sample, each feature predicted from the others:
        ``model.score(X)``.
    perplexity : float
        exp(−mean log p_ij) over all counts, with p_ij the share that the model gives to feature j
        in sample i, without having seen the features of j's group there: the effective number of
        features that it chooses from. Lower is better; guessing evenly gives ``n_features``. With
        ``feature_weight``, counts and shares are those of the weighted features.
    npmi, umass : ndarray of shape (n_components,)
        Coherence of each component in X, see `klnmf.topics.coherence`.
    n_samples, n_features, n_counts : int, int, float
        Samples, features and counts that were scored, the last ones times their weights.
    background : float
        Share of the rates that followed the sums of the features in the fit, see ``KLNMF.score``.
    """

    log_likelihood: float
    perplexity: float
    npmi: npt.NDArray[np.float64]
    umass: npt.NDArray[np.float64]
    n_samples: int
    n_features: int
    n_counts: float
    background: float

    def __str__(self) -> str:
        """Return the three scores in words."""
        lines = [
            f"log-likelihood  {self.log_likelihood:.6g} (mean per sample, held-out features)",
            f"perplexity      {self.perplexity:.6g} (guessing evenly: {self.n_features})",
        ]
        for name, values in (("NPMI", self.npmi), ("UMass", self.umass)):
            finite = values[np.isfinite(values)]
            text = "no component has two features that occur"
            if finite.size:
                text = f"mean {finite.mean():.3f}, from {finite.min():.3f} to {finite.max():.3f}"
            lines.append(f"{'coherence ' + name:15s} {text}")
        return "\n".join([*lines, f"{self.n_counts:g} counts of {self.n_samples} samples scored"])


def evaluate(
    model: Any, X: Any, *, n_top: int = 10, **constraints: Unpack[FitConstraints]
) -> HeldOutScores:
    """Score a fitted model on new samples: held-out likelihood, perplexity and coherence.

    The features of each sample are predicted in ten groups, each from the others, as
    ``KLNMF.score`` does it.

    Parameters
    ----------
    model : estimator with ``components_``, or array-like of shape (n_components, n_features)
        A fitted model: KLNMF, MiniBatchKLNMF, another library's with nonnegative components (such
        as scikit-learn's NMF and LatentDirichletAllocation), or the components (such as those of
        `klnmf.model_selection.consensus`). W is solved for under the KL divergence. For components
        alone, the sums of the features in the fit are not known: all components count equally.
    X : {array-like, sparse matrix or array} of shape (n_samples, n_features)
        Counts.
    n_top : int, default=10
        Number of leading features of a component whose coherence is measured; at least 2.
    **constraints
        ``sample_weight``, ``exposure``, ``fixed_W`` and ``zero_W`` of these samples, as in
        ``KLNMF.score``. Coherence counts every sample with a weight above 0 once. ``missing`` is
        refused, because coherence would count such cells as zeros: use ``model.score``.

    Returns
    -------
    HeldOutScores

    Warns
    -----
    UserWarning
        If a score says little: fewer than 50 samples with counts (10 for the likelihood), or a
        perplexity that is worse than guessing evenly among all features.

    Examples
    --------
    >>> from klnmf import KLNMF
    >>> from klnmf.datasets import load_bible
    >>> from klnmf.evaluation import evaluate
    >>> X = load_bible().data
    >>> model = KLNMF(n_components=10, random_state=0).fit(X[::2])
    >>> scores = evaluate(model, X[1::2])
    >>> scores.perplexity < X.shape[1] / 4
    True
    """
    scored = _as_factor_model(model)
    if "missing" in scored.constraint_names_ or constraints.get("missing") is not None:
        raise ValueError(
            "evaluate does not take missing cells, with which this model was fitted or which were "
            "passed: coherence would count them as observed zeros. Use model.score(X, "
            "missing=...); if nothing is missing in X, use evaluate(model.components_, X)."
        )
    counts = scored._in_memory(X, {}).X
    found = scored._held_out(X, constraints, "evaluate")
    weights = constraints.get("sample_weight")
    if weights is not None:
        counts = counts[np.asarray(weights) > 0]
    scores = HeldOutScores(
        found.per_sample,
        math.exp(-found.log_shares / found.n_counts) if found.n_counts else math.nan,
        coherence_in(scored.components_, counts, "npmi", n_top=n_top),
        coherence_in(scored.components_, counts, "umass", n_top=n_top),
        counts.shape[0],
        found.n_features,
        found.n_counts,
        found.background,
    )
    n_filled = int(np.count_nonzero(np.diff(counts.indptr)))
    if n_filled < FEWEST_SAMPLES:
        warn_caller(
            f"Only {n_filled} samples have counts here. Their scores depend more on the choice of "
            f"samples than on the model: coherence needs at least {FEWEST_SAMPLES} samples, "
            "likelihood and perplexity 10. Score more samples.",
            UserWarning,
        )
    _warn_if_worse_than_even(scores)
    return scores


def _warn_if_worse_than_even(scores: HeldOutScores) -> None:
    # Equal up to rounding is no worse: a model of one even component is an even guess.
    if scores.perplexity > 1.001 * scores.n_features:
        warn_caller(
            f"The perplexity is {scores.perplexity:.6g}, worse than guessing evenly among the "
            f"{scores.n_features} features: the model does not describe these samples. Check that "
            "the columns of X are the features of the fit, in the same order, and that the values "
            "are counts as in the fit.",
            UserWarning,
        )


def _as_factor_model(model: Any) -> FactorModel:
    """Return the model, or a KLNMF with its components."""
    if isinstance(model, BaseEstimator):
        check_is_fitted(model, "components_")
    if isinstance(model, FactorModel):
        return model
    given = getattr(model, "components_", model)
    if not hasattr(given, "shape") and not isinstance(given, list | tuple):
        raise TypeError(
            "evaluate takes a fitted model with components_, or the components as an array; got "
            f"{type(model).__name__}. For a file, pass load_model(path).model."
        )
    return KLNMF.from_components(checked_components(given), dtype=np.float64)
