"""A fitted model knows the counts it was fitted to: uncertainty is not told of other ones."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from klnmf import KLNMF, MiniBatchKLNMF, load_model
from klnmf.data.sparse_data import InMemoryData, counts_checksum
from klnmf.readers import prepare
from klnmf.simulate import simulate_counts
from klnmf.uncertainty import bootstrap, differential_features

COUNTS = sp.csr_array(simulate_counts(50, 30, 3, counts_per_sample=200, random_state=0).X)
OTHERS = sp.csr_array(simulate_counts(50, 30, 3, counts_per_sample=200, random_state=1).X)
QUICK: dict[str, Any] = {"n_threads": 1, "random_state": 0, "tol": 0.01}


def asked_bootstrap(model: KLNMF, X: Any) -> None:
    bootstrap(model, X, n_runs=2, n_jobs=1, random_state=0)


BOTH = pytest.mark.parametrize("ask", [asked_bootstrap, differential_features])


@pytest.fixture(scope="module", name="model")
def fitted() -> KLNMF:
    return KLNMF(3, **QUICK).fit(COUNTS)


@BOTH
@pytest.mark.parametrize(
    "form",
    [
        sp.csr_matrix,
        sp.csc_array,
        sp.coo_array,
        sp.csr_array.toarray,
        lambda X: X.toarray(order="F"),
        lambda X: X.astype(np.int64),
        lambda X: X.astype(np.float64),
        lambda X: X[::-1],
        lambda X: sp.vstack([X, sp.csr_array((1, 30))]),
    ],
    ids=["matrix", "csc", "coo", "dense", "fortran", "int64", "float64", "order", "empty sample"],
)
def test_the_same_counts_in_any_form_are_taken(
    model: KLNMF, ask: Callable[[KLNMF, Any], Any], form: Any
) -> None:
    ask(model, form(COUNTS))


@BOTH
@pytest.mark.parametrize(
    "other",
    [OTHERS, COUNTS[:40], COUNTS[:, ::-1], 2 * COUNTS, sp.vstack([COUNTS, COUNTS[:1]])],
    ids=["others", "subset", "features in another order", "doubled", "one more"],
)
def test_other_counts_are_refused(
    model: KLNMF, ask: Callable[[KLNMF, Any], Any], other: Any
) -> None:
    with pytest.raises(ValueError, match="is not the data that the model was fitted to") as caught:
        ask(model, other)
    message = str(caught.value)
    assert f"({other.shape[0]} samples × 30 features, {other.sum():,} counts)" in message
    assert "X of the fit" in message


def test_components_are_compared_in_other_samples_whose_w_is_given(model: KLNMF) -> None:
    found = differential_features(model, OTHERS, W=model.transform(OTHERS))
    assert np.isfinite(found.share[:, OTHERS.sum(axis=0) > 0]).all()


def test_a_file_keeps_what_the_model_was_fitted_to(model: KLNMF, tmp_path: Path) -> None:
    model.save(tmp_path / "model.klnmf")
    loaded = KLNMF.load(tmp_path / "model.klnmf")
    assert loaded.data_checksum_ == model.data_checksum_
    differential_features(loaded, COUNTS)
    with pytest.raises(ValueError, match="is not the data"):
        differential_features(loaded, OTHERS)


def test_a_file_of_an_older_version_takes_any_counts(model: KLNMF, tmp_path: Path) -> None:
    older = copy.copy(model)
    older.data_checksum_ = None
    older.save(tmp_path / "model.klnmf")
    loaded = load_model(tmp_path / "model.klnmf").model
    assert loaded.data_checksum_ is None
    asked_bootstrap(loaded, OTHERS)
    differential_features(loaded, OTHERS)


def test_fits_from_disk_and_of_known_things_know_their_counts(tmp_path: Path) -> None:
    matrix = prepare(COUNTS, tmp_path / "X")
    exposure = {"exposure": np.linspace(1, 2, 50)}
    for X, known in ((matrix, {}), (matrix, exposure), (COUNTS, exposure)):
        model = KLNMF(3, **QUICK).fit(X, **known)
        assert model.data_checksum_ == counts_checksum(COUNTS) == InMemoryData(COUNTS).sums_checksum


def test_a_stream_is_known_to_nobody() -> None:
    model = MiniBatchKLNMF(3, random_state=0, n_threads=1).fit(COUNTS)
    differential_features(model, COUNTS[::-1])
    with pytest.raises(ValueError, match=r"W=model.transform\(X\)"):
        differential_features(model, OTHERS)
    model.partial_fit(OTHERS)
    assert model.data_checksum_ is None
    differential_features(model, OTHERS)
