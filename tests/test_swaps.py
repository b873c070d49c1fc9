"""Swaps of components: what is proposed, what a fit makes of it, and when there are none."""

from __future__ import annotations

from functools import cache
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from klnmf import KLNMF
from klnmf.backends.numpy_factors import NumpyFactors
from klnmf.data.sparse_data import InMemoryData, InMemoryView
from klnmf.simulate import simulate_counts
from klnmf.solvers import SparseCoordinateDescent, coordinate_descent
from klnmf.solvers.swaps import (
    ROWS_PER_COMPONENT,
    SAMPLE_LEAST,
    SAMPLE_MOST,
    Swap,
    draw_sample,
    propose_swaps,
)
from strategies import srcd

Array = Any

# Nearly pure samples: the hardest case, where fits without swaps end in local optima.
PLANTED = simulate_counts(
    500, 300, 12, concentration_W=0.05, concentration_H=0.05, counts_per_sample=150, random_state=1
)
RANK = 12


def seen(X: sp.csr_array) -> InMemoryView:
    """X as swaps see it."""
    return InMemoryData(sp.csr_array(X)).view(0)


SEEN = seen(PLANTED.X)
NO_SWAPS = SparseCoordinateDescent(swap_failures=0)


def model(**parameters: Any) -> KLNMF:
    return KLNMF(**{"n_components": RANK, "max_iter": 300, "n_threads": 1, **parameters})


def planted_pair() -> tuple[Array, Array]:
    """W and H of the planted model, the columns of H summing to 1, every nonzero covered."""
    fit = model(random_state=0, dtype=np.float64)
    start = {"W": np.maximum(PLANTED.W, 1e-6), "H": np.maximum(PLANTED.H.T, 1e-9)}
    W, H = fit.fit_transform(PLANTED.X, **start), fit.components_.T
    sums = H.sum(axis=0)
    return W * sums, H / sums


def stuck_pair() -> tuple[Array, Array]:
    """The planted model with topics 0 and 1 in component 0, and half of topic 2 in component 1."""
    W, H = planted_pair()
    masses = W[:, :2].sum(axis=0)
    H[:, 0] = H[:, :2] @ masses / masses.sum()
    W[:, 0] += W[:, 1]
    half = np.random.default_rng(0).uniform(0.3, 0.7, size=len(W))
    W[:, 1], H[:, 1] = half * W[:, 2], H[:, 2]
    W[:, 2] *= 1 - half
    return W, H


def after(swap: Swap, W: Array, H: Array) -> tuple[Array, Array]:
    """The pair that a swap makes of W and H."""
    merged = NumpyFactors.merged
    return merged(W, swap.pair, (1.0, 1.0), None), merged(H, swap.pair, swap.shares, swap.column)


def propose(W: Array, H: Array, seed: int = 0) -> Swap | None:
    """The best swap proposed for a pair on all of the data."""
    swaps = propose_swaps(SEEN, W, H, W.sum(axis=0), np.random.default_rng(seed))
    return swaps[0] if swaps else None


def log_likelihood(X: sp.csr_array, W: Array, H: Array) -> float:
    """Σ v log (W Hᵀ) over the nonzeros."""
    rows, columns = X.nonzero()
    return float(X.data @ np.log((W[rows] * H[columns]).sum(axis=1)))


# ---- what is proposed ----------------------------------------------------------------------------


def test_a_topic_with_two_components_gives_one_to_a_topic_without() -> None:
    W, H = stuck_pair()
    swap = propose(W, H)
    assert swap is not None
    assert swap.pair == (1, 2)
    assert swap.is_promising
    planted = planted_pair()[1]
    overlap = [float(np.minimum(swap.column, planted[:, k]).sum()) for k in range(RANK)]
    assert np.argmax(overlap) in (0, 1)  # one of the two topics that shared a component
    assert max(overlap) > 0.5


def test_no_swap_is_promising_at_the_planted_optimum() -> None:
    W, H = planted_pair()
    for seed in range(5):
        swap = propose(W, H, seed)
        assert swap is None or not swap.is_promising


def test_the_loss_is_that_of_the_cheapest_merge() -> None:
    W, H = planted_pair()
    swap = propose(W, H)
    assert swap is not None
    losses = {}
    for pair in combinations(range(RANK), 2):
        masses = W[:, pair].sum(axis=0)
        merged = Swap(pair, tuple(masses / masses.sum()), np.zeros(len(H)), 0.0, 0.0)
        losses[pair] = log_likelihood(PLANTED.X, W, H) - log_likelihood(
            PLANTED.X, *after(merged, W, H)
        )
    assert swap.pair == min(losses, key=lambda pair: losses[pair])
    assert swap.loss == pytest.approx(losses[swap.pair], rel=1e-9)


