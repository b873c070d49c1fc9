"""Matrices without names inside the file: .npz, .mtx, svmlight and UCI's docword.

Names are in files beside the matrix, one per line: ``NAME.rows.txt``, ``NAME.columns.txt`` (or
``NAME.vocab.txt``) and ``NAME.labels.txt`` for ``NAME.npz``, ``NAME.mtx`` and so on. Each of them
is optional.
"""

import math
import os
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any, BinaryIO

import numpy as np
import numpy.lib.format as npy
import scipy.io
import scipy.sparse as sp

from klnmf.data.matrix_checks import csr_from_parts
from klnmf.readers.diagnosis import check_size, explain_svmlight
from klnmf.readers.entries import EntryFile, docword, matrix_market
from klnmf.readers.format import Format, StreamedFormat
from klnmf.readers.streams import Block, CountStream, Outline, compressed_blocks, compressed_stream
from klnmf.readers.table import CountTable, first_wrong, table_of_file
from klnmf.support.input_files import (
    ReadError,
    base_name,
    byte_lines,
    check_unpacked,
    open_binary,
    parsed_by_others,
    read_names,
)
from klnmf.support.option_names import option
from klnmf.support.whole_files import packed_if_named_so

Given = str | os.PathLike[str] | None  # path of a file with names
# The first that exists is read; the first is written.
BESIDE = {
    "row_names": (".rows.txt",),
    "column_names": (".columns.txt", ".vocab.txt"),
    "labels": (".labels.txt",),
}
# Arrays of a sparse matrix in a .npz file; which of them there are depends on its format.
SPARSE_PARTS = ("data", "indices", "indptr", "offsets", "coords", "row", "col")
_NOT_SPARSE = "this is not a matrix that scipy.sparse.save_npz wrote"


# ---- names beside --------------------------------------------------------------------------------


class NamedBeside(Format):
    """A format whose names are in files beside the matrix."""

    def stem(self, path: Path) -> str:
        """Return the part of a file's name that the files beside it begin with."""
        return base_name(path, self.endings)

    def file_beside(self, path: Path, what: str, given: Given = None) -> Path | None:
        """File of names: the one that was given, else the one beside the matrix, if any."""
        if given is not None:
            return Path(os.path.expanduser(given))
        files = [path.with_name(self.stem(path) + ending) for ending in BESIDE[what]]
        # A name that is too long for the system is that of no file.
        return next((file for file in files if os.path.isfile(file)), None)

    def names_beside(
        self, path: Path, shape: tuple[int, int], row_names: Any = None, column_names: Any = None
    ) -> dict[str, Any]:
        """Names and labels in the files beside a matrix, or in those that were given."""
        found: dict[str, Any] = {"origins": {}}
        for what, given, axis in (
            ("row_names", row_names, 0),
            ("column_names", column_names, 1),
            ("labels", None, 0),
        ):
            file = self.file_beside(path, what, given)
            if file is not None:
                of_what = f"{('rows', 'columns')[axis]} of {path.name}"
                found[what] = read_names(file, shape[axis], of_what)
                found["origins"][what] = file.name
        return found

    def files_beside(self, table: CountTable, path: Path) -> dict[Path, bytes]:
        """Return the files of names to write, and their content; refuse stale files of names."""
        files: dict[Path, bytes] = {}
        for what, endings in BESIDE.items():
            names = getattr(table, what)
            if names is not None:
                files[path.with_name(self.stem(path) + endings[0])] = one_per_line(names, what)
                continue
            stale = self.file_beside(path, what)
            if stale is not None:
                raise FileExistsError(
                    f"{stale} would be read as {what} of {path.name}, and the table has none. "
                    "Remove that file, or write under another name."
                )
        return files

    def entry_stream(self, file: EntryFile, row_names: Given, column_names: Given) -> CountStream:
        """Stream of a text with one entry per line."""

        def outline() -> Outline:
            names = self.names_beside(file.path, file.shape, row_names, column_names)
            return Outline(file.shape, names)

        return CountStream(lambda limit: file.blocks(), outline, in_order=file.is_rising)


