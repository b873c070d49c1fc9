"""Rules on the rows of tensors, against the reference and against matrices of products.

Also run under sanitizers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from kernel_checks import assert_close, reversed_order
from klnmf import _core
from klnmf.backends.base import (
    DenseRule,
    Fixed,
    Improve,
    Multiply,
    Needs,
    PaperRule,
    RowTotals,
    Rule,
    Solve,
)
from klnmf.backends.cpu import CpuBackend
from klnmf.backends.reference import ReferenceBackend
from klnmf.data.canonical import row_numbers
from klnmf.data.row_constraints import Pattern, RowConstraints
from klnmf.data.sparse_data import CountData
from strategies import DTYPES, same_bits
from tensor_checks import TensorCase, TensorData, materialised, tensor_case

Array = np.ndarray

# Rows around the sizes of vectors, batches, kept products and pieces of sums.
LENGTHS = (0, 1, 2, 5, 8, 9, 17, 33, 63, 64, 65, 120, 511, 512, 513, 700)
SIZES = {3: (40, 30), 4: (15, 10, 8), 5: (8, 6, 5, 5), 8: (3, 3, 3, 3, 3, 3, 2)}
MODES_OF_TENSORS = pytest.mark.parametrize("d", SIZES)
BOTH_DTYPES = pytest.mark.parametrize("dtype", DTYPES)
RULES: dict[str, Callable[[int], Rule]] = {
    "improve": lambda rank: Improve(reversed_order(rank)),
    "improve, many rounds": lambda rank: Improve(reversed_order(rank), rounds=4, passes=3),
    "improve, to a tolerance": lambda rank: Improve(reversed_order(rank), 9, 2, tolerance=0.05),
    "improve, no value": lambda rank: Improve(reversed_order(rank), want_value=False),
    "multiply": lambda rank: Multiply(),
    "multiply, relaxed": lambda rank: Multiply(relaxed=2),
    "solve": lambda rank: Solve(1e-6, rounds=2),
    "solve, cold": lambda rank: Solve(1e-6, rounds=2, relaxed=3, cold=True),
}
ALL_RULES = pytest.mark.parametrize("make_rule", RULES.values(), ids=RULES)


def fixed_side(data: CountData, case: TensorCase, mode: int, l2: float = 0.0) -> Fixed:
    """With an L1 penalty, unless rows have their own shares of it."""
    terms = data.view(mode).row_constraints or RowConstraints()
    l1 = 0.3 if terms.penalty_shares is None else 0.0
    return Fixed(mode, case.others(mode), l1, l2)


def half_step(
    backend: CpuBackend | ReferenceBackend, case: TensorCase, mode: int, rule: Rule, l2: float = 0.0
) -> tuple[Array, RowTotals]:
    x = case.factors[mode].copy()
    return x, backend.update_rows(x, fixed_side(backend.data, case, mode, l2), rule)


def assert_as_the_matrix_of_products(
    case: TensorCase, mode: int, rule: Rule, l2: float = 0.0, data: TensorData | None = None
) -> None:
    """The same bits of x, residual and gap; values agree as far as products are rounded."""
    backend = CpuBackend(data or case.data(), 1)
    x, totals = half_step(backend, case, mode, rule, l2)
    matrix, A = materialised(backend.data.view(mode), case.others(mode))  # type: ignore[arg-type]
    of_matrix = CpuBackend(matrix, 1)
    side = fixed_side(backend.data, case, mode, l2)
    _, c = backend.linear_part(side)
    expected_x = case.factors[mode].copy()
    fixed = Fixed(0, (A,), l2=l2, slopes=c)
    expected = of_matrix.update_rows(expected_x, fixed, rule)
    assert same_bits(x, expected_x)
    np.testing.assert_array_equal([totals.kkt, totals.gap], [expected.kkt, expected.gap])
    rounding = 1e-13 if x.dtype == np.float64 else 1e-6
    assert totals.value == pytest.approx(
        expected.value, rel=rounding, abs=rounding * case.total, nan_ok=True
    )
    found = backend.evaluate(x, side)
    expected = of_matrix.evaluate(x, fixed)
    if x.dtype == np.float64:
        assert found == expected
    for part, of_products in zip(vars(found).values(), vars(expected).values(), strict=True):
        assert part == pytest.approx(of_products, rel=rounding, abs=rounding * case.total)


def assert_as_the_reference(
    case: TensorCase, mode: int, rule: Rule, l2: float = 0.0, data: TensorData | None = None
) -> None:
    data = data or case.data()
    cpu, reference = CpuBackend(data, 2), ReferenceBackend(data)
    is_double, fixed = case.factors[mode].dtype == np.float64, fixed_side(data, case, mode, l2)
    tolerance = 1e-9 if is_double else 3e-4
    if isinstance(rule, Solve):  # by other steps, to the same end
        rule = replace(rule, tolerance=1e-10 if is_double else 1e-6, rounds=200)
    x, totals = half_step(cpu, case, mode, rule, l2)
    expected_x, expected = half_step(reference, case, mode, rule, l2)
    if isinstance(rule, Solve):
        assert reference.evaluate(x, fixed).value == pytest.approx(
            reference.evaluate(expected_x, fixed).value, rel=1e-9 if is_double else 1e-6
        )
    else:
        assert_close(x, expected_x, case.factors[mode], tolerance)
        assert totals.kkt == pytest.approx(expected.kkt, rel=5 * tolerance, abs=tolerance)
        for name in ("gap", "value"):
            assert getattr(totals, name) == pytest.approx(
                getattr(expected, name), rel=tolerance, abs=tolerance * case.total, nan_ok=True
            )
    found, expected = cpu.evaluate(x, fixed), reference.evaluate(x, fixed)
    assert found.value == pytest.approx(expected.value, rel=1e-12)
    assert found.kkt == pytest.approx(expected.kkt, rel=1e-8, abs=1e-12)
    assert found.gap == pytest.approx(expected.gap, rel=1e-7, abs=1e-10 * case.total)
    if rule.gives_value:  # the very same pass
        assert totals.value == pytest.approx(found.value, rel=1e-15)


# ---- without constraints -------------------------------------------------------------------------


@MODES_OF_TENSORS
@BOTH_DTYPES
@ALL_RULES
def test_the_reference_agrees(make_rule: Callable, dtype: type, d: int) -> None:
    case = tensor_case(LENGTHS, SIZES[d], 7, dtype)
    modes = range(d) if d == 3 else (0, d - 1)
    for mode in modes:
        assert_as_the_reference(case, mode, make_rule(7), l2=0.0)
    assert_as_the_reference(case, 1, make_rule(7), l2=0.2)


@MODES_OF_TENSORS
@BOTH_DTYPES
@ALL_RULES
def test_products_make_the_same_bits(make_rule: Callable, dtype: type, d: int) -> None:
    """Ranks of 1 to 10 vectors; some of them are even."""
    ranks = (1, 5, 10, 20, 27, 40, 43, 50, 64, 70, 80) if dtype == np.float32 else range(1, 40, 3)
    for rank in ranks if d == 3 else (3, 20, 70):
        case = tensor_case(LENGTHS, SIZES[d], rank, dtype, seed=rank)
        for mode in (0, d - 1):
            assert_as_the_matrix_of_products(case, mode, make_rule(rank))
        assert_as_the_matrix_of_products(case, 0, make_rule(rank), l2=0.2)


@ALL_RULES
def test_wide_data_with_narrow_factors(make_rule: Callable) -> None:
    for d in (3, 4):
        case = tensor_case(LENGTHS, SIZES[d], 11, np.float32, values_dtype=np.float64)
        for mode in range(d):
            assert_as_the_matrix_of_products(case, mode, make_rule(11))
            assert_as_the_reference(case, mode, make_rule(11))


@BOTH_DTYPES
@pytest.mark.parametrize("name", ["improve", "multiply", "solve, cold"])
def test_rows_longer_than_the_tile(name: str, dtype: type) -> None:
    """Newton's step in chunks; with more than 64 components, groups of columns."""
    for rank in (6, 70):
        lengths = (5 * _core.TILE + 77 if rank == 70 else _core.TILE + 300, 50, 0)
        case = tensor_case(lengths, (420, 200), rank, dtype, zeros=0.05)
        case.factors[0][0, 0] = 2e3  # falls far: the product is computed anew
        assert_as_the_matrix_of_products(case, 0, RULES[name](rank))
        if rank == 6:
            assert_as_the_matrix_of_products(case, 0, RULES[name](rank), l2=0.2)
            assert_as_the_reference(case, 0, RULES[name](rank))


