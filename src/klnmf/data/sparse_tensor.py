"""SparseTensor: counts with two to eight modes, of which only the nonzeros are stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from importlib import import_module
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp

from klnmf.data.canonical import type_of_sums
from klnmf.data.events import events_of, rank_of
from klnmf.data.passes import sorted_by_mode
from klnmf.data.tensor_checks import checked_parts, default_names
from klnmf.data.validation import working_dtype
from klnmf.support.array_types import Array, FloatArray
from klnmf.support.descriptions import described, sizes_in_words
from klnmf.support.nearest_names import did_you_mean

FEW_SLICES = 1 << 20


@dataclass(frozen=True, eq=False, repr=False)
class SparseTensor:
    """Counts with two to eight modes, such as customers × products × weeks.

    Only nonzeros are stored, in one canonical form: sorted by the first mode, then by the second
    and so on, each cell once and without zeros. Entries of the same cell are summed. A tensor does
    not change: its arrays are read-only.

    Parameters
    ----------
    coords : array-like of int, of shape (n_modes, nnz)
        Places of the entries from 0 on, one row per mode, as in ``sparse.COO``.
    values : array-like of shape (nnz,), default=None
        Counts, 0 or more. None counts 1 for each entry. Floats keep their type; whole numbers
        become float32 if all are below 2**24, else float64.
    shape : sequence of int, default=None
        Size of each mode. None takes the largest place of each mode plus 1.
    mode_names : sequence of str, default=None
        Names of the modes. None is ``"mode_0"``, ``"mode_1"``, ...
    labels : sequence, default=None
        For each mode None, or one label per slice: texts, numbers or dates. They are kept as texts,
        dates as ISO dates.

    Attributes
    ----------
    coords, values : ndarray of int32, and of float32 or float64
        Places and values of the nonzeros.
    shape, mode_names, labels : tuple
        Size and name of each mode, and its labels as an array of str (dtype object), or None.

    See Also
    --------
    klnmf.readers.read_tensor : Read a tensor from a file.

    Examples
    --------
    >>> from klnmf import SparseTensor
    >>> coords = [[0, 1, 1, 0], [2, 0, 0, 2], [0, 1, 1, 1]]
    >>> tensor = SparseTensor(coords, [3, 1, 4, 1], mode_names=["user", "film", "year"])
    >>> tensor
    SparseTensor(user 2 × film 3 × year 2, 3 nonzeros, total 9)
    >>> tensor.values
    array([3., 1., 5.], dtype=float32)
    >>> tensor.margin("year")
    array([3., 6.])
    """

    coords: Any
    values: Any = None
    shape: Any = None
    mode_names: Any = field(default=None, kw_only=True)
    labels: Any = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        given = (self.coords, self.values, self.shape, self.mode_names, self.labels)
        coords, values, shape, names, labels = checked_parts(*given)
        coords, values = _canonical(coords, values)
        for array in (coords, values, *labels):
            if array is not None:
                array.flags.writeable = False
        parts = (coords, values, shape, names, labels)
        for each, part in zip(fields(self), parts, strict=True):
            object.__setattr__(self, each.name, part)

    @classmethod
    def from_events(
        cls,
        frame: Any,
        modes: Sequence[str],
        values: str | None = None,
        *,
        bins: Mapping[str, str] | None = None,
    ) -> SparseTensor:
        """Count the rows of a table: what happened, to whom, when.

        Labels are sorted: numbers by value, dates by time, others as texts.

        Parameters
        ----------
        frame : DataFrame, pyarrow.Table or dict of columns
            A table with one row per event. DataFrames may be of pandas or polars.
        modes : sequence of str
            Columns that become the modes, in this order.
        values : str, default=None
            Column of counts, such as units sold. None counts 1 for each row.
        bins : dict, default=None
            For columns of dates, the length of the bins: ``"day"``, ``"week"`` (from Monday on),
            ``"month"`` or ``"year"``. All bins from the first to the last date are there, empty
            ones too; their labels are the ISO dates on which they begin. Dates may be
            datetime64, Python's dates or ISO texts; of a time zone, its local time counts.

        Returns
        -------
        SparseTensor
            The counts, with the labels.

        Examples
        --------
        >>> from klnmf import SparseTensor
        >>> sales = {"who": ["Ann", "Bo"], "date": ["2024-01-02", "2024-01-16"], "n": [2, 6]}
        >>> tensor = SparseTensor.from_events(sales, ["who", "date"], "n", bins={"date": "week"})
        >>> tensor
        SparseTensor(who 2 × date 3, 2 nonzeros, total 8)
        >>> tensor.labels[1].tolist(), tensor.ordered
        (['2024-01-01', '2024-01-08', '2024-01-15'], (False, True))
        """
        coords, counts, labels = events_of(frame, modes, values, bins)
        shape = [len(each) for each in labels]
        return cls(coords, counts, shape, mode_names=list(modes), labels=labels)

    @classmethod
    def from_sparse(cls, coo: Any, **names: Any) -> SparseTensor:
        """Take over a ``sparse.COO``; ``mode_names`` and ``labels`` may be given."""
        if not all(hasattr(coo, part) for part in ("coords", "data", "fill_value")):
            raise TypeError(f"coo must be a sparse.COO, as x.tocoo() is; got {described(coo)}.")
        if coo.fill_value != 0:
            raise ValueError(
                f"coo has the fill value {coo.fill_value}; cells that are not stored must be 0. If "
                "they are, pass sparse.COO(coo.coords, coo.data, coo.shape)."
            )
        return cls(coo.coords, coo.data, coo.shape, **names)

    @classmethod
    def from_pyttb(cls, tensor: Any, **names: Any) -> SparseTensor:
        """Take over a ``pyttb.sptensor``; ``mode_names`` and ``labels`` may be given."""
        if not all(hasattr(tensor, part) for part in ("subs", "vals", "shape")):
            raise TypeError(f"tensor must be a pyttb.sptensor; got {described(tensor)}.")
        coords = np.reshape(tensor.subs, (-1, len(tensor.shape))).T
        return cls(coords, np.ravel(tensor.vals), tensor.shape, **names)

    def to_sparse(self) -> Any:
        """Return a ``sparse.COO`` of PyData, without names and labels."""
        sparse = import_module("sparse")
        return sparse.COO(self.coords.astype(np.intp), self.values.copy(), self.shape)

    def to_events(self) -> dict[str, Array]:
        """Return a table of the nonzeros, for ``pandas.DataFrame`` and from there to any file.

        Columns are the labels, or else the places, in each mode, and ``"count"``.

        Examples
        --------
        >>> from klnmf import SparseTensor
        >>> SparseTensor([[0, 1], [2, 0]], [3, 1], mode_names=["user", "film"]).to_events()
        {'user': array([0, 1], dtype=int32), 'film': array([2, 0], dtype=int32),
        'count': array([3., 1.], dtype=float32)}
        """
        if "count" in self.mode_names:
            raise ValueError("A mode is called 'count', as the column of values. Rename it.")
        columns = {
            name: places if labels is None else labels[places]
            for name, labels, places in zip(self.mode_names, self.labels, self.coords, strict=True)
        }
        return columns | {"count": self.values}

    def to_pyttb(self) -> Any:
        """Return a ``pyttb.sptensor``, without names and labels."""
        pyttb = import_module("pyttb")
        vals = self.values.astype(np.float64)[:, None]
        return pyttb.sptensor(self.coords.T.astype(np.int64), vals, self.shape)

    @property
    def ordered(self) -> tuple[bool, ...]:
        """For each mode, whether it has labels that are numbers, or ISO dates, and rise."""
        return tuple(each is not None and is_rising(each) for each in self.labels)

    @property
    def ndim(self) -> int:
        """Number of modes."""
        return len(self.shape)

    @property
    def nnz(self) -> int:
        """Number of nonzeros."""
        return len(self.values)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the values."""
        dtype: np.dtype[Any] = self.values.dtype
        return dtype

    @property
    def total(self) -> float:
        """Sum of all counts."""
        return float(self.values.sum(dtype=np.float64))

    def margin(self, mode: int | str) -> FloatArray:
        """Return the total of each slice of a mode, which is given by its number or its name."""
        mode = self._mode(mode)
        return np.bincount(self.coords[mode], self.values, self.shape[mode]).astype(np.float64)

    def take(self, mode: int | str, indices: Any) -> SparseTensor:
        """Return the tensor of some slices of a mode, in the order given, with their labels.

        ``indices`` are different whole numbers, or one bool for each slice.

        >>> tensor = SparseTensor([[0, 1, 2], [0, 1, 1]], labels=[["a", "b", "c"], None])
        >>> tensor.take(0, [2, 0]).labels[0].tolist()
        ['c', 'a']
        """
        mode = self._mode(mode)
        size, chosen = self.shape[mode], np.asarray(indices)
        if chosen.dtype == bool and chosen.shape == (size,):
            chosen = np.flatnonzero(chosen)
        are_places = chosen.ndim == 1 and chosen.dtype.kind in "iu" and chosen.size > 0
        if not are_places or chosen.min() < 0 or chosen.max() >= size:
            raise ValueError(
                f"indices must name at least one slice of the mode {self.mode_names[mode]!r}, as "
                f"numbers from 0 to {size - 1} or {size} bools; got {described(indices)}."
            )
        if len(np.unique(chosen)) < len(chosen):
            raise ValueError("indices have a slice more than once. Take each slice once.")
        place = np.full(size, -1, dtype=np.int32)
        place[chosen] = np.arange(len(chosen), dtype=np.int32)
        kept = place[self.coords[mode]] >= 0
        coords, shape, labels = self.coords[:, kept], list(self.shape), list(self.labels)
        coords[mode], shape[mode] = place[coords[mode]], len(chosen)
        labels[mode] = None if labels[mode] is None else labels[mode][chosen]
        return SparseTensor(
            coords, self.values[kept], shape, mode_names=self.mode_names, labels=labels
        )

    def flattened(self, mode: int | str = 0) -> tuple[sp.csr_array, dict[str, Array]]:
        """Return the matrix of a mode × the cells of the others that occur, and what these are.

        The second part has, by the name of each other mode, the labels (else the places) of the
        columns of the matrix.

        >>> X, cells = SparseTensor([[0, 1, 1], [0, 4, 4], [1, 0, 1]]).flattened()
        >>> X.toarray()
        array([[1., 0., 0.],
               [0., 1., 1.]], dtype=float32)
        >>> cells["mode_1"].tolist(), cells["mode_2"].tolist()
        ([0, 4, 4], [1, 0, 1])
        """
        mode = self._mode(mode)
        others = [m for m in range(self.ndim) if m != mode]
        found, columns = np.unique(self.coords[others], axis=1, return_inverse=True)
        entries = (self.values, (self.coords[mode], columns.ravel()))
        X = sp.csr_array(sp.coo_array(entries, shape=(self.shape[mode], found.shape[1])))
        labels = {m: self.labels[m] for m in others}
        return X, {
            self.mode_names[m]: places if labels[m] is None else labels[m][places]
            for m, places in zip(others, found, strict=True)
        }

    def toarray(self) -> Array:
        """Return a small tensor as an array with all its zeros."""
        array = np.zeros(self.shape, dtype=self.dtype)
        array[tuple(self.coords)] = self.values
        return array

    def __repr__(self) -> str:
        is_named = self.mode_names != default_names(self.ndim)
        sizes = sizes_in_words(self.shape, self.mode_names if is_named else ())
        total = f"{self.total:,.0f}" if self.total.is_integer() else f"{self.total:,.6g}"
        return f"SparseTensor({sizes}, {self.nnz:,} nonzeros, total {total})"

    def _mode(self, mode: Any) -> int:
        """Return the number of a mode."""
        if isinstance(mode, str) and mode in self.mode_names:
            return int(self.mode_names.index(mode))
        if isinstance(mode, int | np.integer) and 0 <= mode < self.ndim:
            return int(mode)
        names = ", ".join(map(repr, self.mode_names))
        question = did_you_mean(mode, self.mode_names)
        raise ValueError(
            f"mode must be a number from 0 to {self.ndim - 1} or one of {names}; got "
            f"{described(mode)}.{question}"
        )


