"""Similarity of the components of two models, and the pairs that match best."""

from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import scipy.sparse as sp
from scipy.optimize import linear_sum_assignment

from klnmf.support.array_types import FloatArray
from klnmf.topics.checks import (
    IndexArray,
    Names,
    checked_choice,
    checked_components,
    checked_names,
    dense,
    rows_scaled_to_one,
)

Similarity = Literal["cosine", "hellinger"]


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


def component_similarity(
    components: Any,
    other: Any = None,
    similarity: Similarity = "cosine",
    *,
    feature_names: Names | None = None,
    other_feature_names: Names | None = None,
) -> FloatArray:
    """Similarity of every component of one model with every component of another.

    For components p and q that are scaled to sum to 1, it is

    - ``"cosine"``: Σ_j p_j q_j / (‖p‖ ‖q‖), which depends on the few largest features;
    - ``"hellinger"``: Σ_j √(p_j q_j) = 1 − d², where d is the Hellinger distance. Features of
      medium size count more.

    Both are 1 for the same distribution and 0 if no feature is shared. They do not depend on the
    scale of the components. The similarity of an empty component is 0, even with itself.

    Parameters
    ----------
    components : array-like or sparse matrix of shape (n_components, n_features)
        Nonnegative components, such as ``components_`` of a fitted model.
    other : array-like or sparse matrix of shape (n_other, n_features), optional
        Components of the other model. By default, the same components.
    similarity : {"cosine", "hellinger"}, default="cosine"
        Measure of similarity.
    feature_names, other_feature_names : sequence of str, optional
        Names of the features of each model, both or neither. If given, the models are compared on
        the features that both have. Otherwise both must have the same features in the same order.

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
    checked_choice(similarity, "similarity", get_args(Similarity))
    first = checked_components(components)
    second = first if other is None else checked_components(other)
    if other is None and other_feature_names is not None:
        raise ValueError("other_feature_names needs other: pass the components of the other model.")
    if other is not None:
        first, second = on_shared_features(first, second, feature_names, other_feature_names)
    rows = [_unit_rows(matrix, similarity) for matrix in (first, second)]
    return np.asarray(np.clip(dense(rows[0] @ rows[1].T), 0.0, 1.0))


def match_components(
    components: Any,
    other: Any,
    similarity: Similarity = "cosine",
    *,
    feature_names: Names | None = None,
    other_feature_names: Names | None = None,
) -> ComponentMatch:
    """Pair the components of two models so that the sum of their similarities is largest.

    The order of components has no meaning, so pair them before you compare two fits. Each component
    is used at most once: if the numbers of components differ, some of the larger model are left
    out. The assignment is optimal (Hungarian method).

    Parameters
    ----------
    components, other, similarity, feature_names, other_feature_names
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
    similarities = component_similarity(
        components,
        other,
        similarity,
        feature_names=feature_names,
        other_feature_names=other_feature_names,
    )
    first, second = linear_sum_assignment(similarities, maximize=True)
    return ComponentMatch(first, second, similarities[first, second])


def on_shared_features(
    first: Any, second: Any, first_names: Names | None, second_names: Names | None
) -> tuple[Any, Any]:
    """Return both matrices with the same features in the same order."""
    if (first_names is None) != (second_names is None):
        raise ValueError("Pass the feature names of both models, or of neither.")
    if first_names is None:
        if first.shape[1] != second.shape[1]:
            raise ValueError(
                f"The models have {first.shape[1]} and {second.shape[1]} features. Pass "
                "feature_names and other_feature_names to compare them on the features that "
                "both have."
            )
        return first, second
    place = _places(checked_names(first_names, first.shape[1]), "feature_names")
    other_place = _places(checked_names(second_names, second.shape[1]), "other_feature_names")
    shared = [name for name in place if name in other_place]
    if not shared:
        raise ValueError("The two models have no feature name in common.")
    return (
        first[:, [place[name] for name in shared]],
        second[:, [other_place[name] for name in shared]],
    )


def _places(names: list[str], argument: str) -> dict[str, int]:
    places = {name: j for j, name in enumerate(names)}
    if len(places) < len(names):
        twice = next(name for j, name in enumerate(names) if places[name] != j)
        raise ValueError(f"{argument} must be distinct; {twice!r} occurs more than once.")
    return places


def _unit_rows(matrix: Any, similarity: Similarity) -> Any:
    """Rows of Euclidean length 1 whose products are the similarity."""
    shares = rows_scaled_to_one(matrix)
    # Squares of shares that sum to 1 cannot overflow, and the largest does not underflow.
    power = shares**2 if similarity == "cosine" else shares
    length = np.sqrt(np.asarray(power.sum(axis=1)).ravel())
    scale = np.divide(1.0, length, out=np.zeros_like(length), where=length > 0.0)
    entries = shares if similarity == "cosine" else np.sqrt(shares)
    if isinstance(entries, np.ndarray):
        return entries * scale[:, np.newaxis]
    return sp.csr_array(entries.multiply(scale[:, np.newaxis]))
