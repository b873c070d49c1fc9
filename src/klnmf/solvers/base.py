"""What a solver is: a way to do one iteration on the factors. The loop is in `solvers/loop.py`."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np

from klnmf.backends import Backend
from klnmf.backends.base import Fixed, Needs, RowTotals, Rule, Solve
from klnmf.constraints.constraints import Constraints
from klnmf.constraints.penalties import Penalties
from klnmf.data.row_constraints import RowConstraints
from klnmf.solvers.memory import StoredMemory
from klnmf.support.array_types import Array
from klnmf.support.caching import cached_property

# Beside larger penalties, in units of the divergence, objective minus penalties would lose digits.
PENALTIES_TO_SUBTRACT = 100.0
# Gap of a solved row, in units of its total and of the rounding of its type.
ROUNDING_OF_GAPS = 16


class Met(NamedTuple):
    """What half-steps found where they started: at moving factors, so it is no certificate."""

    violation: float = math.inf  # the largest KKT residual
    gap: float = math.inf  # how much lower the objective could be; NaN if a rule does not tell

    @staticmethod
    def worst(met: Iterable["Met"]) -> "Met":
        """Return the worst of each; NaN if one of them is."""
        violations, gaps = zip(*met, strict=True)
        return Met(max(violations), math.nan if any(map(math.isnan, gaps)) else max(gaps))


class HalfStep(NamedTuple):
    """Penalised objective of the new factors, and what was met at the old ones."""

    objective: float  # NaN if the rule does not compute it
    met: Met


class Evaluation(NamedTuple):
    """Factors, evaluated in full."""

    objective: float  # with penalties
    divergence: float  # without
    kkt_residual: float
    gap: float  # how much lower the objective could be, at most, for another W or another H

    @property
    def optimality_gap(self) -> float:
        """The gap in units of the objective."""
        return relative_gap(self.gap, self.objective)


@dataclass(frozen=True)
class Problem:
    """The data on a back-end, and the penalties: everything that a solver does not change."""

    backend: Backend
    penalties: Penalties

    def upload(self, factors: Iterable[Any]) -> list[Any]:
        """Return factors of the back-end, one for each mode, with the entries of NumPy arrays."""
        return [self.backend.upload(factor, mode) for mode, factor in enumerate(factors)]

    def download(self, factors: Iterable[Any]) -> list[Array]:
        """Return factors as NumPy arrays of the data's type."""
        dtype = self.backend.data.dtype
        return [np.asarray(self.backend.download(factor), dtype) for factor in factors]

    @property
    def constraints(self) -> Constraints:
        """Constraints of the fit; those on row problems are also in `RowView.row_constraints`."""
        data = self.backend.data
        if data.constraints is None:
            return Constraints(data.shape, 0)  # without fixed components, the rank has no meaning
        assert isinstance(data.constraints, Constraints)
        return data.constraints

    @cached_property
    def _by_mode(self) -> dict[int, RowConstraints]:
        return {}

    def _row_constraints(self, mode: int) -> RowConstraints:
        """Return those of a mode, of which alone X is sorted by rows: transform needs no other."""
        if mode not in self._by_mode:
            found = self.backend.data.row_constraints(mode)
            self._by_mode[mode] = found or RowConstraints()
        return self._by_mode[mode]

    def is_frozen(self, mode: int, n_components: int) -> Array:
        """By component, whether a half-step of this mode leaves it as it is."""
        return self._row_constraints(mode).is_frozen(n_components)

    def penalty(self, mode: int, factor: Any) -> float:
        """Penalty of one factor."""
        if not self.penalties.penalised_modes[mode]:
            return 0.0
        if self.penalties.l2[mode] or self._row_constraints(mode).penalty_shares is not None:
            return self.penalties.of(mode, *self.backend.sums_and_squares(mode, factor))
        sums = self.backend.column_sums(factor)
        return self.penalties.of(mode, sums, np.zeros_like(sums))

    def fixed(self, mode: int, factors: list[Any]) -> Fixed:
        """Return what a half-step of a mode does not change.

        Rows with shares of the penalties add L1 themselves.
        """
        others = tuple(factor for other, factor in enumerate(factors) if other != mode)
        has_shares = self._row_constraints(mode).penalty_shares is not None
        l1 = 0.0 if has_shares else self.penalties.l1[mode]
        return Fixed(mode, others, l1, self.penalties.l2[mode])

    def update(self, mode: int, factors: list[Any], rule: Rule) -> HalfStep:
        """Apply a rule to the factor of ``mode``, in place; the others are fixed."""
        totals = self.backend.update_rows(factors[mode], self.fixed(mode, factors), rule)
        return HalfStep(self._objective(mode, factors, totals), Met(totals.kkt, totals.gap))

    def objective(self, factors: list[Any]) -> float:
        """Penalised objective, in float64."""
        return self._objective(0, factors, self._evaluate(0, factors, want_residual=False))

    def evaluate(self, factors: list[Any]) -> Evaluation:
        """Objective, divergence, the largest residual and gap of all factors, in float64."""
        totals = [self._evaluate(mode, factors) for mode in range(len(factors))]
        objective = self._objective(0, factors, totals[0])
        divergence = self.divergence(objective, factors)
        worst = Met.worst(Met(of_mode.kkt, of_mode.gap) for of_mode in totals)
        return Evaluation(objective, divergence, *worst)

    def presented(self, factors: list[Any], *, by_size: bool) -> list[Any]:
        """Return factors with the same rates as people expect them.

        Without penalties, which depend on the scale, every factor but the first has columns that
        sum to 1, in the user's units: W counts. With ``by_size`` the largest component comes first,
        unless zeros say which is which. Fixed components keep their scale and their place.
        """
        constraints, sums = self.constraints, [self.backend.column_sums(x) for x in factors]
        masses = np.prod(sums, axis=0)
        is_frozen = self.is_frozen_anywhere(len(masses))
        scales = [np.ones(len(masses)) for _ in factors]
        if not any(self.penalties.penalised_modes):
            for mode, total in enumerate(sums[1:], 1):
                if constraints.weights[mode] is not None:
                    (weighted,) = self.download([factors[mode]])
                    total[:] = constraints.original(mode, weighted).sum(axis=0, dtype=np.float64)
                total[(total <= 0.0) | is_frozen] = 1.0
                scales[mode] /= total
                scales[0] *= total
        order = None
        if by_size and not constraints.has_zeros:
            order, free = np.arange(len(masses)), np.flatnonzero(~is_frozen)
            order[free] = free[np.argsort(-masses[free], kind="stable")]
        return [self.backend.scaled(x, s, order) for x, s in zip(factors, scales, strict=True)]

    def is_frozen_anywhere(self, n_components: int) -> Array:
        """By component, whether it is fixed in one of the factors."""
        modes = range(len(self.backend.data.shape))
        return np.asarray(np.any([self.is_frozen(mode, n_components) for mode in modes], axis=0))

    def allowed_gap(self, objective: float, tol: float, dtype: Any) -> float:
        """Return the gap up to which factors of this type have converged.

        ``tol`` times the objective, or what rounding leaves of it: where the objective is nearly
        0, no factors have a smaller gap. With ``tol=0`` rounding is no excuse.
        """
        return max(tol * abs(objective), self.rounding(dtype) if tol > 0 else 0.0)

    def rounding(self, dtype: Any) -> float:
        """Return the gap that rounding leaves of factors of this type which are solved for."""
        return ROUNDING_OF_GAPS * float(np.finfo(dtype).eps) * self.backend.data.total

    def gap_by_solving(self, factors: list[Any], objective: float) -> float:
        """Return a gap that is sharper than that of `evaluate`, and costs a solve for each factor.

        What a solve gains, and the gap of what it leads to, bound what any other factor gains. That
        falls with the square of the distance to the optimum, the gap with the distance itself.
        """
        gaps = []
        for mode, factor in enumerate(factors):
            solved = [*factors]
            solved[mode] = self.backend.copy(factor, factor.dtype)
            self.update(mode, solved, Solve(tolerance=0.0, rounds=20))
            there = self._evaluate(mode, solved)
            gain = objective - self._objective(mode, solved, there)
            gaps.append(max(gain, 0.0) + there.gap)
        return max(gaps)

    def divergence(self, objective: float, factors: list[Any]) -> float:
        """KL divergence of factors whose penalised objective is given."""
        penalties = sum(self.penalty(mode, factor) for mode, factor in enumerate(factors))
        difference = objective - penalties
        if penalties <= PENALTIES_TO_SUBTRACT * abs(difference):
            return difference
        fixed = self.fixed(0, factors)._replace(l1=0.0, l2=None)
        totals = self.backend.evaluate(factors[0], fixed, want_residual=False)
        return totals.value + self.backend.data.divergence_constant

    def _evaluate(self, mode: int, factors: list[Any], want_residual: bool = True) -> RowTotals:
        return self.backend.evaluate(factors[mode], self.fixed(mode, factors), want_residual)

    def _objective(self, mode: int, factors: list[Any], totals: RowTotals) -> float:
        if math.isnan(totals.value):  # the rule does not give it
            return math.nan
        # The row problems hold everything but X log X − X and the penalties of the fixed factors.
        penalties = sum(
            self.penalty(other, factor) for other, factor in enumerate(factors) if other != mode
        )
        return totals.value + self.backend.data.divergence_constant + penalties


