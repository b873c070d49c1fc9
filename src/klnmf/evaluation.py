"""How good a fitted model is on data that it has not seen, in one call."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from klnmf.base_estimator import FactorModel
from klnmf.estimators import KLNMF
from klnmf.topics import coherence
from klnmf.topics.checks import checked_components


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
        Samples, features and held-out counts that were scored. Data that are not whole numbers are
        split by features, so that half of the features are scored.
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
    return HeldOutScores(
        found.per_sample,
        math.exp(-found.log_shares / n_counts) if n_counts else math.nan,
        coherence(known.components_, counts, "npmi", n_top=n_top),
        coherence(known.components_, counts, "umass", n_top=n_top),
        counts.shape[0],
        split.held_out.shape[1],
        n_counts,
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
