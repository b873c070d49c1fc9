"""What is said of data that cannot be right, or that hardly anybody wants: advice that helps."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anndata
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from commands import outcome
from klnmf import KLNMF, MiniBatchKLNMF, TransposedWarning, capped_weights, tl
from klnmf.data.transposed import misplaced_names
from klnmf.data.validation import empty_samples_message
from klnmf.evaluation import evaluate
from klnmf.model_selection import consensus, select_rank
from klnmf.named_features import transform_by_name
from klnmf.readers import CountTable, prepare, read_counts
from klnmf.report import write_report
from klnmf.signatures import SBS96
from klnmf.simulate import simulate_counts
from klnmf.topics import coherence
from klnmf.uncertainty import bootstrap, differential_features
from tenx_files import write_folder

N, M, R = 12, 8, 2
COUNTS = simulate_counts(N, M, R, counts_per_sample=60, random_state=0).X.toarray() + 1.0
MODEL = KLNMF(R, random_state=0, n_threads=1).fit(COUNTS)
W = MODEL.transform(COUNTS)
NAMES = [f"w{j}" for j in range(M)]

TAKES_MISSING: dict[str, Callable[..., Any]] = {
    "fit": lambda X, **known: KLNMF(R, random_state=0).fit(X, **known),
    "fit_transform": lambda X, **known: KLNMF(R, random_state=0).fit_transform(X, **known),
    "transform": MODEL.transform,
    "score": MODEL.score,
    "select_rank": lambda X, **known: select_rank(X, [1, 2], random_state=0, **known),
    "consensus": lambda X, **known: consensus(X, R, 2, random_state=0, **known),
    "differential_features": lambda X, **known: differential_features(MODEL, X, W=W, **known),
}
WITHOUT_MISSING: dict[str, Callable[..., Any]] = {
    "mini-batch fit": lambda X: MiniBatchKLNMF(R).fit(X),
    "partial_fit": lambda X: MiniBatchKLNMF(R).partial_fit(X),
    "evaluate": lambda X: evaluate(MODEL, X),
    "bootstrap": lambda X: bootstrap(MODEL, X, 2),
    "write_report": lambda X: write_report(Path("nowhere"), MODEL, W, X),
}
OTHERS: dict[str, Callable[..., Any]] = {
    "coherence": lambda X: coherence(MODEL.components_, X),
    "project": lambda X: transform_by_name(MODEL, X, NAMES, model_feature_names=NAMES),
    "CountTable": CountTable,
    "prepare": lambda X: prepare(X, Path("nowhere")),
}


# ---- what holds a matrix and is none -------------------------------------------------------------


@pytest.mark.parametrize("name", [*TAKES_MISSING, *WITHOUT_MISSING])
def test_a_path_or_a_table_in_place_of_a_matrix_says_what_to_pass(name: str) -> None:
    call = {**TAKES_MISSING, **WITHOUT_MISSING}[name]
    for path in ("counts.npz", Path("counts.npz")):
        with pytest.raises(TypeError, match=r"X is a path\..*read_counts\('counts\.npz'\)\.X"):
            call(path)
    with pytest.raises(TypeError, match=r"X is a CountTable\. Pass its counts, table\.X"):
        call(CountTable(COUNTS))
    with pytest.raises(TypeError, match=r"masked array.*X\.filled\(0\).*missing=X\.mask"):
        call(np.ma.array(COUNTS, mask=COUNTS > 3))


# ---- AnnData -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*TAKES_MISSING, *WITHOUT_MISSING, *OTHERS])
def test_anndata_is_refused_at_once(name: str) -> None:
    """NumPy would take it apart cell by cell, which takes hours and then fails."""
    adata = anndata.AnnData(COUNTS)
    function = (TAKES_MISSING | WITHOUT_MISSING | OTHERS)[name]
    with pytest.raises(TypeError, match=r"AnnData object\. Use klnmf\.tl\.nmf.*adata\.X"):
        function(adata)


def test_the_matrix_of_an_anndata_is_taken() -> None:
    assert KLNMF(R, random_state=0).fit(anndata.AnnData(COUNTS).X).n_iter_ > 0


# ---- NaN -----------------------------------------------------------------------------------------


def with_nan(kind: str) -> Any:
    X = COUNTS.copy()
    X[4, 3] = np.nan
    return {"dense": X, "sparse": sp.csc_array(X), "frame": pd.DataFrame(X)}[kind]


@pytest.mark.parametrize("name", TAKES_MISSING)
@pytest.mark.parametrize("kind", ["dense", "frame", "sparse"])
def test_the_advice_about_nan_can_be_followed(name: str, kind: str) -> None:
    X, function = with_nan(kind), TAKES_MISSING[name]
    with pytest.raises(ValueError, match=r"contains NaN: X\[4, 3\] = nan\. If NaN marks") as caught:
        function(X)
    if kind == "sparse":
        assert "M = X.copy() and M.data = numpy.isnan(X.data)" in str(caught.value)
        pattern = X.copy()
        pattern.data = np.isnan(X.data)
    else:
        assert "pass missing=numpy.isnan(X)." in str(caught.value)
        pattern = np.isnan(X)
    function(X, missing=pattern)


@pytest.mark.parametrize("name", WITHOUT_MISSING)
@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_no_advice_that_cannot_be_followed(name: str, kind: str) -> None:
    with pytest.raises(ValueError, match=r"contains NaN: X\[4, 3\].*but not here"):
        WITHOUT_MISSING[name](with_nan(kind))


@pytest.mark.parametrize("name", [*TAKES_MISSING, *WITHOUT_MISSING])
@pytest.mark.parametrize("container", [np.array, sp.coo_array])
def test_infinity(name: str, container: Any) -> None:
    X = COUNTS.copy()
    X[4, 3] = np.inf
    function = (TAKES_MISSING | WITHOUT_MISSING)[name]
    with pytest.raises(ValueError, match=r"contains infinity: X\[4, 3\] = inf"):
        function(container(X))


# ---- more components than data -------------------------------------------------------------------

TOO_MANY = r"^8 components are learned from 12 samples and 8 features\. With as many"


@pytest.mark.parametrize(
    "fit",
    [
        lambda X, r: KLNMF(r, random_state=0, max_iter=30, tol=1e3).fit(X),
        lambda X, r: MiniBatchKLNMF(r, random_state=0).fit(X),
        lambda X, r: consensus(X, r, 2, density_threshold=2, random_state=0),
    ],
    ids=["KLNMF", "MiniBatchKLNMF", "consensus"],
)
def test_as_many_components_as_features(fit: Callable[..., Any]) -> None:
    with pytest.warns(UserWarning, match=TOO_MANY) as caught:
        fit(COUNTS, M)
    assert Path(caught[0].filename) == Path(__file__)  # where the user can do something about it
    with pytest.warns(UserWarning, match=r"^8 components are learned from 8 samples and 12 "):
        fit(COUNTS.T, M)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit(COUNTS, R)


def test_one_component_is_never_too_many() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        KLNMF(1, random_state=0).fit(COUNTS[:1])
        KLNMF(1, random_state=0).fit(COUNTS[:, :1])


def test_components_that_are_known_do_not_count() -> None:
    """A sample whose use of known signatures is asked for is no reason to warn."""
    signatures = np.random.default_rng(0).random((6, M)) + 0.1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        KLNMF(6, fixed_components=signatures, random_state=0).fit(COUNTS[:1])
        KLNMF(7, fixed_components=signatures, random_state=0).fit(COUNTS[:1])
        KLNMF(7, fixed_components=signatures, random_state=0).fit(COUNTS[:3])
    with pytest.warns(UserWarning, match=r"^2 components are learned from 2 samples"):
        KLNMF(8, fixed_components=signatures, random_state=0).fit(COUNTS[:2])


# ---- empty samples -------------------------------------------------------------------------------


def with_empty(*rows: int) -> np.ndarray:
    X = COUNTS.copy()
    X[list(rows)] = 0
    return X


@pytest.mark.parametrize(
    "fit",
    [
        lambda X: KLNMF(R, random_state=0).fit(X),
        lambda X: MiniBatchKLNMF(R, random_state=0).fit(X),
        lambda X: consensus(X, R, 4, random_state=0),
    ],
    ids=["KLNMF", "MiniBatchKLNMF", "consensus"],
)
@pytest.mark.parametrize("container", [np.array, sp.csc_array])
def test_empty_samples_are_named(fit: Callable[[Any], Any], container: Any) -> None:
    with pytest.warns(
        UserWarning, match=r"^2 of 12 samples have no counts: rows 3, 7\. They get no comp"
    ):
        fit(container(with_empty(7, 3)))


def test_names_of_empty_samples(tmp_path: Path) -> None:
    named = pd.DataFrame(with_empty(3), index=[f"doc{i}" for i in range(N)])
    expected = r"^1 of 12 samples has no counts: row 3 \('doc3'\)\. It gets no component"
    with pytest.warns(UserWarning, match=expected):
        KLNMF(R, random_state=0).fit(named)
    table = CountTable(with_empty(3), row_names=list(named.index))
    on_disk = prepare(table, tmp_path / "prepared")
    with pytest.warns(UserWarning, match=expected):
        KLNMF(R, random_state=0).fit(on_disk)
    with pytest.warns(UserWarning, match=r"row 3\. It gets"):
        KLNMF(R, random_state=0).fit(named.reset_index(drop=True))


def test_only_the_first_empty_samples_are_listed() -> None:
    message = empty_samples_message(np.ones(1234, bool))
    assert message is not None
    assert (
        "1,234 of 1,234 samples have no counts: rows 0, 1, 2, 3, 4, .... They get no component"
        in message
    )
    assert empty_samples_message(np.zeros(3, bool)) is None


def test_samples_of_weight_0_are_not_empty() -> None:
    weights = np.ones(N)
    weights[3] = 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        KLNMF(R, random_state=0).fit(with_empty(3), sample_weight=weights)
        MiniBatchKLNMF(R, random_state=0).partial_fit(with_empty(3))  # streams may have these
        bootstrap(MODEL, COUNTS, 3, random_state=0)


# ---- ordinary data -------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["counts", "sparse", "DataFrame"])
def test_ordinary_data_get_no_warning_at_all(how: str) -> None:
    X: Any = simulate_counts(60, 40, 3, counts_per_sample=200, random_state=0).X.toarray() + 1
    X = {"counts": X, "sparse": sp.csr_array(X), "DataFrame": pd.DataFrame(X).add_prefix("w")}[how]
    model = KLNMF(3, random_state=0, tol=0.01)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # those too that the configuration of the tests ignores
        W = model.fit_transform(X)
        model.transform(X)
        model.score(X)
        model.inverse_transform(W)
        MiniBatchKLNMF(3, random_state=0).partial_fit(X).partial_fit(X)
        GridSearchCV(model, {"n_components": [2, 3]}, cv=2).fit(X)
        make_pipeline(model, StandardScaler()).fit(X)


# ---- rows and columns exchanged ------------------------------------------------------------------

GENES = [f"GENE{j}" for j in range(M)]
BARCODES = ["".join(np.random.default_rng(i).choice(list("ACGT"), 14)) for i in range(N)]
WRONG = {
    "its columns are barcodes of cells, such as '[ACGT]+-1'": (GENES, [f"{b}-1" for b in BARCODES]),
    "its columns are barcodes of cells": (GENES, [f"donor2_{b}" for b in BARCODES]),
    "its rows are mutation types, such as 'A.C>A.A'": (SBS96[:M], [f"T{i}" for i in range(N)]),
    "its rows are ids of genes": (
        [f"ENSG{j:011}.3" for j in range(M)],
        [f"c{i}" for i in range(N)],
    ),
}


@pytest.mark.parametrize("message", WRONG)
def test_exchanged_rows_and_columns_are_recognised_by_their_names(
    message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows, columns = map(list, WRONG[message])
    frame = pd.DataFrame(COUNTS.T, index=rows, columns=columns)
    adata = anndata.AnnData(frame)
    fit: dict[str, Callable[[Any], Any]] = {
        "fit": lambda X: KLNMF(R, random_state=0).fit(X),
        "mini-batch fit": lambda X: MiniBatchKLNMF(R, random_state=0).fit(X),
        "capped_weights": capped_weights,
        "select_rank": lambda X: select_rank(X, [1, 2], random_state=0),
    }
    for call in fit.values():
        with pytest.warns(TransposedWarning, match=f"X: {message}.* samples must be rows.*X\\.T"):
            call(frame)
    with pytest.warns(TransposedWarning, match=rf"adata: {message}.*Pass adata\.T"):
        tl.nmf(adata, R)
    frame.to_csv(tmp_path / "a.csv")
    adata.write_h5ad(tmp_path / "a.h5ad")
    with pytest.warns(TransposedWarning, match=f"a.csv: {message}.*Add transpose=True"):
        prepare(tmp_path / "a.csv", tmp_path / "out")
    if "mutation" not in message:  # which are turned, with a word
        for name in ("a.csv", "a.h5ad"):
            with pytest.warns(TransposedWarning, match=f"{name}: {message}.*Add transpose=True"):
                read_counts(tmp_path / name)
        words = ("fit", tmp_path / "a.csv", "-r", 2, "-o", tmp_path / "m.klnmf")
        assert "Add --transpose." in outcome(capsys, *words)[2]
    with warnings.catch_warnings():
        warnings.simplefilter("error", TransposedWarning)
        for call in fit.values():
            call(frame.T)
        tl.nmf(adata.T, R)
        read_counts(tmp_path / "a.csv", transpose=True)


def test_ten_x_that_is_turned_back(tmp_path: Path) -> None:
    write_folder(tmp_path, version=2)
    (tmp_path / "barcodes.tsv").write_text("".join(f"{code}-1\n" for code in BARCODES[:3]))
    assert read_counts(tmp_path).shape == (3, 4)
    with pytest.warns(TransposedWarning, match="barcodes of cells.*Leave out transpose"):
        read_counts(tmp_path, transpose=True)


@pytest.mark.parametrize(
    ("rows", "columns"),
    [
        (["s1", "s2", "s3"], ["ACGT" * 60, "ACGA" * 60, "AAAT" * 60]),  # variants of a gene
        (["s1", "s2", "s3"], ["ACGTACG", "ACGAAAA", "AAATTTT"]),  # short words of DNA
        (["s1", "s2", "s3"], ["GATA3", "CAT", "TATA"]),
        (["s1", "s2", "s3"], [1, 2, 3]),
        (list(SBS96[:3]), list(SBS96[:3])),
        (["AAACATACAACCAC-1"] * 3, ["AAACATACAACCAC-2"] * 3),
    ],
)
def test_names_that_show_no_exchange(rows: list[Any], columns: list[Any]) -> None:
    assert misplaced_names(rows, columns) is None
    assert misplaced_names(columns, None) is None or columns[0] in SBS96
