"""Checkpoints of fits, from which a fit continues to exactly the same result."""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from klnmf.constraints.penalties import factor_name
from klnmf.saved.arrays import FLOATS, array_named, is_factor, pack_history, unpack_history
from klnmf.saved.container import Container, SavedFileError
from klnmf.saved.fields import Fields, number_from_json, number_to_json
from klnmf.saved.periodic_file import PeriodicFile, data_identity
from klnmf.solvers import Solver
from klnmf.solvers.base import Met, Problem, State
from klnmf.solvers.loop import Run, record_fields
from klnmf.solvers.memory import StoredMemory
from klnmf.support.array_types import Array
from klnmf.support.number_checks import checked_flag
from klnmf.support.option_names import option

# Checkpoints name the solver with settings that are constants now, so that older ones go on.
NAMES_IN_FILES = {
    "SparseCoordinateDescent(swap_failures=3)": (
        "SparseCoordinateDescent(opening=3, sweeps=2, narrow_gain=0.0001, swap_gain=0.0003, "
        "swap_descents=10, swap_failures=3, extrapolation=ExtrapolationWeights(first=0.5, "
        "largest=0.99, growth=1.05, shrinkage=0.75))"
    ),
    "PaperCoordinateDescent(break_test='absolute')": (
        "PaperCoordinateDescent(break_test='absolute', epsilon=1e-10, relative_change=0.1)"
    ),
    "DenseCyclicDescent()": "DenseCyclicDescent(relative_change=0.5, floor=1e-15)",
}


def fit_identity(
    problem: Problem,
    solver: Solver,
    parameters: dict[str, Any],
    given: Sequence[Array | None] = (None, None),
) -> dict[str, Any]:
    """Return everything that decides the result of each iteration, except for the seed.

    ``parameters`` are those of the estimator that the problem and the solver do not contain, and
    ``given`` are the factors of the start, by mode; those of components enter as ``components_``.
    """
    data, checksum = problem.backend.data, problem.constraints.checksum
    starts = {
        factor_name(mode): None if start is None else _checksum(start.T if mode else start)
        for mode, start in enumerate(given)
    }
    return {
        **data_identity(data),
        "checksums of the start": starts,
        "solver": NAMES_IN_FILES.get(repr(solver), repr(solver)),
        "backend": problem.backend.checkpoints_of or problem.backend.name,
        **problem.penalties.by_name,
        **parameters,
        **({} if checksum is None else {"checksum of what is known": checksum}),
    }


def _checksum(array: Array) -> int:
    return zlib.crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


@dataclass
class Checkpoint(PeriodicFile[Run]):
    """The checkpoint of a fit."""

    kind, work_name = "checkpoint", "fit"
    identity: dict[str, Any]  # must be the same for a fit that continues
    seed: int | None  # None: any will do
    max_iter: int
    tol: float

    def write(self, work: Run) -> None:
        """See :class:`PeriodicFile`; nothing is written in the middle of an iteration."""
        if work.is_whole:
            super().write(work)

    def packed(self, work: Run) -> Container:
        """See :class:`PeriodicFile`."""
        run, state, download = work, work.state, work.problem.backend.download
        names = {id(factor): factor_name(mode) for mode, factor in enumerate(state.factors)}
        arrays = {names[id(factor)]: download(factor) for factor in state.factors}
        memory = run.solver.stored_memory(state)
        for name, array in memory.arrays.items():
            if id(array) not in names:
                names[id(array)] = f"memory.{name}"
                arrays[f"memory.{name}"] = download(array)
        content = {
            "identity": self.identity,
            "tol": number_to_json(float(self.tol)),
            "state": {
                "seed": state.seed,
                "iteration": state.iteration,
                "objective": number_to_json(float(state.objective)),
                "violation": number_to_json(float(state.met.violation)),
                "gap": number_to_json(float(state.met.gap)),
                "seconds": number_to_json(float(state.seconds)),
                "was_drawn": state.was_drawn,
            },
            "memory": {
                "numbers": {name: number_to_json(n) for name, n in memory.numbers.items()},
                "arrays": {name: names[id(array)] for name, array in memory.arrays.items()},
            },
            "history": pack_history(arrays, run.history),
            "next_check": run.next_check,
            "is_judged": run.n_untold == 0,
        }
        return Container(self.kind, content, arrays)

    def stored_seed(self, content: Fields) -> int:
        """See :class:`PeriodicFile`."""
        return content.fields("state").whole("seed")

    def resumed(self, problem: Problem, solver: Solver) -> Run:
        """Return the run in the file, or raise a SavedFileError if it is that of another fit."""
        way_out = f"start again with {option('resume', False)}, which overwrites it"
        with self.reading(self.identity, self.seed, way_out) as (content, arrays):
            state = _state(content, arrays, problem, solver)
            found = problem.objective(state.factors) if state.iteration else state.objective
            scale = problem.backend.data.total + abs(state.objective)
            is_same = abs(found - state.objective) <= 1e-5 * scale < np.inf  # rounding is far below
            if state.iteration and found != state.objective and not is_same:
                raise SavedFileError("its factors have another objective: it was changed.")
            history = unpack_history(arrays, content.members.get("history"))
            iterations = [record["iteration"] for record in history]
            if any(record.keys() != record_fields(len(state.factors)) for record in history[:1]):
                raise SavedFileError(f"the records of its history are {sorted(history[0])}.")
            if iterations != list(range(state.iteration - len(history) + 1, state.iteration + 1)):
                raise SavedFileError("its history does not belong to its iterations.")
            if len(history) > self.max_iter:
                raise SavedFileError(
                    f"it has done {len(history)} iterations, more than "
                    f"{option('max_iter', self.max_iter)}."
                )
            # The iteration of the next full evaluation depends on tol.
            next_check = content.whole("next_check")
            is_same_tol = content.number("tol") == self.tol
            run = Run(problem, solver, state, history)
            run.before_iteration = self.write_if_due
            run.next_check = next_check if is_same_tol else 0
            run.n_untold = int(not content.take("is_judged", bool))
            return run


