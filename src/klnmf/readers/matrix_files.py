"""Matrices without names inside the file: .npz, .mtx and UCI's docword; and prepared folders.

Names are in files beside the matrix, one per line: ``NAME.rows.txt``, ``NAME.columns.txt`` (or
``NAME.vocab.txt``) and ``NAME.labels.txt`` for ``NAME.npz``, ``NAME.mtx`` and so on. Each of them
is optional.
"""

import math
import os
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io
import scipy.sparse as sp

from klnmf.data.canonical import Entries
from klnmf.data.matrix_checks import csr_from_parts
from klnmf.data.names import one_per_line
from klnmf.data.streams import (
    CountStream,
    Outline,
    compressed_blocks,
    compressed_stream,
    stream_of_matrix,
)
from klnmf.readers.entries import EntryFile, check_size, docword, matrix_market
from klnmf.readers.format import Format
from klnmf.readers.npz_arrays import npz_array, opened_npz
from klnmf.readers.table import CountTable, table_of_file
from klnmf.support.input_files import (
    ReadError,
    base_name,
    read_names,
)
from klnmf.support.npy_headers import read_npy_header
from klnmf.support.option_names import option
from klnmf.support.whole_files import packed_if_named_so

Given = str | os.PathLike[str] | None  # path of a file with names
# The first that exists is read; the first is written.
BESIDE = {
    "row_names": (".rows.txt",),
    "column_names": (".columns.txt", ".vocab.txt"),
    "labels": (".labels.txt",),
}
_NOT_SPARSE = "this is not a matrix that scipy.sparse.save_npz wrote"
_BROKEN = f"{_NOT_SPARSE}, or it is cut off"


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


# ---- .npz ----------------------------------------------------------------------------------------


class Npz(NamedBeside):
    """Matrix that ``scipy.sparse.save_npz`` wrote."""

    name = "npz"
    endings = (".npz",)

    def stream(
        self, path: Path, *, row_names: Given = None, column_names: Given = None
    ) -> CountStream:
        """Read a CSR or CSC matrix in blocks, and a COO matrix whole."""
        with opened_npz(path, _BROKEN) as (archive, held):
            kind, shape, dtype = _npz_header(path, archive, held)
            if kind == "coo":
                names = self.names_beside(path, shape, row_names, column_names)
                parts = {name: npz_array(archive, name) for name in ("data", "row", "col")}
                return stream_of_matrix(csr_from_parts(kind, parts, shape, "the matrix"), names)
        names = self.names_beside(path, shape, row_names, column_names)
        blocks = partial(_npz_blocks, path, kind, shape)
        return compressed_stream(blocks, Outline(shape, names, dtype), kind)

    def write(self, table: CountTable, path: Path) -> None:
        """Write the matrix alone, with ``scipy.sparse.save_npz``."""
        with path.open("wb") as stream:  # to a path of another ending it would add its own
            sp.save_npz(stream, table.X)


def _npz_blocks(path: Path, form: str, shape: tuple[int, int], limit: int) -> Iterator[Entries]:
    """Blocks of a CSR matrix, or of a CSC matrix taken as its transpose."""
    shape = shape if form == "csr" else shape[::-1]
    with opened_npz(path, _BROKEN) as (archive, _), ExitStack() as stack:
        indptr = npz_array(archive, "indptr")
        members = [stack.enter_context(archive.open(f"{name}.npy")) for name in ("indices", "data")]
        heads = [read_npy_header(member) for member in members]
        if len(heads[0][1]) != 1 or heads[0][1] != heads[1][1]:
            problem = f"indices have the shape {heads[0][1]}, and values {heads[1][1]}."
            raise ReadError(path, problem)

        def take(first: int, last: int) -> Any:
            for member, (dtype, _, _) in zip(members, heads, strict=True):
                yield np.frombuffer(member.read((last - first) * dtype.itemsize), dtype)

        yield from compressed_blocks(path, shape, indptr, take, limit, form=form)


def _npz_header(
    path: Path, archive: zipfile.ZipFile, names: set[str]
) -> tuple[str, tuple[int, int], np.dtype[Any]]:
    """Format, shape and type of a matrix that ``scipy.sparse.save_npz`` wrote."""
    if not {"format", "shape", "data"} <= names:
        held = ", ".join(sorted(names)[:5]) or "none"
        problem = f"{_NOT_SPARSE}, but NumPy's arrays ({held}). Save a two-dimensional X "
        problem += "with scipy.sparse.save_npz(path, scipy.sparse.csr_array(X))."
        raise ReadError(path, problem)
    kind = str(npz_array(archive, "format").astype("U"))
    if kind not in ("csr", "csc", "coo"):
        problem = f"the matrix has the sparse format {kind[:10]!r}; expected csr, csc or coo."
        raise ReadError(path, f"{problem} Save scipy.sparse.csr_array(X).")
    shape = tuple(npz_array(archive, "shape").tolist())
    if len(shape) != 2 or not all(isinstance(size, int) and size >= 0 for size in shape):
        raise ReadError(path, f"its shape is {shape}; counts have two dimensions.")
    with archive.open("data.npy") as member:
        dtype, lengths, _ = read_npy_header(member)
    if dtype.kind not in "biuf":
        raise ReadError(path, f"Counts must be real numbers; got the type {dtype}.")
    check_size(path, [*shape, math.prod(lengths)])
    return kind, (shape[0], shape[1]), dtype


# ---- text ----------------------------------------------------------------------------------------


class Mtx(NamedBeside):
    """Matrix Market file with one entry per line."""

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


class Uci(NamedBeside):
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


class Prepared(Format):
    """Folder that ``klnmf prepare`` wrote."""

    name = "prepared"
    is_folder = True

    def matches(self, path: Path) -> bool:
        """Whether the folder has the first files of a prepared matrix."""
        return (path / "header.json").is_file() and (path / "rows.indptr.npy").is_file()

    def read(self, path: Path) -> CountTable:
        """Read all of it, after its checksums."""
        from klnmf.data.on_disk.matrix import open_matrix

        matrix = open_matrix(path)
        names = (matrix.row_names, matrix.column_names, matrix.labels)
        return table_of_file(path, matrix.as_csr().copy(), *names, matrix.open_features)
