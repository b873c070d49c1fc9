"""Coordinate descent on the nonzeros: ours, which never rises, and the paper's, for comparison."""

import math
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from klnmf.backends.base import Improve, Multiply, PaperRule, Rule, Solve
from klnmf.solvers.base import Problem, Solver, State, alternate, relative_gain
from klnmf.solvers.extrapolation import Momentum
from klnmf.solvers.memory import StoredMemory
from klnmf.solvers.sample_fit import drawn_rows, fitted_on_rows
from klnmf.solvers.swaps import CANDIDATES, Swap, draw_sample, propose_swaps
from klnmf.support.array_types import Array
from klnmf.support.descriptions import described

# Each descent of a trial must take it this much nearer, on average, or it is not going to arrive.
SHRINKAGE = 0.75


@dataclass(frozen=True)
class SparseCoordinateDescent(Solver):
    """Sparse randomised coordinate descent with steps that cannot overshoot.

    The first iteration begins with an opening of over-relaxed multiplicative updates: the cheapest
    way down while every component is in use everywhere. From then on, a half-step screens the
    coordinates of every row by one gradient pass and sweeps over those that may move, in a random
    order from (seed, iteration). The factor that it holds fixed is extrapolated; a pair that would
    be worse is not kept. Under penalties on both factors each component is brought to its best
    scale. The objective never rises.

    From a start that was drawn, a fit that hardly moves any more tries to leave its local optimum
    by swaps of components, see ``klnmf.solvers.swaps``: each is given some descents, and is undone
    where these do not end lower. After ``swap_failures`` in a row that were no use there are no
    more. With ``swap_on_sample``, a fit of many rows does this on a sample of them, once, and with
    twice as many failures: see ``klnmf.solvers.sample_fit``.

    Double precision is for the end of a fit: from a start that was drawn, and for data that single
    precision holds exactly, the factors are in single precision while iterations still gain much
    (the objective is in double precision all the time).
    """

    name: ClassVar[str] = "srcd"
    rules: ClassVar[frozenset[type[Rule]]] = frozenset({Improve, Multiply, Solve})
    never_rises: ClassVar[bool] = True

    # Measured (docs/performance_log.md); a subclass with other values is an ablation.
    # Multiplicative updates of the opening: more of them move less than a sweep does by then.
    opening: ClassVar[int] = 3
    # Passes of a half-step: more of them cost more than the better objective is worth.
    passes: ClassVar[int] = 2
    # Single precision ends after an iteration that gained less than this share of the objective:
    # its rounding is a hundred times smaller.
    narrow_gain: ClassVar[float] = 1e-4
    # Swaps are tried after an iteration that gained less than this share of the objective. Earlier,
    # the descent still changes which components there are.
    swap_gain: ClassVar[float] = 3e-4
    # Descents of a trial: those that arrive do so within these.
    swap_descents: ClassVar[int] = 10
    momentum: ClassVar[type[Momentum]] = Momentum

    # What parts of the package vary: fits of samples, and fits that go on from others.
    swap_failures: int = 3
    swap_on_sample: bool = field(default=True, repr=False)

    def prepare(self, problem: Problem, state: State) -> None:
        """See :class:`Solver`."""
        rank = state.factors[0].shape[1]
        has_known_entries = problem.constraints.has_known_entries
        # Fixed entries keep all their digits.
        if state.was_drawn and problem.backend.narrow_dtype is not None and not has_known_entries:
            state.factors = [
                problem.backend.copy(factor, problem.backend.narrow_dtype)
                for factor in state.factors
            ]
        state.memory["momentum"] = self.momentum(state)
        # A given start is not left for another optimum. With a penalty on one factor alone there
        # is no minimiser: only the scale decides which of two results is lower. And a merge of
        # components would not keep entries that are fixed.
        may_swap = (
            state.was_drawn
            and rank > 1
            and not problem.penalties.is_one_sided
            and not has_known_entries
        )
        state.memory["swap_failures_left"] = self.swap_failures if may_swap else 0
        state.memory["gain"] = math.inf

    def stored_memory(self, state: State) -> StoredMemory:
        """See :class:`Solver`."""
        stored: StoredMemory = state.memory["momentum"].stored()
        stored.numbers["swap_failures_left"] = int(state.memory["swap_failures_left"])
        stored.numbers["gain"] = float(state.memory["gain"])
        return stored

    def restore_memory(self, problem: Problem, state: State, stored: StoredMemory) -> None:
        """See :class:`Solver`."""
        arrays = Momentum.array_names(len(state.factors))
        stored.check_names((*Momentum.NUMBERS, "swap_failures_left", "gain"), arrays)
        failures_left = stored.number("swap_failures_left", int)
        if not 0 <= failures_left <= self.swap_failures:
            raise ValueError(f"{failures_left} trials of swaps are left of {self.swap_failures}")
        state.memory = {
            "momentum": self.momentum.restored(state, stored),
            "swap_failures_left": failures_left,
            "gain": stored.number("gain", float),
        }

    def iterate(self, problem: Problem, state: State) -> None:
        """See :class:`Solver`."""
        memory, before = state.memory, state.objective
        if self._try_to_leave(problem, state):
            memory["gain"] = math.inf
            return
        if state.iteration == 0:
            # Every component is still in use in every row: a sweep over all of them would cost
            # several multiplicative updates, which move as far.
            for _ in range(self.opening):
                alternate(problem, state, Multiply(relaxed=1))
        if not self._iterate_narrow(problem, state):
            self._descend(problem, state, memory["momentum"])
        memory["gain"] = relative_gain(before, state.objective)

    def has_more_to_try(self, state: State) -> bool:
        """See :class:`Solver`."""
        return bool(state.memory["swap_failures_left"] > 0)

    def _try_to_leave(self, problem: Problem, state: State) -> bool:
        """Leave the local optimum that the fit is near to for a lower one, if that is found."""
        memory, rank = state.memory, state.factors[0].shape[1]
        if memory["swap_failures_left"] == 0 or not memory["gain"] < self.swap_gain:
            return False
        generator = np.random.default_rng([state.seed, rank])
        rows = drawn_rows(problem, rank, generator) if self.swap_on_sample else None
        if rows is not None:
            memory["swap_failures_left"] = 0
            # A trial costs little there, and there will be no more.
            failures = 2 * self.swap_failures
            there = replace(self, swap_on_sample=False, swap_failures=failures)
            return self._try(problem, state, fitted_on_rows(problem, state, rows, there))
        for swap in _promising_swaps(problem, state, self.swap_failures):
            if self._try_swap(problem, state, swap):
                return True
        memory["swap_failures_left"] = 0
        return False

    def _try_swap(self, problem: Problem, state: State, swap: Swap) -> bool:
        """Do a swap and some descents from there; keep what they lead to if that is lower."""
        return self._try(problem, state, _swapped(problem, state, swap))

    def _try(self, problem: Problem, state: State, factors: list[Any]) -> bool:
        """Do some descents from other factors; keep what they lead to if that is lower."""
        state.memory["momentum"].release(state)  # its memory is the trial's for now
        trial = State(factors, state.seed, state.iteration)
        momentum = self.momentum(trial)
        _rescale_if_useful(problem, trial, momentum)
        allowed = math.inf
        for _ in range(self.swap_descents):
            self._descend(problem, trial, momentum)
            trial.iteration += 1
            if trial.objective < state.objective:
                state.factors, state.objective = trial.factors, trial.objective
                state.met, state.memory["momentum"] = trial.met, momentum
                return True
            above = trial.objective - state.objective
            if above > allowed:
                break
            allowed = SHRINKAGE * (above if math.isinf(allowed) else allowed)
        return False

    def _iterate_narrow(self, problem: Problem, state: State) -> bool:
        """Do an iteration in single precision, if that is still good enough."""
        backend = problem.backend
        if state.factors[0].dtype == backend.data.dtype:
            return False
        if state.iteration == 0:
            self._descend(problem, state, state.memory["momentum"])
            return True
        before, objective = state.factors, state.objective
        self._descend(problem, state, state.memory["momentum"])
        gain = objective - state.objective
        went_down = math.isfinite(state.objective) and not gain < 0
        if not went_down:
            state.factors, state.objective = before, objective
        if not went_down or gain < self.narrow_gain * abs(state.objective):
            state.memory["momentum"].widen(problem, state)
        return went_down

    def _descend(self, problem: Problem, state: State, momentum: Momentum) -> None:
        # After the opening all components are still in use everywhere: one sweep sets most of them
        # to 0. There is no direction to follow yet.
        is_first = state.iteration == 0
        rule = Improve(
            order=state.order(state.factors[0].shape[1]),
            passes=1 if is_first and self.opening > 0 else self.passes,
        )
        state.met = momentum.iterate(problem, state, rule, extrapolate=not is_first)
        _rescale_if_useful(problem, state, momentum)


