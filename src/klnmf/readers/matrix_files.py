"""Matrices without names of their own: .npz, .mtx, svmlight and UCI's docword.

Names lie beside the matrix, one a line: ``NAME.rows.txt``, ``NAME.columns.txt`` (or
``NAME.vocab.txt``) and ``NAME.labels.txt`` for ``NAME.npz``, ``NAME.mtx`` and so on. Each of them
is optional.
"""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, BinaryIO
from zipfile import BadZipFile

import numpy as np
import numpy.lib.format as npy
import scipy.io
import scipy.sparse as sp

from klnmf.datasets.texts import read_docword
from klnmf.matrix_checks import csr_from_parts
from klnmf.option_names import option
from klnmf.readers.diagnosis import explain_docword, explain_matrix_market, explain_svmlight
from klnmf.readers.files import (
    ReadError,
    base_name,
    compressed_if_named_so,
    open_binary,
    read_names,
)
from klnmf.readers.table import CountTable, first_wrong, table_of_file

PathLike = str | os.PathLike[str]
SVMLIGHT_SUFFIXES = (".svmlight", ".libsvm", ".svm")
# The first that exists is read; the first is written.
BESIDE = {
    "row_names": (".rows.txt",),
    "column_names": (".columns.txt", ".vocab.txt"),
    "labels": (".labels.txt",),
}
_DAMAGED = (ValueError, OverflowError, EOFError, zlib.error, gzip.BadGzipFile)
# Arrays of a sparse matrix in a .npz file; which of them there are depends on its format.
SPARSE_PARTS = ("data", "indices", "indptr", "offsets", "coords", "row", "col")
_DAMAGED_ARCHIVE = (
    *(OSError, EOFError, ValueError, TypeError, KeyError, AttributeError, MemoryError),
    *(ArithmeticError, NotImplementedError, RuntimeError, BadZipFile, zlib.error),
)
_BLOCK = 1 << 22


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
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
            yield archive
    except ReadError:
        raise
    except _DAMAGED_ARCHIVE as error:
        raise ReadError(
            path,
            f"this is not a matrix that scipy.sparse.save_npz wrote, or it is cut off: {error}",
        ) from error


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
    return str(kind.astype("U")), (int(shape[0]), int(shape[1]))


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
        n_features = len(name_file.read_bytes().splitlines())
    try:
        with open_binary(path) as stream:
            matrix, labels = load_svmlight_file(
                stream, n_features=n_features, zero_based=zero_based
            )
    except _DAMAGED as error:
        explain_svmlight(path)
        raise ReadError(path, f"scikit-learn cannot read it as svmlight: {error}") from error
    if first_wrong(matrix.data) is not None:
        explain_svmlight(path)
    shown = [f"{label:.12g}" for label in labels]
    return _with_names(path, matrix, suffix, row_names, column_names, labels=shown)


def read_uci(
    path: Path, *, row_names: PathLike | None = None, column_names: PathLike | None = None
) -> CountTable:
    """UCI's ``docword.NAME.txt`` with ``vocab.NAME.txt`` beside it."""
    column_names = vocabulary_of(path) if column_names is None else column_names
    try:
        matrix = read_docword(path)
    except (FileNotFoundError, PermissionError):
        raise
    except (OSError, MemoryError) as error:
        explain_docword(path)
        raise ReadError(path, str(error)) from error
    return _with_names(path, matrix, ".txt", row_names, column_names)


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


def read_matrix_market(path: Path) -> sp.csr_array:
    """Matrix of a Matrix Market file; every value of it is a count."""
    try:
        with open_binary(path) as stream:
            banner = stream.readline().split()
            if b"array" in (word.lower() for word in banner):
                return _read_array(path)
            # SciPy reads 1.5 as 1 where the banner says integer: it is told real, and checked.
            told = [b"real" if w.lower().endswith(b"integer") else w for w in banner]
            source = _Forward(stream, b" ".join(told) + b"\n")
            matrix = scipy.io.mmread(source)
        if source.error is not None:
            raise source.error
        if matrix.dtype.kind == "c" or first_wrong(matrix.data) is not None:
            raise ValueError("values are not counts")
        if told != banner and not (matrix.data == np.rint(matrix.data)).all():
            raise ValueError("values are not whole numbers")
    except (*_DAMAGED, MemoryError) as error:
        explain_matrix_market(path)
        raise ReadError(path, f"SciPy cannot read it as Matrix Market: {error}") from error
    return sp.csr_array(matrix)


class _Forward:
    """A line and then a stream, as SciPy's reader can stand it.

    That reader, in C++, ends the process when a method of the stream raises while it closes, as
    ``seek`` may: there is none here, and an error in ``read`` is kept and looks like the end.
    """

    def __init__(self, stream: BinaryIO, line: bytes) -> None:
        self.stream, self.line = stream, line
        self.error: Exception | None = None

    def read(self, size: int = -1) -> bytes:
        if self.line:
            return self.readline()
        try:
            return self.stream.read(size)
        except (OSError, EOFError, zlib.error) as error:
            self.error = error
            return b""

    def readline(self) -> bytes:  # for SciPy before 1.12
        line, self.line = self.line, b""
        return line or self.stream.readline()


def _read_array(path: Path) -> sp.csr_array:
    """Dense Matrix Market file, column after column, of which only the nonzeros are kept."""
    positions, counts, done, rest = [], [], 0, b""
    with open_binary(path) as stream:
        line = banner = stream.readline()
        while line and (not line.strip() or line.startswith(b"%")):
            line = stream.readline()
        n_rows, n_columns = (int(size) for size in line.split())
        if banner.lower().split()[4:] != [b"general"]:
            raise ValueError("array files must be general")
        while rest or not done:
            piece = stream.read(_BLOCK)
            text = rest + piece
            cut = text.rfind(b"\n") + 1 if piece else len(text)
            values = np.array(text[:cut].split(), dtype=np.float64)
            rest = text[cut:]
            nonzero = np.flatnonzero(values)
            positions.append(nonzero + done)
            counts.append(values[nonzero])
            done += len(values)
            if not piece:
                break
    if done != n_rows * n_columns:
        raise ValueError(f"{done} values where {n_rows} × {n_columns} were expected")
    where, values = np.concatenate(positions), np.concatenate(counts)
    if first_wrong(values) is not None:
        raise ValueError("a value is not a count")
    places = (where % n_rows, where // n_rows)
    return sp.csr_array(sp.coo_array((values, places), shape=(n_rows, n_columns)))


# ---- names beside --------------------------------------------------------------------------------


def _beside(path: Path, suffix: str, what: str, given: PathLike | None = None) -> Path | None:
    """File of names: the one that was given, else the one beside the matrix, if there is one."""
    if given is not None:
        return Path(given).expanduser()
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