def test_the_gain_is_reached_by_some_weights_of_the_new_component() -> None:
    W, H = stuck_pair()
    swap = propose(W, H)
    assert swap is not None
    assert swap.column.min() >= 0
    assert swap.column.sum() == pytest.approx(1)
    rows, columns = PLANTED.X.nonzero()
    y, h = (W[rows] * H[columns]).sum(axis=1), swap.column[columns]
    u = 0.1 * np.bincount(rows, PLANTED.X.data)
    for _ in range(200):  # the weights alone, to the end
        u = u * np.bincount(rows, PLANTED.X.data * h / (y + u[rows] * h), len(u))
    most = float(PLANTED.X.data @ np.log1p(u[rows] * h / y) - u.sum())
    assert 0 < swap.gain <= most * (1 + 1e-9)
    assert swap.gain > 0.5 * most


def test_a_swap_keeps_row_sums_and_covers() -> None:
    W, H = stuck_pair()
    swap = propose(W, H)
    assert swap is not None
    W_new, H_new = after(swap, W, H)
    np.testing.assert_allclose(W_new @ H_new.sum(axis=0), W @ H.sum(axis=0), rtol=1e-12)
    rows, columns = PLANTED.X.nonzero()
    assert ((W_new[rows] * H_new[columns]).sum(axis=1) > 0).all()


def test_no_swap_without_a_pair_a_nonzero_a_misfit_or_a_cover() -> None:
    generator = np.random.default_rng(0)
    one = np.ones((2, 1))
    assert not propose_swaps(
        seen(sp.csr_array(np.ones((2, 2)))), one, one / 2, np.ones(1), generator
    )
    W, H = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[0.5, 0.25], [0.5, 0.75]])
    masses = W.sum(axis=0)
    assert not propose_swaps(seen(sp.csr_array((2, 2))), W, H, masses, generator)
    assert not propose_swaps(seen(sp.csr_array(W @ H.T)), W, H, masses, generator)
    W[0] = 0
    assert not propose_swaps(seen(sp.csr_array(np.ones((2, 2)))), W, H, masses, generator)


def test_swaps_come_in_the_order_of_their_gains() -> None:
    W, H = stuck_pair()
    swaps = propose_swaps(SEEN, W, H, W.sum(axis=0), np.random.default_rng(0), 6)
    gains = [swap.gain for swap in swaps]
    assert len(set(gains)) > 1
    assert gains == sorted(gains, reverse=True)
    assert {swap.pair for swap in swaps} == {(1, 2)}


def test_components_that_the_sample_does_not_know_are_not_merged() -> None:
    W, H = planted_pair()
    known = (W[:, 3] < 1e-3) & (W[:, 4] < 1e-3)
    part, W_known = sp.csr_array(PLANTED.X[known]), np.where(W[known] < 1e-3, 1e-9, W[known])
    swap, *_ = propose_swaps(seen(part), W_known, H, W.sum(axis=0), np.random.default_rng(0))
    assert swap.pair != (3, 4)  # which would cost nothing on these rows
    assert swap.loss > 1


def view_of(n_rows: int, row_length: int, n_columns: int) -> InMemoryView:
    """Rows of equal length at random columns."""
    generator = np.random.default_rng(0)
    columns = [
        np.sort(generator.choice(n_columns, row_length, replace=False)) for _ in range(n_rows)
    ]
    X = sp.csr_array(
        (np.ones(n_rows * row_length), np.concatenate(columns), np.arange(n_rows + 1) * row_length),
        shape=(n_rows, n_columns),
    )
    return InMemoryData(X).view(0)


def test_the_sample_is_rows_of_the_data_with_the_columns_they_use() -> None:
    view = view_of(20_000, 5, 3_000)
    samples = [draw_sample(view, 4, np.random.default_rng(seed)) for seed in (0, 1)]
    for rows, (columns,), X, _ in samples:
        assert X.nnz == pytest.approx(SAMPLE_LEAST, rel=1e-3)
        assert (np.diff(rows) > 0).all()
        expected = view.as_csr()[rows]
        assert (X.as_csr() != expected[:, columns]).nnz == 0
        assert X.values.sum() == expected.sum()
    assert not np.array_equal(samples[0].rows, samples[1].rows)
    small = view_of(10, 3, 8)
    np.testing.assert_array_equal(
        draw_sample(small, 2, np.random.default_rng(0)).rows, np.arange(10)
    )


def test_a_sample_of_long_rows_leaves_columns_out() -> None:
    view = view_of(120, 20_000, 50_000)
    rows, (columns,), X, _ = draw_sample(view, 4, np.random.default_rng(0))
    assert len(rows) == 4 * ROWS_PER_COMPONENT
    assert X.nnz <= 1.2 * SAMPLE_MOST
    expected = view.as_csr()[rows].toarray()[:, columns]
    np.testing.assert_array_equal(X.as_csr().toarray(), expected)


