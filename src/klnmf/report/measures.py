"""The numbers behind the report: probabilities, relevance, places on the map, typical samples."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from klnmf.topics import intertopic_coordinates, plsi_probabilities

Array = npt.NDArray[Any]
FloatArray = npt.NDArray[np.float64]

# Logarithms are rounded before they are ranked, so that the page ranks the very same numbers, and
# words that belong to one topic alone, whose lifts are equal, tie exactly.
DECIMALS = 4


class Probabilities(NamedTuple):
    """The model as PLSI reads it: X_ij / ΣX ≈ Σ_k p(k) p(i | k) p(j | k)."""

    words: FloatArray  # r × m: p(word | topic); rows of zeros for empty topics
    shares: FloatArray  # n × r: p(topic | sample); rows of zeros for empty samples
    sizes: FloatArray  # r: p(topic)
    totals: FloatArray  # n: Σ_j (WHᵀ)_ij


class WordScores(NamedTuple):
    """Words of one topic with a positive weight, heaviest first."""

    columns: npt.NDArray[np.intp]
    log_p: FloatArray  # log p(word | topic)
    log_lift: FloatArray  # log of p(word | topic) / p(word)


def probabilities_of(components: Array, W: Array) -> Probabilities:
    """Probabilities of words, topics and samples; they do not depend on how W and H are scaled.

    Examples
    --------
    >>> import numpy as np
    >>> found = probabilities_of(np.array([[3.0, 1.0], [0.0, 2.0]]), np.array([[1.0, 2.0]]))
    >>> found.words.tolist(), found.shares.tolist(), found.totals.tolist()
    ([[0.75, 0.25], [0.0, 1.0]], [[0.5, 0.5]], [8.0])
    """
    found = plsi_probabilities(W, components)
    return Probabilities(
        np.asarray(found.feature_given_component, dtype=np.float64),
        np.asarray(found.component_given_sample, dtype=np.float64),
        found.component,
        W @ components.sum(axis=1, dtype=np.float64),
    )


def word_scores(probabilities: Probabilities) -> list[WordScores]:
    """Log probability and log lift of the words of each topic, both rounded.

    p(word) is the model's own, Σ_k p(k) p(word | k). Where nothing is penalised and the fit has
    converged it is the word's share of all counts.
    """
    overall = probabilities.sizes @ probabilities.words
    scores = []
    for row in probabilities.words:
        # A topic that no sample uses has words, but they have no overall probability.
        columns = np.flatnonzero((row > 0.0) & (overall > 0.0))
        log_p = np.log(row[columns])
        log_lift = np.round(log_p - np.log(overall[columns]), DECIMALS)
        log_p = np.round(log_p, DECIMALS)
        heaviest = np.argsort(-log_p, kind="stable")
        scores.append(WordScores(columns[heaviest], log_p[heaviest], log_lift[heaviest]))
    return scores


def most_relevant(scores: WordScores, weight: float, n_top: int) -> npt.NDArray[np.intp]:
    """Places in ``scores`` of the largest weight · log p + (1 − weight) · log lift, largest first.

    Of equal ones the heavier word comes first.
    """
    return _first(weight * scores.log_p + (1.0 - weight) * scores.log_lift, n_top)


def leading_at_any_weight(
    scores: WordScores, weights: FloatArray, n_top: int
) -> npt.NDArray[np.intp]:
    """Places of the words that are among the first ``n_top`` at one of the weights at least."""
    leaders = [most_relevant(scores, float(weight), n_top) for weight in weights]
    return np.unique(np.concatenate(leaders))


def topic_positions(words: FloatArray) -> FloatArray:
    """Two coordinates for each topic in [−1, 1], see `klnmf.topics.intertopic_coordinates`.

    An empty topic, which has no place, is put in the middle.
    """
    positions = np.nan_to_num(intertopic_coordinates(words))
    return _divided(positions, np.asarray(np.abs(positions).max()))


def typical_samples(probabilities: Probabilities, n_top: int) -> list[npt.NDArray[np.intp]]:
    """Find the samples that show best what each topic is about, none with a share of 0.

    The score is p(topic | sample) · t / (t + t̄), with t the sample's total and t̄ their mean: a
    sample of a few counts has a share of 1 by chance, and is held back.
    """
    totals = probabilities.totals
    trust = _divided(totals, totals + totals.mean())
    typical = []
    for share in probabilities.shares.T:
        best = _first(share * trust, n_top)
        typical.append(best[share[best] > 0.0])
    return typical


def effective_words(probabilities: Probabilities) -> FloatArray:
    """Exponential of the entropy of each topic's words: how many equal words would be as varied."""
    words = probabilities.words
    logs = np.log(words, out=np.zeros_like(words), where=words > 0.0)
    return np.where(words.any(axis=1), np.exp(-(words * logs).sum(axis=1)), 0.0)


def exclusivity(probabilities: Probabilities) -> FloatArray:
    """Mean over the words of a topic of p(topic | word): 1 where it shares its words with none."""
    overall = probabilities.sizes @ probabilities.words
    of_word = _divided(probabilities.sizes[:, None] * probabilities.words, overall)
    return np.asarray((probabilities.words * of_word).sum(axis=1))


def one_topic_divergence(X: sp.csr_array) -> float:
    """KL divergence of X from the best model with one topic, whose rates are row · column / all.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.sparse import csr_array
    >>> round(one_topic_divergence(csr_array(np.diag([2.0, 2.0]))), 4)  # 4 log 2
    2.7726
    """
    rows = np.repeat(np.asarray(X.sum(axis=1)).ravel(), np.diff(X.indptr))
    columns = np.asarray(X.sum(axis=0)).ravel()[X.indices]
    return float(np.sum(X.data * np.log(X.data * X.sum() / (rows * columns))))


def _first(values: FloatArray, n_top: int) -> npt.NDArray[np.intp]:
    """Places of the largest values in falling order; of equal ones the earlier comes first."""
    candidates = np.arange(values.size)
    if values.size > n_top:
        candidates = np.flatnonzero(values >= np.partition(values, -n_top)[-n_top])
    return candidates[np.argsort(-values[candidates], kind="stable")][:n_top]


def _divided(values: Array, divisors: FloatArray) -> FloatArray:
    """Quotients, 0 where the divisor is 0."""
    divisors = np.broadcast_to(divisors, values.shape)
    result: FloatArray = np.divide(
        values, divisors, out=np.zeros(values.shape), where=divisors > 0.0
    )
    return result