@dataclass
class State:
    """Where an iteration starts: enough to go on, from memory or a file, to the same result."""

    factors: list[Any]  # one for each mode: [W, H]; the objective belongs to these
    seed: int  # the order of the coordinates comes from (seed, iteration)
    iteration: int = 0
    objective: float = float("nan")
    met: Met = field(default_factory=Met)  # in the last iteration
    seconds: float = 0.0  # spent in the solver, evaluation not counted
    was_drawn: bool = False  # the start was drawn, not given: its digits do not matter
    memory: dict[str, Any] = field(default_factory=dict)  # what else the solver keeps

    def order(self, n_components: int) -> Array:
        """Random order of the coordinates, shared by all rows of this iteration."""
        generator = np.random.default_rng([self.seed, self.iteration])
        return generator.permutation(n_components).astype(np.int32)


def relative_gain(before: float, after: float) -> float:
    """Share of the objective that an iteration gained; infinite if there was no objective."""
    return (before - after) / (abs(after) or 1.0) if math.isfinite(before) else math.inf


def relative_gap(gap: float, objective: float) -> float:
    """Return the gap in units of the objective."""
    if math.isnan(gap):
        return math.nan  # always the same object: records of two fits can be compared
    if gap == 0 or math.isinf(gap):
        return gap
    return gap / abs(objective) if objective else math.inf


