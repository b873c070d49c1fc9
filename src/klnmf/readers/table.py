"""CountTable: counts with the names of their rows and columns."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from klnmf.data.canonical import canonical, type_of_sums
from klnmf.data.matrix_checks import checked_matrix
from klnmf.support.array_types import Array
from klnmf.support.descriptions import described
from klnmf.support.input_files import ReadError

Names = Sequence[str] | npt.NDArray[Any] | None
AbsentFeatures = Literal["unobserved", "zero"]

# Warns of what readers changed or left out; Python shows it by default.
LOGGER = logging.getLogger("klnmf.readers")


@dataclass(eq=False, repr=False)
class CountTable:
    """Counts, samples × features, with the names that belong to them.

    Parameters
    ----------
    X : sparse matrix or array-like of shape (n_samples, n_features)
        Counts, 0 or more. They are stored as a CSR array without zeros: whole numbers as int32
        (int64 if they are larger), others in their float type.
    row_names : sequence of str, optional
        One name per sample: documents, cells.
    column_names : sequence of str, optional
        One name per feature: words, genes.
    labels : sequence of str, optional
        One class per sample. The model does not use them.
    open_features : bool, default=False
        Whether a feature that is not among these has the count 0, as a word that does not occur in
        the texts. Otherwise it has not been counted.
    column_ids : sequence of str, optional
        One id per feature, if it has an id beside its name, as genes have.
    metadata : mapping of str to sequence, optional
        Columns with one value per sample, such as the year of a document.
    excerpts : sequence of str, optional
        The beginning of each document, if the samples are texts.
    origins : mapping of str to str, optional
        Where names and labels were found, such as {"column_names": "vocab.kos.txt"}.

    Attributes
    ----------
    X : scipy.sparse.csr_array
        The counts.
    row_names, column_names, labels, column_ids : ndarray of str (dtype object), or None
        What was given.
    metadata : dict of lists
        What was given, {} if nothing was.
    excerpts : list of str, or None
        What was given.
    origins : dict
        What was given, {} if nothing was.

    Examples
    --------
    >>> from klnmf.readers import CountTable
    >>> table = CountTable([[2, 0], [1, 3]], ["letter", "report"], ["sea", "corn"])
    >>> table
    CountTable(2 × 2, 3 nonzeros, with row_names, column_names)
    >>> table.X.sum(axis=0).tolist()
    [3, 3]
    >>> table.feature_names.tolist()
    ['sea', 'corn']
    """

    X: Any
    row_names: Any = None
    column_names: Any = None
    labels: Any = None
    open_features: bool = False
    column_ids: Any = None
    metadata: Any = None
    excerpts: Any = None
    origins: Any = None

    def __post_init__(self) -> None:
        n_rows, n_columns = _shape(self.X)
        self.row_names = as_names(self.row_names, n_rows, "row_names", "row")
        self.column_names = as_names(self.column_names, n_columns, "column_names", "column")
        self.labels = as_names(self.labels, n_rows, "labels", "row")
        self.column_ids = as_names(self.column_ids, n_columns, "column_ids", "column")
        if self.metadata is not None and not isinstance(self.metadata, Mapping):
            raise TypeError(f"metadata must be a dict of columns; got {described(self.metadata)}.")
        self.metadata = {str(name): list(column) for name, column in (self.metadata or {}).items()}
        self.origins = dict(self.origins or {})
        self.excerpts = None if self.excerpts is None else list(self.excerpts)
        for what, column in (self.metadata | {"excerpts": self.excerpts}).items():
            if column is not None and len(column) != n_rows:
                raise ValueError(f"{what} has {len(column):,} values for {n_rows:,} rows.")
        self.X = self._counts(self.X)

    @property
    def shape(self) -> tuple[int, int]:
        """Samples and features."""
        return _shape(self.X)

    @property
    def sample_names(self) -> Any:
        """The names of the samples: another word for ``row_names``."""
        return self.row_names

    @property
    def feature_names(self) -> Any:
        """The names of the features: another word for ``column_names``."""
        return self.column_names

    @property
    def about(self) -> dict[str, Any]:
        """Everything but the counts, as keyword arguments of this class."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "X"}

    @property
    def absent_features(self) -> AbsentFeatures:
        """Whether features that are not among these are unobserved or zero."""
        return "zero" if self.open_features else "unobserved"

    def transposed(self) -> CountTable:
        """Table with rows and columns exchanged; only their names are kept."""
        names = self.column_names, self.row_names
        return CountTable(self.X.T, *names, open_features=self.open_features)

    def with_features(self, positions: Any) -> CountTable:
        """Table of some of the features."""
        names, ids = self.column_names, self.column_ids
        chosen = {
            "column_names": None if names is None else names[positions],
            "column_ids": None if ids is None else ids[positions],
        }
        return CountTable(self.X[:, positions], **self.about | chosen)

    def __repr__(self) -> str:
        names = ("row_names", "column_names", "column_ids", "labels")
        present = [name for name in names if getattr(self, name) is not None]
        present += [f"metadata {', '.join(self.metadata)}"] if self.metadata else []
        what = f", with {', '.join(present)}" if present else ""
        n_rows, n_columns = self.shape
        return f"CountTable({n_rows:,} × {n_columns:,}, {self.X.nnz:,} nonzeros{what})"

    def _counts(self, matrix: Any) -> sp.csr_array:
        """Canonical CSR form; arrays that were given are not changed."""
        matrix = checked_matrix(matrix)
        given = matrix if sp.issparse(matrix) else np.asarray(matrix)
        if given.dtype.kind not in "biuf":
            raise ValueError(f"Counts must be real numbers; got the type {given.dtype}.")
        csr = sp.csr_array(given.astype(np.float32) if given.dtype == np.float16 else given)
        refuse_wrong_counts(csr, self.row_names, self.column_names)
        csr = canonical(csr)
        return csr.astype(_narrowest(csr.data), copy=False)


