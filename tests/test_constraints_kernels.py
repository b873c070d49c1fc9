"""Rules on rows that have terms of their own, against the reference; also run under sanitizers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from kernel_checks import SPARSE_RULES, assert_same_half_step, half_step
from klnmf import _core
from klnmf.backends.base import Fixed, PaperRule, Solve
from klnmf.backends.cpu import CpuBackend, core_constraints
from klnmf.backends.reference import ReferenceBackend
from klnmf.constraints.penalties import NO_PENALTIES, Penalties
from klnmf.data.canonical import row_numbers
from klnmf.data.row_constraints import Pattern, RowConstraints
from klnmf.data.sparse_data import InMemoryData
from strategies import Case, random_case, same_bits

Array = np.ndarray

RULES = {name: rule for name, rule in SPARSE_RULES.items() if not name.startswith("paper")}
KINDS = ("missing", "barred", "scaled", "frozen", "all")
RANK = 7


def pattern(generator: np.random.Generator, shape: tuple[int, int], share: float) -> sp.csr_array:
    return sp.csr_array(generator.random(shape) < share)


def terms_of_mode(kind: str, shape: tuple[int, int], rank: int, seed: int = 0) -> RowConstraints:
    """Terms of rows of a matrix; every third row has no cell or entry of its own."""
    generator = np.random.default_rng(seed)
    missing, barred = pattern(generator, shape, 0.3), pattern(generator, (shape[0], rank), 0.3)
    missing, barred = missing.tolil(), barred.tolil()
    missing[::3], barred[::3] = False, False
    barred[:, [0, rank - 2]] = False
    frozen = np.zeros(rank, dtype=np.uint8)
    frozen[rank - 2] = 1
    everything = RowConstraints(
        missing=Pattern.of(sp.csr_array(missing)),
        barred=Pattern.of(sp.csr_array(barred), np.int32),
        penalty_shares=np.exp(generator.normal(size=(shape[0], 2))),
        l1=0.4,
        frozen=frozen,
    )
    fields = {"scaled": "penalty_shares"}.get(kind, kind)
    if kind == "all":
        return everything
    return replace(
        RowConstraints(l1=0.4 if kind == "scaled" else 0.0), **{fields: getattr(everything, fields)}
    )


def with_terms(case: Case, mode: int, terms: RowConstraints) -> tuple[Case, InMemoryData]:
    """The case without what is missing or barred, and its data with the terms in this mode."""
    X = case.X if mode == 0 else sp.csr_array(case.X.T)
    if terms.missing is not None:
        hidden = np.zeros(X.shape, dtype=bool)
        hidden[row_numbers(terms.missing.starts), terms.missing.columns] = True
        X = sp.csr_array(np.where(hidden, 0, X.toarray()))
    X = X if mode == 0 else sp.csr_array(X.T)
    data = InMemoryData(X, (terms, None) if mode == 0 else (None, terms))
    factors = [case.W.copy(), case.H.copy()]
    if terms.barred is not None:
        factors[mode][row_numbers(terms.barred.starts), terms.barred.columns] = 0
    return Case(X, *factors), data


@pytest.mark.parametrize("mode", [0, 1])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("make_rule", RULES.values(), ids=RULES)
@pytest.mark.parametrize("kind", KINDS)
def test_half_steps_agree(kind: str, make_rule: Any, dtype: type, mode: int) -> None:
    case = random_case((23, 19), RANK, dtype=dtype, seed=3)
    terms = terms_of_mode(kind, case.X.shape if mode == 0 else case.X.shape[::-1], RANK)
    case, data = with_terms(case, mode, terms)
    for weights in (NO_PENALTIES, Penalties.of_matrix(l2_W=0.3, l2_H=0.3)):
        x, _ = assert_same_half_step(case, mode, make_rule, weights, data)
        before = (case.W, case.H)[mode]
        if terms.frozen is not None:
            held = terms.frozen.astype(bool)
            assert same_bits(x[:, held], before[:, held].copy())
        if terms.barred is not None:
            assert not x[row_numbers(terms.barred.starts), terms.barred.columns].any()


def test_long_rows_agree() -> None:
    """Rows that are gathered whole and longer ones; batches do not take what has own terms."""
    case = random_case((5, 900), RANK, seed=5, density=0.7)
    case, data = with_terms(case, 0, terms_of_mode("all", case.X.shape, RANK))
    assert_same_half_step(case, 0, RULES["guarded"], data=data)


@pytest.mark.parametrize("l2", [0.0, 0.3])
@pytest.mark.parametrize("kind", KINDS)
def test_rows_longer_than_the_tile_agree(kind: str, l2: float) -> None:
    case = random_case((2, _core.TILE + 6000), 4, seed=6, density=0.95)
    case, data = with_terms(case, 0, terms_of_mode(kind, case.X.shape, 4))
    assert np.diff(case.X.indptr).max() > _core.TILE
    x, _ = assert_same_half_step(case, 0, RULES["guarded"], Penalties.of_matrix(l2_W=l2), data)
    assert not np.array_equal(x, case.W)
    if kind in ("frozen", "all"):
        assert same_bits(x[:, 2].copy(), case.W[:, 2].copy())


@pytest.mark.parametrize("cold", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_solved_to_the_same_end(kind: str, cold: bool) -> None:
    case = random_case((17, 29), 4, seed=7)
    case, data = with_terms(case, 0, terms_of_mode(kind, case.X.shape, 4))

    def rule(x: Array, A: Array, mode: int) -> Solve:
        return Solve(1e-10, rounds=200, relaxed=2 if cold else 0, cold=cold)

    found, expected = (
        half_step(backend, case, 0, rule)[0]
        for backend in (CpuBackend(data, 2), ReferenceBackend(data))
    )
    scale = expected.max(axis=1, keepdims=True)
    np.testing.assert_allclose(found / scale, expected / scale, atol=1e-7)
    c = CpuBackend(data).column_sums(case.H)
    for backend in (CpuBackend(data, 2), ReferenceBackend(data)):
        assert backend.evaluate(found, Fixed(0, (case.H,), slopes=c)).kkt <= 1e-9


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("l2", [0.0, 0.7])
def test_values_and_residuals_agree(kind: str, l2: float) -> None:
    case = random_case((21, 13), RANK, seed=11)
    terms = terms_of_mode(kind, case.X.shape, RANK)
    case, data = with_terms(case, 0, terms)
    c = case.H.sum(axis=0)
    found, expected = (
        backend.evaluate(case.W, Fixed(0, (case.H,), l2=l2, slopes=c))
        for backend in (CpuBackend(data, 2), ReferenceBackend(data))
    )
    assert found.value == pytest.approx(expected.value, rel=1e-12)
    assert found.kkt == pytest.approx(expected.kkt, rel=1e-9)
    assert found.gap == pytest.approx(expected.gap, rel=1e-9)


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_rows_without_terms_have_the_bits_they_have_alone(rule: Any) -> None:
    """Terms of other rows do not show in a row."""
    case = random_case((60, 40), RANK, seed=13, density=0.3, dtype=np.float32)
    terms = replace(
        terms_of_mode("all", case.X.shape, RANK), frozen=None, penalty_shares=None, l1=0.0
    )
    case, data = with_terms(case, 0, terms)
    mixed = half_step(CpuBackend(data, 2), case, 0, rule)[0]
    plain = half_step(CpuBackend(InMemoryData(case.X), 2), case, 0, rule)[0]
    assert same_bits(mixed[::3].copy(), plain[::3].copy())
    assert not np.array_equal(mixed, plain)


def test_pieces_of_rows_have_the_bits_of_all_of_them() -> None:
    case = random_case((40, 30), RANK, seed=17, dtype=np.float32)
    terms = terms_of_mode("all", case.X.shape, RANK)
    case, data = with_terms(case, 0, terms)
    whole = half_step(CpuBackend(data), case, 0, RULES["guarded"])[0]
    for rows in (slice(0, 11), slice(11, 40)):
        part = Case(case.X[rows], case.W[rows], case.H)
        view = InMemoryData(part.X, (terms.rows(rows), None))
        assert same_bits(
            half_step(CpuBackend(view), part, 0, RULES["guarded"])[0], whole[rows].copy()
        )


def test_what_is_left_of_a_component_is_not_a_difference_of_large_numbers() -> None:
    """All of a component's mass but a trace is missing: the trace has all its digits."""
    H = np.array([[1e9, 1.0], [3e-9, 1.0], [1e9, 1.0]])
    X = sp.csr_array([[0.0, 2.0, 0.0]])
    terms = RowConstraints(missing=Pattern.of(sp.csr_array([[True, False, True]])))
    data = InMemoryData(X, (terms, None))
    x, c = np.array([[1e8, 0.5]]), H.sum(axis=0)
    found = CpuBackend(data).evaluate(x, Fixed(0, (H,), slopes=c)).value
    assert found == pytest.approx(0.3 + 0.5 - 2 * np.log(0.3 + 0.5), rel=1e-12)


