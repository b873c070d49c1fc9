"""Dask arrays that estimators take, with constraints, and return."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
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
from klnmf.data.sparse_data import SparseData

Array = npt.NDArray[Any]

# Constraints that are patterns of cells.
PATTERNS = ("missing", "zero_W", "zero_components")


def known_on_driver(given: dict[str, Any], X: Any) -> dict[str, Any]:
    """Bring constraints that are Dask arrays into memory; patterns become sparse.

    Parameters
    ----------
    given : dict
        Constraints as they were passed, by name.
    X : dask.array.Array
        Counts.
    """
    import dask

    names = [name for name in OF_SAMPLES if given.get(name) is not None]
    if names and np.isnan(X.shape[0]):
        raise ValueError(
            f"{', '.join(names)} cannot be matched with the samples of the Dask array X: the "
            "sizes of its blocks are unknown. Call X.compute_chunk_sizes() first."
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


@dataclass(frozen=True)
class RowsOfW:
    """How an estimator makes rows of W from blocks of a Dask array."""

    # From counts, rows of W of a fit, and constraints, each perhaps None; called by Dask's threads.
    make: Callable[[SparseData | None, Array | None, Constraints | None], Any]
    n_components: int
    dtype: np.dtype[Any]
    is_sparse: bool
    caller: str  # for messages


def blocks_of_W(  # noqa: N802
    rows: RowsOfW, X: Any, known: Constraints | None = None, W: Any = None
) -> Any:
    """W as a Dask array with blocks of the same rows as X, each computed when it is asked for.

    Parameters
    ----------
    rows : RowsOfW
        What makes the rows.
    X : dask.array.Array
        Counts.
    known : Constraints or None
        Constraints of all samples.
    W : dask.array.Array or None
        W of a fit, with the same blocks, to be returned in the units of the user; None to solve
        for W.
    """
    import dask
    import dask.array as da

    meta: Any = np.empty((0, 0), dtype=rows.dtype)
    meta = sp.csr_array(meta) if rows.is_sparse else meta
    is_scaled = known is not None and (known.scales(0) is not None or known.fixed[0] is not None)
    if W is not None and not is_scaled:
        return W.map_blocks(sp.csr_array, meta=meta) if rows.is_sparse else W
    whole = X.rechunk({1: -1}) if X.numblocks[1] > 1 else X
    # Optimised graphs would lose hold of what is on workers.
    blocks = whole.to_delayed(optimize_graph=False)[:, 0]
    of_W = [None] * len(blocks) if W is None else W.to_delayed(optimize_graph=False)[:, 0]
    shared, pieces, start = dask.delayed(rows, traverse=False), [], 0
    for block, rows_of_W, size in zip(blocks, of_W, X.chunks[0], strict=True):
        part, stop = None, start if np.isnan(size) else start + int(size)
        if known is not None:
            part = known.part(np.arange(start, stop))
            if W is not None and (part.sample_weight is None or part.sample_weight.all()):
                block = None  # counts are needed only for samples that had no part in the fit
        part = dask.delayed(part, traverse=False)
        piece = dask.delayed(_made)(shared, block, rows_of_W, start, part)
        pieces.append(da.from_delayed(piece, (size, rows.n_components), meta=meta))
        start = stop
    return da.concatenate(pieces)


def _made(
    rows: RowsOfW, block: Any, W: Array | None, first_row: int, known: Constraints | None
) -> Any:
    data = None
    if block is not None:
        missing = None if known is None else known.missing
        data = SparseData(checked_block([block], rows.dtype, rows.caller, first_row, missing))
    return rows.make(data, W, known)


def blocks_of_factor(backend: Backend, factor: Any, X: Any) -> Any:
    """Return a factor of a fit as a Dask array with blocks of the same rows as X.

    It stays on the workers if these outlive the fit; otherwise it is brought to this process.
    """
    import dask
    import dask.array as da

    assert isinstance(backend, DaskBackend)
    heights = X.chunks[0]
    if np.isnan(heights).any():
        heights = (factor.shape[0],)
    parts = backend.futures_of(factor)
    if parts is None:
        return da.from_array(backend.download(factor), chunks=(heights, -1))
    return da.concatenate(
        [da.from_delayed(dask.delayed(part), shape, factor.dtype) for part, shape in parts]
    ).rechunk((heights, -1))
