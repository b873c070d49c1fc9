"""What tables and triplets of named counts have in common, in text and in Parquet."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from klnmf.data.streams import CountStream, Outline
from klnmf.readers.table import CountTable
from klnmf.support.descriptions import described
from klnmf.support.input_files import ReadError
from klnmf.support.option_names import option

# Triplets that are written at a time.
WRITTEN_BLOCK = 1 << 18


class Numbering:
    """Numbers names in the order in which they first appear."""

    def __init__(self) -> None:
        self._numbers: defaultdict[str, int] = defaultdict()
        self._numbers.default_factory = self._numbers.__len__

    def numbers(self, names: Iterable[str]) -> list[int]:
        """Return the number of each name."""
        return list(map(self._numbers.__getitem__, names))

    def names(self) -> list[str]:
        """Names by their numbers."""
        return list(self._numbers)


def triplet_stream(path: Path, blocks: Any) -> CountStream:
    """Stream of ``blocks(rows, columns)``, which number names, those with a count of 0 too."""
    rows, columns = Numbering(), Numbering()

    def outline() -> Outline:
        names = {"row_names": rows.names(), "column_names": columns.names()}
        if not names["row_names"]:
            raise ReadError(path, "there are no counts in this file.")
        shape = len(names["row_names"]), len(names["column_names"])
        return Outline(shape, names | {"open_features": True})

    return CountStream(lambda limit: blocks(rows, columns), outline)


def check_layout(layout: str | None, columns: Sequence[str] | None) -> None:
    """Refuse a layout that does not exist, and columns that it does not have."""
    if layout not in (None, "table", "triplets"):
        raise ValueError(f"layout must be None, 'table' or 'triplets'; got {described(layout)}.")
    if layout == "table" and columns is not None:
        raise ValueError(
            f"{option('columns')} names the columns of triplets, and cannot be used with "
            f"{option('layout', 'table')}."
        )


def positions_of(path: Path, columns: Sequence[str], header: Sequence[str]) -> list[int]:
    """Where the columns of row, column and (if there is one) count are in the header."""
    if isinstance(columns, str) or len(columns) not in (2, 3):
        raise ValueError(
            f"{option('columns')} must name the columns of row, column and count, or of row and "
            f"column only; got {described(columns)}."
        )
    missing = [name for name in columns if name not in header]
    if missing:
        problem = f"there is no column {missing[0]!r}; the columns are: {', '.join(header)}."
        raise ReadError(path, problem)
    return [list(header).index(name) for name in columns]


def triplet_blocks(table: CountTable) -> Iterator[tuple[list[str], list[str], list[float]]]:
    """Blocks of rows, columns and counts from which the table can be read again as it is.

    The first row is given in full, zeros included, and so are the first entries of empty rows: the
    names come back in their order, those without counts too.
    """
    n_rows, n_columns = table.shape
    if not n_rows or not n_columns:
        raise ValueError(f"A table of {n_rows} × {n_columns} has no triplets to write.")
    row_names = _unique(table.row_names, n_rows, "row_names")
    column_names = _unique(table.column_names, n_columns, "column_names")
    X = table.X
    yield [row_names[0]] * n_columns, column_names.tolist(), X[[0]].toarray().ravel().tolist()
    start = 1
    while start < n_rows:
        stop = int(np.searchsorted(X.indptr, X.indptr[start] + WRITTEN_BLOCK, side="right"))
        # At least one row; and a bounded number of them where they are empty.
        stop = min(max(stop - 1, start + 1), start + WRITTEN_BLOCK, n_rows)
        lengths = np.diff(X.indptr[start : stop + 1])
        rows = np.repeat(np.arange(start, stop), np.maximum(lengths, 1))
        filled = np.repeat(lengths > 0, np.maximum(lengths, 1))
        columns, counts = np.zeros(len(rows), np.intp), np.zeros(len(rows), X.dtype)
        entries = slice(X.indptr[start], X.indptr[stop])
        columns[filled], counts[filled] = X.indices[entries], X.data[entries]
        yield row_names[rows].tolist(), column_names[columns].tolist(), counts.tolist()
        start = stop


def _unique(names: Any, size: int, what: str) -> npt.NDArray[Any]:
    if names is None:
        return np.array([str(i) for i in range(size)], dtype=object)
    repeated = [name for name, times in Counter(names).items() if times > 1]
    if repeated:
        raise ValueError(
            f"{what} has {repeated[0]!r} more than once, and triplets would add the counts of "
            "both. Make the names unique, or write .npz, .mtx or .h5ad."
        )
    return np.asarray(names, dtype=object)