def one_per_line(names: Any, what: str, way_out: str = ", or write .h5ad or .parquet") -> bytes:
    """Content of a file of names."""
    for name in names:
        if "\n" in name or "\r" in name:
            raise ValueError(
                f"{what} has {name!r}, and a name cannot have a line end in a file of one name "
                f"per line. Change the name{way_out}."
            )
    return "".join(f"{name}\n" for name in names).encode()


# ---- .npz ----------------------------------------------------------------------------------------


class Npz(NamedBeside):
    """Matrix that ``scipy.sparse.save_npz`` wrote."""

    name = "npz"
    endings = (".npz",)

    def read(
        self, path: Path, *, row_names: Given = None, column_names: Given = None
    ) -> CountTable:
        """Read a matrix of any sparse format that SciPy has."""
        with opened_npz(path) as archive:
            kind, shape = npz_header(path, archive)
            parts = {name: archive[name] for name in archive.files if name in SPARSE_PARTS}
        try:
            matrix = csr_from_parts(kind, parts, shape, "the matrix")
        except (TypeError, ValueError) as error:
            raise ReadError(path, str(error)) from error
        names = self.names_beside(path, matrix.shape, row_names, column_names)
        return table_of_file(path, matrix, **names)

    def stream(
        self, path: Path, *, row_names: Given = None, column_names: Given = None
    ) -> CountStream:
        """Read a CSR or CSC matrix in blocks, and others whole."""
        with opened_npz(path) as archive:
            kind, shape = npz_header(path, archive)
            dtype, _ = npy_header(archive, "data")
        if kind not in ("csr", "csc"):
            return super().stream(path, row_names=row_names, column_names=column_names)
        if dtype.kind not in "biuf":
            raise ReadError(path, f"Counts must be real numbers; got the type {dtype}.")
        names = self.names_beside(path, shape, row_names, column_names)
        blocks = partial(_npz_blocks, path, kind, shape)
        return compressed_stream(blocks, Outline(shape, names, dtype), kind)

    def write(self, table: CountTable, path: Path) -> None:
        """Write the matrix alone, with ``scipy.sparse.save_npz``."""
        with path.open("wb") as stream:  # to a path of another ending it would add its own
            sp.save_npz(stream, table.X)


def _npz_blocks(path: Path, form: str, shape: tuple[int, int], limit: int) -> Iterator[Block]:
    """Blocks of a CSR matrix, or of a CSC matrix taken as its transpose."""
    shape = shape if form == "csr" else shape[::-1]
    with opened_npz(path) as archive, ExitStack() as stack:
        indptr = archive["indptr"]
        members = [
            stack.enter_context(archive.zip.open(f"{name}.npy")) for name in ("indices", "data")
        ]
        (index_type, n_indices), (dtype, n_values) = map(read_npy_header, members)
        if len(n_indices) != 1 or n_indices != n_values:
            raise ReadError(path, f"indices have the shape {n_indices}, and values {n_values}.")

        def take(first: int, last: int) -> Any:
            for member, kind in zip(members, (index_type, dtype), strict=True):
                yield np.frombuffer(member.read((last - first) * kind.itemsize), kind)

        yield from compressed_blocks(path, shape, indptr, take, limit, form=form)


