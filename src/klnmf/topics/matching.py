"""Similarity of the components of two models, and the pairs that match best."""

from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment

from klnmf.support.array_types import FloatArray
from klnmf.topics.checks import (
    IndexArray,
    checked_components,
    dense,
    rows_divided,
    rows_scaled_to_one,
    sums,
)


class ComponentMatch(NamedTuple):
    """Pairs of components of two models, in the order of the first.

    Attributes
    ----------
    first, second : ndarray of int, shape (n_pairs,)
        Component ``first[i]`` of the first model matches ``second[i]`` of the second.
    similarity : ndarray of shape (n_pairs,)
        Similarity of each pair, from 0 to 1.
    """

    first: IndexArray
    second: IndexArray
    similarity: FloatArray


def component_similarity(components: Any, other: Any = None) -> FloatArray:
    """Cosine similarity of every component of one model with every component of another.

    For components p and q it is Σ_j p_j q_j / (‖p‖ ‖q‖), which depends on the few largest features,
    and not on the scale of the components: 1 for the same distribution, 0 if no feature is shared.
    The similarity of an empty component is 0, even with itself.

    Parameters
    ----------
    components : array-like or sparse matrix of shape (n_components, n_features)
        Nonnegative components, such as ``components_`` of a fitted model.
    other : array-like or sparse matrix of shape (n_other, n_features), optional
        Components of the other model, with the same features in the same order. By default, the
        same components. `match_reference` compares components on the features that both have.

    Returns
    -------
    similarities : ndarray of shape (n_components, n_other)
        From 0 to 1.

    Examples
    --------
    >>> from klnmf.topics import component_similarity
    >>> component_similarity([[3.0, 4.0], [0.0, 1.0]]).tolist()
    [[1.0, 0.8], [0.8, 1.0]]
    """
    first = checked_components(components)
    second = first if other is None else checked_components(other)
    if first.shape[1] != second.shape[1]:
        raise ValueError(
            f"The models have {first.shape[1]} and {second.shape[1]} features. Pass those that "
            "both have, in the same order; match_reference finds them by name."
        )
    first, second = (_unit_rows(matrix) for matrix in (first, second))
    return np.asarray(np.clip(dense(first @ second.T), 0.0, 1.0))


def match_components(components: Any, other: Any) -> ComponentMatch:
    """Pair the components of two models so that the sum of their similarities is largest.

    The order of components has no meaning, so pair them before you compare two fits. Each component
    is used at most once: if the numbers of components differ, some of the larger model are left
    out. The assignment is optimal (Hungarian method).

    Parameters
    ----------
    components, other
        As in `component_similarity`.

    Returns
    -------
    match : ComponentMatch
        min(n_components, n_other) pairs. If both models have as many components,
        ``other[match.second]`` are those of the second in the order of the first.

    Examples
    --------
    >>> from klnmf.topics import match_components
    >>> match = match_components([[1.0, 0.0], [1.0, 3.0]], [[2.0, 6.0], [5.0, 0.0]])
    >>> match.first.tolist(), match.second.tolist(), match.similarity.tolist()
    ([0, 1], [1, 0], [1.0, 1.0])
    """
    similarities = component_similarity(components, other)
    first, second = linear_sum_assignment(similarities, maximize=True)
    return ComponentMatch(first, second, similarities[first, second])


def _unit_rows(matrix: Any) -> Any:
    """Rows of Euclidean length 1."""
    shares = rows_scaled_to_one(matrix)  # their squares cannot overflow
    return rows_divided(shares, np.sqrt(sums(shares**2, axis=1)))
