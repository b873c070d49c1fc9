"""How good a fitted model is on data that it has not seen, in one call."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from klnmf.data.validation import warn_caller
from klnmf.estimators.base import FactorModel
from klnmf.estimators.kl_nmf import KLNMF
from klnmf.topics import coherence
from klnmf.topics.checks import checked_components

# Samples that a figure needs. In the mean over chapters of the Bible (15 components, twelve draws),
# the perplexity of 10 samples is off by 18 %, of 5 by 24 %. Coherence of single components in 30
# samples has no correlation with that in 600; in 50 it is 0.2, in 100 it is 0.5.
SAMPLES_FOR_LIKELIHOOD = 10
SAMPLES_FOR_COHERENCE = 50


@dataclass(frozen=True)
class HeldOutScores:
    """What `evaluate` returns.

    Attributes
    ----------
    log_likelihood : float
        Mean Poisson log-likelihood of a sample's held-out half: ``model.score(X)``.
    perplexity : float
        exp(−mean log share of a held-out count): among how many equally likely features the model
        hesitates. Lower is better; an even guess has ``n_features``.
    npmi, umass : ndarray of shape (n_components,)
        Coherence of each component in X, see `klnmf.topics.coherence`.
    n_samples, n_features, n_counts : int, int, float
        Samples, features and held-out counts that were scored.
    """

    log_likelihood: float
    perplexity: float
    npmi: npt.NDArray[np.float64]
    umass: npt.NDArray[np.float64]
    n_samples: int
    n_features: int
    n_counts: float

    def __str__(self) -> str:
        """Return the three scores in words."""
        lines = [
            f"log-likelihood  {self.log_likelihood:.6g} (mean of a sample's held-out half)",
            f"perplexity      {self.perplexity:.6g} (an even guess: {self.n_features})",
        ]
        for name, values in (("NPMI", self.npmi), ("UMass", self.umass)):
            known = values[np.isfinite(values)]
            text = "no component has two features that occur"
            if known.size:
                text = f"{known.mean():.3f} in the mean, {known.min():.3f} to {known.max():.3f}"
            lines.append(f"{'coherence ' + name:15s} {text}")
        return "\n".join([*lines, f"{self.n_counts:g} counts of {self.n_samples} samples scored"])


def evaluate(model: Any, X: Any, *, n_top: int = 10) -> HeldOutScores:
    """Score a fitted model on samples: held-out likelihood, perplexity and coherence in one call.

    Best on samples that it was not fitted to. Half of each sample's counts say what the sample is
    about, the other half is predicted.

    Parameters
    ----------
    model : estimator with ``components_``, or array-like of shape (n_components, n_features)
        A fitted model: KLNMF, MiniBatchKLNMF, another library's with nonnegative components (such
        as scikit-learn's NMF and LatentDirichletAllocation), or the components themselves (such as
        those of `klnmf.model_selection.consensus`). W is solved for under the KL divergence.
    X : {array-like, sparse matrix or array} of shape (n_samples, n_features)
        Counts.
    n_top : int, default=10
        Leading features of a component whose coherence is measured; at least 2.

    Returns
    -------
    HeldOutScores

    Warns
    -----
    UserWarning
        If a figure says little: fewer than 10 samples with counts (50 for coherence), or a
        perplexity that is worse than an even guess among all features.

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
    known = _as_factor_model(model)
    if "missing" in getattr(known, "known_names_", []):
        raise ValueError(
            "The model was fitted with missing cells, and coherence knows nothing of these: it "
            "would count them as zeros that were observed. Use model.score(X, missing=...); if "
            "nothing is missing in X, evaluate(model.components_, X)."
        )
    counts = known._check(X, reset=False)
    split, found = known._completed(counts)
    n_counts = float(split.held_out.sum(dtype=np.float64))
    scores = HeldOutScores(
        found.per_sample,
        math.exp(-found.log_shares / n_counts) if n_counts else math.nan,
        coherence(known.components_, counts, "npmi", n_top=n_top),
        coherence(known.components_, counts, "umass", n_top=n_top),
        counts.shape[0],
        split.held_out.shape[1],
        n_counts,
    )
    _warn_of_few_samples(int(np.count_nonzero(np.diff(counts.indptr))))
    _warn_if_worse_than_even(scores)
    return scores


def _warn_of_few_samples(n_filled: int) -> None:
    if n_filled >= SAMPLES_FOR_COHERENCE:
        return
    needs = f"Coherence needs at least {SAMPLES_FOR_COHERENCE} samples"
    if n_filled < SAMPLES_FOR_LIKELIHOOD:
        needs = (
            f"Likelihood and perplexity need at least {SAMPLES_FOR_LIKELIHOOD} samples, coherence "
            f"at least {SAMPLES_FOR_COHERENCE}"
        )
    warn_caller(
        f"{needs}, and {n_filled} have counts here. With so few, the figures depend more on which "
        "samples were chosen than on the model. Score more samples.",
        UserWarning,
    )


def _warn_if_worse_than_even(scores: HeldOutScores) -> None:
    # Equal up to rounding is no worse: a model of one even component is an even guess.
    if scores.perplexity > 1.001 * scores.n_features:
        warn_caller(
            f"The perplexity is {scores.perplexity:.6g}, worse than an even guess among the "
            f"{scores.n_features} features: the model does not describe these samples. Check that "
            "the columns of X are the features of the fit, in the same order, and that the values "
            "are counts as in the fit.",
            UserWarning,
        )


def _as_factor_model(model: Any) -> FactorModel:
    """Return the model itself, or one of ours with its components."""
    if isinstance(model, BaseEstimator):
        check_is_fitted(model, "components_")
    if isinstance(model, FactorModel):
        return model
    given = getattr(model, "components_", model)
    if not hasattr(given, "shape") and not isinstance(given, list | tuple):
        raise TypeError(
            "evaluate takes a fitted model with components_, or the components as an array; got "
            f"{type(model).__name__}. A file's model is load_model(path).model."
        )
    components = checked_components(given)
    known = KLNMF(components.shape[0], dtype=np.float64)
    known.components_ = components
    known.n_components_, known.n_features_in_ = components.shape
    return known
