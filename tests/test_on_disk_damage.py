"""Matrices on disk that are cut, altered or something else: said by name, before a fit."""

from __future__ import annotations

import json
import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from klnmf import KLNMF, open_matrix
from klnmf.data.on_disk import verification
from klnmf.data.on_disk.layout import sha256
from klnmf.readers import CountTable, ReadError, prepare
from on_disk_checks import random_counts


@pytest.fixture
def folder(tmp_path):
    table = CountTable(random_counts(30, 20, 0.3), [f"r{i}" for i in range(30)])
    return prepare(table, tmp_path / "X").path


def test_numpy_alone_reads_it(folder):
    parts = [
        np.load(folder / f"rows.{p}.npy", mmap_mode="r") for p in ("values", "indices", "indptr")
    ]
    X = sp.csr_array(tuple(parts), shape=json.loads((folder / "header.json").read_text())["shape"])
    assert (random_counts(30, 20, 0.3) != X).nnz == 0


def test_every_file_that_is_cut_missing_or_too_long_is_named(folder):
    for file in sorted(folder.iterdir()):
        if file.name in ("header.json", "verified.json"):
            continue
        content = file.read_bytes()
        for damaged in (content[:-1], content + b"x", None):
            file.unlink()
            if damaged is not None:
                file.write_bytes(damaged)
            with pytest.raises(ReadError, match=file.name):
                open_matrix(folder)
        file.write_bytes(content)
    open_matrix(folder, verify=True)


def change_byte(file: Path, place: int = -1) -> None:
    content = bytearray(file.read_bytes())
    content[place] ^= 1
    file.write_bytes(content)


@pytest.fixture
def reads(monkeypatch):
    """Names of the files that were read to be verified."""
    names: list[str] = []

    def sha256_of(path: Path) -> str:
        names.append(path.name)
        return sha256(path)

    monkeypatch.setattr(verification, "sha256", sha256_of)
    return names


def test_a_changed_byte_is_found_before_a_fit(folder):
    for file in sorted(folder.iterdir()):
        if file.name in ("header.json", "verified.json"):
            continue
        before = file.read_bytes()
        change_byte(file)
        with pytest.raises(ReadError, match=file.name):
            open_matrix(folder)
        file.write_bytes(before)
    assert open_matrix(folder).nnz == 180


def test_contents_are_read_once(folder, reads):
    open_matrix(folder)
    assert not reads  # they were when it was written
    (folder / "rows.values.npy").touch()
    open_matrix(folder)
    assert len(reads) == 9
    open_matrix(folder)
    assert len(reads) == 9
    open_matrix(folder, verify=True)
    assert len(reads) == 18
    for stamp in ("{", "[]", "{}"):
        (folder / "verified.json").write_text(stamp)
        open_matrix(folder)
    assert len(reads) == 18 + 3 * 9


