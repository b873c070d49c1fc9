"""What uses fits, on a GPU: each function works there, or says at once that it does not."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from klnmf import KLNMF, MiniBatchKLNMF, PoissonCP, SparseTensor, TopicModel, load_model
from klnmf.cli import main
from klnmf.model_selection import consensus, select_rank
from klnmf.simulate import simulate_counts
from klnmf.uncertainty import bootstrap
from strategies import fit_quietly, same_bits

pytestmark = pytest.mark.cuda
X = simulate_counts(300, 120, 4, counts_per_sample=300, random_state=0).X.astype(np.float32)


def fit(X: Any = X, **settings: Any) -> tuple[Any, KLNMF]:
    return fit_quietly(X, model=KLNMF(4, random_state=0, **{"backend": "cuda", **settings}))


# ---- X on the device -----------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["csr_matrix", "csc_matrix", "coo_matrix", "dense"])
@pytest.mark.parametrize("backend", ["auto", "cuda", "cpu"])
def test_matrices_on_the_device(form: str, backend: str) -> None:
    import cupy as cp
    import cupyx.scipy.sparse as csp

    there = cp.asarray(X.toarray()) if form == "dense" else getattr(csp, form)(sp.csr_matrix(X))
    W, model = fit(there, backend=backend)
    expected, other = fit(X, backend="cpu" if backend == "cpu" else "cuda")
    assert isinstance(W, cp.ndarray)
    assert isinstance(model.components_, np.ndarray)
    assert model.divergence_ == pytest.approx(other.divergence_, rel=1e-6)
    np.testing.assert_allclose(W.get(), expected, rtol=1e-3, atol=1e-2)
    transformed = model.transform(there)
    assert isinstance(transformed, cp.ndarray)
    host = KLNMF(4, backend="cpu" if backend == "cpu" else "cuda")
    host.__dict__.update({k: v for k, v in model.__dict__.items() if k.endswith("_")})
    assert same_bits(transformed.get(), host.transform(X))
    assert model.score(there) == pytest.approx(host.score(X), rel=1e-6)


def test_everything_else_on_the_device() -> None:
    import cupy as cp
    import cupyx.scipy.sparse as csp

    there = csp.csr_matrix(sp.csr_matrix(X))
    before = there.data.get(), there.indices.get()
    W, _ = fit(there, sparse_output=True)
    assert isinstance(W, csp.csr_matrix)
    weights = np.linspace(0.5, 2, 300)
    model = KLNMF(4, random_state=0, backend="cuda", dtype="float32")
    weighted = model.fit_transform(there, sample_weight=cp.asarray(weights))
    assert isinstance(weighted, cp.ndarray)
    assert same_bits(weighted.get(), model.fit_transform(X, sample_weight=weights))
    zero_W = np.zeros((300, 4), bool)
    zero_W[:50, 1] = True
    assert (model.fit_transform(there, zero_W=zero_W).get()[:50, 1] == 0).all()
    assert same_bits(before[0], there.data.get())
    assert same_bits(before[1], there.indices.get())
    with pytest.raises(ValueError, match="Negative values"):
        KLNMF(2).fit(-there)


def test_the_same_bits_whatever_else_runs_on_the_card() -> None:
    import cupy as cp

    W, model = fit()
    is_over = threading.Event()

    def disturb() -> None:
        numbers = cp.random.default_rng(0).random((2000, 2000), dtype=np.float32)
        with cp.cuda.Stream(non_blocking=True):
            while not is_over.is_set():
                numbers = numbers @ numbers
                numbers /= numbers.max()

    thread = threading.Thread(target=disturb)
    thread.start()
    try:
        for _ in range(3):
            again, other = fit()
            assert same_bits(W, again)
            assert same_bits(model.components_, other.components_)
    finally:
        is_over.set()
        thread.join()


# ---- functions -----------------------------------------------------------------------------------


def test_select_rank() -> None:
    found, expected = (
        select_rank(X, range(1, 7), n_splits=3, random_state=0, backend=backend)
        for backend in ("cuda", "cpu")
    )
    assert found.best_rank == expected.best_rank == 4
    np.testing.assert_allclose(found.deviance[:4], expected.deviance[:4], rtol=0.01)


def test_consensus_runs_side_by_side() -> None:
    alone, together, cpu = (
        consensus(X, 4, n_runs=6, n_null_runs=2, random_state=0, backend=backend, n_jobs=jobs)
        for backend, jobs in (("cuda", 1), ("cuda", 4), ("cpu", 2))
    )
    assert same_bits(alone.components, together.components)
    assert same_bits(alone.W, together.W)
    np.testing.assert_allclose(alone.components, cpu.components, rtol=0.05, atol=1e-3)


def test_bootstrap_and_held_out_scores() -> None:
    _, model = fit()
    found = bootstrap(model, X, n_runs=3, random_state=0)
    assert found.n_converged > 0
    assert model.score(X) == pytest.approx(model.set_params(backend="cpu").score(X), rel=1e-4)


def test_topic_models() -> None:
    texts = [f"{'apple pear plum' if i % 2 else 'iron zinc lead'} word{i % 7}" for i in range(60)]
    model = TopicModel(2, nmf=KLNMF(backend="cuda"), random_state=0).fit(texts)
    of_words = model.nmf_.components_[:, [list(model.words_).index(w) for w in ("apple", "iron")]]
    assert set(of_words.argmax(axis=0)) == {0, 1}


def test_mini_batches_go_on() -> None:
    model = MiniBatchKLNMF(4, random_state=0, backend="cuda")
    for rows in (slice(0, 150), slice(150, 300)):
        model.partial_fit(X[rows])
    assert model.transform(X).shape == (300, 4)


def test_single_cells() -> None:
    anndata = pytest.importorskip("anndata", reason="needs the extra [anndata]")
    from klnmf import tl

    adata = anndata.AnnData(sp.csr_matrix(X))
    tl.nmf(adata, 4, backend="cuda", random_state=0)
    expected, _ = fit()
    assert same_bits(np.asarray(adata.obsm["X_nmf"]), expected)


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sp.save_npz(tmp_path / "X.npz", X)
    data, model = str(tmp_path / "X.npz"), str(tmp_path / "m.klnmf")
    assert main(["fit", data, "-r", "4", "-o", model, "--backend", "cuda", "-q"]) == 0
    assert same_bits(load_model(model).model.components_.toarray(), fit()[1].components_)
    W = str(tmp_path / "W.npy")
    assert main(["transform", model, data, "-o", W, "--backend", "cuda", "-q"]) == 0
    assert main(["evaluate", model, data, "--backend", "cuda"]) == 0
    assert main(["rank", data, "--ranks", "1-2", "--splits", "2", "--backend", "cuda", "-q"]) == 0
    result = str(tmp_path / "c.klnmf")
    options = ["--runs", "2", "--null-runs", "0", "--backend", "cuda", "-q"]
    assert main(["consensus", data, "-r", "2", "-o", result, *options]) == 0
    assert main(["info"]) == 0
    assert "yes: CUDA on one NVIDIA GPU, in float32 (NVIDIA" in capsys.readouterr().out


def test_what_is_refused_says_so() -> None:
    events = SparseTensor(np.array([[0, 1, 2], [1, 0, 1], [1, 1, 0]]), np.ones(3), (3, 2, 2))
    for work in (
        lambda: PoissonCP(2, backend="cuda").fit(events),
        lambda: select_rank(events, [1], backend="cuda"),
        lambda: consensus(events, 2, backend="cuda"),
    ):
        with pytest.raises(ValueError, match="backend='cuda' takes at most 2 modes, got 3"):
            work()
    for solver in ("ccd", "srcd-paper"):
        with pytest.raises(ValueError, match=f"solver='{solver}' needs .*, which backend='cuda'"):
            KLNMF(2, solver=solver, backend="cuda").fit(X)
    with pytest.raises(ValueError, match="backend='cuda' takes at most 512 components, got 513"):
        KLNMF(513, backend="cuda").fit(X)
