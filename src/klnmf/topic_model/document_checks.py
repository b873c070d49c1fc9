"""Documents that need a word: without text, without words, copies, and badly explained ones.

The deviance of document i is D_i = 2 Σ_j [x_ij log(x_ij / y_ij) − x_ij + y_ij], with y = W Hᵀ. If
its counts are Poisson with these rates, E X log X = y E log(1 + X) gives its mean,

    E_i = Σ_j y_ij g(y_ij)        g(y) = 2 (E log(1 + X) − log y)
                                       ≈ 2 (log(1 + y) − y / (2 (1 + y)²) − log y)

The ratio D_i / E_i is about 1 for a document like the others. Words that come in bursts, such as
those of a list or of a program, make it larger.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils import gen_batches

from klnmf.backends.cpu import effective_threads
from klnmf.data.canonical import row_numbers
from klnmf.support.array_types import Array, FloatArray
from klnmf.support.threads import run_in_threads

# Ratio from which the model explains a document badly.
BADLY = 2.0
# Words of each topic at which g is evaluated: within 1 % of all words on texts of 1,200 to 8,000
# documents, and at a cost that does not grow with the vocabulary.
_WORDS = 64
_NUMBERS = 1 << 20  # at a time, in each thread


def counted_documents(
    texts: Sequence[str], X: sp.csr_array, deviance_ratio: FloatArray
) -> dict[str, int]:
    """Return how many documents need a word, for `TopicModel.summary`."""
    present = [text for text in texts if text.strip()]
    n_missing = len(texts) - len(present)
    return {
        "missing": n_missing,
        "without_words": int(np.count_nonzero(np.diff(X.indptr) == 0)) - n_missing,
        "copies": len(present) - len(set(present)),
        "badly_explained": int(np.count_nonzero(deviance_ratio > BADLY)),
    }


def in_words(counts: dict[str, int]) -> str:
    """Return the sentence of `TopicModel.summary` about these numbers."""
    return (
        f"Documents: {counts['missing']:,} without text, {counts['without_words']:,} without words "
        f"of the vocabulary, {counts['copies']:,} exact copies of others, "
        f"{counts['badly_explained']:,} explained badly (more than {BADLY:g} times the deviance "
        "that the model expects)."
    )


def deviance_ratios(
    X: Any, W: Array, components: Array, n_threads: int | None = None
) -> FloatArray:
    """Return the deviance of each document divided by what the model expects; NaN without words.

    >>> X = np.array([[3, 0, 1], [2, 1, 1], [0, 9, 0]])
    >>> found = deviance_ratios(X, X.sum(axis=1, keepdims=True), np.array([[0.5, 0.25, 0.25]]))
    >>> found.round(1).tolist()  # the last has one word, nine times
    [0.7, 0.0, 7.2]
    """
    X, W, H = sp.csr_array(X, dtype=np.float64), W.astype(np.float64), components.astype(np.float64)
    columns, sampled = _sampled_words(H)
    at_words = np.float32(H[:, columns]), np.float32(sampled)  # most of the work, for one sum
    totals, ratio = W @ H.sum(axis=1), np.full(len(W), np.nan)

    def fill(rows: slice) -> None:
        rates, weights = (W[rows].astype(np.float32) @ factor for factor in at_words)
        rates[rates == 0.0] = 1.0  # no topic of the document has the word: its weight is 0
        g = 2.0 * (np.log1p(rates) - rates / (2.0 * (1.0 + rates) ** 2) - np.log(rates))
        expected = np.einsum("ic,ic->i", g, weights, dtype=np.float64)
        part = X[rows]
        row = row_numbers(part.indptr)
        at_nonzeros = np.einsum("pk,pk->p", W[rows][row], H.T[part.indices])
        has_words = np.diff(part.indptr) > 0
        with np.errstate(divide="ignore"):  # a word in no topic of a document: infinite
            terms = part.data * (np.log(part.data / at_nonzeros) - 1.0)
            deviance = 2.0 * (np.bincount(row, terms, len(expected)) + totals[rows])
            np.divide(deviance, expected, out=ratio[rows], where=has_words)

    blocks = list(gen_batches(len(W), max(1, _NUMBERS // max(1, columns.size))))
    run_in_threads(fill, blocks, effective_threads(n_threads), lambda *_: None)
    return ratio


def _sampled_words(H: FloatArray) -> tuple[Array, FloatArray]:
    """Return some words and weights A with Σ_c a_kc f(c) ≈ Σ_j h_kj f(j) for each topic k.

    They are quantiles of the words of a topic, the heaviest first. If there are few, all are taken.
    """
    n_topics, n_words = H.shape
    if n_words <= n_topics * _WORDS:
        return np.arange(n_words), H
    sampled = np.zeros_like(H)
    middles = (np.arange(_WORDS) + 0.5) / _WORDS
    for row, weights in zip(sampled, H, strict=True):
        order = np.argsort(-weights, kind="stable")
        sums = np.cumsum(weights[order])
        np.add.at(row, order[np.searchsorted(sums, middles * sums[-1])], sums[-1] / _WORDS)
    columns = np.flatnonzero(sampled.any(axis=0))
    return columns, sampled[:, columns]
