"""Fits on a GPU: ``make test-cuda`` runs these, and fails without a GPU."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from constraint_cases import everything_known
from klnmf import KLNMF, MiniBatchKLNMF, RunOptions, open_matrix, prepare
from klnmf.objective import kl_divergence
from klnmf.simulate import simulate_counts
from strategies import PENALTY_SETS, fit_quietly, same_bits

pytestmark = pytest.mark.cuda
X = simulate_counts(300, 200, 5, counts_per_sample=300, random_state=0).X


def fit(backend: str, X: Any = X, rank: int = 5, **settings: Any) -> tuple[Any, KLNMF]:
    defaults = {"random_state": 0, "max_iter": 500, "dtype": np.float32}
    return fit_quietly(X, model=KLNMF(rank, backend=backend, **{**defaults, **settings}))


@pytest.mark.parametrize("solver", ["srcd", "mu", "bmme"])
@pytest.mark.parametrize("name", ["none", "all"])
def test_fits_agree_with_the_cpu_from_the_same_start(solver: str, name: str) -> None:
    """To 1e-5 of the objective: both have converged that far."""
    generator = np.random.default_rng(0)
    start = {
        "W": generator.random((300, 5), dtype=np.float32) + 0.5,
        "H": generator.random((5, 200), dtype=np.float32) + 0.5,
    }
    models = []
    for backend in ("cuda", "cpu"):
        model = KLNMF(
            5,
            backend=backend,
            solver=solver,
            dtype=np.float32,
            max_iter=3000,
            tol=1e-6,
            **PENALTY_SETS[name].by_name,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(X, **start)
        models.append(model)
    found, expected = (model.history_[-1]["objective"] for model in models)
    assert found == pytest.approx(expected, rel=1e-5 if solver == "srcd" else 1e-3)
    objectives = np.array([record["objective"] for record in models[0].history_])
    assert (np.diff(objectives) <= 1e-7 * objectives[1:]).all()


def test_default_fit_converges_with_zeros_and_the_same_bits() -> None:
    (W, model), (again, other), (_, cpu) = fit("cuda"), fit("cuda"), fit("cpu")
    assert model.converged_
    assert model.optimality_gap_ <= model.tol
    assert same_bits(W, again)
    assert same_bits(model.components_, other.components_)
    assert model.divergence_ == pytest.approx(cpu.divergence_, rel=1e-3)
    assert (W == 0).mean() > 0.1
    assert isinstance(W, np.ndarray)
    assert W.dtype == model.components_.dtype == np.float32


def test_counts_in_float64_and_integers_are_taken() -> None:
    for counts in (X.astype(np.float64), X.astype(np.int32)):
        _, model = fit("cuda", counts, dtype=None)
        assert model.converged_
    with pytest.raises(ValueError, match="computes in float32, which cannot hold all values"):
        KLNMF(3, backend="cuda").fit(X * 0.1)


def test_a_model_transforms_on_the_other() -> None:
    for fitted, other in (("cuda", "cpu"), ("cpu", "cuda")):
        W, model = fit(fitted)
        there = model.set_params(backend=other).transform(X)
        rates = W @ model.components_
        np.testing.assert_allclose(there @ model.components_, rates, rtol=0.05, atol=0.02)
        values = [kl_divergence(X, factor, model.components_) for factor in (W, there)]
        assert values[0] == pytest.approx(values[1], rel=1e-5)
        assert model.score(X) == pytest.approx(model.set_params(backend=fitted).score(X), rel=1e-4)


def test_the_bits_of_a_row_do_not_depend_on_other_rows() -> None:
    _, model = fit("cuda")
    every = model.transform(X)
    single = np.vstack([model.transform(X[[i]]) for i in range(10)])
    assert same_bits(single, every[:10])


def test_a_checkpoint_goes_on_on_the_other(tmp_path: Path) -> None:
    for first, second in (("cuda", "cpu"), ("cpu", "cuda")):
        path = tmp_path / f"{first}.checkpoint"
        run = RunOptions(checkpoint=path)
        _, stopped = fit(first, max_iter=6, tol=0.0, run=run)
        taken = tmp_path / f"{first}.taken"
        taken.write_bytes(path.read_bytes())
        resumed = RunOptions(checkpoint=taken, resume=True)
        _, there = fit(second, max_iter=6, tol=0.0, run=resumed)
        assert there.n_iter_ == 6  # nothing but the last solve for W is done there
        assert there.divergence_ == pytest.approx(stopped.divergence_, rel=1e-6)
        _, model = fit(second, run=RunOptions(checkpoint=path, resume=True))
        assert model.converged_
        assert model.n_iter_ > 6
        assert model.divergence_ == pytest.approx(fit(second)[1].divergence_, rel=1e-3)


def test_a_resumed_fit_has_the_same_bits(tmp_path: Path) -> None:
    W, whole = fit("cuda", tol=0.0, max_iter=20)
    run = RunOptions(checkpoint=tmp_path / "fit.checkpoint")
    fit("cuda", tol=0.0, max_iter=10, run=run)
    resumed, model = fit(
        "cuda", tol=0.0, max_iter=20, run=RunOptions(checkpoint=run.checkpoint, resume=True)
    )
    assert same_bits(W, resumed)
    assert same_bits(whole.components_, model.components_)


def known_zeros(of_model: dict[str, Any]) -> Any:
    zeros = of_model["zero_components"].toarray().astype(bool)
    zeros[0] = False  # fixed
    return zeros


def test_everything_known_about_the_data() -> None:
    counts = simulate_counts(30, 20, 3, counts_per_sample=80, random_state=0).X
    known = everything_known(counts)
    names = ("feature_weight", "zero_components", "fixed_components")
    of_model = {name: known.pop(name) for name in names}
    results = []
    for backend in ("cuda", "cpu"):
        settings = {"random_state": 0, "dtype": np.float32, "max_iter": 2000}
        model = KLNMF(4, backend=backend, **of_model, **settings)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            W = model.fit_transform(counts, **known)
        results.append((W, model))
    (W, model), (expected, cpu) = results
    assert model.divergence_ == pytest.approx(cpu.divergence_, rel=1e-2)
    is_fixed = (np.abs(expected - known["fixed_W"]) < 1e-6).all(axis=0)
    assert is_fixed.any()
    assert same_bits(W[:, is_fixed], expected[:, is_fixed])
    is_zero = known["zero_W"].toarray().astype(bool) & ~is_fixed
    assert (W[is_zero] == 0).all()
    assert (model.components_[known_zeros(of_model)] == 0).all()


@pytest.mark.parametrize("rank", [60, 130])
def test_many_components(rank: int) -> None:
    counts = simulate_counts(800, 300, 20, counts_per_sample=400, random_state=0).X
    models = [fit(backend, counts, rank, max_iter=60, tol=1e-3)[1] for backend in ("cuda", "cpu")]
    found, expected = (model.divergence_ for model in models)
    assert found == pytest.approx(expected, rel=0.02)


def test_mini_batches() -> None:
    model, expected = (
        MiniBatchKLNMF(3, random_state=0, backend=backend, dtype=np.float32).fit(X)
        for backend in ("cuda", "cpu")
    )
    np.testing.assert_allclose(model.components_, expected.components_, rtol=0.2, atol=1e-3)


def test_a_matrix_on_disk_gives_the_same_bits(tmp_path: Path) -> None:
    counts = sp.csr_array(X.astype(np.float32))
    sp.save_npz(tmp_path / "X.npz", counts)
    prepare(tmp_path / "X.npz", tmp_path / "X.disk", dtype=np.float32)
    W, model = fit("cuda", counts)
    there, other = fit("cuda", open_matrix(tmp_path / "X.disk"), dtype=None)
    assert same_bits(W, there)
    assert same_bits(model.components_, other.components_)


def test_what_does_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    import cupy as cp

    monkeypatch.setattr(cp.cuda.runtime, "memGetInfo", lambda: (1000, 2000))
    cp.get_default_memory_pool().free_all_blocks()
    with pytest.raises(MemoryError, match=r"X and its factors need .* GB on the GPU"):
        fit("cuda", simulate_counts(3000, 2000, 5, counts_per_sample=300, random_state=0).X)
