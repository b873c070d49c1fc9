"""Dask arrays that the estimators return."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from klnmf.backends import Backend
from klnmf.backends.dask.arrays import checked_block
from klnmf.backends.dask.backend import DaskBackend
from klnmf.sparse_data import SparseData

Array = npt.NDArray[Any]


def transformed_blocks(model: Any, X: Any) -> Any:
    """W of a Dask array as a Dask array: every block of rows by itself, when it is asked for.

    Parameters
    ----------
    model : FactorModel
        Fitted.
    X : dask.array.Array
        Counts.
    """
    import dask

    # On one thread each: Dask has as many of them at work as it has threads.
    single = copy.copy(model)
    single.backend, single.n_threads, single.callback = "cpu", 1, None
    single._saved_state = None
    # Not the type of this block alone: integers would have one or the other by their size.
    is_integer = X.dtype.kind in "biu"
    dtype = model.dtype or (model.components_.dtype if is_integer else X.dtype)
    whole_rows = X.rechunk({1: -1}) if X.numblocks[1] > 1 else X
    return whole_rows.map_blocks(
        _transformed_block,
        dask.delayed(single),
        dtype,
        dtype=dtype,
        chunks=(X.chunks[0], (model.n_components_,)),
        meta=_meta(model.sparse_output, dtype),
    )


def _transformed_block(block: Any, model: Any, dtype: Any) -> Any:
    counts = checked_block([block], dtype, type(model).__name__, 0)
    return model._as_output(model._transformed(SparseData(counts), {}))


def _meta(is_sparse: bool, dtype: Any) -> Any:
    return sp.csr_array((0, 0), dtype=dtype) if is_sparse else np.empty((0, 0), dtype=dtype)


def blocks_of_factor(backend: Backend, factor: Any, X: Any, is_sparse: bool) -> Any:
    """Return a factor of a fit as a Dask array with blocks of the same rows as X.

    It stays on the workers where these outlive the fit; else it comes to this process.
    """
    import dask.array as da

    assert isinstance(backend, DaskBackend)
    heights = X.chunks[0]
    if np.isnan(heights).any():
        heights = (factor.shape[0],)
    parts = backend.futures_of(factor)
    if parts is None:
        W = da.from_array(backend.download(factor), chunks=(heights, -1))
    else:
        W = da.concatenate(
            [da.from_delayed(_delayed(part), shape, factor.dtype) for part, shape in parts]
        ).rechunk((heights, -1))
    return W.map_blocks(sp.csr_array, meta=_meta(True, factor.dtype)) if is_sparse else W


def _delayed(future: Any) -> Any:
    import dask

    return dask.delayed(future)
