"""How good a fitted model is on data that it has not seen, in one call."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from klnmf.base_estimator import FactorModel
from klnmf.topics import coherence


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


def evaluate(model: FactorModel, X: Any, *, n_top: int = 10) -> HeldOutScores:
    """Score a fitted model on samples, best on such as it was not fitted to.

    Half of each sample's counts say what the sample is about, the other half is predicted.

    Parameters
    ----------
    model : KLNMF or MiniBatchKLNMF
        A fitted model.
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
    check_is_fitted(model, "components_")
    counts = model._check(X, reset=False)
    split, found = model._completed(counts)
    n_counts = float(split.held_out.sum(dtype=np.float64))
    return HeldOutScores(
        found.per_sample,
        math.exp(-found.log_shares / n_counts) if n_counts else math.nan,
        coherence(model.components_, counts, "npmi", n_top=n_top),
        coherence(model.components_, counts, "umass", n_top=n_top),
        counts.shape[0],
        split.held_out.shape[1],
        n_counts,
    )
