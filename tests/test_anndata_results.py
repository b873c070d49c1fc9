"""klnmf.tl: numbers of programs, consensus, tests, intervals and names, also from files."""

from __future__ import annotations

import warnings
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import anndata as ad
import numpy as np
import pytest
import scipy.sparse as sp

from cell_batches import mixing, two_batches
from klnmf import KLNMF, tl
from klnmf.model_selection import consensus, select_rank
from klnmf.simulate import simulate_counts
from klnmf.topics import top_features
from klnmf.uncertainty import bootstrap, differential_features, posterior

COUNTS = simulate_counts(70, 40, 3, counts_per_sample=200, sparsity=0.3, random_state=0).X
GENES = [f"gene {j}" for j in range(40)]
MASK = np.arange(40) % 4 != 0


def cells() -> ad.AnnData:
    adata = ad.AnnData(sp.csr_matrix(COUNTS))
    adata.var_names, adata.obs_names = GENES, [f"cell {i}" for i in range(70)]
    adata.var["used"] = MASK
    return adata


def again(adata: ad.AnnData, path: Path) -> ad.AnnData:
    """The same through a file."""
    adata.write_h5ad(path / "cells.h5ad")
    return ad.read_h5ad(path / "cells.h5ad")


def assert_same(found: Any, expected: Any) -> None:
    """All fields agree bit for bit, and have the same types."""
    assert type(found) is type(expected)
    for field in fields(expected):
        a, b = getattr(found, field.name), getattr(expected, field.name)
        if is_dataclass(b):
            assert_same(a, b)
        elif isinstance(b, np.ndarray):
            np.testing.assert_array_equal(a, b, err_msg=field.name)
        else:
            assert a == b or (a != a and b != b), field.name
            assert type(a) is type(b), field.name


@pytest.fixture(scope="module")
def fitted() -> ad.AnnData:
    adata = cells()
    tl.nmf(adata, 3, mask_var="used", n_threads=1, random_state=0)
    tl.differential(adata)
    tl.bootstrap(adata, n_runs=4, n_jobs=1, random_state=0)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The sweeps are too few")
        tl.posterior(adata, n_sweeps=60, n_threads=1, random_state=0)
    return adata


def test_tests_and_intervals_are_those_of_the_library(fitted: ad.AnnData, tmp_path: Path) -> None:
    X = sp.csr_array(COUNTS[:, MASK])
    model = KLNMF(3, random_state=0, n_threads=1).fit(X)
    names = np.array(GENES)[MASK].tolist()
    read = again(fitted, tmp_path)
    tests = differential_features(model, X, feature_names=names)
    intervals = bootstrap(model, X, 4, random_state=0, n_jobs=1, feature_names=names)
    for adata in (fitted, read):
        assert_same(tl.result(adata, "nmf_differential"), tests)
        assert_same(tl.result(adata, "nmf_bootstrap"), intervals)
    shown = str(tl.result(read, "nmf_differential"))
    assert shown.split() == str(tests).split()


@pytest.mark.filterwarnings("ignore:The sweeps are too few")
def test_the_posterior_is_a_fit_of_its_own(fitted: ad.AnnData, tmp_path: Path) -> None:
    X = sp.csr_array(COUNTS[:, MASK])
    model = KLNMF(3, random_state=0, n_threads=1).fit(X)
    names = np.array(GENES)[MASK].tolist()
    expected = posterior(model, X, n_sweeps=60, random_state=0, feature_names=names)
    for adata in (fitted, again(fitted, tmp_path)):
        found = tl.result(adata, "nmf_posterior")
        assert_same(replace(found, model_=None), replace(expected, model_=None))
        of_fit = tl.fitted_model(adata, "nmf_posterior")
        np.testing.assert_array_equal(of_fit.components_, expected.model_.components_)
        np.testing.assert_array_equal(found.model_.components_, of_fit.components_)
        shares = adata.obsm["X_nmf_posterior_shares"]
        np.testing.assert_allclose(shares, expected.proportions.estimate, atol=1e-6)
        assert len(tl.top_genes(adata, 4, key="nmf_posterior")) == 12
        tl.differential(adata, key="nmf_posterior")
        tests = tl.result(adata, "nmf_posterior_differential")
        assert_same(tests, differential_features(expected))
    weighted = cells()
    tl.nmf(weighted, 3, sample_weight=np.ones(70), random_state=0)
    with pytest.raises(ValueError, match="does not take sample_weight"):
        tl.posterior(weighted)


