"""Matrices without names of their own: .npz, .mtx, svmlight and UCI's docword.

Names lie beside the matrix, one a line: ``NAME.rows.txt``, ``NAME.columns.txt`` (or
``NAME.vocab.txt``) and ``NAME.labels.txt`` for ``NAME.npz``, ``NAME.mtx`` and so on. Each of them
is optional.
"""

from __future__ import annotations

import math
import os
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, BinaryIO

import numpy as np
import numpy.lib.format as npy
import scipy.io
import scipy.sparse as sp

from klnmf.data.matrix_checks import csr_from_parts
from klnmf.readers.diagnosis import explain_svmlight, implausible_size
from klnmf.readers.entries import read_docword, read_matrix_market
from klnmf.readers.table import CountTable, first_wrong, table_of_file
from klnmf.support.input_files import (
    ReadError,
    base_name,
    byte_lines,
    check_unpacked,
    compressed_if_named_so,
    open_binary,
    parsed_by_others,
    read_names,
)
from klnmf.support.option_names import option

PathLike = str | os.PathLike[str]
SVMLIGHT_SUFFIXES = (".svmlight", ".libsvm", ".svm")
# The first that exists is read; the first is written.
BESIDE = {
    "row_names": (".rows.txt",),
    "column_names": (".columns.txt", ".vocab.txt"),
    "labels": (".labels.txt",),
}
# Arrays of a sparse matrix in a .npz file; which of them there are depends on its format.
SPARSE_PARTS = ("data", "indices", "indptr", "offsets", "coords", "row", "col")


def read_npz(
    path: Path, *, row_names: PathLike | None = None, column_names: PathLike | None = None
) -> CountTable:
    """Matrix that ``scipy.sparse.save_npz`` wrote."""
    with opened_npz(path) as archive:
        kind, shape = npz_header(path, archive)
        parts = {name: archive[name] for name in archive.files if name in SPARSE_PARTS}
    try:
        matrix = csr_from_parts(kind, parts, shape, "the matrix")
    except (TypeError, ValueError) as error:
        raise ReadError(path, str(error)) from error
    return _with_names(path, matrix, ".npz", row_names, column_names)


@contextmanager
def opened_npz(path: Path) -> Iterator[Any]:
    """Archive of NumPy's arrays; whatever goes wrong while it is open is an error of the file."""
    problem = "this is not a matrix that scipy.sparse.save_npz wrote, or it is cut off"
    with parsed_by_others(path, problem), path.open("rb") as stream:
        _check_archive(path, stream)
        with np.load(stream, allow_pickle=False) as archive:
            yield archive


def npz_header(path: Path, archive: Any) -> tuple[str, tuple[int, int]]:
    """Format and shape of a matrix that ``scipy.sparse.save_npz`` wrote."""
    names = getattr(archive, "files", [])  # it is one array where the file is a .npy
    if not {"format", "shape"} <= set(names):
        shapes = {name: npy_header(archive, name)[1] for name in names[:3]}
        held = ", ".join(f"{name} of shape {shape}" for name, shape in shapes.items())
        raise ReadError(
            path,
            "this is not a matrix that scipy.sparse.save_npz wrote, but NumPy's arrays "
            f"({held or 'none'}). Save a two-dimensional X with scipy.sparse.save_npz(path, "
            "scipy.sparse.csr_array(X)).",
        )
    kind, shape = archive["format"], archive["shape"]
    is_valid = kind.shape == () and kind.dtype.kind in "SU" and shape.dtype.kind in "iu"
    if not is_valid or (shape < 0).any():
        raise ReadError(path, f"the format {kind} or the shape {shape} of the matrix is not valid.")
    if shape.shape != (2,):
        raise ReadError(
            path,
            f"its shape is {tuple(shape.ravel().tolist())}; counts have two dimensions, samples × "
            "features.",
        )
    n_rows, n_columns = (int(size) for size in shape)
    implausible = implausible_size(n_rows, n_columns, math.prod(npy_header(archive, "data")[1]))
    if implausible is not None:
        raise ReadError(path, implausible)
    return str(kind.astype("U")), (n_rows, n_columns)


def npy_header(archive: Any, name: str) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """Type and shape of an array in an archive, without its entries."""
    with archive.zip.open(f"{name}.npy") as member:
        return read_npy_header(member)


def read_npy_header(member: IO[bytes]) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """Type and shape of an array of an archive; what follows are its entries."""
    version = npy.read_magic(member)
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, _, dtype = read(member)
    if dtype.hasobject:
        raise ValueError("it holds Python objects")
    return dtype, shape


def _check_archive(path: Path, stream: BinaryIO) -> None:
    """Refuse a .npz file whose arrays claim other sizes than they have, or are out of proportion.

    NumPy asks for all the memory that the head of an array claims.
    """
    unpacked = 0
    with zipfile.ZipFile(stream) as archive:
        for entry in archive.infolist():
            if entry.filename.removesuffix(".npy") not in ("format", "shape", *SPARSE_PARTS):
                continue  # it is not read
            with archive.open(entry) as member:
                dtype, shape = read_npy_header(member)
                expected = member.tell() + math.prod(shape) * dtype.itemsize
            if entry.file_size != expected:
                raise ValueError(f"{entry.filename} does not have the size that its head claims")
            unpacked += entry.file_size
    check_unpacked(path, path.stat().st_size, unpacked)
    stream.seek(0)


