"""The numbers behind the report: measures of topics, places on the map, typical samples."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.special import entr

from klnmf.support.array_types import Array, FloatArray
from klnmf.topics import Probabilities, intertopic_coordinates

_SAME_SHARES = 0.05  # largest difference of the shares of two copies, each of which is fitted


def topic_positions(words: FloatArray) -> FloatArray:
    """Two coordinates of each topic in [−1, 1]; empty topics are in the middle."""
    positions = np.nan_to_num(intertopic_coordinates(words))
    return _divided(positions, np.asarray(np.abs(positions).max()))


def typical_samples(
    probabilities: Probabilities, n_top: int, texts: Sequence[Any] | None = None
) -> list[npt.NDArray[np.intp]]:
    """Find the samples that show best what each topic is about, none with a share of 0.

    The score is p(topic | sample) · t / (t + t̄), with t the sample's share of all counts and t̄ the
    mean of these: a sample of a few counts has a share of 1 by chance, and gets a low score. Of
    samples with the same text only the first is taken.
    """
    totals, shares = probabilities.sample, probabilities.component_given_sample
    trust = _divided(totals, totals + totals.mean())
    if texts is not None:
        trust[_are_copies(texts, shares)] = 0.0
    typical = []
    for score in (shares * trust[:, np.newaxis]).T:
        best = _first(score, n_top)
        typical.append(best[score[best] > 0.0])
    return typical


def _are_copies(texts: Sequence[Any], shares: FloatArray) -> npt.NDArray[np.bool_]:
    """Whether each sample has the text of an earlier one and, as texts may be cut, its shares."""
    first: dict[str, int] = {}
    earlier = np.array([first.setdefault(str(text), i) for i, text in enumerate(texts)])
    alike = np.abs(shares - shares[earlier]).max(axis=1, initial=0.0) < _SAME_SHARES
    return np.asarray(alike & (earlier < np.arange(len(earlier))))


def effective_words(probabilities: Probabilities) -> FloatArray:
    """Effective number of words of each topic: the exponential of their entropy."""
    words = probabilities.feature_given_component
    return np.where(words.any(axis=1), np.exp(entr(words).sum(axis=1)), 0.0)


def exclusivity(probabilities: Probabilities) -> FloatArray:
    """Mean of p(topic | word) over the words of a topic: 1 if no other topic has them."""
    words = probabilities.feature_given_component
    return np.asarray((words * given_feature(probabilities)).sum(axis=1))


def given_feature(probabilities: Probabilities) -> FloatArray:
    """p(topic | word); 0 for a word of topics that no sample uses."""
    mass = probabilities.component[:, None] * probabilities.feature_given_component
    return _divided(mass, mass.sum(axis=0))


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
