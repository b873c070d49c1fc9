"""klnmf.tl.project: known programs in the cells of another AnnData, genes matched by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anndata as ad
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from klnmf import KLNMF, tl
from klnmf.named_features import transform_by_name
from klnmf.simulate import simulate_counts

COUNTS = simulate_counts(60, 40, 3, counts_per_sample=150, sparsity=0.3, random_state=0).X
NEW = simulate_counts(25, 40, 3, counts_per_sample=150, random_state=1).X
GENES = [f"gene {j}" for j in range(40)]
VARIABLE = np.arange(40) % 3 != 0


def cells(X: Any = COUNTS, genes: list[str] = GENES) -> ad.AnnData:
    names = [f"cell {i}" for i in range(X.shape[0])]
    return ad.AnnData(X.copy(), obs=pd.DataFrame(index=names), var=pd.DataFrame(index=genes))


def nmf(adata: ad.AnnData, **parameters: Any) -> ad.AnnData | None:
    return tl.nmf(adata, **{"n_components": 3, "random_state": 0, "n_threads": 1, **parameters})


def plain(**parameters: Any) -> KLNMF:
    return KLNMF(**{"n_components": 3, "random_state": 0, "n_threads": 1, **parameters})


@pytest.fixture(scope="module")
def model() -> KLNMF:
    return plain().fit(COUNTS)


@pytest.fixture(scope="module")
def reference() -> ad.AnnData:
    adata = cells()
    nmf(adata)
    nmf(adata, mask_var=VARIABLE, key_added="variable")
    return adata


def test_projection_matches_genes_by_name(
    reference: ad.AnnData, model: KLNMF, tmp_path: Path
) -> None:
    order = np.random.default_rng(0).permutation(40)
    new = cells(NEW[:, order], [GENES[j] for j in order])
    assert tl.project(new, reference) is None
    np.testing.assert_array_equal(new.obsm["X_nmf"], model.transform(NEW))
    np.testing.assert_allclose(new.obsm["X_nmf_shares"].sum(axis=1), 1.0, rtol=1e-6)
    assert new.uns["nmf"]["overlap"] == {"model": 40, "found": 40, "missing": 0, "ignored": 0}
    new.write_h5ad(tmp_path / "new.h5ad")
    assert ad.read_h5ad(tmp_path / "new.h5ad").uns["nmf"]["overlap"]["found"] == 40


@pytest.mark.parametrize("backed", [None, "r"])
@pytest.mark.parametrize("form", ["csr", "csc", "dense"])
def test_projection_of_other_genes(
    reference: ad.AnnData, model: KLNMF, form: str, backed: str | None,
    tmp_path: Path, caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    kept = np.arange(39, 9, -1)
    names = [GENES[j] for j in kept] + ["unknown 1", "unknown 2"]
    X = sp.hstack([NEW[:, kept], NEW[:, :2]]).asformat("csr" if form == "dense" else form)
    cells(X.toarray() if form == "dense" else X, names).write_h5ad(tmp_path / "new.h5ad")
    new = ad.read_h5ad(tmp_path / "new.h5ad", backed=backed)
    tl.project(new, reference, key_added="W")
    by_hand = transform_by_name(model, NEW[:, 10:], GENES[10:], model_feature_names=GENES)
    np.testing.assert_array_equal(new.obsm["X_W"], by_hand[0])
    assert new.uns["W"]["overlap"] == {"model": 40, "found": 30, "missing": 10, "ignored": 2}
    assert "30 of 40 features of the model found (75.0 %), 10 missing, 2 others" in caplog.text
    if backed:
        new.file.close()


def test_projection_on_a_masked_fit_uses_the_masked_genes(reference: ad.AnnData) -> None:
    new = cells(NEW)
    tl.project(new, reference, reference_key="variable")
    model = plain().fit(COUNTS[:, VARIABLE])
    np.testing.assert_array_equal(new.obsm["X_nmf"], model.transform(NEW[:, VARIABLE]))
    assert new.uns["nmf"]["overlap"]["model"] == VARIABLE.sum()


def test_projection_with_a_model(model: KLNMF) -> None:
    frame = pd.DataFrame(COUNTS.toarray(), columns=GENES)
    named = plain().set_output(transform="pandas").fit(frame)
    new = cells(NEW)
    tl.project(new, named)
    assert isinstance(new.obsm["X_nmf"], np.ndarray)
    np.testing.assert_array_equal(new.obsm["X_nmf"], model.transform(NEW))
    with pytest.raises(ValueError, match="has no feature names"):
        tl.project(new, model)
    with pytest.raises(ValueError, match="no feature in common"):
        tl.project(cells(NEW, [f"other {j}" for j in range(40)]), named)


def test_projection_does_not_replace_a_fit_and_is_not_one(reference: ad.AnnData) -> None:
    adata = cells()
    nmf(adata, tol=10.0)
    with pytest.raises(ValueError, match=r"already has programs in adata.varm\['nmf'\]"):
        tl.project(adata, reference)
    new = cells(NEW)
    tl.project(new, reference)
    with pytest.raises(ValueError, match="holds no fit under 'nmf'"):
        tl.project(cells(NEW), new)
    with pytest.raises(TypeError, match="reference must be an AnnData, got ndarray"):
        tl.project(new, np.ones((3, 40)))


def test_projection_checks_for_counts_too(reference: ad.AnnData) -> None:
    new = cells(NEW.log1p())
    new.layers["counts"] = NEW
    with pytest.warns(UserWarning, match="layer='counts'"):
        tl.project(new, reference)
    tl.project(new, reference, layer="counts")
    assert new.uns["nmf"]["params"]["layer"] == "counts"


@pytest.mark.filterwarnings("ignore:Variable names are not unique")  # anndata's
def test_genes_whose_names_occur_more_than_once(caplog: pytest.LogCaptureFixture) -> None:
    genes = [*GENES[:38], GENES[0], GENES[3]]
    adata = cells(genes=genes)
    expected = plain().fit(COUNTS).transform(COUNTS)
    nmf(adata)
    names = tl.fitted_model(adata).feature_names_in_.tolist()
    assert names == [*GENES[:38], "gene 0-1", "gene 3-1"]
    order = np.random.default_rng(0).permutation(38)  # the repeated ones stay in their order
    order = np.concatenate([order, [38, 39]])
    same = cells(COUNTS[:, order], [genes[j] for j in order])
    tl.project(same, adata)
    np.testing.assert_array_equal(same.obsm["X_nmf"], expected)
    assert "adata.var_names: 2 repeated feature names were made unique" in caplog.text
    assert adata.var_names.tolist() == genes


@pytest.mark.filterwarnings("ignore:The components")  # of which so few genes know nothing
def test_few_common_genes_are_refused(reference: ad.AnnData) -> None:
    new = cells(NEW, [*GENES[:3], *(f"ENSG{j}" for j in range(37))])
    message = r"Only 3 of 40 features .*7.5 %.* such as 'gene 3', .* data 'ENSG0', .*min_overlap=0"
    with pytest.raises(ValueError, match=message):
        tl.project(new, reference)
    tl.project(new, reference, min_overlap=0.05)
    assert new.uns["nmf"]["overlap"]["found"] == 3
