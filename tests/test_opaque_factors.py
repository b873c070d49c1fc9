"""Fits, model selection and streams on a back-end whose factors refuse to become NumPy arrays."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from checkpoint_checks import COUNTS, PURE, Killed, kill_at, model
from klnmf import KLNMF, MiniBatchKLNMF, RunOptions, SparseTensor, backends
from klnmf.model_selection import consensus, select_rank
from klnmf.solvers import SOLVERS
from klnmf.uncertainty import bootstrap, differential_features
from opaque_backend import OpaqueBackend, OpaqueFactor
from strategies import fit_quietly, same_bits

RNG = np.random.default_rng(0)
FEATURE_WEIGHT = RNG.random(40) + 0.5
CONSTRAINTS: dict[str, Any] = {
    "none": {},
    "all": {
        "missing": sp.csr_array(RNG.random(COUNTS.shape) < 0.1),
        "fixed_W": RNG.random((60, 1)),
        "sample_weight": RNG.random(60) + 0.5,
        "exposure": RNG.random(60) + 0.5,
    },
}


@pytest.fixture
def on_opaque(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], Any]:
    """Do something with the default back-end, and again with the opaque one."""

    def both(work: Callable[[], Any]) -> tuple[Any, Any]:
        expected = work()
        with monkeypatch.context() as patch:
            # The first line of the table is what "auto" takes.
            table = {"opaque": ("opaque_backend", "OpaqueBackend"), **backends.BACKENDS}
            patch.setattr(backends, "BACKENDS", table)
            patch.setattr(OpaqueBackend, "n_made", 0)
            found = work()
            assert OpaqueBackend.n_made > 0
            return found, expected

    return both


def assert_same(found: Any, expected: Any, *names: str) -> None:
    for name in names:
        assert same_bits(np.asarray(getattr(found, name)), np.asarray(getattr(expected, name)))


@pytest.mark.parametrize(
    "use",
    [np.asarray, len, iter, bool, np.sum, lambda x: x[0], lambda x: 2 * x, lambda x: x @ x.T],
)
def test_the_factors_are_opaque(use: Callable[[Any], Any]) -> None:
    with pytest.raises((TypeError, AttributeError), match=r"on a device|no attribute"):
        use(OpaqueFactor(np.ones((2, 2))))


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("penalties", [{}, {"l1_W": 0.1, "l2_H": 0.2}], ids=["plain", "penalised"])
def test_fits(solver: str, dtype: type, penalties: dict[str, float], on_opaque: Any) -> None:
    parameters = {"solver": solver, "dtype": dtype, "n_init": 2, "max_iter": 25, **penalties}
    (W, found), (expected_W, expected) = on_opaque(
        lambda: fit_quietly(COUNTS, model=model(**parameters))
    )
    assert same_bits(W, expected_W)
    assert_same(found, expected, "components_", "divergence_", "optimality_gap_", "kkt_residual_")


@pytest.mark.parametrize("given", CONSTRAINTS.values(), ids=CONSTRAINTS)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_constraints_and_starts(given: dict[str, Any], on_opaque: Any) -> None:
    weights = {"feature_weight": FEATURE_WEIGHT} if given else {}
    starts: list[dict[str, Any]] = [{}, {"H": np.ones((3, 40))}, {"W": np.ones((60, 3))}]
    for start in starts:
        found, expected = on_opaque(
            lambda start=start: model(**weights).fit(COUNTS, **start, **given)
        )
        assert_same(found, expected, "components_", "divergence_")


def test_checkpoints_and_warm_starts(tmp_path: Path, on_opaque: Any) -> None:
    def resumed() -> KLNMF:
        path = tmp_path / "fit.checkpoint"
        path.unlink(missing_ok=True)
        with pytest.raises(Killed):
            model(path, callback=kill_at(5)).fit(COUNTS)
        return fit_quietly(COUNTS, model=model(path, resume=True))[1]

    assert_same(*on_opaque(resumed), "components_", "divergence_")

    def warm() -> KLNMF:
        fit = model(max_iter=4, warm_start=True)
        for _ in range(2):
            fit_quietly(COUNTS, model=fit)
        return fit

    assert_same(*on_opaque(warm), "components_", "divergence_")


@pytest.mark.parametrize("refit", ["W", "both"])
def test_consensus(refit: str, on_opaque: Any) -> None:
    found, expected = on_opaque(
        lambda: consensus(
            PURE, 6, n_runs=4, refit=refit, random_state=0, run=RunOptions(progress=False)
        )
    )
    assert_same(found, expected, "components", "W", "spectra", "optimality_gap")


@pytest.mark.parametrize("scale", [1.0, 0.37], ids=["thinned", "speckled"])
@pytest.mark.filterwarnings("ignore:X has values that are not whole numbers")
def test_select_rank(scale: float, on_opaque: Any) -> None:
    X = sp.csr_array(COUNTS.astype(np.float64) * scale)
    found, expected = on_opaque(
        lambda: select_rank(
            X, [1, 2, 4], n_splits=2, random_state=0, run=RunOptions(progress=False)
        )
    )
    assert_same(found, expected, "deviance", "stability")


def test_uncertainty(on_opaque: Any) -> None:
    def judged() -> tuple[Any, Any, Any]:
        fit = KLNMF(3, random_state=0, n_threads=1).fit(COUNTS)
        found = bootstrap(
            fit, COUNTS, n_runs=4, random_state=0, n_jobs=1, run=RunOptions(progress=False)
        )
        return fit, found, differential_features(fit, COUNTS, n_threads=1)

    found, expected = on_opaque(judged)
    assert_same(found[0], expected[0], "components_")
    assert found[0].score(COUNTS) == expected[0].score(COUNTS)
    assert_same(found[1], expected[1], "similarity")
    assert_same(found[1].components, expected[1].components, "lower", "upper")
    assert_same(found[2], expected[2], "log2_fold_change", "p_value")


def test_streams(on_opaque: Any) -> None:
    def streamed() -> MiniBatchKLNMF:
        fit = MiniBatchKLNMF(12, batch_size=32, random_state=0, n_threads=1, max_iter=2).fit(PURE)
        assert fit.transform(PURE[:5]).shape == (5, 12)
        return fit.partial_fit(PURE[:20])

    assert_same(*on_opaque(streamed), "components_")


def test_model_selection_takes_a_backend_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    table = {**backends.BACKENDS, "opaque": ("opaque_backend", "OpaqueBackend")}
    monkeypatch.setattr(backends, "BACKENDS", table)
    quiet = {"random_state": 0, "run": RunOptions(progress=False)}
    for work in (
        lambda backend: consensus(PURE, 3, 2, n_null_runs=0, backend=backend, **quiet).W,
        lambda backend: select_rank(PURE, [1, 2], n_splits=2, backend=backend, **quiet).deviance,
    ):
        monkeypatch.setattr(OpaqueBackend, "n_made", 0)
        expected = work("auto")
        assert OpaqueBackend.n_made == 0
        assert same_bits(work("opaque"), expected)
        assert OpaqueBackend.n_made > 0


def test_model_selection_says_at_once_what_a_backend_lacks() -> None:
    events = SparseTensor(np.array([[0, 1, 2], [1, 0, 1], [1, 1, 0]]), np.ones(3), (3, 2, 2))
    for work in (
        lambda: consensus(events, 2, backend="dask"),
        lambda: select_rank(events, [1], backend="dask"),
    ):
        with pytest.raises(ValueError, match="backend='dask' takes at most 2 modes, got 3"):
            work()
    with pytest.raises(ValueError, match="backend must be one of"):
        select_rank(COUNTS, [1], backend="gpu")
