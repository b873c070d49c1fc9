"""What is known, on the workers of a Dask cluster: the bits of one machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import klnmf
from constraint_cases import everything_known, fit, of_samples
from klnmf.simulate import simulate_counts
from strategies import same_bits

pytest.importorskip("dask", reason="needs the extra [dask]")
pytest.importorskip("distributed", reason="needs the extra [dask]")
import dask.array as da
from distributed import Client

from dask_clusters import local_cluster

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

# More rows than a block of sums has, so that parts cut blocks.
COUNTS = simulate_counts(5000, 80, 4, counts_per_sample=20, random_state=0).X.astype(np.float64)
KNOWN = everything_known(COUNTS)
PENALTIES = {"l1_W": 0.1, "l2_W": 0.02, "l1_H": 0.3, "l2_H": 0.01}


# Everything at once is fitted by one worker too.
ONE_AND_THREE = pytest.mark.parametrize("client", [1, 3], indirect=True)
HOW = pytest.mark.parametrize(
    ("solver", "weights"),
    [("srcd", {}), ("srcd", PENALTIES), ("mu", PENALTIES)],
    ids=["srcd", "penalised", "mu"],
)


@pytest.fixture(scope="module")
def client(request: Any) -> Iterator[Client]:
    with (
        local_cluster(getattr(request, "param", 3)) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


def assert_same_fit(data: Any, **settings: Any) -> None:
    W, one = fit(COUNTS, max_iter=4, **settings)
    W_of_many, many = fit(data, max_iter=4, backend="dask", **settings)
    assert same_bits(W, np.asarray(W_of_many))
    assert same_bits(one.components_, many.components_)
    for ours, theirs in zip(many.history_, one.history_, strict=True):
        assert {**ours, "seconds": 0} == {**theirs, "seconds": 0}
    for name in ("divergence_", "optimality_gap_", "kkt_residual_"):
        assert getattr(many, name) == getattr(one, name), name


@ONE_AND_THREE
@HOW
def test_a_matrix_in_memory(client: Client, weights: dict[str, float], solver: str) -> None:
    with client.as_current():
        assert_same_fit(COUNTS, solver=solver, **weights, **KNOWN)


@pytest.mark.parametrize("weights", [{}, PENALTIES], ids=["plain", "penalised"])
def test_a_matrix_on_disk(client: Client, weights: dict[str, float], tmp_path: Path) -> None:
    klnmf.prepare(COUNTS, tmp_path / "counts")
    matrix = klnmf.open_matrix(tmp_path / "counts", memory=60_000)
    fixed = {name: KNOWN[name] for name in ("fixed_components", "fixed_W", "exposure")}
    with client.as_current():
        assert_same_fit(matrix, **weights, **KNOWN)
        assert_same_fit(matrix, **weights, **fixed)


OF_FEATURES = {
    name: KNOWN[name] for name in ("feature_weight", "zero_components", "fixed_components")
}


@ONE_AND_THREE
@HOW
def test_a_dask_array(client: Client, weights: dict[str, float], solver: str) -> None:
    blocks = da.from_array(COUNTS.toarray(), chunks=(900, 50))
    with client.as_current():
        assert_same_fit(blocks, solver=solver, **weights, **KNOWN)


@pytest.mark.parametrize("name", sorted(set(KNOWN) - set(OF_FEATURES)))
def test_a_dask_array_and_one_thing_about_its_samples(client: Client, name: str) -> None:
    blocks = da.from_array(COUNTS.toarray(), chunks=(1700, -1))
    with client.as_current():
        assert_same_fit(blocks, **{name: KNOWN[name]})
        W, model = fit(
            blocks, backend="dask", max_iter=2, sparse_output=True, **{name: KNOWN[name]}
        )
        assert W.chunks[0] == blocks.chunks[0]
        found = np.concatenate([block.compute().toarray() for block in W.to_delayed()[:, 0]])
    assert same_bits(found, fit(COUNTS, max_iter=2, **{name: KNOWN[name]})[0])
    assert model.constraint_names_ == [name]


def test_missing_cells_of_a_dask_array_may_be_nan(client: Client) -> None:
    missing = KNOWN["missing"].toarray()
    holes = COUNTS.toarray()
    holes[missing] = np.nan
    blocks = da.from_array(holes, chunks=(900, 50))
    expected_W, expected = fit(COUNTS, max_iter=3, missing=missing)
    with client.as_current():
        W, found = fit(blocks, backend="dask", max_iter=3, missing=da.isnan(blocks))
        assert same_bits(np.asarray(W), expected_W)
        assert same_bits(found.components_, expected.components_)
        new = found.transform(blocks, missing=da.isnan(blocks)).compute()
        assert same_bits(new, expected.transform(COUNTS, missing=missing))
        with pytest.raises(ValueError, match="contains NaN"):
            fit(blocks, backend="dask", max_iter=3)
        with pytest.raises(ValueError, match="missing covers every cell"):
            fit(blocks, backend="dask", missing=np.ones(holes.shape, dtype=bool))


def test_samples_of_a_dask_array_must_be_counted() -> None:
    blocks = da.from_array(COUNTS.toarray(), chunks=(1000, -1))
    unknown = blocks[da.ones(len(COUNTS.indptr) - 1, chunks=1000) > 0]
    assert np.isnan(unknown.shape[0])
    for name in ("exposure", "missing"):
        with pytest.raises(ValueError, match=rf"{name} cannot be matched.*compute_chunk_sizes"):
            fit(unknown, backend="dask", **{name: KNOWN[name]})


@pytest.mark.parametrize("weights", [{}, PENALTIES], ids=["plain", "penalised"])
def test_a_dask_array_and_its_features(client: Client, weights: dict[str, float]) -> None:
    blocks = da.from_array(COUNTS.toarray(), chunks=(900, -1))
    with client.as_current():
        assert_same_fit(blocks, **weights, **OF_FEATURES)
        assert_same_fit(blocks, **weights, fixed_components=OF_FEATURES["fixed_components"])
        start = np.zeros((4, COUNTS.shape[1]))
        start[2, ::2] = 1.0  # features that it does not cover
        assert_same_fit(blocks, H=start, **weights, **OF_FEATURES)


def test_what_a_dask_array_cannot_have(client: Client) -> None:
    blocks = da.from_array(COUNTS.toarray(), chunks=(900, -1))
    bare = np.zeros((4, COUNTS.shape[1]), dtype=bool)
    bare[:, 3] = True
    with client.as_current():
        with pytest.raises(ValueError, match=r"cell \[\d+, 3\], but zero_components leave no"):
            fit(blocks, backend="dask", zero_components=bare)
        with pytest.raises(ValueError, match="fixed_components must have shape"):
            fit(blocks, backend="dask", fixed_components=np.ones((1, 3)))
        with pytest.raises(ValueError, match="solver='srcd-paper' does not support"):
            fit(blocks, backend="dask", solver="srcd-paper", zero_components=bare)


def test_new_samples_in_a_dask_array(client: Client) -> None:
    blocks = da.from_array(COUNTS.toarray(), chunks=(1000, -1))
    weighted = fit(COUNTS, max_iter=2, feature_weight=KNOWN["feature_weight"])[1]
    with client.as_current():
        found = weighted.transform(blocks).compute()
    assert same_bits(found, weighted.transform(COUNTS))
    given = of_samples(KNOWN)
    with_columns = fit(COUNTS, max_iter=2, fixed_W=KNOWN["fixed_W"], **OF_FEATURES)[1]
    with client.as_current():
        found = with_columns.transform(blocks, **given)
        assert found.chunks[0] == blocks.chunks[0]
        assert same_bits(found.compute(), with_columns.transform(COUNTS, **given))
        nothing = weighted.transform(blocks, exposure=np.ones(COUNTS.shape[0])).compute()
        assert same_bits(nothing, weighted.transform(COUNTS))
        plain = fit(COUNTS, max_iter=2)[1]
        nothing = plain.transform(blocks, exposure=np.ones(COUNTS.shape[0])).compute()
        assert same_bits(nothing, plain.transform(COUNTS))
    with pytest.raises(ValueError, match="fixed_W had 1 columns in fit, and has 0"):
        with_columns.transform(blocks)
    with pytest.raises(ValueError, match="exposure must have one number for each sample"):
        weighted.transform(blocks, exposure=np.ones(3))


def test_names_come_before_anything_else(client: Client) -> None:
    blocks = da.from_array(COUNTS.toarray(), chunks=(1000, -1))
    with client.as_current():
        model = fit(blocks, backend="dask", max_iter=1, sample_weight=None, missing=None)[1]
        with pytest.raises(TypeError, match="does not take the argument 'weights'"):
            fit(blocks, backend="dask", weights=1, sample_weight=1)
        assert model.transform(blocks, exposure=None).shape == (len(KNOWN["exposure"]), 4)
        with pytest.raises(TypeError, match="does not take the argument 'weights'"):
            model.transform(blocks, weights=1)
