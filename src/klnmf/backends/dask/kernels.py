"""What the driver asks of the workers: functions of parts of factors, which change no input.

A *version* is a factor that never changes. Operations make new ones; each worker makes its parts.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from klnmf import _core
from klnmf.backends.base import Fixed, Rule
from klnmf.backends.cpu import (
    RowResults,
    column_sums,
    evaluate_piece,
    update_piece,
)
from klnmf.backends.cuda.part_of_rows import PartOnDevice
from klnmf.backends.dask.partition import Partition, Pieces
from klnmf.backends.numpy_factors import NumpyFactors, weighted_powers
from klnmf.data.sparse_data import Piece, RowView
from klnmf.support.array_types import Array


@dataclass(frozen=True)
class Operation:
    """What every worker does with its parts of a mode: small, and the same when repeated."""

    mode: int
    function: Callable[..., Any]  # of the context, the rows of the sources, and the settings
    sources: tuple[int, ...] = ()  # versions of this mode
    settings: tuple[Any, ...] = ()
    fixed: Fixed | None = None  # its factors are versions, of which every worker needs all rows
    out: int | None = None  # the version that the rows become that the function returns
    by_part: dict[int, Any] | None = None  # in place of sources; each goes to one worker alone


@dataclass(frozen=True)
class Context:
    """What an operation finds on the worker."""

    partition: Partition  # of its mode
    part: int
    n_threads: int
    data: RowView  # rows of X
    fixed: Fixed | None  # with all rows of the factors, and the slopes
    # The same rows of X on the GPU of the worker, if it has one; brought there at the first use.
    on_device: Callable[[], PartOnDevice] | None = None

    @property
    def size(self) -> int:
        """Rows of the part."""
        return self.partition.size(self.part)


class Outcome(NamedTuple):
    """Answer of one part to an update or an evaluation."""

    values: Pieces | None
    kkt: float
    gaps: Pieces | None
    zeros: int  # of x, after it


def run(operation: Operation, context: Context, inputs: list[Any]) -> tuple[Array | None, Any]:
    """Return the rows of the version that the operation makes, if any, and the answer."""
    found = operation.function(context, *inputs, *operation.settings)
    if operation.out is None:
        return None, found
    rows, answer = found if isinstance(found, tuple) else (found, None)
    return np.ascontiguousarray(rows), answer


# ---- new versions --------------------------------------------------------------------------------


def given(context: Context, rows: Any) -> Array:
    """Return rows that come from the driver, or that are made here from their description."""
    return np.array(rows)


def converted(context: Context, x: Array, dtype: Any) -> Array:
    """Return the same in another type."""
    return x.astype(dtype)


def scaled(context: Context, x: Array, scales: Array, order: Array | None) -> Array:
    """See :class:`~klnmf.backends.base.Backend`."""
    return NumpyFactors.scaled(x, scales, order)


def merged(
    context: Context,
    x: Array,
    pair: tuple[int, int],
    weights: tuple[float, float],
    column: Array | None,
) -> Array:
    """See :class:`~klnmf.backends.base.Backend`."""
    here = context.partition.rows(context.part)
    return NumpyFactors.merged(x, pair, weights, None if column is None else column[here])


def extrapolated(
    context: Context, newest: Array, previous: Array, weight: float, keep: float
) -> Array:
    """See :class:`~klnmf.backends.base.Backend`."""
    target = np.empty_like(newest)
    _core.extrapolate(newest, previous, weight, keep, context.n_threads, target)
    return target


# ---- what the driver wants to know ---------------------------------------------------------------


def count_zeros(context: Context, x: Array) -> int:
    """See :class:`~klnmf.backends.base.Backend`."""
    return int(x.size - np.count_nonzero(x))


def sums_and_squares(context: Context, x: Array) -> Pieces:
    """Column sums of the entries and of their squares."""
    return context.partition.pieces(context.part, x, powers_of_block)


def powers_of_block(rows: Array) -> Array:
    """Column sums of the entries of a block, and of their squares."""
    return np.array([column_sums(rows), column_sums(rows, power=2)])


def weighted_sums(context: Context, x: Array) -> Pieces:
    """Return `sums_and_squares` with rows weighted as the penalties count them."""
    assert context.data.row_constraints is not None
    assert context.data.row_constraints.penalty_shares is not None
    powers = weighted_powers(x, context.data.row_constraints.penalty_shares)
    return context.partition.pieces(context.part, powers, sum_of_rows)


def sum_of_rows(rows: Array) -> Array:
    """Sum over the first axis."""
    return np.asarray(rows.sum(axis=0))


def rows_of_factor(context: Context, x: Array, rows: Array | None) -> Array:
    """Return the rows of this part, or those that have these numbers."""
    return x if rows is None else np.asarray(x[_local(context, rows)])


def rows_of_data(context: Context, rows: Array) -> tuple[Array, Array, Array]:
    """Return those rows of X that are in this part: indptr, indices and values."""
    return context.data.take_rows(_local(context, rows))


def _local(context: Context, rows: Array) -> Array:
    here = context.partition.rows(context.part)
    return np.asarray(rows[(rows >= here.start) & (rows < here.stop)] - here.start)


# ---- row problems --------------------------------------------------------------------------------


def update(context: Context, before: Array, rule: Rule) -> tuple[Array, Outcome]:
    """Apply a rule to every row of x; see :class:`~klnmf.backends.base.Backend`."""
    x, results = before.copy(), RowResults.empty(context.size)
    if context.size and context.on_device is not None and PartOnDevice.can_do(x, rule):
        assert context.fixed is not None
        x, results = context.on_device().update(x, context.fixed, rule)
    elif context.size:
        A, c, l2 = _fixed(context)
        update_piece(_piece(context), x, A, c, l2 or 0.0, rule, context.n_threads, results)
    return x, _outcome(context, x, results, rule.gives_value, rule.gives_gap)


def evaluate(context: Context, x: Array, want_residual: bool) -> Outcome:
    """Return values and residuals at x; see :class:`~klnmf.backends.base.Backend`."""
    results = RowResults.empty(context.size)
    if context.size and context.on_device is not None and PartOnDevice.can_do(x):
        assert context.fixed is not None
        results = context.on_device().evaluate(x, context.fixed, want_residual)
    elif context.size:
        how = (want_residual, context.n_threads)
        evaluate_piece(_piece(context), x, *_fixed(context), *how, results)
    return _outcome(context, x, results, has_values=True, has_gaps=True)


def _piece(context: Context) -> Piece:
    return next(iter(context.data.pieces()))


def _fixed(context: Context) -> tuple[Array, Array, float | None]:
    """Return A, the slopes and l2."""
    fixed = context.fixed
    assert fixed is not None
    assert fixed.slopes is not None
    return fixed.factors[0], fixed.slopes, fixed.l2


def _outcome(
    context: Context, x: Array, results: RowResults, has_values: bool, has_gaps: bool
) -> Outcome:
    def pieces(of_rows: Array) -> Pieces:
        return context.partition.pieces(context.part, of_rows, _core.blocked_sum)

    return Outcome(
        values=pieces(results.values) if has_values else None,
        kkt=results.worst,
        gaps=pieces(results.gaps) if has_gaps else None,
        zeros=count_zeros(context, x),
    )
