"""HDF5 files that are not what they seem: every one is an error, in no time and little memory."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from hdf5_files import (
    WRITERS,
    Change,
    attribute,
    elsewhere,
    replaced,
    unwritten,
    virtual,
    with_unknown_filter,
    write_annotated,
)
from klnmf.readers import (
    CountTable,
    ReadError,
    hdf5,
    hdf5_items,
    prepare,
    read_counts,
    write_counts,
)
from reader_checks import COLUMNS, COUNTS, ROWS, assert_same


def refused(path: Path, message: str, **options: Any) -> None:
    """Reading and preparing fail with this message, in no time of the processor."""
    started = time.process_time()
    for use in (read_counts, lambda p, **o: prepare(p, p.with_name("prepared"), **o)):
        with pytest.raises(ReadError, match=message) as caught:
            use(path, **options)
        assert str(caught.value).startswith(f"{path}: ")
    assert time.process_time() - started < 10


LIES: dict[str, list[tuple[Change, str]]] = {
    "a.h5ad": [
        # what is not there, or something else
        (replaced("X", None), "it has no 'X'"),
        (replaced("obs", None), "no obs and var"),
        (replaced("obs", 5.0), "obs is not a data frame as anndata writes it since"),
        (replaced("var", np.eye(3)), "var is not a data frame"),
        (replaced("X/data", None), "it has no 'X/data'"),
        (replaced("X/indices", lambda f, p: f.create_group(p)), "X/indices is a group where an"),
        (replaced("obs/_index", None), "it has no 'obs/_index'"),
        (replaced("X", np.dtype("f4")), "X is neither an array nor a group"),
        (replaced("X", h5py.Empty("f4")), "it has no 'X'"),
        (replaced("layers", 3), "layers is an array where a group was expected"),
        # attributes
        (attribute("X", "encoding-type", None), "X has the type None; expected a dense"),
        (attribute("X", "encoding-type", "dataframe"), "X has the type 'dataframe'"),
        (attribute("X", "encoding-type", 5), "attribute 'encoding-type' that is not a text"),
        (attribute("X", "encoding-type", "csc_matrix"), r"X/indptr has the shape \(4,\)"),
        (attribute("X", "shape", None), "X has the shape None; there are names of 3 × 4"),
        (attribute("X", "shape", [3, 10**12]), r"X has the shape \(3, 1000000000000\)"),
        (attribute("X", "shape", [3, -4]), "'shape' that is not rows and columns"),
        (attribute("X", "shape", "three"), "'shape' that is not rows and columns"),
        (attribute("obs", "_index", None), "obs has no attribute '_index'"),
        (attribute("obs", "_index", "nowhere"), "it has no 'obs/nowhere'"),
        # types
        (replaced("X/data", np.array(["x"] * 4, "S")), r"type \|S1; expected numbers"),
        (replaced("X/data", np.ones(4, [("a", "f4")])), "X/data holds entries of the type"),
        (replaced("X/data", np.ones(4, "c8")), "complex64; expected numbers"),
        (replaced("X/indices", np.ones(4)), "float64; expected whole numbers"),
        (replaced("X/indptr", np.ones(4)), "float64; expected whole numbers"),
        (replaced("X", np.array([["a"] * 4] * 3, "S")), "expected numbers"),
        (replaced("X", np.ones((3, 4, 1))), r"shape \(3, 4, 1\); expected 2 dimensions"),
        (replaced("X", np.ones((4, 3))), r"X has the shape \(4, 3\); there are names of 3 × 4"),
        (
            replaced("obs/_index", lambda f, p: f.create_dataset(p, (3,), h5py.ref_dtype)),
            "obs/_index holds entries of the type object; expected names",
        ),
        (
            replaced("obs/_index", lambda f, p: f.create_dataset(p, (3,), h5py.vlen_dtype("i4"))),
            "expected names",
        ),
        # numbers
        (replaced("X/data", np.ones(3)), r"X/data has the shape \(3,\); expected \(4,\)"),
        (replaced("X/data", 1.0), r"X/data has the shape \(\)"),
        (replaced("X/indices", 1), r"X/indices has the shape \(\); expected 1 dim"),
        (
            replaced("X/indices", np.array([0, 1, 2, 50_000_000])),
            "must be (< 4|>= 0)",
        ),
        (
            replaced("X/indices", np.array([0, 1, 2, -1])),
            "must be (< 4|>= 0)",
        ),
        (replaced("X/indptr", np.array([0, 9, 3, 4])), "indptr must not decrease"),
        (replaced("X/indptr", np.array([1, 2, 3, 4])), "indptr must start at 0, got 1"),
        (replaced("X/indptr", np.array([0, 2, 3, 9])), "indptr ends at 9|has fewer entries"),
        (replaced("X/indptr", np.array([0, 9, 3, 4], "u8")), "indptr must not decrease"),
        # arrays of which nothing is stored
        (replaced("X/indices", unwritten(10**12, dtype="i4")), "1,000,000,000,000 entries"),
        (
            replaced("X/indices", unwritten(10**12, dtype="i4", chunks=(1 << 20,))),
            "but 0 bytes",
        ),
        (replaced("obs/_index", unwritten(10**9, dtype="S20")), "obs/_index claims"),
        (replaced("X", unwritten(10**9, 10**5)), "X claims 1,000,000,000 × 100,000"),
        (replaced("X", unwritten(10**12, 0)), "X claims 1,000,000,000,000 × 0"),
        # entries that are in other files
        (replaced("X", elsewhere), "X is stored in other files, which are not read"),
        (replaced("X", virtual), "X is stored in other files, which are not read"),
        (replaced("var/feature_types", np.array(["A"], "S")), "1 feature_types for 4 features"),
        (replaced("X", with_unknown_filter), "X is compressed by the HDF5 filter 32015"),
    ],
    "a.loom": [
        (replaced("matrix", None), "it lacks matrix"),
        (replaced("matrix", np.array(["a"], "S")), "expected numbers"),
        (replaced("matrix", 3.0), r"shape \(\); expected 2 dimensions"),
        (replaced("matrix", unwritten(10**9, 10**5)), "matrix claims"),
        (replaced("matrix", elsewhere), "matrix is stored in other files"),
        (replaced("row_attrs", 1), "row_attrs is an array where a group was expected"),
        (replaced("row_attrs/Gene", np.eye(4)), "expected a list"),
        (replaced("col_attrs/CellID", np.array(["a"], "S")), "row_names has 1 names for 3 rows"),
        (replaced("layers", 3), "layers is an array where a group was expected"),
    ],
    "a.h5": [
        (replaced("matrix/barcodes", None), "no group has barcodes"),
        (replaced("matrix/barcodes", 1), r"barcodes has the shape \(\)"),
        (replaced("matrix/barcodes", np.array(["A"], "S")), "1 barcodes where 3 are needed"),
        (replaced("matrix/features/id", np.array(["A"], "S")), "1 ids of features where 4 are"),
        (replaced("matrix/features/feature_type", np.array(["A"], "S")), "1 types of features"),
        (replaced("matrix/features", 4), "features is an array where a group"),
        (replaced("matrix/shape", np.array([4])), r"shape has the shape \(1,\); expected"),
        (replaced("matrix/shape", np.array([4.0, 3.0])), "expected whole numbers"),
        (replaced("matrix/shape", np.array([-4, 3])), "where -4 are needed"),
        (replaced("matrix/shape", np.array([4, 10**15])), "where 1,000,000,000,000,000 are"),
        (replaced("matrix/data", np.array(["x"] * 4, "S")), "expected numbers"),
        (
            replaced("matrix/indices", np.array([0, 1, 2, 9])),
            "must be (< 4|>= 0)",
        ),
        (replaced("matrix/indices", unwritten(10**12, dtype="i8")), "indices claims"),
        (replaced("matrix/indptr", np.array([0, 5, 1, 4])), "indptr must not decrease"),
    ],
}


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [(name, *lie) for name, lies in LIES.items() for lie in lies],
)
def test_files_that_lie(name: str, change: Change, message: str, tmp_path: Path) -> None:
    path = tmp_path / name
    WRITERS[name](path)
    with h5py.File(path, "a") as file:
        change(file)
    refused(path, message)


def test_columns_of_wrong_indices(tmp_path: Path) -> None:
    path = tmp_path / "a.h5ad"
    write_annotated(path, "csc")
    assert_same(read_counts(path))
    with h5py.File(path, "a") as file:
        file["X/indices"][0] = 50_000_000
    refused(path, "must be < 3")


@pytest.mark.parametrize(
    ("chunks", "shapes"),
    [
        (None, [(3, 4), (3, 4), (3, 4), (1, 4)]),
        ((2, 2), [(2, 4)] * 5),
        ((10, 1), [(10, 1)] * 4),  # rows would unpack every chunk ten times
    ],
)
def test_dense_hdf5_is_read_in_whole_chunks_a_few_at_a_time(
    chunks: Any, shapes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []

    class Watched(hdf5_items.StoredArray):
        def __getitem__(self, places: Any) -> Any:
            found.append(super().__getitem__(places))
            return found[-1]

    monkeypatch.setattr(hdf5_items, "StoredArray", Watched)
    monkeypatch.setattr(hdf5, "DENSE_BLOCK", 12)
    with h5py.File(tmp_path / "a.loom", "w") as file:
        file.create_dataset("matrix", data=np.eye(10, 4), chunks=chunks)
        file.create_group("row_attrs")
        file.create_group("col_attrs")
    np.testing.assert_array_equal(read_counts(tmp_path / "a.loom").X.toarray(), np.eye(4, 10))
    assert [block.shape for block in found] == shapes


# ---- what is read all the same -------------------------------------------------------------------


def test_what_packs_well_or_was_never_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.loom"
    with h5py.File(path, "w") as file:
        packed = {"compression": "gzip", "compression_opts": 9, "chunks": (1000, 1000)}
        file.create_dataset("matrix", data=np.zeros((2000, 5000)), **packed)
        file.create_dataset("layers/unwritten", (2000, 5000), "f4")
        file.create_group("row_attrs")
        file.create_group("col_attrs")
        stored = file["matrix"].id.get_storage_size()
    assert 900 * stored < 2000 * 5000 * 8
    assert read_counts(path).X.nnz == 0
    assert read_counts(path, layer="unwritten").shape == (5000, 2000)


def test_links_are_followed(tmp_path: Path) -> None:
    path = tmp_path / "a.h5ad"
    write_annotated(path)
    with h5py.File(path, "a") as file:
        file.move("X", "kept/counts")
        file["X"] = h5py.SoftLink("/kept/counts")
        file["layers/nowhere"] = h5py.SoftLink("/nothing")
    assert_same(read_counts(path))
    refused(path, "the HDF5 file is damaged", layer="nowhere")


def test_columns_of_data_frames_in_all_their_forms(tmp_path: Path) -> None:
    path = tmp_path / "a.h5ad"
    write_annotated(path)
    kinds = np.array(["B", "T"], dtype=h5py.string_dtype())
    with h5py.File(path, "a") as file:
        obs = file["obs"]
        obs["numbers"], obs["flags"] = np.array([1, 2, 3]), np.array([True, False, True])
        obs["new/codes"], obs["new/categories"] = np.array([1, -1, 0], "i1"), kinds
        obs["old"], obs["__categories/old"] = np.array([1, -1, 0], "i1"), kinds
        obs["maybe/values"] = np.array(["B", "", "T"], dtype=h5py.string_dtype())
        obs["maybe/mask"] = np.array([False, True, False])
        obs["wrong/codes"], obs["wrong/categories"] = np.array([7, 0, 0], "i1"), kinds
    expected = {
        "numbers": ["1", "2", "3"],
        "flags": ["True", "False", "True"],
        "new": ["T", "nan", "B"],
        "old": ["T", "nan", "B"],
        "maybe": ["B", "nan", "T"],
    }
    for name, labels in expected.items():
        assert read_counts(path, labels=name).labels.tolist() == labels
    refused(path, "obs/wrong/codes holds codes of more than 2 categories", labels="wrong")
    refused(path, "obs has no column '__categories'. It has: flags, maybe", labels="__categories")


def test_foreign_byte_order_and_half_floats(tmp_path: Path) -> None:
    path = tmp_path / "a.h5ad"
    write_annotated(path)
    with h5py.File(path, "a") as file:
        for key in ("data", "indices", "indptr"):
            values = file["X"][key][:]
            del file["X"][key]
            file["X"][key] = values.astype(values.dtype.newbyteorder(">"))
        file["layers/half"] = (COUNTS > 0).astype(np.float16)
    assert_same(read_counts(path))
    matrix = prepare(path, tmp_path / "prepared")
    np.testing.assert_array_equal(matrix.as_csr().toarray(), COUNTS)
    assert read_counts(path, layer="half").X.sum() == (COUNTS > 0).sum()


def test_ids_of_genes_are_kept(tmp_path: Path) -> None:
    table = CountTable(COUNTS, ROWS, COLUMNS, column_ids=["a", "b", "c", "d"])
    write_counts(table, tmp_path / "a.h5ad")
    found = read_counts(tmp_path / "a.h5ad")
    assert_same(found)
    assert found.column_ids.tolist() == ["a", "b", "c", "d"]