def _promising_swaps(problem: Problem, state: State, n_swaps: int) -> list[Swap]:
    """Find swaps that are worth a trial, at most ``n_swaps``, on a sample."""
    backend, (W, *others) = problem.backend, state.factors
    generator = np.random.default_rng([state.seed, state.iteration])
    view = backend.data.view(0)
    sample = draw_sample(view, W.shape[1], generator)
    by_mode = _column_scales(problem, others)
    scales = np.prod(by_mode, axis=0)
    parts = [
        backend.download(H, columns) / scale  # in float64, as the scales are
        for H, columns, scale in zip(others, sample.columns, by_mode, strict=True)
    ]
    swaps = propose_swaps(
        sample.X,
        backend.download(W, sample.rows) * scales,
        np.concatenate(parts) if len(parts) > 1 else parts[0],
        backend.column_sums(W) * scales,
        generator,
        max(n_swaps, CANDIDATES),
        sample.is_dominant,
    )
    promising = [swap for swap in swaps[:n_swaps] if swap.is_promising]
    return [swap._replace(column=sample.in_all(swap.column, view)) for swap in promising]


def _swapped(problem: Problem, state: State, swap: Swap) -> list[Any]:
    """Return a pair after the swap; the new component waits for the first half-step to use it.

    The merged component has the scale of the first of the pair, the new one that of the second.
    """
    (W, *others), merged = state.factors, problem.backend.merged
    by_mode = _column_scales(problem, others)
    first, second = np.prod(by_mode, axis=0)[list(swap.pair)]
    of_first, of_second = swap.shares
    factors = [merged(W, swap.pair, (1.0, second / first), None)]
    columns = problem.backend.data.view(0).split(swap.column)
    for H, scales, column in zip(others, by_mode, columns, strict=True):
        first, second = scales[list(swap.pair)]
        weights = (of_first, of_second * first / second)
        factors.append(merged(H, swap.pair, weights, second * column))
    return factors