def table_of_file(path: Path, *arguments: Any, hint: str = "", **named: Any) -> CountTable:
    """CountTable of what was read from a file; what is wrong with it becomes a `ReadError`."""
    try:
        return CountTable(*arguments, **named)
    except ReadError:
        raise
    except (TypeError, ValueError) as error:
        raise ReadError(path, f"{error}{hint}") from error


def unique_features(given: Sequence[str] | Array, whose: str) -> Array:
    """Make names of features unique: repeated ones get -1, -2, ..., and a warning says so.

    The first of each keeps its name, and no name that is there is given to another: the names are
    those of ``AnnData.var_names_make_unique``.

    >>> unique_features(["a", "a", "b"], "counts.mtx").tolist()
    ['a', 'a-1', 'b']
    """
    names: Array = np.asarray(given, dtype=object)
    taken, seen, repeats = set(names), set[str](), Counter[str]()
    unique, example = names.copy(), ""
    for position, name in enumerate(names):
        if name not in seen:
            seen.add(name)
            continue
        while unique[position] in taken:
            repeats[name] += 1
            unique[position] = f"{name}-{repeats[name]}"
        taken.add(unique[position])
        example = example or f"a second {name!r} is now {unique[position]!r}"
    if example:
        n_changed = int((unique != names).sum())
        message = "%s: %s repeated feature names were made unique (%s)"
        LOGGER.warning(message, whose, f"{n_changed:,}", example)
    return unique


def refuse_wrong_counts(
    csr: sp.csr_array, row_names: Any = None, column_names: Any = None, first_row: int = 0
) -> None:
    """Raise a ValueError that says where the first value is that is not a count."""
    wrong = first_wrong(csr.data)
    if wrong is None:
        return
    row = int(np.searchsorted(csr.indptr, wrong, side="right")) - 1 + first_row
    raise ValueError(
        f"row {_place(row, row_names)}, column {_place(int(csr.indices[wrong]), column_names)} "
        f"holds {csr.data[wrong]}; counts are finite numbers of 0 or more."
    )


def first_wrong(values: Array) -> int | None:
    """Position of the first value that is no count: negative, infinite or not a number."""
    if values.dtype.kind in {"b", "u"} or not values.size:
        return None
    # NaN fails every comparison.
    if values.min() >= 0 and values.max() < np.inf:
        return None
    return int(np.flatnonzero(~((values >= 0) & (values < np.inf)))[0])


def is_count(value: float) -> bool:
    """Whether a number is 0 or more, finite, and not NaN."""
    return 0.0 <= value < float("inf")


def _narrowest(values: Array) -> np.dtype[Any]:
    """int32 for whole numbers that it holds, else int64 or the float type at hand."""
    if values.dtype.kind == "f" and not (values == np.rint(values)).all():
        return values.dtype
    # As a whole number: in float32, 2**31 is no more than the largest of int32.
    if int(values.max(initial=0)) <= np.iinfo(np.int32).max:
        return np.dtype(np.int32)
    return values.dtype if values.dtype.kind == "f" else type_of_sums(values)


def _shape(matrix: Any) -> tuple[int, int]:
    shape = matrix.shape if sp.issparse(matrix) else np.shape(matrix)
    if len(shape) != 2:
        raise ValueError(f"Counts must have two dimensions, samples × features; got {shape}.")
    return int(shape[0]), int(shape[1])


def as_names(names: Names, expected: int, what: str, of_what: str) -> Array | None:
    """Return names as an array of str objects; refuse a wrong number of them."""
    if names is None:
        return None
    if isinstance(names, str):
        raise ValueError(f"{what} must be a sequence with a name for each {of_what}; got a str.")
    if len(names) != expected:
        raise ValueError(f"{what} has {len(names):,} names for {expected:,} {of_what}s.")
    # Objects, as scikit-learn has them: one long name would widen every entry of a str array.
    array = np.empty(expected, dtype=object)
    array[:] = [str(name) for name in names]
    return array


def _place(position: int, names: Array | None) -> str:
    return str(position) if names is None else f"{position} ({names[position]!r})"