# ---- canonical form ------------------------------------------------------------------------------


def _canonical(coords: Array, values: Array) -> tuple[Array, Array]:
    """Sort entries, sum those of a cell, and drop zeros; int32 coords are the caller's own."""
    if not _is_sorted(coords):
        coords, order = _sorted(coords)
        values = values[order]
    is_new = np.ones(len(values), dtype=bool)
    is_new[1:] = (coords[:, 1:] != coords[:, :-1]).any(axis=0)
    kind, starts = values.dtype.kind, np.flatnonzero(is_new)
    sums = values
    if len(starts) < len(values):
        sums = np.add.reduceat(values.astype(type_of_sums(values)), starts)
        coords = coords[:, starts]
    # Floats keep their type; sums of integers may need a wider one than any of them.
    with np.errstate(over="ignore"):
        floats = sums.astype(working_dtype(sums if kind in "biu" else values))
    if floats.max(initial=0) == np.inf:
        raise ValueError(
            f"The counts of a cell are more than {floats.dtype} holds. Pass values as float64."
        )
    kept = floats != 0
    if not kept.all():
        coords, floats = coords[:, kept], floats[kept]
    return np.ascontiguousarray(coords), floats


def _sorted(coords: Array) -> tuple[Array, Array]:
    """Return entries in the order of all modes, and where they were."""
    sizes = coords.max(axis=1) + 1
    if sizes.max() > FEW_SLICES + 4 * coords.shape[1]:  # a counting sort would count nothing
        order = np.lexsort(coords[::-1])
        return coords[:, order], order
    places = np.arange(coords.shape[1], dtype=np.float64)
    for mode in reversed(range(len(coords))):
        coords, places = sorted_by_mode(coords, places, mode, int(sizes[mode]))
    return coords, places.astype(np.intp)


def _is_sorted(coords: Array) -> bool:
    """Whether no entry comes before the one that it follows, by the first mode that differs."""
    tied = np.ones(max(coords.shape[1] - 1, 0), dtype=bool)
    for places in coords:
        if (tied & (places[1:] < places[:-1])).any():
            return False
        tied &= places[1:] == places[:-1]
    return True


def is_rising(labels: Array) -> bool:
    """Whether labels are numbers, or ISO dates, that rise."""
    rank = rank_of(labels)
    return rank is not None and all(rank(a) < rank(b) for a, b in pairwise(labels))
