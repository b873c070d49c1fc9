"""Data that look like transformed counts warn; counts, expected counts and images do not."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_digits
from sklearn.feature_extraction.text import TfidfTransformer, TfidfVectorizer

from commands import outcome
from klnmf import KLNMF, MiniBatchKLNMF, NotCountsWarning
from klnmf.data.not_counts import transformation_of
from klnmf.data.sparse_data import view_of
from klnmf.datasets import load_bible
from klnmf.model_selection import consensus, select_rank
from klnmf.readers import prepare
from klnmf.uncertainty import bootstrap

GENERATOR = np.random.default_rng(0)
WORDS = load_bible().data.astype(np.float64)
# Cells of very different depth, some genes much more frequent than others.
CELLS = sp.csr_array(
    GENERATOR.poisson(
        GENERATOR.lognormal(0, 0.5, (150, 1)) * GENERATOR.lognormal(-2, 1.5, 600)
    ).astype(np.float64)
)
SOME_GENES = np.arange(0, 600, 4)
TEXTS = [
    " ".join(GENERATOR.choice(["sea", "ship", "sail", "bread", "oven", "king", "crown"], size))
    for size in range(3, 15)
]


def normalised(X: Any, total: float = 1e4) -> sp.csr_array:
    """As scanpy's normalize_total does it."""
    return sp.csr_array(sp.csr_array(X).multiply(total / X.sum(axis=1)[:, np.newaxis]))


def log(X: Any, base: float = np.e) -> sp.csr_array:
    return sp.csr_array(sp.csr_array(X).log1p() / np.log(base))


def partly_fractional(share: float, step: float | None = None) -> sp.csr_array:
    """Expected counts: this share of them lost or won a part of a read to a similar gene."""
    X = CELLS.copy()
    parts = GENERATOR.uniform(-1, 1, X.nnz)
    if step is not None:  # reads shared evenly
        parts = step * GENERATOR.integers(0, 3, X.nnz)
    X.data += np.where(GENERATOR.random(X.nnz) < share, parts, 0)
    X.data = np.maximum(X.data, 0.01)
    return X


TRANSFORMED: dict[str, tuple[Any, str]] = {
    "tf-idf of texts": (TfidfVectorizer().fit_transform(TEXTS), "length 1, as in tf-idf"),
    "tf-idf": (TfidfTransformer().fit_transform(WORDS), "length 1, as in tf-idf"),
    "tf-idf in float32": (
        TfidfTransformer().fit_transform(WORDS.astype(np.float32)),
        "length 1, as in tf-idf",
    ),
    "tf-idf that sums to 1": (TfidfTransformer(norm="l1").fit_transform(WORDS), "sums to 1, as"),
    "CPM": (normalised(CELLS, 1e6), r"sums to 1e\+06, as in CPM"),
    "CPM in float32": (normalised(CELLS, 1e6).astype(np.float32), r"sums to 1e\+06, as in CPM"),
    "CPM, dense": (normalised(CELLS, 1e6).toarray(), r"sums to 1e\+06, as in CPM"),
    "proportions": (normalised(CELLS, 1.0), "sums to 1, as in CPM"),
    "some genes of CPM": (normalised(CELLS, 1e6)[:, SOME_GENES], "a factor that differs"),
    "log": (log(normalised(CELLS)), r"values are log\(1 \+ x\)"),
    "log in float32": (log(normalised(CELLS)).astype(np.float32), r"values are log\(1 \+ x\)"),
    "some genes of log": (log(normalised(CELLS))[:, SOME_GENES], r"values are log\(1 \+ x\)"),
    "log of counts": (log(CELLS), r"values are log\(1 \+ x\)"),
    "rounded log": (np.round(log(normalised(CELLS)).toarray(), 3), r"values are log\(1 \+ x\)"),
    "log2 of CPM": (log(normalised(CELLS, 1e6), 2), r"values are log2\(1 \+ x\)"),
    "log10": (log(normalised(CELLS), 10), r"values are log10\(1 \+ x\)"),
}
FINE: dict[str, Any] = {
    "counts": CELLS,
    "whole numbers in float32": CELLS.astype(np.float32),
    "integers": CELLS.astype(np.int32),
    "expected counts": partly_fractional(0.5),
    "expected counts, hardly any whole": partly_fractional(0.9),
    "reads shared evenly": partly_fractional(0.4, 1 / 3),
    "counts times 0.37": 0.37 * CELLS,
    "counts times 1e-9": 1e-9 * CELLS,
    "scaled genes": sp.csr_array(CELLS / (0.1 + CELLS.toarray().std(axis=0))),
    "images": load_digits().data,
    "images in [0, 1]": load_digits().data / 16,
    "8-bit images in [0, 1]": np.floor(256 * GENERATOR.beta(0.3, 0.3, (60, 784))) / 255,
    "uniform": GENERATOR.random((60, 40)),
    "intensities": GENERATOR.lognormal(3, 1, (60, 400)),
    "amounts": np.round(GENERATOR.lognormal(3, 1, (60, 400)), 2),
    "two proportions": np.array([[0.25, 0.75], [0.5, 0.5]]),
    "nothing": np.zeros((5, 4)),
}
QUICK: dict[str, Any] = {"random_state": 0, "n_threads": 1, "tol": 1.0}


