"""The numbers behind the report: measures of topics, and typical samples."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from klnmf.support.array_types import Array, FloatArray
from klnmf.topics import Probabilities

_SAME_SHARES = 0.05  # largest difference of the shares of two copies, each of which is fitted


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
        best = np.argsort(-score, kind="stable")[:n_top]
        typical.append(best[score[best] > 0.0])
    return typical


def _are_copies(texts: Sequence[Any], shares: FloatArray) -> npt.NDArray[np.bool_]:
    """Whether each sample has the text of an earlier one and, as texts may be cut, its shares."""
    first: dict[str, int] = {}
    earlier = np.array([first.setdefault(str(text), i) for i, text in enumerate(texts)])
    alike = np.abs(shares - shares[earlier]).max(axis=1, initial=0.0) < _SAME_SHARES
    return np.asarray(alike & (earlier < np.arange(len(earlier))))


def given_feature(probabilities: Probabilities) -> FloatArray:
    """p(topic | word); 0 for a word of topics that no sample uses."""
    mass = probabilities.component[:, None] * probabilities.feature_given_component
    return _divided(mass, mass.sum(axis=0))


def _divided(values: Array, divisors: FloatArray) -> FloatArray:
    """Quotients, 0 where the divisor is 0."""
    result: FloatArray = np.divide(values, divisors, out=np.zeros(values.shape), where=divisors > 0)
    return result
