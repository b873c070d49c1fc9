"""The step of the CUDA kernels, in NumPy: what is proved of it. No GPU is needed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cuda_step import kappa, largest_ratios, second_derivatives, step, to_bfloat16
from klnmf.backends.cuda.rows import Tasks, row_starts

Array = np.ndarray


def value(v: Array, A: Array, x: Array, c: Array, l2: float) -> float:
    return float(c @ x + 0.5 * l2 * x @ x - v @ np.log(A @ x))


@st.composite
def rows(draw: st.DrawFn) -> tuple[Array, Array, Array, Array, float]:
    """Nonzeros, A, x, c and l2 of a row: counts or not, entries of very different sizes, zeros."""
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, r = draw(st.integers(1, 60)), draw(st.integers(1, 12))
    spread = draw(st.sampled_from([0.1, 1.0, 3.0]))
    A = np.exp(spread * generator.normal(size=(n, r))) * (generator.random((n, r)) < 0.7)
    A[:, 0] += 1e-3
    x = np.exp(spread * generator.normal(size=r)) * (generator.random(r) < 0.8)
    x[0] += 0.1
    v = 1.0 + generator.poisson(2.0, n)
    v *= draw(st.sampled_from([1.0, 1.0, 0.01]))
    if draw(st.booleans()):
        v *= np.exp(generator.normal(size=n))
    c = A.sum(axis=0) * np.exp(generator.normal(size=r)) + 1e-3
    l2 = draw(st.sampled_from([0.0, 0.0, 0.3, 30.0]))
    return v, A, x, c, l2


@settings(max_examples=300)
@given(rows())
def test_a_step_never_raises_the_value_nor_uncovers_a_nonzero(row: tuple) -> None:
    v, A, x, c, l2 = row
    moved = step(v, A, x, c, l2)
    before = value(v, A, x, c, l2)
    assert (moved >= 0).all()
    assert (A @ moved > 0).all()
    assert (A @ moved >= 0.04 * (A @ x)).all()
    assert value(v, A, moved, c, l2) <= before + 1e-9 * (abs(before) + v.sum())


@settings(max_examples=200)
@given(rows())
def test_the_bound_on_ratios_holds_and_bfloat16_needs_its_factor(row: tuple) -> None:
    v, A, x, _, _ = row
    y = A @ x
    bound = largest_ratios(v, second_derivatives(v, A, y))
    assert (A / y[:, None] <= bound * (1 + 1e-6)).all()


def test_without_the_factor_the_bound_is_violated() -> None:
    """One nonzero whose number is rounded down by nearly 2⁻⁸."""
    y, v = np.array([1.0]), np.array([1.0])
    A = np.array([[1.0 + 2.0**-8 - 2.0**-20]])
    M = second_derivatives(v, A, y)
    assert A[0, 0] > np.sqrt(M[0, 0])
    assert A[0, 0] <= largest_ratios(v, M)[0]


@settings(max_examples=100)
@given(rows())
def test_zeros_that_should_stay_do_and_steps_converge(row: tuple) -> None:
    v, A, x, c, l2 = row
    S = (v / (A @ x)) @ A
    stays = (x == 0) & (c >= S)
    assert (step(v, A, x, c, l2)[stays] == 0).all()
    for _ in range(300):
        x = step(v, A, x, c, l2)
    gradient = c + l2 * x - (v / (A @ x)) @ A
    residual = np.abs(np.minimum(x * c / v.sum(), gradient / c)).max()
    assert residual < 1e-2


def test_zeros_are_exact() -> None:
    generator = np.random.default_rng(0)
    A = generator.random((40, 6)) ** 4
    v, x = 1.0 + generator.poisson(3.0, 40), np.ones(6)
    c = A.sum(axis=0) * np.array([1, 1, 1, 30, 30, 30])
    for _ in range(40):
        x = step(v, A, x, c)
    assert (x[3:] == 0).all()
    assert (x[:3] > 0).any()


@pytest.mark.parametrize("share", [0.0, 0.01, 0.0199, 0.02, 0.3, 0.6, 0.94])
def test_kappa_bounds_the_logarithm(share: float) -> None:
    u = np.linspace(-share, 3.0, 1001)
    assert (-np.log1p(u) <= -u + kappa(share) * u**2 / 2 + 1e-12).all()


def test_rounding_to_bfloat16_is_to_nearest_even() -> None:
    numbers = np.array([1.0 + 2.0**-8, 1.0 + 3 * 2.0**-8, -0.1, 3e38, 0.0])
    found = to_bfloat16(numbers)
    assert found[:2].tolist() == [1.0, 1.0 + 2.0**-6]
    assert np.abs(found - numbers).max() <= 2.0**-8 * 3e38


@pytest.mark.parametrize("longest", [32, 64])
def test_tasks_cover_every_nonzero_once(longest: int) -> None:
    lengths = np.array([0, 5, 16, 17, 300, 0, 64, 65, 1])
    starts = row_starts(lengths)
    tasks = Tasks.of(lengths, longest)
    seen = np.concatenate([np.arange(a, b) for a, b in zip(tasks.begin, tasks.end, strict=True)])
    places = [np.arange(a, a + n) for a, n in zip(starts, lengths, strict=False)]
    assert sorted(seen) == list(np.concatenate(places))
    assert (tasks.begin % 4 == 0).all()
    assert ((tasks.end - tasks.begin) <= longest).all()
    assert set(tasks.row) == set(range(len(lengths)))
    for row, begin, end in zip(tasks.row, tasks.begin, tasks.end, strict=True):
        assert starts[row] <= begin <= end <= starts[row] + lengths[row]
    pieces = tasks.slot >= 0
    assert sorted(tasks.slot[pieces]) == list(range(pieces.sum()))
    assert set(tasks.row[pieces]) == set(np.flatnonzero(lengths > longest))