@pytest.mark.parametrize("name", TRANSFORMED)
def test_transformed_counts_warn(name: str) -> None:
    X, expected = TRANSFORMED[name]
    with pytest.warns(NotCountsWarning, match=f"^X looks .*{expected}") as caught:
        KLNMF(2, **QUICK).fit(X)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert "Fit the raw counts if you have them" in str(caught[0].message)


@pytest.mark.parametrize("name", FINE)
def test_other_data_do_not_warn(name: str) -> None:
    KLNMF(2, **QUICK).fit(FINE[name])  # warnings are errors here


@pytest.mark.parametrize(
    "name", [name for name in FINE if name not in ("nothing", "two proportions")]
)
def test_what_is_fine_is_not_when_transformed(name: str) -> None:
    """The other side: it is the transformation that is recognised, not the data."""
    X = sp.csr_array(FINE[name]).astype(np.float64)
    X = X[X.sum(axis=1) > 0]
    for transformed in (normalised(X), log(normalised(X))):
        assert transformation_of(view_of(transformed)) is not None


def test_few_rows_are_looked_at() -> None:
    looked_at: list[int] = []

    class Watched:
        def __init__(self, X: sp.csr_array) -> None:
            self.view = view_of(X)
            self.n_rows, self.indptr = self.view.n_rows, self.view.indptr

        def take_rows(self, rows: Any) -> Any:
            looked_at.extend(rows)
            return self.view.take_rows(rows)

    long = sp.csr_array(normalised(np.ones((3000, 1500))))
    assert transformation_of(Watched(long)) is not None  # type: ignore[arg-type]
    assert 3 <= len(looked_at) <= 88
    assert max(looked_at) > 2000  # not the first ones alone


@pytest.mark.parametrize("n_rows", [0, 1, 2, 3, 200])
def test_any_number_of_rows(n_rows: int) -> None:
    found = transformation_of(view_of(sp.csr_array(normalised(np.ones((n_rows, 30)), 10))))
    assert (found is None) == (n_rows < 3)


def test_estimators_of_streams_warn_once() -> None:
    X = normalised(CELLS)
    model = MiniBatchKLNMF(2, random_state=0, n_threads=1)
    with pytest.warns(NotCountsWarning, match="sums to 1e"):
        model.fit(X)
    model.partial_fit(X)
    new = MiniBatchKLNMF(2, random_state=0, n_threads=1)
    with pytest.warns(NotCountsWarning, match="sums to 1e"):
        new.partial_fit(X)
    new.partial_fit(X)  # the first batch was looked at


def test_a_matrix_on_disk_warns(tmp_path: Path) -> None:
    matrix = prepare(log(normalised(CELLS)), tmp_path / "X")
    with pytest.warns(NotCountsWarning, match="looks log-transformed"):
        KLNMF(2, **QUICK).fit(matrix)


def test_a_dask_array_warns() -> None:
    pytest.importorskip("distributed", reason="needs the extra [dask]")
    import dask.array as da
    from distributed import Client

    blocks = da.from_array(normalised(CELLS).toarray(), chunks=(70, 600))
    options = {
        "n_workers": 1,
        "threads_per_worker": 1,
        "dashboard_address": ":0",
        "memory_limit": 0,
    }
    with Client(processes=False, **options):
        with pytest.warns(NotCountsWarning, match="looks normalised"):
            KLNMF(2, backend="dask", **QUICK).fit(blocks)
        KLNMF(2, backend="dask", **QUICK).fit(da.from_array(CELLS.toarray(), chunks=(70, 600)))


def test_what_is_done_with_a_fitted_model_does_not_warn() -> None:
    X = normalised(CELLS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotCountsWarning)
        model = KLNMF(2, **QUICK).fit(X)
    model.transform(X)
    model.score(X)


@pytest.mark.parametrize(
    "search",
    [
        lambda X: consensus(X, 2, n_runs=3, max_iter=5, density_threshold=1.5, random_state=0),
        lambda X: select_rank(X, [1, 2], n_splits=2, random_state=0),
    ],
    ids=["consensus", "select_rank"],
)
def test_searches_warn_once(search: Callable[[Any], Any]) -> None:
    with pytest.warns(NotCountsWarning, match="^X looks log-transformed") as caught:
        search(log(normalised(CELLS))[:60])
    assert len(caught) == 1
    assert caught[0].filename == __file__
    search(CELLS[:60])


def test_refits_to_drawn_counts_do_not_warn() -> None:
    X = CELLS[:30, :50].astype(np.int64)
    bootstrap(KLNMF(2, **QUICK).fit(X), X, n_runs=2, n_jobs=1, random_state=0)


@pytest.mark.parametrize(
    "words",
    [
        ("fit", "-r", 2, "--tol", 1),
        ("consensus", "-r", 2, "--runs", 3, "--max-iter", 5, "--density-threshold", 1.5),
        ("rank", "--ranks", "1,2", "--splits", 2),
    ],
    ids=lambda words: words[0],
)
def test_commands_warn_in_one_line(words: Any, tmp_path: Path, capsys: Any) -> None:
    sp.save_npz(tmp_path / "X.npz", sp.csr_matrix(log(normalised(CELLS))[:60]))
    command, *options = words
    code, _, err = outcome(
        capsys, command, tmp_path / "X.npz", *options, "-o", tmp_path / "out", "--quiet"
    )
    assert code == 0
    told = [line for line in err.splitlines() if "looks log-transformed" in line]
    assert len(told) == 1
    assert told[0].startswith("klnmf: warning: X looks")
