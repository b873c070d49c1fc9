"""DataFrames in, DataFrames out: names, sparse columns, and the same numbers."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.exceptions import NotFittedError

from klnmf import KLNMF
from klnmf.frames import components_frame
from klnmf.simulate import simulate_counts

WORDS = [f"word {j}" for j in range(40)]
TEXTS = [f"text {i}" for i in range(60)]
COUNTS = simulate_counts(60, 40, 3, counts_per_sample=150, sparsity=0.3, random_state=0).X


def dense_frame(dtype: Any = np.int64) -> pd.DataFrame:
    return pd.DataFrame(COUNTS.toarray().astype(dtype), columns=WORDS, index=TEXTS)


def sparse_frame() -> pd.DataFrame:
    return pd.DataFrame.sparse.from_spmatrix(COUNTS, columns=WORDS, index=TEXTS)


def model(**parameters: Any) -> KLNMF:
    return KLNMF(**{"n_components": 3, "random_state": 0, "n_threads": 1, **parameters})


FRAMES = {
    "dense": dense_frame,
    "sparse": sparse_frame,
    "float32": lambda: dense_frame(np.float32),
    "nullable": lambda: dense_frame().astype("Int64"),
}


@pytest.mark.parametrize("kind", FRAMES)
def test_frames_give_the_bits_of_the_matrix(kind: str) -> None:
    X = FRAMES[kind]()
    # pandas' nullable integers come out as float64.
    expected = model().fit(COUNTS.astype(np.float64) if kind == "nullable" else COUNTS)
    estimator = model().set_output(transform="pandas")
    W = estimator.fit_transform(X)
    assert list(W.columns) == ["klnmf0", "klnmf1", "klnmf2"]
    pd.testing.assert_index_equal(W.index, X.index)
    np.testing.assert_array_equal(estimator.components_, expected.components_)
    again = estimator.transform(X)
    pd.testing.assert_index_equal(again.index, X.index)
    np.testing.assert_array_equal(
        again.to_numpy(), expected.transform(COUNTS.astype(W.to_numpy().dtype))
    )
    np.testing.assert_array_equal(estimator.feature_names_in_, WORDS)


def test_arrays_by_default_as_scikit_learn_does() -> None:
    assert isinstance(model().fit_transform(dense_frame()), np.ndarray)
    assert isinstance(model().fit(dense_frame()).transform(sparse_frame()), np.ndarray)


def test_sparse_frame_is_never_made_dense(monkeypatch: pytest.MonkeyPatch) -> None:
    X = sparse_frame()

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a dense copy was made")

    monkeypatch.setattr(pd.DataFrame, "__array__", refuse)
    monkeypatch.setattr(pd.DataFrame, "to_numpy", refuse)
    assert model().fit_transform(X).shape == (60, 3)


def test_sparse_output_and_pandas_output_exclude_each_other() -> None:
    estimator = model(sparse_output=True).set_output(transform="pandas")
    with pytest.raises(ValueError, match="scipy sparse matrix"):
        estimator.fit_transform(dense_frame())


def test_components_have_the_names_of_fit() -> None:
    estimator = model().fit(sparse_frame())
    frame = components_frame(estimator)
    assert list(frame.columns) == WORDS
    assert list(frame.index) == list(estimator.get_feature_names_out())
    np.testing.assert_array_equal(frame.to_numpy(), estimator.components_)
    frame.iloc[0, 0] = 99.0  # a copy: the model keeps its own
    assert estimator.components_[0, 0] != 99.0


def test_components_of_a_model_without_names() -> None:
    estimator = model().fit(COUNTS)
    assert list(components_frame(estimator).columns[:2]) == ["feature 0", "feature 1"]
    assert list(components_frame(estimator, WORDS).columns) == WORDS
    with pytest.raises(ValueError, match="39 names for 40 features"):
        components_frame(estimator, WORDS[:39])
    with pytest.raises(NotFittedError):
        components_frame(model())


def test_sparse_components_become_sparse_columns() -> None:
    frame = components_frame(model(sparse_output=True).fit(dense_frame()))
    assert all(isinstance(dtype, pd.SparseDtype) for dtype in frame.dtypes)
    expected = components_frame(model().fit(dense_frame()))
    np.testing.assert_array_equal(frame.to_numpy(), expected.to_numpy())
    assert sp.issparse(frame.sparse.to_coo())


def test_optional_packages_are_imported_late_and_named_when_missing() -> None:
    program = """
import sys
for name in ("pandas", "anndata", "h5py"):
    sys.modules[name] = None
import klnmf, klnmf.frames, klnmf.named_features
model = klnmf.KLNMF(1).fit([[1, 2], [2, 4]])
for call, extra in (
    (lambda: klnmf.frames.components_frame(model), "dataframes"),
    (lambda: klnmf.tl.nmf(None), "anndata"),
    (lambda: klnmf.tl.project(None, model), "anndata"),
):
    try:
        call()
    except ImportError as error:
        assert f'pip install "klnmf[{extra}]"' in str(error), error
    else:
        raise AssertionError("no ImportError")
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_import_of_the_package_leaves_optional_packages_alone() -> None:
    program = """
import sys
import klnmf
from klnmf import tl
import klnmf.frames, klnmf.named_features
# scikit-learn itself imports pandas where there is one.
found = {"anndata", "h5py", "matplotlib"} & set(sys.modules)
assert not found, found
assert klnmf.tl is tl
try:
    klnmf.no_such_module
except AttributeError as error:
    assert "no_such_module" in str(error)
else:
    raise AssertionError("no AttributeError")
"""
    subprocess.run([sys.executable, "-c", program], check=True)
