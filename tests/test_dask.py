"""The Dask back-end: the bits of one machine, from any input, on any number of workers."""

from __future__ import annotations

import itertools
import pickle
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import klnmf
from klnmf import KLNMF
from klnmf.backends.dask.cluster import Cluster
from klnmf.backends.dask.partition import Partition, balanced
from klnmf.data.sums import ROWS_PER_SUM
from klnmf.simulate import simulate_counts
from klnmf.solvers import sample_fit
from klnmf.solvers.base import Problem
from strategies import make_model, srcd

dask = pytest.importorskip("dask", reason="needs the extra [dask]")
pytest.importorskip("distributed", reason="needs the extra [dask]")
import dask.array as da  # noqa: E402
from distributed import Client, LocalCluster  # noqa: E402

from dask_clusters import local_cluster  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

# More rows than a block of sums has, so that parts cut blocks.
COUNTS = simulate_counts(5000, 300, 4, counts_per_sample=20, random_state=0).X


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """Two real processes."""
    with local_cluster(2, processes=True) as cluster, Client(cluster) as client:
        yield client


@pytest.fixture(scope="module", params=[1, 3])
def in_process(request: Any) -> Iterator[Client]:
    """Workers in this process: quick to start, and they see what a test changes."""
    with (
        local_cluster(request.param) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


def model(**parameters: Any) -> KLNMF:
    return make_model(4, **{"random_state": 0, "max_iter": 8, "tol": 0, **parameters})


def assert_same_fit(X: Any, like: Any = COUNTS, **parameters: Any) -> KLNMF:
    """Both back-ends have the same factors and the same history, to the bit."""
    one, many = model(**parameters), model(backend="dask", **parameters)
    W = one.fit_transform(like)
    of_dask = many.fit_transform(X)
    np.testing.assert_array_equal(np.asarray(of_dask), W)
    np.testing.assert_array_equal(many.components_, one.components_)
    assert many.components_.dtype == one.components_.dtype
    for ours, theirs in zip(many.history_, one.history_, strict=True):
        np.testing.assert_equal({**ours, "seconds": 0}, {**theirs, "seconds": 0})  # NaN is NaN
    assert many.divergence_ == one.divergence_
    assert many.kkt_residual_ == one.kkt_residual_
    assert many.optimality_gap_ == one.optimality_gap_
    assert many.data_checksum_ == one.data_checksum_
    return many


def as_dask_array(X: Any, heights: tuple[int, ...], make: Any = sp.csr_array) -> da.Array:
    """A Dask array whose blocks `make` makes of rows of X."""
    edges = np.concatenate([[0], np.cumsum(heights)])
    blocks = [
        da.from_delayed(
            dask.delayed(make)(X[start:stop]), shape=(stop - start, X.shape[1]), dtype=X.dtype
        )
        for start, stop in itertools.pairwise(edges)
    ]
    return da.concatenate(blocks)


# ---- same bits -----------------------------------------------------------------------------------

PARAMETERS = [
    {},
    {"dtype": np.float64},
    {"solver": "mu"},
    {"solver": "bmme"},
    {"solver": "srcd-paper"},
    {"init": "random"},
    {"init": "nndsvd"},
    {"l1_W": 0.1, "l2_W": 0.01, "l1_H": 0.2, "l2_H": 0.3},
]


@pytest.mark.parametrize("parameters", PARAMETERS, ids=str)
def test_matrix_in_memory(client: Client, parameters: dict[str, Any]) -> None:
    assert_same_fit(COUNTS, **parameters)


@pytest.mark.parametrize("parameters", [{}, {"l2_W": 0.1, "l2_H": 0.1}], ids=str)
def test_any_number_of_workers(in_process: Client, parameters: dict[str, Any]) -> None:
    with in_process.as_current():
        assert_same_fit(COUNTS, **parameters)


def test_swaps_and_convergence(client: Client) -> None:
    """A fit to its end: swaps take rows of X and of factors, and a full evaluation ends it."""
    X = simulate_counts(400, 60, 4, counts_per_sample=40, random_state=1).X
    fitted = assert_same_fit(X, X, max_iter=400, tol=1e-3, dtype=np.float64)
    assert fitted.converged_


def test_fit_of_a_sample(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample_fit, "LEAST_NONZEROS", 500)
    how = {"solver": srcd(swap_gain=0.5)}
    fitted = assert_same_fit(COUNTS, **how)
    monkeypatch.setattr(sample_fit, "LARGEST_SHARE", 0.0)
    assert model(**how).fit(COUNTS).history_[2]["objective"] != fitted.history_[2]["objective"]


def test_more_workers_than_rows(in_process: Client) -> None:
    X = COUNTS[:7, :50]
    with in_process.as_current():
        assert_same_fit(X, X)


def test_square_matrix(client: Client) -> None:
    X = COUNTS[:300]
    assert X.shape[0] == X.shape[1]
    assert_same_fit(X, X)


def test_starts_of_the_user(client: Client) -> None:
    generator = np.random.default_rng(0)
    W, H = generator.random((COUNTS.shape[0], 4)), generator.random((4, COUNTS.shape[1]))
    for start in ({"W": W, "H": H}, {"H": H}, {"W": W}):
        one = model().fit(COUNTS, **start)
        many = model(backend="dask").fit(COUNTS, **start)
        np.testing.assert_array_equal(many.components_, one.components_)


@pytest.mark.parametrize(
    ("heights", "make"),
    [
        ((1000,) * 5, sp.csr_array),
        ((4999, 1), sp.csr_matrix),
        ((100, 0, 4900), sp.coo_array),
        ((2500, 2500), lambda block: block.toarray()),
    ],
)
def test_dask_array(client: Client, heights: tuple[int, ...], make: Any) -> None:
    X = as_dask_array(COUNTS, heights, make)
    fitted = assert_same_fit(X)
    W = fitted.fit_transform(X)
    assert isinstance(W, da.Array)
    assert W.chunks[0] == X.chunks[0]
    transformed = fitted.transform(X)
    assert isinstance(transformed, da.Array)
    np.testing.assert_array_equal(transformed.compute(), fitted.transform(COUNTS))


def test_dask_array_with_blocks_of_columns(client: Client) -> None:
    dense = COUNTS.toarray().astype(np.int8)
    assert_same_fit(da.from_array(dense, chunks=(1700, 90)), dense)


def test_dask_array_in_float64(client: Client) -> None:
    large = COUNTS.copy()
    large.data[7] = 2**25  # one block of integers that float32 does not hold
    assert assert_same_fit(as_dask_array(large, (2000, 3000)), large).components_.dtype == float


def test_blocks_like_those_of_sparse(client: Client) -> None:
    assert_same_fit(as_dask_array(COUNTS, (5000,), LikeSparse))


class LikeSparse:
    """A block that is no SciPy matrix, but knows how to become one."""

    def __init__(self, X: Any) -> None:
        self._X = sp.coo_array(X)
        self.shape, self.dtype, self.ndim = X.shape, X.dtype, 2

    def to_scipy_sparse(self) -> Any:
        return self._X


def test_matrix_on_disk(client: Client, tmp_path: Path) -> None:
    matrix = klnmf.prepare(COUNTS, tmp_path / "matrix")
    fitted = assert_same_fit(matrix)
    np.testing.assert_array_equal(fitted.transform(matrix), fitted.transform(COUNTS))


# ---- where things are ----------------------------------------------------------------------------


def test_driver_never_holds_X_nor_W(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: N802
    """Nothing of the size of X or W comes to this process from the workers.

    The sample that swaps are tried on does; its size has a limit, but these counts are below it.
    So do, for the sums of W by which components are sorted, rows of blocks that two workers share,
    fewer than 4,096 for each: here that is most of them.
    """
    monkeypatch.setattr(sample_fit, "LARGEST_SHARE", 0.0)
    monkeypatch.setattr(Problem, "presented", lambda problem, factors, by_size: factors)
    X = as_dask_array(COUNTS, (1000,) * 5)
    model(backend="dask").fit(X)
    sizes: list[int] = []
    awaited = Cluster.awaited

    def seen(result: Any) -> Any:
        sizes.append(len(pickle.dumps(result)))
        return result

    monkeypatch.setattr(Cluster, "awaited", lambda *a: seen(awaited(*a)))
    model(backend="dask", max_iter=3).fit(X)
    of_W = COUNTS.shape[0] * 4 * 4
    of_X = COUNTS.nnz * 8
    # Numbers by row (lengths, sums: 8 bytes) are all that may be there of this size.
    assert max(sizes) < min(of_W, of_X)
    model(backend="dask", max_iter=3).fit_transform(COUNTS)
    assert max(sizes) > of_W  # on request it does come
    with pytest.raises(TypeError, match="to one machine"):
        model(backend="dask", init="nndsvd").fit(X)


def test_own_cluster_is_made_and_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    monkeypatch.setattr("distributed.default_client", no_client)

    def make(**parameters: Any) -> LocalCluster:
        assert parameters.pop("env") == {"CUDA_VISIBLE_DEVICES": ""}  # of processes
        made.append(LocalCluster(**{**parameters, "processes": False}))
        assert parameters["n_workers"] == 2
        assert parameters["threads_per_worker"] == 1
        return made[-1]

    monkeypatch.setattr("distributed.LocalCluster", make)
    W = model(backend="dask", n_threads=2).fit_transform(as_dask_array(COUNTS, (5000,)))
    assert made[0].status.name == "closed"
    np.testing.assert_array_equal(W.compute(), model().fit_transform(COUNTS))


def no_client() -> Any:
    raise ValueError("No clients found")


def test_client_of_the_user_is_used_and_left_clean(client: Client) -> None:
    before = client.run(lambda dask_worker: sorted(dask_worker.plugins))
    model(backend="dask").fit(COUNTS)
    assert client.status == "running"
    assert client.run(lambda dask_worker: sorted(dask_worker.plugins)) == before
    leftover = client.run(lambda dask_worker: [k for k in dask_worker.handlers if "klnmf" in k])
    assert not any(leftover.values())


def test_threads_of_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker's kernels use as many threads as it has, one after the other."""
    from klnmf.backends.dask import kernels

    threads = []
    update = kernels.update_piece
    monkeypatch.setattr(kernels, "update_piece", lambda *a: threads.append(a[6]) or update(*a))
    with (
        LocalCluster(
            n_workers=1, threads_per_worker=3, processes=False, dashboard_address=":0"
        ) as cluster,
        Client(cluster),
    ):
        model(backend="dask").fit(COUNTS)
    assert set(threads) == {3}


# ---- progress, stopping, errors ------------------------------------------------------------------


def test_callback_stops(client: Client) -> None:
    seen = []
    fitted = model(backend="dask", callback=lambda r: seen.append(r) or len(seen) == 3).fit(COUNTS)
    assert fitted.n_iter_ == 3


def test_interrupt_leaves_a_valid_model(client: Client) -> None:
    def interrupt(record: dict[str, Any]) -> None:
        if record["iteration"] == 3:
            raise KeyboardInterrupt

    stopped = model(backend="dask", callback=interrupt)
    with pytest.raises(KeyboardInterrupt):
        stopped.fit(COUNTS)
    assert stopped.n_iter_ == 3
    assert np.isfinite(stopped.divergence_)
    assert_same_fit(COUNTS)  # the workers are as good as new


def test_ctrl_c_in_mid_iteration(client: Client) -> None:
    """Not between two iterations but while the driver waits for its workers."""

    def interrupt_soon(record: dict[str, Any]) -> None:
        if record["iteration"] == 3:
            main = threading.main_thread().ident
            threading.Timer(0.05, signal.pthread_kill, (main, signal.SIGINT)).start()

    stopped = model(backend="dask", callback=interrupt_soon, max_iter=100_000)
    with pytest.raises(KeyboardInterrupt):
        stopped.fit(COUNTS)
    assert stopped.n_iter_ >= 3
    assert np.isfinite(stopped.divergence_)
    assert client.run(int) == dict.fromkeys(client.nthreads(), 0)


def test_checkpoint(client: Client, tmp_path: Path) -> None:
    """A fit that was stopped goes on, from another kind of input too."""
    checkpoint = {"checkpoint": tmp_path / "fit", "checkpoint_every": 0.0, "backend": "dask"}
    model(**checkpoint, callback=lambda record: record["iteration"] == 5).fit(COUNTS)
    resumed = model(**checkpoint, resume=True).fit(as_dask_array(COUNTS, (2000, 3000)))
    np.testing.assert_array_equal(resumed.components_, model().fit(COUNTS).components_)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"solver": "ccd"}, "solver='ccd' needs DenseRule, which backend='dask' does not have"),
        ({"warm_start": True}, "warm_start=True and backend='dask'"),
        ({"l1_W": 1e30}, "l1_W must be at most"),
    ],
)
def test_what_is_refused(client: Client, parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        model(backend="dask", **parameters).fit(COUNTS)


def with_value(row: int, value: float) -> da.Array:
    X = COUNTS.astype(np.float64).tolil()
    X[row, 5] = value
    return as_dask_array(X.tocsr(), (2000, 3000))


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (with_value(4321, -2.5), r"Negative values .* X\[4321, 5\] = -2.5"),
        (with_value(10, np.nan), "Input X contains NaN"),
        (with_value(10, 1e-200), "positive values of X range from 1e-200"),
        (da.zeros((3, 3, 3)), "two dimensions"),
    ],
)
def test_wrong_blocks(client: Client, X: da.Array, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        model(backend="dask").fit(X)


def test_dask_array_without_the_back_end() -> None:
    with pytest.raises(TypeError, match="Dask array"):
        model().fit(as_dask_array(COUNTS, (5000,)))


def test_asynchronous_client_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Asynchronous:
        asynchronous = True

    monkeypatch.setattr("distributed.default_client", Asynchronous)
    with pytest.raises(ValueError, match="asynchronous"):
        model(backend="dask").fit(COUNTS)


# ---- parts ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bounds",
    [
        (0, 10_000),
        (0, 5000, 5001, 5001, 9000, 10_000),
        (0, ROWS_PER_SUM, 2 * ROWS_PER_SUM, 10_000),
        (0, 0, 3, 10_000, 10_000),
        (0, 9999, 10_000),
    ],
)
def test_sums_over_parts(bounds: tuple[int, ...]) -> None:
    """Sums have the bits of one sum over all rows, wherever the borders are."""
    from klnmf import _core

    generator = np.random.default_rng(0)
    values = generator.random(10_000) * 10.0 ** generator.uniform(-3, 3, 10_000)
    partition = Partition(bounds)
    pieces = [
        partition.pieces(part, values[partition.rows(part)], _core.blocked_sum)
        for part in range(partition.n_parts)
    ]
    assert partition.total(pieces, _core.blocked_sum, 0.0) == _core.blocked_sum(values)


def test_parts_are_balanced() -> None:
    costs = np.random.default_rng(0).random(30_000) ** 8
    bounds = balanced(costs, [1, 1, 2]).bounds
    shares = np.add.reduceat(costs, bounds[:-1]) / costs.sum()
    np.testing.assert_allclose(shares, [0.25, 0.25, 0.5], atol=0.02)
