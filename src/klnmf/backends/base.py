"""What a back-end does: it holds the data and applies *rules* to the row problems of a mode."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from klnmf.data.sparse_data import CountData, FindConstraints, FitInput
from klnmf.support.array_types import Array
from klnmf.support.option_names import option


class Rule:
    """How to improve every row problem of a mode; subclasses hold the settings."""

    @property
    def gives_value(self) -> bool:
        """Whether it also computes the value of the row problems at the new x."""
        return False

    # Whether it also bounds how much lower the row problems could be than at the old x.
    gives_gap: ClassVar[bool] = True
    most_modes: ClassVar[int | None] = None  # that X may have; None: any number


@dataclass(frozen=True)
class Improve(Rule):
    """Some passes of second-order steps that cannot raise a row's value.

    In what way is the back-end's business: the C++ core screens the components by one gradient pass
    and then sweeps over those that may move, in this order, by steps that cannot overshoot.
    """

    order: Array  # int32 permutation of the components
    rounds: int = 1  # at most so many screenings, each followed by `passes` passes
    passes: int = 2
    tolerance: float = 0.0  # rows with a residual of at most this are not changed any more
    want_value: bool = True

    @property
    def gives_value(self) -> bool:
        """See :class:`Rule`."""
        return self.want_value


@dataclass(frozen=True)
class Solve(Rule):
    """Solve every row problem, which is convex, up to a tolerance.

    A ``cold`` solve ignores x. It starts with the same share of every component and does
    ``relaxed`` over-relaxed multiplicative steps, x ← x (S / c)^p scaled to the row's total, which
    are the cheapest while every component is in use. At most ``rounds`` steps of Newton's method
    follow.
    """

    tolerance: float  # rows with a residual of at most this are not changed any more
    rounds: int = 50
    relaxed: int = 0  # p = 3 in the first of them, 1.5 in the last, 2 between
    cold: bool = False


@dataclass(frozen=True)
class Multiply(Rule):
    """One multiplicative update of every entry, x ← x S / c.

    Before it come ``relaxed`` steps x ← x (S / c)³, scaled to the row's total. A step that does not
    descend is replaced by a plain one. There are none under an L2 penalty.
    """

    relaxed: int = 0


@dataclass(frozen=True)
class PaperRule(Rule):
    """The paper's Algorithm 2: projected Newton steps on a coordinate until it hardly moves."""

    order: Array
    epsilon: float = 1e-10  # in log(y + ε) and in the loop's test on the gradient
    relative_change: float = 0.1  # ε_x
    signed_break: bool = False  # the break test as printed, without |·|
    max_newton: int = 100
    gives_gap: ClassVar[bool] = False  # it would take a pass of its own
    most_modes: ClassVar[int | None] = 2


@dataclass(frozen=True)
class DenseRule(Rule):
    """Hsieh and Dhillon's cyclic descent, which keeps the dense product P = W Hᵀ up to date."""

    product: Any  # P in float64, uploaded like a factor; changed in place
    relative_change: float = 0.5
    floor: float = 1e-15  # no entry falls below it, so that P > 0
    max_newton: int = 100
    gives_gap: ClassVar[bool] = False  # it would take a pass of its own
    most_modes: ClassVar[int | None] = 2


@dataclass(frozen=True)
class Needs:
    """What a fit asks of a back-end, known before any work starts."""

    solver: str  # who asks
    rules: frozenset[type[Rule]]
    n_modes: int = 2
    n_components: int = 1
    dtype: np.dtype[Any] | None = None  # of the factors; None: not known yet
    constraints: tuple[str, ...] = ()  # that change single row problems, by the user's names


@dataclass(frozen=True)
class RowTotals:
    """What is known of the row problems of a mode, over all rows.

    The gap is a bound on how much lower their sum could be; see ``klnmf.objective.optimality_gap``.
    """

    value: float  # sum
    kkt: float  # largest residual
    gap: float  # sum; NaN if the rule does not give it


class Fixed(NamedTuple):
    """What the row problems of a mode see of everything that a half-step does not change.

    A is the factor of the other mode, or the products of the rows of several; c are the slopes of
    the linear term. The ``row_constraints`` of the data's view say what differs between rows.
    """

    mode: int
    factors: tuple[Any, ...]  # of the other modes, in the order of the modes
    l1: float = 0.0
    l2: float | None = 0.0  # None: no penalties, not even those that the data's view has by row
    slopes: Array | None = None  # c, where it is not the product of the column sums of A plus l1