class Solver(ABC):
    """One iteration updates W, then H. Subclasses hold their settings and nothing else."""

    name: ClassVar[str]
    rules: ClassVar[frozenset[type[Rule]]]  # what it needs of a back-end
    never_rises: ClassVar[bool]  # whether the objective cannot rise, by proof

    def needs(
        self, n_components: int, dtype: Any = None, constraints: Constraints | None = None
    ) -> Needs:
        """Return what a fit asks of a back-end; it ends with a solve for W, as in transform."""
        return Needs(
            solver=self.name,
            rules=self.rules | {Solve},
            n_modes=2 if constraints is None else len(constraints.shape),
            n_components=n_components,
            dtype=dtype,
            constraints=() if constraints is None else tuple(constraints.names_on_rows),
        )

    def prepare(self, problem: Problem, state: State) -> None:  # noqa: B027
        """Set up what the solver keeps between iterations; called once, before the first."""

    def stored_memory(self, state: State) -> StoredMemory:
        """Return what the solver keeps between iterations, for a file.

        Scratch arrays, whose entries do not matter, are left out. A solver that puts anything into
        ``state.memory`` has this method and the next one.
        """
        if state.memory:
            raise ValueError(
                f"solver={self.name!r} keeps {sorted(state.memory)} between iterations but cannot "
                "store it, so its fits cannot have a checkpoint. Add the methods stored_memory and "
                "restore_memory to its class, or choose another solver."
            )
        return StoredMemory()

    def restore_memory(self, problem: Problem, state: State, stored: StoredMemory) -> None:
        """Set ``state.memory`` so that the next iteration is exactly what it would have been.

        Raises a ValueError if that is not what ``stored_memory`` returns.
        """
        stored.check_names()
        state.memory = {}

    def has_more_to_try(self, state: State) -> bool:
        """Whether it can still leave the local optimum that small gains show it to be near."""
        return False

    @abstractmethod
    def iterate(self, problem: Problem, state: State) -> None:
        """Do one iteration: new ``state.factors`` and ``state.met``.

        ``state.objective`` is set where it is a by-product, and to NaN where it is not.
        """


def alternate(problem: Problem, state: State, rule: Rule) -> None:
    """Apply one rule to W and then to H, in place."""
    state.objective = float("nan")  # the old one belongs to the factors before any change
    steps = [problem.update(mode, state.factors, rule) for mode in range(len(state.factors))]
    state.met = Met.worst(step.met for step in steps)
