"""klnmf.tl on AnnData: what is written and where, files, masks, and data that are no counts."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anndata as ad
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import sklearn

from klnmf import KLNMF, RunOptions, tl
from klnmf.frames import components_frame
from klnmf.simulate import simulate_counts
from klnmf.solvers import SparseCoordinateDescent
from klnmf.tl import counts as counts_module

COUNTS = simulate_counts(60, 40, 3, counts_per_sample=150, sparsity=0.3, random_state=0).X
NEW = simulate_counts(25, 40, 3, counts_per_sample=150, random_state=1).X
GENES = [f"gene {j}" for j in range(40)]
VARIABLE = np.arange(40) % 3 != 0


def cells(X: Any = COUNTS, genes: list[str] = GENES) -> ad.AnnData:
    names = [f"cell {i}" for i in range(X.shape[0])]
    adata = ad.AnnData(X.copy(), obs=pd.DataFrame(index=names), var=pd.DataFrame(index=genes))
    if X.shape[1] == 40:
        adata.var["highly_variable"] = VARIABLE
    return adata


def nmf(adata: ad.AnnData, **parameters: Any) -> ad.AnnData | None:
    return tl.nmf(adata, **{"n_components": 3, "random_state": 0, "n_threads": 1, **parameters})


def plain(**parameters: Any) -> KLNMF:
    return KLNMF(**{"n_components": 3, "random_state": 0, "n_threads": 1, **parameters})


@pytest.fixture(scope="module")
def expected() -> tuple[KLNMF, np.ndarray]:
    model = plain()
    return model, model.fit_transform(COUNTS)


# ---- what is written -----------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["csr", "csc", "dense", "float32", "csr_array"])
def test_same_bits_as_the_estimator(expected: tuple[KLNMF, np.ndarray], form: str) -> None:
    X = {
        "csr": COUNTS,
        "csc": COUNTS.tocsc(),
        "dense": COUNTS.toarray(),
        "float32": COUNTS.astype(np.float32),
        "csr_array": sp.csr_array(COUNTS),
    }[form]
    adata = cells(X)
    assert nmf(adata) is None
    model, W = expected
    np.testing.assert_array_equal(adata.obsm["X_nmf"], W)
    np.testing.assert_array_equal(adata.obsm["X_nmf_shares"], model.proportions(W))
    np.testing.assert_array_equal(adata.varm["nmf"], model.components_.T)
    entries = adata.uns["nmf"]
    assert entries["divergence"] == model.divergence_
    assert entries["converged"] is True
    assert entries["n_iter"] == len(entries["history"]["objective"]) == model.n_iter_
    assert entries["history"]["objective"][-1] == model.history_[-1]["objective"]
    assert entries["params"]["n_components"] == 3
    assert entries["params"]["random_state"] == 0


def test_frames_as_scikit_learns_output_change_nothing(
    expected: tuple[KLNMF, np.ndarray],
) -> None:
    adata, new = cells(), cells(NEW)
    with sklearn.config_context(transform_output="pandas"):
        nmf(adata)
        tl.project(new, adata)
    for result, W in ((adata, expected[1]), (new, expected[0].transform(NEW))):
        assert isinstance(result.obsm["X_nmf"], np.ndarray)
        np.testing.assert_array_equal(result.obsm["X_nmf"], W)


def test_all_names_have_the_key() -> None:
    adata = cells()
    nmf(adata, key_added="programs", tol=0.1)
    assert list(adata.varm) == list(adata.uns) == ["programs"]
    assert list(adata.obsm) == ["X_programs", "X_programs_shares"]
    assert "programs" in adata.obs
    assert adata.uns["programs"]["params"]["tol"] == 0.1


def test_layer(expected: tuple[KLNMF, np.ndarray]) -> None:
    adata = cells(COUNTS.log1p())
    adata.layers["counts"] = COUNTS
    nmf(adata, layer="counts")
    np.testing.assert_array_equal(adata.obsm["X_nmf"], expected[1])
    assert adata.uns["nmf"]["params"]["layer"] == "counts"
    with pytest.raises(ValueError, match=r"no layer 'count'; its layers: 'counts'"):
        nmf(adata, layer="count")


@pytest.mark.parametrize("given", ["name", "array", "list", "nullable", "object"])
def test_mask_of_genes_gives_zeros_elsewhere(given: str) -> None:
    adata = cells()
    masks = {
        "name": "highly_variable",
        "array": VARIABLE,
        "list": VARIABLE.tolist(),
        "nullable": pd.array(VARIABLE, dtype="boolean"),
        "object": VARIABLE.astype(object),
    }
    nmf(adata, mask_var=masks[given])
    model = plain()
    W = model.fit_transform(COUNTS[:, VARIABLE])
    np.testing.assert_array_equal(adata.obsm["X_nmf"], W)
    np.testing.assert_array_equal(adata.varm["nmf"][VARIABLE], model.components_.T)
    assert (adata.varm["nmf"][~VARIABLE] == 0).all()
    np.testing.assert_array_equal(adata.var["nmf_mask"], VARIABLE)
    assert tl.fitted_model(adata).n_features_in_ == VARIABLE.sum()
    assert tl.fitted_model(adata).data_checksum_ == model.data_checksum_


def test_all_genes_without_a_mask() -> None:
    adata = cells()
    nmf(adata)
    assert adata.varm["nmf"][~VARIABLE].any()


def test_sparse_output_goes_through_a_file(tmp_path: Path) -> None:
    adata = cells()
    nmf(adata, sparse_output=True, mask_var="highly_variable")
    adata.write_h5ad(tmp_path / "cells.h5ad")
    again = ad.read_h5ad(tmp_path / "cells.h5ad")
    dense = cells()
    nmf(dense, mask_var="highly_variable")
    for found, wanted in (
        (again.obsm["X_nmf"], dense.obsm["X_nmf"]),
        (again.varm["nmf"], dense.varm["nmf"]),
    ):
        assert sp.issparse(found)
        np.testing.assert_array_equal(found.toarray(), wanted)
    assert sp.issparse(tl.fitted_model(again).components_)
    tl.project(new := cells(NEW), again)
    tl.project(new_dense := cells(NEW), dense)
    np.testing.assert_array_equal(new.obsm["X_nmf"].toarray(), new_dense.obsm["X_nmf"])


# ---- files ---------------------------------------------------------------------------------------


def test_round_trip_through_a_file(expected: tuple[KLNMF, np.ndarray], tmp_path: Path) -> None:
    model, W = expected
    adata = cells()
    nmf(adata, dtype=np.float32, solver=SparseCoordinateDescent(), l1_W=0.0)
    adata.write_h5ad(tmp_path / "cells.h5ad")
    again = ad.read_h5ad(tmp_path / "cells.h5ad")
    np.testing.assert_array_equal(again.obsm["X_nmf"], W)
    np.testing.assert_array_equal(again.varm["nmf"], model.components_.T)
    before, after = adata.uns["nmf"], again.uns["nmf"]
    assert set(after) == set(before)
    assert after["params"] == before["params"]
    assert after["params"]["dtype"] == "float32"
    history, kept = (pd.DataFrame(entries["history"]) for entries in (before, after))
    pd.testing.assert_frame_equal(kept, history, check_like=True)  # files sort the columns


def test_model_back_from_a_file(expected: tuple[KLNMF, np.ndarray], tmp_path: Path) -> None:
    model, _ = expected
    adata = cells()
    nmf(adata)
    adata.write_h5ad(tmp_path / "cells.h5ad")
    again = tl.fitted_model(ad.read_h5ad(tmp_path / "cells.h5ad"))
    np.testing.assert_array_equal(again.components_, model.components_)
    assert list(components_frame(again).columns) == GENES
    assert [r["objective"] for r in again.history_] == [r["objective"] for r in model.history_]
    assert (again.n_iter_, again.divergence_) == (model.n_iter_, model.divergence_)
    assert (again.converged_, again.kkt_residual_) == (True, model.kkt_residual_)
    assert again.optimality_gap_ == model.optimality_gap_
    assert again.data_checksum_ == model.data_checksum_
    assert again.get_params() == {**model.get_params(), "n_threads": None}
    new = pd.DataFrame(NEW.toarray(), columns=GENES)
    np.testing.assert_array_equal(again.transform(new), model.transform(NEW))


def test_parameters_that_files_cannot_hold(tmp_path: Path) -> None:
    adata = cells()
    solver = SparseCoordinateDescent(swap_failures=1)
    nmf(adata, solver=solver, random_state=np.random.RandomState(0), run=RunOptions(callback=print))
    parameters = adata.uns["nmf"]["params"]
    assert parameters["solver"] == repr(solver)
    assert not {"random_state", "run", "dtype"} & set(parameters)
    assert all(isinstance(value, bool | int | float | str) for value in parameters.values())
    adata.write_h5ad(tmp_path / "cells.h5ad")
    again = tl.fitted_model(ad.read_h5ad(tmp_path / "cells.h5ad"))
    assert again.solver == "srcd"
    assert again.fit(COUNTS).converged_  # the model is one that can be fitted again


@pytest.mark.parametrize("mode", ["r", "r+"])
@pytest.mark.parametrize("form", ["csr", "csc", "dense"])
@pytest.mark.parametrize("mask", [None, "highly_variable"])
def test_backed_files(form: str, mode: str, mask: str | None, tmp_path: Path) -> None:
    X = COUNTS.toarray() if form == "dense" else COUNTS.asformat(form)
    path, out = tmp_path / "cells.h5ad", tmp_path / "out.h5ad"
    cells(X).write_h5ad(path)
    backed = ad.read_h5ad(path, backed=mode)
    nmf(backed, mask_var=mask)
    assert backed.isbacked
    in_memory = cells()
    nmf(in_memory, mask_var=mask)
    target = out if mode == "r" else path  # "r+" may write to the file itself
    backed.write_h5ad(target)
    backed.file.close()
    again = ad.read_h5ad(target)
    for result in (backed, again):
        np.testing.assert_array_equal(result.obsm["X_nmf"], in_memory.obsm["X_nmf"])
        np.testing.assert_array_equal(result.varm["nmf"], in_memory.varm["nmf"])


@pytest.mark.parametrize("form", ["csr", "dense"])
def test_backed_files_are_read_block_by_block(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counts_module, "_ROWS_AT_ONCE", 7)
    monkeypatch.setattr(counts_module, "_NUMBERS_AT_ONCE", 7 * 40)
    X = COUNTS.toarray() if form == "dense" else COUNTS
    cells(X).write_h5ad(tmp_path / "cells.h5ad")
    backed = ad.read_h5ad(tmp_path / "cells.h5ad", backed="r")
    largest = 0
    kind = type(backed.X)
    read = kind.__getitem__

    def watched(self: Any, index: Any) -> Any:
        nonlocal largest
        block = read(self, index)
        if getattr(self, "shape", None) == (60, 40):
            largest = max(largest, block.shape[0])
        return block

    monkeypatch.setattr(kind, "__getitem__", watched)
    order = np.array([5, 3, 30])
    found = counts_module.counts_of_layer(backed, None, order)
    np.testing.assert_array_equal(found.toarray(), COUNTS.toarray()[:, order])
    assert largest == 7
    backed.file.close()


def test_result_that_could_not_be_written_is_refused_at_once(tmp_path: Path) -> None:
    cells().write_h5ad(tmp_path / "cells.h5ad")
    backed = ad.read_h5ad(tmp_path / "cells.h5ad", backed="r")
    with pytest.raises(ValueError, match=r"Pass adata.to_memory\(\)"):
        nmf(backed[:, :20], run=RunOptions(callback=pytest.fail))
    with pytest.raises(ValueError, match=r"Pass adata.to_memory\(\)"):
        tl.project(backed[:, :20], backed)
    with pytest.raises(ValueError, match=r"pass adata.copy\(\) to keep it as it is"):
        nmf(backed, copy=True)
    backed.file.close()


def test_view_in_memory_becomes_an_object_of_its_own() -> None:
    adata = cells()
    view = adata[:, VARIABLE]
    with pytest.warns(ad.ImplicitModificationWarning):
        nmf(view)
    np.testing.assert_array_equal(view.obsm["X_nmf"], plain().fit_transform(COUNTS[:, VARIABLE]))
    assert not len(adata.obsm)


# ---- data that are no counts ---------------------------------------------------------------------


def test_fractions_warn_and_name_the_layers_with_counts() -> None:
    adata = cells(COUNTS.log1p())
    with pytest.warns(UserWarning, match=r"adata.X holds fractions \(for instance 2.565\)") as w:
        nmf(adata, tol=10.0)
    assert "No layer holds whole numbers" in str(w[0].message)
    assert w[0].filename == __file__
    adata.uns["log1p"] = {}
    adata.layers.update(counts=COUNTS, scaled=COUNTS * 0.5, dense=COUNTS.toarray())
    with pytest.warns(UserWarning, match="adata.uns\\['log1p'\\]") as w:
        nmf(adata, tol=10.0)
    assert str(w[0].message).endswith("Whole numbers are in layer='counts', layer='dense'.")
    assert len(w) == 1  # the fit itself does not warn again
    with pytest.warns(UserWarning, match=r"adata.layers\['scaled'\] holds fractions"):
        nmf(adata, layer="scaled", tol=10.0)


def test_expected_counts_do_not_warn_where_there_are_no_others() -> None:
    expected = COUNTS.astype(np.float64)
    expected.data[::3] += np.random.default_rng(0).uniform(-0.9, 0.9, len(expected.data[::3]))
    adata = cells(expected)
    nmf(adata, tol=10.0)  # warnings are errors in this test suite
    adata.layers["raw"] = COUNTS
    with pytest.warns(UserWarning, match="layer='raw'"):
        nmf(adata, tol=10.0)


@pytest.mark.parametrize("backed", [None, "r"])
def test_counts_in_raw_are_named(backed: str | None, tmp_path: Path) -> None:
    adata = cells()
    adata.raw = adata
    adata.X = COUNTS.log1p()
    adata.write_h5ad(tmp_path / "cells.h5ad")
    read = ad.read_h5ad(tmp_path / "cells.h5ad", backed=backed)
    with pytest.warns(UserWarning, match="in adata.raw: pass layer='raw'"):
        nmf(read, tol=10.0)
    if backed:
        read.file.close()


def test_negative_values_are_an_error_that_names_the_layers() -> None:
    scaled = COUNTS.toarray() - COUNTS.toarray().mean(axis=0)
    adata = cells(scaled)
    adata.layers["raw counts"] = COUNTS
    with pytest.raises(ValueError, match="negative values") as caught:
        nmf(adata)
    assert "looks scaled or centred" in str(caught.value)
    assert str(caught.value).endswith("Whole numbers are in layer='raw counts'.")
    assert not len(adata.obsm)


def test_values_that_are_not_finite_are_refused_by_the_estimator() -> None:
    X = COUNTS.toarray().astype(np.float32)
    X[3, 4] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        nmf(cells(X))


def test_whole_numbers_stored_as_floats_do_not_warn() -> None:
    nmf(cells(COUNTS.astype(np.float64)))  # warnings are errors in this test suite
    nmf(cells(COUNTS.toarray().astype(np.float16)))


def test_matrices_of_an_unknown_kind_are_refused() -> None:
    lazy = SimpleNamespace(X=SimpleNamespace(shape=(3, 4)), layers={}, raw=None)
    with pytest.raises(TypeError, match=r"adata.X is a types.SimpleNamespace.*to_memory\(\)"):
        counts_module.counts_of_layer(lazy, None)


@pytest.mark.parametrize("form", ["csr", "dense"])
def test_no_cells_at_all(form: str, tmp_path: Path) -> None:
    X = COUNTS[:0] if form == "csr" else COUNTS[:0].toarray()
    cells(X).write_h5ad(tmp_path / "cells.h5ad")
    backed = ad.read_h5ad(tmp_path / "cells.h5ad", backed="r")
    for adata in (cells(X), backed):
        with pytest.raises(ValueError, match=r"0 sample\(s\)"):
            nmf(adata, mask_var="highly_variable")
    backed.file.close()


# ---- features that are not genes -----------------------------------------------------------------

TYPES = np.where(np.arange(40) < 30, "Gene Expression", "Antibody Capture")


def test_genes_are_fitted_and_the_rest_is_said_to_be_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    adata, genes = cells(), cells()[:, :30].copy()
    adata.var["feature_types"] = pd.Categorical(TYPES)
    nmf(adata)
    assert "adata: left out 10 features of type 'Antibody Capture'" in caplog.text
    nmf(genes)
    np.testing.assert_array_equal(adata.varm["nmf"][:30], genes.varm["nmf"])
    assert not adata.varm["nmf"][30:].any()
    np.testing.assert_array_equal(tl.fitted_model(adata).feature_names_in_, GENES[:30])
    caplog.clear()
    nmf(adata, mask_var=np.ones(40, dtype=bool))  # what the message proposes
    assert adata.varm["nmf"][30:].any()
    adata.var["feature_types"] = "Gene Expression"
    nmf(adata)
    assert not caplog.records


def test_a_column_that_mixes_types_is_named() -> None:
    adata = cells()
    adata.var["feature_types"], adata.var["chosen"] = TYPES, np.arange(40) % 2 == 0
    with pytest.warns(UserWarning, match=r"holds 5 features of type 'Antibody .*fitted together"):
        nmf(adata, mask_var="chosen")


# ---- other errors --------------------------------------------------------------------------------


def test_errors_say_what_is_wanted() -> None:
    adata = cells()
    with pytest.raises(TypeError, match=r"must be an AnnData, got csr_matrix.*use klnmf.KLNMF"):
        nmf(COUNTS)
    with pytest.raises(ValueError, match=r"no column 'variable'; its columns: 'highly_variable'"):
        nmf(adata, mask_var="variable")
    for mask in (VARIABLE[:39], VARIABLE.astype(int), GENES[:40]):
        with pytest.raises(ValueError, match="one boolean for each of the 40 genes"):
            nmf(adata, mask_var=mask)
    with pytest.raises(ValueError, match="leaves no gene"):
        nmf(adata, mask_var=np.zeros(40, dtype=bool))
    with pytest.raises(ValueError, match="warm_start"):
        nmf(adata, warm_start=True)
    with pytest.raises(TypeError, match="n_comps"):
        nmf(adata, n_comps=3)
    with pytest.raises(
        ValueError, match=r"adata.X is None. Pass layer=... Whole numbers .*'counts'"
    ):
        nmf(ad.AnnData(obs=adata.obs, var=adata.var, layers={"counts": COUNTS}))
    with pytest.raises(ValueError, match="holds no fit under 'nmf'"):
        tl.fitted_model(adata)
    assert not len(adata.obsm)
    adata.varm["nmf"], adata.uns["nmf"] = np.ones((40, 3)), {"params": {}}  # somebody else's
    with pytest.raises(ValueError, match=r"as klnmf.tl.nmf, klnmf.tl.consensus"):
        tl.fitted_model(adata)