def test_no_warning_of_names_that_a_sparse_matrix_cannot_have(fitted: ad.AnnData) -> None:
    model = tl.fitted_model(fitted)
    differential_features(model, fitted.X[:, MASK])  # warnings are errors in this test suite
    assert model.transform(sp.csr_array(fitted.X[:, MASK])).shape == (70, 3)
    with pytest.warns(UserWarning, match="valid feature names"):
        model.transform(fitted.X[:, MASK].toarray())


def test_rank_is_that_of_the_library(tmp_path: Path) -> None:
    adata = cells()
    options: dict[str, Any] = {"n_splits": 3, "random_state": 0, "n_jobs": 1}
    assert tl.select_rank(adata, range(1, 5), mask_var="used", **options) is None
    X = sp.csr_array(COUNTS[:, MASK])
    expected = select_rank(X, range(1, 5), **options)
    found = tl.result(again(adata, tmp_path), "nmf_rank")
    assert found.best_rank == expected.best_rank == 3
    np.testing.assert_array_equal(found.deviance, expected.deviance)
    assert adata.uns["nmf_rank"]["params"] == {"mask_var": "used"}
    tl.nmf(adata, found.best_rank, random_state=0)
    assert "nmf_rank" in adata.uns  # a fit does not forget why it has so many programs


@pytest.mark.parametrize("against", ["nearest", "others"])
def test_batches_without_an_effect_leave_the_markers_significant(against: str) -> None:
    """Profiles of batches can hardly be told from a part that all programs share."""
    adata = two_batches("none", n_cells=300, n_genes=150).cells
    n_found = []
    for batch_key in (None, "batch"):
        tl.nmf(adata, 4, batch_key=batch_key, n_threads=1, tol=3e-3, random_state=0)
        tl.differential(adata, against=against)
        found = tl.result(adata, "nmf_differential")
        assert found.components.tolist() == [0, 1, 2, 3]
        assert found.reference.max() < 4
        n_found.append(int((found.q_value <= 0.05).sum()))
    assert n_found[0] > 20
    assert n_found[1] > 0.8 * n_found[0]


def test_batches_are_no_programs_in_the_choice_of_their_number() -> None:
    adata = two_batches("ambient", n_cells=200, n_genes=120).cells
    options: dict[str, Any] = {"n_splits": 2, "n_jobs": 1, "early_stop": False, "random_state": 0}
    tl.select_rank(adata, range(2, 7), batch_key="batch", **options)
    found = tl.result(adata, "nmf_rank")
    assert found.ranks.tolist() == [2, 3, 4, 5, 6]
    assert {found.best_rank, found.lowest_rank, found.stable_rank} <= {2, 3, 4, 5, 6}
    assert abs(found.best_rank - 4) <= 1


def test_consensus_is_a_fit(tmp_path: Path) -> None:
    adata = cells()
    options: dict[str, Any] = {"random_state": 0, "n_jobs": 1}
    tl.consensus(adata, 3, n_runs=4, mask_var="used", scale_genes=True, **options)
    X = sp.csr_array(COUNTS[:, MASK])
    deviations = X.toarray().astype(float).std(axis=0, ddof=1)
    weight = 1 / np.where(deviations > 0, deviations, 1.0)
    expected = consensus(
        X, 3, 4, feature_weight=weight, feature_names=np.array(GENES)[MASK].tolist(), **options,
    )  # fmt: skip
    read = again(adata, tmp_path)
    for stored in (adata, read):
        found = tl.result(stored, "nmf_consensus")
        np.testing.assert_allclose(found.components, expected.components, rtol=1e-6)
        np.testing.assert_allclose(found.spectra, expected.spectra, rtol=1e-6)
        assert str(found).split() == str(expected).split()
    assert set(read.obsm) == {"X_nmf_consensus", "X_nmf_consensus_shares"}
    model = tl.fitted_model(read, "nmf_consensus")
    np.testing.assert_allclose(model.components_, expected.components, rtol=1e-6)
    tl.differential(read, key="nmf_consensus")
    assert "log2_fold_change" in tl.top_genes(read, key="nmf_consensus")
    new = cells()
    tl.project(new, read, reference_key="nmf_consensus")
    np.testing.assert_allclose(new.obsm["X_nmf"], expected.W, atol=0.02 * expected.W.max())


