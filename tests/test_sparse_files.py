"""Files of sparse matrices whose arrays do not fit together, or that are no matrices at all."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anndata
import h5py
import numpy as np
import pytest
import scipy.sparse as sp

from klnmf.cli import main
from klnmf.readers import ReadError, prepare, read_counts
from sparse_breaking import WILD

DENSE = np.random.default_rng(0).poisson(1.0, (6, 4))


def parts_of(format: str) -> dict[str, Any]:
    """What `scipy.sparse.save_npz` writes."""
    X = getattr(sp, f"{format}_array")(DENSE)
    names = ("data", "row", "col") if format == "coo" else ("data", "indices", "indptr")
    parts = {n: getattr(X, n) for n in names}
    return {"format": format.encode(), "shape": np.array(X.shape), **parts}


def refused(path: Path, message: str) -> None:
    """Every way of reading a file says this, in one line that begins with the name of the file."""
    with pytest.raises(ReadError, match=message) as caught:
        read_counts(path)
    assert str(caught.value).startswith(str(path))
    with pytest.raises(ReadError, match=message):
        prepare(path, path.with_name("prepared"))
    assert not path.with_name("prepared").exists()


def wild(name: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda parts: {name: np.full_like(parts[name], WILD)}


def made(name: str, change: Callable[[np.ndarray], Any]) -> Callable[..., dict[str, Any]]:
    return lambda parts: {name: change(parts[name])}


NOT_VALID = "the matrix is not (a )?valid"
COMPRESSED = [
    (wild("indices"), NOT_VALID),
    (made("indices", lambda a: -a - 1), NOT_VALID),
    (made("indices", lambda a: a.astype(float)), NOT_VALID),
    (made("indices", lambda a: a[:-1]), NOT_VALID + "|indices have the shape"),
    (made("indices", lambda a: a.reshape(-1, 1)), NOT_VALID + "|indices have the shape"),
    (wild("indptr"), NOT_VALID),
    (made("indptr", lambda a: a[::-1].copy()), NOT_VALID),
    (made("indptr", lambda a: a[:-1]), NOT_VALID),
    (made("indptr", lambda a: a + np.append(np.zeros(len(a) - 1, int), WILD)), "valid|cut off"),
    (made("indptr", lambda a: np.where(np.arange(len(a)), np.nan, 0)), NOT_VALID),
    (made("indptr", lambda a: np.where(np.arange(len(a)), 2**64 - 1, 0).astype("u8")), "indptr"),
    (lambda parts: {"indptr": None}, "indptr"),
    (lambda parts: {"shape": np.array([3, 3])}, NOT_VALID),
    (lambda parts: {"shape": np.array([50, 50])}, NOT_VALID),
    (lambda parts: {"shape": np.array([-6, -4])}, r"its shape is \(-6, -4\)"),
    (lambda parts: {"data": parts["data"].astype("S3")}, "must hold numbers|cannot read|type"),
]
COO = [
    (wild("row"), NOT_VALID),
    (wild("col"), NOT_VALID),
    (made("col", lambda a: a - 5), NOT_VALID),
    (made("row", lambda a: a[:-1]), NOT_VALID),
    (made("row", lambda a: a + 0.5), NOT_VALID),
    (lambda parts: {"shape": np.array([2**55, 4])}, "nearly all of them would be empty"),
]
CASES = [
    pytest.param(format, change, message, id=f"{format}-{number}")
    for format, cases in {"csr": COMPRESSED, "csc": COMPRESSED, "coo": COO}.items()
    for number, (change, message) in enumerate(cases)
]


@pytest.mark.parametrize(("format", "change", "message"), CASES)
def test_npz_with_wrong_arrays(
    format: str, change: Callable[[Any], dict[str, Any]], message: str, tmp_path: Path
) -> None:
    parts = parts_of(format)
    changed = {name: part for name, part in (parts | change(parts)).items() if part is not None}
    np.savez(tmp_path / "X.npz", **changed)
    refused(tmp_path / "X.npz", message)


@pytest.mark.parametrize("format", ["csr", "csc", "coo"])
@pytest.mark.parametrize("kind", ["array", "matrix"])
def test_npz_of_every_format(format: str, kind: str, tmp_path: Path) -> None:
    sp.save_npz(tmp_path / "X.npz", getattr(sp, f"{format}_{kind}")(DENSE))
    np.testing.assert_array_equal(read_counts(tmp_path / "X.npz").X.toarray(), DENSE)
    prepared = prepare(tmp_path / "X.npz", tmp_path / "prepared")
    np.testing.assert_array_equal(prepared.as_csr().toarray(), DENSE)


def of_format(format: Any, shape: Any) -> dict[str, Any]:
    return {"format": format, "shape": np.array(shape), "data": np.ones(2)}


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"a": np.ones((2, 3)), "b": np.ones(1)}, r"but NumPy's arrays \(a, b\)"),
        ({"format": b"csr", "shape": np.array([2, 3])}, "but NumPy's arrays"),
        (of_format(b"csr", [5]), r"its shape is \(5,\); .* two dimensions"),
        (of_format(b"coo", [2, 3, 4]), r"its shape is \(2, 3, 4\)"),
        (of_format(b"csr", [2.5, 3.0]), r"its shape is \(2\.5, 3\.0\)"),
        (of_format(b"csr", 5), "or it is cut off"),
        (of_format(5, [2, 3]), "format '5'; expected csr, csc or coo"),
        (of_format(["csr", "csc"], [2, 3]), "expected csr, csc or coo"),
        (of_format(b"dia", [2, 3]), "format 'dia'; expected csr, csc or coo"),
    ],
)
def test_npz_that_is_no_matrix(arrays: dict[str, Any], message: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "X.npz", **arrays)
    refused(tmp_path / "X.npz", message)


@pytest.mark.parametrize("shape", [(5,), (2, 3, 4)])
def test_npz_of_sparse_arrays_of_other_dimensions(shape: tuple[int, ...], tmp_path: Path) -> None:
    sp.save_npz(tmp_path / "X.npz", sp.coo_array(np.ones(shape)))
    refused(tmp_path / "X.npz", "two dimensions")


def test_npy_in_the_place_of_npz(tmp_path: Path) -> None:
    np.save(tmp_path / "X.npy", DENSE)
    shutil.move(tmp_path / "X.npy", tmp_path / "X.npz")
    refused(tmp_path / "X.npz", r"not a matrix that scipy\.sparse\.save_npz wrote")


def test_the_command_says_it_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez(tmp_path / "X.npz", **(parts_of("csc") | wild("indices")(parts_of("csc"))))
    assert main(["fit", str(tmp_path / "X.npz"), "-r", "2", "-o", str(tmp_path / "m")]) == 1
    said = capsys.readouterr().err
    assert "not a valid CSC matrix: " in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("name", ["indices", "indptr"])
@pytest.mark.parametrize("format", ["csr", "csc"])
def test_h5ad(format: str, name: str, tmp_path: Path) -> None:
    path = tmp_path / "X.h5ad"
    anndata.AnnData(getattr(sp, f"{format}_matrix")(DENSE.astype(float))).write_h5ad(path)
    with h5py.File(path, "r+") as file:
        file["X"][name][1] = WILD
    refused(path, "valid")


@pytest.mark.parametrize("name", ["indices", "indptr"])
def test_10x_h5(name: str, tmp_path: Path) -> None:
    X = sp.csr_array(DENSE)
    with h5py.File(tmp_path / "X.h5", "w") as file:
        group = file.create_group("matrix")
        arrays = {n: getattr(X, n).copy() for n in ("data", "indices", "indptr")}
        arrays[name][1] = WILD
        for key, array in arrays.items():
            group[key] = array
        group["shape"] = DENSE.shape[::-1]
        group["barcodes"] = [f"c{i}" for i in range(6)]
        for key in ("id", "name"):
            group[f"features/{key}"] = [f"g{j}" for j in range(4)]
    with pytest.raises(ReadError, match="matrix is not a valid CSR matrix"):
        read_counts(tmp_path / "X.h5")
