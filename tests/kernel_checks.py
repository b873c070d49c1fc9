"""Every rule with settings for tests, and the comparison of a half-step with the reference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from klnmf.backends.base import (
    DenseRule,
    Fixed,
    Improve,
    Multiply,
    PaperRule,
    RowTotals,
    Rule,
)
from klnmf.backends.cpu import CpuBackend
from klnmf.backends.reference import ReferenceBackend
from klnmf.constraints.penalties import NO_PENALTIES, Penalties
from klnmf.data.sparse_data import InMemoryData
from strategies import Case, random_case

Array = np.ndarray


def reversed_order(rank: int) -> Array:
    return np.arange(rank, dtype=np.int32)[::-1].copy()


def guarded(x: Array, A: Array, **settings: Any) -> Improve:
    return Improve(reversed_order(A.shape[1]), **settings)


def dense(x: Array, A: Array, mode: int) -> DenseRule:
    W, H = (factor.astype(np.float64) for factor in ((x, A) if mode == 0 else (A, x)))
    return DenseRule(W @ H.T, max_newton=3)  # long loops magnify rounding; a few steps tell as much


# What a back-end is asked to do with a factor x of a mode, the other factor A being fixed.
RULES: dict[str, Callable[[Array, Array, int], Rule]] = {
    "guarded": lambda x, A, mode: guarded(x, A),
    "guarded, many rounds": lambda x, A, mode: guarded(x, A, rounds=4, passes=3),
    "guarded, to a tolerance": lambda x, A, mode: guarded(x, A, rounds=9, tolerance=0.05),
    "guarded, no value": lambda x, A, mode: guarded(x, A, want_value=False),
    "multiplicative": lambda x, A, mode: Multiply(),
    "multiplicative, relaxed": lambda x, A, mode: Multiply(relaxed=2),
    "paper": lambda x, A, mode: PaperRule(reversed_order(A.shape[1])),
    "paper, signed break": lambda x, A, mode: PaperRule(
        reversed_order(A.shape[1]), signed_break=True
    ),
    "dense": dense,
}
SPARSE_RULES = {name: rule for name, rule in RULES.items() if name != "dense"}
UNGUARDED = (RULES["paper"], RULES["paper, signed break"], RULES["dense"])


def from_the_left(case: Case, mode: int) -> Case:
    """The same case with every row of the mode's factor at half the scale that fits its sum.

    A Newton step without a guard then grows what it should; one that overshoots magnifies rounding.
    """
    x, A, view = (case.W, case.H)[mode], (case.H, case.W)[mode], InMemoryData(case.X).view(mode)
    scales = 0.5 * view.row_sums / (x @ A.sum(axis=0, dtype=np.float64))
    x *= np.where(scales > 0, scales, 1)[:, None].astype(x.dtype)
    return case


def case_for(
    make_rule: Callable,
    mode: int,
    shape: tuple[int, int],
    rank: int,
    *,
    dtype: type = np.float64,
    **how: Any,
) -> Case:
    """A start from which the rule is stable, so that two implementations can be compared."""
    if make_rule not in UNGUARDED:
        return random_case(shape, rank, dtype=dtype, **how)
    return from_the_left(random_case(shape, rank, dtype=dtype, **how, zeros=0.0, spread=0.3), mode)


def half_step(
    backend: CpuBackend | ReferenceBackend,
    case: Case,
    mode: int,
    make_rule: Callable[[Array, Array, int], Rule],
    penalties: Penalties = NO_PENALTIES,
) -> tuple[Array, RowTotals, Rule]:
    """The new factor of the mode, what the back-end said about it, and the rule as it was left."""
    factors = [case.W, case.H]
    x, A = backend.upload(factors[mode], mode), backend.upload(factors[1 - mode], 1 - mode)
    c = backend.column_sums(A) + penalties.l1[mode]
    rule = make_rule(x, A, mode)
    totals = backend.update_rows(x, Fixed(mode, (A,), l2=penalties.l2[mode], slopes=c), rule)
    return x, totals, rule


def assert_close(found: Array, expected: Array, before: Array, tolerance: float) -> None:
    """Equal to rounding, judged against the largest entry of each row, before or now."""
    assert found.dtype == expected.dtype
    assert np.isfinite(found).all()
    scale = np.maximum(expected, before).max(axis=1, keepdims=True)
    scale[scale == 0] = 1
    np.testing.assert_allclose(found / scale, expected / scale, rtol=tolerance, atol=tolerance)


def assert_same_half_step(
    case: Case,
    mode: int,
    make_rule: Callable[[Array, Array, int], Rule],
    penalties: Penalties = NO_PENALTIES,
    data: InMemoryData | None = None,
) -> tuple[Array, RowTotals]:
    data = data or InMemoryData(case.X)
    before = (case.W, case.H)[mode]
    x, totals, rule = half_step(CpuBackend(data, 2), case, mode, make_rule, penalties)
    expected_x, expected, expected_rule = half_step(
        ReferenceBackend(data), case, mode, make_rule, penalties
    )
    tolerance = 2e-4 if x.dtype == np.float32 else 1e-9
    assert_close(x, expected_x, before, tolerance)
    # In float32 an entry on the edge of being set to 0 may take one more visit.
    differing = np.mean((x == 0) != (expected_x == 0))
    assert differing <= (0.02 if x.dtype == np.float32 else 0)
    assert totals.kkt == pytest.approx(expected.kkt, rel=5 * tolerance, abs=tolerance)
    assert totals.gap == pytest.approx(
        expected.gap, rel=tolerance, abs=tolerance * case.total, nan_ok=True
    )
    assert np.isnan(totals.gap) != rule.gives_gap
    # Both values are sums in double, of factors that agree to the tolerance above only.
    assert totals.value == pytest.approx(
        expected.value, rel=tolerance, abs=tolerance * case.total, nan_ok=True
    )
    if isinstance(rule, DenseRule):
        assert isinstance(expected_rule, DenseRule)
        assert_close(rule.product, expected_rule.product, case.W @ case.H.T, tolerance)
    return x, totals