def test_an_empty_row_keeps_what_is_held_and_counts_it() -> None:
    X = sp.csr_array([[0.0, 0.0], [1.0, 2.0]])
    frozen = np.array([0, 1], dtype=np.uint8)
    data = InMemoryData(X, (RowConstraints(frozen=frozen), None))
    case = Case(X, np.array([[0.3, 0.5], [1.0, 0.25]]), np.array([[1.0, 2.0], [3.0, 4.0]]))
    for backend in (CpuBackend(data), ReferenceBackend(data)):
        x, totals, _ = half_step(backend, case, 0, RULES["guarded"])
        assert x[0].tolist() == [0.0, 0.5]
        c = case.H.sum(axis=0)
        alone = backend.evaluate(x, Fixed(0, (case.H,), slopes=c)).value
        assert totals.value == pytest.approx(alone, rel=1e-12)
        y = x[1] @ case.H.T
        assert alone == pytest.approx(3.0 + x[1] @ c - np.log(y[0]) - 2 * np.log(y[1]), rel=1e-12)


def test_a_rule_that_knows_nothing_of_terms_refuses_them() -> None:
    case = random_case((4, 5), 2)
    data = InMemoryData(case.X, (RowConstraints(frozen=np.array([1, 0], dtype=np.uint8)), None))
    with pytest.raises(TypeError, match="no rule PaperRule for these rows"):
        half_step(
            CpuBackend(data), case, 0, lambda x, A, mode: PaperRule(np.arange(2, dtype=np.int32))
        )


@pytest.mark.parametrize(
    "terms",
    [
        RowConstraints(missing=Pattern(np.zeros(3, np.int64), np.zeros(0, np.int64))),
        RowConstraints(barred=Pattern(np.array([0, 0, 0, 0, 9]), np.zeros(2, np.int32))),
        RowConstraints(penalty_shares=np.ones((3, 2))),
        RowConstraints(frozen=np.ones(3, np.uint8)),
    ],
    ids=["missing", "barred", "scales", "frozen"],
)
def test_terms_of_another_size_are_refused(terms: RowConstraints) -> None:
    case = random_case((4, 5), 2)
    data = InMemoryData(case.X, (terms, None))
    with pytest.raises(ValueError, match=r"constraints must have a row|ends before its starts"):
        half_step(CpuBackend(data), case, 0, RULES["guarded"])


def test_terms_that_say_nothing_are_none() -> None:
    assert core_constraints(None) is None
    assert core_constraints(RowConstraints(l1=0.3)) is None
    assert isinstance(
        core_constraints(RowConstraints(frozen=np.ones(2, np.uint8))), _core.RowConstraints
    )
