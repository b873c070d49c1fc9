"""The factorisation as probabilities: formulas, invariance, and what holds no mass."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import sparse

from klnmf.topics import component_shares, plsi_probabilities

Array = np.ndarray
ENTRIES = st.sampled_from([0.0, 0.0, 1.0, 0.3, 7.0, 1e-6, 1e6])


@st.composite
def factors(draw: st.DrawFn) -> tuple[Array, Array]:
    """W and components with empty rows and columns."""
    n, r, m = (draw(st.integers(1, 5)) for _ in range(3))
    W = draw(hnp.arrays(np.float64, (n, r), elements=ENTRIES))
    return W, draw(hnp.arrays(np.float64, (r, m), elements=ENTRIES))


@given(pair=factors())
def test_probabilities_give_back_the_product(pair: tuple[Array, Array]) -> None:
    W, components = pair
    mixture = plsi_probabilities(W, components)
    product = W @ components
    rates = product / (product.sum() or 1.0)
    P_z_given_d, P_w_given_z = mixture.component_given_sample, mixture.feature_given_component
    built = mixture.sample[:, None] * (P_z_given_d @ P_w_given_z)
    np.testing.assert_allclose(built, rates, rtol=1e-10, atol=1e-300)
    np.testing.assert_allclose(mixture.sample @ P_z_given_d, mixture.component, atol=1e-12)


@given(pair=factors())
def test_rows_add_up_to_one_or_are_empty(pair: tuple[Array, Array]) -> None:
    W, components = pair
    mixture = plsi_probabilities(W, components)
    filled = (W @ components).sum(axis=1) > 0
    np.testing.assert_allclose(mixture.component_given_sample.sum(axis=1), filled, rtol=1e-12)
    alive = components.sum(axis=1) > 0
    np.testing.assert_allclose(mixture.feature_given_component.sum(axis=1), alive, rtol=1e-12)
    assert mixture.component.sum() == pytest.approx(float(filled.any()))
    assert mixture.sample.sum() == pytest.approx(float(filled.any()))


@given(
    pair=factors(),
    scales=hnp.arrays(np.float64, 5, elements=st.floats(1e-100, 1e100)),
)
def test_rescaling_a_component_changes_nothing(pair: tuple[Array, Array], scales: Array) -> None:
    W, components = pair
    scale = scales[: W.shape[1]]
    expected = plsi_probabilities(W, components)
    found = plsi_probabilities(W / scale, components * scale[:, None])
    for before, after in zip(expected, found, strict=True):
        np.testing.assert_allclose(after, before, rtol=1e-9, atol=1e-290)


def test_formulas_by_hand() -> None:
    W = np.array([[1.0, 1.0, 5.0], [2.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 3.0]])
    components = np.array([[1.0, 0.0, 1.0], [0.0, 1.0, 2.0], [0.0, 0.0, 0.0]])
    mixture = plsi_probabilities(W, components)
    expected = [[0.4, 0.6, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    np.testing.assert_allclose(mixture.component_given_sample, expected)
    rows = [[0.5, 0.0, 0.5], [0.0, 1 / 3, 2 / 3], [0.0, 0.0, 0.0]]
    np.testing.assert_allclose(mixture.feature_given_component, rows)
    np.testing.assert_allclose(mixture.component, [6 / 9, 3 / 9, 0.0])
    np.testing.assert_allclose(mixture.sample, [5 / 9, 4 / 9, 0.0, 0.0])
    np.testing.assert_allclose(mixture.component, component_shares(components, W))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sparse_factors_stay_sparse_and_as_they_were(dtype: type) -> None:
    generator = np.random.default_rng(0)
    W = generator.integers(0, 3, size=(6, 4)).astype(dtype)
    components = generator.integers(0, 3, size=(4, 5)).astype(dtype)
    dense = plsi_probabilities(W, components)
    given_W, given_H = sparse.csr_array(W), sparse.csc_matrix(components)
    found = plsi_probabilities(given_W, given_H)
    for part in (found.component_given_sample, found.feature_given_component):
        assert sparse.issparse(part)
        assert part.dtype == np.float64
    np.testing.assert_allclose(found.component_given_sample.toarray(), dense.component_given_sample)
    np.testing.assert_allclose(
        found.feature_given_component.toarray(), dense.feature_given_component
    )
    np.testing.assert_allclose(found.component, dense.component)
    np.testing.assert_array_equal(given_W.toarray(), W)
    np.testing.assert_array_equal(given_H.toarray(), components)


def test_huge_factors_do_not_overflow() -> None:
    mixture = plsi_probabilities([[1e250, 1e250]], [[1e200, 0.0], [0.0, 3e200]])
    np.testing.assert_allclose(mixture.component_given_sample, [[0.25, 0.75]])
    np.testing.assert_allclose(mixture.component, [0.25, 0.75])


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(
        ValueError, match=r"per component \(2\); got shape \(2, 3\)\. It looks tran"
    ):
        plsi_probabilities(np.ones((2, 3)), np.ones((2, 5)))
    with pytest.raises(ValueError, match="W must be nonnegative and finite"):
        plsi_probabilities([[1.0, -1.0]], np.ones((2, 5)))
