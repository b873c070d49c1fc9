"""The operations on one part, as functions that change none of their inputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from klnmf import _core
from klnmf.backends.cpu import evaluate_piece, update_piece
from klnmf.backends.dask.operations import (
    Convert,
    Describe,
    Evaluate,
    Extrapolate,
    Facts,
    Merge,
    Operation,
    Outcome,
    Put,
    Scale,
    SumInOwnUnits,
    TakeData,
    TakeRows,
    Update,
    Wants,
)
from klnmf.backends.dask.partition import Partition, Pieces
from klnmf.backends.numpy_factors import NumpyFactors, penalised_powers
from klnmf.data.sparse_data import RowView

Array = npt.NDArray[Any]

_ON_ARRAYS = NumpyFactors()


@dataclass(frozen=True)
class Context:
    """What an operation finds on the worker."""

    partition: Partition  # of its mode
    part: int
    n_threads: int
    wants: Wants
    inputs: dict[str, Array]  # rows of versions, by the names of the operation
    data: RowView | None  # rows of X
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
        case Describe():
            return None, facts(context.inputs["x"], context)
        case SumInOwnUnits():
            return None, _penalised_sums(context)
        case TakeRows():
            return None, _take_rows(operation, context)
        case TakeData():
            return None, _take_data(operation, context)
    made = np.ascontiguousarray(_made(operation, context))
    return made, facts(made, context)


def _made(operation: Operation, context: Context) -> Array:
    """Return the rows of operations that are about one factor alone."""
    inputs = context.inputs
    match operation:
        case Put():
            return np.array(operation.rows[context.part])
        case Extrapolate():
            target = np.empty_like(inputs["newest"])
            weights = (operation.weight, operation.keep)
            pair = (inputs["newest"], inputs["previous"])
            _core.extrapolate(*pair, *weights, context.n_threads, target)
            return target
        case Convert():
            return inputs["x"].astype(operation.dtype)
        case Scale():
            scaled = inputs["x"].copy()
            _ON_ARRAYS.scale_columns(scaled, operation.scales)
            return scaled
        case Merge():
            merged = inputs["x"].copy()
            own = context.partition.rows(context.part)
            column = None if operation.column is None else operation.column[own]
            _ON_ARRAYS.merge_columns(merged, operation.pair, operation.weights, column)
            return merged
    raise TypeError(f"backend='dask' has no operation {type(operation).__name__}.")


def _update(operation: Update, context: Context) -> tuple[Array, Outcome]:
    x = context.inputs["x"].copy()
    values, kkt = np.empty(context.size), np.empty(context.size)
    A, sums = _fixed(context)
    c = _slopes(operation.slopes, sums)
    if context.size:
        settings = (c, operation.l2, operation.rule, context.n_threads)
        update_piece(_piece(context), x, A, *settings, values, kkt)
    given = values if operation.rule.gives_value else None
    return x, _outcome(context, given, kkt, facts(x, context))


def _evaluate(operation: Evaluate, context: Context) -> Outcome:
    values, kkt = np.empty(context.size), np.empty(context.size)
    A, sums = _fixed(context)
    if context.size:
        settings = (_slopes(operation.slopes, sums), operation.l2, operation.want_residual)
        results = (context.n_threads, values, kkt)
        evaluate_piece(_piece(context), context.inputs["x"], A, *settings, *results)
    return _outcome(context, values, kkt, None)


def _fixed(context: Context) -> tuple[Array, Array]:
    assert context.fixed is not None
    return context.fixed


def _slopes(given: Array | float, sums: Array) -> Array:
    return sums + given if isinstance(given, float) else given


def _piece(context: Context) -> Any:
    assert context.data is not None
    return next(iter(context.data.pieces()))


def _outcome(
    context: Context, values: Array | None, kkt: Array, new_facts: Facts | None
) -> Outcome:
    pieces = None
    if values is not None:
        pieces = context.partition.pieces(context.part, values, _core.blocked_sum)
    A, sums = _fixed(context)
    is_first = context.part == 0
    squares = column_squares(A) if is_first and context.wants.squares else None
    return Outcome(
        pieces, float(kkt.max(initial=0.0)), new_facts, sums if is_first else None, squares
    )


def facts(rows: Array, context: Context) -> Facts:
    """Return what the driver may want to know of new rows."""

    def pieces(block_sum: Any) -> Pieces:
        return context.partition.pieces(context.part, rows, block_sum)

    return Facts(
        zeros=int(rows.size - np.count_nonzero(rows)),
        sums=pieces(column_sums) if context.wants.sums else None,
        squares=pieces(column_squares) if context.wants.squares else None,
    )


def column_sums(rows: Array) -> Array:
    """Column sums in float64, by blocks of rows."""
    sums = np.empty(rows.shape[1])
    _core.column_sums(np.ascontiguousarray(rows), 1, sums)
    return sums


def column_squares(rows: Array) -> Array:
    """Column sums of squares in float64, by blocks of rows."""
    squares = np.empty(rows.shape[1])
    _core.column_squares(np.ascontiguousarray(rows), 1, squares)
    return squares


def _penalised_sums(context: Context) -> Pieces:
    assert context.data is not None
    assert context.data.row_constraints is not None
    assert context.data.row_constraints.penalty_shares is not None
    powers = penalised_powers(context.inputs["x"], context.data.row_constraints.penalty_shares)
    return context.partition.pieces(context.part, powers, sum_of_rows)


def sum_of_rows(rows: Array) -> Array:
    """Sum over the first axis."""
    return np.asarray(rows.sum(axis=0))


def _own_rows(context: Context, rows: Array) -> Array:
    own = context.partition.rows(context.part)
    return np.asarray(rows[(rows >= own.start) & (rows < own.stop)] - own.start)


def _take_rows(operation: TakeRows, context: Context) -> Array:
    x = context.inputs["x"]
    if operation.rows is None:
        return x
    taken: Array = x[_own_rows(context, operation.rows)]
    return taken


def _take_data(operation: TakeData, context: Context) -> tuple[Array, Array, Array]:
    assert context.data is not None
    return context.data.take_rows(_own_rows(context, operation.rows))
