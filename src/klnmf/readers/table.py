"""CountTable: counts with the names of their rows and columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp

from klnmf.data.canonical import canonical, type_of_sums
from klnmf.data.matrix_checks import checked_matrix, refuse_wrong_counts
from klnmf.data.names import as_names
from klnmf.support.array_types import Array
from klnmf.support.descriptions import described
from klnmf.support.input_files import ReadError
from klnmf.support.option_names import option
from klnmf.texts.pruning import kept_features
from klnmf.texts.stop_words import stop_words_of

AbsentFeatures = Literal["unobserved", "zero"]


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


def pruned(path: Path, table: CountTable, *, stop_words: Any = None, **limits: Any) -> CountTable:
    """Table of the features that are kept, in their order; ``limits`` as in `kept_features`."""
    if stop_words is None and not limits:
        return table
    n, m = table.shape
    named = np.ones(m, dtype=bool)
    if stop_words is not None:
        if table.column_names is None:
            problem = "the features have no names, so that stop words cannot be found among them."
            raise ReadError(path, f"{problem} Add {option('column_names', 'FILE')}.")
        unwanted = {word.lower() for word in stop_words_of(stop_words)}
        named = np.array([name.lower() not in unwanted for name in table.column_names], dtype=bool)
    n_samples, totals = np.bincount(table.X.indices, minlength=m), table.X.sum(axis=0)
    kept = kept_features(path, n, n_samples, totals, named, **limits)
    return table if kept.all() else table.with_features(np.flatnonzero(kept))


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