def test_top_genes_are_a_table(fitted: ad.AnnData, tmp_path: Path) -> None:
    table = tl.top_genes(again(fitted, tmp_path), 5)
    lists = top_features(fitted.varm["nmf"].T, GENES, n_top=5)
    assert list(table["gene"]) == [name for genes in lists for name, _ in genes]
    np.testing.assert_allclose(table["lift"], [score for genes in lists for _, score in genes])
    tests = tl.result(fitted, "nmf_differential")
    for row in table.itertuples():
        program, gene = int(row.program), tests.feature_names.index(row.gene)
        assert row.share == pytest.approx(fitted.varm["nmf"][GENES.index(row.gene), program])
        assert row.q_value == tests.q_value[program, gene]
    assert list(tl.top_genes(fitted, 2, by="weight")) == [
        *("program", "gene", "weight", "share", "log2_fold_change", "lower", "upper", "q_value")
    ]
    some = fitted.copy()
    tl.differential(some, components=[1])
    table = tl.top_genes(some, 3)
    assert table["q_value"].isna().tolist() == [True] * 3 + [False] * 3 + [True] * 3


def test_names_of_programs(fitted: ad.AnnData, tmp_path: Path) -> None:
    adata = fitted.copy()
    tl.name_programs(adata, {1: "B cells"})
    adata = again(adata, tmp_path)
    assert list(adata.obs["nmf"].cat.categories) == ["0", "B cells", "2"]
    assert set(tl.top_genes(adata)["program"]) == {"0", "B cells", "2"}
    main = adata.obsm["X_nmf_shares"].argmax(axis=1)
    assert ((adata.obs["nmf"] == "B cells") == (main == 1)).all()
    few = adata[main != 1].copy()  # anndata drops the category that no cell has
    tl.name_programs(few, ["T cells", "B", "NK"])
    assert set(few.obs["nmf"]) == {"T cells", "NK"}
    new = cells()
    tl.project(new, few)
    assert list(new.obs["nmf"].cat.categories) == ["T cells", "B", "NK"]
    for names, error, message in (
        ({7: "x"}, ValueError, "There is no program 7; numbers are 0 to 2"),
        (["x"], ValueError, "3 different names"),
        (["x", "y", "x"], ValueError, "3 different names"),
        (["x", "y", " "], ValueError, "3 different names"),
        ("xyz", TypeError, "a list of names or a dict"),
    ):
        with pytest.raises(error, match=message):
            tl.name_programs(adata, names)  # type: ignore[arg-type]


def test_whether_genes_are_scaled_is_no_word() -> None:
    with pytest.raises(TypeError, match="scale_genes must be True or False, got 'no'"):
        tl.nmf(cells(), 3, scale_genes="no")  # type: ignore[arg-type]


def test_wrong_and_damaged_results_are_named(fitted: ad.AnnData) -> None:
    with pytest.raises(ValueError, match=r"'x'.* is not a result.*'nmf_differential', 'nmf_bootst"):
        tl.result(fitted, "x")
    with pytest.raises(ValueError, match="is not a result"):
        tl.result(fitted, "nmf")
    adata = fitted.copy()
    del adata.uns["nmf_differential"]["result"]["q_value"]
    with pytest.raises(ValueError, match="is damaged: q_value is missing"):
        tl.result(adata, "nmf_differential")
    adata.uns["nmf_bootstrap"]["result"]["sizes"] = 3
    with pytest.raises(ValueError, match="is damaged"):
        tl.result(adata, "nmf_bootstrap")
    for function in (tl.differential, tl.bootstrap, tl.top_genes):
        with pytest.raises(ValueError, match="holds no fit under 'nmf'"):
            function(cells())
    with pytest.raises(ValueError, match="is not the data that the model was fitted to"):
        tl.differential(fitted[:50].copy())