# ---- what a fit makes of it ----------------------------------------------------------------------


def test_fits_end_at_the_planted_optimum() -> None:
    hard = simulate_counts(
        500, 300, RANK, concentration_W=0.05, concentration_H=0.05, counts_per_sample=150,
        random_state=4,
    )  # fmt: skip
    start = {"W": np.maximum(hard.W, 1e-6), "H": np.maximum(hard.H.T, 1e-9)}
    planted = model(random_state=0).fit(hard.X, **start).divergence_

    def hits(**parameters: Any) -> int:
        fits = (model(random_state=seed, **parameters).fit(hard.X) for seed in range(10))
        return sum(fit.divergence_ <= 1.002 * planted for fit in fits)

    assert hits() >= 9
    assert hits(solver=NO_SWAPS) <= 5


@cache
def swapping_seed() -> int:
    """A seed with which a fit swaps."""
    for seed in range(20):
        ends = [
            model(random_state=seed, **how).fit(PLANTED.X).divergence_
            for how in ({}, {"solver": NO_SWAPS})
        ]
        if ends[0] < 0.99 * ends[1]:
            return seed
    raise AssertionError("no fit of twenty gained by a swap")


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("penalty", [0.0, 0.5])
def test_the_objective_never_rises_over_swaps(dtype: type, penalty: float) -> None:
    fit = model(random_state=swapping_seed(), dtype=dtype, l1_W=penalty, l1_H=penalty)
    objectives = [record["objective"] for record in fit.fit(PLANTED.X).history_]
    allowed = (1e-8 if dtype == np.float32 else 1e-12) * PLANTED.X.sum()
    assert (np.diff(objectives) <= allowed).all()


def test_swaps_are_the_same_on_any_number_of_threads() -> None:
    seed = swapping_seed()
    fits = [model(random_state=seed, n_threads=threads).fit(PLANTED.X) for threads in (1, 2, 5)]
    for fit in fits[1:]:
        np.testing.assert_array_equal(fit.components_, fits[0].components_)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_fit_in_pieces_swaps_like_one_in_a_piece() -> None:
    seed = swapping_seed()
    whole = model(random_state=seed, max_iter=40, tol=0).fit(PLANTED.X)
    pieces = model(random_state=seed, max_iter=5, tol=0, warm_start=True)
    for _ in range(8):
        pieces.fit(PLANTED.X)
    np.testing.assert_array_equal(pieces.components_, whole.components_)


def test_a_start_of_ones_own_is_not_left() -> None:
    W, H = stuck_pair()
    kept, plain = (
        model(random_state=0, **how).fit(PLANTED.X, W=W, H=H.T)
        for how in ({}, {"solver": NO_SWAPS})
    )
    np.testing.assert_array_equal(kept.components_, plain.components_)


def test_a_failed_trial_leaves_the_pair_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    # Every swap is tried, and at the optimum none can pay.
    monkeypatch.setattr(Swap, "is_promising", True)
    hasty = srcd(swap_descents=1, swap_failures=20)
    fit = model(random_state=swapping_seed(), solver=hasty).fit(PLANTED.X)
    objectives = [record["objective"] for record in fit.history_]
    assert (np.diff(objectives) <= 1e-8 * PLANTED.X.sum()).all()


def test_an_interrupted_trial_leaves_the_pair_from_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(*arguments: Any) -> None:
        raise KeyboardInterrupt

    fit = model(random_state=swapping_seed())
    monkeypatch.setattr(coordinate_descent, "_swapped", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fit.fit(PLANTED.X)
    assert len(fit.history_) > 1
    assert fit.divergence_ == pytest.approx(fit.history_[-1]["divergence"], rel=1e-6)


@pytest.mark.parametrize("penalties", [{"l1_W": 1.0}, {"l2_H": 1.0}])
@pytest.mark.filterwarnings("ignore:Only one of the factors is penalised")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_no_swaps_where_the_scale_alone_decides(penalties: dict[str, float]) -> None:
    ends = [
        model(random_state=swapping_seed(), max_iter=40, **penalties, **how).fit(PLANTED.X)
        for how in ({}, {"solver": NO_SWAPS})
    ]
    np.testing.assert_array_equal(ends[0].components_, ends[1].components_)


def test_swaps_pay_under_penalties_on_both_factors() -> None:
    ends = [
        model(random_state=swapping_seed(), l1_W=0.3, l2_H=0.3, **how).fit(PLANTED.X)
        for how in ({}, {"solver": NO_SWAPS})
    ]
    assert ends[0].history_[-1]["objective"] < 0.995 * ends[1].history_[-1]["objective"]