class ClusterLostError(RuntimeError):
    """The Dask cluster, or too much of it, is lost."""


@dataclass(frozen=True)
class RowModel:
    """A fitted model as workers need it, for blocks of rows; each of their threads has one."""

    name: str
    n_components: int
    dtype: np.dtype[Any]  # of the components
    is_sparse: bool  # whether W is returned so
    # W of samples, and W of a fit in the user's units; both as the model returns it.
    transform: Callable[[CountData, Any], Any]
    in_user_units: Callable[[Array, CountData | None, Any], Any]


class LazyInput(FitInput):
    """X that is not read yet, such as an array on a cluster; its factors are of the same kind."""

    backend: ClassVar[str]  # the one that fits it
    refusal: ClassVar[str]  # what to say where counts must be in memory

    @classmethod
    @abstractmethod
    def of(
        cls, X: Any, given: dict[str, Any], dtype: Any, name: str
    ) -> tuple["LazyInput", dict[str, Any]]:
        """Return X for a fit of the estimator ``name``, and its constraints, in this process."""

    @abstractmethod
    def transformed(self, model: RowModel, find: FindConstraints) -> Any:
        """Return W of X, not computed yet; ``find`` checks the constraints."""

    @abstractmethod
    def factor_of_fit(self, backend: "Backend", factor: Any) -> Any:
        """Return the factor W of a fit, no longer on the back-end."""

    @abstractmethod
    def output(self, model: RowModel, W: Any, constraints: Any) -> Any:
        """Return that factor in the user's units and in the form that the model returns."""


