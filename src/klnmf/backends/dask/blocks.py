"""Dask arrays that the estimators take, with their constraints, and return."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from klnmf.backends.base import Backend
from klnmf.backends.dask.array_blocks import checked_block
from klnmf.backends.dask.backend import DaskBackend
from klnmf.backends.dask.cluster import computed
from klnmf.constraints.constraints import Constraints
from klnmf.constraints.names import OF_SAMPLES
from klnmf.data.matrix_checks import checked_matrix, is_dask_array
from klnmf.data.sparse_data import InMemoryData

Array = npt.NDArray[Any]

# Constraints that are patterns of cells.
PATTERNS = ("missing", "zero_W", "zero_components")


def constraints_on_driver(given: dict[str, Any], X: Any) -> dict[str, Any]:
    """Return the constraints on a Dask array in memory, patterns of cells as sparse arrays.

    Parameters
    ----------
    given : dict
        By the names of the constraints in ``klnmf.constraints.constraints``, as they were passed.
    X : dask.array.Array
        Counts.
    """
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
            found[name] = sp.csr_array(sp.block_array(rows, format="csr"))
        elif is_dask_array(value):
            (found[name],) = computed([value])
    return found


def pattern_block(block: Any, name: str) -> sp.csr_array:
    """Return a block of a pattern of cells, dense or sparse, as compressed rows."""
    return sp.csr_array(checked_matrix(block, name))


def transformed_blocks(model: Any, X: Any, given: dict[str, Any]) -> Any:
    """W of a Dask array as a Dask array: each block of rows is computed when it is needed.

    Parameters
    ----------
    model : FactorModel
        Fitted.
    X : dask.array.Array
        Counts.
    given : dict
        Constraints on the samples.
    """
    import dask

    given = constraints_on_driver(given, X)
    # Not the type of this block alone: integers would have one or the other by their size.
    is_integer = X.dtype.kind in "biu"
    dtype = np.dtype(model.dtype or (model.components_.dtype if is_integer else X.dtype))
    if model.n_fixed_W_ or any(value is not None for value in given.values()):
        constraints = model._constraints_on((X.shape[0], X.shape[1]), dtype, given)
        if constraints is not None:  # exposures of 1, for instance, are no constraint
            return _mapped_rows(_transformed_rows, model, X, dtype, constraints)
    return _with_whole_rows(X).map_blocks(
        _transformed_block,
        dask.delayed(_single_threaded(model)),
        dtype,
        dtype=dtype,
        chunks=(X.chunks[0], (model.n_components_,)),
        meta=_meta(model.sparse_output, dtype),
    )


def output_blocks(model: Any, X: Any, W: Any, constraints: Constraints | None) -> Any:
    """W of a fit, a Dask array, in the units of the user and the form that the model returns.

    Parameters
    ----------
    model : FactorModel
        Fitted.
    X : dask.array.Array
        Counts.
    W : dask.array.Array
        As the fit has it, with blocks of the same rows.
    constraints : Constraints or None
        Constraints of the fit.
    """
    if constraints is not None and (
        constraints.scales(0) is not None or constraints.fixed[0] is not None
    ):
        return _mapped_rows(_rows_in_user_units, model, X, W.dtype, constraints, W)
    return W.map_blocks(sp.csr_array, meta=_meta(True, W.dtype)) if model.sparse_output else W


def _mapped_rows(
    function: Any, model: Any, X: Any, dtype: np.dtype[Any], constraints: Constraints, W: Any = None
) -> Any:
    """Apply a function to every block of rows, with the constraints on these."""
    import dask
    import dask.array as da

    single, ends = dask.delayed(_single_threaded(model)), np.cumsum([0, *X.chunks[0]])
    apply, pieces = dask.delayed(function), []
    blocks = _with_whole_rows(X).to_delayed()[:, 0]
    # Optimised, its graph would lose hold of what is on workers.
    of_W = [None] * len(blocks) if W is None else W.to_delayed(optimize_graph=False)[:, 0]
    meta = _meta(model.sparse_output, dtype)
    for block, rows_of_W, start, stop in zip(blocks, of_W, ends[:-1], ends[1:], strict=True):
        part = constraints.part(np.arange(start, stop))
        # With W, counts are needed only for samples of weight 0, which had no part in the fit.
        is_needed = W is None or (part.sample_weight is not None and not part.sample_weight.all())
        counts, part = block if is_needed else None, dask.delayed(part, traverse=False)
        piece = apply(counts, rows_of_W, single, dtype, int(start), part)
        shape = (int(stop - start), model.n_components_)
        pieces.append(da.from_delayed(piece, shape, meta=meta))
    return da.concatenate(pieces)


def _single_threaded(model: Any) -> Any:
    """Return a copy for Dask, which runs one of them in each of its threads."""
    single = copy.copy(model)
    single.backend, single.n_threads, single.run = "cpu", 1, None
    single._saved_state = None
    return single


def _with_whole_rows(X: Any) -> Any:
    return X.rechunk({1: -1}) if X.numblocks[1] > 1 else X


def _transformed_block(block: Any, model: Any, dtype: Any) -> Any:
    counts = checked_block([block], dtype, type(model).__name__, 0)
    return model._as_output(model._transformed(InMemoryData(counts), {}))


def _transformed_rows(
    block: Any, _: Any, model: Any, dtype: Any, first_row: int, constraints: Constraints
) -> Any:
    counts = checked_block([block], dtype, type(model).__name__, first_row, constraints.missing)
    return model._as_output(model._solve_W(InMemoryData(counts), model._H(), constraints))


def _rows_in_user_units(
    block: Any, W: Array, model: Any, dtype: Any, first_row: int, constraints: Constraints
) -> Any:
    if block is None:
        return model._as_output(constraints.original(0, W))
    counts = checked_block([block], dtype, type(model).__name__, first_row, constraints.missing)
    return model._as_output(model._W_in_user_units(W, InMemoryData(counts), constraints))


def _meta(is_sparse: bool, dtype: Any) -> Any:
    return sp.csr_array((0, 0), dtype=dtype) if is_sparse else np.empty((0, 0), dtype=dtype)


def blocks_of_factor(backend: Backend, factor: Any, X: Any) -> Any:
    """Return a factor of a fit as a Dask array with blocks of the same rows as X.

    It stays on the workers if these outlive the fit; else it comes to this process.
    """
    import dask.array as da

    assert isinstance(backend, DaskBackend)
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
