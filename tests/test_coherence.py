"""Coherence: by hand, and where there is nothing to judge."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import sparse

from klnmf.topics import coherence, top_features

# Six samples. Feature 0 is in five of them, 1 in three, 2 in two, 3 in all, 4 in none.
X = np.array(
    [
        [3, 1, 0, 1, 0],
        [1, 2, 0, 1, 0],
        [1, 1, 1, 2, 0],
        [1, 0, 0, 1, 0],
        [2, 0, 0, 9, 0],
        [0, 0, 1, 1, 0],
    ]
)


def test_npmi_by_hand() -> None:
    [value] = coherence([[3.0, 2.0, 1.0, 0.0, 0.0]], X)
    pairs = [
        np.log((3 / 6) / (5 / 6 * 3 / 6)) / -np.log(3 / 6),  # 0 and 1 meet three times
        np.log((1 / 6) / (5 / 6 * 2 / 6)) / -np.log(1 / 6),  # 0 and 2 once
        np.log((1 / 6) / (3 / 6 * 2 / 6)) / -np.log(1 / 6),  # 1 and 2 once: independent
    ]
    assert pairs[2] == pytest.approx(0.0)
    assert value == pytest.approx(np.mean(pairs))


def test_umass_by_hand_conditions_on_the_earlier_feature() -> None:
    [value] = coherence([[3.0, 2.0, 1.0, 0.0, 0.0]], X, "umass")
    assert value == pytest.approx(np.mean([np.log(4 / 5), np.log(2 / 5), np.log(2 / 3)]))
    [turned] = coherence([[1.0, 2.0, 3.0, 0.0, 0.0]], X, "umass")
    assert turned == pytest.approx(np.mean([np.log(2 / 2), np.log(2 / 2), np.log(4 / 3)]))


def test_bounds_of_npmi() -> None:
    counts = [[1, 1, 0, 1], [1, 1, 0, 1], [0, 0, 1, 1]]
    pairs = [[2.0, 1.0, 0.0, 0.0], [2.0, 0.0, 1.0, 0.0], [2.0, 0.0, 0.0, 1.0], [0.0, 0.0, 1.0, 2.0]]
    # Only together; never together; one of the two everywhere, twice.
    np.testing.assert_allclose(coherence(pairs, counts), [1.0, -1.0, 0.0, 0.0], atol=1e-12)
    assert coherence([[1.0, 1.0]], [[1, 1], [2, 1]]).tolist() == [0.0]  # in every sample


def test_features_that_do_not_occur_are_left_out() -> None:
    both = coherence([[3.0, 2.0, 0.0, 0.0, 4.0], [3.0, 2.0, 0.0, 0.0, 0.0]], X)
    assert both[0] == both[1]
    nothing = coherence([[0.0, 2.0, 0.0, 0.0, 4.0], [0.0, 2.0, 0.0, 0.0, 0.0], np.zeros(5)], X)
    assert np.isnan(nothing).all()
    assert np.isnan(coherence(np.zeros((2, 5)), X)).all()


@pytest.mark.parametrize("measure", ["npmi", "umass"])
@pytest.mark.parametrize("by", ["weight", "frex"])
def test_many_components_against_a_plain_loop(measure: str, by: str) -> None:
    generator = np.random.default_rng(3)
    counts = generator.poisson(0.4, size=(50, 30))
    components = generator.gamma(0.3, size=(8, 30))
    components[4] = 0.0
    found = coherence(components, counts, measure, n_top=6, by=by)  # type: ignore[arg-type]
    there = counts > 0
    for k, topic in enumerate(top_features(components, n_top=6, by=by)):  # type: ignore[arg-type]
        columns = [int(name.split()[1]) for name, _ in topic]
        values = []
        for i, j in itertools.combinations(columns, 2):
            p_i, p_j, p_ij = (
                there[:, i].mean(),
                there[:, j].mean(),
                (there[:, i] & there[:, j]).mean(),
            )
            if measure == "umass":
                values.append(np.log((50 * p_ij + 1) / (50 * p_i)))
            else:
                values.append(np.log(p_ij / (p_i * p_j)) / -np.log(p_ij) if p_ij else -1.0)
        assert found[k] == pytest.approx(np.mean(values)) if values else np.isnan(found[k])


@pytest.mark.parametrize("convert", [sparse.csr_matrix, sparse.csc_array, sparse.coo_matrix])
def test_sparse_counts_give_the_same_and_stay_as_they_were(convert: object) -> None:
    components = np.random.default_rng(1).gamma(0.5, size=(3, 5))
    given = convert(X)  # type: ignore[operator]
    np.testing.assert_array_equal(coherence(components, given), coherence(components, X))
    np.testing.assert_array_equal(given.toarray(), X)
    stored_zero = sparse.csr_array(X.astype(float) + 1.0)
    stored_zero.data -= 1.0
    np.testing.assert_array_equal(coherence(components, stored_zero), coherence(components, X))


def test_a_wide_matrix_is_never_made_dense() -> None:
    n, m = 200_000, 1_000_000  # as a dense array 1.6 TB
    wide = sparse.csr_array((np.ones(4), ([0, 0, 1, n - 1], [5, m - 1, 5, m - 1])), shape=(n, m))
    components = sparse.csr_array((np.array([2.0, 1.0]), ([0, 0], [5, m - 1])), shape=(1, m))
    expected = np.log((1 / n) / (2 / n * 2 / n)) / -np.log(1 / n)
    assert coherence(components, wide) == pytest.approx(expected)


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="measure must be 'npmi' or 'umass'; got 'cv'"):
        coherence(np.eye(5), X, "cv")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="n_top must be a whole number of at least 2; got 1"):
        coherence(np.eye(5), X, n_top=1)
    with pytest.raises(ValueError, match=r"shape \(n_samples, 4\), one column .* got \(6, 5\)"):
        coherence(np.eye(4), X)
