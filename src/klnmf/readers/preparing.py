"""From any source of counts to the folder of a matrix on disk, in bounded memory."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from klnmf.data.matrix_checks import checked_matrix
from klnmf.data.on_disk.layout import is_prepared, parse_bytes
from klnmf.data.on_disk.matrix import OnDiskMatrix, open_matrix
from klnmf.data.on_disk.writing import new_folder, write_columns, write_header, write_rows
from klnmf.data.streams import CountStream, stream_of_matrix
from klnmf.data.validation import working_dtype
from klnmf.readers.formats import format_to_read, read_counts, say_if_transposed
from klnmf.readers.table import CountTable
from klnmf.support.input_files import not_there
from klnmf.texts.pruning import PRUNING_OPTIONS

PathLike = str | os.PathLike[str]

# Memory that sorting takes for an entry, at its peak.
BYTES_PER_ENTRY = 100


def prepare(
    data: Any,
    path: PathLike,
    *,
    memory: str | int = "2G",
    dtype: Any = None,
    overwrite: bool = False,
    say: Callable[[str], None] | None = None,
    format: str | None = None,
    layer: str | None = None,
    transpose: bool = False,
    **options: Any,
) -> OnDiskMatrix:
    """Write a matrix to a folder from which it can be fitted without being in memory.

    Until the folder is complete, its name is ``PATH.partial``. For a while it needs disk space for
    about three times the result.

    Files are read in blocks; texts are read twice, first to choose the words. Some are first read
    into memory: .npz files of other formats than CSR and CSC, and counts of which
    ``min_df``, ``max_df``, ``max_features`` or ``stop_words`` leave out features.

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
    >>> from klnmf import prepare
    >>> from klnmf.readers import CountTable
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
    is_file = isinstance(data, str | os.PathLike)
    place = Path(os.path.expanduser(data)) if is_file else None
    if place is not None and not place.exists():
        raise not_there(place)
    with new_folder(target) as folder:
        stream = _stream(data, options, format=format, layer=layer, transpose=transpose)
        facts = write_rows(folder, stream, limit, dtype, place)
        say(f"{facts['nonzeros']:,} nonzeros by rows; now by columns")
        write_columns(folder, facts, limit)
        say("checksums")
        write_header(folder, facts)
    matrix = open_matrix(target)
    whose = str(data) if is_file else "data"
    say_if_transposed(whose, matrix.row_names, matrix.column_names, transpose)
    return matrix


def _stream(
    data: Any,
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
            table = read_counts(file, format=format, transpose=transpose, **options)
            return stream_of_matrix(table.X, table.about)
        stream = found.stream(file, **options)
        return stream.transposed() if transpose else stream
    if format is not None or layer is not None or options:
        raise TypeError("format, layer and options are for files; the data are in memory.")
    if isinstance(data, CountTable):
        table = data.transposed() if transpose else data
        return stream_of_matrix(table.X, table.about)
    matrix = checked_matrix(data, "data")
    matrix = matrix if sp.issparse(matrix) else np.asarray(matrix)
    if matrix.ndim != 2 or matrix.dtype.kind not in "biuf":
        raise ValueError(
            "data must be a path, a CountTable, or a two-dimensional matrix of real numbers; got "
            f"{type(data).__name__} with {matrix.ndim} dimensions of type {matrix.dtype}."
        )
    matrix = checked_matrix(sp.csr_array(matrix.T if transpose else matrix))
    return stream_of_matrix(matrix, as_counts=False)
