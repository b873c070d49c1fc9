"""From any source of counts to the folder of a prepared matrix, in bounded memory.

Two stages, each of which writes whole files: the rows, then from them the columns. A folder whose
rows are complete is gone on with.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from klnmf.data.matrix_checks import checked_matrix
from klnmf.data.on_disk.layout import is_prepared, write_json
from klnmf.data.on_disk.matrix import OnDiskMatrix, open_matrix
from klnmf.data.on_disk.sizes import parse_bytes
from klnmf.data.on_disk.verification import check_rows
from klnmf.data.validation import working_dtype
from klnmf.preparing.stages import write_columns, write_header, write_rows
from klnmf.readers import CountTable, read_counts
from klnmf.readers.formats import format_to_read, say_if_transposed
from klnmf.readers.pruning import PRUNING_OPTIONS
from klnmf.readers.streams import CountStream, stream_of_matrix, stream_of_table
from klnmf.support.file_locks import locked_folder
from klnmf.support.input_files import not_there
from klnmf.support.untrusted_json import read_json
from klnmf.support.whole_files import naming

PathLike = str | os.PathLike[str]
Say = Callable[[str], None]

# Memory that sorting takes for an entry, at its peak.
BYTES_PER_ENTRY = 100
PROGRESS = "progress.json"


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

    Until the folder is complete, its name is ``PATH.partial``. If the process is killed, call the
    function again: it continues if all rows were written, and otherwise starts from the beginning.
    For a while it needs disk space for about three times the result.

    Files are read in blocks; texts are read twice, first to choose the words. Some are first read
    into memory, and ``say`` is called with a line about it: svmlight, unusual .npz files, and
    counts of which ``min_df``, ``max_df``, ``max_features`` or ``stop_words`` leave out features.

    Parameters
    ----------
    data : path, CountTable, or matrix
        File or folder that :func:`klnmf.readers.read_counts` reads, or counts with their names, or
        a matrix, sparse or dense.
    path : path
        Folder to write.
    memory : str or int, default="2G"
        Memory to work in, such as "512M", at least 1 MiB. In addition, two numbers per row and
        column, names, the longest row, and about 30 MB are in memory.
    dtype : None, float32 or float64
        Type of the values, and so of fits. By default the type that a fit of the same data in
        memory has.
    overwrite : bool, default=False
        Whether to replace an existing prepared matrix.
    say : callable, default=None
        Called with lines about the progress.
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
    >>> from klnmf.preparing import prepare
    >>> from klnmf.readers import CountTable, read_counts
    >>> table = CountTable([[2, 0], [1, 3]], ["letter", "report"], ["sea", "corn"])
    >>> with TemporaryDirectory() as folder:
    ...     matrix = prepare(table, Path(folder, "counts"))
    ...     matrix.shape, matrix.nnz, matrix.dtype.name, matrix.column_names.tolist()
    ((2, 2), 3, 'float32', ['sea', 'corn'])
    """
    limit = max(1, parse_bytes(memory) // BYTES_PER_ENTRY)
    target = Path(os.path.expanduser(path))
    if dtype is not None:
        dtype = working_dtype(np.zeros(0), dtype)
    if target.exists() and not (overwrite and is_prepared(target)):
        how = "It is not a prepared matrix: choose another name."
        if is_prepared(target):
            how = "Pass overwrite=True to replace it, or choose another name."
        raise FileExistsError(f"{target} exists already. {how}")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"{target.parent}: there is no such folder to write to.")
    say = say or (lambda line: None)
    reading: dict[str, Any] = {"format": format, "layer": layer, "transpose": transpose}
    partial = target.with_name(f"{target.name}.partial")
    with _held(partial):
        identity = _identity(data, reading | options, dtype)
        facts = _resumed(partial, identity)
        if facts is None:
            for leftover in partial.iterdir():
                leftover.unlink()
            place = Path(data) if isinstance(data, str | os.PathLike) else None
            stream = _stream(data, say, options, **reading)
            facts = write_rows(partial, stream, limit, dtype, place)
            write_json(partial / PROGRESS, {"identity": identity, "facts": facts})
        else:
            say("continuing: the rows are complete")
        say(f"{facts['nonzeros']:,} nonzeros by rows; now by columns")
        write_columns(partial, facts, limit)
        say("checksums")
        write_header(partial, facts)
        _put_in_place(partial, target)
    matrix = open_matrix(target)
    whose = str(data) if isinstance(data, str | os.PathLike) else "data"
    say_if_transposed(whose, matrix.row_names, matrix.column_names, transpose)
    return matrix


