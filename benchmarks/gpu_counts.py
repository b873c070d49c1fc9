"""Counts for `benchmarks.gpu`, drawn on the GPU."""

from __future__ import annotations

from typing import Any

import cupy as cp
import numpy as np
import scipy.sparse as sp


def zipf_counts(n: int, m: int, per_row: float, topics: int = 50, seed: int = 0) -> sp.csr_array:
    """Planted topics over words with Zipf's frequencies; drawn on the GPU."""
    generator = np.random.default_rng(seed)
    cp.random.seed(seed)
    base = cp.asarray(((1.0 + np.arange(m)) ** -0.9)[generator.permutation(m)])
    shares = base * cp.exp(1.5 * cp.random.standard_normal((topics, m)))
    shares /= shares.sum(axis=1, keepdims=True)
    ends = cp.minimum(cp.cumsum(shares, axis=1), 1 - 1e-12) + cp.arange(topics)[:, None]
    ends = ends.ravel()

    def drawn(n_rows: int, length: float) -> tuple[Any, Any, Any]:
        spread = cp.exp(np.log(length) - 0.18 + 0.6 * cp.random.standard_normal(n_rows))
        last = cp.cumsum(cp.clip(spread, 10, 20000).astype(cp.int64))
        total = int(last[-1])
        row = cp.searchsorted(last, cp.arange(total), side="right")
        of_row = cp.random.randint(0, topics, (n_rows, 4))
        which = cp.searchsorted(cp.array([0.5, 0.8, 0.95]), cp.random.random(total))
        topic = of_row[row, which]
        column = cp.searchsorted(ends, topic + cp.random.random(total), side="right") - topic * m
        cells = cp.sort(row * m + cp.minimum(column, m - 1))
        first = cp.flatnonzero(cp.concatenate([cp.ones(1, bool), cells[1:] != cells[:-1]]))
        counts = cp.diff(cp.concatenate([first, cp.array([total])]))
        return cells[first] // m, cells[first] % m, counts

    length = per_row * 1.4
    for _ in range(3):
        length *= (per_row / (len(drawn(5000, length)[0]) / 5000)) ** 1.2
    starts, columns, values, batch = [np.zeros(1, np.int64)], [], [], 25_000
    for begin in range(0, n, batch):
        row, column, count = drawn(min(batch, n - begin), length)
        ends_here = cp.searchsorted(row, cp.arange(min(batch, n - begin)), side="right")
        starts.append(starts[-1][-1] + ends_here.get())
        columns.append(column.astype(cp.int32).get())
        values.append(count.astype(cp.float32).get())
    indptr = np.concatenate(starts)
    if indptr[-1] <= np.iinfo(np.int32).max:
        indptr = indptr.astype(np.int32)  # SciPy would widen the indices to match
    arrays = (np.concatenate(values), np.concatenate(columns), indptr)
    cp.get_default_memory_pool().free_all_blocks()
    X = sp.csr_array((arrays[0], arrays[1], arrays[2]), shape=(n, m))
    used = np.flatnonzero(np.bincount(X.indices, minlength=m))
    return X if len(used) == m else sp.csr_array(X[:, used])


def tiled(X: sp.csr_array, times: int) -> sp.csr_array:
    """The rows of X so many times: drawing takes longer than everything that is measured."""
    indptr = np.concatenate([[0], np.cumsum(np.tile(np.diff(X.indptr), times), dtype=np.int64)])
    many = sp.csr_array((times * X.shape[0], X.shape[1]), dtype=X.dtype)
    is_narrow = indptr[-1] <= np.iinfo(np.int32).max
    many.indptr = indptr.astype(np.int32) if is_narrow else indptr
    many.indices, many.data = np.tile(X.indices, times), np.tile(X.data, times)
    return many
