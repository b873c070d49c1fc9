"""From the files of a publisher to a Bunch, by way of a matrix that is kept for the next time.

What was read is kept as ``NAME.npz`` beside the publisher's files, with its names and labels, in
the form that :func:`klnmf.readers.write_counts` writes. A user may also put such files there.
"""

import inspect
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.utils import Bunch

from klnmf.datasets.files import RemoteFile, find, obtain, search_folders
from klnmf.datasets.weighting import tf_idf as weighted
from klnmf.readers import FORMATS, CountTable, ReadError, write_counts

Folder = str | os.PathLike[str] | None
Function = TypeVar("Function", bound=Callable[..., Bunch])


@dataclass(frozen=True)
class DataSet:
    """A published data set: its name, its description, and its size."""

    name: str
    description: str
    shape: tuple[int, int] | None = None
    nnz: int | None = None


def load(
    data_set: DataSet,
    files: Sequence[RemoteFile],
    read: Callable[..., CountTable],
    data_home: Folder,
    download_if_missing: bool,
    tf_idf: bool = False,
) -> Bunch:
    """Load ``NAME.npz`` if it is in a folder, else the publisher's files, and keep the table."""
    folders = search_folders(data_home)
    kept = find([f"{data_set.name}.npz"], folders)
    if kept is not None:
        with damaged(kept, "a matrix of this data set"):
            table = FORMATS["npz"].read(kept)
        _check(data_set, table, str(kept))
    else:
        table = read(*(obtain(file, data_home, download_if_missing) for file in files))
        _check(data_set, table, f"what was read from the files in {folders[-1]}")
        with suppress(OSError):  # a folder that cannot be written to costs time, nothing else
            folders[-1].mkdir(parents=True, exist_ok=True)
            write_counts(table, folders[-1] / f"{data_set.name}.npz")
    return _bunch(table, data_set.description, tf_idf)


@contextmanager
def damaged(path: Path, what: str) -> Iterator[None]:
    """Turn whatever goes wrong while a file is read into an OSError that says what to do."""
    try:
        yield
    except (ImportError, MemoryError):
        raise
    except Exception as error:  # parsers raise errors of any class on files of another kind
        problem = str(error).partition("\n")[0].rstrip(".:") or type(error).__name__
        if not isinstance(error, ReadError):  # which names the file itself
            problem = f"{path} is not {what}: {problem}"
        raise OSError(f"{problem}. Remove the file and download it again.") from error


def _check(data_set: DataSet, table: CountTable, where: str) -> None:
    found, expected = (*table.shape, table.X.nnz), (*(data_set.shape or ()), data_set.nnz)
    if data_set.shape is not None and found != expected:
        sizes = ["{:,} × {:,} with {:,} nonzeros".format(*size) for size in (found, expected)]
        problem = f"{where} is {sizes[0]}; expected are {sizes[1]}."
        raise ValueError(f"{data_set.name}: {problem} It is another version, or damaged.")
    largest = table.X.data.max(initial=0)
    if largest > np.iinfo(np.int32).max:
        raise ValueError(f"{data_set.name}: {where} has the count {largest}: it is damaged.")


def _bunch(table: CountTable, description: str, tf_idf: bool) -> Bunch:
    names, target = None, None
    if table.labels is not None:
        names, target = np.unique(_numbers_if_all_are(table.labels), return_inverse=True)
    features = table.column_names
    return Bunch(
        data=weighted(table.X) if tf_idf else sp.csr_matrix(table.X),
        target=target,
        target_names=names,
        feature_names=None if features is None else np.array(features.tolist()),
        DESCR=description,
    )


def _numbers_if_all_are(labels: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Labels that are whole numbers sort as numbers: 2 before 10."""
    try:
        return labels.astype(np.int64)
    except ValueError:
        return labels.astype(str)


# ---- docstrings ----------------------------------------------------------------------------------


_SHARED = """
data_home : path, default=None
    Folder of the files, where downloads go, too. If None, the folder in the environment variable
    KLNMF_DATA is searched, then the cache of klnmf.
download_if_missing : bool, default=True
    Whether to download files that are missing. If False, a missing file is an error."""
_TF_IDF = """
tf_idf : bool, default=False
    Whether to return tf-idf weights (see :func:`tf_idf`) instead of counts."""
_RETURNS = """

Returns
-------
sklearn.utils.Bunch
    data (CSR matrix), target, target_names, feature_names and DESCR. target and target_names are
    None if there are no labels, feature_names is None if there are no names.
"""


def shared_docs(function: Function) -> Function:
    """Add to a docstring what all data sets have in common."""
    text = inspect.cleandoc(function.__doc__ or "")
    if "Parameters\n-" not in text:
        text += "\n\nParameters\n----------"
    has_tf_idf = "tf_idf" in inspect.signature(function).parameters
    function.__doc__ = text + _SHARED + (_TF_IDF if has_tf_idf else "") + _RETURNS
    return function


def described(function: Callable[..., Bunch]) -> str:
    """Return the part of a docstring that says what the data set is."""
    return (function.__doc__ or "").partition("\n\nParameters")[0]