@BOTH_DTYPES
@ALL_RULES
def test_threads_change_no_bit(make_rule: Callable, dtype: type) -> None:
    case = tensor_case(LENGTHS * 6, SIZES[4], 9, dtype)
    data = case.data()
    results = [half_step(CpuBackend(data, threads), case, 0, make_rule(9)) for threads in (1, 2, 3)]
    assert same_bits(*[x for x, _ in results])
    assert len({repr(totals) for _, totals in results}) == 1


@pytest.mark.parametrize("values_dtype", DTYPES)
def test_all_modes_give_the_same_value(values_dtype: type) -> None:
    """Also in float32, and after half-steps: products are in double where a value is computed."""
    for d in (3, 4, 5):
        case = tensor_case(LENGTHS, SIZES[d], 13, np.float32, values_dtype=values_dtype)
        backend = CpuBackend(case.data(), 1)
        for mode in range(d):
            rule = Improve(reversed_order(13))
            fixed = Fixed(mode, case.others(mode))
            stepped = backend.update_rows(case.factors[mode], fixed, rule).value
            values = [
                backend.evaluate(case.factors[m], Fixed(m, case.others(m)), False).value
                for m in range(d)
            ]
            np.testing.assert_allclose([stepped, *values], values[0], rtol=1e-13)


