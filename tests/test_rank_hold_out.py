"""How data are held out, and what held-out data say of a fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import xlogy

from klnmf.data.sparse_data import InMemoryData
from klnmf.data.validation import check_counts
from klnmf.model_selection import select_rank
from klnmf.model_selection.deviance import Cells, deviances, feature_shares
from klnmf.model_selection.hold_out import SpeckledSplit, n_hidden, random_cells, thinned
from rank_checks import counts

# ---- hold-out ------------------------------------------------------------------------------------


def test_thinned_parts_sum_to_the_counts_and_are_binomial() -> None:
    X = sp.csr_array(np.full((200, 100), 7.0, dtype=np.float32))
    train, test = thinned(X, 0.8, np.random.default_rng(0))
    assert np.array_equal((train + test).toarray(), X.toarray())
    assert train.data.min() > 0  # no explicit zeros
    assert test.data.min() > 0
    dense = train.toarray()
    assert abs(dense.mean() - 7 * 0.8) < 0.05
    assert abs(dense.var() - 7 * 0.8 * 0.2) < 0.05


def test_thinned_poisson_parts_are_independent() -> None:
    X = sp.csr_array(np.random.default_rng(1).poisson(3.0, (400, 300)).astype(np.float32))
    train, test = (part.toarray().ravel() for part in thinned(X, 0.5, np.random.default_rng(0)))
    assert abs(np.corrcoef(train, test)[0, 1]) < 4 / np.sqrt(train.size)


def test_deviance_is_that_of_the_formula() -> None:
    generator = np.random.default_rng(0)
    X = sp.csr_array(generator.poisson(0.7, (6, 5)).astype(float))
    W, H = generator.random((6, 2)), generator.random((5, 2))
    H[0] = 0.0  # a feature that the model does not know
    q, scale = np.array([0.1, 0.2, 0.3, 0.3, 0.1]), 0.25
    cells = Cells.stored_in(X)
    found = deviances(cells, (W, H), q, [0.01, 0.2], rest_is_zero=True, scale=scale)
    for background, row in zip([0.01, 0.2], found, strict=True):
        y, x = W @ H.T, X.toarray()
        total = y.sum(axis=1, keepdims=True)
        mu = scale * ((1 - background) * y + background * (total + 1) * q)
        expected = 2 * (xlogy(x, x / mu) - x + mu).sum(axis=1)
        np.testing.assert_allclose(row, expected, rtol=1e-12)


def test_shares_of_the_background_are_positive_and_sum_to_one() -> None:
    data = InMemoryData(check_counts(np.array([[3.0, 0.0], [1.0, 0.0]])))
    np.testing.assert_allclose(feature_shares(data), [5 / 6, 1 / 6])


def test_held_out_counts_without_a_rate_cost_something_finite() -> None:
    X = np.zeros((10, 6))
    X[:, :3] = 5
    X[0, 5] = 1  # a feature that occurs once: in training or in test
    X[9] = 0
    X[9, 4] = 1  # and so does a whole sample
    selection = select_rank(X, [1, 2], n_splits=4, random_state=0)
    assert np.isfinite(selection.deviance).all()


# ---- speckled hold-out ---------------------------------------------------------------------------


def masked_divergence(x: np.ndarray, y: np.ndarray, visible: np.ndarray) -> float:
    x, y = x[visible], y[visible] + 1e-300
    return float(np.sum(xlogy(x, x / y) - x + y))


@pytest.fixture(name="speckled")
def speckled_split() -> tuple[SpeckledSplit, np.ndarray, np.ndarray]:
    """A split, the data, and which cells it sees."""
    dense = 1.3 * counts(40, 30, 3, 150).toarray().astype(np.float64)
    split = SpeckledSplit(check_counts(dense), 0.8, [3], 1)
    visible = np.ones(dense.shape, dtype=bool)
    visible[split._hidden.rows, split._hidden.columns] = False
    return split, dense, visible


def test_hidden_cells_are_random_and_include_zeros(speckled: Any) -> None:
    split, dense, visible = speckled
    assert (~visible).sum() == round(0.2 * dense.size)
    np.testing.assert_array_equal(split._hidden.x, dense[~visible])
    share = (dense[~visible] == 0).mean()
    assert abs(share - (dense == 0).mean()) < 0.12


def test_fit_to_the_visible_cells_is_that_of_masked_updates(speckled: Any) -> None:
    split, dense, visible = speckled
    factors = None
    for rank in (1, 2, 3):
        factors = split.fitted(factors, rank, [3, rank])
    W, H = (np.asarray(factor, dtype=np.float64) for factor in factors)
    ours = masked_divergence(dense, W @ H.T, visible)
    assert split.objective(factors) == pytest.approx(ours, rel=1e-5)
    # Multiplicative updates with a mask, from there: no better optimum close by.
    for _ in range(500):
        W *= (visible * dense / (W @ H.T + 1e-300)) @ H / (visible @ H)
        H *= (visible * dense / (W @ H.T + 1e-300)).T @ W / (visible.T @ W)
    assert masked_divergence(dense, W @ H.T, visible) > 0.995 * ours


def test_way_back_of_the_speckled_hold_out_has_fewer_components(speckled: Any) -> None:
    split = speckled[0]
    three = split.fitted(None, 3, [0, 0, 3])
    two = split.merged(three, 2, [0, 0, 2])
    assert two[0].shape[1] == two[1].shape[1] == 2
    one = split.fitted(None, 1, [0, 0, 1])
    assert split.objective(three) < split.objective(two) < split.objective(one)


def test_hidden_values_do_not_reach_the_fit() -> None:
    dense = 1.3 * counts(40, 30, 3, 150).toarray().astype(np.float64)
    split = SpeckledSplit(check_counts(dense), 0.8, [3], 1)
    other = dense.copy()
    other[split._hidden.rows, split._hidden.columns] = 77.7 * (
        dense[split._hidden.rows, split._hidden.columns] > 0
    )
    again = SpeckledSplit(check_counts(other), 0.8, [3], 1)
    for ours, theirs in zip(split.fitted(None, 2, [0]), again.fitted(None, 2, [0]), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_number_of_hidden_cells_is_bounded_by_the_nonzeros() -> None:
    assert n_hidden((1000, 1000), 50_000, 0.9) == 100_000
    assert n_hidden((1_000_000, 1_000_000), 50_000, 0.9) == 500_000
    for n_cells in (20, 90):  # both ways of drawing
        cells = random_cells((10, 10), n_cells, np.random.default_rng(0))
        assert len(np.unique(cells)) == n_cells
        assert cells.max() < 100


def test_values_that_are_no_counts_are_held_out_by_cells_with_a_warning() -> None:
    X = counts(100, 60, 3, 300).toarray() * 0.37
    with pytest.warns(UserWarning, match="not whole numbers.*speckled"):
        selection = select_rank(X, range(1, 6), n_splits=2, random_state=0)
    assert selection.method == "speckled"
    assert selection.best_rank == 3
