"""What a solver may ask of the machine it runs on.

A back-end holds the data and knows how to apply a *rule* to every row problem of one mode. Factors
live where the back-end wants them: ``upload`` brings an array there, ``download`` brings it back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy.typing as npt

from klnmf.data.sparse_data import CountData

Array = npt.NDArray[Any]


class Rule:
    """What is done to every row problem of a mode; subclasses hold the settings."""

    @property
    def gives_value(self) -> bool:
        """Whether it computes the value of the row problems at the new x."""
        return False


@dataclass(frozen=True)
class GuardedRule(Rule):
    """Coordinate descent with steps that cannot overshoot, on the coordinates that may move."""

    order: Array  # int32 permutation of the components: the order of the visits
    rounds: int = 1  # screening passes at most, each followed by `sweeps` sweeps
    sweeps: int = 2
    tolerance: float = 0.0  # a row is left alone once its residual is at most this
    want_value: bool = True

    @property
    def gives_value(self) -> bool:
        """See :class:`Rule`."""
        return self.want_value


@dataclass(frozen=True)
class SolveRule(Rule):
    """Every row problem solved to its end, a convex problem with one minimum.

    A ``cold`` solve takes nothing from x: it begins with the same share of every component, and
    ``relaxed`` over-relaxed multiplicative steps, x ← x (S / c)^p scaled to the row's total: the
    cheapest while every component is in use. At most ``rounds`` steps of Newton's method follow.
    """

    tolerance: float  # a row is left alone once its residual is at most this
    rounds: int = 50
    relaxed: int = 0  # p = 3 in the first of them, 1.5 in the last, 2 between
    cold: bool = False


@dataclass(frozen=True)
class MultiplicativeRule(Rule):
    """One multiplicative update of every entry, x ← x S / c.

    Before it, ``relaxed`` steps x ← x (S / c)³, scaled to the row's total, each of them replaced by
    a plain one where it would not descend; without effect under an L2 penalty.
    """

    relaxed: int = 0


@dataclass(frozen=True)
class PaperRule(Rule):
    """The paper's Algorithm 2: unguarded projected Newton on a coordinate until it moves little."""

    order: Array
    epsilon: float = 1e-10  # in log(y + ε) and in the loop's test on the gradient
    relative_change: float = 0.1  # ε_x
    signed_break: bool = False  # the break test as printed, without |·|
    max_newton: int = 100


@dataclass(frozen=True)
class DenseRule(Rule):
    """Hsieh and Dhillon's cyclic descent, with the dense product P = W Hᵀ kept up to date."""

    product: Any  # from Backend.dense_product; changed in place
    relative_change: float = 0.5
    floor: float = 1e-15  # no entry falls below it, so that P > 0
    max_newton: int = 100


# Those that know what rows may have of their own (``klnmf.data.row_constraints``).
CONSTRAINED_RULES = frozenset({GuardedRule, SolveRule, MultiplicativeRule})


@dataclass(frozen=True)
class RowTotals:
    """Sum of the row problems' values, and the largest residual, over all rows of a mode."""

    value: float
    kkt: float


class ClusterLostError(RuntimeError):
    """The cluster, or too much of it, is gone."""


class Backend(Protocol):
    """The verbs.

    ``x`` is the factor of ``mode``, ``A`` the other one, c the column sums of A + l1, as ``slopes``
    returns it. Constraints on single rows are the ``row_constraints`` of the data's view.
    """

    name: ClassVar[str]
    rules: ClassVar[frozenset[type]]
    data: CountData
    narrow_dtype: Any  # a type below the data's that factors may also have; None if there is none

    def __init__(self, data: Any, n_threads: int | None = None) -> None: ...

    def upload(self, factor: Any) -> Any:
        """Copy a NumPy array, or what NumPy makes one of, to where this back-end computes."""

    def download(self, factor: Any) -> Array:
        """Return a factor as a C-contiguous NumPy array of the data's type, perhaps not a copy."""

    def snapshot(self, array: Any) -> Array:
        """Return a factor or a dense product as a NumPy array of its own type, perhaps no copy."""

    def restore(self, array: Array) -> Any:
        """Bring back what ``snapshot`` returned, in its own type; the array may be kept."""

    def copy(self, factor: Any) -> Any:
        """Return a factor of this back-end with the same entries and memory of its own."""

    def converted(self, factor: Any, dtype: Any) -> Any:
        """Return a copy of a factor in another type: the data's or ``narrow_dtype``."""

    def column_sums(self, factor: Any) -> Array:
        """Column sums in float64, by blocks of rows."""

    def column_squares(self, factor: Any) -> Array:
        """Sum the squares of the columns in float64, by blocks of rows."""

    def penalised_sums(self, mode: int, factor: Any) -> tuple[Array, Array]:
        """Column sums and sums of squares, rows times their shares of the penalties."""

    def slopes(self, A: Any, l1: float) -> Any:
        """Return c, column sums of A + l1, for the two last verbs; perhaps not computed yet."""

    def scale_columns(self, factor: Any, scales: Array) -> None:
        """``factor *= scales``, in place."""

    def take_rows(self, factor: Any, rows: Array) -> Array:
        """Return these rows of a factor as a NumPy array in float64."""

    def merge_columns(
        self, factor: Any, pair: tuple[int, int], weights: tuple[float, float], column: Array | None
    ) -> None:
        """Replace the first column of the pair by a weighted sum of both, the second by ``column``.

        ``column`` None is a column of zeros. In place.
        """

    def count_zeros(self, factor: Any) -> int:
        """How many entries are exactly 0."""

    def extrapolated(self, newest: Any, previous: Any, weight: float, keep: float) -> Any:
        """Return ``max(newest + weight · (newest − previous), keep · newest)``."""

    def dense_product(self, W: Any, H: Any) -> Any:
        """W Hᵀ, dense, in float64."""

    def update_rows(self, mode: int, x: Any, A: Any, c: Any, l2: float, rule: Rule) -> RowTotals:
        """Apply the rule to every row of ``x``, in place.

        The value is that of the new x if ``rule.gives_value``, else NaN; the residual is the one
        met on the way.
        """

    def evaluate(
        self, mode: int, x: Any, A: Any, c: Any, l2: float, want_residual: bool = True
    ) -> RowTotals:
        """Value and, where wanted, residual at ``x``, with every sum in float64."""

    def close(self) -> None:
        """Give back what the back-end holds beside memory; its factors are lost."""