@BOTH_DTYPES
@ALL_RULES
def test_nonzeros_without_cover(make_rule: Callable, dtype: type) -> None:
    """Rows of two factors that have no component in common, and x that is 0 where they have."""
    case = tensor_case(LENGTHS, SIZES[3], 6, dtype)
    _, second, third = case.factors
    second[:5, :3], third[:4, 3:] = 0, 0  # their products are 0
    second[5:9, 1:] = 0
    second[5:9, 0] = 1
    case.factors[0][::2, 0] = 0  # x does not cover what it could
    assert_as_the_matrix_of_products(case, 0, make_rule(6))
    x, totals = half_step(CpuBackend(case.data(), 1), case, 0, make_rule(6))
    assert np.isfinite(x).all()
    assert np.isinf(totals.kkt)
    assert totals.value == np.inf or np.isnan(totals.value)
    if not isinstance(make_rule(6), Solve):
        expected, _ = half_step(ReferenceBackend(case.data()), case, 0, make_rule(6))
        assert_close(x, expected, case.factors[0], 3e-4 if dtype == np.float32 else 1e-8)


def test_a_tensor_without_nonzeros() -> None:
    case = tensor_case((0, 0), (3, 2), 4, np.float64)
    backend = CpuBackend(case.data(), 2)
    for make_rule in RULES.values():
        x, totals = half_step(backend, case, 0, make_rule(4))
        assert not x.any()
        assert totals.kkt == 0


# ---- constraints ---------------------------------------------------------------------------------

KINDS = ("missing", "barred", "penalty_shares", "frozen", "all")
RANK = 7


