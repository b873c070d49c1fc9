"""The numbers behind the report: relevance of words, places on the map, typical samples."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.special import entr

from klnmf.support.array_types import Array, FloatArray
from klnmf.topics import Probabilities, intertopic_coordinates

# Logarithms are rounded before they are ranked. So the page ranks the same numbers, and words that
# only one topic has, which have the same lift, tie exactly.
DECIMALS = 4


class WordScores(NamedTuple):
    """Words of one topic with a positive weight, heaviest first."""

    columns: npt.NDArray[np.intp]
    log_p: FloatArray  # log p(word | topic)
    log_lift: FloatArray  # log of p(word | topic) / p(word)


def word_scores(probabilities: Probabilities) -> list[WordScores]:
    """Log probability and log lift of the words of each topic, both rounded."""
    words = probabilities.feature_given_component
    overall = probabilities.component @ words  # the model's Σ_k p(k) p(word | k)
    scores = []
    for row in words:
        # Words of a topic that no sample uses may have no overall probability.
        columns = np.flatnonzero((row > 0.0) & (overall > 0.0))
        log_p = np.log(row[columns])
        log_lift = np.round(log_p - np.log(overall[columns]), DECIMALS)
        log_p = np.round(log_p, DECIMALS)
        heaviest = np.argsort(-log_p, kind="stable")
        scores.append(WordScores(columns[heaviest], log_p[heaviest], log_lift[heaviest]))
    return scores


def most_relevant(scores: WordScores, weight: float, n_top: int) -> npt.NDArray[np.intp]:
    """Places of the largest weight · log p + (1 − weight) · log lift, largest first."""
    return _first(weight * scores.log_p + (1.0 - weight) * scores.log_lift, n_top)


def leading_at_any_weight(
    scores: WordScores, weights: FloatArray, n_top: int
) -> npt.NDArray[np.intp]:
    """Places of the words that are among the first ``n_top`` for at least one of the weights."""
    leaders = [most_relevant(scores, float(weight), n_top) for weight in weights]
    return np.unique(np.concatenate(leaders))


def topic_positions(words: FloatArray) -> FloatArray:
    """Two coordinates of each topic in [−1, 1]; empty topics are in the middle."""
    positions = np.nan_to_num(intertopic_coordinates(words))
    return _divided(positions, np.asarray(np.abs(positions).max()))


def typical_samples(probabilities: Probabilities, n_top: int) -> list[npt.NDArray[np.intp]]:
    """Find the samples that show best what each topic is about, none with a share of 0.

    The score is p(topic | sample) · t / (t + t̄), with t the sample's share of all counts and t̄ the
    mean of these: a sample of a few counts has a share of 1 by chance, and gets a low score.
    """
    totals = probabilities.sample
    trust = _divided(totals, totals + totals.mean())
    typical = []
    for share in probabilities.component_given_sample.T:
        best = _first(share * trust, n_top)
        typical.append(best[share[best] > 0.0])
    return typical


def effective_words(probabilities: Probabilities) -> FloatArray:
    """Effective number of words of each topic: the exponential of their entropy."""
    words = probabilities.feature_given_component
    return np.where(words.any(axis=1), np.exp(entr(words).sum(axis=1)), 0.0)


def exclusivity(probabilities: Probabilities) -> FloatArray:
    """Mean of p(topic | word) over the words of a topic: 1 if no other topic has them."""
    words, sizes = probabilities.feature_given_component, probabilities.component
    of_word = _divided(sizes[:, None] * words, sizes @ words)
    return np.asarray((words * of_word).sum(axis=1))


def one_topic_divergence(X: sp.csr_array) -> float:
    """KL divergence of X from the best model with one topic: row sum · column sum / total.

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
    """Places of the largest values, largest first; of equal ones the earlier comes first."""
    candidates = np.arange(values.size)
    if values.size > n_top:
        candidates = np.flatnonzero(values >= np.partition(values, -n_top)[-n_top])
    return candidates[np.argsort(-values[candidates], kind="stable")][:n_top]


def _divided(values: Array, divisors: FloatArray) -> FloatArray:
    """Quotients, 0 where the divisor is 0."""
    result: FloatArray = np.divide(values, divisors, out=np.zeros(values.shape), where=divisors > 0)
    return result
