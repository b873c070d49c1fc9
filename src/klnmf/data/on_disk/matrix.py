"""A prepared matrix: opened at once, and read in pieces by every half-step."""

import copy
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp

from klnmf.data.observed_data import ObservedData
from klnmf.data.on_disk.layout import MODES, NAME_FILES, check_files, parse_bytes, read_header
from klnmf.data.on_disk.verification import check_contents, is_verified
from klnmf.data.on_disk.views import MappedView, open_rows
from klnmf.data.sparse_data import CountData, DataConstraints
from klnmf.data.sums import ROWS_PER_SUM
from klnmf.support.array_types import Array
from klnmf.support.input_files import ReadError, read_names
from klnmf.support.number_checks import checked_flag


class OnDiskData(CountData):
    """A matrix on disk as solvers see it; all that would take a pass over it is in its header."""

    def __init__(self, folder: Path, header: dict[str, Any], piece_bytes: int) -> None:
        self.folder = folder
        self.shape, self.dtype = tuple(header["shape"]), np.dtype(header["dtype"])
        self._views = []
        for mode, name in enumerate(MODES):
            stored, sums = open_rows(folder, mode, header), np.load(folder / f"{name}.sums.npy")
            self._views.append(MappedView(stored, sums, piece_bytes))
        self.total = float(header["total"])
        self.is_exact_in_float32 = header["exact_in_float32"]
        self.divergence_constant = float(header["divergence_constant"])
        checksum = header["checksum"]
        self.fingerprint = (self.shape, header["nonzeros"], self.dtype.str, checksum)

    def view(self, mode: int) -> MappedView:
        """See :class:`CountData`."""
        return self._views[mode]

    def constrained(self, constraints: DataConstraints) -> CountData:
        """See :class:`CountData`."""
        if constraints.cell_weights(0) is not None:
            return ObservedData(self, constraints)
        data = copy.copy(self)  # on the same open files
        data.constraints = constraints
        data._views = [
            view.with_row_constraints(constraints.row_constraints(mode))
            for mode, view in enumerate(self._views)
        ]
        return data


class OnDiskMatrix:
    """A matrix on disk, written by :func:`klnmf.prepare` and opened by :func:`open_matrix`.

    ``KLNMF.fit``, ``fit_transform``, ``transform`` and ``score`` take it as X.

    Attributes
    ----------
    path : Path
        Its folder.
    shape : tuple of int
        Samples and features.
    nnz : int
        Nonzeros.
    dtype : dtype
        Type of the values, and so of the fit.
    row_names, column_names, labels : ndarray of str (dtype object), or None
        Names of samples and features, and classes of the samples.
    open_features : bool
        Whether absent features have the count 0, see :class:`~klnmf.readers.CountTable`.
    """

    ndim = 2

    def __init__(self, path: Path, header: dict[str, Any], memory: int) -> None:
        self.path, self._header, self._memory = path, header, memory
        # One piece is worked on while the next is read.
        self.data = OnDiskData(path, header, piece_bytes=memory // 2)
        self.shape, self.nnz, self.dtype = self.data.shape, self.data.nnz, self.data.dtype
        self.open_features: bool = header["open_features"]
        for what, size, axis in (
            ("row_names", self.shape[0], "rows"),
            ("column_names", self.shape[1], "columns"),
            ("labels", self.shape[0], "rows"),
        ):
            names = None
            if NAME_FILES[what] in header["files"]:
                names = np.empty(size, dtype=object)
                names[:] = read_names(path / NAME_FILES[what], size, f"{axis} of the matrix")
            setattr(self, what, names)

    row_names: Array | None
    column_names: Array | None
    labels: Array | None

    @property
    def holds_whole_numbers(self) -> bool:
        """Whether every value is a whole number that a 64-bit integer holds exactly."""
        return bool(self._header["whole"])

    def as_csr(self) -> sp.csr_array:
        """Return the matrix as a SciPy array on memory maps; SciPy may copy it into memory."""
        return self.data.view(0).as_csr()

    def row_blocks(self, n_rows: int = ROWS_PER_SUM) -> Iterator[sp.csr_array]:
        """All rows in order, as matrices in memory of ``n_rows`` rows each."""
        view = self.data.view(0)
        for start in range(0, self.shape[0], n_rows):
            rows = np.arange(start, min(start + n_rows, self.shape[0]))
            indptr, indices, values = view.take_rows(rows)
            yield sp.csr_array((values, indices, indptr), shape=(len(rows), self.shape[1]))

    def sum(self) -> float:
        """Sum of all values."""
        return self.data.total

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        n, m = self.shape
        return f"OnDiskMatrix({str(self.path)!r}: {n:,} × {m:,}, {self.nnz:,} nonzeros)"

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopened, (self.path.resolve(), self._header, self._memory)

    def check_unchanged(self) -> None:
        """Refuse a matrix whose files were changed since it was opened."""
        for mode in (0, 1):
            stored = self.data.view(mode).stored
            stored.indices.check_unchanged()
            stored.values.check_unchanged()

    def verify(self) -> None:
        """Read all files; check their checksums, and that indices and values are valid.

        Raises
        ------
        ReadError
            With the name of the file that is damaged.
        """
        check_contents(self.path, self._header)


def open_matrix(
    path: str | os.PathLike[str],
    *,
    verify: bool | Literal["auto"] = "auto",
    memory: str | int = "256M",
) -> OnDiskMatrix:
    """Open a matrix that ``klnmf prepare`` or :func:`klnmf.prepare` wrote.

    Parameters
    ----------
    path : path
        The folder.
    verify : bool or "auto", default="auto"
        Whether to read and check all files, which takes about two seconds per gigabyte. "auto"
        does so if a file was changed or copied since the last check, which is recorded in the
        folder if that is writable. True also finds the damage of a failing disk. Sizes, types and
        the order of the rows are always checked.
    memory : str or int, default="256M"
        Bytes of the matrix that a fit holds in memory at a time, beside the factors: half is used
        while the other half is read. A row or column that is longer is read as a whole.

    Returns
    -------
    OnDiskMatrix

    Raises
    ------
    ReadError
        If a file is missing, cut off or damaged; a kind of ValueError.

    Examples
    --------
    >>> import os, tempfile
    >>> import klnmf
    >>> from klnmf.datasets import load_bible
    >>> X = load_bible().data
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "bible")
    ...     matrix = klnmf.prepare(X, path)
    ...     matrix = klnmf.open_matrix(path)
    ...     W = klnmf.KLNMF(5, random_state=0).fit_transform(matrix)
    >>> bool((W == klnmf.KLNMF(5, random_state=0).fit_transform(X)).all())
    True
    """
    is_wanted = checked_flag("verify", verify)
    budget = parse_bytes(memory, least=1)
    folder = Path(os.path.expanduser(path))
    if not folder.exists() and not folder.with_name(f"{folder.name}.partial").exists():
        raise FileNotFoundError(f"{folder}: no such folder.")
    header = read_header(folder)
    check_files(folder, header)
    if is_wanted or (is_wanted is None and not is_verified(folder, header)):
        check_contents(folder, header)
    return OnDiskMatrix(folder, header, budget)


def _reopened(path: Path, header: dict[str, Any], memory: int) -> OnDiskMatrix:
    """Open a matrix that was pickled; its contents were verified before."""
    matrix = open_matrix(path, verify=False, memory=memory)
    if matrix._header != header:
        raise ReadError(path, "this is not the matrix that was pickled: its header differs.")
    return matrix