def _column_scales(problem: Problem, factors: list[Any]) -> list[Array]:
    """Column sums of factors, 1 where there is nothing to scale, or too little to divide by."""
    sums = [problem.backend.column_sums(factor) for factor in factors]
    products, least = np.prod(sums, axis=0), 0.0
    if len(sums) > 1:  # beside the largest, smaller ones vanish in rounding, and ratios are numbers
        least = float(np.finfo(factors[0].dtype).eps) ** 2 * products.max()
    is_there = products > least
    return [np.where(is_there, of_mode, 1.0) for of_mode in sums]


def _rescale_if_useful(problem: Problem, state: State, momentum: Momentum) -> None:
    """Bring every component to its best scale, where that gains more than rounding could lose."""
    backend, penalties = problem.backend, problem.penalties
    if not penalties.has_best_scale:
        return
    measured = [problem.backend.sums_and_squares(mode, x) for mode, x in enumerate(state.factors)]
    by_mode = penalties.best_scales(*zip(*measured, strict=True))
    is_frozen = problem.is_frozen_anywhere(len(by_mode[0]))
    for scales in by_mode:
        scales[is_frozen] = 1.0
    before, after = 0.0, 0.0
    for mode, ((sums, squares), scale) in enumerate(zip(measured, by_mode, strict=True)):
        before += penalties.of(mode, sums, squares)
        after += penalties.of(mode, sums * scale, squares * scale**2)
    # Rounding the entries again changes W Hᵀ by two units in the last place at most.
    dtype = state.factors[0].dtype
    rounding = 4 * float(np.finfo(dtype).eps) * (backend.data.total + before)
    if before - after <= rounding:
        return
    momentum.rescaled(problem, state, by_mode)
    state.objective = problem.objective(state.factors)


@dataclass(frozen=True)
class PaperCoordinateDescent(Solver):
    r"""Algorithms 1 and 2 of the SRCD paper (Nguyen and Ho) as printed, for comparison.

    Misprints mended: the second call in Algorithm 1 gets sumF, α₁ and β₁ (printed: sumW, α₂, β₂);
    the break test of Algorithm 2 compares \|Δx\| with ε_x x (printed without the bars; with
    ``break_test="signed"`` it is used as printed, and any downward step then leaves the loop). ε,
    which the paper does not give, is 1e-10, both in log(Ax + ε) and in the loop's test; ε_x = 0.1
    as stated. The Newton step has no guard: the objective may rise, even to infinity.

    Parameters
    ----------
    break_test : {"absolute", "signed"}
        How the inner loop's break test is read.
    """

    name: ClassVar[str] = "srcd-paper"
    rules: ClassVar[frozenset[type[Rule]]] = frozenset({PaperRule})
    never_rises: ClassVar[bool] = False

    epsilon: ClassVar[float] = 1e-10
    relative_change: ClassVar[float] = 0.1

    break_test: str = "absolute"

    def __post_init__(self) -> None:
        """Check the one setting that is a word."""
        if self.break_test not in ("absolute", "signed"):
            raise ValueError(
                f'break_test must be "absolute" or "signed", got {described(self.break_test)}.'
            )

    def iterate(self, problem: Problem, state: State) -> None:
        """See :class:`Solver`."""
        rule = PaperRule(
            order=state.order(state.factors[0].shape[1]),
            epsilon=self.epsilon,
            relative_change=self.relative_change,
            signed_break=self.break_test == "signed",
        )
        # Algorithm 1 solves for F (our W) first, then for its W (our H), with the same order.
        alternate(problem, state, rule)
