"""The cost of a half-step: what is measured, and how figures are read and converted."""

from __future__ import annotations

import ctypes
import shutil
from pathlib import Path

import numpy as np
import pytest
from benchmarks import kernels
from benchmarks.kernels import (
    Case,
    equal_rows,
    instructions_of,
    parts_between_marks,
    per_unit,
    rules_of,
    simulated_case,
    sparse_factor,
)
from benchmarks.roofline import gathering, least_nanoseconds, library

PROFILE = """\
# callgrind format
version: 1
desc: Trigger: --dump-before=getsid
events: Ir
summary: {count}

fn=(1) summary
12 34

totals: {count}
"""


def write_parts(folder: Path, counts: list[int]) -> None:
    (folder / "out").write_text(PROFILE.format(count=99))  # the end of the process
    for number, count in enumerate(counts, start=1):
        (folder / f"out.{number}").write_text(PROFILE.format(count=count))


# ---- what is measured ----------------------------------------------------------------------------


@pytest.mark.parametrize("length", [1, 4, 64, 100])
def test_rows_of_one_length_have_distinct_sorted_columns(length: int) -> None:
    X = equal_rows(length, 1000, 100, np.float64)
    assert X.shape == (round(1000 / length), 100)
    assert X.dtype == np.float64
    assert (np.diff(X.indptr) == length).all()
    columns = X.indices.reshape(-1, length)
    assert (np.diff(columns, axis=1) > 0).all()
    assert columns.min() >= 0
    assert columns.max() < 100
    assert X.data.min() == 1
    assert (X.data == np.round(X.data)).all()


def test_columns_are_drawn_from_all_features() -> None:
    counts = np.bincount(equal_rows(8, 16_000, 40, np.float32).indices, minlength=40)
    assert counts.min() > 0.7 * 400
    assert counts.max() < 1.3 * 400


def test_the_fixed_factor_is_mostly_zero_and_covers_every_row() -> None:
    A = sparse_factor(3000, 20, np.float32)
    assert A.dtype == np.float32
    assert A.any(axis=1).all()
    assert (A >= 0).all()
    assert 0.6 < np.mean(A == 0) < 0.7  # 70 %, less the entry that a row keeps
    assert sparse_factor(50, 1, np.float32).all()


def test_the_moving_factor_is_partly_zero() -> None:
    case = simulated_case(equal_rows(16, 2000, 200, np.float32), 10)
    assert case.x.dtype == np.float32
    assert 0.2 < np.mean(case.x == 0) < 0.9
    assert case.x.any(axis=1).all()


def test_every_repeat_starts_from_the_same_factor(monkeypatch: pytest.MonkeyPatch) -> None:
    case = simulated_case(equal_rows(16, 2000, 200, np.float32), 10)
    before = case.x.copy()
    given = []

    class Spy:
        backend = case.problem.backend

        def update(self, mode: int, factors: list[np.ndarray], rule: object) -> None:
            given.append(factors[mode].copy())
            factors[mode][:] = -1

    spied = Case(Spy(), 0, case.x, case.A)  # type: ignore[arg-type]
    clock = iter([0.0, 5.0, 10.0, 13.0, 20.0, 24.0, 30.0, 36.0, 40.0, 47.0])
    monkeypatch.setattr(kernels.time, "process_time", lambda: next(clock))
    cost = spied.nanoseconds(rules_of(10)[kernels.MU], seconds=0.0)
    assert len(given) == kernels.MIN_REPEATS == 5
    assert all(np.array_equal(x, before) for x in given)
    np.testing.assert_array_equal(case.x, before)
    assert cost == pytest.approx(3e9 / (2000 * 10))  # the least of 5, 3, 4, 6 and 7 s


def test_rules_have_the_sweeps_and_values_of_their_names() -> None:
    rules = rules_of(7)
    assert {kernels.MU, *kernels.COUNTED_RULES, *(rule for _, rule, _ in kernels.FLOORS)} <= set(
        rules
    )
    guarded = {name: rule for name, rule in rules.items() if name != kernels.MU}
    assert len(guarded) == 4
    for name, rule in guarded.items():
        assert rule.passes == int(name.split()[1])
        assert rule.want_value == name.endswith("value")
        assert sorted(rule.order) == list(range(7))


# ---- how figures are converted and read ----------------------------------------------------------


def test_a_unit_is_a_nonzero_times_a_component() -> None:
    assert per_unit(1e9 * 0.05, nonzeros=1_000_000, rank=50) == pytest.approx(1.0)


def test_instructions_are_those_of_the_line_of_totals() -> None:
    assert instructions_of(PROFILE.format(count=5122644)) == 5122644
    assert instructions_of("events: Ir\nsummary: 1020\n") == 1020
    with pytest.raises(ValueError, match="no line of totals"):
        instructions_of("fn=(1) totals: 7\n12 34\n")


def test_parts_are_taken_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    # Two marks that are not ours; nothing between the next two; then five half-steps.
    ours = [1000, 10, 7, 110, 8, 210, 7, 310, 7, 410, 9, 510]
    write_parts(tmp_path, [123, 456, *ours])
    assert parts_between_marks(tmp_path, 5) == [100, 200, 300, 400, 500]


def test_a_child_that_did_not_get_there_is_refused(tmp_path: Path) -> None:
    write_parts(tmp_path, [1000, 10, 7])
    with pytest.raises(ValueError, match="left 3 parts, not 4"):
        parts_between_marks(tmp_path, 1)


# ---- roofline ------------------------------------------------------------------------------------


def test_a_half_step_takes_as_long_as_its_loads_or_its_arithmetic() -> None:
    # 8 bytes at 4e9 a second and a row at 1e9 a second: 3 ns for 20 components.
    assert least_nanoseconds(20, 1e9, 4e9, 1e12) == pytest.approx(3 / 20)
    # 2 × 24 products and sums at 8e9 a second: 6 ns.
    assert least_nanoseconds(20, 1e9, 4e9, 8e9) == pytest.approx(6 / 20)


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_rows_are_gathered_at_the_places_of_the_nonzeros() -> None:
    X = equal_rows(4, 4000, 100, np.float32)
    assert gathering(X, 20) > 0
    A = np.arange(800, dtype=np.float32).reshape(100, 8)
    places = np.array([3, 97] + 16 * [0], dtype=np.int32)
    two = ctypes.c_int64(2), ctypes.c_int(8)
    pointers = (ctypes.c_void_p(x.ctypes.data) for x in (A, places))
    assert library().gather(*pointers, *two) == A[[3, 97]].sum()
