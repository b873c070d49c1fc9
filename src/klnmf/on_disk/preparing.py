"""From any source of counts to the folder of a prepared matrix, in bounded memory.

Two stages, each of which writes whole files: the rows, then from them the columns. A folder whose
rows are complete is gone on with.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from klnmf.on_disk.arrays import ArrayWriter
from klnmf.on_disk.layout import (
    FORMAT,
    HEADER,
    NAME_FILES,
    NPY_HEADER,
    VERSION,
    arrays_of,
    chunks,
    index_dtype,
    is_prepared,
    sha256,
    write_json,
)
from klnmf.on_disk.matrix import OnDiskMatrix, open_matrix
from klnmf.on_disk.sizes import parse_bytes
from klnmf.on_disk.sorting import Spool, transposed_blocks
from klnmf.on_disk.sources import Source, source_of_matrix, source_of_table, stream
from klnmf.on_disk.views import StoredView, open_view
from klnmf.readers import CountTable, read_counts
from klnmf.readers.files import ReadError
from klnmf.readers.formats import checked_options, format_of
from klnmf.readers.matrix_files import one_a_line
from klnmf.readers.table import first_wrong
from klnmf.sparse_data import SparseData
from klnmf.validation import EXACT_IN_FLOAT32, check_value_range, working_dtype

Array = npt.NDArray[Any]
PathLike = str | os.PathLike[str]
Say = Callable[[str], None]

# Memory that sorting takes for an entry, at its peak.
BYTES_PER_ENTRY = 100
PROGRESS = "progress.json"
_ROW_FILES = ("rows.indptr.npy", "rows.indices.npy", "rows.values.npy", "columns.indptr.npy")


def prepare(
    data: Any,
    path: PathLike,
    *,
    memory: str | int = "2G",
    dtype: Any = None,
    overwrite: bool = False,
    say: Say | None = None,
    format: str | None = None,
    layer: str | None = None,
    transpose: bool = False,
    **options: Any,
) -> OnDiskMatrix:
    """Write a matrix to a folder from which it can be fitted without being in memory.

    The folder appears when it is whole; until then it is ``PATH.partial``. Called again after it
    was killed, it goes on where the rows were complete, and begins anew where they were not. For a
    while it needs room on the disk for about three times the result.

    Files of the formats npz, mtx, uci (docword), h5ad (sparse), and csv, tsv or parquet with
    triplets are read in pieces. Others are read whole first, as :func:`klnmf.readers.read_counts`
    does, and ``say`` is told so.

    Parameters
    ----------
    data : path, CountTable, or matrix
        File or folder that :func:`klnmf.readers.read_counts` reads; or counts with their names; or
        a matrix alone, sparse or dense.
    path : path
        Folder to write.
    memory : str or int, default="2G"
        Bytes to work in, such as "512M", at least 1 MiB. Beside it there are two numbers for each
        row and column, names, and the longest row.
    dtype : None, float32 or float64
        Type of the values, and so of fits. By default the one that a fit of the same data in memory
        has.
    overwrite : bool, default=False
        Whether to replace a prepared matrix that is there.
    say : callable, default=None
        Called with lines on what is being done.
    format, layer, transpose, **options
        How a file is read, see :func:`klnmf.readers.read_counts`.

    Returns
    -------
    OnDiskMatrix
        What :func:`open_matrix` returns for the folder.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from klnmf.on_disk import prepare
    >>> from klnmf.readers import CountTable
    >>> table = CountTable([[2, 0], [1, 3]], ["letter", "report"], ["sea", "corn"])
    >>> with TemporaryDirectory() as folder:
    ...     matrix = prepare(table, Path(folder, "counts"))
    ...     matrix.shape, matrix.nnz, matrix.dtype.name, matrix.column_names.tolist()
    ((2, 2), 3, 'float32', ['sea', 'corn'])
    """
    limit = max(1, parse_bytes(memory) // BYTES_PER_ENTRY)
    target = Path(path).expanduser()
    if dtype is not None:
        dtype = working_dtype(np.zeros(0), dtype)
    if target.exists() and not (overwrite and is_prepared(target)):
        how = "Pass overwrite=True (--force)" if is_prepared(target) else "It is something else"
        raise FileExistsError(f"{target} exists already. {how}, or choose another name.")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"{target.parent}: there is no such folder to write to.")
    say = say or (lambda line: None)
    reading: dict[str, Any] = {
        "format": format,
        "layer": layer,
        "transpose": transpose,
        "options": options,
    }
    partial = target.with_name(f"{target.name}.partial")
    with _held(partial):
        identity = _identity(data, reading, dtype)
        facts = _resumed(partial, identity)
        if facts is None:
            _clear(partial)
            source = _source(data, say, **reading)
            facts = _write_rows(partial, source, limit, dtype, data)
            write_json(partial / PROGRESS, {"identity": identity, "facts": facts})
        else:
            say("going on: the rows are complete")
        say(f"{facts['nonzeros']:,} nonzeros by rows; now by columns")
        _write_columns(partial, facts, limit)
        say("checksums")
        _write_header(partial, facts)
        _put_in_place(partial, target)
    return open_matrix(target)


# ---- the folder ----------------------------------------------------------------------------------


@contextmanager
def _held(partial: Path) -> Iterator[None]:
    """Make the folder, and keep others from writing to it at the same time."""
    partial.mkdir(exist_ok=True)
    descriptor = os.open(partial, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise FileExistsError(
            f"{partial} is being written to by another process. Wait for it, or choose another "
            "name."
        ) from None
    try:
        yield
    except KeyboardInterrupt:
        raise  # what is there can be gone on with
    except Exception:
        if not (partial / PROGRESS).exists():
            shutil.rmtree(partial, ignore_errors=True)
        raise
    finally:
        os.close(descriptor)


def _identity(data: Any, reading: dict[str, Any], dtype: Any) -> dict[str, Any] | None:
    """Return what a half-written folder must come from; None for what is in memory."""
    if not isinstance(data, str | os.PathLike):
        return None
    file = Path(data).expanduser()
    if not file.exists():
        raise FileNotFoundError(f"{file}: there is no such file or folder.")
    about = file.stat()
    given = {k: v for k, v in reading.items() if k != "options"} | reading["options"]
    return {
        "file": str(file.resolve()),
        "bytes": about.st_size,
        "changed": about.st_mtime_ns,
        "reading": {name: repr(value) for name, value in sorted(given.items())},
        "dtype": None if dtype is None else np.dtype(dtype).name,
        "klnmf": version("klnmf"),
    }


def _resumed(partial: Path, identity: dict[str, Any] | None) -> dict[str, Any] | None:
    """Facts on rows that are complete and of the same data."""
    try:
        progress = json.loads((partial / PROGRESS).read_text(encoding="utf-8"))
        facts: dict[str, Any] = progress["facts"]
        sizes = {name: (partial / name).stat().st_size for name in facts["sizes"]}
    except (OSError, ValueError, KeyError, TypeError):
        return None
    same = identity is not None and progress.get("identity") == identity
    return facts if same and sizes == facts["sizes"] else None


def _clear(partial: Path) -> None:
    for entry in partial.iterdir():
        entry.unlink()


def _put_in_place(partial: Path, target: Path) -> None:
    (partial / PROGRESS).unlink()
    old = target.with_name(f"{target.name}.old")
    if target.exists():
        shutil.rmtree(old, ignore_errors=True)
        os.rename(target, old)
    os.rename(partial, target)
    shutil.rmtree(old, ignore_errors=True)


# ---- rows ----------------------------------------------------------------------------------------


def _source(
    data: Any,
    say: Say,
    *,
    format: str | None,
    layer: str | None,
    transpose: bool,
    options: dict[str, Any],
) -> Source:
    if isinstance(data, str | os.PathLike):
        file = Path(data).expanduser()
        name = format_of(file, format)
        if layer is not None:
            options = options | {"layer": layer}
        checked_options(name, options)
        if file.is_file() and file.stat().st_size == 0:
            raise ReadError(file, "the file is empty.")
        source = stream(file, name, options)
        if source is None:
            say(f"{file} cannot be read in pieces: it is read into memory as a whole")
            return source_of_table(read_counts(file, format=name, transpose=transpose, **options))
        return source.transposed() if transpose else source
    if format is not None or layer is not None or options:
        raise TypeError("format, layer and options are for files; the data are in memory.")
    if isinstance(data, CountTable):
        return source_of_table(data.transposed() if transpose else data)
    matrix = data if sp.issparse(data) else np.asarray(data)
    if matrix.ndim != 2 or matrix.dtype.kind not in "biuf":
        raise ValueError(
            "data must be a path, a CountTable, or a two-dimensional matrix of real numbers; got "
            f"{type(data).__name__} with {matrix.ndim} dimensions of type {matrix.dtype}."
        )
    return source_of_matrix(matrix.T if transpose else matrix, {}, as_counts=False)


def _write_rows(partial: Path, source: Source, limit: int, dtype: Any, data: Any) -> dict[str, Any]:
    """Write the rows, and where the columns will begin; returns what is known of the matrix."""
    if source.blocks is None:
        assert source.fill is not None
        spool = Spool(partial / "entries.spool")
        try:
            found = source.fill(spool, limit)
        finally:
            spool.close()
        if isinstance(found, CountTable):
            source = source_of_table(found)
        else:
            source.shape, source.names = found
            shape = source.shape
            source.blocks = lambda size: spool.row_blocks(shape, size)
    shape = source.shape
    if 0 in shape:
        raise ValueError(f"A matrix of {shape[0]} × {shape[1]} cannot be fitted: it is empty.")
    assert source.blocks is not None
    with ExitStack() as stack:
        indptr = stack.enter_context(ArrayWriter(partial / "rows.indptr.npy", "<i8"))
        indices = stack.enter_context(
            ArrayWriter(partial / "rows.indices.npy", index_dtype(shape[1]))
        )
        values = stack.enter_context(ArrayWriter(partial / "rows.values.npy", "<f4"))
        rows = _RowsSeen(shape, data)
        indptr.append(np.zeros(1, np.int64))
        for block in source.blocks(limit):
            block = rows.checked(block)
            if values.dtype == np.float32 and not _is_exact(block.data):
                values.convert("<f8")
            indptr.append(block.indptr[1:].astype(np.int64) + indices.length)
            indices.append(block.indices)
            values.append(block.data)
        target = rows.dtype(source, dtype)
        check_value_range(rows.smallest, rows.largest, rows.total, target)
        values.convert(target)
        nonzeros = indices.length
    with ArrayWriter(partial / "columns.indptr.npy", "<i8") as ends:
        ends.append(np.concatenate([[0], np.cumsum(rows.column_counts)]))
    for leftover in partial.glob("*.spool"):
        leftover.unlink()
    files = list(_ROW_FILES)
    for what, file in NAME_FILES.items():
        names = source.names.get(what)
        if names is not None:
            (partial / file).write_bytes(one_a_line([str(name) for name in names], what))
            files.append(file)
    return {
        "shape": list(shape),
        "nonzeros": nonzeros,
        "dtype": target.newbyteorder("<").str,
        "whole": rows.whole and rows.largest < 2**53,
        "smallest": rows.smallest if nonzeros else 0.0,
        "largest": rows.largest,
        "open_features": source.open_features,
        "sizes": {name: (partial / name).stat().st_size for name in files},
    }


def _is_exact(values: Array) -> bool:
    with np.errstate(over="ignore"):
        return bool(np.array_equal(values.astype(np.float32), values))


class _RowsSeen:
    """Blocks of rows in canonical form, and what has been seen in them."""

    def __init__(self, shape: tuple[int, int], data: Any) -> None:
        self.place = Path(data) if isinstance(data, str | os.PathLike) else None
        self.column_counts = np.zeros(shape[1], dtype=np.int64)
        self.done = 0
        self.smallest, self.largest, self.total = float("inf"), 0.0, 0.0
        self.whole, self.were_canonical = True, True

    def checked(self, block: sp.csr_array) -> sp.csr_array:
        """Sorted, without duplicates and zeros; or an error with the place of the wrong value."""
        wrong = first_wrong(block.data)
        if wrong is not None:
            row = int(np.searchsorted(block.indptr, wrong, side="right")) - 1 + self.done
            message = (
                f"row {row}, column {block.indices[wrong]} holds {block.data[wrong]}; counts are "
                "finite numbers of 0 or more."
            )
            raise ValueError(message) if self.place is None else ReadError(self.place, message)
        if not block.has_canonical_format or not block.data.all():
            self.were_canonical = False
            wide = np.float64 if block.dtype.kind == "f" else np.int64
            arrays = block.data.astype(wide), block.indices.copy(), block.indptr.copy()
            block = sp.csr_array(arrays, shape=block.shape)
            block.sum_duplicates()
            block.eliminate_zeros()
        self.done += block.shape[0]
        if block.nnz:
            self.smallest = min(self.smallest, float(block.data.min()))
            self.largest = max(self.largest, float(block.data.max()))
            self.total += float(block.data.sum(dtype=np.float64))
            self.whole = self.whole and bool((block.data == np.rint(block.data)).all())
            self.column_counts += np.bincount(block.indices, minlength=len(self.column_counts))
        return block

    def dtype(self, source: Source, requested: Any) -> np.dtype[Any]:
        """Type that a fit in memory would compute in."""
        if requested is not None:
            return working_dtype(np.zeros(0), requested)
        given = source.dtype
        counts = self.whole and self.largest <= np.iinfo(np.int32).max
        if given.kind in "biu" or (source.as_counts and counts):
            return np.dtype(np.float32 if self.largest < EXACT_IN_FLOAT32 else np.float64)
        if source.as_counts and not self.were_canonical:
            return np.dtype(np.float64)  # sums were taken in it
        return np.dtype(np.float32 if given.itemsize <= 4 else np.float64)


# ---- columns and header --------------------------------------------------------------------------


def _view(partial: Path, facts: dict[str, Any], mode: int) -> StoredView:
    shape = tuple(facts["shape"])
    return open_view(partial, mode, shape, facts["nonzeros"], np.dtype(facts["dtype"]))


def _write_columns(partial: Path, facts: dict[str, Any], limit: int) -> None:
    view = _view(partial, facts, 0)
    counts = np.diff(np.load(partial / "columns.indptr.npy", mmap_mode="r"))
    dtype = index_dtype(facts["shape"][0])
    for leftover in partial.glob("*.bucket"):
        leftover.unlink()
    with (
        ArrayWriter(partial / "columns.indices.npy", dtype) as indices,
        ArrayWriter(partial / "columns.values.npy", facts["dtype"]) as values,
    ):
        for rows, entries in transposed_blocks(view, counts, limit, partial):
            indices.append(rows)
            values.append(entries)
    view.release()


class _Measured(SparseData):
    """The same sums as of a matrix in memory, taken by the same code."""

    def __init__(self, view: StoredView, shape: tuple[int, int]) -> None:
        self.shape, self.dtype, self._by_rows = shape, view.values.dtype, view


def _write_header(partial: Path, facts: dict[str, Any]) -> None:
    shape = tuple(facts["shape"])
    for mode, name in enumerate(("rows", "columns")):
        view = _view(partial, facts, mode)
        with ArrayWriter(partial / f"{name}.sums.npy", "<f8") as sums:
            sums.append(view.row_sums)
        if mode == 0:
            measured = _Measured(view, shape)
            known = {
                "total": measured.total,
                "divergence_constant": measured.divergence_constant,
                "exact_in_float32": measured.is_exact_in_float32,
                "checksum": _fingerprint(partial),
            }
        view.release()
    arrays = arrays_of(shape, facts["nonzeros"], np.dtype(facts["dtype"]))
    names = [*arrays, *(file for file in NAME_FILES.values() if (partial / file).exists())]
    files = {
        name: {"bytes": (partial / name).stat().st_size, "sha256": sha256(partial / name)}
        for name in names
    }
    header = {"format": FORMAT, "version": VERSION, "klnmf": version("klnmf")}
    content = {name: value for name, value in facts.items() if name != "sizes"}
    write_json(partial / HEADER, {**header, **content, **known, "files": files})


def _fingerprint(partial: Path) -> int:
    """Checksum that :attr:`SparseData.fingerprint` of the same matrix in memory has."""
    checksum = 0
    for name in _ROW_FILES[:3]:
        skipped = NPY_HEADER
        for piece in chunks(partial / name):
            checksum = zlib.crc32(piece[skipped:], checksum)
            skipped = 0
    return checksum