# ---- the folder ----------------------------------------------------------------------------------


@contextmanager
def _held(partial: Path) -> Iterator[None]:
    """Make the folder, and keep others from writing to it at the same time."""
    partial.mkdir(exist_ok=True)
    with ExitStack() as held:
        try:
            held.enter_context(locked_folder(partial))
        except BlockingIOError:
            problem = f"{partial} is being written to by another process."
            raise FileExistsError(f"{problem} Wait for it, or choose another name.") from None
        try:
            with naming(partial):
                yield
        except Exception:  # not KeyboardInterrupt: what is there can be gone on with
            if not (partial / PROGRESS).exists():
                shutil.rmtree(partial, ignore_errors=True)
            raise


def _identity(data: Any, reading: dict[str, Any], dtype: Any) -> dict[str, Any] | None:
    """Return what a half-written folder must come from; None for what is in memory."""
    if not isinstance(data, str | os.PathLike):
        return None
    file = Path(os.path.expanduser(data))
    if not file.exists():
        raise not_there(file)
    about = file.stat()

    return {
        "file": str(file.resolve()),
        "bytes": about.st_size,
        "changed": about.st_mtime_ns,
        "reading": {name: repr(value) for name, value in sorted(reading.items())},
        "dtype": None if dtype is None else np.dtype(dtype).name,
        "klnmf": version("klnmf"),
    }


def _resumed(partial: Path, identity: dict[str, Any] | None) -> dict[str, Any] | None:
    """Facts on rows that are complete and of the same data."""
    try:
        progress = read_json(partial / PROGRESS)
        facts: dict[str, Any] = progress["facts"]
        if identity is None or progress["identity"] != identity:
            return None
        sizes = {name: (partial / name).stat().st_size for name in facts["sizes"]}
        if sizes != facts["sizes"]:
            return None
        check_rows(partial, facts)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return facts


def _put_in_place(partial: Path, target: Path) -> None:
    (partial / PROGRESS).unlink()
    old = target.with_name(f"{target.name}.old")
    if target.exists():
        shutil.rmtree(old, ignore_errors=True)
        os.rename(target, old)
    os.rename(partial, target)
    shutil.rmtree(old, ignore_errors=True)


# ---- the stream ----------------------------------------------------------------------------------


def _stream(
    data: Any,
    say: Say,
    options: dict[str, Any],
    *,
    format: str | None,
    layer: str | None,
    transpose: bool,
) -> CountStream:
    if isinstance(data, str | os.PathLike):
        file = Path(os.path.expanduser(data))
        options = options if layer is None else options | {"layer": layer}
        found = format_to_read(file, format, options)
        if PRUNING_OPTIONS & set(options) - found.options:
            # Which features are kept is known at the end alone, and they are numbered anew.
            read = partial(read_counts, file, format=format, transpose=transpose, **options)
            stream, transpose = stream_of_table(read), False
        else:
            stream = found.stream(file, **options)
        if stream.is_whole:
            say(f"{file} cannot be read in pieces: it is read into memory as a whole")
        return stream.transposed() if transpose else stream
    if format is not None or layer is not None or options:
        raise TypeError("format, layer and options are for files; the data are in memory.")
    if isinstance(data, CountTable):
        return stream_of_table(data.transposed if transpose else lambda: data)
    matrix = checked_matrix(data, "data")
    matrix = matrix if sp.issparse(matrix) else np.asarray(matrix)
    if matrix.ndim != 2 or matrix.dtype.kind not in "biuf":
        raise ValueError(
            "data must be a path, a CountTable, or a two-dimensional matrix of real numbers; got "
            f"{type(data).__name__} with {matrix.ndim} dimensions of type {matrix.dtype}."
        )
    matrix = checked_matrix(sp.csr_array(matrix.T if transpose else matrix))
    return stream_of_matrix(matrix, as_counts=False)
