"""Dask arrays that the estimators take, with their constraints, and return."""

from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from klnmf.backends.base import RowModel
from klnmf.backends.dask.array_blocks import checked_block
from klnmf.backends.dask.cluster import computed
from klnmf.constraints.constraints import Constraints
from klnmf.constraints.names import OF_SAMPLES
from klnmf.data.matrix_checks import checked_matrix, is_dask_array
from klnmf.data.sparse_data import InMemoryData

# Constraints that are patterns of cells.
PATTERNS = ("missing", "zero_W", "zero_components")


def constraints_on_driver(given: dict[str, Any], X: Any) -> dict[str, Any]:
    """Return the constraints on a Dask array in memory, patterns of cells as sparse arrays."""
    import dask

    names = [name for name in OF_SAMPLES if given.get(name) is not None]
    if names and np.isnan(X.shape[0]):
        raise ValueError(
            f"{', '.join(names)} cannot be matched with the samples of the Dask array X, because "
            "the sizes of its blocks are unknown. Call X.compute_chunk_sizes() first."
        )
    found = dict(given)
    for name, value in given.items():
        if is_dask_array(value) and value.ndim == 2 and name in PATTERNS:
            blocks, to_csr = value.to_delayed(), dask.delayed(pattern_block)
            sparse = computed([to_csr(block, name) for block in blocks.flat])
            rows = [sparse[i : i + blocks.shape[1]] for i in range(0, blocks.size, blocks.shape[1])]
            found[name] = sp.csr_array(sp.bmat(rows, format="csr"))
        elif is_dask_array(value):
            (found[name],) = computed([value])
    return found


def pattern_block(block: Any, name: str) -> sp.csr_array:
    """Return a block of a pattern of cells, dense or sparse, as compressed rows."""
    return sp.csr_array(checked_matrix(block, name))


def transformed_blocks(
    model: RowModel, X: Any, dtype: np.dtype[Any], constraints: Constraints
) -> Any:
    """W of a Dask array as a Dask array: each block of rows is computed when it is needed."""
    import dask

    if not set(OF_SAMPLES).isdisjoint(constraints.names):
        return _mapped_rows(model, X, dtype, constraints)
    return _with_whole_rows(X).map_blocks(
        _transformed_block,
        dask.delayed(model, traverse=False),
        dtype,
        dask.delayed(constraints, traverse=False),
        dtype=dtype,
        chunks=(X.chunks[0], (model.n_components,)),
        meta=_meta(model.is_sparse, dtype),
    )


def output_blocks(model: RowModel, X: Any, W: Any, constraints: Constraints) -> Any:
    """W of a fit, a Dask array, in the units of the user and the form that the model returns."""
    if constraints.scales(0) is not None or constraints.fixed[0] is not None:
        return _mapped_rows(model, X, W.dtype, constraints, W)
    return W.map_blocks(sp.csr_array, meta=_meta(True, W.dtype)) if model.is_sparse else W


def _mapped_rows(
    model: RowModel, X: Any, dtype: np.dtype[Any], constraints: Constraints, W: Any = None
) -> Any:
    """W of every block of rows, with the constraints on these; from W of a fit if it is given."""
    import dask
    import dask.array as da

    rows_of, ends = dask.delayed(_rows_of_block), np.cumsum([0, *X.chunks[0]])
    on_workers, pieces = dask.delayed(model, traverse=False), []
    blocks = _with_whole_rows(X).to_delayed()[:, 0]
    # Optimised, its graph would lose hold of what is on workers.
    of_W = [None] * len(blocks) if W is None else W.to_delayed(optimize_graph=False)[:, 0]
    for block, rows_of_W, start, stop in zip(blocks, of_W, ends[:-1], ends[1:], strict=True):
        part = constraints.part(np.arange(start, stop))
        # With W, counts are needed only for samples of weight 0, which had no part in the fit.
        is_needed = W is None or (part.sample_weight is not None and not part.sample_weight.all())
        counts, part = block if is_needed else None, dask.delayed(part, traverse=False)
        piece = rows_of(counts, rows_of_W, on_workers, dtype, int(start), part)
        shape = (int(stop - start), model.n_components)
        pieces.append(da.from_delayed(piece, shape, meta=_meta(model.is_sparse, dtype)))
    return da.concatenate(pieces)


def _with_whole_rows(X: Any) -> Any:
    return X.rechunk({1: -1}) if X.numblocks[1] > 1 else X


def _transformed_block(block: Any, model: RowModel, dtype: Any, constraints: Constraints) -> Any:
    data = InMemoryData(checked_block([block], dtype, model.name, 0))
    return model.transform(data, replace(constraints, shape=data.shape))


def _rows_of_block(
    block: Any, W: Any, model: RowModel, dtype: Any, first_row: int, constraints: Constraints
) -> Any:
    data = None
    if block is not None:
        counts = checked_block([block], dtype, model.name, first_row, constraints.missing)
        data = InMemoryData(counts)
    if W is not None:
        return model.in_user_units(W, data, constraints)
    assert data is not None
    return model.transform(data, constraints)


def _meta(is_sparse: bool, dtype: Any) -> Any:
    return sp.csr_array((0, 0), dtype=dtype) if is_sparse else np.empty((0, 0), dtype=dtype)


def blocks_of_factor(backend: Any, factor: Any, X: Any) -> Any:
    """Return a factor of a fit as a Dask array with blocks of the same rows as X.

    It stays on the workers if these outlive the fit; else it comes to this process.
    """
    import dask.array as da

    heights = X.chunks[0]
    if np.isnan(heights).any():
        heights = (factor.shape[0],)
    parts = backend.futures_of(factor)
    if parts is None:
        return da.from_array(backend.download(factor), chunks=(heights, -1))
    return da.concatenate(
        [da.from_delayed(_delayed(part), shape, factor.dtype) for part, shape in parts]
    ).rechunk((heights, -1))


def _delayed(future: Any) -> Any:
    import dask

    return dask.delayed(future)
