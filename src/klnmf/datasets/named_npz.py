"""The form in which matrices lie ready: NAME.npz, and beside it NAME.vocab.txt and NAME.labels.txt.

``NAME.npz`` is what ``scipy.sparse.save_npz`` writes, samples × features; ``NAME.vocab.txt`` has
one feature name a line and ``NAME.labels.txt`` one label a sample. Both are optional.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.utils import Bunch

from klnmf.data.matrix_checks import checked_matrix
from klnmf.datasets.files import find, search_folders
from klnmf.support.whole_files import writing

Array = npt.NDArray[Any]
Folder = str | os.PathLike[str] | None


@dataclass
class Table:
    """What a reader makes of the publisher's files."""

    counts: sp.csr_array
    labels: Array | None = None
    feature_names: Array | None = None


@dataclass(frozen=True)
class Source:
    """A data set: the name of its prepared form, its size, and its description."""

    name: str
    description: str
    shape: tuple[int, int] | None = None
    nnz: int | None = None


def load(source: Source, read: Callable[[], Table], data_home: Folder) -> Bunch:
    """Bunch of a data set: from its prepared form if there is one, else from what ``read`` returns.

    What was read is checked against the size that is known, and kept in its prepared form beside
    the publisher's files, so that the next call is quick.
    """
    folders = search_folders(data_home)
    prepared = find([f"{source.name}.npz"], folders)
    if prepared is not None:
        table = read_prepared(prepared)
        _check(source, table, str(prepared))
    else:
        table = read()
        _check(source, table, f"what was read from the files in {folders[-1]}")
        with suppress(OSError):  # a folder that cannot be written to costs time, nothing else
            write_prepared(folders[-1], source.name, table)
    return _bunch(source, table)


def read_prepared(path: Path) -> Table:
    """Matrix, labels and names of ``NAME.npz``."""
    try:
        counts = checked_csr(sp.load_npz(path))
    except (OSError, EOFError, ValueError, KeyError, BadZipFile) as error:
        raise OSError(
            f"{path} is not a matrix that scipy.sparse.save_npz wrote: {error}. Remove it, or put "
            "a good one there."
        ) from error
    return Table(counts, *(_lines(path, kind) for kind in ("labels", "vocab")))


def write_prepared(folder: Path, name: str, table: Table) -> None:
    """Write the three files; the matrix comes last, so that what has one is complete."""
    folder.mkdir(parents=True, exist_ok=True)
    for names, kind in ((table.labels, "labels"), (table.feature_names, "vocab")):
        if names is not None:
            with writing(folder / f"{name}.{kind}.txt") as stream:
                stream.write("\n".join(map(str, names)).encode() + b"\n")
    with writing(folder / f"{name}.npz") as stream:
        sp.save_npz(stream, table.counts)


def _lines(path: Path, kind: str) -> Array | None:
    beside = path.with_name(f"{path.stem}.{kind}.txt")
    if not beside.is_file():
        return None
    return np.array(beside.read_text(encoding="utf-8").splitlines())


def checked_csr(matrix: Any) -> sp.csr_array:
    """CSR form of a matrix from a file, with its indices, signs and the size of its values checked.

    Whole numbers are returned as int32, in which sums and products do not wrap as soon as in the
    smaller types that files use.

    Raises
    ------
    ValueError
        If an index is out of place, or a value is negative or beyond int32.
    """
    counts = sp.csr_array(checked_matrix(matrix))
    counts.sum_duplicates()
    counts.eliminate_zeros()
    least, largest = counts.data.min(initial=0), counts.data.max(initial=0)
    if not least >= 0:
        raise ValueError(f"counts cannot be negative, and one is {least}")
    if counts.data.dtype.kind == "f" and not (counts.data == np.round(counts.data)).all():
        return counts
    if largest > np.iinfo(np.int32).max:
        raise ValueError(f"the count {largest} is beyond 2147483647")
    return counts.astype(np.int32)


def _check(source: Source, table: Table, where: str) -> None:
    for names, expected, what in (
        (table.labels, table.counts.shape[0], "labels"),
        (table.feature_names, table.counts.shape[1], "feature names"),
    ):
        if names is not None and len(names) != expected:
            raise ValueError(
                f"{source.name}: {where} has {len(names):,} {what} where {expected:,} are needed: "
                "a file is damaged, or does not belong to the others."
            )
    found, expected = (table.counts.shape, table.counts.nnz), (source.shape, source.nnz)
    if any(e is not None and f != e for f, e in zip(found, expected, strict=True)):
        raise ValueError(
            f"{source.name}: {where} is {found[0][0]:,} × {found[0][1]:,} with {found[1]:,} "
            f"nonzeros; expected are {_size(source)}. It is another version, or damaged."
        )


def _size(source: Source) -> str:
    shape = f"{source.shape[0]:,} × {source.shape[1]:,}" if source.shape else "any shape"
    return shape + (f" with {source.nnz:,} nonzeros" if source.nnz is not None else "")


def _bunch(source: Source, table: Table) -> Bunch:
    names, target = None, None
    if table.labels is not None:
        names, target = np.unique(_numbers_if_all_are(table.labels), return_inverse=True)
    return Bunch(
        data=sp.csr_matrix(table.counts),
        target=target,
        target_names=names,
        feature_names=table.feature_names,
        DESCR=source.description,
    )


def _numbers_if_all_are(labels: Sequence[Any] | Array) -> Array:
    """Labels that are whole numbers sort as numbers: 2 before 10."""
    try:
        return np.asarray(labels).astype(np.int64)
    except ValueError:
        return np.asarray(labels)
