"""Similarity, matching, distances, and the map of components."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from scipy.spatial.distance import jensenshannon

from klnmf.topics import (
    component_similarity,
    intertopic_coordinates,
    match_components,
)


def random_components(seed: int, n_components: int, n_features: int = 12) -> np.ndarray:
    return np.random.default_rng(seed).gamma(0.3, size=(n_components, n_features)) + 1e-9


# ---- similarity and matching ---------------------------------------------------------------------


def test_similarities_by_hand() -> None:
    components = [[3.0, 4.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0]]
    cosine = component_similarity(components)
    np.testing.assert_allclose(cosine, [[1.0, 0.8, 0.0], [0.8, 1.0, 0.0], [0.0, 0.0, 0.0]])


def test_sparse_components_give_the_same() -> None:
    first, second = (
        random_components(seed, 4) * (random_components(9, 4) > 0.1) for seed in (0, 1)
    )
    expected = component_similarity(first, second)
    for a, b in itertools.product(
        (first, sparse.csr_array(first)), (second, sparse.coo_matrix(second))
    ):
        found = component_similarity(a, b)
        assert isinstance(found, np.ndarray)
        np.testing.assert_allclose(found, expected)


@given(
    seed=st.integers(0, 10_000),
    n_components=st.integers(1, 8),
    data=st.data(),
)
def test_a_permuted_and_rescaled_copy_is_found(
    seed: int, n_components: int, data: st.DataObject
) -> None:
    components = random_components(seed, n_components)
    permutation = np.array(data.draw(st.permutations(range(n_components))))
    scales = np.random.default_rng(seed).gamma(1.0, size=(n_components, 1)) + 0.1
    copy = (components * scales)[permutation]
    match = match_components(components, copy)
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


def test_other_features_are_refused() -> None:
    with pytest.raises(ValueError, match="The models have 3 and 2 features"):
        match_components(np.eye(3), np.eye(2))


# ---- distances and the map -----------------------------------------------------------------------


@pytest.mark.parametrize("convert", [np.asarray, sparse.csr_array])
def test_coordinates_keep_the_distances_of_three_components(convert: object) -> None:
    components = random_components(7, 3)
    components[components < 0.05] = 0.0
    coordinates = intertopic_coordinates(convert(components))  # type: ignore[operator]
    for i, j in itertools.combinations(range(3), 2):
        expected = jensenshannon(components[i], components[j], base=2)
        assert np.linalg.norm(coordinates[i] - coordinates[j]) == pytest.approx(expected, abs=1e-10)
    np.testing.assert_allclose(coordinates.mean(axis=0), 0.0, atol=1e-12)


def test_the_axis_that_shows_more_is_the_first_and_signs_are_fixed() -> None:
    coordinates = intertopic_coordinates(random_components(8, 6))
    first, second = (coordinates**2).sum(axis=0)
    assert first > second
    assert (coordinates[np.abs(coordinates).argmax(axis=0), [0, 1]] > 0).all()


def test_few_and_empty_components_have_a_place_where_there_is_one() -> None:
    np.testing.assert_array_equal(intertopic_coordinates([[1.0, 2.0]]), [[0.0, 0.0]])
    with_empty = intertopic_coordinates([[1.0, 0.0], [0.0, 0.0], [0.0, 1.0]])
    np.testing.assert_allclose(with_empty, [[0.5, 0.0], [np.nan] * 2, [-0.5, 0.0]], atol=1e-12)
    assert np.isnan(intertopic_coordinates(np.zeros((2, 3)))).all()


@given(
    seed=st.integers(0, 10_000),
    scales=st.lists(st.floats(1e-6, 1e6), min_size=4, max_size=4),
)
def test_scale_does_not_move_components(seed: int, scales: list[float]) -> None:
    components = random_components(seed, 4)
    rescaled = components * np.array(scales)[:, None]
    first, second = (intertopic_coordinates(each) for each in (components, rescaled))
    np.testing.assert_allclose(first @ first.T, second @ second.T, atol=1e-6)  # whatever the signs