def hidden(case: TensorCase, mode: int, share: float, seed: int) -> Array:
    """Cells as a mask with the mode first; every third row has none."""
    others = [size for other, size in enumerate(case.shape) if other != mode]
    generator = np.random.default_rng(seed)
    mask = generator.random((case.shape[mode], *others)) < share
    mask[::3] = False
    return mask


def pattern_of(mask: Array) -> Pattern:
    """Cells in rising order, with offsets as indices have them."""
    rows, *columns = np.nonzero(mask)
    offsets = np.cumsum([0, *mask.shape[1:-1]])[:, np.newaxis]
    starts = np.searchsorted(rows, np.arange(len(mask) + 1))
    return Pattern(starts.astype(np.int64), np.array(columns) + offsets)


def without(case: TensorCase, mode: int, mask: Array) -> TensorCase:
    """The case without these cells."""
    order = [mode, *[other for other in range(len(case.shape)) if other != mode]]
    kept = ~mask[tuple(case.coords[order])]
    return TensorCase(case.coords[:, kept], case.values[kept], case.factors)


def constrained(
    kind: str, mode: int, d: int, dtype: Any, share: float = 0.3
) -> tuple[TensorCase, TensorData]:
    case = tensor_case(LENGTHS, SIZES[d], RANK, dtype, seed=3)
    n_rows, generator = case.shape[mode], np.random.default_rng(1)
    mask = hidden(case, mode, share, 2)
    barred = generator.random((n_rows, RANK)) < 0.3
    barred[::3], barred[:, [0, RANK - 2]] = False, False
    frozen = np.zeros(RANK, dtype=np.uint8)
    frozen[RANK - 2] = 1
    shares = np.exp(generator.normal(size=(n_rows, 2)))
    pattern = Pattern.of(sp.csr_array(barred), np.int32)
    everything = RowConstraints(pattern_of(mask), pattern, shares, 0.3, frozen)
    terms = everything
    if kind != "all":
        terms = replace(RowConstraints(l1=0.3), **{kind: getattr(everything, kind)})
    if terms.missing is not None:
        case = without(case, mode, mask)
    if terms.barred is not None:
        case.factors[mode][row_numbers(pattern.starts), pattern.columns] = 0
    return case, case.data({mode: terms})


@pytest.mark.parametrize("kind", KINDS)
@BOTH_DTYPES
@ALL_RULES
def test_constraints_are_respected(make_rule: Callable, dtype: type, kind: str) -> None:
    for d, mode, l2 in ((3, 0, 0.0), (3, 2, 0.2), (4, 1, 0.0)):
        case, data = constrained(kind, mode, d, dtype)
        assert_as_the_reference(case, mode, make_rule(RANK), l2, data)
        x, _ = half_step(CpuBackend(data, 1), case, mode, make_rule(RANK))
        terms = data.view(mode).row_constraints
        assert terms is not None
        if terms.frozen is not None:
            assert same_bits(x[:, RANK - 2].copy(), case.factors[mode][:, RANK - 2].copy())
        if terms.barred is not None:
            assert not x[row_numbers(terms.barred.starts), terms.barred.columns].any()
        if terms.missing is None:
            assert_as_the_matrix_of_products(case, mode, make_rule(RANK), 0.0, data)