@pytest.mark.parametrize(
    "change",
    [
        {"params": 5},
        {"component_names": ["a"]},
        {"component_names": ["a"] * 3},
        {"component_names": 5},
        {"batches": []},
    ],
)
def test_damaged_fits_are_named(fitted: ad.AnnData, change: dict[str, Any]) -> None:
    adata = fitted.copy()
    adata.uns["nmf"] = {**adata.uns["nmf"], **change}
    for function in (tl.fitted_model, tl.top_genes, tl.differential):
        with pytest.raises(ValueError, match=r"adata.uns\['nmf'\] is damaged"):
            function(adata)


@pytest.mark.parametrize("key", [5, "", "a/b"])
def test_keys_that_h5ad_cannot_keep(fitted: ad.AnnData, key: Any) -> None:
    for function in (tl.nmf, tl.consensus, tl.select_rank):
        with pytest.raises(ValueError, match="key_added must be a str that is not empty"):
            function(cells(), key_added=key)
    with pytest.raises(ValueError, match="key_added must be a str that is not empty"):
        tl.project(cells(), fitted, key_added=key)


@pytest.mark.parametrize("kind", [[], {}, np.zeros(2), None])
def test_entries_of_other_packages_are_no_results(fitted: ad.AnnData, kind: Any) -> None:
    adata = fitted.copy()
    adata.uns["other"] = {"kind": kind}
    with pytest.raises(ValueError, match="is not a result"):
        tl.result(adata, "other")
    with pytest.raises(ValueError, match="holds no fit under 'other'"):
        tl.fitted_model(adata, "other")


def test_cells_without_counts_have_no_program() -> None:
    adata = cells()
    X = adata.X.toarray()
    X[5] = 0
    adata.X = sp.csr_matrix(X)
    with pytest.warns(UserWarning, match="no counts"):
        tl.nmf(adata, 3, n_threads=1, random_state=0)
    assert adata.obs["nmf"].isna().tolist() == [i == 5 for i in range(70)]


def test_a_consensus_of_cells_in_batches(tmp_path: Path) -> None:
    adata, types, batch = two_batches("ambient", n_cells=200, n_genes=100)
    options: dict[str, Any] = {"n_runs": 5, "n_jobs": 1, "random_state": 0}
    tl.consensus(adata, 4, **options)
    plain = mixing(adata.obsm["X_nmf_consensus_shares"], batch)
    tl.consensus(adata, 4, batch_key="batch", **options)
    shares = adata.obsm["X_nmf_consensus_shares"]
    assert shares.shape == (200, 4)
    assert mixing(shares, batch) > 0.5 > 0.1 > plain
    by_type = np.array([shares[types == k].mean(axis=0) for k in range(4)])
    assert sorted(by_type.argmax(axis=1)) == [0, 1, 2, 3]
    adata.write_h5ad(tmp_path / "cells.h5ad")
    read = ad.read_h5ad(tmp_path / "cells.h5ad")
    found = tl.result(read, "nmf_consensus")
    assert (found.components.shape, len(found.labels), len(found.null.silhouette)) == (
        (4, 100),
        20,
        4,
    )
    assert found.run_share.min() > 0.5
    model = tl.fitted_model(read, "nmf_consensus")
    assert (model.n_components_, model.n_fixed_W_) == (6, 2)
    # The profiles are those of the ambient RNA: the model is near the best one of its rank.
    tl.nmf(read, 4, batch_key="batch", n_init=3, n_threads=1, random_state=0)
    best = read.uns["nmf"]["divergence"]
    assert read.uns["nmf_consensus"]["divergence"] == pytest.approx(best, rel=0.01)
    tl.differential(read, key="nmf_consensus")
    assert (tl.result(read, "nmf_consensus_differential").q_value <= 0.05).sum() > 5
