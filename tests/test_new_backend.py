"""A new back-end is one class and one line in the table: nothing else has to be changed."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

from commands import outcome
from klnmf import KLNMF, MiniBatchKLNMF, RunOptions, backends
from klnmf.backends import Backend, backend_named, make_backend
from klnmf.backends.base import Fixed, Multiply, RowTotals, Rule, Solve
from klnmf.backends.cpu import CpuBackend
from klnmf.backends.numpy_factors import NumpyFactors
from klnmf.data.sparse_data import CountData, InMemoryData
from klnmf.model_selection import select_rank
from klnmf.solvers import MultiplicativeUpdates
from strategies import fit_quietly, same_bits

COUNTS = 1.0 + np.random.default_rng(0).poisson(2.0, (30, 20))


class DenseBackend(NumpyFactors):
    """Multiplicative updates with dense matrices, for data without penalties and constraints."""

    name: ClassVar[str] = "dense"
    summary: ClassVar[str] = "dense matrices"
    rules: ClassVar[frozenset[type]] = frozenset({Multiply, Solve})
    dtypes: ClassVar[tuple[str, ...]] = ("float64",)
    most_components: ClassVar[int | None] = 5
    missing_part: ClassVar[str | None] = None
    n_made: ClassVar[int] = 0

    def __init__(self, data: CountData, n_threads: int | None = None) -> None:
        type(self).n_made += 1
        self.data = data

    @classmethod
    def available(cls) -> str | None:
        return cls.missing_part

    def update_rows(self, x: Any, fixed: Fixed, rule: Rule) -> RowTotals:
        X, (A, c) = self.data.view(fixed.mode).whole().as_csr().toarray(), self.linear_part(fixed)
        if isinstance(rule, Solve) and rule.cold:
            x[:] = (X.sum(axis=1) / c.sum())[:, None]
        before = self.evaluate(x, fixed)
        for _ in range(500 if isinstance(rule, Solve) else 1):
            x *= (X / (x @ A.T)) @ A / c
        return RowTotals(float("nan"), before.kkt, before.gap)

    def evaluate(self, x: Any, fixed: Fixed, want_residual: bool = True) -> RowTotals:
        X, (A, c) = self.data.view(fixed.mode).whole().as_csr().toarray(), self.linear_part(fixed)
        y = x @ A.T
        S, totals = (X / y) @ A, X.sum(axis=1, keepdims=True)
        residuals = np.abs(np.minimum(x * c / totals, 1 - S / c))
        gaps = x @ c + totals[:, 0] * (np.log((S / c).max(axis=1)) - 1)
        value = float((x @ c).sum() - (X * np.log(y)).sum())
        return RowTotals(value, float(residuals.max()), float(gaps.sum()))


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line, the first of the table: what "auto" takes."""
    line = {"dense": (__name__, "DenseBackend")}
    monkeypatch.setattr(backends, "BACKENDS", line | backends.BACKENDS)
    monkeypatch.setitem(KLNMF._parameter_constraints, "backend", [str])  # read from it at import


@pytest.mark.usefixtures("table")
def test_one_class_and_one_line_are_enough_to_fit(capsys: Any) -> None:
    assert isinstance(make_backend("auto", InMemoryData(sp.csr_array(COUNTS))), DenseBackend)
    _, model = fit_quietly(COUNTS, model=KLNMF(3, solver="mu", random_state=0, max_iter=30))
    _, expected = fit_quietly(
        COUNTS, model=KLNMF(3, solver="mu", random_state=0, max_iter=30, backend="reference")
    )
    np.testing.assert_allclose(model.components_, expected.components_, rtol=1e-9)
    assert model.divergence_ == pytest.approx(expected.divergence_, rel=1e-4)
    rates, expected_rates = (m.inverse_transform(m.transform(COUNTS)) for m in (model, expected))
    np.testing.assert_allclose(rates, expected_rates, rtol=0.05)
    assert "dense" in outcome(capsys, "info")[1]


@pytest.mark.usefixtures("table")
@pytest.mark.parametrize(
    ("parameters", "arguments", "message"),
    [
        ({}, {}, "solver='srcd' needs Improve, which backend='dense' does not have"),
        (
            {"solver": "mu"},
            {"missing": COUNTS > 3},
            "solver='mu' does not support missing on backend='dense'",
        ),
        (
            {"solver": "mu", "l1_W": 1.0, "l1_H": 1.0},
            {"exposure": np.linspace(1, 2, 30)},
            "does not support exposure under penalties on",
        ),
        ({"solver": "mu", "dtype": "float32"}, {}, "'dense' computes in float64, not in float32"),
        ({"solver": "mu", "n_components": 9}, {}, "'dense' takes at most 5 components, got 9"),
    ],
)
def test_what_it_lacks_is_said_by_name_and_auto_takes_the_next(
    parameters: dict[str, Any], arguments: dict[str, Any], message: str
) -> None:
    model = KLNMF(**{"n_components": 3, "random_state": 0, "max_iter": 3, "tol": 1.0, **parameters})
    made = DenseBackend.n_made
    with pytest.raises(ValueError, match=message):
        clone(model).set_params(backend="dense").fit(COUNTS, **arguments)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found, expected = (
            clone(model).set_params(backend=backend).fit(COUNTS, **arguments).components_
            for backend in ("auto", "cpu")
        )
    assert same_bits(found, expected)
    assert DenseBackend.n_made == made


def test_more_modes_than_a_back_end_takes() -> None:
    needs = MultiplicativeUpdates().needs(n_components=2)
    assert CpuBackend.lacks(needs) is None
    assert CpuBackend.lacks(replace(needs, n_modes=8)) is None
    assert CpuBackend.lacks(replace(needs, n_modes=9)) == (
        "backend='cpu' takes at most 8 modes, got 9."
    )


@pytest.mark.usefixtures("table")
def test_a_back_end_that_is_not_available(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """It says why, and "auto" takes the next one."""
    reason = "no dense matrices on this machine: buy some"
    monkeypatch.setattr(DenseBackend, "missing_part", reason)
    assert backend_named("auto").name == "cpu"
    with pytest.raises(ImportError, match=f"backend='dense' is not available here: {reason}"):
        backend_named("dense")
    assert f"no: {reason}" in outcome(capsys, "info")[1]
    KLNMF(3, max_iter=200, random_state=0).fit(COUNTS)
    MiniBatchKLNMF(2, random_state=0).fit(COUNTS)
    select_rank(COUNTS, [1, 2], n_splits=2, random_state=0, run=RunOptions(progress=False))


def test_a_back_end_that_lacks_a_verb_is_refused() -> None:
    lacking = type("Lacking", (Backend,), {"__init__": lambda self, data: None})
    with pytest.raises(TypeError, match=r"abstract.*update_rows"):
        lacking(None)