@pytest.mark.parametrize("d", [3, 4, 5])
@BOTH_DTYPES
def test_what_is_left_of_a_row_has_all_digits(dtype: type, d: int) -> None:
    """Almost everything is missing, or all that some component has: c is no difference then."""
    case = tensor_case(LENGTHS, SIZES[d], RANK, dtype)
    case.factors[1][1:, 2] = 0  # component 2 is in the first row of mode 1 alone,
    case.factors[1][0] *= 1e6  # which weighs more than the rest
    mask = hidden(case, 0, 0.3, 5)
    mask[1::3, 0] = True
    mask[1, :, :, ...] = True
    mask[1, 2, 1] = False
    case = without(case, 0, mask)
    data = case.data({0: RowConstraints(missing=pattern_of(mask), l1=0.3)})
    for make_rule in (RULES["improve"], RULES["multiply"]):
        assert_as_the_reference(case, 0, make_rule(RANK), 0.0, data)
    x, _ = half_step(CpuBackend(data, 1), case, 0, Multiply())
    assert not x[1::3, 2].any()
    letters = "abcdefg"[: d - 1]
    products = np.einsum(
        f"{','.join(letter + 'k' for letter in letters)}->{letters}k",
        *(factor.astype(np.float64) for factor in case.others(0)),
    )
    rows = [(products[~mask[i]].sum(axis=0) + 0.3) @ x[i].astype(np.float64) for i in range(len(x))]
    totals = np.bincount(case.coords[0], case.values, minlength=len(x))
    np.testing.assert_allclose(rows, totals, rtol=1e-5 if dtype == np.float32 else 1e-12)


def test_pieces_of_a_view_keep_their_cells() -> None:
    _, data = constrained("all", 0, 4, np.float64)
    view = data.view(0)
    part, rows = view.part(slice(3, 9)), np.arange(3, 9)
    indptr, indices, values = view.take_rows(rows)
    np.testing.assert_array_equal(part.indptr, indptr)
    np.testing.assert_array_equal(part.indices, indices)
    np.testing.assert_array_equal(part.values, values)
    terms = part.row_constraints
    assert terms is not None
    assert terms.missing is not None
    assert view.row_constraints is not None
    assert view.row_constraints.missing is not None
    taken = view.row_constraints.missing.take(rows)
    np.testing.assert_array_equal(terms.missing.columns, taken.columns)
    np.testing.assert_array_equal(terms.missing.starts, taken.starts)


# ---- what is refused -----------------------------------------------------------------------------


def test_rules_for_matrices_refuse_tensors() -> None:
    needs = Needs("srcd-paper", frozenset({PaperRule}), n_modes=3)
    for backend in (CpuBackend, ReferenceBackend):
        assert backend.lacks(replace(needs, n_modes=2)) is None
        assert backend.lacks(needs) == (
            "solver='srcd-paper' needs PaperRule, which takes at most 2 modes, got 3. Choose "
            "another solver, such as 'srcd'."
        )
        assert "DenseRule" in str(backend.lacks(Needs("ccd", frozenset({DenseRule}), n_modes=3)))
        assert backend.lacks(Needs("srcd", frozenset({Improve, Solve, Multiply}), 8)) is None
        assert "at most 8 modes" in str(backend.lacks(Needs("srcd", frozenset({Improve}), 9)))
        case = tensor_case((4, 3), (5, 4), 2, np.float64)
        for rule in (PaperRule(reversed_order(2)), DenseRule(np.ones((2, 20)))):
            with pytest.raises(TypeError, match=f"no rule {type(rule).__name__} for these rows"):
                half_step(backend(case.data(), 1), case, 0, rule)


def test_the_core_refuses_arrays_that_do_not_belong_together() -> None:
    case = tensor_case((4, 3), (5, 4), 2, np.float64)
    view, A = case.data().view(0), np.concatenate(case.others(0))
    rest = (A, np.ones(2), 0.0)
    results = [np.zeros(2) for _ in range(3)]
    arguments = (False, 1, case.factors[0], *results)
    flat = view.indices.reshape(-1)
    _core.evaluate_rows(view.indptr, flat, view.values, *rest, *arguments)
    with pytest.raises(ValueError, match="as many entries as values"):
        _core.evaluate_rows(view.indptr, np.append(flat, flat[:1]), view.values, *rest, *arguments)
    limits = (reversed_order(2), 1e-10, 0.1, False, 9)
    out = (case.factors[0], results[1])
    with pytest.raises(ValueError, match="matrices, not tensors"):
        _core.paper_rows(view.indptr, flat, view.values, *rest, *limits, 1, *out)
