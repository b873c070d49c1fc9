"""What is known, with matrices on disk, checkpoints, fits that go on, and saved models."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import klnmf
from constraint_cases import X, everything_known, fit, of_samples
from klnmf import KLNMF
from klnmf.constraints.checks import check_constraints
from klnmf.constraints.constraints import ComponentConstraints
from klnmf.data.sparse_data import InMemoryData
from klnmf.data.validation import check_counts
from klnmf.named_features import transform_by_name
from klnmf.saved import SavedFileError
from klnmf.saved.container import read_container, write_container
from klnmf.simulate import simulate_counts
from strategies import same_bits

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

# More rows than a block of sums has.
LARGER = simulate_counts(4500, 60, 3, counts_per_sample=15, random_state=1).X.astype(np.float64)
PENALTIES = {"l1_W": 0.1, "l2_W": 0.02, "l1_H": 0.3, "l2_H": 0.01}
KNOWN = everything_known(LARGER)
SETS = {
    "all": KNOWN,
    "no cells": {
        name: KNOWN[name] for name in ("exposure", "fixed_W", "zero_W", "zero_components")
    },
    "weights": {name: KNOWN[name] for name in ("sample_weight", "feature_weight")},
    "missing": {"missing": KNOWN["missing"]},
}


@pytest.fixture(scope="module")
def matrix(tmp_path_factory: pytest.TempPathFactory) -> klnmf.OnDiskMatrix:
    folder = tmp_path_factory.mktemp("matrix") / "larger"
    klnmf.prepare(LARGER, folder)
    return klnmf.open_matrix(folder, memory=50_000)  # in many pieces


# ---- on disk ------------------------------------------------------------------------------------


@pytest.mark.parametrize("weights", [{}, PENALTIES], ids=["plain", "penalised"])
@pytest.mark.parametrize("known", SETS.values(), ids=SETS)
def test_a_matrix_on_disk_has_the_bits_of_one_in_memory(
    known: dict[str, Any], weights: dict[str, float], matrix: klnmf.OnDiskMatrix
) -> None:
    (W, model), (W_on_disk, on_disk) = (
        fit(data, max_iter=3, **weights, **known) for data in (LARGER, matrix)
    )
    assert same_bits(W, W_on_disk)
    assert same_bits(model.components_, on_disk.components_)
    assert model.divergence_ == on_disk.divergence_
    assert model.kkt_residual_ == on_disk.kkt_residual_
    assert model.optimality_gap_ == on_disk.optimality_gap_
    transformed = model.transform(matrix, **of_samples(known))
    assert same_bits(transformed, model.transform(LARGER, **of_samples(known)))
    if "fixed_W" not in known:
        missing = known.get("missing")
        assert model.score(matrix, missing=missing) == model.score(LARGER, missing=missing)


def test_what_is_seen_of_a_matrix_on_disk(matrix: klnmf.OnDiskMatrix) -> None:
    cells = {name: KNOWN[name] for name in ("sample_weight", "feature_weight", "missing")}
    in_memory = InMemoryData(check_counts(LARGER))
    constraints = check_constraints(cells, LARGER.shape, 3, LARGER.dtype)
    assert constraints is not None
    one, other = (data.constrained(constraints) for data in (in_memory, matrix.data))
    rows = np.array([7, 3, 4000, 4001, 0])
    for mode in (0, 1):
        np.testing.assert_array_equal(one.view(mode).indptr, other.view(mode).indptr)
        np.testing.assert_array_equal(one.view(mode).row_sums, other.view(mode).row_sums)
        for here, there in zip(
            one.view(mode).take_rows(rows % 60), other.view(mode).take_rows(rows % 60), strict=True
        ):
            np.testing.assert_array_equal(here, there)
    assert one.total == other.total
    assert one.divergence_constant == other.divergence_constant
    assert one.is_exact_in_float32 == other.is_exact_in_float32
    # What is missing or weighs nothing is gone, wherever it was.
    kept = one.view(0).as_csr()
    assert not (kept * KNOWN["missing"]).nnz
    assert not kept[KNOWN["sample_weight"] == 0].nnz
    assert not kept[:, KNOWN["feature_weight"] == 0].nnz
    expected = KNOWN["sample_weight"][:, None] * LARGER.toarray() * KNOWN["feature_weight"]
    expected[KNOWN["missing"].toarray()] = 0
    np.testing.assert_allclose(kept.toarray(), expected, rtol=1e-15)


def test_a_start_that_needs_all_of_a_matrix_on_disk_says_so(matrix: klnmf.OnDiskMatrix) -> None:
    with pytest.raises(ValueError, match="init='nndsvd' needs all of X"):
        fit(matrix, init="nndsvd", missing=KNOWN["missing"])


@pytest.mark.parametrize(
    ("solver", "backend"), [("ccd", "cpu"), ("ccd", "reference"), ("srcd", "reference")]
)
def test_what_goes_over_whole_rows_of_a_weighted_matrix_on_disk(
    solver: str, backend: str, tmp_path: Path
) -> None:
    counts = LARGER[:40]
    klnmf.prepare(counts, tmp_path / "counts")
    matrix = klnmf.open_matrix(tmp_path / "counts", memory=1000)  # several pieces
    settings = {"solver": solver, "backend": backend, "max_iter": 2, "random_state": 0}
    on_disk, in_memory = (
        KLNMF(3, **settings).fit(data, sample_weight=np.arange(1, 41)) for data in (matrix, counts)
    )
    assert same_bits(on_disk.components_, in_memory.components_)


# ---- fits that go on ----------------------------------------------------------------------------


def test_a_checkpoint_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    known = everything_known()
    W, model = fit(max_iter=12, tol=0, **known)
    path = tmp_path / "fit.checkpoint"
    fit(max_iter=5, tol=0, checkpoint=path, **known)
    resumed_W, resumed = fit(max_iter=12, tol=0, checkpoint=path, resume=True, **known)
    assert same_bits(W, resumed_W)
    assert same_bits(model.components_, resumed.components_)


@pytest.mark.parametrize(
    "name", ["sample_weight", "missing", "zero_W", "fixed_components", "fixed_W"]
)
def test_a_checkpoint_is_not_for_a_fit_that_knows_something_else(name: str, tmp_path: Path) -> None:
    known, path = everything_known(), tmp_path / "fit.checkpoint"
    fit(max_iter=2, checkpoint=path, **known)
    other = known[name].copy()
    if sp.issparse(other):
        other = other.tolil()
        other[0, 1] = not other[0, 1]
    else:
        other[0] += 1.0
    with pytest.raises(SavedFileError, match="checksum of what is known"):
        fit(
            max_iter=4,
            checkpoint=path,
            **{**known, name: sp.csr_array(other) if sp.issparse(other) else other},
        )
    with pytest.raises(SavedFileError, match="belongs to another fit"):
        fit(max_iter=4, checkpoint=path)


def test_warm_starts_go_on_if_the_same_is_known() -> None:
    known = everything_known()
    settings = {"random_state": 0, "tol": 0, "dtype": np.float64}
    settings |= {name: known.pop(name) for name in ComponentConstraints.__annotations__}
    whole = KLNMF(4, max_iter=8, **settings).fit(X, **known)
    model = KLNMF(4, max_iter=4, warm_start=True, **settings)
    model.fit(X, **known).fit(X, **known)
    assert same_bits(model.components_, whole.components_)
    assert model.history_[-1]["iteration"] == 8
    model.fit(X, **{**known, "exposure": 2 * known["exposure"]})  # another problem, a new history
    assert model.history_[-1]["iteration"] == 4


# ---- saved models -------------------------------------------------------------------------------


@pytest.mark.parametrize("sparse_output", [False, True])
def test_a_saved_model_knows_what_it_was_fitted_with(sparse_output: bool, tmp_path: Path) -> None:
    known, path = everything_known(), tmp_path / "model.klnmf"
    model = fit(sparse_output=sparse_output, max_iter=3, **known)[1]
    model.save(path)
    loaded = KLNMF.load(path)
    assert loaded.n_fixed_W_ == 1
    assert loaded.constraint_names_ == model.constraint_names_
    assert {"missing", "fixed_W", "fixed_components"} <= set(loaded.constraint_names_)
    assert same_bits(loaded.feature_weight_, known["feature_weight"])
    assert same_bits(loaded.fixed_components, known["fixed_components"])
    new = of_samples(known)
    one, other = (each.transform(X, **new) for each in (model, loaded))
    assert same_bits(*(W.toarray() if sparse_output else W for W in (one, other)))
    with pytest.raises(ValueError, match="fixed_W had 1 columns in fit"):
        loaded.transform(X)
    assert (loaded.zero_components != known["zero_components"]).nnz == 0
    for name in ComponentConstraints.__annotations__:
        del known[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        again, first = (each.fit(X, **known).components_ for each in (loaded, model))
    assert same_bits(*(H.toarray() if sparse_output else H for H in (again, first)))


@pytest.mark.parametrize("make", [list, sp.csr_array, lambda rows: np.array(rows[0])])
def test_components_in_any_form_can_be_saved(make: Any, tmp_path: Path) -> None:
    rows = everything_known()["fixed_components"].tolist()
    model = fit(fixed_components=make(rows), max_iter=1)[1]
    model.save(tmp_path / "model.klnmf")
    assert KLNMF.load(tmp_path / "model.klnmf").fixed_components.tolist() == rows


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            lambda c: c.content["parameters"]["fixed_components"].update(first_components=9),
            "9 of 4",
        ),
        (lambda c: c.content["fitted"].update(known_names_=[3]), "must be strings, got"),
        (
            lambda c: c.content["fitted"].update(n_fixed_W_=5),
            "n_fixed_W must be from 0 to 4, got 5",
        ),
        (lambda c: c.content["fitted"].update(n_fixed_W_=-1), "must be from 0 to"),
        (lambda c: c.content.update(zero_components=3), "must be an object"),
        (
            lambda c: c.arrays.update({"zero_components.indices": np.full(3, 99, np.int32)}),
            "not a valid CSR matrix",
        ),
        (lambda c: c.arrays.update(feature_weight=np.ones(3)), r"shape \(20,\); got \(3,\)"),
        (lambda c: c.arrays.update(feature_weight=np.full(20, -1.0)), "finite and nonnegative"),
    ],
)
def test_damaged_files_give_an_error(damage: Any, message: str, tmp_path: Path) -> None:
    path = tmp_path / "model.klnmf"
    fit(max_iter=1, **everything_known())[1].save(path)
    container = read_container(path, "model")
    damage(container)
    write_container(path, container)
    with pytest.raises(SavedFileError, match=message):
        KLNMF.load(path)


def test_new_data_by_names_use_the_weights_of_their_features() -> None:
    weights = np.linspace(0.5, 2, X.shape[1])
    model = fit(feature_weight=weights)[1]
    names = [f"f{j}" for j in range(X.shape[1])]
    chosen = np.arange(5, 15)
    found = transform_by_name(
        model, X[:, chosen], [names[j] for j in chosen], model_feature_names=names
    )[0]
    missing = np.ones(X.shape, dtype=bool)
    missing[:, chosen] = False
    np.testing.assert_allclose(found, model.transform(X, missing=missing), rtol=1e-3, atol=1e-4)