@contextmanager
def opened_npz(path: Path) -> Iterator[Any]:
    """Archive of NumPy's arrays; whatever goes wrong while it is open is an error of the file."""
    problem = f"{_NOT_SPARSE}, or it is cut off"
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
        problem = f"{_NOT_SPARSE}, but NumPy's arrays ({held or 'none'}). Save a two-dimensional X "
        problem += "with scipy.sparse.save_npz(path, scipy.sparse.csr_array(X))."
        raise ReadError(path, problem)
    kind, shape = archive["format"], archive["shape"]
    is_valid = kind.shape == () and kind.dtype.kind in "SU" and shape.dtype.kind in "iu"
    if kind.dtype.itemsize > 64:
        raise ReadError(path, f"the format of the matrix has {kind.dtype.itemsize:,} bytes.")
    if not is_valid or (shape < 0).any():
        raise ReadError(path, f"the format {kind} or the shape {shape} of the matrix is not valid.")
    if shape.shape != (2,):
        found = f"its shape is {tuple(shape.ravel().tolist())}"
        raise ReadError(path, f"{found}; counts have two dimensions, samples × features.")
    n_rows, n_columns = (int(size) for size in shape)
    check_size(path, [n_rows, n_columns, math.prod(npy_header(archive, "data")[1])])
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
    """Refuse arrays that are not as large as they claim: NumPy asks for all that memory."""
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


# ---- text ----------------------------------------------------------------------------------------


class Mtx(StreamedFormat, NamedBeside):
    """Matrix Market file, coordinate or array."""

    name = "mtx"
    endings = (".mtx",)
    may_be_packed = True

    def stream(
        self, path: Path, *, row_names: Given = None, column_names: Given = None
    ) -> CountStream:
        """Read some lines at a time."""
        return self.entry_stream(matrix_market(path), row_names, column_names)

    def write(self, table: CountTable, path: Path) -> None:
        """Write the matrix alone."""
        with packed_if_named_so(path) as stream:
            scipy.io.mmwrite(stream, table.X, symmetry="general")


class Uci(StreamedFormat, NamedBeside):
    """UCI's ``docword.NAME.txt`` with ``vocab.NAME.txt`` beside it."""

    name = "uci"

    def stem(self, path: Path) -> str:
        """Return the part of a file's name that the files beside it begin with."""
        return base_name(path, (".txt",))

    def matches(self, path: Path) -> bool:
        """Whether the name begins as UCI's do."""
        return path.name.startswith("docword.")

    def stream(
        self, path: Path, *, row_names: Given = None, column_names: Given = None
    ) -> CountStream:
        """Read some lines at a time."""
        words = _vocabulary_of(path) if column_names is None else column_names
        return self.entry_stream(docword(path), row_names, words)


def _vocabulary_of(path: Path) -> Path:
    """File of words beside a ``docword`` file."""
    beside = path.name.removesuffix(".gz").replace("docword", "vocab", 1)
    words = path.with_name(beside)
    if "docword" not in path.name or not words.is_file():
        expected = beside if "docword" in path.name else "vocab.NAME.txt"
        way_out = f"If they are in another file, add {option('column_names', 'FILE')}."
        problem = f"its words should be beside it in {expected}, which does not exist. {way_out}"
        raise ReadError(path, problem)
    return words


class Svmlight(NamedBeside):
    """Lines of ``label index:count index:count ...``, as scikit-learn reads them."""

    name = "svmlight"
    endings = (".svmlight", ".libsvm", ".svm")
    may_be_packed = True

    def read(
        self,
        path: Path,
        *,
        row_names: Given = None,
        column_names: Given = None,
        zero_based: bool | str = "auto",
        n_features: int | None = None,
    ) -> CountTable:
        """Read the whole file, labels included."""
        from sklearn.datasets import load_svmlight_file

        name_file = self.file_beside(path, "column_names", column_names)
        if n_features is None and name_file is not None and name_file.is_file():
            # Features that no sample has are in the names alone.
            n_features = sum(1 for _ in byte_lines(name_file))
        problem = "scikit-learn cannot read it as svmlight"
        with parsed_by_others(path, problem, explain_svmlight), open_binary(path) as stream:
            X, labels = load_svmlight_file(stream, n_features=n_features, zero_based=zero_based)
        if first_wrong(X.data) is not None:
            explain_svmlight(path)
        check_size(path, [*X.shape, X.nnz])
        names = self.names_beside(path, X.shape, row_names, column_names)
        return table_of_file(path, X, **({"labels": [f"{n:.12g}" for n in labels]} | names))