def test_a_copy_is_read_and_old_times_deceive_nobody(folder, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)  # with the times of the files, and verified.json
    values = copy / "columns.values.npy"
    before = values.stat()
    change_byte(values)
    os.utime(values, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(ReadError, match=r"columns.values.npy.*checksum"):
        open_matrix(copy)
    assert open_matrix(copy, verify=False).nnz == 180


def test_a_folder_that_cannot_be_written_to_is_read_each_time(folder, reads, monkeypatch):
    def refused(*_: object) -> None:
        raise PermissionError

    (folder / "verified.json").unlink()
    monkeypatch.setattr(verification, "write_json", refused)
    for n_times in (1, 2):
        open_matrix(folder)
        assert len(reads) == 9 * n_times
    assert not (folder / "verified.json").exists()


def test_a_file_that_changes_after_it_was_opened(folder):
    for name in ("rows.values.npy", "columns.indices.npy"):
        matrix = open_matrix(folder, memory=500)
        before = (folder / name).read_bytes()
        change_byte(folder / name)
        with pytest.raises(ReadError, match=f"{name}.*changed since"):
            KLNMF(2).fit(matrix)
        os.truncate(folder / name, 200)
        with pytest.raises(ReadError, match=f"{name}.*changed since"):
            list(matrix.data.view("columns" in name).pieces())
        (folder / name).write_bytes(before)


def test_another_matrix_in_the_place_of_the_one_that_was_opened(folder):
    matrix = open_matrix(folder)
    pickled = pickle.dumps(matrix)
    assert pickle.loads(pickled).nnz == matrix.nnz
    prepare(random_counts(31, 20, 0.3), folder, overwrite=True)
    assert (matrix.as_csr() != random_counts(30, 20, 0.3)).nnz == 0  # the old files are still open
    with pytest.raises(ReadError, match="not the matrix that was pickled"):
        pickle.loads(pickled)


def rewrite(folder: Path, name: str, change: Any) -> None:
    """Change an array, and the header so that the checksum is right."""
    path, header = folder / name, json.loads((folder / "header.json").read_text())
    array = np.load(path)
    change(array)
    path.write_bytes(path.read_bytes()[:128] + array.tobytes())
    header["files"][name]["sha256"] = sha256(path)
    (folder / "header.json").write_text(json.dumps(header))


def put(place: int, value: Any) -> Any:
    def change(array: Any) -> None:
        array[place] = value

    return change


def swap(array: Any) -> None:
    array[[0, 1]] = array[[1, 0]]


@pytest.mark.parametrize(
    ("name", "change", "verify", "message"),
    [
        ("rows.indptr.npy", put(3, 10**6), False, "does not rise"),
        ("columns.indptr.npy", put(-1, 0), False, "does not rise"),
        ("rows.indices.npy", put(2, 20), True, "not from 0 to 19"),
        ("columns.indices.npy", put(2, -1), True, "not from 0 to 29"),
        ("rows.indices.npy", swap, True, "indices of a row do not rise"),
        ("columns.indices.npy", swap, True, "indices of a row do not rise"),
        ("rows.indices.npy", lambda a: put(1, a[0])(a), True, "indices of a row do not rise"),
        ("columns.values.npy", put(2, np.nan), True, "a value is not from"),
        ("rows.values.npy", put(2, np.inf), True, "a value is not from"),
        ("rows.values.npy", put(2, -1.0), True, "a value is not from"),
        ("rows.values.npy", put(2, 0.0), True, "a value is not from"),
    ],
)
def test_what_a_fit_relies_on_is_checked_though_checksums_match(
    folder, name, change, verify, message
):
    rewrite(folder, name, change)
    with pytest.raises(ReadError, match=f"{name}.*{message}"):
        open_matrix(folder, verify=verify)
    with pytest.raises(ReadError, match=f"{name}.*{message}"):
        open_matrix(folder)  # the stamp is of other files


def test_an_entry_on_the_border_of_two_blocks(folder, monkeypatch):
    for size in (1, 2, 7):
        monkeypatch.setattr(verification, "_ENTRIES", size)
        open_matrix(folder, verify=True)
    rewrite(folder, "rows.indices.npy", swap)
    monkeypatch.setattr(verification, "_ENTRIES", 1)
    with pytest.raises(ReadError, match="indices of a row do not rise"):
        open_matrix(folder)


def test_what_an_older_version_verified_is_verified_again(folder, reads):
    stamp = json.loads((folder / "verified.json").read_text())
    del stamp["verified"]
    (folder / "verified.json").write_text(json.dumps(stamp))
    open_matrix(folder)
    assert len(reads) == 9


def test_float32_values_of_a_float64_matrix_are_verified(tmp_path):
    X = np.array([[0.1, 16777217.5], [3.0, 1e-3]])
    assert prepare(X, tmp_path / "X", dtype=np.float32).nnz == 4
    open_matrix(tmp_path / "X", verify=True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "Install a newer klnmf"),
        ({"version": "1"}, "damaged"),
        ({"format": "other"}, "damaged"),
        ({"shape": [30]}, "damaged"),
        ({"shape": [31, 20]}, "rows.indptr.npy.*not an array of 32"),
        ({"nonzeros": -1}, "damaged"),
        ({"dtype": "<f8"}, "not an array"),
        ({"dtype": "|O"}, "damaged"),
        ({"total": "much"}, "damaged"),
        ({"whole": 1}, "damaged"),
        ({"total": 10**400}, "header is damaged .total is not a finite number"),
        ({"total": float("nan")}, "header is damaged .total is not a finite number"),
        ({"files": {}}, "damaged"),
        ({"files": ["rows.indptr.npy"]}, "damaged"),
        ({"files": {"../x": {}}}, "damaged"),
    ],
)
def test_headers_that_are_wrong(folder, change, message):
    header = json.loads((folder / "header.json").read_text())
    (folder / "header.json").write_text(json.dumps(header | change))
    with pytest.raises(ReadError, match=message):
        open_matrix(folder)


def test_folders_that_are_something_else(tmp_path, folder):
    with pytest.raises(ValueError, match="verify must be 'auto', True or False; got 'always'"):
        open_matrix(folder, verify="always")
    with pytest.raises(FileNotFoundError, match="no such folder"):
        open_matrix(tmp_path / "nowhere")
    with pytest.raises(ReadError, match="folder was not written by `klnmf prepare`"):
        open_matrix(tmp_path)
    for text in ("{", "[" * 200_000, " " * (1 << 20) + "{}", "5"):
        (folder / "header.json").write_text(text)
        with pytest.raises(ReadError, match="damaged"):
            open_matrix(folder)
        with pytest.raises(FileExistsError):
            prepare(np.eye(2), folder, overwrite=True)
