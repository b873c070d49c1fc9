"""klnmf.tl.nmf with weights, exposures, scaled genes, batches and adata.raw."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anndata as ad
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.metrics import adjusted_rand_score

from cell_batches import N_TYPES, mixing, two_batches
from klnmf import KLNMF, tl
from klnmf.objective import kl_divergence
from klnmf.simulate import simulate_counts

COUNTS = sp.csr_array(
    simulate_counts(60, 40, 3, counts_per_sample=150, sparsity=0.3, random_state=0).X
)
GENES = [f"gene {j}" for j in range(40)]
VARIABLE = np.arange(40) % 3 != 0
WEIGHT, EXPOSURE = np.linspace(0.5, 2.0, 60), np.linspace(3.0, 1.0, 60)


def cells() -> ad.AnnData:
    adata = ad.AnnData(sp.csr_matrix(COUNTS), var=pd.DataFrame(index=GENES))
    adata.obs_names = [f"cell {i}" for i in range(60)]
    adata.obs["weight"], adata.obs["hours"] = WEIGHT, EXPOSURE
    adata.var["trust"] = np.linspace(1.0, 2.0, 40)
    return adata


def nmf(adata: ad.AnnData, **parameters: Any) -> None:
    tl.nmf(adata, **{"n_components": 3, "random_state": 0, "n_threads": 1, **parameters})


# ---- weights and exposures -----------------------------------------------------------------------


@pytest.mark.parametrize("as_names", [True, False])
def test_weights_and_exposures_are_those_of_the_estimator(as_names: bool) -> None:
    adata = cells()
    trust = adata.var["trust"].to_numpy()
    given: dict[str, Any] = {
        "sample_weight": WEIGHT.tolist(),
        "exposure": EXPOSURE,
        "feature_weight": adata.var["trust"],
    }
    if as_names:
        given = {"sample_weight": "weight", "exposure": "hours", "feature_weight": "trust"}
    nmf(adata, mask_var=VARIABLE, **given)
    model = KLNMF(3, random_state=0, n_threads=1, feature_weight=trust[VARIABLE])
    W = model.fit_transform(COUNTS[:, VARIABLE], sample_weight=WEIGHT, exposure=EXPOSURE)
    np.testing.assert_array_equal(adata.obsm["X_nmf"], W)
    np.testing.assert_array_equal(adata.obs["nmf_sample_weight"], WEIGHT)
    np.testing.assert_array_equal(adata.var["nmf_feature_weight"], np.where(VARIABLE, trust, 0))
    assert ("weight" in adata.uns["nmf"]["params"].values()) == as_names
    again = tl.fitted_model(adata)
    assert again.constraint_names_ == model.constraint_names_
    np.testing.assert_array_equal(again.feature_weight_, model.feature_weight_)


def test_tests_and_refits_use_the_weights_of_the_fit(tmp_path: Path) -> None:
    adata = cells()
    nmf(adata, sample_weight="weight", exposure=EXPOSURE, mask_var=VARIABLE, scale_genes=True)
    adata.obs["weight"] = 1.0  # what was used is kept
    adata.write_h5ad(tmp_path / "cells.h5ad")
    again = ad.read_h5ad(tmp_path / "cells.h5ad")
    tl.differential(again)
    tl.bootstrap(again, n_runs=3, n_jobs=1, random_state=0)
    assert tl.result(again, "nmf_differential").q_value.shape == (3, VARIABLE.sum())
    again.obs["nmf_sample_weight"] = 1.0
    with pytest.raises(ValueError, match="is not the data that the model was fitted to"):
        tl.differential(again)


def test_a_new_fit_forgets_the_old_one() -> None:
    adata = cells()
    nmf(adata, sample_weight=WEIGHT, mask_var=VARIABLE)
    tl.differential(adata)
    nmf(adata)
    assert not [name for name in (*adata.obs, *adata.var, *adata.uns) if name.startswith("nmf_")]


# ---- genes scaled as cNMF does -------------------------------------------------------------------


def test_scaled_genes_are_weights_of_one_over_the_deviation() -> None:
    adata = cells()
    nmf(adata, scale_genes=True, tol=1e-6)
    dense = COUNTS.toarray().astype(float)
    deviations = dense.std(axis=0, ddof=1)
    constant = deviations == 0
    deviations[constant] = 1.0
    np.testing.assert_allclose(adata.var["nmf_feature_weight"], 1 / deviations, rtol=1e-6)
    # The objective is that of cNMF's matrix, with components divided by the deviations.
    W, H = adata.obsm["X_nmf"], adata.varm["nmf"] / deviations[:, None]
    scaled = kl_divergence(dense / deviations, W.astype(float), H.astype(float).T)
    assert adata.uns["nmf"]["divergence"] == pytest.approx(scaled, rel=1e-4)
    of_scaled = KLNMF(3, random_state=0, n_threads=1, tol=1e-6).fit(dense / deviations)
    assert adata.uns["nmf"]["divergence"] == pytest.approx(of_scaled.divergence_, rel=1e-3)
    # The programs themselves are in counts.
    np.testing.assert_allclose(adata.varm["nmf"].sum(axis=0), 1.0, rtol=1e-5)


def test_scale_multiplies_weights_and_constant_genes_keep_theirs() -> None:
    adata = cells()
    adata.X = sp.csr_matrix(np.where(np.arange(40) == 7, 2, COUNTS.toarray()))
    nmf(adata, scale_genes=True, feature_weight="trust")
    deviations = adata.X.toarray().std(axis=0, ddof=1)
    varies = deviations > 0
    weights, trust = (adata.var[name].to_numpy() for name in ("nmf_feature_weight", "trust"))
    np.testing.assert_allclose(weights[varies], trust[varies] / deviations[varies])
    assert not varies[7]
    np.testing.assert_array_equal(weights[~varies], trust[~varies])


# ---- batches -------------------------------------------------------------------------------------


# A profile is added to the programs: it is what ambient RNA does, and only a part of what happens
# if each gene is counted with another efficiency.
@pytest.mark.parametrize(("kind", "enough"), [("ambient", 0.8), ("efficiency", 0.25)])
def test_batches_mix_and_types_stay_apart(kind: str, enough: float) -> None:
    adata, types, batch = two_batches(kind)
    tl.nmf(adata, N_TYPES, n_threads=1, random_state=0)
    tl.nmf(adata, N_TYPES, batch_key="batch", key_added="corrected", n_threads=1, random_state=0)
    apart, mixed = (mixing(adata.obsm[f"X_{key}_shares"], batch) for key in ("nmf", "corrected"))
    assert apart < 0.05
    assert mixed > enough
    agreement = adjusted_rand_score(types, adata.obs["corrected"])
    assert agreement > 0.95
    assert agreement > adjusted_rand_score(types, adata.obs["nmf"]) + 0.1


@pytest.fixture(scope="module")
def corrected() -> ad.AnnData:
    adata = two_batches("ambient").cells
    tl.nmf(adata, N_TYPES, batch_key="batch", n_threads=1, random_state=0)
    return adata


def test_batches_have_profiles_and_no_part_of_the_shares(corrected: ad.AnnData) -> None:
    assert corrected.obsm["X_nmf"].shape[1] == corrected.varm["nmf"].shape[1] == N_TYPES
    np.testing.assert_allclose(corrected.obsm["X_nmf_shares"].sum(axis=1), 1.0, rtol=1e-6)
    assert list(corrected.obs["nmf"].cat.categories) == [str(k) for k in range(N_TYPES)]
    assert corrected.uns["nmf"]["params"]["n_components"] == N_TYPES
    assert list(corrected.uns["nmf"]["batches"]) == ["day 1", "day 2"]
    # A profile is in fractions of the counts of each cell.
    fractions = corrected.varm["nmf_batches"].sum(axis=0)
    assert fractions.shape == (2,)
    assert ((fractions > 0.2) & (fractions < 0.8)).all()
    totals = np.asarray(corrected.X.sum(axis=1)).ravel()
    of_batch = fractions[corrected.obs["batch"].cat.codes]
    np.testing.assert_allclose(
        corrected.obsm["X_nmf"].sum(axis=1), totals * (1 - of_batch), rtol=0.15
    )
    assert (np.diff(corrected.obsm["X_nmf"].sum(axis=0)) <= 0).all()  # the largest first


def test_new_cells_of_known_and_of_other_batches(corrected: ad.AnnData, tmp_path: Path) -> None:
    corrected.write_h5ad(tmp_path / "cells.h5ad")
    reference = ad.read_h5ad(tmp_path / "cells.h5ad")
    new = ad.AnnData(corrected.X, obs=corrected.obs[["batch"]], var=corrected.var[[]])
    tl.project(new, reference, batch_key="batch")
    np.testing.assert_allclose(
        new.obsm["X_nmf"], corrected.obsm["X_nmf"], atol=0.02 * corrected.obsm["X_nmf"].max()
    )
    tl.project(new, reference, key_added="unknown")
    new.obs["later"] = "day 3"
    tl.project(new, reference, batch_key="later", key_added="later")
    np.testing.assert_array_equal(new.obsm["X_later"], new.obsm["X_unknown"])
    # Half of the genes: the profiles keep their fraction of the cells.
    half = ad.AnnData(corrected.X[:, ::2], obs=corrected.obs[["batch"]], var=corrected.var[[]][::2])
    tl.project(half, reference, batch_key="batch")
    assert (half.obs["nmf"] == corrected.obs["nmf"]).mean() > 0.9
    with pytest.raises(ValueError, match=r"adata.obs has no column 'bach'"):
        tl.project(half, reference, batch_key="bach", key_added="x")


def test_tests_of_programs_beside_batches(corrected: ad.AnnData) -> None:
    adata = corrected.copy()
    tl.differential(adata)
    assert tl.result(adata, "nmf_differential").components.tolist() == list(range(N_TYPES))
    model = tl.fitted_model(adata)
    assert (model.n_components_, model.n_fixed_W_) == (N_TYPES + 2, 2)
    with pytest.raises(ValueError, match="knows no batches"):
        tl.project(cells(), KLNMF.from_components(np.ones((2, 40)), feature_names=GENES),
                   batch_key="weight")  # fmt: skip
    with pytest.raises(ValueError, match="was fitted with fixed_W"):
        tl.project(adata, model, key_added="new")


# ---- adata.raw -----------------------------------------------------------------------------------


def test_raw_is_read_for_the_genes_of_the_data() -> None:
    whole = cells()
    whole.raw = whole
    whole.X = whole.X.log1p()
    adata = whole[:, ::-2].copy()
    nmf(adata, layer="raw")
    expected = KLNMF(3, random_state=0, n_threads=1).fit_transform(COUNTS[:, ::-2])
    np.testing.assert_array_equal(adata.obsm["X_nmf"], expected)
    tl.differential(adata)  # finds the same counts again
    adata.layers["raw"] = COUNTS[:, ::-2] * 2  # a layer of that name comes first
    nmf(adata, layer="raw")
    assert adata.obsm["X_nmf"].sum() == pytest.approx(2 * expected.sum(), rel=1e-3)


def test_raw_with_other_genes_is_refused() -> None:
    adata = cells()
    adata.raw = adata[:, 1:].copy()
    with pytest.raises(ValueError, match="does not have 1 of the 40 genes, such as 'gene 0'"):
        nmf(adata, layer="raw")
    del adata.raw
    with pytest.raises(ValueError, match="no layer 'raw'"):
        nmf(adata, layer="raw")


# ---- errors --------------------------------------------------------------------------------------


def test_errors_say_what_is_wanted() -> None:
    adata = cells()
    adata.obs["donor"] = adata.obs_names
    adata.obs["lane"] = [None, *["a"] * 59]
    for given, message in (
        ({"sample_weight": "wait"}, r"sample_weight: adata.obs has no column 'wait'; its columns"),
        ({"sample_weight": WEIGHT[1:]}, r"one number for each of the 60 cells.* got shape \(59,\)"),
        ({"feature_weight": "weight"}, r"feature_weight: adata.var has no column 'weight'"),
        ({"feature_weight": np.ones((40, 1))}, r"for each of the 40 genes"),
        ({"exposure": "donor"}, "exposure must hold numbers"),
        ({"exposure": -EXPOSURE}, "exposure"),
        ({"sample_weight": adata.obs["weight"][::-1]}, r"with other labels.*obs_names"),
        ({"mask_var": (adata.var["trust"] > 1.5)[::-1]}, r"mask_var.*other labels.*var_names"),
        ({"batch_key": "donor"}, "60 values for 60 cells. A batch needs several cells"),
        ({"batch_key": "lane"}, r"adata.obs\['lane'\] has no value for 1 cells"),
        ({"zero_components": np.zeros((3, 40), bool)}, "Leave zero_components out"),
    ):
        with pytest.raises(ValueError, match=message):
            nmf(adata, **given)
    assert not len(adata.obsm)


def test_one_batch_is_no_batch() -> None:
    adata = two_batches("ambient", n_cells=60, n_genes=80).cells
    adata.obs["batch"] = "day 1"
    with pytest.warns(UserWarning, match=r"\['batch'\] has the one value 'day 1'.*Leave batch_key"):
        tl.nmf(adata, 2, batch_key="batch", max_iter=5, tol=1)