class Backend(ABC):
    """The data, where they are computed with, and what can be asked about them.

    A *factor* is whatever the back-end makes of an array. Everyone else looks at its ``shape`` and
    ``dtype`` only, and passes it back to one of eleven verbs:

    - factors: ``upload``, ``download``, ``copy``, ``scaled``, ``merged``, ``extrapolated``;
    - sums: ``column_sums``, ``sums_and_squares``, ``count_zeros``;
    - row problems: ``update_rows``, ``evaluate``.

    Only ``update_rows`` changes a factor.

    A class that implements them and a line in ``klnmf.backends.BACKENDS`` are a new back-end.

    Parameters
    ----------
    data : FitInput
        X, as `CountData` or as what the back-end makes that from.
    n_threads : int or None
        Threads.
    """

    name: ClassVar[str]
    summary: ClassVar[str]  # what it runs on, for `klnmf info`
    rules: ClassVar[frozenset[type[Rule]]]  # that update_rows can apply
    # Those of them that respect the constraints of rows (``klnmf.data.row_constraints``).
    constrained_rules: ClassVar[frozenset[type[Rule]]] = frozenset()
    dtypes: ClassVar[tuple[str, ...]] = ("float32", "float64")  # of factors
    most_modes: ClassVar[int | None] = None
    most_components: ClassVar[int | None] = None
    keeps_factors: ClassVar[bool] = True  # whether a later fit can go on from those of this one
    checkpoints_of: ClassVar[str | None] = None  # another one, with which it shares checkpoints
    values_cost_a_pass: ClassVar[bool] = False  # those of Improve, of their own over the data
    data: CountData
    n_threads: int | None = None  # in this process, if it says
    narrow_dtype: Any = None  # a smaller type than the data's that factors may have too

    @abstractmethod
    def __init__(self, data: Any, n_threads: int | None = None) -> None: ...

    @classmethod
    def available(cls) -> str | None:
        """Return None, or why it cannot be used here and what to do about it."""
        return None

    @classmethod
    def found_here(cls) -> str:
        """Return what it runs on, for ``klnmf info``; it is available."""
        return cls.summary

    @classmethod
    def lacks(cls, needs: Needs) -> str | None:
        """Return None, or what a fit needs and this back-end does not have, as a sentence."""
        where, solver = option("backend", cls.name), option("solver", needs.solver)
        missing = sorted(rule.__name__ for rule in needs.rules - cls.rules)
        if missing:
            return (
                f"{solver} needs {', '.join(missing)}, which {where} does not have. Choose another "
                "solver or another backend."
            )
        for rule in needs.rules:
            if rule.most_modes is not None and needs.n_modes > rule.most_modes:
                return (
                    f"{solver} needs {rule.__name__}, which takes at most {rule.most_modes} modes, "
                    f"got {needs.n_modes}. Choose another solver, such as 'srcd'."
                )
        if needs.constraints and not needs.rules <= cls.constrained_rules:
            return (
                f"{solver} does not support {', '.join(needs.constraints)} on {where}. Choose "
                "another solver, such as 'srcd', or another backend."
            )
        if needs.dtype is not None and needs.dtype.name not in cls.dtypes:
            return f"{where} computes in {' or '.join(cls.dtypes)}, not in {needs.dtype}."
        for most, needed, what in (
            (cls.most_modes, needs.n_modes, "modes"),
            (cls.most_components, needs.n_components, "components"),
        ):
            if most is not None and needed > most:
                return f"{where} takes at most {most:,} {what}, got {needed:,}."
        return None

    def close(self) -> None:  # noqa: B027
        """Release everything but memory; factors are lost."""

    @classmethod
    def local(cls, data: CountData, n_threads: int | None = None) -> "Backend":
        """Return a back-end for data that are small, in this process."""
        return cls(data, n_threads)

    def with_threads(self, n_threads: int | None) -> "Backend":
        """Return one with the same data that uses so many threads of this process."""
        return type(self)(self.data, n_threads)

    # ---- factors ---------------------------------------------------------------------------------

    @abstractmethod
    def upload(self, array: Any, mode: int, dtype: Any = None) -> Any:
        """Return a factor of a mode with the entries of an array, or of what becomes one in NumPy.

        It is a copy in the data's type. With ``dtype`` it is in that type, and the array may become
        part of it.
        """

    @abstractmethod
    def download(self, factor: Any, rows: Array | None = None) -> Array:
        """Return a factor, or some of its rows, as a C-contiguous NumPy array of the same type.

        It may share the memory of the factor: write to it only if that is not used any more.
        """

    @abstractmethod
    def copy(self, factor: Any, dtype: Any = None) -> Any:
        """Return a new factor with the same entries; ``dtype`` is the data's or narrow_dtype."""

    @abstractmethod
    def scaled(self, factor: Any, scales: Array, order: Array | None = None) -> Any:
        """Return ``factor * scales``, with its columns in this order."""

    @abstractmethod
    def merged(
        self, factor: Any, pair: tuple[int, int], weights: tuple[float, float], column: Array | None
    ) -> Any:
        """Return a factor with two columns replaced.

        The first column of the pair becomes the weighted sum of both. The second becomes
        ``column``, or zeros if that is None.
        """

    @abstractmethod
    def extrapolated(self, newest: Any, previous: Any, weight: float, keep: float) -> Any:
        """Return ``max(newest + weight · (newest − previous), keep · newest)``."""

    # ---- sums ------------------------------------------------------------------------------------

    @abstractmethod
    def column_sums(self, factor: Any) -> Array:
        """Column sums in float64, by blocks of rows."""

    @abstractmethod
    def sums_and_squares(self, mode: int, factor: Any) -> tuple[Array, Array]:
        """Column sums of the entries and of their squares, in float64, as the penalties count them.

        Rows are weighted by the ``penalty_shares`` of the data's view, if it has these.
        """

    @abstractmethod
    def count_zeros(self, factor: Any) -> int:
        """Return the number of entries that are exactly 0."""

    # ---- row problems ----------------------------------------------------------------------------

    @abstractmethod
    def update_rows(self, x: Any, fixed: Fixed, rule: Rule) -> RowTotals:
        """Apply a rule to every row of ``x``, in place.

        Parameters
        ----------
        x : factor
            Of the mode.
        fixed : Fixed
            The mode, the factors of the others, and the penalties.
        rule : Rule
            One of ``rules``.

        Returns
        -------
        RowTotals
            The value at the new x if ``rule.gives_value``, else NaN; the largest residual met on
            the way; and the gap at the old x if ``rule.gives_gap``, else NaN.
        """

    @abstractmethod
    def evaluate(self, x: Any, fixed: Fixed, want_residual: bool = True) -> RowTotals:
        """Value and, if wanted, residual and gap at ``x``, with every sum in float64."""
