"""The operations on one part, as functions that do not change their inputs."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from klnmf import _core
from klnmf.backends.cpu import (
    RowResults,
    column_squares,
    column_sums,
    evaluate_piece,
    update_piece,
)
from klnmf.backends.dask.operations import (
    Derive,
    Evaluate,
    Facts,
    Look,
    Operation,
    Outcome,
    Put,
    Update,
    Wants,
)
from klnmf.backends.dask.partition import Partition, Pieces
from klnmf.backends.numpy_factors import NumpyFactors, weighted_powers
from klnmf.data.sparse_data import Piece, RowView
from klnmf.support.array_types import Array


@dataclass(frozen=True)
class Context:
    """What an operation finds on the worker."""

    partition: Partition  # of its mode
    part: int
    n_threads: int
    wants: Wants
    inputs: list[Array]  # rows of the operation's sources
    data: RowView  # rows of X
    fixed: tuple[Array, Array] | None  # all rows of A, and its column sums

    @property
    def size(self) -> int:
        """Rows of the part."""
        return self.partition.size(self.part)


def run(operation: Operation, context: Context) -> tuple[Array | None, Any]:
    """Return the rows of the version that the operation makes, if any, and the answer."""
    match operation:
        case Update():
            return _update(operation, context)
        case Evaluate():
            return None, _evaluate(operation, context)
        case Look():
            return None, operation.function(context, *context.inputs, *operation.settings)
        case Put():
            rows = np.array(operation.rows[context.part])
        case Derive():
            rows = operation.function(context, *context.inputs, *operation.settings)
        case _:
            raise TypeError(f"backend='dask' has no operation {type(operation).__name__}.")
    made = np.ascontiguousarray(rows)
    return made, facts(context, made)


# ---- what Derive makes ---------------------------------------------------------------------------


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


# ---- what Look returns ---------------------------------------------------------------------------


def facts(context: Context, rows: Array) -> Facts:
    """Return what the driver may want to know of new rows."""

    def pieces(block_sum: Any) -> Pieces:
        return context.partition.pieces(context.part, rows, block_sum)

    return Facts(
        zeros=int(rows.size - np.count_nonzero(rows)),
        sums=pieces(column_sums) if context.wants.sums else None,
        squares=pieces(column_squares) if context.wants.squares else None,
    )


def weighted_sums(context: Context, x: Array) -> Pieces:
    """Column sums of the entries and their squares, rows weighted as the penalties count them."""
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


def _update(operation: Update, context: Context) -> tuple[Array, Outcome]:
    x = context.inputs[0].copy()
    results = RowResults.empty(context.size)
    if context.size:
        A, c = _fixed(operation, context)
        settings = (operation.fixed.l2 or 0.0, operation.rule, context.n_threads)
        update_piece(_piece(context), x, A, c, *settings, results)
    rule = operation.rule
    return x, _outcome(context, results, rule.gives_value, rule.gives_gap, facts(context, x))


def _evaluate(operation: Evaluate, context: Context) -> Outcome:
    x = context.inputs[0]
    results = RowResults.empty(context.size)
    if context.size:
        A, c = _fixed(operation, context)
        settings = (operation.fixed.l2, operation.want_residual, context.n_threads)
        evaluate_piece(_piece(context), x, A, c, *settings, results)
    return _outcome(context, results, has_values=True, has_gaps=True, new_facts=None)


def _piece(context: Context) -> Piece:
    return next(iter(context.data.pieces()))


def _fixed(operation: Update | Evaluate, context: Context) -> tuple[Array, Array]:
    """Return A and the slopes."""
    assert context.fixed is not None
    (A, sums), fixed = context.fixed, operation.fixed
    return A, sums + fixed.l1 if fixed.slopes is None else fixed.slopes


def _outcome(
    context: Context, results: RowResults, has_values: bool, has_gaps: bool, new_facts: Facts | None
) -> Outcome:
    def pieces(of_rows: Array) -> Pieces:
        return context.partition.pieces(context.part, of_rows, _core.blocked_sum)

    assert context.fixed is not None
    A, sums = context.fixed
    is_first = context.part == 0
    squares = column_squares(A) if is_first and context.wants.squares else None
    return Outcome(
        values=pieces(results.values) if has_values else None,
        kkt=results.worst,
        gaps=pieces(results.gaps) if has_gaps else None,
        facts=new_facts,
        fixed_sums=sums if is_first else None,
        fixed_squares=squares,
    )