def _state(content: Fields, arrays: dict[str, Array], problem: Problem, solver: Solver) -> State:
    """Return the checked state of a fit of this problem."""
    _check_factors(arrays, problem, content.fields("identity").whole("n_components"))
    modes = range(len(problem.backend.data.shape))
    restored = {
        name: problem.backend.upload(array, _mode_of(name, modes), array.dtype)
        for name, array in arrays.items()
        if name != "history"
    }
    stored = content.fields("state")
    state = State(
        factors=[restored[factor_name(mode)] for mode in modes],
        seed=stored.whole("seed"),
        iteration=stored.whole("iteration"),
        objective=stored.number("objective"),
        met=Met(stored.number("violation"), stored.number_if_stored("gap")),
        seconds=stored.number("seconds"),
        was_drawn=stored.take("was_drawn", bool),
    )
    memory = content.fields("memory")
    numbers, places = memory.fields("numbers").members, memory.fields("arrays").members
    unknown = [
        name for name, place in places.items() if type(place) is not str or place not in restored
    ]
    if unknown:
        raise SavedFileError(f"the solver's {unknown} are not in the file.")
    stored_memory = StoredMemory(
        {name: number_from_json(value, name) for name, value in numbers.items()},
        {name: restored[place] for name, place in places.items()},
    )
    solver.restore_memory(problem, state, stored_memory)
    return state


def _mode_of(name: str, modes: range) -> int:
    """Mode of an array in a file: names end with that of a factor, or it belongs to the rows of X.

    >>> names = "factor_2", "memory.previous_H", "memory.previous_factor_2", "memory.product"
    >>> [_mode_of(name, range(3)) for name in names]
    [2, 1, 2, 0]
    """
    return next((mode for mode in modes if f"_{name}".endswith(f"_{factor_name(mode)}")), 0)


def _check_factors(arrays: dict[str, Array], problem: Problem, n_components: int) -> None:
    data = problem.backend.data
    narrow = problem.backend.narrow_dtype or data.dtype
    shapes = [(n_rows, n_components) for n_rows in data.shape]
    factors = [array_named(arrays, factor_name(mode), FLOATS, 2) for mode in range(len(data.shape))]
    wrong = [name for name in arrays if name != "history" and not is_factor(arrays[name])]
    if wrong:
        raise SavedFileError(f"{wrong[0]} has entries that are negative or not finite.")
    types = {factor.dtype for factor in factors}
    is_one_type = types in ({data.dtype}, {narrow})
    if [factor.shape for factor in factors] != shapes or not is_one_type:
        found = " and ".join(f"{factor.dtype} {factor.shape}" for factor in factors)
        wanted = " and ".join(map(str, shapes))
        raise SavedFileError(f"its factors are {found}, not {data.dtype} {wanted}.")


def should_resume(path: Path | None, resume: str | bool) -> bool:
    """Whether to resume from this file: "auto" if it exists; True requires it to exist."""
    wanted = checked_flag("resume", resume)
    if path is None:
        if wanted:
            raise ValueError("resume=True needs a file to resume from: pass checkpoint='PATH'.")
        return False
    if wanted and not path.exists():
        raise FileNotFoundError(
            f"There is no checkpoint {path}. Use resume='auto' to start from the beginning if the "
            "file does not exist."
        )
    return wanted is not False and path.exists()