def read_mtx(
    path: Path, *, row_names: PathLike | None = None, column_names: PathLike | None = None
) -> CountTable:
    """Matrix Market file, coordinate or array, packed or not."""
    return _with_names(path, read_matrix_market(path), ".mtx", row_names, column_names)


def read_svmlight(
    path: Path,
    *,
    row_names: PathLike | None = None,
    column_names: PathLike | None = None,
    zero_based: bool | str = "auto",
    n_features: int | None = None,
) -> CountTable:
    """Lines of ``label index:count index:count ...``, as scikit-learn reads them."""
    from sklearn.datasets import load_svmlight_file

    suffix = next((s for s in SVMLIGHT_SUFFIXES if s in path.suffixes), "")
    name_file = _beside(path, suffix, "column_names", column_names)
    if n_features is None and name_file is not None and name_file.is_file():
        # Features that no sample has are in the names alone.
        n_features = sum(1 for _ in byte_lines(name_file))
    problem = "scikit-learn cannot read it as svmlight"
    with parsed_by_others(path, problem, explain_svmlight), open_binary(path) as stream:
        matrix, labels = load_svmlight_file(stream, n_features=n_features, zero_based=zero_based)
    if first_wrong(matrix.data) is not None:
        explain_svmlight(path)
    n_rows, n_columns = matrix.shape
    strange = implausible_size(n_rows, n_columns, matrix.nnz)
    if strange is not None:
        raise ReadError(path, strange)
    shown = [f"{label:.12g}" for label in labels]
    return _with_names(path, matrix, suffix, row_names, column_names, labels=shown)


def read_uci(
    path: Path, *, row_names: PathLike | None = None, column_names: PathLike | None = None
) -> CountTable:
    """UCI's ``docword.NAME.txt`` with ``vocab.NAME.txt`` beside it."""
    column_names = vocabulary_of(path) if column_names is None else column_names
    return _with_names(path, read_docword(path), ".txt", row_names, column_names)


def vocabulary_of(path: Path) -> Path:
    """File of words that lies beside a ``docword`` file."""
    beside = path.name.removesuffix(".gz").replace("docword", "vocab", 1)
    words = path.with_name(beside)
    if "docword" not in path.name or not words.is_file():
        expected = beside if "docword" in path.name else "vocab.NAME.txt"
        raise ReadError(
            path,
            f"its words should be beside it in {expected}, which does not exist. If they are in "
            f"another file, add {option('column_names', 'FILE')}.",
        )
    return words


# ---- names beside --------------------------------------------------------------------------------


def _beside(path: Path, suffix: str, what: str, given: PathLike | None = None) -> Path | None:
    """File of names: the one that was given, else the one beside the matrix, if there is one."""
    if given is not None:
        return Path(os.path.expanduser(given))
    name = base_name(path, (suffix,))
    files = [path.with_name(name + ending) for ending in BESIDE[what]]
    return next((file for file in files if file.is_file()), None)


def _with_names(
    path: Path,
    matrix: Any,
    suffix: str,
    row_names: PathLike | None,
    column_names: PathLike | None,
    labels: list[str] | None = None,
) -> CountTable:
    found = names_beside(path, matrix.shape, suffix, row_names, column_names)
    return table_of_file(path, matrix, **({"labels": labels} | found))


def names_beside(
    path: Path,
    shape: tuple[int, int],
    suffix: str,
    row_names: PathLike | None = None,
    column_names: PathLike | None = None,
) -> dict[str, Any]:
    """Names and labels that lie beside a matrix, or in the files that were given."""
    n_rows, n_columns = shape
    found: dict[str, Any] = {}
    for what, given, expected, axis in (
        ("row_names", row_names, n_rows, "rows"),
        ("column_names", column_names, n_columns, "columns"),
        ("labels", None, n_rows, "rows"),
    ):
        file = _beside(path, suffix, what, given)
        if file is not None:
            found[what] = read_names(file, expected, f"{axis} of {path.name}")
    return found


# ---- writing -------------------------------------------------------------------------------------


def write_npz(table: CountTable, path: Path) -> None:
    """Matrix alone, as ``scipy.sparse.save_npz`` writes it."""
    with path.open("wb") as stream:  # to a path of another ending it would add its own
        sp.save_npz(stream, table.X)


def write_mtx(table: CountTable, path: Path) -> None:
    """Matrix alone, as a Matrix Market file."""
    with compressed_if_named_so(path) as stream:
        scipy.io.mmwrite(stream, table.X, symmetry="general")


def files_beside(table: CountTable, path: Path) -> dict[Path, bytes]:
    """Files of names that belong to the matrix at ``path``, and their content.

    Raises
    ------
    FileExistsError
        If a file that is not among them lies there and would be taken for names of the matrix.
    """
    name = base_name(path, (".npz", ".mtx"))
    files: dict[Path, bytes] = {}
    for what, endings in BESIDE.items():
        names = getattr(table, what)
        if names is not None:
            files[path.with_name(name + endings[0])] = one_a_line(names, what)
            continue
        stale = [path.with_name(name + e) for e in endings if path.with_name(name + e).exists()]
        if stale:
            raise FileExistsError(
                f"{stale[0]} would be read as {what} of {path.name}, and the table has none. "
                "Remove that file, or write under another name."
            )
    return files


def one_a_line(names: Any, what: str) -> bytes:
    """Content of a file of names."""
    for name in names:
        if "\n" in name or "\r" in name:
            raise ValueError(
                f"{what} has {name!r}, and a name cannot have a line end in a file of one name a "
                "line. Change the name, or write .h5ad or .parquet."
            )
    return "".join(f"{name}\n" for name in names).encode()
