"""Similarity, matching, distances, and the map of components."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from scipy.spatial.distance import jensenshannon, pdist, squareform

from klnmf.topics import (
    component_similarity,
    intertopic_coordinates,
    jensen_shannon_distances,
    match_components,
)

SIMILARITIES = ["cosine", "hellinger"]


def random_components(seed: int, n_components: int, n_features: int = 12) -> np.ndarray:
    return np.random.default_rng(seed).gamma(0.3, size=(n_components, n_features)) + 1e-9


# ---- similarity and matching ---------------------------------------------------------------------


def test_similarities_by_hand() -> None:
    components = [[3.0, 4.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0]]
    cosine = component_similarity(components)
    np.testing.assert_allclose(cosine, [[1.0, 0.8, 0.0], [0.8, 1.0, 0.0], [0.0, 0.0, 0.0]])
    hellinger = component_similarity(components, similarity="hellinger")
    root = np.sqrt(4 / 7)
    np.testing.assert_allclose(hellinger, [[1.0, root, 0.0], [root, 1.0, 0.0], [0.0, 0.0, 0.0]])


@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_sparse_components_give_the_same(similarity: str) -> None:
    first, second = (
        random_components(seed, 4) * (random_components(9, 4) > 0.1) for seed in (0, 1)
    )
    expected = component_similarity(first, second, similarity)  # type: ignore[arg-type]
    for a, b in itertools.product(
        (first, sparse.csr_array(first)), (second, sparse.coo_matrix(second))
    ):
        found = component_similarity(a, b, similarity)  # type: ignore[arg-type]
        assert isinstance(found, np.ndarray)
        np.testing.assert_allclose(found, expected)


@given(
    seed=st.integers(0, 10_000),
    n_components=st.integers(1, 8),
    similarity=st.sampled_from(SIMILARITIES),
    data=st.data(),
)
def test_a_permuted_and_rescaled_copy_is_found(
    seed: int, n_components: int, similarity: str, data: st.DataObject
) -> None:
    components = random_components(seed, n_components)
    permutation = np.array(data.draw(st.permutations(range(n_components))))
    scales = np.random.default_rng(seed).gamma(1.0, size=(n_components, 1)) + 0.1
    copy = (components * scales)[permutation]
    match = match_components(components, copy, similarity)  # type: ignore[arg-type]
    assert match.first.tolist() == list(range(n_components))
    assert permutation[match.second].tolist() == list(range(n_components))
    np.testing.assert_allclose(match.similarity, 1.0)


def test_the_sum_is_largest_not_each_pair() -> None:
    # Greedily 0 would take its best, 0, and leave 1 with nothing.
    first = np.array([[1.0, 1.0, 0.0], [1.0, 0.0, 0.0]])
    second = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 1.0]])
    match = match_components(first, second)
    assert match.second.tolist() == [1, 0]
    np.testing.assert_allclose(match.similarity, [0.5, 1.0])


def test_models_of_different_size_leave_the_worst_alone() -> None:
    components = random_components(2, 5)
    match = match_components(components, components[[3, 1]])
    assert match.first.tolist() == [1, 3]
    assert match.second.tolist() == [1, 0]
    turned = match_components(components[[3, 1]], components)
    assert turned.first.tolist() == [0, 1]
    assert turned.second.tolist() == [3, 1]


def test_features_are_matched_by_name_on_those_that_both_have() -> None:
    first = np.array([[1.0, 2.0, 5.0], [3.0, 0.0, 1.0]])
    second = np.array([[0.0, 3.0, 7.0], [2.0, 1.0, 0.0]])
    similarities = component_similarity(
        first,
        second,
        feature_names=["sea", "ship", "corn"],
        other_feature_names=["ship", "sea", "field"],
    )
    np.testing.assert_allclose(similarities, component_similarity(first[:, :2], second[:, [1, 0]]))
    match = match_components(
        sparse.csr_array(first),
        second,
        feature_names=["sea", "ship", "corn"],
        other_feature_names=["ship", "sea", "field"],
    )
    assert match.second.tolist() == [1, 0]
    np.testing.assert_allclose(match.similarity, 1.0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"other": np.eye(2)}, "The models have 3 and 2 features. Pass feature_names"),
        ({"feature_names": ["a", "b", "c"]}, "names of both models, or of neither"),
        (
            {"feature_names": ["a", "b", "c"], "other_feature_names": ["x", "y", "z"]},
            "no feature name in common",
        ),
        (
            {"feature_names": ["a", "b", "b"], "other_feature_names": ["x", "y", "z"]},
            "feature_names must be distinct; 'b' occurs more than once",
        ),
        (
            {"feature_names": ["a", "b"], "other_feature_names": ["x", "y", "z"]},
            "has 2 names for 3 features",
        ),
        ({"similarity": "dot"}, "similarity must be 'cosine' or 'hellinger'; got 'dot'"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, object], message: str) -> None:
    given_arguments: dict[str, object] = {"components": np.eye(3), "other": np.eye(3)} | arguments
    with pytest.raises(ValueError, match=message):
        match_components(**given_arguments)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="other_feature_names needs other"):
        component_similarity(np.eye(3), other_feature_names=["a", "b", "c"])


# ---- distances and the map -----------------------------------------------------------------------


@pytest.mark.parametrize("convert", [np.asarray, sparse.csr_array])
def test_distances_are_those_of_scipy(convert: object) -> None:
    components = random_components(4, 6, 40)
    components[components < 0.05] = 0.0
    components[3] = 0.0
    found = jensen_shannon_distances(convert(components))  # type: ignore[operator]
    assert np.isnan(found[3]).all()
    assert np.isnan(found[:, 3]).all()
    for i, j in itertools.product([0, 1, 2, 4, 5], repeat=2):
        expected = jensenshannon(components[i], components[j], base=2) if i != j else 0.0
        assert found[i, j] == pytest.approx(expected, abs=1e-7)


@pytest.mark.parametrize("numbers", [1, 17, 100, 1000])
def test_distances_do_not_depend_on_the_blocks_that_are_summed(
    numbers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from klnmf.topics import distances

    components = random_components(4, 6, 40)
    whole = jensen_shannon_distances(components)
    compared, sizes = distances._shared_part, []

    def recorded(p: Any, q: Any) -> Any:
        sizes.append(q.size)
        return compared(p, q)

    monkeypatch.setattr(distances, "_NUMBERS_AT_ONCE", numbers)
    monkeypatch.setattr(distances, "_shared_part", recorded)
    np.testing.assert_allclose(jensen_shannon_distances(components), whole, rtol=1e-12)
    assert max(sizes) <= max(numbers, len(components))


def test_coordinates_keep_the_distances_of_three_components() -> None:
    components = random_components(7, 3)
    coordinates = intertopic_coordinates(components)
    expected = jensen_shannon_distances(components)
    np.testing.assert_allclose(squareform(pdist(coordinates)), expected, atol=1e-10)
    np.testing.assert_allclose(coordinates.mean(axis=0), 0.0, atol=1e-12)


def test_all_dimensions_together_keep_all_distances() -> None:
    components = random_components(8, 6)
    coordinates = intertopic_coordinates(components, n_dimensions=5)
    expected = jensen_shannon_distances(components)
    np.testing.assert_allclose(squareform(pdist(coordinates)), expected, atol=1e-10)
    spread = (coordinates**2).sum(axis=0)
    assert (np.diff(spread) < 0).all()
    np.testing.assert_allclose(intertopic_coordinates(components), coordinates[:, :2])
    largest = coordinates[np.abs(coordinates).argmax(axis=0), np.arange(5)]
    assert (largest > 0).all()


def test_few_and_empty_components_have_a_place_where_there_is_one() -> None:
    np.testing.assert_array_equal(intertopic_coordinates([[1.0, 2.0]]), [[0.0, 0.0]])
    with_empty = intertopic_coordinates([[1.0, 0.0], [0.0, 0.0], [0.0, 1.0]])
    np.testing.assert_allclose(with_empty, [[0.5, 0.0], [np.nan] * 2, [-0.5, 0.0]], atol=1e-12)
    assert np.isnan(intertopic_coordinates(np.zeros((2, 3)))).all()
    with pytest.raises(ValueError, match="n_dimensions must be a whole number of at least 1"):
        intertopic_coordinates(np.eye(2), n_dimensions=0)


@given(
    seed=st.integers(0, 10_000),
    scales=st.lists(st.floats(1e-6, 1e6), min_size=4, max_size=4),
)
def test_scale_does_not_move_components(seed: int, scales: list[float]) -> None:
    components = random_components(seed, 4)
    rescaled = components * np.array(scales)[:, None]
    expected = jensen_shannon_distances(components)
    np.testing.assert_allclose(jensen_shannon_distances(rescaled), expected, atol=1e-7)
